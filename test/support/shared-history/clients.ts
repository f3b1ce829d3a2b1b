import { setTimeout as sleep } from 'node:timers/promises'
import type { CandidateState, CandidateStatus } from '#protocol/schema'
import type { AdmissionCall, Call, Told } from './admission-model.js'
import type { Payload } from './payloads.js'

const longPatienceMs = 20_000

export interface Answer {
  readonly status: number
  readonly body: {
    readonly candidate_id?: string
    readonly status?: CandidateState
    readonly error?: { readonly code: string; readonly detail: string }
  }
}

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
    if (error instanceof DOMException) return 'lost'
    if (!(error instanceof TypeError)) throw error
    const cause = error.cause as { code?: string } | undefined
    return cause?.code === 'ECONNREFUSED' ? 'never sent' : 'lost'
  }
}

export const detailOf = (status: CandidateStatus): string =>
  JSON.stringify([status.validated_at, status.selected_at, status.submission, status.failure?.code])

type Meaning =
  | { readonly kind: 'told'; readonly told: Told }
  | { readonly kind: 'none' | 'unknown' }

function meaningOf(call: Call, answer: Answer): Meaning {
  const { status, body } = answer
  const told = (what: Told): Meaning => ({ kind: 'told', told: what })
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

const addressOf = (client: number) => `198.51.100.${client}`

export function newClients(urls: readonly string[], random: () => number) {
  const calls: AdmissionCall[] = []
  const acknowledged: Watched[] = []
  const counts = new Map<string, number>()
  const count = (what: string) => counts.set(what, (counts.get(what) ?? 0) + 1)
  const anyOf = <T>(all: readonly T[]): T | undefined => all[Math.floor(random() * all.length)]

  async function make(client: number, call: Call, path: string, body?: string): Promise<Meaning> {
    const begunAt = performance.now()
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
    async propose(payload: Payload, client: number) {
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
    async watch(client: number, until: AbortSignal) {
      while (!until.aborted) {
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
