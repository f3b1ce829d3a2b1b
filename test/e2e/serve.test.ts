import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { argvOf } from '#support/argv'
import { type Running, workshop } from '#support/processes'
import {
  type Client,
  makeClient,
  post,
  proposals,
  questionOf,
  type ServeReady,
  untilExecuted,
} from '#support/proposing'

const shop = workshop()

describe('serve --dev', () => {
  let server: Running
  let ready: ServeReady
  let client: Client
  let temporary: string

  beforeAll(async () => {
    temporary = await shop.folder()
    server = shop.start(argvOf`serve --dev --port 0 --questions 6 --json`, {
      env: { TMPDIR: temporary, PROPOSER_STORE_URL_FILE: '/nowhere/store.url' },
    })
    ready = await server.line<ServeReady>()
    client = await makeClient(shop, ready.dev, {
      PROPOSER_GATEWAY: ready.url,
      PROPOSER_RPC_URL: ready.dev.rpc_url,
    })
  })

  test('contract §6: the ready line comes when /readyz answers 200, and port 0 frees the admin port too', async () => {
    const keys = ['schema', 'event', 'url', 'admin_url', 'pid', 'dev']
    expect(Object.keys(ready).slice(0, 6)).toEqual(keys)
    expect(ready).toMatchObject({ event: 'ready', pid: server.child.pid })
    expect((await fetch(`${ready.url}/readyz`)).status).toBe(200)
    expect((await fetch(`${ready.admin_url}/metrics`)).status).toBe(200)
    expect((await fetch(`${ready.url}/metrics`)).status).toBe(404)
    expect(ready.dev.questions).toHaveLength(6)
  })

  test('contract §6: beside others --dev takes free ports, the admin port too, and a file gets what a shell needs', async () => {
    const text = async (folder: string) => {
      const path = join(folder, 'ready.txt')
      const one = shop.start(argvOf`serve --dev --questions 1`, {
        under: ['sh', '-c', `exec "$@" >'${path}'`, 'sh'],
      })
      await expect
        .poll(() => (existsSync(path) ? readFileSync(path, 'utf8') : ''), { timeout: 60_000 })
        .toContain('PROPOSER_RPC_URL')
      return { one, text: readFileSync(path, 'utf8') }
    }
    const [first, second] = [await text(await shop.folder()), await text(await shop.folder())]
    const urls = [first, second].map(({ text: said }) => /^ready (\S+) \(admin (\S+),/.exec(said))
    const all = urls.flatMap((match) => match?.slice(1) ?? [])
    expect(new Set(all).size).toBe(4)
    expect(second.text).toContain(`export PROPOSER_GATEWAY=${urls[1]?.[1]}`)
    for (const { one } of [first, second]) expect((await one.stop()).code).toBe(0)
  })

  test('spec §1–§4: eligibility, context, sign, submit and poll end in exactly one ProposePrice, whose log index is told', async () => {
    const { slug, question_id } = questionOf(ready.dev, 0)
    expect(await client.ask('eligibility')).toMatchObject({
      code: 0,
      answer: { address: client.proposer, eligible: true },
    })
    const context = await client.ask('context', slug)
    expect(context).toMatchObject({
      code: 0,
      answer: { schema: 'proposer.context/1', questions: [{ question_id }] },
    })
    const signed = await client.ask('sign', slug, '--outcome', 'p2')
    expect(signed).toMatchObject({ code: 0, answer: { question_id, signer: client.proposer } })
    const submitted = await client.ask('submit', slug, '--outcome', 'p2')
    expect(submitted).toMatchObject({
      code: 0,
      answer: { outcome: 'accepted', journal_id: signed.answer.journal_id, question_id },
    })

    const status = await untilExecuted(client, String(submitted.answer.candidate_id))
    expect(status).toMatchObject({
      status: 'executed',
      submission: { status: 'indexed' },
      failure: null,
    })
    const logs = await proposals(ready.dev, client.proposer)
    expect(logs.map(({ transactionHash }) => transactionHash)).toEqual([
      status.submission?.transaction_hash,
    ])
    expect(logs.map(({ logIndex }) => Number(logIndex))).toEqual([
      status.submission?.proposal_event_index,
    ])

    const path = `/v1/proposals/${question_id}`
    const again = await post(ready.url, path, signed.answer.payload)
    expect(again).toMatchObject({
      status: 200,
      body: { candidate_id: submitted.answer.candidate_id, status: 'executed' },
    })
  })

  test('contract §6: SIGTERM drains and exits 0; the chain ends and the temporary store goes with it', async () => {
    const { code, stdout } = await server.stop('SIGTERM')
    expect(code).toBe(0)
    expect(stdout.trim().split('\n')).toHaveLength(1)
    await expect(fetch(ready.dev.rpc_url)).rejects.toThrow()
    expect(readdirSync(temporary)).toEqual([])
  })
})

describe('serve', () => {
  test('contract §6: a killed serve --dev takes its chain along (R23)', async () => {
    const server = shop.start(argvOf`serve --dev --port 0 --questions 0 --json`, {
      env: { TMPDIR: await shop.folder() },
    })
    const { dev } = await server.line<ServeReady>()
    await server.stop('SIGKILL')
    await vi.waitFor(() => expect(fetch(dev.rpc_url)).rejects.toThrow(), { timeout: 30_000 })
  })

  test.each([
    [argvOf`--dev --config gateway.json`, 'usage'],
    [argvOf`--dev --set store=elsewhere`, 'usage'],
    [argvOf`--dev --set budget.per_ip=5`, 'setting_invalid'],
    [argvOf`--dev --set budget.per_ip_items=many`, 'setting_invalid'],
    [argvOf`--dev --port http`, 'bad_number'],
    [['--config', 'no-such-file.json'], 'input_unreadable'],
  ])(
    'contract §6: serve %j is refused with exit 2 and a hint, and starts nothing',
    async (args, code) => {
      const { code: exit, stdout, stderr } = await shop.run(['serve', ...args, '--json'])
      expect(exit).toBe(2)
      expect(stdout).toBe('')
      expect(JSON.parse(stderr.trim().split('\n').at(-1) ?? '').error).toMatchObject({
        code,
        exit_code: 2,
        hint: expect.stringMatching(/.{5}/),
      })
    },
  )

  test('contract §6: a second serve on one store exits 74 and names the holder (R12)', async () => {
    const { chain, folder } = await shop.devChain(1)
    const config = argvOf`serve --config ${join(folder, 'gateway.json')} --port 0 --json`
    const holder = shop.start(config)
    const { pid } = await holder.line<ServeReady>()
    const second = await shop.run(config)
    expect(second.code).toBe(74)
    expect(second.stderr).toContain(String(pid))
    const local = await shop.run(
      argvOf`submit x --outcome p1 --local ${join(folder, 'gateway.json')} --yes`,
      {
        env: {
          PROPOSER_HOME: join(folder, 'home'),
          PROPOSER_KEY_FILE: join(folder, 'proposer-1.key'),
          PROPOSER_TRUST: join(folder, 'trust.json'),
        },
      },
    )
    expect(local.code).toBe(74)
    expect((await holder.stop('SIGTERM')).code).toBe(0)
    const third = shop.start(config)
    await third.line()
    expect((await third.stop('SIGINT')).code).toBe(0)
    await chain.stop()
  })

  test('contract §6: --local runs the whole gateway in the command, without a server', async () => {
    const { chain, dev, folder } = await shop.devChain(2)
    const client = await makeClient(shop, dev, { PROPOSER_LOCAL: join(folder, 'gateway.json') })
    const { slug } = questionOf(dev, 0)
    expect(await client.ask('eligibility')).toMatchObject({ code: 0, answer: { eligible: true } })
    expect(existsSync(join(folder, 'gateway-store'))).toBe(false)
    const submitted = await client.ask('submit', slug, '--outcome', 'p2', '--wait')
    expect(submitted).toMatchObject({
      code: 0,
      answer: { outcome: 'accepted', status: 'executed' },
    })
    const status = await client.ask('status', String(submitted.answer.candidate_id))
    expect(status).toMatchObject({
      code: 0,
      answer: { candidates: [{ status: 'executed', submission: { status: 'indexed' } }] },
    })
    const [candidate] = status.answer.candidates as {
      submission: { proposal_event_index: number }
    }[]
    const logs = await proposals(dev, client.proposer)
    expect(logs.map(({ logIndex }) => Number(logIndex))).toEqual([
      candidate?.submission.proposal_event_index,
    ])
    await chain.stop()
  })

  test('contract §6: while the chain is away there is no ready line but a reason on stderr, and SIGTERM exits 0', async () => {
    const { chain, folder } = await shop.devChain(0)
    await chain.stop()
    const server = shop.start(argvOf`serve --config ${join(folder, 'gateway.json')} --port 0
      --json`)
    await server.said(/waiting: /)
    const { stderr, ...ended } = await server.stop('SIGTERM')
    expect(ended).toMatchObject({ code: 0, stdout: '' })
    expect(JSON.parse(stderr.split('\n')[0] ?? '')).toMatchObject({
      event: 'note',
      detail: expect.stringMatching(/^waiting: /),
    })
    const plain = shop.start(argvOf`serve --config ${join(folder, 'gateway.json')} --port 0
      --host 0.0.0.0`)
    await plain.said(/waiting: /)
    const lines = (await plain.stop('SIGTERM')).stderr.trimEnd().split('\n')
    expect(lines.map((line) => JSON.parse(line).event).slice(0, 2)).toEqual(['warning', 'note'])
    const checked = await shop.run(argvOf`serve --config ${join(folder, 'gateway.json')}
      --port 0 --check --json`)
    expect(checked.code).toBe(2)
    expect(JSON.parse(checked.stdout)).toMatchObject({
      schema: 'proposer.serve-check/1',
      ok: false,
    })
  })

  test('R10, R12: a gateway whose store was taken over admits nothing more and exits 74', async () => {
    const { chain, dev, folder } = await shop.devChain(1)
    const { code, stdout } = await shop.run(argvOf`serve --config
      ${join(folder, 'gateway.json')} --port 0 --check --json`)
    expect({ code, ...JSON.parse(stdout) }).toMatchObject({ code: 0, ok: true, faults: [] })
    const server = shop.start(argvOf`serve --config ${join(folder, 'gateway.json')} --port 0
      --json`)
    const { url } = await server.line<ServeReady>()
    const client = await makeClient(shop, dev, { PROPOSER_GATEWAY: url })
    const { question_id } = questionOf(dev, 0)
    const signed = await client.ask('sign', question_id, '--outcome', 'p1')
    expect(signed.code).toBe(0)
    await writeFile(join(folder, 'gateway-store', 'LOCK.2'), '{}\n')
    const refused = await post(url, `/v1/proposals/${question_id}`, signed.answer.payload)
    expect([500, 503]).toContain(refused.status)
    expect((await server.ended).code).toBe(74)
    await chain.stop()
  })

  test('contract §6: a taken port is exit 2 and says which key to change', async () => {
    const server = shop.start(argvOf`serve --dev --port 0 --questions 0 --json`, {
      env: { TMPDIR: await shop.folder() },
    })
    const { url } = await server.line<ServeReady>()
    const second = await shop.run(
      argvOf`serve --dev --port ${new URL(url).port} --set admin.port=0 --questions 0`,
      {
        env: { TMPDIR: await shop.folder() },
      },
    )
    expect(second.code).toBe(2)
    expect(JSON.parse(second.stderr.trimEnd().split('\n').at(-1) ?? '')).toMatchObject({
      severity: 'error',
      message: expect.stringMatching(/^listen\.port \d+ cannot be listened on/),
      detail: expect.stringContaining('--port 0'),
    })
    await server.stop()
  })

  test('robustness §5: a host beyond loopback prints a warning to put a TLS proxy before it', async () => {
    const server = shop.start(argvOf`serve --dev --port 0 --host 0.0.0.0 --questions 0 --json`, {
      env: { TMPDIR: await shop.folder() },
    })
    await server.line()
    expect(server.stderr()).toMatch(/TLS/)
    await server.stop()
  })

  test.each([
    ['by itself where stderr is no terminal', [], true],
    ['with --log, also beside --quiet', ['--quiet', '--log'], true],
    ['not with --quiet', ['--quiet'], false],
    ['not with --no-log', ['--no-log'], false],
  ])(
    'robustness §5: the request log is one JSON line a request on stderr: %s',
    async (_name, flags, on) => {
      const server = shop.start(argvOf`serve --dev --port 0 --questions 0 --json ${flags}`, {
        env: { TMPDIR: await shop.folder() },
      })
      const { url } = await server.line<ServeReady>()
      expect((await fetch(`${url}/v1/proposals/eligibility/0x${'ab'.repeat(20)}`)).status).toBe(200)
      if (on) await server.said(/"event":"request"/)
      const { code, stderr } = await server.stop()
      expect(code).toBe(0)
      const lines = stderr.split('\n').filter((line) => line.includes('"event":"request"'))
      expect(lines.map((line) => JSON.parse(line))).toMatchObject(
        on ? [{ method: 'GET', route: '/v1/proposals/eligibility/{address}', status: 200 }] : [],
      )
    },
  )
})
