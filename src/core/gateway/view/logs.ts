/**
 * What a range of logs means for the gateway's view: which questions to read again, which permit
 * nonces are gone (contract §2, domain §3–§5).
 */

import { decodeEventLog } from 'viem'
import { oracleAbi, permit2Abi, topics } from '../../chain/contracts.js'
import { managedRequestId } from '../../chain/questions.js'
import { lowercase } from '../../chain/reading.js'
import type { Contracts } from '../../chain/round.js'
import type { ChainLog, Hex } from '../../ports.js'
import type { Address } from '../../protocol/schema.js'

const oracleEvents = {
  [topics.requestPrice]: 'RequestPrice',
  [topics.proposePrice]: 'ProposePrice',
  [topics.disputePrice]: 'DisputePrice',
  [topics.settle]: 'Settle',
} as const

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
export function followedAddresses({ oracles, requesters, permit2 }: Contracts): Address[] {
  return [...new Set([...oracles, ...requesters.map(({ address }) => address), permit2])]
}

/**
 * Questions by the ID that a requester named, known to us or not. Also requests without their
 * timestamps that changed on the oracle (domain §4, managed id).
 */
export interface NamedQuestions {
  readonly named: ReadonlySet<Hex>
  readonly managed: ReadonlySet<Hex>
}

/** What a range of logs names, and the permit nonces that it invalidates. */
export interface LogMeaning extends NamedQuestions {
  readonly invalidated: readonly {
    readonly owner: Address
    readonly word: bigint
    readonly mask: bigint
  }[]
}

/** Reads the followed logs of one range. Logs that do not decode are somebody else's. */
export function meaningOf(logs: readonly ChainLog[], contracts: Contracts): LogMeaning {
  const named = new Set<Hex>()
  const managed = new Set<Hex>()
  const invalidated: LogMeaning['invalidated'][number][] = []
  for (const log of logs) {
    const [kind, first] = log.topics
    if (kind === undefined || first === undefined) continue
    if (log.address === contracts.permit2) {
      const found = ifDecoded(() => invalidationOf(log))
      if (found) invalidated.push(found)
    } else if (contracts.oracles.includes(log.address)) {
      // Bond and whitelist events carry the managed id as their first topic.
      const isManaged = kind === topics.customBondSet || kind === topics.customProposerWhitelistSet
      const id = isManaged ? first : ifDecoded(() => managedIdOf(log))
      if (id) managed.add(id)
    } else if (contracts.requesters.some(({ address }) => address === log.address)) {
      // The first topic of every followed event of a requester is the question id (domain §5.1,
      // §5.2).
      named.add(first)
    }
  }
  return { named, managed, invalidated }
}

/** `undefined` for a log that is not the event after all. */
function ifDecoded<T>(decode: () => T): T | undefined {
  try {
    return decode()
  } catch {
    return undefined
  }
}

function managedIdOf({ data, topics: found }: ChainLog): Hex | undefined {
  const eventName = oracleEvents[found[0] as keyof typeof oracleEvents]
  if (eventName === undefined) return undefined
  const event = { abi: oracleAbi, eventName, data, topics: found as [Hex, ...Hex[]] }
  const { requester, identifier, ancillaryData } = decodeEventLog(event).args
  return managedRequestId({ requester: lowercase(requester), identifier, ancillaryData })
}

function invalidationOf({ data, topics: found }: ChainLog) {
  if (found[0] !== topics.unorderedNonceInvalidation) return undefined
  const eventName = 'UnorderedNonceInvalidation'
  const event = { abi: permit2Abi, eventName, data, topics: found as [Hex, ...Hex[]] } as const
  const { owner, word, mask } = decodeEventLog(event).args
  return { owner: lowercase(owner), word, mask }
}
