import type { RegistryEntry } from '#chain/questions'
import { foldLedger, openLedger, storeLog } from '#gateway/ledger/writer'
import { mergedRegistry } from '#gateway/operator/registry'
import {
  createOperatorService,
  type OperatorParts,
  type OperatorService,
} from '#gateway/operator/service'
import { systemHash } from '#io/clock'
import { listenAdmin } from '#io/serving/admin-listener'
import type { Hex } from '#ports'
import { StorageError, UnavailableError } from '#protocol/errors'
import { openLog } from '#storage/log'
import { inspectLog, lossOf, openLogReader } from '#storage/reader'
import { deferred } from '#support/deferred'
import { makeQuestion, signedBody } from '#support/fake-view'
import { codeOf, openFront, statusParts, type TestFront, testRandom } from '#support/front'
import { createPipelineWorld } from '#support/pipeline-world'
import { exchangeRaw } from '#support/raw-http'
import { folder, idOf, options as itemOptions, sample } from '#support/sample-store'
import { SimClock, SimFiles, settle } from '#support/sim-files'

const word = (n: number): Hex => `0x${n.toString(16).padStart(64, '0')}`
const wallet = (n: number): Hex => `0x${n.toString(16).padStart(40, '0')}`
const first = makeQuestion('first', { slug: 'first-question' })

interface Told {
  readonly front: TestFront
  readonly desk: OperatorService
  readonly journal: string[]
  readonly registry: unknown[]
}

async function openDesk(parts: Partial<OperatorParts> = {}): Promise<Told> {
  const front = await openFront()
  const journal: string[] = []
  const registry: unknown[] = []
  front.ledger.onChange((events) => {
    for (const event of events)
      if ('reason' in event) journal.push(`${event.kind}: ${event.reason}`)
    registry.push(...events.filter(({ kind }) => kind.startsWith('question.')))
  })
  return { front, desk: deskOf(front, parts), journal, registry }
}

const deskOf = (
  { clock, ledger }: Pick<OperatorParts, 'clock' | 'ledger'>,
  parts: Partial<OperatorParts> = {},
) =>
  createOperatorService({
    clock,
    ledger,
    configured: [],
    isKnown: async () => true,
    code: async () => ({ pins: {}, now: {} }),
    compact: async () => ({ before: 2, after: 1 }),
    ...parts,
  })

async function submitted({ front }: Told): Promise<string> {
  const [proposer] = front.wallets
  const answer = await front.post(
    `/v1/proposals/${first.questionId}`,
    await signedBody(proposer, first),
  )
  expect(answer.status).toBe(202)
  return ((await answer.json()) as { candidate_id: string }).candidate_id
}

const refusal = (work: Promise<unknown>) =>
  work.then(
    () => 'done',
    (error: { code: string }) => error.code,
  )

describe("contract §6: the operator's desk", () => {
  test('allows and disallows once each, with time and reason, and writes nothing where it is so already', async () => {
    const { desk, front, journal } = await openDesk()
    const addresses = [wallet(1), wallet(2), wallet(1)]
    expect(await desk.run('allow', { addresses, reason: 'signed' })).toMatchObject({
      changed: [wallet(1), wallet(2)],
      unchanged: [],
    })
    expect(await desk.run('allow', { addresses: [wallet(2), wallet(3)] })).toMatchObject({
      changed: [wallet(3)],
      unchanged: [wallet(2)],
    })
    expect(await desk.run('allow', { addresses })).toMatchObject({
      changed: [],
      unchanged: [wallet(1), wallet(2)],
    })
    expect(front.ledger.eligible(wallet(3))).toBe(true)
    expect(await desk.run('disallow', { addresses: [wallet(3), wallet(4)] })).toMatchObject({
      changed: [wallet(3)],
      unchanged: [wallet(4)],
    })
    expect(front.ledger.eligible(wallet(3))).toBe(false)
    expect(journal).toEqual([
      'allowlist.set: signed',
      'allowlist.set: signed',
      'allowlist.set: by operator',
      'allowlist.set: by operator',
    ])
  })

  test('contract §9: pins what oracles and tokens run now, with reason and name, and says what was pinned before', async () => {
    const [old, next, code_hash] = [wallet(7), wallet(8), `0x${'c'.repeat(64)}`] as const
    const pin = (implementation: typeof old) => ({ implementation, code_hash }) as const
    const now = { [wallet(1)]: pin(next), [wallet(2)]: pin(wallet(2)), [wallet(3)]: pin(old) }
    const pins = { [wallet(1)]: pin(old), [wallet(3)]: pin(old) }
    const { desk, front, journal } = await openDesk({ code: async () => ({ pins, now }) })
    expect(await desk.run('trust/repin', { reason: 'version 3', by: 'alice' })).toMatchObject({
      ...{ changed: [wallet(1), wallet(2)], unchanged: [wallet(3)], by: 'alice' },
      notes: [
        `${wallet(1)} runs ${next}; pinned was ${old}`,
        `${wallet(2)} runs ${wallet(2)}; nothing was pinned`,
      ],
    })
    expect(journal).toEqual(['implementation.set: version 3', 'implementation.set: version 3'])
    expect([...front.ledger.implementations]).toEqual([
      [wallet(1), pin(next)],
      [wallet(2), pin(wallet(2))],
    ])
  })

  test('does the acts of two operators at once one after the other: each is told what was left for it', async () => {
    const { desk, journal } = await openDesk()
    const answers = await Promise.all(
      Array.from({ length: 5 }, () => desk.run('allow', { addresses: [wallet(7)] })),
    )
    expect(answers.map(({ changed }) => changed.length)).toEqual([1, 0, 0, 0, 0])
    expect(journal).toHaveLength(1)
  })

  test('pauses admission, which the wire tells as 503 admission_disabled, and resumes it', async () => {
    const told = await openDesk()
    const { desk, front } = told
    expect(await desk.run('pause', { reason: 'upgrade', by: 'alice' })).toMatchObject({
      changed: ['admission'],
      by: 'alice',
    })
    expect(await desk.run('pause', {})).toMatchObject({ changed: [], unchanged: ['admission'] })
    const [proposer] = front.wallets
    const body = await signedBody(proposer, first)
    const answer = await front.post(`/v1/proposals/${first.questionId}`, body)
    expect([answer.status, await codeOf(answer)]).toEqual([503, 'admission_disabled'])
    await desk.run('resume', {})
    expect((await front.post(`/v1/proposals/${first.questionId}`, body)).status).toBe(202)
    expect(told.journal).toEqual(['admission.set: upgrade', 'admission.set: by operator'])
  })

  test('says how many candidates of a disallowed wallet stay, and how to end one', async () => {
    const told = await openDesk()
    const id = await submitted(told)
    const { notes } = await told.desk.run('disallow', {
      addresses: [told.front.wallets[0].address],
    })
    expect(notes.join()).toMatch(new RegExp(`1 active candidate, which stays.*reject ${id}`))
    expect(told.front.ledger.active()).toHaveLength(1)
  })

  test('contract §5: rejects a candidate with stage and reason, once; what has ended is refused with why', async () => {
    const told = await openDesk()
    const id = await submitted(told)
    const { desk, front } = told
    expect(
      await desk.run('candidates/reject', { candidate_id: id, reason: 'asked for' }),
    ).toMatchObject({ changed: [id] })
    expect((await front.ledger.get(id))?.progress).toMatchObject({
      status: 'failed',
      failure: {
        stage: 'validation',
        code: 'operator_rejected',
        detail: 'Rejected by the operator: asked for',
        retryable: false,
      },
    })
    await expect(
      desk.run('candidates/reject', { candidate_id: id, reason: 'again' }),
    ).rejects.toMatchObject({
      code: 'candidate_final',
      meta: { httpStatus: 409, exitCode: 5 },
    })
    expect(
      await refusal(
        desk.run('candidates/reject', { candidate_id: '00000000-0000-4000-8000-000000000000' }),
      ),
    ).toBe('candidate_not_found')
  })

  test('R3: with a transaction out the rejection is done, and what becomes of the nonce is said; on the chain it is refused', async () => {
    const told = await openDesk()
    const id = await submitted(told)
    const { ledger } = told.front
    const at = { validatedAtMs: 1, selectedAtMs: 2 }
    const slot = {
      id: 's',
      executor: wallet(9),
      nonce: 4,
      candidateIds: [id],
      openedAtMs: 3,
      attempts: [],
    }
    const fees = { maxFeePerGas: '1', maxPriorityFeePerGas: '1', preparedAtMs: 3, sentAtMs: null }
    const attempt = {
      hash: word(5),
      raw: '0x02' as const,
      kind: 'propose' as const,
      candidateIds: [id],
      ...fees,
    }
    const submission = {
      status: 'submitted' as const,
      transactionHash: word(5),
      submittedAtMs: 4,
      confirmedAtMs: null,
      indexedAtMs: null,
      proposalEventIndex: null,
    }
    await ledger.commit([
      { kind: 'candidate.progress', id, progress: { status: 'validated', validatedAtMs: 1 } },
      { kind: 'candidate.progress', id, progress: { status: 'selected', ...at, submission: null } },
      { kind: 'slot.opened', slot },
      { kind: 'slot.attempt', slotId: 's', attempt },
      {
        kind: 'candidate.progress',
        id,
        progress: { status: 'selected', ...at, submission: { ...submission, status: 'confirmed' } },
      },
    ])
    expect(await refusal(told.desk.run('candidates/reject', { candidate_id: id }))).toBe(
      'candidate_final',
    )
    await ledger.commit([
      { kind: 'candidate.progress', id, progress: { status: 'selected', ...at, submission } },
    ])
    const { notes } = await told.desk.run('candidates/reject', { candidate_id: id })
    expect(notes.join()).toMatch(/pending with nonce 4.*may still be mined/)
    expect((await ledger.get(id))?.progress).toMatchObject({ failure: { stage: 'confirmation' } })
  })

  test('contract §7: adds a question that the chain knows and refuses one that it does not, with nothing written', async () => {
    const { desk, front, registry, journal } = await openDesk({
      isKnown: async ({ questionId }) => questionId !== word(2),
    })
    const entries = [{ question_id: word(1), slug: 'one' }]
    expect(await desk.run('questions/add', { entries })).toMatchObject({ changed: [word(1)] })
    expect(await desk.run('questions/add', { entries })).toMatchObject({
      changed: [],
      unchanged: [word(1)],
    })
    const both = [{ question_id: word(3), slug: 'three' }, { question_id: word(2) }]
    expect(await refusal(desk.run('questions/add', { entries: both }))).toBe('question_unknown')
    expect(
      await refusal(
        desk.run('questions/add', { entries: [{ question_id: word(4), slug: 'one' }] }),
      ),
    ).toBe('slug_taken')
    expect(await refusal(desk.run('questions/add', { entries: [{ question_id: 'rain' }] }))).toBe(
      'questions_invalid',
    )
    expect([...front.ledger.questions.keys()]).toEqual([word(1)])
    expect(registry).toHaveLength(1)
    expect(journal).toEqual(['question.set: by operator'])
    await desk.run('questions/add', { entries: [{ question_id: word(4), slug: 'four' }] })
    const swapped = [
      { question_id: word(1), slug: 'four' },
      { question_id: word(4), slug: 'one' },
    ]
    expect(await desk.run('questions/add', { entries: swapped })).toMatchObject({
      changed: [word(1), word(4)],
    })
  })

  test('contract §7: a removed entry of the questions file stays away until it is added again, and keeps its slug then', async () => {
    const configured: RegistryEntry[] = [{ questionId: word(1), slug: 'one' }]
    const { desk, front } = await openDesk({ configured })
    expect((await desk.run('questions/remove', { question_id: word(1) })).notes.join()).toContain(
      'the slug one',
    )
    expect(mergedRegistry(configured, front.ledger.questions)).toEqual([])
    expect(await desk.run('questions/remove', { question_id: word(1) })).toMatchObject({
      changed: [],
      unchanged: [word(1)],
    })
    await desk.run('questions/add', { entries: [{ question_id: word(1), slug: 'uno' }] })
    expect(mergedRegistry(configured, front.ledger.questions)).toMatchObject([
      { questionId: word(1), slug: 'uno' },
    ])
    const clash: RegistryEntry[] = [...configured, { questionId: word(2), slug: 'uno' }]
    expect(() => mergedRegistry(clash, front.ledger.questions)).toThrow(/the slug uno refers to/)
    const other = deskOf(front, { configured: clash })
    await other.run('questions/remove', { question_id: word(1) })
    expect(mergedRegistry(clash, front.ledger.questions)).toMatchObject([{ questionId: word(2) }])
  })

  test('contract §7: an entry that holds the request of active candidates is not removed', async () => {
    const { oracle, requester, identifier, timestamp, ancillaryData } = first.round
    const request = { oracle, requester, identifier, timestamp, ancillaryData }
    const told = await openDesk({ configured: [{ questionId: first.questionId, request }] })
    const id = await submitted(told)
    expect(
      await refusal(told.desk.run('questions/remove', { question_id: first.questionId })),
    ).toBe('question_in_use')
    await told.desk.run('candidates/reject', { candidate_id: id })
    expect(
      await told.desk.run('questions/remove', { question_id: first.questionId }),
    ).toMatchObject({ changed: [first.questionId] })
  })

  test('pauses while an import waits for the chain and a fold for the disk', async () => {
    const { promise: known, resolve: answer } = deferred<boolean>()
    const { desk, front } = await openDesk({
      isKnown: () => known,
      compact: async () => ((await known) ? { before: 2, after: 1 } : { before: 0, after: 0 }),
    })
    const slow = [
      desk.run('questions/add', { entries: [{ question_id: word(1) }] }),
      desk.run('store/compact', {}),
    ]
    await desk.run('pause', {})
    expect([front.ledger.admissionEnabled, front.ledger.questions.size]).toEqual([false, 0])
    answer(true)
    expect(await Promise.all(slow)).toMatchObject([
      { changed: [word(1)] },
      { bytes: { before: 2, after: 1 } },
    ])
  })

  test('R16: a chain that does not answer adds nothing', async () => {
    const isKnown = async () => {
      throw new UnavailableError('state_unavailable', 'no response', { httpStatus: 503 })
    }
    const { desk, front } = await openDesk({ isKnown })
    expect(await refusal(desk.run('questions/add', { entries: [{ question_id: word(1) }] }))).toBe(
      'state_unavailable',
    )
    expect(front.ledger.questions.size).toBe(0)
  })
})

describe('contract §7: a change of the registry while the view runs', () => {
  test('names the question at once, renames it, and takes the name away; the question itself stays', async () => {
    const world = await createPipelineWorld()
    const questionId = await world.question()
    const named = async (slug: string) => (await world.view.question(slug))?.questionId
    expect(await named('rain')).toBeUndefined()
    world.view.setEntry({ questionId, slug: 'rain' })
    expect(await named('rain')).toBe(questionId)
    expect((await world.view.question(questionId))?.slug).toBe('rain')
    world.view.setEntry({ questionId, slug: 'snow' })
    expect([await named('rain'), await named('snow')]).toEqual([undefined, questionId])
    world.view.removeEntry(questionId)
    expect([await named('snow'), await named(questionId)]).toEqual([undefined, questionId])
    expect(world.view.entry(questionId)).toBeUndefined()
  })
})

const token = 'ab'.repeat(32)
const withAdmin = async (
  use: (
    ask: (target: string, more?: RequestInit) => Promise<Response>,
    told: Told,
    port: number,
  ) => Promise<void>,
) => {
  const told = await openDesk()
  const acts = {
    '/operator/allow': (body: unknown) => told.desk.run('allow', body),
    '/operator/full': async () => Promise.reject(full),
  }
  const full = new StorageError('store_unavailable', 'there is no space', {
    httpStatus: 503,
    hint: 'free some',
  })
  const admin = await listenAdmin({
    ...statusParts(told.front.gateway),
    port: 0,
    operator: { token, looks: { '/operator/budget': () => ({ spent: 3 }) }, acts },
  })
  const headers = { 'content-type': 'application/json', authorization: `Bearer ${token}` }
  try {
    const body = JSON.stringify({ addresses: [wallet(1)] })
    await use(
      (target, more = {}) =>
        fetch(`${admin.url}${target}`, { method: 'POST', headers, body, ...more }),
      told,
      admin.port,
    )
  } finally {
    await admin.close()
  }
}
const outcome = async (answer: Response) => [answer.status, await codeOf(answer)]

test('contract §6: the token opens it; without one, with a wrong one, or in another form it is 401 and nothing happens', async () => {
  await withAdmin(async (ask, { front }) => {
    for (const authorization of [
      '',
      'Bearer',
      'Bearer nope',
      `Bearer ${token.slice(1)}`,
      `Bearer ${token}a`,
      `Basic ${token}`,
      token,
    ]) {
      expect(
        await outcome(
          await ask('/operator/allow', {
            headers: { 'content-type': 'application/json', authorization },
          }),
        ),
      ).toEqual([401, 'unauthorized'])
    }
    expect(front.ledger.eligible(wallet(1))).toBe(false)
    const done = await ask('/operator/allow')
    expect([done.status, await done.json()]).toMatchObject([200, { changed: [wallet(1)] }])
    expect(done.headers.get('access-control-allow-origin')).toBeNull()
    expect(front.ledger.eligible(wallet(1))).toBe(true)
  })
})

test('contract §6: looking needs no token; other methods are 405 with Allow, other paths 404, foreign names in Host 400', async () => {
  await withAdmin(async (ask, _told, port) => {
    const look = await ask('/operator/budget', { method: 'GET', body: null, headers: {} })
    expect([look.status, await look.json()]).toEqual([200, { spent: 3 }])
    const wrong = await ask('/operator/allow', { method: 'GET', body: null })
    expect([...(await outcome(wrong)), wrong.headers.get('allow')]).toEqual([
      405,
      'method_not_allowed',
      'POST',
    ])
    expect((await ask('/operator/budget')).headers.get('allow')).toBe('GET')
    expect(await outcome(await ask('/operator/none'))).toEqual([404, 'route_not_found'])
    expect(await outcome(await ask('/operator/allow?x'))).toEqual([404, 'route_not_found'])
    const head = (host: string) =>
      `POST /operator/allow HTTP/1.1\r\n${host}Authorization: Bearer ${token}\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}`
    for (const host of ['Host: evil.example\r\n', '', 'Host: localhost\r\nHost: localhost\r\n'])
      expect((await exchangeRaw(port, head(host))).status).toBe(400)
    expect((await exchangeRaw(port, head('Host: localhost\r\n'))).status).toBe(422)
  })
})

test('R17: bodies are strict JSON of at most 1 MiB, and refusals of the desk keep status, code and hint', async () => {
  await withAdmin(async (ask) => {
    const auth = { authorization: `Bearer ${token}` }
    expect(
      await outcome(
        await ask('/operator/allow', { headers: { ...auth, 'content-type': 'text/plain' } }),
      ),
    ).toEqual([400, 'unsupported_media_type'])
    for (const body of ['', '{', '{"addresses":[],"addresses":[]}', '{"a":1.5}'])
      expect(await outcome(await ask('/operator/allow', { body }))).toEqual([400, 'invalid_json'])
    for (const body of ['{}', '{"addresses":["0xAB"]}', '{"addresses":[],"more":1}'])
      expect(await outcome(await ask('/operator/allow', { body }))).toEqual([422, 'act_invalid'])
    expect(
      await outcome(await ask('/operator/allow', { body: `"${'x'.repeat(1024 * 1024)}"` })),
    ).toEqual([413, 'payload_too_large'])
    const refused = await ask('/operator/full')
    expect([refused.status, await refused.json()]).toEqual([
      503,
      { error: { code: 'store_unavailable', detail: 'there is no space', hint: 'free some' } },
    ])
  })
})

const settings = { chainId: 31337, genesisHash: word(99), allowlist: [], admissionEnabled: true }

describe('R23: an import that is killed', () => {
  test('is there whole or not at all, wherever it was', async () => {
    const entries = Array.from({ length: 30 }, (_, index) => ({
      question_id: word(index + 1),
      slug: `slug-${index}`,
    }))
    const importInto = async (sim: SimFiles) => {
      const clock = new SimClock()
      const fold = foldLedger()
      const log = await openLog(
        { files: sim.process(), clock, hash: systemHash },
        folder,
        storeLog,
        fold.onRecord,
      )
      const ledger = await openLedger({ clock, random: testRandom }, log, fold.state, settings)
      await deskOf({ clock, ledger }).run('questions/add', { entries })
      await log.close()
    }
    const whole = new SimFiles()
    await importInto(whole)
    const steps = whole.trace.length
    expect(steps).toBeGreaterThan(20)
    const seen = new Set<number>()
    for (let step = 1; step <= steps; step += 1) {
      const sim = new SimFiles()
      sim.faults = [{ verb: 'any', nth: step, does: 'kill-after' }]
      await Promise.race([importInto(sim).catch(() => undefined), sim.death()])
      await settle()
      sim.faults = []
      sim.crash(step)
      const fold = foldLedger()
      const log = await openLog(
        { files: sim.process(), clock: new SimClock(), hash: systemHash },
        folder,
        storeLog,
        fold.onRecord,
      )
      await log.close()
      seen.add(fold.state.questions.size)
    }
    expect([...seen].sort((a, b) => a - b)).toEqual([0, 30])
  })
})

const inspected = async (sim: SimFiles, refuse: (id: number) => boolean = () => false) => {
  const ids: number[] = []
  const ports = { files: sim.process(), hash: systemHash }
  const inspection = await inspectLog(ports, folder, itemOptions, (record) => {
    if (refuse(idOf(record))) throw new RangeError('it is not allowed')
    ids.push(idOf(record))
  })
  return { ids, inspection }
}
const damagedAt = (contents: ReadonlyMap<string, Uint8Array>, name: string, line: number) => {
  const sim = SimFiles.of(contents)
  sim.damage(`${folder}/${name}`, (bytes) => {
    let at = 0
    for (let passed = 0; passed < line; passed += 1) at = bytes.indexOf(10, at) + 1
    bytes[at + 60] = (bytes[at + 60] ?? 0) ^ 1
  })
  return sim
}

test.each([false, true])(
  'robustness §2: a reader hands out exactly what lies before the damage, wherever it is, and the rest is counted (compacted: %s)',
  async (compacted) => {
    const contents = await sample(compacted)
    const names = [...contents.keys()]
      .map((path) => path.slice(folder.length + 1))
      .filter((name) => /^(log|snap)-/.test(name))
      .sort((one, other) => other[0]?.localeCompare(one[0] ?? '') || one.localeCompare(other))
    const whole = await inspected(SimFiles.of(contents))
    expect(whole.inspection.damage).toBeUndefined()
    let damages = 0
    for (const name of names) {
      const bytes = contents.get(`${folder}/${name}`) ?? new Uint8Array()
      const lines = bytes.filter((byte) => byte === 10).length
      for (let line = 0; line < lines; line += 1) {
        const sim = damagedAt(contents, name, line)
        const { ids, inspection } = await inspected(sim)
        const { damage, records } = inspection
        if (damage === undefined) continue
        damages += 1
        expect(records).toBe(ids.length)
        expect(ids).toEqual(whole.ids.slice(0, ids.length))
        const ports = { files: sim.process(), hash: systemHash }
        const reader = await openLogReader(ports, folder, itemOptions)
        const read: number[] = []
        const reading = reader.replay((record) => read.push(idOf(record)))
        await expect(reading).rejects.toMatchObject({ code: 'store_damaged' })
        await reader.close()
        expect(read).toEqual(ids)
        const loss = await lossOf(ports, folder, inspection)
        const behind = names.slice(names.indexOf(name) + 1)
        const sizes = behind.map((one) => contents.get(`${folder}/${one}`)?.length ?? 0)
        expect(loss.bytes).toBe(
          sizes.reduce((sum, size) => sum + size, bytes.length - damage.offset),
        )
        expect(loss.files[0]).toBe(name)
      }
    }
    expect(damages).toBeGreaterThan(3)
  },
)

test('robustness §2: a record that contradicts those before it is damage too, and only whole groups before it count', async () => {
  const sim = SimFiles.of(await sample(false))
  const { inspection } = await inspected(sim, (id) => id === 5)
  expect(inspection).toMatchObject({
    records: 3,
    damage: { file: expect.stringMatching(/^log-/), detail: 'it is not allowed' },
  })
})
