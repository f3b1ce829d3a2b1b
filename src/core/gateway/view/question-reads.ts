/**
 * Reads questions so that what comes out is true at the head that is known when it comes out: a
 * block that names the question while it is read makes it be read again. One read a question at a
 * time, whoever asks.
 */
import { managedRequestId, type RoundReader } from '../../chain/questions.js'
import { type BlockHeader, ChainError, type Clock, type Hex } from '../../ports.js'
import type { Question } from './chain-view.js'
import { within } from './deadline.js'
import type { Trail } from './head-history.js'
import type { QuestionBook } from './questions.js'

/**
 * Reads of one question, each overtaken by a block that names it, before whoever asks is told to
 * come back.
 */
const tries = 4
/**
 * Read in one go. What comes back is decoded in one go too, and longer than a few milliseconds no
 * admission shall wait for that.
 */
const readAtOnce = 32

export interface QuestionReader {
  /** Reads a question and keeps it, or notes the miss. Rejects with `ChainError`. */
  read(questionId: Hex): Promise<Question | undefined>
  /**
   * Reads several, a part after the other, for no longer than `limitMs`; reads that are late go on
   * by themselves. Resolves to the first failure, if any; what failed stays as it was.
   */
  readSome(questionIds: readonly Hex[], limitMs: number): Promise<ChainError | undefined>
  /** Whether a read of the question is under way. */
  isReading(questionId: Hex): boolean
}

export interface ReaderParts {
  readonly clock: Clock
  readonly rounds: RoundReader
  readonly book: QuestionBook
  readonly trail: Trail
  /** The newest head whose logs have been followed. */
  head(): BlockHeader | undefined
}

/** Source: contract §2, robustness R14, R16. */
export function createQuestionReader({
  clock,
  rounds,
  book,
  trail,
  head,
}: ReaderParts): QuestionReader {
  const reading = new Map<Hex, Promise<Question | undefined>>()

  const readNow = async (questionId: Hex): Promise<Question | undefined> => {
    for (let tried = 0; tried < tries; tried += 1) {
      const entry = book.entry(questionId)
      const at = head()
      if (at === undefined) throw new ChainError('unavailable', 'the chain has not been read yet')
      const round = await rounds.read(questionId, entry, at.number)
      const request = round ?? entry?.request
      if (
        trail.changedSince(at, questionId, request && managedRequestId(request)) ||
        book.entry(questionId) !== entry
      )
        continue
      if (round) return book.keep(round)
      book.drop(questionId)
      book.noteMiss(questionId)
      return undefined
    }
    throw new ChainError(
      'unavailable',
      `the chain moved on each time question ${questionId} was read`,
    )
  }

  const read = (questionId: Hex) => {
    const known = reading.get(questionId)
    if (known) return known
    const begun = readNow(questionId).finally(() => reading.delete(questionId))
    reading.set(questionId, begun)
    return begun
  }

  const readPart = async (questionIds: readonly Hex[]): Promise<ChainError | undefined> => {
    const failures = await Promise.all(
      questionIds.map((questionId) =>
        read(questionId).then(
          () => undefined,
          (error: unknown) => {
            if (error instanceof ChainError) return error
            throw error
          },
        ),
      ),
    )
    return failures.find((failure) => failure !== undefined)
  }

  const readAll = async (
    questionIds: readonly Hex[],
    signal: { late: boolean },
  ): Promise<ChainError | undefined> => {
    let failure: ChainError | undefined
    for (let first = 0; first < questionIds.length && !signal.late; first += readAtOnce) {
      const found = await readPart(questionIds.slice(first, first + readAtOnce))
      failure ??= found
      // A chain that does not answer is not asked for the rest.
      if (failure?.kind === 'unavailable') break
    }
    return failure
  }

  return {
    read,
    async readSome(questionIds, limitMs) {
      const signal = { late: false }
      try {
        return await within(clock, limitMs, readAll(questionIds, signal))
      } catch (error) {
        if (error instanceof ChainError) return error
        throw error
      } finally {
        signal.late = true
      }
    },
    isReading: (questionId) => reading.has(questionId),
  }
}
