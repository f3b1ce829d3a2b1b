import { explanationText } from '#commands/operator/candidates'
import { createOutput } from '#commands/terminal/output'
import { knownKind } from '#gateway/ledger/state'
import { compactLedger } from '#gateway/ledger/store'
import { foldLedger } from '#gateway/ledger/writer'
import { explain } from '#gateway/status/explanation'
import {
  candidateRow,
  createReceipts,
  createTimeline,
  type TimelineEvent,
} from '#gateway/status/timeline'
import type { Candidate } from '#protocol/candidate'
import type { CompactableLog, NewRecord, StoredRecord } from '#storage/record-log'
import { endow } from '#support/fake-events'
import { newMemoryStore, openMemoryLog } from '#support/memory-log'
import { anotherExecutes, createPipelineWorld, type PipelineWorld } from '#support/pipeline-world'

function recorded(world: PipelineWorld): NewRecord[] {
  const records: NewRecord[] = []
  world.ledger.onChange((events) => {
    for (const event of events) {
      if (event.kind === 'candidate.received') {
        const { progress: _progress, ...candidate } = event.candidate
        records.push({ kind: event.kind, data: { candidate } })
      } else {
        const { kind, ...data } = event
        records.push({ kind, data })
      }
    }
  })
  return records
}

const stored = (records: readonly NewRecord[]): StoredRecord[] =>
  records.map((record, index) => ({
    ...record,
    sequence: index + 1,
    timeMs: 1_700_000_000_000 + index,
    position: index,
  }))

function historyOf(records: readonly StoredRecord[], id: string) {
  const history = createTimeline(id)
  for (const record of records) history.onRecord(record)
  return history
}
const kindsOf = (events: readonly TimelineEvent[]) => events.map(({ kind }) => kind)

function explained(
  records: readonly StoredRecord[],
  id: string,
  more: Partial<Parameters<typeof explain>[3]> = {},
) {
  const fold = foldLedger()
  for (const record of records) fold.onRecord(record)
  const history = historyOf(records, id)
  if (!history.candidate) throw new Error('the candidate is not told of')
  const facts = {
    nowMs: 1_700_000_000_000,
    slug: 'rain',
    service: { kind: 'serves', reasons: [] } as const,
    pipelineEnabled: true,
    executorEnabled: true,
    token: { symbol: 'USDC.e', decimals: 6 },
  }
  const made = explain(history, history.candidate, fold.facts, { ...facts, ...more })
  timelines.set(made, history.events)
  return made
}
const timelines = new WeakMap<object, readonly TimelineEvent[]>()

async function executedWorld() {
  const world = await createPipelineWorld()
  const records = recorded(world)
  const questionId = await world.question()
  const first = await world.submit(questionId)
  const second = await world.submit(questionId, { by: 1 })
  await world.pass(8)
  return { world, records, first, second }
}

async function logOf(records: readonly NewRecord[]): Promise<{
  log: CompactableLog
  fold: ReturnType<typeof foldLedger>
  all(): Promise<StoredRecord[]>
}> {
  const fold = foldLedger()
  let nowMs = 1_700_000_000_000
  const log = openMemoryLog(newMemoryStore(), knownKind, fold.onRecord, () => nowMs++)
  for (const record of records) {
    await log.append([record], (made) => {
      for (const one of made) fold.onRecord(one)
    })
  }
  const all = async () => {
    const found: StoredRecord[] = []
    for await (const record of log.scan()) found.push(record)
    return found
  }
  return { log, fold, all }
}

const textOf = (shown: ReturnType<typeof explained>, columns = 80) => {
  const sink = { write: () => undefined, columns }
  return explanationText(
    shown,
    timelines.get(shown) ?? [],
    createOutput({ stdout: sink, stderr: sink, env: {}, mode: 'human', quiet: false }),
  )
}

test('contract §5: tells why nothing of its wallet is sent, until when, and what lifts it', async () => {
  const world = await createPipelineWorld()
  const records = recorded(world)
  const who = world.proposer(0).address
  const deadline = world.chain.head.timestamp + 100_000n
  for (const name of ['first', 'second']) {
    await world.submit(await world.question(name), { deadline })
    await world.turn()
    endow(world.chain, who, 0n)
    await world.pass(8)
    endow(world.chain, who)
    world.chain.mine()
  }
  const { id } = await world.submit(await world.question('third'), { deadline })
  await world.pass(3)
  const shown = explained(stored(records), id)
  expect(shown.status).toBe('validated')
  for (const told of [JSON.stringify(shown.events), textOf(shown, 2_000)]) {
    expect(told).toContain("2 of this wallet's proposals failed on chain in 24 hours")
    expect(told).toMatch(/it waits until [-\dT:.]+Z/)
    expect(told).toContain(`proposer operator allow ${who}`)
  }
})

test('contract §6: tells the whole way of an executed one, with figures, fees and places', async () => {
  const { records, first } = await executedWorld()
  const { events } = historyOf(stored(records), first.id)
  expect(kindsOf(events)).toEqual([
    'received',
    'checked',
    'validated',
    'selected',
    'nonce_reserved',
    'signed',
    'sent',
    'mined',
    'confirmed',
    'indexed',
    'nonce_settled',
  ])
  const shown = explained(stored(records), first.id)
  expect(shown).toMatchObject({
    candidate_id: first.id,
    status: 'executed',
    slug: 'rain',
    submission: 'indexed',
    executor_nonce: null,
  })
  expect(shown.next.expected).toMatch(/final on the chain/)
  const text = textOf(shown)
  for (const part of [
    'bond 750 USDC.e',
    'balance ',
    'simulation succeeds',
    'gwei for gas',
    'mined in block',
    'ProposePrice is log',
  ])
    expect(text).toContain(part)
  // Hashes and ids stay whole on a line of their own; everything else fits a terminal.
  const long = text.split('\n').filter((line) => line.length > 80)
  expect(long.filter((line) => !/0x[0-9a-f]{64}$/.test(line.trim()))).toEqual([])
})

test('R5: neither the signature nor a raw transaction is part of it, in either form', async () => {
  const { records, first } = await executedWorld()
  const raws = records.flatMap(({ kind, data }) =>
    kind === 'slot.attempt' ? [(data as { attempt: { raw: string } }).attempt.raw] : [],
  )
  expect(raws.length).toBeGreaterThan(0)
  const shown = explained(stored(records), first.id)
  for (const text of [JSON.stringify(shown), textOf(shown)]) {
    for (const secret of [first.signature, ...raws]) expect(text).not.toContain(secret.slice(2, 60))
  }
})

test('contract §5: a stand-in is told who is before it, and that it ended as not selected', async () => {
  const world = await createPipelineWorld({
    config: { executor: { enabled: false, max_fee_gwei: 1, batch: 1 } },
  })
  const records = recorded(world)
  const questionId = await world.question()
  const first = await world.submit(questionId)
  const second = await world.submit(questionId, { by: 1 })
  await world.pass(2)
  const waiting = explained(stored(records), second.id, { executorEnabled: false })
  expect(waiting).toMatchObject({
    status: 'validated',
    rivals: [{ candidate_id: first.id, is_before: true, status: 'selected' }],
  })
  expect(waiting.next.expected).toContain(first.id)

  const { records: ended, second: loser } = await executedWorld()
  const shown = explained(stored(ended), loser.id)
  expect(shown.events.at(-1)).toMatchObject({
    event: 'failed',
    failure: { code: 'not_selected' },
    next_action: 'wait_for_new_round',
  })
  expect(shown.next).toMatchObject({
    proposer: expect.stringContaining('new round'),
    operator: null,
  })
})

test('contract §5: a failure tells code, detail and figures, and a replay of the payload that it was put back', async () => {
  const world = await createPipelineWorld()
  const records = recorded(world)
  const questionId = await world.question()
  const poor = await world.submit(questionId, { amount: '900000000000000000' })
  await world.pass(4)
  const failed = explained(stored(records), poor.id)
  expect(failed.events.at(-1)).toMatchObject({
    event: 'failed',
    failure: { code: 'insufficient_balance', retryable: true },
    next_action: 'fund_wallet',
  })
  expect(failed.events.at(-2)).toMatchObject({
    event: 'checked',
    check: { verdict: 'failed', figures: { balance: expect.any(String) } },
  })
  expect(textOf(failed)).toMatch(/the proposer: Fund the wallet/)
  await world.ledger.replay(poor.id)
  expect(kindsOf(historyOf(stored(records), poor.id).events).at(-1)).toBe('put_back')
})

test('R14: a reorganisation that takes back what was counted on is told as such', () => {
  const base = { id: '00000000-0000-4000-8000-000000000001' } as const
  const candidate = {
    ...base,
    receivedAtMs: 1,
    round: { questionId: '0x01' },
    proposer: '0x02',
  } as unknown as Candidate
  const at = { validatedAtMs: 2, selectedAtMs: 3 }
  const submission = {
    status: 'submitted',
    transactionHash: '0xaa',
    submittedAtMs: 4,
    confirmedAtMs: null,
    indexedAtMs: null,
    proposalEventIndex: null,
  }
  const step = (progress: object): NewRecord => ({
    kind: 'candidate.progress',
    data: { ...base, progress },
  })
  const records = stored([
    { kind: 'candidate.received', data: { candidate } },
    step({ status: 'validated', validatedAtMs: 2 }),
    step({ status: 'selected', ...at, submission: null }),
    step({ status: 'selected', ...at, submission: { ...submission, status: 'prepared' } }),
    step({ status: 'selected', ...at, submission }),
    step({
      status: 'selected',
      ...at,
      submission: { ...submission, status: 'confirmed', confirmedAtMs: 5 },
    }),
    step({
      status: 'executed',
      ...at,
      submission: { ...submission, status: 'indexed', indexedAtMs: 6, proposalEventIndex: 3 },
    }),
    step({ status: 'selected', ...at, submission }),
    step({ status: 'validated', validatedAtMs: 2 }),
  ])
  const { events } = historyOf(records, base.id)
  expect(kindsOf(events)).toEqual([
    'received',
    'validated',
    'selected',
    'confirmed',
    'indexed',
    'fell_back',
    'stands_in_again',
  ])
  expect(events[5]).toMatchObject({ from: 'executed', hash: '0xaa' })
})

test('contract §6: what holds up the gateway stands in what comes next and in the part of the operator', async () => {
  const world = await createPipelineWorld({ executor: false })
  const records = recorded(world)
  const candidate = await world.submit(await world.question())
  await world.pass(3)
  const reasons = world.pipeline.faults()
  expect(reasons.join()).toContain('lacks DELEGATED_PROPOSER_ROLE')
  const { next } = explained(stored(records), candidate.id, {
    service: { kind: 'serves', reasons },
  })
  expect(next.expected).toContain(reasons[0])
  expect(next.operator).toContain(reasons[0])
  const { records: ended, first } = await executedWorld()
  expect(
    JSON.stringify(
      explained(stored(ended), first.id, { service: { kind: 'serves', reasons } }).next,
    ),
  ).not.toContain('DELEGATED')
})

test('contract §6: the fee ceiling is told of one that is selected, and once where its newest check names it too', async () => {
  const world = await createPipelineWorld({
    config: { executor: { max_fee_gwei: 1, batch: 1 } },
  })
  const records = recorded(world)
  const candidate = await world.submit(await world.question())
  await world.pass(3)
  const reasons = world.pipeline.faults()
  expect(reasons.join()).toMatch(/max_fee_gwei.*waiting/)
  const shown = explained(stored(records), candidate.id, { service: { kind: 'serves', reasons } })
  expect(shown.status).toBe('selected')
  expect(shown.next.operator).toContain(reasons[0])
  const [reason = ''] = reasons
  const check = { blockNumber: '9', verdict: 'operator', detail: reason, figures: {} }
  const checked = stored([
    ...records,
    { kind: 'candidate.checked', data: { id: candidate.id, check } },
  ])
  const { operator } = explained(checked, candidate.id, {
    service: { kind: 'serves', reasons },
  }).next
  expect(operator?.split(reason)).toHaveLength(2)
})

test('contract §6: it is said where nothing serves, where another command holds the store, and where the gateway is dumb', async () => {
  const world = await createPipelineWorld({ config: { pipeline: { enabled: false } } })
  const records = recorded(world)
  const { id } = await world.submit(await world.question())
  const next = (service: Parameters<typeof explain>[3]['service']) =>
    explained(stored(records), id, { service }).next
  expect(next({ kind: 'none' })).toMatchObject({
    expected: expect.stringContaining('No gateway serves this store'),
    operator: 'No gateway serves this store: start one with `proposer serve`.',
  })
  expect(next({ kind: 'held', by: 'process 7 on here (--local)' }).operator).toContain(
    'process 7 on here (--local)',
  )
  expect(next({ kind: 'serves', reasons: undefined }).operator).toContain('does not respond')
  expect(next({ kind: 'serves', reasons: [] }).operator).toBeNull()
  const off = explained(stored(records), id, { pipelineEnabled: false }).next
  expect(off.expected).toContain('pipeline.enabled')
})

test('robustness §3: the block and the gas of a cancellation are told, in the timeline and in the row for accounting', async () => {
  const world = await createPipelineWorld()
  const records = recorded(world)
  const candidate = await world.submit(await world.question(), {
    deadline: world.chain.head.timestamp + 20n,
  })
  await world.turn()
  for (let block = 0; block < 16; block += 1) {
    world.chain.mine(1, { empty: true })
    await world.turn()
  }
  await world.pass(6)
  const { events, candidate: ended } = historyOf(stored(records), candidate.id)
  const mined = events.find(({ kind }) => kind === 'mined')
  expect(mined).toMatchObject({
    kind: 'mined',
    transaction: 'cancel',
    status: 'success',
    gasUsed: expect.stringMatching(/^\d+$/),
  })
  expect(Object.keys(mined ?? {}).join(' ')).toContain('blockNumber blockHash status')
  expect(textOf(explained(stored(records), candidate.id))).toMatch(
    /the cancellation is mined in block \d+: success/,
  )
  const receipts = createReceipts()
  for (const record of stored(records)) receipts.onRecord(record)
  if (mined?.kind !== 'mined' || !ended) throw new Error('no cancellation was mined')
  expect(candidateRow(ended, undefined, receipts)).toMatchObject({
    status: 'failed',
    submission: 'dropped',
    block_number: null,
    cancellation_hash: mined.hash,
    cancellation_block_number: mined.blockNumber,
    cancellation_gas_used: mined.gasUsed,
    carried: null,
    cancellation_carried: 1,
  })
})

test('E6: the row of what another relayer executed names its transaction, and none of the gas, which this store did not pay', async () => {
  const world = await createPipelineWorld()
  const records = recorded(world)
  const ours = await world.submit(await world.question('ours'))
  await world.pass(5)
  const theirs = await world.submit(await world.question('theirs'), { nonce: '77' })
  anotherExecutes(world, theirs)
  await world.pass(5)
  const receipts = createReceipts()
  for (const record of stored(records)) receipts.onRecord(record)
  const [own, foreign] = await Promise.all(
    [ours, theirs].map(async (one) => candidateRow(await world.now(one), undefined, receipts)),
  )
  const figure = expect.stringMatching(/^\d+$/)
  expect(own).toMatchObject({ status: 'executed', gas_used: figure, carried: 1 })
  expect(foreign).toMatchObject({
    status: 'executed',
    submission: 'indexed',
    transaction_hash: expect.stringMatching(/^0x[0-9a-f]{64}$/),
    proposal_event_index: expect.any(Number),
    block_number: null,
    gas_used: null,
    gas_price_wei: null,
    carried: null,
  })
  // The sum of the column is what the executor of this store has spent.
  const spent = [...receipts.byHash.values()].reduce(
    (sum, { gasUsed }) => sum + BigInt(gasUsed),
    0n,
  )
  expect(String(spent)).toBe(own?.gas_used)
})

test('robustness §3: waits, trims, transactions made anew, cancellations and nonces given up are told in words', () => {
  const id = '00000000-0000-4000-8000-000000000001'
  const other = '00000000-0000-4000-8000-000000000002'
  const round = {
    questionId: '0x01',
    timestamp: '1',
    requester: '0x03',
    oracle: '0x04',
    key: 'k',
  }
  const candidate = {
    id,
    receivedAtMs: 1,
    round,
    proposer: '0x02',
    price: '0',
    amount: '1',
    deadline: '9',
    sequence: 1,
  }
  const word = (n: number) => `0x${String(n).repeat(64)}`
  const attempt = (n: number, fee: number, candidateIds: readonly string[]): NewRecord => ({
    kind: 'slot.attempt',
    data: {
      slotId: 's',
      attempt: {
        hash: word(n),
        raw: '0x',
        kind: candidateIds.length === 0 ? 'cancel' : 'propose',
        candidateIds,
        maxFeePerGas: String(fee),
        maxPriorityFeePerGas: '1',
        preparedAtMs: 1,
        sentAtMs: null,
      },
    },
  })
  const step = (progress: object): NewRecord => ({
    kind: 'candidate.progress',
    data: { id, progress },
  })
  const selected = { status: 'selected', validatedAtMs: 2, selectedAtMs: 3, submission: null }
  const slot = {
    id: 's',
    executor: '0x05',
    nonce: 4,
    candidateIds: [id, other],
    openedAtMs: 3,
    attempts: [],
  }
  const mined = {
    slotId: 's',
    hash: word(5),
    blockNumber: '77',
    blockHash: word(6),
    status: 'success',
    gasUsed: '21000',
  }
  const records = stored([
    { kind: 'candidate.received', data: { candidate } },
    {
      kind: 'candidate.received',
      data: {
        candidate: { ...candidate, id: other, sequence: 2, round: { ...round, key: 'l' } },
      },
    },
    step({ status: 'validated', validatedAtMs: 2 }),
    step(selected),
    step({ status: 'validated', validatedAtMs: 2 }),
    step(selected),
    {
      kind: 'candidate.checked',
      data: {
        id,
        check: { blockNumber: '7', verdict: 'wait', detail: 'it reverts', figures: {} },
      },
    },
    { kind: 'slot.opened', data: { slot } },
    attempt(1, 100, [id, other]),
    attempt(2, 90, [id, other]),
    { kind: 'slot.sent', data: { slotId: 's', hash: word(2), sentAtMs: 4 } },
    attempt(3, 100, [id, other]),
    attempt(4, 120, [id]),
    attempt(5, 140, []),
    { kind: 'slot.mined', data: mined },
    { kind: 'slot.closed', data: { slotId: 's', outcome: { kind: 'foreign', hash: null } } },
  ])
  const { events } = historyOf(records, id)
  expect(events.flatMap((event) => (event.kind === 'signed' ? event.as : []))).toEqual([
    'first',
    'anew',
    'fee_bump',
    'trim',
    'cancel',
  ])
  expect(kindsOf(events).slice(0, 6)).toEqual([
    'received',
    'validated',
    'selected',
    'made_room',
    'selected',
    'checked',
  ])
  const text = textOf(explained(records, id), 200)
  for (const part of [
    'block 7: must wait: it reverts',
    'another candidate of its round goes first',
    'no node took the previous one: a new transaction is signed under nonce 4',
    'the same at a higher fee signed under nonce 4',
    `without ${other}`,
    'a cancellation signed under nonce 4',
    'the cancellation is mined in block 77: success',
    'gas 21000',
    'nonce 4 is final: used outside this store',
  ])
    expect(text).toContain(part)
})

test('robustness §2: what is younger than 90 days is told as before, also after a second compaction and with an open slot', async () => {
  const { records, first, second } = await executedWorld()
  const open = records.findIndex(({ kind }) => kind === 'slot.mined')
  for (const cut of [records, records.slice(0, open)]) {
    const { log, fold, all } = await logOf(cut)
    const told = await all()
    const wanted = [first, second].map(({ id }) => explained(told, id))
    await compactLedger(log, fold.state)
    const once = await all()
    expect([first, second].map(({ id }) => explained(once, id))).toEqual(wanted)
    await compactLedger(log, fold.state)
    const twice = await all()
    expect([first, second].map(({ id }) => explained(twice, id))).toEqual(wanted)
    const raws = twice.filter(({ kind }) => kind === 'past').map(({ data }) => JSON.stringify(data))
    expect(raws.filter((text) => /"raw":"0x[0-9a-f]/.test(text))).toEqual([])
  }
})

test('robustness §2: of what is older the steps stay and their details go, which is said; open slots keep all of theirs', async () => {
  const { records, first } = await executedWorld()
  const done = await logOf(records)
  await compactLedger(done.log, done.fold.state, Number.MAX_SAFE_INTEGER)
  const shown = explained(await done.all(), first.id)
  expect(shown.events.map(({ event }) => event)).toEqual([
    'received',
    'compacted',
    'validated',
    'selected',
    'submitted',
    'confirmed',
    'indexed',
  ])
  expect(textOf(shown)).toContain('were dropped by a compaction')

  const live = await logOf(
    records.slice(
      0,
      records.findIndex(({ kind }) => kind === 'slot.mined'),
    ),
  )
  const before = explained(await live.all(), first.id)
  await compactLedger(live.log, live.fold.state, Number.MAX_SAFE_INTEGER)
  expect(explained(await live.all(), first.id)).toEqual(before)
})
