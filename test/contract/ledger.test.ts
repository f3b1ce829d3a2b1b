import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { compactLedger } from '../../src/core/gateway/ledger/compaction.js'
import type { LedgerState } from '../../src/core/gateway/ledger/state.js'
import { knownKind } from '../../src/core/gateway/ledger/state.js'
import { foldLedger, openLedger, storeFormat } from '../../src/core/gateway/ledger/store.js'
import { systemClock, systemHash, systemRandom } from '../../src/core/io/clock.js'
import { systemFiles } from '../../src/core/io/files.js'
import { openLog } from '../../src/core/storage/log.js'
import type { CompactableLog } from '../../src/core/storage/record-log.js'
import { newMemoryStore, openMemoryLog } from '../support/memory-log.js'
import { ledgerSuite, settings } from './ledger.js'

ledgerSuite('disk', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'ledger-'))
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
    remove: () => rm(folder, { recursive: true, force: true }),
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
    remove: async () => undefined,
  }
})
