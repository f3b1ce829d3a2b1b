import {
  type Abi,
  type ContractEventName,
  type ContractFunctionArgs,
  type ContractFunctionName,
  type ContractFunctionReturnType,
  type DecodeEventLogParameters,
  type DecodeEventLogReturnType,
  type DecodeFunctionResultParameters,
  decodeEventLog,
  decodeFunctionResult,
  type EncodeFunctionDataParameters,
  encodeFunctionData,
  prepareEncodeFunctionData,
} from 'viem'
import { type Chain, type ChainCall, ChainError, type ChainLog } from '#ports'
import type { Address } from '#protocol/schema'
import type { WitnessRequest } from '#protocol/witness'
import { lowercase, zeroAddress } from '#protocol/words'
import { oracleAbi } from './contracts.js'

export { lowercase, zeroAddress }

/** An answer that does not fit the ABI is `refused`. */
export async function readContract<
  const A extends Abi,
  N extends ContractFunctionName<A, 'view' | 'pure'>,
  const P extends ContractFunctionArgs<A, 'view' | 'pure', N>,
>(
  chain: Chain,
  at: bigint,
  address: Address,
  abi: A,
  functionName: N,
  args: P,
): Promise<ContractFunctionReturnType<A, 'view' | 'pure', N, P>> {
  const call = { ...preparedFor(abi, functionName), args } as unknown
  const asked = encodeFunctionData(call as EncodeFunctionDataParameters)
  const data = await chain.call({ to: address, data: asked }, at)
  try {
    const result = { abi, functionName, data } as unknown
    return decodeFunctionResult(result as DecodeFunctionResultParameters) as never
  } catch {
    // viem's message carries the whole answer.
    throw new ChainError(
      'refused',
      `the contract at ${address} does not answer ${functionName} as configured`,
    )
  }
}

type Prepared = ReturnType<typeof prepareEncodeFunctionData<Abi, string>>

const preparedCalls = new WeakMap<Abi, Map<string, Prepared>>()

function preparedFor(abi: Abi, functionName: string) {
  const known = preparedCalls.get(abi) ?? new Map<string, Prepared>()
  preparedCalls.set(abi, known)
  const found =
    known.get(functionName) ?? prepareEncodeFunctionData<Abi, string>({ abi, functionName })
  known.set(functionName, found)
  return found
}

/** Domain §4. */
const oracleKey = ({ requester, identifier, timestamp, ancillaryData }: WitnessRequest) =>
  [requester, identifier, BigInt(timestamp), ancillaryData] as const

export const heldRequest = (chain: Chain, at: bigint, request: WitnessRequest) =>
  readContract(chain, at, request.oracle, oracleAbi, 'getRequest', oracleKey(request))
export const heldState = (chain: Chain, at: bigint, request: WitnessRequest) =>
  readContract(chain, at, request.oracle, oracleAbi, 'getState', oracleKey(request))

export function holderOf(address: Address) {
  const holder = lowercase(address)
  return holder === zeroAddress ? undefined : holder
}

export async function latestBlock(chain: Pick<Chain, 'block'>, of = 'node') {
  const head = await chain.block('latest')
  if (head === null) throw new ChainError('unavailable', `the ${of} has no latest block`)
  return head
}

export async function unlessRefused<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work
  } catch (error) {
    if (error instanceof ChainError && error.kind !== 'unavailable') return undefined
    throw error
  }
}

/** `undefined`: it succeeds. */
export async function revertOf(chain: Chain, call: ChainCall, at: bigint) {
  try {
    await chain.call(call, at)
    return undefined
  } catch (error) {
    if (error instanceof ChainError && error.kind === 'reverted') return error.data
    throw error
  }
}

/** Any contract may log a topic with other data. `eventName`: of its first topic. */
export function loggedEvent<
  const A extends Abi,
  const N extends ContractEventName<A> | undefined = undefined,
>(
  abi: A,
  eventName: N,
  { data, topics: found }: ChainLog,
): DecodeEventLogReturnType<A, N> | undefined {
  try {
    const event = { abi, eventName, data, topics: found } as unknown
    return decodeEventLog(event as DecodeEventLogParameters) as never
  } catch {
    return undefined
  }
}
