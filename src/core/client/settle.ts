/** What becomes of an authorization whose round has ended (§3 rule 3, §7 rule 3, robustness §6). */

import { instant } from '../protocol/candidate.js'
import { ConflictError, InterruptedError } from '../protocol/errors.js'
import type { Authorization } from './authorizations.js'
import type { AuthorizeParts } from './authorize.js'
import { pollCandidates } from './polling.js'

/** A gateway that sees a round end fails its candidates within a block or two. */
const settleMs = 20_000

/**
 * Settles the older authorization by its saved id, or tells what the out-of-band channel needs (never the signature). Rejects with
 * ConflictError `authorization_open` where its candidate is still on its way: then nothing new may be signed yet.
 */
export async function settleEarlier(
  parts: Pick<AuthorizeParts, 'ports' | 'journal' | 'gateway' | 'note' | 'signal'>,
  authorization: Authorization,
): Promise<void> {
  const { candidateId, signed, id } = authorization
  if (candidateId === undefined || parts.gateway === undefined) {
    if (authorization.attempts.length > 0) parts.note?.(outOfBandLine(authorization))
    return
  }
  const { candidates, error } = await pollCandidates(
    { ports: parts.ports, gateway: parts.gateway, journal: parts.journal },
    [{ candidateId, identifier: signed.questionId }],
    { timeoutMs: settleMs, ...(parts.signal === undefined ? {} : { signal: parts.signal }) },
  )
  if (error instanceof InterruptedError) throw error
  const status = candidates[0]
  if (status === undefined) {
    parts.note?.(
      `the gateway does not tell about candidate ${candidateId} (${error?.code ?? 'no answer'}). ${outOfBandLine(authorization)}`,
    )
    return
  }
  if (status.status === 'executed' || status.status === 'failed') {
    parts.note?.(`${id}, of an earlier round, ended as ${status.status}${status.failure === null ? '' : ` (${status.failure.code})`}`)
    return
  }
  throw new ConflictError('authorization_open', `${id}, of an earlier round, is still ${status.status} as candidate ${candidateId}`, {
    hint: `wait for its end with \`proposer poll ${candidateId}\`, then run the same command again`,
    retryable: true,
  })
}

/** Robustness §6: question id, client_ref and time for the out-of-band channel. */
export function outOfBandLine({ id, signed, attempts, signedAtMs }: Authorization): string {
  const ref = signed.clientRef === undefined ? 'no client_ref' : `client_ref ${JSON.stringify(signed.clientRef)}`
  const sentAt = instant(attempts.at(-1)?.startedAtMs ?? signedAtMs)
  return `the outcome of ${id} cannot be learned from here, its round has ended: ask the operator out of band about question ${signed.questionId}, ${ref}, submitted at ${sentAt} (never send the signature)`
}
