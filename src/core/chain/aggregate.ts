/**
 * Many reads in one: calls made at the same moment for the same block travel as one `eth_call` of
 * Multicall3, where the chain has it. What each caller hears is what its call alone would have
 * told, so that nobody above knows whether a call travelled alone.
 */
import { BaseError, decodeFunctionResult, encodeFunctionData, multicall3Abi, size } from 'viem'
import { type Address, type Chain, type ChainCall, ChainError, type Hex } from '../ports.js'

/** Where Multicall3 lies on every chain that has it. */
export const multicallAddress: Address = '0xca11bde05977b3631167028862be2a173976ca11'

export interface AggregateOptions {
  /**
   * Calls in one `eth_call`, at most. Default 200: a read of a long question costs some 0.1 million
   * gas, and nodes allow an `eth_call` 50 million or more.
   */
  readonly callsAtOnce?: number
  /**
   * Bytes of call data in one `eth_call`, at most, but for a single call that is longer. Default
   * 131,072: nodes bound a request's length.
   */
  readonly bytesAtOnce?: number
}

/** What a refused aggregate makes smaller stays at least this. */
const leastCallsAtOnce = 8

interface Asked {
  readonly call: ChainCall
  readonly at: bigint
  readonly answer: Promise<Hex>
  readonly settle: (outcome: Hex | ChainError | Promise<Hex>) => void
}

/**
 * The same chain, whose `call`s without `from` and `gas` at a numbered block are folded; everything
 * else goes through as it is. `turn` resolves when whoever is asking at this moment has asked. Code
 * at Multicall3's address is looked for once, and again after an aggregate has failed; the calls of
 * a failed one are made one by one. Rejects with `ChainError` as the chain itself does. Whoever
 * asks for something that hangs on the caller has to name it (`from`): to the contract, a folded
 * call's is Multicall3.
 */
export function aggregating<C extends Chain>(
  chain: C,
  turn: () => Promise<void>,
  options: AggregateOptions = {},
): C {
  const { callsAtOnce = 200, bytesAtOnce = 131_072 } = options
  let most = callsAtOnce
  let present: Promise<boolean> | undefined
  let waiting = new Map<string, Asked>()

  const direct = ({ call, at, settle }: Asked) => settle(chain.call(call, at))

  const isPresent = () => {
    present ??= chain.code(multicallAddress).then(
      (code) => code !== '0x',
      (error: unknown) => {
        if (!(error instanceof ChainError)) throw error
        // Not known: these calls go alone, and the next ones look again.
        present = undefined
        return false
      },
    )
    return present
  }

  const together = async (group: readonly Asked[], at: bigint): Promise<void> => {
    const [only, ...others] = group
    if (only !== undefined && others.length === 0) return direct(only)
    let results: readonly AggregateResult[]
    try {
      const data = aggregateData(group.map(({ call }) => call))
      results = aggregateResults(await chain.call({ to: multicallAddress, data }, at), group.length)
      most = Math.min(callsAtOnce, most + 1)
    } catch (error) {
      if (!(error instanceof ChainError)) throw error
      present = undefined
      // A node that gave no answer says nothing of the size; one that refused may allow an
      // `eth_call` less gas than others.
      if (error.kind !== 'unavailable')
        most = Math.min(callsAtOnce, Math.max(leastCallsAtOnce, group.length >> 1))
      group.forEach(direct)
      return
    }
    group.forEach((asked, index) => {
      const result = results[index]
      // A failure without data may be the aggregate's own: gas that an earlier call used up. Alone
      // it has all of it.
      if (result === undefined || (!result.success && result.returnData === '0x')) direct(asked)
      else if (result.success) asked.settle(result.returnData)
      else
        asked.settle(new ChainError('reverted', 'eth_call: execution reverted', result.returnData))
    })
  }

  const flush = async (): Promise<void> => {
    await turn()
    const asked = [...waiting.values()]
    waiting = new Map()
    if (asked.length < 2 || !(await isPresent())) return asked.forEach(direct)
    await Promise.all(
      [...new Set(asked.map(({ at }) => at))].flatMap((at) => {
        const calls = asked.filter((one) => one.at === at)
        return grouped(calls, most, bytesAtOnce).map((group) => together(group, at))
      }),
    )
  }

  const call: Chain['call'] = (one, at) => {
    if (
      typeof at !== 'bigint' ||
      one.from !== undefined ||
      one.gas !== undefined ||
      one.to === multicallAddress
    )
      return chain.call(one, at)
    // The same question asked twice at once, of an adapter's oracle say, is one.
    const key = `${at}|${one.to}|${one.data}`
    const known = waiting.get(key)
    if (known) return known.answer
    // Not caught: what is no ChainError is a bug and has to end the process.
    if (waiting.size === 0) void flush()
    const asked = askedFor(one, at)
    waiting.set(key, asked)
    return asked.answer
  }
  return { ...chain, call }
}

function askedFor(call: ChainCall, at: bigint): Asked {
  let settle: Asked['settle'] = () => undefined
  const answer = new Promise<Hex>((resolve, reject) => {
    settle = (outcome) => (outcome instanceof ChainError ? reject(outcome) : resolve(outcome))
  })
  return { call, at, answer, settle }
}

/** Groups in order, of at most so many calls and bytes of call data. */
function grouped(calls: readonly Asked[], most: number, bytesAtOnce: number): Asked[][] {
  const groups: Asked[][] = []
  let group: Asked[] = []
  let bytes = 0
  for (const asked of calls) {
    const length = size(asked.call.data)
    if (group.length > 0 && (group.length >= most || bytes + length > bytesAtOnce)) {
      groups.push(group)
      group = []
      bytes = 0
    }
    group.push(asked)
    bytes += length
  }
  return group.length > 0 ? [...groups, group] : groups
}

/** Call data of `aggregate3` where every call may fail. */
export const aggregateData = (calls: readonly Pick<ChainCall, 'to' | 'data'>[]): Hex =>
  encodeFunctionData({
    abi: multicall3Abi,
    args: [calls.map(({ to, data }) => ({ target: to, allowFailure: true, callData: data }))],
    functionName: 'aggregate3',
  })

export interface AggregateResult {
  readonly success: boolean
  readonly returnData: Hex
}

/**
 * The outcomes of so many calls. Throws `ChainError` `refused` for an answer of another shape: what
 * lies there is no Multicall3.
 */
export function aggregateResults(answer: Hex, count: number): readonly AggregateResult[] {
  const wrong = () =>
    new ChainError(
      'refused',
      `the contract at ${multicallAddress} does not answer as Multicall3 does`,
    )
  let results: readonly AggregateResult[]
  try {
    results = decodeFunctionResult({ abi: multicall3Abi, functionName: 'aggregate3', data: answer })
  } catch (error) {
    if (error instanceof BaseError) throw wrong()
    throw error
  }
  if (results.length !== count) throw wrong()
  return results
}
