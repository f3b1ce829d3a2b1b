import { knownKind, type LedgerState } from '#gateway/ledger/state'
import { compactLedger } from '#gateway/ledger/store'
import { foldLedger, openLedger, storeLog } from '#gateway/ledger/writer'
import { systemClock, systemHash, systemRandom } from '#io/clock'
import { systemFiles } from '#io/files'
import { openLog } from '#storage/log'
import type { CompactableLog, RecordLog } from '#storage/record-log'
import { temporaryFolder } from '#support/folders'
import { newMemoryStore, openMemoryLog } from '#support/memory-log'
import { candidate, ledgerSuite, settings } from './ledger.js'

ledgerSuite('disk', async () => {
  const folder = temporaryFolder()
  let log: CompactableLog | undefined
  let state: LedgerState | undefined
  return {
    async open() {
      const fold = foldLedger()
      state = fold.state
      const ports = { files: systemFiles, clock: systemClock, hash: systemHash }
      log = await openLog(ports, folder, storeLog, fold.onRecord)
      return openLedger({ clock: systemClock, random: systemRandom }, log, fold.state, settings)
    },
    async compact() {
      if (log && state) await compactLedger(log, state)
    },
  }
})

ledgerSuite('memory', async () => {
  const store = newMemoryStore()
  let log: CompactableLog | undefined
  let state: LedgerState | undefined
  return {
    async open() {
      const fold = foldLedger()
      state = fold.state
      log = openMemoryLog(store, knownKind, fold.onRecord)
      return openLedger({ clock: systemClock, random: systemRandom }, log, fold.state, settings)
    },
    async compact() {
      if (log && state) await compactLedger(log, state)
    },
  }
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
  const ports = { clock: systemClock, random: systemRandom }
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
