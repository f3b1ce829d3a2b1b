import type { MemoryBudget } from '#gateway/front/budget'
import type { Clock, Fetch } from '#ports'
import { instant } from '#protocol/candidate'
import type { CandidateStatus } from '#protocol/schema'
import { version } from '#protocol/words'

export interface LifeOptions {
  readonly lifeMs?: number
  readonly receivedMs?: number
  readonly failure?: CandidateStatus['failure']
}

export interface StatusGateway {
  readonly url: string
  readonly questionId: string
  readonly fetch: Fetch
  admit(options?: LifeOptions): string
  readonly looks: { readonly single: string[]; readonly batch: string[][] }
  readonly faults: (() => Response | Promise<Response>)[]
  hasBatch: boolean
  budget?: MemoryBudget
  refused: number
  alter?: (result: object, candidateId: string) => object | undefined
}

export const json = (status: number, body: unknown, headers: Record<string, string> = {}) =>
  Response.json(body, {
    status,
    headers,
  })

export const html = (): Response =>
  new Response('<html>', { status: 502, headers: { 'content-type': 'text/html' } })
export const busy = (seconds: number): Response =>
  json(503, { error: { code: 'server_busy', detail: 'busy' } }, { 'retry-after': String(seconds) })

export function statusGateway(clock: Pick<Clock, 'nowMs'>): StatusGateway {
  const lives = new Map<string, Required<LifeOptions>>()
  const questionId = `0x${'ab'.repeat(32)}` as const

  const statusOf = (id: string): CandidateStatus | undefined => {
    const life = lives.get(id)
    if (life === undefined) return undefined
    const { receivedMs, lifeMs, failure } = life
    const share = (clock.nowMs() - receivedMs) / lifeMs
    const at = (part: number) => (share >= part ? instant(receivedMs + part * lifeMs) : null)
    const failed = share >= 1 && failure !== null
    return {
      version,
      candidate_id: id,
      question_id: questionId,
      proposer: `0x${'cd'.repeat(20)}` as const,
      outcome: 'p2',
      price: '1000000000000000000',
      status: failed
        ? 'failed'
        : share >= 1
          ? 'executed'
          : share >= 0.4
            ? 'selected'
            : share >= 0.2
              ? 'validated'
              : 'received',
      received_at: instant(receivedMs),
      validated_at: at(0.2),
      selected_at: at(0.4),
      submission:
        share < 0.6 || failed
          ? null
          : {
              status: share >= 1 ? 'indexed' : share >= 0.8 ? 'confirmed' : 'submitted',
              transaction_hash: `0x${'7'.repeat(64)}`,
              submitted_at: at(0.6),
              confirmed_at: at(0.8),
              indexed_at: at(1),
              proposal_event_index: share >= 1 ? 3 : null,
            },
      failure: failed ? failure : null,
    }
  }
  const notFound = { code: 'candidate_not_found', detail: 'no such candidate' }
  const batchResult = (id: string) => {
    const status = statusOf(id)
    if (status === undefined) return { candidate_id: id, status_code: 404, error: notFound }
    const { candidate_id, status: state, received_at, submission, failure } = status
    const told = failure && { code: failure.code, detail: failure.detail }
    return {
      candidate_id,
      status_code: 200,
      candidate: { candidate_id, status: state, received_at, submission, failure: told },
    }
  }

  const gateway: StatusGateway = {
    url: 'http://127.0.0.1:8787',
    questionId,
    looks: { single: [], batch: [] },
    faults: [],
    hasBatch: true,
    refused: 0,
    admit({ lifeMs = 3_000, receivedMs = clock.nowMs(), failure = null } = {}) {
      const id = `00000000-0000-4000-8000-${String(lives.size + 1).padStart(12, '0')}`
      lives.set(id, { lifeMs, receivedMs, failure })
      return id
    },
    async fetch(input, init) {
      const request = new Request(input, init)
      const { pathname } = new URL(request.url)
      const fault = gateway.faults.shift()
      if (fault !== undefined) return fault()
      const isBatch = pathname === '/propose/batch/status' && gateway.hasBatch
      const { candidate_ids: ids } = isBatch
        ? ((await request.json()) as { candidate_ids: string[] })
        : { candidate_ids: ['one'] }
      const charged = gateway.budget?.charge('us', ids.length, clock.nowMs())
      const headers = charged && {
        'ratelimit-limit': String(charged.limitItems),
        'ratelimit-remaining': String(charged.remainingItems),
        'ratelimit-reset': String(charged.resetSeconds),
      }
      if (charged?.admitted === false) {
        gateway.refused++
        const seconds = String(charged.retryAfterSeconds)
        return json(
          429,
          { error: { code: 'rate_limited', detail: `retry in ${seconds} seconds` } },
          { ...headers, 'retry-after': seconds },
        )
      }
      if (isBatch) {
        gateway.looks.batch.push(ids)
        const results = ids.flatMap((id) =>
          gateway.alter ? (gateway.alter(batchResult(id), id) ?? []) : batchResult(id),
        )
        return json(200, { results }, headers)
      }
      const [, , , identifier, , id = ''] = pathname.split('/')
      if (!pathname.includes('/status/'))
        return json(404, { error: { code: 'route_not_found', detail: 'no such route' } })
      gateway.looks.single.push(id)
      const status = identifier === questionId || identifier === 'a-slug' ? statusOf(id) : undefined
      return status === undefined
        ? json(404, { error: notFound }, headers)
        : json(200, status, headers)
    },
  }
  return gateway
}
