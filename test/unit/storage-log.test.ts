import { systemHash } from '#io/clock'
import { StorageError } from '#protocol/errors'
import { openLog } from '#storage/log'
import { openLogReader } from '#storage/reader'
import type { LogOptions, RecordLog, StoredRecord } from '#storage/record-log'
import { type Fault, SimClock, SimFiles, settle } from '#support/sim-files'

const folder = '/data/store'
const item = (id: number, fill = '') => ({ kind: 'item', data: { id, fill } })
const defaults: LogOptions = {
  format: { name: 'store', version: 1 },
  knownKinds: (kind) => kind === 'item',
}

async function open(sim: SimFiles, options: Partial<LogOptions> = {}) {
  const clock = new SimClock()
  const found: StoredRecord[] = []
  const log = await openLog(
    { files: sim.process(), clock, hash: systemHash },
    folder,
    { ...defaults, ...options },
    (record) => found.push(record),
  )
  sim.resetCounts()
  return { log, clock, ids: found.map(idOf) }
}

async function opened(options?: Partial<LogOptions>) {
  const sim = new SimFiles()
  return { sim, ...(await open(sim, options)) }
}

const idOf = (record: StoredRecord) => (record.data as { id: number }).id
const writes = (sim: SimFiles) =>
  sim.trace.filter((call) => /^(write|datasync|truncate|rename|link|remove) /.test(call))
const textOf = (sim: SimFiles) =>
  [...sim.contents()]
    .filter(([path]) => path.includes('/log-'))
    .map(([, bytes]) => new TextDecoder().decode(bytes))
    .join('')

test('robustness §2: appends that arrive together or during a sync share one, up to 1,024 lines or 1 MiB', async () => {
  const { sim, log } = await opened()
  await Promise.all(Array.from({ length: 3_000 }, (_, id) => log.append([item(id)])))
  expect(sim.counts.get('datasync')).toBe(3)
  sim.resetCounts()
  await Promise.all(
    Array.from({ length: 40 }, (_, id) => log.append([item(id, 'x'.repeat(100_000))])),
  )
  expect(sim.counts.get('datasync')).toBe(4)
})

test('robustness §2: a short write is continued, not taken for an error', async () => {
  const { sim, log } = await opened()
  sim.faults = [{ verb: 'write', nth: 1, does: 'short' }]
  await log.append([item(1, 'a long enough record')])
  expect(textOf(sim)).toMatch(/a long enough record.*\n$/)
  await log.close()
  expect((await open(sim)).ids).toEqual([1])
})

for (const does of ['ENOSPC', 'EDQUOT', 'EFBIG', 'nothing-written'] as const) {
  test(`robustness §2: a write refused by ${does} is undone, appends are closed, and a probe every 5 s opens them again`, async () => {
    const { sim, log, clock } = await opened()
    await log.append([item(1)])
    const before = textOf(sim)
    sim.faults = [{ verb: 'write', nth: 1, does, always: true }]
    const unavailable = {
      code: 'store_unavailable',
      meta: { exitCode: 74, httpStatus: 503, retryAfterMs: 5_000, retryable: true },
    }
    await expect(log.append([item(2)])).rejects.toMatchObject(unavailable)
    expect(textOf(sim)).toBe(before)
    expect(log.failed).toBeUndefined()
    expect(log.closed).toBe(true)
    await expect(log.append([item(3)])).rejects.toMatchObject(unavailable)
    expect(await log.read((await collect(log))[0]?.position ?? -1)).toMatchObject({
      data: { id: 1 },
    })
    clock.advance(5_000)
    await settle()
    expect(log.closed).toBe(true)
    sim.faults = []
    clock.advance(4_999)
    await settle()
    expect(log.closed).toBe(true)
    clock.advance(1)
    await settle()
    expect(log.closed).toBe(false)
    await log.append([item(4)])
    await log.close()
    expect((await open(sim)).ids).toEqual([1, 4])
    expect([...sim.contents().keys()].filter((name) => name.endsWith('.tmp'))).toEqual([])
  })
}

test('robustness §2: a disk with little room takes what fits, refuses the rest whole, and recovers when room comes', async () => {
  const { sim, log, clock } = await opened()
  sim.capacityBytes = 3_000
  const outcomes: number[] = []
  for (let id = 1; id <= 20; id++) {
    await log.append([item(id, 'x'.repeat(200))]).then(
      () => outcomes.push(id),
      (error: unknown) => expect((error as StorageError).code).toBe('store_unavailable'),
    )
  }
  expect(outcomes.length).toBeGreaterThan(3)
  expect(outcomes.length).toBeLessThan(15)
  sim.capacityBytes = 10_000_000
  clock.advance(5_000)
  await settle()
  await log.append([item(99)])
  await log.close()
  expect((await open(sim)).ids).toEqual([...outcomes, 99])
})

test('R10: a failed datasync is never retried: the call in flight is unknown, later ones are refused, nothing is written any more', async () => {
  const { sim, log, clock } = await opened()
  const failures: Error[] = []
  log.onFailure((error) => failures.push(error))
  sim.faults = [{ verb: 'datasync', nth: 1, does: 'EIO' }]
  await expect(log.append([item(1)])).rejects.toMatchObject({
    code: 'store_failed',
    meta: { exitCode: 74, httpStatus: 500 },
  })
  sim.resetCounts()
  await expect(log.append([item(3)])).rejects.toMatchObject({
    code: 'store_unavailable',
    meta: { exitCode: 74, httpStatus: 503 },
  })
  await expect(
    log.compact(
      () => [],
      () => undefined,
    ),
  ).rejects.toBeInstanceOf(StorageError)
  clock.advance(60_000)
  await settle()
  await log.close()
  expect(writes(sim)).toEqual([])
  expect(failures).toEqual([log.failed])
  log.onFailure((error) => failures.push(error))
  expect(failures).toHaveLength(2)
})

test('R10: a log that fails while its snapshot is written places none', async () => {
  const { sim, log } = await opened()
  const compacted = log.compact(
    function* () {
      yield item(1)
      sim.resetCounts()
      sim.faults = [{ verb: 'datasync', nth: 1, does: 'EIO' }]
      log.append([item(2)]).catch(() => undefined)
    },
    () => undefined,
  )
  await expect(compacted).rejects.toMatchObject({ code: 'store_unavailable' })
  expect(writes(sim).filter((call) => call.startsWith('rename'))).toEqual([])
})

test('R10: queued appends behind a failing group are definitely not committed', async () => {
  const { sim, log } = await opened()
  sim.faults = [{ verb: 'datasync', nth: 1, does: 'EIO' }]
  const calls = Array.from({ length: 2_000 }, (_, id) =>
    log.append([item(id)]).catch((error: StorageError) => error.code),
  )
  const codes = await Promise.all(calls)
  expect(codes.slice(0, 1_024)).toEqual(Array(1_024).fill('store_failed'))
  expect(codes.slice(1_024)).toEqual(Array(976).fill('store_unavailable'))
})

for (const verb of ['truncate', 'datasync', 'size'] as const) {
  test(`R10: a write that cannot be undone because ${verb} fails ends the log`, async () => {
    const { sim, log } = await opened()
    sim.faults = [
      { verb: 'write', nth: 1, does: 'ENOSPC' },
      { verb, nth: 1, does: 'EIO' },
    ]
    await expect(log.append([item(1)])).rejects.toMatchObject({ code: 'store_failed' })
    expect(log.failed).toBeDefined()
  })
}

test('R12: a writer that has been replaced is stopped before it writes', async () => {
  const sim = new SimFiles()
  let asked = 0
  let replaced = false
  const fence = async () => {
    asked++
    if (replaced) throw new StorageError('store_fenced', 'replaced', { httpStatus: 503 })
  }
  const { log } = await open(sim, { fence })
  asked = 0
  await log.append([item(1)])
  await log.append([item(2)])
  expect(asked).toBe(2)
  replaced = true
  sim.resetCounts()
  await expect(log.append([item(3)])).rejects.toMatchObject({
    code: 'store_fenced',
    meta: { exitCode: 74 },
  })
  expect(log.failed).toMatchObject({ code: 'store_fenced' })
  await log.close()
  expect(writes(sim)).toEqual([])
})

test('robustness §2: after 1 s idle one mark covers the last record, and there is no second one', async () => {
  const { sim, log, clock } = await opened()
  await log.append([item(1)])
  const length = textOf(sim).length
  clock.advance(999)
  await settle()
  expect(textOf(sim)).not.toContain('"k":"mark"')
  clock.advance(1)
  await settle()
  expect(textOf(sim)).toContain(`"s":${length},"k":"mark"`)
  for (let second = 0; second < 5; second++) {
    clock.advance(1_000)
    await settle()
  }
  expect(textOf(sim).match(/"k":"mark"/g)).toHaveLength(1)
  expect(clock.sleeping).toBe(0)
  await log.append([item(2)])
  await log.close()
  expect(textOf(sim).match(/"k":"mark"/g)).toHaveLength(2)
  expect(clock.sleeping).toBe(0)
})

test('robustness §2: opening again and again adds nothing to the files', async () => {
  const { sim, log } = await opened()
  await log.append([item(1), item(2)])
  await log.close()
  const lines = textOf(sim).split('\n').length
  for (let start = 0; start < 5; start++) {
    const { log: again, ids } = await open(sim)
    expect(ids).toEqual([1, 2])
    await again.close()
    expect(textOf(sim).split('\n')).toHaveLength(lines)
  }
})

test('R17: more than the queue holds is refused as busy, and what was queued still goes through', async () => {
  const { log } = await opened({ queueBytes: 10_000 })
  const calls = Array.from({ length: 100 }, (_, id) =>
    log.append([item(id, 'x'.repeat(400))]).catch((error: StorageError) => error.code),
  )
  const codes = await Promise.all(calls)
  const refused = codes.filter((code) => code === 'server_busy').length
  expect(refused).toBeGreaterThan(50)
  await log.append([item(1000)])
  expect(await collect(log)).toHaveLength(101 - refused)
})

test('R17: a decision is counted as what its owner says that it will take', async () => {
  const { sim, log } = await opened({ queueBytes: 4 * 1024 * 1024 })
  const fill = 'x'.repeat(100_000)
  const decided = Array.from({ length: 100 }, (_, id) =>
    log
      .append(() => [item(id, fill)], undefined, fill.length)
      .catch((error: StorageError) => error.code),
  )
  const refused = (await Promise.all(decided)).filter((code) => code === 'server_busy').length
  expect(refused).toBeGreaterThan(50)
  expect(sim.counts.get('datasync')).toBeGreaterThanOrEqual((100 - refused) / 11)
})

test('robustness §2, Versions: a later FORMAT or an unknown kind is refused with exit 74, naming what is needed; x- kinds are skipped', async () => {
  const sim = new SimFiles()
  const later = { name: 'store', version: 3, minReader: 2 } as const
  const writer = await open(sim, { format: later, knownKinds: () => true })
  await writer.log.append([item(1), { kind: 'x-hint', data: {} }])
  await writer.log.close()
  const tooNew = { code: 'store_too_new', meta: { exitCode: 74 } }
  const before = [...sim.contents()].map(([path, bytes]) => [path, systemHash.sha256(bytes)])
  await expect(open(sim)).rejects.toMatchObject({
    ...tooNew,
    detail: expect.stringContaining('format 3'),
  })
  await expect(open(sim, { format: { name: 'store', version: 2 } })).rejects.toMatchObject(tooNew)
  await expect(open(sim, { format: { name: 'journal', version: 3 } })).rejects.toMatchObject({
    code: 'store_mismatch',
  })
  await expect(open(sim, { format: later, knownKinds: () => false })).rejects.toMatchObject({
    ...tooNew,
    detail: expect.stringContaining('"item"'),
  })
  expect([...sim.contents()].map(([path, bytes]) => [path, systemHash.sha256(bytes)])).toEqual(
    before,
  )
  const ports = { files: sim.process(), hash: systemHash }
  await expect(openLogReader(ports, folder, defaults)).rejects.toMatchObject(tooNew)
  const reader = await openLogReader(ports, folder, {
    ...defaults,
    format: { name: 'store', version: 2 },
  })
  const ids: number[] = []
  for await (const record of reader.scan()) {
    ids.push(idOf(record))
    expect(await reader.read(record.position)).toEqual(record)
  }
  expect(ids).toEqual([1])
  await reader.close()
  const upgraded = await open(sim, { format: { name: 'store', version: 4 } })
  expect(upgraded.ids).toEqual([1])
  await upgraded.log.close()
  await expect(open(sim, { format: later })).rejects.toMatchObject(tooNew)
})

test('R25: a position that a compaction has moved is refused by name, and one that never was is damage', async () => {
  const { log } = await opened()
  const [stored] = await log.append([item(1)])
  await log.compact(
    () => log.scan(),
    () => undefined,
  )
  await expect(log.read(stored?.position ?? -1)).rejects.toMatchObject({ code: 'position_retired' })
  const [next] = await log.append([item(2)])
  await expect(log.read((next?.position ?? 0) + 1)).rejects.toMatchObject({ code: 'store_damaged' })
})

test('R11: an owner that fails on a durable record stops the log instead of drifting from the disk', async () => {
  const { sim, log } = await opened()
  const failing = log.append([item(1)], () => {
    throw new Error('owner')
  })
  await expect(failing).rejects.toMatchObject({ code: 'store_failed' })
  await log.close()
  expect((await open(sim)).ids).toEqual([1])
})

async function collect(log: RecordLog): Promise<StoredRecord[]> {
  const records: StoredRecord[] = []
  for await (const record of log.scan()) records.push(record)
  return records
}

async function session(sim: SimFiles): Promise<number[]> {
  const acked: number[] = []
  const add = async (log: RecordLog, ids: readonly number[]) => {
    await log.append(ids.map((id) => item(id, 'x'.repeat(300)))).then(
      () => acked.push(...ids),
      (error: unknown) => expect(error).toBeInstanceOf(StorageError),
    )
  }
  try {
    const { log } = await open(sim, { segmentBytes: 500 })
    await add(log, [1])
    await add(log, [2, 3])
    await log
      .compact(
        () => log.scan(),
        () => undefined,
      )
      .catch((error: unknown) => expect(error).toBeInstanceOf(StorageError))
    await add(log, [4])
    await log.close()
  } catch (error) {
    expect(error).toBeInstanceOf(StorageError)
  }
  return acked
}

test('R10, R11: with ENOSPC or EIO at every single call, once or for good, what was acknowledged is there after a power cut', async () => {
  const calm = new SimFiles()
  const count = calm.counts
  await session(calm)
  const total = (count.get('any') ?? 0) + 60
  let refused = 0
  for (const does of ['ENOSPC', 'EIO'] as const) {
    for (const always of [false, true]) {
      for (let nth = 1; nth <= total; nth++) {
        const sim = new SimFiles()
        const fault: Fault = { verb: 'any', nth, does, always }
        sim.faults = [fault]
        const acked = await session(sim)
        if (acked.length < 4) refused++
        sim.faults = []
        if (nth % 2 === 0) sim.crash(nth)
        else sim.kill()
        const { ids, log } = await open(sim)
        await log.close()
        expect(acked.filter((id) => !ids.includes(id))).toEqual([])
        expect(ids).toEqual([...new Set(ids)].sort((a, b) => a - b))
      }
    }
  }
  expect(refused).toBeGreaterThan(100)
})

test('T13, R11: a kept record with a head opens by that alone, reads whole everywhere else, and damage in the rest is still found', async () => {
  const { sim, log } = await opened()
  const fill = 'ü'.repeat(400)
  await log.append([item(1, fill)])
  await log.compact(
    () => [{ ...item(1, fill), head: ['one', 1, false] }, item(2, fill)],
    () => undefined,
  )
  expect((await collect(log)).map(({ data, head }) => [data, head])).toEqual([
    [{ id: 1, fill }, ['one', 1, false]],
    [{ id: 2, fill }, undefined],
  ])
  await log.close()

  const found: StoredRecord[] = []
  const ports = { files: sim.process(), clock: new SimClock(), hash: systemHash }
  const again = await openLog(ports, folder, defaults, (record) => found.push(record))
  expect(found.map(({ data, head }) => [data, head])).toEqual([
    [undefined, ['one', 1, false]],
    [{ id: 2, fill }, undefined],
  ])
  expect((await again.read(found[0]?.position ?? -1)).data).toEqual({ id: 1, fill })
  await again.close()

  const reader = await openLogReader({ files: sim.process(), hash: systemHash }, folder, defaults)
  const read: StoredRecord[] = []
  await reader.replay((record) => read.push(record))
  await reader.close()
  expect(read.map(idOf)).toEqual([1, 2])

  const [snapshot] = [...sim.contents().keys()].filter((path) => path.includes('/snap-'))
  sim.damage(snapshot ?? '', (bytes) => {
    bytes[700] = (bytes[700] ?? 0) ^ 1
  })
  await expect(open(sim)).rejects.toMatchObject({ code: 'store_damaged', meta: { exitCode: 74 } })
})

test('robustness §2: a read that fails while the lines before it are still walked refuses the opening, and the next one finds everything', async () => {
  const { sim, log } = await opened()
  for (let id = 0; id < 12; id += 1) await log.append([item(id, 'x'.repeat(300_000))])
  await log.close()
  sim.faults = [{ verb: 'read', nth: 3, does: 'EIO' }]
  await expect(open(sim)).rejects.toMatchObject({ code: 'store_unreadable' })
  sim.faults = []
  expect((await open(sim)).ids.length).toBe(12)
})
