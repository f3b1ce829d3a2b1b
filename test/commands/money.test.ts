/**
 * What a person reads about money before and after signing it: amounts, answers, what was admitted,
 * what comes next (contract §6).
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { builtInProfile } from '#chain/profiles'
import type { Address } from '#protocol/schema'
import {
  type Argv,
  answerOf,
  lastErrorOf,
  type RunOptions,
  run,
  wordsOf,
  writeTrust,
} from '#support/cli'
import { type Desk, openDesk } from '#support/desk'
import {
  bondRaw,
  pins,
  questionContext,
  type ScriptedGateway,
  scriptedGateway,
} from '#support/scripted-gateway'

/** Long enough to be shown in part: what the answers mean stands at its end. */
const longTitle = `Will it hold? ${'It may or it may not. '.repeat(60)}`

let { home, gateway, env } = {} as Desk
beforeEach(async () => {
  ;({ home, gateway, env } = await openDesk())
})

/** Points the command line at this gateway, and trust at its question. */
function open(opened: ScriptedGateway, tokens: readonly string[] = pins.tokens): void {
  gateway = opened
  const slugs = { 'will-it-hold': gateway.question.question_id }
  writeTrust(home, { ...pins, tokens, slugs })
  env = { ...env, PROPOSER_GATEWAY: gateway.url }
}

const ask = (argv: Argv, more: RunOptions = {}) =>
  run(home, argv, { env, fetch: gateway.fetch, ...more })
const sign = ['sign', 'will-it-hold', '--outcome', 'p2']
const submit = ['submit', 'will-it-hold', '--outcome', 'p2']
const candidate = '00000000-0000-4000-8000-000000000001'

test.each([
  ['no connection', 'no-connection' as const, 'connection refused'],
  ['a gateway that is busy', { status: 503, code: 'server_busy' }, 'as the test wants it'],
])(
  'contract §1: %s after the acknowledgement: it is admitted already, and the hint follows its candidate',
  async (_name, fault, what) => {
    const { journal_id } = answerOf(await ask([...submit, '--json']))
    gateway.faults.push(...Array.from({ length: 8 }, () => fault))
    const ran = await ask([...submit, '--json', '--timeout', '0.05'])
    expect(ran.code).toBe(75)
    expect(lastErrorOf(ran)).toMatchObject({
      hint: expect.stringContaining(`\`proposer poll ${candidate}`),
    })
    expect(lastErrorOf(ran).detail).toBe(
      `${journal_id} is admitted already as ${candidate}; sent again, it was deferred: ${what}`,
    )
    expect(ran.stderr).not.toContain('was not admitted')
  },
)

test.each([
  [422, 'permit_deadline_too_soon', 3],
  [404, 'question_not_found', 3],
  [403, 'proposer_not_eligible', 4],
])(
  'R7, R8: %s %s after the acknowledgement is refused with its code, and no advice to sign again',
  async (status, code, exit) => {
    const { journal_id } = answerOf(await ask([...submit, '--json']))
    gateway.faults.push({ status, code })
    const ran = await ask([...submit, '--json'])
    expect(ran.code).toBe(exit)
    expect(lastErrorOf(ran)).toMatchObject({
      code,
      hint: expect.stringContaining(`\`proposer poll ${candidate}`),
    })
    expect(lastErrorOf(ran).detail).toMatch(
      new RegExp(
        `^${journal_id} is admitted already as ${candidate}; sent again, the same bytes were refused: `,
      ),
    )
    expect(ran.stderr).not.toContain('sign anew')
  },
)

test('contract §1: an answer that is lost after the acknowledgement leaves nothing unknown (exit 75, not 6)', async () => {
  answerOf(await ask([...submit, '--json']))
  gateway.faults.push(...Array.from({ length: 8 }, () => ({ status: 502, code: 'x', html: true })))
  const ran = await ask([...submit, '--json', '--timeout', '0.05'])
  expect(ran.code).toBe(75)
  expect(lastErrorOf(ran).detail).toContain(`is admitted already as ${candidate}`)
})

test.each([
  ['accepted', []],
  ['executed', ['--wait']],
])(
  'contract §9: submit says three lines: title, answer and amount, where it stands (%s)',
  async (state, more) => {
    gateway.steps.push({ status: 'executed' })
    const ran = await ask([...submit, ...more])
    const lines = ran.stderr.split('\n').filter((line) => !/^note:|^ {2}/.test(line))
    expect(lines[0]).toBe('Will it hold?')
    expect(lines[1]).toMatch(/^Yes \(p2\), [\d,]+ \(raw units\)$/)
    const third = `${state} ${candidate} \\(journal [0-9a-f]{12}-1\\)`
    expect(ran.stdout.replace(/\n {2}/, ' ')).toMatch(
      new RegExp(`^${third}( in transaction \\S+)?\n$`),
    )
  },
)

test('contract §9: saved bytes that are sent again are told by question, answer and amount, too', async () => {
  await ask(submit)
  const again = await ask(submit)
  expect(again.stdout).toMatch(
    new RegExp(`^will-it-hold\nYes \\(p2\\), [\\d,]+ \\(raw units\\)\nreplayed ${candidate} `),
  )
})

test('contract §6: replay too', async () => {
  gateway.faults.push('lost-answer', ...Array.from({ length: 8 }, () => 'no-connection' as const))
  expect((await ask([...submit, '--timeout', '0.5'])).code).toBe(6)
  gateway.faults.length = 0
  const ran = await ask('replay --all')
  expect(ran.stdout).toMatch(new RegExp(`^replayed\\s+${candidate}$`, 'm'))
  expect(ran.stdout).toMatch(/^journal\s+[0-9a-f]{12}-1$/m)
})

describe('poll', () => {
  test('a candidate that the gateway does not know is unknown, not on its way', async () => {
    const ran = await ask(['poll', candidate, '--question', gateway.question.question_id])
    expect(ran.code).toBe(3)
    expect(ran.stdout).toBe(
      `${'CANDIDATE'.padEnd(38)}STATE\n${candidate}  unknown\n1 candidate: 1 unknown\n`,
    )
  })
})

describe('journal list --open', () => {
  test('with nothing but closed ones counts these, instead of an empty journal', async () => {
    expect((await ask('journal list --open')).stdout).toBe('the journal is empty\n')
    gateway.faults.push({ status: 422, code: 'invalid_amount' })
    expect((await ask(submit)).code).toBe(3)
    expect((await ask('journal list --open')).stdout).toBe(
      'nothing matches; the journal holds 1 authorization\n',
    )
  })
})

test.each([
  [
    '--max-amount',
    ['--headroom', '900', '--max-amount', '1000000000raw'],
    'from 7500000000 (raw units) to 1000000000',
    '--max-amount',
  ],
  [
    'the cap of unconfirmed bonds',
    ['--headroom', '900'],
    'from 7500000000 (raw units) to 5000000000',
    '--rpc-url',
  ],
])(
  '§6: %s cuts the headroom, and a note says so before the signature',
  async (_name, flags, cut, why) => {
    const ran = await ask([...sign, ...flags, '--dry-run', '--json'])
    const { notes } = answerOf(ran) as { notes: string[] }
    expect(notes.filter((one) => one.includes(cut) && one.includes(why))).toHaveLength(1)
    expect((await ask([...sign, ...flags])).stderr).toContain(`note: the headroom is cut: ${cut}`)
  },
)

test('headroom that fits is not remarked on', async () => {
  expect((await ask([...sign, '--headroom', '10'])).stderr).not.toContain('headroom')
})

test('sign shows how its text begins and what its answers mean, and names what shows the whole', async () => {
  open(scriptedGateway(questionContext(longTitle)))
  const { stderr } = await ask(sign, { columns: 100 })
  const plain = stderr.replace(/\s+/g, ' ')
  expect(plain).toContain('q: title: Will it hold?')
  expect(plain).toContain(
    'res_data: p1: 0, p2: 1, p3: 0.5. Where p1 corresponds to No, p2 to Yes, p3 to unknown.',
  )
  const left = `q: title: ${longTitle}, description: d,`.length - 399
  expect(plain).toContain(
    `[${left} characters left out; the whole text: \`proposer context will-it-hold\`]`,
  )
  expect(plain.length).toBeLessThan(2_500)
})

test('a text that ends in one of endless length is cut at both ends', async () => {
  open(
    scriptedGateway(
      questionContext(`${longTitle} res_data: p1: 0, p2: 1 ${'and so on '.repeat(500)}`),
    ),
  )
  expect((await ask(sign)).stderr.length).toBeLessThan(3_500)
})

test('context shows the whole text', async () => {
  open(scriptedGateway(questionContext(longTitle)))
  const { stdout } = await ask('context will-it-hold')
  expect(stdout.replace(/\s+/g, ' ')).toContain(`q: title: ${longTitle.replace(/\s+/g, ' ')}`)
})

describe('amounts', () => {
  const polygon = builtInProfile('polygon')
  const [usdc = pins.tokens[0]] = polygon?.tokens ?? []

  /** The scripted question, with the bond in the token that everybody knows. */
  function inKnownToken(): void {
    const question = questionContext('Will it hold?')
    question.bond.token = usdc as Address
    question.signing.chain_id = 137
    open(scriptedGateway(question), [usdc as Address])
    const slugs = { 'will-it-hold': question.question_id }
    const trust = { ...pins, chain_id: 137, tokens: [usdc], slugs }
    writeTrust(home, trust)
  }

  test.each([
    ['context', ['context', 'will-it-hold']],
    ['sign --dry-run', [...sign, '--dry-run']],
  ])(
    '%s: a token that is known by its address has name and decimals, without a node',
    async (_name, argv) => {
      inKnownToken()
      expect((await ask(argv)).stdout).toContain('750 USDC.e (750000000 raw)')
    },
  )

  test('submit says what it authorizes, and the journal says it afterwards', async () => {
    inKnownToken()
    expect((await ask(submit)).stderr).toContain('Yes (p2), 750 USDC.e\n')
    const listed = (await ask('journal list')).stdout
    expect(listed).toMatch(/ 750 USDC\.e /)
    const [id = ''] = /[0-9a-f]{12}-1/.exec(listed) ?? []
    expect((await ask(`journal show ${id}`)).stdout).toMatch(
      /authorizes\s+750 USDC\.e \(750000000 raw\)/,
    )
  })

  test.each([
    [
      '--amount',
      [...sign, '--amount', '100usdc'],
      'the amount, 100 USDC.e, is less than the bond, which is 750 USDC.e now',
    ],
    [
      '--max-amount',
      [...sign, '--max-amount', '100usdc'],
      'the required bond is 750 USDC.e), the cap is 100 USDC.e',
    ],
    [
      '--headroom',
      [...sign, '--headroom', '900', '--max-amount', '1000usdc'],
      'the headroom is cut: from 7,500 USDC.e to 1,000 USDC.e',
    ],
    [
      '--max-spend',
      ['batch', 'sign', 'rows.csv', '--max-spend', '100usdc'],
      'would authorize 750 USDC.e, --max-spend is 100 USDC.e',
    ],
  ])('contract §9: what is refused or cut by %s is told in tokens', async (_name, argv, says) => {
    inKnownToken()
    writeFileSync(join(home, 'rows.csv'), 'identifier,outcome\nwill-it-hold,p2\n')
    expect((await ask(argv)).stderr).toContain(says)
  })

  test('a token that nobody knows stays in raw units', async () => {
    expect((await ask([...sign, '--dry-run'])).stdout).toMatch(
      /authorizes\s+750000000 \(raw units\)/,
    )
  })

  test('a context file has no say in how the amount of a known token is written', async () => {
    inKnownToken()
    const lie = { ...gateway.question, token: { address: usdc, symbol: 'USDC.e', decimals: 9 } }
    writeFileSync(join(home, 'context.json'), JSON.stringify(lie))
    expect((await ask([...sign, '--context', 'context.json', '--dry-run'])).stdout).toContain(
      '750 USDC.e (750000000 raw)',
    )
  })
})

test('authorization_open names the answer, not its price', async () => {
  answerOf(await ask([...sign, '--json', '--quiet']))
  const ran = await ask('sign will-it-hold --outcome p1 --json')
  expect(lastErrorOf(ran)).toMatchObject({ code: 'authorization_open', exit_code: 5 })
  expect(lastErrorOf(ran).detail).toContain('(p2)')
  expect(lastErrorOf(ran).detail).not.toContain('1000000000000000000')
})

const hintOf = async (argv: Argv, more: RunOptions = {}) =>
  lastErrorOf(await ask([...wordsOf(argv), '--json'], more)).hint

test('an amount below the bond: the amount, and nothing of the deadline', async () => {
  expect(await hintOf([...sign, '--amount', '1raw'])).toBe(
    `give --amount ${bondRaw}raw or more, or leave it out`,
  )
})

test('a deadline given as a span that is too near is answered in spans', async () => {
  const ran = await ask([...sign, '--deadline', '2m', '--json'])
  expect(lastErrorOf(ran)).toMatchObject({
    code: 'permit_deadline_too_soon',
    hint: expect.stringContaining('--deadline 6m'),
  })
  expect(lastErrorOf(ran).detail).toMatch(/\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ \(unix \d{10}\)/)
})

test('a key that is missing: how one is made, listed and named', async () => {
  const { PROPOSER_GATEWAY = '' } = env
  env = { PROPOSER_GATEWAY }
  const hint = await hintOf(sign)
  for (const part of ['`proposer account new <name>`', '--account <name>', 'account list`'])
    expect(hint).toContain(part)
})

test('a gateway that is no URL: its form, not another flag', async () => {
  expect(await hintOf('config set gateway nonsense')).toMatch(/^give it as https:/)
})

test('a slug under a built-in profile: how there comes to be a file that can pin it', async () => {
  expect(await hintOf('reconcile some-slug --profile dev')).toContain(
    'of the trust file (`proposer trust init` makes one)',
  )
})

test('conformance without a gateway asks for one before it asks for pins', async () => {
  env = {}
  const ran = await ask('conformance --json --profile polygon')
  expect(lastErrorOf(ran)).toMatchObject({ code: 'no_gateway', exit_code: 2 })
})

test('a refusal without named fields: no sentence that says nothing', async () => {
  gateway.faults.push({ status: 404, code: 'question_not_found' })
  const hint = await hintOf(submit)
  expect(hint).not.toContain('fix what the detail names')
})
