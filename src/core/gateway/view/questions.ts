/** The questions that the view holds, and which of them a change makes due; bounded (R17). */
import { managedRequestId, type RegistryEntry } from '#chain/questions'
import { type Contracts, domainOf, type Round, roundRef } from '#chain/round'
import type { Clock, Hex } from '#ports'
import { boundedCache } from '#protocol/bounded-cache'
import type { RoundRef } from '#protocol/candidate'
import { type WitnessRound, witnessRound } from '#protocol/witness'
import { isQuestionId } from '#protocol/words'

export interface Question {
  readonly questionId: Hex
  readonly slug: string | undefined
  readonly round: Round
  readonly ref: RoundRef
  readonly witness: WitnessRound
}

export interface Held {
  question: Question
  keys: readonly string[]
  readAt: number
  askedAtMs: number
}

const missMs = 10_000
const rememberedMisses = 10_000
export const rememberedQuestions = 20_000
const rememberedChanges = 50_000
/** A question that is over takes no proposals for good: it is forgotten where nobody asks. */
const keepEndedMs = 600_000

export const keysOf = (questionId: Hex, request: RegistryEntry['request']): readonly string[] =>
  request ? [questionId, managedRequestId(request), request.requester] : [questionId]

/** By id, request or requester the number of the last change; the oldest leave first. */
function createChanges() {
  const dirtyAt = new Map<string, number>()
  let [count, allDirtyAt] = [0, 0]
  return {
    count: () => count,
    isDirty: (keys: readonly string[], readAt: number) =>
      readAt < allDirtyAt || keys.some((key) => readAt < (dirtyAt.get(key) ?? 0)),
    add(keys: Iterable<string> | 'all') {
      count += 1
      if (keys === 'all') allDirtyAt = count
      else
        for (const key of keys) {
          dirtyAt.delete(key)
          dirtyAt.set(key, count)
          const [oldest] = dirtyAt
          if (oldest === undefined || dirtyAt.size <= rememberedChanges) continue
          dirtyAt.delete(oldest[0])
          allDirtyAt = Math.max(allDirtyAt, oldest[1])
        }
    },
  }
}

function createEntries(registry: readonly RegistryEntry[]) {
  const entries = new Map<Hex, RegistryEntry & Pick<Held, 'keys'>>()
  const slugs = new Map<string, Hex>()
  const remove = (questionId: Hex) => {
    entries.delete(questionId)
    for (const [slug, owner] of slugs) if (owner === questionId) slugs.delete(slug)
  }
  const set = (entry: RegistryEntry) => {
    const { questionId, slug, request } = entry
    entries.set(questionId, { ...entry, keys: keysOf(questionId, request) })
    if (slug !== undefined) slugs.set(slug, questionId)
  }
  for (const entry of registry) set(entry)
  const idOf = (identifier: string) =>
    isQuestionId(identifier) ? identifier : slugs.get(identifier)
  return { entries, remove, set, idOf }
}

export function createQuestionBook(
  contracts: Contracts,
  clock: Clock,
  registry: readonly RegistryEntry[],
) {
  const { entries, idOf, ...named } = createEntries(registry)
  const held = boundedCache<Hex, Held>(rememberedQuestions)
  const misses = boundedCache<Hex, { readonly untilMs: number; readonly readAt: number }>(
    rememberedMisses,
  )
  const changes = createChanges()
  const { isDirty } = changes
  const isDue = ({ keys, readAt }: Held) => isDirty(keys, readAt)
  let cleanAt = -1
  const hasDue = () => {
    if (cleanAt === changes.count()) return false
    for (const one of held.values()) if (isDue(one)) return true
    cleanAt = changes.count()
    return false
  }
  const remove = (questionId: Hex) => {
    named.remove(questionId)
    held.delete(questionId)
  }
  return {
    ...{ entries, held, idOf, isDirty, changes: changes.count, hasDue, remove },
    set(entry: RegistryEntry) {
      remove(entry.questionId)
      named.set(entry)
      misses.delete(entry.questionId)
    },
    recall(questionId: Hex): Question | undefined {
      const found = held.get(questionId)
      if (found === undefined) return undefined
      found.askedAtMs = clock.monotonicMs()
      return isDue(found) ? undefined : found.question
    },
    keep(round: Round, readAt: number): Question {
      const { questionId, token } = round
      const witness = witnessRound(domainOf(contracts), round, token.address)
      const ref = roundRef(contracts, questionId, round, witness.ancillaryHash)
      const question = { questionId, slug: entries.get(questionId)?.slug, round, ref, witness }
      const newest = { question, keys: keysOf(questionId, round), readAt }
      const known = held.peek(questionId)
      if (known) Object.assign(known, newest)
      else held.set(questionId, { ...newest, askedAtMs: clock.monotonicMs() })
      misses.delete(questionId)
      return question
    },
    noteMiss(questionId: Hex, readAt: number) {
      held.delete(questionId)
      misses.set(questionId, { untilMs: clock.monotonicMs() + missMs, readAt })
    },
    isMiss(questionId: Hex) {
      const miss = misses.get(questionId)
      if (miss === undefined || clock.monotonicMs() >= miss.untilMs) return false
      return !isDirty(entries.get(questionId)?.keys ?? [questionId], miss.readAt)
    },
    note(news: ReadonlySet<string> | 'all'): readonly Hex[] {
      // A reporter's event names one id of up to ten that share a request (domain §10).
      const sharing = (key: string) => [key, ...(held.peek(key as Hex)?.keys.slice(1, 2) ?? [])]
      const changed = news === 'all' ? news : new Set([...news].flatMap(sharing))
      changes.add(changed)
      if (changed === 'all' || changed.size === 0) return []
      return [...entries.values()].flatMap(({ questionId, keys }) =>
        !held.has(questionId) && keys.some((key) => changed.has(key)) ? questionId : [],
      )
    },
    doubt(questionId: Hex) {
      const found = held.peek(questionId)
      if (found) changes.add([found.keys[1] ?? questionId])
    },
    countDue: () => [...held.values()].filter(isDue).length,
    dueFirst(count: number, needed: ReadonlySet<Hex>, skip: (questionId: Hex) => boolean) {
      const chosen = new Set<Hex>()
      for (const questionIds of hasDue() ? [needed, held.keys()] : [])
        for (const questionId of questionIds) {
          if (chosen.size >= count) break
          const found = held.peek(questionId)
          if (found && isDue(found) && !skip(questionId)) chosen.add(questionId)
        }
      return [...chosen]
    },
    forgetEnded(needed: ReadonlySet<Hex>) {
      const untilMs = clock.monotonicMs() - keepEndedMs
      // The oracle never takes such a round back to requested (domain §4, States).
      const isOver = ({ round: { state } }: Question) => state === 'resolved' || state === 'settled'
      for (const [questionId, { question, askedAtMs }] of [...held.entries()])
        if (isOver(question) && askedAtMs <= untilMs && !needed.has(questionId))
          held.delete(questionId)
    },
  }
}
