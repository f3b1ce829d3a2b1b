/** Answers in words through the front door (contract §9): never a guess, and the journal first. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { priceOf } from '#protocol/proposal'
import { type BatchWorld, documentOf, errorOf, linesOf, openBatchWorld } from '#support/batch-world'

let world: BatchWorld
beforeEach(async () => {
  world = await openBatchWorld()
})

const teams = ['Porto', 'Benfica'] as const
const sign = (identifier: string, outcome: string, ...more: string[]) =>
  world.run(['sign', identifier, '--outcome', outcome, ...more])
const signedPayload = async (identifier: string, outcome: string) => {
  const ran = await sign(identifier, outcome, '--json')
  expect(ran.code, ran.stderr).toBe(0)
  return JSON.parse(ran.stdout) as {
    journal_id: string
    payload: { outcome: string }
    label: string
    reused: boolean
  }
}
const journal = () => {
  const folder = join(world.home, 'journal')
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((one) => one.isFile())
    .map((one) => readFileSync(join(one.parentPath, one.name), 'utf8'))
    .join('')
}

describe('--outcome', () => {
  test.each([
    ['yes', ['No', 'Yes'], 'p2', 'Yes'],
    ['NO', ['No', 'Yes'], 'p1', 'No'],
    ['yes', ['Yes', 'No'], 'p1', 'Yes'],
    ['porto', teams, 'p1', 'Porto'],
    ['Benfica (p2)', teams, 'p2', 'Benfica'],
    ['P2', teams, 'p2', 'Benfica'],
  ] as const)('%s of %j is %s', async (word, labels, outcome, label) => {
    const { questionId } = world.ask('Who wins?', { labels })
    const signed = await signedPayload(questionId, word)
    expect(signed.payload.outcome).toBe(outcome)
    expect(signed.label).toBe(label)
  })

  test.each([
    ['Sporting', teams, 'bad_outcome', ['"Sporting"', 'Porto (p1), Benfica (p2)']],
    ['yes', teams, 'bad_outcome', ['only where the answers are Yes and No', 'Porto (p1)']],
    ['no', ['No', 'Benfica'], 'bad_outcome', ['No (p1), Benfica (p2)']],
    ['draw', ['Draw', 'DRAW'], 'ambiguous_outcome', ['Draw (p1), DRAW (p2)']],
    ['p1', ['P2', 'P1'], 'ambiguous_outcome', ['P2 (p1), P1 (p2)']],
    ['p4', teams, 'bad_outcome', ['none of p1, p2, p3']],
    ['unknown', teams, 'outcome_not_allowed', ['p3']],
  ] as const)('%s of %j is refused, and nothing is signed', async (word, labels, code, said) => {
    const { questionId } = world.ask('Who wins?', { labels })
    const ran = await sign(questionId, word, '--json')
    expect(ran.code).toBe(2)
    expect(errorOf(ran).code).toBe(code)
    for (const text of said) expect(errorOf(ran).detail).toContain(text)
    expect((await world.run('journal list --json')).stdout).not.toContain('"journal_id"')
    // The form that a screen shows is the way out of what fits two.
    if (code === 'ambiguous_outcome')
      expect((await sign(questionId, `${labels[0]} (p1)`)).code).toBe(0)
  })

  test('every screen says the label first, and outside text cannot act on it', async () => {
    const { questionId } = world.ask('Who wins?', { labels: ['Por\u202eto', 'Benfica'] })
    const shown = await sign(questionId, 'porto', '--dry-run')
    expect(shown.stdout).toContain('answer')
    expect(shown.stdout).toContain('Porto (p1)')
    const submitted = await world.run(`submit ${questionId} --outcome Benfica`)
    expect(submitted.stderr).toContain('Benfica (p2)')
    for (const argv of [
      ['context', questionId],
      ['journal', 'list', '--json'],
    ]) {
      const ran = await world.run(argv)
      expect(ran.stdout, argv.join(' ')).toContain('Benfica')
      expect(ran.stdout).not.toContain('\u202e')
    }
    expect((await world.run(`context ${questionId}`)).stdout).toContain('Porto (p1), Benfica (p2)')
    const refused = await sign(questionId, 'porto')
    expect(refused.code).toBe(5)
    expect(refused.stderr).toContain('Benfica (p2)')
  })
})

const deaf = () => {
  world.intercept.before = async (path) => {
    if (!path.endsWith('signing-data')) return undefined
    const error = { code: 'state_unavailable', detail: 'no context may be asked for' }
    return Response.json({ error }, { status: 503, headers: { 'retry-after': '1' } })
  }
}

test('labels are journaled with the authorization, and a word is matched there first', async () => {
  const { questionId } = world.ask('Who wins?', { labels: teams })
  const first = await signedPayload(questionId, 'p1')
  expect(journal()).toContain('"labels":{"p1":"Porto","p2":"Benfica","p3":"Unknown"}')
  deaf()
  for (const word of ['porto', 'PORTO (p1)', 'p1']) {
    const again = await signedPayload(questionId, word)
    expect(again).toMatchObject({ journal_id: first.journal_id, reused: true, label: 'Porto' })
  }
  world.ndjson('rows.ndjson', [{ identifier: questionId, outcome: 'Porto' }])
  const batch = await world.run('batch submit rows.ndjson --json')
  expect(batch.code, batch.stderr).toBe(0)
  expect(documentOf(batch).results[0]).toMatchObject({
    outcome: 'accepted',
    journal_id: first.journal_id,
  })
})

test('a word that is not its answer asks for the context and is refused by R8', async () => {
  const { questionId } = world.ask('Who wins?', { labels: teams })
  await signedPayload(questionId, 'Porto')
  const other = await sign(questionId, 'Benfica', '--json')
  expect(other.code).toBe(5)
  expect(errorOf(other)).toMatchObject({ code: 'authorization_open' })
  expect(errorOf(other).detail).toContain('Porto (p1)')
  const none = await sign(questionId, 'Sporting', '--json')
  expect([none.code, errorOf(none).code]).toEqual([2, 'bad_outcome'])
})

test('--resume finds a row by its word when the round is over', async () => {
  const { questionId } = world.ask('Who wins?', { labels: teams })
  world.ndjson('rows.ndjson', [{ identifier: questionId, outcome: 'benfica' }])
  expect((await world.run('batch submit rows.ndjson')).code).toBe(0)
  deaf()
  const again = await world.run('batch submit rows.ndjson --resume --json')
  expect([again.code, documentOf(again).summary.accepted]).toEqual([0, 1])
  expect(world.calls).toHaveLength(1)
})

test('a record without labels, as 0.1 wrote them, is found by its key alone; with a context by its word too', async () => {
  const { questionId } = world.ask('Who wins?', { labels: teams })
  const elsewhere = ['--home', join(world.home, 'other'), '--trust', 'trust/default.json']
  expect((await sign(questionId, 'porto', '-o', 'payload.json', ...elsewhere)).code).toBe(0)
  const first = await world.run(`submit ${questionId} payload.json --json`)
  expect(first.code, first.stderr).toBe(0)
  expect(journal()).not.toContain('"labels"')
  const { journal_id } = JSON.parse(first.stdout) as { journal_id: string }
  const byWord = await signedPayload(questionId, 'PORTO')
  expect(byWord).toMatchObject({ journal_id, reused: true, label: null })
  deaf()
  expect(await signedPayload(questionId, 'p1')).toMatchObject({ journal_id, reused: true })
  expect((await sign(questionId, 'porto', '--timeout', '1')).code).toBe(75)
  // One journal_id all the while: nothing was signed again.
  expect((await world.run('journal list --json')).stdout.match(/journal_id/g)).toHaveLength(1)
})

test('words in NDJSON and CSV become the prices of their questions', async () => {
  const [match, rain] = [world.ask('Who wins?', { labels: teams }), world.ask('Will it rain?')]
  world.file('rows.csv', `identifier,outcome\n${match.questionId},benfica\n${rain.questionId},No\n`)
  const ran = await world.run('batch submit rows.csv --json')
  expect(ran.code, ran.stderr).toBe(0)
  expect(world.calls.flatMap(({ items }) => items.map((one) => one.proposed_price))).toEqual([
    priceOf.p2,
    priceOf.p1,
  ])
  const rows = linesOf((await world.run('batch sign rows.csv --ndjson')).stdout)
  expect(rows.slice(0, 2).map(({ outcome }) => outcome)).toEqual(['reused', 'reused'])
})

test('offline the labels are those of a file that hashes to its question, and of no other', async () => {
  const { questionId } = world.ask('Who wins?', { labels: teams })
  const { stdout } = await world.run(`context ${questionId} --json`)
  world.file('context.json', stdout)
  const hex = (text: string) => Buffer.from(text).toString('hex')
  const swapped = stdout.replace(
    hex('p1 corresponds to Porto, p2 to Benfica'),
    hex('p1 corresponds to Benfica, p2 to Porto'),
  )
  expect(swapped).not.toBe(stdout)
  world.file('forged.json', swapped)
  const forged = await sign(questionId, 'Porto', '--context', 'forged.json', '--json')
  expect([forged.code, errorOf(forged).code]).toEqual([2, 'untrusted_ancillary_data'])
  const ran = await sign(questionId, 'Porto', '--context', 'context.json', '--json')
  expect(ran.code, ran.stderr).toBe(0)
  expect(JSON.parse(ran.stdout)).toMatchObject({ payload: { outcome: 'p1' }, label: 'Porto' })
  // Saved bytes are not given for a word that a forged file explains.
  const again = await sign(questionId, 'Benfica', '--context', 'forged.json', '--json')
  expect([again.code, errorOf(again).code]).toEqual([2, 'untrusted_ancillary_data'])
})

test('typed data that was given out is found by the word of its answer', async () => {
  const { questionId } = world.ask('Who wins?', { labels: teams })
  const given = await sign(questionId, 'Benfica', '--typed-data', '--json')
  expect(given.code, given.stderr).toBe(0)
  const document = JSON.parse(given.stdout) as { typed_data: { message: object } }
  expect(JSON.stringify(document.typed_data.message)).toContain(priceOf.p2)
  expect(journal()).toContain('"labels":{"p1":"Porto","p2":"Benfica","p3":"Unknown"}')
  const signature = `0x${'11'.repeat(65)}`
  const wrong = await sign(questionId, 'Porto', '--signature', signature, '--json')
  expect([wrong.code, errorOf(wrong).code]).toEqual([2, 'no_offer'])
  const right = await sign(questionId, 'benfica', '--signature', signature, '--json')
  expect([right.code, errorOf(right).code]).toEqual([2, 'bad_signature'])
})
