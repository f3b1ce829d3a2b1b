/**
 * Rounds that several questions share: one request of a reporter may serve up to ten ids, and a
 * registry may name one request twice (domain §10). What is unique is the round.
 */
import type { Hex } from '../../ports.js'
import type { RoundRef } from '../../protocol/candidate.js'
import { UsageError } from '../../protocol/errors.js'
import type { Address } from '../../protocol/schema.js'
import { type Place, placeText } from '../input/rows.js'
import { isNamedByText, kindOf, type Trust } from '../trust/trust.js'

/** `undefined` where the question id is the hash of the text: no other question has that round. */
export function sharedRound(
  trust: Trust,
  { request }: { readonly request: { readonly requester: Address } },
  ref: () => RoundRef,
): string | undefined {
  return isNamedByText(kindOf(trust, request.requester)) ? undefined : ref().key
}

/** By key and proposer. */
export type RowsByRound = Map<string, { readonly questionId: Hex; readonly place: string }>

/** UsageError `duplicate_row`; else how to keep that this row has the round. */
export function takeRound(
  rounds: RowsByRound,
  round: string,
  { row, proposer, questionId }: { row: Place; proposer: Address; questionId: Hex },
): () => void {
  const place = placeText(row)
  const key = `${round} ${proposer}`
  const first = rounds.get(key)
  if (first !== undefined && first.place !== place)
    throw new UsageError(
      'duplicate_row',
      `question ${questionId} shares its round with question ${first.questionId} (${first.place}): a round accepts one proposal from a wallet`,
      { hint: 'leave one of them: that proposal answers both' },
    )
  return () => rounds.set(key, { questionId, place })
}
