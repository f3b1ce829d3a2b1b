/**
 * What a decision needs of each answer of a gateway; nothing else is required (contract §9,
 * robustness §6). The spec shows less than our own gateway sends, so every other field may be
 * absent, renamed or of another form. It is kept and shown as it came.
 *
 * | Answer | Needed | Decides |
 * | - | - | - |
 * | acknowledgement | `candidate_id`, a UUID | accepted, with its id |
 * | batch submission | `results`; of each `status_code`, and `candidate.candidate_id` or `error` | the same, item by item |
 * | status | `candidate_id`, and a `status`, `submission` or `failure` | stage and end (`endOf`) |
 * | batch status | `results`; of each `candidate_id`, `status_code`, `candidate` or `error` | the same, item by item |
 * | signing data | every fact that is signed, or that trust or the amount depends on: signing-data.ts | what we build and sign (R9) |
 * | batch signing data | `results`; of each `status_code`, and `signing_data` or `error` | the same, item by item |
 * | eligibility | `eligible` | exit 0 or 4 |
 * | refusal | `error.code` and `error.detail` | definite, by its HTTP status |
 */
import type { FieldFault } from '#protocol/errors'
import { type Json, objectOf } from '#protocol/json'
import { isCandidateId } from '#protocol/words'

/** `undefined`: the answer lacks what is needed. */
export type Reader<Value> = (json: unknown) => Value | undefined

const stringIn = (value: unknown) => (typeof value === 'string' ? value : undefined)

const listOf = (value: unknown): readonly unknown[] | undefined =>
  Array.isArray(value) ? value : undefined

const maxDetailLength = 1_000
const keptFaults = 50
const maxFaultLength = 100

/** A gateway that echoes the request must not put a signature on the terminal (R5). */
function plainDetail(detail: string) {
  const plain = detail.replace(/(0x)?[0-9a-fA-F]{100,}/g, '[long hex]')
  return plain.length <= maxDetailLength ? plain : `${plain.slice(0, maxDetailLength)}…`
}

export const plainCode = (code: string) => (/^[a-z0-9_]{1,64}$/.test(code) ? code : 'gateway_error')

const plainFault = (text: string) => plainDetail(text).slice(0, maxFaultLength)

function textOf(value: unknown) {
  if (value === undefined || value === null) return ''
  return plainDetail(typeof value === 'string' ? value : JSON.stringify(value))
}

function asShown(value: unknown): unknown {
  if (typeof value === 'string') return plainDetail(value)
  if (Array.isArray(value)) return value.map(asShown)
  return objectOf(value) === undefined ? value : shownObject(value as Json)
}

const shownObject = (json: Json): Json =>
  Object.fromEntries(
    Object.entries(json).map(([name, inner]) => [plainFault(name), asShown(inner)]),
  )

function texts<Name extends string>(
  json: Json,
  ...names: readonly Name[]
): { readonly [K in Name]?: string | null } {
  const given = names.filter((name) => json[name] !== undefined)
  return Object.fromEntries(
    given.map((name) => [name, json[name] === null ? null : textOf(json[name])]),
  ) as { [K in Name]?: string | null }
}

export interface ToldError {
  readonly code: string
  readonly detail: string
}

function errorOf(json: unknown) {
  const { code, detail } = objectOf(json) ?? {}
  return typeof code === 'string' && typeof detail === 'string'
    ? { code: plainCode(code), detail: plainDetail(detail) }
    : undefined
}

/** Faults of another form than ours say nothing of use. */
export interface RefusalRead extends ToldError {
  readonly errors?: readonly FieldFault[] | undefined
}

export const readRefusal: Reader<RefusalRead> = (json) => {
  const body = objectOf(json)
  const error = errorOf(body?.error)
  const errors = listOf(body?.errors)?.flatMap((fault): FieldFault[] => {
    const { path, code } = objectOf(fault) ?? {}
    return typeof path === 'string' && typeof code === 'string'
      ? [{ path: plainFault(path), code: plainFault(code) }]
      : []
  })
  return error && { ...error, errors: errors?.slice(0, keptFaults) }
}

/**
 * `eligible`, and beside it the answer as it came (§2.3). `address`: the wallet that was asked
 * about; of another nothing is learned.
 */
export const readEligibility =
  (address: string): Reader<Json & { readonly eligible: boolean }> =>
  (json) => {
    const answer = objectOf(json)
    if (answer === undefined || typeof answer.eligible !== 'boolean') return undefined
    const given = answer.address
    if (typeof given === 'string' && given.toLowerCase() !== address) return undefined
    return { ...shownObject(answer), eligible: answer.eligible }
  }

export interface Acknowledged {
  readonly candidate_id: string
  /** '' where none was reported, as for `received_at`. */
  readonly status: string
  readonly received_at: string
  /** As it came, for the journal alone: it may hold anything. */
  readonly answer: Json
}

export const readAcknowledgement: Reader<Acknowledged> = (json) => {
  const answer = objectOf(json)
  const { candidate_id: id, status, received_at } = answer ?? {}
  if (answer === undefined || typeof id !== 'string' || !isCandidateId(id)) return undefined
  return { candidate_id: id, status: textOf(status), received_at: textOf(received_at), answer }
}

interface ItemRead {
  readonly status_code?: number | undefined
  readonly error?: ToldError | undefined
}
export interface SubmitRead extends ItemRead {
  readonly client_ref?: string | undefined
  readonly candidate?: Acknowledged | undefined
}

/** An item at a time: one of another form hides no other. */
const results =
  <Item>(read: (item: Json) => Item): Reader<{ readonly results: readonly Item[] }> =>
  (json) => {
    const list = listOf(objectOf(json)?.results)
    return list && { results: list.map((item) => read(objectOf(item) ?? {})) }
  }

function itemOf({ status_code: status, error: given }: Json): ItemRead {
  const status_code = typeof status === 'number' && Number.isInteger(status) ? status : undefined
  return { status_code, error: errorOf(given) }
}

export const readBatchSubmission = results((item): SubmitRead => {
  // A reference of '' says as little as none.
  const client_ref = stringIn(item.client_ref) || undefined
  return { ...itemOf(item), client_ref, candidate: readAcknowledgement(item.candidate) }
})

export interface SubmissionRead extends Json {
  readonly status: string
  readonly transaction_hash?: string | null
  readonly proposal_event_index?: number | null
}

/** The batch route tells `code` and `detail` alone. */
interface FailureRead extends Json {
  readonly code: string
  readonly detail: string
  readonly stage?: string | null
  readonly retryable?: boolean | undefined
  readonly next_action?: string | null
}

export interface PolledStatus extends Json {
  readonly candidate_id: string
  /** Of any gateway's vocabulary: what it means says `endOf`. `unknown` where none was reported. */
  readonly status: string
  readonly question_id?: string | null
  readonly proposer?: string | null
  readonly outcome?: string | null
  readonly price?: string | null
  readonly received_at?: string | null
  readonly submission: SubmissionRead | null
  readonly failure: FailureRead | null
}

export const readStatus: Reader<PolledStatus> = (json) => {
  const given = objectOf(json)
  const id = given?.candidate_id
  if (given === undefined || typeof id !== 'string' || !isCandidateId(id)) return undefined
  const [submission, failure] = [objectOf(given.submission), objectOf(given.failure)]
  if (typeof given.status !== 'string' && submission === undefined && failure === undefined)
    return undefined
  if (contradictsItself(given.status, submission, failure)) return undefined
  return {
    ...shownObject(given),
    ...texts(given, 'question_id', 'proposer', 'outcome', 'price', 'received_at'),
    candidate_id: id,
    status: textOf(given.status) || 'unknown',
    submission: submission === undefined ? null : submissionOf(submission),
    failure: failure === undefined ? null : failureOf(failure),
  }
}

/**
 * Nobody may sign, or close anything, by such a word (R8). What failed once may be indexed since.
 */
function contradictsItself(word: unknown, submission: Json = {}, failure: Json = {}) {
  const isIndexed = submission.status === 'indexed'
  if (word === 'failed') return isIndexed
  if (word !== 'executed' || isIndexed) return false
  return typeof failure.code === 'string' || /^(reverted|dropped)$/.test(textOf(submission.status))
}

function submissionOf(given: Json): SubmissionRead {
  const { status, proposal_event_index: index } = given
  const digits = typeof index === 'string' && /^\d{1,9}$/.test(index) ? Number(index) : index
  return {
    ...shownObject(given),
    ...texts(given, 'transaction_hash'),
    status: textOf(status),
    ...(index === undefined
      ? {}
      : {
          proposal_event_index:
            Number.isSafeInteger(digits) && Number(digits) >= 0 ? Number(digits) : null,
        }),
  }
}

function failureOf(given: Json): FailureRead {
  const { retryable, ...rest } = shownObject(given)
  return {
    ...rest,
    ...texts(given, 'stage', 'next_action'),
    code: textOf(given.code) || 'failed',
    detail: textOf(given.detail),
    ...(typeof retryable === 'boolean' ? { retryable } : {}),
  }
}

export interface StatusItemRead extends ItemRead {
  readonly candidate_id?: string | undefined
  readonly candidate?: PolledStatus | undefined
}

export const readBatchStatuses = results((item): StatusItemRead => {
  const { candidate_id } = item
  const candidate = objectOf(item.candidate)
  const status = readStatus(candidate && { candidate_id, ...candidate })
  return { ...itemOf(item), candidate_id: stringIn(candidate_id), candidate: status }
})

export interface ContextRead extends ItemRead {
  readonly identifier?: string | undefined
  readonly signing_data?: Json | undefined
}

export const readContexts = results((item): ContextRead => {
  const { identifier, signing_data } = item
  return {
    ...itemOf(item),
    identifier: stringIn(identifier),
    signing_data: objectOf(signing_data),
  }
})

export const readSingleSigningData: Reader<Json> = (json) =>
  objectOf(objectOf(json)?.typed_data) === undefined ? undefined : objectOf(json)

/**
 * An answer is kept whole in the journal unless it is longer than this, in characters of its JSON.
 */
const keptAnswerLength = 16_384

/**
 * What of an answer is journaled beside what was read: all of it, where it is of a size that an
 * honest one has.
 */
export const keptAnswer = (answer: Json): { readonly answer?: Json } =>
  JSON.stringify(answer).length <= keptAnswerLength ? { answer } : {}
