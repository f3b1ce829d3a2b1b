/** A question's current round as the preparation routes show it (§2.4, §2.7; contract §3, §4). */
import { type Contracts, domainOf } from '../../chain/round.js'
import { priceOf } from '../../protocol/proposal.js'
import type { OutcomeKey, SigningData, SigningDataRequest } from '../../protocol/schema.js'
import { version } from '../../protocol/schema.js'
import { typedData } from '../../protocol/witness.js'
import type { Question } from '../view/chain-view.js'

/** The complete signing data of one proposal (§2.4). The permit is the caller's, unchanged. */
export function signingDataOf(
  question: Question,
  contracts: Contracts,
  body: SigningDataRequest,
): SigningData {
  const { round } = question
  const price = priceOf[body.outcome]
  return {
    version,
    question_id: question.questionId,
    request: {
      oracle: round.oracle,
      requester: round.requester,
      identifier: round.identifier,
      timestamp: round.timestamp,
      ancillary_data: round.ancillaryData,
    },
    proposal: {
      outcome: body.outcome,
      label: labelOf(question, body.outcome),
      price,
      max_payment: '0',
    },
    outcomes: round.outcomes.map((outcome) => ({ ...outcome })),
    permit: { ...body.permit },
    token: { ...round.token },
    economics: { total_bond: String(round.totalBondRaw), max_authorization: body.permit.amount },
    contracts: { permit2: contracts.permit2, signed_proposer: contracts.signedProposer },
    typed_data: typedData(domainOf(contracts), round, round.token.address, {
      price,
      ...body.permit,
    }),
  }
}

function labelOf(question: Question, key: OutcomeKey): string {
  return question.round.outcomes.find((outcome) => outcome.outcome === key)?.label ?? key
}
