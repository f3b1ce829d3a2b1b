/** Neither keys nor values of the caller come back (contract §2, robustness §4). */
import type * as z from 'zod/mini'
import { type WireCode, wireFailures } from './codes.js'
import { objectOf } from './json.js'
import { type Refusal, refuse } from './refusal.js'
import { limits, version } from './words.js'

type Issue = z.core.$ZodIssue

/** A batch of 100 broken items has thousands of the same. */
const listedFaults = 50

const decimal = 'as a decimal string without leading zeros'
const uint256 = `an unsigned 256-bit integer ${decimal}`
const expectations: Readonly<Record<string, string>> = {
  version: `the version object ${JSON.stringify(version)}`,
  proposer: 'a nonzero lowercase 20-byte address, 0x and 40 hex digits',
  outcome: 'one of "p1", "p2" and "p3"',
  max_payment: 'the string "0"',
  permit: 'an object with amount, nonce and deadline',
  amount: uint256,
  nonce: uint256,
  deadline: `Unix seconds ${decimal}`,
  proposed_price: `a price ${decimal}`,
  signature: `lowercase even-length hex of 1 to ${limits.signatureBytes} bytes, with 0x`,
  identifier: 'a question id (0x and 64 lowercase hex digits) or a slug (a-z, 0-9 and hyphen)',
  identifiers: `a list of 1 to ${limits.batchItems} question ids or slugs`,
  proposals: `a list of 1 to ${limits.batchItems} proposals`,
  candidate_ids: `a list of 1 to ${limits.batchItems} candidate ids (hyphenated lowercase UUIDs)`,
  client_ref: `text of at most ${limits.clientRefBytes} bytes without control characters`,
}
const entryExpectations: Readonly<Record<string, string | undefined>> = {
  identifiers: expectations.identifier,
  proposals: 'a proposal object',
  candidate_ids: 'a candidate id (hyphenated lowercase UUID)',
}

/** By its path in a v1 body; elsewhere the fault is of structure. */
const valueCodes: Readonly<Record<string, WireCode>> = {
  max_payment: 'invalid_amount',
  'permit.amount': 'invalid_amount',
  'permit.nonce': 'invalid_amount',
  'permit.deadline': 'invalid_amount',
  signature: 'invalid_signature_format',
  outcome: 'outcome_not_allowed',
}

/** Another version wins, then any fault of structure, then the first malformed value (§2.1). */
export function singleFault(issues: readonly Issue[], input: unknown): Refusal {
  if (isOtherVersion(input))
    return refuse('unsupported_version', wireFailures.unsupported_version.example)
  const codes = issues.map((issue) =>
    issue.code !== 'unrecognized_keys' && typeof valueAt(input, issue.path) === 'string'
      ? valueCodes[pathOf(issue)]
      : undefined,
  )
  const [[issue], [code]] = [issues, codes]
  if (code === undefined || issue === undefined || codes.includes(undefined))
    return schemaViolation(issues, input)
  return refuse(code, mustBe(issue))
}

/** Every fault of shape refuses the whole call (§4.2 rule 2). */
export function schemaViolation(issues: readonly Issue[], input: unknown): Refusal {
  const errors = issues
    .slice(0, listedFaults)
    .map((issue) => ({ path: pathOf(issue), code: codeOf(issue, input) }))
  const [issue] = issues
  const more = issues.length > 1 ? ` (and ${issues.length - 1} more, see errors)` : ''
  const sentence = issue ? sentenceOf(issue, input) : 'the body has the wrong shape'
  return refuse('schema_violation', `${sentence}${more}`, { errors })
}

/** Taken from no caller (§4.1 rule 3). The JSON reader bounds the depth. */
export function hasAncillaryKey(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false
  if (Array.isArray(value)) return value.some(hasAncillaryKey)
  return Object.entries(value).some(
    ([key, entry]) => key.startsWith('ancillary') || hasAncillaryKey(entry),
  )
}

function isOtherVersion(input: unknown) {
  const values = Object.entries(objectOf(valueAt(input, ['version'])) ?? {})
  const ours: Record<string, string> = version
  return (
    values.every(([, value]) => typeof value === 'string') &&
    values.some(([key, value]) => Object.hasOwn(ours, key) && ours[key] !== value)
  )
}

/** zod's code, `missing`, or the schema's own word for its refinements. */
function codeOf(issue: Issue, input: unknown) {
  if (valueAt(input, issue.path) === undefined && issue.path.length > 0) return 'missing'
  if (issue.code !== 'custom') return issue.code
  const own: unknown = issue.params?.code
  return typeof own === 'string' ? own : 'custom'
}

function sentenceOf(issue: Issue, input: unknown) {
  const path = pathOf(issue)
  const value = valueAt(input, issue.path)
  if (issue.code === 'unrecognized_keys')
    return `${path || 'the body'} has fields that are not part of this request; remove them`
  if (path === '') return 'the body must be a JSON object; send the documented fields'
  if (value === undefined) return `${path} is missing; add it as ${expectationOf(issue)}`
  if (Array.isArray(value) && issue.code === 'too_big')
    return `${path} has ${value.length} entries; at most ${limits.batchItems} are allowed: split the call`
  return mustBe(issue)
}

const mustBe = (issue: Issue) =>
  `${pathOf(issue)} must be ${expectationOf(issue)}; correct it and send again`

function expectationOf({ path }: Issue) {
  const names = path.filter((part) => typeof part === 'string')
  const name = names.at(-1) ?? ''
  if (typeof path.at(-1) === 'number') return entryExpectations[name] ?? ''
  if (name === 'deadline' && names[0] === 'proposals') return 'Unix seconds as a JSON integer'
  const ofVersion = names.includes('version')
    ? `the value in ${JSON.stringify(version)}`
    : undefined
  return expectations[name] ?? ofVersion ?? 'in the documented form'
}

const pathOf = ({ path }: Issue) => path.join('.')

const valueAt = (input: unknown, path: readonly PropertyKey[]) =>
  path.reduce<unknown>(
    (value, part) =>
      typeof value === 'object' && value !== null
        ? (value as Record<PropertyKey, unknown>)[part]
        : undefined,
    input,
  )
