/** What becomes of an authorization whose round has ended (§3 rule 3, §7 rule 3, robustness §6). */

import { instant } from '../../protocol/candidate.js'
import { ConflictError, InterruptedError } from '../../protocol/errors.js'
import { type Authorization, classOf } from '../journal/authorizations.js'
import type { AuthorizeParts } from './authorize.js'
import type { OutOfBand } from './sending.js'

/** A gateway that sees a round end fails its candidates within a block or two. */
const settleMs = 20_000

/**
 * What became of an authorization of an earlier round; `unknown` with what the out-of-band channel
 * needs.
 */
export type SettledEarlier = { readonly journalId: string; readonly line: string } & (
  | { readonly outcome: 'executed' | 'failed'; readonly code?: string }
  | { readonly outcome: 'unknown'; readonly outOfBand: OutOfBand }
)

/**
 * Settles the older authorization by its saved id, or tells what the out-of-band channel needs
 * (never the signature). Rejects with ConflictError `authorization_open` where its candidate is
 * still on its way: then nothing new may be signed yet.
 */
export async function settleEarlier(
  parts: Pick<AuthorizeParts, 'ports' | 'journal' | 'gateway' | 'note' | 'signal' | 'onSettled'>,
  authorization: Authorization,
): Promise<void> {
  const { candidateId, signed, id } = authorization
  if (candidateId === undefined || parts.gateway === undefined) {
    if (authorization.attempts.length > 0)
      tell(parts, lost(authorization, outOfBandLine(authorization)))
    return
  }
  const { endOf, pollCandidates } = await import('../follow/follow.js')
  const { candidates, error } = await pollCandidates(
    { ports: parts.ports, gateway: parts.gateway, journal: parts.journal },
    [{ candidateId, identifier: signed.questionId }],
    { timeoutMs: settleMs, ...(parts.signal === undefined ? {} : { signal: parts.signal }) },
  )
  if (error instanceof InterruptedError) throw error
  const status = candidates[0]
  if (status === undefined) {
    const why = `the gateway does not tell about candidate ${candidateId} (${error?.code ?? 'no answer'})`
    tell(parts, lost(authorization, `${why}. ${outOfBandLine(authorization)}`))
    return
  }
  const outcome = endOf(status)
  if (outcome !== undefined) {
    const code = outcome === 'failed' ? status.failure?.code : undefined
    const line = `${id}, of an earlier round, ended as ${outcome}${code === undefined ? '' : ` (${code})`}`
    tell(parts, { journalId: id, line, outcome, ...(code === undefined ? {} : { code }) })
    return
  }
  throw new ConflictError(
    'authorization_open',
    `${id}, of an earlier round, is still ${status.status} as candidate ${candidateId}`,
    {
      hint: `wait for its end with \`proposer poll ${candidateId}\`, then run the same command again`,
      retryable: true,
    },
  )
}

function tell(parts: Pick<AuthorizeParts, 'note' | 'onSettled'>, settled: SettledEarlier): void {
  parts.note?.(settled.line)
  parts.onSettled?.(settled)
}

const lost = (authorization: Authorization, line: string): SettledEarlier => ({
  journalId: authorization.id,
  line,
  outcome: 'unknown',
  outOfBand: outOfBandOf(authorization),
})

/**
 * Robustness §6: question id, client_ref and time for the out-of-band channel. The time is that of
 * the first attempt that may have been admitted: under it the operator finds the candidate.
 */
export function outOfBandOf({ signed, attempts, signedAtMs }: Authorization): OutOfBand {
  const admitting = attempts.find(
    (one) => classOf(one) === 'uncertain' || classOf(one) === 'accepted',
  )
  return {
    questionId: signed.questionId,
    clientRef: signed.clientRef,
    submittedAtMs: (admitting ?? attempts[0])?.startedAtMs ?? signedAtMs,
  }
}

/** What `outOfBandOf` tells, for people. */
export function outOfBandLine(authorization: Authorization): string {
  const { id, signed } = authorization
  const { clientRef, submittedAtMs } = outOfBandOf(authorization)
  const ref = clientRef === undefined ? 'no client_ref' : `client_ref ${JSON.stringify(clientRef)}`
  const sentAt = instant(submittedAtMs)
  return `the outcome of ${id} cannot be learned from here, its round has ended: ask the operator out of band about question ${signed.questionId}, ${ref}, submitted at ${sentAt} (never send the signature)`
}
