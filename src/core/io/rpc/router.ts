/**
 * Which node is asked what. Reads made at the same moment travel as one batch and fail over from
 * node to node; a node is believed only while its chain id is the expected one and the table holds
 * nothing against it (R16).
 */
import type { z } from 'zod'
import { ChainError, type Clock, type Random } from '../../ports.js'
import { createNodeTable, type NodeTable } from './node-table.js'
import { isMissingState } from './rpc-errors.js'
import { Quantity } from './shapes.js'
import { survey } from './survey.js'
import type { RpcCall, Transport } from './transport.js'

export interface RouterOptions {
  readonly timeoutMs: number
  readonly batchCalls: number
  readonly expectedChainId: number | undefined
  readonly maxLagBlocks: number
  readonly maxLagSeconds: number | undefined
  readonly clock: Pick<Clock, 'monotonicMs'>
  readonly random: Pick<Random, 'bytes'>
}

/**
 * A call and the shape of its answer; an answer of another shape is none, and the next node is
 * asked.
 */
export interface Asked<T> extends RpcCall {
  readonly shape: z.ZodType<T>
}

export interface Told<T> {
  readonly result: T
  /** Which node told it. */
  readonly index: number
}

export interface Router {
  readonly table: NodeTable
  /** From the preferred node, or the next that answers. Rejects with `ChainError`. */
  ask<T>(asked: Asked<T>): Promise<Told<T>>
  /** From exactly this node. */
  askNode<T>(index: number, asked: Asked<T>): Promise<T>
  /** Awaited before reads of the head: compares the nodes where that is due. */
  ready(): Promise<void>
  /** Hands a call over without any check, to a node that may be aside. */
  hand(index: number, call: RpcCall): Promise<unknown | ChainError>
  close(): void
}

/**
 * Healthy nodes are compared this often while heads are read: about a block of Polygon (domain §8).
 */
const surveyMs = 2_000
/** A node that takes longer to tell its head is of no use, and a look must not wait long for it. */
const lookMs = 2_000

const chainIdCall: RpcCall = { method: 'eth_chainId', params: [] }

interface Waiting {
  readonly asked: Asked<unknown>
  /** Only this node is asked. */
  readonly only: number | undefined
  readonly resolve: (told: Told<unknown>) => void
  readonly reject: (error: unknown) => void
}

/** Source: R16, robustness §3 and §7.3. */
export function createRouter(transports: readonly Transport[], options: RouterOptions): Router {
  const { expectedChainId, clock } = options
  const table = createNodeTable(transports.length, options)
  const closing = new AbortController()
  let surveyedAtMs = Number.NEGATIVE_INFINITY
  let surveying: Promise<void> | undefined

  // Where there is one, whoever asked has a name for it.
  const nodeError = (index: number, why: string) =>
    new ChainError(
      'unavailable',
      `${table.count === 1 ? 'the RPC node' : table.name(index)}: ${why}`,
    )
  const nobody = () => new ChainError('unavailable', table.whyNone())

  /**
   * As the transport's, with the node's chain id looked at in the same request: behind one URL
   * there may be many machines.
   */
  const exchange = async (
    index: number,
    calls: readonly RpcCall[],
    timeoutMs: number,
    signal?: AbortSignal,
  ) => {
    const transport = transports[index]
    if (transport === undefined) throw new RangeError(`no RPC node ${index}`)
    const given = calls.findIndex(({ method }) => method === chainIdCall.method)
    const guarded = expectedChainId !== undefined && given === -1
    let outcomes: readonly (unknown | ChainError)[]
    try {
      outcomes = await transport.exchange(
        guarded ? [...calls, chainIdCall] : calls,
        timeoutMs,
        signal,
      )
      table.asked(index, 'answered')
    } catch (error) {
      if (!(error instanceof ChainError)) throw error
      table.asked(index, 'unanswered')
      if (!closing.signal.aborted) table.failed(index, error.message)
      throw nodeError(index, error.message)
    }
    if (expectedChainId !== undefined) {
      const chainId = Quantity.safeParse(outcomes[guarded ? calls.length : given])
      if (!chainId.success) {
        table.failed(index, 'it does not tell its chain')
        throw nodeError(index, 'it does not tell its chain')
      }
      if (BigInt(chainId.data) !== BigInt(expectedChainId)) {
        table.elsewhere(index, Number(BigInt(chainId.data)))
        throw nodeError(index, `it is on chain ${BigInt(chainId.data)}, not on ${expectedChainId}`)
      }
    }
    return outcomes.slice(0, calls.length)
  }

  const exchangeChecked = async (
    index: number,
    waiting: readonly Waiting[],
  ): Promise<(unknown | ChainError)[]> => {
    const outcomes = await exchange(
      index,
      waiting.map(({ asked }) => asked),
      options.timeoutMs,
    )
    const checked = waiting.map(({ asked }, place) => {
      const outcome = outcomes[place]
      if (outcome instanceof ChainError) return outcome
      const shaped = asked.shape.safeParse(outcome)
      if (shaped.success) return shaped.data
      return new ChainError(
        'unavailable',
        `${asked.method}: the node's answer has another shape than Ethereum's`,
      )
    })
    const faults = checked.filter(isUnavailable).filter((one) => !isMissingState(one))
    const [fault] = faults
    if (fault && faults.length === checked.length) table.failed(index, fault.message)
    else table.answered(index)
    return checked
  }

  const tryNodes = async (calls: readonly Waiting[]): Promise<void> => {
    let open = calls
    let errors: readonly ChainError[] = []
    const order = table.conflict() ? [] : table.order()
    for (const [tried, index] of order.entries()) {
      const outcomes = await exchangeChecked(index, open).catch((error: unknown) => {
        if (!(error instanceof ChainError)) throw error
        return open.map(() => error)
      })
      // Heads read together come from one node, or they would not fit each other.
      const isHeadLost = open.some(
        ({ asked }, place) => isHead(asked) && isUnavailable(outcomes[place]),
      )
      const left: { call: Waiting; error: ChainError }[] = []
      open.forEach((call, place) => {
        const outcome = outcomes[place]
        if (outcome instanceof ChainError && outcome.kind === 'unavailable')
          left.push({ call, error: outcome })
        else if (isHeadLost && isHead(call.asked) && tried + 1 < order.length)
          left.push({ call, error: nodeError(index, 'it told no head') })
        else if (outcome instanceof ChainError) call.reject(outcome)
        else call.resolve({ result: outcome, index })
      })
      if (left.length === 0) {
        if (tried > 0) table.prefer(index)
        return
      }
      open = left.map(({ call }) => call)
      errors = left.map(({ error }) => error)
    }
    // A node's own words say more than that all failed, where it is the only one.
    open.forEach((call, place) => {
      call.reject(errors[place] ?? nobody())
    })
  }

  const tryNode = async (index: number, calls: readonly Waiting[]): Promise<void> => {
    const outcomes = await exchangeChecked(index, calls).catch((error: unknown) => {
      if (!(error instanceof ChainError)) throw error
      return calls.map(() => error)
    })
    calls.forEach((call, place) => {
      const outcome = outcomes[place]
      if (outcome instanceof ChainError) call.reject(outcome)
      else call.resolve({ result: outcome, index })
    })
  }

  let queue: Waiting[] = []
  const most = Math.max(
    1,
    expectedChainId === undefined ? options.batchCalls : options.batchCalls - 1,
  )
  const flush = () => {
    const calls = queue
    queue = []
    for (const only of new Set(calls.map((call) => call.only))) {
      const group = calls.filter((call) => call.only === only)
      for (let from = 0; from < group.length; from += most) {
        const part = group.slice(from, from + most)
        const asking = only === undefined ? tryNodes(part) : tryNode(only, part)
        // What is no ChainError is a bug: its callers hear of it, as of everything else.
        asking.catch((error: unknown) => {
          for (const call of part) call.reject(error)
        })
      }
    }
    const due = table.count > 1 && !closing.signal.aborted ? table.takeDue() : []
    // In the background: a node that stays silent holds up nobody.
    if (due.length > 0) void survey(table, [...new Set([...table.order(), ...due])], lookAt)
  }
  const put = (asked: Asked<unknown>, only: number | undefined): Promise<Told<unknown>> =>
    new Promise((resolve, reject) => {
      if (queue.length === 0) setImmediate(flush)
      queue.push({ asked, only, resolve, reject })
    })

  const lookAt = (index: number, calls: readonly RpcCall[]) =>
    exchange(index, calls, Math.min(lookMs, options.timeoutMs), closing.signal).catch(
      (error: unknown) => {
        // The table knows why.
        if (error instanceof ChainError) return undefined
        throw error
      },
    )

  return {
    table,
    async ask<T>(asked: Asked<T>) {
      return (await put(asked, undefined)) as Told<T>
    },
    async askNode<T>(index: number, asked: Asked<T>) {
      return (await put(asked, index)).result as T
    },
    async ready() {
      if (table.count === 1) return
      const nowMs = clock.monotonicMs()
      const healthy = table.order()
      const isLost = healthy.length === 0 || table.conflict() !== undefined
      if (surveying === undefined && (isLost || nowMs - surveyedAtMs >= surveyMs)) {
        surveyedAtMs = nowMs
        // With nobody to ask, every read of the head is the probe: service comes back with the
        // first sound node.
        const asked = isLost ? transports.map((_, index) => index) : healthy
        surveying = survey(table, asked, lookAt).finally(() => {
          surveying = undefined
        })
      }
      await surveying
    },
    async hand(index, call) {
      const transport = transports[index]
      if (transport === undefined) throw new RangeError(`no RPC node ${index}`)
      try {
        const [outcome] = await transport.exchange([call], options.timeoutMs)
        table.asked(index, 'answered')
        return outcome
      } catch (error) {
        if (!(error instanceof ChainError)) throw error
        table.asked(index, 'unanswered')
        table.failed(index, error.message)
        return nodeError(index, error.message)
      }
    },
    close() {
      closing.abort()
    },
  }
}

function isUnavailable(outcome: unknown): outcome is ChainError {
  return outcome instanceof ChainError && outcome.kind === 'unavailable'
}

const headTags: ReadonlySet<unknown> = new Set(['latest', 'finalized', 'pending'])
const isHead = ({ method, params }: RpcCall) =>
  method === chainIdCall.method || (method === 'eth_getBlockByNumber' && headTags.has(params[0]))
