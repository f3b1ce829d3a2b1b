/**
 * Holds R3 against every transaction that is handed to a node, whatever becomes of it there: a
 * round's proposal travels under one nonce of the executor, and under another only once the first
 * is spent in finalized state without having executed it.
 */

import {
  type Abi,
  decodeFunctionData,
  keccak256,
  parseTransaction,
  type TransactionSerializedEIP1559,
} from 'viem'
import { signedProposerAbi } from '#chain/contracts'
import type { Hex } from '#ports'
import type { Address } from '#protocol/schema'
import type { FakeChain } from './fake-chain.js'
import { fakeContracts } from './fake-world.js'

export type Handed = ReturnType<typeof read>

export type SendWatch = ReturnType<typeof watchSends>

export function watchSends(chain: FakeChain, executor: Address) {
  const faults: string[] = []
  const handed: Handed[] = []
  const { send } = chain
  chain.send = async (raw) => {
    const transaction = read(raw)
    if (!handed.some(({ hash }) => hash === transaction.hash)) {
      faults.push(...secondNonces(transaction), ...otherCalls(transaction))
      handed.push(transaction)
    }
    return send(raw)
  }

  const secondNonces = ({ nonce, calls }: Handed): string[] =>
    calls.map(roundOf).flatMap((round) =>
      handed
        .filter(
          (earlier) =>
            earlier.nonce !== nonce && earlier.calls.some((call) => roundOf(call) === round),
        )
        .flatMap((earlier) => {
          const isSpent = chain.truth.finalNonce(executor) > earlier.nonce
          const hasExecuted = chain.truth.receipt(earlier.hash)?.status === 'success'
          if (isSpent && !hasExecuted) return []
          return [
            `${round}: nonce ${nonce} although nonce ${earlier.nonce} is ${hasExecuted ? 'executed' : 'not settled'}`,
          ]
        }),
    )

  const otherCalls = ({ nonce, calls }: Handed): string[] => {
    const first = handed.find((earlier) => earlier.nonce === nonce && earlier.calls.length > 0)
    const strange = first === undefined ? [] : calls.filter((call) => !first.calls.includes(call))
    return strange.map(
      (call) => `nonce ${nonce}: a call for ${roundOf(call)} that was not in it at first`,
    )
  }

  return {
    faults,
    handed,
    noncesByRound() {
      const found = new Map<string, Set<number>>()
      for (const { nonce, calls } of handed) {
        for (const round of calls.map(roundOf))
          found.set(round, (found.get(round) ?? new Set()).add(nonce))
      }
      return found
    },
  }
}

function read(raw: Hex) {
  const { nonce = 0, to, data = '0x' } = parseTransaction(raw as TransactionSerializedEIP1559)
  return {
    hash: keccak256(raw),
    nonce,
    calls: to?.toLowerCase() === fakeContracts.signedProposer ? callsOf(data) : [],
  }
}

function callsOf(data: Hex): readonly Hex[] {
  const { functionName, args } = decodeFunctionData({ abi: signedProposerAbi as Abi, data })
  return functionName === 'multicall' ? ((args ?? [])[0] as readonly Hex[]) : [data]
}

function roundOf(call: Hex): string {
  const { functionName, args } = decodeFunctionData({ abi: signedProposerAbi, data: call })
  if (functionName !== 'propose') throw new RangeError(`a transaction calls ${functionName}`)
  const [{ requester, identifier, timestamp, ancillaryData }] = args
  return [requester, identifier, timestamp, keccak256(ancillaryData)].join(' ')
}
