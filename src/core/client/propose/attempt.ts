/** One sending of saved bytes, journaled before and after (R4, R7). */

import type { Answer, Unaccepted } from '../gateway/answer.js'
import type { CallOptions, GatewayClient } from '../gateway/gateway-client.js'
import { type Acknowledged, keptAnswer, type SubmitTold } from '../gateway/reading.js'
import type { Authorization } from '../journal/authorizations.js'
import type { Journal, JournalPorts } from '../journal/journal.js'
import type { JournalEntry } from '../journal/records.js'

export interface SubmitParts {
  readonly ports: JournalPorts
  readonly journal: Journal
  readonly gateway: GatewayClient
}

export type SubmitAnswer = Answer<Acknowledged>

/**
 * Sends the authorization's exact bytes once. Bytes, their SHA-256 and the origin are durable
 * before the connect (R4); where another run signed, its record is copied first, because its lines
 * may be in the page cache only. StorageError 74: nothing was sent, or (after the answer) what came
 * is not journaled and the attempt counts as uncertain. `batch` is the fingerprint of the batch
 * input it comes from.
 */
export async function attempt(
  parts: SubmitParts,
  authorization: Authorization,
  { batch, ...options }: CallOptions & { readonly batch?: string } = {},
): Promise<SubmitAnswer> {
  const { journal, gateway } = parts
  const { id, signed } = authorization
  const name = journal.nextAttempt()
  const start: JournalEntry = {
    kind: 'attempt.start',
    data: {
      attempt: name,
      ids: [id],
      origin: gateway.origin,
      form: signed.form,
      sha256: signed.sha256,
      ...(batch === undefined ? {} : { batch }),
    },
  }
  await journal.append(journal.hasSigned(id) ? [start] : [{ kind: 'signed', data: signed }, start])
  const answer =
    signed.form === 'single'
      ? await gateway.submit(signed.questionId, signed.body, options)
      : await submitItem(parts, signed.body, options)
  const entries: JournalEntry[] = [
    {
      kind: 'attempt.end',
      data: {
        attempt: name,
        results: [
          {
            id,
            class: answer.kind,
            ...(answer.httpStatus === undefined ? {} : { status: answer.httpStatus }),
            ...(answer.kind === 'accepted' ? {} : { code: answer.code }),
          },
        ],
      },
    },
  ]
  if (answer.kind === 'accepted') entries.push(acknowledgement(id, answer))
  await journal.append(entries)
  return answer
}

/**
 * A batch item alone: the call's answer holds one result, which means what the same status of a
 * single call would.
 */
async function submitItem(
  { gateway }: SubmitParts,
  item: string,
  options: CallOptions,
): Promise<SubmitAnswer> {
  const answer = await gateway.submitBatch(`{"proposals":[${item}]}`, options)
  if (answer.kind !== 'accepted') return answer
  const [result] = answer.value.results
  return result === undefined ? noResult : fromResult(result)
}

/** A batch's answer that leaves an item out. */
export const noResult: Extract<Unaccepted, { kind: 'uncertain' }> = {
  kind: 'uncertain',
  code: 'gateway_body',
  detail: 'the gateway answered a batch without a result for its item',
}

/**
 * An acceptance for the journal. The id is in lower case, as version 0.1 reads it; `answer` keeps
 * the gateway's spelling (contract §9).
 */
export function acknowledgement(
  id: string,
  { httpStatus, value }: Extract<SubmitAnswer, { kind: 'accepted' }>,
): JournalEntry {
  const { candidate_id, status, received_at, answer } = value
  const known = {
    id,
    candidate_id: candidate_id.toLowerCase(),
    status,
    received_at,
    replayed: httpStatus === 200,
  }
  return { kind: 'ack', data: { ...known, ...keptAnswer(answer) } }
}

/**
 * Classifies one item of a batch as the same status of a single call (§4.2 rule 5, robustness §6).
 */
export function fromResult({
  status_code: httpStatus,
  candidate,
  error,
}: SubmitTold): SubmitAnswer {
  if (httpStatus === undefined) return noResult
  if ((httpStatus === 200 || httpStatus === 202) && candidate !== undefined)
    return { kind: 'accepted', httpStatus, value: candidate }
  if (error === undefined) return { ...noResult, httpStatus }
  if ([400, 403, 404, 405, 413, 422].includes(httpStatus))
    return { kind: 'refused', httpStatus, ...error }
  if (httpStatus === 409) return { kind: 'reconcile', httpStatus, ...error }
  if (httpStatus === 429 || httpStatus === 503) return { kind: 'deferred', httpStatus, ...error }
  return { kind: 'uncertain', httpStatus, ...error }
}
