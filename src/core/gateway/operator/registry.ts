/**
 * The question registry in force: questions.json, what operators added to it and what they took
 * away (contract §6, §7). Pure.
 */
import type { RegistryEntry } from '../../chain/questions.js'
import type { Hex } from '../../ports.js'
import { UsageError } from '../../protocol/errors.js'

type Changes = ReadonlyMap<Hex, RegistryEntry | null>
/** An operator's command as it can be pasted. */
type Named = (command: string) => string
const removal = 'questions remove'

/**
 * The entries of questions.json with the store's additions in their place or behind them, without
 * what was removed. Throws UsageError `questions_invalid` where one slug names two questions: the
 * file was changed after an operator gave the slug away.
 */
export function mergedRegistry(
  configured: readonly RegistryEntry[],
  changes: Changes,
  named?: Named,
): readonly RegistryEntry[] {
  const { entries, conflict } = shownRegistry(configured, changes, named)
  if (conflict) throw conflict
  return entries
}

/**
 * The same for those who only look (R24), and who are to find out what is wrong: a slug that names
 * two questions names neither. `conflict`: what `mergedRegistry` throws.
 */
export function shownRegistry(
  configured: readonly RegistryEntry[],
  changes: Changes,
  named: Named = (command) => `\`proposer operator ${command}\``,
): { readonly entries: readonly RegistryEntry[]; readonly conflict: UsageError | undefined } {
  const merged = new Map(configured.map((entry) => [entry.questionId, entry]))
  for (const [questionId, entry] of changes) {
    if (entry === null) merged.delete(questionId)
    else merged.set(questionId, entry)
  }
  const entries = [...merged.values()]
  const twice = slugTwice(entries)
  if (twice === undefined) return { entries, conflict: undefined }
  const [slug, one, other] = twice
  const conflict = new UsageError(
    'questions_invalid',
    `the slug ${slug} names question ${one} and question ${other}`,
    {
      hint: `one stands in the questions file and one was added by an operator: change the file, or take one away with ${named(`${removal} ${other}`)}`,
    },
  )
  const first = new Set<string>()
  const ambiguous = new Set<string>()
  for (const entry of entries)
    if (entry.slug !== undefined) (first.has(entry.slug) ? ambiguous : first).add(entry.slug)
  const isAmbiguous = (entry: RegistryEntry) =>
    entry.slug !== undefined && ambiguous.has(entry.slug)
  return {
    entries: entries.map((entry) => (isAmbiguous(entry) ? { ...entry, slug: undefined } : entry)),
    conflict,
  }
}

/**
 * The first slug that two entries have, and their questions; `undefined` where each is there once.
 */
export function slugTwice(
  entries: readonly RegistryEntry[],
): readonly [slug: string, one: Hex, other: Hex] | undefined {
  const owners = new Map<string, Hex>()
  for (const { slug, questionId } of entries) {
    if (slug === undefined) continue
    const owner = owners.get(slug)
    if (owner !== undefined) return [slug, owner, questionId]
    owners.set(slug, questionId)
  }
  return undefined
}

/** Whether two entries say the same. */
export function sameEntry(one: RegistryEntry, other: RegistryEntry): boolean {
  const { request: a } = one
  const { request: b } = other
  const sameRequest =
    a === b ||
    (a !== undefined &&
      b !== undefined &&
      a.oracle === b.oracle &&
      a.requester === b.requester &&
      a.identifier === b.identifier &&
      a.timestamp === b.timestamp &&
      a.ancillaryData === b.ancillaryData)
  return (
    one.questionId === other.questionId &&
    one.slug === other.slug &&
    one.requester === other.requester &&
    sameRequest
  )
}
