/**
 * A round that several question ids share (domain §10): a reporter's request may serve up to ten.
 * What is unique is the round, so that two of its questions never get two transactions (R3).
 */
import { yesOrNoQuery } from '#chain/contracts'
import type { Hex } from '#ports'
import { makeQuestion, sibling, signedBody, signedItem } from '#support/fake-view'
import { adapter, fakeContracts, oracle, questionOf } from '#support/fake-world'
import { openFront } from '#support/front'
import { createPipelineWorld, proposals } from '#support/pipeline-world'

const first = makeQuestion('shared', { kind: 'oo-reporter' })
const second = sibling(first, 'its second id')
const pathOf = ({ questionId }: typeof first) => `/v1/proposals/${questionId}`

async function sharedFront() {
  const front = await openFront({ wallets: 2 })
  for (const question of [first, second]) front.view.put(question)
  return front
}

test('contract §2: the same proposer’s payload for a second question of the round is a conflict that names candidate and question', async () => {
  const front = await sharedFront()
  const [wallet] = front.wallets
  const created = await front.post(pathOf(first), await signedBody(wallet, first))
  const { candidate_id } = (await created.json()) as { candidate_id: string }
  expect(created.status).toBe(202)
  for (const outcome of ['p1', 'p2'] as const) {
    const refused = await front.post(pathOf(second), await signedBody(wallet, second, outcome))
    expect(refused.status).toBe(409)
    const { error } = (await refused.json()) as { error: { code: string; detail: string } }
    expect(error.code).toBe('candidate_conflict')
    expect(error.detail).toContain(`candidate ${candidate_id}, for question ${first.questionId}`)
    expect(error.detail).toContain('both questions share this round')
  }
  expect(front.ledger.active()).toHaveLength(1)
})

test('contract §4: of two items of one batch call for two questions of a round the first is admitted, the second told so', async () => {
  const front = await sharedFront()
  const [wallet] = front.wallets
  const proposals = [await signedItem(wallet, second), await signedItem(wallet, first)]
  const answer = await front.post('/propose/batch', { proposals })
  const { results } = (await answer.json()) as {
    results: { status_code: number; error?: { code: string; detail: string } }[]
  }
  expect(results.map(({ status_code }) => status_code)).toEqual([202, 409])
  expect(results[1]?.error?.detail).toContain(`for question ${second.questionId}`)
})

test('§4.1 rule 4: a candidate’s status answers for each question of its request, in later rounds too, and for no other', async () => {
  const front = await sharedFront()
  const created = await front.post(pathOf(first), await signedBody(front.wallets[0], first))
  const { candidate_id } = (await created.json()) as { candidate_id: string }
  const statusOf = (question: typeof first) =>
    front.get(`${pathOf(question)}/status/${candidate_id}`)
  const later = { ...second, round: { ...second.round, timestamp: '1799000500' } }
  for (const shown of [second, { ...later, ref: { ...later.ref, key: 'f'.repeat(32) } }]) {
    front.view.put(shown)
    const answer = await statusOf(second)
    expect(answer.status).toBe(200)
    expect(await answer.json()).toMatchObject({ candidate_id, question_id: first.questionId })
  }
  const other = makeQuestion('other', { kind: 'oo-reporter' })
  front.view.put(other)
  expect((await statusOf(other)).status).toBe(404)
})

test('R3: candidates for two questions of one round get one transaction; the other one fails as not selected', async () => {
  const contracts = {
    ...fakeContracts,
    requesters: [{ address: adapter, kind: 'direct' as const }],
  }
  const world = await createPipelineWorld({ contracts })
  const asked = await world.question()
  const { ancillaryData, timestamp } = questionOf(world.chain.world, asked)
  const request = {
    oracle,
    requester: adapter,
    identifier: yesOrNoQuery,
    timestamp: String(timestamp),
    ancillaryData,
  }
  const ids = ['1', '2'].map((digit): Hex => `0x${digit.repeat(64)}`)
  for (const questionId of ids) world.view.setEntry({ questionId, request })
  await world.view.poll()
  const candidates = []
  for (const [by, questionId] of ids.entries())
    candidates.push(
      await world.submit(questionId, { by, price: by === 0 ? '0' : '1000000000000000000' }),
    )
  expect(new Set(candidates.map(({ round }) => round.key)).size).toBe(1)
  await world.pass(10)
  const ended = await Promise.all(candidates.map(world.now))
  expect(ended.map(({ progress }) => progress)).toMatchObject([
    { status: 'executed' },
    { status: 'failed', failure: { code: 'not_selected', retryable: false } },
  ])
  expect(proposals(world)).toHaveLength(1)
  expect(ids.map((id) => world.view.known(id)?.round.state)).toEqual(['proposed', 'proposed'])
})
