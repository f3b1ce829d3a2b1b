import { mkdirSync, writeFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { builtInProfile, profileNames, unconfirmedAmong } from '#chain/profiles'
import { devAddresses } from '#devchain/dev-contracts'
import { applySet, configuredContracts, parseConfig } from '#gateway/config'
import { eachHome, lastErrorOf, run } from '#support/cli'

const signedProposer = `0x${'5'.repeat(40)}`
const reporter = '0x53703dd6129d723066b6362510e5ae2fecd48218'
const rpc_urls = ['http://127.0.0.1:1']

test('domain §6: polygon has the addresses that public sources name, and no SignedProposer', () => {
  expect(builtInProfile('polygon')).toMatchObject({
    chainId: 137,
    permit2: '0x000000000022d473030f116ddee9f6b43ac78ba3',
    oracles: ['0x2c0367a9db231ddebd88a94b4f6461a6e47c58b1'],
    requesters: [
      { address: '0x65070be91477460d8a7aeeb94ef92fe056c2f2a7', kind: 'uma-ctf-adapter' },
      { address: '0x69c47de9d4d3dad79590d61b9e05918e03775f24', kind: 'uma-ctf-adapter-negrisk' },
      { address: reporter, kind: 'oo-reporter' },
    ],
    tokens: ['0x2791bca1f2de4661ed88a30c99a7a9449aa84174'],
  })
  expect(builtInProfile('polygon')).not.toHaveProperty('signedProposer')
  expect(builtInProfile('default')).toBeUndefined()
  expect(builtInProfile('constructor')).toBeUndefined()
})

test('contract §8: dev has the addresses at which the dev chain puts its contracts', () => {
  expect(builtInProfile('dev')).toEqual({
    chainId: 31337,
    permit2: devAddresses.permit2,
    signedProposer: devAddresses.signedProposer,
    oracles: [devAddresses.oracle],
    requesters: [{ address: devAddresses.adapter, kind: 'uma-ctf-adapter' }],
    tokens: [devAddresses.token],
    tokenUnits: { symbol: 'USDC.e', decimals: 6 },
    coin: 'POL',
    unconfirmed: [],
  })
})

test('domain §6: what rests on one source is told by address, and only where it is used', () => {
  expect(unconfirmedAmong('polygon', [reporter])).toEqual([expect.stringContaining(reporter)])
  expect(unconfirmedAmong('polygon', ['0x65070be91477460d8a7aeeb94ef92fe056c2f2a7'])).toEqual([])
  expect(unconfirmedAmong(undefined, [reporter])).toEqual([])
})

test('domain §6: polygon needs nodes and a SignedProposer, everything else is filled in', () => {
  const config = parseConfig(
    { chain: { profile: 'polygon', rpc_urls, signed_proposer: signedProposer } },
    'gateway.json',
  )
  const profile = builtInProfile('polygon')
  expect(configuredContracts(config)).toEqual({
    chainId: 137,
    permit2: profile?.permit2,
    signedProposer,
    oracles: profile?.oracles,
    requesters: profile?.requesters,
    tokens: profile?.tokens,
  })
})

test('contract §7: what the chain section names itself goes before the profile, so a doubtful requester can be left out', () => {
  const requesters = [
    { address: '0x65070be91477460d8a7aeeb94ef92fe056c2f2a7', kind: 'uma-ctf-adapter' },
  ]
  const config = parseConfig(
    { chain: { profile: 'polygon', rpc_urls, signed_proposer: signedProposer, requesters } },
    'gateway.json',
  )
  expect(config.chain.requesters).toEqual(requesters)
})

test.each([
  [
    { profile: 'polygon', rpc_urls },
    'chain.signed_proposer is missing; it must be a contract address (EIP-55 or lowercase): there is no public source',
  ],
  [
    { profile: 'mumbai', rpc_urls, signed_proposer: signedProposer },
    'chain.profile must be the name of a built-in profile: polygon or dev',
  ],
  [
    { profile: 'dev', rpc_urls, id: 137 },
    'chain.id must be 31337, the chain of profile dev, or omitted',
  ],
])('contract §7: %j is refused with the key and what it must be', (chain, expected) => {
  expect(() => parseConfig({ chain }, 'gateway.json')).toThrow(expected)
})

test('contract §6: --set does not change the profile whose contracts are in place, and may change any of them', () => {
  const config = parseConfig({ chain: { profile: 'dev', rpc_urls } }, 'gateway.json')
  expect(() => applySet(config, 'chain.profile=polygon')).toThrow('chain.profile')
  expect(() => applySet(config, 'chain.id=5')).toThrow('31337')
  expect(applySet(config, `chain.signed_proposer=${signedProposer}`).chain.signed_proposer).toBe(
    signedProposer,
  )
})

describe('--profile', () => {
  const home = eachHome()

  const file = (name: string) => join(home.path, 'trust', `${name}.json`)
  const init = [
    'trust',
    'init',
    '--profile',
    'polygon',
    '--signed-proposer',
    signedProposer,
    '--json',
  ]

  test('contract §7: without a trust file polygon is shown with its pins, and says that signed_proposer is missing and how to pin it', async () => {
    const { code, stdout, stderr } = await run(home.path, 'trust show --profile polygon --json')
    expect(code).toBe(0)
    expect(JSON.parse(stdout)).toMatchObject({
      path: null,
      built_in: 'polygon',
      chain_id: 137,
      signed_proposer: null,
      slugs: {},
    })
    const warnings = stderr
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line).warning)
    expect(warnings).toEqual([
      { code: 'signed_proposer_needed', detail: expect.stringContaining('--signed-proposer 0x…') },
      { code: 'unconfirmed_pin', detail: expect.stringContaining(reporter) },
    ])
  })

  test('R9: nothing is signed or fetched with polygon before somebody has named its SignedProposer', async () => {
    const ran = await run(
      home.path,
      'context x --profile polygon --gateway https://g.example --json',
    )
    expect(ran.code).toBe(2)
    expect(lastErrorOf(ran)).toMatchObject({
      code: 'signed_proposer_needed',
      hint: expect.stringContaining('proposer trust init --profile polygon --signed-proposer 0x…'),
    })
  })

  test('domain §6: trust init pins polygon only after somebody agreed to what rests on one source', async () => {
    const refused = await run(home.path, init)
    expect(refused.code).toBe(2)
    expect(lastErrorOf(refused)).toMatchObject({ code: 'confirmation_needed' })
    await expect(readFile(file('polygon'))).rejects.toThrow('ENOENT')
    const agreed = await run(home.path, [...init, '--yes'])
    expect(agreed.code).toBe(0)
    expect(agreed.stderr).toContain(reporter)
    const { chainId, permit2, oracles, requesters, tokens } = builtInProfile('polygon') ?? {}
    const pins = {
      chain_id: chainId,
      permit2,
      signed_proposer: signedProposer,
      oracles,
      requesters,
      tokens,
      slugs: {},
    }
    expect(JSON.parse(await readFile(file('polygon'), 'utf8'))).toEqual(pins)
    const shown = await run(home.path, 'trust show --profile polygon --json')
    expect(JSON.parse(shown.stdout)).toEqual({
      schema: 'proposer.trust/1',
      path: file('polygon'),
      ...pins,
    })
  })

  test("contract §7: a trust file of the profile's name goes before the built-in pins, and one named by --trust has to exist", async () => {
    mkdirSync(join(home.path, 'trust'))
    writeFileSync(file('dev'), '{}')
    expect(lastErrorOf(await run(home.path, 'trust show --profile dev --json'))).toMatchObject({
      code: 'invalid_trust',
    })
    const named = await run(home.path, 'trust show --profile polygon --trust gone --json')
    expect(lastErrorOf(named)).toMatchObject({ code: 'no_trust' })
  })

  test.each([
    [['--profile', 'polygon'], 'signed_proposer_needed'],
    [['--profile', 'polygon', '--signed-proposer', '0xABC'], 'bad_address'],
    [['--profile', 'polygon', '--signed-proposer', `0x${'0'.repeat(40)}`], 'bad_address'],
    [['--profile', 'dev', '--signed-proposer', signedProposer], 'untrusted_signed_proposer'],
    [['--profile', 'mine', '--signed-proposer', signedProposer], 'trust_source'],
    [['--from', 'x', '--profile', 'polygon', '--signed-proposer', signedProposer], 'trust_source'],
  ])('contract §6: trust init %j writes nothing and exits 2 with %s', async (flags, code) => {
    const ran = await run(home.path, ['trust', 'init', ...flags, '--json', '--yes'])
    expect(ran.code).toBe(2)
    expect(lastErrorOf(ran)).toMatchObject({ code })
    for (const name of [...profileNames, 'mine'])
      await expect(readFile(file(name))).rejects.toThrow('ENOENT')
  })
})
