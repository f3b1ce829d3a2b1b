/** A transaction of ours: its calldata, signed (EIP-1559), and read again. */
import {
  decodeFunctionData,
  encodeFunctionData,
  keccak256,
  parseSignature,
  parseTransaction,
  serializeTransaction,
  type TransactionSerialized,
  type TransactionSerializedEIP1559,
} from 'viem'
import type { Hex, Signer, UnsignedTransaction } from '#ports'
import { boundedCache } from '#protocol/bounded-cache'
import { UsageError } from '#protocol/errors'
import { recoverSigner } from '#protocol/signature'
import { fromHex } from '#protocol/witness'
import { signedProposerAbi } from './contracts.js'
import { lowercase } from './reading.js'

/** Polygon's nodes refuse a lower tip, and many suggest less (domain §8). Wei. */
export const minimumTipWei: Readonly<Record<number, bigint>> = { 137: 25_000_000_000n }

/** Refunds make the needed limit larger than what is used in the end (domain §8). */
export const gasLimit = (estimate: bigint) => (estimate * 120n + 99n) / 100n

/** The raw bytes are for the store and the nodes alone (R5). */
export async function signTransaction(
  signer: Signer,
  unsigned: UnsignedTransaction,
): Promise<{ readonly raw: Hex; readonly hash: Hex }> {
  const transaction = wholeOf(unsigned)
  const signature =
    signer.signTransaction === undefined
      ? await signer.signDigest(keccak256(serializeTransaction(transaction)))
      : signatureIn(await signer.signTransaction(unsigned), transaction, signer.address)
  const raw = serializeTransaction(transaction, parseSignature(signature))
  return { raw, hash: keccak256(raw) }
}

function decodedOnce<K extends string, V extends {}>(
  most: number,
  decode: (text: K) => V,
): (text: K) => V {
  const known = boundedCache<K, V>(most)
  return (text) => {
    const found = known.get(text) ?? decode(text)
    known.set(text, found)
    return found
  }
}

export const readTransaction = decodedOnce(128, (raw: Hex) => {
  const { to, data, gas } = parseTransaction(raw as TransactionSerializedEIP1559)
  if (!to || gas === undefined)
    throw new RangeError('a stored transaction has no recipient or gas limit')
  return { to: lowercase(to), data: data ?? '0x', gas }
})

export function carrying(proposals: readonly Hex[]) {
  const [only] = proposals
  if (only !== undefined && proposals.length === 1) return only
  return encodeFunctionData({
    abi: signedProposerAbi,
    functionName: 'multicall',
    args: [proposals],
  })
}

export const carriedBy = decodedOnce(128, (data: Hex) => {
  const { functionName, args } = decodeFunctionData({ abi: signedProposerAbi, data })
  return functionName === 'multicall' ? args[0] : [data]
})

export const readProposeCalldata = decodedOnce(4_096, (data: Hex) => {
  const { functionName, args } = decodeFunctionData({ abi: signedProposerAbi, data })
  if (functionName !== 'propose') throw new RangeError(`stored calldata calls ${functionName}`)
  const [proposal, , permit] = args
  return {
    request: {
      oracle: lowercase(proposal.oracle),
      requester: lowercase(proposal.requester),
      identifier: proposal.identifier,
      timestamp: String(proposal.timestamp),
      ancillaryData: proposal.ancillaryData,
    },
    token: lowercase(permit.permitted.token),
  }
})

const wholeOf = (unsigned: UnsignedTransaction) =>
  ({ type: 'eip1559', value: 0n, accessList: [], ...unsigned }) as const

/** Nodes take no higher s (EIP-2). */
const highestS = 0x7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0n

/** It has to be the very transaction that was asked for, signed by the executor. */
function signatureIn(answer: string, asked: ReturnType<typeof wholeOf>, address: Hex) {
  const signed = parsed(answer)
  const found: Readonly<Record<string, unknown>> = signed
  const isChanged = ([field, value]: [string, unknown]) => textOf(found[field]) !== textOf(value)
  const [changed] = Object.entries(asked).find(isChanged) ?? []
  if (changed !== undefined) throw invalid(`it changed ${changed} of the transaction`)
  const { r, s, yParity } = signed
  if (r === undefined || s === undefined || yParity === undefined)
    throw invalid('the transaction is not signed')
  if (BigInt(s) > highestS) throw invalid('its signature has a high s, which no node takes')
  // By hand: viem throws what the signer is to be told of.
  const signature = `0x${word(r)}${word(s)}${yParity === 1 ? '1c' : '1b'}` as const
  const digest = fromHex(keccak256(serializeTransaction(asked)))
  const account = recoverSigner(digest, signature)
  if (account !== address)
    throw invalid(`it signed as ${account ?? 'nobody'}, not as the executor ${address}`)
  return signature
}

const word = (number: Hex) => number.slice(2).padStart(64, '0')

function parsed(answer: string) {
  try {
    return parseTransaction(answer as TransactionSerialized)
  } catch {
    // The parser's own words repeat the bytes, which are for nobody to read (R5).
    throw invalid('it gave back something that is not a transaction')
  }
}

function textOf(value: unknown) {
  if (value === undefined || value === '0x') return '0'
  if (Array.isArray(value)) return value.length === 0 ? '0' : `${value.length} entries`
  return String(value).toLowerCase()
}

const invalid = (why: string) =>
  new UsageError(
    'signer_answer',
    `the remote signer's answer cannot be used: ${why}`,
    'check executor.signer in gateway.json: its url and its address',
  )
