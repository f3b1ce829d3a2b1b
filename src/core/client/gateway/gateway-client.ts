/** Every route (spec §4); follows nothing that a server sends (R21). */
import type { Clock, Fetch, HttpCall } from '#ports'
import { jsonOf, readCapped } from '#protocol/capped'
import { UnavailableError, UsageError } from '#protocol/errors'
import type { Json } from '#protocol/json'
import { urlFault } from '#protocol/plain-http'
import {
  digestHeader,
  keepReceipt,
  type ReceiptChecks,
  readKeySet,
  receiptDirectory,
} from '#protocol/receipt'
import type { SigningDataRequest } from '#protocol/schema'
import { concealing } from '#protocol/url-secrets'
import { isAddress, isCandidateId, isIdentifier, limits } from '#protocol/words'
import { type Answer, answerError, classifyFailure, classifyResponse } from './answer.js'
import {
  type Acknowledged,
  type ContextRead,
  type PolledStatus,
  type Reader,
  type Results,
  readAcknowledgement,
  readBatchStatuses,
  readBatchSubmission,
  readContexts,
  readEligibility,
  readSingleSigningData,
  readStatus,
  type StatusItemRead,
  type SubmitRead,
} from './reading.js'

export interface CallOptions {
  /** Aborted before a byte left it is `deferred`, later `uncertain`. */
  readonly signal?: AbortSignal | undefined
}

type Call<Subject extends readonly unknown[], Value> = (
  ...args: [...subject: Subject, options?: CallOptions]
) => Promise<Answer<Value>>

/** What network and gateway do is an Answer; malformed arguments are a UsageError. */
export interface GatewayClient {
  /** Recorded with every attempt; in process `local:<store id>`. */
  readonly origin: string
  eligibility: Call<[address: string], Json & { readonly eligible: boolean }>
  signingData: Call<[identifier: string, body: SigningDataRequest], Json>
  /** Sends exactly these bytes (R7). */
  submit: Call<[identifier: string, body: string], Acknowledged>
  status: Call<[identifier: string, candidateId: string], PolledStatus>
  contexts: Call<[identifiers: readonly string[]], Results<ContextRead>>
  submitBatch: Call<[body: string], Results<SubmitRead>>
  statuses: Call<[candidateIds: readonly string[]], Results<StatusItemRead>>
}

/** Bytes of an answer (robustness §6). */
const [singleCap, contextCap, batchCap] = [64 * 1024, 1024 * 1024, 4096 * 1024]

interface Request<Value> {
  readonly path: string
  readonly body?: string
  readonly read: Reader<Value>
  readonly capBytes?: number
  readonly admits?: boolean
  /** Its answer may be a receipt (contract §9). */
  readonly isSubmission?: boolean
}

/** `fetch` keeps the times of an attempt. UsageError `invalid_base_url`. */
export function createGatewayClient(parts: {
  fetch: Fetch
  baseUrl: string
  clock: Clock
  origin?: string
  allowHttp?: readonly string[] | undefined
  receipts?: ReceiptChecks | undefined
}): GatewayClient {
  const { fetch, clock, receipts } = parts
  const base = parseBaseUrl(parts.baseUrl, parts.allowHttp)
  // A proxy may repeat the path, which may be a key (R5).
  const conceal = concealing([base.href])

  async function call<Value>(
    { path, body, isSubmission, capBytes = singleCap, ...expected }: Request<Value>,
    { signal }: CallOptions = {},
  ) {
    const checks = isSubmission ? receipts : undefined
    const digest = checks && digestHeader(checks.hash.sha256(body ?? ''))
    let text: string | undefined
    const onBody = (came: string) => {
      text = came
    }
    try {
      const response = await fetch(base.href + path, callOf(signal, body, digest))
      const reading = { ...expected, capBytes, onBody }
      const answer = await classifyResponse(response, reading, clock, conceal)
      const header = (name: string) => response.headers.get(name) ?? undefined
      const signature = header('signature')
      const isUnclear = answer.kind === 'deferred' || answer.kind === 'uncertain'
      if (!checks || text === undefined || (isUnclear && signature === undefined)) return answer
      const parts = {
        ...{ method: 'POST', status: response.status, body: text, signature },
        contentDigest: header('content-digest'),
        signatureInput: header('signature-input'),
        requestDigest: digest,
      }
      // The gateway may see a path below that of the base URL.
      const paths = [...new Set([path, base.href.slice(base.origin.length) + path])]
      const receipt = keepReceipt(checks, parts, paths, Math.floor(clock.nowMs() / 1_000))
      return { ...answer, receipt }
    } catch (error) {
      return classifyFailure(error, signal)
    }
  }

  return {
    origin: parts.origin ?? base.origin,
    eligibility: async (address, options) => {
      const path = `/v1/proposals/eligibility/${checked(address, isAddress, 'address')}`
      return call({ path, read: readEligibility(address) }, options)
    },
    signingData: async (identifier, terms, options) => {
      const path = `${questionPath(identifier)}/signing-data`
      const body = JSON.stringify(terms)
      return call({ path, body, read: readSingleSigningData, capBytes: contextCap }, options)
    },
    submit: async (identifier, body, options) => {
      const path = questionPath(identifier)
      const route = { path, read: readAcknowledgement, admits: true, isSubmission: true }
      return call({ ...route, body }, options)
    },
    status: async (identifier, candidateId, options) => {
      const path = `${questionPath(identifier)}/status/${pathCandidate(candidateId)}`
      return call({ path, read: readStatus }, options)
    },
    contexts: async (identifiers, options) => {
      const body = JSON.stringify({ identifiers: boundedBatch(identifiers.map(pathIdentifier)) })
      return call({ ...batch('/signing-data'), body, read: readContexts }, options)
    },
    submitBatch: async (body, options) =>
      call({ ...batch(''), body, read: readBatchSubmission, isSubmission: true }, options),
    statuses: async (candidateIds, options) => {
      const body = JSON.stringify({ candidate_ids: boundedBatch(candidateIds.map(pathCandidate)) })
      return call({ ...batch('/status'), body, read: readBatchStatuses }, options)
    },
  }
}

const batch = (part: string) => ({ path: `/propose/batch${part}`, capBytes: batchCap })

function callOf(signal: AbortSignal | undefined, body?: string, digest?: string): HttpCall {
  const accept = 'application/json'
  const call = { redirect: 'manual', signal: signal ?? null } as const
  if (body === undefined) return { ...call, method: 'GET', headers: { accept } }
  const signed = digest && { 'content-digest': digest }
  return { ...call, method: 'POST', headers: { accept, 'content-type': accept, ...signed }, body }
}

/** The URL is not shown (R5). */
export function parseBaseUrl(text: string, allowHttp?: readonly string[]) {
  const isBare = !/[?#]/.test(text)
  const fault = urlFault(text, allowHttp) ?? (isBare ? '' : 'must not hold a query or fragment')
  if (fault)
    throw new UsageError(
      'invalid_base_url',
      `the gateway URL ${fault}`,
      'give it as https://host[:port][/path], or http:// for localhost, 127.0.0.0/8, [::1] and the hosts of `proposer config set allow-http <host[:port],…>`',
    )
  const { href, origin } = new URL(text)
  return { href: href.replace(/\/+$/, ''), origin }
}

const pathIdentifier = (text: string) => checked(text, isIdentifier, 'question id or slug')
const pathCandidate = (text: string) => checked(text, isCandidateId, 'candidate id')
const questionPath = (identifier: string) => `/v1/proposals/${pathIdentifier(identifier)}`

function checked(text: string, isOne: (text: string) => boolean, what: string) {
  if (isOne(text)) return text
  const hint = `give a canonical lowercase ${what}`
  throw new UsageError('invalid_identifier', `the ${what} is invalid`, hint)
}

function boundedBatch(list: readonly string[]) {
  if (list.length >= 1 && list.length <= limits.batchItems) return list
  const detail = `a batch call accepts 1 to ${limits.batchItems} items, not ${list.length}`
  throw new UsageError('invalid_batch', detail, 'split the list')
}

/** Empty where it signs no receipts. */
export async function listedReceiptKeys(
  fetch: Fetch,
  baseUrl: string,
  { signal, allowHttp }: { signal?: AbortSignal; allowHttp?: readonly string[] | undefined },
) {
  const url = parseBaseUrl(baseUrl, allowHttp).href + receiptDirectory
  const read = async () => {
    const { status, body } = await fetch(url, { redirect: 'manual', signal: signal ?? null })
    const decoder = new TextDecoder('utf-8', { fatal: true })
    return { status, text: await readCapped(body, singleCap, decoder) }
  }
  const { status, text = '' } = await read().catch((error: unknown) => {
    throw answerError(classifyFailure(error, signal), 'read')
  })
  if (status === 404) return []
  const keys = status === 200 ? readKeySet(jsonOf(text)) : undefined
  if (keys !== undefined) return keys
  throw new UnavailableError(
    'gateway_body',
    `the gateway answered ${status} to ${receiptDirectory}, without a JWK set`,
    'ask its operator for the receipt key',
  )
}
