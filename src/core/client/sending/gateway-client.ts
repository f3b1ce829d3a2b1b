/** The client's side of every route (spec §4): builds each path itself, follows nothing that a server sends (R21). */
import * as z from 'zod'
import type { Clock, Fetch } from '../../ports.js'
import { UsageError } from '../../protocol/errors.js'
import {
  Acknowledgement,
  Address,
  BatchStatusAnswer,
  BatchSubmitAnswer,
  CandidateStatus,
  Eligibility,
  isIdentifier,
  limits,
  SigningData,
  type SigningDataRequest,
  Uuid,
  WireError,
} from '../../protocol/schema.js'
import { concealing } from '../../protocol/url-secrets.js'
import { type Answer, classifyFailure, classifyResponse, type Expected } from './answer.js'

export interface CallOptions {
  /** Aborts the call: before a byte left that is `deferred`, later `uncertain`. */
  readonly signal?: AbortSignal
}

/** Never rejects for what the network or the gateway does: every outcome is an Answer. Malformed arguments: UsageError. */
export interface GatewayClient {
  /** Recorded with every attempt: the base URL's origin, or `local:<store id>`. */
  readonly origin: string
  eligibility(address: string, options?: CallOptions): Promise<Answer<Eligibility>>
  signingData(identifier: string, body: SigningDataRequest, options?: CallOptions): Promise<Answer<SigningData>>
  /** Sends exactly these bytes (R7). */
  submit(identifier: string, body: string, options?: CallOptions): Promise<Answer<Acknowledgement>>
  status(identifier: string, candidateId: string, options?: CallOptions): Promise<Answer<CandidateStatus>>
  /** Batch route; 1-100 identifiers. */
  contexts(identifiers: readonly string[], options?: CallOptions): Promise<Answer<ContextAnswer>>
  /** Sends exactly these bytes. */
  submitBatch(body: string, options?: CallOptions): Promise<Answer<BatchSubmitAnswer>>
  statuses(candidateIds: readonly string[], options?: CallOptions): Promise<Answer<BatchStatusAnswer>>
}

/** Like BatchSigningDataAnswer, but one item of another shape must not hide the others, and is told by its field (R9). */
const ContextAnswer = z.object({
  results: z.array(
    z.object({ identifier: z.string(), status_code: z.int(), signing_data: z.unknown().optional(), error: WireError.optional() }),
  ),
})
export type ContextAnswer = z.infer<typeof ContextAnswer>

/** Caps on answers (robustness §6); the times of an attempt are kept by the `Fetch` (`io/http.ts`). */
const kib = 1024
const expected = {
  eligibility: { schema: Eligibility, capBytes: 64 * kib, admits: false },
  signingData: { schema: SigningData, capBytes: 1024 * kib, admits: false },
  submit: { schema: Acknowledgement, capBytes: 64 * kib, admits: true },
  status: { schema: CandidateStatus, capBytes: 64 * kib, admits: false },
  contexts: { schema: ContextAnswer, capBytes: 4096 * kib, admits: false },
  submitBatch: { schema: BatchSubmitAnswer, capBytes: 4096 * kib, admits: false },
  statuses: { schema: BatchStatusAnswer, capBytes: 4096 * kib, admits: false },
} as const

/**
 * `baseUrl`: https, or http for loopback names only; no userinfo, query or fragment (robustness §6), else UsageError `invalid_base_url`.
 * For an in-process gateway give `origin` (`local:<store id>`) and any loopback base URL.
 */
export function createGatewayClient(parts: { fetch: Fetch; baseUrl: string; clock: Clock; origin?: string }): GatewayClient {
  const { fetch, clock } = parts
  const base = parseBaseUrl(parts.baseUrl)
  // What stands before a gateway may repeat the path it was asked at, which may be a key (R5).
  const conceal = concealing([base.href])

  async function call<Schema extends z.ZodType>(
    path: string,
    body: string | undefined,
    wanted: Expected<Schema>,
    options: CallOptions,
  ): Promise<Answer<z.infer<Schema>>> {
    try {
      const response = await fetch(base.href + path, {
        method: body === undefined ? 'GET' : 'POST',
        redirect: 'manual',
        headers: { accept: 'application/json', ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
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
    eligibility: async (address, options = {}) =>
      call(`/v1/proposals/eligibility/${checked(address, Address, 'address')}`, undefined, expected.eligibility, options),
    signingData: async (identifier, body, options = {}) =>
      call(`/v1/proposals/${pathIdentifier(identifier)}/signing-data`, JSON.stringify(body), expected.signingData, options),
    submit: async (identifier, body, options = {}) => call(`/v1/proposals/${pathIdentifier(identifier)}`, body, expected.submit, options),
    status: async (identifier, candidateId, options = {}) =>
      call(
        `/v1/proposals/${pathIdentifier(identifier)}/status/${checked(candidateId, Uuid, 'candidate id')}`,
        undefined,
        expected.status,
        options,
      ),
    contexts: async (identifiers, options = {}) => {
      const list = boundedBatch(identifiers.map(pathIdentifier))
      return call('/propose/batch/signing-data', JSON.stringify({ identifiers: list }), expected.contexts, options)
    },
    submitBatch: async (body, options = {}) => call('/propose/batch', body, expected.submitBatch, options),
    statuses: async (candidateIds, options = {}) => {
      const list = boundedBatch(candidateIds.map((id) => checked(id, Uuid, 'candidate id')))
      return call('/propose/batch/status', JSON.stringify({ candidate_ids: list }), expected.statuses, options)
    },
  }
}

/** The URL without its closing slash, and its origin. Throws UsageError `invalid_base_url`; the URL itself is not shown (R5). */
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
  if (url.protocol !== 'https:' && url.protocol !== 'http:') throw refuse('must begin with https://')
  if (url.username !== '' || url.password !== '') throw refuse('must not hold a user name or password')
  if (url.search !== '' || url.hash !== '' || text.includes('?') || text.includes('#')) throw refuse('must not hold a query or fragment')
  if (url.protocol === 'http:' && !isLoopback(url.hostname)) throw refuse('must be https: http is for loopback addresses only')
  return { href: url.href.replace(/\/+$/, ''), origin: url.origin }
}

function isLoopback(hostname: string): boolean {
  return hostname === 'localhost' || hostname === '[::1]' || /^127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(hostname)
}

/** Checked before it becomes part of a path (robustness §2, Identifiers). Throws UsageError `invalid_identifier`. */
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

function checked(text: string, schema: z.ZodType<string>, what: string): string {
  if (schema.safeParse(text).success) return text
  throw new UsageError('invalid_identifier', `the ${what} is malformed`, { hint: `give a canonical lowercase ${what}` })
}

function boundedBatch(list: readonly string[]): readonly string[] {
  if (list.length >= 1 && list.length <= limits.batchItems) return list
  throw new UsageError('invalid_batch', `a batch call takes 1 to ${limits.batchItems} items, not ${list.length}`, {
    hint: 'split the list',
  })
}
