/** Routes over ledger, chain view and budget, with the limits for all calls (robustness §5). */
import type { Clock, Hash, Random } from '#ports'
import {
  type Answered,
  BodyError,
  type BodyLimits,
  type Call,
  type Peer,
  type RequestCount,
  type RequestRecord,
} from '#protocol/call'
import { readBytes } from '#protocol/capped'
import { withoutNodeWords } from '#protocol/node-words'
import { openApiDocument } from '#protocol/openapi'
import type { RecoverPublicKey } from '#protocol/recovered'
import { refuse } from '#protocol/refusal'
import type { Address } from '#protocol/schema'
import { recoverWithNoble } from '#protocol/signature'
import { configuredContracts, type GatewayConfig } from './config.js'
import {
  type Budget,
  type BudgetLimits,
  clientKey,
  createBudget,
  parseCidr,
} from './front/budget.js'
import { batchRoutes, singleRoutes } from './front/handlers.js'
import { createGate, createRecoveries } from './front/line.js'
import {
  createReceiptSigning,
  createRoutes,
  deny,
  directoryAnswer,
  type Exchange,
  newExchange,
  type ReceiptSigner,
  type Steps,
} from './front/routes.js'
import type { Ledger } from './ledger/ledger.js'
import type { ChainView } from './view/state.js'

export const gatewayLimits = {
  callsInFlight: 256,
  keptInFlight: 64,
  fewInFlight: 8,
  bodyBytes: 64 * 1024 * 1024,
  clientBodyBytes: 16 * 1024 * 1024,
} as const

export interface GatewayParts {
  readonly ports: { readonly clock: Clock; readonly random: Random; readonly hash: Hash }
  readonly config: GatewayConfig
  readonly ledger: Ledger
  readonly view: ChainView
  readonly budget?: Budget | undefined
  readonly pipeline?: { faults(): readonly string[] } | undefined
  readonly nodes?: (() => readonly { readonly state: 'healthy' | 'aside' }[]) | undefined
  readonly recover?: RecoverPublicKey | undefined
  readonly yieldToEvents?: (() => Promise<void>) | undefined
  /** For which the call that has just come may have waited until it was read. */
  readonly unreadMs?: (() => number) | undefined
  readonly receipts?: (ReceiptSigner & { fault(): string | undefined }) | undefined
  readonly onRequest?: ((record: RequestRecord) => void) | undefined
}

export interface Gateway {
  answer(call: Call): Promise<Answered>
  /** All calls without a peer's address are one client's. Never rejects. */
  handle(request: Request, peer?: Peer): Promise<Response>
  /** A part switched off by configuration counts as ready (contract §2). */
  readiness(): readonly string[]
  /** `handle` counts its own; a listener adds those that it refused itself. */
  observe(record: RequestRecord): void
  requestCounts(): readonly RequestCount[]
  leave(): void
  /** Resolves when those in flight have been answered. */
  drain(): Promise<void>
}

export const budgetLimits = ({ budget }: GatewayConfig): BudgetLimits => ({
  windowMs: budget.window_seconds * 1000,
  perClientItems: budget.per_ip_items,
  globalItems: budget.global_items,
})

export function createGateway(parts: GatewayParts): Gateway {
  const { ports, config } = parts
  const { clock } = ports
  const trusted = config.proxy.trusted_cidrs.flatMap((text) => parseCidr(text) ?? [])
  const requests = createRequestCounts()
  const memory = createBodyMemory()
  const budget = parts.budget ?? createBudget(budgetLimits(config))
  const yieldToEvents = parts.yieldToEvents ?? (() => clock.sleep(0))
  let calls = 0
  let drained: (() => void) | undefined
  let draining: Promise<void> | undefined
  let isLeaving = false
  const readiness = () => readinessOf(parts, isLeaving)
  const run = createRoutes(routesOf(parts, yieldToEvents, readiness), {
    budget,
    catchUp: parts.ledger.catchUp,
    nowMs: () => clock.monotonicMs(),
    closed: () => (draining ? refuse('server_busy', 'the gateway is shutting down') : undefined),
    gate: createGate({ yieldToEvents, clock }),
    inFlight: createPlacesInFlight(),
    reserve: memory.reserve,
    hash: ports.hash,
    receipt: parts.receipts && createReceiptSigning(ports, parts.receipts),
    corsOrigins: config.cors.origins,
  })

  function observe(record: RequestRecord) {
    requests.count(record)
    parts.onRequest?.(record)
  }

  async function answer(call: Call): Promise<Answered> {
    const startedMs = clock.monotonicMs()
    const client = clientKey(call.address ?? 'local', call.header('x-forwarded-for'), trusted)
    const exchange = newExchange(call, ports.random.uuid(), client, parts.unreadMs?.() ?? 0)
    calls += 1
    try {
      const answered = await run(exchange)
      const durationMs = clock.monotonicMs() - startedMs
      const { requestId, route, items, code, bug } = exchange
      const seen = { requestId, client, method: call.method, route }
      observe({ ...seen, status: answered.status, code, durationMs, items, bug })
      return answered
    } finally {
      memory.free(exchange)
      calls -= 1
      if (calls === 0) drained?.()
    }
  }

  return {
    answer,
    handle: async (request, peer = {}) => responseOf(await answer(callFrom(request, peer))),
    readiness,
    observe,
    requestCounts: requests.list,
    leave() {
      isLeaving = true
    },
    drain() {
      isLeaving = true
      draining ??= new Promise((resolve) => {
        drained = resolve
        if (calls === 0) resolve()
      })
      return draining
    },
  }
}

function routesOf(
  { ports: { clock, hash }, config, ledger, view, recover = recoverWithNoble }: GatewayParts,
  yieldToEvents: () => Promise<void>,
  readiness: () => readonly string[],
) {
  const admission = {
    ...{ ledger, view, hash, contracts: configuredContracts(config) },
    recover: createRecoveries({ recover, yieldToEvents, clock }),
    hasFilled: (proposer: Address) =>
      ledger.failedBytes(proposer, clock.nowMs()) >= config.admission.stored_bytes_per_wallet,
  }
  return {
    ...singleRoutes(admission),
    ...batchRoutes(admission),
    ...ownRoutes(readiness),
    receiptKeys: () => directoryAnswer(ledger),
  }
}

const readinessOf = (
  { ledger, view, nodes, pipeline, receipts }: GatewayParts,
  isDraining: boolean,
) => [
  ...(isDraining ? ['the gateway is shutting down'] : []),
  ...(ledger.failed ? ['the store no longer accepts writes'] : []),
  ...(ledger.isFull ? ['the disk of the store is full'] : []),
  // Whoever asks may read it: the server's address is for the operator (`serve --check`).
  ...(ledger.down === undefined ? [] : ['the database of the store cannot be reached']),
  ...view.faults(),
  ...nodesFault(nodes?.() ?? []),
  ...(pipeline?.faults() ?? []),
  ...[receipts?.fault() ?? []].flat(),
]

/** One node aside is made up for by the others; with none left the view only grows old (R16). */
function nodesFault(nodes: readonly { readonly state: 'healthy' | 'aside' }[]) {
  if (nodes.length === 0 || nodes.some(({ state }) => state === 'healthy')) return []
  return [
    nodes.length === 1
      ? 'the RPC node is set aside'
      : `all ${nodes.length} RPC nodes are set aside`,
  ]
}

const knownMethods = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE']

function createRequestCounts() {
  const counts = new Map<string, RequestCount>()
  return {
    count({ route, method: sent, status }: RequestRecord) {
      const method = knownMethods.includes(sent) ? sent : 'OTHER'
      const key = `${route} ${method} ${status}`
      const count = (counts.get(key)?.count ?? 0) + 1
      counts.set(key, { route, method, status, count })
    },
    list: () => [...counts.values()],
  }
}

function createTally() {
  const held = new Map<string, number>()
  let all = 0
  return {
    all: () => all,
    of: (client: string) => held.get(client) ?? 0,
    add(client: string, amount: number) {
      all += amount
      const own = (held.get(client) ?? 0) + amount
      if (own > 0) held.set(client, own)
      else held.delete(client)
    },
  }
}

function createPlacesInFlight(): Steps['inFlight'] {
  const calls = createTally()
  return ({ client }, work) => {
    const { callsInFlight, keptInFlight, fewInFlight } = gatewayLimits
    const kept = calls.of(client) < fewInFlight ? keptInFlight : 0
    if (calls.all() >= callsInFlight + kept) deny('server_busy', 'too many calls are in flight')
    calls.add(client, 1)
    return work().finally(() => calls.add(client, -1))
  }
}

function createBodyMemory() {
  const bodies = createTally()
  return {
    reserve(exchange: Exchange, bytes: number) {
      const { client } = exchange
      const { bodyBytes, clientBodyBytes } = gatewayLimits
      if (bodies.all() + bytes > bodyBytes || bodies.of(client) + bytes > clientBodyBytes)
        return false
      bodies.add(client, bytes)
      exchange.reservedBytes += bytes
      return true
    },
    free: ({ client, reservedBytes }: Exchange) => bodies.add(client, -reservedBytes),
  }
}

function ownRoutes(readiness: () => readonly string[]) {
  let document: string | undefined
  return {
    health: () => ({ status: 200, body: '{"status":"ok"}' }),
    readiness() {
      // Anybody may look here: what the nodes said is for the admin listener (R5).
      const reasons = readiness().map(withoutNodeWords)
      const body = JSON.stringify({ ready: reasons.length === 0, reasons })
      return reasons.length === 0
        ? { status: 200, body }
        : { status: 503, body, headers: { 'retry-after': '2' } }
    },
    openapi() {
      document ??= JSON.stringify(openApiDocument())
      return { status: 200, body: document }
    },
  }
}

const callFrom = (request: Request, peer: Peer): Call => ({
  method: request.method,
  target: targetOf(request),
  header: (name) => request.headers.get(name) ?? undefined,
  readBody: (limits) => readBody(request, limits),
  ...peer,
})

const responseOf = ({ status, headers, body }: Answered) =>
  new Response(body === '' ? null : body, { status, headers })

function targetOf({ url }: Request) {
  const start = url.indexOf('/', url.indexOf('://') + 3)
  return start < 0 ? '/' : url.slice(start)
}

async function readBody({ body }: Request, limits: BodyLimits) {
  const read = await readBytes(body, limits).catch(() => 'lost' as const)
  if (typeof read === 'string') throw new BodyError(read)
  return read
}
