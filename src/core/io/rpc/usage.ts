/** How much the nodes are asked, as those count who bill by call. */
import type { Clock } from '../../ports.js'
import { type RpcClass, type RpcCounts, type RpcUsage, rpcClasses } from '../../protocol/vitals.js'

/** Seconds of a cell: the last minute and the last hour are sums of whole cells and the running one. */
const cellSeconds = 10
const minuteCells = 60 / cellSeconds
const hourCells = 60 * minuteCells
const daySeconds = 86_400

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

interface Cell {
  requests: number
  readonly methods: Record<RpcClass, number>
}

/** Bounded, whatever the load (R17). */
export interface UsageMeter {
  /** One HTTP request with these methods. */
  note(methods: readonly string[]): void
  now(): RpcUsage
}

const newCell = (): Cell => ({
  requests: 0,
  methods: { heads: 0, logs: 0, contracts: 0, state: 0, transactions: 0 },
})

const add = (cell: Cell, { requests, methods }: Cell) => {
  cell.requests += requests
  for (const one of rpcClasses) cell.methods[one] += methods[one]
}

/** Counts by the monotonic clock (R13). Throws nothing. */
export function createUsageMeter(clock: Pick<Clock, 'monotonicMs'>): UsageMeter {
  const startedMs = clock.monotonicMs()
  const cells = new Map<number, Cell>()
  const total = newCell()
  const cellNow = () => Math.floor(clock.monotonicMs() / 1_000 / cellSeconds)
  const since = (count: number): RpcCounts => {
    const sum = newCell()
    for (const [at, cell] of cells) if (at > cellNow() - count) add(sum, cell)
    return sum
  }
  return {
    note(methods) {
      const at = cellNow()
      const cell = cells.get(at) ?? newCell()
      const noted = newCell()
      noted.requests = 1
      for (const method of methods) noted.methods[classes[method] ?? 'state'] += 1
      add(cell, noted)
      add(total, noted)
      cells.set(at, cell)
      for (const old of cells.keys()) if (old <= at - hourCells) cells.delete(old)
    },
    now() {
      const lastHour = since(hourCells)
      const seconds = Math.min(3_600, (clock.monotonicMs() - startedMs) / 1_000)
      const aDay = (count: number) => Math.round((count * daySeconds) / seconds)
      const methods = rpcClasses.reduce((sum, one) => sum + lastHour.methods[one], 0)
      return {
        total: { requests: total.requests, methods: { ...total.methods } },
        lastMinute: since(minuteCells),
        lastHour,
        // What the start costs says nothing of a day.
        perDay:
          seconds < 60 ? undefined : { methods: aDay(methods), requests: aDay(lastHour.requests) },
      }
    },
  }
}
