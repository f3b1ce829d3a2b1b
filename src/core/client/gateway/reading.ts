/**
 * What a decision needs of an answer (contract §9, robustness §6). Every other field may have any
 * form or be absent: it is shown as it came.
 */
import type { FieldFault } from '#protocol/errors'
import { type Json, objectOf } from '#protocol/json'
import { isCandidateId } from '#protocol/words'

/** `undefined`: what is needed is missing. */
export type Reader<Value> = (json: unknown) => Value | undefined

const stringIn = (value: unknown) => (typeof value === 'string' ? value : undefined)

const listOf = (value: unknown): readonly unknown[] | undefined =>
  Array.isArray(value) ? value : undefined

const maxDetailLength = 1_000
const keptFaults = 50
const maxFaultLength = 100

/** A gateway may echo a signature (R5). */
function plainDetail(detail: string) {
  const plain = detail.replace(/(0x)?[0-9a-fA-F]{100,}/g, '[long hex]')
  return plain.length <= maxDetailLength ? plain : `${plain.slice(0, maxDetailLength)}…`
}

export const plainCode = (code: string) => (/^[a-z0-9_]{1,64}$/.test(code) ? code : 'gateway_error')

const plainFault = (text: string) => plainDetail(text).slice(0, maxFaultLength)

const textOf = (value: unknown) =>
  value == null ? '' : plainDetail(typeof value === 'string' ? value : JSON.stringify(value))

function asShown(value: unknown): unknown {
  if (typeof value === 'string') return plainDetail(value)
  if (Array.isArray(value)) return value.map(asShown)
  const json = objectOf(value)
  return json === undefined ? value : shownObject(json)
}

const shownObject = (json: Json): Json =>
  Object.fromEntries(
    Object.entries(json).map(([name, inner]) => [plainFault(name), asShown(inner)]),
  )

type Texts<Name extends string> = { readonly [K in Name]?: string | null }

function texts<Name extends string>(json: Json, ...names: readonly Name[]) {
  const given = names.filter((name) => json[name] !== undefined)
  const told = given.map((name) => [name, json[name] === null ? null : textOf(json[name])])
  return Object.fromEntries(told) as Texts<Name>
}

function errorOf(json: unknown) {
  const { code, detail } = objectOf(json) ?? {}
  return typeof code === 'string' && typeof detail === 'string'
    ? { code: plainCode(code), detail: plainDetail(detail) }
    : undefined
}

export interface RefusalRead {
  readonly code: string
  readonly detail: string
  readonly errors?: readonly FieldFault[] | undefined
}

export const readRefusal: Reader<RefusalRead> = (json) => {
  const { error: given, errors: list } = objectOf(json) ?? {}
  const error = errorOf(given)
  const errors = listOf(list)?.flatMap((fault): FieldFault[] => {
    const { path, code } = objectOf(fault) ?? {}
    return typeof path === 'string' && typeof code === 'string'
      ? [{ path: plainFault(path), code: plainFault(code) }]
      : []
  })
  return error && { ...error, errors: errors?.slice(0, keptFaults) }
}

/** Of another wallet than `address` nothing is learned. */
export const readEligibility =
  (address: string): Reader<Json & { readonly eligible: boolean }> =>
  (json) => {
    const answer = objectOf(json) ?? {}
    const { eligible, address: given } = answer
    const isOther = typeof given === 'string' && given.toLowerCase() !== address
    return typeof eligible !== 'boolean' || isOther
      ? undefined
      : { ...shownObject(answer), eligible }
  }

export interface Acknowledged {
  readonly candidate_id: string
  /** '' where none came, as `received_at`. */
  readonly status: string
  readonly received_at: string
  /** For the journal alone: it may hold anything. */
  readonly answer: Json
}

export const readAcknowledgement: Reader<Acknowledged> = (json) => {
  const answer = objectOf(json) ?? {}
  const { candidate_id: id, status, received_at } = answer
  if (typeof id !== 'string' || !isCandidateId(id)) return undefined
  return { candidate_id: id, status: textOf(status), received_at: textOf(received_at), answer }
}

export interface Results<Item> {
  readonly results: readonly Item[]
}

const results =
  <Item>(read: (item: Json) => Item): Reader<Results<Item>> =>
  (json) => {
    const list = listOf(objectOf(json)?.results)
    return list && { results: list.map((item) => read(objectOf(item) ?? {})) }
  }

const itemOf = ({ status_code, error }: Json) => ({
  status_code: Number.isInteger(status_code) ? Number(status_code) : undefined,
  error: errorOf(error),
})

const submitItem = (item: Json) => ({
  ...itemOf(item),
  // '' says as little as none.
  client_ref: stringIn(item.client_ref) || undefined,
  candidate: readAcknowledgement(item.candidate),
})
export type SubmitRead = ReturnType<typeof submitItem>
export const readBatchSubmission = results(submitItem)

interface FailureRead extends Json, Texts<'stage' | 'next_action'> {
  readonly code: string
  readonly detail: string
  readonly retryable?: boolean | undefined
}

export type PolledStatus = Json & NonNullable<ReturnType<typeof readStatus>>

/** `status` in the gateway's own words, else `unknown`. */
export function readStatus(json: unknown) {
  const given = objectOf(json) ?? {}
  const { candidate_id: id } = given
  if (typeof id !== 'string' || !isCandidateId(id)) return undefined
  const [submission, failure] = [objectOf(given.submission), objectOf(given.failure)]
  const isBare = typeof given.status !== 'string' && !submission && !failure
  if (isBare || contradictsItself(given.status, submission, failure)) return undefined
  return {
    ...shownObject(given),
    ...texts(given, 'question_id', 'proposer', 'outcome', 'price', 'received_at'),
    candidate_id: id,
    status: textOf(given.status) || 'unknown',
    submission: submission ? submissionOf(submission) : null,
    failure: failure ? failureOf(failure) : null,
  }
}

/** By it nobody may sign or close anything (R8). */
function contradictsItself(word: unknown, submission: Json = {}, failure: Json = {}) {
  const isIndexed = submission.status === 'indexed'
  if (word === 'failed') return isIndexed
  if (word !== 'executed' || isIndexed) return false
  return typeof failure.code === 'string' || /^(reverted|dropped)$/.test(textOf(submission.status))
}

function submissionOf(given: Json) {
  const { status, proposal_event_index: index } = given
  const isIndex = /^\d{1,15}$/.test(textOf(index))
  return {
    ...shownObject(given),
    ...texts(given, 'transaction_hash'),
    status: textOf(status),
    ...(index !== undefined && { proposal_event_index: isIndex ? Number(index) : null }),
  }
}

function failureOf(given: Json): FailureRead {
  const { retryable, ...rest } = shownObject(given)
  return {
    ...rest,
    ...texts(given, 'stage', 'next_action'),
    code: textOf(given.code) || 'failed',
    detail: textOf(given.detail),
    ...(typeof retryable === 'boolean' && { retryable }),
  }
}

const statusItem = (item: Json) => {
  const { candidate_id } = item
  const candidate = objectOf(item.candidate)
  const status = readStatus(candidate && { candidate_id, ...candidate })
  return { ...itemOf(item), candidate_id: stringIn(candidate_id), candidate: status }
}
export type StatusItemRead = ReturnType<typeof statusItem>
export const readBatchStatuses = results(statusItem)

const contextItem = (item: Json) => ({
  ...itemOf(item),
  identifier: stringIn(item.identifier),
  signing_data: objectOf(item.signing_data),
})
export type ContextRead = ReturnType<typeof contextItem>
export const readContexts = results(contextItem)

export const readSingleSigningData: Reader<Json> = (json) =>
  objectOf(objectOf(json)?.typed_data) && objectOf(json)

/** Characters; an honest answer has fewer. */
const keptAnswerLength = 16_384

export const keptAnswer = (answer: Json): { readonly answer?: Json } =>
  JSON.stringify(answer).length <= keptAnswerLength ? { answer } : {}
