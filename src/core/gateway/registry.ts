/**
 * questions.json, the question registry (contract §7). Pure: reading the file is the caller's part.
 */
import * as z from 'zod'
import type { RegistryEntry } from '../chain/questions.js'
import type { Address, Hex } from '../ports.js'
import { UsageError } from '../protocol/errors.js'
import { Bytes, Bytes32, NonzeroAddress, Uint256 } from '../protocol/schema.js'
import { isSlug } from '../protocol/words.js'

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

/**
 * The entries of a registry from parsed JSON. `source` is how the file is called in messages.
 * Throws UsageError `questions_invalid`, which names the entry and its key, or the slug or question
 * that stands there twice.
 */
export function parseRegistry(raw: unknown, source: string): readonly RegistryEntry[] {
  const parsed = z.array(Entry).safeParse(raw)
  if (!parsed.success) {
    const [issue] = parsed.error.issues
    const where =
      issue === undefined || issue.path.length === 0 ? 'the file' : `entry ${issue.path.join('.')}`
    throw invalid(source, `${where} is not of the documented form`)
  }
  for (const key of ['question_id', 'slug'] as const) {
    const seen = new Set<string>()
    for (const entry of parsed.data) {
      const value = entry[key]
      if (value === undefined) continue
      if (seen.has(value)) throw invalid(source, `${key} ${value} stands there twice`)
      seen.add(value)
    }
  }
  return parsed.data.map(({ question_id, slug, requester, request }) => ({
    questionId: question_id as Hex,
    slug,
    requester: requester as Address | undefined,
    request: request && {
      oracle: request.oracle as Address,
      requester: request.requester as Address,
      identifier: request.identifier as Hex,
      timestamp: request.timestamp,
      ancillaryData: request.ancillary_data as Hex,
    },
  }))
}

function invalid(source: string, what: string): UsageError {
  return new UsageError('questions_invalid', `${source}: ${what}`, {
    hint: 'each entry is {"question_id": "0x…", "slug"?, "requester"?, "request"?}; correct the file',
  })
}
