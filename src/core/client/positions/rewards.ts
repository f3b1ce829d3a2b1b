/** Rewards that fell after a signature: version 3 of the oracle lets them (domain §10). */
import { aggregating } from '#chain/aggregate'
import { createRoundReader } from '#chain/questions'
import type { Round } from '#chain/round'
import type { Chain } from '#ports'
import type { Signed } from '../journal/records.js'
import { contractsOf, type Trust } from '../trust/trust.js'

export interface FallenReward {
  readonly signed: Signed
  readonly signedRaw: bigint
  readonly nowRaw: bigint
  readonly token: Round['token']
}

export async function fallenRewards(
  node: Chain,
  trust: Trust,
  all: readonly Signed[],
  yielding: () => Promise<void>,
): Promise<readonly FallenReward[]> {
  const told = all.filter(
    ({ chainId, reward }) => chainId === trust.chain_id && reward !== undefined,
  )
  const reader = createRoundReader(aggregating(node, yielding), contractsOf(trust))
  const questions = [...new Set(told.map(({ questionId }) => questionId))]
  const rounds = await Promise.all(questions.map((id) => reader.readAll(id)))
  return told.flatMap((signed) => {
    const round = rounds
      .flat()
      .find(
        ({ questionId, requester, timestamp }) =>
          questionId === signed.questionId &&
          requester === signed.requester &&
          timestamp === signed.timestamp,
      )
    const isOut = round?.state === 'requested' || round?.state === 'proposed'
    const signedRaw = BigInt(signed.reward ?? 0)
    if (round === undefined || !isOut || round.rewardRaw >= signedRaw) return []
    return [{ signed, signedRaw, nowRaw: round.rewardRaw, token: round.token }]
  })
}
