/** Who may read a file or folder. */
import { chmod, stat } from 'node:fs/promises'

/**
 * The permission bits, such as 0o600; `undefined` where there is no such file, or on Windows, which
 * has none.
 */
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

/**
 * Lets those read a file that the umask lets read files: for reports, which others are to collect.
 */
export async function readableByUmask(path: string): Promise<void> {
  await chmod(path, 0o666 & ~process.umask())
}
