/**
 * `batch submit` and `batch sign` (contract §6): rows in order, the journal first, signatures just
 * before they are sent, so that their deadlines count from then. Memory holds some hundred rows at
 * a time, however many there are.
 */
import {
  ProposerError,
  UnauthorizedError,
  UnavailableError,
  UncertainError,
} from '../../protocol/errors.js'
import { limits } from '../../protocol/schema.js'
import { isAborted, timeLimit } from '../gateway/retry.js'
import type { BatchRow } from '../input/input.js'
import type { Authorization } from '../journal/authorizations.js'
import type { JournalView } from '../journal/journal.js'
import { workingAhead } from './ahead.js'
import type { SubmitParts } from './attempt.js'
import type { SettledEarlier } from './earlier.js'
import { asItemError } from './errors.js'
import { type Held, heldResult, holdBack, withRoundsOver } from './held.js'
import {
  type BatchParts,
  type Planned,
  type PlanOptions,
  planRows,
  savedFor,
  type ToSign,
} from './plan.js'
import { otherGateway } from './replay.js'
import { type Settled, type SettleOptions, settleGroup } from './settle.js'
import { signGroup, type ToImport } from './signing.js'
import { inGroups, type Spending } from './spending.js'
import { candidateInJournal, fromJournal, notSent, unsentOf } from './told.js'

export interface BatchOptions {
  /** From `checkBatch`: marks the attempts, so that `resume` finishes exactly this input. */
  readonly fingerprint: string
  /** Leave alone what is accepted, or was closed by this very batch. */
  readonly resume?: boolean
  readonly spending: Spending
  /** Bounds the whole run. */
  readonly timeoutMs?: number
  /** Ctrl-C: what is in flight gets a few seconds to end, nothing more is begun. */
  readonly signal?: AbortSignal
  /**
   * How many of so many items the budget lets go in the call that follows, at least one; may wait,
   * and keeps them for it. Default: all. Rejects with a ProposerError where nothing more can be
   * sent.
   */
  readonly chunkSize?: (
    wantItems: number,
    options: { readonly signal: AbortSignal },
  ) => Promise<number>
  readonly onRetry?: (event: { readonly reason: string; readonly waitMs: number }) => void
}

/** What became of a row. */
export interface RowResult extends Settled {
  readonly row: BatchRow
  /** What became of its question's authorizations of earlier rounds before this one was signed. */
  readonly earlier?: readonly SettledEarlier[]
}

type Parts = BatchParts & SubmitParts
type Plan = Planned | Held

/** So long may a call go on after Ctrl-C: an answer is worth more than a second saved. */
const graceMs = 5_000

/**
 * Submits the rows; yields their results in input order, some at a time. Every row gets one, also
 * when the run is stopped: what was not sent is `deferred` with the code `not_sent`. Rejects for
 * StorageError 74 and for a key that cannot be unlocked.
 */
export async function* submitBatch(
  parts: Parts,
  rows: AsyncIterable<readonly BatchRow[]>,
  options: BatchOptions,
): AsyncGenerator<readonly RowResult[]> {
  const run = newRun(parts, options)
  try {
    for await (const group of inGroups(rows, limits.batchItems)) {
      if (run.isOver()) yield await unsentResults(parts, group, options, run.why())
      else yield* submitSome(parts, group, options, run)
    }
  } finally {
    run.end()
  }
}

interface Run {
  /** Nothing more is sent. */
  isOver(): boolean
  /** How many of so many items may go now; `undefined`: none any more. */
  room(wantItems: number): Promise<number | undefined>
  /** So many of them went. What did not go is still kept for the next call. */
  spent(items: number): void
  /** Why nothing more is sent. */
  why(): ProposerError
  stop(why: ProposerError): void
  readonly planning: PlanOptions
  readonly sending: SettleOptions
  end(): void
}

function newRun(parts: Parts, options: BatchOptions): Run {
  const { clock } = parts.ports
  const { signal, timeoutMs, onRetry, fingerprint } = options
  const time = timeLimit(parts, timeoutMs === undefined ? {} : { timeoutMs })
  const grace = new AbortController()
  const ended = new AbortController()
  const stopSoon = () => {
    clock.sleep(graceMs, ended.signal).then(
      () => grace.abort(signal?.reason),
      () => undefined, // the run ended within its grace
    )
  }
  signal?.addEventListener('abort', stopSoon, { once: true })
  const both = signal === undefined ? time.signal : AbortSignal.any([time.signal, signal])
  const sizes = { most: limits.batchItems }
  let stopped: ProposerError | undefined
  let kept = 0
  const isOver = () => stopped !== undefined || both.aborted
  const retry = onRetry === undefined ? {} : { onRetry }
  return {
    isOver,
    async room(wantItems) {
      if (isOver()) return undefined
      const most = Math.min(wantItems, sizes.most)
      if (options.chunkSize === undefined) return most
      try {
        // What is kept for a call in which nothing went out serves the next one.
        if (kept === 0) kept = Math.max(1, await options.chunkSize(most, { signal: both }))
        return Math.min(most, kept)
      } catch (error) {
        if (!(error instanceof ProposerError) && !both.aborted) throw error
        if (error instanceof ProposerError) stopped = error
        return undefined
      }
    },
    spent(items) {
      if (items > 0) kept = 0
    },
    why: () =>
      isAborted(signal) && signal?.reason instanceof ProposerError
        ? signal.reason
        : (stopped ?? outOfTime()),
    stop(why) {
      stopped ??= why
    },
    planning: {
      signal: both,
      ...retry,
      ...(options.resume === true ? { resume: fingerprint } : {}),
    },
    sending: {
      callSignal: AbortSignal.any([time.signal, grace.signal]),
      ...(signal === undefined ? {} : { signal }),
      batch: fingerprint,
      size: sizes,
      ...retry,
    },
    end() {
      time.clear()
      ended.abort()
      signal?.removeEventListener('abort', stopSoon)
    },
  }
}

const outOfTime = () =>
  new UnavailableError('timed_out', 'the time given ran out', {
    hint: 'give it longer with --timeout, or go on with --resume',
  })

async function* submitSome(
  parts: Parts,
  rows: readonly BatchRow[],
  options: BatchOptions,
  run: Run,
): AsyncGenerator<readonly RowResult[]> {
  let plans: readonly Plan[]
  try {
    plans = await planSubmission(parts, rows, run.planning)
  } catch (error) {
    if (!(error instanceof UnavailableError) && !isAborted(run.planning.signal)) throw error
    if (error instanceof UnavailableError) run.stop(error)
    yield await unsentResults(parts, rows, options, run.why())
    return
  }
  while (plans.length > 0) {
    const wanted = plans.filter(isBatchItem).length
    const room =
      wanted > 0 ? await run.room(wanted) : run.isOver() && !plans.every(isSettled) ? undefined : 0
    if (room === undefined) {
      yield await unsentResults(
        parts,
        plans.map(({ row }) => row),
        options,
        run.why(),
      )
      return
    }
    const count = firstWith(plans, room)
    yield await submitPlans(parts, plans.slice(0, count), options, run)
    plans = plans.slice(count)
  }
}

/** `planRows`, with what must not be sent held back. */
export const planSubmission = async (
  parts: Parts,
  rows: readonly BatchRow[],
  options: PlanOptions,
): Promise<readonly Plan[]> => holdBack(parts, await planRows(parts, rows, options), options.signal)

const isSettled = ({ kind }: Plan) => kind === 'done' || kind === 'rejected' || kind === 'held'

/**
 * Goes with others in one call: everything but saved bytes of the single form, which go by their
 * own route (contract §6).
 */
const isBatchItem = (plan: Plan) =>
  !isSettled(plan) && !(plan.kind === 'send' && plan.authorization.signed.form === 'single')

/** How many plans from the front hold so many items of a batch call. */
function firstWith(plans: readonly Plan[], items: number): number {
  let found = 0
  const end = plans.findIndex((plan) => isBatchItem(plan) && ++found > items)
  return end < 0 ? plans.length : end
}

/** Signs what has to be signed and sends it in one go. */
async function submitPlans(
  parts: Parts,
  plans: readonly Plan[],
  options: BatchOptions,
  run: Run,
): Promise<readonly RowResult[]> {
  const ready = await submittable(parts, plans, options.spending)
  const authorizations = ready.flatMap((one) => (one.kind === 'send' ? [one.authorization] : []))
  const { results: settled, gone } = await settleGroup(parts, authorizations, run.sending)
  run.spent(authorizations.filter(({ signed }) => signed.form === 'batch').length)
  if (gone !== undefined) run.stop(gone)
  const byId = new Map(settled.map((one) => [one.authorization?.id, one]))
  const results = ready.map((one, index): RowResult => {
    const plan = plans[index]
    const earlier =
      plan?.kind === 'sign' && plan.earlier.length > 0 ? { earlier: plan.earlier } : {}
    if (one.kind !== 'send') return { ...resultOf(parts, one), ...earlier }
    const found = byId.get(one.authorization.id)
    if (found === undefined) throw new Error('an item was left without an outcome')
    // Accepted is not deferred (contract §1): an earlier run's acknowledgement stands, whatever
    // this sending met.
    const known = found.outcome === 'deferred' ? candidateInJournal(one.authorization) : undefined
    return { row: one.row, ...found, ...known, ...earlier }
  })
  return anew(parts, plans, await withRoundsOver(parts, results, run.planning.signal), options, run)
}

/**
 * Saved bytes of an earlier round are settled by now or say so: their rows are signed and sent once
 * more (contract §6).
 */
async function anew(
  parts: Parts,
  plans: readonly Plan[],
  results: readonly RowResult[],
  options: BatchOptions,
  run: Run,
): Promise<readonly RowResult[]> {
  const stale = results.filter(({ row, error }, index) => {
    const over =
      error?.code === 'round_advanced' ||
      error?.code === 'round_over' ||
      error instanceof UnauthorizedError ||
      (error instanceof UncertainError && error.meta.httpStatus === 403)
    const kind = plans[index]?.kind
    return row.kind === 'intent' && (kind === 'send' || kind === 'held') && over
  })
  if (stale.length === 0 || isAborted(run.planning.signal)) return results
  let plansAnew: readonly Planned[]
  try {
    plansAnew = await planRows(
      parts,
      stale.map(({ row }) => row),
      { ...run.planning, afresh: true },
    )
  } catch (error) {
    // Not learned: the answers stand as they are.
    if (error instanceof UnavailableError || isAborted(run.planning.signal)) return results
    throw error
  }
  const changed = new Map<BatchRow, RowResult>()
  const signing: Planned[] = []
  for (const plan of plansAnew) {
    const before = stale.find(({ row }) => row === plan.row)
    const code = before?.error?.code
    const advanced = code === 'round_advanced' || code === 'round_over'
    // An outcome that stays unknown is graver than why nothing can be signed in its place.
    if (plan.kind === 'rejected' && code === 'round_advanced')
      changed.set(plan.row, resultOf(parts, plan))
    const signedFor = before?.authorization?.signed.timestamp
    // A refused signature is no reason to sign again but where it names another round than the
    // current one.
    if (
      plan.kind === 'sign' &&
      (advanced || (signedFor !== undefined && signedFor !== plan.context.request.timestamp))
    )
      signing.push(plan)
  }
  if (signing.length > 0)
    for (const one of await submitPlans(parts, signing, options, run)) changed.set(one.row, one)
  return results.map((one) => changed.get(one.row) ?? one)
}

type Ready = Exclude<Planned, ToSign | ToImport>

/**
 * Signs and imports; what another process has signed and sent meanwhile is held to the same rules
 * as what was saved before.
 */
async function submittable(
  parts: Parts,
  plans: readonly Plan[],
  spending: Spending,
): Promise<readonly (Ready | Held)[]> {
  const made = await authorizePlans(
    parts,
    plans.filter((plan): plan is Planned => plan.kind !== 'held'),
    spending,
  )
  const byRow = new Map(made.map((one) => [one.row, one]))
  const ready: (Ready | Held)[] = []
  for (const plan of plans) {
    const one = plan.kind === 'held' ? plan : byRow.get(plan.row)
    if (one === undefined) throw new Error('an item was left unsigned')
    const wasSent =
      plan.kind !== 'send' && one.kind === 'send' && one.authorization.attempts.length > 0
    const result = wasSent ? await heldResult(parts, one.authorization) : undefined
    ready.push(result === undefined ? one : { kind: 'held', row: one.row, result })
  }
  return ready
}

async function authorizePlans(
  parts: BatchParts,
  plans: readonly Planned[],
  spending: Spending,
): Promise<readonly Ready[]> {
  const waiting = plans.filter(
    (plan): plan is ToSign | ToImport => plan.kind === 'sign' || plan.kind === 'import',
  )
  const signings = await signGroup(parts, spending, waiting)
  const made = new Map(waiting.map((plan, index) => [plan, signings[index]]))
  return plans.map((plan): Ready => {
    if (plan.kind !== 'sign' && plan.kind !== 'import') return plan
    const signing = made.get(plan)
    if (signing === undefined) throw new Error('an item was left unsigned')
    if (signing instanceof ProposerError) return { kind: 'rejected', row: plan.row, error: signing }
    return { kind: 'send', row: plan.row, authorization: signing }
  })
}

/**
 * What is told of a row that is not sent by this run: refused here, held back, or finished before.
 */
function resultOf(parts: Parts, plan: Exclude<Ready, { kind: 'send' }> | Held): RowResult {
  const { row } = plan
  if (plan.kind === 'held') return { row, ...plan.result }
  if (plan.kind === 'rejected') {
    const { error } = plan
    const outcome = error instanceof UnavailableError ? 'deferred' : 'rejected'
    return {
      row,
      outcome,
      statusCode: error.meta.httpStatus ?? null,
      error: asItemError(row, error),
    }
  }
  const elsewhere = otherGateway(plan.authorization, parts.gateway.origin)
  return {
    row,
    ...fromJournal(parts, plan.authorization),
    ...(elsewhere === undefined ? {} : { elsewhere }),
  }
}

/** Rows whose turn did not come: what the journal knows of them, else deferred. */
async function unsentResults(
  parts: Parts,
  rows: readonly BatchRow[],
  options: BatchOptions,
  why: ProposerError,
): Promise<readonly RowResult[]> {
  const view: JournalView = await parts.journal.load()
  const results: RowResult[] = []
  for (const row of rows) {
    const authorization = await savedFor(parts, view, row, options.fingerprint)
    if (authorization === undefined) results.push({ row, ...notSent(why) })
    else
      results.push({
        row,
        ...((await heldResult(parts, authorization)) ?? unsentOf(parts, authorization, why)),
      })
  }
  return results
}

/** How one row was signed. */
export type RowSigned =
  | {
      readonly row: BatchRow
      readonly authorization: Authorization
      readonly reused: boolean
      readonly error?: undefined
    }
  | { readonly row: BatchRow; readonly error: ProposerError }

/**
 * As many are signed under one hold of the journal's lock and with its two syncs, where the
 * contexts come quickly enough.
 */
const signedAtOnce = 5 * limits.batchItems

/**
 * `batch sign`: yields authorizations in input order, durable before they are yielded; an open one
 * of equal intent gives its saved bytes. Nothing is sent. While some are signed and synced, the
 * contexts of the next ones are learned; what is decided then is looked at again under the
 * journal's lock (`signGroup`). Rejects as `submitBatch`, with UnavailableError where no context
 * can be had, and with the signal's reason.
 */
export async function* signBatch(
  parts: BatchParts,
  rows: AsyncIterable<readonly BatchRow[]>,
  options: { readonly spending: Spending; readonly signal?: AbortSignal },
): AsyncGenerator<readonly RowSigned[]> {
  const plan = async (group: readonly BatchRow[], left: AbortSignal) => {
    const signal = options.signal === undefined ? left : AbortSignal.any([options.signal, left])
    signal.throwIfAborted()
    return planRows(parts, group, { signal })
  }
  for await (const plans of workingAhead(inGroups(rows, limits.batchItems), plan, signedAtOnce)) {
    options.signal?.throwIfAborted()
    const reused = new Set(plans.filter(({ kind }) => kind === 'send').map(({ row }) => row))
    const ready = await authorizePlans(parts, plans, options.spending)
    yield ready.map((one): RowSigned => {
      if (one.kind === 'rejected') return { row: one.row, error: asItemError(one.row, one.error) }
      return { row: one.row, authorization: one.authorization, reused: reused.has(one.row) }
    })
  }
}
