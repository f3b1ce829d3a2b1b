/** The operator's commands on a store in PostgreSQL. */

import { existsSync } from 'node:fs'
import { chmod, mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { openStore, readStore } from '#gateway/ledger/store'
import { storeLog } from '#gateway/ledger/writer'
import { systemClock, systemHash, systemRandom } from '#io/clock'
import { systemFiles } from '#io/files'
import { systemLiveness } from '#io/liveness'
import { postgresDatabase } from '#io/postgres'
import { type Chain, ChainError } from '#ports'
import { copyRecords, openFolderSource, openFolderTarget } from '#storage/copy'
import { acquireLock } from '#storage/lock'
import { openDatabaseTarget } from '#storage/postgres/copy'
import { startLeadership } from '#storage/postgres/leadership'
import { joinStore } from '#storage/postgres/members'
import { argvOf } from '#support/argv'
import { run } from '#support/cli'
import { describeWith } from '#support/components'
import { deferred } from '#support/deferred'
import { temporaryFolder } from '#support/folders'
import { joinLedger, numbered } from '#support/postgres/gateways'
import { type PostgresServer, startPostgres } from '#support/postgres/server'
import { workshop } from '#support/processes'
import type { ServeReady } from '#support/proposing'

const one = `0x${'11'.repeat(20)}` as const
const chain = {
  id: 31337,
  rpc_urls: ['http://127.0.0.1:1'],
  signed_proposer: one,
  oracles: [one],
  requesters: [{ address: one, kind: 'uma-ctf-adapter' }],
  tokens: [one],
}
const ports = {
  files: systemFiles,
  clock: systemClock,
  random: systemRandom,
  hash: systemHash,
  liveness: systemLiveness(),
}
const settings = async () => ({
  chainId: 31337,
  genesisHash: `0x${'63'.padStart(64, '0')}` as const,
  allowlist: [],
  admissionEnabled: true,
})

interface Found {
  readonly check: string
  readonly detail: string
}
type Checked = Record<'faults' | 'warnings' | 'told' | 'right', readonly Found[]>

const noNode = new Proxy({} as Chain, {
  get: (_, name) =>
    name === 'then'
      ? undefined
      : async () => {
          throw new ChainError('unavailable', 'no node in this test')
        },
})

interface Asked {
  readonly code: number
  readonly answer: Record<string, unknown>
}

for (const version of [18, 15] as const)
  describeWith([version], `operator on PostgreSQL ${version}`, () => {
    let server: PostgresServer
    let home: string
    beforeAll(async () => {
      server = await startPostgres({ version })
      home = temporaryFolder()
    })
    afterAll(async () => {
      await server.close()
    })

    let count = 0
    async function siteOf(store: string) {
      const config = join(home, `gateway-${++count}.json`)
      await writeFile(config, JSON.stringify({ chain, store }))
      return { config, operator: operatorOn(config) }
    }
    async function ask(argv: readonly string[], env: Record<string, string> = {}): Promise<Asked> {
      const { code, stdout, stderr } = await run(home, [...argv, '--json'], { env })
      const last = stderr.trim().split('\n').at(-1) ?? ''
      return { code, answer: code === 0 ? JSON.parse(stdout) : JSON.parse(last).error }
    }
    const operatorOn =
      (config: string) =>
      (...argv: string[]) =>
        ask(['operator', '--config', config, ...argv])
    const text = async (config: string, ...argv: string[]) =>
      (await run(home, ['operator', '--config', config, ...argv])).stdout
    async function emptySite() {
      const url = await server.createDatabase()
      return { url, ...(await siteOf(url)) }
    }
    async function filledSite(candidates = 6) {
      const site = await emptySite()
      const { ledger, log, close } = await joinLedger(site.url)
      for (let n = 1; n <= candidates; n++) await ledger.admit(numbered(n))
      await close()
      return { ...site, log }
    }
    async function query(url: string, sql: string) {
      const session = await postgresDatabase(url).connect()
      try {
        return await session.script(sql)
      } finally {
        session.destroy()
      }
    }
    async function folderStore(candidates: number): Promise<string> {
      const folder = join(home, `store-${++count}`)
      const { ledger } = await openStore(ports, folder, { settings })
      for (let n = 1; n <= candidates; n++) await ledger.admit(numbered(n))
      await ledger.close()
      return folder
    }

    async function folderSite() {
      const url = join(home, `target-${++count}`)
      return { url, ...(await siteOf(url)) }
    }

    test('store init makes the tables of an empty database once, and refuses one of another program', async () => {
      const { url, operator } = await emptySite()
      expect(await operator('list')).toMatchObject({
        code: 74,
        answer: { code: 'store_missing', hint: expect.stringContaining('store init') },
      })
      expect(await operator('store', 'init')).toMatchObject({
        code: 0,
        answer: { schema: 'proposer.operator-store-init/1', made: true, form: 1 },
      })
      expect((await operator('store', 'init')).answer).toMatchObject({ made: false })
      expect((await operator('store', 'verify')).answer).toMatchObject({ records: 0 })

      const other = await emptySite()
      await query(other.url, 'CREATE TABLE accounts (id int)')
      for (const command of ['init', 'verify', 'upgrade', 'export'])
        expect(await other.operator('store', command), command).toMatchObject({
          code: 74,
          answer: { code: 'store_mismatch', detail: expect.stringContaining('another program') },
        })
      expect(await query(url, 'SELECT n FROM proposer.head')).toEqual([{ n: '0' }])
    })

    test('store upgrade raises what is written once no older gateway is at work, and newer tables are refused', async () => {
      const { url, operator } = await emptySite()
      expect(await operator('store', 'upgrade')).toMatchObject({
        code: 74,
        answer: { code: 'store_missing' },
      })
      await operator('store', 'init')
      await query(
        url,
        `UPDATE proposer.head SET write_version = 0; INSERT INTO proposer.gateway
           (id, version, format, host, started_at, seen_at, applied_n)
         VALUES (gen_random_uuid(), '0.1.9', 0, 'a', clock_timestamp(), clock_timestamp(), 0)`,
      )
      expect((await operator('store', 'upgrade')).answer).toMatchObject({
        schema: 'proposer.operator-store-upgrade/1',
        migrations: 0,
        write_version: 0,
        older_gateways: 1,
      })
      await query(url, 'DELETE FROM proposer.gateway')
      expect((await operator('store', 'upgrade')).answer).toMatchObject({
        write_version: 1,
        older_gateways: 0,
      })
      await query(url, 'UPDATE proposer.head SET min_reader = 2')
      for (const command of ['upgrade', 'verify', 'init'])
        expect(await operator('store', command), command).toMatchObject({
          code: 74,
          answer: {
            code: 'store_too_new',
            detail: expect.stringContaining('schema version 2 or later; this version has 1'),
            hint: 'install the version that wrote it',
          },
        })
    })

    test('a user without rights is refused with the fix', async () => {
      const { url } = await emptySite()
      await server.query('CREATE ROLE guest LOGIN').catch(() => undefined)
      const guest = await siteOf(url.replace('gateway@', 'guest@'))
      expect(await guest.operator('store', 'init')).toMatchObject({
        code: 74,
        answer: { detail: expect.stringContaining('lacks a right') },
      })
      await (await siteOf(url)).operator('store', 'init')
      expect(await guest.operator('gateways')).toMatchObject({
        code: 74,
        answer: { detail: expect.stringContaining('lacks a right') },
      })
    })

    test('contract §9: code that one gateway is told to pin holds for the others, and from a snapshot', async () => {
      const { url, operator } = await emptySite()
      const [here, elsewhere] = [await joinLedger(url), await joinLedger(url)]
      const heard: string[] = []
      elsewhere.ledger.onChange((events) => heard.push(...events.map(({ kind }) => kind)))
      const runs = { implementation: one, code_hash: `0x${'22'.repeat(32)}` } as const
      await here.ledger.commit([
        { kind: 'implementation.set', address: one, runs, reason: 'looked at', by: 'alice' },
      ])
      await elsewhere.ledger.catchUp?.()
      expect([[...elsewhere.ledger.implementations], heard]).toEqual([
        [[one, runs]],
        ['implementation.set'],
      ])
      await Promise.all([here.close(), elsewhere.close()])
      expect((await operator('store', 'compact')).code).toBe(0)
      const again = await joinLedger(url)
      expect([...again.ledger.implementations]).toEqual([[one, runs]])
      await again.close()
    })

    test('store verify proves records and snapshot, and names what is wrong', async () => {
      const { url, config, operator } = await filledSite()
      expect((await operator('store', 'verify')).answer).toMatchObject({
        schema: 'proposer.operator-store-proof/1',
        records: 7,
        candidates: { received: 6 },
        database: { snapshot_at: null, epoch: 0 },
      })
      for (const from of [10, 20]) {
        const { ledger, close } = await joinLedger(url)
        await ledger.admit(numbered(from))
        await ledger.commit([
          { kind: 'admission.set', enabled: false, reason: 'a test' },
          { kind: 'admission.set', enabled: true, reason: 'a test' },
        ])
        await close()
        expect((await operator('store', 'compact')).code).toBe(0)
      }
      expect((await operator('store', 'verify')).answer).toMatchObject({
        records: 13,
        database: { snapshot_at: 13 },
      })
      expect(await text(config, 'store', 'verify')).toContain(
        'the snapshot of record 13 equals its fold',
      )

      expect(await text(config, 'store', 'compact')).toMatch(/^the store had \d+ /)

      const damaged = async (sql: string, detail: RegExp) => {
        await query(url, sql)
        expect(await operator('store', 'verify'), sql).toMatchObject({
          code: 74,
          answer: { code: 'store_damaged', detail: expect.stringMatching(detail) },
        })
      }
      await damaged(
        "UPDATE proposer.snapshot SET body = replace(body, '750000000', '750000001') WHERE part > 0",
        /the snapshot of record 13 is not its fold/,
      )
      await query(url, 'DELETE FROM proposer.snapshot')
      await damaged('DROP INDEX proposer.record_identity', /index record_identity is missing/)
      await damaged(
        'INSERT INTO proposer.record SELECT 14, grp, k, t, d FROM proposer.record WHERE n = 3',
        /ends at record 13, the last one is 14/,
      )
      await damaged('UPDATE proposer.head SET n = 14', /record 14: /)
      await damaged('DELETE FROM proposer.record WHERE n = 5', /record 5 is missing/)
    })

    test('store repair is refused with the tools of the database; export and compact work', async () => {
      const { operator } = await filledSite(3)
      expect(await operator('store', 'repair')).toMatchObject({
        code: 2,
        answer: { code: 'shared_store', hint: expect.stringContaining('pg_dump') },
      })
      expect((await operator('store', 'export')).answer.candidates).toHaveLength(3)
    })

    test('gateways lists who is there and who leads; leader resign ends the lease and keeps the reason', async () => {
      const { url, config, operator } = await filledSite(2)
      expect((await operator('gateways')).answer).toMatchObject({
        schema: 'proposer.operator-gateways/1',
        leader: null,
        gateways: [],
      })
      expect((await operator('leader', 'resign')).answer).toMatchObject({
        schema: 'proposer.operator-leader/1',
        led: null,
        through: null,
      })
      expect(await text(config, 'leader', 'resign')).toMatch(/no gateway leads/)

      const { log, close } = await joinLedger(url)
      const id = systemRandom.uuid()
      const member = {
        id,
        version: '9.9.9',
        host: 'north',
        adminUrl: 'http://127.0.0.1:9',
        executor: one,
      }
      const membership = await joinStore({ clock: systemClock, log }, member)
      const lost = deferred<string>()
      const gained = deferred<number>()
      const leadership = startLeadership({
        clock: systemClock,
        random: systemRandom,
        log,
        id,
        standsBack: false,
        obstacle: () => undefined,
        hasFailed: () => undefined,
        onGained: (epoch) => gained.resolve(epoch),
        onLost: async (reason) => lost.resolve(reason),
      })
      const epoch = await gained.promise
      expect((await operator('gateways')).answer).toMatchObject({
        records: 4,
        leader: { id, epoch, lease_ends_in_seconds: expect.any(Number) },
        gateways: [
          {
            id,
            leads: true,
            version: '9.9.9',
            host: 'north',
            admin_url: 'http://127.0.0.1:9',
            executor: one,
            lag_records: expect.any(Number),
            seen_seconds_ago: expect.any(Number),
          },
        ],
      })
      expect(await text(config, 'gateways')).toMatch(new RegExp(`${id} {2}leads\n`))
      expect((await operator('leader', 'resign', '--dry-run')).answer).toMatchObject({
        dry_run: true,
        gateway: id,
      })
      expect(await operator('leader', 'resign', '--reason', ' ')).toMatchObject({ code: 2 })
      expect((await operator('leader', 'resign', '--reason', 'node upgrade')).answer).toMatchObject(
        {
          led: { id, epoch, host: 'north' },
          through: 'store',
          reason: 'node upgrade',
          others: 0,
        },
      )
      expect(await lost.promise).toBe('another gateway leads')
      expect(await query(url, "SELECT d FROM proposer.record WHERE k = 'leader.resigned'")).toEqual(
        [{ d: { gateway: id, epoch, reason: 'node upgrade' } }],
      )
      await leadership.stop()
      await membership.stop()
      await close()
      expect((await operator('store', 'verify')).code).toBe(0)
    })

    test('store copy takes a folder to PostgreSQL and back, and compares every record', async () => {
      const folder = await folderStore(30)
      const { url, operator } = await emptySite()
      const there = await ask(argvOf`operator store copy --from ${folder} --to ${url}`)
      expect(there).toMatchObject({
        code: 0,
        answer: {
          schema: 'proposer.operator-store-copy/1',
          from: folder,
          copied: 31,
          records: 31,
          live_gateways: 0,
        },
      })
      expect((await operator('store', 'verify')).answer).toMatchObject({
        records: 31,
        candidates: { received: 30 },
      })
      expect(
        (await ask(argvOf`operator store copy --from ${folder} --to ${url}`)).answer,
      ).toMatchObject({ copied: 0, records: 31 })

      const { ledger, log, close } = await joinLedger(url)
      await ledger.admit(numbered(31))
      await log.append([
        { kind: 'leader.elected', data: { gateway: systemRandom.uuid(), epoch: 1 } },
      ])
      await ledger.admit(numbered(32))
      await close()
      expect(await ask(argvOf`operator store copy --from ${folder} --to ${url}`)).toMatchObject({
        code: 74,
        answer: { code: 'store_mismatch', detail: expect.stringContaining('32 records or more') },
      })

      const back = join(home, 'back')
      expect(
        (await ask(argvOf`operator store copy --from ${url} --to ${back}`)).answer,
      ).toMatchObject({ copied: 33, records: 33 })
      expect((await readdir(home)).filter((name) => name.endsWith('.copying'))).toEqual([])
      const { operator: onDisk } = await siteOf(back)
      const proof = (await onDisk('store', 'verify')).answer
      expect(proof).toMatchObject({ records: 33, candidates: { received: 32 } })
      expect(proof.kinds).not.toHaveProperty('leader.elected')
      const exported = async (ask: typeof operator) =>
        (await ask('store', 'export')).answer.candidates
      expect(await exported(onDisk)).toEqual(await exported(operator))
      expect(await exported(onDisk)).toHaveLength(32)
      await query(url, 'UPDATE proposer.record SET t = t + 1 WHERE n = 3')
      expect(await ask(argvOf`operator store copy --from ${url} --to ${back}`)).toMatchObject({
        code: 74,
        answer: { detail: expect.stringContaining('record 3 of') },
      })
    })

    test('a compacted folder is copied with what its compaction has kept', async () => {
      const folder = await folderStore(5)
      const opened = await openStore(ports, folder, { settings })
      await opened.ledger.commit([{ kind: 'admission.set', enabled: false, reason: 'a test' }])
      await opened.compact(0)
      await opened.ledger.close()
      const { url, operator } = await emptySite()
      const copied = await ask(argvOf`operator store copy --from ${folder} --to ${url}`)
      expect(copied.code).toBe(0)
      const { operator: onDisk } = await siteOf(folder)
      expect((await operator('store', 'verify')).answer).toMatchObject({
        kinds: (await onDisk('store', 'verify')).answer.kinds,
      })
      const other = join(home, 'other')
      expect((await ask(argvOf`operator store copy --from ${folder} --to ${other}`)).code).toBe(0)
      const ledger = await readStore(ports, other, await settings())
      expect(ledger.admissionSwitch).toBe(false)
      await ledger.close()
    })

    test.each(['database', 'folder'] as const)(
      'a copy to a %s that was cut off is no store, and goes on',
      async (kind) => {
        const folder = await folderStore(1200)
        const { url, operator } = kind === 'database' ? await emptySite() : await folderSite()
        const cut = new AbortController()
        const source = await openFolderSource(ports, folder, storeLog)
        const database = postgresDatabase(kind === 'database' ? url : server.url())
        const target =
          kind === 'database'
            ? await openDatabaseTarget(database, systemRandom)
            : await openFolderTarget(ports, url, storeLog)
        const onProgress = () => cut.abort(new Error('cut off'))
        await expect(
          copyRecords(source, target, { signal: cut.signal, onProgress }),
        ).rejects.toThrow('cut off')
        await source.close()
        await target.close()
        if (kind === 'database') {
          await database.close()
          for (const command of ['verify', 'init', 'upgrade', 'export'])
            expect(await operator('store', command), command).toMatchObject({
              code: 74,
              answer: { code: 'store_incomplete', hint: expect.stringContaining('store copy') },
            })
        } else expect(existsSync(url)).toBe(false)
        const again = await ask(argvOf`operator store copy --from ${folder} --to ${url}`)
        expect(again.answer).toMatchObject({ copied: 701, records: 1201 })
        expect((await operator('store', 'verify')).answer).toMatchObject({ records: 1201 })
      },
    )

    test('a copy reads beside a gateway, and refuses what holds another store, and what is none', async () => {
      const folder = await folderStore(2)
      const copy = (...argv: string[]) => ask(['operator', 'store', 'copy', ...argv])
      const { url } = await emptySite()
      const lock = await acquireLock(ports, folder, 'serve')
      const beside = await emptySite()
      expect(await copy('--from', folder, '--to', beside.url)).toMatchObject({
        code: 0,
        answer: { records: 3, live_gateways: 1 },
      })
      await lock.release()

      const other = await filledSite(2)
      const strangers = join(home, `stranger-${++count}`)
      await mkdir(strangers)
      await writeFile(join(strangers, 'notes.txt'), 'mine')
      const program = await emptySite()
      await query(program.url, 'CREATE TABLE accounts (id int)')
      for (const to of [other.url, strangers, program.url, await folderStore(1)])
        expect(await copy('--from', folder, '--to', to), to).toMatchObject({
          code: 74,
          answer: { code: 'store_mismatch' },
        })
      expect(await readdir(strangers)).toEqual(['notes.txt'])

      const { log, close } = await joinLedger(other.url)
      const member = { version: '1', host: 'north', adminUrl: undefined, executor: undefined }
      const membership = await joinStore(
        { clock: systemClock, log },
        { ...member, id: systemRandom.uuid() },
      )
      const elsewhere = await emptySite()
      expect((await copy('--from', other.url, '--to', elsewhere.url)).answer).toMatchObject({
        records: 3,
        live_gateways: 1,
      })
      await membership.stop()
      await close()

      const missing = join(home, 'missing')
      const cases: readonly (readonly [readonly string[], string])[] = [
        [['--to', url], 'no_configuration'],
        [['--from', folder], 'usage'],
        [['--from', folder, '--to', folder], 'usage'],
        [['--from', missing, '--to', url], 'no_store'],
        [argvOf`--from ${folder} --to postgres://a:secret@127.0.0.1/x`, 'password_in_url'],
        [argvOf`--from ${folder} --to postgres://127.0.0.1`, 'invalid_store_url'],
        [argvOf`--from ${folder} --to ${url} --to-file x`, 'usage'],
        [['--from', folder, '--to-file', missing], 'store_url_file_unreadable'],
      ]
      for (const [argv, code] of cases) {
        const refused = await copy(...argv)
        expect(refused, argv.join(' ')).toMatchObject({ code: 2, answer: { code } })
        expect(JSON.stringify(refused)).not.toContain('secret')
      }
      expect(existsSync(missing)).toBe(false)
    })

    test('places are taken from gateway.json, a file of mode 0600, and PROPOSER_STORE_URL_FILE', async () => {
      const folder = await folderStore(2)
      const { config } = await siteOf(folder)
      const file = join(home, `url-${++count}`)
      const { url } = await emptySite()
      await writeFile(file, url, { mode: 0o600 })
      const copy = (...argv: string[]) =>
        ask(['operator', 'store', 'copy', ...argv], { PROPOSER_STORE_URL_FILE: file })
      expect((await copy('--from', config)).answer).toMatchObject({ from: folder, copied: 3 })
      expect((await copy('--from', config, '--to-file', file)).answer).toMatchObject({ copied: 0 })
      const back = join(home, `back-${++count}`)
      expect((await copy('--from-file', file, '--to', back)).answer).toMatchObject({ copied: 3 })
      await chmod(file, 0o644)
      expect(await copy('--from', config)).toMatchObject({
        code: 2,
        answer: { code: 'store_url_file_mode' },
      })
    })

    test('serve --check on a database: server, rights, durability, chain', async () => {
      const { url, config, operator } = await emptySite()
      const check = async (path: string) => {
        const { stdout } = await run(home, argvOf`serve --config ${path} --check --json`, {
          chain: noNode,
        })
        const { faults, warnings, told, right } = JSON.parse(stdout) as Checked
        const all = [...faults, ...warnings, ...told, ...right]
        return {
          all: all.map(({ detail }) => detail).join('\n'),
          faults: faults.filter(({ check: id }) => id.startsWith('store')),
          of: (id: string) =>
            all.filter(({ check: one }) => one === id).map(({ detail }) => detail),
        }
      }
      // The servers of tests write without fsync.
      const empty = await check(config)
      expect(empty.faults.map(({ detail }) => detail)).toEqual([
        expect.stringMatching(/^fsync is off: .* acknowledged admissions may be lost/),
      ])
      expect(empty.of('store_server')[0]).toMatch(new RegExp(`PostgreSQL ${version}`))
      expect(empty.of('store')[0]).toMatch(/is empty, and the tables can be created/)
      expect(await query(url, "SELECT to_regnamespace('proposer') AS made")).toEqual([
        { made: null },
      ])

      await operator('store', 'init')
      const { ledger, close } = await joinLedger(url)
      await ledger.admit(numbered(1))
      await close()
      const filled = await check(config)
      expect(filled.of('store')[0]).toMatch(/is sound; it holds 1 candidate$/)
      expect(filled.of('store_chain')[0]).toMatch(/chain 31337/)
      expect(filled.of('store_rights')[0]).toMatch(/has all rights that a gateway needs/)

      const elsewhere = join(home, `chain-${++count}.json`)
      await writeFile(elsewhere, JSON.stringify({ chain: { ...chain, id: 5 }, store: url }))
      expect((await check(elsewhere)).of('store_chain')[0]).toMatch(/belongs to chain 31337/)

      await server.query('CREATE ROLE reader LOGIN').catch(() => undefined)
      await query(
        url,
        'GRANT USAGE ON SCHEMA proposer TO reader; GRANT SELECT ON ALL TABLES IN SCHEMA proposer TO reader',
      )
      const reader = await siteOf(url.replace('gateway@', 'reader@'))
      expect((await check(reader.config)).of('store_rights')[0]).toMatch(
        /INSERT on proposer.record/,
      )
      expect(await reader.operator('store', 'init')).toMatchObject({
        code: 74,
        answer: { detail: expect.stringContaining('DELETE on proposer.gateway') },
      })

      const unsafe = await startPostgres({ version, settings: { fsync: 'on' } })
      try {
        const site = await siteOf(unsafe.url())
        const sound = await check(site.config)
        expect(sound.faults).toEqual([])
        expect(sound.of('store_durability')[0]).toMatch(
          /survives a failure of the server .* not the loss of its disk: no standby is synchronous/,
        )
        await query(unsafe.url(), 'ALTER DATABASE postgres SET synchronous_commit = off')
        expect((await check(site.config)).faults[0]?.detail).toMatch(/synchronous_commit is off/)
        await query(unsafe.url(), 'ALTER DATABASE postgres RESET synchronous_commit')
        await unsafe.query("ALTER SYSTEM SET synchronous_standby_names = 'north'")
        await unsafe.query('SELECT pg_reload_conf()')
        await expect
          .poll(async () => (await check(site.config)).faults[0]?.detail, { timeout: 10_000 })
          .toMatch(/no synchronous standby of "north" is connected/)
        await query(
          unsafe.url(),
          'SET synchronous_commit = local; ALTER DATABASE postgres SET default_transaction_read_only = on',
        )
        expect((await check(site.config)).faults[0]?.detail).toMatch(/is read-only/)
        expect(await site.operator('store', 'init')).toMatchObject({
          code: 74,
          answer: { hint: expect.stringContaining('put the primary into') },
        })
      } finally {
        await unsafe.close()
      }
      const gone = await siteOf('postgres://postgres@127.0.0.1:1/nothing')
      expect((await check(gone.config)).faults[0]?.detail).toMatch(/cannot be used: .*ECONNREFUSED/)
    })

    test('gateways and leader resign on a store in a folder are exit 2', async () => {
      const { operator } = await siteOf('./gateway-store')
      for (const command of [
        ['gateways'],
        ['leader', 'resign'],
        ['store', 'init'],
        ['store', 'upgrade'],
      ])
        expect(await operator(...command)).toMatchObject({
          code: 2,
          answer: { code: 'store_not_shared', hint: expect.stringContaining('PostgreSQL') },
        })
    })
  })

describeWith([18], 'gateways on PostgreSQL 18, as processes', () => {
  const shop = workshop()
  let server: PostgresServer
  let folder: string
  let gateway: object
  beforeAll(async () => {
    server = await startPostgres()
    folder = join(await shop.folder(), 'dev')
    const devchain = ['devchain', '--port', '0', '--questions', '1', '--write', folder, '--json']
    await shop.start(devchain).line<ServeReady>()
    gateway = JSON.parse(await readFile(join(folder, 'gateway.json'), 'utf8'))
  })
  afterAll(async () => {
    await shop.clean()
    await server.close()
  })

  test('a leader resigns, another takes over, and metrics and readiness show it', async () => {
    const store = await server.createDatabase()
    const admins: string[] = []
    for (const name of ['north', 'south']) {
      const config = join(folder, `${name}.json`)
      await writeFile(config, JSON.stringify({ ...gateway, store }))
      const serving = shop.start(argvOf`serve --config ${config} --port 0 --json`)
      const { admin_url } = await serving.line<{ admin_url: string }>()
      admins.push(admin_url)
    }
    const config = join(folder, 'north.json')
    const asked = async (...argv: string[]) => {
      const { stdout } = await shop.run(argvOf`operator --config ${config} ${argv} --json`)
      return JSON.parse(stdout) as {
        readonly leader: { readonly id: string; readonly epoch: number } | null
        readonly gateways: readonly { readonly id: string; readonly admin_url: string }[]
        readonly led: { readonly id: string }
      }
    }
    const metric = async (url: string, name: string) => {
      const text = await (await fetch(`${url}/metrics`)).text()
      const value = new RegExp(`^${name} (\\S+)$`, 'm').exec(text)?.[1]
      return value === undefined ? undefined : Number(value)
    }
    const leaders = async () => {
      const all = await Promise.all(admins.map((url) => metric(url, 'proposer_store_leader')))
      return all.join()
    }
    await expect.poll(leaders, { timeout: 15_000 }).toMatch(/^(1,0|0,1)$/)
    const before = await asked('gateways')
    expect(before.gateways.map(({ admin_url }) => admin_url).sort()).toEqual([...admins].sort())
    const resigned = await asked('leader', 'resign', '--reason', 'a drill')
    expect(resigned).toMatchObject({
      led: { id: before.leader?.id },
      through: 'store',
      others: 1,
    })
    await expect
      .poll(async () => (await asked('gateways')).leader?.id ?? before.leader?.id, {
        timeout: 15_000,
      })
      .not.toBe(before.leader?.id)
    const [north = ''] = admins
    await expect
      .poll(() => metric(north, 'proposer_store_epoch'), { timeout: 15_000 })
      .toBeGreaterThan(before.leader?.epoch ?? 0)
    expect(await metric(north, 'proposer_store_gateways')).toBe(2)
    expect(await metric(north, 'proposer_store_fences_total')).toBe(0)
    expect(await metric(north, 'proposer_store_append_seconds_count')).toBeGreaterThan(-1)
    expect(await (await fetch(`${north}/readyz`)).json()).toEqual({ ready: true, reasons: [] })

    await server.stop()
    const reasons = async () =>
      ((await (await fetch(`${north}/readyz`)).json()) as { reasons: string[] }).reasons.join()
    await expect
      .poll(reasons, { timeout: 15_000 })
      .toMatch(/the database of the store cannot be reached/)
    await expect
      .poll(() => metric(north, 'proposer_store_leader'), { timeout: 15_000 })
      .toBeUndefined()
    await server.restart()
    await expect.poll(reasons, { timeout: 15_000 }).toBe('')
  })

  test('two budgets on one store are a warning; who gives no sign of life is gone, and does not lag', async () => {
    const store = await server.createDatabase()
    const site = async (name: string, perIp: number) => {
      const config = join(folder, `${name}.json`)
      const budget = { window_seconds: 60, per_ip_items: perIp, global_items: 1_000 }
      await writeFile(config, JSON.stringify({ ...gateway, store, budget }))
      const serving = shop.start(['serve', '--config', config, '--port', '0', '--json'])
      await serving.line()
      return { config, serving }
    }
    const north = await site('one', 120)
    const alike = await site('two', 120)
    expect(north.serving.stderr() + alike.serving.stderr()).not.toContain('budgets_differ')
    await alike.serving.stop()
    const south = await site('other', 60)
    expect(south.serving.stderr()).toContain('"code":"budgets_differ"')
    expect(south.serving.stderr()).toMatch(
      /allows 120 items of one address and 1000 of all in 60 s, this one 60 items of one/,
    )
    await south.serving.stop('SIGKILL')
    const session = await postgresDatabase(store).connect()
    await session.script(
      "UPDATE proposer.gateway SET seen_at = seen_at - interval '10 min', applied_n = 0 WHERE version LIKE '%.60.1000'",
    )
    session.destroy()
    const operator = ['operator', '--config', north.config, 'gateways']
    const { gateways } = JSON.parse((await shop.run([...operator, '--json'])).stdout)
    expect(gateways).toMatchObject([{ gone: false }, { gone: true }])
    for (const { version } of gateways) expect(version).not.toContain('budget')
    const { stdout } = await shop.run(operator)
    expect(stdout).toMatch(/^1 gateway, 1 gone, \d+ records?, epoch \d+\n/)
    expect(stdout).toMatch(/\n {2}gone: no sign of life for 10 min/)
    const gone = stdout.split(/\n(?=\S)/).find((part) => part.includes('gone:'))
    expect(gone).not.toContain('lags')
  })
})
