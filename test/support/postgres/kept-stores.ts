/**
 * Dumps of stores as each form of the tables was written (fixtures/store-v<form>.sql), with what
 * they hold. They are never changed. A new form gets a dump of its own: `keepStore`.
 */
import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { knownKind } from '#gateway/ledger/state'
import { restoreLine, snapshotState } from '#gateway/ledger/store'
import { foldLedger, storeLog } from '#gateway/ledger/writer'
import { systemClock, systemHash, systemRandom } from '#io/clock'
import { systemFiles } from '#io/files'
import type { SqlDatabase } from '#ports'
import { joinStore } from '#storage/postgres/members'
import { schemaVersion } from '#storage/postgres/schema'
import { openSharedLog } from '#storage/postgres/shared-log'
import { openWindows } from '#storage/postgres/windows'
import { openLogReader } from '#storage/reader'
import type { NewRecord } from '#storage/record-log'
import { root } from '../readme.js'
import { programOf } from './binaries.js'

const ports = { clock: systemClock, random: systemRandom }
const pathOf = (form: number, ending: string) => join(root, `fixtures/store-v${form}.${ending}`)

type Holding = Awaited<ReturnType<typeof holdingOf>>

export interface KeptStore {
  readonly form: number
  readonly sql: string
  readonly holds: Holding
}

export const keptStores = (): readonly KeptStore[] =>
  Array.from({ length: schemaVersion }, (_, index) => {
    const form = index + 1
    if (!existsSync(pathOf(form, 'sql')))
      throw new Error(
        `fixtures/store-v${form}.sql is missing: see test/support/postgres/kept-stores.ts`,
      )
    const sql = readFileSync(pathOf(form, 'sql'), 'utf8')
    return { form, sql, holds: JSON.parse(readFileSync(pathOf(form, 'json'), 'utf8')) }
  })

export async function holdingOf(
  database: SqlDatabase,
  { fromSnapshot }: { readonly fromSnapshot: boolean },
) {
  const { state, facts, onRecord } = foldLedger()
  const log = await openSharedLog({
    ...ports,
    database,
    knownKinds: knownKind,
    onRecord,
    ...(fromSnapshot && { onSnapshot: (line) => restoreLine(state, line) }),
  })
  try {
    const [head] = await log.ask('SELECT epoch FROM proposer.head')
    return {
      records: log.applied,
      epoch: Number(head?.epoch),
      info: facts.info,
      admission: facts.admissionSwitch,
      wallets: [...state.allowlist].map(([wallet, isAllowed]) => `${wallet} ${isAllowed}`).sort(),
      questions: [...facts.questions.keys()].sort(),
      candidates: [...state.entries.cut().entries()]
        .map(({ id, sequence, status }) => [id, sequence, status] as const)
        .sort((a, b) => a[1] - b[1]),
      slots: facts.slots(),
    }
  } finally {
    await log.close()
  }
}

async function fill(database: SqlDatabase, records: readonly NewRecord[]): Promise<void> {
  const { state, onRecord } = foldLedger()
  const log = await openSharedLog({ ...ports, database, knownKinds: knownKind, onRecord })
  const half = Math.trunc(records.length / 2)
  const id = '7b1d5c0e-0f0a-4f43-9c6e-2f2a5f0c9d11'
  const append = (some: readonly NewRecord[]) =>
    log.append(some, (stored) => {
      for (const record of stored) onRecord(record)
    })
  log.follow((others) => {
    for (const record of others) onRecord(record)
  })
  await append(records.slice(0, half))
  await log.transact(() => ({
    records: [{ kind: 'leader.elected', data: { gateway: id, epoch: 1 } }],
    head: `epoch = 1, holder = '${id}', lease_until = clock_timestamp()`,
  }))
  await log.catchUp()
  await snapshotState(log, state)
  for (const record of records.slice(half)) await append([record])
  const self = { id, version: '0.1.0', host: 'gw-1', adminUrl: 'http://127.0.0.1:8788' }
  await joinStore(
    { clock: { ...systemClock, sleep: () => new Promise(() => undefined) }, log },
    { ...self, executor: undefined },
  )
  const windows = openWindows(database, {
    windowMs: 60_000,
    perClientItems: 120,
    mostSharedItems: 100,
  })
  await windows.charge('10.0.0.7', 3)
  windows.close()
  await log.close()
}

/**
 * Makes the dump of today's form, in tables that were just made on a server of version 15, whose
 * pg_dump every later version reads. Once for each form, by hand: `KEEP_STORE=1`.
 */
export async function keepStore(database: SqlDatabase, url: string, folder: string): Promise<void> {
  const reader = await openLogReader({ files: systemFiles, hash: systemHash }, folder, storeLog)
  const records: NewRecord[] = []
  await reader.replay(({ kind, data }) => void records.push({ kind, data }))
  await reader.close()
  await fill(database, records)
  const holds = await holdingOf(database, { fromSnapshot: false })
  const program = join(dirname(programOf(15).program), 'pg_dump')
  const flags = ['--schema=proposer', '--inserts', '--no-owner', '--no-privileges']
  const dump = execFileSync(program, [...flags, `--dbname=${url}`], { encoding: 'utf8' })
  const sql = dump.replaceAll(/^\\.*\n/gm, '')
  writeFileSync(pathOf(schemaVersion, 'sql'), sql)
  writeFileSync(pathOf(schemaVersion, 'json'), `${JSON.stringify(holds, null, 2)}\n`)
}
