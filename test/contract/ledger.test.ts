import { knownKind } from '#gateway/ledger/state'
import { compactLedger } from '#gateway/ledger/store'
import { foldLedger, openLedger, storeLog } from '#gateway/ledger/writer'
import { systemClock, systemHash, systemRandom } from '#io/clock'
import { systemFiles } from '#io/files'
import { openLog } from '#storage/log'
import type { RecordLog } from '#storage/record-log'
import { temporaryFolder } from '#support/folders'
import { newMemoryStore, openMemoryLog } from '#support/memory-log'
import { candidate, ledgerSuite, settings } from './ledger.js'

const ports = { clock: systemClock, random: systemRandom }

ledgerSuite('disk', async () => {
  const folder = temporaryFolder()
  const disk = { files: systemFiles, clock: systemClock, hash: systemHash }
  return {
    openLog: (onRecord) => openLog(disk, folder, storeLog, onRecord),
    compact: compactLedger,
  }
})
ledgerSuite('memory', async () => {
  const store = newMemoryStore()
  return {
    openLog: (onRecord) => openMemoryLog(store, knownKind, onRecord),
    compact: compactLedger,
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
