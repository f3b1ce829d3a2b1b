/** What becomes of an authorization whose round has ended (§3 rule 3, §7 rule 3, robustness §6). */

import { ConflictError, InterruptedError } from '../../protocol/errors.js'
import { endOf } from '../follow/status.js'
import type { GatewayClient } from '../gateway/gateway-client.js'
import type { JournaledAuthorization } from '../journal/authorizations.js'
import type { Journal, JournalPorts } from '../journal/journal.js'
import { type OutOfBand, outOfBandLine, outOfBandOf } from '../journal/saved.js'

/** A gateway that sees a round end fails its candidates within a block or two. */
const settleMs = 20_000

/** `unknown` comes with what the out-of-band channel needs. `line` is for people. */
export type SettledEarlier = { readonly journalId: string; readonly line: string } & (
  | { readonly outcome: 'executed' | 'failed'; readonly code?: string | undefined }
  | { readonly outcome: 'unknown'; readonly outOfBand: OutOfBand }
)

export interface EarlierParts {
  readonly ports: JournalPorts
  readonly journal: Journal
  readonly gateway?: GatewayClient | undefined
  readonly note?: ((text: string) => void) | undefined
  readonly signal?: AbortSignal | undefined
  readonly onSettled?: ((settled: SettledEarlier) => void) | undefined
}

/**
 * By their saved ids. ConflictError `authorization_open` where a candidate is still on its way:
 * then nothing new may be signed yet.
 */
export async function settleEarlier(
  parts: EarlierParts,
  authorizations: readonly JournaledAuthorization[],
): Promise<void> {
  for (const authorization of authorizations) {
    const settled = await settledBy(parts, authorization)
    if (settled === undefined) continue
    parts.note?.(settled.line)
    parts.onSettled?.(settled)
  }
}

async function settledBy(
  { ports, gateway, journal, signal }: EarlierParts,
  authorization: JournaledAuthorization,
): Promise<SettledEarlier | undefined> {
  const { candidateId, signed, id, attempts } = authorization
  const unknown = (why: string): SettledEarlier => ({
    journalId: id,
    line: `${why}${outOfBandLine(authorization)}`,
    outcome: 'unknown',
    outOfBand: outOfBandOf(authorization),
  })
  if (candidateId === undefined || gateway === undefined)
    return attempts.length > 0 ? unknown('') : undefined
  const { pollCandidates } = await import('../follow/follow.js')
  const target = { candidateId, identifier: signed.questionId }
  const options = { timeoutMs: settleMs, ...(signal === undefined ? {} : { signal }) }
  const polled = await pollCandidates({ ports, gateway, journal }, [target], options)
  const { candidates, error } = polled
  if (error instanceof InterruptedError || error?.code === 'candidate_mismatch') throw error
  const [status] = candidates
  if (status === undefined) {
    const code = error?.code ?? 'no response'
    return unknown(`the gateway does not report candidate ${candidateId} (${code}). `)
  }
  const outcome = endOf(status)
  if (outcome === undefined)
    throw new ConflictError(
      'authorization_open',
      `${id}, of an earlier round, is still ${status.status} as candidate ${candidateId}`,
      {
        hint: `wait for its end with \`proposer poll ${candidateId}\`, then retry`,
        retryable: true,
      },
    )
  const code = outcome === 'failed' ? status.failure?.code : undefined
  const why = code === undefined ? '' : ` (${code})`
  return {
    journalId: id,
    line: `${id}, of an earlier round, ended as ${outcome}${why}`,
    outcome,
    code,
  }
}
