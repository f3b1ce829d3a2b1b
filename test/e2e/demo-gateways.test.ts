/** `demo --gateways 2`: a leader that is killed, one execution, and nothing left of it all. */
import { chmodSync, readdirSync, readFileSync } from 'node:fs'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startLocalPostgres } from '../../src/core/io/local-postgres.js'
import { describeWith } from '../support/components.js'
import { type PostgresServer, startPostgres } from '../support/postgres/server.js'
import { workshop } from '../support/processes.js'

const shop = workshop()
afterAll(() => shop.clean())

interface Step {
  readonly name: string
  readonly ok: boolean
  readonly seconds: number
}

const life = [
  ...['chain', 'database', 'gateways', 'question', 'sign', 'submit', 'select'],
  ...['kill', 'takeover', 'execute', 'once', 'replay'],
]

/** A temporary folder that a server's account can reach too. */
async function temporaryFolder(): Promise<string> {
  const folder = await shop.folder()
  chmodSync(folder, 0o755)
  return folder
}

/** The command lines of processes that name a folder. */
const processesOf = (folder: string): readonly string[] =>
  readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map((pid) => {
      try {
        return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ')
      } catch {
        // It has ended meanwhile.
        return ''
      }
    })
    .filter((line) => line.includes(folder))

test('contract §6: where there is no PostgreSQL the demo says what to install', async () => {
  await expect(startLocalPostgres('', ['/nowhere/bin'])).rejects.toMatchObject({
    code: 'postgres_missing',
    meta: { exitCode: 2, hint: expect.stringContaining('apt install postgresql') },
  })
})

describeWith([18], 'demo --gateways 2', () => {
  let server: PostgresServer
  beforeAll(async () => {
    server = await startPostgres()
  })
  afterAll(() => server.close())

  test('contract §9: the leader is killed, the other executes once; every step is told, and nothing is left', async () => {
    const temporary = await temporaryFolder()
    const { code, stdout, stderr } = await shop.run(['demo', '--gateways', '2', '--json'], {
      env: { TMPDIR: temporary },
    })
    expect(code, stderr + stdout).toBe(0)
    const shown = JSON.parse(stdout) as { schema: string; steps: Step[]; ok: boolean }
    expect(shown).toMatchObject({ schema: 'proposer.demo/1', ok: true })
    expect(shown.steps.map(({ name }) => name)).toEqual(life)
    for (const step of shown.steps)
      expect(step).toMatchObject({ ok: true, seconds: expect.any(Number) })
    expect(readdirSync(temporary)).toEqual([])
    expect(processesOf(temporary)).toEqual([])
  })

  test('contract §9: --store-url takes an empty database and leaves it empty', async () => {
    const url = await server.createDatabase('demo')
    const argv = ['demo', '--gateways', '2', '--json', '--store-url', url]
    const { code, stdout, stderr } = await shop.run(argv)
    expect(code, stderr + stdout).toBe(0)
    expect((JSON.parse(stdout) as { steps: Step[] }).steps.map(({ name }) => name)).toEqual(life)
    expect(await server.query('SELECT datname FROM pg_stat_activity WHERE datname = $1', ['demo']))
      // What it opened is closed.
      .toEqual([])
    const { default: pg } = await import('pg')
    const client = new pg.Client(url)
    await client.connect()
    try {
      const found = await client.query("SELECT FROM pg_namespace WHERE nspname = 'proposer'")
      expect(found.rows).toEqual([])
      await client.query('CREATE SCHEMA proposer; CREATE TABLE other (id int)')
    } finally {
      await client.end()
    }
    // A database of somebody else stays as it is.
    const again = await shop.run(argv)
    expect([again.code, again.stderr]).toEqual([74, expect.stringContaining('store_mismatch')])
  })

  test.each([
    [['--gateways', '2', '--store-url', 'postgres://me:s3cret@127.0.0.1/db'], 'holds a password'],
    [['--store-url', 'postgres://127.0.0.1/db'], 'add --gateways 2'],
    [['--gateways', '3'], '--gateways must be a whole number from 1 to 2'],
  ])('contract §6: demo %j is exit 2', async (flags, says) => {
    const { code, stdout, stderr } = await shop.run(['demo', '--json', ...flags])
    // Before any step, so that no chain was started for it.
    expect([code, stdout]).toEqual([2, ''])
    expect(stderr).toContain(says)
    expect(stdout + stderr).not.toContain('s3cret')
  })

  test.each(['SIGINT', 'SIGKILL'] as const)(
    'R23: %s in the middle leaves no gateway, no server and no folder of its own',
    async (signal) => {
      const temporary = await temporaryFolder()
      const demo = shop.start(['demo', '--gateways', '2', '--ndjson'], {
        env: { TMPDIR: temporary },
      })
      for (const name of life.slice(0, 3))
        expect(await demo.line<Step>()).toMatchObject({ name, ok: true })
      expect(processesOf(temporary).length).toBeGreaterThan(2)
      const { code } = await demo.stop(signal)
      expect(code).toBe(signal === 'SIGINT' ? 130 : null)
      await expect.poll(() => processesOf(temporary), { timeout: 20_000 }).toEqual([])
      const left = readdirSync(temporary)
      if (signal === 'SIGINT') expect(left).toEqual([])
      else expect(left.filter((name) => name.startsWith('proposer-postgres-'))).toEqual([])
    },
  )
})
