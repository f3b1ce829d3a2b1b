/**
 * `support-bundle` (contract §6): an allow-list, searched for secrets before a byte of it leaves
 * (R5).
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import {
  type Argv,
  eachHome,
  errorOf,
  type Ran,
  type RunOptions,
  run,
  writeTrust,
} from '#support/cli'
import {
  pins,
  questionContext,
  type ScriptedGateway,
  scriptedGateway,
} from '#support/scripted-gateway'

const key = `0x${'1b'.repeat(32)}` as const
const token = 'c7'.repeat(32)

const home = eachHome()
let gateway: ScriptedGateway
let env: Record<string, string>
let cwd: string
const [oracle = ''] = pins.oracles
beforeEach(() => {
  gateway = scriptedGateway()
  cwd = join(home.path, 'work')
  mkdirSync(cwd)
  const code_hash = `0x${'c0'.repeat(32)}`
  const implementations = { [oracle]: { implementation: oracle, code_hash } }
  const slugs = { 'will-it-hold': gateway.question.question_id }
  writeTrust(home.path, { ...pins, slugs, implementations })
  writeFileSync(join(home.path, 'key'), `${key}\n`, { mode: 0o600 })
  env = {
    PROPOSER_GATEWAY: `${gateway.url}/BASEPATHSECRET17`,
    PROPOSER_RPC_URL:
      'http://RPCUSER:RPCPASSWORD@127.0.0.1:1/v2/RPCPATHSECRET17?key=RPCQUERYSECRET',
    PROPOSER_KEY_FILE: join(home.path, 'key'),
    SIGNING_PASSWORD: 'correct horse battery',
  }
})

const ask = (argv: Argv, more: RunOptions = {}) =>
  run(home.path, argv, { env, cwd, fetch: gateway.fetch, ...more })
const sign = (reference: string, more: RunOptions = {}) =>
  ask(
    [
      'submit',
      'will-it-hold',
      '--outcome',
      'p2',
      '--client-ref',
      reference,
      '--gateway',
      gateway.url,
      '--json',
    ],
    {
      ...more,
      env: { PROPOSER_KEY_FILE: env.PROPOSER_KEY_FILE ?? '' },
    },
  )
const bundle = (...flags: string[]) => ask(['support-bundle', ...flags])

interface Bundle {
  readonly schema: string
  readonly journal: { sound: boolean; left_out: number; authorizations: Record<string, unknown>[] }
  readonly settings: { key: string; value: unknown }[]
  readonly checks: { id: string; result: string }[]
  readonly gateway: Record<string, unknown> | null
  readonly trust: Record<string, unknown>
}
const documentOf = ({ code, stdout, stderr }: Ran): Bundle => {
  expect(stderr).toBe('')
  expect(code).toBe(0)
  return JSON.parse(stdout) as Bundle
}
const journalFile = () => {
  const run =
    readdirSync(join(home.path, 'journal')).find((name) => /^[0-9a-f]{12}$/.test(name)) ?? ''
  const name =
    readdirSync(join(home.path, 'journal', run)).find((file) => file.startsWith('log-')) ?? ''
  return join(home.path, 'journal', run, name)
}
const signature = () =>
  /\\"signature\\":\\"(0x[0-9a-f]{130})/.exec(readFileSync(journalFile(), 'utf8'))?.[1] ?? ''

/** Wherever an operator's part is asked for. */
function writeGateway(more: object = {}): string {
  const folder = join(home.path, 'gateway')
  mkdirSync(join(folder, 'gateway-store'), { recursive: true })
  writeFileSync(join(folder, 'gateway-store', 'admin.token'), `${token}\n`, { mode: 0o600 })
  writeFileSync(join(folder, 'executor.key'), `0x${'2c'.repeat(32)}\n`, { mode: 0o600 })
  const { permit2, signed_proposer, oracles, requesters, tokens } = pins
  const chain = {
    id: 31337,
    rpc_urls: ['https://node.example/v3/OPERATORPATH17'],
    permit2,
    signed_proposer,
    oracles,
    requesters,
    tokens,
  }
  writeFileSync(
    join(folder, 'gateway.json'),
    JSON.stringify({ chain, executor: { key_file: './executor.key' }, ...more }),
  )
  return join(folder, 'gateway.json')
}

test('R5: question, reference, times, states and attempts of what was sent; no payload, signature, digest or credential', async () => {
  expect((await sign('order 17')).code).toBe(0)
  const document = documentOf(await bundle('--json'))
  expect(document.schema).toBe('proposer.support-bundle/1')
  expect(document.journal).toMatchObject({ sound: true, left_out: 0 })
  const [row = {}] = document.journal.authorizations
  expect(Object.keys(row)).toEqual([
    ...[
      'journal_id',
      'state',
      'reason',
      'code',
      'question_id',
      'identifier',
      'title',
      'client_ref',
      'chain_id',
      'round',
      'proposer',
      'outcome',
      'label',
    ],
    ...[
      'amount',
      'nonce',
      'deadline',
      'candidate_id',
      'signed_at',
      'received_at',
      'ended_at',
      'transaction_hash',
      'supersedes',
    ],
    ...['superseded_by', 'attempts', 'attempts_left_out'],
  ])
  expect(row).toMatchObject({
    state: 'accepted',
    client_ref: 'order 17',
    question_id: gateway.question.question_id,
    attempts: [{ origin: gateway.url, class: 'accepted', http_status: 202 }],
  })
  const urls = Object.fromEntries(document.settings.map(({ key, value }) => [key, value]))
  expect(urls).toMatchObject({
    gateway: { url: 'http://127.0.0.1:8787', removed: ['path'] },
    'rpc-url': { url: 'http://127.0.0.1:1', removed: ['user', 'path', 'query'] },
  })
  expect(document.trust).toMatchObject({
    ...{ chain_id: 31337, slugs: 1 },
    implementations: { [oracle]: oracle },
  })
  const text = JSON.stringify(document)
  expect(signature()).toMatch(/^0x[0-9a-f]{130}$/)
  for (const secret of [
    signature().slice(2, 40),
    key.slice(2),
    'SECRET',
    'RPCUSER',
    'RPCPASSWORD',
    'correct horse',
  ]) {
    expect(text.toLowerCase()).not.toContain(secret.toLowerCase())
  }
})

test('contract §6: --question and --since narrow it; what is neither is refused by its name', async () => {
  await sign('order 17')
  const other = questionContext('another').question_id
  const count = async (...flags: string[]) =>
    documentOf(await bundle('--json', ...flags)).journal.authorizations.length
  expect(await count('--question', gateway.question.question_id)).toBe(1)
  expect(await count('--question', 'will-it-hold')).toBe(1)
  expect(await count('--question', other)).toBe(0)
  expect(await count('--since', '1h')).toBe(1)
  expect(await count('--since', '2100-01-01')).toBe(0)
  expect(errorOf(await bundle('--json', '--question', 'no/slug'))).toMatchObject({
    code: 'invalid_identifier',
    exit_code: 2,
  })
  expect(errorOf(await bundle('--json', '--question', 'Will-It-Hold'))).toMatchObject({
    code: 'invalid_identifier',
    hint: 'write it in lowercase: will-it-hold',
  })
  expect(errorOf(await bundle('--json', '--since', 'rain'))).toMatchObject({
    code: 'bad_since',
    exit_code: 2,
  })
})

test('robustness §2: a damaged journal is told as such, and the rest is made all the same', async () => {
  await sign('order 17')
  const path = journalFile()
  const text = readFileSync(path, 'utf8')
  writeFileSync(path, text.replace('"journal_id"', '"journal_ie"').replace(/"t":\d/, '"t":9'))
  const document = documentOf(await bundle('--json'))
  expect(document.journal).toMatchObject({ sound: false, authorizations: [] })
  expect(document.checks.find(({ id }) => id === 'journal')).toMatchObject({ result: 'fail' })
})

test("R5, R24: the operator's part is what its status tells; of a gateway that is not there it says so, and creates nothing", async () => {
  const config = writeGateway()
  const before = readdirSync(join(home.path, 'gateway', 'gateway-store'))
  const document = documentOf(await bundle('--json', '--config', config))
  expect(document.gateway).toEqual({ error: 'gateway_not_running' })
  expect(JSON.stringify(document)).not.toMatch(/OPERATORPATH17|executor\.key/)
  expect(readdirSync(join(home.path, 'gateway', 'gateway-store'))).toEqual(before)
})

test('R5: what of the URL of a remote signer is found elsewhere stops the bundle', async () => {
  const signer = {
    url: 'https://signer.example/v1/SIGNERPATH17?key=SIGNERQUERY17',
    address: oracle,
  }
  const config = writeGateway({ executor: { signer } })
  const document = documentOf(await bundle('--json', '--config', config))
  expect(JSON.stringify(document)).not.toMatch(/SIGNERPATH17|SIGNERQUERY17/)
  await sign('paid from SIGNERQUERY17')
  expect(errorOf(await bundle('--json', '--config', config))).toMatchObject({
    code: 'bundle_holds_secret',
    detail: expect.stringContaining('a credential in executor.signer.url'),
  })
})

test.each(['first-pin', 'second-pin'])(
  'R5: the PIN of the executor or of an account, found elsewhere, stops the bundle: %s',
  async (found) => {
    const pin = (name: string) => {
      writeFileSync(join(home.path, name), `CANARY-${name}\n`, { mode: 0o600 })
      return join(home.path, name)
    }
    const place = { uri: 'pkcs11:object=main', module: '/usr/lib/token.so' }
    const config = writeGateway({
      executor: { pkcs11: { ...place, pin_file: pin('first-pin') } },
    })
    const file = { schema: 'proposer.account-file/1', kind: 'pkcs11', address: oracle, ...place }
    mkdirSync(join(home.path, 'keystores'), { recursive: true })
    const account = join(home.path, 'keystores', 'token.json')
    writeFileSync(account, JSON.stringify({ ...file, pin_file: pin('second-pin') }))
    const document = documentOf(await bundle('--json', '--config', config))
    expect(JSON.stringify(document)).not.toMatch(/pkcs11:|token\.so|first-pin|second-pin/)
    await sign(`paid with CANARY-${found}`)
    expect(errorOf(await bundle('--json', '--config', config))).toMatchObject({
      code: 'bundle_holds_secret',
      detail: expect.stringContaining('the PIN of a token'),
    })
  },
)

test('contract §6: a file of mode 0600, listed on the terminal; what is there is replaced only with --yes', async () => {
  const first = await bundle('-o', 'bundle.json')
  expect(first.code).toBe(0)
  expect(first.stdout).toContain(join(cwd, 'bundle.json'))
  expect(first.stdout).toMatch(/not in it/)
  const path = join(cwd, 'bundle.json')
  expect(statSync(path).mode & 0o777).toBe(0o600)
  const written = readFileSync(path, 'utf8')
  expect(JSON.parse(written)).toMatchObject({ schema: 'proposer.support-bundle/1' })
  const again = await bundle('-o', 'bundle.json', '--json')
  expect(errorOf(again)).toMatchObject({ code: 'confirmation_needed', exit_code: 2 })
  expect(readFileSync(path, 'utf8')).toBe(written)
  expect((await bundle('-o', 'bundle.json', '--yes')).code).toBe(0)
  expect(readFileSync(path, 'utf8')).not.toBe(written)
  expect(readdirSync(cwd)).toEqual(['bundle.json'])
})

test('without -o it gets a name by its time; -o - and --json print it and write no file', async () => {
  expect(JSON.parse((await bundle('-o', '-')).stdout)).toMatchObject({
    schema: 'proposer.support-bundle/1',
  })
  documentOf(await bundle('--json'))
  expect((await bundle('--ndjson')).stdout.trim().split('\n')).toHaveLength(1)
  expect(readdirSync(cwd)).toEqual([])
  await bundle()
  expect(readdirSync(cwd)).toEqual([expect.stringMatching(/^proposer-support-\d{8}T\d{6}Z\.json$/)])
})

/** The only field that takes free text of the user. */
const planted: readonly [what: string, kind: string, text: () => string][] = [
  ['the private key', 'the key in PROPOSER_KEY_FILE', () => `paid from ${key}`],
  [
    'the private key without 0x, upper case',
    'the key in PROPOSER_KEY_FILE',
    () => key.slice(2).toUpperCase(),
  ],
  ['the RPC password', 'a credential in the RPC URL', () => 'RPCPASSWORD'],
  ['the RPC path', 'a credential in the RPC URL', () => 'RPCPATHSECRET17'],
  ["the base URL's path", 'a credential in the gateway URL', () => 'see basepathsecret17'],
  [
    'a password of the environment',
    'the variable SIGNING_PASSWORD',
    () => 'correct horse battery staple',
  ],
  ['the admin token', 'the admin token', () => token],
  ["the executor's key", 'the executor', () => '2c'.repeat(32)],
  ["the operator's node", 'a credential in chain.rpc_urls', () => 'OPERATORPATH17'],
]
test.each(planted)('R5: %s in a client reference', async (_what, kind, text) => {
  const config = writeGateway()
  expect((await sign(text())).code).toBe(0)
  for (const flags of [['--json'], ['-o', 'bundle.json', '--json'], ['-o', '-', '--json']]) {
    const ran = await bundle('--config', config, ...flags)
    expect(ran.code).toBe(2)
    expect(ran.stdout).toBe('')
    const error = errorOf(ran)
    expect(error.code).toBe('bundle_holds_secret')
    expect(error.detail).toContain('journal.authorizations.0.client_ref holds ')
    expect(error.detail).toContain(kind)
    expect(ran.stderr).not.toContain(text())
  }
  expect(existsSync(join(cwd, 'bundle.json'))).toBe(false)
  expect((await bundle('--config', config, '--since', '2100-01-01')).code).toBe(0)
})

test("R5: a signature of the journal, and a keystore's ciphertext", async () => {
  expect((await sign('order 17')).code).toBe(0)
  const own = signature()
  mkdirSync(join(home.path, 'keystores'), { recursive: true })
  writeFileSync(
    join(home.path, 'keystores', 'hot.json'),
    '{"crypto":{"ciphertext":"1122334455667788","mac":"99"}}',
    { mode: 0o600 },
  )
  const byName = (name: string) =>
    ask('support-bundle --json', { env: { ...env, PROPOSER_ACCOUNT: name } })
  for (const [name, kind] of [
    [own.slice(2), 'a signature of the journal'],
    ['1122334455667788', 'a keystore'],
  ] as const) {
    const error = errorOf(await byName(name))
    expect(error).toMatchObject({ code: 'bundle_holds_secret', exit_code: 2 })
    expect(error.detail).toMatch(new RegExp(`settings\\.\\d+\\.value holds ${kind}`))
  }
  expect((await byName('hot')).code).toBe(0)
})

test.each([
  ...[
    'DB_PASS',
    'MY_PW',
    'GITHUB_PAT',
    'VAULT_AUTH',
    'SECRETS',
    'API_KEY_1',
    'AWS_SECRET_ACCESS',
    'NPM_TOKENS',
    'APIKEY',
    'DB_PASSWORD_PROD',
  ],
])('R5: the value of %s as the name of an account', async (name) => {
  const value = 'planted-in-environment'
  const ran = await ask('support-bundle --json', {
    env: { ...env, [name]: value, PROPOSER_ACCOUNT: value },
  })
  expect(errorOf(ran)).toMatchObject({
    code: 'bundle_holds_secret',
    detail: expect.stringContaining(`the variable ${name}`),
  })
})

test.each([
  ['PROPOSER_RPC_URL', 'topsecretuser:topsecretword@node.example'],
  ['PROPOSER_RPC_URL', 'topsecretuser:topsecretword'],
  ['PROPOSER_GATEWAY', 'topsecretuser:abc'],
  ['PROPOSER_GATEWAY', 'topsecretuser://host/topsecretword'],
])('R5: %s=%s, which is no URL, shows nothing of itself', async (name, value) => {
  const { stdout, stderr, code } = await ask('support-bundle --json', {
    env: { ...env, [name]: value },
  })
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  expect(stdout).toContain('(not a URL)')
  expect(stdout).not.toMatch(/topsecret/)
})

describe('R5: honest settings do not keep a bundle from being written', () => {
  const question = () => gateway.question.question_id
  test.each<readonly [what: string, env: () => Record<string, string>]>([
    ['a gateway under /proposer', () => ({ PROPOSER_GATEWAY: 'https://gateway.example/proposer' })],
    ["a node's user called admin", () => ({ PROPOSER_RPC_URL: 'https://admin:pw@node.example' })],
    [
      "a node's user called proposer",
      () => ({ PROPOSER_RPC_URL: 'https://proposer:pw@node.example' }),
    ],
    ['?retry=1', () => ({ PROPOSER_RPC_URL: 'https://node.example/?retry=1' })],
    [
      'a variable with a word of ours',
      () => ({ CACHE_KEY: 'question_id', SORT_KEYS: 'environment' }),
    ],
    [
      "a profile's word in a path",
      () => ({ PROPOSER_RPC_URL: 'https://rpc.example/default/accepted' }),
    ],
  ])('%s', async (_what, more) => {
    expect((await sign('order 17')).code).toBe(0)
    const ran = await ask(['support-bundle', '--json', '--config', writeGateway()], {
      env: { ...env, ...more() },
    })
    documentOf(ran)
    expect(ran.stdout).toContain(question())
  })

  test('two nodes of one operator, of which one names its chain in the host, the other in the path', async () => {
    const { permit2, signed_proposer, oracles, requesters, tokens } = pins
    const rpc_urls = [
      `https://rpc.ankr.example/polygon/${'k3'.repeat(16)}`,
      'https://admin:pw@polygon-mainnet.g.alchemy.example/v2/abcdef0123456789',
    ]
    const config = writeGateway({
      chain: { id: 31337, rpc_urls, permit2, signed_proposer, oracles, requesters, tokens },
    })
    const { gateway: part } = documentOf(await bundle('--json', '--config', config))
    expect(part).toEqual({ error: 'gateway_not_running' })
  })
})
