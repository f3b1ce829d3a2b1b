/** questions.json, and what operators added to it and took away (contract §6, §7). */
import * as z from 'zod'
import type { RegistryEntry } from '#chain/questions'
import type { Hex } from '#ports'
import { lowercaseAddresses } from '#protocol/address'
import { UsageError } from '#protocol/errors'
import { Bytes, Bytes32, NonzeroAddress, Uint256 } from '#protocol/schema'
import { isSlug } from '#protocol/words'

const Entry = z.strictObject({
  question_id: Bytes32,
  slug: z.string().refine(isSlug).optional(),
  requester: z.optional(NonzeroAddress),
  request: z
    .strictObject({
      oracle: NonzeroAddress,
      requester: NonzeroAddress,
      identifier: Bytes32,
      timestamp: Uint256,
      ancillary_data: Bytes,
    })
    .optional(),
})

export function parseRegistry(raw: unknown, source: string): readonly RegistryEntry[] {
  const lower = lowercaseAddresses(raw, (path, address) => {
    throw invalid(source, `entry ${path}: ${address} has a wrong checksum (EIP-55)`)
  })
  const parsed = z.array(Entry).safeParse(lower)
  if (!parsed.success) {
    const path = parsed.error.issues[0]?.path.join('.') ?? ''
    const where = path === '' ? 'the file' : `entry ${path}`
    throw invalid(source, `${where} does not have the documented form`)
  }
  for (const key of ['question_id', 'slug'] as const) {
    const seen = new Set<string>()
    for (const { [key]: value } of parsed.data) {
      if (value === undefined) continue
      if (seen.has(value)) throw invalid(source, `${key} ${value} occurs twice`)
      seen.add(value)
    }
  }
  return parsed.data.map(({ question_id: questionId, slug, requester, request }) => {
    if (request === undefined) return { questionId, slug, requester, request }
    const { ancillary_data: ancillaryData, ...rest } = request
    return { questionId, slug, requester, request: { ...rest, ancillaryData } }
  })
}

const invalid = (source: string, what: string) =>
  new UsageError(
    'questions_invalid',
    `${source}: ${what}`,
    'each entry is {"question_id": "0x…", "slug"?, "requester"?, "request"?}; correct the file',
  )

type Changes = ReadonlyMap<Hex, RegistryEntry | null>
type CommandText = (command: string) => string

export function mergedRegistry(
  configured: readonly RegistryEntry[],
  changes: Changes,
  commandText?: CommandText,
) {
  const { entries, conflict } = shownRegistry(configured, changes, commandText)
  if (conflict) throw conflict
  return entries
}

/** For those who only look (R24): a slug that names two questions names neither. */
export function shownRegistry(
  configured: readonly RegistryEntry[],
  changes: Changes,
  commandText: CommandText = (command) => `\`proposer operator ${command}\``,
) {
  const merged = new Map(configured.map((entry) => [entry.questionId, entry]))
  for (const [questionId, entry] of changes) {
    if (entry === null) merged.delete(questionId)
    else merged.set(questionId, entry)
  }
  const entries = [...merged.values()]
  const twice = slugTwice(entries)
  if (twice === undefined) return { entries, conflict: undefined }
  const [slug, one, other] = twice
  const detail = `the slug ${slug} refers to both question ${one} and question ${other}`
  const conflict = new UsageError(
    'questions_invalid',
    detail,
    `one is in the questions file and the other was added by an operator: change the file, or remove one with ${commandText(`questions remove ${other}`)}`,
  )
  const count = new Map<string | undefined, number>()
  for (const entry of entries) count.set(entry.slug, (count.get(entry.slug) ?? 0) + 1)
  const unambiguous = entries.map((entry) =>
    (count.get(entry.slug) ?? 0) > 1 ? { ...entry, slug: undefined } : entry,
  )
  return { entries: unambiguous, conflict }
}

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

export function sameEntry(one: RegistryEntry, other: RegistryEntry) {
  const textOf = ({ questionId, slug, requester, request }: RegistryEntry) => {
    const { oracle, requester: asking, identifier, timestamp, ancillaryData } = request ?? {}
    const asked = [oracle, asking, identifier, timestamp, ancillaryData]
    return JSON.stringify([questionId, slug, requester, ...asked])
  }
  return textOf(one) === textOf(other)
}
