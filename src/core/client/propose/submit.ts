/** One or a thousand: planned, signed just before they are sent, for deadlines count from then. */

import { inGroups } from '#protocol/capped'
import {
  ConflictError,
  ProposerError,
  RejectedError,
  UnauthorizedError,
  UnavailableError,
  UsageError,
} from '#protocol/errors'
import { outcomeOf } from '#protocol/proposal'
import { shellWord } from '#protocol/text'
import { limits } from '#protocol/words'
import { anySignal, slept, timeLimit } from '../gateway/answer.js'
import type { BatchRow } from '../input/input.js'
import {
  type Elsewhere,
  type Form,
  isUnsettled,
  type JournaledAuthorization,
  otherGateway,
  sentElsewhere,
  stateOf,
  supersededError,
  unknownId,
} from '../journal/authorizations.js'
import { newSpending, type Spending } from './limits.js'
import {
  journaledFor,
  type Planned,
  type ProposeParts,
  planRows,
  type Ready,
  sendable,
} from './plan.js'
import {
  candidateInJournal,
  knownOver,
  notAccepted,
  type RowOutcome,
  roundsOf,
  type SentOutcome,
  type SettledEarlier,
  type SubmitOptions,
  type SubmitParts,
  sendAll,
  skippedOutcome,
  unknownOutcome,
  wordOf,
} from './send.js'
import { authorizePlans, type RowAuthorized, type Settled, settlePlans } from './sign-rows.js'

export interface SubmitRowsOptions extends SubmitOptions {
  /** Marks the attempts: `resume` finishes exactly this input. */
  readonly fingerprint?: string
  readonly resume?: boolean
  /** Default: what the wallet covers. */
  readonly spending?: Spending
  /** Items that the budget keeps for the next call, at least one; may wait. */
  readonly chunkSize?: (
    wantItems: number,
    options: { readonly signal: AbortSignal },
  ) => Promise<number>
}

export interface RowResult extends RowOutcome {
  readonly row: BatchRow
  readonly earlier?: readonly SettledEarlier[]
}

type Parts = ProposeParts & SubmitParts

/** A call may go on so long after Ctrl-C: an answer is worth more. */
const stopDelayMs = 5_000

/** In input order; what was not sent is `deferred` with `not_sent`. */
export async function* submitRows(
  parts: Parts,
  rows: readonly BatchRow[],
  options: SubmitRowsOptions = {},
): AsyncGenerator<readonly RowResult[]> {
  const run = newRun(parts, options)
  try {
    for (const group of inGroups(rows, limits.batchItems)) {
      const plans = await plansOf(run, group)
      if (plans === undefined) yield await unsentResults(run, group)
      for (let left = plans ?? []; left.length > 0; ) {
        const count = await roomFor(run, left)
        const some: readonly Settled[] = left.slice(0, count)
        left = left.slice(some.length)
        const rows = some.map(({ row }) => row)
        yield count === undefined ? await unsentResults(run, rows) : await submitPlans(run, some)
      }
    }
  } finally {
    run.end()
  }
}

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
  const { signal: stop, timeoutMs, fingerprint: batch, resume, onRetry } = options
  // A person may take long to agree: the time is for what comes after.
  const isShown = parts.form === 'single'
  const time = timeLimit(parts, { timeoutMs: isShown ? undefined : timeoutMs })
  const [callStop, ended] = [new AbortController(), new AbortController()]
  const stopSoon = async () => {
    if (await slept(parts.ports, stopDelayMs, ended.signal)) callStop.abort(stop?.reason)
  }
  stop?.addEventListener('abort', stopSoon, { once: true, signal: ended.signal })
  const signal = anySignal(time.signal, stop)
  return {
    ...{ parts, options, signal },
    spending: options.spending ?? newSpending(parts),
    planning: { signal, timeoutMs, onRetry, rounds: new Map(), resume: resume ? batch : undefined },
    sending: {
      ...{ signal: stop, batch, onRetry, timeoutMs: isShown ? timeoutMs : undefined },
      callSignal: anySignal(time.signal, callStop.signal),
      size: { most: limits.batchItems as number },
    },
    stopped: undefined as ProposerError | undefined,
    end() {
      time.clear()
      ended.abort()
    },
  }
}

const isOver = ({ stopped, signal }: Run) => stopped !== undefined || signal.aborted

function whyOver({ stopped, options: { signal } }: Run) {
  if (signal?.reason instanceof ProposerError) return signal.reason
  const hint = 'raise --timeout, or continue with --resume'
  return stopped ?? new UnavailableError('timed_out', 'the time limit was reached', hint)
}

/** `undefined`: the run is over, or nobody answers. */
async function unlessOver<T>(run: Run, work: () => Promise<T>) {
  if (isOver(run)) return undefined
  try {
    return await work()
  } catch (error) {
    if (error instanceof UnavailableError) run.stopped ??= error
    else if (!run.signal.aborted) throw error
    return undefined
  }
}

const plansOf = (run: Run, rows: readonly BatchRow[], isRetry = false) =>
  unlessOver(run, async () => {
    const { parts, planning, signal } = run
    const plans = await planRows(parts, rows, { ...planning, isRetry })
    return settlePlans(parts, isRetry ? plans : await sendable(parts, plans, planning), signal)
  })

/** `undefined`: nothing more is sent. */
async function roomFor(run: Run, plans: readonly Planned[]) {
  const { options, sending, signal } = run
  const left = plans.filter(({ kind }) => ['sign', 'import', 'send'].includes(kind))
  // Saved bytes of the single form have their own route.
  const items = left.filter(
    (one) => one.kind !== 'send' || one.authorization.signed.form === 'batch',
  )
  if (items.length === 0 && (!isOver(run) || left.length === 0)) return plans.length
  const most = Math.min(items.length, sending.size.most)
  const room = await unlessOver(run, async () => options.chunkSize?.(most, { signal }) ?? most)
  if (room === undefined) return undefined
  const next = items[room]
  return next === undefined ? plans.length : plans.indexOf(next)
}

async function submitPlans(run: Run, plans: readonly Settled[]) {
  const { parts } = run
  const ready = await authorizePlans(parts, plans, run.spending)
  for (const [at, one] of ready.entries()) {
    if (one.kind !== 'send' || plans[at]?.kind === 'send') continue
    // Another process may have signed and sent it meanwhile.
    const result = await skippedOutcome(parts, one.authorization)
    if (result !== undefined) ready[at] = { kind: 'skipped', row: one.row, result }
  }
  const toSend = ready.flatMap((one) => (one.kind === 'send' ? one : []))
  // Of intents it is examined when they are planned again.
  const items = toSend.flatMap((one) => (one.row.kind === 'item' ? one.authorization : []))
  const isOver = roundsOf(parts, items, run.signal)
  const authorizations = toSend.map(({ authorization }) => authorization)
  const { results, gone } = await sendAll(parts, authorizations, { ...run.sending, isOver })
  run.stopped ??= gone
  const sent = results.values()
  const reported = ready.map((one, at): RowResult => {
    const outcome = one.kind === 'send' ? sent.next().value : unsentReady(parts, one)
    if (outcome === undefined) throw new Error('an item was left without an outcome')
    const earlier = plans[at]?.settled
    return { row: one.row, ...outcome, ...(earlier?.length && { earlier }) }
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
  const nowMs = parts.ports.clock.nowMs()
  const results = rows.map(async (row): Promise<RowResult> => {
    const saved = await journaledFor(parts, view, row, options.fingerprint ?? '')
    const skipped = saved && (await skippedOutcome(parts, saved))
    return { row, ...(skipped ?? unsentOutcome(saved, whyOver(run), nowMs, parts.form)) }
  })
  return Promise.all(results)
}

const refusedHere = (row: BatchRow, error: ProposerError, form?: Form): RowOutcome => ({
  outcome: wordOf(error),
  statusCode: error.meta.httpStatus ?? null,
  error: form === 'single' ? error : asItemError(row, error),
})

function fromJournal(authorization: JournaledAuthorization, nowMs: number) {
  const known = candidateInJournal(authorization)
  if (known !== undefined) return { ...known, authorization }
  const state = stateOf(authorization, nowMs)
  const { attempts, id } = authorization
  const httpStatus = attempts.findLast(({ end }) => end?.class === 'refused')?.end?.status
  const code = state.kind === 'closed' ? (state.code ?? state.reason) : state.kind
  const Kind = httpStatus === 403 ? UnauthorizedError : RejectedError
  const hint = 'run the batch without --resume to sign it anew'
  const detail = `${id} was closed before (${code}); nothing was sent`
  return notAccepted(authorization, new Kind(code, detail, { hint, httpStatus }))
}

export function unsentOutcome(
  authorization: JournaledAuthorization | undefined,
  why: ProposerError,
  nowMs: number,
  form?: Form,
): RowOutcome {
  if (authorization !== undefined) {
    const { kind } = stateOf(authorization, nowMs)
    if (authorization.candidateId !== undefined || kind === 'closed')
      return fromJournal(authorization, nowMs)
    if (isUnsettled(authorization)) return unknownOutcome(authorization)
  }
  const hint = 'run it again, `batch submit` with --resume'
  const detail = `it was not sent: ${why.detail}`
  const error = form === 'single' ? why : new UnavailableError('not_sent', detail, hint)
  return { outcome: 'deferred', statusCode: null, error, authorization }
}

/** Exit 3 (contract §6), but for what is graver. */
export function asItemError(row: BatchRow, error: ProposerError) {
  const isGraver = error instanceof UnavailableError || error instanceof UnauthorizedError
  // Exit 2 for a row too (contract §9).
  const isHeldBack = ['rules_changed', 'check_failed', 'other_question'].includes(error.code)
  if (isGraver || isHeldBack) return error
  const Kind = error instanceof ConflictError ? ConflictError : RejectedError
  const { hint } = error.meta
  return new Kind(error.code, error.detail, { ...error.meta, hint: hint && inBatch(row, hint) })
}

/** A row has no flags: its fields are named. */
function inBatch(row: BatchRow, hint: string) {
  const outcome =
    row.kind === 'intent' ? row.outcome : (outcomeOf(row.item.proposed_price) ?? '<p1|p2|p3>')
  const replace = `\`proposer submit ${row.identifier} --outcome ${shellWord(outcome)} --supersede`
  return hint.replace(
    /`[^`]*`|--supersede ([0-9a-f]{12}-\d+)|--(nonce|deadline|amount)\b/g,
    (same, id?: string, field?: string) => (id ? `${replace} ${id}\`` : (field ?? same)),
  )
}

const saysOver = ({ error }: RowOutcome) =>
  error?.code === 'round_advanced' || error?.code === 'round_over'

/** What was saved for an earlier round is signed once more (contract §6). */
async function retried(run: Run, plans: readonly Settled[], results: readonly RowResult[]) {
  const { form, note } = run.parts
  const stale = results.filter((one, at) => {
    const wasSaved = ['send', 'skipped'].includes(plans[at]?.kind ?? '')
    // A signature refused with 403 may be of another round.
    const mayBeOver = saysOver(one) || one.error?.meta.httpStatus === 403
    return one.row.kind === 'intent' && wasSaved && mayBeOver
  })
  // Answers are told though the journal cannot be read any more.
  if (stale.length === 0) return results
  const changed = new Map<BatchRow, RowResult>()
  const signing: Settled[] = []
  const rows = stale.map(({ row }) => row)
  // Where nothing is learned, the answers stand.
  const again = (await plansOf(run, rows, true)) ?? []
  for (const [at, plan] of again.entries()) {
    const { row } = plan
    const known = stale[at]
    // An outcome that stays unknown is graver than what hinders a signature.
    if (plan.kind === 'rejected' && known?.error?.code === 'round_advanced')
      changed.set(row, { row, ...refusedHere(row, plan.error, form) })
    else if (plan.kind === 'rejected') note?.(plan.error.detail)
    if (plan.kind !== 'sign' || known === undefined) continue
    const { timestamp } = plan.context.request
    const isOther = (known.authorization?.signed.timestamp ?? timestamp) !== timestamp
    if (saysOver(known) || isOther) signing.push(plan)
  }
  if (signing.length > 0)
    for (const one of await submitPlans(run, signing)) changed.set(one.row, one)
  return results.map((one) => changed.get(one.row) ?? one)
}

export type RowSigned =
  | (RowAuthorized & { readonly row: BatchRow; readonly error?: undefined })
  | { readonly row: BatchRow; readonly error: ProposerError }

export async function* signRows(
  parts: ProposeParts,
  rows: readonly BatchRow[],
  { spending, signal }: { spending: Spending; signal?: AbortSignal },
): AsyncGenerator<readonly RowSigned[]> {
  const rounds = new Map()
  const groups = inGroups(rows, limits.batchItems)
  const plansOf = async (group: readonly BatchRow[] = []) =>
    settlePlans(parts, await planRows(parts, group, { signal, rounds }), signal)
  let next = plansOf(groups[0])
  for (const at of groups.keys()) {
    const plans = await next
    signal?.throwIfAborted()
    // Asked for while this group is signed.
    next = plansOf(groups[at + 1])
    next.catch(() => undefined)
    const signed = await authorizePlans(parts, plans, spending)
    yield signed.map((one, at) => {
      const { row } = one
      if (one.kind === 'rejected') return { row, error: asItemError(row, one.error) }
      if (one.kind === 'skipped') throw new Error('nothing is skipped where nothing is sent')
      return { row, authorization: one.authorization, reused: plans[at]?.kind === 'send' }
    })
  }
}

export interface Skipped {
  readonly authorization: JournaledAuthorization
  readonly reason: 'superseded' | 'failed_retryably'
  readonly command: string
}

export interface ReplayResult {
  readonly results: readonly SentOutcome[]
  readonly elsewhere: readonly Elsewhere[]
  readonly skipped: readonly Skipped[]
}

type ReplayParts = SubmitParts & Partial<Pick<ProposeParts, 'contexts' | 'trust' | 'chain'>>

/** Saved bytes of unknown or deferred outcome again; never signs (R7). */
export async function replay(
  parts: ReplayParts,
  which: readonly string[] | 'all',
  { redirect, ...options }: SubmitOptions & { readonly redirect?: boolean } = {},
): Promise<ReplayResult> {
  const { chosen, ...rest } = await planReplay(parts, which, { redirect })
  const { contexts, trust, chain } = parts
  const isOver = contexts && trust && roundsOf({ contexts, trust }, chosen, options.signal)
  // The word of a node overrules what a gateway once said.
  const known = await Promise.all(chosen.map((one) => knownOver(one, chain && isOver)))
  const toSend = chosen.filter((_, at) => known[at] === undefined)
  const sent = (await sendAll(parts, toSend, { ...options, isOver })).results.values()
  return { results: known.flatMap((over) => over ?? sent.next().value ?? []), ...rest }
}

/** Without `redirect` (a gateway named beside ids) what went elsewhere is only listed. */
export async function planReplay(
  { ports, journal, gateway }: SubmitParts,
  which: readonly string[] | 'all',
  { redirect }: { redirect?: boolean | undefined },
) {
  const view = await journal.load()
  const nowMs = ports.clock.nowMs()
  const ids = which === 'all' ? [] : which
  const wanted = ids.map((id) => replayable(view.find(id), id, nowMs))
  const skipped: Skipped[] = []
  for (const authorization of which === 'all' ? view.authorizations : []) {
    const { id, supersededBy, terminal } = authorization
    const { kind } = stateOf(authorization, nowMs)
    const isOwed = kind === 'unknown' || kind === 'deferred'
    if (isOwed && supersededBy !== undefined)
      skipped.push({ authorization, reason: 'superseded', command: `proposer revoke ${id}` })
    else if (isOwed) wanted.push(authorization)
    else if (kind === 'accepted' && terminal?.outcome === 'failed' && supersededBy === undefined)
      skipped.push({ authorization, reason: 'failed_retryably', command: `proposer replay ${id}` })
  }
  const awayOf = (one: JournaledAuthorization) =>
    redirect ? undefined : sentElsewhere(one, gateway.origin, nowMs)
  return {
    chosen: wanted.filter((one) => awayOf(one) === undefined),
    elsewhere: wanted.flatMap((one) => awayOf(one) ?? []),
    skipped,
  }
}

function replayable(one: JournaledAuthorization | undefined, id: string, nowMs: number) {
  if (one === undefined) throw unknownId(id)
  const { kind } = stateOf(one, nowMs)
  const closed = `${id} is closed: sending it again changes nothing`
  if (kind === 'closed')
    throw new UsageError('authorization_closed', closed, `see \`proposer journal show ${id}\``)
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
