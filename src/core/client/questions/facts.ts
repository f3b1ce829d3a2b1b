/** What the chain's logs tell about rounds: when they opened, and how they ended (domain §4, §5). */
import * as z from 'zod/mini'
import { oracleAbi, topics } from '#chain/contracts'
import { firstBlockFrom } from '#chain/propose'
import { loggedEvent } from '#chain/reading'
import { type Contracts, keccakHex } from '#chain/round'
import type { ChainLog, Hash, Hex } from '#ports'
import { Address, Bytes32, Uint256 } from '#protocol/schema'
import { lowercase } from '#protocol/words'
import { type KeptParts, type KeptSource, readKept } from '../logs/kept-logs.js'

const oracleKinds = {
  [topics.requestPrice]: 'RequestPrice',
  [topics.proposePrice]: 'ProposePrice',
  [topics.disputePrice]: 'DisputePrice',
  [topics.settle]: 'Settle',
} as const

const followed: readonly Hex[] = [
  topics.requestPrice,
  topics.proposePrice,
  topics.disputePrice,
  topics.settle,
  topics.questionReset,
  topics.requestInitialized,
  topics.requestRerequested,
]

const place = { block: z.int(), index: z.int() }
export const Fact = z.union([
  /** Of a round: `text` is the hash of its ancillary data. */
  z.object({
    ...place,
    kind: z.enum(['RequestPrice', 'ProposePrice', 'DisputePrice', 'Settle']),
    oracle: Address,
    requester: Address,
    identifier: Bytes32,
    text: Bytes32,
    timestamp: Uint256,
    proposer: z.optional(Address),
  }),
  /** Of a question at its requester; `timestamp`: the round that it means, where it says so. */
  z.object({
    ...place,
    kind: z.enum(['reset', 'named']),
    requester: Address,
    questionId: Bytes32,
    timestamp: z.optional(Uint256),
  }),
])
export type Fact = z.infer<typeof Fact>

export const factFilter = ({ oracles, requesters }: Contracts) => ({
  addresses: [...new Set([...oracles, ...requesters.map(({ address }) => address)])],
  topics: [followed],
})

export function factOf(log: ChainLog, { oracles, requesters }: Contracts): Fact | undefined {
  const [kind, first, second] = log.topics
  if (kind === undefined || first === undefined) return undefined
  const at = { block: Number(log.blockNumber), index: log.logIndex }
  const isPinned = (requester: string) => requesters.some(({ address }) => address === requester)
  if (!oracles.includes(log.address)) {
    if (!isPinned(log.address)) return undefined
    const named = { ...at, requester: log.address, questionId: first }
    if (kind === topics.questionReset) return { ...named, kind: 'reset' }
    if (second === undefined) return undefined
    const timestamp = String(BigInt(second))
    return { ...named, kind: kind === topics.requestRerequested ? 'reset' : 'named', timestamp }
  }
  const eventName = oracleKinds[kind as keyof typeof oracleKinds]
  if (eventName === undefined) return undefined
  const args = loggedEvent(oracleAbi, eventName, log)?.args
  if (args === undefined || !isPinned(lowercase(args.requester))) return undefined
  return {
    ...at,
    kind: eventName,
    oracle: log.address,
    requester: lowercase(args.requester),
    identifier: args.identifier,
    text: keccakHex(args.ancillaryData),
    timestamp: String(args.timestamp),
    ...('proposer' in args ? { proposer: lowercase(args.proposer) } : {}),
  }
}

/** A question's newest round as the logs tell it; the chain has to be asked what holds now. */
export interface SeenRound {
  readonly questionId: Hex
  readonly requester: Address
  readonly timestamp: string
  readonly state: 'requested' | 'proposed' | 'disputed' | 'settled'
  readonly proposer?: Address | undefined
  readonly isReopened: boolean
  readonly openedAt: number | undefined
}

type RoundFact = Extract<Fact, { readonly text: Hex }>
const isRoundFact = (fact: Fact): fact is RoundFact => 'text' in fact
const ends = { ProposePrice: 'proposed', DisputePrice: 'disputed', Settle: 'settled' } as const

/**
 * In the order of their requests; facts may come in any order, and twice. `unnamed`: no log tells
 * their question id, as of kind `direct`.
 */
export function roundFactsOf(
  facts: readonly Fact[],
  { requesters }: Contracts,
): { readonly rounds: readonly SeenRound[]; readonly unnamed: number } {
  const ordered = [...facts].sort((a, b) => a.block - b.block || a.index - b.index)
  const kinds = new Map(requesters.map(({ address, kind }) => [address, kind]))
  const groups = new Map<string, RoundFact[]>()
  for (const fact of ordered.filter(isRoundFact))
    groups.set(groupOf(fact), [...(groups.get(groupOf(fact)) ?? []), fact])
  const names = new Map<string, Set<Hex>>()
  const resets = new Map<string, number>()
  for (const fact of ordered) {
    if (isRoundFact(fact)) continue
    const { requester, questionId, timestamp, kind, block } = fact
    if (kind === 'reset') resets.set(`${requester} ${questionId}`, block)
    if (timestamp === undefined) continue
    const key = `${requester} ${timestamp}`
    names.set(key, (names.get(key) ?? new Set()).add(questionId))
  }
  const found = new Map<string, SeenRound>()
  let unnamed = 0
  for (const group of groups.values()) {
    const newest = newestOf(group)
    const { requester, timestamp, text, state } = newest
    const kind = kinds.get(requester)
    const ids =
      kind === 'oo-reporter'
        ? [...(names.get(`${requester} ${timestamp}`) ?? [])]
        : kind === 'direct'
          ? []
          : [text]
    if (ids.length === 0 && state === 'requested') unnamed++
    for (const questionId of ids) {
      const key = `${requester} ${questionId}`
      const isReopened = newest.isReopened || resets.has(key)
      const { openedAt, proposer } = newest
      const seen = { questionId, requester, timestamp, state, proposer, isReopened, openedAt }
      const other = found.get(key)
      // Reporter rounds of one second share their names; an open one is worth a look at the chain.
      if (other === undefined || isNewer(seen, other)) found.set(key, seen)
    }
  }
  const rounds = [...found.values()].sort((a, b) => (a.openedAt ?? 0) - (b.openedAt ?? 0))
  return { rounds, unnamed }
}

const isNewer = (one: SeenRound, other: SeenRound) =>
  BigInt(one.timestamp) > BigInt(other.timestamp) ||
  (one.timestamp === other.timestamp && one.state === 'requested')

const groupOf = ({ oracle, requester, identifier, text }: RoundFact) =>
  `${oracle} ${requester} ${identifier} ${text}`

function newestOf(group: readonly RoundFact[]) {
  const timestamp = String(
    group.reduce((most, one) => (BigInt(one.timestamp) > most ? BigInt(one.timestamp) : most), 0n),
  )
  const own = group.filter((one) => one.timestamp === timestamp)
  const end = own.findLast(({ kind }) => kind !== 'RequestPrice')
  const [{ requester, text } = {} as RoundFact] = own
  return {
    requester,
    text,
    timestamp,
    state:
      end === undefined || end.kind === 'RequestPrice' ? ('requested' as const) : ends[end.kind],
    proposer: end?.proposer,
    isReopened: own.length < group.length,
    openedAt: own.find(({ kind }) => kind === 'RequestPrice')?.block,
  }
}

export async function scanFacts(
  parts: KeptParts & { readonly contracts: Contracts; readonly hash: Hash },
  since: bigint,
) {
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
