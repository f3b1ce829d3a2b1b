import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { ChainError } from '#ports'
import { InterruptedError } from '#protocol/errors'
import type { Address } from '#protocol/schema'
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
  endow,
  type FakeChain,
  questionText,
} from '#support/fake-chain'
import {
  block,
  claim,
  contest,
  type FakeRound,
  roundOf,
  settle,
  stakeOn,
  vote,
} from '#support/fake-stakes'
import { adapterTrust, token } from '#support/fake-world'

const wallet: Address = `0x${'a1'.repeat(20)}`
const other: Address = `0x${'b2'.repeat(20)}`
const disputer: Address = `0x${'d1'.repeat(20)}`
const node = { PROPOSER_RPC_URL: 'http://127.0.0.1:8545' }
const yes = 10n ** 18n

const home = eachHome()
let chain: FakeChain
beforeEach(() => {
  pin({})
  chain = createFakeChain()
  chain.finalityLag = 4
  for (const one of [wallet, other, disputer]) endow(chain, one, 100_000_000_000n)
})

const pin = (slugs: Record<string, string>) => writeTrust(home.path, { ...adapterTrust, slugs })
/** A proposal of a wallet, executed. */
function proposed(name: string, by = wallet, price = yes, rewardRaw = 5_000_000n): FakeRound {
  const id = ask(chain, questionText(name))
  chain.mine()
  stakeOn(chain, id, by, price, rewardRaw)
  chain.mine()
  return roundOf(chain, id)
}
const positions = (argv: Argv = [], options: RunOptions = {}) =>
  run(home.path, ['positions', '--wallet', wallet, ...wordsOf(argv)], {
    env: node,
    chain,
    clock: createFakeClock(chain),
    ...options,
  })
const read = async (argv: Argv = [], options: RunOptions = {}) => {
  const ran = await positions([...wordsOf(argv), '--json'], options)
  expect(ran.code, ran.stderr).toBe(0)
  return JSON.parse(ran.stdout)
}
const pass = (seconds: bigint) => {
  const { nextSeconds } = chain
  chain.nextSeconds = seconds
  chain.mine()
  chain.nextSeconds = nextSeconds
}

test('contract §9: an open proposal: answer in words, bond, executed when, disputable until', async () => {
  const { questionId, timestamp } = proposed('Rain?')
  pin({ rain: questionId })
  const document = await read()
  expect(Object.keys(document)[0]).toBe('schema')
  const executed = timestamp + 2n
  expect(document).toMatchObject({
    schema: 'proposer.positions/1',
    positions: [
      {
        ...{ question_id: questionId, slug: 'rain', title: 'Rain?', wallet, outcome: 'p2' },
        ...{ label: 'Yes', bond: '500000000', final_fee: '250000000', reward: '5000000' },
        ...{ state: 'open', result: null, late: false, payout: null, token },
        executed_at: new Date(Number(executed) * 1000).toISOString(),
        disputable_until: String(executed + 7200n),
        ...{ disputed_at: null, disputed_by: null, new_round: null, url: null },
        ...{ transaction_hash: expect.stringMatching(/^0x/), event_index: 0 },
      },
    ],
    totals: [
      {
        ...{
          wallet,
          token,
          free: '99250000000',
          reserved: '0',
          bonded: '750000000',
          disputed: '0',
        },
        ...{ claimable: '0', locked: '750000000', deferred: '0', net: '0' },
      },
    ],
    notes: [],
  })
})

test('contract §9: every state and result, in the order of a life', async () => {
  const rounds = ['Open', 'Waits', 'Late', 'Good', 'Disputed', 'Vote', 'Voted', 'Won', 'Lost']
  const [, , , good, ...contested] = rounds.map((name) => proposed(name)) as FakeRound[]
  const [again, voting, voted, won, lost] = contested as [FakeRound, ...FakeRound[]]
  contest(chain, again, disputer, true)
  for (const one of [voting, voted, won, lost]) contest(chain, one as FakeRound, disputer, false)
  chain.mine()
  vote(chain, voted as FakeRound)
  pass(7_300n)
  settle(chain, good as FakeRound)
  settle(chain, won as FakeRound, yes)
  settle(chain, lost as FakeRound, 0n)
  chain.mine()
  const states = async () =>
    Object.fromEntries(
      (await read()).positions.map(
        (one: { title: string; state: string; result: string | null; late: boolean }) => [
          one.title,
          [one.state, one.result, ...(one.late ? ['late'] : [])],
        ],
      ),
    )
  expect(await states()).toEqual({
    Open: ['awaiting_settlement', null],
    Waits: ['awaiting_settlement', null],
    Late: ['awaiting_settlement', null],
    Good: ['settled', 'undisputed'],
    Disputed: ['disputed', null],
    Vote: ['voting', null],
    Voted: ['awaiting_settlement', null],
    Won: ['settled', 'won'],
    Lost: ['settled', 'lost'],
  })
  const document = await read()
  const named = (title: string) =>
    document.positions.find((one: { title: string }) => one.title === title)
  expect(named('Disputed')).toMatchObject({ disputed_by: disputer, new_round: true, reward: '0' })
  expect(named('Disputed').disputed_at).toMatch(/^20/)
  expect(named('Vote')).toMatchObject({ disputed_by: disputer, new_round: false })
  expect(named('Good')).toMatchObject({ payout: '755000000' })
  expect(named('Won')).toMatchObject({ payout: '1000000000' })
  expect(named('Lost')).toMatchObject({ payout: '0' })
  // 5 + 250 − 750; four are locked undisputed, two with the voters.
  expect(document.totals).toMatchObject([
    { net: '-495000000', bonded: '3000000000', disputed: '1500000000', locked: '4500000000' },
  ])
  pass(3n * 3_600n)
  expect((await states()).Late).toEqual(['awaiting_settlement', null, 'late'])
  expect((await states()).Voted).toEqual(['awaiting_settlement', null])
  const open = await read('--open')
  expect(open.positions).toHaveLength(6)
  expect(open.totals).toEqual((await read()).totals)
})

test('domain §10: a payout that was deferred, until it is claimed', async () => {
  const round = proposed('Rain?')
  block(chain, wallet)
  pass(7_300n)
  settle(chain, round)
  chain.mine()
  expect(await read()).toMatchObject({
    positions: [{ state: 'deferred', result: 'undisputed', payout: '755000000' }],
    totals: [{ claimable: '755000000', deferred: '755000000', locked: '0', net: '5000000' }],
    notes: [],
  })
  block(chain, wallet, false)
  claim(chain, wallet)
  chain.mine()
  expect(await read()).toMatchObject({
    positions: [{ state: 'settled', result: 'undisputed' }],
    totals: [{ claimable: '0', deferred: '0', net: '5000000' }],
  })
})

test('contract §9: several wallets in one question, and a wallet without proposals', async () => {
  proposed('One')
  proposed('Two', other)
  const filters: unknown[] = []
  const watched = { ...chain, head: chain.head } as FakeChain
  watched.logs = (filter) => {
    filters.push(filter.topics?.[2])
    return chain.logs(filter)
  }
  const document = await read([other], { chain: watched })
  expect(document.positions.map((one: { wallet: string }) => one.wallet)).toEqual([wallet, other])
  expect(new Set(filters.map((one) => (one as string[]).length))).toEqual(new Set([2]))
  const nobody = `0x${'c3'.repeat(20)}`
  const none = await run(home.path, ['positions', '--wallet', nobody], {
    ...{ env: node, chain, clock: createFakeClock(chain) },
  })
  expect(none.code).toBe(0)
  expect(none.stdout).toContain(`No proposals of ${nobody} since block 0.`)
  const bad = await run(home.path, 'positions --wallet 0x12 --json', {
    env: node,
    chain,
  })
  expect(bad.code).toBe(2)
  expect(lastErrorOf(bad)).toMatchObject({ code: 'invalid_address' })
})

test('contract §9: --fail-on-dispute is exit 7, and names what is disputed', async () => {
  const round = proposed('Rain?')
  expect(await positions('--fail-on-dispute')).toMatchObject({ code: 0 })
  pin({ rain: round.questionId })
  contest(chain, round, disputer, true)
  chain.mine()
  const ran = await positions('--fail-on-dispute --json')
  expect(ran.code).toBe(7)
  expect(JSON.parse(ran.stdout).positions).toMatchObject([{ state: 'disputed' }])
  expect(lastErrorOf(ran)).toMatchObject({
    code: 'proposal_disputed',
    hint: '`proposer reconcile rain` says what to do',
  })
})

test('contract §9: people read it in 40, 80 and 120 columns', async () => {
  const round = proposed('Will the Atlético de Madrid win the match that is played on Saturday?')
  proposed('Rain?')
  contest(chain, round, disputer, true)
  chain.mine()
  for (const columns of [40, 80, 120]) {
    const { stdout } = await positions([], { columns })
    expect(stdout).toContain('disputed')
    // An address stays whole, to be copied.
    const lines = stdout.split('\n').filter((line) => !line.includes('0x'))
    const width = Math.max(...lines.map((line) => line.length))
    expect(width).toBeLessThanOrEqual(columns)
  }
  const wide = (await positions([], { columns: 120 })).stdout
  expect(wide).toContain('750 USDC.e')
  expect(wide).toContain('disputable for')
  expect(wide).toMatch(/^earned +0 USDC\.e$/m)
})

test('contract §9: without a node it says which flag to give', async () => {
  const ran = await positions('--json', { env: {} })
  expect(ran.code).toBe(2)
  expect(lastErrorOf(ran)).toMatchObject({ code: 'no_rpc_url' })
  expect(lastErrorOf(await positions('--exec x --json'))).toMatchObject({
    code: 'exec_without_watch',
  })
  // What is wrong with the command line comes before what is missing around it.
  for (const verb of ['positions', 'pnl']) {
    const wrong = await run(home.path, [verb, '--wallet', '0x12', '--json'], { env: {} })
    expect(lastErrorOf(wrong).detail, verb).toBe('--wallet "0x12" is not an address')
  }
  expect(lastErrorOf(await positions('--since ever --json'))).toMatchObject({
    code: 'bad_since',
  })
})

describe('the cursor of positions', () => {
  const file = () => {
    const folder = join(home.path, 'positions')
    const [name = ''] = readdirSync(folder).filter((one) => one.includes(wallet))
    return join(folder, name)
  }
  const counting = () => {
    const ranges: [number, number][] = []
    const watched = { ...chain, head: chain.head } as FakeChain
    watched.logs = (filter) => {
      ranges.push([Number(filter.fromBlock), Number(filter.toBlock)])
      return chain.logs(filter)
    }
    return { watched, ranges }
  }

  test('the second run reads what is new, and asks for no settled bond again', async () => {
    const round = proposed('First')
    settle(chain, round)
    chain.mine(20)
    await read()
    const kept = JSON.parse(readFileSync(file(), 'utf8'))
    expect(kept).toMatchObject({ format: 1, from: 0, to: Number(chain.head.number) - 4 })
    expect(kept.facts).toHaveLength(2)
    // The text is of no more use once terms and end are known.
    expect(JSON.stringify(kept)).not.toContain('ancillaryData')
    proposed('Second')
    const { watched, ranges } = counting()
    const document = await read([], { chain: watched })
    expect(document.positions).toHaveLength(2)
    expect(Math.min(...ranges.map(([from]) => from))).toBe(kept.to + 1)
    expect(document.positions[0]).toMatchObject({ title: 'First', bond: '500000000' })
  })

  test('another wallet does not start all over; both go on together', async () => {
    proposed('First')
    chain.mine(20)
    await read()
    const mine = readFileSync(file(), 'utf8')
    proposed('Second', other)
    const { watched, ranges } = counting()
    expect((await read([other], { chain: watched })).positions).toHaveLength(2)
    expect(ranges).toEqual([[0, Number(chain.head.number)]])
    const { facts } = JSON.parse(mine)
    expect(JSON.parse(readFileSync(file(), 'utf8')).facts).toEqual(facts)
  })

  test('a damaged file is named, rebuilt from the chain, and nothing is lost', async () => {
    const round = proposed('First')
    settle(chain, round)
    chain.mine(20)
    const before = await read()
    for (const damage of ['{', '{"format":1}', readFileSync(file(), 'utf8').slice(0, -20)]) {
      writeFileSync(file(), damage)
      const after = await read()
      expect(after.positions).toEqual(before.positions)
      expect(after.notes.join()).toContain('damaged')
      expect(await read()).toEqual(before)
    }
  })

  test('a damaged record of what was last known is said, wherever it is asked for, until a node tells it again', async () => {
    proposed('First')
    await read()
    const kept = join(home.path, 'positions', 'last.json')
    writeFileSync(kept, '{')
    const said = /last\.json is damaged: what became of proposals is not known/
    for (const argv of [[], ['journal', 'list']]) {
      const { code, stderr } = await run(home.path, argv, { env: node, chain })
      expect([code, stderr.replace(/\s+/g, ' ')]).toEqual([0, expect.stringMatching(said)])
    }
    expect((await read()).notes.join()).toMatch(said)
    expect((await read()).notes).toEqual([])
  })

  test('a reorganisation leaves nothing of what is gone', async () => {
    const round = proposed('First')
    chain.mine(20)
    settle(chain, round)
    chain.mine()
    expect((await read()).positions).toMatchObject([{ state: 'settled' }])
    chain.reorg(1, { drop: true })
    chain.mine()
    expect((await read()).positions).toMatchObject([{ state: 'open' }])
    // Deeper than what was final: the whole file is of another chain.
    chain.reorg(Number(chain.head.number) - 1, { lost: true })
    chain.mine(40)
    expect((await read()).positions).toEqual([])
  })

  test('a node that takes few blocks at once is asked for fewer', async () => {
    proposed('First')
    chain.mine(300)
    const narrow = { ...chain, head: chain.head } as FakeChain
    narrow.logs = async (filter) => {
      if (filter.toBlock - filter.fromBlock >= 50n) throw new ChainError('refused', 'limited')
      return chain.logs(filter)
    }
    expect((await read([], { chain: narrow })).positions).toHaveLength(1)
  })
})

test('a node that cannot tell the bond: unknown, and known the next time', async () => {
  proposed('Rain?')
  chain.mine(20)
  const mute = { ...chain, head: chain.head } as FakeChain
  mute.call = async (call, at) => {
    // getRequest
    if (call.data.startsWith('0xa9904f9b')) throw new ChainError('unavailable', 'no')
    return chain.call(call, at)
  }
  expect(await read([], { chain: mute })).toMatchObject({
    positions: [{ title: 'Rain?', label: 'Yes', bond: null, reward: null, state: 'open' }],
    totals: [{ bonded: null, locked: null, net: '0' }],
    notes: ['the node did not report what the oracle holds for 1 proposals'],
  })
  expect((await read()).positions).toMatchObject([{ bond: '500000000', state: 'open' }])
})

test('a node that leaves out logs: what the oracle holds is told', async () => {
  const rounds = ['Settled', 'Disputed', 'Open'].map((name) => proposed(name))
  const [first, second] = rounds as [FakeRound, FakeRound]
  settle(chain, first)
  contest(chain, second, disputer, true)
  chain.mine(20)
  const hiding = { ...chain, head: chain.head } as FakeChain
  hiding.logs = async (filter) =>
    (await chain.logs(filter)).filter(({ topics: [kind] }) => kind?.startsWith('0x6e51dd00'))
  const document = await read([], { chain: hiding })
  expect(document.positions).toMatchObject([
    { state: 'settled', result: 'undisputed', payout: null },
    { state: 'disputed', disputed_by: disputer, disputed_at: null, new_round: true },
    { state: 'open' },
  ])
  expect(document.totals).toMatchObject([{ net: null, locked: null }])
})

const forgetting = (lost: (number: bigint) => boolean) => {
  const node = { ...chain, head: chain.head } as FakeChain
  node.block = async (at) => (typeof at === 'bigint' && lost(at) ? null : chain.block(at))
  return node
}

test('the one that the file ends with: it is read again, and nothing is lost', async () => {
  const round = proposed('First')
  settle(chain, round)
  chain.mine(20)
  const before = await read()
  const file = join(home.path, 'positions')
  const [name = ''] = readdirSync(file).filter((one) => one !== 'last.json')
  const { to } = JSON.parse(readFileSync(join(file, name), 'utf8'))
  chain.mine(20)
  const after = await read([], { chain: forgetting((number) => number === BigInt(to)) })
  expect(after.positions).toEqual(before.positions)
})

test('the one of a dispute: its time is not known, and that is said', async () => {
  const round = proposed('First')
  contest(chain, round, disputer, true)
  chain.mine()
  const at = chain.head.number
  chain.mine(20)
  const document = await read([], { chain: forgetting((number) => number <= at) })
  expect(document.positions).toMatchObject([{ state: 'disputed', disputed_at: null }])
  expect(document.notes.join()).toContain('did not report the time')
})

test('the newest: no answer instead of a wrong one, and nothing is kept', async () => {
  proposed('First')
  chain.mine(20)
  const ran = await positions('--json', { chain: forgetting(() => true) })
  expect(ran.code).toBe(75)
  expect(lastErrorOf(ran)).toMatchObject({ code: 'chain_unavailable' })
  expect((await read()).positions).toHaveLength(1)
})

describe('contract §9: pnl', () => {
  const pnl = (argv: Argv) =>
    run(home.path, ['pnl', '--wallet', wallet, ...wordsOf(argv)], {
      ...{ env: node, chain, clock: createFakeClock(chain) },
    })

  test('rows with transaction and log index, sums, a span, and CSV', async () => {
    const [good, bad] = [proposed('Good'), proposed('Bad')]
    proposed('Open')
    contest(chain, bad, disputer, false)
    pass(3_600n)
    const middle = chain.head.timestamp
    settle(chain, good)
    settle(chain, bad, 0n)
    chain.mine()
    const ran = await pnl('--json')
    expect(ran.code, ran.stderr).toBe(0)
    const document = JSON.parse(ran.stdout)
    expect(Object.keys(document)[0]).toBe('schema')
    expect(document).toMatchObject({ schema: 'proposer.pnl/1', notes: [] })
    const movements = document.rows.map((row: Record<string, string>) => [
      ...[row.kind, row.amount, row.net],
    ])
    expect(movements).toEqual([
      ...Array.from({ length: 3 }, () => ['bond', '-750000000', '0']),
      ['payout', '755000000', '5000000'],
      ['lost', '0', '-750000000'],
    ])
    expect(document.rows[3]).toMatchObject({
      ...{ wallet, token, question_id: good.questionId, result: 'undisputed' },
      ...{ at: expect.stringMatching(/Z$/), transaction_hash: expect.stringMatching(/^0x/) },
      log_index: 0,
    })
    expect(document.totals).toMatchObject([
      {
        ...{ wallet, token, proposed: 3, undisputed: 1, won: 0, lost: 1, rewards: '5000000' },
        ...{ bonds_lost: '-750000000', net: '-745000000', locked: '750000000', deferred: '0' },
      },
    ])
    const later = JSON.parse((await pnl(`--from ${middle} --json`)).stdout)
    expect(later.rows).toHaveLength(2)
    expect(later.totals).toMatchObject([{ proposed: 0, undisputed: 1, lost: 1 }])
    const csv = (await pnl('--csv')).stdout.split('\r\n')
    expect(csv[0]).toBe(
      'at,kind,question_id,slug,wallet,token,amount,net,result,transaction_hash,log_index',
    )
    expect(csv[1]).toContain(',bond,')
    expect(csv[1]).toContain(',-750000000,0,')
    expect((await pnl([])).stdout).toMatch(/^net +-745 USDC\.e$/m)
    const swapped = await pnl('--from 200 --to 100 --json')
    expect(lastErrorOf(swapped)).toMatchObject({ code: 'empty_span', exit_code: 2 })
  })
})

/** Each sleep is one thing that happens. */
const clockOf = (...acts: (() => void)[]) => ({
  ...createFakeClock(chain),
  sleep: async (_ms: number, signal?: AbortSignal) => {
    signal?.throwIfAborted()
    const next = acts.shift()
    if (next === undefined) throw new Error('nothing more happens')
    next()
  },
})

test('contract §9: a line a change, the program for a dispute, and exit 7', async () => {
  const round = proposed('Rain?')
  const told = join(home.path, 'told')
  const program = join(home.path, 'on-dispute')
  writeFileSync(program, `#!/bin/sh\ncat >> ${told}\nexit 3\n`, { mode: 0o700 })
  const clock = clockOf(
    () => {
      chain.fault('block', 'unavailable')
    },
    () => {
      contest(chain, round, disputer, true)
      chain.mine()
    },
  )
  const argv = ['--watch', '--exec', program, '--fail-on-dispute', '--json']
  const ran = await positions(argv, { clock })
  expect(ran.code).toBe(7)
  const lines = ran.stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
  expect(lines).toMatchObject([
    { from: null, state: 'open', gone: false },
    { from: 'open', state: 'disputed', disputed_by: disputer, new_round: true },
    { schema: 'proposer.positions/1', summary: { positions: 1, open: 1 } },
  ])
  expect(ran.stderr).toContain('ended with 3')
  const [line = '', ...rest] = readFileSync(told, 'utf8').trim().split('\n')
  expect(rest).toEqual([])
  expect(JSON.parse(line)).toMatchObject({ schema: 'proposer.position/1', state: 'disputed' })
})

test('contract §9: people see the table, then what a reorganisation took away; Ctrl-C is 130', async () => {
  proposed('Rain?')
  const stop = new AbortController()
  const clock = clockOf(
    () => chain.fault('block', 'unavailable'),
    () => {
      chain.reorg(1, { drop: true })
      chain.mine()
    },
    () => stop.abort(new InterruptedError('interrupted', 'stopped by SIGINT')),
  )
  const sleep: typeof clock.sleep = async (ms, signal) => {
    await clock.sleep(ms, signal)
    signal?.throwIfAborted()
  }
  const ran = await positions('--watch', { clock: { ...clock, sleep }, signal: stop.signal })
  expect(ran.code).toBe(130)
  expect(ran.stdout).toMatch(/^QUESTION/)
  expect(ran.stdout).toMatch(/Z {2}Rain\? {2}gone: its block was undone/)
  expect(ran.stderr).toContain('looking again')
  expect(ran.stderr).toContain('0 positions not settled')
})

test('contract §9: --timeout ends it: exit 8 while bonds are out, 0 once none is', async () => {
  const round = proposed('Rain?')
  const watching = () => positions('--watch --timeout 1s --json', { clock: createFakeClock(chain) })
  const open = await watching()
  expect(open.code).toBe(8)
  expect(lastErrorOf(open)).toMatchObject({ code: 'positions_open', exit_code: 8 })
  expect(JSON.parse(open.stdout.trim().split('\n').at(-1) ?? '')).toMatchObject({
    summary: { positions: 1, open: 1 },
  })
  settle(chain, round)
  chain.mine()
  expect((await watching()).code).toBe(0)
})
