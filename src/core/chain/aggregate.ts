/** Calls made at the same moment for the same block travel as one `eth_call` of Multicall3. */

import { size } from 'viem'
import { type Chain, type ChainCall, ChainError, type Hex } from '#ports'
import type { Address } from '#protocol/schema'
import { wrapChain } from './wrap.js'

export const multicallAddress: Address = '0xca11bde05977b3631167028862be2a173976ca11'

export interface AggregateOptions {
  /** A read of a long question costs some 0.1 million gas; nodes allow 50 million or more. */
  readonly callsAtOnce?: number
  readonly bytesAtOnce?: number
}

/** Who gets one decodes it, and nobody else shall wait for all of that. */
const settledAtOnce = 8
const mostTurns = 32

const leastCallsAtOnce = 8

interface Waiting {
  readonly call: ChainCall
  readonly at: bigint
  readonly answer: Promise<Hex>
  readonly settle: (outcome: Hex | ChainError | Promise<Hex>) => void
}

/** Without `from` and `gas`, at a numbered block: what hangs on its caller names it (`from`). */
export function aggregating<C extends Chain>(
  chain: C,
  turn: () => Promise<void>,
  { callsAtOnce = 200, bytesAtOnce = 131_072 }: AggregateOptions = {},
): C {
  let most = callsAtOnce
  let settling = 0
  let waiting = new Map<string, Waiting>()
  let presence: Promise<boolean> | undefined
  const isPresent = () => {
    presence ??= chain.code(multicallAddress).then(
      (code) => code !== '0x',
      (error: unknown) => {
        if (!(error instanceof ChainError)) throw error
        presence = undefined
        return false
      },
    )
    return presence
  }
  const direct = ({ call, at, settle }: Waiting) => settle(chain.call(call, at))

  async function together(group: readonly Waiting[]) {
    const [first] = group
    if (first === undefined || group.length < 2) return group.forEach(direct)
    let results: readonly AggregateResult[]
    try {
      const data = aggregateData(group.map(({ call }) => call))
      results = aggregateResults(
        await chain.call({ to: multicallAddress, data }, first.at),
        group.length,
      )
      most = Math.min(callsAtOnce, most + 1)
    } catch (error) {
      if (!(error instanceof ChainError)) throw error
      presence = undefined
      // A node that gave no answer says nothing of the size; one that refused may allow an
      // `eth_call` less gas than others.
      if (error.kind !== 'unavailable')
        most = Math.min(callsAtOnce, Math.max(leastCallsAtOnce, group.length >> 1))
      return group.forEach(direct)
    }
    settling += 1
    for (const [index, one] of group.entries()) {
      if (index > 0 && index % settledAtOnce === 0) await turn()
      const { success = false, returnData = '0x' } = results[index] ?? {}
      if (success) one.settle(returnData)
      // A failure without data may be the aggregate's own: gas that an earlier call used up.
      else if (returnData === '0x') direct(one)
      else one.settle(new ChainError('reverted', 'eth_call: execution reverted', returnData))
    }
    settling -= 1
  }

  async function flush() {
    await gathered(
      turn,
      () => waiting.size,
      () => settling > 0,
    )
    const all = [...waiting.values()]
    waiting = new Map()
    if (all.length < 2 || !(await isPresent())) return all.forEach(direct)
    const blocks = [...new Set(all.map(({ at }) => at))]
    const groups = blocks.flatMap((block) =>
      grouped(
        all.filter(({ at }) => at === block),
        most,
        bytesAtOnce,
      ),
    )
    await Promise.all(groups.map(together))
  }

  return wrapChain(chain, (asked, ask) => {
    if (asked.method !== 'call') return ask()
    const [one, at] = asked.args
    const { from, gas, to, data } = one
    const isFolded = from === undefined && gas === undefined && to !== multicallAddress
    if (typeof at !== 'bigint' || !isFolded) return ask()
    const key = `${at}|${to}|${data}`
    const known = waiting.get(key)
    if (known) return known.answer
    if (waiting.size === 0) void flush()
    const added = waitingFor(one, at)
    waiting.set(key, added)
    return added.answer
  })
}

/** When two turns in a row brought no more askers. */
export async function gathered(
  turn: () => Promise<void>,
  asked: () => number,
  isAnswering: () => boolean = () => false,
) {
  let quiet = 0
  for (let turns = 0; quiet < 2 && turns < mostTurns; turns += 1) {
    const before = asked()
    await turn()
    quiet = asked() > before || isAnswering() ? 0 : quiet + 1
  }
}

function waitingFor(call: ChainCall, at: bigint): Waiting {
  let settle: Waiting['settle'] = () => undefined
  const answer = new Promise<Hex>((resolve, reject) => {
    settle = (outcome) => (outcome instanceof ChainError ? reject(outcome) : resolve(outcome))
  })
  return { call, at, answer, settle }
}

function grouped(calls: readonly Waiting[], most: number, bytesAtOnce: number) {
  const groups: Waiting[][] = []
  let bytes = 0
  for (const one of calls) {
    const group = groups.at(-1)
    const length = size(one.call.data)
    const fits = group && group.length < most && bytes + length <= bytesAtOnce
    if (fits) group.push(one)
    else groups.push([one])
    bytes = fits ? bytes + length : length
  }
  return groups
}

const aggregateSelector = '0x82ad56cb'
const digits = 64
const word = (value: number) => value.toString(16).padStart(digits, '0')
const bytesIn = (hex: string) => hex.length / 2
const padded = (hex: string) => hex.padEnd(Math.ceil(hex.length / digits) * digits, '0')

/** By hand: viem holds the event loop for 20 ms over the texts of 200 questions. */
function aggregateData(calls: readonly Pick<ChainCall, 'to' | 'data'>[]): Hex {
  const tuples = calls.map(({ to, data }) => {
    const target = to.slice(2).toLowerCase().padStart(digits, '0')
    const bytes = data.slice(2)
    return target + word(1) + word(96) + word(bytesIn(bytes)) + padded(bytes)
  })
  let next = 32 * tuples.length
  const offsets = tuples.map((tuple) => {
    const offset = next
    next += bytesIn(tuple)
    return word(offset)
  })
  return `${aggregateSelector}${word(32)}${word(tuples.length)}${offsets.join('')}${tuples.join('')}`
}

interface AggregateResult {
  readonly success: boolean
  readonly returnData: Hex
}

export function aggregateResults(answer: Hex, count: number): readonly AggregateResult[] {
  const refused = () =>
    new ChainError(
      'refused',
      `the contract at ${multicallAddress} does not answer as Multicall3 does`,
    )
  const numberAt = (byte: number) => {
    const start = 2 + 2 * byte
    const text = answer.slice(start, start + digits)
    const value = text.length === digits ? Number(`0x${text}`) : Number.NaN
    if (value <= bytesIn(answer)) return value
    throw refused()
  }
  const list = numberAt(0)
  if (numberAt(list) !== count) throw refused()
  return Array.from({ length: count }, (_, index) => {
    const tuple = list + 32 + numberAt(list + 32 + 32 * index)
    const success = numberAt(tuple)
    const bytes = tuple + numberAt(tuple + 32)
    const length = numberAt(bytes)
    const start = 2 + 2 * (bytes + 32)
    const returnData = answer.slice(start, start + 2 * length)
    if (success > 1 || returnData.length !== 2 * length) throw refused()
    return { success: success === 1, returnData: `0x${returnData}` }
  })
}
