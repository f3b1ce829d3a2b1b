/**
 * `executor.pkcs11` end to end (contract §9): the executor's key is in a token of SoftHSM2, and the
 * token is taken away in the middle of a slot.
 */
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { devRpc } from '#devchain/dev-contracts'
import { argvOf } from '#support/argv'
import { describeWith } from '#support/components'
import { type Running, workshop } from '#support/processes'
import {
  type Client,
  makeClient,
  proposals,
  questionOf,
  type ServeReady,
  untilExecuted,
  untilUnready,
} from '#support/proposing'
import { isRunning, modulePid, pin, softHsm, type TestTokens, testTokens } from '#support/softhsm'

describeWith(softHsm, 'contract §9: the executor signs in a PKCS#11 token', () => {
  const shop = workshop()
  let tokens: TestTokens
  let folder: string
  let dev: ServeReady['dev']
  let executor: string
  let server: Running
  let ready: ServeReady
  let client: Client

  const writeConfig = async (name: string, pkcs11: object) => {
    const gateway = JSON.parse(await readFile(join(folder, 'gateway.json'), 'utf8'))
    gateway.executor = { pkcs11 }
    await writeFile(join(folder, name), JSON.stringify(gateway))
    return join(folder, name)
  }
  const place = () => ({
    uri: 'pkcs11:token=gateway;object=executor',
    module: tokens.module,
    pin_file: tokens.pinFile,
  })
  const checked = async (config: string) => {
    const { code, stdout, stderr } = await shop.run(
      argvOf`serve --check --config ${config} --json`,
      {
        env: tokens.env,
      },
    )
    expect(stdout + stderr).not.toContain(pin)
    return { code, document: JSON.parse(stdout) }
  }

  beforeAll(async () => {
    tokens = await testTokens()
    tokens.token('gateway')
    tokens.key('gateway', 'executor')
    ;({ dev, folder } = await shop.devChain(4))
    const config = await writeConfig('token.json', place())
    const { document } = await checked(config)
    const said = JSON.stringify(document)
    executor = /the executor (0x[0-9a-f]{40}) in its PKCS#11 token signs/.exec(said)?.[1] ?? said
    const granted = await shop.run(['devchain', 'grant', executor, '--rpc-url', dev.rpc_url])
    if (granted.code !== 0) throw new Error(granted.stderr)
    server = shop.start(argvOf`serve --config ${config} --port 0 --json --log`, {
      env: tokens.env,
    })
    ready = await server.line<ServeReady>()
    client = await makeClient(shop, dev, {
      PROPOSER_GATEWAY: ready.url,
      PROPOSER_RPC_URL: dev.rpc_url,
    })
  })
  afterAll(async () => {
    await shop.clean()
    await tokens?.remove()
  })

  const rpc = () => devRpc(dev.rpc_url)
  const sent = async () =>
    Number(await rpc().request<string>('eth_getTransactionCount', [executor, 'pending']))
  const proposed = async (known: readonly string[]) =>
    (await proposals(dev, client.proposer))
      .map(({ transactionHash }) => transactionHash)
      .filter((hash) => !known.includes(hash))
  const submit = async (n: number) => {
    const { code, answer } = await client.ask('submit', questionOf(dev, n).slug, '--outcome', 'p2')
    expect(code).toBe(0)
    return String(answer.candidate_id)
  }
  test('a proposal is executed by a transaction that the token has signed', async () => {
    const status = await untilExecuted(client, await submit(0))
    const [hash, ...others] = await proposed([])
    expect(others).toEqual([])
    expect(status).toMatchObject({ status: 'executed', submission: { transaction_hash: hash } })
    expect(await rpc().request('eth_getTransactionByHash', [hash])).toMatchObject({
      from: executor,
      nonce: '0x0',
    })
  })

  test('R3: the token is gone in the middle of a slot: the executor waits and says so, and goes on under the same nonce', async () => {
    const known = await proposed([])
    const nonce = await sent()
    await tokens.away()
    const candidate = await submit(1)
    expect(await untilUnready(ready, /does not sign/)).toMatch(
      new RegExp(`^the key of the executor ${executor} does not sign: .*token.*: waiting$`),
    )
    await untilUnready(ready, /no token that is present matches the URI: waiting/)
    expect(server.stderr()).toContain('"slot.opened"')
    expect(await sent()).toBe(nonce)
    await tokens.back()
    expect(await untilExecuted(client, candidate)).toMatchObject({ status: 'executed' })
    const hashes = await proposed(known)
    expect(hashes).toHaveLength(1)
    expect(await rpc().request('eth_getTransactionByHash', [hashes[0]])).toMatchObject({
      from: executor,
      nonce: `0x${nonce.toString(16)}`,
    })
    expect(await sent()).toBe(nonce + 1)
  })

  test('the proposer signs in a token too: the approval of Permit2 and the proposal', async () => {
    tokens.key('gateway', 'proposer', { id: '02' })
    const flags = ['--module', tokens.module, '--pin-file', tokens.pinFile]
    const { PROPOSER_KEY_FILE: _, ...own } = client.env
    const env = { ...own, ...tokens.env }
    const ask = async (...args: readonly string[]) => {
      const { code, stdout, stderr } = await shop.run([...args, '--json', '--yes'], { env })
      expect(code, stdout + stderr).toBe(0)
      expect(stdout + stderr).not.toContain(pin)
      return JSON.parse(stdout)
    }
    const uri = 'pkcs11:token=gateway;object=proposer'
    const { address } = await ask('account', 'add-pkcs11', 'hsm', '--uri', uri, ...flags)
    await ask('devchain', 'fund', address)
    await ask('operator', '--config', join(folder, 'token.json'), 'allow', address)
    await ask('funds', 'approve', '--amount', '1000usdc', '--account', 'hsm')
    const slug = questionOf(dev, 3).slug
    const done = await ask('submit', slug, '--outcome', 'p2', '--account', 'hsm', '--wait')
    expect(done).toMatchObject({ status: 'executed' })
    expect(await proposals(dev, address)).toHaveLength(1)
  })

  test('a gateway that ends takes the process of the module with it; its log holds no PIN', async () => {
    const pid = modulePid(server.child.pid)
    const { code, stdout, stderr } = await server.stop()
    expect(code).toBe(0)
    await expect.poll(() => isRunning(pid), { timeout: 60_000 }).toBe(false)
    expect(stdout + stderr).not.toContain(pin)
  })

  test('contract §6: serve and serve --check end with 2 where the PIN is wrong, and the PIN is not told', async () => {
    const wrong = join(folder, 'wrong-pin')
    await writeFile(wrong, 'another-canary-pin\n', { mode: 0o600 })
    const config = await writeConfig('wrong-pin.json', { ...place(), pin_file: wrong })
    const { code, document } = await checked(config)
    expect(code).toBe(2)
    expect(document.faults).toContainEqual(
      expect.objectContaining({
        check: 'executor_key',
        detail: `the token refuses the PIN: “${wrong}”`,
        hint: expect.stringContaining('correct the file'),
      }),
    )
    const started = await shop.run(argvOf`serve --config ${config} --port 0`, {
      env: tokens.env,
    })
    expect(started.code).toBe(2)
    expect(started.stderr).toContain(`the token refuses the PIN: “${wrong}”`)
    expect(started.stderr + JSON.stringify(document)).not.toContain('another-canary-pin')
  })

  test('executor.account may name an account in a token: no password is asked for', async () => {
    const { uri, module, pin_file } = place()
    const env = { ...tokens.env, PROPOSER_HOME: join(folder, 'home') }
    const flags = ['--uri', uri, '--module', module, '--pin-file', pin_file]
    const added = await shop.run(['account', 'add-pkcs11', 'hsm', ...flags], { env })
    expect(added).toMatchObject({ code: 0, stderr: '' })
    const gateway = argvOf`--config ${join(folder, 'token.json')} --executor-account hsm`
    const { stdout } = await shop.run(argvOf`serve --check ${gateway} --json`, { env })
    expect(stdout).toContain(
      `the account hsm of the executor ${executor} signs in its PKCS#11 token`,
    )
  })
})
