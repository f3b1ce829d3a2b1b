/**
 * Clients of several gateways that are one. They replay the same bytes until they have an
 * acknowledgement, and write down every call with its times and what was told.
 */
import { performance } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import type { CandidateState, CandidateStatus } from '../../../src/core/protocol/responses.js'
import type { AdmissionCall, Call, Told } from './admission-model.js'
import type { Payload } from './payloads.js'

/** Longer than a gateway settles an unknown commit; for what must not be lost. */
const longPatienceMs = 20_000

export interface Answer {
  readonly status: number
  readonly body: {
    readonly candidate_id?: string
    readonly status?: CandidateState
    readonly error?: { readonly code: string; readonly detail: string }
  }
}

/** One call of a client address; `undefined`: no answer came. */
export async function ask(
  url: string,
  address: string,
  body?: string,
  patienceMs = longPatienceMs,
): Promise<Answer | 'lost' | 'never sent'> {
  const headers = { 'x-forwarded-for': address, 'content-type': 'application/json' }
  try {
    const answer = await fetch(url, {
      headers,
      signal: AbortSignal.timeout(patienceMs),
      ...(body === undefined ? {} : { method: 'POST', body }),
    })
    return { status: answer.status, body: (await answer.json()) as Answer['body'] }
  } catch (error) {
    // Not answered in time; or, of fetch, that there is no connection, or none any more.
    if (error instanceof DOMException) return 'lost'
    if (!(error instanceof TypeError)) throw error
    const cause = error.cause as { code?: string } | undefined
    return cause?.code === 'ECONNREFUSED' ? 'never sent' : 'lost'
  }
}

/** The part of a status that only the log decides. */
export const detailOf = (status: CandidateStatus): string =>
  JSON.stringify([status.validated_at, status.selected_at, status.submission, status.failure?.code])

/** What is to be held against the model; `none`: nothing was told about the payload. */
type Meaning =
  | { readonly kind: 'told'; readonly told: Told }
  | { readonly kind: 'none' | 'unknown' }

function meaningOf(call: Call, answer: Answer): Meaning {
  const { status, body } = answer
  const told = (what: Told): Meaning => ({ kind: 'told', told: what })
  // Refused for now, before anything was written.
  if (status === 429 || status === 503) return { kind: 'none' }
  if (status >= 500) return { kind: 'unknown' }
  if (status < 300) {
    const { candidate_id: id = '', status: word = 'received' } = body
    const detail = call.kind === 'status' ? detailOf(body as CandidateStatus) : undefined
    const stage = { status: word, ...(detail === undefined ? {} : { detail }) }
    return told({ kind: 'held', id, isNew: status === 202, stage })
  }
  if (call.kind === 'status') return told({ kind: 'missing' })
  if (body.error?.code !== 'candidate_conflict') return told({ kind: 'refused' })
  const id = /candidate ([0-9a-f-]{36})/.exec(body.error.detail)?.[1] ?? ''
  return told({ kind: 'conflict', id })
}

export interface Watched {
  readonly payload: Payload
  readonly id: string
}

export interface Clients {
  /** Until it is acknowledged or refused; then some deliberate resends. */
  propose(payload: Payload, client: number): Promise<void>
  /** Asks for statuses of what was acknowledged until the signal. */
  watch(client: number, until: AbortSignal): Promise<void>
  readonly calls: readonly AdmissionCall[]
  readonly acknowledged: readonly Watched[]
  /** How often what was told, of submissions. */
  readonly counts: ReadonlyMap<string, number>
}

const addressOf = (client: number) => `198.51.100.${client}`

/** `urls`: the gateways, of which any may be away. */
export function newClients(urls: readonly string[], random: () => number): Clients {
  const calls: AdmissionCall[] = []
  const acknowledged: Watched[] = []
  const counts = new Map<string, number>()
  const count = (what: string) => counts.set(what, (counts.get(what) ?? 0) + 1)
  const anyOf = <T>(all: readonly T[]): T | undefined => all[Math.floor(random() * all.length)]

  async function make(client: number, call: Call, path: string, body?: string): Promise<Meaning> {
    const begunAt = performance.now()
    // Some go away early: whether it was taken they do not know then.
    const patienceMs = Math.ceil(random() < 0.1 ? random() * 100 : 1_000 + random() * 8_000)
    const answer = await ask(`${anyOf(urls)}${path}`, addressOf(client), body, patienceMs)
    const isAnswer = typeof answer === 'object'
    if (call.kind === 'submit')
      count(isAnswer ? `${answer.status} ${answer.body.error?.code ?? ''}`.trim() : answer)
    if (answer === 'never sent') return { kind: 'none' }
    const meaning: Meaning = isAnswer ? meaningOf(call, answer) : { kind: 'unknown' }
    const known = { client: String(client), input: call, begunAt }
    if (meaning.kind === 'told')
      calls.push({ ...known, endedAt: performance.now(), output: meaning.told })
    // A status that was not heard has changed nothing.
    else if (meaning.kind === 'unknown' && call.kind === 'submit')
      calls.push({ ...known, endedAt: Infinity, output: undefined })
    return meaning
  }

  const submit = (client: number, { identity, path, body }: Payload) =>
    make(client, { kind: 'submit', identity }, path, body)

  return {
    calls,
    acknowledged,
    counts,
    async propose(payload, client) {
      for (;;) {
        const meaning = await submit(client, payload)
        if (meaning.kind === 'told') {
          if (meaning.told.kind !== 'held') return
          acknowledged.push({ payload, id: meaning.told.id })
          break
        }
        await sleep(100 + random() * 600)
      }
      const again = random() < 0.3 ? 1 + Math.floor(random() * 3) : 0
      await Promise.all(Array.from({ length: again }, () => submit(client, payload)))
    },
    async watch(client, until) {
      while (!until.aborted) {
        // What was acknowledged lately moves most.
        const recent = random() < 0.8 ? acknowledged.slice(-40) : acknowledged
        const one = anyOf(recent)
        if (one !== undefined) {
          const { payload, id } = one
          const call = { kind: 'status', identity: payload.identity, id } as const
          await make(client, call, `${payload.path}/status/${id}`)
        }
        await sleep(150 + random() * 300)
      }
    },
  }
}
