/**
 * The client's side of every route (spec §4): builds each path itself, follows nothing that a
 * server sends (R21).
 */
import type { Clock, Fetch } from '../../ports.js'
import { UsageError } from '../../protocol/errors.js'
import type { SigningDataRequest } from '../../protocol/schema.js'
import { concealing } from '../../protocol/url-secrets.js'
import { isAddress, isCandidateId, isIdentifier, limits } from '../../protocol/words.js'
import { type Answer, classifyFailure, classifyResponse, type Expected } from './answer.js'
import {
  type Acknowledged,
  type ContextTold,
  type Json,
  readAcknowledgement,
  readBatchStatuses,
  readBatchSubmission,
  readContexts,
  readEligibility,
  readSingleSigningData,
  readStatus,
  type StatusItemTold,
  type StatusTold,
  type SubmitTold,
} from './reading.js'

export interface CallOptions {
  /** Aborts the call: before a byte left that is `deferred`, later `uncertain`. */
  readonly signal?: AbortSignal | undefined
}

/** Of a batch call, in the order of the answer. */
export interface Results<Item> {
  readonly results: readonly Item[]
}

/**
 * Never rejects for what the network or the gateway does: every outcome is an Answer. Malformed
 * arguments: UsageError.
 */
export interface GatewayClient {
  /** Recorded with every attempt: the base URL's origin, or `local:<store id>`. */
  readonly origin: string
  eligibility(
    address: string,
    options?: CallOptions,
  ): Promise<Answer<Json & { readonly eligible: boolean }>>
  signingData(
    identifier: string,
    body: SigningDataRequest,
    options?: CallOptions,
  ): Promise<Answer<Json>>
  /** Sends exactly these bytes (R7). */
  submit(identifier: string, body: string, options?: CallOptions): Promise<Answer<Acknowledged>>
  status(
    identifier: string,
    candidateId: string,
    options?: CallOptions,
  ): Promise<Answer<StatusTold>>
  /** Batch route; 1-100 identifiers. */
  contexts(
    identifiers: readonly string[],
    options?: CallOptions,
  ): Promise<Answer<Results<ContextTold>>>
  /** Sends exactly these bytes. */
  submitBatch(body: string, options?: CallOptions): Promise<Answer<Results<SubmitTold>>>
  statuses(
    candidateIds: readonly string[],
    options?: CallOptions,
  ): Promise<Answer<Results<StatusItemTold>>>
}

/**
 * Caps on answers (robustness §6); the times of an attempt are kept by the `Fetch` (`io/http.ts`).
 */
const kib = 1024
const expected = {
  signingData: { read: readSingleSigningData, capBytes: 1024 * kib, admits: false },
  submit: { read: readAcknowledgement, capBytes: 64 * kib, admits: true },
  status: { read: readStatus, capBytes: 64 * kib, admits: false },
  contexts: { read: readContexts, capBytes: 4096 * kib, admits: false },
  submitBatch: { read: readBatchSubmission, capBytes: 4096 * kib, admits: false },
  statuses: { read: readBatchStatuses, capBytes: 4096 * kib, admits: false },
} as const

/**
 * `baseUrl`: https, or http for loopback names only; no userinfo, query or fragment (robustness
 * §6), else UsageError `invalid_base_url`. For an in-process gateway give `origin` (`local:<store
 * id>`) and any loopback base URL.
 */
export function createGatewayClient(parts: {
  fetch: Fetch
  baseUrl: string
  clock: Clock
  origin?: string
}): GatewayClient {
  const { fetch, clock } = parts
  const base = parseBaseUrl(parts.baseUrl)
  // What stands before a gateway may repeat the path it was asked at, which may be a key (R5).
  const conceal = concealing([base.href])

  async function call<Value>(
    path: string,
    body: string | undefined,
    wanted: Expected<Value>,
    options: CallOptions,
  ): Promise<Answer<Value>> {
    try {
      const response = await fetch(base.href + path, {
        method: body === undefined ? 'GET' : 'POST',
        redirect: 'manual',
        headers: {
          accept: 'application/json',
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        },
        ...(body === undefined ? {} : { body }),
        ...(options.signal === undefined ? {} : { signal: options.signal }),
      })
      return await classifyResponse(response, wanted, clock, conceal)
    } catch (error) {
      return classifyFailure(error, options.signal)
    }
  }

  return {
    origin: parts.origin ?? base.origin,
    eligibility: async (address, options = {}) => {
      const wanted = { read: readEligibility(address), capBytes: 64 * kib, admits: false }
      return call(
        `/v1/proposals/eligibility/${checked(address, isAddress, 'address')}`,
        undefined,
        wanted,
        options,
      )
    },
    signingData: async (identifier, body, options = {}) =>
      call(
        `/v1/proposals/${pathIdentifier(identifier)}/signing-data`,
        JSON.stringify(body),
        expected.signingData,
        options,
      ),
    submit: async (identifier, body, options = {}) =>
      call(`/v1/proposals/${pathIdentifier(identifier)}`, body, expected.submit, options),
    status: async (identifier, candidateId, options = {}) =>
      call(
        `/v1/proposals/${pathIdentifier(identifier)}/status/${checked(candidateId, isCandidateId, 'candidate id')}`,
        undefined,
        expected.status,
        options,
      ),
    contexts: async (identifiers, options = {}) => {
      const list = boundedBatch(identifiers.map(pathIdentifier))
      return call(
        '/propose/batch/signing-data',
        JSON.stringify({ identifiers: list }),
        expected.contexts,
        options,
      )
    },
    submitBatch: async (body, options = {}) =>
      call('/propose/batch', body, expected.submitBatch, options),
    statuses: async (candidateIds, options = {}) => {
      const list = boundedBatch(
        candidateIds.map((id) => checked(id, isCandidateId, 'candidate id')),
      )
      return call(
        '/propose/batch/status',
        JSON.stringify({ candidate_ids: list }),
        expected.statuses,
        options,
      )
    },
  }
}

/**
 * The URL without its closing slash, and its origin. Throws UsageError `invalid_base_url`; the URL
 * itself is not shown (R5).
 */
export function parseBaseUrl(text: string): { readonly href: string; readonly origin: string } {
  const refuse = (why: string) =>
    new UsageError('invalid_base_url', `the gateway URL ${why}`, {
      hint: 'give it as https://host[:port][/path]; http:// is for localhost, 127.0.0.0/8 and [::1]',
    })
  let url: URL
  try {
    url = new URL(text)
  } catch {
    throw refuse('is not a URL')
  }
  if (url.protocol !== 'https:' && url.protocol !== 'http:')
    throw refuse('must begin with https://')
  if (url.username !== '' || url.password !== '')
    throw refuse('must not hold a user name or password')
  if (url.search !== '' || url.hash !== '' || text.includes('?') || text.includes('#'))
    throw refuse('must not hold a query or fragment')
  if (url.protocol === 'http:' && !isLoopback(url.hostname))
    throw refuse('must be https: http is for loopback addresses only')
  return { href: url.href.replace(/\/+$/, ''), origin: url.origin }
}

function isLoopback(hostname: string): boolean {
  return (
    hostname === 'localhost' ||
    hostname === '[::1]' ||
    /^127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(hostname)
  )
}

/**
 * Checked before it becomes part of a path (robustness §2, Identifiers). Throws UsageError
 * `invalid_identifier`.
 */
function pathIdentifier(identifier: string): string {
  if (isIdentifier(identifier)) return identifier
  throw new UsageError(
    'invalid_identifier',
    'the identifier is neither a question id (0x and 64 lowercase hex digits) nor a slug (a-z, 0-9, -)',
    {
      hint: 'give the question id, as `proposer context` prints it',
    },
  )
}

function checked(text: string, isOne: (text: string) => boolean, what: string): string {
  if (isOne(text)) return text
  throw new UsageError('invalid_identifier', `the ${what} is malformed`, {
    hint: `give a canonical lowercase ${what}`,
  })
}

function boundedBatch(list: readonly string[]): readonly string[] {
  if (list.length >= 1 && list.length <= limits.batchItems) return list
  throw new UsageError(
    'invalid_batch',
    `a batch call takes 1 to ${limits.batchItems} items, not ${list.length}`,
    {
      hint: 'split the list',
    },
  )
}
