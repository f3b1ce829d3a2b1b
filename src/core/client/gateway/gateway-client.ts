/**
 * The client's side of every route (spec §4): builds each path itself, follows nothing that a
 * server sends (R21).
 */
import type { Clock, Fetch } from '../../ports.js'
import { UsageError } from '../../protocol/errors.js'
import { keepReceipt, type ReceiptChecks } from '../../protocol/kept-receipt.js'
import { mayBePlain } from '../../protocol/plain-http.js'
import { digestHeader } from '../../protocol/receipt.js'
import type { SigningDataRequest } from '../../protocol/schema.js'
import { concealing } from '../../protocol/url-secrets.js'
import { isAddress, isCandidateId, isIdentifier, limits } from '../../protocol/words.js'
import { type Answer, classifyFailure, classifyResponse } from './answer.js'
import {
  type Acknowledged,
  type ContextRead,
  type Json,
  type Reader,
  readAcknowledgement,
  readBatchStatuses,
  readBatchSubmission,
  readContexts,
  readEligibility,
  readSingleSigningData,
  readStatus,
  type StatusItemRead,
  type StatusRead,
  type SubmitRead,
} from './reading.js'

export interface CallOptions {
  /** Aborts the call: before a byte left that is `deferred`, later `uncertain`. */
  readonly signal?: AbortSignal | undefined
}

/** Of a batch call, in the order of the answer. */
export interface Results<Item> {
  readonly results: readonly Item[]
}

/** A call of one route: its subject, and for a route below a question also what it is about. */
type Call<Subject extends readonly unknown[], Value> = (
  ...args: [...subject: Subject, options?: CallOptions]
) => Promise<Answer<Value>>

/**
 * Never rejects for what the network or the gateway does: every outcome is an Answer. Malformed
 * arguments: UsageError.
 */
export interface GatewayClient {
  /** Recorded with every attempt: the base URL's origin, or `local:<store id>`. */
  readonly origin: string
  eligibility: Call<[address: string], Json & { readonly eligible: boolean }>
  signingData: Call<[identifier: string, body: SigningDataRequest], Json>
  /** Sends exactly these bytes (R7). */
  submit: Call<[identifier: string, body: string], Acknowledged>
  status: Call<[identifier: string, candidateId: string], StatusRead>
  /** Batch route; 1-100 identifiers. */
  contexts: Call<[identifiers: readonly string[]], Results<ContextRead>>
  /** Sends exactly these bytes. */
  submitBatch: Call<[body: string], Results<SubmitRead>>
  statuses: Call<[candidateIds: readonly string[]], Results<StatusItemRead>>
}

/** Caps on answers (robustness §6), in bytes. */
const [singleCap, contextCap, batchCap] = [64 * 1024, 1024 * 1024, 4096 * 1024]

/**
 * `baseUrl`: https, or http for loopback names and `allowHttp`; no userinfo, query or fragment (robustness
 * §6), else UsageError `invalid_base_url`. For an in-process gateway give `origin` (`local:<store
 * id>`) and any loopback base URL. The times of an attempt are kept by `fetch`.
 */
export function createGatewayClient(parts: {
  fetch: Fetch
  baseUrl: string
  clock: Clock
  origin?: string
  /** Hosts (`host` or `host:port`) for which http is taken too. */
  allowHttp?: readonly string[] | undefined
  /** Submissions carry the digest of their body, and receipts of their answers are checked. */
  receipts?: ReceiptChecks | undefined
}): GatewayClient {
  const { fetch, clock, receipts } = parts
  const base = parseBaseUrl(parts.baseUrl, parts.allowHttp)
  // What stands before a gateway may repeat the path it was asked at, which may be a key (R5).
  const conceal = concealing([base.href])

  async function call<Value>(
    path: string,
    body: string | undefined,
    read: Reader<Value>,
    capBytes: number,
    { signal }: CallOptions = {},
    admits = false,
    isSubmission = false,
  ): Promise<Answer<Value>> {
    const accept = 'application/json'
    const init = { redirect: 'manual', ...(signal === undefined ? {} : { signal }) } as const
    const checks = isSubmission ? receipts : undefined
    const digest = checks && body !== undefined ? digestHeader(checks.hash.sha256(body)) : undefined
    const sent =
      body === undefined
        ? { method: 'GET', headers: { accept } }
        : {
            method: 'POST',
            headers: {
              accept,
              'content-type': accept,
              ...(digest !== undefined && { 'content-digest': digest }),
            },
            body,
          }
    let text: string | undefined
    const onBody = (came: string) => {
      text = came
    }
    try {
      const response = await fetch(base.href + path, { ...init, ...sent })
      const expected = { read, capBytes, admits, onBody }
      const answer = await classifyResponse(response, expected, clock, conceal)
      const receipt =
        checks &&
        text !== undefined &&
        receiptOf(checks, response, { text, digest, path, isSettled: isSettled(answer) })
      return receipt ? { ...answer, receipt } : answer
    } catch (error) {
      return classifyFailure(error, signal)
    }
  }

  /** What a gateway does not sign (429, 503) is not missed. */
  function receiptOf(
    checks: ReceiptChecks,
    { status, headers }: Response,
    of: { text: string; digest: string | undefined; path: string; isSettled: boolean },
  ) {
    const names = {
      contentDigest: 'content-digest',
      signatureInput: 'signature-input',
      signature: 'signature',
    }
    const given: Partial<Record<keyof typeof names, string>> = Object.fromEntries(
      Object.entries(names).flatMap(([key, name]) => {
        const value = headers.get(name)
        return value === null ? [] : [[key, value]]
      }),
    )
    if (!of.isSettled && given.signature === undefined) return undefined
    const { text: body, digest } = of
    const prefix = new URL(base.href).pathname.replace(/\/+$/, '')
    return keepReceipt(
      checks,
      {
        ...{ method: 'POST', status, body, ...given },
        ...(digest !== undefined && { requestDigest: digest }),
      },
      prefix === '' ? [of.path] : [of.path, prefix + of.path],
      Math.floor(clock.nowMs() / 1_000),
    )
  }

  return {
    origin: parts.origin ?? base.origin,
    eligibility: async (address, options) => {
      const path = `/v1/proposals/eligibility/${checked(address, isAddress, 'address')}`
      return call(path, undefined, readEligibility(address), singleCap, options)
    },
    signingData: async (identifier, body, options) => {
      const path = `${questionPath(identifier)}/signing-data`
      return call(path, JSON.stringify(body), readSingleSigningData, contextCap, options)
    },
    submit: async (identifier, body, options) =>
      call(questionPath(identifier), body, readAcknowledgement, singleCap, options, true, true),
    status: async (identifier, candidateId, options) => {
      const id = checked(candidateId, isCandidateId, 'candidate id')
      const path = `${questionPath(identifier)}/status/${id}`
      return call(path, undefined, readStatus, singleCap, options)
    },
    contexts: async (identifiers, options) => {
      const body = JSON.stringify({ identifiers: boundedBatch(identifiers.map(pathIdentifier)) })
      return call('/propose/batch/signing-data', body, readContexts, batchCap, options)
    },
    submitBatch: async (body, options) =>
      call('/propose/batch', body, readBatchSubmission, batchCap, options, false, true),
    statuses: async (candidateIds, options) => {
      const ids = candidateIds.map((id) => checked(id, isCandidateId, 'candidate id'))
      const body = JSON.stringify({ candidate_ids: boundedBatch(ids) })
      return call('/propose/batch/status', body, readBatchStatuses, batchCap, options)
    },
  }
}

/** The gateway has decided: such an answer is one that it signs. */
const isSettled = ({ kind }: Answer<unknown>): boolean =>
  kind === 'accepted' || kind === 'refused' || kind === 'reconcile'

/**
 * The URL without its closing slash, and its origin. Throws UsageError `invalid_base_url`; the URL
 * itself is not shown (R5).
 */
export function parseBaseUrl(
  text: string,
  allowHttp?: readonly string[],
): { readonly href: string; readonly origin: string } {
  const refuse = (why: string) =>
    new UsageError('invalid_base_url', `the gateway URL ${why}`, {
      hint: 'give it as https://host[:port][/path]; http:// is for localhost, 127.0.0.0/8 and [::1], and for hosts that `proposer config set allow-http <host[:port],…>` names',
    })
  if (!URL.canParse(text)) throw refuse('is not a URL')
  const { protocol, username, password, hostname, port, href, origin } = new URL(text)
  if (protocol !== 'https:' && protocol !== 'http:') throw refuse('must begin with https://')
  if (username !== '' || password !== '') throw refuse('must not hold a user name or password')
  if (/[?#]/.test(text)) throw refuse('must not hold a query or fragment')
  if (protocol === 'http:' && !mayBePlain({ hostname, port }, allowHttp))
    throw refuse('must be https: http is for loopback addresses and hosts in allow-http')
  return { href: href.replace(/\/+$/, ''), origin }
}

/** Checked before it becomes part of a path (robustness §2). UsageError `invalid_identifier`. */
function pathIdentifier(identifier: string): string {
  if (isIdentifier(identifier)) return identifier
  throw new UsageError(
    'invalid_identifier',
    'the identifier is neither a question id (0x and 64 lowercase hex digits) nor a slug (a-z, 0-9, -)',
    { hint: 'give the question id, as `proposer context` prints it' },
  )
}

const questionPath = (identifier: string) => `/v1/proposals/${pathIdentifier(identifier)}`

function checked(text: string, isOne: (text: string) => boolean, what: string): string {
  if (isOne(text)) return text
  throw new UsageError('invalid_identifier', `the ${what} is invalid`, {
    hint: `give a canonical lowercase ${what}`,
  })
}

function boundedBatch(list: readonly string[]): readonly string[] {
  if (list.length >= 1 && list.length <= limits.batchItems) return list
  throw new UsageError(
    'invalid_batch',
    `a batch call accepts 1 to ${limits.batchItems} items, not ${list.length}`,
    { hint: 'split the list' },
  )
}
