/** Clarifications before a signature, through the front door (contract §9, Rules). */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { concat, keccak256, numberToHex, stringToHex } from 'viem'
import { noRulesHash } from '#chain/constants'
import { signerFromKey } from '#io/keys'
import type { Hex } from '#ports'
import { type Argv, proposerHome, type RunOptions, run, wordsOf } from '#support/cli'
import { keyBytes } from '#support/client-world'
import {
  ask,
  clarify,
  createFakeChain,
  endow,
  type FakeChain,
  questionText,
  updateRules,
} from '#support/fake-chain'
import { fakeTrust } from '#support/fake-world'

const { address } = signerFromKey(keyBytes(7))

let home: string
let chain: FakeChain
let first: Hex
let second: Hex
beforeEach(async () => {
  home = proposerHome(fakeTrust, `0x${'07'.repeat(32)}`)
  chain = createFakeChain()
  first = ask(chain, questionText('first'))
  second = ask(chain, questionText('second'))
  endow(chain, address)
  chain.mine(3)
})

const clock = {
  nowMs: () => Number(chain.head.timestamp) * 1_000,
  monotonicMs: () => performance.now(),
  sleep: async () => undefined,
}
const cli = (argv: Argv, options: RunOptions = {}) =>
  run(home, [...wordsOf(argv), '--rpc-url', 'http://127.0.0.1:1'], {
    env: { PROPOSER_KEY_FILE: join(home, 'key') },
    chain,
    clock,
    ...options,
  })
const json = async (argv: Argv) => {
  const ran = await cli([...wordsOf(argv), '--json'])
  return { ...ran, answer: JSON.parse(ran.stdout || '{}'), error: errorIn(ran.stderr) }
}
const errorIn = (stderr: string) => {
  const last = stderr.trim().split('\n').at(-1) ?? ''
  return last.startsWith('{') ? JSON.parse(last).error : undefined
}
const post = (id: Hex, text: string | Uint8Array, owner?: Hex) => {
  clarify(chain, id, text, owner)
  chain.mine()
}
const contextOf = async (id: Hex) => (await json(`context ${id}`)).answer.questions[0]
const rulesOf = async (id: Hex) => (await contextOf(id)).rules
const write = (name: string, rows: readonly object[]) => {
  const path = join(home, name)
  writeFileSync(path, rows.map((row) => `${JSON.stringify(row)}\n`).join(''))
  return path
}

describe('context', () => {
  test('prints hash and texts of the creator alone, in order of time', async () => {
    expect(await rulesOf(first)).toEqual({
      hash: noRulesHash,
      owner: expect.any(String),
      updates: [],
    })
    post(first, 'It means regular time.')
    const at = chain.head.timestamp
    post(first, 'Send money to 0x1', '0x00000000000000000000000000000000000000ee')
    updateRules(chain, first, 'And no overtime.')
    chain.mine()
    const later = chain.head.timestamp
    const part = (time: bigint, text: string) =>
      concat([
        numberToHex(time, { size: 8 }),
        numberToHex(text.length, { size: 8 }),
        stringToHex(text),
      ])
    const one = part(at, 'It means regular time.')
    const both = keccak256(concat([one, part(later, 'And no overtime.')]))
    const rules = await rulesOf(first)
    expect(rules.hash).toBe(both)
    expect(rules.updates).toEqual([
      {
        at: new Date(Number(at) * 1_000).toISOString().replace('.000', ''),
        text: 'It means regular time.',
        hash: keccak256(one),
      },
      expect.objectContaining({ text: 'And no overtime.', hash: both }),
    ])
    const { stdout } = await cli(['context', first])
    expect(stdout).toContain('It means regular time.')
    expect(stdout).toContain(both)
    expect(stdout).not.toContain('Send money')
  })

  test('R20: hostile text stays harmless, on the screen and in JSON, and is whole there', async () => {
    const long = 'x'.repeat(1_048_576)
    post(first, Uint8Array.of(0x41, 0xff, 0xfe, 0x42))
    post(first, 'red \u001b[31m and \u202Ereversed\u0007\nnext line')
    post(first, long)
    const { stdout } = await cli(['context', first], { columns: 80 })
    expect(stdout).not.toMatch(/[\u001b\u0007\u202e]/)
    expect(stdout).toContain('A\ufffd\ufffdB')
    expect(stdout).toContain('1048576 characters in all')
    expect(stdout.length).toBeLessThan(40_000)
    const { stdout: raw, answer } = await json(['context', first])
    expect(raw).not.toMatch(/[\u001b\u0007\u202e]/)
    const texts = answer.questions[0].rules.updates.map(({ text }: { text: string }) => text)
    expect(texts).toEqual([
      'A\ufffd\ufffdB',
      'red \u001b[31m and \u202Ereversed\u0007\nnext line',
      long,
    ])
  })
})

describe('sign', () => {
  const sign = (id: Hex, ...more: string[]) => json(['sign', id, '--outcome', 'yes', ...more])

  test('a home that has acknowledged none acknowledges what it signs, and says so', async () => {
    post(first, 'It means regular time.')
    const { code, stderr } = await cli(['sign', first, '--outcome', 'yes'])
    expect(code).toBe(0)
    expect(stderr.replace(/\s+/g, ' ')).toContain('1 clarification of')
    expect(stderr.replace(/\s+/g, ' ')).toContain('taken as read')
    const { hash } = await rulesOf(first)
    // The next round, and nothing new.
    const again = await sign(first, '--supersede', (await list()).at(-1).journal_id)
    expect(again).toMatchObject({ code: 0 })
    expect(again.stderr).not.toContain('taken as read')
    expect(hash).not.toBe(noRulesHash)
    // A program is told as well, once.
    post(second, 'It means regular time.')
    const told = await cli(['sign', second, '--outcome', 'yes', '--json'])
    const warnings = told.stderr.split('\n').filter((line) => line.includes('rules_taken_as_read'))
    expect(warnings).toHaveLength(1)
    expect(JSON.parse(warnings[0] ?? '').warning.detail).toContain('1 clarification of')
  })

  const list = async () => (await json('journal list')).answer.authorizations

  test('a newer clarification: exit 2 rules_changed without a terminal, until it is acknowledged', async () => {
    await sign(first)
    const { journal_id: id } = (await list()).at(-1)
    post(first, 'It means regular time.')
    const refused = await sign(first, '--supersede', id)
    expect(refused).toMatchObject({ code: 2, error: { code: 'rules_changed' } })
    expect(refused.error.detail).toContain('1 clarification')
    // Being printed by a failed run acknowledges nothing.
    expect(await sign(first, '--supersede', id)).toMatchObject({ code: 2 })
    // The dry run says the same, and shows it.
    const look = await json(['sign', first, '--outcome', 'yes', '--supersede', id, '--dry-run'])
    expect(look).toMatchObject({ code: 2, answer: { rules_changed: true } })
    expect(look.answer.rules.updates[0].text).toBe('It means regular time.')
    const { hash } = await rulesOf(first)
    expect(await sign(first, '--supersede', id, '--rules-seen', hash)).toMatchObject({ code: 0 })
    // And now this home has.
    const next = (await list()).at(-1).journal_id
    expect(await sign(first, '--supersede', next)).toMatchObject({ code: 0 })
  })

  test('an old clarification of another owner changes nothing', async () => {
    await sign(first)
    post(first, 'not mine', '0x00000000000000000000000000000000000000ee')
    const { journal_id: id } = (await list()).at(-1)
    expect(await sign(first, '--supersede', id)).toMatchObject({ code: 0 })
  })

  test('a clarification between context and signing: the file says what was seen', async () => {
    const file = join(home, 'context.json')
    writeFileSync(file, (await cli(['context', first, '--json'])).stdout)
    post(first, 'x'.repeat(300))
    const refused = await sign(first, '--context', file)
    expect(refused).toMatchObject({ code: 2, error: { code: 'rules_changed' } })
    expect(refused.error.detail).toContain(` ${'x'.repeat(200)}… (300 characters)`)
    writeFileSync(file, (await cli(['context', first, '--json'])).stdout)
    expect(await sign(first, '--context', file)).toMatchObject({ code: 0 })
  })

  test('a hash that is no state of the rules counts as changed, and says so', async () => {
    const other = `0x${'ab'.repeat(32)}`
    const refused = await sign(first, '--rules-seen', other)
    expect(refused).toMatchObject({ code: 2, error: { code: 'rules_changed' } })
    expect(refused.error.detail).toContain(`the acknowledged hash ${other} is of no version`)
    expect(await sign(first, '--rules-seen', 'nonsense')).toMatchObject({
      code: 2,
      error: { code: 'bad_rules_seen' },
    })
    expect(await sign(first, '--rules-seen', noRulesHash)).toMatchObject({ code: 0 })
  })

  test('on a terminal it is shown in full and asked', async () => {
    await sign(first)
    const { journal_id: id } = (await list()).at(-1)
    post(first, 'It means \u001b[1mregular\u001b[0m time.')
    const argv = ['sign', first, '--outcome', 'yes', '--supersede', id]
    const no = await cli(argv, { interactive: true, stdin: 'y\nn\n' })
    expect(no).toMatchObject({ code: 2 })
    expect(no.stderr).toContain('regular')
    expect(no.stderr).not.toContain('\u001b[1m')
    expect(no.stderr).toContain('Sign with these rules? [y/N]')
    // --yes acknowledges nothing that nobody has read.
    expect(await cli([...argv, '--yes'], { interactive: true })).toMatchObject({ code: 2 })
    expect(await cli(argv, { interactive: true, stdin: 'y\ny\n' })).toMatchObject({ code: 0 })
  })

  test('typed data is held to it too, and saved bytes are used unasked', async () => {
    await sign(second)
    post(second, 'later')
    expect(await sign(second)).toMatchObject({ code: 0, answer: { reused: true } })
    await sign(first)
    const { journal_id: id } = (await list()).at(-1)
    post(first, 'later')
    expect(
      await json(['sign', first, '--outcome', 'no', '--typed-data', '--supersede', id]),
    ).toMatchObject({ code: 2, error: { code: 'rules_changed' } })
  })

  test('typed data that was given out is not signed for newer rules unasked; what is acknowledged is kept', async () => {
    const argv = ['sign', first, '--outcome', 'yes']
    expect((await json([...argv, '--typed-data'])).answer.rules).toBe(noRulesHash)
    post(first, 'later')
    expect(await json(argv)).toMatchObject({ code: 2, error: { code: 'rules_changed' } })
    const { hash } = await rulesOf(first)
    const signed = await json([...argv, '--rules-seen', hash])
    expect(signed).toMatchObject({ code: 0, answer: { rules: hash, reused: false } })
    const id = signed.answer.journal_id
    expect(await json([...argv, '--supersede', id])).toMatchObject({ code: 0 })
  })

  test('without a node: rules unknown', async () => {
    const file = join(home, 'context.json')
    writeFileSync(file, (await cli(['context', first, '--json'])).stdout)
    const { code, stderr } = await run(
      home,
      ['sign', first, '--outcome', 'yes', '--context', file],
      { env: { PROPOSER_KEY_FILE: join(home, 'key') }, clock },
    )
    expect(code).toBe(0)
    expect(stderr).toContain('rules unknown')
  })
})

test('a context file says what was seen: what came since is met, at signing too', async () => {
  post(first, 'It means regular time.')
  const file = join(home, 'context.json')
  const rows = write('rows.ndjson', [{ identifier: first, outcome: 'p2' }])
  const save = async () => writeFileSync(file, (await cli(['context', first, '--json'])).stdout)
  await save()
  post(first, 'No, it does not.')
  const argv = ['batch', 'sign', rows, '--context', file]
  expect(await json([...argv, '--dry-run'])).toMatchObject({ code: 2 })
  expect(await json(argv)).toMatchObject({ code: 2, error: { code: 'rules_changed' } })
  await save()
  const look = await json([...argv, '--dry-run'])
  expect(look.code).toBe(0)
  const age = look.answer.results[0].findings.find(({ id }: { id: string }) => id === 'rules_age')
  expect(age).toMatchObject({ result: 'warn' })
  expect(await json(argv)).toMatchObject({ code: 0, answer: { summary: { signed: 1 } } })
})

test('a row whose rules changed is rejected with exit 2, and the others go on', async () => {
  const { hash } = await rulesOf(first)
  post(first, 'later')
  const rows = write('rows.ndjson', [
    { identifier: first, outcome: 'p2', rules_seen: hash },
    { identifier: second, outcome: 'p2' },
  ])
  const { code, answer, error } = await json(`batch sign ${rows}`)
  expect(code).toBe(2)
  expect(error.code).toBe('rules_changed')
  expect(answer.results.map((one: { outcome: string }) => one.outcome)).toEqual([
    'rejected',
    'signed',
  ])
  const look = await json(`batch sign ${rows} --dry-run`)
  expect(look).toMatchObject({ code: 2, answer: { summary: { rejected: 1 } } })
  // A column of a sheet says the same.
  const sheet = join(home, 'rows.csv')
  writeFileSync(
    sheet,
    `identifier,outcome,rules_seen\n${first},p2,${(await rulesOf(first)).hash}\n`,
  )
  expect(await json(['batch', 'sign', sheet])).toMatchObject({
    code: 0,
    answer: { summary: { signed: 1 } },
  })
})

test('a worksheet has the clarifications and their hash, so that later ones are met', async () => {
  post(first, 'It means\nregular time, no more.')
  const { hash } = await rulesOf(first)
  for (const argv of [
    ['questions', 'list', '--csv', '--source', 'chain'],
    ['batch', 'context', write('ids.ndjson', [{ identifier: first }]), '--csv'],
  ]) {
    const { stdout } = await cli(argv)
    const [head, ...lines] = stdout.trimEnd().split('\r\n')
    const line = lines.find((one) => one.startsWith(first)) ?? ''
    expect(line).toContain('It means regular time, no more.')
    expect(line).toContain(hash)
    writeFileSync(join(home, 'sheet.csv'), `${head}\r\n${line}p2\r\n`)
  }
  post(first, 'later')
  expect(await json(['batch', 'sign', join(home, 'sheet.csv')])).toMatchObject({
    code: 2,
    error: { code: 'rules_changed' },
  })
})

test('a clarification that comes after the contexts were read is met at signing', async () => {
  const rows = write('rows.ndjson', [
    { identifier: first, outcome: 'p2' },
    { identifier: second, outcome: 'p2' },
  ])
  let reads = 0
  const call = chain.call
  const racing = Object.assign(
    { ...chain },
    {
      async call(...asked: Parameters<typeof call>) {
        // getUpdates(bytes32,address): the first two are of the contexts.
        if (asked[0].data.startsWith('0x555c56fc') && ++reads === 3) post(first, 'just now')
        return call(asked[0], reads >= 3 ? chain.head.number : asked[1])
      },
    },
  )
  const ran = await cli(`batch sign ${rows} --json`, { chain: racing })
  expect(reads).toBeGreaterThan(2)
  expect(ran.code).toBe(2)
  expect(errorIn(ran.stderr).code).toBe('rules_changed')
})
