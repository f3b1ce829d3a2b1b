import { compactLedger } from '#gateway/ledger/compaction'
import { knownKind, type LedgerState } from '#gateway/ledger/state'
import { foldLedger, openLedger, storeFormat } from '#gateway/ledger/store'
import { systemClock, systemHash, systemRandom } from '#io/clock'
import { systemFiles } from '#io/files'
import { openLog } from '#storage/log'
import type { CompactableLog } from '#storage/record-log'
import { temporaryFolder } from '#support/folders'
import { newMemoryStore, openMemoryLog } from '#support/memory-log'
import { ledgerSuite, settings } from './ledger.js'

ledgerSuite('disk', async () => {
  const folder = temporaryFolder()
  let log: CompactableLog | undefined
  let state: LedgerState | undefined
  return {
    async open() {
      const fold = foldLedger()
      state = fold.state
      const ports = { files: systemFiles, clock: systemClock, hash: systemHash }
      log = await openLog(
        ports,
        folder,
        { format: storeFormat, knownKinds: knownKind },
        fold.onRecord,
      )
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
