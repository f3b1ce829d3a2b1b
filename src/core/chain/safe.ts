/**
 * Safes as proposers (contract §9), of 1.3.0 or later with a fallback handler: `isValidSignature`
 * is for the SafeMessage of the 32 bytes (EIP-1271).
 */
import { domainSeparator, hashTypedData, keccak256, parseAbi, stringToHex } from 'viem'
import type { Chain, Hex } from '#ports'
import { UsageError } from '#protocol/errors'
import { splitSignature } from '#protocol/recovered'
import type { Address } from '#protocol/schema'
import { recoverSigner } from '#protocol/signature'
import { fromHex, toHex } from '#protocol/witness'
import { isSignature } from '#protocol/words'
import { latestBlock, lowercase, readContract, unlessRefused } from './reading.js'

const safeAbi = parseAbi([
  'function getOwners() view returns (address[])',
  'function getThreshold() view returns (uint256)',
  'function VERSION() view returns (string)',
  'function domainSeparator() view returns (bytes32)',
])

const handlerSlot = keccak256(stringToHex('fallback_manager.handler.address'))

export type SafeFacts = Readonly<Awaited<ReturnType<typeof readSafe>>>

const noSafe = (safe: Address, why: string, hint: string) =>
  new UsageError('not_a_safe', `${safe} cannot propose as a Safe: ${why}`, hint)

export async function readSafe(chain: Chain, chainId: number, safe: Address) {
  const { number } = await latestBlock(chain, 'chain')
  if ((await chain.code(safe, number)) === '0x')
    throw noSafe(
      safe,
      `there is no contract at it on chain ${chainId}`,
      'a Safe is on one chain: check its address, and that --rpc-url is of that chain',
    )
  const [owners, threshold, version, separator] = await Promise.all([
    unlessRefused(readContract(chain, number, safe, safeAbi, 'getOwners', [])),
    unlessRefused(readContract(chain, number, safe, safeAbi, 'getThreshold', [])),
    unlessRefused(readContract(chain, number, safe, safeAbi, 'VERSION', [])),
    unlessRefused(readContract(chain, number, safe, safeAbi, 'domainSeparator', [])),
  ])
  if (!owners?.length || threshold === undefined || version === undefined)
    throw noSafe(safe, 'the contract does not answer as a Safe does', 'check the address')
  const domain = { chainId: BigInt(chainId), verifyingContract: safe }
  if (separator !== domainSeparator({ domain }))
    throw noSafe(
      safe,
      `its signing domain is not that of chain ${chainId} (Safe ${version.slice(0, 20)})`,
      'Safes from version 1.3.0 on can propose',
    )
  if (BigInt(await chain.storage(safe, handlerSlot, number)) === 0n)
    throw noSafe(
      safe,
      'it has no fallback handler, so it answers no isValidSignature',
      'set the CompatibilityFallbackHandler in the Safe',
    )
  const codes = await Promise.all(owners.map((owner) => chain.code(lowercase(owner), number)))
  return {
    safe,
    chainId,
    version: version.slice(0, 20),
    owners: owners.map(lowercase),
    // An account with a key may have code set (EIP-7702).
    contracts: owners.map(lowercase).filter((_, at) => !/^0x($|ef0100)/.test(codes[at] ?? '0x')),
    threshold: Number(threshold),
  }
}

export function requireKeys(facts: SafeFacts, as?: Address) {
  const { safe, owners, contracts, threshold } = facts
  const hint = `take the digest of \`proposer sign <identifier> --outcome <answer> --safe ${safe} --typed-data\` to the Safe's own app, and attach the whole signature with --signature <hex>`
  if (as !== undefined && contracts.includes(as))
    throw new UsageError(
      'contract_owner',
      `owner ${as} of Safe ${safe} is a contract itself and has no key`,
      `sign as an owner with a key, or ${hint}`,
    )
  const keys = owners.length - contracts.length
  if (keys >= threshold) return
  throw new UsageError(
    'contract_owner',
    `Safe ${safe} wants ${threshold} owners to sign, and ${keys} of ${owners.length} have a key: ${contracts.join(', ')} ${contracts.length === 1 ? 'is a contract' : 'are contracts'}`,
    hint,
  )
}

const domainType = [
  { name: 'chainId', type: 'uint256' },
  { name: 'verifyingContract', type: 'address' },
] as const

export function safeMessage({ chainId, safe }: Pick<SafeFacts, 'chainId' | 'safe'>, digest: Hex) {
  const document = {
    // Some wallets leave a text out of the hash (domain §3.1).
    domain: { chainId, verifyingContract: safe },
    types: { EIP712Domain: domainType, SafeMessage: [{ name: 'message', type: 'bytes' }] },
    primaryType: 'SafeMessage',
    message: { message: digest },
  } as const
  const domain = { ...document.domain, chainId: BigInt(chainId) }
  return { document, hash: hashTypedData({ ...document, domain }) }
}

export interface SafePart {
  readonly owner: Address
  readonly signature: Hex
}

export function ownerForm(signature: string): Hex | undefined {
  const text = signature.trim().toLowerCase()
  const [, body, bit] = /^(0x[0-9a-f]{128})0([01])$/.exec(text) ?? []
  const written = body === undefined ? text : `${body}${bit === '0' ? '1b' : '1c'}`
  const split = isSignature(written) ? splitSignature(written) : undefined
  return split && `${toHex(split[0])}${split[1] === 0 ? '1b' : '1c'}`
}

export function ownerOf(facts: SafeFacts, digest: Hex, signature: Hex) {
  const why = faultOf(facts, digest, signature)
  if (typeof why !== 'string') return why.owner
  throw new UsageError(
    'bad_signature',
    `${why}; nothing was journaled as signed`,
    `owners of ${facts.safe}: ${facts.owners.join(', ')}`,
  )
}

function faultOf(facts: SafeFacts, digest: Hex, signature: Hex) {
  const { hash } = safeMessage(facts, digest)
  const signer = recoverSigner(fromHex(hash), signature)
  if (signer !== undefined && facts.owners.includes(signer)) return { owner: signer }
  const ofDigest = recoverSigner(fromHex(digest), signature)
  if (ofDigest !== undefined && facts.owners.includes(ofDigest))
    return `owner ${ofDigest} signed the bare digest; a Safe wants its SafeMessage signed`
  const contract = facts.contracts.find((owner) =>
    signature.startsWith(`0x${'0'.repeat(24)}${owner.slice(2)}`),
  )
  if (contract !== undefined)
    return `owner ${contract} is a contract; its signature is not one of a key`
  return signer === undefined
    ? 'a part is no signature of a key (65 bytes with v 27 or 28)'
    : `a part was made by ${signer}, which is not an owner of the Safe, or for other data`
}

/** As `checkNSignatures` wants them. */
export const combined = (parts: readonly SafePart[], threshold: number): Hex =>
  `0x${[...parts]
    .sort((a, b) => (a.owner < b.owner ? -1 : 1))
    .slice(0, threshold)
    .map(({ signature }) => signature.slice(2))
    .join('')}`

export function safeRefusal(facts: SafeFacts, digest: Hex, signature: Hex) {
  const digits = signature.slice(2)
  const parts = digits.match(/.{130}/g) ?? []
  if (digits.length % 130 !== 0 || parts.length < facts.threshold)
    return `${parts.length} of ${facts.threshold} owners have signed`
  const owners: Address[] = []
  for (const part of parts.slice(0, facts.threshold)) {
    const found = faultOf(facts, digest, `0x${part}`)
    if (typeof found === 'string') return found
    owners.push(found.owner)
  }
  if (new Set(owners).size < owners.length) return 'an owner has signed twice'
  const sorted = [...owners].sort()
  return sorted.some((owner, at) => owner !== owners[at])
    ? `the parts must be sorted by owner: ${sorted.join(', ')}`
    : undefined
}
