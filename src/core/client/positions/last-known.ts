/** What the chain last told of this journal's proposals, for whoever asks no node (contract §9). */
import * as z from 'zod/mini'
import { Address, Bytes32 } from '#protocol/fields'
import { type KeptPlace, readKeptFile, writeKeptFile } from '../logs/kept-file.js'

const text = z.nullable(z.string())
const address = z.nullable(Address)

const Standing = z.object({
  wallet: Address,
  token: address,
  bond: text,
  final_fee: text,
  state: z.nullable(
    z.enum(['open', 'awaiting_settlement', 'disputed', 'voting', 'settled', 'deferred']),
  ),
  result: z.nullable(z.enum(['undisputed', 'won', 'lost'])),
  disputed_at: text,
  disputed_by: address,
  new_round: z.nullable(z.boolean()),
  settled_at: text,
  payout: text,
  reward: text,
})

/** Amounts in raw units, `_at` in RFC 3339, other times in Unix seconds. Null: not known, or none. */
export const Position = z.extend(Standing, {
  question_id: z.nullable(Bytes32),
  slug: text,
  title: text,
  outcome: text,
  label: text,
  price: text,
  late: z.boolean(),
  executed_at: text,
  disputable_until: text,
  transaction_hash: z.nullable(Bytes32),
  event_index: z.nullable(z.int()),
  round_timestamp: text,
  requester: address,
  oracle: address,
  journal_id: text,
  url: text,
})
export type Position = z.infer<typeof Position>

const Row = z.extend(Standing, { journal_id: z.string(), as_of: z.string() })
export type LastPosition = z.infer<typeof Row>
export type LastPositions = ReadonlyMap<string, LastPosition>

const Kept = z.object({ format: z.literal(1), positions: z.array(Row) })
const file = ['positions', 'last.json'] as const

export async function lastPositions(place: KeptPlace) {
  const then = 'what became of proposals is not known until `proposer positions` asks a node'
  const kept = await readKeptFile(place, file, Kept, then)
  return new Map(kept?.positions.map((one) => [one.journal_id, one]))
}

/** Of those that the journal knows. */
export async function keepLastPositions(
  place: KeptPlace,
  as_of: string,
  positions: readonly Position[],
) {
  const rows = new Map(await lastPositions(place))
  for (const { journal_id, ...one } of positions)
    if (journal_id !== null) rows.set(journal_id, Row.parse({ ...one, journal_id, as_of }))
  const kept = { format: 1, positions: [...rows.values()] }
  await writeKeptFile(place, file, kept, '`proposer journal list` does not know these positions')
}

export const isContestedState = (state: LastPosition['state']) =>
  state === 'disputed' || state === 'voting'
