/**
 * What a test puts between client and gateway: requests made right that are wrong, answers made
 * wrong that are right.
 */
import { at, listAt } from '#conformance/probe'
import { version } from '#protocol/words'
import type { Meter } from './meter.js'
import type { Wrong } from './world.js'

export type Json = Record<string, unknown>

export interface Call {
  readonly method: string
  readonly path: string
  /** The parsed body; empty where it is none. */
  readonly body: Json
}

/** Anew for each run; `nowSeconds` is the gateway's clock. */
export type Make = (nowSeconds: () => number) => Wrong

/** Which calls are dealt with, by what the gateway answers. */
export type Which = (call: Call, status: number, json: Json, nowSeconds: () => number) => boolean

/** A gateway that is right but for one rule: where the spec has it, and what is done instead. */
export interface Fault {
  readonly section: string
  readonly does: string
  readonly make: Make
  /** How this gateway charges, where that is what is wrong. */
  readonly meter?: Meter
}

/** By section, then by what is done. */
export type Faults = Readonly<Record<string, Readonly<Record<string, Make>>>>

export const rowsOf = (faults: Faults): readonly Fault[] =>
  Object.entries(faults).flatMap(([section, rows]) =>
    Object.entries(rows).map(([does, make]) => ({ section, does, make })),
  )

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
  to: { readonly path?: string; readonly body?: unknown },
): Request {
  const { origin } = new URL(request.url)
  return new Request(to.path === undefined ? request.url : origin + to.path, {
    method: request.method,
    headers: Object.fromEntries(request.headers),
    ...(to.body === undefined ? {} : { body: JSON.stringify(to.body) }),
  })
}

export const all = () => true
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

export const and =
  (...these: readonly Which[]): Which =>
  (...given) =>
    these.every((one) => one(...given))
export const or =
  (...these: readonly Which[]): Which =>
  (...given) =>
    these.some((one) => one(...given))
export const on =
  (...statuses: readonly number[]): Which =>
  (_call, status) =>
    statuses.includes(status)
export const coded =
  (code: string): Which =>
  (_call, _status, json) =>
    codeIn(json) === code
/** Items of a batch that came to nothing, or to something. */
export const counted =
  (outcome: 'accepted' | 'rejected'): Which =>
  (_call, _status, json) =>
    Number(at(json, `summary.${outcome}`)) > 0

/** What remembers something for a run. */
export const anew =
  (make: () => Make): Make =>
  (now) =>
    make()(now)

/** Several changes of one answer. */
export const both =
  (...makes: readonly Make[]): Make =>
  (now) =>
    makes
      .map((make) => make(now))
      .reduce((outer, inner) => (request, next) => outer(request, (one) => inner(one, next)))

/** Makes a body right, or another, before the gateway sees it. */
export const takes =
  (which: (call: Call) => boolean, change: (body: Json) => unknown): Make =>
  () =>
  async (request, next) => {
    const call = await callOf(request)
    if (!which(call) || Object.keys(call.body).length === 0) return next(request)
    return next(resent(request, { body: change(call.body) }))
  }

/** The list of a batch's body, whatever its name. */
export const listIn = (body: unknown): readonly unknown[] =>
  Object.values((body ?? {}) as object).find(Array.isArray) ?? []
export const takesList = (
  which: (call: Call) => boolean,
  change: (list: readonly unknown[]) => readonly unknown[],
): Make =>
  takes(which, (body) =>
    Object.fromEntries(
      Object.entries(body).map(([name, one]) => [name, Array.isArray(one) ? change(one) : one]),
    ),
  )
export const takesItems = (which: (call: Call) => boolean, change: (item: unknown) => unknown) =>
  takesList(which, (list) => list.map(change))

/** Answers another path as if it were this one. */
export const serves =
  (
    change: (path: string, request: Request) => string,
    headers: Record<string, string> = {},
    which: (request: Request) => boolean = all,
  ): Make =>
  () =>
  async (request, next) => {
    if (!which(request)) return next(request)
    const { origin, pathname } = new URL(request.url)
    const text = request.method === 'GET' ? undefined : await request.text()
    return next(
      new Request(origin + change(pathname, request), {
        method: request.method,
        headers: { ...Object.fromEntries(request.headers), ...headers },
        ...(text === undefined ? {} : { body: text }),
      }),
    )
  }

/** Changes status, body or headers of what was answered. */
export const answers =
  (
    which: Which,
    change: (json: Json, call: Call, headers: Headers, status: number) => Response,
  ): Make =>
  (now) =>
  async (request, next) => {
    const call = await callOf(request)
    const response = await next(request)
    const json = (await response.clone().json()) as Json
    return which(call, response.status, json, now)
      ? change(json, call, response.headers, response.status)
      : response
  }

/** Changes what was answered: in place, or what is given back. */
export const tells = (which: Which, change: (json: Json, call: Call) => unknown): Make =>
  answers(which, (json, call, headers, status) =>
    answer(status, change(json, call) || json, headers),
  )

export const instead = (which: Which, status: number, json: unknown): Make =>
  answers(which, () => answer(status, json))
export const refuses = (which: Which, status: number, code: string): Make =>
  answers(which, () => refusal(status, code))
export const recodes = (which: Which, to: number): Make =>
  answers(which, (json, _call, headers) => answer(to, json, headers))

/** Changes the results of a batch in place, each beside what was asked for it. */
export const results = (
  which: Which,
  change: (result: Json, item: unknown, json: Json) => unknown,
): Make =>
  tells(which, (json, { body }) => {
    for (const [index, result] of listAt(json, 'results').entries())
      change(result as Json, listIn(body)[index], json)
  })

/** Another text under whatever status these calls were answered with. */
export const pages =
  (which: (call: Call, status: number) => boolean, type = 'text/html'): Make =>
  () =>
  async (request, next) => {
    const call = await callOf(request)
    const response = await next(request)
    if (!which(call, response.status)) return response
    return restated(response, (headers) => headers.set('content-type', type), '<h1>no</h1>')
  }

/** The same answer with other headers. */
export const headed =
  (which: (call: Call, status: number) => boolean, headers: (request: Request) => Json): Make =>
  () =>
  async (request, next) => {
    const call = await callOf(request)
    const response = await next(request)
    if (!which(call, response.status)) return response
    return restated(response, (all) => {
      for (const [name, value] of Object.entries(headers(request))) all.set(name, String(value))
    })
  }

export async function restated(
  response: Response,
  change: (headers: Headers) => void,
  body?: string,
): Promise<Response> {
  const headers = new Headers(response.headers)
  change(headers)
  return new Response(body ?? (await response.text()), { status: response.status, headers })
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

/** A candidate that does not exist. */
const madeUp = (path: string, id: string = crypto.randomUUID()) => ({
  candidate_id: id,
  status: 'received',
  received_at: '2026-11-20T05:38:00.000Z',
  status_url: `${path}/status/${id}`,
})
export const acknowledged = ({ path }: Call): Response => answer(202, { version, ...madeUp(path) })

/** Acknowledges what was refused with this code. */
export const admits = (code: string, when: Which = all): Make =>
  answers(and(isSingle, coded(code), when), (_json, call) => acknowledged(call))
export const admitsItems = (code: string, when: (item: unknown) => boolean = all): Make =>
  results(isBatch, (result, item, { summary }) => {
    if (codeIn(result) !== code || !when(item)) return
    put(result, { status_code: 202, error: undefined, candidate: madeUp('/propose') })
    put(summary, {
      accepted: Number(at(summary, 'accepted')) + 1,
      rejected: Number(at(summary, 'rejected')) - 1,
    })
  })

/** The code of an error body. */
export const codeIn = (json: unknown): unknown => at(json, 'error.code')

/** Sets members of an answer to whatever is wanted; does nothing where there is none. */
export function put(target: unknown, changes: Json): void {
  if (typeof target === 'object' && target !== null) Object.assign(target, changes)
}

/**
 * Changes one member of every answer of these calls. `path` is dotted, `*` stands for every entry
 * of a list or object. Where `to` gives `undefined` the member is taken out. Answers without the
 * member stay as they are.
 */
export const alter = (
  which: Which,
  path: string,
  to: (value: unknown, call: Call, json: Json) => unknown,
): Make =>
  tells(which, (json, call) => walk(json, path.split('.'), (value) => to(value, call, json)))

/** Takes one member out of every answer of these calls. */
export const drop = (which: Which, path: string): Make => alter(which, path, () => undefined)

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

/** Tells another bond than the chain's. */
export const lyingAboutBonds = (lie: (bondRaw: bigint) => bigint): Make =>
  alter(isContexts, 'results.*.signing_data.bond.required_bond', (told) =>
    String(lie(BigInt(String(told)))),
  )
