import { systemHash } from '#io/clock'
import { StorageError } from '#protocol/errors'
import { decodeLine, encodeLine } from '#storage/line'
import { openLog } from '#storage/log'
import { inspectLog } from '#storage/reader'
import type { NewRecord } from '#storage/record-log'
import { lastSegmentOf, linesOf } from '#support/fuzz/disk'
import { folder, openCopy, openSample, options, recordsOf, sample } from '#support/sample-store'
import { SimClock, SimFiles } from '#support/sim-files'

test('R11, T4: a file before the last segment that is cut at any offset is refused with exit 74, naming file and offset', async () => {
  for (const compacted of [false, true]) {
    const contents = await sample(compacted)
    for (const [path, whole] of contents) {
      if (path === lastSegmentOf(contents) || !path.endsWith('.jsonl')) continue
      for (let length = 0; length < whole.length; length++) {
        const refused = await openCopy(new Map(contents).set(path, whole.slice(0, length)))
        expect(refused).toMatchObject({ code: 'store_damaged', meta: { exitCode: 74 } })
        // A cut between lines of a segment shows in the next file, which does not continue.
        const between = path.includes('/log-') && (length === 0 || whole[length - 1] === 10)
        expect((refused as StorageError).detail).toMatch(
          between ? /log-\d+\.jsonl is damaged at byte \d+/ : `${path} is damaged at byte `,
        )
      }
    }
  }
})

test('R11, T4: a flipped bit is refused, or costs only what no durable mark covers yet', async () => {
  const contents = await sample(true)
  const last = lastSegmentOf(contents)
  let refusals = 0
  let losses = 0
  for (const [path, whole] of contents) {
    for (let index = 0; index < whole.length; index++) {
      const flipped = whole.slice()
      flipped[index] = (flipped[index] ?? 0) ^ (1 << (index % 8))
      const found = await openCopy(new Map(contents).set(path, flipped))
      if (found instanceof StorageError) {
        expect(found.meta.exitCode).toBe(74)
        refusals++
        continue
      }
      expect(path.endsWith('.jsonl') ? path : last).toBe(last)
      // Only the last group, 11, is above every mark.
      expect([10, 11]).toContain(found.length)
      if (found.length === 10) losses++
      expect(found).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11].slice(0, found.length))
    }
  }
  expect(refusals).toBeGreaterThan(500)
  expect(losses).toBeGreaterThan(50)
})

test('R11, T4: after the idle mark no flipped bit can cost a record', async () => {
  const sim = SimFiles.of(await sample(false))
  const log = await openSample(sim)
  await log.append([{ kind: 'item', data: { id: 12 } }])
  await log.close()
  const contents = sim.contents()
  const path = lastSegmentOf(contents)
  const whole = contents.get(path) ?? new Uint8Array(0)
  for (let index = 0; index < whole.length; index++) {
    const flipped = whole.slice()
    flipped[index] = (flipped[index] ?? 0) ^ (1 << (index % 7))
    const found = await openCopy(new Map(contents).set(path, flipped))
    if (!(found instanceof StorageError)) expect(found).toHaveLength(12)
  }
})

test('R11, T4: lines that are swapped, dropped, repeated or spliced in from elsewhere are refused', async () => {
  const contents = await sample(false)
  for (const [path, whole] of contents) {
    if (!path.endsWith('.jsonl')) continue
    const lines = linesOf(whole)
    const join = (parts: readonly Uint8Array[]) =>
      Uint8Array.from(parts.flatMap((part) => [...part]))
    const first =
      contents.get(
        [...contents.keys()].find((name) => name.endsWith('log-000000000001.jsonl')) ?? '',
      ) ?? new Uint8Array(0)
    const foreign = first.slice(0, first.indexOf(10) + 1)
    for (let at = 0; at < lines.length; at++) {
      const line = lines[at] ?? foreign
      const changed = [
        [...lines.slice(0, at), line, ...lines.slice(at)],
        [...lines.slice(0, at + 1), foreign, ...lines.slice(at + 1)],
      ]
      if (at + 1 < lines.length) changed.push([...lines.slice(0, at), ...lines.slice(at + 1)])
      if (at > 0)
        changed.push([
          ...lines.slice(0, at - 1),
          line,
          lines[at - 1] ?? line,
          ...lines.slice(at + 1),
        ])
      for (const parts of changed) {
        const found = await openCopy(new Map(contents).set(path, join(parts)))
        expect(found).toMatchObject({ code: 'store_damaged' })
      }
    }
  }
})

test('R11, T4: a sound line of another store, or one with a gap in its number, is refused in any place', async () => {
  const contents = await sample(false)
  const path = lastSegmentOf(contents)
  const lines = linesOf(contents.get(path) ?? new Uint8Array(0))
  const decoded = lines.map((line) => decodeLine(systemHash, line.subarray(0, -1)))
  for (const [at, line] of decoded.entries()) {
    if (line === undefined) throw new Error('a broken sample')
    for (const change of [
      { previous: '0123456789abcdef' },
      { sequence: line.sequence + 1 },
      { more: 5 },
    ]) {
      const { text } = encodeLine(systemHash, { ...line, ...change }, JSON.stringify(line.data))
      const replaced = [
        ...lines.slice(0, at),
        new TextEncoder().encode(text),
        ...lines.slice(at + 1),
      ]
      const bytes = Uint8Array.from(replaced.flatMap((part) => [...part]))
      const found = await openCopy(new Map(contents).set(path, bytes))
      if ('more' in change && at === lines.length - 1)
        expect(found).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
      else expect(found).toMatchObject({ code: 'store_damaged' })
    }
  }
})

test('R11: an open log that scans over damage says so, also at its very end', async () => {
  const contents = await sample(false)
  const sim = SimFiles.of(contents)
  const log = await openSample(sim)
  await log.append([{ kind: 'item', data: { id: 12 } }])
  const path = lastSegmentOf(contents)
  sim.damage(path, (bytes) => {
    bytes[bytes.length - 3] = 0
  })
  const scanAll = async () => {
    for await (const record of log.scan()) expect(record.kind).toBe('item')
  }
  await expect(scanAll()).rejects.toMatchObject({
    code: 'store_damaged',
    detail: expect.stringContaining(path),
  })
})

test('R11: leftovers of a crash are removed by a start that succeeds, and kept by one that refuses', async () => {
  const contents = await sample(false)
  const leftovers = [
    'snap-000000000003.jsonl',
    'snap-000000000009.jsonl.tmp',
    'MANIFEST.tmp',
    'probe.tmp',
    'log-000000000099.jsonl',
  ]
  for (const name of leftovers)
    contents.set(`${folder}/${name}`, new Uint8Array(name.startsWith('log') ? 0 : 10))
  const others = [
    'LOCK.1',
    's.0123456789abcdef',
    'admin.token',
    'torn-1-7',
    'lock.0123456789abcdef.new',
  ]
  for (const name of others) contents.set(`${folder}/${name}`, new Uint8Array(1))
  const first = `${folder}/log-000000000001.jsonl`
  const broken = (contents.get(first) ?? new Uint8Array(0)).slice()
  broken[100] = 0
  expect(await openCopy(new Map(contents).set(first, broken))).toMatchObject({
    code: 'store_damaged',
  })
  const sim = SimFiles.of(contents)
  await (await openSample(sim)).close()
  const left = [...sim.contents().keys()].map((path) => path.slice(folder.length + 1))
  expect(leftovers.filter((name) => left.includes(name))).toEqual([])
  expect(others.filter((name) => !left.includes(name))).toEqual([])
})

test('R11: a missing file, an old MANIFEST or a missing FORMAT is refused and nothing is removed', async () => {
  const contents = await sample(true)
  for (const path of contents.keys()) {
    const without = new Map(contents)
    without.delete(path)
    expect(await openCopy(without)).toMatchObject({ code: 'store_damaged' })
  }
  const older = await sample(false)
  const manifest = `${folder}/MANIFEST`
  const sim = new SimFiles()
  await (await openSample(sim)).close()
  const first = sim.contents().get(manifest) ?? new Uint8Array(0)
  expect(await openCopy(new Map(older).set(manifest, first))).toMatchObject({
    code: 'store_damaged',
  })
})

test('R11, R24: a reader refuses what a writer refuses: no MANIFEST beside files of a log, or no FORMAT', async () => {
  for (const compacted of [false, true]) {
    const contents = await sample(compacted)
    for (const name of ['MANIFEST', 'FORMAT']) {
      const without = new Map(contents)
      without.delete(`${folder}/${name}`)
      const sim = SimFiles.of(without)
      const refusal = {
        code: 'store_damaged',
        detail: expect.stringContaining(`${name} is damaged at byte 0: it is missing`),
        meta: { hint: expect.not.stringContaining('before that byte') },
      }
      await expect(recordsOf(sim)).rejects.toMatchObject(refusal)
      await expect(
        inspectLog({ files: sim.process(), hash: systemHash }, folder, options, () => undefined),
      ).rejects.toMatchObject(refusal)
      expect(sim.contents()).toEqual(without)
    }
  }
})

test('R24: a reader of a log that is being made reads it as empty at each step', async () => {
  const ports = (files: SimFiles) => ({
    files: files.process(),
    clock: new SimClock(),
    hash: systemHash,
  })
  const whole = new SimFiles()
  await (await openLog(ports(whole), folder, options, () => undefined)).close()
  for (let step = 1; step <= whole.trace.length; step += 1) {
    const sim = new SimFiles()
    sim.faults = [{ verb: 'any', nth: step, does: 'kill-after' }]
    await Promise.race([
      openLog(ports(sim), folder, options, () => undefined).catch(() => undefined),
      sim.death(),
    ])
    sim.faults = []
    expect(await recordsOf(sim), `after step ${step}`).toEqual([])
  }
})

test('R11: a torn tail is saved aside byte for byte before it is cut off, and a recovered line tells of it', async () => {
  const contents = await sample(false)
  const path = lastSegmentOf(contents)
  const whole = contents.get(path) ?? new Uint8Array(0)
  const torn = new Uint8Array([...whole, ...new TextEncoder().encode('{"c":"0123'), 0, 0, 0])
  const sim = SimFiles.of(new Map(contents).set(path, torn))
  const log = await openSample(sim)
  await log.close()
  const saved = [...sim.contents()].find(([name]) => name.includes('/torn-'))
  expect(saved?.[0]).toMatch(new RegExp(`/torn-\\d+-${whole.length}$`))
  expect(saved?.[1]).toEqual(torn.slice(whole.length))
  expect(new TextDecoder().decode(sim.contents().get(path))).toContain('"k":"recovered"')
  expect(await openCopy(sim.contents())).toHaveLength(11)
})

test('R24: a reader changes nothing, reads a missing folder as empty, and leaves out a torn tail', async () => {
  const contents = await sample(true)
  const path = lastSegmentOf(contents)
  const whole = contents.get(path) ?? new Uint8Array(0)
  const sim = SimFiles.of(new Map(contents).set(path, whole.slice(0, -5)))
  const before = sim.contents()
  expect(await recordsOf(sim)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
  expect(sim.contents()).toEqual(before)
  expect(
    sim.trace.filter((call) =>
      /^(write|truncate|rename|link|remove|makeDir|syncDir|datasync)/.test(call),
    ),
  ).toEqual([])
  const empty = new SimFiles()
  expect(await recordsOf(empty)).toEqual([])
  expect(empty.contents().size).toBe(0)
})

test('R24: readers that open while the writer compacts see every record', async () => {
  const sim = SimFiles.of(await sample(false))
  const log = await openSample(sim)
  let done = false
  const compacting = (async () => {
    for (let round = 0; round < 20; round++) {
      const kept: NewRecord[] = []
      for await (const record of log.scan()) kept.push({ kind: record.kind, data: record.data })
      await log.compact(
        () => kept,
        () => undefined,
      )
    }
    done = true
  })()
  let readings = 0
  while (!done) {
    expect(await recordsOf(sim)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])
    readings++
  }
  await compacting
  await log.close()
  expect(readings).toBeGreaterThan(5)
})
