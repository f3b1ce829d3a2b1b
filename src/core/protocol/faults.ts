/**
 * From what a schema found to what goes on the wire (contract §2): one code, one sentence, and for
 * `schema_violation` the paths. Paths are made of our own field names and of indexes; neither keys
 * nor values of the caller come back (robustness §4).
 */
import type * as z from 'zod/mini'
import type { WireCode } from './errors.js'
import { limits, version } from './schema.js'

export interface ShapeFault {
  readonly code: Extract<
    WireCode,
    | 'schema_violation'
    | 'unsupported_version'
    | 'invalid_amount'
    | 'invalid_signature_format'
    | 'outcome_not_allowed'
  >
  readonly detail: string
  /** Only with `schema_violation`. */
  readonly errors?: readonly { readonly path: string; readonly code: string }[]
}

type Issue = z.core.$ZodIssue

/** More would only repeat the same mistake: a batch of 100 broken items has thousands of faults. */
const listedFaults = 50

/**
 * What a field must be, by its last name. The batch deadline is a number, told apart by the place
 * it has.
 */
const expectations: Record<string, string> = {
  version: `the version object ${JSON.stringify(version)}`,
  proposer: 'a nonzero lowercase 20-byte address, 0x and 40 hex digits',
  outcome: 'one of "p1", "p2" and "p3"',
  max_payment: 'the string "0"',
  permit: 'an object with amount, nonce and deadline',
  amount: 'an unsigned 256-bit integer as a decimal string without leading zeros',
  nonce: 'an unsigned 256-bit integer as a decimal string without leading zeros',
  deadline: 'Unix seconds as a decimal string without leading zeros',
  proposed_price: 'a price as a decimal string without leading zeros',
  signature: `lowercase even-length hex of 1 to ${limits.signatureBytes} bytes, with 0x`,
  identifier: 'a question id (0x and 64 lowercase hex digits) or a slug (a-z, 0-9 and hyphen)',
  identifiers: `a list of 1 to ${limits.batchItems} question ids or slugs`,
  proposals: `a list of 1 to ${limits.batchItems} proposals`,
  candidate_ids: `a list of 1 to ${limits.batchItems} candidate ids (hyphenated lowercase UUIDs)`,
  client_ref: `text of at most ${limits.clientRefBytes} bytes without control characters`,
}

/**
 * The fault of a v1 body (§2.1). A version object with other values wins over everything; any fault
 * of structure (a missing or extra field, another type, a malformed address) wins over malformed
 * values; of those the first in the order of the fields counts.
 */
export function singleFault(issues: readonly Issue[], input: unknown): ShapeFault {
  if (isOtherVersion(input)) {
    return {
      code: 'unsupported_version',
      detail: `version names another contract; this gateway speaks ${JSON.stringify(version)}: send exactly that, signed accordingly`,
    }
  }
  const codes = issues.map((issue) => valueCode(issue, input))
  const [first] = codes
  const issue = issues[0]
  if (first === undefined || issue === undefined || codes.includes(undefined))
    return schemaViolation(issues, input)
  return {
    code: first,
    detail: `${pathOf(issue)} must be ${expectationOf(issue)}; correct it and send again`,
  }
}

/**
 * The fault of a batch call: every fault of shape refuses the whole call (§4.2 rule 2, contract
 * §2).
 */
export function schemaViolation(issues: readonly Issue[], input: unknown): ShapeFault {
  const errors = issues
    .slice(0, listedFaults)
    .map((issue) => ({ path: pathOf(issue), code: codeOf(issue, input) }))
  const [issue] = issues
  const more = issues.length > 1 ? ` (and ${issues.length - 1} more, see errors)` : ''
  return {
    code: 'schema_violation',
    detail: `${issue ? sentence(issue, input) : 'the body has the wrong shape'}${more}`,
    errors,
  }
}

/**
 * Whether any object of an admission body has a key that begins with `ancillary`: the gateway reads
 * ancillary data from the chain and takes none from callers (§4.1 rule 3). Depth is bounded by the
 * JSON reader.
 */
export function hasAncillaryKey(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false
  if (Array.isArray(value)) return value.some(hasAncillaryKey)
  return Object.entries(value).some(
    ([key, entry]) => key.startsWith('ancillary') || hasAncillaryKey(entry),
  )
}

/**
 * An object of strings, one of them other than ours: a caller of another version, not a broken one.
 */
function isOtherVersion(input: unknown): boolean {
  const given = valueAt(input, ['version'])
  if (typeof given !== 'object' || given === null || Array.isArray(given)) return false
  const values: [string, unknown][] = Object.entries(given)
  if (values.some(([, value]) => typeof value !== 'string')) return false
  const ours: Record<string, string> = version
  return values.some(([key, value]) => Object.hasOwn(ours, key) && ours[key] !== value)
}

/** The code of a malformed value, or `undefined` where the fault is one of structure. */
function valueCode(
  issue: Issue,
  input: unknown,
): Exclude<ShapeFault['code'], 'schema_violation'> | undefined {
  if (issue.code === 'unrecognized_keys' || typeof valueAt(input, issue.path) !== 'string')
    return undefined
  switch (pathOf(issue)) {
    case 'max_payment':
    case 'permit.amount':
    case 'permit.nonce':
    case 'permit.deadline':
      return 'invalid_amount'
    case 'signature':
      return 'invalid_signature_format'
    case 'outcome':
      return 'outcome_not_allowed'
    default:
      return undefined
  }
}

/** zod's code, but `missing` for an absent field and the schema's own word for its refinements. */
function codeOf(issue: Issue, input: unknown): string {
  if (valueAt(input, issue.path) === undefined && issue.path.length > 0) return 'missing'
  if (issue.code !== 'custom') return issue.code
  const own: unknown = issue.params?.code
  return typeof own === 'string' ? own : 'custom'
}

function sentence(issue: Issue, input: unknown): string {
  const path = pathOf(issue)
  const value = valueAt(input, issue.path)
  if (issue.code === 'unrecognized_keys')
    return `${path || 'the body'} has fields that are not part of this request; remove them`
  if (path === '') return 'the body must be a JSON object; send the documented fields'
  if (value === undefined) return `${path} is missing; add it as ${expectationOf(issue)}`
  if (Array.isArray(value) && issue.code === 'too_big') {
    return `${path} has ${value.length} entries, at most ${limits.batchItems} are allowed; split the call`
  }
  return `${path} must be ${expectationOf(issue)}; correct it and send again`
}

function expectationOf(issue: Issue): string {
  const names = issue.path.filter((part) => typeof part === 'string')
  const name = names.at(-1) ?? ''
  // An entry of a list is named after the list.
  if (typeof issue.path.at(-1) === 'number') {
    if (name === 'identifiers') return expectations.identifier ?? ''
    return name === 'proposals' ? 'a proposal object' : 'a candidate id (hyphenated lowercase UUID)'
  }
  if (name === 'deadline' && names[0] === 'proposals') return 'Unix seconds as a JSON integer'
  return (
    expectations[name] ??
    (names.includes('version') ? `as in ${JSON.stringify(version)}` : 'of the documented form')
  )
}

/**
 * Dotted, like `proposals.3.permit.amount`. Requests have no free keys, so every part is a field of
 * ours or an index.
 */
function pathOf(issue: Issue): string {
  return issue.path.join('.')
}

function valueAt(input: unknown, path: readonly PropertyKey[]): unknown {
  let value = input
  for (const part of path) {
    if (typeof value !== 'object' || value === null) return undefined
    value = (value as Record<PropertyKey, unknown>)[part]
  }
  return value
}
