/** The proxy that cuts, loses and holds back messages of PostgreSQL, before a real server. */
import pg from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { describeWith } from '../support/components.js'
import { until } from '../support/postgres/folders.js'
import { openPostgresProxy, type PostgresProxy } from '../support/postgres/proxy.js'
import { type PostgresServer, startPostgres } from '../support/postgres/server.js'
import {
  answer,
  answerTo,
  commitAnswer,
  nth,
  type Place,
  serverMessage,
  statementLike,
} from '../support/postgres/wire.js'

describeWith([18], 'a proxy before a server', () => {
  let server: PostgresServer
  let proxy: PostgresProxy
  const clients: pg.Client[] = []

  beforeAll(async () => {
    server = await startPostgres()
    await server.query('CREATE TABLE kept (n int)')
    await server.query('ALTER TABLE kept OWNER TO gateway')
  })
  beforeEach(async () => {
    await server.query('TRUNCATE kept')
    proxy = await openPostgresProxy(server.url())
  })
  afterEach(async () => {
    await proxy.close()
    for (const client of clients.splice(0)) await client.end()
  })
  afterAll(() => server?.close())

  async function connected(config: pg.ClientConfig = {}): Promise<pg.Client> {
    const client = new pg.Client({ connectionString: proxy.url, ...config })
    client.on('error', () => undefined)
    await client.connect()
    clients.push(client)
    return client
  }
  async function write(client: pg.Client, n: number): Promise<void> {
    await client.query('BEGIN')
    await client.query('INSERT INTO kept VALUES ($1)', [n])
    await client.query('COMMIT')
  }
  const rows = async () =>
    (await server.query<{ n: number }>('SELECT n FROM kept ORDER BY n')).map(({ n }) => n)
  const nobodyIn = (where: string) =>
    until(async () => {
      const others = `SELECT FROM pg_stat_activity WHERE ${where} AND pid <> pg_backend_pid()`
      return (await server.query(others)).length === 0
    }, 'a session stays')

  test('it hands everything through', async () => {
    const client = await connected()
    await write(client, 1)
    const long = 'x'.repeat(1_000_000)
    expect((await client.query('SELECT $1::text AS long', [long])).rows).toEqual([{ long }])
    await expect(client.query('SELECT nonsense')).rejects.toMatchObject({ code: '42703' })
    expect(await rows()).toEqual([1])
    expect(proxy.connections).toBe(1)
  })

  test.each([
    ['FIN', undefined],
    ['RST', 'reset'],
  ] as const)(
    'cut at the answer of COMMIT by %s: the client sees an error, and the row is there',
    async (_, how) => {
      const client = await connected()
      const fault = proxy.cut(commitAnswer, how)
      await expect(write(client, 1)).rejects.toThrow(how === 'reset' ? /ECONNRESET/ : /terminated/)
      expect(await fault.met).toMatchObject({ type: 'C', tag: 'COMMIT', statement: 'COMMIT' })
      expect(await rows()).toEqual([1])
      await write(await connected(), 2)
      expect(await rows()).toEqual([1, 2])
    },
  )

  test('cut before COMMIT reaches the server: the row is not there', async () => {
    const client = await connected()
    const fault = proxy.cut(statementLike(/^COMMIT/))
    await expect(write(client, 1)).rejects.toThrow('terminated')
    expect(fault.isMet).toBe(true)
    await nobodyIn("state LIKE 'idle in%'")
    expect(await rows()).toEqual([])
  })

  test('only the answer of COMMIT is lost: the client waits on a connection that stands', async () => {
    const client = await connected({ query_timeout: 500 })
    const fault = proxy.drop(commitAnswer)
    await expect(write(client, 1)).rejects.toThrow('timeout')
    expect(fault.isMet).toBe(true)
    expect(await rows()).toEqual([1])
  })

  test('an answer to a statement with parameters is found by its text', async () => {
    const [client, other] = [await connected(), await connected()]
    const fault = proxy.cut(answerTo(/^INSERT .* VALUES \(\$1\)/))
    await other.query('SELECT 1')
    await expect(write(client, 1)).rejects.toThrow('terminated')
    expect(await fault.met).toMatchObject({ connection: 1, type: '1', isFirst: true })
    await write(other, 2)
    expect(await rows()).toEqual([2])
  })

  test('an answer is held until the test lets it go', async () => {
    const client = await connected()
    const fault = proxy.hold(commitAnswer)
    let isDone = false
    const done = write(client, 1).then(() => {
      isDone = true
    })
    await fault.met
    expect([await rows(), isDone]).toEqual([[1], false])
    fault.release()
    await done
  })

  test('a delay holds back each message that it means', async () => {
    const client = await connected()
    proxy.delay(answerTo(/^COMMIT/), 200)
    const begin = performance.now()
    await write(client, 1)
    expect(performance.now() - begin).toBeGreaterThan(190)
  })

  const sweeps: [string, (n: number) => Place][] = [
    ['message', serverMessage],
    ['answer', answer],
    ['message of clients', (n) => nth(n, ({ from }) => from === 'client')],
  ]
  test.each(sweeps)('a cut at every %s: what was acknowledged is there', async (_, place) => {
    let [n, isMet] = [0, true]
    const acknowledged: number[] = []
    while (isMet) {
      n += 1
      const fault = proxy.cut(place(n))
      await connected()
        .then((client) => write(client, n))
        .then(() => acknowledged.push(n))
        .catch(() => undefined)
      isMet = fault.isMet
      if (isMet) expect(acknowledged).toEqual([])
    }
    await nobodyIn("state LIKE 'idle in%'")
    expect(n).toBeGreaterThan(4)
    expect(acknowledged).toEqual([n])
    expect(await rows()).toContain(n)
  })

  test('a black hole: nothing arrives, and nobody learns of an end, until it is over', async () => {
    const client = await connected({ query_timeout: 500 })
    await client.query('BEGIN')
    await client.query('INSERT INTO kept VALUES (1)')
    proxy.blackHole()
    await expect(client.query('COMMIT')).rejects.toThrow('timeout')
    const late = new pg.Client({ connectionString: proxy.url, connectionTimeoutMillis: 500 })
    await expect(late.connect()).rejects.toThrow('timeout')
    client.connection.stream.destroy()
    const open = "SELECT FROM pg_stat_activity WHERE state = 'idle in transaction'"
    expect(await server.query(open)).toHaveLength(1)
    expect(await rows()).toEqual([])
    proxy.heal()
    await until(async () => (await rows()).length === 1, 'the COMMIT never arrives')
  })

  test('cut all: no session of a client stays with the server', async () => {
    const client = await connected()
    await client.query('BEGIN')
    await client.query('INSERT INTO kept VALUES (1)')
    proxy.cutAll()
    await nobodyIn("backend_type = 'client backend'")
    expect(await rows()).toEqual([])
  })
})
