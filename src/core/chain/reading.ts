/** Typed contract reads over the `Chain` port; viem only encodes and decodes. */
import {
  type Abi,
  type ContractFunctionArgs,
  type ContractFunctionName,
  type ContractFunctionReturnType,
  type DecodeFunctionResultParameters,
  decodeFunctionResult,
  type EncodeFunctionDataParameters,
  encodeFunctionData,
} from 'viem'
import { type Address, type Chain, ChainError, type Hex } from '../ports.js'

/**
 * Canonical spelling on the wire and in comparisons: viem decodes addresses with a checksum in
 * their letters.
 */
export function lowercase(address: string): Address {
  return address.toLowerCase() as Address
}

export const zeroAddress: Address = '0x0000000000000000000000000000000000000000'

/**
 * Calls a view function at one block and decodes its answer. Rejects with `ChainError`; an answer
 * that does not fit the ABI is `refused`: the contract at that address is not what configuration
 * takes it for.
 */
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
  const data = encodeFunctionData({
    abi,
    functionName,
    args,
  } as unknown as EncodeFunctionDataParameters)
  const answer = await chain.call({ to: address, data }, at)
  return decodeAnswer(abi, functionName, answer, address) as ContractFunctionReturnType<
    A,
    'view' | 'pure',
    N,
    P
  >
}

function decodeAnswer(abi: Abi, functionName: string, data: Hex, address: Address): unknown {
  try {
    return decodeFunctionResult({
      abi,
      functionName,
      data,
    } as unknown as DecodeFunctionResultParameters)
  } catch {
    // viem's message carries the whole answer; what matters is that this contract is not the
    // configured kind
    throw new ChainError(
      'refused',
      `the contract at ${address} does not answer ${functionName} as configured`,
    )
  }
}

/**
 * What a contract tells, or `undefined` where it does not answer as its kind does: that may be the
 * very cause.
 */
export async function told<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work
  } catch (error) {
    if (error instanceof ChainError && error.kind !== 'unavailable') return undefined
    throw error
  }
}
