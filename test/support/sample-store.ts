import { systemHash } from '#io/clock'
import { StorageError } from '#protocol/errors'
import { openLog } from '#storage/log'
import { openLogReader } from '#storage/reader'
import type { NewRecord, StoredRecord } from '#storage/record-log'
import { SimClock, SimFiles } from './sim-files.js'

export const folder = '/data/store'
export const options = {
  format: { name: 'store', version: 1 },
  knownKinds: (kind: string) => kind === 'item',
} as const
export const idOf = (record: StoredRecord | NewRecord): number => (record.data as { id: number }).id

export const openSample = (
  sim: SimFiles,
  more: Partial<Parameters<typeof openLog>[2]> = {},
  onRecord: (record: StoredRecord) => void = () => undefined,
) =>
  openLog(
    { files: sim.process(), clock: new SimClock(), hash: systemHash },
    folder,
    { ...options, ...more },
    onRecord,
  )

export async function sample(compacted: boolean): Promise<Map<string, Uint8Array>> {
  const sim = new SimFiles()
  const log = await openSample(sim, { segmentBytes: 700 })
  const add = (from: number, to: number) =>
    log.append(
      Array.from({ length: to - from }, (_, index) => ({
        kind: 'item',
        data: { id: from + index, fill: 'y'.repeat(40) },
      })),
    )
  await add(1, 4)
  await add(4, 8)
  if (compacted) {
    const kept: NewRecord[] = []
    for await (const record of log.scan()) kept.push({ kind: record.kind, data: record.data })
    await log.compact(
      () => kept,
      () => undefined,
    )
  }
  await add(8, 9)
  await add(9, 11)
  await add(11, 12)
  return sim.contents()
}

const fingerprint = (contents: ReadonlyMap<string, Uint8Array>): string =>
  [...contents].map(([path, bytes]) => `${path} ${systemHash.sha256(bytes)}`).join()

export async function openCopy(
  contents: ReadonlyMap<string, Uint8Array>,
): Promise<number[] | StorageError> {
  const sim = SimFiles.of(contents)
  const found: number[] = []
  try {
    const log = await openSample(sim, {}, (record) => found.push(idOf(record)))
    await log.close()
    return found
  } catch (error) {
    if (!(error instanceof StorageError)) throw error
    expect(fingerprint(sim.contents()), 'R11: a refusal changes nothing').toBe(
      fingerprint(contents),
    )
    return error
  }
}

export async function recordsOf(sim: SimFiles): Promise<number[]> {
  const reader = await openLogReader({ files: sim.process(), hash: systemHash }, folder, options)
  const found: number[] = []
  await reader.replay((record) => found.push(idOf(record)))
  await reader.close()
  return found
}
