/**
 * One proposal or a thousand: planned, signed just before they are sent, so that deadlines count
 * from then, and signed once more where a round is over (contract §6). `replay`: saved bytes of
 * unknown or deferred outcome, sent again and never signed (R7).
 */

import { inGroups } from '#protocol/capped'
import {
  ProposerError,
  UnauthorizedError,
  UnavailableError,
  UncertainError,
  UsageError,
} from '#protocol/errors'
import { outcomeOf } from '#protocol/proposal'
import { limits } from '#protocol/words'
import { isAborted, timeLimit } from '../gateway/answer.js'
import type { BatchRow } from '../input/input.js'
import {
  type Elsewhere,
  type JournaledAuthorization,
  otherGateway,
  sentElsewhere,
  stateOf,
  supersededError,
  unknownId,
} from '../journal/authorizations.js'
import type { ContextSource } from '../trust/context.js'
import type { Trust } from '../trust/trust.js'
import type { SubmitParts } from './attempt.js'
import { newSpending, type Spending } from './limits.js'
import {
  asItemError,
  fromJournal,
  type RowOutcome,
  refusedHere,
  type SentOutcome,
  unsentOutcome,
} from './outcome.js'
import {
  journaledFor,
  orRejected,
  type Planned,
  type ProposeParts,
  planRows,
  type Ready,
  sendable,
} from './plan.js'
import { knownOver, roundsOf, type SettledEarlier, skippedOutcome } from './round-over.js'
import { type OnRetry, type SubmitOptions, sendAll } from './send.js'
import { authorizePlans, settle } from './sign-rows.js'

export interface SubmitRowsOptions {
  /** Marks the attempts, so that `resume` finishes exactly this input. */
  readonly fingerprint?: string
  readonly resume?: boolean
  /** Default: what the wallet covers. */
  readonly spending?: Spending
  readonly timeoutMs?: number | undefined
  /** Ctrl-C: what is in flight gets a few seconds to end, nothing more is begun. */
  readonly signal?: AbortSignal | undefined
  /** How many items the budget keeps for the next call, at least one; may wait. */
  readonly chunkSize?: (
    wantItems: number,
    options: { readonly signal: AbortSignal },
  ) => Promise<number>
  readonly onRetry?: OnRetry | undefined
}

export interface RowResult extends RowOutcome {
  readonly row: BatchRow
  readonly earlier?: readonly SettledEarlier[]
}

type Parts = ProposeParts & SubmitParts

/** So long may a call go on after Ctrl-C: an answer is worth more than a second saved. */
const stopDelayMs = 5_000

/** In input order; every row gets one: what was not sent is `deferred` with `not_sent`. */
export async function* submitRows(
  parts: Parts,
  rows: readonly BatchRow[],
  options: SubmitRowsOptions = {},
): AsyncGenerator<readonly RowResult[]> {
  const run = newRun(parts, options)
  try {
    for (const group of inGroups(rows, limits.batchItems)) {
      let left = isOver(run) ? undefined : await plansOf(run, group)
      if (left === undefined) yield await unsentResults(run, group)
      while (left !== undefined && left.length > 0) {
        const wanted = left.filter(isBatchItem).length
        const isFree = wanted === 0 && (!isOver(run) || left.every(isSettled))
        const room: number | undefined = isFree ? 0 : await roomFor(run, wanted)
        const count: number = room === undefined ? left.length : firstWith(left, room)
        const some = left.slice(0, count)
        left = left.slice(count)
        yield room === undefined
          ? await unsentResults(
              run,
              some.map(({ row }) => row),
            )
          : await submitPlans(run, some)
      }
    }
  } finally {
    run.end()
  }
}

/** One intent or payload; of the form that the parts name. Throws what ends a run. */
export async function submitOne(
  parts: Parts,
  row: BatchRow,
  options: SubmitRowsOptions = {},
): Promise<RowResult> {
  for await (const [result] of submitRows(parts, [row], options)) if (result) return result
  throw new Error('a row was left without an outcome')
}

type Run = ReturnType<typeof newRun>

function newRun(parts: Parts, options: SubmitRowsOptions) {
  const { signal, timeoutMs, fingerprint, resume, onRetry } = options
  // Whoever is shown a proposal may take the time that its sending has.
  const isShown = parts.form === 'single'
  const time = timeLimit(parts, { timeoutMs: isShown ? undefined : timeoutMs })
  const callStop = new AbortController()
  const ended = new AbortController()
  const stopSoon = () => {
    parts.ports.clock.sleep(stopDelayMs, ended.signal).then(
      () => callStop.abort(signal?.reason),
      () => undefined,
    )
  }
  signal?.addEventListener('abort', stopSoon, { once: true })
  const either = signal === undefined ? time.signal : AbortSignal.any([time.signal, signal])
  return {
    parts,
    options,
    spending: options.spending ?? newSpending(parts),
    signal: either,
    planning: {
      signal: either,
      timeoutMs,
      onRetry,
      resume: resume === true ? fingerprint : undefined,
      rounds: new Map(),
    },
    sending: {
      timeoutMs: isShown ? timeoutMs : undefined,
      callSignal: AbortSignal.any([time.signal, callStop.signal]),
      signal,
      batch: fingerprint,
      size: { most: limits.batchItems as number },
      onRetry,
    },
    stopped: undefined as ProposerError | undefined,
    keptItems: 0,
    end() {
      time.clear()
      ended.abort()
      signal?.removeEventListener('abort', stopSoon)
    },
  }
}

const isOver = ({ stopped, signal }: Run) => stopped !== undefined || signal.aborted

function whyOver({ stopped, options: { signal } }: Run) {
  if (isAborted(signal) && signal?.reason instanceof ProposerError) return signal.reason
  const hint = 'raise --timeout, or continue with --resume'
  return stopped ?? new UnavailableError('timed_out', 'the time limit was reached', hint)
}

async function roomFor(run: Run, wantItems: number) {
  if (isOver(run)) return undefined
  const most = Math.min(wantItems, run.sending.size.most)
  const { chunkSize } = run.options
  if (chunkSize === undefined) return most
  try {
    // What is kept for a call in which nothing went out serves the next one.
    if (run.keptItems === 0)
      run.keptItems = Math.max(1, await chunkSize(most, { signal: run.signal }))
    return Math.min(most, run.keptItems)
  } catch (error) {
    if (error instanceof ProposerError) run.stopped = error
    else if (!run.signal.aborted) throw error
    return undefined
  }
}

/** `undefined`: the run is over, or nobody tells what would be signed. */
async function plansOf(run: Run, rows: readonly BatchRow[]) {
  try {
    const plans = await planRows(run.parts, rows, run.planning)
    return await settled(run, await sendable(run.parts, plans, run.planning))
  } catch (error) {
    if (!(error instanceof UnavailableError) && !run.signal.aborted) throw error
    if (error instanceof UnavailableError) run.stopped ??= error
    return undefined
  }
}

type Settled = Planned & { readonly settled?: readonly SettledEarlier[] }

/** What is open in earlier rounds is over before anything is signed (§3 rule 3). */
async function settled(
  { parts, signal }: { readonly parts: ProposeParts; readonly signal?: AbortSignal | undefined },
  plans: readonly Planned[],
) {
  const all: Settled[] = []
  for (const plan of plans) all.push(await orRejected(plan.row, () => settle(parts, plan, signal)))
  return all
}

const isSettled = ({ kind }: Planned) => ['done', 'rejected', 'skipped'].includes(kind)

/** Saved bytes of the single form have their own route. */
const isBatchItem = (plan: Planned) =>
  !isSettled(plan) && !(plan.kind === 'send' && plan.authorization.signed.form === 'single')

function firstWith(plans: readonly Planned[], items: number) {
  let found = 0
  const end = plans.findIndex((plan) => isBatchItem(plan) && ++found > items)
  return end < 0 ? plans.length : end
}

async function submitPlans(run: Run, plans: readonly Settled[]) {
  const { parts } = run
  const ready = await authorizePlans(parts, plans, run.spending)
  for (const [at, one] of ready.entries()) {
    if (one.kind !== 'send' || plans[at]?.kind === 'send') continue
    // What another process has signed and sent meanwhile is held to the rules of saved bytes.
    const result = await skippedOutcome(parts, one.authorization)
    if (result !== undefined) ready[at] = { kind: 'skipped', row: one.row, result }
  }
  const toSend = ready.flatMap((one) => (one.kind === 'send' ? [one] : []))
  const authorizations = toSend.map(({ authorization }) => authorization)
  // An intent's round is examined where it is planned again, which signs for the new one.
  const items = toSend.flatMap((one) => (one.row.kind === 'item' ? one.authorization : []))
  const round = roundsOf(parts, items, run.signal)
  const { results, gone } = await sendAll(parts, authorizations, { ...run.sending, round })
  if (authorizations.some(({ signed }) => signed.form === 'batch')) run.keptItems = 0
  run.stopped ??= gone
  const byId = new Map(results.map((one) => [one.authorization.id, one]))
  const reported = ready.map((one, at) => {
    const sent = one.kind === 'send' ? byId.get(one.authorization.id) : unsentReady(parts, one)
    if (sent === undefined) throw new Error('an item was left without an outcome')
    const earlier = plans[at]?.settled
    return { row: one.row, ...sent, ...(earlier?.length && { earlier }) }
  })
  return retried(run, plans, reported)
}

function unsentReady({ ports, gateway, form }: Parts, plan: Exclude<Ready, { kind: 'send' }>) {
  if (plan.kind === 'skipped') return plan.result
  if (plan.kind === 'rejected') return refusedHere(plan.row, plan.error, form)
  const elsewhere = otherGateway(plan.authorization, gateway.origin)
  return { ...fromJournal(plan.authorization, ports.clock.nowMs()), elsewhere }
}

async function unsentResults(run: Run, rows: readonly BatchRow[]) {
  const { parts, options } = run
  const view = await parts.journal.load()
  const results: RowResult[] = []
  for (const row of rows) {
    const saved = await journaledFor(parts, view, row, options.fingerprint ?? '')
    const skipped = saved && (await skippedOutcome(parts, saved))
    const nowMs = parts.ports.clock.nowMs()
    results.push({ row, ...(skipped ?? unsentOutcome(saved, whyOver(run), nowMs, parts.form)) })
  }
  return results
}

const saysOver = ({ error }: RowOutcome) =>
  error?.code === 'round_advanced' || error?.code === 'round_over'

/** A signature that was refused may be one for another round. */
const mayNameOtherRound = ({ error }: RowOutcome) =>
  error instanceof UnauthorizedError ||
  (error instanceof UncertainError && error.meta.httpStatus === 403)

/** Rows whose saved bytes are of an earlier round are signed and sent once more (contract §6). */
async function retried(run: Run, plans: readonly Settled[], results: readonly RowResult[]) {
  const wasSaved = (plan: Planned | undefined) => plan?.kind === 'send' || plan?.kind === 'skipped'
  const isStale = (one: RowResult, at: number) =>
    one.row.kind === 'intent' && wasSaved(plans[at]) && (saysOver(one) || mayNameOtherRound(one))
  const before = new Map(results.filter(isStale).map((one) => [one.row, one]))
  if (before.size === 0 || run.signal.aborted) return results
  let again: readonly Settled[]
  try {
    const options = { ...run.planning, isRetry: true }
    again = await settled(run, await planRows(run.parts, [...before.keys()], options))
  } catch (error) {
    // Not learned: the answers stand as they are.
    if (error instanceof UnavailableError || run.signal.aborted) return results
    throw error
  }
  const changed = new Map<BatchRow, RowResult>()
  const signing: Settled[] = []
  for (const plan of again) {
    const { row } = plan
    const known = before.get(row)
    // An outcome that stays unknown is graver than why nothing can be signed in its place.
    if (plan.kind === 'rejected' && known?.error?.code === 'round_advanced')
      changed.set(row, { row, ...refusedHere(row, plan.error, run.parts.form) })
    else if (plan.kind === 'rejected') run.parts.note?.(plan.error.detail)
    if (plan.kind !== 'sign' || known === undefined) continue
    const signedFor = known.authorization?.signed.timestamp
    const isOther = signedFor !== undefined && signedFor !== plan.context.request.timestamp
    if (saysOver(known) || isOther) signing.push(plan)
  }
  if (signing.length > 0)
    for (const one of await submitPlans(run, signing)) changed.set(one.row, one)
  return results.map((one) => changed.get(one.row) ?? one)
}

export type RowSigned =
  | {
      readonly row: BatchRow
      readonly authorization: JournaledAuthorization
      readonly reused: boolean
      readonly error?: undefined
    }
  | { readonly row: BatchRow; readonly error: ProposerError }

/** Durable before they are yielded. */
export async function* signRows(
  parts: ProposeParts,
  rows: readonly BatchRow[],
  { spending, signal }: { readonly spending: Spending; readonly signal?: AbortSignal },
): AsyncGenerator<readonly RowSigned[]> {
  const rounds = new Map()
  for (const group of inGroups(rows, limits.batchItems)) {
    const plans = await settled({ parts, signal }, await planRows(parts, group, { signal, rounds }))
    signal?.throwIfAborted()
    const signed = await authorizePlans(parts, plans, spending)
    yield signed.map((one, at) => {
      const { row } = one
      if (one.kind === 'rejected') return { row, error: asItemError(row, one.error) }
      if (one.kind === 'skipped') throw new Error('nothing is skipped where nothing is sent')
      return { row, authorization: one.authorization, reused: plans[at]?.kind === 'send' }
    })
  }
}

export type Skipped = ReturnType<typeof skippedOf>[number]

export interface ReplayResult {
  readonly results: readonly SentOutcome[]
  readonly elsewhere: readonly Elsewhere[]
  readonly skipped: readonly Skipped[]
}

interface ReplayParts extends SubmitParts {
  /** Where an answer leaves open whether the own round is over. */
  readonly contexts?: ContextSource
  readonly trust?: Trust
  readonly chain?: object | undefined
}

export async function replay(
  parts: ReplayParts,
  which: readonly string[] | 'all',
  { redirect, ...options }: SubmitOptions & { readonly redirect?: boolean } = {},
): Promise<ReplayResult> {
  const { chosen, ...rest } = await planReplay(parts, which, { redirect })
  const { contexts, trust, chain } = parts
  const round = contexts && trust && roundsOf({ contexts, trust, chain }, chosen, options.signal)
  const known = await Promise.all(chosen.map((one) => knownOver(one, round)))
  const toSend = chosen.filter((_, at) => known[at] === undefined)
  const sent = (await sendAll(parts, toSend, { ...options, round })).results.values()
  return { results: known.flatMap((over) => over ?? sent.next().value ?? []), ...rest }
}

/**
 * What went to another origin is only listed, but with `redirect`: the gateway was named together
 * with ids.
 */
export async function planReplay(
  { ports, journal, gateway }: SubmitParts,
  which: readonly string[] | 'all',
  { redirect = false }: { readonly redirect?: boolean | undefined },
) {
  const view = await journal.load()
  const nowMs = ports.clock.nowMs()
  const isOwed = (one: JournaledAuthorization) =>
    ['unknown', 'deferred'].includes(stateOf(one, nowMs).kind)
  const wanted =
    which === 'all'
      ? view.authorizations.filter((one) => isOwed(one) && one.supersededBy === undefined)
      : which.map((id) => replayable(view.find(id), id, nowMs))
  const awayOf = (one: JournaledAuthorization) =>
    redirect ? undefined : sentElsewhere(one, gateway.origin, nowMs)
  return {
    chosen: wanted.filter((one) => awayOf(one) === undefined),
    elsewhere: wanted.flatMap((one) => awayOf(one) ?? []),
    skipped: which === 'all' ? skippedOf(view.authorizations, isOwed, nowMs) : [],
  }
}

function replayable(one: JournaledAuthorization | undefined, id: string, nowMs: number) {
  if (one === undefined) throw unknownId(id)
  const { kind } = stateOf(one, nowMs)
  if (kind === 'closed')
    throw new UsageError(
      'authorization_closed',
      `${id} is closed: sending it again changes nothing`,
      `see \`proposer journal show ${id}\``,
    )
  const superseded = supersededError(one)
  if (superseded !== undefined) throw superseded
  if (kind !== 'signed') return one
  const { identifier, terms } = one.signed
  throw new UsageError(
    'never_sent',
    `${id} was signed and never sent: there is nothing to send again`,
    `send it with \`proposer submit ${identifier} --outcome ${outcomeOf(terms.price) ?? '<answer>'}\``,
  )
}

function skippedOf(
  all: readonly JournaledAuthorization[],
  isOwed: (one: JournaledAuthorization) => boolean,
  nowMs: number,
) {
  const isReplaced = (one: JournaledAuthorization) => one.supersededBy !== undefined
  const hasFailed = (one: JournaledAuthorization) =>
    stateOf(one, nowMs).kind === 'accepted' && one.terminal?.outcome === 'failed'
  const skip = <R>(one: JournaledAuthorization, reason: R, verb: string) => ({
    authorization: one,
    reason,
    command: `proposer ${verb} ${one.id}`,
  })
  return [
    ...all
      .filter((one) => isOwed(one) && isReplaced(one))
      .map((one) => skip(one, 'superseded' as const, 'revoke')),
    ...all
      .filter((one) => hasFailed(one) && !isReplaced(one))
      .map((one) => skip(one, 'failed_retryably' as const, 'replay')),
  ]
}
