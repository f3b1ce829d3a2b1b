import { decodeErrorResult } from 'viem'
import { decodeRevert } from '../chain/reverts.js'
import type { Hex } from '../ports.js'
import { artifact } from './dev-artifacts.js'

const refusalHints: readonly (readonly [error: RegExp, hint: string])[] = [
  [
    /^RequestStateNotProposed\b/,
    'nothing is proposed in this round: `proposer devchain propose <identifier> --outcome p2` does',
  ],
  [
    /^RequestStateNotRequested\b/,
    'the round no longer accepts proposals: `proposer devchain dispute <identifier>` opens a new one',
  ],
  [
    /^(Proposer|Sender)NotWhitelisted\b/,
    'let others propose: `proposer devchain set-whitelist <identifier> default`',
  ],
  [
    /^(BondBelowMinimumBond|BondExceedsMaximumBond|ZeroBondNotAllowed)\b/,
    'give a bond from 100000000 to 100000000000 raw units',
  ],
  [/^Flagged\b/, 'it is flagged: `proposer devchain unflag <identifier>` undoes that'],
  [/^NotFlagged\b/, 'it is not flagged: there is nothing to undo'],
  [
    /^(Resolved|RequestStateNotInvalid)\b/,
    'it is over: open another question with `proposer devchain ask`',
  ],
  [/slug taken/, 'choose another slug, or omit it for the next example'],
  [/^(Initialized|AncillaryDataTooLong)\b/, 'give another --text'],
  [
    /^ERC20InsufficientBalance\b/,
    'give the account tokens with `proposer devchain fund <address>`',
  ],
]

/** The adapter has errors that no proposal can meet: the catalogue of reverts does without them. */
export function revertReasonOf(data: Hex): string {
  const { name, text } = decodeRevert(data)
  if (name !== 'unknown') return text
  try {
    return `${decodeErrorResult({ abi: artifact('CtfAdapter').abi, data }).errorName}()`
  } catch {
    return text
  }
}

export const refusalHint = (reason: string): string =>
  refusalHints.find(([error]) => error.test(reason))?.[1] ??
  'the question is not in the required state: `proposer reconcile` with its id shows which; or open a new one with `proposer devchain ask`'
