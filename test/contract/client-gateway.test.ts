import { beforeEach, expect, test } from 'vitest'
import { statusOnce } from '#client/follow/look'
import { createGatewayClient } from '#client/gateway/gateway-client'
import { stateOf } from '#client/journal/authorizations'
import { openJournal } from '#client/journal/journal'
import type { Intent } from '#client/propose/intent'
import { submitIntent, submitPayload } from '#client/propose/submission'
import { gatewayContexts } from '#client/trust/context'
import type { Trust } from '#client/trust/trust'
import { signerFromKey } from '#io/keys'
import { type Fetch, TransportError } from '#ports'
import { fromHex } from '#protocol/witness'
import { type EventClock, eventClock, sha256 } from '#support/client-world'
import { advanced, makeQuestion, testContracts, testNowSeconds } from '#support/fake-view'
import { openFront, type TestFront } from '#support/front'
import { SimFiles, SimHost, seededRandom } from '#support/sim-files'

const question = makeQuestion('first', { slug: 'first-question' })
const trust: Trust = {
  chain_id: testContracts.chainId,
  permit2: testContracts.permit2,
  signed_proposer: testContracts.signedProposer,
  oracles: [...testContracts.oracles],
  requesters: testContracts.requesters.map((each) => ({ ...each })),
  tokens: [...testContracts.tokens],
  slugs: { 'first-question': question.questionId },
}

let front: TestFront
let clock: EventClock
let lose: 'nothing' | 'the next answer'
let home: SimFiles

beforeEach(async () => {
  front = await openFront({ wallets: 2 })
  clock = eventClock(Number(testNowSeconds) * 1_000)
  lose = 'nothing'
  home = new SimFiles()
})

const inProcess: Fetch = async (input, init) => {
  const answer = await front.gateway.handle(new Request(input, init), {})
  if (lose === 'nothing' || !String(input).includes('/v1/')) return answer
  lose = 'nothing'
  throw new TransportError('exchange', 'ECONNRESET', 'lost')
}

let runs = 0
function client(wallet: 0 | 1 = 0) {
  const key = front.wallets[wallet]?.privateKey
  if (key === undefined) throw new Error('no such wallet')
  const signer = signerFromKey(fromHex(key))
  const ports = {
    clock,
    random: seededRandom(++runs),
    hash: sha256,
    files: home.process(),
    liveness: new SimHost().liveness(1),
  }
  const gateway = createGatewayClient({
    fetch: inProcess,
    baseUrl: 'http://localhost',
    clock,
    origin: 'local:test',
  })
  const intent: Intent = { identifier: 'first-question', proposer: signer.address, outcome: 'p2' }
  const parts = {
    ports,
    journal: openJournal(ports, '/home'),
    gateway,
    trust,
    signer: async () => signer,
    context: async () => {
      const [result] = await gatewayContexts(gateway, trust, clock).contexts(['first-question'])
      if (result?.context === undefined) throw result?.error
      return result.context
    },
  }
  return { parts, intent, gateway }
}

test('§4.1: signed, accepted, told by status, replayed with the same id', async () => {
  const { parts, intent } = client()
  const first = await clock.drive(submitIntent(parts, intent))
  if (first.error !== undefined) throw first.error
  expect(first).toMatchObject({
    outcome: 'accepted',
    statusCode: 202,
    questionId: question.questionId,
  })
  const status = await clock.drive(
    statusOnce(parts, { candidateId: first.candidateId, identifier: 'first-question' }),
  )
  expect(status).toMatchObject({
    candidate_id: first.candidateId,
    proposer: intent.proposer,
    outcome: 'p2',
    status: 'received',
  })
  const again = await clock.drive(submitIntent(client().parts, intent))
  expect(again).toMatchObject({
    outcome: 'replayed',
    statusCode: 200,
    candidateId: first.candidateId,
  })
})

test('R22: an imported payload is the same candidate whatever its spacing', async () => {
  const { parts, intent } = client()
  const first = await clock.drive(submitIntent(parts, intent))
  if (first.error !== undefined) throw first.error
  home = new SimFiles()
  const spaced = JSON.stringify(JSON.parse(first.authorization.signed.body), null, 1)
  const imported = await clock.drive(submitPayload(client().parts, question.questionId, spaced))
  expect(imported).toMatchObject({ outcome: 'replayed', candidateId: first.candidateId })
})

test('contract §2: a superseding one meets candidate_conflict while the first is active', async () => {
  const { parts, intent } = client()
  const first = await clock.drive(submitIntent(parts, intent))
  const second = await clock.drive(
    submitIntent(parts, { ...intent, outcome: 'p1', supersede: first.journalId }),
  )
  expect(second).toMatchObject({
    outcome: 'conflict',
    error: { code: 'candidate_conflict', meta: { exitCode: 5 } },
  })
  const { authorizations } = await clock.drive(parts.journal.load())
  expect(authorizations.map((one) => stateOf(one, clock.nowMs()).kind)).toEqual([
    'accepted',
    'conflict',
  ])
})

test('contract §6: after a dispute the saved bytes meet round_advanced, and while the old candidate lives nothing is signed', async () => {
  const { parts, intent } = client()
  await clock.drive(submitIntent(parts, intent))
  front.view.put(advanced({ ...question, round: question.round }, '1799000500'))
  const failure = await clock.drive(submitIntent(parts, intent)).catch((error: unknown) => error)
  expect(failure).toMatchObject({ code: 'authorization_open', meta: { exitCode: 5 } })
  expect((await clock.drive(parts.journal.load())).authorizations).toHaveLength(1)
})
