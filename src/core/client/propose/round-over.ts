/** Rounds that have ended: no sending can tell any more what became of the bytes (§7 rule 3). */

import { ConflictError, InterruptedError, ProposerError, UncertainError } from '#protocol/errors'
import { once } from '#protocol/once'
import { endOf } from '../follow/look.js'
import { isAborted } from '../gateway/answer.js'
import type { GatewayClient } from '../gateway/gateway-client.js'
import {
  isUnsettled,
  type JournaledAuthorization,
  type OutOfBand,
  outOfBandLine,
  outOfBandOf,
  sentElsewhere,
  supersededError,
} from '../journal/authorizations.js'
import type { Journal, JournalPorts } from '../journal/journal.js'
import type { ContextSource } from '../trust/context.js'
import { atRequester, mayBeAt, type Trust } from '../trust/trust.js'
import type { SubmitParts } from './attempt.js'
import { candidateInJournal, notAccepted, type RowOutcome, type SentOutcome } from './outcome.js'

export type CurrentRound = ReturnType<typeof roundsOf>

interface RoundParts {
  readonly contexts: ContextSource
  readonly trust: Trust
  readonly chain?: object | undefined
}

/** Asked for once, and only when needed. */
export function roundsOf(
  { contexts, trust, chain }: RoundParts,
  authorizations: readonly JournaledAuthorization[],
  signal: AbortSignal | undefined,
) {
  const questionIds = [...new Set(authorizations.map(({ signed }) => signed.questionId))]
  const requests = once(async () => {
    try {
      const results = await contexts.contexts(questionIds, { signal })
      return new Map(results.map(({ identifier, context }) => [identifier, context?.request]))
    } catch (error) {
      if (error instanceof ProposerError || isAborted(signal)) return new Map()
      throw error
    }
  })
  return {
    /** A node of ours tells: it overrules what a gateway once said. */
    isFree: chain !== undefined,
    /** `undefined`: nobody tells; another requester's round says nothing of this one. */
    async isOver({ signed }: JournaledAuthorization) {
      if (signed.timestamp === undefined) return undefined
      const request = (await requests()).get(signed.questionId)
      return request !== undefined && mayBeAt(atRequester(trust, request.requester), signed)
        ? request.timestamp !== signed.timestamp
        : undefined
    },
  }
}

/** Then nothing is sent. Only a free `round` sees one that a reorg brings back (R14). */
export async function knownOver(authorization: JournaledAuthorization, round?: CurrentRound) {
  if (!isUnsettled(authorization)) return undefined
  const isTold = authorization.attempts.some(({ end }) => end?.code === 'round_advanced')
  const isSeen = round?.isFree ? await round.isOver(authorization) : undefined
  return (isSeen ?? isTold) ? overOutcome(authorization) : undefined
}

/** 409 `round_advanced` says so, or 403 while `round` is another one, which is journaled. */
export async function foundOver(
  { journal }: Pick<SubmitParts, 'journal'>,
  results: readonly SentOutcome[],
  round: CurrentRound | undefined,
) {
  // What was uncertain may have become so just now.
  const view = once(() => journal.load())
  const checked: SentOutcome[] = []
  for (const result of results) {
    const { error, statusCode } = result
    const isTold = error?.code === 'round_advanced'
    const mayBe = isTold || (error !== undefined && statusCode === 403)
    const sent = mayBe ? (await view()).find(result.authorization.id) : undefined
    const isOpen = sent !== undefined && isUnsettled(sent)
    if (!isOpen || !(isTold || (await round?.isOver(sent)))) checked.push(result)
    else {
      if (!isTold) await journalRoundOver(journal, sent)
      checked.push(overOutcome(sent, statusCode ?? undefined))
    }
  }
  return checked
}

async function journalRoundOver(journal: Journal, { id, attempts }: JournaledAuthorization) {
  const refused = attempts.findLast(({ end }) => end?.class === 'refused')
  if (refused === undefined) return
  const end = { id, class: 'refused', status: 403, code: 'round_advanced' } as const
  const data = { attempt: refused.start.attempt, results: [end] }
  await journal.append([{ kind: 'attempt.end', data }])
}

/** Exit 5 where a 409 said so (contract §6: only a 409 gives 5), else exit 6. */
function overOutcome(authorization: JournaledAuthorization, httpStatus?: number) {
  const isAdvanced = authorization.attempts.some(
    ({ end }) => end?.class === 'reconcile' && end.code === 'round_advanced',
  )
  const Kind = isAdvanced ? ConflictError : UncertainError
  const hint = `see what is safe to do next with \`proposer reconcile ${authorization.signed.questionId}\``
  const error = new Kind('round_over', outOfBandLine(authorization), { hint, httpStatus })
  return {
    ...notAccepted(authorization, isAdvanced ? 'rejected' : 'unknown', error),
    outOfBand: outOfBandOf(authorization),
  }
}

/** In place of sending: replaced (R8), sent elsewhere (contract §6), or of a round that is over. */
export async function skippedOutcome(
  { ports, gateway }: Pick<SubmitParts, 'ports' | 'gateway'>,
  authorization: JournaledAuthorization,
  round?: CurrentRound,
): Promise<RowOutcome | undefined> {
  const superseded = supersededError(authorization)
  if (superseded !== undefined) return notAccepted(authorization, 'rejected', superseded)
  const away = sentElsewhere(authorization, gateway.origin, ports.clock.nowMs())
  if (away !== undefined) {
    const { error, origin, flag } = away
    const outcome = error instanceof UncertainError ? 'unknown' : 'deferred'
    const known = candidateInJournal(authorization) ?? { outcome, statusCode: null }
    return { ...known, authorization, error, elsewhere: { origin, flag } }
  }
  return knownOver(authorization, round)
}

/** A gateway that sees a round end fails its candidates within a block or two. */
const settleMs = 20_000

export type SettledEarlier = { readonly journalId: string; readonly line: string } & (
  | { readonly outcome: 'executed' | 'failed'; readonly code?: string | undefined }
  | { readonly outcome: 'unknown'; readonly outOfBand: OutOfBand }
)

interface EarlierParts {
  readonly ports: JournalPorts
  readonly journal: Journal
  readonly gateway?: GatewayClient | undefined
  readonly signal: AbortSignal | undefined
}

/** By its saved id (§3 rule 3). While it is on its way, nothing new may be signed. */
export async function endOfEarlier(
  { ports, gateway, journal, signal }: EarlierParts,
  authorization: JournaledAuthorization,
): Promise<SettledEarlier | undefined> {
  const { candidateId, signed, id: journalId, attempts } = authorization
  const unknown = (why = ''): SettledEarlier => ({
    journalId,
    line: `${why}${outOfBandLine(authorization)}`,
    outcome: 'unknown',
    outOfBand: outOfBandOf(authorization),
  })
  if (candidateId === undefined || gateway === undefined)
    return attempts.length > 0 ? unknown() : undefined
  const { pollCandidates } = await import('../follow/follow.js')
  const target = { candidateId, identifier: signed.questionId }
  const options = { timeoutMs: settleMs, signal }
  const { candidates, error } = await pollCandidates({ ports, gateway, journal }, [target], options)
  if (error instanceof InterruptedError || error?.code === 'candidate_mismatch') throw error
  const [status] = candidates
  if (status === undefined) {
    const code = error?.code ?? 'no response'
    return unknown(`the gateway does not report candidate ${candidateId} (${code}). `)
  }
  const outcome = endOf(status)
  const earlier = `${journalId}, of an earlier round,`
  if (outcome === undefined) {
    const detail = `${earlier} is still ${status.status} as candidate ${candidateId}`
    const hint = `wait for its end with \`proposer poll ${candidateId}\`, then retry`
    throw new ConflictError('authorization_open', detail, { hint, retryable: true })
  }
  const code = outcome === 'failed' ? status.failure?.code : undefined
  const why = code === undefined ? '' : ` (${code})`
  return { journalId, line: `${earlier} ended as ${outcome}${why}`, outcome, code }
}
