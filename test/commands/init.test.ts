/** contract §9: `init`, a guided set-up. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { generatePrivateKey, privateKeyToAddress } from 'viem/accounts'
import { eachHome, run } from '#support/cli'

const home = eachHome()
const key = generatePrivateKey()
beforeEach(() => {
  writeFileSync(join(home.path, 'key'), `${key}\n`, { mode: 0o600 })
  writeFileSync(join(home.path, 'password'), 'a long password\n', { mode: 0o600 })
})

const configOf = () =>
  JSON.parse(readFileSync(join(home.path, 'config.json'), 'utf8')) as Record<string, unknown>
const stepsOf = (stdout: string) =>
  (JSON.parse(stdout) as { steps: { step: string; result: string }[] }).steps.map(
    ({ step, result }) => `${step} ${result}`,
  )
const all = [
  ...['init', '--profile', 'polygon', '--gateway', 'https://gateway.example'],
  ...['--account', 'main', '--key-file', 'key', '--password-file', 'password'],
  ...['--signed-proposer', `0x${'1'.repeat(40)}`, '--yes', '--json'],
]

test('contract §9: every answer is a flag, and --json prints what it did', async () => {
  const ran = await run(home.path, all)
  // No gateway answers in this test: only the checks at the end fail.
  expect(ran.code, ran.stderr).toBe(2)
  expect(ran.stderr).toContain('doctor_found_faults')
  expect(JSON.parse(ran.stdout)).toMatchObject({ schema: 'proposer.init/1' })
  expect(stepsOf(ran.stdout)).toEqual([
    'profile done',
    'gateway done',
    'rpc-url skipped',
    'account done',
    'trust done',
    'approval skipped',
    'doctor failed',
  ])
  expect(configOf()).toEqual({
    profile: 'polygon',
    profiles: { polygon: { gateway: 'https://gateway.example', account: 'main' } },
  })
  expect(existsSync(join(home.path, 'trust', 'polygon.json'))).toBe(true)
  const shown = await run(home.path, 'account show main')
  expect(shown.stdout.toLowerCase()).toContain(privateKeyToAddress(key).toLowerCase())
})

test('contract §9: run again it keeps what is there and asks for nothing of it', async () => {
  await run(home.path, all)
  const before = configOf()
  const again = await run(home.path, 'init --json --password-file password')
  expect(stepsOf(again.stdout)).toEqual([
    'profile kept',
    'gateway kept',
    'rpc-url skipped',
    'account kept',
    'trust kept',
    'approval skipped',
    'doctor failed',
  ])
  expect(configOf()).toEqual(before)
})

test('contract §6: without a terminal a missing answer is exit 2 and names the flag', async () => {
  const ran = await run(home.path, 'init --json')
  expect(ran.code).toBe(2)
  expect(JSON.parse(ran.stderr.trim().split('\n').at(-1) ?? '')).toMatchObject({
    error: { code: 'answer_needed', hint: 'give --gateway <url>' },
  })
})

test('contract §9: a terminal is asked in order, and what was answered before Ctrl-D is kept', async () => {
  const terminal = (stdin: string) => ({ interactive: true, columns: 80, stdin })
  const first = await run(home.path, 'init', terminal('dev\nhttps://gateway.example\n\n'))
  expect(first.code).toBe(2)
  expect(first.stderr).toMatch(/Profile: .*Gateway URL: .*Enter to skip/s)
  expect(configOf()).toMatchObject({ profile: 'dev' })
  const flags = ['init', '--password-file', 'password']
  const second = await run(home.path, flags, terminal('\nmain\nkey\n'))
  expect(second.stderr).not.toContain('Gateway URL')
  expect(second.stderr).toMatch(/kept +trust: built in/)
  expect(configOf()).toEqual({
    profile: 'dev',
    profiles: { dev: { gateway: 'https://gateway.example', account: 'main' } },
  })
})

test('contract §9: on a terminal a wrong answer is told and asked for again; what was given stays', async () => {
  const answers = [
    ...['polygon', 'ftp://gateway.example', '', 'https://gateway.example', 'not a url', ''],
    ...['../main', 'main', 'no-such-file', 'key', '0x12', `0x${'1'.repeat(40)}`, 'y'],
  ]
  const ran = await run(home.path, 'init --password-file password', {
    interactive: true,
    columns: 80,
    stdin: `${answers.join('\n')}\n`,
  })
  const told = ran.stderr.match(/error: .*/g) ?? []
  for (const [n, pattern] of [
    /gateway URL must begin with https/,
    /gateway URL is required/,
    /rpc/i,
    /account name|name/,
    /no-such-file/,
    /0x12/,
  ].entries())
    expect(told[n], ran.stderr).toMatch(pattern)
  expect(ran.stderr.match(/Gateway URL:/g)).toHaveLength(3)
  expect(configOf()).toEqual({
    profile: 'polygon',
    profiles: { polygon: { gateway: 'https://gateway.example', account: 'main' } },
  })
  expect(existsSync(join(home.path, 'trust', 'polygon.json'))).toBe(true)
})

test('contract §6: a wrong flag is exit 2 at once, and the run after it keeps what was done', async () => {
  const wrong = all.map((one) => (one === `0x${'1'.repeat(40)}` ? '0x12' : one))
  const ran = await run(home.path, wrong)
  expect([ran.code, ran.stdout]).toEqual([2, ''])
  expect(ran.stderr).toContain('0x12')
  expect(existsSync(join(home.path, 'trust', 'polygon.json'))).toBe(false)
  const mended = await run(home.path, all)
  expect(stepsOf(mended.stdout).at(4)).toBe('trust done')
})
