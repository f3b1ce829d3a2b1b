import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { parseConfig } from '#gateway/config'
import type { Fetch } from '#ports'
import { version } from '#protocol/words'
import { noFetch, run } from '#support/cli'
import { createFakeChain } from '#support/fake-chain'
import {
  clockAt,
  type Expected,
  expectedOf,
  keptFiles,
  keptVersions,
  type Sent,
} from '#support/kept-files'

async function say(
  folder: string,
  argv: readonly string[],
  atMs: number,
  fetch = noFetch,
): Promise<unknown> {
  const at = { cwd: folder, clock: clockAt(atMs), chain: noNode, fetch }
  const { code, stdout, stderr } = await run(join(folder, 'home'), argv, at)
  if (code !== 0) throw new Error(`${argv.join(' ')} ended with ${code}: ${stderr}`)
  return JSON.parse(stdout.replaceAll(folder, '<folder>'))
}

const noNode = createFakeChain()
for (const method of ['chainId', 'block', 'call', 'code'] as const)
  noNode.fault(method, 'unavailable', { times: Number.POSITIVE_INFINITY })

const words: Readonly<Record<string, number>> = { journal: 2, operator: 3 }
/**
 * The lists of `config list`, and the list of what no chain confirmed, hold more in later versions;
 * proofs judge no rules any more.
 */
const withLaterEntries = (says: object) =>
  Object.fromEntries(
    Object.entries(says)
      .filter(([key]) => key !== 'rules' && key !== 'unordered')
      .map(([key, value]) => [
        key,
        Array.isArray(value) && grows(says, key) ? expect.arrayContaining(value) : value,
      ]),
  )
const grows = (says: object, key: string) =>
  key === 'unchecked' || ('schema' in says && says.schema === 'proposer.config/1')

function kindsOf(commands: Expected['commands']) {
  const kinds = new Map<string, Expected['commands'][number][]>()
  for (const command of commands) {
    const [verb = ''] = command.argv
    const kind = command.argv.slice(0, words[verb] ?? 1).join(' ')
    kinds.set(kind, [...(kinds.get(kind) ?? []), command])
  }
  return kinds
}

function admitting(): { readonly fetch: Fetch; readonly sent: Sent[] } {
  const sent: Sent[] = []
  const json = (status: number, body: object) => Response.json(body, { status })
  const fetch: Fetch = async (input, init) => {
    const request = new Request(input, init)
    const { pathname: path } = new URL(request.url)
    const body = await request.text()
    const acknowledge = (bytes: string) => {
      const sha256 = createHash('sha256').update(bytes).digest('hex')
      sent.push({ method: request.method, path, sha256 })
      const candidate_id = `00000000-0000-4000-8000-${String(sent.length).padStart(12, '0')}`
      return { candidate_id, status: 'received', received_at: '2026-11-22T09:00:00.000Z' }
    }
    if (path !== '/propose/batch') {
      const acknowledged = acknowledge(body)
      const status_url = `${path}/status/${acknowledged.candidate_id}`
      return json(202, { version, ...acknowledged, status_url })
    }
    const { proposals } = JSON.parse(body) as { proposals: unknown[] }
    const alone = (item: unknown) => JSON.stringify({ proposals: [item] })
    // However many go in a call, its bytes are those of its items.
    expect(body).toBe(JSON.stringify({ proposals }))
    const results = proposals.map((item) => {
      const acknowledged = acknowledge(alone(item))
      const status_url = `/propose/status/${acknowledged.candidate_id}`
      const { client_ref = null } = item as { client_ref?: string }
      return { client_ref, status_code: 202, candidate: { ...acknowledged, status_url } }
    })
    const summary = { accepted: results.length, replayed: 0, rejected: 0 }
    return json(200, { results, summary })
  }
  return { fetch, sent }
}

const held = {
  'v0.1': [
    '"state":"conflict"',
    '"reason":"failed"',
    '"submission":"prepared"',
    '"torn_bytes":570',
  ],
  'v0.2': ['"retryable":true', '"state":"offered"', '"submission":"submitted"'],
} as const

describe.each(keptVersions)('files of %s', (kept) => {
  const expected = expectedOf(kept)
  let files: string
  beforeAll(async () => {
    files = await keptFiles(kept)
  })

  test.each([...kindsOf(expected.commands)])(
    '%s says what it said then',
    async (_kind, commands) => {
      for (const { argv, at_ms: atMs, says } of commands) {
        expect(await say(files, argv, atMs), argv.join(' ')).toMatchObject(withLaterEntries(says))
      }
    },
  )

  test('hold every state of an authorization and of a candidate (contract §1, §5)', () => {
    const text = JSON.stringify(expected.commands)
    for (const state of ['signed', 'accepted', 'unknown', 'deferred', 'closed', 'offered'])
      expect(text).toContain(`"state":"${state}"`)
    for (const reason of ['refused', 'executed', 'nonce_used', 'expired'])
      expect(text).toContain(`"reason":"${reason}"`)
    for (const status of ['received', 'validated', 'selected', 'executed', 'failed'])
      expect(text).toContain(`"status":"${status}"`)
    for (const submission of ['submitted', 'indexed'])
      expect(text).toContain(`"submission":"${submission}"`)
    for (const part of held[kept]) expect(text).toContain(part)
  })

  test('gateway.json with every key means what it meant, but for what is gone', async () => {
    const raw: unknown = JSON.parse(
      await readFile(join(files, 'inputs/gateway-all-keys.json'), 'utf8'),
    )
    const { webhooks: _, ...config } = expected.config as { webhooks?: unknown }
    expect(parseConfig(raw, 'gateway-all-keys.json')).toMatchObject(config)
  })

  test.each(expected.replays)(
    'R7: replay --all of $home sends the very bytes that it would have sent then',
    async ({ home, sent }) => {
      const own = await keptFiles(kept)
      const gateway = admitting()
      const replay = () =>
        say(own, ['replay', '--all', '--json', '--home', home], expected.made_ms, gateway.fetch)
      expect(await replay()).toMatchObject({
        results: sent.map(() => ({ outcome: 'accepted' })),
        elsewhere: [],
      })
      expect(gateway.sent).toEqual(sent)
      expect(await replay()).toMatchObject({ results: [], elsewhere: [] })
      expect(
        await say(own, ['journal', 'verify', '--json', '--home', home], expected.made_ms),
      ).toMatchObject({ hashes: expect.any(Number) })
    },
  )
})
