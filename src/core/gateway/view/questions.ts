/** The view's memory of questions. Bounded (R17). */
import { managedRequestId, type RegistryEntry } from '#chain/questions'
import { type Contracts, domainOf, type Round, roundRef } from '#chain/round'
import type { Clock, Hex } from '#ports'
import { type BoundedCache, boundedCache } from '#protocol/bounded-cache'
import { witnessRound } from '#protocol/witness'
import { isQuestionId } from '#protocol/words'
import type { Question } from './chain-view.js'
import type { LogMeaning } from './logs.js'

/** Contract §2. */
const missMs = 10_000
const rememberedMisses = 10_000
export const rememberedQuestions = 20_000
/** A question that is over takes no proposals for good: it is forgotten where nobody asks. */
const keepEndedMs = 600_000

interface Held {
  question: Question
  askedAtMs: number
}

export interface QuestionBook {
  readonly contracts: Contracts
  readonly clock: Clock
  readonly entries: Map<Hex, RegistryEntry>
  readonly slugs: Map<string, Hex>
  readonly held: BoundedCache<Hex, Held>
  readonly due: Set<Hex>
  readonly ended: Set<Hex>
  /** Several where the registry names several rounds of one request. */
  readonly byManaged: Map<Hex, Set<Hex>>
  readonly misses: BoundedCache<Hex, number>
}

/** Trusted slugs are entries of their own; later ones add to earlier ones. */
export function newQuestionBook(
  contracts: Contracts,
  clock: Clock,
  registry: readonly RegistryEntry[],
): QuestionBook {
  const book: QuestionBook = {
    contracts,
    clock,
    entries: new Map(),
    slugs: new Map(),
    held: boundedCache(rememberedQuestions, ({ question }, questionId) => {
      book.due.delete(questionId)
      book.ended.delete(questionId)
      if (book.entries.get(questionId)?.request === undefined)
        unfollow(book, managedRequestId(question.round), questionId)
    }),
    due: new Set(),
    ended: new Set(),
    byManaged: new Map(),
    misses: boundedCache(rememberedMisses),
  }
  for (const entry of registry) enter(book, entry)
  return book
}

function follow({ byManaged }: QuestionBook, managedId: Hex, questionId: Hex) {
  const same = byManaged.get(managedId) ?? new Set()
  byManaged.set(managedId, same.add(questionId))
}

function unfollow({ byManaged }: QuestionBook, managedId: Hex, questionId: Hex) {
  const same = byManaged.get(managedId)
  same?.delete(questionId)
  if (same?.size === 0) byManaged.delete(managedId)
}

function enter(book: QuestionBook, { questionId, slug, requester, request }: RegistryEntry) {
  const known = book.entries.get(questionId)
  book.entries.set(questionId, {
    questionId,
    slug: known?.slug ?? slug,
    requester: known?.requester ?? requester,
    request: known?.request ?? request,
  })
  if (slug !== undefined) book.slugs.set(slug, questionId)
  if (request) follow(book, managedRequestId(request), questionId)
}

export function questionIdOf({ slugs }: QuestionBook, identifier: string): Hex | undefined {
  return isQuestionId(identifier) ? identifier : slugs.get(identifier)
}

export function setEntry(book: QuestionBook, entry: RegistryEntry) {
  removeEntry(book, entry.questionId)
  enter(book, entry)
  book.misses.delete(entry.questionId)
}

export function removeEntry(book: QuestionBook, questionId: Hex) {
  const known = book.entries.get(questionId)
  book.entries.delete(questionId)
  for (const [slug, owner] of book.slugs) if (owner === questionId) book.slugs.delete(slug)
  if (known?.request) unfollow(book, managedRequestId(known.request), questionId)
  book.held.delete(questionId)
}

export function recallQuestion(book: QuestionBook, questionId: Hex): Question | undefined {
  const found = book.held.get(questionId)
  if (found) found.askedAtMs = book.clock.monotonicMs()
  return book.due.has(questionId) ? undefined : found?.question
}

export function keepQuestion(book: QuestionBook, round: Round): Question {
  const { questionId, state } = round
  const question = prepareQuestion(book, round)
  const known = book.held.peek(questionId)
  if (known) known.question = question
  else book.held.set(questionId, { question, askedAtMs: book.clock.monotonicMs() })
  follow(book, managedRequestId(round), questionId)
  book.misses.delete(questionId)
  book.due.delete(questionId)
  // The oracle never takes such a round back to requested (domain §4, States).
  if (state === 'resolved' || state === 'settled') book.ended.add(questionId)
  else book.ended.delete(questionId)
  return question
}

function prepareQuestion({ entries, contracts }: QuestionBook, round: Round) {
  const { questionId, token } = round
  const witness = witnessRound(domainOf(contracts), round, token.address)
  const ref = roundRef(contracts, questionId, round, witness.ancillaryHash)
  return { questionId, slug: entries.get(questionId)?.slug, round, ref, witness }
}

export function markDue({ held, due }: QuestionBook, questionIds: Iterable<Hex>) {
  for (const questionId of questionIds) if (held.has(questionId)) due.add(questionId)
}

/** Needed ones first, then those asked for last. */
export function dueFirst(
  { held, due }: QuestionBook,
  count: number,
  needed: ReadonlySet<Hex>,
  skip: (questionId: Hex) => boolean,
): Hex[] {
  const chosen = new Set<Hex>()
  for (const questionIds of due.size === 0 ? [] : [needed, held.keys()])
    for (const questionId of questionIds) {
      if (chosen.size >= count) break
      if (due.has(questionId) && !skip(questionId)) chosen.add(questionId)
    }
  return [...chosen]
}

export function isMiss({ misses, clock }: QuestionBook, questionId: Hex) {
  return clock.monotonicMs() < (misses.get(questionId) ?? Number.NEGATIVE_INFINITY)
}

export function noteMiss({ held, misses, clock }: QuestionBook, questionId: Hex) {
  held.delete(questionId)
  misses.set(questionId, clock.monotonicMs() + missMs)
}

/** A reporter's event names one id of up to ten that share a request (domain §10). */
export function withRequests({ held }: QuestionBook, meaning: LogMeaning): LogMeaning {
  const shared = [...meaning.named].flatMap((id) => {
    const round = held.peek(id)?.question.round
    return round?.kind === 'oo-reporter' ? managedRequestId(round) : []
  })
  return { ...meaning, managed: new Set([...meaning.managed, ...shared]) }
}

export function sharingWith({ held, byManaged }: QuestionBook, questionId: Hex): Iterable<Hex> {
  const round = held.peek(questionId)?.question.round
  return (round && byManaged.get(managedRequestId(round))) ?? [questionId]
}

export function affectedBy(
  { byManaged, misses, held, entries }: QuestionBook,
  { named, managed, requesters }: LogMeaning,
): Set<Hex> {
  const ids = [...named, ...[...managed].flatMap((id) => [...(byManaged.get(id) ?? [])])]
  if (requesters.size > 0)
    for (const [id, { question }] of held.entries())
      if (requesters.has(question.round.requester)) ids.push(id)
  for (const id of ids) misses.delete(id)
  return new Set(ids.filter((id) => held.has(id) || entries.has(id)))
}

export function forgetEnded({ held, ended, clock }: QuestionBook, needed: ReadonlySet<Hex>) {
  const untilMs = clock.monotonicMs() - keepEndedMs
  for (const questionId of ended) {
    const atMs = held.peek(questionId)?.askedAtMs ?? untilMs
    if (atMs <= untilMs && !needed.has(questionId)) held.delete(questionId)
  }
}
