import fc from 'fast-check'
import { decodeFunctionData, encodeFunctionData, encodeFunctionResult, parseAbi } from 'viem'
import {
  type AggregateOptions,
  aggregateResults,
  aggregating,
  multicallAddress,
} from '#chain/aggregate'
import { type Chain, type ChainCall, ChainError, type ChainErrorKind, type Hex } from '#ports'
import type { Address } from '#protocol/schema'
import { createFakeChain } from '#support/fake-chain'

const abi = parseAbi([
  'struct Call3 { address target; bool allowFailure; bytes callData; }',
  'struct Result { bool success; bytes returnData; }',
  'function aggregate3(Call3[] calls) payable returns (Result[] results)',
])
const contract: Address = `0x${'c0'.repeat(20)}`
const nobody: Address = `0x${'0e'.repeat(20)}`
const turn = () => new Promise<void>((resolve) => setImmediate(resolve))

type Deed = 'answer' | 'revert' | 'silent revert' | 'burn'
const deeds: readonly Deed[] = ['answer', 'revert', 'silent revert', 'burn']
const callOf = (deed: Deed, payload: Hex = '0x'): ChainCall => ({
  to: contract,
  data: `0x0${deeds.indexOf(deed)}${payload.slice(2)}`,
})

interface Model extends Chain {
  readonly reached: ChainCall[]
  codeLooks: number
  failures: ChainErrorKind[]
  hasMulticall: boolean
  spoil: ((answer: Hex) => Hex) | undefined
}

/**
 * A node with one contract; an aggregate has gas for the calls up to the first that burns it all,
 * and a little for those after.
 */
function model(): Model {
  const run = (call: ChainCall, at: Parameters<Chain['call']>[1], isPoor = false): Hex => {
    if (call.to !== contract) return '0x'
    const deed = deeds[Number(call.data.slice(3, 4))] ?? 'answer'
    if (isPoor) throw new ChainError('reverted', 'out of gas')
    if (deed === 'revert')
      throw new ChainError('reverted', 'execution reverted', `0xbad0${call.data.slice(4)}`)
    if (deed === 'silent revert' || deed === 'burn')
      throw new ChainError('reverted', 'execution reverted')
    const by = `${call.from ?? ''}|${call.gas ?? ''}|${at}`
    return `0x${Buffer.from(`${call.data}|${by}`).toString('hex')}`
  }
  const chain: Model = {
    ...createFakeChain(),
    reached: [],
    codeLooks: 0,
    failures: [],
    hasMulticall: true,
    spoil: undefined,
    async code(address) {
      chain.codeLooks += 1
      return chain.hasMulticall && address === multicallAddress ? '0x60' : '0x'
    },
    async call(call, at) {
      chain.reached.push(call)
      if (call.to !== multicallAddress || !chain.hasMulticall) return run(call, at)
      const failure = chain.failures.shift()
      if (failure) throw new ChainError(failure, 'made to fail')
      const { args } = decodeFunctionData({ abi, data: call.data })
      let isPoor = false
      const result = args[0].map(({ target, callData }) => {
        try {
          return {
            success: true,
            returnData: run({ to: target.toLowerCase() as Address, data: callData }, at, isPoor),
          }
        } catch (error) {
          if (!(error instanceof ChainError)) throw error
          isPoor ||= callData.startsWith('0x03')
          return { success: false, returnData: error.data }
        }
      })
      const answer = encodeFunctionResult({ abi, functionName: 'aggregate3', result })
      return chain.spoil ? chain.spoil(answer) : answer
    },
  }
  return chain
}

const outcomeOf = (answer: Promise<Hex>) =>
  answer.then(
    (data) => ({ data }),
    (error: unknown) => {
      if (!(error instanceof ChainError)) throw error
      return { kind: error.kind, data: error.data }
    },
  )
const all = (
  chain: Chain,
  calls: readonly (readonly [ChainCall, Parameters<Chain['call']>[1]])[],
) => Promise.all(calls.map(([call, at]) => outcomeOf(chain.call(call, at))))

test('calls of one moment and one block are one call, and the same call twice is asked once', async () => {
  const chain = model()
  const folded = aggregating(chain, turn)
  const calls = [
    callOf('answer', '0x01'),
    callOf('answer', '0x02'),
    callOf('answer', '0x01'),
    { to: nobody, data: '0x01' as Hex },
  ]
  const outcomes = await all(
    folded,
    calls.map((call) => [call, 7n] as const),
  )
  expect(outcomes).toEqual(
    await all(
      model(),
      calls.map((call) => [call, 7n] as const),
    ),
  )
  expect(outcomes[3]).toEqual({ data: '0x' })
  expect(chain.reached.map(({ to }) => to)).toEqual([multicallAddress])
  const [{ data = '0x' } = {}] = chain.reached
  expect(decodeFunctionData({ abi, data: data as Hex }).args[0]).toHaveLength(3)
})

test('whatever is asked, of a chain with Multicall3 or without, the answers are those of the calls alone', async () => {
  const call = fc
    .record({
      deed: fc.constantFrom(...deeds),
      payload: fc
        .uint8Array({ maxLength: 70 })
        .map((bytes): Hex => `0x${Buffer.from(bytes).toString('hex')}`),
      to: fc.constantFrom(contract, contract, nobody, multicallAddress),
      from: fc.option(fc.constant(nobody), { nil: undefined, freq: 8 }),
      gas: fc.option(fc.constant(5n), { nil: undefined, freq: 8 }),
    })
    .map(({ deed, payload, to, from, gas }): ChainCall => {
      if (to === multicallAddress)
        return { to, data: encodeFunctionData({ abi, functionName: 'aggregate3', args: [[]] }) }
      return { ...callOf(deed, payload), to, ...(from && { from }), ...(gas && { gas }) }
    })
  const at = fc.constantFrom(1n, 1n, 1n, 2n, 'latest' as const, undefined)
  const moments = fc.array(fc.array(fc.tuple(call, at), { maxLength: 24 }), {
    minLength: 1,
    maxLength: 3,
  })
  const failures = fc.array(fc.constantFrom<ChainErrorKind>('unavailable', 'refused', 'reverted'), {
    maxLength: 2,
  })
  const options = fc.record({
    callsAtOnce: fc.integer({ min: 1, max: 12 }),
    bytesAtOnce: fc.integer({ min: 1, max: 200 }),
  })
  await fc.assert(
    fc.asyncProperty(
      moments,
      failures,
      options,
      fc.boolean(),
      async (asked, failing, bounds, hasMulticall) => {
        const chain = model()
        Object.assign(chain, { failures: [...failing], hasMulticall })
        const alone = model()
        alone.hasMulticall = hasMulticall
        const folded = aggregating(chain, turn, bounds)
        for (const calls of asked) {
          const meant = calls.filter(([{ to }]) => to !== multicallAddress || failing.length === 0)
          expect(await all(folded, meant)).toEqual(await all(alone, meant))
        }
      },
    ),
    { numRuns: 150 },
  )
})

test('without code at its address Multicall3 is not trusted, and its address is looked at once', async () => {
  const chain = model()
  chain.hasMulticall = false
  const folded = aggregating(chain, turn)
  for (let moment = 0; moment < 3; moment += 1)
    await all(folded, [
      [callOf('answer', '0x01'), 7n],
      [callOf('answer', '0x02'), 7n],
    ])
  expect(chain.codeLooks).toBe(1)
  expect(chain.reached).toHaveLength(6)
  expect(chain.reached.every(({ to }) => to === contract)).toBe(true)
})

test('where the node does not tell whether there is code, the calls go alone and the next ones look again', async () => {
  const chain = model()
  const { code } = chain
  chain.code = async () => {
    throw new ChainError('unavailable', 'no response')
  }
  const folded = aggregating(chain, turn)
  const calls = [callOf('answer', '0x01'), callOf('answer', '0x02')].map(
    (call) => [call, 7n] as const,
  )
  await all(folded, calls)
  expect(chain.reached.map(({ to }) => to)).toEqual([contract, contract])
  chain.code = code
  await all(folded, calls)
  expect(chain.reached.at(-1)?.to).toBe(multicallAddress)
})

test('an aggregate that fails costs its calls nothing: they go alone, and the address is looked at again', async () => {
  const chain = model()
  const folded = aggregating(chain, turn)
  const calls = [callOf('answer', '0x01'), callOf('revert', '0x02')].map(
    (call) => [call, 7n] as const,
  )
  chain.failures = ['unavailable']
  expect(await all(folded, calls)).toEqual(await all(model(), calls))
  expect(chain.reached.map(({ to }) => to)).toEqual([multicallAddress, contract, contract])
  expect(chain.codeLooks).toBe(1)
  await all(folded, calls)
  expect(chain.codeLooks).toBe(2)
  expect(chain.reached).toHaveLength(4)
})

test('a node that refuses the size of an aggregate is asked for smaller ones from then on', async () => {
  const chain = model()
  const folded = aggregating(chain, turn)
  const calls = Array.from(
    { length: 40 },
    (_, n) => [callOf('answer', `0x${n.toString(16).padStart(2, '0')}`), 7n] as const,
  )
  chain.failures = ['reverted']
  await all(folded, calls)
  chain.reached.length = 0
  await all(folded, calls)
  expect(chain.reached.map(({ to }) => to)).toEqual([multicallAddress, multicallAddress])
})

test('R17: an aggregate is bounded in calls and in bytes; a longer call travels alone', async () => {
  const chain = model()
  const short = Array.from({ length: 7 }, (_, n) => callOf('answer', `0x0${n}`))
  const long = callOf('answer', `0x${'ff'.repeat(60)}`)
  const options: AggregateOptions = { callsAtOnce: 3, bytesAtOnce: 50 }
  const asked = [...short, long].map((call) => [call, 7n] as const)
  expect(await all(aggregating(chain, turn, options), asked)).toEqual(await all(model(), asked))
  expect(chain.reached.map(({ to }) => to)).toEqual([
    multicallAddress,
    multicallAddress,
    contract,
    contract,
  ])
})

test('an answer of another shape is refused, never read halfway', () => {
  const result = [
    { success: true, returnData: '0x1234' as Hex },
    { success: false, returnData: '0x' as Hex },
  ]
  const answer = encodeFunctionResult({ abi, functionName: 'aggregate3', result })
  const refusal = expect.objectContaining({ kind: 'refused' })
  const thrown = (data: Hex, count = 2) => {
    try {
      return aggregateResults(data, count)
    } catch (error) {
      return error
    }
  }
  expect(thrown('0x')).toEqual(refusal)
  expect(thrown(answer, 3)).toEqual(refusal)
  for (let length = 2; length < answer.length - 64; length += 64)
    expect(thrown(answer.slice(0, length) as Hex)).toEqual(refusal)
  expect(
    thrown(answer.replace(/1$/, '2').replaceAll(`${'0'.repeat(63)}1`, `${'0'.repeat(63)}3`) as Hex),
  ).toEqual(refusal)
  expect(thrown(`0x${'f'.repeat(answer.length - 2)}`)).toEqual(refusal)
})

test('what only looks like Multicall3 is gone around', async () => {
  const chain = model()
  chain.spoil = () => '0x'
  const asked = [callOf('answer', '0x01'), callOf('revert', '0x02')].map(
    (call) => [call, 7n] as const,
  )
  expect(await all(aggregating(chain, turn), asked)).toEqual(await all(model(), asked))
})
