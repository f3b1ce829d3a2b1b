/**
 * What happens to questions on a running dev chain: verbs that need its RPC URL and a slug or
 * question id (contract §6 `devchain`), and wait until their transaction is mined.
 */

import { yesOrNoQuery } from '#chain/contracts'
import type { Hex } from '#ports'
import { UsageError } from '#protocol/errors'
import type { Address } from '#protocol/schema'
import { isQuestionId, zeroAddress } from '#protocol/words'
import { type DevQuestion, textBytes } from './dev-chain.js'
import {
  callData,
  contractOf,
  type DevReceipt,
  type DevRole,
  type DevRpc,
  devAccount,
  devAddresses,
  devBondRaw,
  devRewardRaw,
  devRpc,
  type Placed,
  sendAsDev,
} from './dev-contracts.js'
import { exampleQuestion, listedOutcomes } from './dev-questions.js'

export interface DevRound {
  readonly question_id: Hex
  readonly timestamp: string
  /** As `getState` numbers it (domain §4). */
  readonly state: number
}

type ContractKey = Parameters<typeof contractOf>[0]

/** The current round unless another was looked for. */
export interface FoundRound {
  readonly rpc: DevRpc
  readonly questionId: Hex
  readonly timestamp: bigint
  readonly ancillaryData: Hex
  readonly creator: Address
  readonly paused: boolean
  readonly resolved: boolean
}

export async function connect(rpcUrl: string): Promise<DevRpc> {
  const rpc = devRpc(rpcUrl)
  const code = await rpc.request<Hex>('eth_getCode', [devAddresses.registry, 'latest'])
  if (code === contractOf('registry').artifact.code) return rpc
  throw new UsageError(
    'not_a_dev_chain',
    'The chain at the RPC URL is not a dev chain of this version.',
    { hint: 'check --rpc-url, or start one with `proposer devchain`' },
  )
}

export async function find(rpcUrl: string, identifier: string): Promise<FoundRound> {
  const rpc = await connect(rpcUrl)
  const questionId = isQuestionId(identifier)
    ? identifier
    : await rpc.read<Hex>(contractOf('registry'), 'questionOf', [identifier])
  const found = await readQuestion(rpc, questionId)
  if (found.ancillaryData !== '0x') return found
  throw new UsageError('question_not_found', `The dev chain has no question ${identifier}.`, {
    hint: 'open one with `proposer devchain ask <slug>`',
  })
}

/** Without text where there is none. */
export async function readQuestion(rpc: DevRpc, questionId: Hex): Promise<FoundRound> {
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

export const oracleRequestOf = ({ timestamp, ancillaryData }: FoundRound) => [
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
): Promise<DevRound> {
  const found = await find(rpcUrl, identifier)
  await send(found.rpc, role, to, name, args(found))
  return roundOf(await readQuestion(found.rpc, found.questionId))
}

export async function roundOf(found: FoundRound): Promise<DevRound> {
  const { rpc, questionId, timestamp } = found
  const state = await rpc.read<bigint>(contractOf('oracle'), 'getState', oracleRequestOf(found))
  return { question_id: questionId, timestamp: String(timestamp), state: Number(state) }
}

export const showRound = async (rpcUrl: string, identifier: string): Promise<DevRound> =>
  roundOf(await find(rpcUrl, identifier))

/** Without a slug: the next example question. `bondRaw` is without the final fee. */
export async function askDevQuestion(
  rpcUrl: string,
  question: { readonly slug?: string; readonly text?: string; readonly bondRaw?: bigint } = {},
): Promise<DevQuestion> {
  const rpc = await connect(rpcUrl)
  const registry = contractOf('registry')
  const example = exampleQuestion(Number(await rpc.read<bigint>(registry, 'count', [])))
  const { slug, text, bondRaw } = { ...example, bondRaw: devBondRaw, ...question }
  await send(rpc, 'admin', 'registry', 'ask', [[slug], [textBytes(text)], bondRaw, devRewardRaw])
  const question_id = await rpc.read<Hex>(registry, 'questionOf', [slug])
  return { question_id, slug, outcomes: listedOutcomes(text) }
}

/**
 * The first dispute of a question opens a new round; a second one goes to the voters (domain
 * §5.1).
 */
export const disputeProposal = (rpcUrl: string, identifier: string): Promise<DevRound> =>
  act(rpcUrl, identifier, 'disputer', 'oracle', 'disputePrice', oracleRequestOf)

/** Straight at the oracle, by an account on the default whitelist. */
export const proposeDirectly = (
  rpcUrl: string,
  identifier: string,
  price: bigint,
): Promise<DevRound> =>
  act(rpcUrl, identifier, 'rival', 'oracle', 'proposePrice', (found) => [
    ...oracleRequestOf(found),
    price,
  ])

/** Proposals still succeed on chain (domain §5.1). */
export type AdapterVerb = 'pause' | 'unpause' | 'flag' | 'unflag' | 'reset'

export const changeQuestion = (
  rpcUrl: string,
  identifier: string,
  verb: AdapterVerb,
): Promise<DevRound> =>
  act(rpcUrl, identifier, 'admin', 'adapter', verb, ({ questionId }) => [questionId])

/** Of all its rounds, without the final fee: 100 to 100,000 tokens. */
export const setBond = (rpcUrl: string, identifier: string, bondRaw: bigint): Promise<DevRound> =>
  act(rpcUrl, identifier, 'admin', 'oracle', 'requestManagerSetBond', ({ ancillaryData }) => [
    devAddresses.adapter,
    yesOrNoQuery,
    ancillaryData,
    devAddresses.token,
    bondRaw,
  ])

/** `nobody` pauses proposals on chain, `default` takes the custom whitelist away. */
export type DevWhitelist = 'default' | 'nobody' | 'everybody' | Address

export function setWhitelist(
  rpcUrl: string,
  identifier: string,
  whitelist: DevWhitelist,
): Promise<DevRound> {
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

async function giveGas(rpc: DevRpc, address: Address): Promise<void> {
  const held = BigInt(await rpc.request<Hex>('eth_getBalance', [address, 'latest']))
  if (held < weiForGas)
    await rpc.request('anvil_setBalance', [address, `0x${weiForGas.toString(16)}`])
}

/** And a coin for gas where it has less than one. The token balance afterwards. */
export async function fund(rpcUrl: string, address: Address, amountRaw: bigint): Promise<bigint> {
  const rpc = await connect(rpcUrl)
  await giveGas(rpc, address)
  await send(rpc, 'admin', 'token', 'mint', [address, amountRaw])
  return rpc.read<bigint>(contractOf('token'), 'balanceOf', [address])
}

/** DELEGATED_PROPOSER_ROLE on SignedProposer, and a coin for gas (domain §2). */
export async function grantExecutor(rpcUrl: string, address: Address): Promise<void> {
  const rpc = await connect(rpcUrl)
  await giveGas(rpc, address)
  await send(rpc, 'admin', 'signedProposer', 'addDelegatedProposer', [address])
}
