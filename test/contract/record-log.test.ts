import { join } from 'node:path'
import { systemClock, systemHash } from '#io/clock'
import { systemFiles } from '#io/files'
import { openLog } from '#storage/log'
import type { CompactableLog } from '#storage/record-log'
import { temporaryFolder } from '#support/folders'
import { newMemoryStore, openMemoryLog } from '#support/memory-log'
import { SimClock, SimFiles } from '#support/sim-files'
import { compactionSuite, recordLogSuite, type StoreUnderTest, suiteKinds } from './record-log.js'

const options = { format: { name: 'store', version: 1 }, knownKinds: suiteKinds } as const

function folded(name: string, create: () => Promise<StoreUnderTest<CompactableLog>>): void {
  recordLogSuite(name, create)
  compactionSuite(name, create)
}

folded('memory', async () => {
  const store = newMemoryStore()
  return {
    open: async (onRecord) => openMemoryLog(store, suiteKinds, onRecord),
  }
})

for (const segmentBytes of [1, 600, 64 * 1024 * 1024]) {
  folded(`simulated disk, segments of ${segmentBytes} bytes`, async () => {
    const sim = new SimFiles()
    const ports = { files: sim.process(), clock: new SimClock(), hash: systemHash }
    return {
      open: (onRecord) => openLog(ports, '/data/store', { ...options, segmentBytes }, onRecord),
    }
  })
}

folded('real disk', async () => {
  const folder = temporaryFolder()
  const ports = { files: systemFiles, clock: systemClock, hash: systemHash }
  return {
    open: (onRecord) => openLog(ports, join(folder, 'store'), options, onRecord),
  }
})
