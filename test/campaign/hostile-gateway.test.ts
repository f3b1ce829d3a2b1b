/**
 * T11: a gateway that lies in one field, in two at once, and in everything that it can say. Nothing
 * is signed but what our own checks give (R9), nobody else is asked (R21), what names another
 * settles nothing (R7, R8), and no text of its acts on a terminal (R20).
 */
import { authorize } from '#client/propose/sign-rows'
import { gatewayContexts, parseContext } from '#client/trust/context'
import type { Progress } from '#protocol/candidate'
import { ProposerError } from '#protocol/errors'
import { anyGateway } from '#support/any-gateway'
import { argvOf } from '#support/argv'
import { documentOf, executed, failed, openBatchWorld } from '#support/batch-world'
import { figures } from '#support/campaign'
import { atHand, honestTypedData, makeWorld, submitIntent, type World } from '#support/client-world'
import { type Lie, lies, other } from '#support/hostile/lies'
import { acting, evil, leavesOf, mutants, ownMoves, withLeaf } from '#support/hostile/mutants'
import { happySteps } from '#support/scripted-gateway'

const count = { pairs: 0, typed: 0, named: 0, texts: 0 }
afterAll(() => figures('hostile-gateway', count))

async function told(world: World, told: readonly Lie[]): Promise<ProposerError | undefined> {
  const { parts, intent, client } = world.run({
    fetch: async (input, init) => {
      if (!String(input).endsWith('/signing-data')) return world.gateway.fetch(input, init)
      const raw = {
        results: [
          { identifier: intent.identifier, status_code: 200, signing_data: world.gateway.question },
        ],
      }
      return Response.json(raw)
    },
  })
  for (const lie of told) lie(world.gateway.question)
  const contexts = gatewayContexts(client, world.trust, world.clock)
  try {
    await world.clock.drive(
      submitIntent({ ...parts, contexts }, { ...intent, maxAmountRaw: 1_000_000_000n }),
    )
    return undefined
  } catch (error) {
    if (error instanceof ProposerError) return error
    throw error
  }
}

function expectNothingDone(world: World, which: string): void {
  expect(world.signatures, which).toHaveLength(0)
  expect(world.gateway.received, which).toHaveLength(0)
}

describe('R9: what is to be signed', () => {
  test('two at once: one never covers the other', async () => {
    for (const [index, [one, , first]] of lies.entries()) {
      for (const [two, , second] of lies.slice(index + 1)) {
        const world = makeWorld()
        const which = `${one} and ${two}`
        let error: ProposerError | undefined
        try {
          error = await told(world, [first, second])
        } catch (failure) {
          if (failure instanceof TypeError) continue
          throw failure
        }
        expect(error?.meta.exitCode, which).toBe(2)
        expect(error?.code, which).toMatch(
          /^(untrusted_[a-z0-9_]+|outcome_not_allowed|amount_above_cap)$/,
        )
        expectNothingDone(world, which)
        count.pairs++
      }
    }
    expect(count.pairs).toBeGreaterThanOrEqual(500)
  })

  test("a typed_data of the gateway's own, each field of it changed: refused, or the digest is what we built ourselves", async () => {
    const terms = {
      price: '1000000000000000000',
      amount: '750000000',
      nonce: '5',
      deadline: '1760009000',
    }
    const honest = honestTypedData(makeWorld(), terms)
    const sign = async (typed_data: unknown) => {
      const world = makeWorld()
      const { parts, intent } = world.run()
      const wanted = {
        ...intent,
        amountRaw: 750_000_000n,
        nonce: 5n,
        deadlineSeconds: 1_760_009_000n,
      }
      const context = async () =>
        parseContext({ ...world.gateway.question, typed_data }, intent.identifier)
      const error = await world.clock
        .drive(authorize({ ...parts, ...atHand(parts, context) }, wanted))
        .then(
          () => undefined,
          (failure: unknown) => failure as ProposerError,
        )
      return { error, signatures: world.signatures }
    }
    const own = await sign(honest)
    expect(own.error).toBeUndefined()
    let refused = 0
    for (const { path, value } of mutants(honest)) {
      const { error, signatures } = await sign(value)
      count.typed++
      if (error === undefined) expect(signatures, path).toEqual(own.signatures)
      else {
        refused++
        expect(error.code, path).toBe('untrusted_typed_data')
        expect(signatures, path).toHaveLength(0)
      }
    }
    expect(refused).toBeGreaterThan(40)
  })
})

describe('R8, R7: what an answer names', () => {
  const before: Progress[] = [
    { status: 'validated', validatedAtMs: 1 },
    { status: 'selected', validatedAtMs: 1, selectedAtMs: 2, submission: null },
  ]
  const rival = '00000000-0000-4000-8000-00000000000f'

  async function namingWorld(name: string) {
    const world = await openBatchWorld()
    const { questionId, round } = world.ask(name)
    const rows = world.ndjson('rows.ndjson', [{ identifier: questionId, outcome: 'p2' }])
    const { timestamp } = round
    const named = {
      candidate_id: rival,
      question_id: questionId,
      proposer: world.wallet.address,
      outcome: 'p2',
      price: '1000000000000000000',
      request: { question_id: questionId, timestamp },
      identity: { proposer: world.wallet.address },
    }
    const lies = mutants(named).filter(
      ({ path }) => !/ (gone|null)$/.test(path) && !/^candidate_id (?!of another$)/.test(path),
    )
    expect(lies.length).toBeGreaterThan(25)
    const lie = (paths: RegExp, { path, value }: (typeof lies)[number]) => {
      const field = path.replace(/[. ].*/, '')
      const told = { [field]: (value as Record<string, unknown>)[field] }
      world.intercept.after = async (at, answer) => {
        if (!paths.test(at)) return answer
        const body = (await answer.json()) as { results?: { candidate?: object }[] }
        const results = body.results?.map((one) => ({
          ...one,
          candidate: { ...one.candidate, ...told },
        }))
        return json(results === undefined ? { ...body, ...told } : { results }, answer.status)
      }
    }
    const state = async () => {
      const { stdout } = await world.run('journal list --json')
      const { authorizations } = JSON.parse(stdout) as { authorizations: { state: string }[] }
      return authorizations.map((one) => one.state)
    }
    const otherAnswer = () =>
      world.run(argvOf`submit ${questionId} --outcome p1 --amount 750000000raw --json`)
    return { world, questionId, rows, lies, lie, state, otherAnswer }
  }
  const signaturesIn = (calls: readonly { body: string }[]) =>
    new Set(calls.map(({ body }) => /"signature":"(0x[0-9a-f]+)"/.exec(body)?.[1])).size

  test.each([
    ['executed', [...before, executed], 0],
    ['failed for good', [failed('permit_expired', false)], 7],
  ] as const)(
    'a status of one that is %s, with each field that names something changed: 5 candidate_mismatch by every verb, nothing is closed or signed again',
    async (_end, progress, honestCode) => {
      const { world, questionId, rows, lies, lie, state, otherAnswer } = await namingWorld(
        `named ${honestCode}`,
      )
      const sent = await world.run(argvOf`batch submit ${rows} --json`)
      const id = documentOf(sent).results[0]?.candidate?.candidate_id ?? ''
      for (const step of progress) await world.become(id, step)
      const ids = world.ndjson('ids.ndjson', [{ candidate_id: id }])
      const verbs = [
        ['status', id],
        ['poll', id],
        ['poll', '--all'],
        ['batch', 'status', ids],
        argvOf`batch status ${ids} --wait`,
        argvOf`batch submit ${rows} --wait`,
        argvOf`submit ${questionId} --outcome p2 --wait`,
        ['run', rows],
        ['reconcile', questionId],
      ]
      for (const [index, one] of lies.entries()) {
        lie(/status/, one)
        const isPlain = one.path.endsWith(' of another')
        for (const argv of isPlain ? verbs : [verbs[index % verbs.length] ?? []]) {
          const which = `${argv.slice(0, 2).join(' ')}: ${one.path}`
          const ran = await world.run([...argv, '--json'])
          expect(ran.code, `${which} ${ran.stderr}`).toBe(5)
          expect(ran.stderr, which).toContain('candidate_mismatch')
          expect(await state(), which).toEqual(['accepted'])
          count.named++
        }
      }
      const other = await otherAnswer()
      expect(other.code, other.stderr).toBe(5)
      expect(other.stderr).toContain('authorization_open')
      expect(signaturesIn(world.calls)).toBe(1)
      world.intercept = {}
      expect((await world.run(`status ${id} --json`)).code).toBe(honestCode)
      expect(await state()).toEqual(['closed'])
    },
  )

  test('an acknowledgement with each field that names something changed: 5 candidate_mismatch by every verb, the same bytes stay unknown', async () => {
    for (const form of ['single', 'batch']) {
      const { world, questionId, rows, lies, lie, state, otherAnswer } = await namingWorld(form)
      const first =
        form === 'single' ? argvOf`submit ${questionId} --outcome p2` : ['batch', 'submit', rows]
      for (const [index, one] of lies.entries()) {
        const isPlain = one.path.endsWith(' of another') || index % 4 === 0
        if (one.path.startsWith('candidate_id') || !isPlain) continue
        lie(/^\/propose\/batch$|^\/v1\/proposals\/[^/]+$/, one)
        const isNew = (await state()).length === 0
        const ran = await world.run([...(isNew || index % 2 === 0 ? first : ['replay']), '--json'])
        const which = `${form}: ${one.path}`
        expect(ran.code, `${which} ${ran.stderr}`).toBe(5)
        expect(ran.stderr + ran.stdout, which).toContain('candidate_mismatch')
        expect(await state(), which).toEqual(['unknown'])
        count.named++
      }
      expect((await otherAnswer()).code).toBe(5)
      expect(signaturesIn(world.calls)).toBe(1)
      world.intercept = {}
      expect((await world.run('replay --json')).code).toBe(0)
      expect(await state()).toEqual(['accepted'])
    }
  })

  test('one candidate id for several rows, or one that another authorization has: those rows are unknown and are replayed', async () => {
    const world = await openBatchWorld()
    const questions = ['first', 'second', 'third', 'fourth'].map((name) => world.ask(name))
    const rows = questions.map(({ questionId: identifier }) => ({ identifier, outcome: 'p2' }))
    const known = await world.run(argvOf`batch submit
      ${world.ndjson('one.ndjson', rows.slice(0, 1))} --json`)
    const taken = documentOf(known).results[0]?.candidate?.candidate_id
    const shared: Record<string, (string | undefined)[]> = {
      'of another authorization': [taken, undefined, undefined],
      'of two rows, in two spellings': [rival, rival.toUpperCase(), undefined],
    }
    const input = world.ndjson('more.ndjson', rows.slice(1))
    for (const [which, ids] of Object.entries(shared)) {
      world.intercept.after = async (path, answer) => {
        if (path !== '/propose/batch') return answer
        const { results } = (await answer.json()) as { results: { candidate?: object }[] }
        const told = results.map((one, at) => ({
          ...one,
          candidate: { ...one.candidate, ...(ids[at] && { candidate_id: ids[at] }) },
        }))
        return json({
          results:
            told.length === 3
              ? told
              : told.map((one) => ({
                  ...one,
                  candidate: { ...one.candidate, candidate_id: taken },
                })),
        })
      }
      const ran = await world.run(argvOf`batch submit ${input} --json`)
      expect(ran.code, `${which} ${ran.stderr}`).toBe(6)
      const expected = ids.map((id) => (id === undefined ? 'accepted' : 'unknown'))
      const outcomes = documentOf(ran).results.map(({ outcome }) => outcome)
      expect(
        outcomes.map((one) => one.replace('replayed', 'accepted')),
        which,
      ).toEqual(which.startsWith('of two') ? ['unknown', 'accepted', 'accepted'] : expected)
      count.named++
    }
    world.intercept = {}
    const replayed = await world.run('replay --json')
    expect(replayed.code, replayed.stderr).toBe(0)
    const { stdout } = await world.run('journal list --json')
    const { authorizations } = JSON.parse(stdout) as { authorizations: { candidate_id: string }[] }
    expect(new Set(authorizations.map((one) => one.candidate_id)).size).toBe(4)
    expect(
      signaturesIn(
        world.calls.flatMap(({ items }) => items.map((item) => ({ body: JSON.stringify(item) }))),
      ),
    ).toBe(4)
  })
})

const json = (body: unknown, status = 200) => Response.json(body, { status })

test('R20, R21: every text in every answer, with all that could act on a terminal, comes out as harmless characters, and nobody else is asked', async () => {
  const world = await anyGateway()
  const { question } = world.gateway
  await world.ask(argvOf`submit will-it-hold --outcome p2 --json`)
  const id = (await world.journaled())[0]?.candidate_id ?? ''
  for (const change of happySteps) world.gateway.become(id, change)
  world.gateway.become(id, {
    failure: {
      stage: 'validation',
      code: 'simulation_reverted',
      detail: 'why',
      retryable: true,
      can_resubmit: true,
      next_action: 'wait',
    },
  })
  const { question_id } = question
  const row = { identifier: question_id, outcome: 'p1', client_ref: 'mine' }
  const rows = world.file('rows.ndjson', `${JSON.stringify(row)}\n`)
  const commands = [
    ['status', id],
    argvOf`poll ${id} --timeout 1`,
    ['context', question_id],
    ['eligibility', other('1')],
    argvOf`submit ${question_id} --outcome p1`,
    ['batch', 'submit', rows],
    ['reconcile', question_id],
    argvOf`journal export --csv`,
    ['journal', 'list'],
  ]
  const refusals = [400, 403, 404, 409, 422, 429, 503].map(
    (status) => () =>
      json({ error: { code: evil, detail: evil }, errors: [{ path: evil, code: evil }] }, status),
  )
  for (const argv of commands) {
    const texts = new Set<string>()
    world.answers = (_route, body) => {
      for (const { path, value } of leavesOf(body)) if (typeof value === 'string') texts.add(path)
      return body
    }
    await world.ask([...argv, '--dry-run', '--json'])
    await world.ask([...argv, '--json'])
    const poisons: readonly ((body: unknown) => unknown)[] = [
      ...[...texts].flatMap((path) => [
        (body: unknown) => withLeaf(body, path, (value) => `${String(value)}${evil}`),
        (body: unknown) => withLeaf(body, path, () => evil),
      ]),
      ...refusals,
    ]
    for (const [index, poison] of poisons.entries()) {
      world.answers = (_route, body) => poison(body)
      const isText = index % 3 > 0 || argv[0] === 'journal'
      const { code, stdout, stderr } = await world.ask(
        isText ? argv : [...argv, '--json'],
        isText ? { columns: 80 } : {},
      )
      expect(code, argv.join(' ')).not.toBe(1)
      expect(stdout.replace(ownMoves, ''), argv.join(' ')).not.toMatch(acting)
      expect(stderr, argv.join(' ')).not.toMatch(acting)
      count.texts++
    }
  }
  expect(count.texts).toBeGreaterThan(150)
  expect([...world.asked]).toEqual([`${new URL(world.gateway.url).host} manual`])
})
