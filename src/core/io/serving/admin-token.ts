import { createHmac } from 'node:crypto'
import type { Stats } from 'node:fs'
import { basename, dirname } from 'node:path'
import type { Files, Random } from '#ports'
import { StorageError } from '#protocol/errors'
import { hexOf, publishNew } from '#storage/durable'
import { errorCode } from '#storage/failures'
import { atOnce, readNamed } from '../files.js'

const tokenBytes = 32

export const tokenProof = (token: string, port: number, nonce: string) =>
  createHmac('sha256', token).update(`admin listener ${port} ${nonce}`).digest('hex')

export const proofPath = '/operator/proof/'

/** Gateways of one shared store may start at once: the first one's token is everybody's. */
export async function ensureAdminToken(
  ports: { readonly files: Files; readonly random: Random },
  path: string,
) {
  if (!(await ports.files.exists(path))) {
    const { files, random } = ports
    const text = `${hexOf(random.bytes(tokenBytes))}\n`
    try {
      await publishNew(files, dirname(path), basename(path), hexOf(random.bytes(8)), text)
    } catch (error) {
      if (errorCode(error) !== 'EEXIST') throw error
    }
  }
  return readAdminToken(path)
}

const renewed = 'remove the file and restart the gateway, which creates a new one'

export async function readAdminToken(path: string) {
  const unusable = (what: string, hint: string, cause?: unknown) =>
    new StorageError('admin_token_unusable', `${path} ${what}`, { hint, cause })
  const check = (stat: Stats) => {
    if (!stat.isFile())
      throw unusable('is not a file', 'remove it and restart the gateway, which creates a new one')
    if (process.platform !== 'win32' && (stat.mode & 0o077) !== 0)
      throw unusable(
        `may be read by others (mode ${(stat.mode & 0o777).toString(8)})`,
        `others may know it: ${renewed}`,
      )
  }
  const bytes = await readNamed(path, 255, check, atOnce).catch((error: unknown) => {
    const code = errorCode(error)
    if (error instanceof StorageError || code === undefined) throw error
    throw code === 'ENOENT'
      ? unusable('is missing', 'restart the gateway, which creates a new one', error)
      : unusable(
          `cannot be read (${code})`,
          'run the command as the user who runs the gateway',
          error,
        )
  })
  const token = /^([0-9a-f]{64})\r?\n?$/.exec(new TextDecoder().decode(bytes))?.[1]
  if (token === undefined) throw unusable('holds no token of 64 hex digits', renewed)
  return token
}
