/**
 * What a test puts between client and gateway: requests made right that are wrong, answers made
 * wrong that are right.
 */
import { at, listAt } from '#conformance/answer'
import type { Meter } from './meter.js'
import type { Wrong } from './world.js'

/** Made in place, or what is given back. */
type Change = (value: Json, call: Call) => unknown

export interface Call {
  readonly method: string
  readonly path: string
  /** The parsed body; empty where it is none. */
  readonly body: Json
}

export type Json = Record<string, unknown>

export async function callOf(request: Request): Promise<Call> {
  const text = request.method === 'GET' ? '' : await request.clone().text()
  return { method: request.method, path: new URL(request.url).pathname, body: parsed(text) }
}

function parsed(text: string): Json {
  try {
    return JSON.parse(text)
  } catch {
    // The gateway will say what is wrong with it.
    return {}
  }
}

/** The request with another path or body. */
export function resent(
  request: Request,
  to: {
    readonly path?: string
    readonly body?: unknown
    readonly headers?: Record<string, string>
  },
): Request {
  const url = new URL(request.url)
  return new Request(to.path === undefined ? request.url : url.origin + to.path, {
    method: request.method,
    headers: { ...Object.fromEntries(request.headers), ...to.headers },
    ...(to.body === undefined ? {} : { body: JSON.stringify(to.body) }),
  })
}

export const isSingle = ({ method, path }: Call): boolean =>
  method === 'POST' && /^\/v1\/proposals\/[^/]+$/.test(path)
export const isSigningData = ({ path }: Call): boolean =>
  /^\/v1\/proposals\/[^/]+\/signing-data$/.test(path)
export const isStatus = ({ path }: Call): boolean => /^\/v1\/proposals\/[^/]+\/status\//.test(path)
export const isEligibility = ({ path }: Call): boolean =>
  path.startsWith('/v1/proposals/eligibility/')
export const isContexts = ({ path }: Call): boolean => path === '/propose/batch/signing-data'
export const isBatch = ({ path, method }: Call): boolean =>
  path === '/propose/batch' && method === 'POST'
export const isStatuses = ({ path }: Call): boolean => path === '/propose/batch/status'

/** Makes a body right, or another, before the gateway sees it. */
export function takes(which: (call: Call) => boolean, change: Change): Wrong {
  return async (request, next) => {
    const call = await callOf(request)
    if (!which(call) || Object.keys(call.body).length === 0) return next(request)
    return next(resent(request, { body: change(call.body, call) ?? call.body }))
  }
}

/** Answers another path as if it were this one. */
export function serves(
  change: (path: string) => string,
  headers: Record<string, string> = {},
): Wrong {
  return async (request, next) => {
    const path = change(new URL(request.url).pathname)
    const text = request.method === 'GET' ? undefined : await request.text()
    const { origin } = new URL(request.url)
    return next(
      new Request(origin + path, {
        method: request.method,
        headers: { ...Object.fromEntries(request.headers), ...headers },
        ...(text === undefined ? {} : { body: text }),
      }),
    )
  }
}

/** Changes what was answered. */
export function tells(which: (call: Call) => boolean, change: Change): Wrong {
  return async (request, next) => {
    const call = await callOf(request)
    const response = await next(request)
    if (!which(call)) return response
    const json = (await response.clone().json()) as Json
    return answer(response.status, change(json, call) || json, response.headers)
  }
}

/** A page of HTML under whatever status these calls were answered with. */
export const pages =
  (which: (call: Call, status: number) => boolean): Wrong =>
  async (request, next) => {
    const call = await callOf(request)
    const response = await next(request)
    if (!which(call, response.status)) return response
    const headers = new Headers(response.headers)
    headers.set('content-type', 'text/html')
    return new Response('<h1>no</h1>', { status: response.status, headers })
  }

/** Changes status, body or headers of what was answered. `undefined`: as it was. */
export function answers(
  which: (call: Call, status: number, json: Json) => boolean,
  change: (json: Json, call: Call, headers: Headers) => Response,
): Wrong {
  return async (request, next) => {
    const call = await callOf(request)
    const response = await next(request)
    const json = (await response.clone().json()) as Json
    return which(call, response.status, json) ? change(json, call, response.headers) : response
  }
}

export function answer(
  status: number,
  json: unknown,
  headers: Headers | Record<string, string> | [string, string][] = {},
): Response {
  const all = new Headers(headers)
  all.set('content-type', 'application/json')
  return new Response(JSON.stringify(json), { status, headers: all })
}

export const refusal = (status: number, code: string): Response =>
  answer(status, { error: { code, detail: 'because' } })

/** An acknowledgement of a candidate that does not exist. */
export function acknowledged(call: Call): Response {
  const id = crypto.randomUUID()
  return answer(202, {
    version: { api: 'v1', schema: 'signed-proposal-v1', witness: 'permit2-signed-proposer-v1' },
    candidate_id: id,
    status: 'received',
    received_at: '2026-11-20T05:38:00.000Z',
    status_url: `${call.path}/status/${id}`,
  })
}

/** The code of an error body. */
export const codeIn = (json: unknown): unknown => at(json, 'error.code')

/** Sets members of an answer to whatever is wanted; does nothing where there is none. */
export function put(target: unknown, changes: Json): void {
  if (typeof target === 'object' && target !== null) Object.assign(target, changes)
}

/**
 * A gateway that is right but for one rule: where the spec has it, and what is done instead.
 */
export interface Fault {
  readonly section: string
  readonly does: string
  /** Anew for each run; `nowSeconds` is the gateway's clock. */
  readonly make: (nowSeconds: () => number) => Wrong
  /** How this gateway charges, where that is what is wrong. */
  readonly meter?: Meter
}

/** A row of the table. */
export const fault = (section: string, does: string, make: Fault['make']): Fault => ({
  section,
  does,
  make,
})

/**
 * Changes one member of every answer of these calls. `path` is dotted, `*` stands for every entry
 * of a list or object. Where `to` gives `undefined` the member is taken out. Answers without the
 * member stay as they are.
 */
export const alter =
  (
    which: (call: Call) => boolean,
    path: string,
    to: (value: unknown, call: Call, json: Json) => unknown,
  ) =>
  (): Wrong =>
    tells(which, (json, call) => walk(json, path.split('.'), (value) => to(value, call, json)))

/** Takes one member out of every answer of these calls. */
export const drop = (which: (call: Call) => boolean, path: string) =>
  alter(which, path, () => undefined)

function walk(
  target: unknown,
  [key = '', ...rest]: readonly string[],
  to: (value: unknown) => unknown,
): void {
  if (typeof target !== 'object' || target === null) return
  const members = target as Json
  for (const name of key === '*' ? Object.keys(members) : [key]) {
    if (!Object.hasOwn(members, name)) continue
    if (rest.length > 0) walk(members[name], rest, to)
    else {
      const value = to(members[name])
      if (value === undefined) delete members[name]
      else members[name] = value
    }
  }
}

/** Acknowledges what was refused with this code. */
export const admits = (code: string, when: (call: Call) => boolean = () => true): Wrong =>
  answers(
    (call, status, json) => isSingle(call) && status >= 400 && codeIn(json) === code && when(call),
    (_json, call) => acknowledged(call),
  )

/** Tells another bond than the chain's. */
export const lyingAboutBonds = (lie: (bondRaw: bigint) => bigint): Wrong =>
  tells(isContexts, (json) => {
    for (const result of listAt(json, 'results')) {
      const bond = at(result, 'signing_data.bond')
      const told = at(bond, 'required_bond')
      if (typeof told === 'string') put(bond, { required_bond: String(lie(BigInt(told))) })
    }
  })
