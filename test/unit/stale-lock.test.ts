import { utimes } from 'node:fs/promises'
import { join } from 'node:path'
import { systemRandom } from '#io/clock'
import { systemFiles } from '#io/files'
import { systemLiveness } from '#io/liveness'
import { acquireLock } from '#storage/lock'
import { temporaryFolder } from '#support/folders'

test('R12, R13: a lock is judged by who listens, never by its age', async () => {
  const base = temporaryFolder()
  const liveness = systemLiveness()
  const listeners: { close(): Promise<void> }[] = []
  const mortal = {
    ...liveness,
    async listen(path: string) {
      const listener = await liveness.listen(path)
      listeners.push(listener)
      return listener
    },
  }
  const ports = { files: systemFiles, random: systemRandom, liveness: mortal }
  onTestFinished(async () => {
    for (const listener of listeners) await listener.close().catch(() => undefined)
  })
  const old = join(base, 'old')
  const held = await acquireLock(ports, old, 'the first')
  const longAgo = new Date(Date.now() - 365 * 86_400_000)
  await utimes(join(old, 'LOCK.1'), longAgo, longAgo)
  await expect(acquireLock(ports, old, 'the second')).rejects.toMatchObject({
    code: 'store_locked',
  })
  await held.release()

  const fresh = join(base, 'fresh')
  await acquireLock(ports, fresh, 'the first')
  await listeners.at(-1)?.close()
  expect((await acquireLock(ports, fresh, 'the second')).epoch).toBe(2)
})
