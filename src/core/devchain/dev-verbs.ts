/** Each waits until it is mined (contract §6 `devchain`, §9; domain §5.1, §10). */

import { bytesToHex, decodeEventLog, stringToHex } from 'viem'
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
import { isQuestionId, lowercase, zeroAddress } from '#protocol/words'
import { exampleQuestion, listedOutcomes } from './dev-artifacts.js'
import type { DevQuestion } from './dev-chain.js'
import {
  callData,
  contractOf,
  type DevReceipt,
  type DevRole,
  type DevRpc,
  devAccount,
  devAddresses,
  devBondRaw,
  devImplementations,
  devRewardRaw,
  devRpc,
  oracleContracts,
  type Placed,
  placedAt,
  quantity,
  sendAsDev,
} from './dev-contracts.js'

export interface DevRound {
  readonly question_id: Hex
  readonly timestamp: string
  readonly state: number
}

type ContractKey = Parameters<typeof contractOf>[0]

interface FoundRound {
  readonly rpc: DevRpc
  readonly questionId: Hex
  readonly timestamp: bigint
  readonly ancillaryData: Hex
  readonly creator: Address
  readonly paused: boolean
  readonly resolved: boolean
}

async function connect(rpcUrl: string) {
  const rpc = devRpc(rpcUrl)
  const code = await rpc.request<Hex>('eth_getCode', [devAddresses.registry, 'latest'])
  if (code === contractOf('registry').artifact.code) return rpc
  throw new UsageError(
    'not_a_dev_chain',
    'The chain at the RPC URL is not a dev chain of this version.',
    'check --rpc-url, or start one with `proposer devchain`',
  )
}

export async function find(rpcUrl: string, identifier: string): Promise<FoundRound> {
  const rpc = await connect(rpcUrl)
  const questionId = isQuestionId(identifier)
    ? identifier
    : await rpc.read<Hex>(contractOf('registry'), 'questionOf', [identifier])
  const found = await readQuestion(rpc, questionId)
  if (found.ancillaryData !== '0x') return found
  throw new UsageError(
    'question_not_found',
    `The dev chain has no question ${identifier}.`,
    'open one with `proposer devchain ask <slug>`',
  )
}

async function readQuestion(rpc: DevRpc, questionId: Hex) {
  const { requestTimestamp, ...question } = await rpc.read<
    Omit<FoundRound, 'rpc' | 'questionId' | 'timestamp'> & { requestTimestamp: bigint }
  >(contractOf('adapter'), 'getQuestion', [questionId])
  return { ...question, rpc, questionId, timestamp: requestTimestamp }
}

export async function sendFrom(
  rpc: DevRpc,
  from: Address,
  contract: Placed,
  name: string,
  args: readonly unknown[],
): Promise<DevReceipt> {
  const call = { from, to: contract.address, data: callData(contract, name, args) }
  const [receipt] = await sendAsDev(rpc, [call])
  if (receipt === undefined) throw new RangeError('no receipt for a transaction')
  return receipt
}

const send = (
  rpc: DevRpc,
  role: DevRole,
  to: ContractKey,
  name: string,
  args: readonly unknown[],
) => sendFrom(rpc, devAccount(role).address, contractOf(to), name, args)

export const oracleRequestOf = ({
  timestamp,
  ancillaryData,
}: Pick<FoundRound, 'timestamp' | 'ancillaryData'>) => [
  devAddresses.adapter,
  yesOrNoQuery,
  timestamp,
  ancillaryData,
]

async function act(
  rpcUrl: string,
  identifier: string,
  role: DevRole,
  to: ContractKey,
  name: string,
  args: (found: FoundRound) => readonly unknown[],
) {
  const found = await find(rpcUrl, identifier)
  await send(found.rpc, role, to, name, args(found))
  return roundOf(await readQuestion(found.rpc, found.questionId))
}

async function roundOf(found: FoundRound): Promise<DevRound> {
  const { rpc, questionId, timestamp } = found
  const state = await rpc.read<bigint>(contractOf('oracle'), 'getState', oracleRequestOf(found))
  return { question_id: questionId, timestamp: String(timestamp), state: Number(state) }
}

export const showRound = async (rpcUrl: string, identifier: string) =>
  roundOf(await find(rpcUrl, identifier))

/** `bondRaw` is without the final fee. */
export async function askDevQuestion(
  rpcUrl: string,
  question: { readonly slug?: string; readonly text?: string; readonly bondRaw?: bigint } = {},
): Promise<DevQuestion> {
  const rpc = await connect(rpcUrl)
  const registry = contractOf('registry')
  const example = exampleQuestion(Number(await rpc.read<bigint>(registry, 'count', [])))
  const { slug, text, bondRaw } = { ...example, bondRaw: devBondRaw, ...question }
  await send(rpc, 'admin', 'registry', 'ask', [[slug], [stringToHex(text)], bondRaw, devRewardRaw])
  const question_id = await rpc.read<Hex>(registry, 'questionOf', [slug])
  return { question_id, slug, outcomes: listedOutcomes(text) }
}

/** The first dispute opens a new round; a second one goes to the voters (domain §5.1). */
export const disputeProposal = (rpcUrl: string, identifier: string) =>
  act(rpcUrl, identifier, 'disputer', 'oracle', 'disputePrice', oracleRequestOf)

/** By an account on the default whitelist. */
export const proposeDirectly = (rpcUrl: string, identifier: string, price: bigint) =>
  act(rpcUrl, identifier, 'rival', 'oracle', 'proposePrice', (found) => [
    ...oracleRequestOf(found),
    price,
  ])

/** Proposals still succeed on chain (domain §5.1). */
export type AdapterVerb = 'pause' | 'unpause' | 'flag' | 'unflag' | 'reset'

export const changeQuestion = (rpcUrl: string, identifier: string, verb: AdapterVerb) =>
  act(rpcUrl, identifier, 'admin', 'adapter', verb, ({ questionId }) => [questionId])

/** Without the final fee: 100 to 100,000 tokens. */
export const setBond = (rpcUrl: string, identifier: string, bondRaw: bigint) =>
  act(rpcUrl, identifier, 'admin', 'oracle', 'requestManagerSetBond', ({ ancillaryData }) => [
    devAddresses.adapter,
    yesOrNoQuery,
    ancillaryData,
    devAddresses.token,
    bondRaw,
  ])

export type DevWhitelist = 'default' | 'nobody' | 'everybody' | Address

export function setWhitelist(rpcUrl: string, identifier: string, whitelist: DevWhitelist) {
  const { nobody, everybody } = devAddresses
  const named: Record<string, string> = { default: zeroAddress, nobody, everybody }
  const name = 'requestManagerSetProposerWhitelist'
  return act(rpcUrl, identifier, 'admin', 'oracle', name, ({ ancillaryData }) => [
    devAddresses.adapter,
    yesOrNoQuery,
    ancillaryData,
    named[whitelist] ?? whitelist,
  ])
}

const weiForGas = 10n ** 18n

async function giveGas(rpc: DevRpc, address: Address) {
  const held = BigInt(await rpc.request<Hex>('eth_getBalance', [address, 'latest']))
  if (held < weiForGas) await rpc.request('anvil_setBalance', [address, quantity(weiForGas)])
}

/** And a coin for gas. */
export async function fund(rpcUrl: string, address: Address, amountRaw: bigint) {
  const rpc = await connect(rpcUrl)
  await giveGas(rpc, address)
  await send(rpc, 'admin', 'token', 'mint', [address, amountRaw])
  return rpc.read<bigint>(contractOf('token'), 'balanceOf', [address])
}

/** And a coin for gas (domain §2). */
export async function grantExecutor(rpcUrl: string, address: Address) {
  const rpc = await connect(rpcUrl)
  await giveGas(rpc, address)
  await send(rpc, 'admin', 'signedProposer', 'addDelegatedProposer', [address])
}

export type VotedOutcome = keyof typeof priceOf | 'p4'

const votedPrice = (outcome: VotedOutcome) =>
  outcome === 'p4' ? tooEarlyPrice : BigInt(priceOf[outcome])

const votedOutcome = (price: bigint) =>
  (['p1', 'p2', 'p3', 'p4'] as const).find((one) => votedPrice(one) === price)

interface Head {
  readonly number: Hex
  readonly timestamp: Hex
}

const headOf = (rpc: DevRpc) => rpc.request<Head>('eth_getBlockByNumber', ['latest', false])

export async function warp(rpcUrl: string, seconds: number) {
  const rpc = await connect(rpcUrl)
  let head = await headOf(rpc)
  const until = Number(head.timestamp) + seconds
  // Trimming the chain's memory may undo a jump.
  while (Number(head.timestamp) < until) {
    await rpc.request('evm_setNextBlockTimestamp', [until])
    await rpc.request('evm_mine', [])
    head = await headOf(rpc)
  }
  return { seconds, timestamp: String(Number(head.timestamp)), block: Number(head.number) }
}

async function roundsOf(found: FoundRound) {
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

const readRequest = ({ rpc, ...round }: FoundRound) =>
  rpc.read<{
    readonly proposer: Address
    readonly disputer: Address
    readonly proposedPrice: bigint
    readonly expirationTime: bigint
  }>(contractOf('oracle'), 'getRequest', oracleRequestOf(round))

export type DevSettlement = Awaited<ReturnType<typeof settle>>

export async function settleRound(rpcUrl: string, identifier: string) {
  const found = await find(rpcUrl, identifier)
  const now = Number((await headOf(found.rpc)).timestamp)
  let fault: UsageError | undefined
  for (const round of await roundsOf(found)) {
    const { state } = await roundOf(round)
    const { expirationTime } = await readRequest(round)
    const waitSeconds = Number(expirationTime) - now
    if (state === roundStates.resolved || (state === roundStates.proposed && waitSeconds <= 0))
      return settle(found, round)
    fault ??= unsettleable(round, state, waitSeconds, identifier)
  }
  throw (
    fault ??
    refused(
      'no round of this question has a proposal that is not settled',
      `propose in an open one: \`proposer devchain propose ${identifier} --outcome p2\``,
    )
  )
}

const refused = (detail: string, hint: string) => new UsageError('dev_chain_refused', detail, hint)

function unsettleable(
  { timestamp }: FoundRound,
  state: number,
  waitSeconds: number,
  identifier: string,
) {
  if (state === roundStates.proposed)
    return refused(
      `the proposal in the round of ${timestamp} can be disputed for ${waitSeconds} s more`,
      `move the clock first: \`proposer devchain warp ${waitSeconds}\``,
    )
  if (state !== roundStates.disputed) return undefined
  return refused(
    `the proposal in the round of ${timestamp} is disputed and awaits the vote`,
    `vote first: \`proposer devchain vote ${identifier} --outcome p2\``,
  )
}

async function settle(found: FoundRound, round: FoundRound) {
  const { rpc, questionId } = found
  const isCurrent = round.timestamp === found.timestamp
  if (isCurrent && found.paused)
    throw refused(
      'the question is paused, so its adapter would not resolve it',
      'undo that first: `proposer devchain unpause <identifier>`, or unflag',
    )
  const request = await readRequest(round)
  const paid = settlementIn(await send(rpc, 'admin', 'oracle', 'settle', oracleRequestOf(round)))
  if (isCurrent && !found.resolved) await send(rpc, 'admin', 'adapter', 'resolve', [questionId])
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

export async function vote(rpcUrl: string, identifier: string, outcome: VotedOutcome) {
  const found = await find(rpcUrl, identifier)
  for (const round of await roundsOf(found)) {
    if ((await roundOf(round)).state !== roundStates.disputed) continue
    const args = [...oracleRequestOf(round), votedPrice(outcome)]
    await send(found.rpc, 'admin', 'oracle', 'pushPrice', args)
    return roundOf(round)
  }
  throw refused(
    'no round of this question awaits a vote',
    `dispute a proposal first: \`proposer devchain dispute ${identifier}\``,
  )
}

async function requireVersion3(rpc: DevRpc) {
  const slot = [devAddresses.oracle, implementationSlot, 'latest']
  const word = await rpc.request<Hex>('eth_getStorageAt', slot)
  if (BigInt(word) === BigInt(devImplementations[oracleContracts.v3] ?? 0)) return
  throw new UsageError(
    'oracle_version',
    "the dev chain's oracle is version 2, which has no updates of rules",
    'start the chain with --oracle v3',
  )
}

/**
 * `rules`: an update of the request's rules, which version 3 takes from the requester (domain §10).
 */
export async function clarify(
  rpcUrl: string,
  identifier: string,
  bytes: Uint8Array,
  { as: role, rules = false }: { as?: DevRole; rules?: boolean } = {},
) {
  const { rpc, questionId, creator, ancillaryData } = await find(rpcUrl, identifier)
  const update = bytesToHex(bytes)
  if (rules) await requireVersion3(rpc)
  const [own, contract, name, ...args] = rules
    ? ([
        devAddresses.adapter,
        placedAt(oracleContracts.v3, devAddresses.oracle),
        'updateRequestRules',
        yesOrNoQuery,
        ancillaryData,
        update,
      ] as const)
    : ([creator, contractOf('adapter'), 'postUpdate', questionId, update] as const)
  const owner = role === undefined ? own : devAccount(role).address
  await rpc.batch([
    { method: 'anvil_impersonateAccount', params: [owner] },
    { method: 'anvil_setBalance', params: [owner, quantity(10n ** 20n)] },
  ])
  const { blockNumber } = await sendFrom(rpc, owner, contract, name, args)
  const { timestamp } = await rpc.request<Head>('eth_getBlockByNumber', [blockNumber, false])
  return { question_id: questionId, owner: lowercase(owner), timestamp: String(Number(timestamp)) }
}
