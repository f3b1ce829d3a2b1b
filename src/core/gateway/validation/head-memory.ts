import { wrapChain } from '#chain/wrap'
import type { Chain, Clock } from '#ports'
import type { Heads } from '../view/state.js'

/** Also where no new block comes. */
const keptMs = 4_000

/**
 * What does not change within a head is asked once: tip, balance, counts of transactions, code.
 * What fails or ends a candidate is read again each time: a node is not its own witness (R27).
 */
export function createHeadMemory(chain: Chain, clock: Pick<Clock, 'monotonicMs'>) {
  let head: string | undefined
  let answers = new Map<string, unknown>()
  let sinceMs = Number.NEGATIVE_INFINITY
  const forget = () => {
    answers = new Map()
    sinceMs = clock.monotonicMs()
  }
  const once = <T>(key: string, ask: () => T): T => {
    if (clock.monotonicMs() - sinceMs >= keptMs) forget()
    const answer = (answers.get(key) as T | undefined) ?? ask()
    answers.set(key, answer)
    return answer
  }
  return {
    once,
    follow({ latest, finalized }: Heads) {
      const newest = `${latest.hash} ${finalized.hash}`
      if (head === newest) return
      head = newest
      forget()
    },
    chain: wrapChain(chain, ({ method, args }, ask) => {
      const isKept =
        method === 'tip' ||
        method === 'balance' ||
        (method === 'transactionCount' && args[1] !== 'pending') ||
        (method === 'code' && typeof args[1] === 'bigint')
      if (!isKept) return ask()
      const key = `${method} ${args.join(' ')}`
      const of = answers
      const answer = once(key, ask)
      answer.catch(() => of.delete(key) || answers.delete(key))
      return answer
    }),
  }
}
