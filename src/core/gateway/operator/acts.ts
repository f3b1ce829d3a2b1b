/**
 * What an operator may do to a store, as it goes to the admin listener and to a store that nothing
 * holds alike (contract §6).
 */
import * as z from 'zod'
import { Bytes32, NonzeroAddress, Uuid } from '../../protocol/schema.js'

const reason = z.string().trim().min(1).max(500).default('by operator')
/** So many wallets are taken in one act. */
export const mostAddresses = 10_000
const addresses = z.array(NonzeroAddress).min(1).max(mostAddresses)

/**
 * Bodies by the name of the act, which is the path below `/operator/` too. Entries of questions are
 * those of questions.json.
 */
export const actBodies = {
  allow: z.strictObject({ addresses, reason }),
  disallow: z.strictObject({ addresses, reason }),
  pause: z.strictObject({ reason }),
  resume: z.strictObject({ reason }),
  'questions/add': z.strictObject({ entries: z.array(z.unknown()).min(1).max(20_000), reason }),
  'questions/remove': z.strictObject({ question_id: Bytes32, reason }),
  'candidates/reject': z.strictObject({ candidate_id: Uuid, reason }),
  'store/compact': z.strictObject({ reason }),
} as const
/** What only a gateway on a shared store takes: it gives up its lease. */
export const leaderResignName = 'leader/resign'
/** The body of that call. */
export const LeaderResignBody = z.strictObject({ reason })

export type ActName = keyof typeof actBodies
export type ActBody<Name extends ActName> = z.infer<(typeof actBodies)[Name]>

export const isActName = (name: string): name is ActName => Object.hasOwn(actBodies, name)

/**
 * What an act came to. `changed` and `unchanged` name what it was about; what was as asked for
 * before is reported and not written.
 */
export interface ActResult {
  readonly act: ActName
  readonly changed: readonly string[]
  readonly unchanged: readonly string[]
  readonly reason: string
  /** What follows from it, a sentence each. */
  readonly notes: readonly string[]
  /** Of a compaction: what the files of the store take. */
  readonly bytes?: { readonly before: number; readonly after: number }
}
