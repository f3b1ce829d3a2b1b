import { chmod, mkdir, readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { holdFolder } from '#host/held-store'
import { systemClock, systemHash, systemRandom } from '#io/clock'
import { createClosers } from '#io/closers'
import { blockingFiles, requireLocalDisk, systemFiles } from '#io/files'
import { systemLiveness } from '#io/liveness'
import { systemPorts } from '#io/system'
import type { Machine } from '#ports'
import { acquireLock, readHolder } from '#storage/lock'
import { openLog } from '#storage/log'
import { temporaryFolder } from '#support/folders'
import { options } from '#support/sample-store'

const base = temporaryFolder()

const bytes = (text: string) => new TextEncoder().encode(text)
const text = (data: Uint8Array) => new TextDecoder().decode(data)

test.each([systemFiles, blockingFiles])(
  'robustness §8: the real file verbs do what the simulated ones promise',
  async (files) => {
    const folder = join(base, files === systemFiles ? 'a' : 'b', 'c')
    const path = join(folder, 'file')
    await expect(files.open(path, 'append')).rejects.toMatchObject({ code: 'ENOENT' })
    await files.makeDir(folder)
    await files.makeDir(folder)
    await expect(files.open(path, 'read')).rejects.toMatchObject({ code: 'ENOENT' })
    expect(await files.exists(path)).toBe(false)
    const first = await files.open(path, 'exclusive')
    await expect(files.open(path, 'exclusive')).rejects.toMatchObject({ code: 'EEXIST' })
    expect(await first.write(bytes('xhellox'), 1, 5)).toBe(5)
    const second = await files.open(path, 'append')
    await second.write(bytes(' world'), 0, 6)
    await second.datasync()
    expect(await first.size()).toBe(11)
    await first.truncate(8)
    expect(text(await second.read(6, 100))).toBe('wo')
    expect((await second.read(8, 10)).length).toBe(0)
    await second.write(bytes('!'), 0, 1)
    expect(text(await files.read(path))).toBe('hello wo!')
    await first.close()
    await second.close()
    await files.link(path, `${path}.2`)
    await expect(files.link(path, `${path}.2`)).rejects.toMatchObject({ code: 'EEXIST' })
    await files.rename(`${path}.2`, `${path}.3`)
    await files.syncDir(folder)
    expect((await files.list(folder)).sort()).toEqual(['file', 'file.3'])
    await files.remove(path)
    await expect(files.remove(path)).rejects.toMatchObject({ code: 'ENOENT' })
    expect(await files.exists(`${path}.3`)).toBe(true)
  },
)

test.each([systemFiles, blockingFiles])(
  "a handle that was closed touches nothing: its number may be another file's by then",
  async (files) => {
    const folder = join(base, files === systemFiles ? 'closed' : 'blocking')
    await files.makeDir(folder)
    const first = await files.open(join(folder, 'first'), 'exclusive')
    const syncing = first.datasync()
    await Promise.all([first.close(), first.close()])
    await syncing
    const second = await files.open(join(folder, 'second'), 'exclusive')
    for (const use of [
      first.write(bytes('lost'), 0, 4),
      first.truncate(0),
      first.datasync(),
      first.size(),
      first.read(0, 1),
    ]) {
      await expect(use).rejects.toMatchObject({ code: 'EBADF' })
    }
    await first.close()
    expect(await second.write(bytes('kept'), 0, 4)).toBe(4)
    await second.close()
    expect(text(await files.read(join(folder, 'second')))).toBe('kept')
  },
)

test('robustness §2: a folder is made with its parents, is fine where it is there, and fails at once where it cannot be made', async () => {
  const folder = join(base, 'made', 'with', 'parents')
  await systemFiles.makeDir(folder)
  await Promise.all([
    systemFiles.makeDir(join(folder, 'x', 'y')),
    systemFiles.makeDir(join(folder, 'x', 'y')),
  ])
  expect((await stat(join(folder, 'x', 'y'))).mode & 0o777).toBe(0o700)
  await systemFiles.makeDir('/')
  await systemFiles.makeDir(`${folder}/`)
  const file = join(folder, 'file')
  await (await systemFiles.open(file, 'exclusive')).close()
  await expect(systemFiles.makeDir(file)).rejects.toMatchObject({ code: 'EEXIST' })
  await expect(systemFiles.makeDir(join(file, 'below'))).rejects.toMatchObject({ code: 'ENOTDIR' })
  // Every mkdir under /proc is ENOENT although the parent is there.
  if (process.platform === 'linux')
    await expect(systemFiles.makeDir('/proc/x/y')).rejects.toMatchObject({ code: 'ENOENT' })
})

test('robustness §2, Lock: a socket is alive while somebody listens, dead afterwards and where there never was one', async () => {
  const liveness = systemLiveness()
  const path = join(base, 's.1')
  expect(await liveness.probe(path)).toBe('dead')
  const listener = await liveness.listen(path)
  expect(await liveness.probe(path)).toBe('alive')
  await expect(liveness.listen(path)).rejects.toMatchObject({ code: 'EADDRINUSE' })
  await listener.close()
  expect(await liveness.probe(path)).toBe('dead')
  expect(await liveness.probe(join(base, 'missing'.repeat(30), 's.1'))).toBe('dead')
  expect(liveness.bootId).not.toBe('')
})

test('R13: a sleep ends early, with the reason, when it is aborted', async () => {
  const stop = new AbortController()
  const sleeping = systemClock.sleep(3_600_000, stop.signal)
  stop.abort(new Error('enough'))
  await expect(sleeping).rejects.toThrow('enough')
  await expect(systemClock.sleep(3_600_000, stop.signal)).rejects.toThrow('enough')
  await systemClock.sleep(0, new AbortController().signal)
})

test('robustness §2: a local folder that does not exist yet is judged by its nearest parent', async () => {
  await requireLocalDisk(join(base, 'not', 'there', 'yet'))
  await requireLocalDisk('/')
})

test('FIPS 180-4: the hash is SHA-256 in lowercase hex, of bytes and of UTF-8 text alike', () => {
  expect(systemHash.sha256('abc')).toBe(
    'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad',
  )
  expect(systemHash.sha256('é')).toBe(systemHash.sha256(bytes('é')))
  expect(systemRandom.bytes(31)).toHaveLength(31)
  expect(systemRandom.uuid()).toMatch(
    /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/,
  )
})

test('D7: a store that others can change is told of at the start', async () => {
  const folder = join(base, 'open-store')
  await systemFiles.makeDir(folder)
  const machine = systemPorts() as Machine
  const settings = async () =>
    ({
      chainId: 1,
      genesisHash: `0x${'1'.repeat(64)}`,
      allowlist: [],
      admissionEnabled: true,
    }) as const
  const told: string[] = []
  const onWarning = (code: string) => told.push(code)
  for (const mode of [0o777, 0o700]) {
    await chmod(folder, mode)
    const closers = createClosers()
    const options = { signer: undefined, onObservation: () => undefined, onWarning, settings }
    await holdFolder(machine, folder, options, closers)
    await closers.close()
  }
  expect(told).toEqual(['store_writable'])
})

const ports = systemPorts()

test('R12: a folder whose name is too long for a socket is locked all the same, or refused with a hint', async () => {
  const folder = join(base, 'deep'.repeat(30), 'deeper'.repeat(20))
  await mkdir(folder, { recursive: true })
  if (process.platform !== 'linux') {
    await expect(acquireLock(ports, folder, '')).rejects.toMatchObject({ code: 'path_too_long' })
    return
  }
  const lock = await acquireLock(ports, folder, 'long')
  await expect(acquireLock(ports, folder, '')).rejects.toMatchObject({ code: 'store_locked' })
  await lock.release()
  expect(await readHolder(ports, folder)).toMatchObject({ state: 'free' })
  expect((await readdir(folder)).sort()).toEqual(['LOCK.1', 'LOCK.1.free'])
})

test('R5: files of the store are 0600, its folder 0700', async () => {
  if (process.platform === 'win32') return
  const folder = join(base, 'parents', 'private')
  const lock = await acquireLock(ports, folder, '')
  const log = await openLog(ports, folder, options, () => undefined)
  await log.append([{ kind: 'item', data: { id: 1 } }])
  await log.close()
  await lock.release()
  const names = await readdir(folder)
  expect(names).toContain('MANIFEST')
  const modeOf = async (path: string) => ((await stat(path)).mode & 0o777).toString(8)
  for (const path of [folder, join(base, 'parents')]) expect(await modeOf(path)).toBe('700')
  for (const name of names) expect(await modeOf(join(folder, name))).toBe('600')
})
