/**
 * One call with saved bytes, journaled before and after (R4, R7). The body of a batch call is the
 * fixed concatenation of its items' bytes, so that each item stays what it was in any company.
 */
import { type Answer, classifyRefusal, type Unaccepted } from '../gateway/answer.js'
import type { CallOptions, GatewayClient } from '../gateway/gateway-client.js'
import { type Acknowledged, keptAnswer, type Results, type SubmitRead } from '../gateway/reading.js'
import { type JournaledAuthorization, otherNamed } from '../journal/authorizations.js'
import type { Journal, JournalPorts } from '../journal/journal.js'
import type { JournalEntry } from '../journal/records.js'

export interface SubmitParts {
  readonly ports: JournalPorts
  readonly journal: Journal
  readonly gateway: GatewayClient
}

export type SubmitAnswer = Answer<Acknowledged>

/** No gateway needs to take more (§7, 413: smaller batches). */
const maxBodyBytes = 1_900_000

interface Attempted extends Pick<SubmitAnswer, 'receipt'> {
  readonly answers: readonly SubmitAnswer[]
  /** The gateway itself: what is transient is so for single items only. */
  readonly wasAnswered: boolean
  /** No item is named: smaller calls may be taken. `limited`: a window may hold fewer (§8). */
  readonly split?: 'too_large' | 'unnamed_fault' | 'limited'
}

export function itemsThatFit(authorizations: readonly JournaledAuthorization[], most: number) {
  let bytes = 0
  for (const [index, { signed }] of authorizations.entries()) {
    // Bodies are ASCII but for client_ref, which is short.
    bytes += signed.body.length + 1 + 3 * (signed.clientRef?.length ?? 0)
    if (index > 0 && (index >= most || bytes > maxBodyBytes)) return index
  }
  return authorizations.length
}

/** StorageError 74: nothing was sent, or what came counts as uncertain. */
export async function attempt(
  parts: SubmitParts,
  authorizations: readonly JournaledAuthorization[],
  { batch, ...call }: CallOptions & { readonly batch?: string | undefined },
) {
  const { journal, gateway, ports } = parts
  const single = authorizations.find(({ signed }) => signed.form === 'single')?.signed
  const body =
    single?.body ?? `{"proposals":[${authorizations.map(({ signed }) => signed.body).join(',')}]}`
  const name = journal.nextAttempt()
  const start: JournalEntry = {
    kind: 'attempt.start',
    data: {
      attempt: name,
      ids: authorizations.map(({ id }) => id),
      origin: gateway.origin,
      form: single === undefined ? 'batch' : 'single',
      sha256: single?.sha256 ?? ports.hash.sha256(body),
      batch,
    },
  }
  // What another run wrote may be in the page cache only (R4).
  const copied = authorizations
    .filter(({ id }) => !journal.hasSigned(id))
    .map(({ signed }): JournalEntry => ({ kind: 'signed', data: signed }))
  await journal.append([...copied, start])
  const { receipt, ...attempted } =
    single === undefined
      ? readCall(await gateway.submitBatch(body, call), authorizations)
      : wholeCall(await gateway.submit(single.questionId, body, call), 1)
  const answers = judged(journal, authorizations, attempted.answers)
  const answered = authorizations.map(({ id }, at) => ({ id, answer: answers[at] ?? noResult }))
  const results = answered.map(({ id, answer }) => ({
    id,
    class: answer.kind,
    status: answer.httpStatus,
    code: answer.kind === 'accepted' ? undefined : answer.code,
  }))
  await journal.append([
    { kind: 'attempt.end', data: { attempt: name, results, receipt } },
    ...answered.flatMap(({ id, answer }) =>
      answer.kind === 'accepted' ? [acknowledgement(id, answer)] : [],
    ),
  ])
  return { ...attempted, answers }
}

export const mismatchCode = 'candidate_mismatch'

/** Where it is about something else, what became of the bytes is not known. */
function judged(
  journal: Journal,
  authorizations: readonly JournaledAuthorization[],
  answers: readonly SubmitAnswer[],
): readonly SubmitAnswer[] {
  const given = new Map<string, number>()
  const idOf = (answer: SubmitAnswer) =>
    answer.kind === 'accepted' ? answer.value.candidate_id.toLowerCase() : ''
  for (const answer of answers) given.set(idOf(answer), (given.get(idOf(answer)) ?? 0) + 1)
  return answers.map((answer, at) => {
    const authorization = authorizations[at]
    if (answer.kind !== 'accepted' || authorization === undefined) return answer
    const { httpStatus, rateLimit, value } = answer
    const uncertain = { kind: 'uncertain', httpStatus, rateLimit } as const
    const other = otherNamed(authorization.signed, value.answer)
    if (other !== undefined) {
      const detail = `the gateway acknowledged another ${other.field} than ${other.own}`
      return { ...uncertain, code: mismatchCode, detail }
    }
    const holder = journal.holderOf(value.candidate_id) ?? authorization.id
    if (given.get(idOf(answer)) === 1 && holder === authorization.id) return answer
    const detail = `the gateway acknowledged it as candidate ${value.candidate_id}, which is another authorization's`
    return { ...uncertain, code: 'candidate_shared', detail }
  })
}

/** Version 0.1 reads ids in lower case; `answer` keeps the gateway's spelling (contract §9). */
function acknowledgement(
  id: string,
  { httpStatus, value }: Extract<SubmitAnswer, { kind: 'accepted' }>,
): JournalEntry {
  const { candidate_id, status, received_at, answer } = value
  const replayed = httpStatus === 200
  const known = { id, candidate_id: candidate_id.toLowerCase(), status, received_at, replayed }
  return { kind: 'ack', data: { ...known, ...keptAnswer(answer) } }
}

const noResult: Extract<Unaccepted, { kind: 'deferred' | 'uncertain' }> = {
  kind: 'uncertain',
  code: 'gateway_body',
  detail: 'the gateway answered a batch without a result for its item',
}

function readCall(
  answer: Answer<Results<SubmitRead>>,
  authorizations: readonly JournaledAuthorization[],
): Attempted {
  if (answer.kind !== 'accepted') return wholeCall(answer, authorizations.length)
  const { results } = answer.value
  const answers = authorizations.map(({ signed }, at) => {
    const result = results.length === authorizations.length ? results[at] : undefined
    // Results come in input order; one under another reference is about another item.
    const isOurs = result?.client_ref === undefined || result.client_ref === signed.clientRef
    return result === undefined || !isOurs ? noResult : itemAnswer(result)
  })
  return { answers, wasAnswered: true, receipt: answer.receipt }
}

/** §4.2 rule 5: as the same status of a single call. */
export function itemAnswer({
  status_code: httpStatus,
  candidate,
  error,
}: SubmitRead): SubmitAnswer {
  if (httpStatus === undefined) return noResult
  if ((httpStatus === 200 || httpStatus === 202) && candidate !== undefined)
    return { kind: 'accepted', httpStatus, value: candidate }
  return error === undefined ? { ...noResult, httpStatus } : classifyRefusal(httpStatus, error)
}

/** It had no effect (R18). For shape (422) only the items that it names are refused. */
function wholeCall(answer: SubmitAnswer, count: number): Attempted {
  const all = (each: SubmitAnswer) => Array.from({ length: count }, () => each)
  const wasAnswered = answer.kind !== 'deferred' && answer.kind !== 'uncertain'
  const whole = { answers: all(answer), wasAnswered, receipt: answer.receipt }
  const isLimited =
    answer.httpStatus === 429 || (answer.kind === 'deferred' && answer.code === 'batch_over_budget')
  if (count > 1 && isLimited) return { ...whole, split: 'limited' }
  if (answer.kind !== 'refused' || count === 1 || ![413, 422].includes(answer.httpStatus))
    return whole
  const { httpStatus, code, errors = [] } = answer
  const detail = `the whole call was refused: ${answer.detail}`
  const later: SubmitAnswer = { kind: 'deferred', httpStatus, code, detail }
  if (httpStatus === 413) return { ...whole, answers: all(later), split: 'too_large' }
  const named = new Set(
    errors
      .map(({ path }) => Number(/^\/?proposals[.[/](\d{1,3})/.exec(path)?.[1] ?? Number.NaN))
      .filter((at) => at < count),
  )
  const answers = all(later).map((each, at) => (named.has(at) ? answer : each))
  return { ...whole, answers, ...(named.size === 0 && { split: 'unnamed_fault' as const }) }
}
