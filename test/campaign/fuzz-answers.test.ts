/**
 * Fuzzed answers of a gateway to the client: their class (robustness §6), what is journaled of
 * them, and what a terminal gets to see (T9).
 */
import fc from 'fast-check'
import { answerError } from '#client/gateway/answer'
import { createGatewayClient, type GatewayClient } from '#client/gateway/gateway-client'
import { type Named, otherNamed } from '#client/journal/authorizations'
import { itemAnswer } from '#client/propose/send'
import { authorize } from '#client/propose/sign-rows'
import type { Clock, Fetch } from '#ports'
import { exit } from '#protocol/errors'
import { instantClock } from '#support/any-gateway'
import { argvOf } from '#support/argv'
import { figures, runs } from '#support/campaign'
import { run, writeTrust } from '#support/cli'
import { makeWorld, sendAgain } from '#support/client-world'
import { temporaryFolder } from '#support/folders'
import {
  type AnswerDraw,
  answerDraws,
  answerOf,
  type Class,
  candidateId,
  type Route,
  soundBody,
  terminalText,
} from '#support/fuzz/gateway-answers'
import { acting } from '#support/hostile/mutants'
import { pins, questionContext } from '#support/scripted-gateway'
import { settle } from '#support/sim-files'

const clock: Clock = {
  nowMs: () => Date.parse('2026-11-20T05:37:00.000Z'),
  monotonicMs: () => 0,
  sleep: async () => undefined,
}
const questionId = `0x${'2'.repeat(64)}`
const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i
const printed = (value: unknown) => JSON.stringify(value)?.slice(0, 300)

const calls: Readonly<Record<Route, (client: GatewayClient) => ReturnType<GatewayClient[Route]>>> =
  {
    eligibility: (client) => client.eligibility(`0x${'1'.repeat(40)}`),
    signingData: (client) => client.signingData(questionId, soundBody.signingData as never),
    submit: (client) => client.submit(questionId, '{}'),
    status: (client) => client.status(questionId, candidateId),
    contexts: (client) => client.contexts(['a-slug']),
    submitBatch: (client) => client.submitBatch('{"proposals":[]}'),
    statuses: (client) => client.statuses([candidateId]),
  }

test('robustness §6, T9: a fuzzed answer is of the class that is written for it, and accepted only with a valid candidate id', async () => {
  const found = new Map<Class, number>()
  let answers = 0
  await fc.assert(
    fc.asyncProperty(answerDraws, async (draw) => {
      const { route, make, means, httpStatus } = answerOf(draw)
      const urls: string[] = []
      const fetch: Fetch = async (input) => {
        urls.push(String(input))
        return make()
      }
      const answer = await calls[route](
        createGatewayClient({ fetch, baseUrl: 'https://gateway.test/base', clock }),
      )
      if (answer.kind !== means)
        throw new Error(`${route}: ${answer.kind} instead of ${means}: ${printed(answer)}`)
      // R21: one call to the configured origin, whatever the answer names.
      if (urls.length !== 1 || !urls[0]?.startsWith('https://gateway.test/base/'))
        throw new Error(`R21: called ${urls}`)
      if (answer.kind === 'accepted') acceptedFaults(route, answer.value)
      else {
        if (!/^[a-z0-9_]{1,64}$/.test(answer.code)) throw new Error(`code ${printed(answer.code)}`)
        if (answer.detail.length > 1_001 || /[0-9a-fA-F]{100}/.test(answer.detail))
          throw new Error(`R5: ${printed(answer.detail)}`)
        if (answer.httpStatus !== httpStatus)
          throw new Error(`status ${answer.httpStatus} instead of ${httpStatus}`)
        const { exitCode } = answerError(answer, 'submit').meta
        const expected = {
          refused: httpStatus === 403 ? 4 : 3,
          deferred: 75,
          reconcile: 5,
          uncertain: 6,
        }[answer.kind]
        if (exitCode !== expected) throw new Error(`exit ${exitCode} instead of ${expected}`)
      }
      found.set(means, (found.get(means) ?? 0) + 1)
      answers += 1
      if (answers % 50 === 0) await settle()
    }),
    runs(50_000),
  )
  for (const kind of ['accepted', 'refused', 'deferred', 'reconcile', 'uncertain'] as const)
    expect(found.get(kind), kind).toBeGreaterThan(answers / 100)
  figures('fuzz-answers', { answers, ...Object.fromEntries(found) })
})

function acceptedFaults(route: Route, value: unknown): void {
  const { candidate_id: id, results = [] } = value as {
    candidate_id?: string
    results?: Parameters<typeof itemAnswer>[0][]
  }
  if ((route === 'submit' || route === 'status') && !uuid.test(id ?? ''))
    throw new Error(`accepted with id ${id}`)
  if (route !== 'submitBatch') return
  for (const result of results) {
    const item = itemAnswer(result)
    const { status_code: status = 0, candidate, error } = result
    const expected =
      (status === 200 || status === 202) && candidate
        ? 'accepted'
        : error === undefined
          ? 'uncertain'
          : [400, 403, 404, 405, 413, 422].includes(status)
            ? 'refused'
            : status === 409
              ? 'reconcile'
              : status === 429 || status === 503
                ? 'deferred'
                : 'uncertain'
    if (item.kind !== expected)
      throw new Error(`item ${item.kind} instead of ${expected}: ${printed(result)}`)
    if (item.kind === 'accepted' && !uuid.test(item.value.candidate_id))
      throw new Error(`item accepted with id ${item.value.candidate_id}`)
  }
}

const submitDraws = answerDraws.map((draw): AnswerDraw => ({ ...draw, route: 0 }))

test('R2, R7, contract §6: after any sequence of fuzzed answers to a submission the same bytes went out, and the journal and exit code tell the truth', async () => {
  const outcomes = new Map<string, number>()
  let attempts = 0
  await fc.assert(
    fc.asyncProperty(
      fc.array(submitDraws, { minLength: 8, maxLength: 8 }),
      fc.nat(2),
      async (drawn, steady) => {
        const world = makeWorld()
        const seen: Seen[] = []
        let signed: Named = {}
        const bodies = new Set<string>()
        const fetch: Fetch = async (input, init) => {
          const request = new Request(input, init)
          if (request.url.endsWith('/propose/batch/signing-data'))
            return world.gateway.fetch(input, init)
          bodies.add(await request.text())
          const { make, means, httpStatus } = answerOf(
            drawn[steady === 0 ? 0 : seen.length] as AnswerDraw,
          )
          seen.push({ means, status: httpStatus })
          const answer = await make()
          const isOther =
            means === 'accepted' &&
            otherNamed(signed, (await answer.clone().json()) as Record<string, unknown>) !==
              undefined
          if (isOther) seen.splice(-1, 1, { means: 'mismatch', status: httpStatus })
          return answer
        }
        const { parts, journal, intent } = world.run({ fetch })
        const { authorization } = await world.clock.drive(authorize(parts, intent))
        signed = authorization.signed
        const result = await world.clock.drive(sendAgain(parts, authorization))
        attempts += seen.length
        const expected = expectedOutcome(seen)
        if (result.outcome !== expected.outcome)
          throw new Error(`${result.outcome} instead of ${expected.outcome} after ${printed(seen)}`)
        if ((result.error?.meta.exitCode ?? 0) !== expected.exitCode)
          throw new Error(`exit ${result.error?.meta.exitCode} after ${printed(seen)}`)
        expect(bodies.size).toBe(1)
        expect(world.signatures).toHaveLength(1)
        const known = (await journal.load()).find(authorization.id)
        expect(known?.attempts).toHaveLength(seen.length)
        if (result.error === undefined) expect(known?.candidateId).toMatch(uuid)
        else expect(known?.candidateId).toBeUndefined()
        await journal.close()
        outcomes.set(result.outcome, (outcomes.get(result.outcome) ?? 0) + 1)
      },
    ),
    runs(1_000),
  )
  expect([...outcomes.keys()].toSorted()).toEqual([
    'accepted',
    'deferred',
    'rejected',
    'replayed',
    'unknown',
  ])
  figures('fuzz-answers, submissions', {
    submissions: [...outcomes.values()].reduce((sum, count) => sum + count, 0),
    attempts,
  })
})

/**
 * Contract §6: a refusal does not settle an earlier uncertain attempt, a 409 does; whatever else
 * ends without an answer is 6 or 75.
 */
interface Seen {
  readonly means: Class | 'mismatch'
  readonly status: number | undefined
}

function expectedOutcome(seen: readonly Seen[]): {
  outcome: string
  exitCode: number
} {
  const last = seen.at(-1)
  const uncertain = seen.some(({ means }) => means === 'uncertain')
  if (seen.slice(0, -1).some(({ means }) => means !== 'uncertain' && means !== 'deferred'))
    return { outcome: 'sent on after a clear answer', exitCode: -1 }
  if (last?.means === 'accepted')
    return { outcome: last.status === 202 ? 'accepted' : 'replayed', exitCode: exit.done }
  if (last?.means === 'mismatch') return { outcome: 'unknown', exitCode: exit.reconcile }
  if (last?.means === 'reconcile') return { outcome: 'rejected', exitCode: exit.reconcile }
  if (uncertain) return { outcome: 'unknown', exitCode: exit.unknown }
  if (last?.means === 'refused')
    return { outcome: 'rejected', exitCode: last.status === 403 ? exit.unauthorized : exit.refused }
  return { outcome: 'deferred', exitCode: exit.deferred }
}

const ownMoves = /\u001b\[(?:K|J|\d+A|\?2026[hl])|\r/g

const hostileText = {
  detail: `it says ${terminalText}`,
  code: `x${terminalText}`,
  label: terminalText,
  symbol: terminalText,
  title: terminalText,
}
function poisoned(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value
  if (Array.isArray(value)) return value.map(poisoned)
  return Object.fromEntries(
    Object.entries(value).map(([key, entry]) => [
      key,
      key in hostileText ? hostileText[key as 'code'] : poisoned(entry),
    ]),
  )
}

test('R20, T9: whatever a gateway answers, nothing that acts on a terminal reaches it, and no command ends as a bug', async () => {
  const home = temporaryFolder()
  const question = questionContext('Will it hold?')
  writeTrust(home, { ...pins, slugs: { 'a-slug': question.question_id } })
  const verbs: readonly (readonly [string[], Route])[] = [
    [['eligibility', `0x${'1'.repeat(40)}`], 'eligibility'],
    [['status', candidateId, '--question', questionId], 'status'],
    [['status', candidateId], 'statuses'],
    [['context', 'a-slug'], 'contexts'],
    [argvOf`poll ${candidateId} --question ${questionId} --timeout 61`, 'status'],
  ]
  const modes = [[], ['--json'], ['--ndjson']]
  const codes = new Map<number, number>()
  await fc.assert(
    fc.asyncProperty(answerDraws, fc.nat(999), fc.boolean(), async (draw, pick, hostile) => {
      const [argv, route] = verbs[pick % verbs.length] as (typeof verbs)[number]
      const mode = modes[(pick >> 3) % 3] as string[]
      const known = [
        'submit',
        'submitBatch',
        'status',
        'statuses',
        'eligibility',
        'signingData',
        'contexts',
      ] as const
      const sameRoute = [0, 2, 3, 4, 5, 6, 7][known.indexOf(route)] ?? 0
      const shaped = poisoned(
        route === 'contexts'
          ? { results: [{ identifier: 'a-slug', status_code: 200, signing_data: question }] }
          : soundBody[route],
      )
      const fetch: Fetch = async () =>
        hostile && draw.status < 128
          ? Response.json(shaped)
          : answerOf({ ...draw, route: sameRoute }).make()
      const ran = await run(home, ['--gateway', 'http://127.0.0.1:9', ...argv, ...mode], {
        fetch,
        clock: instantClock(),
        interactive: pick % 2 === 0,
        ...(pick % 3 === 0 ? { columns: 60 } : {}),
      })
      if (ran.code === exit.bug) throw new Error(`exit 1: ${ran.stderr}`)
      const shown = ran.stdout + ran.stderr
      if (acting.test(shown.replace(ownMoves, ''))) throw new Error(`R20: ${JSON.stringify(shown)}`)
      if (/\n\s+at .*:\d+:\d+/.test(ran.stderr)) throw new Error(`a stack: ${ran.stderr}`)
      codes.set(ran.code, (codes.get(ran.code) ?? 0) + 1)
    }),
    runs(400),
  )
  const commands = [...codes.values()].reduce((sum, count) => sum + count, 0)
  expect(codes.get(0)).toBeGreaterThan(commands / 20)
  expect(codes.get(75)).toBeGreaterThan(commands / 20)
  figures('fuzz-answers, commands', {
    commands,
    'exit codes': [...codes.keys()].sort((a, b) => a - b).join(' '),
  })
})
