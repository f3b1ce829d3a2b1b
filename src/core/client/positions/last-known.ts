/** What the chain last told of this journal's proposals, for whoever asks no node (contract §9). */
import * as z from 'zod/mini'
import { Address } from '#protocol/fields'
import { type KeptPlace, readKeptFile, writeKeptFile } from '#storage/kept-file'

const text = z.nullable(z.string())
const address = z.nullable(Address)

const Row = z.object({
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
  journal_id: z.string(),
  as_of: z.string(),
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

/** Of those that the journal knows. */
export async function keepLastPositions(
  place: KeptPlace,
  as_of: string,
  positions: readonly (Omit<LastPosition, 'journal_id' | 'as_of'> & {
    readonly journal_id: string | null
  })[],
) {
  const rows = new Map(await lastPositions(place))
  for (const { journal_id, ...one } of positions)
    if (journal_id !== null) rows.set(journal_id, Row.parse({ ...one, journal_id, as_of }))
  const kept = { format: 1, positions: [...rows.values()] }
  await writeKeptFile(place, file, kept, '`proposer journal list` does not know these positions')
}

export const isContestedState = (state: LastPosition['state']) =>
  state === 'disputed' || state === 'voting'
