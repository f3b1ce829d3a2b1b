/** What the records of a store tell of one candidate: written by the real pipeline on a fake chain. */
import { describe, expect, test } from 'vitest'
import { explanationText } from '../../src/commands/operator/explain-text.js'
import { createOutput } from '../../src/commands/output.js'
import { knownKind } from '../../src/core/gateway/ledger/state.js'
import { compactLedger, foldLedger } from '../../src/core/gateway/ledger/store.js'
import { explain } from '../../src/core/gateway/operator/explanation.js'
import { createHistory, type HistoryEvent } from '../../src/core/gateway/operator/history.js'
import type { Candidate } from '../../src/core/protocol/candidate.js'
import type { NewRecord, RecordLog, StoredRecord } from '../../src/core/storage/record-log.js'
import { newMemoryStore, openMemoryLog } from '../support/memory-log.js'
import { createPipelineWorld, type PipelineWorld } from '../support/pipeline-world.js'

/** The changes that a world's ledger tells, as records: `onChange` hears exactly what is durable. */
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
  records.map((record, index) => ({ ...record, sequence: index + 1, timeMs: 1_700_000_000_000 + index, position: index }))

function historyOf(records: readonly StoredRecord[], id: string) {
  const history = createHistory(id)
  for (const record of records) history.onRecord(record)
  return history
}
const kindsOf = (events: readonly HistoryEvent[]) => events.map(({ kind }) => kind)

function explained(records: readonly StoredRecord[], id: string, more: Partial<Parameters<typeof explain>[3]> = {}) {
  const fold = foldLedger()
  for (const record of records) fold.onRecord(record)
  const history = historyOf(records, id)
  if (!history.candidate) throw new Error('the candidate is not told of')
  const facts = {
    nowMs: 1_700_000_000_000,
    slug: 'rain',
    isServed: true,
    pipelineEnabled: true,
    executorEnabled: true,
    token: { symbol: 'USDC.e', decimals: 6 },
  }
  return explain(history, history.candidate, fold.state, { ...facts, ...more })
}

async function executedWorld() {
  const world = await createPipelineWorld()
  const records = recorded(world)
  const questionId = await world.question()
  const first = await world.submit(questionId)
  const second = await world.submit(questionId, { by: 1 })
  await world.pass(8)
  return { world, records, first, second }
}

/** A memory log that holds these records, and its fold. */
async function logOf(
  records: readonly NewRecord[],
): Promise<{ log: RecordLog; fold: ReturnType<typeof foldLedger>; all(): Promise<StoredRecord[]> }> {
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
  return explanationText(shown, createOutput({ stdout: sink, stderr: sink, env: {}, mode: 'human', quiet: false }))
}

describe('the timeline of a candidate', () => {
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
    expect(shown).toMatchObject({ candidate_id: first.id, status: 'executed', slug: 'rain', submission: 'indexed', executor_nonce: null })
    expect(shown.next.expected).toMatch(/on the chain for good/)
    const text = textOf(shown)
    for (const part of ['bond 750 USDC.e', 'balance ', 'simulation succeeds', 'gwei for gas', 'mined in block', 'ProposePrice is log'])
      expect(text).toContain(part)
    // Hashes and ids stay whole on a line of their own; everything else fits a terminal.
    const long = text.split('\n').filter((line) => line.length > 80)
    expect(long.filter((line) => !/0x[0-9a-f]{64}$/.test(line.trim()))).toEqual([])
  })

  test('R5: neither the signature nor a raw transaction is part of it, in either form', async () => {
    const { records, first } = await executedWorld()
    const raws = records.flatMap(({ kind, data }) => (kind === 'slot.attempt' ? [(data as { attempt: { raw: string } }).attempt.raw] : []))
    expect(raws.length).toBeGreaterThan(0)
    const shown = explained(stored(records), first.id)
    for (const text of [JSON.stringify(shown), textOf(shown)]) {
      for (const secret of [first.signature, ...raws]) expect(text).not.toContain(secret.slice(2, 60))
    }
  })

  test('contract §5: a stand-in is told who is before it, and that it ended as not selected', async () => {
    const world = await createPipelineWorld({ config: { executor: { enabled: false, max_fee_gwei: 1, batch: 1 } } })
    const records = recorded(world)
    const questionId = await world.question()
    const first = await world.submit(questionId)
    const second = await world.submit(questionId, { by: 1 })
    await world.pass(2)
    const waiting = explained(stored(records), second.id, { executorEnabled: false })
    expect(waiting).toMatchObject({ status: 'validated', rivals: [{ candidate_id: first.id, is_before: true, status: 'selected' }] })
    expect(waiting.next.expected).toContain(first.id)

    const { records: ended, second: loser } = await executedWorld()
    const shown = explained(stored(ended), loser.id)
    expect(shown.events.at(-1)).toMatchObject({ event: 'failed', failure: { code: 'not_selected' }, next_action: 'wait_for_new_round' })
    expect(shown.next).toMatchObject({ proposer: expect.stringContaining('new round'), operator: null })
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
    expect(failed.events.at(-2)).toMatchObject({ event: 'checked', check: { verdict: 'failed', figures: { balance: expect.any(String) } } })
    expect(textOf(failed)).toMatch(/the proposer: Fund the wallet/)
    await world.ledger.replay(poor.id)
    expect(kindsOf(historyOf(stored(records), poor.id).events).at(-1)).toBe('put_back')
  })

  test('R14: a reorganisation that takes back what was counted on is told as such', () => {
    const base = { id: '00000000-0000-4000-8000-000000000001' } as const
    const candidate = { ...base, receivedAtMs: 1, round: { questionId: '0x01' }, proposer: '0x02' } as unknown as Candidate
    const at = { validatedAtMs: 2, selectedAtMs: 3 }
    const submission = {
      status: 'submitted',
      transactionHash: '0xaa',
      submittedAtMs: 4,
      confirmedAtMs: null,
      indexedAtMs: null,
      proposalEventIndex: null,
    }
    const step = (progress: object): NewRecord => ({ kind: 'candidate.progress', data: { ...base, progress } })
    const records = stored([
      { kind: 'candidate.received', data: { candidate } },
      step({ status: 'validated', validatedAtMs: 2 }),
      step({ status: 'selected', ...at, submission: null }),
      step({ status: 'selected', ...at, submission: { ...submission, status: 'prepared' } }),
      step({ status: 'selected', ...at, submission }),
      step({ status: 'selected', ...at, submission: { ...submission, status: 'confirmed', confirmedAtMs: 5 } }),
      step({ status: 'executed', ...at, submission: { ...submission, status: 'indexed', indexedAtMs: 6, proposalEventIndex: 3 } }),
      step({ status: 'selected', ...at, submission }),
      step({ status: 'validated', validatedAtMs: 2 }),
    ])
    const { events } = historyOf(records, base.id)
    expect(kindsOf(events)).toEqual(['received', 'validated', 'selected', 'confirmed', 'indexed', 'fell_back', 'stands_in_again'])
    expect(events[5]).toMatchObject({ from: 'executed', hash: '0xaa' })
  })

  test('contract §6: nothing that serves, a pipeline that is off and an executor that is off are named as what it waits for', async () => {
    const world = await createPipelineWorld({ config: { pipeline: { enabled: false } } })
    const records = recorded(world)
    const candidate = await world.submit(await world.question())
    expect(explained(stored(records), candidate.id, { isServed: false }).next.operator).toContain('proposer serve')
    expect(explained(stored(records), candidate.id, { pipelineEnabled: false }).next.expected).toContain('pipeline.enabled')
  })
})

describe('the timeline after a compaction', () => {
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
    expect(textOf(shown)).toContain('a compaction has dropped the details')

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
})
