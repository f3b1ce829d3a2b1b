/**
 * What an operator's command refuses by itself, with exit 2, before any store, gateway or chain is
 * opened (contract §6).
 */

import { chmodSync, existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { readAdminToken } from '#io/serving/admin-token'
import { eachHome, lastErrorOf, type Ran, run } from '#support/cli'
import { gatewayFile } from '#support/desk'

const home = eachHome()

const ask = (...argv: string[]): Promise<Ran> => run(home.path, [...argv, '--json'])
const uuid = 'ABCDEF01-0000-4000-8000-000000000000'
const questionId = `0x${'ab'.repeat(32)}`

describe('contract §6: arguments of an operator', () => {
  // There is no gateway.json here, which is what would be missed first.
  test.each([
    [
      ['candidates', 'reject', 'nope', '--reason', 'x'],
      'invalid_identifier',
      '<candidate-id> "nope"',
    ],
    [['candidates', 'show', 'nope'], 'invalid_identifier', '<candidate-id> "nope"'],
    [['candidates', 'explain', 'nope'], 'invalid_identifier', '<candidate-id> "nope"'],
    [
      ['questions', 'add', questionId, '--slug', 'BadSlug'],
      'invalid_identifier',
      '--slug "BadSlug"',
    ],
    [
      ['questions', 'add', questionId, '--slug', 'eligibility'],
      'invalid_identifier',
      '--slug "eligibility"',
    ],
    [['questions', 'add', questionId, '--requester', '0x12'], 'invalid_address', '0x12'],
    [['questions', 'add', '0x12'], 'invalid_identifier', '0x12'],
    [
      [
        'allow',
        ...Array.from({ length: 10_001 }, (_, n) => `0x${(n + 1).toString(16).padStart(40, '0')}`),
      ],
      'too_many_addresses',
      'at most 10000 wallets at a time, got 10001',
    ],
  ])('that are none are named: %#', async (argv, code, named) => {
    const ran = await ask('operator', ...argv)
    expect(lastErrorOf(ran)).toMatchObject({
      code,
      exit_code: 2,
      detail: expect.stringContaining(named),
      hint: expect.stringMatching(/\w/),
    })
  })

  test('an id in capitals is the id', async () => {
    for (const argv of [
      ['show', uuid],
      ['explain', uuid],
      ['reject', uuid, '--reason', 'x'],
    ])
      expect(lastErrorOf(await ask('operator', 'candidates', ...argv))).toMatchObject({
        code: 'no_configuration',
      })
  })

  test('a fold takes no reason, since it changes nothing that one could ask after', async () => {
    expect((await ask('operator', 'store', 'compact', '--reason', 'x')).code).toBe(2)
  })
})

const url = (scheme: string) => `${scheme}://ops:canary-word@127.0.0.1:1/proposer`

test.each([
  ['as a flag that there is not', ['operator', 'list', `--store=${url('postgres')}`]],
  ['in place of gateway.json', ['operator', 'list', '--config', url('postgres')]],
  [
    'in place of its file',
    ['operator', 'store', 'copy', '--from-file', url('postgres'), '--to', 'new'],
  ],
  ['to copy from', ['operator', 'store', 'copy', '--from', url('POSTGRES'), '--to', 'new']],
  ['to copy to', ['operator', 'store', 'copy', '--from', 'old', '--to', url('mysql')]],
])('contract §9: with a password, %s, is exit 2 and not printed', async (_, argv) => {
  for (const mode of [[], ['--json']]) {
    const ran = await run(home.path, [...argv, ...mode])
    expect(ran.code).toBe(2)
    expect(ran.stdout + ran.stderr).not.toContain('canary-word')
  }
  expect(existsSync(join(home.path, 'new'))).toBe(false)
})

test('contract §9: in the variable that names its file is exit 2 and not printed', async () => {
  const config = join(home.path, 'gateway.json')
  writeFileSync(config, JSON.stringify(gatewayFile()))
  const env = { PROPOSER_STORE_URL_FILE: url('postgres') }
  const ran = await run(home.path, ['operator', 'gateways', '--config', config], { env })
  expect(ran.code).toBe(2)
  expect(ran.stderr).not.toContain('canary-word')
})

describe('contract §9: what is asked of a gateway, and backups', () => {
  const write = (more: object) =>
    writeFileSync(join(home.path, 'gateway.json'), JSON.stringify(gatewayFile(more)))

  test('a backup of a store in PostgreSQL is refused and names the tools of the database', async () => {
    write({ store: 'postgres://proposer@127.0.0.1:1/proposer' })
    expect(lastErrorOf(await ask('operator', 'store', 'backup', 'copy'))).toMatchObject({
      code: 'shared_store',
      exit_code: 2,
      hint: expect.stringMatching(/pg_basebackup.*pg_dump/),
    })
  })

  test('a backup goes into an empty folder outside the store', async () => {
    write({})
    mkdirSync(join(home.path, 'gateway-store'))
    mkdirSync(join(home.path, 'full'))
    writeFileSync(join(home.path, 'full', 'precious'), 'x')
    for (const [folder, code] of [
      ['full', 'store_not_empty'],
      ['gateway-store', 'usage'],
      ['./gateway-store/backup', 'usage'],
    ] as const)
      expect(lastErrorOf(await ask('operator', 'store', 'backup', folder))).toMatchObject({
        code,
        exit_code: 2,
      })
    expect(lastErrorOf(await ask('operator', 'store', 'backup', 'copy'))).toMatchObject({
      code: 'no_store',
      exit_code: 2,
    })
    expect(readdirSync(join(home.path, 'full'))).toEqual(['precious'])
    expect(existsSync(join(home.path, 'copy'))).toBe(false)
  })

  test('without a gateway there is no status: exit 75; the live view needs a terminal: exit 2', async () => {
    write({})
    expect(lastErrorOf(await ask('operator', 'status'))).toMatchObject({
      code: 'gateway_not_running',
      exit_code: 75,
      hint: expect.stringContaining('`proposer serve --config gateway.json`'),
    })
    for (const flags of [[], ['--json']])
      expect((await run(home.path, ['operator', 'top', ...flags])).stderr).toContain(
        'operator status',
      )
    expect((await ask('operator', 'top')).code).toBe(2)
  })

  test('who acts is a short text', async () => {
    for (const by of ['', '  ', 'x'.repeat(101)])
      expect(lastErrorOf(await ask('operator', 'pause', '--by', by))).toMatchObject({
        code: 'bad_value',
        exit_code: 2,
      })
  })
})

describe('contract §6: a hint says what helps', () => {
  const config = () => join(home.path, 'gateway.json')
  test('for a configuration that is missing, that is no JSON, or that names a questions file that is not there', async () => {
    const missing = lastErrorOf(await ask('operator', 'list', '--config', config()))
    expect(missing).toMatchObject({
      code: 'input_unreadable',
      hint: expect.stringContaining('--config'),
    })
    expect(missing.hint).not.toContain('stdin')
    writeFileSync(config(), '{"chain": {} "store": "x"}')
    expect(lastErrorOf(await ask('operator', 'list', '--config', config()))).toMatchObject({
      code: 'input_not_json',
      hint: expect.stringContaining('correct the file'),
    })
    writeFileSync(config(), JSON.stringify(gatewayFile({ questions: 'gone.json' })))
    const noQuestions = lastErrorOf(await ask('operator', 'list', '--config', config()))
    expect(noQuestions).toMatchObject({
      code: 'input_unreadable',
      hint: expect.stringContaining('"questions" in gateway.json'),
    })
  })

  test('R5: for a gateway whose token was removed: start it again', async () => {
    await expect(readAdminToken(join(home.path, 'admin.token'))).rejects.toMatchObject({
      code: 'admin_token_unusable',
      detail: expect.stringContaining('admin.token is missing'),
      meta: { hint: expect.stringContaining('restart the gateway') },
    })
  })

  test.skipIf(process.platform === 'win32')(
    'R5: for a password file that others may read: chmod',
    async () => {
      const file = join(home.path, 'password')
      writeFileSync(file, 'correct horse\n', { mode: 0o600 })
      chmodSync(file, 0o644)
      const refusal = {
        code: 'password_file_mode',
        exit_code: 2,
        hint: expect.stringContaining('chmod 600'),
      }
      expect(
        lastErrorOf(await ask('account', 'new', 'hot', '--password-file', file)),
      ).toMatchObject(refusal)
      chmodSync(file, 0o600)
      expect((await ask('account', 'new', 'hot', '--password-file', file)).code).toBe(0)
    },
  )

  test('R11: for a store without MANIFEST, which verify, list and export refuse as the writer does', async () => {
    writeFileSync(config(), JSON.stringify(gatewayFile({ store: 'store' })))
    mkdirSync(join(home.path, 'store'))
    writeFileSync(join(home.path, 'store', 'log-000000000001.jsonl'), 'something\n')
    for (const argv of [
      ['store', 'verify'],
      ['store', 'export'],
      ['store', 'repair'],
      ['store', 'repair', '--accept-loss'],
      ['list'],
    ]) {
      const refused = lastErrorOf(await ask('operator', ...argv, '--config', config()))
      expect(refused).toMatchObject({
        code: 'store_damaged',
        exit_code: 74,
        detail: expect.stringContaining('MANIFEST'),
      })
      expect(refused.hint).not.toContain('before that byte')
    }
  })
})
