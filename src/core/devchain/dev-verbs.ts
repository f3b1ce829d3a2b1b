/**
 * What happens to questions on a running dev chain: verbs that need its RPC URL and a slug or
 * question id, nothing else (contract §6 `devchain`). All wait until their transaction is mined and
 * throw UsageError: `not_a_dev_chain`, `question_not_found`, or `dev_chain_refused` with the
 * decoded revert reason; UnavailableError `dev_chain_unreachable`.
 */
import { yesOrNoQuery } from '../chain/contracts.js'
import type { Address, Hex } from '../ports.js'
import { UsageError } from '../protocol/errors.js'
import { type DevQuestion, textBytes } from './dev-chain.js'
import {
  at,
  callData,
  type DevRole,
  type DevRpc,
  devAccount,
  devAddresses,
  devBondRaw,
  devRpc,
  type Placed,
  sendAll,
} from './dev-contracts.js'
import { exampleQuestion, outcomesOf } from './dev-questions.js'

const registry = (): Placed => at('DevRegistry', devAddresses.registry)
const adapter = (): Placed => at('CtfAdapter', devAddresses.adapter)
const oracle = (): Placed => at('ManagedOracle', devAddresses.oracle)
const token = (): Placed => at('Token', devAddresses.token)

/** A question as it stands: the round is the one its adapter shows now. */
export interface DevRound {
  readonly question_id: Hex
  /** Unix seconds, decimal. */
  readonly timestamp: string
  /** As `getState` numbers it (domain §4). */
  readonly state: number
}

async function connect(rpcUrl: string): Promise<DevRpc> {
  const rpc = devRpc(rpcUrl)
  const code = await rpc.request<Hex>('eth_getCode', [devAddresses.registry, 'latest'])
  if (code !== registry().artifact.code)
    throw new UsageError(
      'not_a_dev_chain',
      'The chain at the RPC URL is not a dev chain of this version.',
      {
        hint: 'look at --rpc-url, or start one with `proposer devchain`',
      },
    )
  return rpc
}

interface Found {
  readonly rpc: DevRpc
  readonly questionId: Hex
  readonly timestamp: bigint
  readonly ancillaryData: Hex
}

async function find(rpcUrl: string, identifier: string): Promise<Found> {
  const rpc = await connect(rpcUrl)
  const isId = /^0x[0-9a-f]{64}$/.test(identifier)
  const questionId = isId
    ? (identifier as Hex)
    : await rpc.read<Hex>(registry(), 'questionOf', [identifier])
  const question = await rpc.read<{ requestTimestamp: bigint; ancillaryData: Hex }>(
    adapter(),
    'getQuestion',
    [questionId],
  )
  if (question.ancillaryData === '0x')
    throw new UsageError('question_not_found', `The dev chain has no question ${identifier}.`, {
      hint: 'open one with `proposer devchain ask <slug>`',
    })
  return {
    rpc,
    questionId,
    timestamp: question.requestTimestamp,
    ancillaryData: question.ancillaryData,
  }
}

async function send(
  rpc: DevRpc,
  role: DevRole,
  contract: Placed,
  name: string,
  args: readonly unknown[],
): Promise<void> {
  await sendAll(rpc, [
    { from: devAccount(role).address, to: contract.address, data: callData(contract, name, args) },
  ])
}

async function readRound(rpc: DevRpc, questionId: Hex): Promise<DevRound> {
  const question = await rpc.read<{ requestTimestamp: bigint; ancillaryData: Hex }>(
    adapter(),
    'getQuestion',
    [questionId],
  )
  const args = [
    devAddresses.adapter,
    yesOrNoQuery,
    question.requestTimestamp,
    question.ancillaryData,
  ]
  const state = Number(await rpc.read<bigint>(oracle(), 'getState', args))
  return { question_id: questionId, timestamp: String(question.requestTimestamp), state }
}

/** The round that a question is in. */
export async function showRound(rpcUrl: string, identifier: string): Promise<DevRound> {
  const { rpc, questionId } = await find(rpcUrl, identifier)
  return readRound(rpc, questionId)
}

/**
 * Asks a new question. Without a slug: the next example question. With one: under that slug, with
 * `text` or an example's. A taken slug is refused (`dev_chain_refused`); bondRaw (500 tokens unless
 * given) is without the final fee.
 */
export async function askQuestion(
  rpcUrl: string,
  question: { readonly slug?: string; readonly text?: string; readonly bondRaw?: bigint } = {},
): Promise<DevQuestion> {
  const rpc = await connect(rpcUrl)
  const example = exampleQuestion(Number(await rpc.read<bigint>(registry(), 'count', [])))
  const slug = question.slug ?? example.slug
  const text = question.text ?? example.text
  await send(rpc, 'admin', registry(), 'ask', [
    [slug],
    [textBytes(text)],
    question.bondRaw ?? devBondRaw,
  ])
  return {
    question_id: await rpc.read<Hex>(registry(), 'questionOf', [slug]),
    slug,
    outcomes: outcomesOf(text),
  }
}

/**
 * Disputes the proposal of the current round. The first dispute of a question opens a new round
 * with a new timestamp; a second one goes to the voters (domain §5.1).
 */
export async function disputeProposal(rpcUrl: string, identifier: string): Promise<DevRound> {
  const { rpc, questionId, timestamp, ancillaryData } = await find(rpcUrl, identifier)
  await send(rpc, 'disputer', oracle(), 'disputePrice', [
    devAddresses.adapter,
    yesOrNoQuery,
    timestamp,
    ancillaryData,
  ])
  return readRound(rpc, questionId)
}

/** A competing proposal, straight at the oracle, by an account that is on the default whitelist. */
export async function proposeDirectly(
  rpcUrl: string,
  identifier: string,
  price: bigint,
): Promise<DevRound> {
  const { rpc, questionId, timestamp, ancillaryData } = await find(rpcUrl, identifier)
  await send(rpc, 'rival', oracle(), 'proposePrice', [
    devAddresses.adapter,
    yesOrNoQuery,
    timestamp,
    ancillaryData,
    price,
  ])
  return readRound(rpc, questionId)
}

/**
 * Adapter-side states; proposals still succeed on chain (domain §5.1). `reset` opens a new round as
 * the adapter's administrator may.
 */
export type AdapterVerb = 'pause' | 'unpause' | 'flag' | 'unflag' | 'reset'

/** Pauses, flags or resets a question at its adapter. */
export async function changeQuestion(
  rpcUrl: string,
  identifier: string,
  verb: AdapterVerb,
): Promise<DevRound> {
  const { rpc, questionId } = await find(rpcUrl, identifier)
  await send(rpc, 'admin', adapter(), verb, [questionId])
  return readRound(rpc, questionId)
}

/**
 * Sets the custom bond of a question (all its rounds), in raw token units without the final fee:
 * 100 to 100,000 tokens.
 */
export async function setBond(
  rpcUrl: string,
  identifier: string,
  bondRaw: bigint,
): Promise<DevRound> {
  const { rpc, questionId, ancillaryData } = await find(rpcUrl, identifier)
  const args = [devAddresses.adapter, yesOrNoQuery, ancillaryData, devAddresses.token, bondRaw]
  await send(rpc, 'admin', oracle(), 'requestManagerSetBond', args)
  return readRound(rpc, questionId)
}

/**
 * `nobody` pauses proposals of the question on chain, `everybody` lists all, `default` takes the
 * custom whitelist away.
 */
export type DevWhitelist = 'default' | 'nobody' | 'everybody' | Address

/** Sets the custom proposer whitelist of a question. */
export async function setWhitelist(
  rpcUrl: string,
  identifier: string,
  whitelist: DevWhitelist,
): Promise<DevRound> {
  const { rpc, questionId, ancillaryData } = await find(rpcUrl, identifier)
  const named: Record<string, Address> = {
    default: '0x0000000000000000000000000000000000000000',
    nobody: devAddresses.nobody,
    everybody: devAddresses.everybody,
  }
  const args = [devAddresses.adapter, yesOrNoQuery, ancillaryData, named[whitelist] ?? whitelist]
  await send(rpc, 'admin', oracle(), 'requestManagerSetProposerWhitelist', args)
  return readRound(rpc, questionId)
}

const weiForGas = 10n ** 18n

async function giveGas(rpc: DevRpc, address: Address): Promise<void> {
  const held = BigInt(await rpc.request<Hex>('eth_getBalance', [address, 'latest']))
  if (held < weiForGas)
    await rpc.request('anvil_setBalance', [address, `0x${weiForGas.toString(16)}`])
}

/**
 * Gives an address raw tokens, and a coin for gas where it has less than one. The token balance
 * afterwards.
 */
export async function fund(rpcUrl: string, address: Address, amountRaw: bigint): Promise<bigint> {
  const rpc = await connect(rpcUrl)
  await giveGas(rpc, address)
  await send(rpc, 'admin', token(), 'mint', [address, amountRaw])
  return rpc.read<bigint>(token(), 'balanceOf', [address])
}

/**
 * Makes an address an executor: DELEGATED_PROPOSER_ROLE on SignedProposer, and a coin for gas where
 * it has less than one (domain §2).
 */
export async function grantExecutor(rpcUrl: string, address: Address): Promise<void> {
  const rpc = await connect(rpcUrl)
  await giveGas(rpc, address)
  await send(
    rpc,
    'admin',
    at('SignedProposer', devAddresses.signedProposer),
    'addDelegatedProposer',
    [address],
  )
}
