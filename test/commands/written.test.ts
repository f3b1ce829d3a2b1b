/** Amounts, addresses and accounts at the front door (contract §9). */
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { getAddress } from 'viem'
import { type Argv, answerOf, errorOf, type RunOptions, run } from '#support/cli'
import { type Desk, openDesk, proposer, sign } from '#support/desk'
import { pins } from '#support/scripted-gateway'

const [token = ''] = pins.tokens
const other = `0x${'cd'.repeat(20)}` as const

let { home, gateway, env } = {} as Desk
const write = (name: string, text: string) => writeFileSync(join(home, name), text, { mode: 0o600 })
const trustFile = (more: object) => {
  const slugs = { 'will-it-hold': gateway.question.question_id }
  write('trust/default.json', JSON.stringify({ ...pins, slugs, ...more }))
}
beforeEach(async () => {
  ;({ home, gateway, env } = await openDesk())
  trustFile({ token_info: { [token]: { symbol: 'USDC.e', decimals: 6 } } })
  write('password', 'correct horse')
})

const ask = (argv: Argv, more: RunOptions = {}) =>
  run(home, argv, { env, fetch: gateway.fetch, ...more })
const look = [...sign, '--dry-run']

test.each([
  ['750usdc', '750000000'],
  ['750.5usdc', '750500000'],
  ['750000001raw', '750000001'],
])('--amount %s authorizes %s raw units', async (text, raw) => {
  expect(answerOf(await ask([...look, '--amount', text]))).toMatchObject({ amount: raw })
})

test.each([
  ['750000000', 'unit_missing'],
  ['750eth', 'unknown_unit'],
  ['750.0000001usdc', 'too_many_decimals'],
  ['0.5raw', 'too_many_decimals'],
  ['x', 'bad_number'],
])('--amount %s is exit 2 (%s); nothing is signed and nobody is asked', async (text, code) => {
  for (const flag of ['--amount', '--max-amount'])
    expect(errorOf(await ask([...sign, flag, text]))).toMatchObject({ code, exit_code: 2 })
  expect(gateway.received).toEqual([])
  expect(answerOf(await ask('journal list --json'))).toMatchObject({ authorizations: [] })
})

test('a bare number is told with both its readings', async () => {
  const { stderr } = await ask('funds approve --amount 15000')
  expect(stderr).toContain('15000 tokens or 15000 raw units')
  expect(stderr).toContain('15000raw for raw units')
})

test('without decimals of the token only raw units are taken', async () => {
  trustFile({})
  expect(errorOf(await ask([...look, '--amount', '750usdc']))).toMatchObject({
    code: 'unknown_unit',
    hint: expect.stringMatching(/raw.*--rpc-url.*token_info/),
  })
  expect(answerOf(await ask([...look, '--amount', '750000000raw']))).toMatchObject({
    amount: '750000000',
  })
})

test('the file of --context tells the decimals, too', async () => {
  trustFile({})
  const units = { address: token, symbol: 'USDC.e', decimals: 6 }
  write('context.json', JSON.stringify({ ...gateway.question, token: units }))
  const ran = await ask([...look, '--context', 'context.json', '--amount', '750usdc'])
  expect(JSON.parse(ran.stdout)).toMatchObject({ amount: '750000000' })
})

test('an amount in another pinned token than that of the bond is refused', async () => {
  trustFile({
    tokens: [token, other],
    token_info: {
      [token]: { symbol: 'USDC.e', decimals: 6 },
      [other]: { symbol: 'pUSD', decimals: 6 },
    },
  })
  for (const flag of ['--amount', '--max-amount'])
    expect(errorOf(await ask([...sign, flag, '9000pusd']))).toMatchObject({
      code: 'other_token',
      exit_code: 2,
    })
})

test('variables and profiles take a bare number as raw units, and a unit', async () => {
  for (const value of ['750000000', '750usdc']) {
    env = { ...env, PROPOSER_MAX_AMOUNT: value }
    expect(answerOf(await ask(look))).toMatchObject({ amount: '750000000' })
    env = { ...env, PROPOSER_MAX_AMOUNT: '' }
    answerOf(await ask(['config', 'set', 'max-amount', value, '--json']))
    expect(answerOf(await ask(look))).toMatchObject({ amount: '750000000' })
  }
  env = { ...env, PROPOSER_MAX_AMOUNT: '749.999999usdc' }
  expect(errorOf(await ask(look))).toMatchObject({ code: 'amount_above_cap' })
})

test('token_info that a merge would change is a change of the pins', async () => {
  write(
    'more.json',
    JSON.stringify({ ...pins, token_info: { [token]: { symbol: 'USDC.e', decimals: 18 } } }),
  )
  const ran = await ask('trust init --from more.json --dry-run --json')
  expect(answerOf(ran).changed).toEqual([expect.stringContaining('18 decimals')])
})

const right = getAddress(proposer)
const wrong = right.replace(/[a-f]/, (letter) => letter.toUpperCase())

test('EIP-55 in trust.json and in --proposer; output is lowercase', async () => {
  trustFile({ tokens: pins.tokens.map((one) => getAddress(one)) })
  expect(answerOf(await ask([...look, '--proposer', right]))).toMatchObject({ proposer })
  expect(answerOf(await ask('trust show --json'))).toMatchObject({ tokens: pins.tokens })
})

test('a wrong checksum is exit 2 in flags, trust.json and rows; nothing is sent', async () => {
  expect(wrong).not.toBe(right)
  expect((await ask([...look, '--proposer', wrong])).code).toBe(2)
  expect(errorOf(await ask(['eligibility', wrong, '--json'])).detail).toContain('checksum')
  write('rows.csv', `identifier,outcome,proposer\nwill-it-hold,p2,${wrong}\n`)
  const batch = await ask('batch sign rows.csv --json')
  expect([batch.code, errorOf(batch).detail]).toEqual([2, expect.stringContaining('checksum')])
  trustFile({ tokens: [wrong] })
  expect(errorOf(await ask('trust show --json'))).toMatchObject({
    code: 'invalid_trust',
    detail: expect.stringContaining('tokens.0'),
  })
  expect(gateway.calls).toEqual([])
})

test('a row takes the checksum of its proposer', async () => {
  write('rows.csv', `identifier,outcome,proposer\nwill-it-hold,p2,${right}\n`)
  const ran = await ask('batch sign rows.csv --json --quiet')
  expect(JSON.parse(ran.stdout)).toMatchObject({ summary: { signed: 1 } })
})

describe('accounts', () => {
  const named = ['--account', 'hot']
  const made = (name = 'hot') => ask(['account', 'import', name, '--key-file', 'key', '--json'])
  beforeEach(() => {
    env = { ...env, PROPOSER_PASSWORD_FILE: join(home, 'password'), PROPOSER_KEY_FILE: '' }
  })

  test('PROPOSER_PASSWORD_FILE is --password-file: it makes and opens an account', async () => {
    answerOf(await made())
    answerOf(await ask([...sign, ...named, '--quiet']))
    env = { ...env, PROPOSER_PASSWORD_FILE: join(home, 'key') }
    expect(errorOf(await ask([...sign, ...named, '--nonce', '7']))).toMatchObject({ exit_code: 5 })
    const fresh = ['--supersede', 'x', '--password-file', 'key']
    expect((await ask([...sign, ...named, ...fresh])).code).toBe(2)
  })

  test('account list tells the default', async () => {
    answerOf(await made())
    answerOf(await made('spare'))
    const plain = answerOf(await ask(['account', 'list', '--json', ...named])).accounts
    expect(plain).toEqual([
      { name: 'hot', address: proposer, kind: 'keystore', default: true },
      { name: 'spare', address: proposer, kind: 'keystore', default: false },
    ])
    const { stdout } = await ask(['account', 'list', ...named])
    expect(stdout).toMatch(/^hot {4}0x\w{40} {2}\(default\)\nspare {2}0x\w{40}$/m)
  })

  test('account remove asks, and takes the file away', async () => {
    answerOf(await made())
    const path = join(home, 'keystores', 'hot.json')
    expect(errorOf(await ask('account remove hot --json'))).toMatchObject({
      code: 'confirmation_needed',
    })
    answerOf(await ask('account remove hot --dry-run --json'))
    expect(existsSync(path)).toBe(true)
    answerOf(await ask('account remove hot --yes --json'))
    expect(existsSync(path)).toBe(false)
    expect(errorOf(await ask('account remove hot --yes --json'))).toMatchObject({
      code: 'account_not_found',
    })
  })

  test('account rename keeps the key, never replaces one, and changes profiles that name it', async () => {
    answerOf(await made())
    answerOf(await made('taken'))
    answerOf(await ask('config set account hot --json'))
    const bytes = readFileSync(join(home, 'keystores', 'hot.json'), 'utf8')
    expect(errorOf(await ask('account rename hot taken --json'))).toMatchObject({
      code: 'account_exists',
    })
    expect(answerOf(await ask('account rename hot cold --json'))).toMatchObject({
      schema: 'proposer.account/1',
      name: 'cold',
      renamed_from: 'hot',
      profiles: ['default'],
    })
    expect(readFileSync(join(home, 'keystores', 'cold.json'), 'utf8')).toBe(bytes)
    expect(existsSync(join(home, 'keystores', 'hot.json'))).toBe(false)
    expect(answerOf(await ask('config get account --json'))).toMatchObject({
      value: 'cold',
    })
  })
})

test.each(['journal', 'config', 'account', 'operator', 'operator store'])(
  '`%s` alone prints its subcommands on stderr and is exit 2',
  async (group) => {
    const { code, stdout, stderr } = await ask(group.split(' '))
    expect([code, stdout]).toEqual([2, ''])
    expect(stderr).toMatch(/\n {2}(list|verify)\b.*\n/)
    expect(stderr).toContain(`error: ${group} needs a subcommand`)
  },
)

describe('--field', () => {
  test.each([
    ['path', (home: string) => join(home, 'config.json')],
    ['schema', () => 'proposer.config/1'],
  ])('prints %s raw', async (field, value) => {
    const ran = await ask(['config', 'path', '--field', field])
    expect([ran.code, ran.stdout]).toEqual([0, `${value(home)}\n`])
  })

  test('numbers, booleans, null, lists by place, and whole objects as one line of JSON', async () => {
    answerOf(await ask([...sign, '--quiet']))
    const field = async (path: string) =>
      (await ask(`journal list --field=${path}`)).stdout.trimEnd()
    expect(await field('authorizations.0.outcome')).toBe('p2')
    expect(await field('authorizations.0.candidate_id')).toBe('null')
    expect(JSON.parse(await field('authorizations.0'))).toMatchObject({ outcome: 'p2' })
  })

  test.each(['nothing', 'path.0', '', 'path.length', 'constructor', 'schema.'])(
    'a missing one (%j) is exit 2 and names those there are',
    async (field) => {
      const ran = await ask(['config', 'path', '--field', field])
      expect([ran.code, ran.stdout]).toEqual([2, ''])
      expect(ran.stderr).toMatch(/^error: .*\nhint: .*schema, path/)
    },
  )

  test('where there is nothing to choose from it says that, and of a list its places', async () => {
    const hint = async (path: string) =>
      (await ask(`journal list --field ${path}`)).stderr.split('hint: ')[1]?.trimEnd()
    expect(await hint('authorizations.0.id')).toBe('it has no fields')
    answerOf(await ask([...sign, '--quiet']))
    expect(await hint('authorizations.1')).toBe('it has the fields 0')
  })

  test('an error is for people, and --ndjson beside it is refused', async () => {
    expect((await ask('config get nope --field x')).stderr).toMatch(/^error: /)
    expect((await ask('journal list --ndjson --field x')).code).toBe(2)
  })
})
