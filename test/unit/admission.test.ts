import type { Question } from '#gateway/view/state'
import { StorageError } from '#protocol/errors'
import type { RecordLog } from '#storage/record-log'
import { failed } from '#support/candidates'
import { deferred } from '#support/deferred'
import {
  advanced,
  compactSignature,
  makeQuestion,
  makeWallet,
  signedBody,
  signedItem,
  signTerms,
  termsOf,
  testBondRaw,
  testNowSeconds,
} from '#support/fake-view'
import { codeOf, openFront } from '#support/front'

const first: Question = makeQuestion('first', { slug: 'first-question' })
const second: Question = makeQuestion('second')
const submitPath = (question: Question) => `/v1/proposals/${question.questionId}`

const retryable = failed('insufficient_balance', true, 'balance 0')

interface Ack {
  candidate_id: string
  status: string
}
interface Batch {
  results: {
    client_ref: string | null
    status_code: number
    candidate?: { candidate_id: string }
    error?: { code: string; detail: string }
  }[]
  summary: { accepted: number; replayed: number; rejected: number }
}
const ackOf = async (response: Response) => (await response.json()) as Ack
const batchOf = async (response: Response) => (await response.json()) as Batch

test('S6: a request that allows no outcome says so, and does not end in the middle of its sentence', async () => {
  const outcomes = first.round.outcomes.map((outcome) => ({ ...outcome, allowed: false }))
  const closed = makeQuestion('allows nothing', { outcomes })
  const front = await openFront()
  front.view.put(closed)
  const answer = await front.post(submitPath(closed), await signedBody(front.wallets[0], closed))
  const { error } = (await answer.json()) as { error: { code: string; detail: string } }
  expect(error).toEqual({
    code: 'outcome_not_allowed',
    detail: 'p2 is not allowed for this request; it allows no outcome; choose another question',
  })
})

test('R2: of 8 copies at once, single and batch, exactly one is 202 and all name one candidate', async () => {
  const front = await openFront()
  const [wallet] = front.wallets
  const terms = termsOf(wallet)
  const signature = await signTerms(wallet, first, terms)
  const body = await signedBody(wallet, first, 'p2', { nonce: terms.nonce })
  expect(body.signature).toBe(signature)
  const item = await signedItem(wallet, first, 'p2', { nonce: terms.nonce })
  const singles = Array.from({ length: 4 }, () => front.post(submitPath(first), body))
  const batches = Array.from({ length: 4 }, (_, at) =>
    front.post('/propose/batch', {
      proposals: [{ ...item, identifier: 'first-question', client_ref: `copy ${at}` }],
    }),
  )
  const answered = await Promise.all(singles)
  const ids = await Promise.all(
    answered.map(async (response) => (await ackOf(response.clone())).candidate_id),
  )
  const results = (
    await Promise.all(batches.map(async (response) => batchOf(await response)))
  ).flatMap(({ results }) => results)
  const statuses = [
    ...answered.map(({ status }) => status),
    ...results.map(({ status_code }) => status_code),
  ].sort()
  expect(statuses).toEqual([200, 200, 200, 200, 200, 200, 200, 202])
  expect(new Set([...ids, ...results.map(({ candidate }) => candidate?.candidate_id)]).size).toBe(1)
  expect(front.ledger.active()).toHaveLength(1)
})

test('R22: client_ref, the spelling of the identifier and single or batch form are no part of the identity', async () => {
  const front = await openFront()
  const [wallet] = front.wallets
  const item = await signedItem(wallet, first, 'p2', { nonce: '77' })
  const created = await batchOf(
    await front.post('/propose/batch', { proposals: [{ ...item, client_ref: 'a' }] }),
  )
  expect(created.summary).toEqual({ accepted: 1, replayed: 0, rejected: 0 })
  const spelled = await batchOf(
    await front.post('/propose/batch', {
      proposals: [{ ...item, identifier: 'first-question', client_ref: 'b' }],
    }),
  )
  expect(spelled.results[0]).toMatchObject({
    client_ref: 'b',
    status_code: 200,
    candidate: created.results[0]?.candidate,
  })
  const single = await front.post(
    submitPath(first),
    await signedBody(wallet, first, 'p2', { nonce: '77' }),
  )
  expect(single.status).toBe(200)
  expect((await ackOf(single)).candidate_id).toBe(created.results[0]?.candidate?.candidate_id)
})

test('R22: the same digest in another signature encoding is 409 candidate_conflict', async () => {
  const front = await openFront()
  const body = await signedBody(front.wallets[0], first)
  const ack = await ackOf(await front.post(submitPath(first), body))
  const other = await front.post(submitPath(first), {
    ...body,
    signature: compactSignature(body.signature as `0x${string}`),
  })
  expect(other.status).toBe(409)
  expect(await other.json()).toMatchObject({
    error: {
      code: 'candidate_conflict',
      detail: expect.stringContaining(ack.candidate_id) as string,
    },
  })
})

test('contract §2: another active payload in the round, or with the same permit nonce elsewhere, is 409 candidate_conflict', async () => {
  const front = await openFront()
  const [wallet] = front.wallets
  await front.post(submitPath(first), await signedBody(wallet, first, 'p2', { nonce: '500' }))
  const inRound = await front.post(submitPath(first), await signedBody(wallet, first, 'p1'))
  expect([inRound.status, await codeOf(inRound)]).toEqual([409, 'candidate_conflict'])
  const sameNonce = await front.post(
    submitPath(second),
    await signedBody(wallet, second, 'p2', { nonce: '500' }),
  )
  expect([sameNonce.status, await codeOf(sameNonce)]).toEqual([409, 'candidate_conflict'])
})

test('contract §2: the active candidate is named only to who can sign for the proposer', async () => {
  const front = await openFront()
  const [wallet] = front.wallets
  const ack = await ackOf(await front.post(submitPath(first), await signedBody(wallet, first)))
  const stranger = await signedBody(makeWallet(), first)
  const refused = await front.post(submitPath(first), { ...stranger, proposer: wallet.address })
  const text = await refused.text()
  expect(refused.status).toBe(403)
  expect(text).toContain('signature_not_authorized')
  expect(text).not.toContain(ack.candidate_id)
})

test('contract §2: a closed round is request_not_open, but candidate_conflict for a proposer who is active in it', async () => {
  const front = await openFront({ wallets: 2 })
  const [active, other] = front.wallets
  await front.post(submitPath(first), await signedBody(active, first))
  front.view.put(makeQuestion('first', { slug: 'first-question', state: 'proposed' }))
  const conflict = await front.post(submitPath(first), await signedBody(active, first, 'p1'))
  expect([conflict.status, await codeOf(conflict)]).toEqual([409, 'candidate_conflict'])
  const closed = await front.post(submitPath(first), await signedBody(other ?? makeWallet(), first))
  expect([closed.status, await codeOf(closed)]).toEqual([409, 'request_not_open'])
  front.view.put(makeQuestion('second', { paused: true }))
  const paused = await front.post(submitPath(second), await signedBody(active, second))
  expect(paused.status).toBe(409)
  expect(await paused.json()).toMatchObject({
    error: {
      code: 'request_not_open',
      detail: expect.stringMatching(/paused.*wait until it is unpaused$/),
    },
  })
})

test('§3 rule 3: the exact payload of an earlier round is 409 round_advanced and names its candidate', async () => {
  const front = await openFront()
  const body = await signedBody(front.wallets[0], first)
  const ack = await ackOf(await front.post(submitPath(first), body))
  front.view.put(advanced(first, '1799999999'))
  const replay = await front.post(submitPath(first), body)
  expect(replay.status).toBe(409)
  expect(await replay.json()).toMatchObject({
    error: {
      code: 'round_advanced',
      detail: expect.stringContaining(ack.candidate_id) as string,
    },
  })
  const fresh = await front.post(
    submitPath(first),
    await signedBody(front.wallets[0], advanced(first, '1799999999')),
  )
  expect(fresh.status).toBe(202)
})

test('robustness §4: a replay answers 200 although proposer, deadline, round and admission would now refuse it', async () => {
  const front = await openFront()
  const [wallet] = front.wallets
  const body = await signedBody(wallet, first)
  await front.post(submitPath(first), body)
  await front.ledger.commit([
    { kind: 'allowlist.set', address: wallet.address, allowed: false, reason: 'test' },
    { kind: 'admission.set', enabled: false, reason: 'test' },
  ])
  front.view.nowValue = testNowSeconds + 100_000n
  front.view.faultList.push('the newest block is old')
  front.view.put(makeQuestion('first', { slug: 'first-question', state: 'disputed' }))
  expect((await front.post(submitPath(first), body)).status).toBe(200)
})

test('R19, §8: eligibility, then the round, the bond itself, 300 s to the deadline, the signature', async () => {
  const front = await openFront()
  const stranger = makeWallet()
  front.view.put(makeQuestion('first', { state: 'settled' }))
  const broken = {
    ...(await signedBody(stranger, first, 'p2', {
      amount: String(testBondRaw - 1n),
      deadline: String(testNowSeconds + 299n),
    })),
    signature: '0x00',
  }
  const at = async (body: object) => codeOf(await front.post(submitPath(first), body))
  expect(await at(broken)).toBe('proposer_not_eligible')
  const listed = { ...broken, proposer: front.wallets[0].address }
  expect(await at(listed)).toBe('request_not_open')
  front.view.put(first)
  expect(await at(listed)).toBe('permit_amount_below_required_bond')
  const funded = { ...listed, permit: { ...listed.permit, amount: String(testBondRaw) } }
  expect(await at(funded)).toBe('permit_deadline_too_soon')
  expect(
    await at({
      ...funded,
      permit: { ...funded.permit, deadline: String(testNowSeconds + 300n) },
    }),
  ).toBe('signature_not_authorized')
  expect(await at({ ...broken, outcome: 'p3', proposer: front.wallets[0].address })).toBe(
    'outcome_not_allowed',
  )
})

test('domain §3.3: a wallet with code is asked by EIP-1271, any length; its refusal is 403', async () => {
  const front = await openFront()
  const [wallet] = front.wallets
  const long = `0x${'ab'.repeat(8192)}` as const
  front.view.wallets.set(wallet.address, long)
  const ecdsa = await front.post(submitPath(first), await signedBody(wallet, first))
  expect([ecdsa.status, await codeOf(ecdsa)]).toEqual([403, 'signature_not_authorized'])
  const contract = { ...(await signedBody(wallet, first)), signature: long }
  expect((await front.post(submitPath(first), contract)).status).toBe(202)
})

test('R16: unknown chain state is 503 state_unavailable, for known questions, unseen ones and wallets with code', async () => {
  const front = await openFront({ wallets: 2 })
  const [wallet, contractWallet = makeWallet()] = front.wallets
  front.view.faultList.push('the newest block is 99 s old')
  const stale = await front.post(submitPath(first), await signedBody(wallet, first))
  expect([stale.status, await codeOf(stale)]).toEqual([503, 'state_unavailable'])
  front.view.faultList.length = 0
  front.view.offline = true
  const unseen = makeQuestion('third')
  const unread = await front.post(submitPath(unseen), await signedBody(wallet, unseen))
  expect([unread.status, await codeOf(unread)]).toEqual([503, 'state_unavailable'])
  front.view.wallets.set(contractWallet.address, '0x01')
  const unjudged = await front.post(submitPath(first), await signedBody(contractWallet, first))
  expect([unjudged.status, await codeOf(unjudged)]).toEqual([503, 'state_unavailable'])
  front.view.offline = false
  front.view.unseen.set(unseen.questionId, unseen)
  expect((await front.post(submitPath(unseen), await signedBody(wallet, unseen))).status).toBe(202)
  const nowhere = makeQuestion('nowhere')
  const unknown = await front.post(submitPath(nowhere), await signedBody(wallet, nowhere))
  expect([unknown.status, await codeOf(unknown)]).toEqual([404, 'question_not_found'])
})

test('contract §2, R10: a store that committed nothing is 503, one whose sync failed is 500', async () => {
  let fault: StorageError | undefined
  const faulty = (log: RecordLog): RecordLog => ({
    ...log,
    append: (...given) => (fault ? Promise.reject(fault) : log.append(...given)),
  })
  const front = await openFront({ log: faulty })
  const body = await signedBody(front.wallets[0], first)
  fault = new StorageError('store_unavailable', 'the disk is full', { hint: 'make room' })
  const full = await front.post(submitPath(first), body)
  expect([full.status, await codeOf(full.clone()), full.headers.get('retry-after')]).toEqual([
    503,
    'store_unavailable',
    expect.stringMatching(/^[567]$/),
  ])
  fault = new StorageError('store_failed', 'a sync failed', { hint: 'look at the disk' })
  const unknown = await front.post(submitPath(first), body)
  expect([unknown.status, await codeOf(unknown)]).toEqual([500, 'internal_error'])
  fault = undefined
  expect((await front.post(submitPath(first), body)).status).toBe(202)
})

test('contract §5: a replay that changes nothing needs no disk that takes writes', async () => {
  let fault: StorageError | undefined
  const log = (inner: RecordLog): RecordLog =>
    Object.assign(Object.create(inner), {
      append: (...args: Parameters<RecordLog['append']>) =>
        fault ? Promise.reject(fault) : inner.append(...args),
    })
  const front = await openFront({ log })
  const body = await signedBody(front.wallets[0], first)
  const { candidate_id: id } = await ackOf(await front.post(submitPath(first), body))
  await front.ledger.commit([{ kind: 'candidate.progress', id, progress: retryable }])
  expect(
    (await front.post(submitPath(first), await signedBody(front.wallets[0], first, 'p1'))).status,
  ).toBe(202)
  fault = new StorageError('store_unavailable', 'there is no space', { httpStatus: 503 })
  const replayed = await front.post(submitPath(first), body)
  expect([replayed.status, await ackOf(replayed)]).toMatchObject([
    200,
    { candidate_id: id, status: 'failed' },
  ])
})

test('contract §4: a replay that brings its candidate back comes before a later item for the same question', async () => {
  const log = (inner: RecordLog): RecordLog =>
    Object.assign(Object.create(inner), {
      read: (position: number) =>
        new Promise((resolve) => setTimeout(resolve, 50)).then(() => inner.read(position)),
    })
  const front = await openFront({ log })
  const [wallet] = front.wallets
  const items = [await signedItem(wallet, first, 'p2'), await signedItem(wallet, first, 'p1')]
  const placed = await batchOf(await front.post('/propose/batch', { proposals: items.slice(0, 1) }))
  const id = placed.results[0]?.candidate?.candidate_id ?? ''
  await front.ledger.commit([{ kind: 'candidate.progress', id, progress: retryable }])
  const { results } = await batchOf(await front.post('/propose/batch', { proposals: items }))
  expect(results).toMatchObject([
    { status_code: 200, candidate: { candidate_id: id, status: 'received' } },
    { status_code: 409, error: { code: 'candidate_conflict' } },
  ])
})

test('contract §4: items keep input order, of two for one question the first wins, each answers for itself', async () => {
  const front = await openFront({ wallets: 2 })
  const [wallet, other = makeWallet()] = front.wallets
  const items = [
    { ...(await signedItem(wallet, first, 'p2')), client_ref: 'first' },
    await signedItem(wallet, first, 'p1'),
    { ...(await signedItem(makeWallet(), first)), client_ref: 'stranger' },
    await signedItem(wallet, second),
    await signedItem(other, first),
    { ...(await signedItem(other, second)), proposed_price: '500000000000000000' },
    { ...(await signedItem(other, second)), proposed_price: '7' },
    { ...(await signedItem(other, second)), identifier: 'no-such-question' },
  ]
  const answer = await batchOf(
    await front.post('/propose/batch', { proposals: [...items, items[0]] }),
  )
  expect(answer.results.map(({ status_code, error }) => error?.code ?? status_code)).toEqual([
    202,
    'candidate_conflict',
    'proposer_not_eligible',
    202,
    202,
    'price_not_allowed',
    'price_not_allowed',
    'question_not_found',
    200,
  ])
  expect(answer.results.map(({ client_ref }) => client_ref)).toEqual([
    'first',
    null,
    'stranger',
    null,
    null,
    null,
    null,
    null,
    'first',
  ])
  expect(answer.summary).toEqual({ accepted: 3, replayed: 1, rejected: 5 })
  expect(answer.results[8]?.candidate?.candidate_id).toBe(
    answer.results[0]?.candidate?.candidate_id,
  )
})

test('§4.2 rule 3: once the store refuses, later items carry their own 503 and earlier ones stay', async () => {
  let left = 1
  const filling = (log: RecordLog): RecordLog => ({
    ...log,
    append: (what, onDurable) =>
      log.append((group) => {
        const records = typeof what === 'function' ? what(group) : what
        if (records.some(({ kind }) => kind === 'candidate.received') && left-- <= 0)
          throw new StorageError('store_unavailable', 'the disk is full', { hint: 'make room' })
        return records
      }, onDurable),
  })
  const front = await openFront({ log: filling })
  const [wallet] = front.wallets
  const response = await front.post('/propose/batch', {
    proposals: [await signedItem(wallet, first), await signedItem(wallet, second)],
  })
  expect(response.status).toBe(200)
  expect((await batchOf(response)).results.map(({ status_code }) => status_code)).toEqual([
    202, 503,
  ])
})

test('R18: one malformed item refuses the whole call and nothing is admitted', async () => {
  const front = await openFront()
  const [wallet] = front.wallets
  const proposals = [
    await signedItem(wallet, first),
    { ...(await signedItem(wallet, second)), permit: { amount: '01' } },
  ]
  const response = await front.post('/propose/batch', { proposals })
  expect(response.status).toBe(422)
  expect(await response.json()).toMatchObject({
    error: { code: 'schema_violation' },
    errors: expect.arrayContaining([
      { path: 'proposals.1.permit.amount', code: 'invalid_format' },
      { path: 'proposals.1.permit.nonce', code: 'missing' },
    ]) as unknown,
  })
  expect(front.ledger.active()).toHaveLength(0)
})

test('contract §4: an item that asks nobody has its place before one behind it that waits for the chain', async () => {
  const front = await openFront()
  const [wallet] = front.wallets
  const slow = makeQuestion('slow')
  const asked = deferred()
  front.view.question = () => asked.promise.then(() => slow)
  const proposals = [await signedItem(wallet, first, 'p2'), await signedItem(wallet, slow, 'p2')]
  const answer = front.post('/propose/batch', { proposals })
  await vi.waitFor(() => expect([...front.ledger.newest()]).toHaveLength(1))
  asked.resolve()
  expect(await (await answer).json()).toMatchObject({ summary: { accepted: 2 } })
})
