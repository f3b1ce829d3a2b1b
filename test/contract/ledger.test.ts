import { knownKind, type LedgerState } from '#gateway/ledger/state'
import { compactLedger } from '#gateway/ledger/store'
import { foldLedger, openLedger, storeLog } from '#gateway/ledger/writer'
import { systemClock, systemHash, systemRandom } from '#io/clock'
import { systemFiles } from '#io/files'
import { openLog } from '#storage/log'
import type { CompactableLog, RecordLog, StoredRecord } from '#storage/record-log'
import { temporaryFolder } from '#support/folders'
import { newMemoryStore, openMemoryLog } from '#support/memory-log'
import { candidate, ledgerSuite, settings } from './ledger.js'

const ports = { clock: systemClock, random: systemRandom }

type OpenLog = (
  onRecord: (record: StoredRecord) => void,
) => CompactableLog | Promise<CompactableLog>

const suiteOn = (name: string, newStore: () => OpenLog) =>
  ledgerSuite(name, async () => {
    const openOn = newStore()
    let log: CompactableLog | undefined
    let state: LedgerState | undefined
    return {
      async open() {
        const fold = foldLedger()
        state = fold.state
        log = await openOn(fold.onRecord)
        return openLedger(ports, log, fold.state, settings)
      },
      async compact() {
        if (log && state) await compactLedger(log, state)
      },
    }
  })

suiteOn('disk', () => {
  const folder = temporaryFolder()
  const disk = { files: systemFiles, clock: systemClock, hash: systemHash }
  return (onRecord) => openLog(disk, folder, storeLog, onRecord)
})
suiteOn('memory', () => {
  const store = newMemoryStore()
  return (onRecord) => openMemoryLog(store, knownKind, onRecord)
})

function gatedLog(log: RecordLog): { readonly log: RecordLog; release(): void; hold(): void } {
  let gate = Promise.resolve()
  let open: () => void = () => undefined
  return {
    log: {
      ...log,
      async append(what, onDurable) {
        const records = typeof what === 'function' ? what(1) : what
        await gate
        return log.append(records, onDurable)
      },
    },
    hold() {
      gate = new Promise((resolve) => {
        open = resolve
      })
    },
    release: () => open(),
  }
}

test('R1, R2: a copy in flight is answered only once the first one is durable', async () => {
  const fold = foldLedger()
  const { log, hold, release } = gatedLog(openMemoryLog(newMemoryStore(), knownKind, fold.onRecord))
  const ledger = await openLedger(ports, log, fold.state, settings)
  hold()
  const answered: string[] = []
  const copies = [1, 2, 3].map(async (n) => {
    const answer = await ledger.admit(candidate())
    answered.push(`${n} ${answer.kind}`)
  })
  await new Promise((resolve) => setImmediate(resolve))
  expect(answered).toEqual([])
  release()
  await Promise.all(copies)
  expect([...answered].sort()).toEqual(['1 admitted', '2 replayed', '3 replayed'])
})
