/** What the chain last told of this journal's proposals, for whoever asks no node (contract §9). */
import * as z from 'zod/mini'
import { type KeptPlace, readKeptFile, writeKeptFile } from '../logs/kept-file.js'

const text = z.nullable(z.string())
const Row = z.object({
  journal_id: z.string(),
  as_of: z.string(),
  wallet: z.string(),
  token: text,
  bond: text,
  final_fee: text,
  state: z.nullable(
    z.enum(['open', 'awaiting_settlement', 'disputed', 'voting', 'settled', 'deferred']),
  ),
  result: z.nullable(z.enum(['undisputed', 'won', 'lost'])),
  disputed_at: text,
  disputed_by: text,
  new_round: z.nullable(z.boolean()),
  settled_at: text,
  payout: text,
  reward: text,
})
export type LastPosition = z.infer<typeof Row>
export type LastPositions = ReadonlyMap<string, LastPosition>

const Kept = z.object({ format: z.literal(1), positions: z.array(Row) })
const file = ['positions', 'last.json'] as const

export async function lastPositions(place: KeptPlace) {
  const then = 'what became of proposals is not known until `proposer positions` asks a node'
  const kept = await readKeptFile(place, file, Kept, then)
  return new Map(kept?.positions.map((one) => [one.journal_id, one]))
}

/** Of rows of `positions` those that the journal knows. */
export async function keepLastPositions(
  place: KeptPlace,
  as_of: string,
  positions: readonly { readonly journal_id: string | null }[],
) {
  const rows = new Map(await lastPositions(place))
  for (const one of positions)
    if (one.journal_id !== null) rows.set(one.journal_id, Row.parse({ ...one, as_of }))
  const kept = { format: 1, positions: [...rows.values()] }
  await writeKeptFile(place, file, kept, '`proposer journal list` does not know these positions')
}

export const isContestedState = (state: LastPosition['state']) =>
  state === 'disputed' || state === 'voting'
