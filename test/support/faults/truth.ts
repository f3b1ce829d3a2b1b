/**
 * What callers of a gateway know: every payload they sent, and every answer they got. A store is
 * held against it.
 */

import { argvOf } from '../argv.js'
import type { Workshop } from '../processes.js'
import { type HouseStore, keyOf, type Payload } from './house.js'

interface Known {
  readonly payload: Payload
  state: 'unknown' | 'refused' | 'accepted'
  id?: string
}

export interface Truth {
  submit(url: string, payloads: readonly Payload[]): Promise<boolean>
  /**
   * Sends everything that is unknown again until it is accepted (R7), and some of what was
   * accepted: 200 with the same id (R2).
   */
  settle(url: string, some: number, random: () => number): Promise<void>
  prove(): Promise<void>
  readonly proved: Readonly<Proved>
  readonly statuses: ReadonlyMap<string, number>
  readonly accepted: number
  readonly unknown: number
}

export interface Proved {
  found: number
  lost: number
  invented: number
}

interface Answer {
  readonly status: number
  readonly body: {
    candidate_id?: string
    error?: { code: string }
    results?: readonly BatchResult[]
  }
}
interface BatchResult {
  readonly status_code: number
  readonly candidate?: { readonly candidate_id: string } | null
  readonly error?: { readonly code: string } | null
}

async function post(url: string, path: string, body: string): Promise<Answer | undefined> {
  try {
    const answer = await fetch(`${url}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body,
    })
    return { status: answer.status, body: (await answer.json()) as Answer['body'] }
  } catch (error) {
    if (error instanceof TypeError) return undefined
    throw error
  }
}

export function newTruth(shop: Workshop, { config }: Pick<HouseStore, 'config'>): Truth {
  const known = new Map<string, Known>()
  const statuses = new Map<string, number>()
  const proved: Proved = { found: 0, lost: 0, invented: 0 }

  function hear(
    payload: Payload,
    status: number,
    id: string | undefined,
    code: string | undefined,
  ): void {
    const entry = known.get(payload.key)
    if (entry === undefined) throw new Error('an answer to what was never sent')
    const told = code === undefined ? String(status) : `${status} ${code}`
    statuses.set(told, (statuses.get(told) ?? 0) + 1)
    if (status === 200 || status === 202) {
      if (id === undefined) throw new Error(`${status} without an id`)
      if (entry.state === 'accepted' && entry.id !== id)
        throw new Error(`R2: ${payload.key} is ${entry.id}, then ${id}`)
      if (status === 202 && entry.state === 'accepted' && !concurrent.has(payload.key))
        throw new Error(`R2: 202 again for ${payload.key}, known as ${id}`)
      if (status === 202 && admitted.has(payload.key))
        throw new Error(`R2: two 202 for ${payload.key}`)
      if (status === 202) admitted.add(payload.key)
      entry.state = 'accepted'
      entry.id = id
      return
    }
    if (entry.state === 'accepted' && status !== 503)
      throw new Error(`${told} for ${payload.key}, which is ${entry.id}`)
    if (status === 503) {
      if (first.has(payload.key)) entry.state = 'refused'
    } else if (status !== 500) throw new Error(`${told} for ${payload.key}`)
  }
  const first = new Set<string>()
  const concurrent = new Set<string>()
  const admitted = new Set<string>()
  const underWay = new Map<string, number>()

  function send(payload: Payload): void {
    const count = (underWay.get(payload.key) ?? 0) + 1
    underWay.set(payload.key, count)
    if (count > 1) concurrent.add(payload.key)
    if (known.has(payload.key)) first.delete(payload.key)
    else first.add(payload.key)
    const entry = known.get(payload.key)
    if (entry === undefined) known.set(payload.key, { payload, state: 'unknown' })
    else if (entry.state === 'refused') entry.state = 'unknown'
  }
  function done(payload: Payload): void {
    const count = (underWay.get(payload.key) ?? 1) - 1
    underWay.set(payload.key, count)
    if (count === 0) concurrent.delete(payload.key)
  }

  async function submit(url: string, payloads: readonly Payload[]): Promise<boolean> {
    const [one] = payloads
    if (one === undefined) return true
    for (const payload of payloads) send(payload)
    try {
      if (payloads.length === 1) {
        const answer = await post(url, one.path, one.body)
        if (answer === undefined) return false
        hear(one, answer.status, answer.body.candidate_id, answer.body.error?.code)
        return true
      }
      const answer = await post(
        url,
        '/propose/batch',
        JSON.stringify({ proposals: payloads.map(({ item }) => item) }),
      )
      if (answer === undefined) return false
      for (const [index, payload] of payloads.entries()) {
        const result = answer.body.results?.[index]
        if (result === undefined)
          hear(payload, answer.status, undefined, answer.body.error?.code ?? 'no result')
        else hear(payload, result.status_code, result.candidate?.candidate_id, result.error?.code)
      }
      return true
    } finally {
      for (const payload of payloads) done(payload)
    }
  }

  const inState = (state: Known['state']) =>
    [...known.values()].filter((entry) => entry.state === state)

  return {
    submit,
    async settle(url, some, random) {
      const open = inState('unknown').map(({ payload }) => payload)
      const taken = inState('accepted')
      const again = Array.from(
        { length: Math.min(some, taken.length) },
        () => taken[Math.floor(random() * taken.length)]?.payload,
      )
      for (const payload of [...open, ...again]) {
        if (payload === undefined) continue
        for (;;) {
          if (!(await submit(url, [payload]))) throw new Error('the gateway does not answer')
          if (known.get(payload.key)?.state === 'accepted') break
          await new Promise((resolve) => setTimeout(resolve, 100))
        }
      }
    },
    async prove() {
      const ended = await shop.run(argvOf`operator --config ${config} store export --ndjson`)
      if (ended.code !== 0) throw new Error(`the store cannot be read: ${ended.stderr}`)
      const rows = ended.stdout
        .split('\n')
        .filter((line) => line.includes('"candidate_id"'))
        .map(
          (line) =>
            JSON.parse(line) as Record<
              'candidate_id' | 'proposer' | 'question_id' | 'permit_nonce',
              string
            >,
        )
      const found = new Map<string, string>()
      const faults: string[] = []
      for (const { candidate_id, proposer, question_id, permit_nonce } of rows) {
        const key = keyOf(proposer, question_id, permit_nonce)
        const state = known.get(key)?.state
        if (found.has(key)) faults.push(`R2: ${key} is there twice`)
        else if (state === undefined) faults.push(`${key} is there, and was never sent`)
        else if (state === 'refused') faults.push(`${key} is there, and was refused`)
        found.set(key, candidate_id)
      }
      proved.invented += faults.length
      const accepted = inState('accepted')
      const missing = accepted.filter(({ payload, id }) => found.get(payload.key) !== id)
      for (const { payload, id } of missing) {
        faults.push(`R1: ${payload.key} was accepted as ${id}; there is ${found.get(payload.key)}`)
      }
      proved.lost += missing.length
      proved.found = accepted.length - missing.length
      if (faults.length > 0)
        throw new Error(`${faults.length} faults: ${faults.slice(0, 3).join('; ')}`)
    },
    proved,
    statuses,
    get accepted() {
      return inState('accepted').length
    },
    get unknown() {
      return inState('unknown').length
    },
  }
}
