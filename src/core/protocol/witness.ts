/** What a question round fixes is hashed once (spec §2.8, EIP-712, domain §3). */
import type { Hex } from '#ports'
import { keccak } from './keccak.js'
import { pick } from './pick.js'
import type { Address, TypedData } from './schema.js'

export const witnessTypes = {
  PermitWitnessTransferFrom: [
    { name: 'permitted', type: 'TokenPermissions' },
    { name: 'spender', type: 'address' },
    { name: 'nonce', type: 'uint256' },
    { name: 'deadline', type: 'uint256' },
    { name: 'witness', type: 'Proposal' },
  ],
  TokenPermissions: [
    { name: 'token', type: 'address' },
    { name: 'amount', type: 'uint256' },
  ],
  Proposal: [
    { name: 'oracle', type: 'address' },
    { name: 'requester', type: 'address' },
    { name: 'identifier', type: 'bytes32' },
    { name: 'timestamp', type: 'uint256' },
    { name: 'ancillaryData', type: 'bytes' },
    { name: 'proposedPrice', type: 'int256' },
    { name: 'maxPayment', type: 'uint256' },
  ],
} as const

/**
 * Without it viem leaves a string chainId out of the domain and hashes something else (domain
 * §3.1).
 */
export const domainType = {
  EIP712Domain: [
    { name: 'name', type: 'string' },
    { name: 'chainId', type: 'uint256' },
    { name: 'verifyingContract', type: 'address' },
  ],
} as const

export const primaryType = 'PermitWitnessTransferFrom'

const ascii = (text: string) => new TextEncoder().encode(text)
type TypeName = keyof typeof witnessTypes | keyof typeof domainType
const members = { ...witnessTypes, ...domainType } as Record<
  TypeName,
  readonly { name: string; type: string }[]
>
const encodeType = (name: TypeName) =>
  `${name}(${members[name].map((m) => `${m.type} ${m.name}`).join(',')})`
const referenced = encodeType('Proposal') + encodeType('TokenPermissions')

/** What SignedProposer hands to Permit2 (domain §3.1). */
export const witnessTypeString = `Proposal witness)${referenced}`
/** Its own text, then those of the types it names (EIP-712). */
export const encodedTypes = {
  domain: encodeType('EIP712Domain'),
  proposal: encodeType('Proposal'),
  tokenPermissions: encodeType('TokenPermissions'),
  permitWitnessTransferFrom: encodeType('PermitWitnessTransferFrom') + referenced,
} as const

/**
 * Written down (domain §3.1): a process that signs once would spend a good part of its time on
 * them.
 */
export const typeHashes = {
  domain: '0x8cad95687ba82c2ce50e74f7b754645e5117c3a5bec8151c0726d5857980a866',
  proposal: '0x702cf402d93cf51c1c9fda929565b0e4035fe70986e45548a1f9b5521261e674',
  tokenPermissions: '0x618358ac3db8dc274f0cd8829da7e234bd48cd73c4a740aede1adec9846d06a1',
  permitWitnessTransferFrom: '0xd1410b63bd7fcbf7c29ae1bf695d974321b234d415213fb29dbe80fbe6731a43',
} as const satisfies Record<keyof typeof encodedTypes, Hex>
export const proposalTypeHash: Hex = typeHashes.proposal

export function toHex(bytes: Uint8Array) {
  const codes = new Uint8Array(2 + bytes.length * 2)
  codes[0] = 0x30
  codes[1] = 0x78
  for (let at = 0; at < bytes.length; at += 1) {
    const byte = bytes[at] ?? 0
    codes[2 + 2 * at] = digitCodes[byte >> 4] ?? 0
    codes[3 + 2 * at] = digitCodes[byte & 15] ?? 0
  }
  return decoder.decode(codes) as Hex
}
const decoder = new TextDecoder()
const digitCodes = ascii('0123456789abcdef')

/** Else it throws: a silent repair would hash other bytes (domain §3.1). */
export function fromHex(hex: string) {
  const bytes = new Uint8Array(Math.max(0, (hex.length - 2) >> 1))
  if (!hex.startsWith('0x') || hex.length % 2 !== 0 || !writeHex(bytes, 0, hex))
    throw new RangeError('not lowercase even-length hex')
  return bytes
}

const noDigit = 16
/** Texts of questions are long. */
const digitValues = new Uint8Array(128).fill(noDigit)
for (const [value, code] of digitCodes.entries()) digitValues[code] = value

function writeHex(target: Uint8Array, offset: number, hex: string) {
  let seen = 0
  for (let at = 2, to = offset; at < hex.length; at += 2, to += 1) {
    const high = digitValues[hex.charCodeAt(at)] ?? noDigit
    const low = digitValues[hex.charCodeAt(at + 1)] ?? noDigit
    seen |= high | low
    target[to] = (high << 4) | low
  }
  return seen < noDigit
}

function words(count: number, typeHash: Hex): Uint8Array {
  const target = new Uint8Array(count * 32)
  writeHex(target, 0, typeHash)
  return target
}
const writeAddress = (target: Uint8Array, word: number, address: string) =>
  writeHex(target, word * 32 + 12, address)
const writeUint = (target: Uint8Array, word: number, value: bigint) =>
  writeHex(target, word * 32, `0x${value.toString(16).padStart(64, '0')}`)

/** Permit2's has no version and no salt (EIP-712, domain §3.1). */
export function domainSeparator(chainId: number, permit2: Address): Uint8Array {
  const domain = words(4, typeHashes.domain)
  domain.set(keccak(ascii('Permit2')), 32)
  writeUint(domain, 2, BigInt(chainId))
  writeAddress(domain, 3, permit2)
  return keccak(domain)
}

export interface WitnessRequest {
  readonly oracle: Address
  readonly requester: Address
  readonly identifier: Hex
  readonly timestamp: string
  readonly ancillaryData: Hex
  readonly ancillaryHash?: Hex
}

export interface WitnessDomain {
  readonly chainId: number
  readonly permit2: Address
  readonly signedProposer: Address
}

/** Decimal strings: `price` in oracle fixed point, `amount` raw, `deadline` in Unix seconds. */
export interface WitnessTerms {
  readonly price: string
  readonly amount: string
  readonly nonce: string
  readonly deadline: string
}

export interface WitnessRound {
  readonly ancillaryHash: Hex
  /** What EIP-712 signs; a fresh array. */
  digest(terms: WitnessTerms): Uint8Array
}

/** `maxPayment` is 0 (§2.1). */
export function witnessRound(
  domain: WitnessDomain,
  request: WitnessRequest,
  token: Address,
  maxPayment = 0n,
): WitnessRound {
  const ancillaryHash = request.ancillaryHash ?? toHex(keccak(fromHex(request.ancillaryData)))
  const proposal = words(8, typeHashes.proposal)
  writeAddress(proposal, 1, request.oracle)
  writeAddress(proposal, 2, request.requester)
  writeHex(proposal, 3 * 32, request.identifier)
  writeUint(proposal, 4, BigInt(request.timestamp))
  writeHex(proposal, 5 * 32, ancillaryHash)
  writeUint(proposal, 7, maxPayment)
  const permitted = words(3, typeHashes.tokenPermissions)
  writeAddress(permitted, 1, token)
  const permit = words(6, typeHashes.permitWitnessTransferFrom)
  writeAddress(permit, 2, domain.signedProposer)
  const envelope = new Uint8Array(66)
  envelope.set([0x19, 0x01], 0)
  envelope.set(domainSeparator(domain.chainId, domain.permit2), 2)

  const witnessHashes = new Map<string, Uint8Array>()
  const witnessHash = (price: string) => {
    const known = witnessHashes.get(price)
    if (known) return known
    // An int256; the vectors hold the whole range.
    writeUint(proposal, 6, BigInt.asUintN(256, BigInt(price)))
    const made = keccak(proposal)
    if (witnessHashes.size < 8) witnessHashes.set(price, made)
    return made
  }

  return {
    ancillaryHash,
    digest({ price, amount, nonce, deadline }) {
      writeUint(permitted, 2, BigInt(amount))
      permit.set(keccak(permitted), 32)
      writeUint(permit, 3, BigInt(nonce))
      writeUint(permit, 4, BigInt(deadline))
      permit.set(witnessHash(price), 5 * 32)
      envelope.set(keccak(permit), 34)
      return keccak(envelope)
    },
  }
}

/** Integers as decimal strings, `domain.chainId` too (§2.4, contract §3). */
export function typedData(
  domain: WitnessDomain,
  request: WitnessRequest,
  token: Address,
  terms: WitnessTerms,
): TypedData {
  return {
    domain: { name: 'Permit2', chainId: String(domain.chainId), verifyingContract: domain.permit2 },
    types: wireTypes(true),
    primaryType,
    message: {
      permitted: { token, amount: terms.amount },
      spender: domain.signedProposer,
      nonce: terms.nonce,
      deadline: terms.deadline,
      witness: {
        ...pick(request, 'oracle', 'requester', 'identifier', 'timestamp', 'ancillaryData'),
        proposedPrice: terms.price,
        maxPayment: '0',
      },
    },
  }
}

export function wireTypes(withDomain: boolean): Record<string, { name: string; type: string }[]> {
  const chosen = withDomain ? { ...domainType, ...witnessTypes } : witnessTypes
  return Object.fromEntries(
    Object.entries(chosen).map(([name, list]) => [name, list.map((member) => ({ ...member }))]),
  )
}
