/** trust.json (contract §7): its schema, and what is wrong with one that is not as it must be. */

import * as z from 'zod/mini'
import en from 'zod/v4/locales/en.js'
import { builtInProfile } from '#chain/profiles'
import { requesterKinds } from '#chain/round'
import { lowercaseAddresses } from '#protocol/address'
import { instant } from '#protocol/candidate'
import { UsageError } from '#protocol/errors'
import { keyBytes } from '#protocol/receipt'
import { Address, Bytes32 } from '#protocol/schema'
import { isAddress, zeroAddress } from '#protocol/words'

const addresses = z.array(Address).check(z.minLength(1))

/** RFC 8037; times are Unix seconds. A private half is refused. */
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
    /** What code contracts run: a proxy may be given other code (contract §9). */
    implementations: z.optional(
      z.record(Address, z.strictObject({ implementation: Address, code_hash: Bytes32 })),
    ),
    /** Keys that a gateway signs its answers with, by their ids (contract §9). */
    receipt_keys: z.optional(
      z.record(z.string().check(z.regex(/^[\x21-\x7e]{1,200}$/)), ReceiptJwk),
    ),
  })
  .register(z.globalRegistry, { id: 'Trust' })
export type Trust = z.infer<typeof Trust>

/** `where` is the file's name for the message. */
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
  const issue = parsed.error.issues[0]
  const field =
    issue === undefined || issue.path.length === 0 ? 'the whole' : issue.path.map(String).join('.')
  throw new UsageError(
    'invalid_trust',
    `${where}: ${field} is not as a trust file must have it (${issue?.message ?? 'malformed'})`,
    'create one with `proposer trust init`',
  )
}

/**
 * Where both pin one thing the later word holds. Pins of another chain take the place of these.
 * `changed`: what now says something else, such as `signed_proposer: 0x1… becomes 0x2…`.
 */
export function mergePins(current: Trust, more: Trust) {
  const before = new Map(pinWords(current).map(([name, says]) => [name, says]))
  if (current.chain_id !== more.chain_id) {
    const chain = `chain_id: ${current.chain_id} becomes ${more.chain_id}`
    const dropped = linesOf([...before.keys()]).map((line) => `${line} is dropped`)
    const added = linesOf(pinWords(more).map(([name]) => name))
    return { trust: more, changed: [chain, ...dropped], added }
  }
  const [changed, added]: [string[], string[]] = [[], []]
  for (const [name, says] of pinWords(more)) {
    const was = before.get(name)
    if (was === undefined) added.push(name)
    // A key that ends is a narrower pin; one that ends no more, or is another, is a change.
    else if (says.startsWith(`${was} until `))
      added.push(`end of ${name}: ${says.slice(`${was} until `.length)}`)
    else if (was !== says) changed.push(`${name}: ${was} becomes ${says}`)
  }
  const both = <T>(ones: readonly T[], others: readonly T[]) => [...new Set([...ones, ...others])]
  const records = (['slugs', 'token_info', 'receipt_keys', 'implementations'] as const).filter(
    (field) => (current[field] ?? more[field]) !== undefined,
  )
  const kinds = new Map(
    [...current.requesters, ...more.requesters].map(({ address, kind }) => [address, kind]),
  )
  const trust: Trust = {
    ...current,
    ...more,
    oracles: both(current.oracles, more.oracles),
    tokens: both(current.tokens, more.tokens),
    requesters: [...kinds].map(([address, kind]) => ({ address, kind })),
    ...Object.fromEntries(
      records.map((field) => [field, { ...current[field], ...more[field] }] as const),
    ),
  }
  return { trust, changed, added }
}

/** What is pinned, by name, and what the pin says of it. */
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
    ...each('implementation of', implementations, (one) => {
      return `${one.implementation} with code hash ${one.code_hash}`
    }),
    ...each('receipt key', receipt_keys, ({ x, exp }) =>
      exp === undefined ? x : `${x} until ${instant(exp * 1_000)}`,
    ),
    ...each('slug', trust.slugs, (id) => id),
  ]
}

const linesOf = (names: readonly string[]) =>
  names.filter((name) => name !== 'permit2' && name !== 'signed_proposer')

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
    requesters: profile.requesters.map((requester) => ({ ...requester })),
    tokens: [...profile.tokens],
    slugs: {},
  }
}

/** `signedProposer` stands in where the profile knows none, and has to agree where it does. */
export function wholePins(name: string, pins: ProfilePins, signedProposer?: string): Trust {
  if (
    signedProposer !== undefined &&
    (!isAddress(signedProposer) || signedProposer === zeroAddress)
  ) {
    throw new UsageError(
      'bad_address',
      '--signed-proposer is not a contract address',
      'give it as 0x and 40 hex digits, not all zero',
    )
  }
  const known = pins.signed_proposer
  if (known !== null && signedProposer !== undefined && signedProposer !== known) {
    throw new UsageError(
      'untrusted_signed_proposer',
      `--signed-proposer is ${signedProposer}, the profile ${name} has ${known}`,
      'leave it out, or pin other contracts under another profile name with `proposer trust init --from <file>`',
    )
  }
  const signed_proposer = signedProposer ?? known
  if (signed_proposer === null) {
    throw new UsageError(
      'signed_proposer_needed',
      `the profile ${name} pins every contract but signed_proposer, which no public source names`,
      `ask the operator for it, compare it with an independent source, then run \`proposer trust init --profile ${name} --signed-proposer 0x…\``,
    )
  }
  return { ...pins, signed_proposer }
}
