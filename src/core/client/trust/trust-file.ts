/** trust.json (contract §7): its schema, and what is wrong with one that is not as it must be. */

import * as z from 'zod/mini'
import en from 'zod/v4/locales/en.js'
import { requesterKinds } from '../../chain/round.js'
import { lowercaseAddresses } from '../../protocol/address.js'
import { UsageError } from '../../protocol/errors.js'
import { keyBytes, type ReceiptKey } from '../../protocol/receipt.js'
import { Address, Bytes32 } from '../../protocol/schema.js'

const addresses = z.array(Address).check(z.minLength(1))

/** A public Ed25519 key (RFC 8037); times are Unix seconds. A private half is refused. */
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
  Object.entries(receipt_keys).map(([kid, { x, nbf, exp }]): ReceiptKey => ({ kid, x, nbf, exp }))

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
    /** How amounts of tokens that no profile knows are written. */
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

/**
 * A parsed trust.json, or UsageError `invalid_trust` naming the field. `where` is the file's name
 * for the message.
 */
export function parseTrust(json: unknown, where: string): Trust {
  const lower = lowercaseAddresses(json, (path, address) => {
    throw new UsageError(
      'invalid_trust',
      `${where}: ${path}: ${address} has a wrong checksum (EIP-55)`,
      { hint: 'a character is mistyped: copy the address again' },
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
    {
      hint: 'create one with `proposer trust init`',
    },
  )
}
