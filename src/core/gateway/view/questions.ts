/** The view's memory of questions: by id, by slug, by what oracle logs name them, and which are known to be missing. Bounded (R17). */
import { managedRequestId, type RegistryEntry } from '../../chain/questions.js'
import { type Contracts, domainOf, type Round, roundRef } from '../../chain/round.js'
import type { Clock, Hex } from '../../ports.js'
import { isQuestionId } from '../../protocol/schema.js'
import { witnessRound } from '../../protocol/witness.js'
import type { Question } from './chain-view.js'
import type { LogMeaning } from './logs.js'

/** Misses are remembered for at most this (contract §2). */
const missMs = 10_000
const rememberedMisses = 10_000
export const rememberedQuestions = 20_000

export interface QuestionBook {
  /** The question ID that an identifier means; `undefined` for a slug that no entry has. */
  idOf(identifier: string): Hex | undefined
  entry(questionId: Hex): RegistryEntry | undefined
  /** IDs of the registry, in its order. */
  registered(): Iterable<Hex>
  get(questionId: Hex): Question | undefined
  ids(): Iterable<Hex>
  keep(round: Round): Question
  drop(questionId: Hex): void
  isMiss(questionId: Hex): boolean
  noteMiss(questionId: Hex): void
  forgetMisses(): void
  /** The held questions that logs name; what they name is no miss any more. */
  affected(meaning: LogMeaning): Set<Hex>
}

/** `entries`: questions.json, and trusted slugs as entries of their own; later ones add to earlier ones of the same question. */
export function createQuestionBook(contracts: Contracts, clock: Clock, registry: readonly RegistryEntry[]): QuestionBook {
  const entries = new Map<Hex, RegistryEntry>()
  const slugs = new Map<string, Hex>()
  const questions = new Map<Hex, Question>()
  const byManaged = new Map<Hex, Hex>()
  const misses = new Map<Hex, number>()
  for (const entry of registry) {
    const known = entries.get(entry.questionId)
    entries.set(entry.questionId, {
      questionId: entry.questionId,
      slug: known?.slug ?? entry.slug,
      requester: known?.requester ?? entry.requester,
      request: known?.request ?? entry.request,
    })
    if (entry.slug !== undefined) slugs.set(entry.slug, entry.questionId)
    if (entry.request) byManaged.set(managedRequestId(entry.request), entry.questionId)
  }

  /** Hashing is kept from before where the signed fields have not changed. */
  const prepare = (round: Round): Question => {
    const before = questions.get(round.questionId)
    const same =
      before !== undefined &&
      before.round.timestamp === round.timestamp &&
      before.round.oracle === round.oracle &&
      before.round.requester === round.requester &&
      before.round.identifier === round.identifier &&
      before.round.ancillaryData === round.ancillaryData &&
      before.round.token.address === round.token.address
    const witness = same ? before.witness : witnessRound(domainOf(contracts), round, round.token.address)
    return {
      questionId: round.questionId,
      slug: entries.get(round.questionId)?.slug,
      round,
      ref: same ? before.ref : roundRef(contracts, round.questionId, round, witness.ancillaryHash),
      witness,
    }
  }

  const book: QuestionBook = {
    idOf: (identifier) => (isQuestionId(identifier) ? (identifier as Hex) : slugs.get(identifier)),
    entry: (questionId) => entries.get(questionId),
    registered: () => entries.keys(),
    get: (questionId) => questions.get(questionId),
    ids: () => questions.keys(),
    keep(round) {
      const question = prepare(round)
      questions.delete(round.questionId)
      questions.set(round.questionId, question)
      byManaged.set(managedRequestId(round), round.questionId)
      misses.delete(round.questionId)
      const [oldest] = questions.keys()
      if (questions.size > rememberedQuestions && oldest !== undefined) book.drop(oldest)
      return question
    },
    drop(questionId) {
      const question = questions.get(questionId)
      if (question === undefined) return
      questions.delete(questionId)
      // The registry's own requests stay followed.
      if (entries.get(questionId)?.request === undefined) byManaged.delete(managedRequestId(question.round))
    },
    isMiss: (questionId) => clock.monotonicMs() < (misses.get(questionId) ?? Number.NEGATIVE_INFINITY),
    noteMiss(questionId) {
      misses.delete(questionId)
      misses.set(questionId, clock.monotonicMs() + missMs)
      const [oldest] = misses.keys()
      if (misses.size > rememberedMisses && oldest !== undefined) misses.delete(oldest)
    },
    forgetMisses: () => misses.clear(),
    affected(meaning) {
      const found = new Set<Hex>()
      const ids = [...meaning.named, ...[...meaning.managed].flatMap((managed) => byManaged.get(managed) ?? [])]
      for (const id of ids) {
        misses.delete(id)
        if (questions.has(id)) found.add(id)
      }
      return found
    },
  }
  return book
}
