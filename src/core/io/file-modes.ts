import { chmod, stat } from 'node:fs/promises'

/** `undefined` where there is no such file, or on Windows, which has no permission bits. */
export async function permissionsOf(path: string): Promise<number | undefined> {
  if (process.platform === 'win32') return undefined
  try {
    return (await stat(path)).mode & 0o777
  } catch (error) {
    if (
      error instanceof Error &&
      'code' in error &&
      (error.code === 'ENOENT' || error.code === 'ENOTDIR')
    )
      return undefined
    throw error
  }
}

/** For reports, which others are to collect. */
export async function readableByUmask(path: string): Promise<void> {
  await chmod(path, 0o666 & ~process.umask())
}
