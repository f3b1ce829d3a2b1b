/** What is signed, in words, for the page that stands beside a wallet (contract §9, `--browser`). */
import { titleOf } from '#chain/ancillary'
import { knownToken } from '#chain/profiles'
import type { Hex, ShownRow } from '#ports'
import { amountWithRaw } from '#protocol/amount'
import { answerOf } from '../journal/authorizations.js'
import type { Offered } from '../journal/records.js'
import type { Trust } from '../trust/trust.js'

export function offerRows(trust: Trust, offered: Offered): readonly ShownRow[] {
  const { identifier, questionId, terms, token, spender, chainId, digest, typedData } = offered
  const title = titleOf(typedData.message.witness.ancillaryData as Hex)
  const units = trust.token_info?.[token] ?? knownToken(chainId, token)
  return [
    ['question', title ?? identifier],
    ...(title === undefined ? [] : ([['identifier', identifier]] as const)),
    ['answer', answerOf(offered)],
    ['authorizes', amountWithRaw(terms.amount, units)],
    [
      'deadline',
      `${new Date(Number(terms.deadline) * 1000).toISOString()} (unix ${terms.deadline})`,
    ],
    ['proposer', terms.proposer],
    ['spender', spender],
    ['chain', String(chainId)],
    ['question id', questionId],
    ['digest', digest],
  ]
}
