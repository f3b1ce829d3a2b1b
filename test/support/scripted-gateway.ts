import { yesOrNoQuery } from '#chain/contracts'
import { keccakHex } from '#chain/round'
import type { Trust } from '#client/trust/trust'
import { type Hex, TransportError } from '#ports'
import { priceOf } from '#protocol/proposal'
import type { CandidateStatus } from '#protocol/schema'
import { type BatchSigningData, SignedProposal } from '#protocol/schema'
import { primaryType, witnessTypes } from '#protocol/witness'
import { version } from '#protocol/words'
import type { FakeChain } from './fake-chain.js'
import { adapter, fakeContracts, oracle, token } from './fake-world.js'

const address = (digit: string): Hex => `0x${digit.repeat(40)}`

export const pins: Trust = {
  chain_id: 31337,
  permit2: '0x000000000022d473030f116ddee9f6b43ac78ba3',
  signed_proposer: address('5'),
  oracles: [address('a')],
  requesters: [{ address: address('b'), kind: 'uma-ctf-adapter' }],
  tokens: [address('c')],
  slugs: {},
}

export const bondRaw = '750000000'

export function questionContext(title: string): BatchSigningData {
  const text = `q: title: ${title}, description: d, res_data: p1: 0, p2: 1, p3: 0.5. Where p1 corresponds to No, p2 to Yes, p3 to unknown.`
  const ancillary = `0x${Buffer.from(text).toString('hex')}` as Hex
  const questionId = keccakHex(ancillary)
  return {
    question_id: questionId,
    request: {
      question_id: questionId,
      oracle: address('a'),
      requester: address('b'),
      identifier: { raw: yesOrNoQuery },
      timestamp: '1760000000',
      ancillary_data: ancillary,
    },
    identifier: { raw: yesOrNoQuery },
    price: { allowed_values: [priceOf.p1, priceOf.p2] },
    bond: { token: address('c'), required_bond: bondRaw },
    contracts: { permit2: pins.permit2, signed_proposer: pins.signed_proposer },
    signing: {
      chain_id: pins.chain_id,
      max_payment: '0',
      primary_type: primaryType,
      types: structuredClone(witnessTypes) as never,
    },
  }
}

/** What a gateway on this chain says of a question there, under an id of its own where one is given. */
export function contextOnChain(
  chain: FakeChain,
  text: Hex,
  question: Hex,
  named = question,
): BatchSigningData {
  const plain = questionContext('Will it hold?')
  const { signedProposer: signed_proposer, permit2, chainId: chain_id } = fakeContracts
  return {
    ...plain,
    question_id: named,
    request: {
      ...plain.request,
      question_id: named,
      oracle,
      requester: adapter,
      timestamp: String(chain.world.questions.get(question)?.timestamp),
      ancillary_data: text,
    },
    bond: { token, required_bond: '750000000' },
    contracts: { permit2, signed_proposer },
    signing: { ...plain.signing, chain_id },
  }
}

export type Fault =
  | 'no-connection'
  | 'lost-answer'
  | {
      readonly status: number
      readonly code: string
      readonly detail?: string
      readonly html?: boolean
    }

export interface ScriptedGateway {
  readonly url: string
  readonly fetch: typeof fetch
  readonly question: BatchSigningData
  readonly received: readonly string[]
  readonly calls: readonly string[]
  readonly ineligible: Set<string>
  readonly faults: Fault[]
  become(candidateId: string, change: Partial<CandidateStatus>): void
  steps: Partial<CandidateStatus>[]
  readonly candidates: ReadonlyMap<string, CandidateStatus>
}

const at = '2026-11-20T05:38:00.000Z'

export function scriptedGateway(
  question: BatchSigningData = questionContext('Will it hold?'),
  slug = 'will-it-hold',
  firstId = 1,
): ScriptedGateway {
  const received: string[] = []
  const calls: string[] = []
  const faults: Fault[] = []
  const ineligible = new Set<string>()
  const byBody = new Map<string, string>()
  const candidates = new Map<string, CandidateStatus>()
  const isQuestion = (identifier: string) =>
    identifier === question.question_id || identifier === slug

  const admit = (body: string): Response => {
    received.push(body)
    const known = byBody.get(body)
    const proposal = SignedProposal.parse(JSON.parse(body))
    const candidateId =
      known ?? `00000000-0000-4000-8000-${String(candidates.size + firstId).padStart(12, '0')}`
    if (!known) {
      byBody.set(body, candidateId)
      candidates.set(candidateId, {
        version,
        candidate_id: candidateId,
        question_id: question.question_id,
        proposer: proposal.proposer,
        outcome: proposal.outcome,
        price: priceOf[proposal.outcome],
        status: 'received',
        received_at: at,
        validated_at: null,
        selected_at: null,
        submission: null,
        failure: null,
      })
    }
    const status_url = `/v1/proposals/${question.question_id}/status/${candidateId}`
    const status = candidates.get(candidateId)?.status
    return json(known ? 200 : 202, {
      version,
      candidate_id: candidateId,
      status,
      received_at: at,
      status_url,
    })
  }

  const submit = (body: string): Response => {
    const fault = faults.shift()
    if (fault === undefined) return admit(body)
    if (fault === 'no-connection')
      throw new TransportError('connect', 'ECONNREFUSED', 'connection refused')
    if (fault === 'lost-answer') {
      admit(body)
      throw new TransportError('exchange', 'ECONNRESET', 'the connection was reset')
    }
    received.push(body)
    return faultResponse(fault)
  }

  const gateway: ScriptedGateway = {
    url: 'http://127.0.0.1:8787',
    question,
    received,
    calls,
    ineligible,
    faults,
    steps: [],
    candidates,
    become(candidateId, change) {
      const now = candidates.get(candidateId)
      if (now) candidates.set(candidateId, { ...now, ...change })
    },
    async fetch(input, init) {
      const request = new Request(input, init)
      const { pathname } = new URL(request.url)
      calls.push(`${request.method} ${pathname}`)
      const [, one, two, three, four, five] = pathname.split('/')
      if (one === 'propose' && three === 'signing-data') {
        const { identifiers } = (await request.json()) as { identifiers: string[] }
        const missing = {
          status_code: 404,
          error: { code: 'question_not_found', detail: 'no such question' },
        }
        const found = { status_code: 200, signing_data: question }
        return json(200, {
          results: identifiers.map((identifier) => ({
            identifier,
            ...(isQuestion(identifier) ? found : missing),
          })),
        })
      }
      if (one === 'v1' && two === 'proposals' && three === 'eligibility')
        return json(200, { version, address: four, eligible: !ineligible.has(four ?? '') })
      if (!isQuestion(three ?? ''))
        return json(404, { error: { code: 'question_not_found', detail: 'no such question' } })
      if (four === 'status') {
        const change = gateway.steps.shift()
        if (change) gateway.become(five ?? '', change)
        const status = candidates.get(five ?? '')
        return status
          ? json(200, status)
          : json(404, { error: { code: 'candidate_not_found', detail: 'no such candidate' } })
      }
      return submit(await request.text())
    },
  }
  return gateway
}

function faultResponse(fault: Exclude<Fault, string>): Response {
  if (fault.html === true)
    return new Response('<html>bad gateway</html>', {
      status: fault.status,
      headers: { 'content-type': 'text/html' },
    })
  return json(fault.status, {
    error: { code: fault.code, detail: fault.detail ?? 'as the test wants it' },
  })
}

const json = (status: number, body: unknown) =>
  Response.json(body, {
    status,
    headers: { 'retry-after': '0' },
  })

export const happySteps: Partial<CandidateStatus>[] = [
  { status: 'validated', validated_at: at },
  { status: 'selected', selected_at: at },
  {
    status: 'executed',
    submission: {
      status: 'indexed',
      transaction_hash: `0x${'7'.repeat(64)}`,
      submitted_at: at,
      confirmed_at: at,
      indexed_at: at,
      proposal_event_index: 3,
    },
  },
]
