import { applySet, configuredContracts, parseConfig } from '#gateway/config'
import { UsageError } from '#protocol/errors'

const a = (digit: string) => `0x${digit.repeat(40)}`
const chain = {
  rpc_urls: ['https://user:canary@node.example/key'],
  signed_proposer: a('5'),
  oracles: [a('a')],
  requesters: [{ address: a('b'), kind: 'uma-ctf-adapter' }],
  tokens: [a('c')],
}

const token = (uri: string) => ({ uri, module: 'm.so', pin_file: './pin' })

function refusal(run: () => unknown): UsageError {
  try {
    run()
  } catch (error) {
    if (error instanceof UsageError) return error
    throw error
  }
  throw new Error('nothing was refused')
}

test('contract §7: every key but chain has a default', () => {
  expect(parseConfig({ chain }, 'gateway.json')).toEqual({
    listen: {
      host: '127.0.0.1',
      port: 8787,
      drain_seconds: 3,
      connections_per_address: 1_024,
    },
    admin: { port: 8788, connections: 64 },
    store: './gateway-store',
    chain: {
      id: 137,
      permit2: '0x000000000022d473030f116ddee9f6b43ac78ba3',
      confirmations: 'finalized',
      max_head_age_seconds: 30,
      ...chain,
    },
    questions: null,
    slugs: { source: 'registry' },
    admission: { enabled: true, allowlist: [], stored_bytes_per_wallet: 8_388_608 },
    budget: { window_seconds: 60, per_ip_items: 120, global_items: 1000 },
    cors: { origins: [] },
    proxy: { trusted_cidrs: [] },
    pipeline: { enabled: true },
    executor: {
      ...{ enabled: true, max_fee_gwei: 1000, batch: 25, in_flight: 16 },
      ...{ max_proposal_gas: 1_500_000, failed_gas_per_wallet: 50_000_000 },
    },
  })
  expect(configuredContracts(parseConfig({ chain }, 'gateway.json'))).toMatchObject({
    chainId: 137,
    signedProposer: a('5'),
    oracles: [a('a')],
  })
})

test.each([
  ['no chain', {}, 'chain is missing'],
  [
    'a fee beyond all arithmetic',
    { chain, executor: { max_fee_gwei: 1e300 } },
    'executor.max_fee_gwei must be a number of gwei above 0, at most 1000000000',
  ],
  ['an unknown key', { chain, lissten: {} }, '"lissten"'],
  ['an unknown nested key', { chain, budget: { per_ip: 1 } }, '"budget.per_ip"'],
  [
    'a store that is named twice',
    { chain, store: './gateway-store', store_file: './url' },
    'store_file must be omitted if "store" is given',
  ],
  [
    'a store whose scheme is in capitals',
    { chain, store: 'POSTGRES://db/proposer' },
    'store must be a folder, or a postgres:// URL',
  ],
  [
    'a store after a space',
    { chain, store: ' postgres://db/proposer' },
    'store must be a folder, or a postgres:// URL',
  ],
  [
    'a store in another database',
    { chain, store: 'mysql://db/proposer' },
    'store must be a folder, or a postgres:// URL',
  ],
  ['a wrong type', { chain, listen: { port: '8787' } }, 'listen.port must be a port'],
  ['a port out of range', { chain, listen: { port: 65536 } }, 'listen.port must be a port'],
  [
    'an upper-case address',
    { chain: { ...chain, signed_proposer: a('A') } },
    'chain.signed_proposer has a wrong checksum (EIP-55)',
  ],
  ['no oracle', { chain: { ...chain, oracles: [] } }, 'chain.oracles must be'],
  [
    'an unknown kind',
    { chain: { ...chain, requesters: [{ address: a('b'), kind: 'x' }] } },
    'chain.requesters.0.kind must be',
  ],
  ['a missing rpc url', { chain: { ...chain, rpc_urls: undefined } }, 'chain.rpc_urls is missing'],
  ['a file url', { chain: { ...chain, rpc_urls: ['file:///x'] } }, 'chain.rpc_urls.0 must be'],
  [
    'another source of slugs',
    { chain, slugs: { source: 'canary' } },
    'slugs.source must be {"source": "registry"} or',
  ],
  [
    'gamma without url',
    { chain, slugs: { source: 'gamma' } },
    'slugs.url is missing; it must be an https URL',
  ],
  [
    'a url without gamma',
    { chain, slugs: { source: 'registry', url: 'https://g.example' } },
    '"slugs.url" is not a configuration key',
  ],
  ...[
    'http://canary.example',
    'http://127.0.0.1.canary.example',
    'https://canary@g.example',
    'https://:canary@g.example',
    'https://g.example/?key=canary',
    'https://g.example/#canary',
    'ftp://canary.example',
    'canary',
  ].map((url): [string, object, string] => [
    `the address ${url} for gamma`,
    { chain, slugs: { source: 'gamma', url } },
    'slugs.url must be an https URL',
  ]),
  [
    'a malformed cidr',
    { chain, proxy: { trusted_cidrs: ['10.0.0.0/64'] } },
    'proxy.trusted_cidrs.0 must be',
  ],
  ['any origin', { chain, cors: { origins: ['*'] } }, 'cors.origins.0 must be'],
  [
    'an origin with a path',
    { chain, cors: { origins: ['https://a.example/'] } },
    'cors.origins.0 must be',
  ],
  [
    'two executor keys',
    { chain, executor: { key_file: 'a', account: 'b' } },
    'only one of key_file, account, signer',
  ],
  [
    'a key beside a signer',
    { chain, executor: { account: 'b', signer: { url: 'https://s.example', address: a('1') } } },
    'only one of key_file, account, signer',
  ],
  [
    'a signer without an address',
    { chain, executor: { signer: { url: 'https://s.example' } } },
    'executor.signer.address is missing',
  ],
  [
    'an unknown key of a signer',
    { chain, executor: { signer: { url: 'https://s.example', adress: a('1') } } },
    'Did you mean executor.signer.address?',
  ],
  ...[
    'http://canary.example',
    'https://canary@s.example',
    'https://s.example/#canary',
    'ftp://canary.example',
    'canary',
  ].map((url): [string, object, string] => [
    `a signer at ${url}`,
    { chain, executor: { signer: { url, address: a('1') } } },
    'executor.signer.url must be an https URL',
  ]),
  [
    'a key in a token beside a key file',
    { chain, executor: { key_file: 'b', pkcs11: token('pkcs11:object=a') } },
    'only one of key_file, account, signer, pkcs11',
  ],
  [
    'a token without a PIN file',
    { chain, executor: { pkcs11: { uri: 'pkcs11:object=a', module: 'm.so' } } },
    'executor.pkcs11.pin_file is missing',
  ],
  [
    'a PIN beside the file of it',
    { chain, executor: { pkcs11: { ...token('pkcs11:object=a'), pin: 'canary' } } },
    '"executor.pkcs11.pin" is not a configuration key',
  ],
  [
    'a token that is named by no URI of a key',
    { chain, executor: { pkcs11: token('pkcs11:token=a') } },
    'executor.pkcs11.uri must be a pkcs11: URI of one key (RFC 7512): the URI names no key',
  ],
  [
    'a PIN in the URI of a token',
    { chain, executor: { pkcs11: token('pkcs11:object=a?pin-value=canary') } },
    'a PIN does not stand in a URI',
  ],
  ['a list', [], 'must be one JSON object'],
])('contract §7: %s is refused, the file and the key named', (_, raw, expected) => {
  const error = refusal(() => parseConfig(raw, 'my/gateway.json'))
  expect(error.detail).toContain(expected)
  expect(error.detail).toContain('my/gateway.json')
  expect(error.meta.exitCode).toBe(2)
  expect(JSON.stringify([error.detail, error.meta.hint])).not.toContain('canary')
})

test.each([
  'https://gamma.example',
  'https://gamma.example:8443/base/',
  'http://localhost:1',
  'http://127.0.0.1:1/base',
  'http://[::1]:1',
])('contract §7: slugs may come from gamma at %s', (url) => {
  expect(parseConfig({ chain, slugs: { source: 'gamma', url } }, 'gateway.json').slugs).toEqual({
    source: 'gamma',
    url,
  })
})

test.each([
  [{ url: 'https://s.example/v1/key?id=1' }, false],
  [{ url: 'http://127.0.0.1:9000' }, false],
  [{ url: 'http://signer.internal:9000', allow_http: true }, true],
])('contract §9: executor.signer %j is a signer', (signer, allow_http) => {
  const executor = { signer: { ...signer, address: a('1') } }
  expect(parseConfig({ chain, executor }, 'gateway.json').executor.signer).toEqual({
    ...executor.signer,
    allow_http,
  })
})

test('contract §9: executor.pkcs11 is a key in a token', () => {
  const pkcs11 = token('pkcs11:token=a;object=b;type=private')
  const { executor } = parseConfig({ chain, executor: { pkcs11 } }, 'gateway.json')
  expect(executor.pkcs11).toEqual(pkcs11)
})

describe('--set', () => {
  const config = parseConfig({ chain }, 'gateway.json')

  test('contract §6: null takes an optional key away, and is the value of a key that has it', () => {
    const set = applySet(config, 'executor.account=ops')
    expect(applySet(set, 'executor.account=null').executor.account).toBeUndefined()
    expect(applySet(set, 'questions=null', 'executor.account=null')).toMatchObject({
      questions: null,
    })
    expect(() => applySet(config, 'chain.signed_proposer=null')).toThrow(/signed_proposer/)
  })

  test('contract §9: the default of store does not stand beside store_file', () => {
    const config = parseConfig({ chain, store_file: './url' }, 'gateway.json')
    expect(applySet(config, 'budget.per_ip_items=5').store_file).toBe('./url')
    const plain = parseConfig({ chain }, 'gateway.json')
    expect(applySet(plain, 'store_file=./url').store_file).toBe('./url')
    const named = parseConfig({ chain, store: './elsewhere' }, 'gateway.json')
    expect(refusal(() => applySet(named, 'store_file=./url')).detail).toContain('omitted')
  })

  test('contract §6: a value is JSON where it parses, else text', () => {
    const set = applySet(
      config,
      'budget.per_ip_items=500',
      'pipeline.enabled=false',
      'store=./elsewhere',
      'questions=q.json',
      'executor.account=ops',
    )
    expect(set).toMatchObject({
      budget: { per_ip_items: 500, global_items: 1000 },
      pipeline: { enabled: false },
      store: './elsewhere',
      questions: 'q.json',
      executor: { account: 'ops' },
    })
    expect(applySet(config, `chain.tokens=["${a('d')}"]`).chain.tokens).toEqual([a('d')])
    expect(
      applySet(config, 'slugs={"source":"gamma","url":"https://g.example/a=b"}').slugs,
    ).toEqual({
      source: 'gamma',
      url: 'https://g.example/a=b',
    })
    expect(applySet(config, 'slugs.source=gamma', 'slugs.url=https://g.example').slugs).toEqual({
      source: 'gamma',
      url: 'https://g.example',
    })
    expect(applySet(config, 'receipts.key_file=./k').receipts?.key_file).toBe('./k')
    expect(config.budget.per_ip_items).toBe(120)
  })

  test.each([
    'budget.per_ip=1',
    'nothing=1',
    'budget.per_ip_items.x=1',
    'chain.tokens.0=1',
    '__proto__.x=1',
    'budget.__proto__=1',
    'budget.constructor=1',
  ])('contract §6: an unknown key exits 2: %s', (assignment) => {
    expect(refusal(() => applySet(config, assignment))).toMatchObject({
      code: 'setting_invalid',
      meta: { exitCode: 2 },
    })
  })

  test.each([
    'budget.per_ip_items=many',
    'listen.host=1',
    'pipeline.enabled=yes',
    'budget.per_ip_items',
    '=1',
    'chain=1',
    'store=',
  ])('contract §6: a wrong type or a malformed assignment exits 2: %s', (assignment) => {
    expect(refusal(() => applySet(config, assignment))).toMatchObject({
      code: 'setting_invalid',
      meta: { exitCode: 2 },
    })
  })
})
