/** contract §9: receipts of two gateways, as processes, on one PostgreSQL store. */
import { copyFile, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { argvOf } from '#support/argv'
import { describeWith } from '#support/components'
import { type PostgresServer, startPostgres } from '#support/postgres/server'
import { type Running, workshop } from '#support/processes'
import { makeClient, questionOf, type ServeReady } from '#support/proposing'

describeWith([18], 'receipts of two gateways on one PostgreSQL store', () => {
  const shop = workshop()
  let server: PostgresServer
  let folder: string
  let dev: ServeReady['dev']
  beforeAll(async () => {
    server = await startPostgres()
    ;({ dev, folder } = await shop.devChain(4))
  })
  afterAll(async () => {
    await shop.clean()
    await server.close()
  })

  const keyFile = (name: string) => join(folder, `${name}-receipts.json`)
  const configOf = (name: string) => join(folder, `${name}.json`)
  async function configure(name: string, store: string): Promise<void> {
    const gateway = JSON.parse(await readFile(join(folder, 'gateway.json'), 'utf8'))
    const receipts = { key_file: keyFile(name) }
    const budget = { ...gateway.budget, per_ip_items: 100_000, global_items: 100_000 }
    await writeFile(configOf(name), JSON.stringify({ ...gateway, store, receipts, budget }))
  }
  const serve = (name: string): Running =>
    shop.start(argvOf`serve --config ${configOf(name)} --port 0 --json`)
  const errorOf = (stderr: string) =>
    [...stderr.matchAll(/"error":\{"code":"(\w+)"/g)].map(([, code]) => code)
  const kidOf = async ({ url }: ServeReady) => {
    const answer = await fetch(`${url}/v1/proposals/eligibility/0x${'1'.repeat(40)}`)
    expect(answer.status).toBe(200)
    return /keyid="([^"]+)"/.exec(answer.headers.get('signature-input') ?? '')?.[1]
  }
  const listedAt = async ({ url }: ServeReady) => {
    const answer = await fetch(`${url}/.well-known/http-message-signatures-directory`)
    return (await answer.json()) as { keys: { kid: string; exp?: number }[] }
  }
  const rotate = (...more: string[]) =>
    shop.run([
      ...argvOf`operator --config ${configOf('north')} receipts rotate`,
      ...argvOf`--reason ${'a drill'} ${more} --yes --json`,
    ])

  test('both sign with one key; without its file a gateway does not start; a rotation is seen by both, and each signs with it once it has the file', async () => {
    const store = await server.createDatabase()
    await configure('north', store)
    await configure('south', store)
    const north = await serve('north').line<ServeReady>()
    const refused = await serve('south').ended
    expect([refused.code, errorOf(refused.stderr)]).toEqual([2, ['receipt_key_differs']])
    await copyFile(keyFile('north'), keyFile('south'))
    const south = await serve('south').line<ServeReady>()
    const first = String(await kidOf(north))
    expect(first).toMatch(/^[\w-]{43}$/)
    expect(await kidOf(south)).toBe(first)
    expect(await listedAt(south)).toEqual(await listedAt(north))

    const client = await makeClient(shop, dev, {
      PROPOSER_GATEWAY: south.url,
      PROPOSER_RPC_URL: dev.rpc_url,
    })
    const throughNorth = ['--gateway', north.url]
    const admit = async (question: number, ...more: string[]) => {
      const { slug } = questionOf(dev, question)
      const { code, answer, ended } = await client.ask('submit', slug, '--outcome', 'p2', ...more)
      expect(code, ended.stderr).toBe(0)
      return String(answer.journal_id)
    }
    const proven = (id: string) => client.ask('journal', 'show', id, '--verify')
    const pin = () => client.ask('trust', 'pin', '--receipts', ...throughNorth)
    expect((await pin()).code).toBe(0)
    const before = await admit(0)
    expect((await proven(before)).code).toBe(0)

    expect((await rotate()).code).toBe(0)
    const second = () => kidOf(north)
    await expect.poll(second, { timeout: 20_000 }).not.toBe(first)
    const kid = String(await second())
    await expect
      .poll(async () => (await listedAt(south)).keys.map((key) => key.kid), { timeout: 20_000 })
      .toEqual([first, kid])
    expect(await kidOf(south)).toBe(first)
    await copyFile(keyFile('north'), keyFile('south'))
    await expect.poll(() => kidOf(south), { timeout: 20_000 }).toBe(kid)
    expect((await pin()).code).toBe(0)
    const [bySouth, byNorth] = [await admit(1), await admit(2, ...throughNorth)]
    for (const id of [before, bySouth, byNorth]) expect((await proven(id)).code).toBe(0)

    expect((await rotate('--overlap', '0')).code).toBe(0)
    await expect.poll(second, { timeout: 20_000 }).not.toBe(kid)
    await expect.poll(() => kidOf(south), { timeout: 20_000 }).toBe(first)
    expect((await listedAt(south)).keys).toHaveLength(3)
    for (const id of [before, bySouth, byNorth]) expect((await proven(id)).code).toBe(0)
  })

  test('two gateways with a key each that open a new store at once: the log says whose it is, and the other does not start', async () => {
    const store = await server.createDatabase()
    const names = ['east', 'west']
    for (const name of names) await configure(name, store)
    const servings = names.map(serve)
    const starts = await Promise.all(
      servings.map((one) =>
        one.line<ServeReady>().then(
          (ready) => ({ ready, codes: errorOf('') }),
          async () => ({ ready: undefined, codes: errorOf((await one.ended).stderr) }),
        ),
      ),
    )
    const [up, ...more] = starts.flatMap(({ ready }) => (ready ? [ready] : []))
    expect(more).toEqual([])
    expect(starts.flatMap(({ codes }) => codes)).toEqual(['receipt_key_differs'])
    if (up === undefined) throw new Error('no gateway has started')
    const current = (await listedAt(up)).keys.filter(({ exp }) => exp === undefined)
    expect(current.map(({ kid }) => kid)).toEqual([await kidOf(up)])
  })
})
