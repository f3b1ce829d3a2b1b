/**
 * Derived from names, so that a tool with nothing but the chain's URL finds them. All keys are
 * throwaway: they are published (contract §8).
 */

import { setTimeout as sleep } from 'node:timers/promises'
import {
  decodeErrorResult,
  decodeFunctionResult,
  encodeFunctionData,
  keccak256,
  stringToHex,
} from 'viem'
import { privateKeyToAddress } from 'viem/accounts'
import { canonicalPermit2, implementationSlot } from '#chain/contracts'
import { decodeRevert } from '#chain/reverts'
import type { Hex } from '#ports'
import { UnavailableError, UsageError } from '#protocol/errors'
import { networkFault } from '#protocol/network-words'
import type { Address } from '#protocol/schema'
import { lowercase } from '#protocol/words'
import { type Artifact, artifact } from './dev-artifacts.js'

export type DevRole = 'admin' | 'executor' | 'proposer' | 'disputer' | 'rival' | 'outsider'

export interface DevAccount {
  readonly role: DevRole
  readonly address: Address
  readonly private_key: Hex
}

export function devAccount(role: DevRole, index = 0): DevAccount {
  const private_key = keccakOf(`account ${role} ${index}`)
  return { role, address: lowercase(privateKeyToAddress(private_key)), private_key }
}

const keccakOf = (text: string) => keccak256(stringToHex(`proposer dev chain ${text}`))

const placed = (name: string): Address => `0x${keccakOf(`contract ${name}`).slice(26)}`

export const devAddresses = {
  permit2: canonicalPermit2,
  token: placed('token'),
  oracle: placed('oracle'),
  signedProposer: placed('signed proposer'),
  adapter: placed('adapter'),
  proposers: placed('proposer whitelist'),
  requesters: placed('requester whitelist'),
  nobody: placed('empty whitelist'),
  everybody: placed('disabled whitelist'),
  registry: placed('registry'),
} as const satisfies Record<string, Address>

const devContracts: Readonly<Record<keyof typeof devAddresses, string>> = {
  permit2: 'Permit2',
  token: 'Token',
  oracle: 'ManagedOracle',
  signedProposer: 'SignedProposer',
  adapter: 'CtfAdapter',
  proposers: 'AddressWhitelist',
  requesters: 'AddressWhitelist',
  nobody: 'AddressWhitelist',
  everybody: 'DisabledAddressWhitelist',
  registry: 'DevRegistry',
}

/** Where the code behind proxies lies (domain §10). */
export const devImplementations: Readonly<Record<string, Address>> = {
  Token: placed('token implementation'),
  ManagedOracle: placed('oracle implementation v2'),
  ManagedOracleV3: placed('oracle implementation v3'),
}

export const oracleContracts = { v2: 'ManagedOracle', v3: 'ManagedOracleV3' } as const
export type OracleVersion = keyof typeof oracleContracts

export function devOracleVersion(given?: string): OracleVersion {
  const name = given ?? process.env.PROPOSER_DEV_ORACLE ?? 'v2'
  const known = Object.keys(oracleContracts) as OracleVersion[]
  const version = known.find((one) => one === name)
  if (version !== undefined) return version
  throw new UsageError(
    'invalid_option',
    `the oracle's version must be v2 or v3, not ${name}.`,
    'give --oracle v2 or v3; without it PROPOSER_DEV_ORACLE counts',
  )
}

export const devRewardRaw = 5_000_000n
export const devBondRaw = 500_000_000n
export const devFinalFeeRaw = 250_000_000n

export interface Placed {
  readonly name: string
  readonly address: Address
  readonly artifact: Artifact
}

export function placedAt(name: string, address: Address): Placed {
  return { name, address, artifact: artifact(name) }
}

export const contractOf = (name: keyof typeof devAddresses): Placed =>
  placedAt(devContracts[name], devAddresses[name])

interface RpcCall {
  readonly method: string
  readonly params: readonly unknown[]
}

const setCode = (address: Address, { code }: Artifact) => ({
  method: 'anvil_setCode',
  params: [address, code],
})

/** ERC-1967. */
export function placing({ name, address, artifact: own }: Placed): readonly RpcCall[] {
  const implementation = devImplementations[name]
  if (implementation === undefined) return [setCode(address, own)]
  const word = `0x${implementation.slice(2).padStart(64, '0')}`
  return [
    setCode(implementation, own),
    setCode(address, artifact('Proxy')),
    { method: 'anvil_setStorageAt', params: [address, implementationSlot, word] },
  ]
}

export function callData(contract: Placed, functionName: string, args: readonly unknown[]) {
  return encodeFunctionData({ abi: contract.artifact.abi, functionName, args: [...args] })
}

export class DevRpcError extends Error {
  constructor(
    message: string,
    readonly data: Hex = '0x',
  ) {
    super(message)
    this.name = 'DevRpcError'
  }
}

export interface DevTransaction {
  readonly from: Address
  readonly to: Address
  readonly data: Hex
}

export interface DevReceipt {
  readonly transactionHash: Hex
  readonly status: Hex
  readonly blockNumber: Hex
  readonly gasUsed: Hex
  readonly logs: readonly {
    readonly address: Address
    readonly topics: readonly Hex[]
    readonly data: Hex
  }[]
}

export interface DevRpc {
  request<Result>(method: string, params: readonly unknown[]): Promise<Result>
  /** Rejects with the first error among the results. */
  batch(calls: readonly RpcCall[]): Promise<unknown[]>
  read<Result>(contract: Placed, functionName: string, args: readonly unknown[]): Promise<Result>
}

interface RpcResponse {
  readonly id: number
  readonly result?: unknown
  readonly error?: { readonly message: string; readonly data?: unknown }
}

async function post(rpcUrl: string, body: readonly object[]): Promise<RpcResponse[]> {
  try {
    const headers = { 'content-type': 'application/json' }
    const init = { method: 'POST', headers, body: JSON.stringify(body) }
    return (await (await fetch(rpcUrl, init)).json()) as RpcResponse[]
  } catch (cause) {
    const detail = `dev chain ${new URL(rpcUrl).host}: ${networkFault(cause)}`
    throw new UnavailableError('dev_chain_unreachable', detail, {
      hint: 'check --rpc-url, or start one with `proposer devchain`',
      cause,
    })
  }
}

export function devRpc(rpcUrl: string): DevRpc {
  const batch: DevRpc['batch'] = async (calls) => {
    const body = calls.map(({ method, params }, id) => ({ jsonrpc: '2.0', id, method, params }))
    const responses = await post(rpcUrl, body)
    if (!Array.isArray(responses)) throw new DevRpcError('the node does not support batches')
    const byId = new Map(responses.map((response) => [response.id, response]))
    return calls.map((_, id) => {
      const response = byId.get(id)
      if (response !== undefined && response.error === undefined) return response.result
      const { message = 'the node did not respond to a call', data } = response?.error ?? {}
      throw new DevRpcError(message, typeof data === 'string' ? (data as Hex) : '0x')
    })
  }
  const request = async <Result>(method: string, params: readonly unknown[]): Promise<Result> =>
    (await batch([{ method, params }]))[0] as Result
  return {
    request,
    batch,
    read: async <Result>(contract: Placed, functionName: string, args: readonly unknown[]) => {
      const data = await request<Hex>('eth_call', [
        { to: contract.address, data: callData(contract, functionName, args) },
        'latest',
      ])
      return decodeFunctionResult({ abi: contract.artifact.abi, functionName, data }) as Result
    },
  }
}

export const quantity = (value: bigint | number) => `0x${value.toString(16)}`

export async function sendAsDev(
  rpc: DevRpc,
  transactions: readonly DevTransaction[],
): Promise<DevReceipt[]> {
  const hashes: Hex[] = []
  for (const transaction of transactions) hashes.push(await sendOne(rpc, transaction))
  return receiptsOf(rpc, hashes)
}

/** Two verbs of one account got the same nonce. */
const nonceClash = /replacement transaction underpriced|nonce too low|already (imported|known)/i
const clashTries = 50
const clashPauseMs = 20

async function sendOne(rpc: DevRpc, transaction: DevTransaction, tries = 1) {
  try {
    // Storage refunds make the needed limit about 1.25 times what is used (domain §8).
    const gas = (BigInt(await rpc.request<Hex>('eth_estimateGas', [transaction])) * 3n) / 2n
    return await rpc.request<Hex>('eth_sendTransaction', [{ ...transaction, gas: quantity(gas) }])
  } catch (error) {
    if (!(error instanceof DevRpcError)) throw error
    if (nonceClash.test(error.message) && tries < clashTries) {
      await sleep(clashPauseMs)
      return sendOne(rpc, transaction, tries + 1)
    }
    const reason = error.data === '0x' ? error.message : revertReasonOf(error.data)
    throw new UsageError('dev_chain_refused', `The dev chain refused the transaction: ${reason}.`, {
      hint: refusalHint(reason),
      cause: error,
    })
  }
}

export const receiptsNow = (rpc: DevRpc, hashes: readonly Hex[]) =>
  rpc.batch(
    hashes.map((hash) => ({ method: 'eth_getTransactionReceipt', params: [hash] })),
  ) as Promise<(DevReceipt | null)[]>

const receiptLimitMs = 10_000
const receiptPauseMs = 25

export async function receiptsOf(rpc: DevRpc, hashes: readonly Hex[]): Promise<DevReceipt[]> {
  if (hashes.length === 0) return []
  const startedAt = performance.now()
  for (;;) {
    const mined = (await receiptsNow(rpc, hashes)).filter((receipt) => receipt !== null)
    if (mined.some((receipt) => receipt.status !== '0x1'))
      throw new UsageError(
        'dev_chain_refused',
        'A transaction of the dev chain reverted.',
        refusalHint(''),
      )
    if (mined.length === hashes.length) return mined
    if (performance.now() - startedAt > receiptLimitMs)
      throw new UsageError(
        'dev_chain_failed',
        'The dev chain mined no block with our transaction.',
        'restart it with `proposer devchain`',
      )
    await sleep(receiptPauseMs)
  }
}

const refusalHints: readonly (readonly [error: RegExp, hint: string])[] = [
  [
    /^RequestStateNotProposed\b/,
    'nothing is proposed in this round: `proposer devchain propose <identifier> --outcome p2` does',
  ],
  [
    /^RequestStateNotRequested\b/,
    'the round no longer accepts proposals: `proposer devchain dispute <identifier>` opens a new one',
  ],
  [
    /^(Proposer|Sender)NotWhitelisted\b/,
    'let others propose: `proposer devchain set-whitelist <identifier> default`',
  ],
  [
    /^(BondBelowMinimumBond|BondExceedsMaximumBond|ZeroBondNotAllowed)\b/,
    'give a bond from 100000000 to 100000000000 raw units',
  ],
  [/^Flagged\b/, 'it is flagged: `proposer devchain unflag <identifier>` undoes that'],
  [/^NotFlagged\b/, 'it is not flagged: there is nothing to undo'],
  [
    /^(Resolved|RequestStateNotInvalid)\b/,
    'it is over: open another question with `proposer devchain ask`',
  ],
  [/slug taken/, 'choose another slug, or omit it for the next example'],
  [/^(Initialized|AncillaryDataTooLong)\b/, 'give another --text'],
  [
    /^ERC20InsufficientBalance\b/,
    'give the account tokens with `proposer devchain fund <address>`',
  ],
]

/** The adapter has errors that no proposal can meet. */
function revertReasonOf(data: Hex) {
  const { name, text } = decodeRevert(data)
  if (name !== 'unknown') return text
  try {
    return `${decodeErrorResult({ abi: artifact('CtfAdapter').abi, data }).errorName}()`
  } catch {
    return text
  }
}

const refusalHint = (reason: string) =>
  refusalHints.find(([error]) => error.test(reason))?.[1] ??
  'the question is not in the required state: `proposer reconcile` with its id shows which; or open a new one with `proposer devchain ask`'
