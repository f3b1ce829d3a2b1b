/**
 * What the journal says about each authorization (contract §1). The fold takes the records of all
 * runs in any order between runs: a refusal closes only where no attempt at all was accepted or is
 * uncertain, so neither wall clock nor merge order decides (R13).
 */
import type { Address, Hex } from '../../ports.js'
import {
  type AttemptClass,
  type AttemptEnd,
  type AttemptStart,
  type JournalRecord,
  type Offered,
  type Signed,
  spelledId,
  type Terminal,
} from './records.js'

/** One sending of the bytes. Without an `end` the process died meanwhile: uncertain. */
export interface Attempt {
  readonly start: AttemptStart
  readonly startedAtMs: number
  readonly end?: AttemptEnd
}

export interface Authorization {
  /** Journal id: `<run token>-<number>`. */
  readonly id: string
  readonly signed: Signed
  readonly signedAtMs: number
  readonly attempts: readonly Attempt[]
  /**
   * From the acknowledgement, as the gateway spelt it; the same payload always has the same one
   * (R2).
   */
  readonly candidateId?: string
  readonly receivedAt?: string
  /** The last journaled end of the candidate, also a retryable one. */
  readonly terminal?: Terminal
  readonly terminals: readonly Terminal[]
  /** When that end was journaled; Unix milliseconds. */
  readonly terminalAtMs?: number
  /** Journal id of the authorization that took its place by `--supersede`. */
  readonly supersededBy?: string
}

/**
 * Typed data in the hands of a wallet outside whose signature is not here yet. Like an open
 * authorization it holds its question (R8) and its amount, for whoever holds the typed data may
 * sign it.
 */
export interface Offer {
  readonly id: string
  readonly offered: Offered
  readonly terminals: readonly Terminal[]
  readonly supersededBy?: string
}

/**
 * Whether an offer may still become an authorization. Without an RPC its deadline is judged like
 * any other's (contract §1).
 */
export function isOfferOpen({ offered, terminals }: Offer, nowMs: number): boolean {
  return (
    !terminals.some(closes) && nowMs / 1000 <= Number(offered.terms.deadline) + expiryMarginSeconds
  )
}

/** Contract §1: everything but `closed` is open. */
export type AuthorizationState =
  /** Signed, never sent. */
  | { readonly kind: 'signed' }
  /** Sent, and no attempt can have been admitted. */
  | { readonly kind: 'deferred' }
  /** No id, and at least one attempt is uncertain. */
  | { readonly kind: 'unknown' }
  | { readonly kind: 'accepted'; readonly candidateId: string }
  /** The gateway answered 409, nothing is uncertain and no id is known: reconcile. */
  | { readonly kind: 'conflict'; readonly code: string }
  | { readonly kind: 'closed'; readonly reason: ClosedReason; readonly code?: string }

export type ClosedReason = 'refused' | 'executed' | 'failed' | 'nonce_used' | 'expired'

/**
 * Without an RPC a deadline counts as passed this long after it by the wall clock (contract §1).
 */
export const expiryMarginSeconds = 3600

/** Where an authorization stands at `nowMs` (Unix milliseconds). Source: contract §1. */
export function stateOf(authorization: Authorization, nowMs: number): AuthorizationState {
  const closedBy = authorization.terminals.find(closes)
  if (closedBy !== undefined) return closedAs(closedBy)
  if (nowMs / 1000 > Number(authorization.signed.terms.deadline) + expiryMarginSeconds)
    return { kind: 'closed', reason: 'expired' }
  if (authorization.candidateId !== undefined)
    return { kind: 'accepted', candidateId: authorization.candidateId }
  if (authorization.attempts.length === 0) return { kind: 'signed' }
  const classes = authorization.attempts.map(classOf)
  if (classes.includes('uncertain')) return { kind: 'unknown' }
  const refusal = lastEnd(authorization, 'refused')
  if (refusal !== undefined)
    return {
      kind: 'closed',
      reason: 'refused',
      ...(refusal.code === undefined ? {} : { code: refusal.code }),
    }
  const conflict = lastEnd(authorization, 'reconcile')
  if (conflict !== undefined) return { kind: 'conflict', code: conflict.code ?? 'conflict' }
  return { kind: 'deferred' }
}

/** Contract §1, *open*. */
export const isOpen = (authorization: Authorization, nowMs: number): boolean =>
  stateOf(authorization, nowMs).kind !== 'closed'

/**
 * Whether some attempt may have been admitted without our knowing: uncertain, and no id settles it
 * (robustness §6).
 */
export function isUnsettled(authorization: Authorization): boolean {
  return (
    authorization.candidateId === undefined &&
    authorization.attempts.some((attempt) => classOf(attempt) === 'uncertain')
  )
}

/** An attempt whose end was never written may have been admitted. */
export const classOf = (attempt: Attempt): AttemptClass => attempt.end?.class ?? 'uncertain'

/** Whether a journaled end leaves nothing that could still execute. */
export function closes(terminal: Terminal): boolean {
  return terminal.outcome !== 'failed' || terminal.retryable === false
}

function closedAs(terminal: Terminal): AuthorizationState {
  return {
    kind: 'closed',
    reason: terminal.outcome,
    ...(terminal.code === undefined ? {} : { code: terminal.code }),
  }
}

function lastEnd(authorization: Authorization, kind: AttemptClass): AttemptEnd | undefined {
  return authorization.attempts.findLast((attempt) => classOf(attempt) === kind)?.end
}

type Draft = {
  -readonly [K in keyof Authorization]?: Authorization[K]
} & {
  id: string
  offered?: Offered
  abandoned?: boolean
  attempts: (Attempt & { end?: AttemptEnd })[]
  terminals: Terminal[]
}

/** What the records of all runs add up to. */
export interface Fold {
  add(record: JournalRecord): void
  /** Signed authorizations, oldest first by the time of signing. */
  authorizations(): readonly Authorization[]
  /** Those of one question, without making all the others: a batch asks so for each of its rows. */
  byQuestion(questionId: string): readonly Authorization[]
  /** Typed data given out that has neither come back signed nor been abandoned, oldest first. */
  offers(): readonly Offer[]
  /** Whether some run has reserved or signed the nonce (decimal) for this proposer (R6). */
  isReserved(proposer: string, nonce: string): boolean
}

/** An empty fold. Records of one run must come in order; runs may come in any. */
export function newFold(): Fold {
  const drafts = new Map<string, Draft>()
  const questions = new Map<string, Draft[]>()
  const offered = new Set<Draft>()
  /** By proposer: one key of both would have to be made, and kept, for every row of a batch. */
  const nonces = new Map<string, Set<string>>()
  const ends = new Map<string, AttemptEnd>()
  const draft = (id: string) => {
    const known = drafts.get(id)
    if (known) return known
    const made: Draft = { id, attempts: [], terminals: [] }
    drafts.set(id, made)
    return made
  }
  const reserve = ({ proposer, nonce }: { readonly proposer: string; readonly nonce: string }) => {
    const known = nonces.get(proposer)
    if (known === undefined) nonces.set(proposer, new Set([nonce]))
    else known.add(nonce)
  }
  const pending = () =>
    [...offered].flatMap((one) =>
      one.offered !== undefined && one.signed === undefined && one.abandoned !== true
        ? [{ ...one, offered: one.offered }]
        : [],
    )
  /**
   * An offer replaces another only as long as it stands: abandoned, it leaves what was there
   * before.
   */
  const replacedByOffers = () =>
    new Map(
      pending().flatMap(({ id, offered }) =>
        offered.supersedes === undefined ? [] : [[offered.supersedes, id] as const],
      ),
    )
  const made = (some: Iterable<Draft>): readonly Authorization[] => {
    const found: Authorization[] = []
    const replacing = replacedByOffers()
    for (const { signed, signedAtMs, offered: _offered, abandoned: _abandoned, ...rest } of some) {
      if (signed === undefined || signedAtMs === undefined) continue
      const attempts = rest.attempts.map((attempt) => {
        const end = ends.get(`${attempt.start.attempt} ${rest.id}`)
        return end === undefined ? attempt : { ...attempt, end }
      })
      const supersededBy = rest.supersededBy ?? replacing.get(rest.id)
      found.push({
        ...rest,
        ...(supersededBy === undefined ? {} : { supersededBy }),
        signed,
        signedAtMs,
        attempts,
      })
    }
    return found.sort((a, b) => a.signedAtMs - b.signedAtMs || (a.id < b.id ? -1 : 1))
  }
  return {
    isReserved: (proposer, nonce) => nonces.get(proposer)?.has(nonce) === true,
    add({ kind, data, timeMs }) {
      switch (kind) {
        case 'nonce.reserved':
          reserve(data)
          return
        case 'signed': {
          const target = draft(data.id)
          reserve(data.terms)
          // A run that sends another run's bytes copies the record first: the first copy read is as
          // good as any.
          if (target.signed === undefined) {
            target.signed = data
            const known = questions.get(data.questionId)
            if (known === undefined) questions.set(data.questionId, [target])
            else known.push(target)
          }
          target.signedAtMs = Math.min(target.signedAtMs ?? data.signedAtMs, data.signedAtMs)
          if (data.supersedes !== undefined) draft(data.supersedes).supersededBy = data.id
          return
        }
        case 'offered': {
          const target = draft(data.id)
          reserve(data.terms)
          target.offered = data
          offered.add(target)
          return
        }
        case 'attempt.start':
          for (const id of data.ids) draft(id).attempts.push({ start: data, startedAtMs: timeMs })
          return
        case 'attempt.end':
          for (const end of data.results) ends.set(`${data.attempt} ${end.id}`, end)
          return
        case 'ack': {
          const target = draft(data.id)
          target.candidateId = spelledId(data)
          if (data.received_at !== '') target.receivedAt = data.received_at
          return
        }
        case 'terminal': {
          const target = draft(data.id)
          target.terminals.push(data)
          target.terminal = data
          target.terminalAtMs = timeMs
          return
        }
        case 'abandoned':
          draft(data.id).abandoned = true
          return
        case 'intent':
          // Nothing was signed or given out under it, so nothing can execute.
          return
      }
    },
    authorizations: () => made(drafts.values()),
    byQuestion(questionId) {
      const known = questions.get(questionId)
      // Nearly every row of a batch asks in vain, some times over.
      return known === undefined ? [] : made(known)
    },
    offers() {
      const replacing = replacedByOffers()
      return pending()
        .map(({ id, offered, terminals, supersededBy = replacing.get(id) }) => ({
          id,
          offered,
          terminals,
          ...(supersededBy === undefined ? {} : { supersededBy }),
        }))
        .sort((a, b) => a.offered.offeredAtMs - b.offered.offeredAtMs || (a.id < b.id ? -1 : 1))
    },
  }
}

/** The question and proposer that R8 is about, and what makes two intents equal (contract §6). */
export interface Wanted {
  readonly questionId: Hex
  readonly proposer: Address
  /** Pinned chain, so that a dev chain never meets mainnet. */
  readonly chainId: number
  readonly price: string
  /** Only where the user gave them. */
  readonly amount?: string
  readonly nonce?: string
  readonly deadline?: string
  /**
   * Whether a record may be of a round at a requester that is meant (R3). Absent: all may be, which
   * is the safe side.
   */
  readonly mayBeAt?: (record: Signed | Offered) => boolean
}

/** Open authorizations for a question and proposer that nothing has superseded, newest last. */
export function openFor(
  authorizations: readonly Authorization[],
  wanted: Omit<Wanted, 'price'>,
  nowMs: number,
): readonly Authorization[] {
  return authorizations.filter(
    (one) =>
      one.signed.questionId === wanted.questionId &&
      one.signed.terms.proposer === wanted.proposer &&
      one.signed.chainId === wanted.chainId &&
      wanted.mayBeAt?.(one.signed) !== false &&
      one.supersededBy === undefined &&
      isOpen(one, nowMs),
  )
}

/**
 * Offers for a question and proposer that still hold it (R8) and that nothing has superseded,
 * newest last.
 */
export function offersFor(
  offers: readonly Offer[],
  wanted: Omit<Wanted, 'price'>,
  nowMs: number,
): readonly Offer[] {
  return offers.filter(
    (one) =>
      one.offered.questionId === wanted.questionId &&
      one.offered.terms.proposer === wanted.proposer &&
      one.offered.chainId === wanted.chainId &&
      wanted.mayBeAt?.(one.offered) !== false &&
      one.supersededBy === undefined &&
      isOfferOpen(one, nowMs),
  )
}

/**
 * Explicit terms of an intent that an authorization of the same price has otherwise: `amount 5, not
 * 6`. Empty where the price differs.
 */
export function otherTerms({ terms }: Pick<Signed, 'terms'>, wanted: Wanted): string {
  if (terms.price !== wanted.price) return ''
  const fields = (['amount', 'nonce', 'deadline'] as const).flatMap((field) => {
    const value = wanted[field]
    return value === undefined || value === terms[field]
      ? []
      : [`${field} ${terms[field]}, not ${value}`]
  })
  return fields.length === 0 ? '' : `, with ${fields.join(' and ')}`
}

/**
 * Contract §6: same question, proposer and price, and no other explicit amount, nonce or deadline.
 */
export function equalIntent(
  authorization: { readonly signed: Pick<Signed, 'terms' | 'questionId'> },
  wanted: Wanted,
): boolean {
  const { terms, questionId } = authorization.signed
  return (
    questionId === wanted.questionId &&
    terms.proposer === wanted.proposer &&
    terms.price === wanted.price &&
    (wanted.amount === undefined || wanted.amount === terms.amount) &&
    (wanted.nonce === undefined || wanted.nonce === terms.nonce) &&
    (wanted.deadline === undefined || wanted.deadline === terms.deadline)
  )
}
