/**
 * The view's memory of questions: by id, by slug, by what oracle logs name them, which of them are
 * due, and which are known to be missing. Bounded (R17).
 */
import { managedRequestId, type RegistryEntry } from '../../chain/questions.js'
import { type Contracts, domainOf, type Round, roundRef } from '../../chain/round.js'
import type { Clock, Hex } from '../../ports.js'
import { isQuestionId } from '../../protocol/schema.js'
import { witnessRound } from '../../protocol/witness.js'
import type { Question } from './chain-view.js'
import type { Named } from './head-history.js'

/** Misses are remembered for at most this (contract §2). */
const missMs = 10_000
const rememberedMisses = 10_000
export const rememberedQuestions = 20_000
/**
 * A question that is over and that nobody has asked for since this long is forgotten: its round
 * takes no proposals for good.
 */
const keepEndedMs = 600_000

export interface QuestionBook {
  /** The question id that an identifier means; `undefined` for a slug that no entry has. */
  idOf(identifier: string): Hex | undefined
  entry(questionId: Hex): RegistryEntry | undefined
  /** IDs of the registry, in its order. */
  registered(): Iterable<Hex>
  /**
   * Puts an entry in the place of what was there; the question is read anew, for its request may be
   * another one.
   */
  setEntry(entry: RegistryEntry): void
  removeEntry(questionId: Hex): void
  /** A question that somebody asks for; `undefined` also while it is due. */
  ask(questionId: Hex): Question | undefined
  holds(questionId: Hex): boolean
  /** Keeps what was just read; the question is not due any more. */
  keep(round: Round): Question
  drop(questionId: Hex): void
  /** Held questions that may have changed: they have to be read before they are judged by. */
  markDue(questionIds: Iterable<Hex>): void
  markAllDue(): void
  /** Questions held, due ones included. */
  readonly heldCount: number
  readonly dueCount: number
  /**
   * So many of the due ones, but for those to skip: `urgent` ones first, then those asked for last.
   */
  dueFirst(
    count: number,
    urgent: (questionId: Hex) => boolean,
    skip: (questionId: Hex) => boolean,
  ): Hex[]
  isMiss(questionId: Hex): boolean
  noteMiss(questionId: Hex): void
  forgetMisses(): void
  /** Questions that logs name, of those held or registered; what they name is no miss any more. */
  affected(meaning: Named): Set<Hex>
  /** Forgets questions that are over, unless they were asked for lately or `needed`. */
  forgetEnded(needed: (questionId: Hex) => boolean): void
}

interface Held {
  question: Question
  /** The place in the order in which questions came in or were asked for. */
  askedAt: number
  askedAtMs: number
  /** `askedAt` when the question was last spared from being forgotten. */
  sparedAt: number
}

/** Over for good: the oracle never takes this round back to requested (domain §4, States). */
const isOver = ({ state }: Round) => state === 'resolved' || state === 'settled'

/**
 * `entries`: questions.json, and trusted slugs as entries of their own; later ones add to earlier
 * ones of the same question.
 */
export function createQuestionBook(
  contracts: Contracts,
  clock: Clock,
  registry: readonly RegistryEntry[],
): QuestionBook {
  const entries = new Map<Hex, RegistryEntry>()
  const slugs = new Map<string, Hex>()
  const held = new Map<Hex, Held>()
  const due = new Set<Hex>()
  const ended = new Set<Hex>()
  let asked = 0
  /** Several where the registry names several rounds of one request. */
  const byManaged = new Map<Hex, Set<Hex>>()
  const misses = new Map<Hex, number>()
  const followManaged = (managedId: Hex, questionId: Hex) => {
    const known = byManaged.get(managedId)
    if (known) known.add(questionId)
    else byManaged.set(managedId, new Set([questionId]))
  }
  const unfollow = (managedId: Hex, questionId: Hex) => {
    const same = byManaged.get(managedId)
    same?.delete(questionId)
    if (same?.size === 0) byManaged.delete(managedId)
  }
  const enter = (entry: RegistryEntry) => {
    const known = entries.get(entry.questionId)
    entries.set(entry.questionId, {
      questionId: entry.questionId,
      slug: known?.slug ?? entry.slug,
      requester: known?.requester ?? entry.requester,
      request: known?.request ?? entry.request,
    })
    if (entry.slug !== undefined) slugs.set(entry.slug, entry.questionId)
    if (entry.request) followManaged(managedRequestId(entry.request), entry.questionId)
  }
  for (const entry of registry) enter(entry)

  /** Hashing is kept from before where the signed fields have not changed. */
  const prepare = (round: Round): Question => {
    const before = held.get(round.questionId)?.question
    const same =
      before !== undefined &&
      before.round.timestamp === round.timestamp &&
      before.round.oracle === round.oracle &&
      before.round.requester === round.requester &&
      before.round.identifier === round.identifier &&
      before.round.ancillaryData === round.ancillaryData &&
      before.round.token.address === round.token.address
    const witness = same
      ? before.witness
      : witnessRound(domainOf(contracts), round, round.token.address)
    return {
      questionId: round.questionId,
      slug: entries.get(round.questionId)?.slug,
      round,
      ref: same ? before.ref : roundRef(contracts, round.questionId, round, witness.ancillaryHash),
      witness,
    }
  }

  /** The longest held leaves first, but for those asked for since they were last spared. */
  const makeRoom = () => {
    while (held.size > rememberedQuestions) {
      const [oldest] = held
      if (oldest === undefined) return
      const [questionId, one] = oldest
      if (one.askedAt === one.sparedAt) {
        book.drop(questionId)
        continue
      }
      one.sparedAt = one.askedAt
      held.delete(questionId)
      held.set(questionId, one)
    }
  }

  const book: QuestionBook = {
    idOf: (identifier) => (isQuestionId(identifier) ? (identifier as Hex) : slugs.get(identifier)),
    entry: (questionId) => entries.get(questionId),
    registered: () => entries.keys(),
    setEntry(entry) {
      book.removeEntry(entry.questionId)
      enter(entry)
      misses.delete(entry.questionId)
    },
    removeEntry(questionId) {
      const known = entries.get(questionId)
      entries.delete(questionId)
      for (const [slug, owner] of slugs) if (owner === questionId) slugs.delete(slug)
      if (known?.request) unfollow(managedRequestId(known.request), questionId)
      book.drop(questionId)
    },
    ask(questionId) {
      const found = held.get(questionId)
      if (found === undefined) return undefined
      asked += 1
      found.askedAt = asked
      found.askedAtMs = clock.monotonicMs()
      return due.has(questionId) ? undefined : found.question
    },
    holds: (questionId) => held.has(questionId),
    keep(round) {
      const { questionId } = round
      const question = prepare(round)
      const known = held.get(questionId)
      if (known) known.question = question
      else {
        asked += 1
        held.set(questionId, {
          question,
          askedAt: asked,
          askedAtMs: clock.monotonicMs(),
          sparedAt: 0,
        })
      }
      followManaged(managedRequestId(round), questionId)
      misses.delete(questionId)
      due.delete(questionId)
      if (isOver(round)) ended.add(questionId)
      else ended.delete(questionId)
      makeRoom()
      return question
    },
    drop(questionId) {
      const found = held.get(questionId)
      if (found === undefined) return
      held.delete(questionId)
      due.delete(questionId)
      ended.delete(questionId)
      // The registry's own requests stay followed.
      if (entries.get(questionId)?.request !== undefined) return
      unfollow(managedRequestId(found.question.round), questionId)
    },
    markDue(questionIds) {
      for (const questionId of questionIds) if (held.has(questionId)) due.add(questionId)
    },
    markAllDue: () => book.markDue(held.keys()),
    get heldCount() {
      return held.size
    },
    get dueCount() {
      return due.size
    },
    dueFirst(count, urgent, skip) {
      const chosen: { readonly questionId: Hex; readonly rank: number }[] = []
      for (const questionId of due) {
        if (skip(questionId)) continue
        const rank =
          (held.get(questionId)?.askedAt ?? 0) +
          (urgent(questionId) ? Number.MAX_SAFE_INTEGER / 2 : 0)
        if (chosen.length >= count && rank <= (chosen.at(-1)?.rank ?? 0)) continue
        // Few of many: putting each in its place is quicker than sorting them all.
        const place = chosen.findIndex((other) => other.rank < rank)
        chosen.splice(place < 0 ? chosen.length : place, 0, { questionId, rank })
        if (chosen.length > count) chosen.pop()
      }
      return chosen.map(({ questionId }) => questionId)
    },
    isMiss: (questionId) =>
      clock.monotonicMs() < (misses.get(questionId) ?? Number.NEGATIVE_INFINITY),
    noteMiss(questionId) {
      misses.delete(questionId)
      misses.set(questionId, clock.monotonicMs() + missMs)
      const [oldest] = misses.keys()
      if (misses.size > rememberedMisses && oldest !== undefined) misses.delete(oldest)
    },
    forgetMisses: () => misses.clear(),
    affected({ named, managed }) {
      const found = new Set<Hex>()
      const ids = [...named, ...[...managed].flatMap((id) => [...(byManaged.get(id) ?? [])])]
      for (const id of ids) {
        misses.delete(id)
        if (held.has(id) || entries.has(id)) found.add(id)
      }
      return found
    },
    forgetEnded(needed) {
      const untilMs = clock.monotonicMs() - keepEndedMs
      for (const questionId of ended) {
        const atMs = held.get(questionId)?.askedAtMs ?? untilMs
        if (atMs <= untilMs && !needed(questionId)) book.drop(questionId)
      }
    },
  }
  return book
}
