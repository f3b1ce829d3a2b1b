/**
 * The last record of a shared log that a gateway has seen, in a file of its own machine: a database
 * that went back, by a failover or a restored backup, cannot know it. Written behind the log, once
 * a second.
 */
import * as z from 'zod/mini'
import type { Random } from '#ports'
import { StorageError } from '#protocol/errors'
import { fillTemporary, ifThere, joinPath, writeAll } from '../durable.js'
import { messageOf } from '../failures.js'
import { noCheck, onlyLine, singleLine } from '../line.js'
import type { LogPorts } from '../record-log.js'
import { acceptLoss, type SharedEnd } from './log-state.js'
import type { SharedLog } from './shared-log.js'

export interface SeenEnd extends SharedEnd {
  readonly storeId: string
}

export interface SeenFile {
  readonly folder: string
  readonly name: string
}

const kind = 'seen'
const Data = z.object({ storeId: z.string(), group: z.string() })
const everyMs = 1_000

/** A file that is not whole may have named what is lost. */
export async function readSeen(
  { files, hash }: Pick<LogPorts, 'files' | 'hash'>,
  { folder, name }: SeenFile,
): Promise<SeenEnd | undefined> {
  const path = joinPath(folder, name)
  const bytes = await ifThere(files.read(path))
  if (bytes === undefined) return undefined
  const line = onlyLine(hash, bytes)
  const parsed = Data.safeParse(line?.data)
  if (line?.kind === kind && parsed.success) return { ...parsed.data, n: line.sequence }
  throw new StorageError(
    'store_damaged',
    `${path} is not whole`,
    `it names the last record that this machine has seen: check that the database holds all, then ${acceptLoss}`,
  )
}

/** At once when the log fails, too. */
export async function keepSeen(
  ports: LogPorts & { readonly random: Pick<Random, 'uuid'> },
  file: SeenFile,
  { log, storeId }: { log: SharedLog; storeId: string },
  onNote: (text: string) => void,
) {
  const { clock } = ports
  // Gateways of one machine may share the file: each writes a temporary of its own.
  const temporary = `${file.name}.${ports.random.uuid()}`
  let written = 0
  const write = async () => {
    const { end } = log
    if (end === undefined || end.n === written) return
    await publishSeen(ports, file, temporary, { ...end, storeId })
    written = end.n
  }
  await write()
  const stopping = new AbortController()
  log.onFailure(() => stopping.abort())
  const loop = (async () => {
    let noted: string | undefined
    for (;;) {
      const isLast = stopping.signal.aborted
      try {
        await write()
        noted = undefined
      } catch (error) {
        const reason = messageOf(error)
        if (reason !== noted)
          onNote(`${joinPath(file.folder, file.name)} cannot be written: ${reason}`)
        noted = reason
      }
      if (isLast) return
      await clock.sleep(everyMs, stopping.signal).catch(() => undefined)
    }
  })()
  return {
    async stop() {
      stopping.abort()
      await loop
    },
  }
}

async function publishSeen(
  { files, hash, clock }: LogPorts,
  { folder, name }: SeenFile,
  temporary: string,
  { storeId, n, group }: SeenEnd,
) {
  const place = { previous: noCheck, sequence: n, timeMs: Math.trunc(clock.nowMs()) }
  const { text } = singleLine(hash, place, { kind, data: { storeId, group } })
  const bytes = new TextEncoder().encode(text)
  await fillTemporary(files, folder, temporary, (handle) => writeAll(handle, bytes))
  await files.rename(joinPath(folder, `${temporary}.tmp`), joinPath(folder, name))
  await files.syncDir(folder)
}
