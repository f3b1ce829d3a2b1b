/** Accounts whose key is in a key service (contract §9), through the front door. */
import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { privateKeyToAccount } from 'viem/accounts'
import { type Argv, type RunOptions, run, writeTrust } from '#support/cli'
import { temporaryFolder } from '#support/folders'
import { type KmsServer, keyArn, keyVersion, startKms } from '#support/kms-server'
import { pins, type ScriptedGateway, scriptedGateway } from '#support/scripted-gateway'

const key = `0x${'21'.repeat(32)}` as const
const address = privateKeyToAccount(key).address.toLowerCase()
const names = [
  ['AWS KMS', 'aws-kms', 'alias/proposer'],
  ['AWS KMS', 'aws-kms', keyArn('1234abcd-12ab-34cd-56ef-1234567890ab')],
  ['Google Cloud KMS', 'gcp-kms', keyVersion(3)],
] as const

let place: string
let kms: KmsServer
let home: string
let gateway: ScriptedGateway
beforeAll(async () => {
  place = temporaryFolder()
  kms = await startKms(place)
})
afterAll(async () => {
  await kms.close()
})
beforeEach(async () => {
  home = temporaryFolder()
  gateway = scriptedGateway()
  writeTrust(home, { ...pins, slugs: { 'will-it-hold': gateway.question.question_id } })
  // The clients of the services read the environment of the process.
  for (const [name, value] of Object.entries(kms.env)) vi.stubEnv(name, value)
  for (const [, , id] of names) kms.point(id, key)
})
afterEach(async () => {
  kms.instead(undefined)
  vi.unstubAllEnvs()
})

/** Whatever is printed holds nothing of the credentials. */
async function ask(argv: Argv, more: RunOptions = {}) {
  const env = { PROPOSER_GATEWAY: gateway.url }
  const ran = await run(home, argv, { env, fetch: gateway.fetch, ...more })
  for (const secret of kms.secrets) expect(`${ran.stdout}${ran.stderr}`).not.toContain(secret)
  return ran
}
const add = (id: string, ...more: string[]) =>
  ask(['account', 'add-kms', 'hot', '--key', id, ...more])
const file = () => join(home, 'keystores', 'hot.json')

describe.each(names)('%s, %s, %s', (service, kind, id) => {
  test('add-kms writes where the key is and no secret, for its owner alone; list and show have it', async () => {
    const ran = await add(id, '--json')
    expect(ran.stderr).toBe('')
    expect(JSON.parse(ran.stdout)).toMatchObject({ name: 'hot', address, kind, key: id })
    expect(JSON.parse(readFileSync(file(), 'utf8'))).toEqual({
      schema: 'proposer.account-file/1',
      kind,
      address,
      key: id,
      ...(kind === 'aws-kms' && { region: 'eu-central-1' }),
    })
    expect(statSync(file()).mode & 0o777).toBe(0o600)
    const { accounts } = JSON.parse((await ask('account list --json')).stdout)
    expect(accounts).toMatchObject([{ name: 'hot', address, kind, key: id }])
    expect((await ask('account show hot')).stdout).toContain(id)
    expect((await ask('account list')).stdout).toMatch(new RegExp(`^hot +${address}.*${service}`))
  })

  test('submit signs with it, asks for no password, and journals a signature of the account', async () => {
    await add(id)
    const submit = ['submit', 'will-it-hold', '--outcome', 'p2', '--account', 'hot', '--json', '-v']
    const ran = await ask(submit)
    expect(ran.code, ran.stderr).toBe(0)
    const listed = await ask('journal list --json')
    expect(listed.stdout).toContain(address)
  })
})

test('--dry-run shows what would be written, and writes nothing', async () => {
  const ran = await add('alias/proposer', '--dry-run', '--json')
  expect(JSON.parse(ran.stdout)).toMatchObject({ address, kind: 'aws-kms' })
  expect(() => readFileSync(file())).toThrow('ENOENT')
})

test('a key id needs a region; an ARN has it', async () => {
  vi.stubEnv('AWS_REGION', undefined)
  const ran = await add('alias/proposer', '--json')
  expect(ran.code).toBe(2)
  expect(JSON.parse(ran.stderr).error).toMatchObject({ code: 'kms_region' })
  expect((await add(keyArn('1234abcd-12ab-34cd-56ef-1234567890ab'))).code).toBe(0)
})

test('what is no key of any service, and a key that cannot sign, make no account', async () => {
  expect(JSON.parse((await add('hot', '--json')).stderr).error).toMatchObject({
    code: 'invalid_kms_key',
  })
  kms.instead(({ action, told }) =>
    action === 'sign'
      ? { status: 400, body: { __type: 'AccessDeniedException', message: told } }
      : undefined,
  )
  const ran = await add('alias/proposer')
  expect(ran.code).toBe(2)
  expect(ran.stderr).toMatch(/denies access to the key “alias\/proposer”.*kms:Sign/s)
  expect(() => readFileSync(file())).toThrow('ENOENT')
})

test('an account that is there is not touched, and nobody is asked', async () => {
  await add('alias/proposer')
  const asked = kms.asked.length
  const ran = await add(keyVersion(3), '--json')
  expect(JSON.parse(ran.stderr).error).toMatchObject({ code: 'account_exists' })
  expect(kms.asked.length).toBe(asked)
})

describe('an account in a key service', () => {
  const submit = ['submit', 'will-it-hold', '--outcome', 'p2', '--account', 'hot', '--json']

  test('a moved alias: exit 2, both accounts are named, nothing is signed or sent', async () => {
    await add('alias/proposer')
    kms.point('alias/proposer', `0x${'22'.repeat(32)}`)
    const signatures = kms.asked.filter(({ action }) => action === 'sign').length
    const ran = await ask(submit)
    expect(ran.code).toBe(2)
    const { error } = JSON.parse(ran.stderr)
    expect(error).toMatchObject({ code: 'kms_other_key' })
    expect(error.detail ?? error.message).toContain(address)
    expect(kms.asked.filter(({ action }) => action === 'sign')).toHaveLength(signatures)
  })

  test('a service that is out of reach: exit 75, and the same command goes on later', async () => {
    await add(keyVersion(3))
    kms.instead(() => 'break')
    const ran = await ask(submit)
    expect(ran.code).toBe(75)
    expect(JSON.parse(ran.stderr).error).toMatchObject({ code: 'kms_unreachable', retryable: true })
    kms.instead(undefined)
    expect((await ask(submit)).code).toBe(0)
  })

  test('doctor and a support bundle say nothing of the credentials', async () => {
    await add('alias/proposer')
    await ask('doctor --account hot --json -v')
    const bundle = join(home, 'bundle.json')
    await ask(['support-bundle', '--account', 'hot', '-o', bundle])
    for (const secret of kms.secrets) expect(readFileSync(bundle, 'utf8')).not.toContain(secret)
  })
})
