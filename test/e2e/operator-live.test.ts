/**
 * A running gateway from its operator's shell: status and the live view, who acted, and backups
 * under load (contract §9).
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { argvOf } from '#support/argv'
import { run } from '#support/cli'
import { type Ended, type Running, workshop } from '#support/processes'
import { type Client, makeClient, post, questionOf, type ServeReady } from '#support/proposing'
import { hasTerminals, onTerminal } from '#support/terminal'

const shop = workshop()
let folder = ''
let dev: ServeReady['dev']
let client: Client
let server: Running
let ready: ServeReady

const config = () => join(folder, 'gateway.json')
const operator = (args: readonly string[], env: Record<string, string> = {}): Promise<Ended> =>
  shop.run(['operator', '--config', config(), ...args], { env: { ...client.env, ...env } })
async function asked(args: readonly string[], env?: Record<string, string>) {
  const { code, stdout, stderr } = await operator([...args, '--json'], env)
  expect({ code, stderr }).toMatchObject({ code: 0 })
  return JSON.parse(stdout)
}
async function serve(...more: readonly string[]): Promise<void> {
  server = shop.start(argvOf`serve --config ${config()} --port 0 --json ${more}`)
  ready = await server.line<ServeReady>()
}

beforeAll(async () => {
  ;({ dev, folder } = await shop.devChain(80))
  await serve()
  client = await makeClient(shop, dev, { PROPOSER_GATEWAY: ready.url })
})

describe('contract §9: operator status and top', () => {
  test('status is what the live view shows, in words and as a document', async () => {
    const document = await asked(['status'])
    expect(Object.keys(document)[0]).toBe('schema')
    expect(document).toMatchObject({
      schema: 'proposer.operator-status/1',
      store_place: join(folder, 'gateway-store'),
      url: ready.url,
      admin_url: ready.admin_url,
      ready: true,
      reasons: [],
      admission_enabled: true,
      queue: { received: { count: 0 } },
      nodes: [{ node: 1, healthy: true }],
      ceilings: {
        connections_per_address: 1_024,
        admin_connections: 64,
        stored_bytes_per_wallet: 8_388_608,
      },
      changes: expect.any(Array),
    })
    const { stdout } = await operator(['status'])
    for (const part of [
      /^gateway +ready · http/m,
      /^chain +block \d+/m,
      /^queue +received 0/m,
      /^ceilings +connections per address 1024 · admin connections 64/m,
    ])
      expect(stdout).toMatch(part)
    for (const line of stdout.split('\n')) expect(line.length).toBeLessThanOrEqual(80)
  })

  test.runIf(hasTerminals).each([80, 40])(
    'top redraws it on a terminal of %i columns, finds a gateway that was started anew, and Ctrl-C leaves the gateway running',
    async (columns) => {
      const terminal = await onTerminal(argvOf`operator --config ${config()} top`, client.env, {
        columns,
      })
      await terminal.said(/ready/)
      expect((await operator(argvOf`pause --reason look`)).code).toBe(0)
      await terminal.said(/paused/)
      await server.stop('SIGKILL')
      await terminal.said(/s ago: no/)
      await serve()
      client = { ...client, env: { ...client.env, PROPOSER_GATEWAY: ready.url } }
      const { port } = new URL(ready.url)
      await terminal.said(new RegExp(`:${port}`))
      expect((await operator(['resume'])).code).toBe(0)
      terminal.type('\u0003')
      const { code, text } = await terminal.ended
      expect(code).toBe(0)
      expect(text).toContain('the gateway keeps running')
      for (const line of text.replaceAll(/\u001b\[[\d;]*[A-Za-z]/g, '').split(/\r?\n/))
        expect(line.replaceAll(/\r|\^C/g, '').length).toBeLessThanOrEqual(columns)
      expect((await fetch(`${ready.url}/readyz`)).status).toBe(200)
    },
  )
})

describe('contract §9: acts record who', () => {
  interface Row {
    readonly address: string
    readonly by: string | null
    readonly reason: string
  }
  const wallet = (n: number) => `0x${n.toString(16).padStart(40, '0')}`
  const rowOf = async (n: number): Promise<Row | undefined> =>
    (await asked(['list'])).wallets.find(({ address }: Row) => address === wallet(n))

  test('by --by, else SUDO_USER, else the user of the system; nobody where none was told', async () => {
    await asked(argvOf`allow ${wallet(1)} --by alice --reason ${'contract signed'}`, {
      SUDO_USER: 'bob',
    })
    await asked(['allow', wallet(2)], { SUDO_USER: 'bob' })
    await asked(['allow', wallet(3)])
    const token = readFileSync(join(folder, 'gateway-store', 'admin.token'), 'utf8').trim()
    const old = await fetch(`${ready.admin_url}/operator/allow`, {
      method: 'POST',
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      body: JSON.stringify({ addresses: [wallet(4)] }),
    })
    expect(old.status).toBe(200)
    const { username } = await import('node:os').then(({ userInfo }) => userInfo())
    expect(await rowOf(1)).toMatchObject({ by: 'alice', reason: 'contract signed' })
    expect(await rowOf(2)).toMatchObject({ by: 'bob', reason: 'by operator' })
    expect(await rowOf(3)).toMatchObject({ by: username })
    expect(await rowOf(4)).toMatchObject({ by: null, reason: 'by operator' })
    await asked(argvOf`pause --by carol --reason upgrade`)
    const { stdout } = await operator(['list'])
    expect(stdout.replaceAll(/\s+/g, ' ')).toMatch(
      /admission is paused since \S+( \S+)*?: upgrade \(by carol\).*contract signed \(by alice\).*: by bob /,
    )
    await asked(['resume'])
  })

  test('of a rejection the store keeps who; its proposer reads only why', async () => {
    await server.stop()
    await serve('--set', 'pipeline.enabled=false')
    const env = { ...client.env, PROPOSER_GATEWAY: ready.url }
    const { question_id } = questionOf(dev, 79)
    const submitted = await shop.run(argvOf`submit ${question_id} --outcome p2 --json --yes`, {
      env,
    })
    expect(submitted).toMatchObject({ code: 0 })
    const id = String(JSON.parse(submitted.stdout).candidate_id)
    const reject = argvOf`candidates reject ${id} --reason ${'asked for'} --by alice`
    expect(await asked(reject)).toMatchObject({ changed: [id], by: 'alice' })
    const explained = await asked(['candidates', 'explain', id])
    expect(JSON.stringify(explained.events)).toContain('"by":"alice"')
    expect((await operator(['candidates', 'explain', id])).stdout).toContain('by alice')
    const { stdout } = await shop.run(['status', id, '--json'], { env })
    expect(stdout).toContain('asked for')
    expect(stdout).not.toContain('alice')
    await server.stop()
    await serve()
    client = { ...client, env: { ...client.env, PROPOSER_GATEWAY: ready.url } }
  })
})

describe('contract §9: operator store backup', () => {
  test('R1: a copy that is taken while proposals are admitted opens, is sound, and holds all that was acknowledged before it began', async () => {
    const count = 60
    const rows = dev.questions
      .slice(0, count)
      .map(({ slug }) => `${JSON.stringify({ identifier: slug, outcome: 'p2' })}\n`)
    const signed = await shop.run(argvOf`batch sign - --format ndjson --yes`, {
      env: { ...client.env, PROPOSER_RPC_URL: dev.rpc_url },
      stdin: rows.join(''),
    })
    expect(signed.code, signed.stderr).toBe(0)
    const acknowledged = new Set<string>()
    let heard = () => {}
    const submitting = (async () => {
      for (const item of signed.stdout.trim().split('\n')) {
        const body = `{"proposals":[${item}]}`
        let answer = await post(ready.url, '/propose/batch', body)
        while (answer.status === 503) answer = await post(ready.url, '/propose/batch', body)
        const [result] = (answer.body.results ?? []) as { candidate?: { candidate_id: string } }[]
        expect([answer, result]).toMatchObject([
          { status: 200 },
          { candidate: { candidate_id: expect.any(String) } },
        ])
        acknowledged.add(result?.candidate?.candidate_id ?? '')
        heard()
      }
    })()
    const acknowledging = async (least: number) => {
      while (acknowledged.size < least)
        await Promise.race([
          submitting,
          new Promise<void>((resolve) => {
            heard = resolve
          }),
        ])
    }
    const inside = (...args: string[]) =>
      run(folder, ['operator', ...args], {
        env: client.env,
        fetch: (input, init) => fetch(input, init),
      })
    const copies: { readonly to: string; readonly before: readonly string[] }[] = []
    let admittedMeanwhile = 0
    for (const least of [5, 20, 35, count]) {
      await acknowledging(least)
      const before = [...acknowledged]
      const to = join(folder, `copy-${least}`)
      const { code, stdout, stderr } = await inside(
        ...argvOf`--config ${config()} store backup ${to} --json`,
      )
      expect({ code, stderr }).toMatchObject({ code: 0 })
      expect(JSON.parse(stdout)).toMatchObject({
        schema: 'proposer.operator-store-backup/1',
        folder: to,
      })
      admittedMeanwhile += acknowledged.size - before.length
      copies.push({ to, before })
    }
    await submitting
    expect(admittedMeanwhile).toBeGreaterThan(0)
    for (const { to, before } of copies) {
      mkdirSync(`${to}-site`)
      const site = join(`${to}-site`, 'gateway.json')
      const file = JSON.parse(readFileSync(config(), 'utf8'))
      delete file.questions
      writeFileSync(site, JSON.stringify({ ...file, store: to }))
      expect(await inside('--config', site, 'store', 'verify')).toMatchObject({ code: 0 })
      const { stdout } = await inside('--config', site, 'store', 'export', '--ndjson')
      const held = new Set(
        [...stdout.matchAll(/"candidate_id":"([0-9a-f-]{36})"/g)].map(([, id]) => id),
      )
      expect(before.filter((id) => !held.has(id))).toEqual([])
    }
    expect(copies[0]?.before.length).toBeLessThan(count)
    expect(
      await inside('--config', config(), 'store', 'backup', copies[0]?.to ?? ''),
    ).toMatchObject({
      code: 2,
    })
  })
})
