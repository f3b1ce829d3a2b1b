/** Nonces that rows name for themselves: each serves one authorization (R6). */

import type { Hex } from '../../ports.js'
import { outcomeNamed } from '../../protocol/outcome-words.js'
import { outcomeOf } from '../../protocol/proposal.js'
import type { Address } from '../../protocol/schema.js'
import { isOpen } from '../journal/authorizations.js'
import type { JournalView } from '../journal/journal.js'
import type { IntentRow } from './input.js'

/**
 * As text, or `undefined`. What is open for the row's own question is left to R8, which knows
 * more
 * to say of it. `resume`: a reservation without a signature is what the first run of this very
 * input
 * may have left, and costs its row only.
 */
export function nonceHolder(
  view: JournalView,
  of: { readonly chainId: number; readonly nowMs: number; readonly resume: boolean },
  row: IntentRow,
  questionId: Hex,
  proposer: Address,
): string | undefined {
  const nonce = String(row.nonce)
  if (row.nonce === undefined || !view.isReserved(proposer, nonce)) return undefined
  const holds = ({ terms }: { readonly terms: { proposer: string; nonce: string } }) =>
    terms.proposer === proposer && terms.nonce === nonce
  const isOwn = view
    .byQuestion(questionId)
    .some(
      (one) =>
        one.signed.chainId === of.chainId &&
        holds(one.signed) &&
        (outcomeNamed(row.outcome, one.signed.labels) === outcomeOf(one.signed.terms.price) ||
          isOpen(one, of.nowMs)),
    )
  if (isOwn) return undefined
  const signed = view.authorizations.find((one) => holds(one.signed))
  if (signed !== undefined) return `${signed.id} for question ${signed.signed.questionId}`
  const given = view.offers.find(({ offered }) => holds(offered))
  if (given === undefined)
    return of.resume ? undefined : 'an earlier run that did not reach signing'
  const { offered, id } = given
  return offered.questionId === questionId
    ? undefined
    : `${id}, typed data for question ${offered.questionId}`
}
