/**
 * What happens on a running dev chain after a proposal, and what a signature does not cover
 * (contract §9, domain §5.1, §10).
 */

import { bytesToHex, decodeEventLog } from 'viem'
import {
  implementationSlot,
  roundStates,
  tooEarlyPrice,
  topics,
  yesOrNoQuery,
} from '#chain/contracts'
import type { Hex } from '#ports'
import { UsageError } from '#protocol/errors'
import { priceOf } from '#protocol/proposal'
import type { Address } from '#protocol/schema'
import { lowercase } from '#protocol/words'
import {
  contractOf,
  type DevReceipt,
  type DevRole,
  type DevRpc,
  devAccount,
  devAddresses,
  devImplementations,
  oracleContracts,
  placedAt,
} from './dev-contracts.js'
import {
  connect,
  type DevRound,
  type FoundRound,
  find,
  oracleRequestOf,
  readQuestion,
  roundOf,
  sendFrom,
} from './dev-verbs.js'

const admin = devAccount('admin').address

export type VotedOutcome = keyof typeof priceOf | 'p4'

const votedPrice = (outcome: VotedOutcome): bigint =>
  outcome === 'p4' ? tooEarlyPrice : BigInt(priceOf[outcome])

const votedOutcome = (price: bigint): VotedOutcome | undefined =>
  (['p1', 'p2', 'p3', 'p4'] as const).find((one) => votedPrice(one) === price)

interface Head {
  readonly number: Hex
  readonly timestamp: Hex
}

const headOf = (rpc: DevRpc): Promise<Head> =>
  rpc.request<Head>('eth_getBlockByNumber', ['latest', false])

export interface DevWarp {
  readonly seconds: number
  readonly timestamp: string
  readonly block: number
}

export async function warp(rpcUrl: string, seconds: number): Promise<DevWarp> {
  const rpc = await connect(rpcUrl)
  let head = await headOf(rpc)
  const until = Number(head.timestamp) + seconds
  // Trimming the chain's memory may undo a jump that comes in its midst.
  while (Number(head.timestamp) < until) {
    await rpc.request('evm_setNextBlockTimestamp', [until])
    await rpc.request('evm_mine', [])
    head = await headOf(rpc)
  }
  return { seconds, timestamp: String(Number(head.timestamp)), block: Number(head.number) }
}

/** The newest first. */
async function roundsOf(found: FoundRound): Promise<readonly FoundRound[]> {
  const { rpc, questionId } = found
  const opened = await rpc.request<readonly { readonly blockNumber: Hex }[]>('eth_getLogs', [
    {
      fromBlock: '0x0',
      address: devAddresses.adapter,
      topics: [[topics.questionInitialized, topics.questionReset], questionId],
    },
  ])
  const blocks = (await rpc.batch(
    opened.map(({ blockNumber }) => ({
      method: 'eth_getBlockByNumber',
      params: [blockNumber, false],
    })),
  )) as readonly Head[]
  return blocks.map(({ timestamp }) => ({ ...found, timestamp: BigInt(timestamp) })).reverse()
}

interface Request {
  readonly proposer: Address
  readonly disputer: Address
  readonly proposedPrice: bigint
  readonly expirationTime: bigint
}

const readRequest = (round: FoundRound): Promise<Request> =>
  round.rpc.read<Request>(contractOf('oracle'), 'getRequest', oracleRequestOf(round))

export interface DevSettlement extends DevRound {
  readonly outcome: VotedOutcome | null
  /** Raw token units. */
  readonly payout: string
  readonly paid_to: Address
  readonly deferred: boolean
  readonly resolved: boolean
  /** The round that "too early" opened. */
  readonly new_round: string | null
}

/**
 * The newest round that can be settled, as the resolver; the adapter resolves the question from
 * its current one.
 */
export async function settleRound(rpcUrl: string, identifier: string): Promise<DevSettlement> {
  const found = await find(rpcUrl, identifier)
  const now = Number((await headOf(found.rpc)).timestamp)
  const faults: UsageError[] = []
  for (const round of await roundsOf(found)) {
    const { state } = await roundOf(round)
    const { expirationTime } = await readRequest(round)
    const waitSeconds = Number(expirationTime) - now
    if (state === roundStates.resolved || (state === roundStates.proposed && waitSeconds <= 0))
      return settle(found, round)
    faults.push(...unsettleable(round, state, waitSeconds, identifier))
  }
  throw (
    faults[0] ??
    refused(
      'no round of this question has a proposal that is not settled',
      `propose in an open one: \`proposer devchain propose ${identifier} --outcome p2\``,
    )
  )
}

const refused = (detail: string, hint: string) =>
  new UsageError('dev_chain_refused', detail, { hint })

function unsettleable(
  { timestamp }: FoundRound,
  state: number,
  waitSeconds: number,
  identifier: string,
): readonly UsageError[] {
  if (state === roundStates.proposed)
    return [
      refused(
        `the proposal in the round of ${timestamp} can be disputed for ${waitSeconds} s more`,
        `move the clock first: \`proposer devchain warp ${waitSeconds}\``,
      ),
    ]
  if (state !== roundStates.disputed) return []
  return [
    refused(
      `the proposal in the round of ${timestamp} is disputed and awaits the vote`,
      `vote first: \`proposer devchain vote ${identifier} --outcome p2\``,
    ),
  ]
}

async function settle(found: FoundRound, round: FoundRound): Promise<DevSettlement> {
  const { rpc, questionId } = found
  const isCurrent = round.timestamp === found.timestamp
  if (isCurrent && found.paused)
    throw refused(
      'the question is paused, so its adapter would not resolve it',
      'undo that first: `proposer devchain unpause <identifier>`, or unflag',
    )
  const request = await readRequest(round)
  const oracle = contractOf('oracle')
  const paid = settlementIn(await sendFrom(rpc, admin, oracle, 'settle', oracleRequestOf(round)))
  if (isCurrent && !found.resolved)
    await sendFrom(rpc, admin, contractOf('adapter'), 'resolve', [questionId])
  const after = await readQuestion(rpc, questionId)
  return {
    ...(await roundOf(round)),
    outcome: votedOutcome(paid.price) ?? null,
    payout: String(paid.payout),
    paid_to: lowercase(paid.price === request.proposedPrice ? request.proposer : request.disputer),
    deferred: paid.deferred,
    resolved: after.resolved,
    new_round: after.timestamp === found.timestamp ? null : String(after.timestamp),
  }
}

function settlementIn({ logs }: DevReceipt) {
  const log = logs.find(({ topics: [topic] }) => topic === topics.settle)
  if (log === undefined) throw new RangeError('a settlement without its event')
  const { abi } = contractOf('oracle').artifact
  const topicsOfLog = log.topics as [Hex, ...Hex[]]
  const { args } = decodeEventLog({ abi, eventName: 'Settle', data: log.data, topics: topicsOfLog })
  return {
    ...(args as unknown as { readonly price: bigint; readonly payout: bigint }),
    deferred: logs.some(({ topics: [topic] }) => topic === topics.payoutDeferred),
  }
}

export async function vote(
  rpcUrl: string,
  identifier: string,
  outcome: VotedOutcome,
): Promise<DevRound> {
  const found = await find(rpcUrl, identifier)
  for (const round of await roundsOf(found)) {
    if ((await roundOf(round)).state !== roundStates.disputed) continue
    const args = [...oracleRequestOf(round), votedPrice(outcome)]
    await sendFrom(found.rpc, admin, contractOf('oracle'), 'pushPrice', args)
    return roundOf(round)
  }
  throw refused(
    'no round of this question awaits a vote',
    `dispute a proposal first: \`proposer devchain dispute ${identifier}\``,
  )
}

async function isVersion3(rpc: DevRpc): Promise<boolean> {
  const slot = [devAddresses.oracle, implementationSlot, 'latest']
  const word = await rpc.request<Hex>('eth_getStorageAt', slot)
  return BigInt(word) === BigInt(devImplementations[oracleContracts.v3] ?? 0)
}

const oracleV3 = () => placedAt(oracleContracts.v3, devAddresses.oracle)

async function requireVersion3(rpc: DevRpc, what: string): Promise<void> {
  if (await isVersion3(rpc)) return
  throw new UsageError(
    'oracle_version',
    `the dev chain's oracle is version 2, which has no ${what}`,
    {
      hint: 'start the chain with --oracle v3',
    },
  )
}

export interface DevClarification {
  readonly question_id: Hex
  /** Whose word it is: the creator's counts, a stranger's does not. */
  readonly owner: Address
  readonly timestamp: string
}

/**
 * As the question's creator, or as an account of its own. `rules`: as an update of the request's
 * rules, which version 3 takes from the requester (domain §10).
 */
export async function clarify(
  rpcUrl: string,
  identifier: string,
  bytes: Uint8Array,
  how: { readonly as?: DevRole; readonly rules?: boolean } = {},
): Promise<DevClarification> {
  const { rpc, questionId, creator, ancillaryData } = await find(rpcUrl, identifier)
  const update = bytesToHex(bytes)
  if (how.rules === true) await requireVersion3(rpc, 'updates of rules')
  const own = how.rules === true ? devAddresses.adapter : creator
  const owner = how.as === undefined ? own : devAccount(how.as).address
  await rpc.batch([
    { method: 'anvil_impersonateAccount', params: [owner] },
    { method: 'anvil_setBalance', params: [owner, `0x${(10n ** 20n).toString(16)}`] },
  ])
  const { blockNumber } =
    how.rules === true
      ? await sendFrom(rpc, owner, oracleV3(), 'updateRequestRules', [
          yesOrNoQuery,
          ancillaryData,
          update,
        ])
      : await sendFrom(rpc, owner, contractOf('adapter'), 'postUpdate', [questionId, update])
  const { timestamp } = await rpc.request<Head>('eth_getBlockByNumber', [blockNumber, false])
  return { question_id: questionId, owner: lowercase(owner), timestamp: String(Number(timestamp)) }
}
