import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Chain, Clock, Fetch } from '#ports'
import { outcomeOf } from '#protocol/proposal'
import type { BatchItem } from '#protocol/schema'
import { version } from '#protocol/words'
import { argvOf } from './argv.js'
import { proposerHome, type Ran, run } from './cli.js'
import { pins, questionContext, type ScriptedGateway, scriptedGateway } from './scripted-gateway.js'

export type Route = 'eligibility' | 'submit' | 'status' | 'contexts' | 'submitBatch' | 'statuses'
export type Answers = (route: Route, body: unknown, status: number) => unknown

export interface AnyGateway {
  readonly home: string
  readonly gateway: ScriptedGateway
  /** Host and redirect mode of each call. */
  readonly asked: Set<string>
  answers: Answers
  refuses?: Route
  ask(
    argv: readonly string[],
    options?: { readonly chain?: Chain; readonly columns?: number },
  ): Promise<Ran>
  journaled(): Promise<readonly { readonly state: string; readonly candidate_id: string | null }[]>
  file(name: string, content: string): string
}

const mostCalls = 60

const json = (status: number, body: unknown) => Response.json(body, { status })

export async function anyGateway(
  slug = 'will-it-hold',
  title = 'Will it hold?',
): Promise<AnyGateway> {
  const gateway = scriptedGateway(questionContext(title), slug)
  const trust = { ...pins, slugs: { [slug]: gateway.question.question_id } }
  const home = proposerHome(trust, `0x${'11'.repeat(32)}`)
  const env = { PROPOSER_GATEWAY: gateway.url, PROPOSER_KEY_FILE: join(home, 'key') }

  let looks = 0
  let stop = new AbortController()
  const fetch: Fetch = async (input, init) => {
    const request = new Request(input, init)
    world.asked.add(`${new URL(request.url).host} ${init?.redirect}`)
    const route = routeOf(request)
    if (++looks > mostCalls) stop.abort()
    if (route === world.refuses)
      return json(404, { error: { code: 'route_not_found', detail: 'there is no such route' } })
    const answer = await honest(gateway, route, request, (again) => gateway.fetch(again))
    if (answer.status !== 200 && answer.status !== 202) return answer
    const changed = world.answers(route, await answer.json(), answer.status)
    return changed instanceof Response ? changed : json(answer.status, changed)
  }
  const world: AnyGateway = {
    home: home,
    gateway,
    asked: new Set(),
    answers: (_route, body) => body,
    ask(argv, options = {}) {
      looks = 0
      stop = new AbortController()
      return run(home, argv, {
        env,
        fetch,
        clock: instantClock(),
        signal: stop.signal,
        ...options,
      })
    },
    async journaled() {
      const { stdout } = await run(home, argvOf`journal list --json`, { env, fetch })
      return JSON.parse(stdout).authorizations
    },
    file(name, content) {
      writeFileSync(join(home, name), content)
      return join(home, name)
    },
  }
  return world
}

function routeOf({ method, url }: Request): Route {
  const { pathname } = new URL(url)
  if (pathname === '/propose/batch') return 'submitBatch'
  if (pathname === '/propose/batch/status') return 'statuses'
  if (pathname === '/propose/batch/signing-data') return 'contexts'
  if (pathname.includes('/eligibility/')) return 'eligibility'
  return method === 'POST' ? 'submit' : 'status'
}

async function honest(
  gateway: ScriptedGateway,
  route: Route,
  request: Request,
  single: (request: Request) => Promise<Response>,
): Promise<Response> {
  if (route === 'submitBatch') {
    const { proposals } = (await request.json()) as { proposals: BatchItem[] }
    const results = await Promise.all(proposals.map((item) => admit(gateway, item, single)))
    const of = (code: number) => results.filter(({ status_code }) => status_code === code).length
    const [accepted, replayed] = [of(202), of(200)]
    return json(200, {
      results,
      summary: { accepted, replayed, rejected: results.length - accepted - replayed },
    })
  }
  if (route === 'statuses') {
    const { candidate_ids: ids } = (await request.json()) as { candidate_ids: string[] }
    return json(200, { results: ids.map((id) => statusResult(gateway, id)) })
  }
  return single(request)
}

async function admit(
  gateway: ScriptedGateway,
  item: BatchItem,
  single: (request: Request) => Promise<Response>,
) {
  const { identifier, client_ref = null, proposed_price, permit, ...rest } = item
  const body = {
    version,
    outcome: outcomeOf(proposed_price),
    permit: { ...permit, deadline: String(permit.deadline) },
    ...rest,
  }
  const url = `${gateway.url}/v1/proposals/${identifier}`
  const answer = await single(new Request(url, { method: 'POST', body: JSON.stringify(body) }))
  const said = (await answer.json()) as { version: unknown; error?: unknown }
  if (said.error !== undefined) return { client_ref, status_code: answer.status, error: said.error }
  const { version: _version, ...candidate } = said
  return { client_ref, status_code: answer.status, candidate }
}

function statusResult(gateway: ScriptedGateway, candidate_id: string) {
  const change = gateway.steps.shift()
  if (change) gateway.become(candidate_id, change)
  const known = gateway.candidates.get(candidate_id)
  if (known === undefined)
    return {
      candidate_id,
      status_code: 404,
      error: { code: 'candidate_not_found', detail: 'no such candidate' },
    }
  const { status, received_at, submission, failure } = known
  const told = failure && { code: failure.code, detail: failure.detail }
  return {
    candidate_id,
    status_code: 200,
    candidate: { candidate_id, status, received_at, submission, failure: told },
  }
}

export function instantClock(): Clock {
  let sleptMs = 0
  return {
    nowMs: () => Date.now() + sleptMs,
    monotonicMs: () => performance.now() + sleptMs,
    sleep: async (ms, signal) => {
      signal?.throwIfAborted()
      sleptMs += ms
      await new Promise((resolve) => setImmediate(resolve))
      signal?.throwIfAborted()
    },
  }
}
