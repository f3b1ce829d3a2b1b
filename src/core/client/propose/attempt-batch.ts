/**
 * One batch call, journaled before and after (R4, R7). Its body is the fixed concatenation of its
 * items' bytes, so that each item stays what it was in whatever company it is sent again
 * (robustness §2, Journal).
 */

import type { Answer, Unaccepted } from '../gateway/answer.js'
import type { CallOptions, Results } from '../gateway/gateway-client.js'
import type { SubmitTold } from '../gateway/reading.js'
import type { Authorization } from '../journal/authorizations.js'
import type { JournalEntry } from '../journal/records.js'
import {
  acknowledgement,
  fromResult,
  noResult,
  type SubmitAnswer,
  type SubmitParts,
} from './attempt.js'

/**
 * Body of a call: our gateway takes 2 MiB, and no gateway needs to take more (§7, 413: smaller
 * batches).
 */
const maxBodyBytes = 1_900_000

export interface BatchCall {
  /** One an item. */
  readonly answers: readonly SubmitAnswer[]
  /**
   * The gateway answered for itself: what is transient is so for single items, not for the gateway.
   */
  readonly wasAnswered: boolean
  /**
   * Refused as a whole, with no item named: the same items in smaller calls (413), or one at a
   * time, may be taken.
   */
  readonly split?: 'too_large' | 'unnamed_fault'
}

/** How many of the first items fit one call; at least one. Bytes as UTF-8. */
export function itemsThatFit(authorizations: readonly Authorization[], most: number): number {
  let bytes = 0
  for (const [index, { signed }] of authorizations.entries()) {
    // Bodies are ASCII but for client_ref, which is short.
    bytes += signed.body.length + 1 + 3 * (signed.clientRef?.length ?? 0)
    if (index > 0 && (index >= most || bytes > maxBodyBytes)) return index
  }
  return authorizations.length
}

/**
 * Sends the items' exact bytes in one call and journals what became of each. `batch` is the
 * fingerprint of the input they come from. StorageError 74 as `attempt`; never rejects for what the
 * gateway does.
 */
export async function attemptBatch(
  parts: SubmitParts,
  authorizations: readonly Authorization[],
  options: CallOptions & { readonly batch?: string } = {},
): Promise<BatchCall> {
  const { journal, gateway, ports } = parts
  const body = `{"proposals":[${authorizations.map(({ signed }) => signed.body).join(',')}]}`
  const name = journal.nextAttempt()
  const { batch, ...callOptions } = options
  const start: JournalEntry = {
    kind: 'attempt.start',
    data: {
      attempt: name,
      ids: authorizations.map(({ id }) => id),
      origin: gateway.origin,
      form: 'batch',
      sha256: ports.hash.sha256(body),
      ...(batch === undefined ? {} : { batch }),
    },
  }
  const elsewhere = authorizations.filter(({ id }) => !journal.hasSigned(id))
  await journal.append([
    ...elsewhere.map(({ signed }): JournalEntry => ({ kind: 'signed', data: signed })),
    start,
  ])
  const call = readCall(await gateway.submitBatch(body, callOptions), authorizations)
  const entries: JournalEntry[] = []
  const results = call.answers.map((answer, index) => ({
    id: authorizations[index]?.id ?? '',
    class: answer.kind,
    ...(answer.httpStatus === undefined ? {} : { status: answer.httpStatus }),
    ...(answer.kind === 'accepted' ? {} : { code: answer.code }),
  }))
  entries.push({ kind: 'attempt.end', data: { attempt: name, results } })
  for (const [index, answer] of call.answers.entries()) {
    const id = authorizations[index]?.id
    if (answer.kind === 'accepted' && id !== undefined) entries.push(acknowledgement(id, answer))
  }
  await journal.append(entries)
  return call
}

/** What a call's answer means for each of its items (§4.2 rules 3-5). */
function readCall(
  answer: Answer<Results<SubmitTold>>,
  authorizations: readonly Authorization[],
): BatchCall {
  if (answer.kind !== 'accepted') return wholeCall(answer, authorizations.length)
  const { results } = answer.value
  const answers = authorizations.map(({ signed }, index): SubmitAnswer => {
    const result = results[index]
    if (result === undefined || results.length !== authorizations.length) return noResult
    // Results come in input order (§4.2 rule 1), with or without a reference; one under another
    // reference is about another item.
    return result.client_ref === undefined || result.client_ref === signed.clientRef
      ? fromResult(result)
      : noResult
  })
  return { answers, wasAnswered: true }
}

/**
 * A refusal of the whole call had no effect (R18). Where it is for the shape or size of the whole
 * (413, 422), only the items it names are refused: the others are innocent, and are sent again
 * without them.
 */
function wholeCall(answer: Unaccepted, count: number): BatchCall {
  const all = (each: Unaccepted): SubmitAnswer[] => Array.from({ length: count }, () => each)
  if (
    answer.kind !== 'refused' ||
    count === 1 ||
    (answer.httpStatus !== 413 && answer.httpStatus !== 422)
  )
    return {
      answers: all(answer),
      wasAnswered: answer.kind === 'refused' || answer.kind === 'reconcile',
    }
  const later: Unaccepted = {
    kind: 'deferred',
    httpStatus: answer.httpStatus,
    code: answer.code,
    detail: `the whole call was refused: ${answer.detail}`,
  }
  const named = new Set(
    (answer.errors ?? [])
      .flatMap(({ path }) => /^\/?proposals[.[/](\d{1,3})/.exec(path)?.[1] ?? [])
      .map(Number)
      .filter((index) => index < count),
  )
  const answers = all(later).map((each, index) => (named.has(index) ? answer : each))
  if (answer.httpStatus === 413)
    return { answers: all(later), wasAnswered: true, split: 'too_large' }
  return named.size === 0
    ? { answers, wasAnswered: true, split: 'unnamed_fault' }
    : { answers, wasAnswered: true }
}
