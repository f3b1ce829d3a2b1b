import { readFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { rawPost, sendRaw } from './soak-calls.js'
import { version } from './soak-proposals.js'

/**
 * What the load is made of: for each act how often it happens (a second) and what it does. `expect`
 * takes note of an answer that is none of the given statuses.
 */
export function makeActs(world, rounds) {
  const { call, url, adminUrl } = world
  const pick = (list) => list[Math.floor(world.random() * list.length)]
  const expect = (what, answer, ...statuses) => {
    if (!statuses.includes(answer.status)) world.unexpected(what, answer)
  }
  const someone = () => pick(world.signers).address
  const stranger = () =>
    `0x${Math.floor(world.random() * 2 ** 48)
      .toString(16)
      .padStart(40, '1')}`
  const known = () => pick(rounds.recent) ?? { questionId: world.questionIds[0] }
  const permit = () => ({
    amount: '100000000000',
    nonce: String(Math.floor(world.random() * 2 ** 48)),
    deadline: String(Math.floor(Date.now() / 1000) + 7200),
  })
  const terms = () => ({
    version,
    proposer: someone(),
    outcome: 'p2',
    max_payment: '0',
    permit: permit(),
  })

  async function operate(act, body) {
    const headers = { authorization: `Bearer ${(await readFile(world.tokenFile, 'utf8')).trim()}` }
    expect(
      `operator ${act}`,
      await call(`/operator/${act}`, body, { base: adminUrl, headers }),
      200,
    )
  }
  let turn = 0
  async function operatorTurn() {
    turn += 1
    const address = stranger()
    await operate('allow', { addresses: [address], reason: 'soak' })
    expect('eligibility of a new wallet', await call(`/v1/proposals/eligibility/${address}`), 200)
    await operate('disallow', { addresses: [address], reason: 'soak' })
    const { questionId } = known()
    const slug = `soak-named-${turn}`
    await operate('questions/add', { entries: [{ question_id: questionId, slug }], reason: 'soak' })
    expect('by slug', await call(`/v1/proposals/${slug}/signing-data`, terms()), 200, 409)
    await operate('questions/remove', { question_id: questionId, reason: 'soak' })
    if (turn % 6 === 0) {
      await operate('pause', { reason: 'soak' })
      await sleep(500)
      await operate('resume', { reason: 'soak' })
    }
    if (turn % 15 === 0) await operate('store/compact', { reason: 'soak' })
  }

  const malformed = [
    () => ['{"version":', 400],
    () => ['[]', 422],
    () => [JSON.stringify({ ...terms(), outcome: 'p9', signature: `0x${'11'.repeat(65)}` }), 422],
    () => [JSON.stringify({ ...terms(), signature: '0x1' }), 422],
    () => ['{"a":1,"a":2}', 400, 422],
    () => [Buffer.from('ff'.repeat(40), 'hex').toString('latin1'), 400],
    () => ['x'.repeat(40_000), 413],
    () => ['['.repeat(5_000), 400, 422],
  ]
  const bentRequests = [
    // Half a header, and gone.
    () => sendRaw(url, ['POST /propose/batch HTTP/1.1\r\nhost: 127.0.0.1\r\nconte'], 1_000, 0),
    // A body that never comes whole, for a while.
    () => sendRaw(url, [rawPost('/propose/batch', '{"proposals":[', 5_000)], 3_000, 5_000),
    // An answer that nobody waits for.
    () =>
      sendRaw(
        url,
        [rawPost('/propose/batch/status', JSON.stringify({ candidate_ids: [known().id ?? ''] }))],
        0,
        0,
      ),
    // A whole request in small parts.
    async () => {
      const text = rawPost(
        `/v1/proposals/${known().questionId}/signing-data`,
        JSON.stringify(terms()),
      )
      const parts = text.match(/.{1,60}/gs)
      expect('a slow request', { status: await sendRaw(url, parts, 150, 10_000) }, 200, 409)
    },
  ]

  return [
    [
      6,
      'eligibility',
      async () =>
        expect(
          'eligibility',
          await call(`/v1/proposals/eligibility/${pick([someone, stranger])()}`),
          200,
        ),
    ],
    [
      6,
      'signing-data',
      async () =>
        expect(
          'signing-data',
          await call(`/v1/proposals/${known().questionId}/signing-data`, terms()),
          200,
          409,
        ),
    ],
    [
      2,
      'contexts',
      async () => {
        const identifiers = [...new Set([1, 2, 3, 4, 5].map(() => pick(world.questionIds)))]
        expect(
          'batch signing-data',
          await call('/propose/batch/signing-data', { identifiers }),
          200,
        )
      },
    ],
    [
      6,
      'status',
      async () => {
        const { questionId, id } = known()
        if (id !== undefined)
          expect('status', await call(`/v1/proposals/${questionId}/status/${id}`), 200)
      },
    ],
    [1, 'batch status', () => rounds.poll()],
    [
      1,
      'batch status of old ones',
      async () => {
        const candidate_ids = [...new Set([1, 2, 3, 4, 5, 6, 7, 8].flatMap(() => known().id ?? []))]
        if (candidate_ids.length > 0)
          expect('batch status', await call('/propose/batch/status', { candidate_ids }), 200)
      },
    ],
    [0.5, 'a round', () => rounds.single()],
    [
      0.2,
      'a round, replayed',
      () =>
        rounds.single(undefined, async (payload) =>
          expect('replay', await call(payload.path, payload.body), 200, 503),
        ),
    ],
    [
      0.2,
      'a conflict',
      () =>
        rounds.single(undefined, async (payload, make) => {
          const answer = await call(payload.path, make.other('p1').body)
          expect('conflict', answer, 409, 503)
        }),
    ],
    [
      0.2,
      'a forgery first',
      () =>
        rounds.single(async (payload, make) =>
          expect('forgery', await call(payload.path, make.forged().body), 403, 503),
        ),
    ],
    [
      0.1,
      'a submission cut off',
      () =>
        rounds.single(async (payload) => {
          await sendRaw(
            url,
            [rawPost(payload.path, payload.body)],
            Math.floor(world.random() * 20),
            0,
          )
        }),
    ],
    [0.2, 'a contested round', () => rounds.contested()],
    [0.06, 'a batch', () => rounds.batch(5)],
    [
      1,
      'an old replay',
      async () => {
        const { path, body, id } = known()
        if (id === undefined) return
        const answer = await call(path, body)
        expect('old replay', answer, 200, 409)
        if (answer.status === 200 && answer.body.candidate_id !== id)
          world.unexpected('replay with another id', answer)
      },
    ],
    [
      1,
      'malformed',
      async () => {
        const kind = Math.floor(world.random() * malformed.length)
        const [body, ...statuses] = malformed[kind]()
        expect(
          `malformed body ${kind}`,
          await call(`/v1/proposals/${known().questionId}`, body),
          ...statuses,
        )
      },
    ],
    [
      0.5,
      'malformed batch',
      async () =>
        expect(
          'malformed batch',
          await call('/propose/batch', { proposals: [{ identifier: 1 }] }),
          422,
        ),
    ],
    [
      1,
      'unknown route',
      async () =>
        expect('unknown route', await call(`/v2/${Math.floor(world.random() * 1e9)}`), 404),
    ],
    [0.5, 'method', async () => expect('method', await call('/propose/batch'), 405)],
    [
      0.5,
      'unknown candidate',
      async () =>
        expect(
          'unknown candidate',
          await call(`/v1/proposals/${known().questionId}/status/${crypto.randomUUID()}`),
          404,
        ),
    ],
    [
      0.3,
      'unknown question',
      async () =>
        expect(
          'unknown question',
          await call(
            `/v1/proposals/0x${'ab'.repeat(26)}${Date.now().toString(16).padStart(12, '0')}/signing-data`,
            terms(),
          ),
          404,
        ),
    ],
    [
      0.5,
      'health',
      async () => expect('health', await call(pick(['/healthz', '/openapi.json'])), 200),
    ],
    [0.8, 'a bent request', () => pick(bentRequests)()],
    [0.05, 'operator', operatorTurn],
    [0.3, 'questions', () => rounds.ask(60)],
    [
      0.003,
      'funds',
      async () => {
        for (const { address, role } of world.accounts) {
          if (role === 'proposer' || role === 'disputer')
            await world.verbs.fund(world.rpcUrl, address, 1_000_000_000_000n)
        }
      },
    ],
  ]
}
