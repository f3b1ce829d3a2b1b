/** R1: a database that went back is not served, whatever a supervisor does, until an operator says so. */
import { existsSync } from 'node:fs'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import pg from 'pg'
import { systemHash } from '#io/clock'
import { systemFiles } from '#io/files'
import { readSeen } from '#storage/postgres/seen'
import { argvOf } from '#support/argv'
import { describeWith } from '#support/components'
import { until } from '#support/postgres/load'
import { type PostgresServer, startPostgres } from '#support/postgres/server'
import { freePort, workshop } from '#support/processes'
import { makeClient, questionOf, type ServeReady } from '#support/proposing'
import { restartRules, supervise } from '#support/supervisor'

describeWith([18], 'R1, R10: a database that went back', () => {
  const shop = workshop()
  let server: PostgresServer
  let folder: string
  let dev: ServeReady['dev']
  beforeAll(async () => {
    server = await startPostgres()
    ;({ dev, folder } = await shop.devChain(6))
  })
  afterAll(async () => {
    await shop.clean()
    await server.close()
  })

  async function gatewayOf(name: string) {
    const store = await server.createDatabase()
    const config = join(folder, `${name}.json`)
    const gateway = JSON.parse(await readFile(join(folder, 'gateway.json'), 'utf8'))
    await writeFile(
      config,
      JSON.stringify({ ...gateway, store, executor: { ...gateway.executor, enabled: false } }),
    )
    const query = async (text: string) => {
      const client = new pg.Client(store)
      await client.connect()
      return (await client.query(text).finally(() => client.end())).rows
    }
    const port = await freePort()
    const start = () =>
      shop.start([
        ...['serve', '--config', config, '--port', String(port)],
        ...argvOf`--set admin.port=0 --json`,
      ])
    const operator = async (...argv: string[]) => {
      const ended = await shop.run(argvOf`operator --config ${config} ${argv} --json`)
      return { code: ended.code, text: ended.stdout + ended.stderr }
    }
    const seen = () =>
      readSeen({ files: systemFiles, hash: systemHash }, { folder, name: `${name}.seen` })
    return {
      config,
      query,
      start,
      operator,
      seen,
      admitted: async () =>
        (await query("SELECT FROM proposer.record WHERE k = 'candidate.received'")).length,
      isSeen: async () =>
        (await seen())?.n === Number((await query('SELECT n FROM proposer.head'))[0].n),
      goBack: () =>
        query(`WITH last AS (SELECT max(n) AS n FROM proposer.record WHERE k = 'candidate.received'),
                    gone AS (DELETE FROM proposer.record WHERE n >= (SELECT n FROM last)),
                    old AS (DELETE FROM proposer.snapshot)
               UPDATE proposer.head SET n = (SELECT n - 1 FROM last)`),
    }
  }
  const clientOf = ({ url }: ServeReady) =>
    makeClient(shop, dev, { PROPOSER_GATEWAY: url, PROPOSER_RPC_URL: dev.rpc_url })

  for (const [name, rule] of Object.entries(restartRules))
    test(`R1: under ${name} it ends with 74 as often as it is started, and admits nothing before accept-loss`, async () => {
      const gateway = await gatewayOf(name)
      const running = gateway.start()
      const first = await running.line<ServeReady>()
      const client = await clientOf(first)
      const ids: string[] = []
      for (const n of [0, 1]) {
        const { code, answer } = await client.ask(
          'submit',
          questionOf(dev, n).slug,
          '--outcome',
          'p2',
        )
        expect(code).toBe(0)
        ids.push(String(answer.journal_id))
      }
      await until(gateway.isSeen)
      await gateway.goBack()
      expect(await gateway.admitted()).toBe(1)

      const { ends, serving } = await supervise(rule(), gateway.start, running)
      expect(serving).toBeUndefined()
      expect(ends.length).toBe(name === 'systemd' ? 1 : 5)
      const booted = await supervise(rule(), gateway.start)
      expect(booted.serving).toBeUndefined()
      for (const { code, stderr } of [...ends, ...booted.ends]) {
        expect(code, stderr).toBe(74)
        expect(stderr).toContain('"code":"store_rolled_back"')
        expect(stderr).toContain('operator store accept-loss')
      }
      const checked = await shop.run(argvOf`serve --config ${gateway.config} --check --json`)
      expect(checked.code).toBe(2)
      expect(checked.stdout).toContain('has lost records that it had acknowledged')
      expect(await gateway.admitted()).toBe(1)

      expect((await gateway.operator('store', 'accept-loss')).code).toBe(2)
      const accepted = await gateway.operator('store', 'accept-loss', '--reason', 'a drill')
      expect(accepted, accepted.text).toMatchObject({ code: 0 })
      expect(
        await gateway.query(
          "SELECT d->>'reason' AS why FROM proposer.record WHERE k = 'store.repaired'",
        ),
      ).toEqual([{ why: 'a drill' }])
      const again = gateway.start()
      await again.line()
      const replayed = await client.ask('replay', String(ids[1]))
      expect(replayed.code, replayed.ended.stderr).toBe(0)
      expect(await gateway.admitted()).toBe(2)
      await again.stop()
    })

  test('R1: a gateway that was killed, whose database is empty, or whose note is torn, makes no new store', async () => {
    const gateway = await gatewayOf('emptied')
    const running = gateway.start()
    await running.line()
    await until(gateway.isSeen)
    await running.stop('SIGKILL')
    await gateway.query('DROP SCHEMA proposer CASCADE')
    const refused = await gateway.start().ended
    expect([refused.code, refused.stderr]).toEqual([
      74,
      expect.stringContaining('it holds no store'),
    ])
    expect(await gateway.query("SELECT to_regclass('proposer.record') AS made")).toEqual([
      { made: null },
    ])

    const file = join(folder, 'emptied.seen')
    await writeFile(file, (await readFile(file)).subarray(0, 40))
    const torn = await gateway.start().ended
    expect([torn.code, torn.stderr]).toEqual([74, expect.stringContaining('is not whole')])
    expect((await gateway.operator('store', 'accept-loss', '--reason', 'a drill')).code).toBe(0)
    expect(existsSync(file)).toBe(false)
    const again = gateway.start()
    await again.line()
    expect(await gateway.operator('store', 'accept-loss', '--reason', 'a drill')).toMatchObject({
      code: 0,
      text: expect.stringContaining('"accepted": false'),
    })
    await again.stop()
  })
})
