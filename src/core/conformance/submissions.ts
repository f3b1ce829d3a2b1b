/**
 * Rules about what is admitted: §2.1's values, §2.5 and §4.1 rule 3. Nothing of it can execute but,
 * where the gateway breaks the rule of the bond, one raw unit.
 */

import type { Form } from '../client/journal/records.js'
import type { QuestionContext } from '../client/trust/context.js'
import { priceOf } from '../protocol/proposal.js'
import { candidateIn, hasEnded, leastRaw, type Sent, type Wish } from './admissions.js'
import type { Bench } from './bench.js'
import {
  at,
  came,
  expectStatus,
  expectThat,
  Fault,
  given,
  listAt,
  malformed,
  NotSeen,
  type Rule,
  rule,
  type Seen,
} from './rule.js'
import {
  expectMembers,
  expectVersion,
  isInstant,
  isThere,
  isUuid,
  isWord,
  sameInstant,
} from './shapes.js'

/** The first submission and the candidate that came of it; NotSeen where none did. */
export async function admitted(
  bench: Bench,
): Promise<Sent & { readonly id: string; readonly questionId: string }> {
  const first = await bench.admissions.first()
  return {
    ...first,
    id: candidateIn(first.seen.json, first.seen.sent),
    questionId: first.pair.context.question_id,
  }
}

/**
 * A first payload may fail in validation before its rival comes: then there is nothing to be in
 * conflict with.
 */
async function conflict(bench: Bench): Promise<string> {
  const { admissions, may } = bench
  const { authorization, pair, seen } = may.execute
    ? await admissions.executable()
    : await admissions.first()
  const id = candidateIn(seen.json, seen.sent)
  const price = authorization.signed.terms.price === priceOf.p1 ? priceOf.p2 : priceOf.p1
  const rival = await admissions.sign(pair, { price, supersede: authorization.id })
  // Active again, where it had failed (§7 rule 2: the same payload may be sent again).
  if (!may.execute) await admissions.send(authorization)
  const second = await admissions.send(rival)
  const sent = { sent: `${second.sent} with another signed price and nonce` }
  if (second.status === 409) return came(second)
  const now = (await admissions.status(pair.context.question_id, id)).json
  if (hasEnded(now))
    throw new NotSeen(
      'the first payload failed before its rival came; --allow-execution makes one that does not',
    )
  throw new Fault(`sent ${sent.sent}; came ${came(second)}, not 409, while the first is active`)
}

/** What a form's refusal of one authorization came to: an item's own, or the whole call's. */
function refusalOf(seen: Seen): Seen {
  const [result] = listAt(seen.json, 'results')
  const status = at(result, 'status_code')
  return typeof status === 'number' ? { ...seen, status, json: result } : seen
}

const isBonded = ({ bond }: QuestionContext) => BigInt(bond.required_bond) > leastRaw
const lacksHalf = ({ price }: QuestionContext) => !price.allowed_values.includes(priceOf.p3)
const anyQuestion = () => true
const bondCode = 'permit_amount_below_required_bond'

/** Something wrong in what is signed: to be refused with 400 or 422, by whatever form. */
function refuses(
  wish: (bench: Bench) => Wish,
  wrong: string,
  fits: (context: QuestionContext) => boolean = anyQuestion,
): Rule['run'] {
  return async (bench) => {
    if (!(await bench.open()).some(fits))
      throw new NotSeen(`no question is given for which this would be wrong: ${wrong}`)
    return expectStatus(
      wrongly(refusalOf(await bench.admissions.sendWrong(wish(bench), fits)), wrong),
      ...malformed,
    )
  }
}
/** A minute less than the five that are asked for, so that clocks may differ. */
const soon = (bench: Bench) => ({ deadlineSeconds: bench.nowSeconds() + 240n })
const asItem = { form: 'batch' } as const

/** In this order: a refusal frees its question again, so that one question will do. */
export const valueRules: readonly Rule[] = [
  ...(
    [
      ['2.1-bond-minimum', '7-bond-code', 'single'],
      ['2.7-bond-minimum', '7-batch-bond-code', 'batch'],
    ] as const
  ).flatMap(([id, codeId, form]) => [
    rule(
      id,
      id === '2.1-bond-minimum' ? '§2.1' : '§2.7',
      'admit',
      `permit.amount is at least the current total bond (${form} form)`,
      async (bench) => expectStatus(await tooLittle(bench, form), ...malformed),
    ),
    rule(
      codeId,
      '§7',
      'admit',
      `the code for an amount below the bond is ${bondCode} (${form} form)`,
      async (bench) => {
        const seen = given(await tooLittle(bench, form), ...malformed)
        expectThat(at(seen.json, 'error', 'code') === bondCode, seen, `came ${came(seen)}`)
        return came(seen)
      },
    ),
  ]),
  rule(
    '2.1-deadline-minimum',
    '§2.1',
    'admit',
    'permit.deadline is at least five minutes beyond admission',
    refuses(soon, 'a deadline four minutes ahead'),
  ),
  rule(
    '2.7-deadline-minimum',
    '§2.7',
    'admit',
    "an item's permit.deadline is at least five minutes beyond admission",
    refuses((bench) => ({ ...soon(bench), ...asItem }), 'a deadline four minutes ahead'),
  ),
  rule(
    '2.1-outcome-allowed',
    '§2.1',
    'admit',
    'outcome must be allowed for this request',
    refuses(() => ({ price: priceOf.p3 }), 'p3, which is not allowed', lacksHalf),
  ),
  rule(
    '2.2-price-allowed',
    '§2.2',
    'admit',
    'an item has a price that the request allows',
    refuses(() => ({ price: priceOf.p3, ...asItem }), '0.5, which is not allowed', lacksHalf),
  ),
  rule(
    '2.2-binary-only',
    '§2.2',
    'admit',
    'winner-index submissions are not supported',
    refuses(() => ({ price: '1', ...asItem }), 'the index of a winner as price'),
  ),
  rule(
    '5-stranger',
    '§5',
    'admit',
    'an ineligible wallet gives 403, whatever it signs',
    async (bench) =>
      expectStatus(
        wrongly(await bench.admissions.sendStrange(), 'a valid signature of a wallet on no list'),
        403,
      ),
  ),
]

export const wrongly = (seen: Seen, wrong: string): Seen => ({
  ...seen,
  sent: `${seen.sent} with ${wrong}`,
})

/**
 * One raw unit, whatever the gateway says the bond is. Fault where that is admitted: it can be
 * paid.
 */
async function tooLittle(bench: Bench, form: Form): Promise<Seen> {
  if (!(await bench.open()).some(isBonded))
    throw new NotSeen('no question has a bond of more than one raw unit')
  const { journalId, ...sent } = await bench.admissions.sendWrong(
    { amountRaw: leastRaw, form },
    isBonded,
  )
  const seen = wrongly(refusalOf(sent), 'an amount of one raw unit, which is below the bond')
  const isAdmitted = seen.status >= 200 && seen.status < 300
  expectThat(
    !isAdmitted,
    seen,
    `came ${came(seen)}: it was admitted and may execute; cancel it with \`proposer revoke ${journalId}\``,
  )
  return seen
}

/** Before an execution is waited for: its candidate is the one that stays active. */
export const conflictRules: readonly Rule[] = [
  rule(
    '4.1.3-conflict',
    '§4.1 rule 3',
    'admit',
    '409: a conflicting active payload prevents admission',
    conflict,
  ),
]

/**
 * The path that an acknowledgement of this candidate may give, without its first slash; the spec
 * shows no other.
 */
function isStatusUrl(url: unknown, { pair, id }: { pair: Sent['pair']; id: string }): boolean {
  if (typeof url !== 'string' || /^[a-z][a-z0-9+.-]*:|^\/\//i.test(url)) return false
  const { question_id, slug = question_id } = pair.context
  return [question_id, slug].some((identifier) => {
    const path = `/v1/proposals/${identifier}/status/${id}`
    // Below a base URL with a path, or relative to it.
    return url.endsWith(path) || (url.length > id.length && path.endsWith(`/${url}`))
  })
}

/** Of one signature, what it does not cover: the witness is rebuilt from the body (§4.1 rule 3). */
const tampered: Readonly<Record<string, (body: SignedBody) => object>> = {
  'another outcome': (body) => ({ ...body, outcome: body.outcome === 'p1' ? 'p2' : 'p1' }),
  'another amount': (body) => ({
    ...body,
    permit: { ...body.permit, amount: String(BigInt(body.permit.amount) + 1n) },
  }),
  'another nonce': (body) => ({
    ...body,
    permit: { ...body.permit, nonce: String(BigInt(body.permit.nonce) ^ 1n) },
  }),
  'a later deadline': (body) => ({
    ...body,
    permit: { ...body.permit, deadline: String(BigInt(body.permit.deadline) + 60n) },
  }),
}
interface SignedBody {
  readonly outcome: string
  readonly permit: { readonly amount: string; readonly nonce: string; readonly deadline: string }
}

/** Of the single routes. */
export const singleSubmissionRules: readonly Rule[] = [
  rule(
    '4.1.3-new',
    '§4.1 rule 3',
    'admit',
    '202: a new candidate was durably accepted, whatever was prepared before',
    async (bench) => expectStatus((await bench.admissions.first()).seen, 202),
    3,
  ),
  rule(
    '2.5-acknowledgement',
    '§2.5',
    'admit',
    'an acknowledgement has candidate_id (UUID), status, received_at and status_url',
    async (bench) => {
      const { seen } = await bench.admissions.first()
      if (seen.status >= 300) throw new NotSeen(`${seen.sent} was answered ${came(seen)}`)
      expectMembers(seen, {
        candidate_id: isUuid,
        status: isWord,
        received_at: isInstant,
        status_url: isThere,
      })
      return 'all named'
    },
  ),
  rule(
    '2.5-status-url',
    '§2.5',
    'admit',
    'status_url is relative, and the path of the status',
    async (bench) => {
      const first = await admitted(bench)
      expectThat(
        isStatusUrl(at(first.seen.json, 'status_url'), first),
        first.seen,
        'status_url is no relative path to the status of the candidate',
      )
      return 'a path'
    },
  ),
  rule(
    '9-acknowledgement-version',
    '§2.5',
    'admit',
    'an acknowledgement carries the version',
    async (bench) => expectVersion((await admitted(bench)).seen),
  ),
  rule(
    '4.1.3-replay',
    '§4.1 rule 3',
    'admit',
    '200: an exact replay in the round returns the existing candidate',
    async (bench) => {
      const { authorization, id, seen: first } = await admitted(bench)
      const seen = wrongly(await bench.admissions.send(authorization), 'the very same bytes again')
      expectStatus(seen, 200)
      expectThat(at(seen.json, 'candidate_id') === id, seen, 'another candidate came')
      expectThat(
        sameInstant(at(seen.json, 'received_at'), at(first.json, 'received_at')),
        seen,
        'received_at is not that of the first answer',
      )
      return '200, the same candidate'
    },
  ),
  rule(
    '4.1.3-witness-rebuilt',
    '§4.1 rule 3',
    'admit',
    'the witness is reconstructed from the body, and only the exact payload is a replay',
    async (bench) => {
      const { authorization, questionId } = await admitted(bench)
      const body = JSON.parse(authorization.signed.body)
      for (const [wrong, change] of Object.entries(tampered)) {
        const path = `/v1/proposals/${questionId}`
        const seen = await bench.probe.send({
          method: 'POST',
          path,
          body: change(body),
          wrong: `${wrong} under the signature of the first`,
        })
        // Signature or conflict: which is looked at first is left open.
        expectStatus(seen, 403, 409)
      }
      return '403 or 409'
    },
    4,
  ),
]
