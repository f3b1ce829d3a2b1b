// The gateway of well-known parts that the bench measures us beside: Fastify, zod, viem, and
// better-sqlite3 or PostgreSQL. It is fair: the same schemas and checks for the same payloads, and
// what it answers 202 is durable. It has no rate limit and no rule about rounds, only exact replay.
//
// CONTEXT=context.json STORE=peer.db|postgres://… PORT=0 node gateway.js
// prints {"event":"ready","url":…}. context.json is made by `peerContext` of ../payloads.js.
import { createHash, randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import Fastify from 'fastify'
import pLimit from 'p-limit'
import { verifyTypedData } from 'viem'
import { Batch, Single } from './schemas.js'
import { openPostgres, openSqlite } from './stores.js'

const { CONTEXT, STORE, PORT = '0' } = process.env
const context = JSON.parse(readFileSync(CONTEXT, 'utf8'))
const questions = new Map(context.questions.map((each) => [each.question_id, each]))
const allowlist = new Set(context.allowlist)
const store = await (STORE.startsWith('postgres:') ? openPostgres(STORE) : openSqlite(STORE))

const prices = { p1: '0', p2: '1000000000000000000', p3: '500000000000000000' }
const leastSeconds = 300
const itemsAtOnce = 8

const field = (name, type) => ({ name, type })
const types = {
  PermitWitnessTransferFrom: [
    field('permitted', 'TokenPermissions'),
    field('spender', 'address'),
    field('nonce', 'uint256'),
    field('deadline', 'uint256'),
    field('witness', 'Proposal'),
  ],
  TokenPermissions: [field('token', 'address'), field('amount', 'uint256')],
  Proposal: [
    field('oracle', 'address'),
    field('requester', 'address'),
    field('identifier', 'bytes32'),
    field('timestamp', 'uint256'),
    field('ancillaryData', 'bytes'),
    field('proposedPrice', 'int256'),
    field('maxPayment', 'uint256'),
  ],
}

/** Whether the proposer has signed exactly this proposal for this question. */
const isSigned = (question, { proposer, price, amount, nonce, deadline, signature }) =>
  verifyTypedData({
    address: proposer,
    signature,
    types,
    primaryType: 'PermitWitnessTransferFrom',
    domain: { name: 'Permit2', chainId: context.chain_id, verifyingContract: context.permit2 },
    message: {
      permitted: { token: context.token, amount: BigInt(amount) },
      spender: context.signed_proposer,
      nonce: BigInt(nonce),
      deadline: BigInt(deadline),
      witness: {
        oracle: question.oracle,
        requester: question.requester,
        identifier: question.identifier,
        timestamp: BigInt(question.timestamp),
        ancillaryData: question.ancillary_data,
        proposedPrice: BigInt(price),
        maxPayment: 0n,
      },
    },
  })

const refusal = (status_code, code, detail) => ({ status_code, error: { code, detail } })
const answer = (status_code, { id, receivedAt }) => ({
  status_code,
  candidate: { candidate_id: id, status: 'received', received_at: receivedAt },
})

/** Checks one proposal and keeps it. */
async function admit(identifier, proposal) {
  const question = questions.get(identifier)
  if (question === undefined) return refusal(404, 'question_not_found', 'unknown question')
  const payload = JSON.stringify(proposal)
  const identity = createHash('sha256').update(`${identifier}\n${payload}`).digest('hex')
  const known = await store.byIdentity(identity)
  if (known !== undefined) return answer(200, known)
  if (!allowlist.has(proposal.proposer))
    return refusal(403, 'proposer_not_eligible', 'the proposer is not on the allowlist')
  if (BigInt(proposal.amount) < BigInt(context.bond))
    return refusal(422, 'permit_amount_below_required_bond', 'the amount is below the bond')
  if (Number(proposal.deadline) < Date.now() / 1000 + leastSeconds)
    return refusal(422, 'permit_deadline_too_soon', 'the deadline is too soon')
  if (!(await isSigned(question, proposal)))
    return refusal(403, 'signature_not_authorized', 'the signature is of somebody else')
  const fresh = { id: randomUUID(), identity, payload, receivedAt: new Date().toISOString() }
  if (await store.insert(fresh)) return answer(202, fresh)
  return answer(200, await store.byIdentity(identity))
}

const app = Fastify({ bodyLimit: 2 ** 21 })

app.post('/v1/proposals/:identifier', async (request, reply) => {
  const { success, data } = Single.safeParse(request.body)
  if (!success)
    return reply.code(422).send({ error: { code: 'schema_violation', detail: 'invalid body' } })
  const { version, proposer, outcome, permit, signature } = data
  const proposal = { proposer, price: prices[outcome], ...permit, signature }
  const { status_code, candidate, error } = await admit(request.params.identifier, proposal)
  return reply.code(status_code).send(candidate ? { version, ...candidate } : { error })
})

app.post('/propose/batch', async (request, reply) => {
  const { success, data } = Batch.safeParse(request.body)
  if (!success)
    return reply.code(422).send({ error: { code: 'schema_violation', detail: 'invalid body' } })
  const limit = pLimit(itemsAtOnce)
  const judge = async ({ identifier, client_ref = null, proposer, permit, ...item }) => ({
    client_ref,
    ...(await admit(identifier, {
      proposer,
      price: item.proposed_price,
      ...permit,
      signature: item.signature,
    })),
  })
  const results = await Promise.all(data.proposals.map((item) => limit(judge, item)))
  const count = (test) => results.filter(({ status_code }) => test(status_code)).length
  return {
    results,
    summary: {
      accepted: count((status) => status === 202),
      replayed: count((status) => status === 200),
      rejected: count((status) => status >= 400),
    },
  }
})

app.get('/v1/proposals/:identifier/status/:id', async (request, reply) => {
  const known = await store.byId(request.params.id)
  if (known === undefined)
    return reply.code(404).send({ error: { code: 'candidate_not_found', detail: 'unknown' } })
  return { ...answer(200, known).candidate, submission: null, failure: null }
})

const url = await app.listen({ host: '127.0.0.1', port: Number(PORT) })
process.stdout.write(`${JSON.stringify({ event: 'ready', url })}\n`)
