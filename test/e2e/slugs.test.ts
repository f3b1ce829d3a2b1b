import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { DevDescription } from '#devchain/dev-chain'
import { argvOf } from '#support/argv'
import { serveHttp } from '#support/http-server'
import { type Running, workshop } from '#support/processes'
import { type Client, makeClient, questionOf, type ServeReady } from '#support/proposing'

const shop = workshop()

const markets = new Map<string, object>()
let gamma: Awaited<ReturnType<typeof serveHttp>>
let gammaUrl: string

describe('serve with slugs from Gamma (domain §5.4)', () => {
  let folder: string
  let dev: DevDescription
  let server: Running
  let ready: ServeReady
  let chain: Running
  let flags: string[]

  const clientWith = async (
    slugs: Record<string, string>,
    more: Record<string, string> = {},
  ): Promise<Client> => {
    const client = await makeClient(shop, dev, { PROPOSER_GATEWAY: ready.url, ...more })
    const path = client.env.PROPOSER_TRUST ?? ''
    await writeFile(path, JSON.stringify({ ...JSON.parse(await readFile(path, 'utf8')), slugs }))
    return client
  }

  beforeAll(async () => {
    gamma = await serveHttp((request, _body, response) => {
      const market = markets.get(request.url?.replace('/canary-base/markets/slug/', '') ?? '')
      response.writeHead(market ? 200 : 404, { 'content-type': 'application/json' })
      response.end(JSON.stringify(market ?? { type: 'not found error', error: 'slug not found' }))
    })
    gammaUrl = `${gamma.url}/canary-base`
    ;({ chain, dev, folder } = await shop.devChain(4))
    flags = argvOf`--set questions=null --set slugs={"source":"gamma","url":"${gammaUrl}"}`
    const [plain, binary] = [questionOf(dev, 0), questionOf(dev, 1)]
    const more = { outcomes: '["Yes", "No"]', umaResolutionStatuses: '[]' }
    markets.set('plain', { slug: 'plain', negRisk: false, questionID: plain.question_id, ...more })
    const other = `0x${'ee'.repeat(32)}`
    markets.set('grouped', {
      slug: 'grouped',
      negRisk: true,
      questionID: other,
      negRiskRequestID: binary.question_id,
      ...more,
    })
    markets.set('open', {
      slug: 'open',
      negRisk: null,
      questionID: questionOf(dev, 2).question_id,
      ...more,
    })
    markets.set('lie', { slug: 'lie', negRisk: false, questionID: other, ...more })
    server = shop.start(argvOf`serve --config ${join(folder, 'gateway.json')} --port 0 --json
      ${flags}`)
    ready = await server.line<ServeReady>()
  })
  afterAll(async () => {
    await gamma.close()
  })

  test('contract §3: a pinned slug is submitted and executed, and its status is asked for by slug', async () => {
    const { question_id } = questionOf(dev, 0)
    const client = await clientWith({ plain: question_id })
    const submitted = await client.ask('submit', 'plain', '--outcome', 'p2', '--wait')
    expect(submitted).toMatchObject({
      code: 0,
      answer: { outcome: 'accepted', status: 'executed', question_id },
    })
    const status = await client.ask(
      'status',
      String(submitted.answer.candidate_id),
      '--question',
      'plain',
    )
    expect(status).toMatchObject({ code: 0, answer: { candidates: [{ question_id }] } })
  })

  test('R9: a slug that is not pinned is shown but not signed for, and the error says what to do', async () => {
    const { question_id } = questionOf(dev, 2)
    const client = await clientWith({})
    expect(await client.ask('context', 'open')).toMatchObject({
      code: 0,
      answer: { questions: [{ question_id }] },
    })
    const refused = await client.ask('submit', 'open', '--outcome', 'p2')
    expect(refused).toMatchObject({
      code: 2,
      answer: {
        code: 'untrusted_slug',
        detail: expect.stringContaining(question_id),
        hint: expect.stringMatching(/proposer context 0x.*add "open": "0x[0-9a-f]{64}" to `slugs`/),
      },
    })
    const withNode = await clientWith({}, { PROPOSER_RPC_URL: dev.rpc_url })
    expect(await withNode.ask('submit', 'open', '--outcome', 'p2')).toMatchObject({
      code: 2,
      answer: {
        code: 'untrusted_slug',
        hint: expect.stringMatching(/proposer context open.*without a node/),
      },
    })
  })

  test('R5, R16: with Gamma down the gateway is ready, only unknown slugs are 503, and no message shows its address', async () => {
    await gamma.close()
    const client = await clientWith({})
    expect((await fetch(`${ready.url}/readyz`)).status).toBe(200)
    for (const identifier of [questionOf(dev, 3).question_id, 'open']) {
      expect((await client.ask('context', identifier)).code, identifier).toBe(0)
    }
    expect(await client.ask('context', 'plain')).toMatchObject({
      code: 5,
      answer: { code: 'request_not_open' },
    })
    const unknown = await client.ask('context', 'another')
    expect(unknown).toMatchObject({
      code: 75,
      answer: { code: 'state_unavailable', retryable: true },
    })
    const { code, stdout, stderr } = await shop.run(argvOf`serve --config
      ${join(folder, 'gateway.json')} --check --json ${flags}`)
    expect({ code, ...JSON.parse(stdout) }).toMatchObject({ code: 0, ok: true, faults: [] })
    const stopped = await server.stop()
    expect(stopped.code).toBe(0)
    for (const text of [
      unknown.ended.stdout,
      unknown.ended.stderr,
      stdout,
      stderr,
      stopped.stdout,
      stopped.stderr,
    ]) {
      expect(text).not.toContain('canary')
      expect(text).not.toContain(new URL(gammaUrl).host)
    }
    await chain.stop()
  })
})
