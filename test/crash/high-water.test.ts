import { readFile, rename, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { foldLedger, openLedger, storeLog } from '#gateway/ledger/writer'
import { systemHash } from '#io/clock'
import type { StorageError } from '#protocol/errors'
import { openLog } from '#storage/log'
import { publishHighWater } from '#storage/manifest'
import { inspectLog, openLogReader } from '#storage/reader'
import type { RecordLog } from '#storage/record-log'
import { fakeContext, run } from '#support/cli'
import { temporaryFolder } from '#support/folders'
import { folder, openCopy, options } from '#support/sample-store'
import { SimClock, SimFiles } from '#support/sim-files'

const highWater = `${folder}/HIGHWATER`
const portsOf = (sim: SimFiles, clock = new SimClock()) => ({
  files: sim.process(),
  clock,
  hash: systemHash,
})
const add = (log: RecordLog, from: number, to: number) =>
  log.append(
    Array.from({ length: to - from }, (_, index) => ({
      kind: 'item',
      data: { id: from + index, fill: 'y'.repeat(40) },
    })),
  )

async function closed({
  compacts = false,
  segmentBytes = 1_000_000,
} = {}): Promise<Map<string, Uint8Array>> {
  const sim = new SimFiles()
  const log = await openLog(portsOf(sim), folder, { ...options, segmentBytes }, () => undefined)
  for (let id = 1; id <= 10; id++) {
    await add(log, id, id + 1)
    if (compacts && id === 6) {
      await log.compact(
        () => log.scan(),
        () => undefined,
      )
    }
  }
  await log.close()
  return sim.contents()
}

const lastSegment = (contents: ReadonlyMap<string, Uint8Array>) =>
  [...contents.keys()]
    .filter((name) => name.includes('/log-'))
    .sort()
    .at(-1) ?? ''
function cut(
  contents: ReadonlyMap<string, Uint8Array>,
  path: string,
  lines: number,
): Map<string, Uint8Array> {
  const bytes = contents.get(path) ?? new Uint8Array(0)
  let end = 0
  for (let line = 0; line < lines; line++) end = bytes.indexOf(10, end) + 1
  return new Map(contents).set(path, bytes.slice(0, end))
}
const linesIn = (contents: ReadonlyMap<string, Uint8Array>, path: string) =>
  (contents.get(path) ?? []).filter((byte) => byte === 10).length
const ids = (to: number) => Array.from({ length: to }, (_, index) => index + 1)

describe('R11: a last segment that ends between two lines', () => {
  test.each([{}, { compacts: true }, { segmentBytes: 500 }])(
    'is refused with the number of lines lost: %j',
    async (how) => {
      const contents = await closed(how)
      const path = lastSegment(contents)
      // The last line is our own mark, which nobody misses.
      const records = linesIn(contents, path) - 1
      expect(records).toBeGreaterThan(0)
      for (let kept = 0; kept < records; kept++) {
        const refused = await openCopy(cut(contents, path, kept))
        expect(refused).toMatchObject({ code: 'store_damaged', meta: { exitCode: 74 } })
        expect((refused as StorageError).detail).toContain(`lines lost: ${records - kept}`)
        expect((refused as StorageError).detail).toContain(path)
      }
      expect(await openCopy(cut(contents, path, records))).toEqual(ids(10))
      expect(await openCopy(contents)).toEqual(ids(10))
    },
  )

  test('is told to those who look', async () => {
    const contents = await closed()
    const short = cut(contents, lastSegment(contents), 5)
    const ports = portsOf(SimFiles.of(short))
    const { damage, records } = await inspectLog(ports, folder, options, () => undefined)
    expect([records, damage]).toMatchObject([
      5,
      { detail: expect.stringContaining('HIGHWATER names line 10; lines lost: 5') },
    ])
    const reader = await openLogReader(ports, folder, options)
    await expect(reader.replay(() => undefined)).rejects.toMatchObject({ code: 'store_damaged' })
  })
})

describe('the mark', () => {
  test('is raised a second after a record, and names no line of ours, which the next start may cut off', async () => {
    const sim = new SimFiles()
    const clock = new SimClock()
    const log = await openLog(portsOf(sim, clock), folder, options, () => undefined)
    await add(log, 1, 4)
    expect(sim.contents().has(highWater)).toBe(false)
    clock.advance(1_000)
    await expect.poll(() => sim.contents().has(highWater)).toBe(true)
    clock.advance(1_000)
    await expect
      .poll(() =>
        new TextDecoder()
          .decode(sim.contents().get(lastSegment(sim.contents())))
          .includes('"mark"'),
      )
      .toBe(true)
    sim.kill()
    const left = sim.contents()
    expect(await openCopy(left)).toEqual([1, 2, 3])
    const again = SimFiles.of(left)
    for (let start = 0; start < 4; start++) {
      await openLog(portsOf(again), folder, options, () => undefined)
      again.kill()
    }
    expect(await openCopy(again.contents())).toEqual([1, 2, 3])
  })

  test('that is missing, torn or older refuses nothing, and a missing or torn one is told of (D7)', async () => {
    const contents = await closed()
    const whole = contents.get(highWater) ?? new Uint8Array(0)
    const without = new Map(contents)
    without.delete(highWater)
    expect(await openCopy(cut(without, lastSegment(contents), 3))).toEqual([1, 2, 3])
    const missing: string[] = []
    const onNote = (text: string) => missing.push(text)
    await openLog(portsOf(SimFiles.of(without)), folder, { ...options, onNote }, () => undefined)
    expect(missing).toEqual([expect.stringContaining('HIGHWATER is missing')])
    for (let length = 0; length < whole.length; length++) {
      expect(await openCopy(new Map(contents).set(highWater, whole.slice(0, length)))).toEqual(
        ids(10),
      )
    }
    const garbled = Uint8Array.from(whole, (byte, at) => (at === 40 ? byte ^ 1 : byte))
    const notes: string[] = []
    const sim = SimFiles.of(new Map(contents).set(highWater, garbled))
    const log = await openLog(
      portsOf(sim),
      folder,
      { ...options, onNote: (text) => notes.push(text) },
      () => undefined,
    )
    expect(notes).toEqual([expect.stringContaining('HIGHWATER is incomplete')])
    await add(log, 11, 12)
    await log.close()
    expect(await openCopy(new Map(sim.contents()).set(highWater, whole))).toEqual(ids(11))
  })

  test('names no line of ours after a group that wrote nothing, start after start', async () => {
    const sim = SimFiles.of(await closed())
    const clock = new SimClock()
    for (let start = 0; start < 4; start++) {
      const log = await openLog(portsOf(sim, clock), folder, options, () => undefined)
      expect(await log.append(() => [])).toEqual([])
      await log.close()
      clock.advance(5)
      expect(new TextDecoder().decode(sim.contents().get(highWater))).toContain('"n":10,')
      const reader = await openLogReader(portsOf(sim), folder, options)
      await reader.replay(() => undefined)
      await reader.close()
    }
    expect(await openCopy(sim.contents())).toEqual(ids(10))
  })

  test('of an earlier version, which names a mark that was written anew, refuses nothing and is mended', async () => {
    const contents = await closed()
    const sim = SimFiles.of(contents)
    await publishHighWater(
      sim.process(),
      systemHash,
      folder,
      { sequence: 11, check: 'f'.repeat(16) },
      1,
    )
    const log = await openLog(portsOf(sim), folder, options, () => undefined)
    await log.close()
    expect(new TextDecoder().decode(sim.contents().get(highWater))).toContain('"n":10,')
    const other = SimFiles.of(contents)
    await publishHighWater(
      other.process(),
      systemHash,
      folder,
      { sequence: 10, check: 'f'.repeat(16) },
      1,
    )
    const cutAt = cut(other.contents(), lastSegment(contents), 10)
    expect(await openCopy(cutAt)).toMatchObject({
      code: 'store_damaged',
      detail: expect.stringContaining('another log'),
    })
  })

  test('names what a start finds in a log that was killed before its first mark', async () => {
    const sim = new SimFiles()
    await add(await openLog(portsOf(sim), folder, options, () => undefined), 1, 4)
    sim.kill()
    const copy = SimFiles.of(sim.contents())
    const log = await openLog(portsOf(copy), folder, options, () => undefined)
    expect(new TextDecoder().decode(copy.contents().get(highWater))).toContain('"n":3,')
    await log.close()
    expect(await openCopy(cut(copy.contents(), lastSegment(copy.contents()), 2))).toMatchObject({
      code: 'store_damaged',
    })
  })

  test('that a full disk does not take is told of once; a disk that fails ends the log', async () => {
    const sim = new SimFiles()
    const clock = new SimClock()
    const notes: string[] = []
    const log = await openLog(
      portsOf(sim, clock),
      folder,
      { ...options, onNote: (text) => notes.push(text) },
      () => undefined,
    )
    sim.faults = [{ verb: 'open', nth: 1, path: /HIGHWATER/, does: 'ENOSPC', always: true }]
    for (let id = 1; id < 4; id++) {
      await add(log, id, id + 1)
      sim.resetCounts()
      clock.advance(1_000)
      await expect.poll(() => sim.counts.get('open') ?? 0).toBeGreaterThan(0)
    }
    expect(notes).toEqual([expect.stringMatching(/HIGHWATER could not be written.*ENOSPC/)])
    expect(log.failed).toBeUndefined()
    sim.faults = [{ verb: 'open', nth: 1, path: /HIGHWATER/, does: 'EROFS', always: true }]
    await add(log, 4, 5)
    clock.advance(1_000)
    await expect.poll(() => log.failed).toMatchObject({ code: 'store_failed' })
  })

  test('R17: is not raised where the process has no descriptor left, and the store goes on', async () => {
    const sim = new SimFiles()
    const clock = new SimClock()
    const log = await openLog(portsOf(sim, clock), folder, options, () => undefined)
    await add(log, 1, 2)
    sim.resetCounts()
    sim.faults = [{ verb: 'open', nth: 1, path: /HIGHWATER/, does: 'EMFILE' }]
    clock.advance(1_000)
    await expect.poll(() => sim.counts.get('open') ?? 0).toBe(1)
    await add(log, 2, 3)
    await log.close()
    expect([log.failed, await openCopy(sim.contents())]).toEqual([undefined, [1, 2]])
  })

  test('beside no MANIFEST is the rest of a store, not a new one', async () => {
    const contents = await closed()
    const rest = new Map([[highWater, contents.get(highWater) ?? new Uint8Array(0)]])
    expect(await openCopy(rest)).toMatchObject({
      code: 'store_damaged',
      detail: expect.stringContaining('MANIFEST'),
    })
  })
})

test('contract §6, R11: `operator store verify` tells a cut store with exit 74, and `store repair --accept-loss` makes one that opens', async () => {
  const home = temporaryFolder()
  const address = (digit: string) => `0x${digit.repeat(40)}` as const
  const requesters = [{ address: address('b'), kind: 'uma-ctf-adapter' }]
  const chain = {
    id: 31337,
    rpc_urls: ['http://127.0.0.1:1'],
    signed_proposer: address('5'),
    oracles: [address('a')],
    requesters,
    tokens: [address('c')],
  }
  await writeFile(join(home, 'gateway.json'), JSON.stringify({ chain, store: './store' }))
  const { context } = fakeContext(home)
  const fold = foldLedger()
  const log = await openLog(context, join(home, 'store'), storeLog, fold.onRecord)
  const settings = {
    chainId: 31337,
    genesisHash: `0x${'9'.repeat(64)}`,
    allowlist: [],
    admissionEnabled: true,
  } as const
  const ledger = await openLedger(context, log, fold.state, settings)
  await ledger.commit([
    { kind: 'allowlist.set', address: address('1'), allowed: true, reason: 'test' },
  ])
  await ledger.close()

  const path = join(home, 'store', 'log-000000000001.jsonl')
  const ask = (...argv: string[]) =>
    run(home, ['operator', ...argv, '--config', join(home, 'gateway.json'), '--json'])
  expect((await ask('store', 'verify')).code).toBe(0)
  await truncate(path, (await readFile(path)).indexOf(10) + 1)
  for (const verb of [['store', 'verify'], ['list']]) {
    const { code, stderr } = await ask(...verb)
    expect([verb, code, stderr]).toEqual([verb, 74, expect.stringContaining('lines lost: 1')])
  }
  expect((await ask('store', 'repair')).code).toBe(2)
  const repaired = await ask('store', 'repair', '--accept-loss')
  expect([repaired.code, JSON.parse(repaired.stdout)]).toMatchObject([
    0,
    { repaired: true, folder: join(home, 'store.repaired') },
  ])
  expect((await ask('store', 'verify')).code).toBe(74)
  await rename(join(home, 'store'), join(home, 'store.damaged'))
  await rename(join(home, 'store.repaired'), join(home, 'store'))
  expect((await ask('store', 'verify')).code).toBe(0)
  expect((await ask('list')).code).toBe(0)
  expect((await ask('allow', address('2'))).code).toBe(75)
})
