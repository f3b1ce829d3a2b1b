import { yesOrNoQuery } from '#chain/contracts'
import { roundRef } from '#chain/round'
import type { JournaledAuthorization } from '#client/journal/authorizations'
import { newFold } from '#client/journal/journal'
import { readPnl, readPositions } from '#client/positions/positions'
import { failOnDispute, requireShown } from '#commands/positions'
import type { Chain, Hex } from '#ports'
import type { Address } from '#protocol/schema'
import { sha256 } from '#support/client-world'
import { ask, createFakeChain, endow, type FakeChain, questionText } from '#support/fake-chain'
import { roundOf, stakeOn } from '#support/fake-stakes'
import { adapter, fakeContracts, oracle, token, fakeTrust as trust } from '#support/fake-world'
import { SimFiles } from '#support/sim-files'

const wallet: Address = `0x${'a1'.repeat(20)}`
const yes = 10n ** 18n
const transaction: Hex = `0x${'77'.repeat(32)}`

let chain: FakeChain
beforeEach(() => {
  chain = createFakeChain()
  endow(chain, wallet, 10n ** 12n)
  chain.mine()
})

function executed(questionId: Hex, timestamp: bigint, signedAtMs: number) {
  const round = { oracle, requester: adapter, identifier: yesOrNoQuery }
  const asked = { ...round, timestamp: String(timestamp) }
  const { key } = roundRef(fakeContracts, questionId, asked, questionId)
  const terms = { proposer: wallet, price: String(yes), amount: '750000000', nonce: '1' }
  return {
    ...{ id: 'run-1', signedAtMs, attempts: [] },
    signed: {
      ...{ chainId: fakeContracts.chainId, identifier: 'rain', questionId, requester: adapter },
      ...{ token, round: key, timestamp: String(timestamp) },
      terms: { ...terms, deadline: '1900000000' },
    },
    terminals: [{ outcome: 'executed', transaction_hash: transaction, event_index: 3 }],
  } as unknown as JournaledAuthorization
}

const partsOf = (
  authorizations: readonly JournaledAuthorization[],
  { on = chain, pins = trust }: { on?: Chain; pins?: typeof trust } = {},
) => ({
  ...{ chain: on, trust: pins, files: new SimFiles().process(), hash: sha256, home: '/home' },
  view: { ...newFold().view(), authorizations },
})
const read = (
  authorizations: readonly JournaledAuthorization[],
  { on = chain, since, pins = trust }: { on?: Chain; since?: bigint; pins?: typeof trust } = {},
) =>
  readPositions(
    partsOf(authorizations, { on, pins }),
    [wallet],
    since === undefined ? {} : { since },
  )
const nowMs = () => Number(chain.head.timestamp) * 1000

test('slug and journal id of a proposal are those of the journal', async () => {
  const questionId = ask(chain, questionText('Rain?'))
  chain.mine()
  stakeOn(chain, questionId, wallet, yes)
  chain.mine()
  const one = executed(questionId, roundOf(chain, questionId).timestamp, nowMs())
  const { positions, notes } = await read([one])
  expect(notes).toEqual([])
  expect(positions).toMatchObject([
    { slug: 'rain', journal_id: 'run-1', question_id: questionId, state: 'open' },
  ])
  expect((await read([])).positions).toMatchObject([{ slug: null, journal_id: null }])
  // By a clock ahead.
  const ahead = { ...one, signedAtMs: nowMs() + 60_000 }
  const { pnl } = await readPnl(partsOf([ahead]), [wallet], { to: nowMs() / 1000 + 1 })
  expect(pnl.rows).toMatchObject([{ slug: 'rain', question_id: questionId }])
})

test('an executed proposal that no log shows is a row of which nothing is told as known, and a note', async () => {
  const questionId: Hex = `0x${'51'.repeat(32)}`
  const { positions, notes } = await read([executed(questionId, 1_800_000_000n, nowMs())])
  expect(positions).toMatchObject([
    {
      ...{ question_id: questionId, slug: 'rain', wallet, outcome: 'p2', journal_id: 'run-1' },
      ...{ transaction_hash: transaction, event_index: 3, state: null, result: null, bond: null },
      ...{ payout: null, reward: null, late: false, disputed_at: null },
    },
  ])
  expect(notes).toEqual([
    `run-1 is executed by this journal, and no log of the chain shows it; \`proposer reconcile ${questionId}\` looks at its round`,
  ])
})

test('--fail-on-dispute is not content with what nobody knows: exit 8', async () => {
  const questionId: Hex = `0x${'51'.repeat(32)}`
  const { positions } = await read([executed(questionId, 1_800_000_000n, nowMs())])
  expect(() => failOnDispute(positions)).toThrow(
    expect.objectContaining({
      ...{ code: 'positions_unknown', meta: expect.objectContaining({ exitCode: 8 }) },
      detail: 'the node does not show what became of the proposal for rain',
    }),
  )
  expect(failOnDispute([])).toBe(undefined)
})

test('pnl of what no log shows: no sum is told as known, a note, and exit 8', async () => {
  const signed = executed(`0x${'51'.repeat(32)}`, 1_800_000_000n, nowMs())
  const { pnl, missing } = await readPnl(partsOf([signed]), [wallet], {})
  const sums = { rewards: null, bonds_lost: null, net: null, moved: null, locked: null }
  expect(pnl.totals).toMatchObject([{ wallet, token, ...sums, deferred: null }])
  expect(pnl.notes).toEqual([expect.stringContaining('run-1 is executed by this journal')])
  expect(() => requireShown(missing.map((one) => one.signed))).toThrow(
    expect.objectContaining({
      ...{ code: 'positions_unknown', meta: expect.objectContaining({ exitCode: 8 }) },
      detail: 'the node does not show what became of the proposal for rain',
    }),
  )
  const before = await readPnl(partsOf([signed]), [wallet], { to: signed.signedAtMs / 1000 })
  expect(before).toMatchObject({ missing: [], pnl: { notes: [], totals: [{ net: '0' }] } })
  expect((await readPnl(partsOf([]), [wallet], {})).pnl).toMatchObject({ totals: [{ net: '0' }] })
})

test('without --since it begins an hour before the first signature of the wallet', async () => {
  chain.mine(3_000)
  const [first, later] = [1_000n, 200n].map((ago) =>
    executed(`0x${'51'.repeat(32)}`, ago, nowMs() - Number(ago) * 1000),
  ) as [JournaledAuthorization, JournaledAuthorization]
  const { since } = await read([later, first])
  const begins = chain.head.number - (1_000n + 3_600n) / 2n
  expect(since).toEqual([{ wallet, block_number: String(begins) }])
  expect((await read([])).since).toEqual([{ wallet, block_number: '0' }])
})

test('domain §10: on chain 137 no block before the first log of the oracle is read, none twice', async () => {
  const begins = 74_677_419n
  const asked: bigint[] = []
  let isKnown = true
  const polygon: Chain = {
    ...chain,
    chainId: async () => 137,
    block: async (at) => {
      if (at === begins + 500n && !isKnown) return null
      const number = typeof at === 'bigint' ? at : begins + (at === 'finalized' ? 490n : 500n)
      return { ...chain.head, number, timestamp: 1_600_000_000n + number * 2n }
    },
    call: (call) => chain.call(call, 'latest'),
    logs: async ({ fromBlock }) => {
      asked.push(fromBlock)
      return []
    },
  }
  const pins = { ...trust, chain_id: 137 }
  const { since, notes } = await read([], { on: polygon, since: 1_600_000_000n, pins })
  expect(asked).toEqual([begins])
  expect(notes).toEqual([`the oracle did not exist before block ${begins}`])
  expect(since).toEqual([{ wallet, block_number: String(begins) }])
  isKnown = false
  await expect(read([], { on: polygon, pins })).rejects.toThrow('unavailable')
  expect(asked).toEqual([begins, begins, begins + 491n, begins + 491n])
})

test('domain §10: a chain 137 that is younger than the oracle there is read from its beginning', async () => {
  const asked: bigint[] = []
  const young: Chain = {
    ...chain,
    chainId: async () => 137,
    call: (call) => chain.call(call, 'latest'),
    logs: async ({ fromBlock }) => {
      asked.push(fromBlock)
      return []
    },
  }
  const { since } = await read([], { on: young, pins: { ...trust, chain_id: 137 } })
  expect(asked[0]).toBe(0n)
  expect(since).toEqual([{ wallet, block_number: '0' }])
})
