import { z } from 'zod'

const Address = z.string().regex(/^0x[0-9a-f]{40}$/)
const Uint = z.string().regex(/^(0|[1-9][0-9]{0,77})$/)
const Signature = z.string().regex(/^0x([0-9a-f]{2}){1,8192}$/)

/** A v1 request. */
export const Single = z.strictObject({
  version: z.strictObject({
    api: z.literal('v1'),
    schema: z.literal('signed-proposal-v1'),
    witness: z.literal('permit2-signed-proposer-v1'),
  }),
  proposer: Address,
  outcome: z.enum(['p1', 'p2', 'p3']),
  max_payment: z.literal('0'),
  permit: z.strictObject({ amount: Uint, nonce: Uint, deadline: Uint }),
  signature: Signature,
})

const Item = z.strictObject({
  identifier: z.string(),
  client_ref: z.string().max(256).optional(),
  proposer: Address,
  proposed_price: Uint,
  max_payment: z.literal('0'),
  permit: z.strictObject({ amount: Uint, nonce: Uint, deadline: z.int() }),
  signature: Signature,
})

/** A batch request. */
export const Batch = z.strictObject({ proposals: z.array(Item).min(1).max(100) })
