/** Questions that somebody asks for and nobody has read yet (contract §2). */
import type { Chain, Clock, Hex } from '../../ports.js'
import type { Question } from './chain-view.js'
import { eventually, within } from './deadline.js'

export interface FirstReadParts {
  readonly clock: Clock
  readonly chain: Pick<Chain, 'block'>
  /**
   * Reads at the head that is followed; `undefined` where no trusted requester knows the question
   * there.
   */
  read(questionId: Hex): Promise<Question | undefined>
  /** The number of that head. */
  headNumber(): bigint
  onHead(listener: () => void): () => void
}

export interface FirstReads {
  /**
   * One at a time a question: whoever asks meanwhile gets the same answer. Rejects with
   * `ChainError`, after `limitMs` too.
   */
  read(questionId: Hex): Promise<Question | undefined>
  isReading(questionId: Hex): boolean
}

/** Source: contract §2, R16. */
export function createFirstReads(
  { clock, chain, read, headNumber, onHead }: FirstReadParts,
  limitMs: number,
): FirstReads {
  const reading = new Map<Hex, Promise<Question | undefined>>()

  /**
   * What is not found may be younger than the head that was followed: that head is waited for, and
   * the question read again.
   */
  const readTwice = async (questionId: Hex): Promise<Question | undefined> => {
    const found = await read(questionId)
    const seen = headNumber()
    if (found !== undefined) return found
    const newest = await chain.block('latest')
    if (newest === null || newest.number <= seen) return undefined
    await eventually(clock, limitMs, onHead, () => headNumber() >= newest.number)
    return read(questionId)
  }

  return {
    read(questionId) {
      const begun =
        reading.get(questionId) ?? readTwice(questionId).finally(() => reading.delete(questionId))
      reading.set(questionId, begun)
      return within(clock, limitMs, begun)
    },
    isReading: (questionId) => reading.has(questionId),
  }
}
