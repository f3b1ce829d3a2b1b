/** The key of receipts through the life of a store: made, used, copied, rotated, lost (contract §9). */
import { chmod, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { loadConfig } from '#host/config-file'
import { type HostedGateway, openHostedGateway } from '#host/gateway-host'
import { receiptDirectory } from '#protocol/receipt'
import { fakeContext, run } from '#support/cli'
import { gatewayFile } from '#support/desk'
import { createFakeChain, createFakeClock } from '#support/fake-chain'
import { temporaryFolder } from '#support/folders'

const address = (digit: string) => `0x${digit.repeat(40)}` as const
const file = gatewayFile({
  store: './store',
  executor: { enabled: false },
  receipts: { key_file: './receipt-key.json' },
})
const eligibility = `/v1/proposals/eligibility/${address('7')}`

let folder: string
const hosts: HostedGateway[] = []
const keyFile = () => join(folder, 'receipt-key.json')

beforeEach(async () => {
  folder = temporaryFolder()
  await writeFile(join(folder, 'gateway.json'), JSON.stringify(file))
})
afterEach(async () => {
  for (const host of hosts.splice(0)) await host.close()
})

/** A gateway on the store, until the test ends or `close`. */
async function host(): Promise<HostedGateway> {
  const chain = createFakeChain()
  const { context } = fakeContext(folder, { chain, clock: createFakeClock(chain) })
  const hosted = await openHostedGateway(
    context,
    await loadConfig(context, join(folder, 'gateway.json')),
    { executorKey: { home: folder, password: async () => '' } },
  )
  hosts.push(hosted)
  return hosted
}
const close = async (hosted: HostedGateway) => {
  hosts.splice(hosts.indexOf(hosted), 1)
  await hosted.close()
}
const get = (hosted: HostedGateway, path: string) =>
  hosted.gateway.handle(new Request(`http://gateway.test${path}`))
const keyidOf = async (hosted: HostedGateway) =>
  /keyid="([^"]+)"/.exec((await get(hosted, eligibility)).headers.get('signature-input') ?? '')?.[1]
const listed = async (hosted: HostedGateway) =>
  (
    (await (await get(hosted, receiptDirectory)).json()) as {
      keys: { kid: string; exp?: number }[]
    }
  ).keys
const operator = async (...argv: string[]) => {
  const done = await run(folder, [
    ...['operator', 'receipts', ...argv],
    ...['--config', join(folder, 'gateway.json'), '--json'],
  ])
  return { ...done, json: done.code === 0 ? JSON.parse(done.stdout) : JSON.parse(done.stderr) }
}

test('contract §9: the first start makes it, for its owner alone; the next one uses it', async () => {
  const first = await host()
  const kid = await keyidOf(first)
  expect(kid).toMatch(/^[\w-]{43}$/)
  expect(await listed(first)).toMatchObject([{ kid }])
  expect((await stat(keyFile())).mode & 0o777).toBe(0o600)
  await close(first)
  expect(await keyidOf(await host())).toBe(kid)
})

test('R5: a file that others may read is refused', async () => {
  await close(await host())
  await chmod(keyFile(), 0o644)
  await expect(host()).rejects.toMatchObject({ code: 'receipt_key_file_mode' })
})

test('contract §9: without its file, or with that of another store, a gateway does not start', async () => {
  await close(await host())
  const kept = await readFile(keyFile(), 'utf8')
  await rm(keyFile())
  await expect(host()).rejects.toMatchObject({
    code: 'receipt_key_differs',
    meta: { hint: expect.stringContaining('operator receipts rotate') },
  })
  await writeFile(join(folder, 'gateway.json'), JSON.stringify({ ...file, store: './other' }))
  await close(await host())
  await writeFile(join(folder, 'gateway.json'), JSON.stringify(file))
  await expect(host()).rejects.toMatchObject({ code: 'receipt_key_differs' })
  await writeFile(keyFile(), kept, { mode: 0o600 })
  await close(await host())
})

test.each([
  ['no JSON', 'garbage'],
  ['no keys', '{"keys":[]}'],
  [
    'a public key alone',
    '{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}',
  ],
  [
    'two halves that do not belong together',
    '{"keys":[{"kty":"OKP","crv":"Ed25519","d":"nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURp"}]}',
  ],
])('contract §9: a file with %s is refused, and not quoted', async (_name, text) => {
  await writeFile(keyFile(), text, { mode: 0o600 })
  const failed = await host().catch((error: unknown) => error)
  expect(failed).toMatchObject({ code: 'invalid_receipt_key' })
  expect(String(failed)).not.toContain('nWGxne')
})

test('contract §9: a new key signs, the one before stays listed with its end', async () => {
  const first = await host()
  const before = await keyidOf(first)
  await close(first)
  const { code, json } = await operator('rotate', '--reason', 'yearly')
  expect(code).toBe(0)
  expect(json).toMatchObject({ act: 'receipts/rotate', reason: 'yearly', through: 'store' })
  const after = await host()
  const kid = await keyidOf(after)
  expect(kid).not.toBe(before)
  expect(json.changed).toEqual([kid])
  expect(await listed(after)).toMatchObject([{ kid: before, exp: expect.any(Number) }, { kid }])
  expect((await operator('list')).json.keys).toMatchObject([{ kid: before }, { kid }])
})

test('contract §9: a gateway that runs takes the new file, and signs with the old key until then', async () => {
  const hosted = await host()
  const before = await keyidOf(hosted)
  const kept = await readFile(keyFile(), 'utf8')
  await writeFile(keyFile(), 'not copied yet', { mode: 0o600 })
  const next = { kid: 'A'.repeat(43), x: 'B'.repeat(43), overlap_seconds: 3_600 }
  await hosted.operator.run('receipts/rotate', next)
  hosted.look()
  expect(await keyidOf(hosted)).toBe(before)
  await writeFile(keyFile(), kept, { mode: 0o600 })
  // The file of a key that this test has the private half of.
  const made = await import('#io/receipt-keys')
  const { context } = fakeContext(folder)
  const key = made.newReceiptKey(context)
  const held = await made.readReceiptKeys(context.hash, keyFile())
  await made.writeReceiptKeys(context.files, keyFile(), [key, ...held])
  await hosted.operator.run('receipts/rotate', { kid: key.kid, x: key.x, overlap_seconds: 60 })
  hosted.look()
  await expect.poll(() => keyidOf(hosted)).toBe(key.kid)
})

test('contract §9: after its end a key signs nothing, and the gateway says so', async () => {
  const hosted = await host()
  const stolen = { kid: 'A'.repeat(43), x: 'B'.repeat(43), overlap_seconds: 0 }
  await hosted.operator.run('receipts/rotate', stolen)
  const chainSecond = () => hosted.gateway.readiness()
  await expect
    .poll(chainSecond)
    .toContainEqual(expect.stringContaining('receipts cannot be signed'))
  expect(await keyidOf(hosted)).toBeUndefined()
  await close(hosted)
  await expect(host()).rejects.toMatchObject({ code: 'receipt_key_differs' })
})

test('contract §6: --dry-run writes nothing; without receipts in gateway.json it is exit 2', async () => {
  await close(await host())
  const kept = await readFile(keyFile(), 'utf8')
  expect((await operator('rotate', '--dry-run')).code).toBe(0)
  expect(await readFile(keyFile(), 'utf8')).toBe(kept)
  expect((await operator('rotate', '--overlap', 'soon')).json.error).toMatchObject({
    code: 'bad_duration',
  })
  const { receipts: _, ...without } = file as { receipts?: object }
  await writeFile(join(folder, 'gateway.json'), JSON.stringify(without))
  const { code, json } = await operator('rotate')
  expect([code, json.error.code]).toEqual([2, 'no_receipts'])
  // Keys stay listed where receipts were switched off.
  const hosted = await host()
  expect(await listed(hosted)).toHaveLength(1)
  expect(await keyidOf(hosted)).toBeUndefined()
})
