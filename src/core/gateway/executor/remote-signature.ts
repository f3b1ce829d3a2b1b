/**
 * What a remote signer of the executor gave back, before it is stored: the very transaction that it
 * was asked to sign, signed by the executor, or nothing (EIP-1559, EIP-2).
 */
import { keccak256, parseTransaction, serializeTransaction, type TransactionSerialized } from 'viem'
import type { Hex, UnsignedTransaction } from '../../ports.js'
import { UsageError } from '../../protocol/errors.js'
import { recoverSigner } from '../../protocol/signature.js'
import { fromHex } from '../../protocol/witness.js'

/** As `serializeTransaction` takes it. */
export type WholeTransaction = UnsignedTransaction & {
  readonly type: 'eip1559'
  readonly value: 0n
  readonly accessList: readonly []
}

/** The parts of 65 bytes r‖s‖v, v 27 or 28. */
export const splitSignature = (signature: Hex) => ({
  r: `0x${signature.slice(2, 66)}` as const,
  s: `0x${signature.slice(66, 130)}` as const,
  yParity: signature.endsWith('1c') ? 1 : 0,
})

/** Nodes take no higher s (EIP-2). */
const highestS = 0x7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0n

/** In the order in which they are compared. */
const fields = [
  'type',
  'chainId',
  'nonce',
  'to',
  'value',
  'data',
  'gas',
  'maxFeePerGas',
  'maxPriorityFeePerGas',
  'accessList',
] as const

/**
 * The signature, 65 bytes, of `asked` by `address` in signed bytes from outside. UsageError
 * `signer_answer` names what is wrong: no transaction, a changed field, another account.
 */
export function signatureIn(answer: string, asked: WholeTransaction, address: Hex): Hex {
  const signed = parsed(answer)
  const changed = fields.find((field) => textOf(signed.all[field]) !== textOf(asked[field]))
  if (changed !== undefined) throw invalid(`it changed ${changed} of the transaction`)
  const { r, s, yParity } = signed.signature
  if (r === undefined || s === undefined || yParity === undefined)
    throw invalid('the transaction is not signed')
  if (BigInt(s) > highestS) throw invalid('its signature has a high s, which no node takes')
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
    const found = parseTransaction(answer as TransactionSerialized)
    return { all: found as Readonly<Record<string, unknown>>, signature: found }
  } catch {
    // The parser's own words repeat the bytes, which are for nobody to read (R5).
    throw invalid('it gave back something that is not a transaction')
  }
}

/** Comparable. What RLP leaves out is absent. */
function textOf(value: unknown): string {
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
