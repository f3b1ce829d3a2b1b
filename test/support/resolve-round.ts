import { createRoundReader, type RegistryEntry } from '#chain/questions'
import type { Contracts, Round } from '#chain/round'
import type { Chain, Hex } from '#ports'

export function resolveRound(
  chain: Chain,
  contracts: Contracts,
  questionId: Hex,
  registryEntry?: RegistryEntry,
): Promise<Round | undefined> {
  return createRoundReader(chain, contracts).read(questionId, registryEntry)
}
