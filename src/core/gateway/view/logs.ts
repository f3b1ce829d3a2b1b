/** Which questions to read again, which permit nonces are gone (contract §2, domain §3–§5). */

import { decodeEventLog } from 'viem'
import { oracleAbi, oracleV3Abi, permit2Abi, topics } from '#chain/contracts'
import { type Implementations, proxiesOf } from '#chain/implementations'
import { managedRequestId } from '#chain/questions'
import { lowercase } from '#chain/reading'
import type { Contracts } from '#chain/round'
import type { ChainLog, Hex } from '#ports'
import type { Address } from '#protocol/schema'

const requestAbi = [...oracleAbi, ...oracleV3Abi] as const
const oracleEvents = {
  [topics.requestPrice]: 'RequestPrice',
  [topics.proposePrice]: 'ProposePrice',
  [topics.disputePrice]: 'DisputePrice',
  [topics.settle]: 'Settle',
} as const

/** Domain §10. Of RequestRulesUpdated no more is known. */
const v3Events = {
  [topics.rewardUpdated]: 'RewardUpdated',
  [topics.bondUpdated]: 'BondUpdated',
  [topics.customLivenessUpdated]: 'CustomLivenessUpdated',
} as const
const ofVersion3: readonly Hex[] = [...(Object.keys(v3Events) as Hex[]), topics.requestRulesUpdated]

const requestEvents = { ...oracleEvents, ...v3Events }

const managedFirst: readonly Hex[] = [
  topics.customBondSet,
  topics.customLivenessSet,
  topics.customProposerWhitelistSet,
]

export const followedTopics: readonly Hex[] = [
  topics.requestPrice,
  topics.proposePrice,
  topics.disputePrice,
  topics.settle,
  ...managedFirst,
  ...ofVersion3,
  topics.upgraded,
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

/** Of tokens those alone whose proxies are pinned: a busy token is in the bloom of every block. */
export function followedAddresses(
  { oracles, requesters, permit2 }: Contracts,
  pins: Implementations = {},
): Address[] {
  const asking = requesters.map(({ address }) => address)
  return [...new Set([...oracles, ...asking, permit2, ...proxiesOf(pins)])]
}

export interface LogMeaning {
  readonly named: ReadonlySet<Hex>
  /** Without their timestamps (domain §4, managed id). */
  readonly managed: ReadonlySet<Hex>
  readonly requesters: ReadonlySet<Address>
  readonly isUpgrade: boolean
  readonly invalidated: readonly {
    readonly owner: Address
    readonly word: bigint
    readonly mask: bigint
  }[]
}

/** Each may carry the text of a question. */
const readAtOnce = 8

export async function meaningOf(
  logs: readonly ChainLog[],
  contracts: Contracts,
  turn: () => Promise<void>,
): Promise<LogMeaning> {
  const named = new Set<Hex>()
  const managed = new Set<Hex>()
  const requesters = new Set<Address>()
  let isUpgrade = false
  const invalidated: LogMeaning['invalidated'][number][] = []
  for (const [index, log] of logs.entries()) {
    if (index > 0 && index % readAtOnce === 0) await turn()
    const [kind, first] = log.topics
    if (kind === undefined || first === undefined) continue
    if (kind === topics.upgraded) isUpgrade = true
    else if (log.address === contracts.permit2) {
      const found = ifDecoded(() => invalidationOf(log))
      if (found) invalidated.push(found)
    } else if (contracts.oracles.includes(log.address)) {
      const id = managedFirst.includes(kind) ? first : ifDecoded(() => managedIdOf(log))
      if (id) managed.add(id)
      else if (ofVersion3.includes(kind)) requesters.add(`0x${first.slice(26)}`)
    } else if (contracts.requesters.some(({ address }) => address === log.address)) {
      // Of every followed event of a requester (domain §5.1, §5.2).
      named.add(first)
    }
  }
  return { named, managed, requesters, invalidated, isUpgrade }
}

function ifDecoded<T>(decode: () => T) {
  try {
    return decode()
  } catch {
    return undefined
  }
}

function managedIdOf({ data, topics: found }: ChainLog) {
  const eventName = requestEvents[found[0] as keyof typeof requestEvents]
  if (eventName === undefined) return undefined
  const event = { abi: requestAbi, eventName, data, topics: found as [Hex, ...Hex[]] }
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
