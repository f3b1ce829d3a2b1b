/**
 * `serve --check`: one test for each fault, through the real program on a real dev chain (contract
 * §6; domain §2, §4, §8).
 */

import type { EventEmitter } from 'node:events'
import { chmod, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { basename, join } from 'node:path'
import { main } from '#commands/main'
import {
  callData,
  type DevAccount,
  devAccount,
  devAddresses,
  devRpc,
  placedAt,
  sendAsDev,
} from '#devchain/dev-contracts'
import { createHttp } from '#io/http'
import { createChain } from '#io/rpc/rpc'
import { type Chain, ChainError, type Hex } from '#ports'
import type { Address } from '#protocol/schema'
import { argvOf } from '#support/argv'
import { fakeContext } from '#support/cli'
import { type Ended, workshop } from '#support/processes'
import type { ServeReady } from '#support/proposing'
import { honestSigner, startWallet, type Wallet } from '#support/wallet-server'

interface Finding {
  readonly check: string
  readonly detail: string
  readonly hint?: string
}
interface Checked {
  readonly code: number | null
  readonly ok: boolean
  readonly faults: readonly Finding[]
  readonly warnings: readonly Finding[]
  readonly told: readonly Finding[]
  readonly right: readonly Finding[]
  readonly stdout: string
  readonly stderr: string
}
type Section = Record<string, unknown>
interface Run {
  readonly env?: Record<string, string>
  readonly bin?: boolean
  /** What the node does otherwise. */
  readonly chain?: Partial<Chain>
}

const shop = workshop()
const executor = devAccount('executor')
const nowhere = `0x${'1'.repeat(40)}`
let folder: string
let dev: ServeReady['dev']
let gateway: { chain: Section; admission: { allowlist: Address[] } } & Record<string, unknown>
let written = 0

beforeAll(async () => {
  ;({ dev, folder } = await shop.devChain(2))
  gateway = JSON.parse(await readFile(join(folder, 'gateway.json'), 'utf8'))
})

const text = async (content: unknown): Promise<string> => {
  written += 1
  const path = join(folder, `gateway-${written}.json`)
  await writeFile(path, typeof content === 'string' ? content : JSON.stringify(content))
  return path
}

async function checkFile(
  path: string,
  flags: readonly string[] = ['--port', '0'],
  { env = {}, bin = false, chain = {} }: Run = {},
): Promise<Checked> {
  const argv = argvOf`serve --config ${path} --check --json ${flags}`
  const home = join(folder, 'home')
  const ended = bin
    ? await shop.run(argv, { env: { PROPOSER_HOME: home, ...env } })
    : await inProcess(home, argv, env, chain)
  if (ended.stdout === '') throw new Error(`no document: ${ended.stderr}`)
  const document = JSON.parse(ended.stdout)
  expect(document).toMatchObject({
    schema: 'proposer.serve-check/1',
    ok: document.faults.length === 0,
  })
  // Exit 2 and one error that names the first fault, or exit 0 and no error (contract §6).
  expect(ended.code).toBe(document.ok ? 0 : 2)
  for (const { check, detail, hint } of [...document.faults, ...document.warnings]) {
    const shape = {
      check: expect.stringMatching(/^[a-z0-9_]+$/),
      detail: expect.any(String),
      hint: expect.stringMatching(/.{8}/),
    }
    expect({ check, detail, hint }).toEqual(shape)
  }
  return { ...document, ...ended }
}

async function inProcess(
  home: string,
  argv: readonly string[],
  env: Record<string, string>,
  chain: Partial<Chain>,
): Promise<Omit<Ended, 'signal'>> {
  const { context, stdout, stderr } = fakeContext(home, { env })
  const closers: (() => Promise<void>)[] = []
  const closing = <T extends { close(): Promise<void> }>(edge: T): T => {
    closers.push(() => edge.close())
    return edge
  }
  const edges = {
    ...context.edges,
    chain: async (...args: Parameters<typeof createChain>) => ({
      ...closing(createChain(...args)),
      ...chain,
    }),
    fetch: async () => closing(createHttp()).fetch,
  }
  // `serve` ends its process at whatever nobody foresaw; this process is the tests'.
  const before = crashes.map((name) => events.listeners(name))
  try {
    const code = await main(argv, { ...context, edges })
    return { code, stdout: stdout.written.join(''), stderr: stderr.written.join('') }
  } finally {
    for (const [index, name] of crashes.entries()) {
      const added = events.listeners(name).filter((listener) => !before[index]?.includes(listener))
      for (const listener of added) events.removeListener(name, listener as () => void)
    }
    for (const close of closers) await close()
  }
}
const crashes = ['uncaughtException', 'unhandledRejection'] as const
const events: EventEmitter = process

const check = async (
  changes: Section = {},
  ...how: readonly [flags?: readonly string[], how?: Parameters<typeof checkFile>[2]]
) => checkFile(await text({ ...gateway, ...changes }), ...how)
const checkChain = (changes: Section) => check({ chain: { ...gateway.chain, ...changes } })

const names = (findings: readonly Finding[]) =>
  [...new Set(findings.map((finding) => finding.check))].sort()
const detailOf = (findings: readonly Finding[], name: string) =>
  findings.flatMap((finding) => (finding.check === name ? [finding.detail] : [])).join('\n')

async function send(
  from: Address,
  contract: string,
  to: Address,
  name: string,
  ...args: unknown[]
): Promise<void> {
  await sendAsDev(devRpc(dev.rpc_url), [
    { from, to, data: callData(placedAt(contract, to), name, args) },
  ])
}
async function setBalance(address: Address, wei: bigint): Promise<void> {
  await devRpc(dev.rpc_url).request('anvil_setBalance', [address, `0x${wei.toString(16)}`])
}
async function asContract(address: Address): Promise<void> {
  await devRpc(dev.rpc_url).request('anvil_impersonateAccount', [address])
  await setBalance(address, 10n ** 18n)
}

const { admin, proposers, signedProposer } = { admin: devAccount('admin').address, ...devAddresses }
const proposerOf = (accounts: readonly DevAccount[]) =>
  accounts.filter(({ role }) => role === 'proposer').map(({ address }) => address)

describe('serve --check', () => {
  test('contract §6: with nothing wrong it tells what was found right, exits 0, and makes no file', async () => {
    const before = [...(await readdir(folder)), `gateway-${written + 1}.json`].sort()
    const found = await check({}, undefined, { bin: true })
    expect(found).toMatchObject({ code: 0, ok: true, faults: [], warnings: [], told: [] })
    const looked = [
      'chain_id',
      'code',
      'permit2',
      'signed_proposer',
      'oracle',
      'requester',
      'token',
      'whitelist',
      'whitelist_owner',
      'implementation',
    ]
    const own = [
      'config',
      'questions',
      'executor_key',
      'node',
      'role',
      'balance',
      'allowlist',
      'store',
      'listen',
      'admin',
    ]
    expect(names(found.right)).toEqual([...looked, ...own].sort())
    expect(detailOf(found.right, 'balance')).toMatch(
      /holds 10,000 POL, which pays for about \d+ proposals at [\d.]+ gwei/,
    )
    expect((await readdir(folder)).sort()).toEqual(before)
  })

  test('contract §6: for people it is a line each, with the fix below a fault', async () => {
    const path = await text({ ...gateway, questions: './gone.json' })
    const { code, stdout, stderr } = await shop.run(argvOf`serve --config ${path} --check
      --port 0`)
    expect(code).toBe(2)
    expect(stdout).toMatch(/^ok {4}config: /)
    expect(stdout).toMatch(/\nFAIL {2}questions: .*gone\.json.*(\n {6}.*)*\n {6}fix: /)
    expect(stdout).toMatch(/\nok {4}code: all 5 checks passed/)
    expect(stdout.match(/ code: /g)).toHaveLength(1)
    expect(stderr).toContain('gone.json')
  })

  test('contract §6: all faults come in one run, each with its fix, and the first is the error on stderr', async () => {
    const faulty = {
      questions: './gone.json',
      store: './executor.key/store',
      executor: { key_file: './gone.key' },
    }
    const found = await check(
      { chain: { ...gateway.chain, tokens: [nowhere] }, ...faulty },
      undefined,
      { bin: true },
    )
    expect(names(found.faults)).toEqual(['code', 'executor_key', 'questions', 'store'])
    expect(names(found.right)).toContain('whitelist')
    const { error } = JSON.parse(found.stderr.trim().split('\n').at(-1) ?? '')
    expect(error).toMatchObject({
      code: 'check_failed',
      exit_code: 2,
      detail: expect.stringContaining('4 faults'),
      hint: found.faults[0]?.hint,
    })
  })
})

describe('serve --check on gateway.json', () => {
  test('domain §6: profile polygon tells what rests on one source, and the wrong chain beside it', async () => {
    const found = await check({
      chain: { profile: 'polygon', rpc_urls: [dev.rpc_url], signed_proposer: nowhere },
    })
    expect(detailOf(found.told, 'profile')).toContain('0x53703dd6129d723066b6362510e5ae2fecd48218')
    expect(detailOf(found.faults, 'chain_id')).toContain('is on chain 31337; chain.id is 137')
  })

  test('domain §6: a gateway of profile polygon warns of what rests on one source when it starts', async () => {
    const chain = { profile: 'polygon', rpc_urls: ['http://127.0.0.1:1'], signed_proposer: nowhere }
    const path = await text({ ...gateway, chain, store: './polygon-store' })
    const server = shop.start(argvOf`serve --config ${path} --port 0 --json`)
    await server.said(/"unconfirmed_pin".*0x53703dd6129d723066b6362510e5ae2fecd48218/)
    expect((await server.stop()).code).toBe(0)
  })

  test('contract §8: profile dev needs nothing but a node, and stands for the same contracts', async () => {
    const found = await check({ chain: { profile: 'dev', rpc_urls: [dev.rpc_url] } })
    expect(found).toMatchObject({ code: 0, faults: [] })
    expect(detailOf(found.right, 'config')).toContain('profile dev')
  })

  test('contract §7: an empty allowlist is a warning: nobody may propose', async () => {
    const found = await check({ admission: { allowlist: [] } })
    expect(found).toMatchObject({ code: 0, faults: [] })
    expect(names(found.warnings)).toEqual(['allowlist'])
  })
})

describe('serve --check on questions and slugs', () => {
  test.each([
    ['is not there', undefined],
    ['is no JSON', '['],
    ['has another form', '[{"question":"x"}]'],
    [
      'names a slug twice',
      JSON.stringify(
        [1, 2].map((n) => ({ question_id: `0x${String(n).repeat(64)}`, slug: 'same' })),
      ),
    ],
  ])('contract §7: a questions file that %s is a fault', async (_, content) => {
    const questions = content === undefined ? './gone.json' : `./${basename(await text(content))}`
    const found = await check({ questions })
    expect(names(found.faults)).toEqual(['questions'])
    expect(detailOf(found.faults, 'questions')).toContain(basename(questions))
  })

  test('contract §7: a question of a requester that is not listed is a warning', async () => {
    const questions = `./${basename(await text([{ question_id: `0x${'7'.repeat(64)}`, requester: nowhere }]))}`
    const found = await check({ questions })
    expect(found).toMatchObject({
      code: 0,
      warnings: [{ check: 'questions', detail: expect.stringContaining('7777') }],
    })
  })

  test('domain §5.4: slugs that cannot be looked up are a warning, because question ids go on', async () => {
    const found = await check({ slugs: { source: 'gamma', url: 'http://127.0.0.1:1' } })
    expect(found).toMatchObject({ code: 0, faults: [] })
    expect(names(found.warnings)).toEqual(['slugs'])
  })
})

describe('serve --check on the chain', () => {
  test('R16: a node that does not answer is a fault where it is the only one, else a warning; no URL is shown (R5)', async () => {
    const alone = await checkChain({ rpc_urls: ['http://127.0.0.1:1/canary'] })
    expect(names(alone.faults)).toEqual(['node'])
    const second = await checkChain({ rpc_urls: [dev.rpc_url, 'http://127.0.0.1:1/canary'] })
    expect(second).toMatchObject({ code: 0, faults: [] })
    expect(detailOf(second.warnings, 'node')).toContain('node 2 of 2')
    for (const { stdout, stderr } of [alone, second])
      expect(stdout + stderr).not.toContain('canary')
  })

  const { permit2, token, adapter } = devAddresses
  const requester = (address: string, kind = 'uma-ctf-adapter') => ({
    requesters: [{ address, kind }],
  })
  const bare = new RegExp(`^\\S.* ${nowhere}: has no code$`)
  test.each<[title: string, chain: Section, check: string, detail: RegExp, beside?: 'others']>([
    ['domain §2: a node on another chain', { id: 137 }, 'chain_id', /is on chain 31337; .* is 137/],
    ['domain §2: no code at Permit2', { permit2: nowhere }, 'code', bare, 'others'],
    ['domain §2: no code at SignedProposer', { signed_proposer: nowhere }, 'code', bare, 'others'],
    ['domain §2: no code at an oracle', { oracles: [nowhere] }, 'code', bare, 'others'],
    ['domain §2: no code at a requester', requester(nowhere), 'code', bare, 'others'],
    ['domain §2: no code at a token', { tokens: [nowhere] }, 'code', bare, 'others'],
    [
      'domain §2: a Permit2 that SignedProposer does not use',
      { permit2: token },
      'permit2',
      new RegExp(`${permit2}, pinned ${token}`),
    ],
    [
      'domain §2: a contract that is no SignedProposer',
      { signed_proposer: token },
      'signed_proposer',
      /PROPOSAL_TYPEHASH/,
      'others',
    ],
    [
      'domain §4: an oracle without a proposer whitelist, which is not the managed one,',
      { oracles: [token] },
      'oracle',
      new RegExp(token),
      'others',
    ],
    ['domain §5.1: an adapter that asks another oracle', requester(token), 'requester', /./],
    [
      'domain §5.2: a reporter that may ask at no listed oracle',
      requester(token, 'oo-reporter'),
      'requester',
      /on the requester whitelist of no pinned oracle/,
      'others',
    ],
    ['domain §4: a token without decimals', { tokens: [adapter] }, 'token', /./],
  ])('%s is a fault that names it', async (_title, chain, name, detail, beside) => {
    const { faults } = await checkChain(chain)
    expect(names(faults)).toEqual(beside ? expect.arrayContaining([name]) : [name])
    expect(detailOf(faults, name)).toMatch(detail)
  })

  test('domain §5.2: a reporter that a listed oracle lists is right', async () => {
    expect((await checkChain(requester(adapter, 'oo-reporter'))).faults).toEqual([])
  })
})

describe('serve --check on whitelists', () => {
  test('contract §5, domain §4: SignedProposer missing on the default whitelist is a fault that names list and address', async () => {
    await asContract(signedProposer)
    await send(signedProposer, 'AddressWhitelist', proposers, 'removeFromWhitelist', signedProposer)
    const found = await check()
    await send(signedProposer, 'AddressWhitelist', proposers, 'addToWhitelist', signedProposer)
    expect(found.faults).toEqual([
      {
        check: 'whitelist',
        detail: expect.stringContaining(proposers),
        hint: expect.stringContaining(`add ${signedProposer}`),
      },
    ])
  })

  test('contract §6: one that answers nothing is a fault that names it, not the node', async () => {
    const { call } = createChain([dev.rpc_url])
    const found = await check({}, undefined, {
      chain: {
        call: (one, at) =>
          one.to === proposers
            ? Promise.reject(new ChainError('reverted', 'execution reverted'))
            : call(one, at),
      },
    })
    expect(found.faults).toEqual([
      {
        check: 'whitelist',
        detail: expect.stringMatching(`${proposers} .* does not respond like a whitelist`),
        hint: expect.stringContaining('chain.oracles'),
      },
    ])
  })

  test('domain §4: a whitelist that SignedProposer does not own is a fault while it lists nobody of the allowlist, else a warning', async () => {
    const [first = nowhere as Address, ...others] = proposerOf(dev.accounts)
    await asContract(signedProposer)
    await send(signedProposer, 'AddressWhitelist', proposers, 'transferOwnership', admin)
    const nobody = await check()
    await send(admin, 'AddressWhitelist', proposers, 'addToWhitelist', first)
    const some = await check()
    const listed = await check({ admission: { allowlist: [first] } })
    await send(admin, 'AddressWhitelist', proposers, 'removeFromWhitelist', first)
    await send(admin, 'AddressWhitelist', proposers, 'transferOwnership', signedProposer)

    expect(names(nobody.faults)).toEqual(['whitelist_owner'])
    expect(detailOf(nobody.faults, 'whitelist_owner')).toContain(`belongs to ${admin}`)
    expect(some).toMatchObject({ code: 0, faults: [] })
    expect(names(some.warnings)).toEqual(['whitelist_owner'])
    expect(
      others.filter((other) => !detailOf(some.warnings, 'whitelist_owner').includes(other)),
    ).toEqual([])
    expect(detailOf(some.warnings, 'whitelist_owner')).not.toContain(first)
    expect(listed).toMatchObject({ code: 0, faults: [], warnings: [] })
  })
})

describe('serve --check on the executor', () => {
  test('domain §2: an executor without DELEGATED_PROPOSER_ROLE is a fault that says how it is granted', async () => {
    await send(admin, 'SignedProposer', signedProposer, 'removeDelegatedProposer', executor.address)
    const found = await check()
    const granted = await shop.run(argvOf`devchain grant ${executor.address} --rpc-url
      ${dev.rpc_url} --json`)
    expect(granted.code).toBe(0)
    expect(found.faults).toEqual([
      {
        check: 'role',
        detail: expect.stringContaining(executor.address),
        hint: expect.stringContaining('addDelegatedProposer'),
      },
    ])
    expect((await check()).faults).toEqual([])
  })

  test.each([
    [0n, 'faults', /holds 0 POL, which pays for about 0 proposals at [\d.]+ gwei, not enough/],
    [
      10n ** 13n,
      'faults',
      /holds 0\.00001 POL, which pays for about 0 proposals at [\d.]+ gwei, not enough to send one/,
    ],
    [
      2n * 10n ** 16n,
      'warnings',
      /holds 0\.02 POL, which pays for about [1-9]\d? proposals at [\d.]+ gwei/,
    ],
  ] as const)(
    'domain §8: an executor with %d wei is told among the %s, with how many proposals that pays for',
    async (wei, kind, detail) => {
      await setBalance(executor.address, wei)
      const found = await check()
      await setBalance(executor.address, 10_000n * 10n ** 18n)
      expect(names(found.faults)).toEqual(kind === 'faults' ? ['balance'] : [])
      expect(detailOf(found[kind], 'balance')).toMatch(detail)
    },
  )

  test('contract §6: a balance that the node refuses to tell leaves what was found of the contracts', async () => {
    const balance = () => Promise.reject(new ChainError('refused', 'method not allowed'))
    const found = await check({}, undefined, { chain: { balance } })
    expect(found.faults).toMatchObject([
      { check: 'executor', detail: expect.stringContaining('method not allowed') },
    ])
    expect(names(found.right)).toEqual(expect.arrayContaining(['whitelist', 'token']))
  })

  test('contract §7: a max_fee_gwei below the price of gas is a warning', async () => {
    const found = await check({ executor: { key_file: './executor.key', max_fee_gwei: 0.000001 } })
    expect(found).toMatchObject({ code: 0, faults: [] })
    expect(names(found.warnings)).toEqual(['fee_ceiling'])
  })

  test('R5: a key file that others may read is a fault with its chmod', async () => {
    const path = join(folder, 'open.key')
    await writeFile(path, `${executor.private_key}\n`)
    await chmod(path, 0o644)
    const found = await check({ executor: { key_file: './open.key' } })
    expect(found.faults).toEqual([
      {
        check: 'executor_key',
        detail: expect.stringContaining('mode 644'),
        hint: `chmod 600 ${path}`,
      },
    ])
  })

  test.each([
    ['a key file that is not there', { key_file: './gone.key' }, 'gone.key'],
    ['a key file that holds no key', { key_file: './gateway.json' }, 'does not hold a private key'],
    ['no key at all', {}, 'has no key'],
    ['an unknown account', { account: 'nobody' }, 'nobody'],
  ])('contract §7: %s is a fault', async (_, section, detail) => {
    const found = await check({ executor: section })
    expect(names(found.faults)).toEqual(['executor_key'])
    expect(detailOf(found.faults, 'executor_key')).toContain(detail)
  })

  test('contract §7: PROPOSER_EXECUTOR_KEY_FILE goes before gateway.json', async () => {
    const found = await check({ executor: {} }, undefined, {
      env: { PROPOSER_EXECUTOR_KEY_FILE: join(folder, 'executor.key') },
    })
    expect(found).toMatchObject({ code: 0, faults: [] })
  })

  test('contract §7: a keystore is told as untried without its password, opens with it, and is a fault with another', async () => {
    const secret = async (name: string, password: string) => {
      await writeFile(join(folder, name), password, { mode: 0o600 })
      return join(folder, name)
    }
    const [good, bad] = [
      await secret('good.password', 'opens it\n'),
      await secret('bad.password', 'does not\n'),
    ]
    const env = { PROPOSER_HOME: join(folder, 'home') }
    await mkdir(env.PROPOSER_HOME, { recursive: true, mode: 0o700 })
    const made = await shop.run(
      argvOf`account import ops --key-file ${join(folder, 'executor.key')} --password-file
        ${good}`,
      { env },
    )
    expect(made.code).toBe(0)
    const executorSection = { executor: { account: 'ops' } }
    const flags = (file: string) => argvOf`--port 0 --executor-password-file ${file}`
    const untried = await check(executorSection)
    expect(untried).toMatchObject({ code: 0, faults: [] })
    expect(names(untried.warnings)).toEqual(['executor_key'])
    expect(await check(executorSection, flags(good))).toMatchObject({
      code: 0,
      faults: [],
      warnings: [],
    })
    expect(names((await check(executorSection, flags(bad))).faults)).toEqual(['executor_key'])
  })

  describe('contract §9: a remote signer', () => {
    const secret = '/v1/SIGNERPATH17?key=SIGNERQUERY17'
    const checked = async (wallet: Wallet, isGone = false) => {
      const server = await startWallet(wallet)
      if (isGone) await server.close()
      try {
        const signer = { url: `${server.url}${secret}`, address: executor.address }
        const found = await check({ executor: { signer } })
        expect(found.stdout + found.stderr).not.toMatch(/SIGNERPATH17|SIGNERQUERY17/)
        expect(server.asked.map(({ method }) => method)).not.toContain('eth_signTransaction')
        return found
      } finally {
        if (!isGone) await server.close()
      }
    }

    test('that lists the executor is right, and its account is looked at', async () => {
      const found = await checked(honestSigner(executor.private_key))
      expect(found).toMatchObject({ code: 0, faults: [], warnings: [] })
      expect(detailOf(found.right, 'executor_key')).toBe(
        `the remote signer answers and lists the executor ${executor.address}`,
      )
      expect(names(found.right)).toContain('balance')
    })

    test('that lists other accounts is a fault', async () => {
      const found = await checked(honestSigner(`0x${'02'.repeat(32)}`))
      expect(names(found.faults)).toEqual(['executor_key'])
      expect(detailOf(found.faults, 'executor_key')).toContain(
        `lists 1 account, not the executor ${executor.address}`,
      )
    })

    test('that knows no such question is told, and one that refuses it is a warning', async () => {
      const mute = await checked(async () => undefined)
      expect(mute).toMatchObject({ code: 0, faults: [], warnings: [] })
      expect(detailOf(mute.told, 'executor_key')).toContain('lists no accounts')
      const message = `Request denied at ${secret}`
      const strict = await checked(async () => ({ error: { code: 1, message } }))
      expect(strict).toMatchObject({ code: 0, faults: [] })
      expect(detailOf(strict.warnings, 'executor_key')).toContain('Request denied')
    })

    test('that is not there, or is something else, is a fault with its reason', async () => {
      const gone = await checked(async () => undefined, true)
      expect(names(gone.faults)).toEqual(['executor_key'])
      expect(detailOf(gone.faults, 'executor_key')).toContain('cannot be reached')
      const page = await checked(async () => ({ raw: `<a href="${secret}">`, status: 404 }))
      expect(detailOf(page.faults, 'executor_key')).toContain('not JSON-RPC (HTTP 404)')
    })
  })

  test('contract §2: an executor that is switched off is told, and needs no key', async () => {
    const found = await check({ executor: { enabled: false } })
    expect(found).toMatchObject({ code: 0, faults: [] })
    expect(names(found.told)).toEqual(['executor_key'])
  })
})

describe('serve --check on the store', () => {
  test('contract §6: a store below a file cannot be made, and nothing is', async () => {
    const found = await check({ store: './executor.key/store' })
    expect(names(found.faults)).toEqual(['store'])
    expect(detailOf(found.faults, 'store')).toContain('ENOTDIR')
    expect((await check({ store: './executor.key' })).faults).toMatchObject([
      { check: 'store', detail: expect.stringContaining('ENOTDIR') },
    ])
  })

  test('robustness §2: a folder of another kind, and a damaged store, are faults', async () => {
    const journal = join(folder, 'other-kind')
    await mkdir(journal)
    await writeFile(join(journal, 'FORMAT'), '{"kind":"journal","format":1,"minReader":1}\n')
    expect(detailOf((await check({ store: './other-kind' })).faults, 'store')).toContain(
      'is a journal',
    )
    await writeFile(join(journal, 'FORMAT'), '{"kind":"store","format":1,"minReader":1}\n')
    await writeFile(join(journal, 'MANIFEST'), 'nonsense\n')
    expect(detailOf((await check({ store: './other-kind' })).faults, 'store')).toContain('MANIFEST')
    await rm(join(journal, 'MANIFEST'))
    expect(
      (await check({ store: './other-kind' })).faults.filter((one) => one.check === 'store'),
    ).toEqual([])
    await writeFile(join(journal, 'log-000000000001.jsonl'), 'something\n')
    expect(detailOf((await check({ store: './other-kind' })).faults, 'store')).toContain(
      'it is missing, but log-000000000001.jsonl is there',
    )
  })

  test('contract §6, §7: a running gateway on the store is told, not a fault, with its ports; on another chain the store is a fault', async () => {
    const path = await text({ ...gateway, store: './kept' })
    const server = shop.start(argvOf`serve --config ${path} --port 0 --json`)
    const ready = await server.line<ServeReady>()
    const ports = [ready.url, ready.admin_url].map((url) => new URL(url).port)
    const running = await checkFile(path, [
      '--set',
      `listen.port=${ports[0]}`,
      '--set',
      `admin.port=${ports[1]}`,
    ])
    expect(running).toMatchObject({ code: 0, faults: [] })
    expect(names(running.told)).toEqual(['admin', 'listen', 'store_holder'])
    expect(detailOf(running.told, 'store_holder')).toContain(`process ${ready.pid}`)
    expect(names(running.right)).toEqual(expect.arrayContaining(['store', 'store_chain']))
    expect((await server.stop()).code).toBe(0)

    const other = shop.start(argvOf`devchain --port 0 --questions 0 --json`)
    const { dev: elsewhere } = await other.line<ServeReady>()
    const kept = await checkFile(
      await text({
        ...gateway,
        store: './kept',
        chain: { ...gateway.chain, rpc_urls: [elsewhere.rpc_url] },
      }),
    )
    const gone = await checkFile(path)
    await other.stop()
    expect(names(kept.faults)).toEqual(['store_chain'])
    expect(detailOf(kept.faults, 'store_chain')).toMatch(
      /genesis 0x[0-9a-f]{64}.*genesis 0x[0-9a-f]{64}/,
    )
    expect(gone).toMatchObject({ code: 0, faults: [], told: [] })
  })

  test('R5: a store that others may look into is a warning', async () => {
    await mkdir(join(folder, 'open-store'))
    await chmod(join(folder, 'open-store'), 0o755)
    const found = await check({ store: './open-store' })
    expect(found).toMatchObject({
      code: 0,
      faults: [],
      warnings: [{ check: 'store', hint: `chmod 700 ${join(folder, 'open-store')}` }],
    })
  })
})

describe('serve --check on ports', () => {
  test.each(['listen', 'admin'])(
    'contract §6: a %s port in use is a fault that names it',
    async (key) => {
      const server = createServer()
      const port = await new Promise<number>((resolve, reject) => {
        server.once('error', reject)
        server.listen(0, '127.0.0.1', () => {
          const address = server.address()
          if (address === null || typeof address === 'string') reject(new Error('no port'))
          else resolve(address.port)
        })
      })
      const other = key === 'listen' ? 'admin' : 'listen'
      const found = await check({}, ['--set', `${key}.port=${port}`, '--set', `${other}.port=0`])
      await new Promise((resolve) => server.close(resolve))
      expect(names(found.faults)).toEqual([key])
      expect(detailOf(found.faults, key)).toContain(`127.0.0.1:${port}`)
    },
  )

  test('contract §7: one port for both listeners, and an address that is not of this machine, are faults', async () => {
    expect(
      names((await check({}, argvOf`--set listen.port=1999 --set admin.port=1999`)).faults),
    ).toEqual(['admin'])
    const found = await check({}, argvOf`--port 0 --host 192.0.2.1`)
    expect(found.faults).toEqual([
      {
        check: 'listen',
        detail: expect.stringContaining('EADDRNOTAVAIL'),
        hint: expect.any(String),
      },
    ])
  })
})

describe('trust verify', () => {
  test('domain §6: the built-in profile dev holds on a dev chain without a trust file, with what its getters give', async () => {
    const env = { PROPOSER_HOME: join(folder, 'fresh') }
    const { code, stdout } = await shop.run(
      argvOf`trust verify --profile dev --rpc-url ${dev.rpc_url} --json`,
      { env },
    )
    const document = JSON.parse(stdout) as {
      checks: { check: string; name: string; ok: boolean; detail: string }[]
    }
    expect({ code, ...document }).toMatchObject({ code: 0, path: null, ok: true })
    const details: Record<string, Hex | string> = {
      'permit2()': devAddresses.permit2,
      [`oracle ${devAddresses.oracle} defaultProposerWhitelist()`]: proposers,
      [`requester (uma-ctf-adapter) ${devAddresses.adapter} optimisticOracle()`]:
        devAddresses.oracle,
      [`token ${devAddresses.token} decimals()`]: '6 decimals, USDC.e',
    }
    for (const [name, detail] of Object.entries(details)) {
      expect(
        document.checks.filter((one) => one.name === name).map((one) => one.detail),
        name,
      ).toEqual([detail])
    }
  })
})
