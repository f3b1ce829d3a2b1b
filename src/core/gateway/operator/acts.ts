import * as z from 'zod'
import { Bytes32, NonzeroAddress, Uuid } from '#protocol/schema'

export const defaultReason = 'by operator'

/** Both in words; a default reason says nothing beside a name. Outside text is not escaped. */
export function saidWords(reason: string, by: string | null | undefined) {
  if (by === null || by === undefined) return reason
  return reason === defaultReason ? `by ${by}` : `${reason} (by ${by})`
}
const said = {
  reason: z.string().trim().min(1).max(500).default(defaultReason),
  by: z.string().trim().min(1).max(100).optional(),
}
export const mostAddresses = 10_000
const addresses = z.array(NonzeroAddress).min(1).max(mostAddresses)
const Wallets = z.strictObject({ addresses, ...said })
const Said = z.strictObject(said)

export const actBodies = {
  allow: Wallets,
  disallow: Wallets,
  pause: Said,
  resume: Said,
  'questions/add': z.strictObject({ entries: z.array(z.unknown()).min(1).max(20_000), ...said }),
  'questions/remove': z.strictObject({ question_id: Bytes32, ...said }),
  'candidates/reject': z.strictObject({ candidate_id: Uuid, ...said }),
  'store/compact': Said,
  'trust/repin': Said,
  'receipts/rotate': z.strictObject({
    kid: z.string().regex(/^[A-Za-z0-9_-]{43}$/),
    x: z.string().regex(/^[A-Za-z0-9_-]{43}$/),
    overlap_seconds: z.int().min(0).max(31_536_000),
    ...said,
  }),
} as const

export type ActName = keyof typeof actBodies
export type ActBody<Name extends ActName> = z.infer<(typeof actBodies)[Name]>

export const isActName = (name: string): name is ActName => Object.hasOwn(actBodies, name)

export const ActResult = z.object({
  act: z.custom<ActName>((name) => typeof name === 'string' && isActName(name)),
  changed: z.array(z.string()).readonly(),
  unchanged: z.array(z.string()).readonly(),
  reason: z.string(),
  by: z.string().optional(),
  notes: z.array(z.string()).readonly(),
  bytes: z.object({ before: z.number(), after: z.number() }).optional(),
})
export type ActResult = z.infer<typeof ActResult>
