/**
 * What a range of logs means for the gateway's view: which questions to read again, which permit
 * nonces are gone (contract §2, domain §3–§5).
 */
import { decodeEventLog } from 'viem'
import { oracleAbi, permit2Abi, topics } from '../../chain/contracts.js'
import { managedRequestId } from '../../chain/questions.js'
import { lowercase } from '../../chain/reading.js'
import type { Contracts } from '../../chain/round.js'
import type { Address, ChainLog, Hex } from '../../ports.js'

/** Topic 0 of every log the view follows. */
export const followedTopics: readonly Hex[] = [
  topics.requestPrice,
  topics.proposePrice,
  topics.disputePrice,
  topics.settle,
  topics.customBondSet,
  topics.customProposerWhitelistSet,
  topics.questionInitialized,
  topics.questionReset,
  topics.questionPaused,
  topics.questionUnpaused,
  topics.questionFlagged,
  topics.questionUnflagged,
  topics.questionResolved,
  topics.requestRegistered,
  topics.requestInitialized,
  topics.requestRerequested,
  topics.requestResolved,
  topics.unorderedNonceInvalidation,
]

/** Contracts whose logs are followed. */
export function followedAddresses(contracts: Contracts): readonly Address[] {
  return [
    ...new Set([
      ...contracts.oracles,
      ...contracts.requesters.map(({ address }) => address),
      contracts.permit2,
    ]),
  ]
}

export interface LogMeaning {
  /** Question ids that a requester named, known to us or not. */
  readonly named: ReadonlySet<Hex>
  /** Requests without their timestamps (domain §4, managed id) that changed on the oracle. */
  readonly managed: ReadonlySet<Hex>
  readonly invalidated: readonly {
    readonly owner: Address
    readonly word: bigint
    readonly mask: bigint
  }[]
}

const oracleEvents = {
  [topics.requestPrice]: 'RequestPrice',
  [topics.proposePrice]: 'ProposePrice',
  [topics.disputePrice]: 'DisputePrice',
  [topics.settle]: 'Settle',
} as const

/**
 * Reads the followed logs of one range. Logs that do not decode are somebody else's and mean
 * nothing here.
 */
export function meaningOf(logs: readonly ChainLog[], contracts: Contracts): LogMeaning {
  const named = new Set<Hex>()
  const managed = new Set<Hex>()
  const invalidated: LogMeaning['invalidated'][number][] = []
  const requesters = new Set(contracts.requesters.map(({ address }) => address))
  for (const log of logs) {
    const [kind, first] = log.topics
    if (kind === undefined || first === undefined) continue
    if (log.address === contracts.permit2) {
      const found = invalidationOf(log)
      if (found) invalidated.push(found)
    } else if (contracts.oracles.includes(log.address)) {
      // Bond and whitelist events carry the managed id as their first topic.
      const id =
        kind === topics.customBondSet || kind === topics.customProposerWhitelistSet
          ? first
          : managedIdOf(log)
      if (id) managed.add(id)
    } else if (requesters.has(log.address)) {
      // The first topic of every followed event of a requester is the question id (domain §5.1,
      // §5.2).
      named.add(first)
    }
  }
  return { named, managed, invalidated }
}

function managedIdOf(log: ChainLog): Hex | undefined {
  const eventName = oracleEvents[log.topics[0] as keyof typeof oracleEvents]
  if (eventName === undefined) return undefined
  try {
    const { args } = decodeEventLog({
      abi: oracleAbi,
      eventName,
      data: log.data,
      topics: log.topics as [Hex, ...Hex[]],
    })
    return managedRequestId({
      requester: lowercase(args.requester),
      identifier: args.identifier,
      ancillaryData: args.ancillaryData,
    })
  } catch {
    // Not the oracle's event after all
    return undefined
  }
}

function invalidationOf(log: ChainLog): LogMeaning['invalidated'][number] | undefined {
  if (log.topics[0] !== topics.unorderedNonceInvalidation) return undefined
  try {
    const { args } = decodeEventLog({
      abi: permit2Abi,
      eventName: 'UnorderedNonceInvalidation',
      data: log.data,
      topics: log.topics as [Hex, ...Hex[]],
    })
    return { owner: lowercase(args.owner), word: args.word, mask: args.mask }
  } catch {
    // Not Permit2's event after all
    return undefined
  }
}
