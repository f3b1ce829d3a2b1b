/**
 * Reads questions so that what comes out is true at the head that is known when it comes out. A
 * block that names the question while it is read makes it be read again. One read a question at a
 * time, whoever asks (contract §2, R14, R16).
 */
import { managedRequestId, type RegistryEntry } from '../../chain/questions.js'
import { ChainError, type Hex } from '../../ports.js'
import type { Question } from './chain-view.js'
import type { LogMeaning } from './logs.js'
import { isMiss, keepQuestion, noteMiss } from './questions.js'
import { callForLook, type News, type ViewState, viewFaults } from './state.js'
import { singleFlight, within } from './time-limits.js'

/** Reads of one question, each overtaken by a block that names it, before the read fails. */
const tries = 4
/** Read in one go, so that their calls are folded; what comes back is handed out by and by. */
const readAtOnce = 64
/** A question seen for the first time is read within this (contract §2). */
const firstReadMs = 3_000
/** The next head waits for the reads of this one no longer than this. */
const readsMs = 3_000

/** Reads a question and keeps it, or notes the miss. Rejects with `ChainError`. */
const read = (state: ViewState, questionId: Hex) =>
  singleFlight(state.reading, questionId, () => readNow(state, questionId))

async function readNow(state: ViewState, questionId: Hex): Promise<Question | undefined> {
  const { book, rounds, readers } = state
  for (let tried = 0; tried < tries; tried += 1) {
    const entry = book.entries.get(questionId)
    const at = state.heads?.latest
    if (at === undefined) throw new ChainError('unavailable', 'the chain has not been read yet')
    const news: News[] = []
    readers.add(news)
    const round = await rounds
      .read(questionId, entry, at.number)
      .finally(() => readers.delete(news))
    const request = round ?? entry?.request
    const isOld = news.some((one) => one === 'lost' || isNamed(one, questionId, request))
    if (isOld || book.entries.get(questionId) !== entry) continue
    if (round) return keepQuestion(book, round)
    noteMiss(book, questionId)
    return undefined
  }
  throw new ChainError(
    'unavailable',
    `the chain advanced each time question ${questionId} was read`,
  )
}

const isNamed = (
  { named, managed, requesters }: LogMeaning,
  questionId: Hex,
  request: RegistryEntry['request'],
) =>
  named.has(questionId) ||
  (request !== undefined &&
    (managed.has(managedRequestId(request)) || requesters.has(request.requester)))

/**
 * Reads several, a part after the other, for a limited time; reads that are late go on by
 * themselves. Resolves to the first failure, if any; what failed stays as it was.
 */
export async function readSome(
  state: ViewState,
  questionIds: readonly Hex[],
): Promise<ChainError | undefined> {
  const readOne = async (questionId: Hex): Promise<ChainError[]> => {
    try {
      await read(state, questionId)
      return []
    } catch (error) {
      if (error instanceof ChainError) return [error]
      throw error
    }
  }
  const readAll = async (signal: AbortSignal) => {
    const failures: ChainError[] = []
    for (let at = 0; at < questionIds.length && !signal.aborted; at += readAtOnce) {
      const part = questionIds.slice(at, at + readAtOnce)
      failures.push(...(await Promise.all(part.map(readOne))).flat())
      // A chain that does not answer is not asked for the rest.
      if (failures[0]?.kind === 'unavailable') break
    }
    return failures[0]
  }
  try {
    return await within(state.clock, readsMs, readAll)
  } catch (error) {
    if (error instanceof ChainError) return error
    throw error
  }
}

/**
 * A question that somebody asks for and memory does not have. Rejects with `ChainError`, after 3 s
 * too.
 */
export async function readFirst(state: ViewState, questionId: Hex): Promise<Question | undefined> {
  // A miss that a first read notes is not final before that read ends.
  if (isMiss(state.book, questionId) && !state.firstReads.has(questionId)) return undefined
  return within(state.clock, firstReadMs, () =>
    singleFlight(state.firstReads, questionId, () => readTwice(state, questionId)),
  )
}

/**
 * Begins to read questions that are about to be asked for one after another, so that their calls
 * are folded. Who asks hears what became of it.
 */
export function readAhead(state: ViewState, questionIds: Iterable<Hex>): void {
  for (const questionId of questionIds)
    void readFirst(state, questionId).catch((error: unknown) => {
      if (!(error instanceof ChainError)) throw error
    })
}

/**
 * What is not found may be younger than the head that was followed: that head is waited for, and
 * the question read again.
 */
async function readTwice(state: ViewState, questionId: Hex): Promise<Question | undefined> {
  const headNumber = () => state.heads?.latest.number ?? 0n
  const readAtHead = async () => {
    const [fault] = viewFaults(state)
    if (fault !== undefined) throw new ChainError('unavailable', fault)
    return read(state, questionId)
  }
  const found = await readAtHead()
  const seen = headNumber()
  if (found !== undefined) return found
  const newest = await state.chain.block('latest')
  if (newest === null || newest.number <= seen) return undefined
  callForLook(state)
  await within(state.clock, firstReadMs, (signal) => headReached(state, newest.number, signal))
  return readAtHead()
}

/** Resolves once the followed head is there; leaves no listener behind after the signal. */
function headReached(state: ViewState, number: bigint, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const look = () => {
      if ((state.heads?.latest.number ?? 0n) >= number) resolve()
    }
    state.headListeners.add(look)
    signal.addEventListener('abort', () => state.headListeners.delete(look))
    look()
  })
}
