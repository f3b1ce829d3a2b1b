/**
 * Proposer and executor with keys in key services (contract §9): the built command, the services'
 * own clients, a dev chain. The services are played; no cloud is reached.
 */
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { DevDescription } from '#devchain/dev-chain'
import { argvOf } from '#support/argv'
import { type KmsServer, keyVersion, startKms } from '#support/kms-server'
import { type Ended, type Running, workshop } from '#support/processes'
import type { ServeReady } from '#support/proposing'

const shop = workshop()
const executorKey = keyVersion()
let kms: KmsServer
let dev: DevDescription
let config: string
let env: Readonly<Record<string, string>>
let server: Running
let ready: ServeReady
const printed: string[] = []

async function go(...args: string[]): Promise<Ended> {
  const ended = await shop.run(args, { env })
  printed.push(ended.stdout, ended.stderr)
  return ended
}
const of = (role: string) => dev.accounts.find((one) => one.role === role)

beforeAll(async () => {
  const folder = await shop.folder()
  kms = await startKms(folder)
  const files = join(folder, 'dev')
  const chain = argvOf`devchain --port 0 --questions 6 --write ${files} --json`
  dev = (await shop.start(chain).line<{ dev: DevDescription }>()).dev
  const [proposer, executor] = [of('proposer'), of('executor')]
  if (proposer === undefined || executor === undefined) throw new Error('the dev chain has no keys')
  kms.point('alias/proposer', proposer.private_key)
  kms.point(executorKey, executor.private_key)
  config = join(files, 'gateway.json')
  const gateway = JSON.parse(await readFile(config, 'utf8'))
  const { key_file: _, ...rest } = gateway.executor
  gateway.executor = { ...rest, account: 'executor' }
  await writeFile(config, JSON.stringify(gateway))
  env = {
    ...kms.env,
    PROPOSER_HOME: join(folder, 'home'),
    PROPOSER_TRUST: join(files, 'trust.json'),
    PROPOSER_RPC_URL: dev.rpc_url,
    PROPOSER_ACCOUNT: 'main',
  }
})
afterAll(async () => {
  await shop.clean()
  await kms.close()
})

describe('keys in key services', () => {
  test('accounts are made, listed and checked', async () => {
    const made = await go('account', 'add-kms', 'main', '--key', 'alias/proposer', '--json')
    expect(JSON.parse(made.stdout)).toMatchObject({ address: of('proposer')?.address })
    const second = await go('account', 'add-kms', 'executor', '--key', executorKey)
    expect(second.code, second.stderr).toBe(0)
    expect((await go('account', 'list')).stdout).toMatch(/Google Cloud KMS[\s\S]*AWS KMS/)
    const checked = await go('serve', '--config', config, '--check', '--json')
    expect(checked.code, checked.stdout + checked.stderr).toBe(0)
    expect(checked.stdout).toContain('Google Cloud KMS')
  })

  test('a proposal is signed by the one and executed by the other', async () => {
    server = shop.start(argvOf`serve --config ${config} --port 0 --json --log`, { env })
    ready = await server.line<ServeReady>()
    env = { ...env, PROPOSER_GATEWAY: ready.url }
    const question = dev.questions[0]?.slug ?? ''
    const ran = await go('submit', question, '--outcome', 'p2', '--wait', '--json')
    expect(ran.code, ran.stderr).toBe(0)
    expect(JSON.parse(ran.stdout)).toMatchObject({ status: 'executed' })
  })

  test('nothing of the credentials is printed, logged or bundled', async () => {
    await go('doctor', '--json', '-v')
    await go('support-bundle', '--config', config, '-o', '-')
    const ended = await server.stop('SIGTERM')
    const all = [...printed, ended.stdout, ended.stderr].join('\n')
    for (const secret of kms.secrets) expect(all).not.toContain(secret)
  })
})
