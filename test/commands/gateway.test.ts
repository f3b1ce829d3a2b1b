import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Abi, decodeFunctionData, encodeFunctionResult, getAddress, keccak256 } from 'viem'
import {
  ctfAdapterAbi,
  erc20Abi,
  oracleAbi,
  permit2Abi,
  roles,
  signedProposerAbi,
  typeHashes,
  whitelistAbi,
  witnessTypeString,
} from '#chain/contracts'
import { type Chain, ChainError, type Hex } from '#ports'
import { domainSeparator, toHex } from '#protocol/witness'
import { type Argv, eachHome, errorOf, lastErrorOf, run, writeTrust } from '#support/cli'
import { pins, type ScriptedGateway, scriptedGateway } from '#support/scripted-gateway'

const home = eachHome()
let gateway: ScriptedGateway
let env: Record<string, string>
beforeEach(() => {
  gateway = scriptedGateway()
  writeTrust(home.path, pins)
  env = { PROPOSER_GATEWAY: gateway.url }
})

const ask = (argv: Argv, more: { columns?: number } = {}) =>
  run(home.path, argv, { env, fetch: gateway.fetch, ...more })
const wallet = `0x${'ab'.repeat(20)}` as const

test('spec §2.3: the wire answer with its schema first, exit 0; a checksummed address is asked for in lowercase', async () => {
  const ran = await ask(['eligibility', getAddress(wallet), '--json'])
  expect(ran.code).toBe(0)
  const answer = JSON.parse(ran.stdout)
  expect(Object.keys(answer)).toEqual(['schema', 'version', 'address', 'eligible'])
  expect(answer).toMatchObject({
    schema: 'proposer.eligibility/1',
    address: wallet,
    eligible: true,
  })
  expect(gateway.calls).toEqual([`GET /v1/proposals/eligibility/${wallet}`])
  expect(ran.stderr).toBe('')
})

test('contract §6: false still prints the answer, and exits 4 with a hint', async () => {
  gateway.ineligible.add(wallet)
  const ran = await ask(`eligibility ${wallet} --json`)
  expect(ran.code).toBe(4)
  expect(JSON.parse(ran.stdout)).toMatchObject({ eligible: false })
  expect(errorOf(ran)).toMatchObject({ code: 'proposer_not_eligible', exit_code: 4 })
  const shown = await ask(`eligibility ${wallet}`)
  expect(shown.stdout).toBe(`${wallet} may not propose\n`)
  expect(shown.stderr).toContain('\nhint: ask the operator')
})

test.each([
  [['eligibility', '0x12'], {}, 'invalid_address'],
  [['eligibility', wallet], { PROPOSER_GATEWAY: '' }, 'no_gateway'],
  [['eligibility', wallet], { PROPOSER_LOCAL: 'gateway.json' }, 'two_gateways'],
  [['eligibility', wallet], { PROPOSER_GATEWAY: 'http://gateway.example' }, 'invalid_base_url'],
  [['eligibility'], {}, 'no_account'],
])('contract §6: %j with %j exits 2 with %s and asks nobody', async (argv, more, code) => {
  env = { ...env, ...(more as Record<string, string>) }
  const ran = await ask([...argv, '--json'])
  expect(ran.code).toBe(2)
  expect(errorOf(ran)).toMatchObject({ code })
  expect(gateway.calls).toEqual([])
})

test('contract §6: signing_data objects with their source, errors in their places, exit by the gravest', async () => {
  const id = gateway.question.question_id
  const good = await ask(`context ${id} --json`)
  expect(good.code).toBe(0)
  expect(JSON.parse(good.stdout)).toMatchObject({
    schema: 'proposer.context/1',
    questions: [{ ...gateway.question, source: 'gateway' }],
  })
  const mixed = await ask(`context not-there ${id} --json`)
  expect(mixed.code).toBe(3)
  expect(JSON.parse(mixed.stdout).questions).toMatchObject([
    { identifier: 'not-there', error: { code: 'question_not_found' } },
    { question_id: id, source: 'gateway' },
  ])
  expect(errorOf(mixed)).toMatchObject({ code: 'question_not_found', exit_code: 3 })
})

test('contract §6: --ndjson is one line per question and a summary last', async () => {
  const { stdout } = await ask(`context not-there ${gateway.question.question_id} --ndjson`)
  const lines = stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
  expect(lines).toHaveLength(3)
  expect(lines[2]).toEqual({ schema: 'proposer.context/1', summary: { questions: 1, errors: 1 } })
})

test('R9: a context that differs from the pins exits 2, names the field and shows nothing of it', async () => {
  gateway = scriptedGateway({
    ...gateway.question,
    contracts: { ...gateway.question.contracts, signed_proposer: `0x${'6'.repeat(40)}` },
  })
  const ran = await ask(`context ${gateway.question.question_id} --json`)
  expect(ran.code).toBe(2)
  expect(errorOf(ran)).toMatchObject({ code: 'untrusted_signed_proposer' })
  expect(JSON.parse(ran.stdout).questions).toMatchObject([
    { error: { code: 'untrusted_signed_proposer' } },
  ])
})

test('contract §7: without pins it exits 2 and says how to make them', async () => {
  await ask('config set --profile other account hot')
  const ran = await ask('context x --profile other --json')
  expect(ran.code).toBe(2)
  expect(errorOf(ran)).toMatchObject({
    code: 'no_trust',
    hint: expect.stringContaining('proposer trust init'),
  })
  env.PROPOSER_TRUST = 'gone'
  const named = await ask('context x --json')
  expect(errorOf(named).hint).toMatch(/^unset PROPOSER_TRUST, or make it .*--trust <file>$/)
})

test.each([40, 80])(
  'contract §6: people see it at %i columns with whole hashes',
  async (columns) => {
    const { stdout } = await ask(`context ${gateway.question.question_id}`, { columns })
    expect(stdout).toContain(gateway.question.question_id)
    const long = stdout.split('\n').filter((line) => line.length > columns)
    // Only what cannot be broken is longer than the terminal.
    for (const line of long) expect(line.trim()).toMatch(/^\S+$/)
  },
)

describe('trust', () => {
  const path = () => join(home.path, 'trust', 'default.json')
  const other = { ...pins, signed_proposer: `0x${'9'.repeat(40)}` }

  test('contract §7: show prints the pins and their file', async () => {
    const { stdout, code } = await ask('trust show --json')
    expect(code).toBe(0)
    expect(JSON.parse(stdout)).toEqual({ schema: 'proposer.trust/1', path: path(), ...pins })
  })

  test.each([
    ['a trust.json', JSON.stringify(other)],
    [
      'a dev object',
      JSON.stringify({ rpc_url: 'http://127.0.0.1:1', chain_id: 31337, trust: other }),
    ],
    [
      'a ready line',
      JSON.stringify({ event: 'ready', url: 'http://127.0.0.1:1', dev: { trust: other } }),
    ],
    [
      'a ready line among others',
      `starting\n${JSON.stringify({ event: 'ready', dev: { trust: other } })}\n`,
    ],
  ])('contract §6: init --from takes %s', async (_name, content) => {
    writeFileSync(join(home.path, 'from'), content)
    const ran = await ask('trust init --from from --profile fresh --json')
    expect(ran.code).toBe(0)
    expect(JSON.parse(readFileSync(join(home.path, 'trust', 'fresh.json'), 'utf8'))).toEqual(other)
  })

  test('contract §6: init never replaces other pins without --yes where nobody can be asked', async () => {
    writeFileSync(join(home.path, 'from'), JSON.stringify(other))
    const refused = await ask('trust init --from from --json')
    expect(refused.code).toBe(2)
    expect(refused.stderr).toContain('--yes')
    expect(JSON.parse(readFileSync(path(), 'utf8'))).toEqual(pins)
    expect((await ask('trust init --from from --json --yes')).code).toBe(0)
    expect(JSON.parse(readFileSync(path(), 'utf8'))).toEqual(other)
  })

  test('contract §6: init from the gateway pins only what a person agreed to', async () => {
    const argv = ['trust', 'init', 'will-it-hold', '--profile', 'fresh']
    const file = join(home.path, 'trust', 'fresh.json')
    const options = { env, fetch: gateway.fetch }
    expect((await run(home.path, argv, options)).code).toBe(2)
    expect((await run(home.path, argv, { ...options, interactive: true, stdin: 'n\n' })).code).toBe(
      2,
    )
    expect(() => readFileSync(file)).toThrow('ENOENT')
    const agreed = await run(home.path, argv, { ...options, interactive: true, stdin: 'y\n' })
    expect(agreed.code).toBe(0)
    expect(agreed.stderr).toContain(pins.signed_proposer)
    expect(JSON.parse(readFileSync(file, 'utf8'))).toEqual({
      ...pins,
      slugs: { 'will-it-hold': gateway.question.question_id },
    })
  })

  test('contract §7: init for a second question adds what is new, drops nothing, and shows what it adds', async () => {
    const requester = `0x${'7'.repeat(40)}` as const
    const { question } = gateway
    gateway = scriptedGateway(
      { ...question, request: { ...question.request, requester } },
      'will-it-last',
    )
    const argv = ['trust', 'init', 'will-it-last']
    const refused = await ask(argv)
    expect([refused.code, refused.stderr]).toEqual([
      2,
      expect.stringContaining(`adds requester ${requester}`),
    ])
    const { code, stdout } = await ask([...argv, '--yes', '--json'])
    expect(code).toBe(0)
    expect(JSON.parse(stdout)).toMatchObject({
      changed: [],
      added: [`requester ${requester}`, 'slug will-it-last'],
    })
    const merged = JSON.parse(readFileSync(path(), 'utf8'))
    const requesters = [...pins.requesters, { address: requester, kind: 'uma-ctf-adapter' }]
    expect(merged).toEqual({
      ...pins,
      requesters,
      slugs: { ...pins.slugs, 'will-it-last': question.question_id },
    })
    // Once more: nothing is new, and nobody is asked.
    expect((await ask([...argv, '--json'])).code).toBe(0)
  })

  test('contract §7, §9: a pin that would change is shown with both values and wants a word', async () => {
    writeFileSync(
      join(home.path, 'from'),
      JSON.stringify({ ...other, requesters: [{ ...pins.requesters[0], kind: 'oo-reporter' }] }),
    )
    const { code, stderr } = await ask('trust init --from from')
    expect(code).toBe(2)
    expect(stderr.replaceAll(/\s+/g, ' ')).toContain(
      `changes signed_proposer: ${pins.signed_proposer} becomes ${other.signed_proposer}`,
    )
    expect(stderr).toMatch(/: uma-ctf-adapter\s+becomes\s+oo-reporter/)
    expect(JSON.parse(readFileSync(path(), 'utf8'))).toEqual(pins)
  })

  test('contract §9: pin adds a requester with its kind, an oracle and a token', async () => {
    const [requester, oracle, token] = ['4', '5', '6'].map((digit) => `0x${digit.repeat(40)}`)
    const argv = [
      'trust',
      'pin',
      '--requester',
      `${requester}`,
      '--kind',
      'oo-reporter',
      '--oracle',
      `${oracle}`,
      '--token',
      `${token}`,
    ]
    const unasked = await ask([...argv, '--json'])
    expect(lastErrorOf(unasked)).toMatchObject({
      code: 'confirmation_needed',
      exit_code: 2,
    })
    expect((await ask([...argv, '--yes', '--json'])).code).toBe(0)
    expect(JSON.parse(readFileSync(path(), 'utf8'))).toEqual({
      ...pins,
      requesters: [...pins.requesters, { address: requester, kind: 'oo-reporter' }],
      oracles: [...pins.oracles, oracle],
      tokens: [...pins.tokens, token],
    })
  })

  test('domain §5.1: init from the gateway wants the kind where the question id is no hash of the text', async () => {
    gateway = scriptedGateway({ ...gateway.question, question_id: `0x${'1'.repeat(64)}` })
    const argv = [
      'trust',
      'init',
      gateway.question.question_id,
      '--profile',
      'fresh',
      '--yes',
      '--json',
    ]
    expect(errorOf(await ask(argv))).toMatchObject({ code: 'kind_needed', exit_code: 2 })
    expect((await ask([...argv, '--kind', 'oo-reporter'])).code).toBe(0)
  })

  test.each([
    [['trust', 'init'], 'trust_source'],
    [['trust', 'init', 'x', '--from', 'y'], 'trust_source'],
    [['trust', 'init', '--from', 'not-there'], 'input_unreadable'],
    [['trust', 'pin'], 'trust_source'],
    [['trust', 'pin', '--requester', `0x${'4'.repeat(40)}`], 'kind_needed'],
    [['trust', 'pin', '--token', '0x4'], 'invalid_trust'],
    [['trust', 'verify'], 'no_rpc_url'],
    [['trust', 'verify', '--rpc-url', 'nonsense'], 'invalid_rpc_url'],
    [['trust', 'verify', '--rpc-url', 'ws://127.0.0.1:1'], 'invalid_rpc_url'],
    [['trust', 'show', '--trust', 'not-there'], 'no_trust'],
  ])('contract §6: %j exits 2 with %s', async (argv, code) => {
    const ran = await ask([...argv, '--json'])
    expect(ran.code).toBe(2)
    expect(errorOf(ran)).toMatchObject({ code })
  })
})

describe('trust verify', () => {
  const verify = (chain: Chain) =>
    run(home.path, 'trust verify --json --rpc-url http://127.0.0.1:1', { env, chain })
  const checksOf = (stdout: string) =>
    Object.fromEntries(
      (JSON.parse(stdout).checks as { name: string; ok: boolean }[]).map(({ name, ok }) => [
        name.replace(/ 0x[0-9a-f]{40}/, ''),
        ok,
      ]),
    )

  test('domain §2: chain id, code, type hash, witness string and permit2() as pinned exit 0', async () => {
    const ran = await verify(pinnedChain())
    expect(ran.code).toBe(0)
    expect(JSON.parse(ran.stdout)).toMatchObject({ schema: 'proposer.trust-verified/1', ok: true })
    expect(Object.keys(checksOf(ran.stdout))).toEqual([
      'chain id',
      'permit2',
      'permit2 DOMAIN_SEPARATOR',
      'signed proposer',
      'PROPOSAL_TYPEHASH',
      'WITNESS_TYPE_STRING',
      'DELEGATED_PROPOSER_ROLE',
      'permit2()',
      'oracle',
      'oracle defaultProposerWhitelist()',
      'oracle version',
      'oracle implementation',
      'requester (uma-ctf-adapter)',
      'requester (uma-ctf-adapter) optimisticOracle()',
      'token',
      'token decimals()',
      'token implementation',
    ])
  })

  test('domain §10: it says which version an oracle is', async () => {
    const detail = async (chain: Chain) =>
      JSON.parse((await verify(chain)).stdout).checks.find(
        ({ name }: { name: string }) => name === `oracle ${pins.oracles[0]} version`,
      ).detail
    const { call } = pinnedChain()
    const newer: Chain['call'] = async (asked) =>
      asked.data.startsWith('0xf9a8f368') ? `0x${'0'.repeat(64)}` : call(asked)
    expect(await detail(pinnedChain())).toBe('managed oracle, version 2')
    expect(await detail({ ...pinnedChain(), call: newer })).toBe('managed oracle, version 3')
  })

  describe('contract §9: what code oracles and tokens run', () => {
    const [oracle = ''] = pins.oracles
    const [token = ''] = pins.tokens
    const proxyOf = (digit: string) => ({
      ...pinnedChain(),
      storage: async (address: string) =>
        `0x${(address === oracle ? digit.repeat(40) : '0').padStart(64, '0')}` as Hex,
    })
    const pinned = () =>
      JSON.parse(readFileSync(join(home.path, 'trust', 'default.json'), 'utf8')).implementations
    const repin = (chain: Chain, ...flags: string[]) =>
      run(home.path, ['trust', 'verify', '--repin', '--rpc-url', 'http://127.0.0.1:1', ...flags], {
        env,
        chain,
      })
    const code_hash = keccak256('0x60')
    const running = (digit: string) => ({
      [oracle]: { implementation: `0x${digit.repeat(40)}`, code_hash },
      [token]: { implementation: token, code_hash },
    })

    test('an older file has them pinned by --repin, which asks', async () => {
      const asked = await repin(proxyOf('d'), '--json')
      expect([asked.code, lastErrorOf(asked).code]).toEqual([2, 'confirmation_needed'])
      const dry = await repin(proxyOf('d'), '--dry-run', '--json')
      expect(JSON.parse(dry.stdout).implementations).toEqual(running('d'))
      expect(pinned()).toBeUndefined()
      expect((await repin(proxyOf('d'), '--yes')).code).toBe(0)
      expect(pinned()).toEqual(running('d'))
      const shown = await run(home.path, 'trust show', { env })
      expect(shown.stdout.replace(/\s+/g, ' ')).toContain(`${oracle} runs 0x${'d'.repeat(40)}`)
    })

    test('an upgrade fails the check by name; --repin shows old and new, and pins the new', async () => {
      expect((await repin(proxyOf('d'), '--yes')).code).toBe(0)
      expect((await verify(proxyOf('d'))).code).toBe(0)
      const ran = await verify(proxyOf('e'))
      expect(ran.code).toBe(2)
      expect(checksOf(ran.stdout)['oracle implementation']).toBe(false)
      expect(errorOf(ran)).toMatchObject({
        code: 'implementation_changed',
        detail: `the contract ${oracle} runs 0x${'e'.repeat(40)} now, pinned is 0x${'d'.repeat(40)}`,
        hint: expect.stringContaining('`proposer trust verify --repin`'),
      })
      const done = await repin(proxyOf('e'), '--yes', '--json')
      expect(JSON.parse(done.stdout).changed).toEqual([
        `implementation of ${oracle}: 0x${'d'.repeat(40)} with code hash ${code_hash} becomes 0x${'e'.repeat(40)} with code hash ${code_hash}`,
      ])
      expect(pinned()).toEqual(running('e'))
      expect((await verify(proxyOf('e'))).code).toBe(0)
      const again = await repin(proxyOf('e'))
      expect([again.code, again.stdout.includes('already pinned')]).toEqual([0, true])
    })

    test('a contract that is not what it should be is not pinned again', async () => {
      const ran = await repin(
        { ...proxyOf('e'), ...answering({ decimals: 'revert' }) },
        '--yes',
        '--json',
      )
      expect([ran.code, errorOf(ran).code]).toEqual([2, 'trust_not_verified'])
      expect(pinned()).toBeUndefined()
    })

    test('trust init with a node pins them; one that is away leaves the rest as it is, and says so', async () => {
      writeFileSync(join(home.path, 'from.json'), JSON.stringify(pins))
      const init = (chain: Chain, file: string) =>
        run(
          home.path,
          [
            'trust',
            'init',
            '--from',
            'from.json',
            '--trust',
            file,
            '--rpc-url',
            'http://127.0.0.1:1',
          ],
          { env, chain },
        )
      const written = (file: string) => JSON.parse(readFileSync(join(home.path, file), 'utf8'))
      expect((await init(proxyOf('d'), 'new.json')).code).toBe(0)
      expect(written('new.json').implementations).toEqual(running('d'))
      const away = async () => {
        throw new ChainError('unavailable', 'the node does not answer')
      }
      const ran = await init({ ...proxyOf('d'), block: away }, 'other.json')
      expect([ran.code, ran.stderr.replace(/\s+/g, ' ')]).toEqual([
        0,
        expect.stringContaining('`proposer trust verify --repin` pins it'),
      ])
      expect(written('other.json').implementations).toBeUndefined()
    })
  })

  test.each([
    ['chain id', { chainId: async () => 1 }],
    ['oracle', { code: async (address: string) => (address === pins.oracles[0] ? '0x' : '0x60') }],
    ['PROPOSAL_TYPEHASH', answering({ PROPOSAL_TYPEHASH: `0x${'0'.repeat(64)}` })],
    ['permit2()', answering({ permit2: `0x${'1'.repeat(40)}` })],
    ['permit2()', answering({ permit2: 'revert' })],
    ['DELEGATED_PROPOSER_ROLE', answering({ DELEGATED_PROPOSER_ROLE: `0x${'0'.repeat(64)}` })],
    ['permit2 DOMAIN_SEPARATOR', answering({ DOMAIN_SEPARATOR: `0x${'0'.repeat(64)}` })],
    ['oracle defaultProposerWhitelist()', answering({ defaultProposerWhitelist: 'revert' })],
    [
      'requester (uma-ctf-adapter) optimisticOracle()',
      answering({ optimisticOracle: `0x${'1'.repeat(40)}` }),
    ],
    ['token decimals()', answering({ decimals: 'revert' })],
  ] as [string, Partial<Chain>][])(
    'contract §6: a difference in %s exits 2 and names it',
    async (name, change) => {
      const ran = await verify({ ...pinnedChain(), ...change })
      expect(ran.code).toBe(2)
      expect(checksOf(ran.stdout)[name]).toBe(false)
      expect(errorOf(ran)).toMatchObject({
        code: 'trust_not_verified',
        detail: expect.stringContaining(name.split(' ').at(-1) ?? name),
      })
    },
  )

  test('contract §6: a node that is away exits 75 and says nothing about the pins', async () => {
    const away = async () => {
      throw new ChainError('unavailable', 'the node does not answer')
    }
    const ran = await verify({ ...pinnedChain(), code: away })
    expect(ran.code).toBe(75)
    expect(ran.stdout).toBe('')
    expect(errorOf(ran)).toMatchObject({ code: 'chain_unavailable', retryable: true })
  })
})

/** A chain on which everything is as pinned; what a test does not use refuses. */
function pinnedChain(): Chain {
  const unused = async () => {
    throw new Error('not used here')
  }
  return {
    chainId: async () => pins.chain_id,
    block: async () => ({
      number: 7n,
      hash: '0x',
      parentHash: '0x',
      timestamp: 1n,
      baseFeePerGas: 0n,
    }),
    code: async () => '0x60',
    storage: async () => `0x${'0'.repeat(64)}`,
    ...answering({}),
    logs: unused,
    balance: unused,
    transactionCount: unused,
    estimateGas: unused,
    tip: unused,
    send: unused,
    receipt: unused,
    hasTransaction: unused,
    calldata: unused,
  }
}

/** What the contracts answer to a call, by function name. */
function answering(changed: Record<string, unknown>): Pick<Chain, 'call'> {
  const answers: Record<string, unknown> = {
    PROPOSAL_TYPEHASH: typeHashes.proposal,
    WITNESS_TYPE_STRING: witnessTypeString,
    DELEGATED_PROPOSER_ROLE: roles.delegatedProposer,
    permit2: pins.permit2,
    DOMAIN_SEPARATOR: toHex(domainSeparator(pins.chain_id, pins.permit2 as Hex)),
    defaultProposerWhitelist: `0x${'8'.repeat(40)}`,
    requesterWhitelist: `0x${'7'.repeat(40)}`,
    isOnWhitelist: true,
    optimisticOracle: pins.oracles[0],
    decimals: 6,
    symbol: 'USDC.e',
    ...changed,
  }
  const abi: Abi = [
    ...signedProposerAbi,
    ...permit2Abi,
    ...oracleAbi,
    ...whitelistAbi,
    ...ctfAdapterAbi,
    ...erc20Abi,
  ]
  return {
    call: async ({ data }) => {
      // Of version 3 of the oracle alone.
      if (data.startsWith('0xf9a8f368')) throw new ChainError('reverted', 'execution reverted')
      const { functionName } = decodeFunctionData({ abi, data })
      const answer = answers[functionName]
      if (answer === undefined || answer === 'revert')
        throw new ChainError('reverted', 'execution reverted')
      return encodeFunctionResult({ abi, functionName, result: answer })
    },
  }
}
