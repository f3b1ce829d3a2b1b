/**
 * Each read of a followed block is made once, also while it is on its way; a block that is
 * replaced takes
 * its answers along (R14).
 */
import { type Chain, ChainError, type Clock, type Hex } from '#ports'
import { boundedCache } from '#protocol/bounded-cache'
import type { Heads } from '../view/state.js'

/** Also where no new block comes. */
const unnumberedMs = 4_000
/** A step that began at one head may end at the next. */
const keptBlocks = 6
/** Of what was asked, of all blocks together: calldata is long (R17). */
const keptCharacters = 32 * 1024 * 1024

export interface HeadReads {
  /**
   * Calls, code and storage are kept while their block is; balance, tip, receipts and counts
   * until the next
   * head. What failed is not kept, but for a revert.
   */
  readonly chain: Chain
  follow(heads: Heads): void
  once<T>(at: bigint, key: string, work: () => Promise<T>): Promise<T>
}

interface KeptBlock {
  readonly hash: Hex
  /** Another one where a block takes its place. */
  readonly id: number
}

interface Answers {
  get(key: string): Promise<unknown> | undefined
  set(key: string, answer: Promise<unknown>): unknown
  delete(key: string): boolean
}

export function readAfresh(chain: Chain): Pick<HeadReads, 'chain' | 'once'> {
  return { chain, once: (_, __, work) => work() }
}

export function createHeadReads(chain: Chain, clock: Pick<Clock, 'monotonicMs'>): HeadReads {
  const blocks = new Map<bigint, KeptBlock>()
  const answers = boundedCache<string, Promise<unknown>>(
    keptCharacters,
    undefined,
    ({ length }) => length,
  )
  let lastId = 0
  let head: string | undefined
  let unnumbered = new Map<string, Promise<unknown>>()
  let unnumberedSinceMs = Number.NEGATIVE_INFINITY

  const keep = (number: bigint, hash: Hex) => {
    const known = blocks.get(number)
    blocks.delete(number)
    blocks.set(number, known?.hash === hash ? known : { hash, id: ++lastId })
    const [oldest] = blocks.keys()
    if (blocks.size > keptBlocks && oldest !== undefined) blocks.delete(oldest)
  }
  const once: HeadReads['once'] = (at, key, work) => {
    const block = blocks.get(at)
    return block === undefined ? work() : keptIn(answers, `${block.id} ${key}`, work)
  }
  const untilNextHead = <T>(key: string, work: () => Promise<T>): Promise<T> => {
    if (head === undefined) return work()
    const nowMs = clock.monotonicMs()
    if (nowMs - unnumberedSinceMs >= unnumberedMs) {
      unnumbered = new Map()
      unnumberedSinceMs = nowMs
    }
    return keptIn(unnumbered, key, work)
  }

  return {
    once,
    follow({ latest, finalized }) {
      keep(finalized.number, finalized.hash)
      keep(latest.number, latest.hash)
      const newest = `${latest.hash} ${finalized.hash}`
      if (head === newest) return
      head = newest
      unnumbered = new Map()
      unnumberedSinceMs = clock.monotonicMs()
    },
    chain: Object.assign(Object.create(chain) as Chain, {
      call: (call, at) =>
        typeof at === 'bigint'
          ? once(at, callKey(call), () => chain.call(call, at))
          : chain.call(call, at),
      code: (address, at) =>
        typeof at === 'bigint'
          ? once(at, `code ${address}`, () => chain.code(address, at))
          : chain.code(address, at),
      storage: (address, slot, at) =>
        typeof at === 'bigint'
          ? once(at, `storage ${address} ${slot}`, () => chain.storage(address, slot, at))
          : chain.storage(address, slot, at),
      balance: (address) => untilNextHead(`balance ${address}`, () => chain.balance(address)),
      tip: () => untilNextHead('tip', () => chain.tip()),
      receipt: (hash) => untilNextHead(`receipt ${hash}`, () => chain.receipt(hash)),
      transactionCount: (address, at) =>
        at === 'pending'
          ? chain.transactionCount(address, at)
          : untilNextHead(`count ${address} ${at}`, () => chain.transactionCount(address, at)),
    } satisfies Partial<Chain>),
  }
}

const callKey = ({ to, data, from, gas, ...offered }: Parameters<Chain['call']>[0]) =>
  `call ${to} ${from ?? ''} ${gas ?? ''} ${offered.maxFeePerGas ?? ''} ${offered.maxPriorityFeePerGas ?? ''} ${data}`

function keptIn<T>(answers: Answers, key: string, work: () => Promise<T>): Promise<T> {
  const known = answers.get(key) as Promise<T> | undefined
  if (known !== undefined) return known
  const answer = work()
  answers.set(key, answer)
  answer.catch((error: unknown) => {
    // The same bytes revert the same way at the same block; anything else may pass.
    if (!(error instanceof ChainError && error.kind === 'reverted')) answers.delete(key)
  })
  return answer
}
