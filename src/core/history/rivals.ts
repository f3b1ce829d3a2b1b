/** What both judges of R8 say of two authorizations. */
import type { Claim, Findings } from './events.js'

/**
 * Without an RPC a deadline counts as passed this long after it by the wall clock (contract §1).
 */
const expiryMarginMs = 3_600_000

/**
 * Whether a claim's deadline had passed by the clock of whoever signed at `atMs` (Unix
 * milliseconds).
 */
export const isOver = ({ deadlineSeconds }: Claim, atMs: number): boolean =>
  atMs > deadlineSeconds * 1_000 + expiryMarginMs

/**
 * Names what a claim authorizes, under whichever id it came into the journal: a nonce serves one
 * authorization (R6).
 */
export const authorizationOf = ({ chainId, nonce }: Claim): string => `${chainId} ${nonce}`

/**
 * One authorization that came into the journal twice, signed here and signed elsewhere, is no rival
 * of itself; R6 compares what both say.
 */
export const isSame = (one: Claim, other: Claim): boolean =>
  authorizationOf(one) === authorizationOf(other)

/** Names what is broken of a pair. `wasUnknown`: the first had no known outcome then (R7). */
export function tellPair(tell: Findings, first: string, second: string, wasUnknown: boolean): void {
  if (wasUnknown)
    tell.broken(
      'R7',
      `${second} was signed while the outcome of ${first}, for the same question and round, was unknown`,
    )
  else
    tell.broken(
      'R8',
      `${second} was signed while ${first}, for the same question and round, was open, and does not supersede it`,
    )
}
