import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { noRulesHash } from '#chain/constants'
import { ChainError, type Fetch } from '#ports'
import {
  type Argv,
  eachHome,
  lastErrorOf,
  type RunOptions,
  run,
  wordsOf,
  writeTrust,
} from '#support/cli'
import {
  ask,
  createFakeChain,
  createFakeClock,
  dispute,
  type FakeChain,
  questionText,
  rivalProposes,
  setPaused,
} from '#support/fake-chain'
import { adapter, adapterTrust } from '#support/fake-world'
import { questionContext, scriptedGateway } from '#support/scripted-gateway'

const rival = `0x${'9'.repeat(40)}` as const
const node = { PROPOSER_RPC_URL: 'http://127.0.0.1:8545' }

const home = eachHome()
let chain: FakeChain
beforeEach(() => {
  pin({})
  chain = createFakeChain()
  chain.finalityLag = 4
})

const pin = (slugs: Record<string, string>) => writeTrust(home.path, { ...adapterTrust, slugs })
const opened = (name: string) => {
  const id = ask(chain, questionText(name))
  chain.mine()
  return id
}
const list = (argv: Argv = [], options: RunOptions = {}) =>
  run(home.path, ['questions', 'list', ...wordsOf(argv)], {
    env: node,
    chain,
    clock: createFakeClock(chain),
    ...options,
  })
const listed = async (argv: Argv = [], options: RunOptions = {}) => {
  const ran = await list([...wordsOf(argv), '--json'], options)
  expect(ran).toMatchObject({ code: 0 })
  return JSON.parse(ran.stdout)
}
const titles = (document: { questions: { title: string }[] }) =>
  document.questions.map(({ title }) => title)

describe('contract §9: questions list from the chain', () => {
  test('its notes are folded at blanks on a terminal, and whole in a file', async () => {
    opened('Open')
    const noted = async (options: RunOptions) =>
      (await list([], options)).stderr.split('\n').filter((line) => line !== '')
    expect(await noted({})).toEqual([expect.stringMatching(/^note: .* has not pinned$/)])
    const folded = await noted({ interactive: true, columns: 60, env: { ...node, TERM: 'dumb' } })
    expect(folded[0]).toMatch(/^note: read from the chain since/)
    expect(folded.length).toBeGreaterThan(1)
    expect(folded.filter((line) => line.length > 60)).toEqual([])
  })

  test('RequestPrice less ProposePrice: open rounds, re-opened ones first', async () => {
    opened('Open')
    const answered = opened('Answered')
    const again = opened('Asked again')
    setPaused(chain, opened('Paused'), true)
    rivalProposes(chain, answered, rival)
    rivalProposes(chain, again, rival)
    chain.mine()
    dispute(chain, again)
    chain.mine()
    const document = await listed()
    expect(Object.keys(document)[0]).toBe('schema')
    expect(document).toMatchObject({ schema: 'proposer.questions/1', source: 'chain', left_out: 0 })
    expect(titles(document)).toEqual(['Asked again', 'Open'])
    expect(document.questions[0]).toMatchObject({
      ...{ question_id: again, slug: null, bond: '750000000', reward: '0', state: 'requested' },
      ...{ proposed_by: null, ends_at: null, source: 'chain', reopened: true },
      outcomes: [
        { outcome: 'p1', label: 'No' },
        { outcome: 'p2', label: 'Yes' },
        { outcome: 'p3', label: 'unknown/50-50' },
      ],
    })
    expect(document.notes.join()).toContain('without event ends')
    const all = await listed('--all')
    expect(titles(all).sort()).toEqual(['Answered', 'Asked again', 'Open', 'Paused'])
    expect(
      all.questions.find((one: { question_id: string }) => one.question_id === answered),
    ).toMatchObject({ state: 'proposed', proposed_by: rival })
  })

  test('--since bounds what is looked at, and --limit what is shown; both are said', async () => {
    opened('Old')
    chain.nextSeconds = 3_600n
    chain.mine()
    chain.nextSeconds = 2n
    opened('New')
    opened('Newer')
    expect(titles(await listed('--since 30m'))).toEqual(['New', 'Newer'])
    const one = await listed('--limit 1 --since 2h30m')
    expect(titles(one)).toEqual(['Old'])
    expect(one.left_out).toBe(2)
    expect(one.notes.join()).toContain('--limit')
    for (const [flag, value] of [
      ['--since', 'yesterday'],
      ['--closing', '2 hours'],
      ['--limit', '0'],
    ] as const)
      expect(await list([flag, value])).toMatchObject({ code: 2 })
  })

  test('the second run reads what the first did not: a cursor in the home folder', async () => {
    const known = new Set<bigint>()
    const ranges: [bigint, bigint][] = []
    const watched = { ...chain, head: chain.head } as FakeChain
    watched.logs = (filter) => {
      ranges.push([filter.fromBlock, filter.toBlock])
      known.add(filter.fromBlock)
      return chain.logs(filter)
    }
    opened('First')
    chain.mine(20)
    const clock = createFakeClock(chain)
    await listed([], { chain: watched, clock })
    const [name = ''] = readdirSync(join(home.path, 'questions'))
    const path = join(home.path, 'questions', name)
    expect(JSON.parse(readFileSync(path, 'utf8'))).toMatchObject({ format: 1, to: 17 })
    opened('Second')
    ranges.length = 0
    expect(titles(await listed([], { chain: watched, clock }))).toEqual(['First', 'Second'])
    expect(Math.min(...ranges.map(([from]) => Number(from)))).toBe(18)
    // Damage, and the cursor of another chain, cost the reading alone.
    writeFileSync(path, '{')
    const damaged = await listed([], { chain: watched, clock })
    expect(titles(damaged)).toEqual(['First', 'Second'])
    expect(damaged.notes.join()).toContain('damaged')
    const other = createFakeChain()
    other.mine()
    other.reorg(1)
    ask(other, questionText('Elsewhere'))
    other.mine(30)
    expect(titles(await listed([], { chain: other, clock: createFakeClock(other) }))).toEqual([
      'Elsewhere',
    ])
  })

  test('a node that takes few blocks at once is asked for fewer', async () => {
    opened('First')
    chain.mine(300)
    opened('Last')
    const narrow = { ...chain, head: chain.head } as FakeChain
    narrow.logs = async (filter) => {
      if (filter.toBlock - filter.fromBlock >= 50n)
        throw new ChainError('refused', 'eth_getLogs: the node answered limited to 50 blocks')
      return chain.logs(filter)
    }
    expect(titles(await listed([], { chain: narrow }))).toEqual(['First', 'Last'])
  })

  test('a pinned slug is shown, and is the first column; 40 and 80 columns fit', async () => {
    const id = opened('Will the Atlético de Madrid win on Saturday?')
    pin({ 'atletico-wins': id })
    for (const columns of [40, 80]) {
      const ran = await list([], { columns })
      expect(ran.stdout).toContain('atletico-wins')
      expect(Math.max(...ran.stdout.split('\n').map((line) => line.length))).toBeLessThanOrEqual(
        columns,
      )
    }
    expect((await list([], { columns: 120 })).stdout).toContain('750 USDC.e')
  })

  test('--csv is a worksheet with an empty outcome', async () => {
    const id = opened('=Rain, or sun?')
    pin({ rain: id })
    const ran = await list('--csv')
    expect(ran.stdout.split('\r\n')).toEqual([
      'identifier,slug,title,labels,bond,reward,ends_at,clarifications,rules_seen,outcome',
      `${id},rain,"'=Rain, or sun?","No (p1); Yes (p2); unknown/50-50 (p3)",750 USDC.e,0 USDC.e,,,${noRulesHash},`,
      '',
    ])
  })

  test('what the chain cannot know is refused, and without a source there is a hint', async () => {
    const closing = await list('--closing 2h --json')
    expect(closing.code).toBe(2)
    expect(lastErrorOf(closing)).toMatchObject({ code: 'closing_unknown' })
    const none = await list('--json', { env: {} })
    expect(lastErrorOf(none)).toMatchObject({ code: 'no_source' })
    const silent = { ...chain, head: chain.head } as FakeChain
    silent.logs = async () => {
      throw new ChainError('unavailable', 'no response')
    }
    expect(await list([], { chain: silent })).toMatchObject({ code: 75 })
  })
})

test('contract §9: without a node the pinned slugs are asked at the gateway', async () => {
  const { chain_id, permit2, signed_proposer, oracles, tokens } = adapterTrust
  const question = questionContext('Will it hold?')
  const gateway = scriptedGateway({
    ...question,
    contracts: { permit2, signed_proposer },
    bond: { token: tokens[0] as `0x${string}`, required_bond: '750000000' },
    request: { ...question.request, oracle: oracles[0] as `0x${string}`, requester: adapter },
    signing: { ...question.signing, chain_id },
  })
  pin({ 'will-it-hold': question.question_id })
  const document = await listed([], {
    env: { PROPOSER_GATEWAY: gateway.url },
    fetch: gateway.fetch,
  })
  expect(document).toMatchObject({ source: 'registry', since: null })
  expect(document.questions).toMatchObject([
    { slug: 'will-it-hold', state: 'requested', bond: '750000000', reward: null, reopened: null },
  ])
})

describe('contract §9: questions list from Gamma', () => {
  const market = (slug: string, questionID: string, endDate: string, more: object = {}) => ({
    ...{ slug, questionID, endDate, question: `Title of ${slug}`, negRisk: false, ...more },
  })
  const asked: URL[] = []
  const gamma =
    (...markets: object[]): Fetch =>
    async (input) => {
      asked.push(new URL(String(input)))
      return Response.json(markets)
    }
  const url = 'https://gamma.example'
  const at = (seconds: number) =>
    new Date((Number(chain.head.timestamp) + seconds) * 1000).toISOString()

  test('a node confirms round, bond and state; what it does not know is left out', async () => {
    const open = opened('Open')
    const answered = opened('Answered')
    rivalProposes(chain, answered, rival)
    chain.mine()
    asked.length = 0
    const fetch = gamma(
      market('open', open, at(60)),
      market('answered', answered, at(60)),
      market('unknown', `0x${'e'.repeat(64)}`, at(60)),
      market('no-oracle', '', at(60)),
    )
    const document = await listed(['--gamma-url', url, '--closing', '2h'], { fetch })
    expect(document).toMatchObject({ source: 'gamma' })
    expect(document.questions).toMatchObject([
      { slug: 'open', title: 'Open', ends_at: at(60), confirmed_by: 'chain', bond: '750000000' },
    ])
    expect(asked[0]?.origin).toBe(url)
    expect(asked[0]?.searchParams.get('closed')).toBe('false')
    expect(Date.parse(asked[0]?.searchParams.get('end_date_max') ?? '')).toBe(
      (Number(chain.head.timestamp) + 7_200) * 1000,
    )
  })

  test('without a node nothing is confirmed, and that is said', async () => {
    const fetch = gamma(
      market('open', `0x${'a'.repeat(64)}`, at(60)),
      market('done', `0x${'b'.repeat(64)}`, at(60), { umaResolutionStatus: 'proposed' }),
    )
    const document = await listed([], { env: { PROPOSER_GAMMA_URL: url }, fetch })
    expect(document.questions).toMatchObject([
      { slug: 'open', title: 'Title of open', state: null, bond: null, confirmed_by: null },
    ])
    expect(document.notes.join()).toContain('nothing of it is confirmed')
  })

  test('the built-in profile has its URL; one over plain http, or with a query, is refused', async () => {
    asked.length = 0
    await run(home.path, 'questions list --profile polygon', { fetch: gamma() })
    expect(asked[0]?.hostname).toBe('gamma-api.polymarket.com')
    for (const bad of ['http://gamma.example', 'https://gamma.example?key=1', 'gamma'])
      expect(await list(['--gamma-url', bad], { fetch: gamma() })).toMatchObject({ code: 2 })
  })

  test('Gamma that does not answer is exit 75 and names the other source', async () => {
    const fetch: Fetch = async () => new Response('', { status: 503 })
    const ran = await list(['--gamma-url', url, '--json'], { fetch })
    expect(ran.code).toBe(75)
    expect(lastErrorOf(ran)).toMatchObject({
      code: 'gamma_unavailable',
      hint: expect.stringContaining('--source chain'),
    })
  })
})
