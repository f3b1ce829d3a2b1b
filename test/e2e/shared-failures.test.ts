/** Several gateways on one PostgreSQL, while connections and statements fail (contract §2, §9). */
import { postgresDatabase } from '#io/postgres'
import type { Progress } from '#protocol/candidate'
import { openWindows } from '#storage/postgres/windows'
import { describeWith } from '#support/components'
import { identitiesIn, joinLedger, numbered, outcome, statusOf } from '#support/postgres/gateways'
import { identities, sameMoment, until } from '#support/postgres/load'
import { startPgbouncer } from '#support/postgres/pgbouncer'
import { openPostgresProxy } from '#support/postgres/proxy'
import { type PostgresServer, startPostgres } from '#support/postgres/server'
import { answer, answerTo, commitAnswer, type Place, statementLike } from '#support/postgres/wire'

let server: PostgresServer
const closing: (() => Promise<void>)[] = []
const later = <T extends { close(): Promise<void> }>(one: T): T => {
  closing.push(() => one.close())
  return one
}
const join = async (url: string) => later(await joinLedger(url))
const inFront = async (url: string) => later(await openPostgresProxy(url))
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close()
})

const failed: Progress = {
  status: 'failed',
  validatedAtMs: null,
  selectedAtMs: null,
  submission: null,
  failure: {
    stage: 'validation',
    code: 'insufficient_balance',
    detail: 'the wallet holds 1, the permit needs 2',
    retryable: true,
  },
}

const windowLimits = { perClientItems: 120, mostSharedItems: 100 }

async function proxied() {
  const url = await server.createDatabase()
  return { url, proxy: await inFront(url) }
}

describeWith([18], 'several gateways on one database', () => {
  beforeAll(async () => {
    server = await startPostgres()
  })
  afterAll(() => server.close())

  test('R2: one payload through four gateways at the same moment is one candidate', async () => {
    const url = await server.createDatabase()
    const gateways = [await join(url), await join(url), await join(url), await join(url)]
    await sameMoment(gateways, 100)
  })

  test('R1: each round trip of an admission is cut, and it is admitted once', async () => {
    const { proxy } = await proxied()
    const gateway = await join(proxy.url)
    let n = 0
    for (const place of writing) {
      const fault = proxy.cut(place)
      expect(await outcome(gateway.ledger.admit(numbered(++n)))).toBe(202)
      expect(fault.isMet, String(place)).toBe(true)
      const reset = proxy.cut(place, 'reset')
      expect(await outcome(gateway.ledger.admit(numbered(++n)))).toBe(202)
      expect(reset.isMet, String(place)).toBe(true)
    }
    expect(await identitiesIn(gateway.log)).toEqual(identities(1, n))
    expect(gateway.ledger.counts().received).toBe(n)
  })

  test('R1: whatever answer is cut, polls and reconnections too, nothing is admitted twice', async () => {
    const url = await server.createDatabase()
    const [proxy, other] = [await inFront(url), await join(url)]
    const gateway = await join(proxy.url)
    const told: number[] = []
    for (let n = 1; n <= 20; n++) {
      proxy.cut(answer(1 + (n % 7)))
      told.push(await outcome(gateway.ledger.admit(numbered(n))))
    }
    proxy.clear()
    const there = await identitiesIn(other.log)
    for (const [index, status] of told.entries())
      expect([202, 503], `admission ${index + 1}`).toContain(status)
    expect(there).toEqual(identities(1, 20).filter((_identity, index) => told[index] === 202))
    await until(() => gateway.log.down === undefined)
    await gateway.log.catchUp()
    await other.log.catchUp()
    expect(gateway.ledger.counts()).toEqual(other.ledger.counts())
  })

  test('R1: each round trip of a commit and of a replay is cut, and they are done once', async () => {
    const { proxy } = await proxied()
    const gateway = await join(proxy.url)
    const admission = await gateway.ledger.admit(numbered(1))
    if (admission.kind !== 'admitted') throw new Error(admission.kind)
    const { id } = admission.candidate
    for (const place of writing) {
      const first = proxy.cut(place)
      const changes = [{ kind: 'candidate.progress', id, progress: failed } as const]
      const basis = await gateway.ledger.get(id)
      expect(await gateway.ledger.commit(changes, basis && [basis])).toBe(true)
      expect(first.isMet).toBe(true)
      const second = proxy.cut(place)
      expect((await gateway.ledger.replay(id)).progress.status).toBe('received')
      expect(second.isMet).toBe(true)
    }
    const rows = await gateway.log.ask(
      "SELECT k FROM proposer.record WHERE k LIKE 'candidate.%' ORDER BY n",
    )
    expect(rows.map(({ k }) => k)).toEqual([
      'candidate.received',
      ...writing.flatMap(() => ['candidate.progress', 'candidate.whole']),
    ])
  })

  test('what comes while the lock is waited for joins its group', async () => {
    const { proxy } = await proxied()
    const { log } = await join(proxy.url)
    const held = proxy.hold(statementLike(/FOR UPDATE/))
    const record = { kind: 'question.removed', data: { questionId: 'x' } }
    const appends = Array.from({ length: 1_025 }, () => log.append([record]))
    await held.met
    held.release()
    await Promise.all(appends)
    const sql = 'SELECT count(*)::int FROM proposer.record GROUP BY grp ORDER BY min(n) OFFSET 1'
    expect(await log.ask(sql)).toEqual([{ count: 1_024 }, { count: 1 }])
  })

  test('a later try writes none that was told no, and none that came meanwhile', async () => {
    const { proxy } = await proxied()
    const { log } = await join(proxy.url)
    let asked = 0
    const record = { kind: 'admission.set', data: { enabled: true, reason: 'no' } }
    const { met } = proxy.cut(statementLike(/^COMMIT/))
    const refused = log.append(() => {
      if (++asked === 1) throw new RangeError('not now')
      return [record]
    })
    const taken = log.append([{ ...record, data: { enabled: true, reason: 'yes' } }])
    const told = expect(refused).rejects.toThrow('not now')
    await met
    const late = log.append([{ ...record, data: { enabled: true, reason: 'late' } }])
    await Promise.all([told, taken, late])
    const sql =
      "SELECT min(d->>'reason') FROM proposer.record GROUP BY grp ORDER BY min(n) OFFSET 1"
    expect(await log.ask(sql)).toEqual([{ min: 'yes' }, { min: 'late' }])
  })

  test('a black hole: every call ends, nothing acknowledged is lost, and it goes on', async () => {
    const url = await server.createDatabase()
    const [proxy, other] = [await inFront(url), await join(url)]
    const gateway = await join(proxy.url)
    const windows = later(
      asClosable(openWindows(postgresDatabase(proxy.url), { ...windowLimits, windowMs: 60_000 })),
    )
    expect(await outcome(gateway.ledger.admit(numbered(1)))).toBe(202)
    await windows.charge('client', 1)
    proxy.blackHole()
    const startMs = performance.now()
    const told = await Promise.all([
      ...Array.from({ length: 3_000 }, (_, index) =>
        outcome(gateway.ledger.admit(numbered(index + 2))),
      ),
      windows.charge('client', 1).catch(statusOf),
      gateway.log.catchUp().catch(statusOf),
    ])
    expect([...new Set(told)]).toEqual([503])
    expect(performance.now() - startMs).toBeLessThan(30_000)
    await until(() => gateway.log.down !== undefined)
    expect(await outcome(gateway.ledger.admit(numbered(2)))).toBe(503)
    expect(await outcome(other.ledger.admit(numbered(2)))).toBe(202)
    proxy.heal()
    await until(async () => (await outcome(gateway.ledger.admit(numbered(2)))) === 200)
    expect(await outcome(gateway.ledger.admit(numbered(3)))).toBe(202)
    await windows.charge('client', 1)
    expect(await identitiesIn(gateway.log)).toEqual(identities(1, 3))
  })

  test('a gateway that stands still inside its transaction keeps others for two seconds', async () => {
    const url = await server.createDatabase()
    const [proxy, other] = [await inFront(url), await join(url)]
    const gateway = await join(proxy.url)
    const held = proxy.hold(statementLike(/INSERT INTO proposer.record/))
    const stopped = outcome(gateway.ledger.admit(numbered(1)))
    await held.met
    expect(await outcome(other.ledger.admit(numbered(2)))).toBe(202)
    held.release()
    expect(await stopped).toBe(202)
    await other.log.catchUp()
    expect((await identitiesIn(other.log)).toSorted()).toEqual(identities(1, 2).toSorted())
  })

  test('it is closed while the database is away, in bounded time', async () => {
    const { proxy } = await proxied()
    const gateway = await joinLedger(proxy.url)
    proxy.blackHole()
    const waiting = outcome(gateway.ledger.admit(numbered(1)))
    await gateway.close()
    expect(await waiting).toBe(503)
    expect(await outcome(gateway.ledger.admit(numbered(2)))).toBe(503)
  })

  test('a database whose transactions are serializable by default is written all the same', async () => {
    const url = await server.createDatabase('strict')
    await server.query("ALTER DATABASE strict SET default_transaction_isolation = 'serializable'")
    const gateways = [await join(url), await join(url), await join(url), await join(url)]
    await sameMoment(gateways, 10)
  })

  test('two gateways that fold at the same record leave a snapshot that is whole', async () => {
    const url = await server.createDatabase()
    const [one, two] = [await join(url), await join(url)]
    for (let n = 1; n <= 5; n++) await one.ledger.admit(numbered(n))
    await two.log.catchUp()
    const lines = (from: readonly number[]) =>
      from.map((n) => JSON.stringify({ n, text: 'x'.repeat(300_000) }))
    await Promise.all([
      one.log.putSnapshot(lines([1, 2, 3, 4, 5])),
      two.log.putSnapshot(lines([5, 4, 3, 2, 1])),
    ])
    const [head] = await one.log.ask('SELECT body FROM proposer.snapshot WHERE part = 0')
    const { first, parts } = JSON.parse(String(head?.body))
    const bodies = await one.log.ask(
      'SELECT body FROM proposer.snapshot WHERE part >= $1 AND part < $2 ORDER BY part',
      [first, first + parts],
    )
    const read = bodies
      .flatMap(({ body }) => String(body).split('\n'))
      .map((line) => JSON.parse(line).n)
    expect([
      [1, 2, 3, 4, 5],
      [5, 4, 3, 2, 1],
    ]).toContainEqual(read)
  })
})

describeWith([18], 'rate limits of several gateways', () => {
  beforeAll(async () => {
    server = await startPostgres()
  })
  afterAll(() => server.close())

  const windowsOf = (url: string, windowMs = 60_000) =>
    later(asClosable(openWindows(postgresDatabase(url), { ...windowLimits, windowMs })))

  test('contract §9: they are exact over four gateways, and empty after a crash', async () => {
    const url = await server.createDatabase()
    await join(url)
    const four = [windowsOf(url), windowsOf(url), windowsOf(url), windowsOf(url)]
    const charge = async () => {
      const charged = await Promise.all(
        Array.from({ length: 400 }, (_, index) => four[index % 4]?.charge(`c${index % 10}`, 2)),
      )
      const spent = (of: 'own' | 'everyone') =>
        charged.map((each) => each?.[of].spentItems).sort((a = 0, b = 0) => a - b)
      return { own: spent('own'), everyone: spent('everyone') }
    }
    const { own, everyone } = await charge()
    expect(everyone).toEqual(Array.from({ length: 400 }, (_, index) => 2 * (index + 1)))
    expect(own).toEqual(Array.from({ length: 400 }, (_, index) => 2 * (1 + Math.trunc(index / 10))))
    await server.kill()
    await server.restart()
    await until(
      () =>
        four[0]?.charge('x', 0).then(
          () => true,
          () => false,
        ) ?? false,
    )
    const again = await charge()
    expect(again.everyone.at(-1)).toBe(800)
  })

  test('§8 rule 4: one address, however much it sends at once, takes no more from all than its own window', async () => {
    const url = await server.createDatabase()
    await join(url)
    const two = [windowsOf(url), windowsOf(url)]
    await two[0]?.charge('flood', 30)
    const calls = [...Array.from({ length: 300 }, () => 1), 1_001, 5_000]
    await Promise.all(calls.map((items, index) => two[index % 2]?.charge('flood', items)))
    const { own, everyone } = (await two[0]?.charge('honest', 7)) ?? {}
    expect([own?.spentItems, everyone?.spentItems]).toEqual([7, 127])
    await two[1]?.charge('large', 1_001)
    expect((await two[1]?.charge('honest', 1))?.everyone.spentItems).toBe(228)
  })

  test('a window begun before the clock of the database was put back or forward is over', async () => {
    const url = await server.createDatabase()
    const { log } = await join(url)
    const windows = windowsOf(url)
    for (const hours of [1, -1]) {
      await windows.charge('client', 50)
      await log.ask(
        `UPDATE proposer.budget SET window_start = window_start + $1 * interval '1 hour'`,
        [hours],
      )
      const { own, everyone } = await windows.charge('client', 1)
      expect([own.spentItems, everyone.spentItems]).toEqual([1, 1])
      expect(own.endsInMs).toBeLessThanOrEqual(60_000)
    }
  })
})

describeWith([18, 'pgbouncer'], 'gateways behind pgbouncer in transaction mode', () => {
  beforeAll(async () => {
    server = await startPostgres()
  })
  afterAll(() => server.close())

  test('four share two connections: one payload is one candidate, and no setting leaks', async () => {
    const url = await server.createDatabase()
    const pooler = later(
      await startPgbouncer(url, { mode: 'transaction', settings: { default_pool_size: '2' } }),
    )
    const gateways = [
      await join(pooler.url),
      await join(pooler.url),
      await join(pooler.url),
      await join(pooler.url),
    ]
    await sameMoment(gateways, 40)
    for (const { log } of gateways)
      expect(await log.ask("SELECT current_setting('lock_timeout') AS now")).toEqual([{ now: '0' }])
  })

  test('R1: the pooler loses the server at each step of an admission', async () => {
    const { proxy } = await proxied()
    const pooler = later(await startPgbouncer(proxy.url, { mode: 'transaction' }))
    const gateway = await join(pooler.url)
    let n = 0
    for (const place of writing) {
      const fault = proxy.cut(place)
      expect(await outcome(gateway.ledger.admit(numbered(++n)))).toBe(202)
      expect(fault.isMet).toBe(true)
    }
    expect(await identitiesIn(gateway.log)).toEqual(identities(1, n))
  })
})

const writing: readonly Place[] = [
  statementLike(/^BEGIN/),
  answerTo(/^BEGIN/),
  statementLike(/INSERT INTO proposer.record/),
  answerTo(/INSERT INTO proposer.record/),
  statementLike(/^COMMIT/),
  answerTo(/^COMMIT/),
  commitAnswer,
]

const asClosable = <T extends { close(): void }>(one: T) => ({
  ...one,
  close: async () => one.close(),
})
