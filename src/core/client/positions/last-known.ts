/** What the chain last told of this journal's proposals, for whoever asks no node (contract §9). */
import * as z from 'zod/mini'
import type { Files } from '#ports'
import { jsonOf } from '#protocol/capped'
import { joinPath, makeDurableDir, publishText } from '#storage/durable'
import { errorCode } from '#storage/failures'

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

interface Place {
  readonly files: Files
  readonly home: string
}

const folderIn = ({ home }: Place) => joinPath(home, 'positions')
const fileName = 'last.json'

export async function keepLastPositions(
  place: Place,
  asOf: string,
  positions: readonly (Omit<LastPosition, 'journal_id' | 'as_of'> & {
    journal_id: string | null
  })[],
  onNote: (text: string) => void,
) {
  const folder = folderIn(place)
  const rows = new Map(await lastPositions(place, onNote))
  for (const one of positions)
    if (one.journal_id !== null) rows.set(one.journal_id, Row.parse({ ...one, as_of: asOf }))
  try {
    await makeDurableDir(place.files, folder)
    const kept = JSON.stringify({ format: 1, positions: [...rows.values()] })
    await publishText(place.files, folder, fileName, kept)
  } catch (error) {
    onNote(
      `${folder} cannot be written (${errorCode(error) ?? 'failed'}): \`proposer journal list\` does not know these positions`,
    )
  }
}

export async function lastPositions(
  place: Place,
  onNote: (text: string) => void,
): Promise<LastPositions> {
  const path = joinPath(folderIn(place), fileName)
  if (!(await place.files.exists(path))) return new Map()
  const parsed = Kept.safeParse(jsonOf(new TextDecoder().decode(await place.files.read(path))))
  if (!parsed.success)
    onNote(
      `${path} is damaged: what became of proposals is not known until \`proposer positions\` asks a node`,
    )
  return new Map(parsed.data?.positions.map((one) => [one.journal_id, one]))
}

export const isContestedState = (state: LastPosition['state']) =>
  state === 'disputed' || state === 'voting'
