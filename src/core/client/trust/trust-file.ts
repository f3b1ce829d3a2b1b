/** trust.json (contract §7). */

import * as z from 'zod/mini'
import en from 'zod/v4/locales/en.js'
import { builtInProfile } from '#chain/profiles'
import { requesterKinds } from '#chain/round'
import { lowercaseAddresses } from '#protocol/address'
import { instant } from '#protocol/candidate'
import { UsageError } from '#protocol/errors'
import { keyBytes } from '#protocol/receipt'
import { Address, Bytes32 } from '#protocol/schema'
import { zeroAddress } from '#protocol/words'

const addresses = z.array(Address).check(z.minLength(1))

/** RFC 8037; Unix seconds. Strict: a private half is refused. */
const ReceiptJwk = z.strictObject({
  kty: z.literal('OKP'),
  crv: z.literal('Ed25519'),
  x: z.string().check(z.refine((text) => keyBytes(text) !== undefined)),
  kid: z.optional(z.string()),
  use: z.optional(z.literal('sig')),
  alg: z.optional(z.enum(['EdDSA', 'Ed25519'])),
  nbf: z.optional(z.int()),
  exp: z.optional(z.int()),
})

export const receiptKeysOf = ({ receipt_keys = {} }: Pick<Trust, 'receipt_keys'>) =>
  Object.entries(receipt_keys).map(([kid, { x, nbf, exp }]) => ({ kid, x, nbf, exp }))

export const Trust = z
  .strictObject({
    chain_id: z.int().check(z.minimum(1)),
    permit2: Address,
    signed_proposer: Address,
    oracles: addresses,
    requesters: z
      .array(z.strictObject({ address: Address, kind: z.enum(requesterKinds) }))
      .check(z.minLength(1)),
    tokens: addresses,
    slugs: z._default(z.record(z.string(), Bytes32), {}),
    token_info: z.optional(
      z.record(
        Address,
        z.strictObject({
          symbol: z.string().check(z.regex(/^[\x21-\x7e]{1,32}$/)),
          decimals: z.int().check(z.minimum(0), z.maximum(255)),
        }),
      ),
    ),
    implementations: z.optional(
      z.record(Address, z.strictObject({ implementation: Address, code_hash: Bytes32 })),
    ),
    receipt_keys: z.optional(
      z.record(z.string().check(z.regex(/^[\x21-\x7e]{1,200}$/)), ReceiptJwk),
    ),
  })
  .register(z.globalRegistry, { id: 'Trust' })
export type Trust = z.infer<typeof Trust>

export function parseTrust(json: unknown, where: string): Trust {
  const lower = lowercaseAddresses(json, (path, address) => {
    throw new UsageError(
      'invalid_trust',
      `${where}: ${path}: ${address} has a wrong checksum (EIP-55)`,
      'a character is mistyped: copy the address again',
    )
  })
  const parsed = Trust.safeParse(lower, { error: en().localeError })
  if (parsed.success) return parsed.data
  const [issue] = parsed.error.issues
  const field = issue?.path.map(String).join('.') || 'the whole'
  throw new UsageError(
    'invalid_trust',
    `${where}: ${field} is not as a trust file must have it (${issue?.message ?? 'malformed'})`,
    'create one with `proposer trust init`',
  )
}

/** Where both pin one thing the later word holds; pins of another chain replace all. */
export function mergePins(current: Trust, more: Trust) {
  const [before, after] = [new Map(pinWords(current)), new Map(pinWords(more))]
  const isOther = current.chain_id !== more.chain_id
  const changed = isOther ? [`chain_id: ${current.chain_id} becomes ${more.chain_id}`] : []
  const added: string[] = []
  for (const [name, says] of after) {
    const was = before.get(name)
    if (was === undefined) added.push(name)
    // A key that ends is a narrower pin; one that ends no more, or is another, is a change.
    else if (says.startsWith(`${was} until `))
      added.push(`end of ${name}: ${says.slice(`${was} until `.length)}`)
    else if (was !== says) changed.push(`${name}: ${was} becomes ${says}`)
  }
  if (isOther) {
    const dropped = [...before.keys()].filter((name) => !after.has(name))
    changed.push(...dropped.map((name) => `${name} is dropped`))
    return { trust: more, changed, added }
  }
  const both = <T>(ones: readonly T[], others: readonly T[]) => [...new Set([...ones, ...others])]
  const records = (['slugs', 'token_info', 'receipt_keys', 'implementations'] as const).filter(
    (field) => (current[field] ?? more[field]) !== undefined,
  )
  const requesters = [...current.requesters, ...more.requesters]
  const trust: Trust = {
    ...current,
    ...more,
    oracles: both(current.oracles, more.oracles),
    tokens: both(current.tokens, more.tokens),
    requesters: [...new Map(requesters.map((one) => [one.address, one])).values()],
    ...Object.fromEntries(
      records.map((field) => [field, { ...current[field], ...more[field] }] as const),
    ),
  }
  return { trust, changed, added }
}

export function pinWords(trust: ProfilePins): readonly (readonly [name: string, says: string])[] {
  const { token_info = {}, implementations = {}, receipt_keys = {} } = trust
  const each = <T>(label: string, ones: Readonly<Record<string, T>>, says: (one: T) => string) =>
    Object.entries(ones).map(([subject, one]) => [`${label} ${subject}`, says(one)] as const)
  return [
    ['permit2', trust.permit2],
    ['signed_proposer', trust.signed_proposer ?? 'missing: no public source lists it'],
    ...trust.oracles.map((address) => [`oracle ${address}`, ''] as const),
    ...trust.requesters.map(({ address, kind }) => [`requester ${address}`, kind] as const),
    ...trust.tokens.map((address) => [`token ${address}`, ''] as const),
    ...each('token_info', token_info, (one) => `${one.symbol} with ${one.decimals} decimals`),
    ...each(
      'implementation of',
      implementations,
      (one) => `${one.implementation} with code hash ${one.code_hash}`,
    ),
    ...each('receipt key', receipt_keys, ({ x, exp }) =>
      exp === undefined ? x : `${x} until ${instant(exp * 1_000)}`,
    ),
    ...each('slug', trust.slugs, (id) => id),
  ]
}

export type ProfilePins = Omit<Trust, 'signed_proposer'> & {
  readonly signed_proposer: Address | null
}

export function profilePins(name: string): ProfilePins | undefined {
  const profile = builtInProfile(name)
  if (profile === undefined) return undefined
  return {
    chain_id: profile.chainId,
    permit2: profile.permit2,
    signed_proposer: profile.signedProposer ?? null,
    oracles: [...profile.oracles],
    requesters: [...profile.requesters],
    tokens: [...profile.tokens],
    slugs: {},
  }
}

/** `signedProposer` has to agree with the profile where that knows one. */
export function wholePins(name: string, pins: ProfilePins, signedProposer?: Address) {
  if (signedProposer === zeroAddress)
    throw new UsageError(
      'bad_address',
      '--signed-proposer is not a contract address',
      'give it as 0x and 40 hex digits, not all zero',
    )
  const known = pins.signed_proposer
  if (known !== null && signedProposer !== undefined && signedProposer !== known)
    throw new UsageError(
      'untrusted_signed_proposer',
      `--signed-proposer is ${signedProposer}, the profile ${name} has ${known}`,
      'leave it out, or pin other contracts under another profile name with `proposer trust init --from <file>`',
    )
  const signed_proposer = signedProposer ?? known
  if (signed_proposer === null)
    throw new UsageError(
      'signed_proposer_needed',
      `the profile ${name} pins every contract but signed_proposer, which no public source names`,
      `ask the operator for it, compare it with an independent source, then run \`proposer trust init --profile ${name} --signed-proposer 0x…\``,
    )
  return { ...pins, signed_proposer }
}
