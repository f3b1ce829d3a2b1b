/** Webhooks (contract §9) of a gateway as a process: from gateway.json to a receiver. */
import { createHmac } from 'node:crypto'
import { chmod, readFile, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { workshop } from '../support/processes.js'
import { makeClient, questionOf, type ServeReady } from '../support/proposing.js'

const shop = workshop()
const calls: { text: string; signature: string; body: Record<string, unknown> }[] = []
let heard = () => {}
const receiver = createServer((request, response) => {
  let text = ''
  request.on('data', (part) => {
    text += part
  })
  request.on('end', () => {
    const signature = String(request.headers['proposer-signature'])
    calls.push({ text, signature, body: JSON.parse(text) })
    response.writeHead(200).end()
    heard()
  })
})
afterAll(async () => {
  await shop.clean()
  receiver.closeAllConnections()
  receiver.close()
})
const until = async (count: number) => {
  while (calls.length < count)
    await new Promise<void>((resolve) => {
      heard = resolve
    })
}

test('contract §9: a receiver hears that the gateway is ready and of a failed candidate; R5: nobody hears the secret', async () => {
  await new Promise<void>((resolve) => receiver.listen(0, '127.0.0.1', resolve))
  const folder = join(await shop.folder(), 'dev')
  const chain = shop.start([
    'devchain',
    '--port',
    '0',
    '--questions',
    '1',
    '--write',
    folder,
    '--json',
  ])
  const { dev } = await chain.line<ServeReady>()
  const path = join(folder, 'gateway.json')
  const secret = 'canary-of-the-receiver'
  const hook = {
    url: `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/private`,
    events: ['ready', 'candidate_failed'],
    secret_file: './hook.secret',
  }
  await writeFile(
    path,
    JSON.stringify({ ...JSON.parse(await readFile(path, 'utf8')), webhooks: [hook] }),
  )
  await writeFile(join(folder, 'hook.secret'), `${secret}\n`)
  const serve = [
    'serve',
    '--config',
    path,
    '--port',
    '0',
    '--json',
    '--set',
    'pipeline.enabled=false',
  ]

  // Others may read the secret: nothing starts.
  await chmod(join(folder, 'hook.secret'), 0o644)
  for (const args of [serve, [...serve, '--check']]) {
    const refused = await shop.run(args)
    expect(refused.code).toBe(2)
    expect(refused.stdout + refused.stderr).toMatch(/hook\.secret may be read by others/)
  }
  await chmod(join(folder, 'hook.secret'), 0o600)
  const checked = await shop.run([...serve, '--check'])
  expect([checked.code, checked.stdout]).toEqual([0, expect.stringContaining('1 receiver')])
  expect(calls).toEqual([])

  const server = shop.start(serve)
  const { url } = await server.line<ServeReady>()
  await until(1)
  expect(calls[0]?.body).toMatchObject({
    schema: 'proposer.webhook/1',
    event: 'ready',
    reasons: [],
  })

  const client = await makeClient(shop, dev, { PROPOSER_GATEWAY: url })
  const { slug } = questionOf(dev, 0)
  const { answer } = await client.ask('submit', slug, '--outcome', 'p1')
  const id = String(answer.candidate_id)
  await shop.run([
    'operator',
    'candidates',
    'reject',
    id,
    '--reason',
    'a test',
    '--config',
    path,
    '--yes',
  ])
  await until(2)
  expect(calls[1]?.body).toMatchObject({
    event: 'candidate_failed',
    chain_id: 31_337,
    candidate: { candidate_id: id, slug, failure_code: 'operator_rejected', outcome: 'p1' },
  })
  for (const { text, signature } of calls) {
    const [, at, mac] = /^t=(\d+),v1=(.*)$/.exec(signature) ?? []
    expect(mac).toBe(createHmac('sha256', secret).update(`${at}.${text}`).digest('hex'))
  }
  const ended = await server.stop()
  expect(ended.code).toBe(0)
  expect(ended.stdout + ended.stderr + checked.stdout).not.toMatch(/canary|private/)
})
