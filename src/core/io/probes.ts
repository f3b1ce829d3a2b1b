import { constants } from 'node:fs'
import { access, lstat, stat, statfs } from 'node:fs/promises'
import { createServer } from 'node:net'
import { dirname, join, resolve } from 'node:path'
import { errorCode } from '#storage/failures'

const unusable = (path: string, code: string) => ({ kind: 'unusable', path, code }) as const

type FolderState = { readonly kind: 'there' | 'new' } | ReturnType<typeof unusable>

export async function probeFolder(
  folder: string,
  list: (path: string) => Promise<readonly string[]>,
): Promise<FolderState> {
  const path = resolve(folder)
  const all = constants.R_OK | constants.W_OK | constants.X_OK
  try {
    if (!(await stat(path)).isDirectory()) return unusable(path, 'ENOTDIR')
    const fault = await refusedAccess(path, all)
    if (fault !== undefined) return unusable(path, fault)
    for (const name of await list(path)) {
      const file = join(path, name)
      if (!(await lstat(file).catch(() => undefined))?.isFile()) continue
      const refused = await refusedAccess(file, constants.R_OK | constants.W_OK)
      if (refused !== undefined && refused !== 'ENOENT') return unusable(file, refused)
    }
    return { kind: 'there' }
  } catch (error) {
    if (codeOf(error) !== 'ENOENT') return unusable(path, codeOf(error))
  }
  return newFolder(path)
}

async function newFolder(path: string): Promise<FolderState> {
  const parent = dirname(path)
  try {
    if (!(await stat(parent)).isDirectory()) return unusable(parent, 'ENOTDIR')
    const refused = await refusedAccess(parent, constants.W_OK | constants.X_OK)
    return refused === undefined ? { kind: 'new' } : unusable(parent, refused)
  } catch (error) {
    if (codeOf(error) === 'ENOENT' && dirname(parent) !== parent) return newFolder(parent)
    return unusable(parent, codeOf(error))
  }
}

export async function freeBytes(folder: string): Promise<number | undefined> {
  try {
    const { bavail, bsize } = await statfs(folder)
    return bavail * bsize
  } catch (error) {
    const parent = dirname(resolve(folder))
    return codeOf(error) === 'ENOENT' && parent !== resolve(folder) ? freeBytes(parent) : undefined
  }
}

async function refusedAccess(path: string, mode: number) {
  try {
    await access(path, mode)
    return undefined
  } catch (error) {
    return codeOf(error)
  }
}

export function probePort(host: string, port: number) {
  const server = createServer()
  return new Promise((tell) => {
    server.once('error', (error) => tell(codeOf(error)))
    server.listen({ host, port, exclusive: true }, () => server.close(() => tell(undefined)))
  })
}

const codeOf = (error: unknown) => errorCode(error) ?? 'unknown'
