/** Findings before a signature, through the front door (contract §9, `check`). */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { topics } from '#chain/contracts'
import { signerFromKey } from '#io/keys'
import { ChainError, type Fetch, type Hex } from '#ports'
import { type Argv, proposerHome, type RunOptions, run, wordsOf } from '#support/cli'
import { keyBytes } from '#support/client-world'
import {
  ask,
  clarify,
  createFakeChain,
  dispute,
  endow,
  type FakeChain,
  questionText,
  rivalProposes,
} from '#support/fake-chain'
import { contest, roundOf, settle, vote } from '#support/fake-stakes'
import { fakeTrust, openRound, questionOf } from '#support/fake-world'

const { address } = signerFromKey(keyBytes(7))
const rival = '0x00000000000000000000000000000000000000ee'

let home: string
let chain: FakeChain
let question: Hex
/** What Gamma has, by question id; undefined: it does not answer. */
let markets: Record<string, object> | undefined
let gammaCalls: URL[]
beforeEach(async () => {
  home = proposerHome(fakeTrust, `0x${'07'.repeat(32)}`)
  chain = createFakeChain()
  question = ask(chain, questionText('Will it rain?'))
  endow(chain, address)
  chain.mine(3)
  markets = {}
  gammaCalls = []
})

const gamma: Fetch = async (input) => {
  const url = new URL(String(input instanceof Request ? input.url : input))
  gammaCalls.push(url)
  if (markets === undefined) return new Response('busy', { status: 429 })
  const wantsClosed = url.searchParams.get('closed') === 'true'
  const found = url.searchParams
    .getAll('question_ids')
    .flatMap((id) => (markets?.[id] === undefined ? [] : [{ questionID: id, ...markets[id] }]))
    .filter((one) => ('closed' in one && one.closed === true) === wantsClosed)
  return Response.json(found)
}
const market = (changes: object = {}) => ({
  slug: 'rain',
  question: 'Will it rain?',
  negRisk: false,
  closed: true,
  outcomes: '["Yes", "No"]',
  outcomePrices: '["0.99", "0.01"]',
  ...changes,
})
const instant = (seconds: number) =>
  new Date(Number(chain.head.timestamp) * 1_000 + seconds * 1_000).toISOString()

const clock = {
  nowMs: () => Number(chain.head.timestamp) * 1_000,
  monotonicMs: () => performance.now(),
  sleep: async () => undefined,
}
const cli = (argv: Argv, options: RunOptions = {}) =>
  run(home, argv, {
    env: {
      PROPOSER_KEY_FILE: join(home, 'key'),
      PROPOSER_RPC_URL: 'http://127.0.0.1:1',
      PROPOSER_GAMMA_URL: 'https://gamma.example',
    },
    chain,
    clock,
    fetch: gamma,
    ...options,
  })
const errorIn = (stderr: string) => {
  const last = stderr.trim().split('\n').at(-1) ?? ''
  return last.startsWith('{') ? JSON.parse(last).error : undefined
}
type Finding = { id: string; result: string; detail: string; source: string }
const check = async (argv: Argv = [question], options: RunOptions = {}) => {
  const ran = await cli(['check', ...wordsOf(argv), '--json'], options)
  const answer = JSON.parse(ran.stdout || '{}')
  const byId = Object.fromEntries(
    (answer.findings ?? []).map((one: Finding) => [one.id, one]),
  ) as Record<string, Finding>
  return { ...ran, answer, byId, error: errorIn(ran.stderr) }
}
const results = (byId: Record<string, Finding>) =>
  Object.fromEntries(Object.values(byId).map(({ id, result }) => [id, result]))

test('of a question that is over, with an answer the market shares', async () => {
  markets = { [question]: market() }
  const { code, answer, byId } = await check(`${question} --outcome yes`)
  expect(code).toBe(0)
  expect(answer.schema).toBe('proposer.check/1')
  expect(results(byId)).toEqual({
    event_ended: 'ok',
    market_price: 'ok',
    earlier_round: 'ok',
    reopened: 'ok',
    liveness: 'ok',
    reward: 'warn',
    rules_age: 'ok',
  })
  expect(byId.market_price).toMatchObject({ source: 'gamma', question_id: question })
  expect(byId.reward?.detail).toBe('there is no reward for the bond')
  expect(answer.summary).toEqual({ questions: 1, ok: 6, warn: 1, unknown: 0, errors: 0 })
  expect(answer.questions[0]).toMatchObject({ outcome: 'p2', rules: { updates: [] } })
})

test.each<[string, () => object, string, string]>([
  ['an end ahead', () => ({ closed: false, endDate: instant(3_600) }), 'warn', 'gamma'],
  ['an end behind', () => ({ closed: false, endDate: instant(-60) }), 'ok', 'gamma'],
  [
    'a game that has just begun, in the form of a database',
    () => ({
      closed: false,
      endDate: instant(-60),
      gameStartTime: instant(-600).replace('T', ' ').replace('.000Z', '+00'),
    }),
    'warn',
    'gamma',
  ],
  ['no end', () => ({ closed: false }), 'unknown', 'gamma'],
  ['an end of another form', () => ({ closed: false, endDate: 'soon' }), 'unknown', 'gamma'],
  ['closed as a text', () => ({ closed: 'true' }), 'unknown', 'gamma'],
])('event_ended: %s', async (_name, changes, result, source) => {
  markets = { [question]: market(changes()) }
  expect((await check()).byId.event_ended).toMatchObject({ result, source })
})

test.each<[string, object, string, string]>([
  ['yes against a No', { outcomePrices: '["0.02", "0.98"]' }, 'yes', 'warn'],
  ['no with it', { outcomePrices: '["0.02", "0.98"]' }, 'no', 'ok'],
  ['half and half', { outcomePrices: '["0.5", "0.5"]' }, 'p3', 'ok'],
  ['half of a sure thing', { outcomePrices: '["0.99", "0.01"]' }, 'p3', 'warn'],
  ['prices left out', { outcomePrices: undefined }, 'yes', 'unknown'],
  ['prices of another form', { outcomePrices: '["a", "b"]' }, 'yes', 'unknown'],
  ['three prices', { outcomePrices: '["0.3", "0.3", "0.4"]' }, 'yes', 'unknown'],
])('market_price: %s', async (_name, changes, outcome, result) => {
  markets = { [question]: market(changes) }
  expect((await check([question, '--outcome', outcome])).byId.market_price?.result).toBe(result)
})

test('thresholds are settings', async () => {
  markets = { [question]: market({ outcomePrices: '["0.8", "0.2"]' }) }
  const price = async () => (await check(`${question} --outcome yes`)).byId.market_price?.result
  expect(await price()).toBe('warn')
  expect((await cli('config set check-price-percent 75')).code).toBe(0)
  expect(await price()).toBe('ok')
  expect(await cli('config set check-price-percent much')).toMatchObject({ code: 2 })
  expect((await cli('config set check-liveness 1h')).code).toBe(0)
  expect((await check()).byId.liveness).toMatchObject({
    result: 'warn',
    detail: 'an answer can be disputed for 2 h, more than 1 h',
  })
})

test('an earlier round: who answered, who disputed, and whether it is the same answer', async () => {
  rivalProposes(chain, question, rival, 10n ** 18n)
  chain.mine(2)
  dispute(chain, question)
  chain.mine(50)
  const { byId } = await check(`${question} --outcome yes`)
  expect(byId.reopened?.result).toBe('warn')
  expect(byId.earlier_round).toMatchObject({ result: 'warn', source: 'chain' })
  expect(byId.earlier_round?.detail).toContain(`${rival} answered p2`)
  expect((await check(`${question} --outcome no`)).byId.earlier_round?.result).toBe('ok')
  // A node that leaves logs out: unknown, never "there was none".
  const silent = { ...chain, logs: async () => [] }
  expect((await check([question], { chain: silent })).byId.earlier_round?.result).toBe('unknown')
  const refusing = {
    ...chain,
    logs: async () => {
      throw new ChainError('refused', 'limited')
    },
  }
  expect((await check([question], { chain: refusing })).byId.earlier_round).toMatchObject({
    result: 'unknown',
  })
})

test('domain §10: an answer that was called too early, settled long before the question was asked again', async () => {
  const disputer = '0x00000000000000000000000000000000000000dd'
  rivalProposes(chain, question, rival, 10n ** 18n)
  chain.mine()
  contest(chain, roundOf(chain, question), disputer, true)
  chain.mine()
  rivalProposes(chain, question, rival, 0n)
  chain.mine()
  const second = roundOf(chain, question)
  contest(chain, second, disputer, false)
  chain.mine()
  vote(chain, second)
  settle(chain, second, -(2n ** 255n))
  chain.mine(3_000)
  chain.happen((world, time) => {
    questionOf(world, question).isReset = true
    return openRound(world, question, time)
  })
  chain.mine(2)
  const limited = {
    ...chain,
    logs: async (filter: Parameters<typeof chain.logs>[0]) => {
      if (filter.toBlock - filter.fromBlock < 1_000n) return chain.logs(filter)
      throw new ChainError('refused', 'at most 1000 blocks')
    },
  }
  for (const node of [chain, limited]) {
    const { byId } = await check(`${question} --outcome yes`, { chain: node })
    expect(byId.earlier_round).toMatchObject({ result: 'warn', source: 'chain' })
    expect(byId.earlier_round?.detail).toMatch(
      new RegExp(
        `^${rival} answered p1, and ${disputer} disputed it; the voters called it too early`,
      ),
    )
  }
  // A node that leaves the settlement out: unknown.
  const forgetful = {
    ...chain,
    logs: async (filter: Parameters<typeof chain.logs>[0]) =>
      (await chain.logs(filter)).filter((log) => log.topics[0] !== topics.settle),
  }
  const { byId } = await check([question], { chain: forgetful })
  expect(byId.earlier_round?.result).toBe('unknown')
})

test('domain §10: too early without a dispute: nobody is said to have disputed it', async () => {
  rivalProposes(chain, question, rival, -(2n ** 255n))
  chain.mine()
  settle(chain, roundOf(chain, question), -(2n ** 255n))
  chain.mine(3_000)
  chain.happen((world, time) => {
    questionOf(world, question).isReset = true
    return openRound(world, question, time)
  })
  chain.mine(2)
  const { byId } = await check([question], { chain })
  expect(byId.earlier_round?.detail).toMatch(
    /^0x[0-9a-f]{40} answered price -\d+; the voters called/,
  )
})

test('a fresh clarification warns and is shown', async () => {
  clarify(chain, question, 'It means \u001b[31mregular time.')
  chain.mine()
  expect((await check()).byId.rules_age?.result).toBe('warn')
  const { stdout } = await cli(`check ${question}`, { columns: 80 })
  expect(stdout).toContain('regular time')
  expect(stdout).not.toContain('\u001b[31m')
  chain.nextSeconds = 200_000n
  chain.mine()
  expect((await check()).byId.rules_age?.result).toBe('ok')
})

test('what nobody tells is unknown, not absent, and --require-known refuses it', async () => {
  const { byId } = await check()
  expect(byId.event_ended).toMatchObject({ result: 'unknown', source: 'gamma' })
  markets = undefined
  const busy = await check(`${question} --require-known`)
  expect(busy).toMatchObject({ code: 2, error: { code: 'check_failed' } })
  expect(busy.byId.event_ended?.detail).toContain('429')
  expect(Object.keys(busy.byId)).toHaveLength(7)
  const warned = await check(`${question} --require-check`)
  expect(warned).toMatchObject({ code: 2, error: { code: 'check_failed' } })
  expect(warned.error.detail).toContain('reward')
})

test('contract §9, Confirmation: a finding that warns is asked about on a terminal; --yes answers, and without a terminal nobody asks', async () => {
  const questions = [1, 2, 3].map((n) => ask(chain, questionText(`Asked ${n}?`)))
  chain.mine()
  const sign = (at: number, options: RunOptions, ...flags: readonly string[]) =>
    cli(['sign', questions[at] ?? '', '--outcome', 'yes', ...flags], options)
  const declined = await sign(0, { interactive: true, stdin: 'n\n' })
  expect(declined.code, declined.stderr).toBe(2)
  expect(declined.stderr).toContain('there is no reward for the bond')
  expect(declined.stderr).toContain('Sign although these findings warn? [y/N]')
  expect((await cli('journal list')).stdout).toBe('the journal is empty\n')
  const agreed = [
    await sign(0, { interactive: true, stdin: 'y\n' }),
    await sign(1, { interactive: true }, '--yes'),
    await sign(2, {}),
  ]
  expect(agreed.map(({ code, stderr }) => [code, stderr.includes('[y/N]')])).toEqual([
    [0, true],
    [0, false],
    [0, false],
  ])
})

test('a file: one call for many questions, each row by its own answer', async () => {
  const others = Array.from({ length: 120 }, (_, n) => ask(chain, questionText(`Rain ${n}?`)))
  chain.mine()
  markets = Object.fromEntries(others.map((id, n) => [id, market({ slug: `rain-${n}` })]))
  writeFileSync(
    join(home, 'rows.csv'),
    `identifier,outcome\n${others.map((id, n) => `${id},${n === 0 ? 'no' : 'Yes'}\n`).join('')}`,
  )
  const { answer } = await check([join(home, 'rows.csv')])
  expect(answer.summary).toMatchObject({ questions: 120, errors: 0 })
  const prices = answer.findings.filter(({ id }: Finding) => id === 'market_price')
  expect(prices.map(({ result }: Finding) => result)).toEqual([
    'warn',
    ...Array<string>(119).fill('ok'),
  ])
  expect(gammaCalls.length).toBeLessThanOrEqual(8)
})

test('a question that cannot be had is its own error, and the others are told', async () => {
  writeFileSync(
    join(home, 'rows.csv'),
    `identifier,outcome\n0x${'77'.repeat(32)},yes\n${question},yes\n`,
  )
  const { code, answer } = await check([join(home, 'rows.csv')])
  expect(code).toBe(3)
  expect(answer.summary).toMatchObject({ questions: 2, errors: 1 })
  expect(answer.findings).toHaveLength(7)
  const unknown = `0x${'77'.repeat(32)},yes\n`
  writeFileSync(join(home, 'rows.csv'), `identifier,outcome\n${unknown}${question},yes\n${unknown}`)
  const two = await cli(['check', join(home, 'rows.csv'), '--json'])
  expect(errorIn(two.stderr).detail).toMatch(/^2 of 3 rows; the first, /)
})

test('sign --dry-run has them; --require-check refuses, and signs nothing', async () => {
  markets = { [question]: market({ outcomePrices: '["0.02", "0.98"]' }) }
  const argv = ['sign', question, '--outcome', 'yes']
  const look = JSON.parse((await cli([...argv, '--dry-run', '--json'])).stdout)
  expect(look.findings).toHaveLength(7)
  const refused = await cli([...argv, '--require-check', '--json'])
  expect([refused.code, errorIn(refused.stderr).code]).toEqual([2, 'check_failed'])
  expect((await cli([...argv, '--dry-run', '--require-known'])).code).toBe(0)
  expect((await cli([...argv, '--dry-run', '--require-check'])).code).toBe(2)
  const signed = await cli(argv, { columns: 80 })
  expect(signed.code).toBe(0)
  expect(signed.stderr).toContain('market_price: the market pays 2 % for Yes (p2)')
})

test('typed data that was given out before is held to it too', async () => {
  const argv = ['sign', question, '--outcome', 'yes', '--json']
  expect((await cli([...argv, '--typed-data'])).code).toBe(0)
  const refused = await cli([...argv, '--require-known'])
  expect([refused.code, errorIn(refused.stderr).code]).toEqual([2, 'check_failed'])
  expect((await cli(argv)).code).toBe(0)
})

test('batch rows that warn are rejected, others go on; the plan shows all', async () => {
  const other = ask(chain, questionText('And snow?'))
  chain.mine()
  await cli('config set check-reward-percent 0')
  markets = {
    [question]: market({ outcomePrices: '["0.02", "0.98"]' }),
    [other]: market({ slug: 'snow' }),
  }
  const rows = join(home, 'rows.ndjson')
  writeFileSync(
    rows,
    [question, other]
      .map((identifier) => `{"identifier":"${identifier}","outcome":"yes"}\n`)
      .join(''),
  )
  const plan = JSON.parse((await cli(`batch sign ${rows} --dry-run --json`)).stdout)
  expect(plan.results[0].findings).toHaveLength(7)
  const shown = await cli(`batch sign ${rows} --dry-run`, { columns: 100 })
  expect(shown.stdout.replace(/\s+/g, ' ')).toContain('line 1: warn: market_price')
  const ran = await cli(`batch sign ${rows} --require-check --json`)
  expect(ran.code).toBe(2)
  expect(errorIn(ran.stderr).code).toBe('check_failed')
  const { results: told } = JSON.parse(ran.stdout)
  expect(told.map(({ outcome }: { outcome: string }) => outcome)).toEqual(['rejected', 'signed'])
})
