import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { signerFromKey } from '#io/keys'
import type { Fetch } from '#ports'
import { type Argv, eachHome, lastErrorOf, type RunOptions, run } from '#support/cli'
import {
  ask,
  createFakeChain,
  createFakeClock,
  endow,
  type FakeChain,
  questionText,
} from '#support/fake-chain'
import { adapterTrust } from '#support/fake-world'

const node = { PROPOSER_RPC_URL: 'http://127.0.0.1:8545' }
const gamma = { PROPOSER_GAMMA_URL: 'https://gamma.example' }
const key = `0x${'07'.repeat(32)}`
const wallet = signerFromKey(new Uint8Array(32).fill(7)).address

const home = eachHome()
let chain: FakeChain
let question: `0x${string}`
beforeEach(() => {
  mkdirSync(join(home.path, 'trust'))
  writeFileSync(path(), JSON.stringify(adapterTrust))
  chain = createFakeChain()
  question = ask(chain, questionText('Will Porto win?'))
  chain.mine()
})

const path = () => join(home.path, 'trust', 'default.json')
const pinned = () => JSON.parse(readFileSync(path(), 'utf8'))

/** Gamma with these markets, and events of them; `asked` are the paths of its calls. */
function markets(known: Record<string, string>, events: Record<string, string[]> = {}) {
  const asked: string[] = []
  const market = (slug: string) => ({ slug, question: `Title of ${slug}`, questionID: known[slug] })
  const fetch: Fetch = async (input) => {
    const { pathname } = new URL(String(input))
    asked.push(pathname)
    const [, kind, , slug = ''] = pathname.split('/')
    if (kind === 'markets' && known[slug] !== undefined) return Response.json(market(slug))
    const event = kind === 'events' ? events[slug] : undefined
    if (event !== undefined) return Response.json({ slug, markets: event.map(market) })
    return new Response('', { status: 404 })
  }
  return { asked, fetch }
}
const go = (argv: Argv, options: RunOptions = {}) =>
  run(home.path, argv, {
    ...{ chain, clock: createFakeClock(chain), environmentKey: key },
    ...options,
    env: { ...node, ...options.env },
  })
const url = 'https://polymarket.com/event/cup-final'

test('contract §9: reading: an unpinned slug is looked up, and confirmed on the chain', async () => {
  const { fetch } = markets({ 'will-porto-win': question })
  for (const named of ['will-porto-win', `${url}/will-porto-win`]) {
    const ran = await go(['context', named, '--json'], { env: gamma, fetch })
    expect(ran).toMatchObject({ code: 0 })
    expect(JSON.parse(ran.stdout).questions[0]).toMatchObject({
      ...{ question_id: question, slug: 'will-porto-win', source: 'chain' },
    })
  }
  const shown = await go('context will-porto-win', { env: gamma, fetch })
  expect(shown.stderr).toContain('Will Porto win?')
  expect(shown.stderr).toContain('proposer trust pin will-porto-win')
  // For this run alone.
  expect(pinned()).toEqual(adapterTrust)
})

test('contract §9: an event with one market is that market; with several the list is told, exit 2', async () => {
  const known = { 'porto-wins': question, 'bergen-wins': `0x${'b'.repeat(64)}` }
  const one = markets(known, { 'cup-final': ['porto-wins'] })
  const ran = await go(['context', url, '--json'], { env: gamma, fetch: one.fetch })
  expect(JSON.parse(ran.stdout).questions[0]).toMatchObject({ slug: 'porto-wins' })
  const both = markets(known, { 'cup-final': ['porto-wins', 'bergen-wins'] })
  const conformance = ['conformance', 'https://g.example', '--read-only', '--question']
  for (const argv of [['context'], ['reconcile'], ['sign', '--outcome', 'p1'], conformance]) {
    const several = await go([...argv, url, '--json'], { env: gamma, fetch: both.fetch })
    expect(several.code).toBe(2)
    expect(lastErrorOf(several)).toMatchObject({
      code: 'several_markets',
      detail: expect.stringMatching(/porto-wins .*bergen-wins/),
    })
  }
})

test.each([
  ['context', ['context']],
  ['sign', ['sign', '--outcome', 'yes']],
  ['devchain', ['devchain', 'dispute']],
  ['conformance', ['conformance', 'https://g.example', '--question']],
])('contract §9: capitals are refused with what to type instead: %s', async (_name, argv) => {
  const { code, stderr } = await go([...argv, question.toUpperCase().replace('X', 'x'), '--json'])
  expect([code, lastErrorOf({ stderr }).hint]).toEqual([2, `write it in lowercase: ${question}`])
})

test('signing: what Gamma says counts only where the chain has that question (R9)', async () => {
  const sign = ['sign', 'will-porto-win', '--outcome', 'yes', '--json']
  const unknown = markets({ 'will-porto-win': `0x${'e'.repeat(64)}` })
  const refused = await go(sign, { env: gamma, fetch: unknown.fetch })
  expect(refused.code).toBe(3)
  expect(lastErrorOf(refused)).toMatchObject({ code: 'question_not_found' })
  // Without Gamma, or without a node, nobody's word is enough.
  const nobody = await go(sign)
  expect(lastErrorOf(nobody)).toMatchObject({ code: 'untrusted_slug' })
  const { fetch } = markets({ 'will-porto-win': question })
  endow(chain, wallet, 2_000_000_000n)
  chain.mine()
  const signed = await go(sign, { env: gamma, fetch })
  expect(signed).toMatchObject({ code: 0 })
  expect(JSON.parse(signed.stdout)).toMatchObject({
    ...{ question_id: question, identifier: 'will-porto-win' },
  })
  const listed = await go(`journal list --question ${url}/will-porto-win --json`)
  expect(JSON.parse(listed.stdout).authorizations).toHaveLength(1)
  // Saved bytes need no Gamma any more.
  const again = await go(sign, {
    env: gamma,
    fetch: async () => new Response('', { status: 503 }),
  })
  expect(again).toMatchObject({ code: 0 })
  expect(JSON.parse(again.stdout).digest).toBe(JSON.parse(signed.stdout).digest)
})

test('contract §9: rows of a batch may name slugs and URLs too', async () => {
  const { fetch, asked } = markets(
    { 'porto-wins': question },
    { 'cup-final': ['porto-wins'], many: ['porto-wins', 'porto-wins'] },
  )
  endow(chain, wallet, 2_000_000_000n)
  chain.mine()
  const batch = (rows: string) => ['batch', 'sign', '-', '--dry-run', '--json', ...rows.split('|')]
  for (const named of ['porto-wins', url, `${url}/porto-wins`]) {
    const stdin = `identifier,outcome\n${named},no\n`
    const ran = await go(batch('--format|csv'), { env: gamma, fetch, stdin })
    expect(ran).toMatchObject({ code: 0 })
  }
  expect(asked.length).toBeGreaterThan(2)
  const stdin = 'identifier,outcome\nhttps://polymarket.com/event/many,no\n'
  const several = await go(batch('--format|csv'), { env: gamma, fetch, stdin })
  expect(lastErrorOf(several)).toMatchObject({ code: 'several_markets' })
  const list = await go('batch context - --json', {
    env: gamma,
    fetch,
    stdin: `${url}\n`,
  })
  expect(JSON.parse(list.stdout).questions[0]).toMatchObject({ slug: 'porto-wins' })
})

test('contract §9: what names no question is exit 2', async () => {
  for (const text of ['https://example.org/event/cup-final', 'Not A Slug'])
    expect(await go(['context', text])).toMatchObject({ code: 2 })
})

test('contract §9: Gamma that does not answer is exit 75, and pinned slugs do without it', async () => {
  const fetch: Fetch = async () => new Response('', { status: 500 })
  const ran = await go('context will-porto-win --json', { env: gamma, fetch })
  expect(ran.code).toBe(75)
  writeFileSync(path(), JSON.stringify({ ...adapterTrust, slugs: { 'will-porto-win': question } }))
  expect(await go('context will-porto-win', { env: gamma, fetch })).toMatchObject({
    code: 0,
  })
})

describe('contract §9: trust pin <slug|url|question id>', () => {
  test('shows what the chain says, asks, and writes the slug', async () => {
    const { fetch } = markets({ 'will-porto-win': question }, { 'cup-final': ['will-porto-win'] })
    const unasked = await go('trust pin will-porto-win', { env: gamma, fetch })
    expect(unasked.code).toBe(2)
    expect(pinned()).toEqual(adapterTrust)
    const ran = await go(['trust', 'pin', url], {
      ...{ env: gamma, fetch, interactive: true, stdin: 'y\n', columns: 120 },
    })
    expect(ran).toMatchObject({ code: 0 })
    expect(ran.stderr).toMatch(/the chain says +Will Porto win\?/)
    expect(ran.stderr).toMatch(/answers +No \(p1\), Yes \(p2\), unknown\/50-50 \(p3\)/)
    expect(ran.stderr).toMatch(/bond +750 USDC\.e/)
    expect(pinned().slugs).toEqual({ 'will-porto-win': question })
  })

  test('a slug whose question the chain does not have is not pinned, with --yes too', async () => {
    const { fetch } = markets({ 'will-porto-win': `0x${'e'.repeat(64)}` })
    const ran = await go('trust pin will-porto-win --yes', { env: gamma, fetch })
    expect(ran.code).toBe(3)
    expect(pinned()).toEqual(adapterTrust)
  })
})
