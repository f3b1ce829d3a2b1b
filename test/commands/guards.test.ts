/**
 * What stands between a person and a mistake that costs money: caps, payloads in the wrong place,
 * what was not checked, what is shown.
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Fetch } from '#ports'
import { version } from '#protocol/words'
import { type Argv, answerOf, errorOf, type RunOptions, run, writeTrust } from '#support/cli'
import { type Desk, openDesk, proposer, sign, submit } from '#support/desk'
import { ask as askQuestion, createFakeChain, endow, questionText } from '#support/fake-chain'
import { fakeTrust } from '#support/fake-world'
import { temporaryFolder } from '#support/folders'
import { bondRaw, pins, questionContext } from '#support/scripted-gateway'

const otherQuestion = questionContext('And this one?').question_id

let { home, gateway, env } = {} as Desk
beforeEach(async () => {
  ;({ home, gateway, env } = await openDesk())
})

const ask = (argv: Argv, more: RunOptions = {}) =>
  run(home, argv, { env, fetch: gateway.fetch, ...more })
const listed = async () =>
  answerOf(await ask('journal list --json')).authorizations as Record<string, unknown>[]

/** A gateway that names this bond. */
function lyingBond(raw: string): void {
  gateway.question.bond.required_bond = raw
}

test.each([
  ['sign', sign],
  ['submit', submit],
])(
  'robustness §7: of more than 5,000,000,000 raw units: %s exits 2, names the number and the cap, and signs and sends nothing',
  async (_name, argv) => {
    lyingBond('5000000001')
    const ran = await ask(argv)
    expect(ran.code).toBe(2)
    expect(errorOf(ran)).toMatchObject({
      code: 'amount_above_cap',
      hint: expect.stringMatching(/--max-amount.*--rpc-url/),
    })
    expect(errorOf(ran).detail).toContain('5000000001')
    expect(errorOf(ran).detail).toContain('5000000000')
    expect(gateway.received).toEqual([])
    expect(await listed()).toEqual([])
  },
)

test('robustness §7: of exactly that is signed; headroom on it yields to the cap', async () => {
  lyingBond('5000000000')
  expect(answerOf(await ask([...sign, '--headroom', '5']))).toMatchObject({
    payload: { permit: { amount: '5000000000' } },
  })
})

test.each([
  ['--max-amount', ['--max-amount', '6000000000raw'], {}, undefined],
  ['PROPOSER_MAX_AMOUNT', [], { PROPOSER_MAX_AMOUNT: '6000000000' }, undefined],
  ['max-amount of the profile', [], {}, '6000000000'],
])(
  'contract §6: %s overrides the cap, upwards and downwards',
  async (_name, flags, more, stored) => {
    env = { ...env, ...(more as Record<string, string>) }
    if (stored !== undefined) answerOf(await ask(['config', 'set', 'max-amount', stored, '--json']))
    lyingBond('6000000001')
    const refused = await ask([...sign, ...flags])
    expect(errorOf(refused)).toMatchObject({ code: 'amount_above_cap', exit_code: 2 })
    expect(errorOf(refused).detail).toContain('the cap is 6000000000')
    lyingBond('6000000000')
    expect(answerOf(await ask([...sign, ...flags]))).toMatchObject({
      payload: { permit: { amount: '6000000000' } },
    })
  },
)

test('contract §6: a flag wins over the variable, the variable over the profile', async () => {
  answerOf(await ask('config set max-amount 1 --json'))
  expect(errorOf(await ask(sign))).toMatchObject({ code: 'amount_above_cap' })
  env = { ...env, PROPOSER_MAX_AMOUNT: '2' }
  expect(errorOf(await ask(sign)).detail).toContain('the cap is 2')
  expect((await ask([...sign, '--max-amount', `${bondRaw}raw`])).code).toBe(0)
})

test.each(['1.5', '-1', 'much', `${2n ** 256n}`])(
  'contract §6: a cap of %j is refused wherever it stands',
  async (value) => {
    expect(errorOf(await ask([...sign, '--max-amount', value]))).toMatchObject({
      code: 'bad_number',
      exit_code: 2,
    })
    expect(
      errorOf(await ask(['config', 'set', 'max-amount', '--json', '--', value])),
    ).toMatchObject({ code: 'bad_number', exit_code: 2 })
    env = { ...env, PROPOSER_MAX_AMOUNT: value }
    const ran = await ask(sign)
    expect(errorOf(ran)).toMatchObject({ code: 'bad_number', exit_code: 2 })
    expect(errorOf(ran).detail).toContain('PROPOSER_MAX_AMOUNT')
  },
)

test('robustness §7: a context file is no proof, whatever it says of its source', async () => {
  const json = {
    ...gateway.question,
    bond: { ...gateway.question.bond, required_bond: '5000000001' },
    source: 'chain',
  }
  writeFileSync(join(home, 'context.json'), JSON.stringify(json))
  expect(errorOf(await ask([...sign, '--context', 'context.json']))).toMatchObject({
    code: 'amount_above_cap',
  })
})

describe('contract §6: what no chain has checked', () => {
  const all = ['round', 'bond', 'nonce', 'balance', 'allowance', 'implementations']

  test('is listed by sign and submit where no RPC is named, also for saved bytes and for a payload', async () => {
    const signed = answerOf(await ask(sign))
    expect(signed.unchecked).toEqual(all)
    expect(answerOf(await ask(submit)).unchecked).toEqual(all)
    const foreign = temporaryFolder()
    writeTrust(foreign, pins)
    const payload = JSON.stringify(signed.payload)
    const sent = await run(foreign, ['submit', gateway.question.question_id, '-', '--json'], {
      env,
      fetch: gateway.fetch,
      stdin: payload,
    })
    expect(answerOf(sent).unchecked).toEqual(all)
  })

  test('is nothing with an RPC; the cap does not hold then, and saved bytes still tell how they were checked', async () => {
    const chain = createFakeChain()
    const question = askQuestion(chain, questionText('Will it hold?'))
    endow(chain, proposer, 10n ** 12n)
    chain.mine(3)
    writeTrust(home, fakeTrust)
    env = { PROPOSER_KEY_FILE: join(home, 'key'), PROPOSER_RPC_URL: 'http://127.0.0.1:1' }
    const head = await chain.block('latest')
    const nowMs = Number(head?.timestamp ?? 0n) * 1_000
    const clock = {
      nowMs: () => nowMs,
      monotonicMs: () => performance.now(),
      sleep: async () => undefined,
    }
    const argv = ['sign', question, '--outcome', 'p2', '--json']
    const large = ['--amount', '6000000000raw']
    expect(answerOf(await ask([...argv, ...large, '--dry-run'], { chain, clock }))).toMatchObject({
      amount: '6000000000',
      unchecked: [],
    })
    expect(answerOf(await ask([...argv, ...large], { chain, clock }))).toMatchObject({
      reused: false,
      unchecked: [],
    })
    expect(answerOf(await ask([...argv, ...large], { chain, clock }))).toMatchObject({
      reused: true,
      unchecked: [],
    })
  })
})

describe('contract §6: prompts', () => {
  test('sign and submit show what is signed and ask nobody, on a terminal either', async () => {
    const signed = await ask('sign will-it-hold --outcome p2', { interactive: true })
    expect(signed.code).toBe(0)
    expect(signed.stderr).toContain('Yes (p2)')
    expect(signed.stderr).not.toContain('[y/N]')
    const sent = await ask('submit will-it-hold --outcome p2', { interactive: true })
    expect(sent.code).toBe(0)
    expect(sent.stderr).not.toContain('[y/N]')
  })
})

describe('R7: a payload that belongs elsewhere', () => {
  const signedBy = async (...more: string[]) =>
    (await ask(['sign', 'will-it-hold', '--outcome', 'p2', '-o', '-', ...more])).stdout
  const send = (identifier: string, stdin: string, ...more: string[]) =>
    ask(['submit', identifier, '-', '--json', ...more], { stdin })

  test.each([
    ['the very bytes', (body: string) => body],
    [
      'its signature',
      (body: string) => JSON.stringify({ ...JSON.parse(body), outcome: 'p1' }, null, 1),
    ],
    [
      'its signature under another nonce',
      (body: string) =>
        JSON.stringify({ ...JSON.parse(body), permit: { ...JSON.parse(body).permit, nonce: '5' } }),
    ],
  ])(
    'that the journal holds for another question, %s: exit 2, nothing sent, nothing journaled',
    async (_name, change) => {
      const body = await signedBy()
      const before = await listed()
      for (const more of [[], ['--dry-run']]) {
        const ran = await send(otherQuestion, change(body), ...more)
        expect(errorOf(ran)).toMatchObject({
          code: 'payload_of_other_question',
          exit_code: 2,
          hint: expect.stringContaining('will-it-hold'),
        })
        expect(errorOf(ran).detail).toContain(gateway.question.question_id)
      }
      expect(gateway.received).toEqual([])
      expect(await listed()).toEqual(before)
      expect(answerOf(await send('will-it-hold', body))).toMatchObject({ outcome: 'accepted' })
    },
  )

  test.each([
    ['outcome', (body: object) => ({ ...body, outcome: 'p1' })],
    [
      'amount',
      (body: { permit?: object }) => ({ ...body, permit: { ...body.permit, amount: '750000001' } }),
    ],
    [
      'deadline',
      (body: { permit?: object }) => ({
        ...body,
        permit: { ...body.permit, deadline: '9999999999' },
      }),
    ],
  ])(
    'R6: with the nonce of a journaled authorization and another %s: exit 2 naming it, nothing sent',
    async (field, change) => {
      const body = await signedBy()
      const [{ journal_id }] = (await listed()) as [{ journal_id: string }]
      // Signed anew for what it says now.
      const changed = JSON.stringify({
        ...change(JSON.parse(body)),
        signature: `0x${'ab'.repeat(65)}`,
      })
      const ran = await send('will-it-hold', changed)
      expect(errorOf(ran)).toMatchObject({ code: 'payload_changed', exit_code: 2 })
      expect(errorOf(ran).detail).toContain(journal_id)
      expect(errorOf(ran).detail).toContain(field)
      const elsewhere = await send(otherQuestion, changed)
      expect(errorOf(elsewhere)).toMatchObject({ code: 'payload_changed', exit_code: 2 })
      expect(errorOf(elsewhere).detail).toContain('question')
      expect(gateway.received).toEqual([])
      expect(await listed()).toHaveLength(1)
    },
  )

  test('R6: with the nonce of typed data that a wallet outside holds, and another amount: exit 2 naming it', async () => {
    env = { PROPOSER_GATEWAY: gateway.url }
    const given = answerOf(await ask([...sign, '--proposer', proposer, '--typed-data'])) as {
      journal_id: string
      typed_data: { message: { nonce: string; deadline: string } }
    }
    const { nonce, deadline } = given.typed_data.message
    const permit = { amount: '750000001', nonce, deadline }
    const payload = {
      version,
      proposer,
      outcome: 'p2',
      max_payment: '0',
      permit,
      signature: `0x${'ab'.repeat(65)}`,
    }
    const ran = await send('will-it-hold', JSON.stringify(payload))
    expect(errorOf(ran)).toMatchObject({ code: 'payload_changed', exit_code: 2 })
    expect(errorOf(ran).detail).toContain(given.journal_id)
    expect(gateway.received).toEqual([])
  })

  test('R22: the same authorization in another encoding of its signature is no other authorization', async () => {
    const body = JSON.parse(await signedBy()) as { signature: string }
    const s =
      BigInt(`0x${body.signature.slice(66, 130)}`) |
      (body.signature.endsWith('1c') ? 1n << 255n : 0n)
    const compact = {
      ...body,
      signature: `${body.signature.slice(0, 66)}${s.toString(16).padStart(64, '0')}`,
    }
    expect(errorOf(await send('will-it-hold', JSON.stringify(compact)))).toMatchObject({
      code: 'authorization_open',
      exit_code: 5,
    })
  })

  test('spec §7: a 403 for the signature says that the payload may be for another question or round', async () => {
    gateway.faults.push(
      { status: 403, code: 'signature_not_authorized' },
      { status: 403, code: 'proposer_not_eligible' },
    )
    expect(errorOf(await ask(submit)).hint).toContain('another question or round')
    expect(errorOf(await ask(submit)).hint).toContain('ask the operator')
  })
})

test.each([
  ['amount', ['--amount', '750000001raw'], '750000001'],
  ['nonce', ['--nonce', '5'], '5'],
  ['deadline', ['--deadline', '9999999999'], '9999999999'],
])(
  'contract §6: for the same outcome with another %s it names the field and both values',
  async (field, flags, wanted) => {
    const signed = answerOf(await ask(sign)) as { payload: { permit: Record<string, string> } }
    const ran = await ask([...sign, ...flags])
    expect(errorOf(ran)).toMatchObject({ code: 'authorization_open', exit_code: 5 })
    expect(errorOf(ran).detail).toContain(`${field} ${signed.payload.permit[field]}, not ${wanted}`)
  },
)

test('contract §6: for typed data that a wallet outside holds it names the field too', async () => {
  env = { PROPOSER_GATEWAY: gateway.url }
  const given = [...sign, '--proposer', proposer, '--typed-data']
  answerOf(await ask(given))
  const ran = await ask([...given, '--amount', '750000001raw'])
  expect(errorOf(ran)).toMatchObject({ code: 'authorization_open', exit_code: 5 })
  expect(errorOf(ran).detail).toContain(`amount ${bondRaw}, not 750000001`)
})

const refusing =
  (errors: unknown): Fetch =>
  async (input, init) => {
    const { method, url } = new Request(input, init)
    if (method !== 'POST' || url.includes('/propose/')) return gateway.fetch(input, init)
    return Response.json(
      { error: { code: 'schema_violation', detail: 'the body has the wrong shape' }, errors },
      { status: 422 },
    )
  }

test('spec §7: reach --json as they are, and people in the hint', async () => {
  const errors = [
    { path: 'permit.amount', code: 'uint256' },
    { path: '', code: 'unrecognized_keys' },
  ]
  const ran = await ask(submit, { fetch: refusing(errors) })
  expect(errorOf(ran)).toMatchObject({ code: 'schema_violation', exit_code: 3, errors })
  const shown = await ask('submit will-it-hold --outcome p2', {
    fetch: refusing(errors),
  })
  expect(shown.stderr).toContain(
    'hint: fix what the detail names, then retry (permit.amount: uint256; the body: unrecognized_keys)',
  )
})

test('R5, R20: of a hostile gateway stay harmless, and as many as a person reads', async () => {
  const errors = Array.from({ length: 150 }, (_, at) => ({
    path: `p${at}\u001b[2J0x${'ab'.repeat(65)}`,
    code: 'x'.repeat(150),
  }))
  const ran = await ask(submit, { fetch: refusing(errors) })
  expect(ran.stderr).not.toContain('x'.repeat(101))
  expect(ran.stderr).not.toContain('ab'.repeat(65))
  expect(errorOf(ran).errors).toHaveLength(50)
  const shown = await ask('submit will-it-hold --outcome p2', {
    fetch: refusing(errors),
  })
  expect(shown.stderr).not.toContain('\u001b')
  expect(shown.stderr).toContain('45 more')
})

test
  .skipIf(process.platform !== 'linux')
  .each([
    [['config', 'set', 'account', 'hot']],
    [['account', 'new', 'hot', '--password-file', 'password']],
    [['sign', 'will-it-hold', '--outcome', 'p2', '--trust', 'trust/default.json']],
    [['trust', 'init', '--from', 'trust/default.json']],
    [['devchain', '--port', '0', '--questions', '0', '--write', '/proc/x/y']],
  ])('robustness §2: %j under /proc ends at once with 2 or 74', async (argv) => {
  writeFileSync(join(home, 'password'), 'correct horse\n', { mode: 0o600 })
  const ran = await ask([...argv, '--home', '/proc/x', '--json'])
  expect([2, 74]).toContain(ran.code)
  expect(errorOf(ran)).toMatchObject({ hint: expect.stringMatching(/\w/) })
})
