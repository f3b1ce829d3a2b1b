import { mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { eachHome, errorOf, run } from '#support/cli'

const home = eachHome()

const settingsOf = (stdout: string) =>
  Object.fromEntries(
    (JSON.parse(stdout).settings as { key: string; value: string; origin: string }[]).map(
      (entry) => [entry.key, entry],
    ),
  )

test('contract §6: flag beats environment beats profile beats default, and --origin tells which', async () => {
  writeFileSync(
    join(home.path, 'config.json'),
    JSON.stringify({
      profile: 'main',
      profiles: {
        other: {},
        main: { gateway: 'https://profile.example', account: 'from-profile' },
      },
    }),
  )
  const env = {
    PROPOSER_GATEWAY: 'https://environment.example',
    PROPOSER_RPC_URL: 'http://127.0.0.1:8545',
  }
  const byEnvironment = settingsOf(
    (await run(home.path, 'config list --origin --json', { env })).stdout,
  )
  expect(byEnvironment).toMatchObject({
    home: { origin: 'environment', from: 'PROPOSER_HOME' },
    profile: { value: 'main', origin: 'profile' },
    gateway: {
      value: 'https://environment.example',
      origin: 'environment',
      from: 'PROPOSER_GATEWAY',
    },
    account: { value: 'from-profile', origin: 'profile', from: 'profiles.main.account' },
    'rpc-url': { value: 'http://127.0.0.1:8545', origin: 'environment' },
    trust: { value: join(home.path, 'trust', 'main.json'), origin: 'default' },
  })
  const byFlag = settingsOf(
    (
      await run(
        home.path,
        ['config', 'list', '--json', '--gateway', 'https://flag.example', '--profile', 'other'],
        { env },
      )
    ).stdout,
  )
  expect(byFlag).toMatchObject({
    profile: { value: 'other', origin: 'flag' },
    gateway: { value: 'https://flag.example', origin: 'flag', from: '--gateway' },
  })
  expect(byFlag.account).toBeUndefined()
})

test('contract §6: list names every setting, and the cap that is in force without a node', async () => {
  const { stdout } = await run(home.path, 'config list --origin')
  const names = [
    'home',
    'profile',
    'gateway',
    'local',
    'account',
    'rpc-url',
    'trust',
    'headroom-percent',
    'max-amount',
    'max-fee',
    'gamma-url',
    'allow-http',
  ]
  for (const name of names) expect(stdout).toMatch(new RegExp(`^${name}( |$)`, 'm'))
  expect(stdout).toMatch(/^gateway +not set$/m)
  expect(stdout).toMatch(/^max-amount +5000000000 {2}\(default\)$/m)
  const told = JSON.parse(
    (await run(home.path, 'config list --json --rpc-url http://127.0.0.1:1')).stdout,
  )
  expect(told.unset).toEqual([
    'gateway',
    'local',
    'account',
    'max-amount',
    'max-fee',
    'gamma-url',
    'allow-http',
  ])
  expect(told.settings.map(({ key }: { key: string }) => key)).toEqual([
    'home',
    'profile',
    'rpc-url',
    'trust',
    'headroom-percent',
    'check-price-percent',
    'check-game',
    'check-liveness',
    'check-reward-percent',
    'check-rules',
  ])
})

test('contract §6: a gateway on a higher level hides a local one below it', async () => {
  writeFileSync(
    join(home.path, 'config.json'),
    JSON.stringify({ profiles: { default: { gateway: 'https://profile.example' } } }),
  )
  const settings = settingsOf(
    (await run(home.path, 'config list --json --local gateway.json')).stdout,
  )
  expect(settings.local).toMatchObject({ value: join(home.path, 'gateway.json'), origin: 'flag' })
  expect(settings.gateway).toBeUndefined()
})

test('contract §7: set writes the selected profile, 0600, and get reads it back', async () => {
  expect((await run(home.path, 'config set gateway https://a.example')).code).toBe(0)
  expect((await run(home.path, 'config set account hot --profile test')).code).toBe(0)
  const path = join(home.path, 'config.json')
  expect(JSON.parse(readFileSync(path, 'utf8'))).toEqual({
    profiles: { default: { gateway: 'https://a.example' }, test: { account: 'hot' } },
  })
  expect(statSync(path).mode & 0o777).toBe(0o600)
  expect(await run(home.path, 'config get gateway')).toEqual({
    code: 0,
    stdout: 'https://a.example\n',
    stderr: '',
  })
  expect((await run(home.path, 'config path')).stdout).toBe(`${path}\n`)
})

test('contract §9: set without a value is refused and changes nothing', async () => {
  await run(home.path, 'config set rpc-url http://127.0.0.1:8545')
  const ran = await run(home.path, 'config set rpc-url --json')
  expect(ran.code).toBe(2)
  expect(errorOf(ran)).toMatchObject({
    code: 'usage',
    detail: "missing required argument 'value'",
  })
  expect((await run(home.path, 'config get rpc-url')).code).toBe(0)
})

test.each([
  ['--profile', ['--profile', 'typo'], {}],
  ['PROPOSER_PROFILE', [], { PROPOSER_PROFILE: 'typo' }],
] as const)(
  'contract §9: an unknown profile by %s exits 2 and names those there are',
  async (from, flags, env) => {
    await run(home.path, 'config set --profile mine account hot')
    mkdirSync(join(home.path, 'trust'))
    writeFileSync(join(home.path, 'trust', 'pinned.json'), '{}')
    for (const argv of [
      ['config', 'list'],
      ['config', 'get', 'account'],
      ['config', 'unset', 'account'],
      ['funds'],
      ['replay'],
    ]) {
      const ran = await run(home.path, [...argv, ...flags, '--json'], { env })
      expect(ran.code, argv.join(' ')).toBe(2)
      expect(errorOf(ran)).toMatchObject({
        code: 'unknown_profile',
        detail: `profile typo not found (from ${from})`,
      })
      expect(errorOf(ran).hint).toContain('default, dev, mine, pinned, polygon')
    }
  },
)

test.each(['default', 'dev', 'polygon', 'mine', 'pinned', 'selected'])(
  'contract §9: the profile %s is known',
  async (name) => {
    await run(home.path, 'config set --profile mine account hot')
    await run(home.path, 'config set profile selected')
    mkdirSync(join(home.path, 'trust'))
    writeFileSync(join(home.path, 'trust', 'pinned.json'), '{}')
    expect((await run(home.path, ['config', 'list', '--profile', name])).code).toBe(0)
  },
)

test('contract §9: unset forgets a value, and get then exits 2 with what to do', async () => {
  await run(home.path, 'config set account hot')
  const unset = await run(home.path, 'config unset account --json')
  expect(JSON.parse(unset.stdout)).toMatchObject({
    schema: 'proposer.config/1',
    key: 'profiles.default.account',
    set: false,
  })
  const ran = await run(home.path, 'config get account --json')
  expect(ran.code).toBe(2)
  expect(errorOf(ran)).toMatchObject({
    code: 'config_unset',
    hint: 'set it with `proposer config set account <value>`',
  })
})

test.each([
  ['a cut file', '{"profiles":'],
  ['an empty file', ''],
  ['a list of profiles', '{"profiles":[]}', 'profiles in'],
  ['no profiles', '{"profiles":null}', 'profiles in'],
  ['a profile that is text', '{"profiles":{"default":"x"}}', 'profiles.default in'],
  [
    'a number for an address',
    '{"profiles":{"default":{"gateway":5}}}',
    /^profiles\.default\.gateway in .* must be text$/,
  ],
  ['a number for the profile', '{"profile":5}', 'profile in'],
  ['a list', '[]'],
  ['a bare value', 'null'],
])(
  'robustness §2: %s as config.json exits 2 and names file and key',
  async (_name, content, key = '') => {
    writeFileSync(join(home.path, 'config.json'), content)
    const ran = await run(home.path, 'config list --json')
    expect(ran.code).toBe(2)
    expect(errorOf(ran)).toMatchObject({ code: 'config_damaged', exit_code: 2 })
    expect(errorOf(ran).detail).toContain(join(home.path, 'config.json'))
    expect(errorOf(ran).detail).toMatch(key)
    expect(readFileSync(join(home.path, 'config.json'), 'utf8')).toBe(content)
  },
)

test.each([
  ['the value', '{"profiles":{"default":{"gateway":5}}}'],
  ['the profile', '{"profiles":{"default":"x"}}'],
  ['all profiles', '{"profiles":["x"]}'],
])('robustness §2: set overwrites %s of a wrong type', async (_name, content) => {
  writeFileSync(join(home.path, 'config.json'), content)
  expect((await run(home.path, 'config set gateway https://a.example')).code).toBe(0)
  expect((await run(home.path, 'config get gateway')).stdout).toBe('https://a.example\n')
})

test('robustness §2: set overwrites a selected profile that is none', async () => {
  for (const content of ['{"profile":5}', '{"profile":"../up"}']) {
    writeFileSync(join(home.path, 'config.json'), content)
    expect((await run(home.path, 'config set account hot')).code).toBe(2)
    expect((await run(home.path, 'config set profile main')).code).toBe(0)
    expect((await run(home.path, 'config get profile')).stdout).toBe('main\n')
  }
})

test.each(['{"profiles":', '[]', '{"profiles":5}'])(
  'contract §6: path is told where the file holds %s',
  async (content) => {
    writeFileSync(join(home.path, 'config.json'), content)
    expect(await run(home.path, 'config path')).toEqual({
      code: 0,
      stdout: `${join(home.path, 'config.json')}\n`,
      stderr: '',
    })
  },
)

test('robustness §2: set refuses a file that is no JSON object, and leaves it as it is', async () => {
  for (const content of ['{"profiles":', '[]']) {
    writeFileSync(join(home.path, 'config.json'), content)
    expect(errorOf(await run(home.path, 'config set account hot --json'))).toMatchObject({
      code: 'config_damaged',
    })
    expect(readFileSync(join(home.path, 'config.json'), 'utf8')).toBe(content)
  }
})

test.each(['local', 'trust'])(
  'contract §7: a relative %s is set as what it names from the current folder',
  async (key) => {
    const cwd = join(home.path, 'somewhere')
    mkdirSync(cwd)
    expect((await run(home.path, ['config', 'set', key, 'dev/file.json'], { cwd })).code).toBe(0)
    expect(
      JSON.parse(readFileSync(join(home.path, 'config.json'), 'utf8')).profiles.default[key],
    ).toBe(join(cwd, 'dev', 'file.json'))
    expect((await run(home.path, ['config', 'get', key])).stdout).toBe(
      `${join(cwd, 'dev', 'file.json')}\n`,
    )
  },
)

test.each([
  [['config', 'set', 'colour', 'red'], 'unknown_key'],
  [['config', 'get', 'colour'], 'unknown_key'],
  [['config', 'set', 'gateway', 'http://gateway.example'], 'invalid_base_url'],
  [['config', 'set', 'gateway', ''], 'bad_value'],
  [['config', 'set', 'rpc-url', 'nonsense'], 'bad_value'],
  [['config', 'set', 'profile', '../up'], 'bad_profile'],
  [['config', 'list', '--profile', '../up'], 'bad_profile'],
  [['config', 'list', '--timeout', '0'], 'bad_timeout'],
  [['config', 'list', '--timeout', '1e3'], 'bad_timeout'],
])('contract §6: %j exits 2 with %s', async (argv, code) => {
  const ran = await run(home.path, [...argv, '--json'])
  expect(ran.code).toBe(2)
  expect(errorOf(ran)).toMatchObject({ code })
})

test('R5: path, user and query of a node, a gateway or a market API are never shown', async () => {
  const env = {
    PROPOSER_RPC_URL: 'https://user:pw@node.example/v2/apikey?x=token',
    PROPOSER_GATEWAY: 'https://gateway.example/secret',
    PROPOSER_GAMMA_URL: 'https://gamma.example/secret-key-in-path',
  }
  for (const argv of [
    ['config', 'list'],
    ['config', 'list', '--json'],
    ['config', 'get', 'rpc-url', '--json'],
    ['config', 'get', 'gamma-url'],
  ]) {
    const { stdout, stderr } = await run(home.path, argv, { env })
    if (!argv.includes('gamma-url')) expect(stdout).toContain('https://node.example/…')
    if (!argv.includes('rpc-url')) expect(stdout).toContain('https://gamma.example/…')
    expect(stdout + stderr).not.toMatch(/apikey|token|pw|secret/)
  }
})

test('R24: reading the configuration creates nothing', async () => {
  const empty = join(home.path, 'not-there')
  expect((await run(home.path, ['config', 'unset', 'account', '--home', empty])).code).toBe(0)
  expect((await run(home.path, ['config', 'list', '--home', empty])).code).toBe(0)
  expect(() => statSync(empty)).toThrow('ENOENT')
  mkdirSync(empty)
  expect((await run(home.path, ['config', 'list', '--home', empty])).code).toBe(0)
  expect(() => statSync(join(empty, 'config.json'))).toThrow('ENOENT')
})
