import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { access, open, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { temporaryFolder } from '../folders.js'

export interface SmallDisk {
  readonly folder: string
  fill(leaveBytes: number): Promise<void>
  free(): Promise<void>
  close(): Promise<void>
}

/**
 * A tmpfs of `bytes`, mounted in a namespace of a process that keeps it and reached through /proc,
 * so that no rights are needed where the kernel lets users have namespaces. Where it does not: the
 * reason, as a text.
 */
export async function openSmallDisk(bytes: number): Promise<SmallDisk | string> {
  const place = temporaryFolder()
  const inside = 'mount -t tmpfs -o size="$1",mode=700 none "$0" && echo mounted && read -r _'
  const keeper = spawn(
    'sh',
    ['-c', 'exec unshare -Urm sh -c "$@"', 'sh', inside, place, String(bytes)],
    {
      stdio: ['pipe', 'pipe', 'pipe'],
    },
  )
  let complaint = ''
  keeper.stderr.setEncoding('utf8').on('data', (text: string) => {
    complaint += text
  })
  const isMounted = await new Promise<boolean>((resolve) => {
    keeper.once('error', (error) => {
      complaint = error.message
      resolve(false)
    })
    keeper.once('close', () => resolve(false))
    keeper.stdout.once('data', () => resolve(true))
  })
  const close = async () => {
    if (keeper.exitCode === null && keeper.pid !== undefined) {
      const ended = once(keeper, 'close')
      keeper.stdin.end()
      await ended
    }
  }
  const folder = `/proc/${keeper.pid}/root${place}`
  const isReached =
    isMounted &&
    (await access(folder).then(
      () => true,
      () => false,
    ))
  if (!isReached) {
    await close()
    return isMounted ? 'the namespace cannot be reached' : complaint.trim()
  }
  const ballast = join(folder, 'ballast')
  return {
    folder,
    async fill(leaveBytes) {
      const handle = await open(ballast, 'w')
      let size = 0
      try {
        for (;;) size += (await handle.write(new Uint8Array(4096))).bytesWritten
      } catch (error) {
        if (!(error instanceof Error && 'code' in error && error.code === 'ENOSPC')) throw error
      }
      await handle.truncate(Math.max(0, size - leaveBytes))
      await handle.close()
    },
    free: () => writeFile(ballast, ''),
    close,
  }
}
