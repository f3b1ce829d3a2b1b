import { setImmediate as nextTurn, setTimeout as pause } from 'node:timers/promises'
import type * as z from 'zod/mini'
import { ChainError } from '#ports'
import type { RpcClass } from '#protocol/vitals'
import {
  createNodeTable,
  isElsewhere,
  type NodeTable,
  type NodeTableOptions,
  nodeAt,
  noteFailure,
  noteResponse,
  rotation,
  takeDue,
  whyNone,
} from './node-table.js'
import { isBehind, isMissingState } from './rpc-errors.js'
import { blockTag, Quantity } from './shapes.js'
import { survey } from './survey.js'
import type { RpcCall, Transport } from './transport.js'

export interface RouterOptions extends NodeTableOptions {
  readonly timeoutMs: number
}

export interface Read<T> extends RpcCall {
  readonly shape: z.ZodMiniType<T>
}

interface ReadResult<T> {
  readonly result: T
  readonly index: number
}

interface Waiting {
  readonly read: Read<unknown>
  readonly only: number | undefined
  readonly resolve: (result: ReadResult<unknown>) => void
  readonly reject: (error: unknown) => void
}

export interface Router {
  readonly table: NodeTable
  readonly transports: readonly Transport[]
  readonly options: RouterOptions
  readonly closing: AbortController
  readonly usage: { requests: number; readonly methods: Record<RpcClass, number> }
  queue: Waiting[]
  surveyedAtMs: number
  surveying: Promise<void> | undefined
}

const mostCalls = 50
/** While heads are read: about a block of Polygon (§8). */
const surveyMs = 2_000
const lookMs = 2_000

/** Behind one URL another machine may have told of the block. */
const behindWaitsMs = [250, 500, 1_000, 1_000, 1_000]

const sliceMs = 2

const chainIdCall: RpcCall = { method: 'eth_chainId', params: [] }

const classes: Readonly<Record<string, RpcClass>> = {
  eth_chainId: 'heads',
  eth_getBlockByNumber: 'heads',
  eth_getLogs: 'logs',
  eth_call: 'contracts',
  eth_estimateGas: 'contracts',
  eth_sendRawTransaction: 'transactions',
  eth_getTransactionReceipt: 'transactions',
  eth_getTransactionByHash: 'transactions',
}

export const createRouter = (transports: readonly Transport[], options: RouterOptions): Router => ({
  table: createNodeTable(transports.length, options),
  transports,
  options,
  closing: new AbortController(),
  usage: {
    requests: 0,
    methods: { heads: 0, logs: 0, contracts: 0, state: 0, transactions: 0 },
  },
  queue: [],
  surveyedAtMs: Number.NEGATIVE_INFINITY,
  surveying: undefined,
})

export async function ask<T>(router: Router, read: Read<T>, only?: number): Promise<ReadResult<T>> {
  const asked = new Promise<ReadResult<unknown>>((resolve, reject) => {
    if (router.queue.length === 0) setImmediate(() => flush(router))
    router.queue.push({ read, only, resolve, reject })
  })
  return (await asked) as ReadResult<T>
}

export async function askNode<T>(router: Router, index: number, read: Read<T>) {
  return (await ask(router, read, index)).result
}

export const othersThan = ({ table }: Router, index: number) =>
  rotation(table).filter((other) => other !== index)

export const blockRead = <T>(
  at: Parameters<typeof blockTag>[0],
  shape: Read<T>['shape'],
): Read<T> => ({ method: 'eth_getBlockByNumber', params: [blockTag(at), false], shape })

export async function hand(router: Router, index: number, call: RpcCall) {
  const { timeoutMs } = router.options
  const outcomes = await exchange(router, index, [call], { timeoutMs }).catch(chainError)
  return outcomes instanceof ChainError ? outcomes : outcomes[0]
}

export async function ready(router: Router) {
  const { table, transports } = router
  if (transports.length === 1) return
  const nowMs = table.clock.monotonicMs()
  const healthy = rotation(table)
  const isLost = healthy.length === 0 || table.conflict !== undefined
  if (router.surveying === undefined && (isLost || nowMs - router.surveyedAtMs >= surveyMs)) {
    router.surveyedAtMs = nowMs
    const asked = isLost ? transports.map((_, index) => index) : healthy
    router.surveying = survey(table, asked, lookWith(router)).finally(() => {
      router.surveying = undefined
    })
  }
  await router.surveying
}

function flush(router: Router) {
  const { table, closing, options } = router
  const waiting = router.queue
  router.queue = []
  const most = mostCalls - (options.expectedChainId === undefined ? 0 : 1)
  for (const only of new Set(waiting.map((one) => one.only))) {
    const group = waiting.filter((one) => one.only === only)
    for (let from = 0; from < group.length; from += most) {
      const part = group.slice(from, from + most)
      const order = only === undefined ? (table.conflict ? [] : rotation(table)) : [only]
      tryNodes(router, part, order).catch((error: unknown) => {
        for (const { reject } of part) reject(error)
      })
    }
  }
  const due = table.nodes.length > 1 && !closing.signal.aborted ? takeDue(table) : []
  // A node that stays silent holds up nobody.
  if (due.length > 0) {
    void survey(table, [...new Set([...rotation(table), ...due])], lookWith(router))
  }
}

async function tryNodes(router: Router, waiting: readonly Waiting[], order: readonly number[]) {
  const { table, closing } = router
  let left = await askInTurn(router, waiting, order)
  for (const waitMs of behindWaitsMs) {
    const behind = left.filter(({ one, error }) => mayCatchUp(one) && error && isBehind(error))
    if (behind.length === 0) break
    rejectAll(left.filter((one) => !behind.includes(one)))
    await pause(waitMs, undefined, { signal: closing.signal }).catch(() => undefined)
    const open = behind.map(({ one }) => one)
    left = await askInTurn(router, open, table.conflict ? [] : rotation(table))
  }
  rejectAll(left)

  function rejectAll(failed: readonly Failed[]) {
    for (const { one, error } of failed)
      one.reject(error ?? new ChainError('unavailable', whyNone(table)))
  }
}

interface Failed {
  readonly one: Waiting
  readonly error: ChainError | undefined
}

const mayCatchUp = ({ only, read: { method, params } }: Waiting) =>
  only === undefined &&
  (method === 'eth_getLogs' ||
    (/^eth_(call|getCode|getStorageAt)$/.test(method) && /^0x/.test(String(params.at(-1)))))

async function askInTurn(router: Router, waiting: readonly Waiting[], order: readonly number[]) {
  const { table } = router
  let left: readonly Failed[] = waiting.map((one) => ({ one, error: undefined }))
  for (const [tried, index] of order.entries()) {
    const open = left.map(({ one }) => one)
    const checked = await exchangeChecked(router, index, open).catch(chainError)
    const outcomes = checked instanceof ChainError ? open.map(() => checked) : checked
    const isHeadLost = open.some(({ read }, at) => isHead(read) && isUnavailable(outcomes[at]))
    left = open.flatMap((one, at) => {
      const outcome = outcomes[at]
      if (isUnavailable(outcome)) return [{ one, error: outcome }]
      if (isHeadLost && isHead(one.read) && tried + 1 < order.length)
        return [{ one, error: nodeError(table, index, 'it reported no head') }]
      if (outcome instanceof ChainError) one.reject(outcome)
      else one.resolve({ result: outcome, index })
      return []
    })
    if (left.length > 0) continue
    if (tried > 0) table.preferred = index
    return []
  }
  return left
}

async function exchangeChecked(router: Router, index: number, waiting: readonly Waiting[]) {
  const calls = waiting.map(({ read: { method, params } }) => ({ method, params }))
  const { timeoutMs } = router.options
  const outcomes = await exchangeGuarded(router, index, calls, { timeoutMs })
  const { clock } = router.table
  const checked: unknown[] = []
  let sinceMs = clock.monotonicMs()
  for (const [at, { read }] of waiting.entries()) {
    checked.push(shapedOutcome(read, outcomes[at]))
    if (clock.monotonicMs() - sinceMs < sliceMs) continue
    await nextTurn()
    sinceMs = clock.monotonicMs()
  }
  const faults = checked.filter((one) => isUnavailable(one) && !isMissingState(one))
  const [fault] = faults
  if (fault instanceof ChainError && faults.length === checked.length)
    noteFailure(router.table, index, fault.message)
  else noteResponse(router.table, index)
  return checked
}

function shapedOutcome({ method, shape }: Read<unknown>, outcome: unknown) {
  if (outcome instanceof ChainError) return outcome
  const shaped = shape.safeParse(outcome)
  if (shaped.success) return shaped.data
  return new ChainError('unavailable', `${method}: the node's response is malformed`)
}

/** Behind one URL there may be many machines (R16). */
async function exchangeGuarded(
  router: Router,
  index: number,
  calls: readonly RpcCall[],
  limits: Limits,
) {
  const { table } = router
  const { expectedChainId } = table
  if (expectedChainId === undefined) return exchange(router, index, calls, limits)
  const given = calls.findIndex(({ method }) => method === chainIdCall.method)
  const all = given === -1 ? [...calls, chainIdCall] : calls
  const outcomes = await exchange(router, index, all, limits)
  const chainId = Quantity.safeParse(outcomes.at(given))
  if (!chainId.success) {
    noteFailure(table, index, 'it does not report its chain')
    throw nodeError(table, index, 'it does not report its chain')
  }
  if (chainId.data !== BigInt(expectedChainId))
    throw nodeError(table, index, isElsewhere(table, index, Number(chainId.data)))
  return outcomes.slice(0, calls.length)
}

interface Limits {
  readonly timeoutMs: number
  readonly signal?: AbortSignal
}

async function exchange(
  { table, transports, closing, usage }: Router,
  index: number,
  calls: readonly RpcCall[],
  { timeoutMs, signal }: Limits,
) {
  const { requests } = nodeAt(table, index)
  usage.requests += 1
  for (const { method } of calls) usage.methods[classes[method] ?? 'state'] += 1
  try {
    const outcomes = await transports[index]?.exchange(calls, timeoutMs, signal)
    requests.answered += 1
    return outcomes ?? []
  } catch (error) {
    const { message } = chainError(error)
    requests.unanswered += 1
    if (!closing.signal.aborted) noteFailure(table, index, message)
    throw nodeError(table, index, message)
  }
}

const lookWith = (router: Router) => async (index: number, calls: readonly RpcCall[]) => {
  const { options, closing } = router
  const timeoutMs = Math.min(lookMs, options.timeoutMs)
  const limits = { timeoutMs, signal: closing.signal }
  const outcomes = await exchangeGuarded(router, index, calls, limits).catch(chainError)
  return outcomes instanceof ChainError ? undefined : outcomes
}

function nodeError({ nodes }: NodeTable, index: number, why: string) {
  const name = nodes.length === 1 ? 'the RPC node' : `RPC node ${index + 1} of ${nodes.length}`
  return new ChainError('unavailable', `${name}: ${why}`)
}

function chainError(error: unknown) {
  if (error instanceof ChainError) return error
  throw error
}

function isUnavailable(outcome: unknown): outcome is ChainError {
  return outcome instanceof ChainError && outcome.kind === 'unavailable'
}

const headTags: ReadonlySet<unknown> = new Set(['latest', 'finalized', 'pending'])
const isHead = ({ method, params }: RpcCall) =>
  method === chainIdCall.method || (method === 'eth_getBlockByNumber' && headTags.has(params[0]))
