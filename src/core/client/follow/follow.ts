/** Following candidates to their end (spec §4.1 rule 4, §4.2 rules 6 and 7, contract §5). */
import { type ProposerError, UnavailableError, UsageError } from '../../protocol/errors.js'
import { isQuestionId } from '../../protocol/words.js'
import { answerError, gravest, maxRetryAfterMs } from '../gateway/answer.js'
import type { GatewayClient } from '../gateway/gateway-client.js'
import { backoffMs, isAborted, timeLimit } from '../gateway/retry.js'
import type { Journal, JournalPorts } from '../journal/journal.js'
import { journalEnds, knownTargets } from './ends.js'
import { failuresError, interrupted, refusalOf, timedOut } from './errors.js'
import { type Asked, type Looked, look, type Trouble } from './look.js'
import { budgetTold, heldUntil, lastLook, newPlan, nextStep, type Sight, seen } from './schedule.js'
import {
  endOf,
  hasReached,
  lifeMs,
  type PolledStatus,
  type PollTarget,
  type Stage,
  stageKey,
} from './status.js'

export interface PollParts {
  readonly ports: Pick<JournalPorts, 'clock' | 'random'>
  readonly gateway: GatewayClient
  /**
   * Terminal outcomes of candidates it knows are journaled, and it tells the question of those
   * given by id alone.
   */
  readonly journal?: Journal
}

export interface PollWait {
  /** `trouble`: told once until the gateway answers again. */
  readonly kind: 'trouble' | 'budget'
  readonly reason: string
  readonly waitMs: number
}

export interface PollOptions {
  /** Default: until executed or failed. */
  readonly until?: Stage
  readonly timeoutMs?: number
  readonly signal?: AbortSignal
  /** Every status whole, by the single route: the same items in more calls. */
  readonly full?: boolean
  /**
   * Of a failure only what tells whether it may be retried is wanted: where its code tells that,
   * the single route explains no more.
   */
  readonly brief?: boolean
  /** Told each status whose stage differs from the one before. */
  readonly onStatus?: (status: PolledStatus) => void
  /** Told after each look. */
  readonly onLook?: (counts: {
    readonly items: number
    readonly done: number
    readonly total: number
  }) => void
  /** Told before a wait for the budget, and when a gateway begins to give no answer of use. */
  readonly onWait?: (event: PollWait) => void
}

export interface PollResult {
  /**
   * Last known statuses, in the order of the targets; a target never answered is absent. Whole
   * where the single route told them: always with `full` and for a single target with an
   * identifier.
   */
  readonly candidates: readonly PolledStatus[]
  /** Targets that did not come to their goal: still on their way, or refused. */
  readonly missing: readonly PollTarget[]
  /** What the gateway said of those it refused for good, such as 404, by candidate id. */
  readonly refusals: ReadonlyMap<string, ProposerError>
  /**
   * Why it ended before every target did: PendingError 8, UnavailableError 75 or InterruptedError
   * 130.
   */
  readonly stopped?: ProposerError
  /** Status items that were asked for (§8). */
  readonly items: number
  /**
   * The gravest: FailedError 7, PendingError 8, a refusal such as 404 (3), UnavailableError 75
   * where nothing answered, Interrupted 130.
   */
  readonly error?: ProposerError
}

/** From admission, where nothing was observed yet: a chain with blocks of seconds. */
const guessMs = {
  validated: 1_000,
  selected: 1_500,
  submitted: 2_500,
  confirmed: 4_000,
  indexed: 4_000,
} as const
/** Nobody has answered yet, and no time was given: so many tries, then nobody is there. */
const maxSilent = 8
/** An answer that is on its way when the time is over may still come in. */
const graceMs = 2_000
/**
 * Failures whose rest is asked of the single route although their code tells enough (§4.2 rule 7):
 * at least these, or this share.
 */
const [explained, explainedShare] = [5, 20]

interface Followed {
  readonly target: PollTarget
  status?: PolledStatus
  refusal?: ProposerError
  done: boolean
  /** Only the single route can tell the rest. */
  owed: boolean
}

/**
 * Polls until every target ended or reached `until`: many by the batch route, one by its own; not
 * before an end can be expected, and within the budget that the answers tell. A gateway that gives
 * no answer of use is asked again, ever later, until the time is over; without a time, and where it
 * has never answered, 8 tries. Rejects for journal faults, bad arguments and a gateway that answers
 * about another candidate (ConflictError `candidate_mismatch`).
 */
export async function pollCandidates(
  parts: PollParts,
  targets: readonly PollTarget[],
  options: PollOptions = {},
): Promise<PollResult> {
  const { clock, random } = parts.ports
  const { until, timeoutMs, signal } = options
  const startMs = clock.monotonicMs()
  const endMs = timeoutMs === undefined ? Number.POSITIVE_INFINITY : startMs + timeoutMs
  const followed = (await knownTargets(parts.journal, targets)).map(
    (target): Followed => ({ target, done: false, owed: false }),
  )
  const ages = followed.map(({ target }) =>
    target.sentAtMs === undefined ? undefined : clock.nowMs() - target.sentAtMs,
  )
  let plan = newPlan(ages, startMs, {
    guessMs: guessMs[until ?? 'indexed'],
    free: parts.gateway.origin.startsWith('local:'),
  })
  const asking = newAsking(followed, options)
  let trouble: Trouble | undefined
  let silent = 0
  let answered = false
  let isLast = false
  let budgetToldMs = 0
  let items = 0

  const finish = async (last?: ProposerError): Promise<PollResult> => {
    await journalEnds(parts.journal, asking.settleOwed())
    const hasFailed = followed.some(failed)
    const view = hasFailed ? await parts.journal?.load() : undefined
    return { ...result(followed, last, (candidateId) => view?.byCandidate(candidateId)?.id), items }
  }
  const waiting = () => followed.filter(({ done }) => !done)
  const limit = timeLimit(parts, {
    ...(timeoutMs === undefined ? {} : { timeoutMs: timeoutMs + graceMs }),
    ...(signal === undefined ? {} : { signal }),
  })
  try {
    for (;;) {
      if (isAborted(signal)) return await finish(interrupted(waiting(), signal?.reason))
      const nowMs = clock.monotonicMs()
      let step = nextStep(plan, nowMs)
      if (step.kind === 'done') return await finish()
      if (nowMs >= endMs) {
        const at = trouble === undefined && !isLast ? lastLook(plan, nowMs) : []
        if (at.length === 0) return await finish(timedOut(waiting(), trouble))
        isLast = true
        step = { kind: 'look', at }
      }
      if (step.kind === 'wait') {
        const waitMs = step.untilMs - nowMs
        if (step.reason === 'budget' && trouble === undefined && step.untilMs !== budgetToldMs) {
          budgetToldMs = step.untilMs
          options.onWait?.({ kind: 'budget', reason: 'the budget is spent', waitMs })
        }
        await slept(parts, Math.min(waitMs, endMs - nowMs), signal)
        continue
      }
      const looked = await look(parts.gateway, asking.routes(step.at), { signal: limit.signal })
      items += looked.items
      const { sights, ended } = asking.settle(step.at, looked)
      await journalEnds(parts.journal, ended)
      const lookedMs = clock.monotonicMs()
      if (looked.rateLimit !== undefined) plan = budgetTold(plan, looked.rateLimit, lookedMs)
      if (sights.length > 0 || looked.batchRefused !== undefined) {
        plan = seen(plan, sights, lookedMs)
        ;[trouble, silent, answered] = [undefined, 0, true]
      }
      options.onLook?.({ items, done: followed.length - waiting().length, total: followed.length })
      if (looked.trouble === undefined || isAborted(signal)) continue

      const isNew = trouble === undefined
      trouble = looked.trouble
      const toldMs = trouble.retryAfterMs ?? 0
      const waitMs = toldMs + backoffMs(random, ++silent)
      if (
        timeoutMs === undefined &&
        (toldMs > maxRetryAfterMs || (silent >= maxSilent && !answered))
      ) {
        return await finish(answerError(trouble, 'read'))
      }
      if (lookedMs + toldMs >= endMs) return await finish(timedOut(waiting(), trouble))
      if (isNew) options.onWait?.({ kind: 'trouble', reason: trouble.detail, waitMs })
      // A code that tells enough needs no gateway to explain it.
      plan = heldUntil(seen(plan, asking.sightsOfOwed(), lookedMs), lookedMs + waitMs)
    }
  } finally {
    limit.clear()
  }
}

/** What is known of each candidate, and by which route to ask for more. */
function newAsking(
  followed: readonly Followed[],
  { full = false, brief = false, until, onStatus }: PollOptions,
) {
  let toExplain = brief ? 0 : Math.max(explained, Math.floor(followed.length / explainedShare))
  let isBatchRefused = false

  const needsSingle = ({ target, status, owed }: Followed) =>
    full ||
    owed ||
    isBatchRefused ||
    (target.identifier !== undefined && questionOf(target, status) === undefined)

  /**
   * A failure of the batch route whose rest is wanted; it must be, where its code does not tell
   * whether it may be retried (contract §4).
   */
  const wantsMore = ({ target, status }: Followed): boolean => {
    if (status?.failure == null || status.failure.stage != null || target.identifier === undefined)
      return false
    return status.failure.retryable === undefined || toExplain-- > 0
  }

  function settleOne(
    one: Followed,
    told: PolledStatus,
  ): { readonly moved: boolean; readonly owed: boolean } {
    // The batch route does not repeat what never changes.
    const { question_id, proposer, outcome, price } = one.status ?? {}
    const constants = { question_id, proposer, outcome, price }
    const before = one.status
    one.status = {
      ...Object.fromEntries(Object.entries(constants).filter(([, value]) => value !== undefined)),
      ...told,
    }
    const moved = before === undefined || stageKey(before) !== stageKey(told)
    if (moved) onStatus?.(one.status)
    one.owed = failed(one) && !one.owed && wantsMore(one)
    one.done = !one.owed && hasReached(told, until)
    return { moved, owed: one.owed }
  }

  function sightOf(one: Followed, at: number, looked: Looked): Sight | undefined {
    const told = looked.told.get(one.target)
    if (told?.kind === 'status') {
      const { moved, owed } = settleOne(one, told.status)
      const life = one.done ? lifeMs(told.status, until) : undefined
      const reached = one.done && !failed(one)
      return {
        at,
        done: one.done,
        reached,
        moved,
        owed,
        ...(life === undefined ? {} : { lifeMs: life }),
      }
    }
    const refusal = told?.kind === 'refused' ? told.error : looked.batchRefused
    if (refusal !== undefined && (told !== undefined || one.target.identifier === undefined)) {
      // A failure that the other route has told stays told.
      if (!one.owed) one.refusal = refusal
      one.done = true
      return { at, done: true, reached: false, moved: true }
    }
    // Asked, and nothing was said of it: as good as a look in vain.
    return told === undefined ? undefined : { at, done: false, reached: false, moved: false }
  }

  /** Failures whose code tells enough are settled by it; those that must be asked for stay. */
  function settleOwed(): readonly Followed[] {
    const settled = followed.filter(
      ({ owed, status }) => owed && status?.failure?.retryable !== undefined,
    )
    for (const one of settled) [one.owed, one.done] = [false, true]
    return settled
  }

  return {
    routes(at: readonly number[]): Asked {
      const asked = at.flatMap((index) => followed[index] ?? [])
      const isSingle = (one: Followed) =>
        one.target.identifier !== undefined && (asked.length === 1 || needsSingle(one))
      return {
        single: asked.filter(isSingle).map(({ target }) => target),
        batch: asked.filter((one) => !isSingle(one)).map(({ target }) => target),
      }
    },
    settle(
      at: readonly number[],
      looked: Looked,
    ): { readonly sights: readonly Sight[]; readonly ended: readonly PolledStatus[] } {
      isBatchRefused ||= looked.batchRefused !== undefined
      const sights = at.flatMap((index) => {
        const one = followed[index]
        return one === undefined ? [] : (sightOf(one, index, looked) ?? [])
      })
      const ended = sights.flatMap(({ at: index, done }) =>
        done ? (followed[index]?.status ?? []) : [],
      )
      return { sights, ended }
    },
    settleOwed: (): readonly PolledStatus[] => settleOwed().flatMap(({ status }) => status ?? []),
    sightsOfOwed: (): readonly Sight[] =>
      settleOwed().map((one) => ({
        at: followed.indexOf(one),
        done: true,
        reached: false,
        moved: false,
      })),
  }
}

const failed = ({ status }: Followed): boolean => status !== undefined && endOf(status) === 'failed'

const questionOf = (
  { identifier }: PollTarget,
  status: PolledStatus | undefined,
): string | undefined =>
  status?.question_id ??
  (identifier !== undefined && isQuestionId(identifier) ? identifier : undefined)

/**
 * One status now (`status`); journals an end. By the single route, whole; where nobody knows the
 * question by the batch route, which asks for none (§4.2). Throws the answer's error; UsageError
 * `question_unknown` where the gateway has no batch route.
 */
export async function statusOnce(
  parts: PollParts,
  target: PollTarget,
  options: { signal?: AbortSignal } = {},
): Promise<PolledStatus> {
  const asked: Asked =
    target.identifier === undefined
      ? { single: [], batch: [target] }
      : { single: [target], batch: [] }
  const { told, trouble, batchRefused } = await look(parts.gateway, asked, options)
  if (trouble !== undefined) throw answerError(trouble, 'read')
  const found = told.get(target)
  if (found?.kind === 'refused') throw found.error
  if (batchRefused !== undefined) throw questionUnknown(target, batchRefused)
  if (found?.kind !== 'status')
    throw new UnavailableError('no_status', 'the gateway told no status', {
      hint: 'run the same command again later',
    })
  await journalEnds(parts.journal, [found.status])
  return found.status
}

const questionUnknown = ({ candidateId }: PollTarget, { detail }: ProposerError) =>
  new UsageError(
    'question_unknown',
    `the journal does not know the candidate ${candidateId}, and this gateway tells statuses by question only: ${detail}`,
    { hint: 'add --question <id>' },
  )

/** An abort is seen by the caller, at its next step. */
async function slept(
  { ports }: PollParts,
  ms: number,
  signal: AbortSignal | undefined,
): Promise<void> {
  try {
    await ports.clock.sleep(ms, signal)
  } catch (error) {
    if (!isAborted(signal)) throw error
  }
}

function result(
  followed: readonly Followed[],
  last: ProposerError | undefined,
  journalIdOf: (candidateId: string) => string | undefined,
): Omit<PollResult, 'items'> {
  const failures = followed.filter(failed).flatMap(({ status }) => status ?? [])
  const refused = followed.flatMap(({ target, refusal }) =>
    refusal === undefined ? [] : [{ target, refusal }],
  )
  const named = refused.map(({ target, refusal }) => refusalOf(target, refusal))
  const error = gravest([...named, failuresError(failures, followed.length, journalIdOf), last])
  const candidates = followed.flatMap(({ status }) => status ?? [])
  const missing = followed
    .filter(({ done, refusal }) => !done || refusal !== undefined)
    .map(({ target }) => target)
  const refusals = new Map(refused.map(({ target, refusal }) => [target.candidateId, refusal]))
  return {
    candidates,
    missing,
    refusals,
    ...(last === undefined ? {} : { stopped: last }),
    ...(error === undefined ? {} : { error }),
  }
}

export {
  changedAt,
  endOf,
  type PolledStatus,
  type PollTarget,
  type Stage,
  stages,
  timeOf,
} from './status.js'
export { hasReached }
