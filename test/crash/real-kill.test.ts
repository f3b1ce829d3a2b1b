import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, readdir, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { build } from 'esbuild'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { systemClock, systemHash, systemRandom } from '#io/clock'
import { systemFiles } from '#io/files'
import { systemLiveness } from '#io/liveness'
import { acquireLock, readHolder } from '#storage/lock'
import { openLog } from '#storage/log'
import { openLogReader } from '#storage/reader'
import { seeded } from '#support/sim-files'

const ports = {
  files: systemFiles,
  liveness: systemLiveness(),
  random: systemRandom,
  clock: systemClock,
  hash: systemHash,
}
const options = {
  format: { name: 'store', version: 1 },
  knownKinds: (kind: string) => kind === 'item',
  segmentBytes: 20_000,
} as const

let base = ''
let program = ''
const children = new Set<ChildProcess>()

beforeAll(async () => {
  base = await mkdtemp(join(tmpdir(), 'real-kill-'))
  program = join(base, 'child.mjs')
  const entry = new URL('../support/storage-child.ts', import.meta.url).pathname
  await build({
    entryPoints: [entry],
    bundle: true,
    platform: 'node',
    format: 'esm',
    outfile: program,
    logLevel: 'error',
  })
})

afterAll(async () => {
  for (const child of children) child.kill('SIGKILL')
  await rm(base, { recursive: true, force: true })
})

function start(folder: string, mode: 'append' | 'hold') {
  const child = spawn(process.execPath, [program, folder, mode], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  children.add(child)
  const lines: string[] = []
  let rest = ''
  let wake: () => void = () => undefined
  child.stdout.setEncoding('utf8')
  child.stdout.on('data', (text: string) => {
    const parts = (rest + text).split('\n')
    rest = parts.pop() ?? ''
    lines.push(...parts)
    wake()
  })
  const closed = once(child, 'close').then(() => {
    children.delete(child)
    wake()
  })
  return {
    child,
    lines,
    async until(wanted: (lines: readonly string[]) => boolean) {
      while (!wanted(lines)) {
        if (child.exitCode !== null || child.signalCode !== null)
          throw new Error('the child ended early')
        await new Promise<void>((resolve) => {
          wake = resolve
        })
      }
    },
    async end() {
      child.kill('SIGKILL')
      await closed
    },
  }
}

const ackedOf = (lines: readonly string[]) =>
  lines.filter((line) => line.startsWith('acked ')).map((line) => Number(line.slice(6)))

test('R1, R12, R23, T2: processes killed while they append and compact lose nothing they acknowledged', {
  timeout: 60_000,
}, async () => {
  const folder = join(base, 'killed')
  const random = seeded(20)
  const acked = new Set<number>()
  let compactions = 0
  for (let life = 0; life < 5; life++) {
    const run = start(folder, 'append')
    const enough = 20 + Math.floor(random() * 400)
    await run.until(
      (lines) => ackedOf(lines).length >= enough && (life < 4 || lines.includes('compacted')),
    )
    const before = ackedOf(run.lines)
    const reader = await openLogReader(ports, folder, options)
    const shown = new Set<number>()
    await reader.replay((record) => shown.add((record.data as { id: number }).id))
    await reader.close()
    expect(before.filter((id) => !shown.has(id))).toEqual([])
    await run.end()
    for (const id of ackedOf(run.lines)) acked.add(id)
    compactions += run.lines.filter((line) => line === 'compacted').length
  }
  const found: number[] = []
  const lock = await acquireLock(ports, folder, '')
  const log = await openLog(ports, folder, { ...options, fence: lock.fence }, (record) =>
    found.push((record.data as { id: number }).id),
  )
  await log.close()
  await lock.release()
  expect(lock.epoch).toBe(6)
  expect([...acked].filter((id) => !found.includes(id))).toEqual([])
  expect(found).toEqual([...new Set(found)].sort((a, b) => a - b))
  expect(acked.size).toBeGreaterThan(100)
  expect(compactions).toBeGreaterThan(0)
})

test('R12, T5: on real sockets the second process fails naming the holder, a stopped one is alive, a killed one is taken over', async () => {
  const folder = join(base, 'locked')
  const run = start(folder, 'hold')
  await run.until((lines) => lines.includes('held'))
  const named = {
    code: 'store_locked',
    detail: expect.stringContaining(`process ${run.child.pid} `),
  }
  await expect(acquireLock(ports, folder, '')).rejects.toMatchObject(named)
  run.child.kill('SIGSTOP')
  await expect(acquireLock(ports, folder, '')).rejects.toMatchObject(named)
  expect(await readHolder(ports, folder)).toMatchObject({
    epoch: 1,
    role: `child ${run.child.pid}`,
    state: 'alive',
  })
  await run.end()
  expect(await readHolder(ports, folder)).toMatchObject({ epoch: 1, state: 'dead' })
  const lock = await acquireLock(ports, folder, '')
  expect(lock.epoch).toBe(2)
  await lock.fence()
  await lock.release()
  expect((await readdir(folder)).filter((name) => name.startsWith('lock.'))).toEqual([])
})

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
  for (const path of [folder, join(base, 'parents')])
    expect(((await stat(path)).mode & 0o777).toString(8)).toBe('700')
  const names = await readdir(folder)
  expect(names).toContain('MANIFEST')
  for (const name of names)
    expect(((await stat(join(folder, name))).mode & 0o777).toString(8)).toBe('600')
})
