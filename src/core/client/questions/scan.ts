/** The facts of a span of time, of which what is final is kept in the home folder (domain §10). */
import { firstBlockFrom } from '../../chain/propose.js'
import type { Contracts } from '../../chain/round.js'
import type { BlockHeader, Hash } from '../../ports.js'
import { type KeptParts, type KeptSource, readKept } from '../logs/kept-logs.js'
import { Fact, factFilter, factOf } from './facts.js'

export interface ScanParts extends KeptParts {
  readonly contracts: Contracts
  readonly hash: Hash
}

export interface Scanned {
  readonly facts: readonly Fact[]
  /** First block of the span that was asked for; beyond the head where it holds no block. */
  readonly from: bigint
  readonly head: BlockHeader
}

/** Since a time in Unix seconds, up to the head. Rejects with `ChainError`. */
export async function scanFacts(parts: ScanParts, since: bigint): Promise<Scanned> {
  const { chain, contracts, hash } = parts
  const { chainId, oracles, requesters } = contracts
  const pins = hash.sha256(JSON.stringify([oracles, requesters])).slice(0, 16)
  const source: KeptSource<string, Fact> = {
    folder: 'questions',
    shape: Fact,
    nameOf: (key) => `${chainId}-${key}.json`,
    filterOf: () => factFilter(contracts),
    factOf: (log) => factOf(log, contracts),
    keyOf: () => pins,
    startOf: async (_key, _kept, head) => ({
      from: (await firstBlockFrom(chain, since, head)) ?? head.number + 1n,
    }),
    mostFacts: 20_000,
  }
  const { head, of } = await readKept(parts, source, [pins])
  const { from = head.number + 1n, final = [], tail = [] } = of.get(pins) ?? {}
  return { facts: [...final, ...tail], from, head }
}
