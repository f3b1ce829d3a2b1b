import type { CompactableLog, NewRecord, RecordLog, StoredRecord } from '#storage/record-log'

export interface StoreUnderTest<Log extends RecordLog = RecordLog> {
  open(onRecord: (record: StoredRecord) => void): Promise<Log>
}

export const suiteKinds = (kind: string): boolean =>
  kind === 'item' || kind === 'folded' || kind === 'x-note'

const item = (value: unknown): NewRecord => ({ kind: 'item', data: { value } })

async function reopened(store: StoreUnderTest): Promise<StoredRecord[]> {
  const records: StoredRecord[] = []
  const log = await store.open((record) => records.push(record))
  await log.close()
  return records
}

async function collect(log: RecordLog): Promise<StoredRecord[]> {
  const records: StoredRecord[] = []
  for await (const record of log.scan()) records.push(record)
  return records
}

const values = (records: readonly StoredRecord[]) =>
  records.map((record) => (record.data as { value: unknown }).value)

const withStoreOf =
  <Log extends RecordLog>(create: () => Promise<StoreUnderTest<Log>>) =>
  (run: (store: StoreUnderTest<Log>) => Promise<void>) =>
  async () => {
    await run(await create())
  }

const withLogOf =
  <Log extends RecordLog>(create: () => Promise<StoreUnderTest<Log>>) =>
  (run: (log: Log, store: StoreUnderTest<Log>) => Promise<void>) =>
    withStoreOf(create)(async (store) => run(await store.open(() => undefined), store))

export function recordLogSuite(name: string, create: () => Promise<StoreUnderTest>): void {
  const [withStore, withLog] = [withStoreOf(create), withLogOf(create)]
  describe(name, () => {
    test(
      'R25: a new store is empty and stays so',
      withStore(async (store) => {
        expect(await reopened(store)).toEqual([])
        expect(await reopened(store)).toEqual([])
      }),
    )

    test(
      'R1: what append acknowledged is there after the next opening, in order, with the same sequence numbers',
      withLog(async (log, store) => {
        const first = await log.append([item('a'), item('ü \u2028 \u0000 \ud800 "')])
        const second = await log.append([item({ nested: [1, null, true] })])
        await log.close()
        const again = await reopened(store)
        expect(values(again)).toEqual([
          'a',
          'ü \u2028 \u0000 \ud800 "',
          { nested: [1, null, true] },
        ])
        expect(again.map((record) => record.sequence)).toEqual(
          [...first, ...second].map((record) => record.sequence),
        )
        expect(again.map((record) => record.timeMs)).toEqual(
          [...first, ...second].map((record) => record.timeMs),
        )
      }),
    )

    test(
      'R13: sequence numbers grow in the order of the calls, and an append keeps its records together',
      withLog(async (log) => {
        const all = await Promise.all(
          Array.from({ length: 50 }, (_, index) => log.append([item(index), item(index)])),
        )
        const sequences = all.flat().map((record) => record.sequence)
        expect(sequences).toEqual([...sequences].sort((a, b) => a - b))
        for (const [first, second] of all) expect(second?.sequence).toBe((first?.sequence ?? 0) + 1)
        expect(new Set(sequences).size).toBe(100)
        expect(values(await collect(log))).toEqual(
          Array.from({ length: 100 }, (_, index) => Math.floor(index / 2)),
        )
        await log.close()
      }),
    )

    test(
      "R13: onDurable is called in log order, before the append resolves, with the caller's own data",
      withLog(async (log) => {
        const seen: number[] = []
        const records = [item('mine')]
        const appends = Array.from({ length: 20 }, () =>
          log.append(records, (stored) => {
            expect(stored[0]?.data).toBe(records[0]?.data)
            seen.push(stored[0]?.sequence ?? -1)
          }),
        )
        const resolved = (await Promise.all(appends)).map((stored) => stored[0]?.sequence)
        expect(seen).toEqual(resolved)
        await log.close()
      }),
    )

    test(
      'R13: a decision is made in the order of the calls, on a state in which every earlier group is applied',
      withLog(async (log, store) => {
        const applied: number[] = []
        let mine = { group: 0, decided: [] as number[] }
        const appends = Array.from({ length: 60 }, (_, index) =>
          log.append(
            (group) => {
              if (mine.group !== group) mine = { group, decided: [] }
              expect([...applied, ...mine.decided]).toEqual(
                Array.from({ length: index }, (_, each) => each),
              )
              mine.decided.push(index)
              return index % 3 === 0 ? [] : [item(index)]
            },
            () => applied.push(index),
          ),
        )
        const stored = await Promise.all(appends)
        expect(stored.map((records) => records.length)).toEqual(
          Array.from({ length: 60 }, (_, index) => (index % 3 === 0 ? 0 : 1)),
        )
        await log.close()
        expect(values(await reopened(store))).toEqual(
          Array.from({ length: 60 }, (_, index) => index).filter((index) => index % 3 !== 0),
        )
      }),
    )

    test(
      'R17: a decision that throws, or wants what is no record, is refused alone',
      withLog(async (log, store) => {
        const decisions: (() => readonly NewRecord[])[] = [
          () => [item('before')],
          () => {
            throw new RangeError('not on this state')
          },
          () => [{ kind: 'stranger', data: {} }],
          () => [item('after')],
        ]
        const ended = await Promise.allSettled(decisions.map((decide) => log.append(decide)))
        expect(ended.map(({ status }) => status)).toEqual([
          'fulfilled',
          'rejected',
          'rejected',
          'fulfilled',
        ])
        expect(ended[1]).toMatchObject({ reason: { message: 'not on this state' } })
        expect(ended[2]).toMatchObject({ reason: { code: 'record_invalid' } })
        await log.close()
        expect(values(await reopened(store))).toEqual(['before', 'after'])
      }),
    )

    test(
      'R25: a record is read back by its position, before and after the next opening',
      withLog(async (log, store) => {
        const long = 'ä'.repeat(20_000)
        const stored = await log.append([item('short'), item(long), item('last')])
        for (const record of stored) expect(await log.read(record.position)).toEqual(record)
        await log.close()
        const found: StoredRecord[] = []
        const again = await store.open((record) => found.push(record))
        for (const record of found) expect(await again.read(record.position)).toEqual(record)
        expect(values(found)).toEqual(['short', long, 'last'])
        expect(found.every((record) => Number.isSafeInteger(record.position))).toBe(true)
        await again.close()
      }),
    )

    test(
      'R17: a record that is not JSON, too large, or of an unknown kind is refused, and its neighbours are not harmed',
      withLog(async (log, store) => {
        const good = log.append([item('before')])
        const refused = { code: 'record_invalid' }
        await expect(
          log.append([item('lost'), { kind: 'item', data: undefined }]),
        ).rejects.toMatchObject(refused)
        await expect(log.append([item(1n)])).rejects.toMatchObject(refused)
        await expect(log.append([item('x'.repeat(400_000))])).rejects.toMatchObject(refused)
        await expect(log.append([item('é'.repeat(200_000))])).rejects.toMatchObject(refused)
        await expect(log.append([{ kind: 'stranger', data: {} }])).rejects.toMatchObject(refused)
        await expect(log.append([{ kind: 'mark', data: {} }])).rejects.toMatchObject(refused)
        await good
        await log.append([item('y'.repeat(390_000))])
        await log.append([])
        await log.close()
        expect(values(await reopened(store))).toEqual(['before', 'y'.repeat(390_000)])
      }),
    )

    test(
      'R1: a closed log takes nothing more, and closing twice is one closing',
      withLog(async (log, store) => {
        const pending = log.append([item('in flight')])
        const closing = log.close()
        await expect(log.append([item('late')])).rejects.toMatchObject({
          code: 'store_unavailable',
        })
        await closing
        await log.close()
        expect(log.closed).toBe(true)
        await pending
        expect(values(await reopened(store))).toEqual(['in flight'])
      }),
    )
  })
}

export function compactionSuite(
  name: string,
  create: () => Promise<StoreUnderTest<CompactableLog>>,
): void {
  const withLog = withLogOf(create)
  describe(`${name}, folded`, () => {
    test(
      'R11: compaction replaces what lies before the cut, keeps what came later, and tells every new place',
      withLog(async (log, store) => {
        for (let index = 0; index < 40; index++) await log.append([item(index)])
        const meanwhile: Promise<readonly StoredRecord[]>[] = []
        const places = new Map<number, number>()
        await log.compact(
          async function* () {
            for (let index = 0; index < 10; index++) {
              if (index % 3 === 0) meanwhile.push(log.append([item(`during ${index}`)]))
              yield { kind: 'folded', data: { value: `fold ${index}` } }
              await Promise.resolve()
            }
          },
          (ordinal, position) => places.set(ordinal, position),
        )
        const later = [
          ...(await Promise.all(meanwhile)).flat(),
          ...(await log.append([item('after')])),
        ]
        const expected = [
          ...Array.from({ length: 10 }, (_, index) => `fold ${index}`),
          'during 0',
          'during 3',
          'during 6',
          'during 9',
          'after',
        ]
        expect(values(await collect(log))).toEqual(expected)
        for (const [ordinal, position] of places)
          expect((await log.read(position)).data).toEqual({ value: `fold ${ordinal}` })
        for (const record of later) expect(await log.read(record.position)).toEqual(record)
        expect([...places.keys()]).toEqual(Array.from({ length: 10 }, (_, index) => index))
        await log.close()
        expect(values(await reopened(store))).toEqual(expected)
      }),
    )

    test(
      'R11: the cut lies between groups: keep sees every applied record of before and none of later',
      withLog(async (log, store) => {
        const state: number[] = []
        const appends = Array.from({ length: 30 }, (_, index) =>
          log.append([item(index)], () => state.push(index)),
        )
        const compacting = log.compact(
          () => {
            const copy = [...state]
            appends.push(
              ...Array.from({ length: 5 }, (_, index) =>
                log.append([item(100 + index)], () => state.push(100 + index)),
              ),
            )
            return copy.map((value) => ({ kind: 'folded', data: { value } }))
          },
          () => undefined,
        )
        await compacting
        await Promise.all(appends)
        await log.close()
        const all = values(await reopened(store))
        expect(all).toEqual(state)
        expect(all).toHaveLength(35)
      }),
    )

    test(
      'R11: compaction can be repeated, down to nothing, and a failing owner changes nothing',
      withLog(async (log, store) => {
        await log.append([item('a'), item('b')])
        const broken = () => {
          throw new Error('owner')
        }
        await expect(log.compact(broken, () => undefined)).rejects.toThrow('owner')
        expect(values(await collect(log))).toEqual(['a', 'b'])
        for (const kept of [['a', 'c'], ['c'], [], ['d']]) {
          await log.compact(
            () => kept.map((value) => item(value)),
            () => undefined,
          )
          expect(values(await collect(log))).toEqual(kept)
        }
        await log.append([item('e')])
        await log.close()
        expect(values(await reopened(store))).toEqual(['d', 'e'])
      }),
    )
  })
}
