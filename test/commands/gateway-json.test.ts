/**
 * gateway.json as people write it, through the front door: comments, faults with their place and
 * the key that was meant, and the JSON Schema that editors read.
 */
import { readFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Ajv } from 'ajv'
import { configFaults } from '#gateway/config'
import { run } from '#support/cli'
import { gatewayFile } from '#support/desk'
import { createFakeChain } from '#support/fake-chain'
import { temporaryFolder } from '#support/folders'
import { blocksIn, root, section } from '#support/readme'

const address = (digit: string) => `0x${digit.repeat(40)}`
const pkcs11 = { uri: 'pkcs11:object=main', module: '/m.so', pin_file: './pin' }
const signer = { url: 'https://s.example', address: address('1') }
const { id: _, ...chain } = gatewayFile().chain
const pins = JSON.stringify(chain)

const home = temporaryFolder()

/** `operator list` reads the file and, without a store, shows what it says. */
async function listed(text: string) {
  await writeFile(join(home, 'gateway.json'), text)
  return run(home, 'operator list --json', { cwd: home })
}

describe('contract §9: gateway.json', () => {
  test('may have comments, a comma before a bracket, a byte order mark, and `$schema`', async () => {
    const text = `\ufeff{
  // who may propose
  "$schema": "./gateway.schema.json",
  "chain": ${pins}, /* pinned
    by hand */
  "admission": { "allowlist": ["${address('1')}", ], },
}`
    const { code, stdout, stderr } = await listed(text)
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    expect(JSON.parse(stdout).wallets).toMatchObject([{ address: address('1') }])
  })

  test.each([
    [
      'a key with a slip, with its line, column and the key that was meant',
      `{\n  "chian": ${pins}\n}`,
      'gateway.json:2:3: "chian" is not a configuration key. Did you mean chain?',
    ],
    [
      'a key twice, with the places of both',
      `{\n  "listen": { "port": 1, "host": "::1",\n    "port": 2 },\n  "chain": ${pins}\n}`,
      'gateway.json:3:5 has the key "port" a second time, after 2:15',
    ],
    [
      'a nested one',
      `{ "chain": ${pins},\n  "budget": {\n    "per_ip_itmes": 5 } }`,
      'gateway.json:3:5: "budget.per_ip_itmes" is not a configuration key. Did you mean budget.per_ip_items?',
    ],
    [
      'a key that is like none',
      `{ "chain": ${pins},\n "budget": { "zebra": 5 } }`,
      'gateway.json:2:14: "budget.zebra" is not a configuration key. Known keys here: window_seconds, per_ip_items, global_items',
    ],
    [
      'a wrong value, at its key',
      `{ "chain": ${pins}, // pins\n  "listen": {\n    "port": "8787" } }`,
      'gateway.json:3:5: listen.port must be a port',
    ],
    [
      'a wrong entry of a list',
      `{ "chain": ${pins},\n  "cors": { "origins": [\n    "https://a.example",\n    "*" ] } }`,
      'gateway.json:4:5: cors.origins.1 must be',
    ],
    [
      'what is missing, where it should stand',
      `{\n\n  "chain": { "profile": "polygon", "rpc_urls": ["https://n.example"] } }`,
      'gateway.json:3:3: chain.signed_proposer is missing',
    ],
    [
      'a comma that is missing',
      `{\n  "chain": ${pins}\n  "store": "./store" }`,
      'gateway.json:3:3 is not JSON: comma expected',
    ],
    [
      'a comment without its end',
      '{ /* …',
      'gateway.json:1:3 is not JSON: unexpected end of comment',
    ],
    ['an empty file', '', 'gateway.json:1:1 is not JSON: value expected'],
    [
      'brackets without end',
      '['.repeat(200_000),
      'gateway.json is not JSON: it is nested too deep',
    ],
  ])('refuses %s: exit 2', async (_what, text, expected) => {
    const { code, stdout, stderr } = await listed(text)
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
    expect(JSON.parse(stderr).error.detail).toContain(expected)
  })

  test('R5: neither a value nor a line of it is shown', async () => {
    for (const text of [
      `{ "chain": { "rpc_urls": "https://user:canary@n.example" } }`,
      `{ "chain": "https://user:canary@n.example" canary }`,
      `{ "store": "postgres://proposer:canary@db/x", "chain": ${pins} }`,
    ])
      expect((await listed(text)).stderr).not.toContain('canary')
  })

  test('`serve --check` tells every fault with its place', async () => {
    const text = `{\n  "lissten": {},\n  "chain": { "profile": "dev", "rpc_urls": ["http://127.0.0.1:1"] },\n  "budget": { "per_ip_items": 0 }\n}`
    await writeFile(join(home, 'gateway.json'), text)
    const { code, stdout } = await run(
      home,
      ['serve', '--config', 'gateway.json', '--check', '--json'],
      {
        cwd: home,
      },
    )
    expect(code).toBe(2)
    const { faults } = JSON.parse(stdout) as { faults: { detail: string }[] }
    const details = faults.map(({ detail }) => detail)
    expect(details.filter((one) => /gateway\.json:2:3: "lissten"/.test(one))).toHaveLength(1)
    expect(details.filter((one) => /gateway\.json:4:15: budget\.per/.test(one))).toHaveLength(1)
  })
})

describe('contract §9: the checksum of an address (EIP-55)', () => {
  const right = '0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed'
  const wrong = right.replace('aA', 'Aa')
  const files = { 'gateway.json': 'operator list', 'questions.json': 'operator questions list' }
  const places: readonly (readonly [string, keyof typeof files, (one: string) => object])[] = [
    ['signed_proposer', 'gateway.json', (one) => ({ chain: { ...chain, signed_proposer: one } })],
    ['oracles', 'gateway.json', (one) => ({ chain: { ...chain, oracles: [one] } })],
    [
      'requesters',
      'gateway.json',
      (one) => ({ chain: { ...chain, requesters: [{ address: one, kind: 'uma-ctf-adapter' }] } }),
    ],
    ['tokens', 'gateway.json', (one) => ({ chain: { ...chain, tokens: [one] } })],
    ['allowlist', 'gateway.json', (one) => ({ chain, admission: { allowlist: [one] } })],
    [
      'requester',
      'questions.json',
      (requester) => [{ question_id: `0x${'1'.repeat(64)}`, requester }],
    ],
  ]

  test.each(places)(
    '%s in %s: a wrong one is exit 2 and named, a right one is taken',
    async (key, file, of) => {
      const questions = { chain, questions: './questions.json' }
      await writeFile(join(home, 'gateway.json'), JSON.stringify(questions))
      const ask = async (address: string) => {
        await writeFile(join(home, file), JSON.stringify(of(address)))
        const { code, stderr } = await run(home, files[file].split(' '), { cwd: home })
        return { code, stderr }
      }
      const refused = await ask(wrong)
      expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining(key) })
      expect(refused.stderr).toContain('wrong checksum (EIP-55)')
      expect(await ask(right)).toEqual({ code: 0, stderr: '' })
    },
  )

  test.each([
    ['fund', ['fund', wrong, '5usdc']],
    ['grant', ['grant', wrong]],
    ['set-whitelist', ['set-whitelist', 'will-it-rain', wrong]],
  ])('devchain %s: a wrong one is exit 2, before a chain is asked', async (_verb, argv) => {
    const { code, stderr } = await run(home, ['devchain', ...argv])
    expect([code, stderr]).toEqual([
      2,
      expect.stringContaining(`${wrong} has a wrong checksum (EIP-55)`),
    ])
  })
})

describe('contract §9: PROPOSER_STORE_URL_FILE', () => {
  const check = async (...more: string[]) => {
    await writeFile(join(home, 'gateway.json'), `{ "chain": ${pins} }`)
    const file = join(home, 'store.url')
    await writeFile(file, 'postgres://127.0.0.1:1/x', { mode: 0o600 })
    const argv = ['serve', '--config', 'gateway.json', '--check', '--json', ...more]
    const env = { PROPOSER_STORE_URL_FILE: file }
    const { stdout, stderr } = await run(home, argv, {
      cwd: home,
      env,
      chain: createFakeChain(),
    })
    expect(stdout, stderr).toMatch(/^\{/)
    return JSON.parse(stdout) as { told: { check: string; detail: string }[] }
  }
  const placeOf = ({ told }: Awaited<ReturnType<typeof check>>) =>
    told.filter((one) => one.check === 'store_place').map(({ detail }) => detail)

  test('outranks gateway.json, and `serve --check` says so', async () => {
    expect(placeOf(await check())).toEqual([
      expect.stringContaining('the database that PROPOSER_STORE_URL_FILE names'),
    ])
  })

  test('--set outranks it (§6: flag before environment)', async () => {
    expect(placeOf(await check('--set', 'store=./own'))).toEqual([])
  })
})

describe('contract §9: the JSON Schema of gateway.json that is shipped', () => {
  const schema = JSON.parse(
    readFileSync(join(root, 'docs/reference', 'gateway.schema.json'), 'utf8'),
  )
  const judge = new Ajv({ strict: false, validateFormats: false }).compile(schema)
  const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))

  /** Every path of keys in it. */
  const keysOf = (one: unknown, path: readonly string[] = []): readonly (readonly string[])[] =>
    typeof one !== 'object' || one === null
      ? []
      : Object.entries(one).flatMap(([key, value]) => [
          [...path, key],
          ...keysOf(value, [...path, key]),
        ])

  const explained = () => {
    const [code = ''] = blocksIn(
      section('gateway.json', 'docs/reference/configuration.md'),
      'jsonc',
    )
    const file = JSON.parse(code.replace(/\s\/\/.*$/gm, ''))
    // Its id is a rule of two keys at once, which only the reader knows.
    delete file.chain.profile
    return file
  }
  const changed = (path: readonly string[], value: unknown) => {
    const copy = explained()
    const parent = path.slice(0, -1).reduce((one, key) => one[key], copy)
    if (value === undefined) delete parent[path.at(-1) ?? '']
    else parent[path.at(-1) ?? ''] = value
    return copy
  }

  test('is in the package', () => {
    expect(manifest.files).toContain('docs/reference/gateway.schema.json')
  })

  test('takes what the reader takes, and refuses what it refuses, key by key', () => {
    expect(judge(explained()), JSON.stringify(judge.errors)).toBe(true)
    const seen = { taken: 0, refused: 0 }
    for (const path of keysOf(explained()))
      for (const value of [undefined, {}, [], 'text', -1, 1, 70_000, true, null]) {
        const file = changed(path, value)
        const isRight = configFaults(file).length === 0
        expect(judge(file), `${path.join('.')} = ${JSON.stringify(value)}`).toBe(isRight)
        seen[isRight ? 'taken' : 'refused'] += 1
      }
    expect(seen.taken).toBeGreaterThan(50)
    expect(seen.refused).toBeGreaterThan(200)
    for (const section of [[], ['chain'], ['budget'], ['executor'], ['chain', 'requesters', '0']])
      expect(judge(changed([...section, 'unknown'], 1)), section.join('.')).toBe(false)
  })

  test.each([
    [{ chain: { profile: 'dev', rpc_urls: ['http://n'] } }, true],
    [{ chain: { profile: 'text', ...chain } }, false],
    [{ chain: { rpc_urls: ['http://n'] } }, false],
    [{ chain, admission: { allowlist: [address('1')] } }, true],
    [{ chain, admission: { allowlist: ['text'] } }, false],
    [{ chain, store: './a', store_file: './b' }, false],
    [{ chain, executor: { account: 'a', key_file: 'b' } }, false],
    [{ chain, executor: { account: 'a', signer } }, false],
    [{ chain, executor: { signer } }, true],
    [{ chain, executor: { signer: { url: signer.url } } }, false],
    [{ chain, executor: { signer: { ...signer, allow_http: 'text' } } }, false],
    [{ chain, executor: { pkcs11 } }, true],
    [{ chain, executor: { pkcs11, signer } }, false],
    [{ chain, executor: { pkcs11: { ...pkcs11, pin: '1234' } } }, false],
    [{ chain, executor: { pkcs11: { uri: pkcs11.uri, module: pkcs11.module } } }, false],
    [{ chain, slugs: { source: 'gamma' } }, false],
    [{ chain, slugs: { source: 'gamma', url: 'https://g.example' } }, true],
    [{ chain, metrics: { host: '0.0.0.0', port: 9100 } }, true],
    [{ chain, metrics: { host: '0.0.0.0' } }, false],
    [{ $schema: './gateway.schema.json', chain }, true],
  ])('judges %j as the reader does', (file, isRight) => {
    expect(configFaults(file).length === 0).toBe(isRight)
    expect(judge(file), JSON.stringify(judge.errors)).toBe(isRight)
  })
})
