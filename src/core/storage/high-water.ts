/**
 * A small file that names a record of the log: a log that was cut between two lines, or put back
 * from an older copy, is sound in itself. Missing, old or torn it refuses nothing: stores of
 * earlier versions open.
 */
import type { Files, Hash } from '#ports'
import { ifThere, joinPath, publishText } from './durable.js'
import { onlyLine, singleLine } from './line.js'

/** Number and checksum of a last line. */
export interface LogEnd {
  readonly sequence: number
  readonly check: string
}

export const highWaterName = 'HIGHWATER'
const kind = 'highwater'

export async function readHighWater(
  files: Files,
  hash: Hash,
  folder: string,
): Promise<LogEnd | 'unreadable' | undefined> {
  const bytes = await ifThere(files.read(joinPath(folder, highWaterName)))
  if (bytes === undefined) return undefined
  const line = onlyLine(hash, bytes)
  return line?.kind === kind ? { sequence: line.sequence, check: line.previous } : 'unreadable'
}

export async function publishHighWater(
  files: Files,
  hash: Hash,
  folder: string,
  { sequence, check: previous }: LogEnd,
  timeMs: number,
) {
  const { text } = singleLine(hash, { previous, sequence, timeMs }, { kind, data: {} })
  await publishText(files, folder, highWaterName, text)
}

/** A mark of the log's own at the end (`beforeMark`) is written again by each start. */
export function lossBefore(
  mark: LogEnd | 'unreadable' | undefined,
  end: LogEnd & { readonly beforeMark: LogEnd | undefined },
) {
  if (mark === undefined || mark === 'unreadable' || mark.sequence < end.sequence) return undefined
  const lost = mark.sequence - end.sequence
  if (lost > 0)
    return `the log ends here with line ${end.sequence}, ${highWaterName} names line ${mark.sequence}; lines lost: ${lost}`
  return mark.check === end.check || end.beforeMark !== undefined
    ? undefined
    : `line ${end.sequence} is not the one that ${highWaterName} names: another log was placed here`
}
