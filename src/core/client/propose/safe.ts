/**
 * Owners of a Safe sign in turn, perhaps on several machines (contract §9). It is asked about the
 * whole before that is journaled.
 */
import * as z from 'zod/mini'
import {
  combined,
  ownerForm,
  ownerOf,
  readSafe,
  requireKeys,
  type SafeFacts,
  type SafePart,
  safeMessage,
} from '#chain/safe'
import { onChain } from '#chain/unavailable'
import type { Chain, Hex, ShownRow, Signer } from '#ports'
import { PendingError, UsageError } from '#protocol/errors'
import { outcomeOf } from '#protocol/proposal'
import { Address, Bytes32, Uint256 } from '#protocol/schema'
import { nextOwner, type Offer } from '../journal/authorizations.js'
import type { Journal } from '../journal/journal.js'
import type { Trust } from '../trust/trust.js'

export interface SafeSigning {
  readonly safe: Address
  readonly owner?: (() => Promise<Signer>) | undefined
  /** Whom `owner` must be. */
  readonly as?: Address | undefined
  readonly given?: SafePartsFile | undefined
  readonly collected?: ((parts: SafePartsFile) => void) | undefined
}

export interface CollectParts {
  readonly journal: Journal
  readonly note?: ((text: string) => void) | undefined
  readonly trust: Trust
  readonly chain?: Chain | undefined
}

const positive = z.int().check(z.minimum(1))
const part = z.object({ owner: Address, signature: z.string() })

/** It holds signatures (R5). */
const PartsFile = z.object({
  schema: z.optional(z.literal('proposer.safe-parts/1')),
  digest: Bytes32,
  safe: Address,
  threshold: positive,
  signatures: z.array(part).check(z.maxLength(1_000)),
  chain_id: positive,
  question_id: Bytes32,
  identifier: z.string(),
  outcome: z.enum(['p1', 'p2', 'p3']),
  amount: Uint256,
  nonce: Uint256,
  deadline: Uint256,
})
export type SafePartsFile = z.infer<typeof PartsFile>

export function parseParts(
  json: unknown,
  from: string,
  wanted: { readonly safe: Address; readonly chainId: number },
) {
  const { data, error } = PartsFile.safeParse(json)
  if (!data) {
    const at = error.issues[0]?.path.join('.') || 'it'
    throw new UsageError(
      'invalid_parts',
      `${from} holds no parts of a Safe: ${at} is wrong`,
      'give the file that `proposer sign` wrote with --safe and -o',
    )
  }
  const { safe, chain_id: chainId } = data
  if (safe !== wanted.safe)
    throw new UsageError(
      'other_safe',
      `${from} is of Safe ${safe}, not ${wanted.safe}`,
      'give --safe as the file has it, if that is yours',
    )
  if (chainId !== wanted.chainId)
    throw new UsageError(
      'other_chain',
      `${from} is of a Safe on chain ${chainId}; the trust file pins chain ${wanted.chainId}`,
      'choose the --profile or --trust of that chain',
    )
  return data
}

export function safeItself(address: Address): Signer {
  const refuse = async () => {
    throw new Error('a Safe was asked for a signature of its own')
  }
  return { address, signDigest: refuse, signTypedData: refuse }
}

export function requireSameDocument({ given }: SafeSigning, digest: Hex) {
  if (!given || given.digest === digest) return
  throw new UsageError(
    'payload_changed',
    `the parts are signatures of ${given.digest}; what is built here has digest ${digest}`,
    'compare question, answer and pins with the owner who sent the file; sign nothing until they agree',
  )
}

/** Each part is checked and durable before it counts. Exit 8 says how many are missing. */
export async function collectParts(
  { journal, trust, chain, note }: CollectParts,
  signing: SafeSigning,
  offer: Offer,
  shown: readonly ShownRow[],
) {
  if (!chain)
    throw new UsageError(
      'no_rpc_url',
      'owners and threshold of a Safe are read from the chain',
      'give --rpc-url <url>, or set PROPOSER_RPC_URL',
    )
  const { digest } = offer.offered
  requireSameDocument(signing, digest)
  const facts = await onChain(() => readSafe(chain, trust.chain_id, signing.safe))
  const { safe, threshold, owners } = facts
  requireKeys(facts, signing.as)
  const parts = new Map<Address, SafePart>()
  for (const { owner, signature } of offer.parts) {
    if (owners.includes(owner)) parts.set(owner, { owner, signature })
    else note?.(`${owner} is no longer an owner of the Safe; its signature does not count`)
  }
  const known = parts.size
  const add = (given: string) => {
    const signature = ownerForm(given) ?? (given as Hex)
    const owner = ownerOf(facts, digest, signature)
    if (!parts.has(owner)) parts.set(owner, { owner, signature })
    return owner
  }
  for (const { signature } of signing.given?.signatures ?? []) add(signature)
  const signer = await signing.owner?.()
  if (signer) {
    const owner = ownerOfKey(signer, signing, facts)
    if (parts.has(owner)) note?.(`${owner} has signed already`)
    else {
      const { document, hash } = safeMessage(facts, digest)
      const who = `owner ${owner} of a Safe, ${threshold} of ${owners.length}`
      const rows = [...shown, ['signs as', who] as const]
      const by = add(await (signer.signTypedData?.(document, rows) ?? signer.signDigest(hash)))
      if (by !== owner)
        throw new UsageError(
          'bad_signature',
          `the signature is of owner ${by}, not of ${owner}`,
          'check which account the wallet signs with',
        )
    }
  }
  const signatures = [...parts.values()]
  const fresh = signatures.slice(known).map((part) => ({ id: offer.id, ...part }))
  if (fresh.length > 0) await journal.append(fresh.map((data) => ({ kind: 'safe.part', data })))
  if (signatures.length === 0)
    throw new UsageError(
      'owner_needed',
      `no owner of Safe ${safe} has signed`,
      'add --as-owner to sign as an owner, or --parts <file> with what owners have signed',
    )
  const { chainId: chain_id, questionId: question_id, identifier, terms } = offer.offered
  const { price, amount, nonce, deadline } = terms
  signing.collected?.({
    schema: 'proposer.safe-parts/1',
    ...{ digest, safe, threshold, signatures, chain_id, question_id, identifier },
    ...{ outcome: outcomeOf(price) ?? 'p3', amount, nonce, deadline },
  })
  if (signatures.length >= threshold) return combined(signatures, threshold)
  const left = owners.filter((one) => !parts.has(one) && !facts.contracts.includes(one))
  const hint = `run \`${nextOwner(offer.offered)}\` with the next owner's key; on another machine give it the file of -o with --parts`
  throw new PendingError(
    'safe_below_threshold',
    `${signatures.length} of ${threshold} owners of Safe ${safe} have signed (${[...parts.keys()].join(', ')}); still to sign: ${threshold - signatures.length} of ${left.join(', ')}`,
    { hint, retryable: true },
  )
}

function ownerOfKey({ address: owner }: Signer, { as }: SafeSigning, facts: SafeFacts) {
  if (as && owner !== as)
    throw new UsageError(
      'wrong_signer',
      `the key is for ${owner}, --as-owner names ${as}`,
      'choose the key of that owner (--account, --signer, --browser), or omit the address',
    )
  requireKeys(facts, owner)
  if (facts.owners.includes(owner)) return owner
  throw new UsageError(
    'not_an_owner',
    `${owner} is not an owner of Safe ${facts.safe}`,
    `its owners are ${facts.owners.join(', ')}`,
  )
}
