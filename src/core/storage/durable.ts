import type { FileHandle, Files } from '#ports'
import { errorCode, failedForGood } from './failures.js'

export const joinPath = (folder: string, name: string) => `${folder}/${name}`

export const hexOf = (bytes: Uint8Array): string =>
  Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')

/** No progress, unlike a short count, is an error (robustness §2, Append). */
export async function writeAll(handle: FileHandle, bytes: Uint8Array) {
  let offset = 0
  while (offset < bytes.length) {
    const written = await handle.write(bytes, offset, bytes.length - offset)
    if (written <= 0)
      throw Object.assign(new Error('the disk accepted no bytes'), { code: 'ENOSPC' })
    offset += written
  }
}

/** Syncs every folder above it too: an earlier try may have made them and died before its sync. */
export async function makeDurableDir(files: Files, folder: string) {
  await files.makeDir(folder)
  for (let path = folder; parentOf(path) !== path; path = parentOf(path)) {
    try {
      await files.syncDir(parentOf(path))
    } catch (error) {
      // What we may not even open for reading we did not make, and nothing above it either.
      if (!['EACCES', 'EPERM'].includes(errorCode(error) ?? '')) throw error
      return
    }
  }
}

function parentOf(path: string) {
  const end = Math.max(path.lastIndexOf('/'), path.lastIndexOf('\\'))
  if (end < 0) return '.'
  return end === 0 ? '/' : path.slice(0, end)
}

/** The one routine that makes a whole new file (robustness §2, New file). */
export async function publishFile(
  files: Files,
  folder: string,
  name: string,
  fill: (handle: FileHandle) => Promise<void>,
) {
  await fillTemporary(files, folder, name, fill)
  await putInForce(files, folder, name)
}

export const publishText = (files: Files, folder: string, name: string, text: string) =>
  publishFile(files, folder, name, (handle) => writeAll(handle, new TextEncoder().encode(text)))

/** Never over another: a link, unlike a rename, replaces nothing (EEXIST). `part` is its own. */
export async function publishNew(
  files: Files,
  folder: string,
  name: string,
  part: string,
  text: string,
) {
  const own = `${name}.${part}`
  await fillTemporary(files, folder, own, (handle) =>
    writeAll(handle, new TextEncoder().encode(text)),
  )
  const temporary = joinPath(folder, `${own}.tmp`)
  try {
    await files.link(temporary, joinPath(folder, name))
  } finally {
    await files.remove(temporary)
    await files.syncDir(folder)
  }
}

/** A failed sync leaves open which file a restart will see: never "try again". */
export async function putInForce(files: Files, folder: string, name: string) {
  await files.rename(joinPath(folder, `${name}.tmp`), joinPath(folder, name))
  try {
    await files.syncDir(folder)
  } catch (cause) {
    throw failedForGood(`${folder} could not be synced`, cause)
  }
}

/** `<name>.tmp`, whole and durable but not yet in force. */
export async function fillTemporary(
  files: Files,
  folder: string,
  name: string,
  fill: (handle: FileHandle) => Promise<void>,
) {
  const temporary = joinPath(folder, `${name}.tmp`)
  await removeIfThere(files, temporary)
  const handle = await files.open(temporary, 'exclusive')
  try {
    await fill(handle)
    await handle.datasync()
  } catch (error) {
    try {
      await handle.close()
      await files.remove(temporary)
    } catch (cause) {
      throw failedForGood(`${temporary} could not be removed`, cause)
    }
    throw error
  }
  await handle.close()
}

export async function withFile<T>(
  files: Files,
  path: string,
  mode: 'read' | 'append' | 'exclusive',
  job: (handle: FileHandle) => Promise<T>,
): Promise<T> {
  const handle = await files.open(path, mode)
  try {
    return await job(handle)
  } finally {
    await handle.close()
  }
}

export const sizeOf = (files: Files, path: string) =>
  withFile(files, path, 'read', (handle) => handle.size())

export async function ifThere<T>(call: Promise<T>): Promise<T | undefined> {
  try {
    return await call
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return undefined
    throw error
  }
}

export const removeIfThere = (files: Files, path: string) => ifThere(files.remove(path))

export const namesIn = async (files: Files, folder: string) =>
  (await ifThere(files.list(folder))) ?? []

export async function copyRange(source: FileHandle, target: FileHandle, from: number, to: number) {
  for (let offset = from; offset < to; ) {
    const bytes = await source.read(offset, Math.min(1024 * 1024, to - offset))
    if (bytes.length === 0) throw new Error('the file became shorter while it was copied')
    await writeAll(target, bytes)
    offset += bytes.length
  }
}
