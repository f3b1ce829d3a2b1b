/**
 * What is admitted. Nothing of it can execute but, where the gateway breaks the rule of the bond,
 * one
 * raw unit.
 */
import type { Form } from '../client/journal/records.js'
import { contractsOf, type QuestionContext } from '../client/trust/trust.js'
import { priceOf } from '../protocol/proposal.js'
import {
  candidateIn,
  hasEnded,
  leastRaw,
  otherPrice,
  type ProbeTerms,
  type SentProbe,
} from './admissions.js'
import type { Bench } from './bench.js'
import { routes } from './probe.js'
import {
  acknowledgement,
  at,
  came,
  expectMembers,
  expectStatus,
  expectThat,
  expectVersion,
  Fault,
  given,
  malformed,
  NotSeen,
  type Run,
  rule,
  rulesOf,
  type Seen,
  sameInstant,
  wrongly,
} from './rule.js'

/** The first submission and the candidate that came of it; NotSeen where none did. */
export async function admitted(
  bench: Bench,
): Promise<SentProbe & { readonly id: string; readonly questionId: string }> {
  const first = await bench.admissions.first()
  const id = candidateIn(first.seen.json, first.seen.sent)
  return { ...first, id, questionId: first.pair.context.question_id }
}

/** What a form's refusal of one authorization came to: an item's own, or the whole call's. */
function refusalOf(seen: Seen): Seen {
  const result = at(seen.json, 'results', 0)
  const status = at(result, 'status_code')
  return typeof status === 'number' ? { ...seen, status, json: result } : seen
}

const isBonded = ({ bond }: QuestionContext) => BigInt(bond.required_bond) > leastRaw
const lacksHalf = ({ price }: QuestionContext) => !price.allowed_values.includes(priceOf.p3)
const bondCode = 'permit_amount_below_required_bond'

const refuses =
  (
    terms: (bench: Bench) => ProbeTerms,
    wrong: string,
    fits: (context: QuestionContext) => boolean = () => true,
  ): Run =>
  async (bench) => {
    if (!(await bench.open()).some(fits))
      throw new NotSeen(`no given question makes this wrong: ${wrong}`)
    const seen = refusalOf(await bench.admissions.sendWrong(terms(bench), fits))
    return expectStatus(wrongly(seen, wrong), ...malformed)
  }

/** A minute less than the five that are asked for, so that clocks may differ. */
const soon = (bench: Bench): ProbeTerms => ({ deadlineSeconds: bench.nowSeconds() + 240n })
const asItem = { form: 'batch' } as const

/**
 * One raw unit, whatever the gateway says the bond is. Fault where that is admitted: it can be
 * paid.
 */
async function tooLittle(bench: Bench, form: Form): Promise<Seen> {
  if (!(await bench.open()).some(isBonded))
    throw new NotSeen('no question has a bond of more than one raw unit')
  const terms = { amountRaw: leastRaw, form }
  const { journalId, ...sent } = await bench.admissions.sendWrong(terms, isBonded)
  const seen = wrongly(refusalOf(sent), 'an amount of one raw unit, which is below the bond')
  const isAdmitted = seen.status >= 200 && seen.status < 300
  const cancel = `it was admitted and may execute; revoke it with \`proposer revoke ${journalId}\``
  expectThat(!isAdmitted, seen, `got ${came(seen)}: ${cancel}`)
  return seen
}

/**
 * One unit below the bond: only where the chain says what the bond is, and a bond may be spent
 * (R21). The contract takes no less than the bond, so that nothing of it executes.
 */
async function almostEnough(bench: Bench, form: Form): Promise<Seen | undefined> {
  const { chain, trust, may, admissions } = bench
  const context = (await bench.open()).find(isBonded)
  if (chain === undefined || !may.execute || context === undefined) return undefined
  const { createRoundReader } = await import('../chain/questions.js')
  const round = await createRoundReader(chain, contractsOf(trust)).read(context.question_id)
  if (round === null || round === undefined || round.totalBondRaw < 2n) return undefined
  const terms = { amountRaw: round.totalBondRaw - 1n, form }
  const isSame = ({ question_id }: QuestionContext) => question_id === context.question_id
  const seen = refusalOf(await admissions.sendWrong(terms, isSame))
  return wrongly(seen, 'an amount of one raw unit below the bond')
}

const bondMinimum =
  (form: Form): Run =>
  async (bench) => {
    const actual = expectStatus(await tooLittle(bench, form), ...malformed)
    const close = await almostEnough(bench, form)
    return close === undefined ? actual : expectStatus(close, ...malformed)
  }

const bondCodeIn =
  (form: Form): Run =>
  async (bench) => {
    const seen = given(await tooLittle(bench, form), ...malformed)
    expectThat(at(seen.json, 'error', 'code') === bondCode, seen, `got ${came(seen)}`)
    return came(seen)
  }

/**
 * The path that an acknowledgement of this candidate may give, without its first slash; the spec
 * shows no other.
 */
function isStatusUrl(url: unknown, { pair, id }: { pair: SentProbe['pair']; id: string }): boolean {
  if (typeof url !== 'string' || /^[a-z][a-z0-9+.-]*:|^\/\//i.test(url)) return false
  const { question_id, slug = question_id } = pair.context
  return [question_id, slug].some((identifier) => {
    const { path } = routes.status(identifier, id)
    // Below a base URL with a path, or relative to it.
    return url.endsWith(path) || (url.length > id.length && path.endsWith(`/${url}`))
  })
}

interface SignedBody {
  readonly outcome: string
  readonly permit: { readonly amount: string; readonly nonce: string; readonly deadline: string }
}
const otherPermit =
  (field: keyof SignedBody['permit'], change: (value: bigint) => bigint) => (body: SignedBody) => ({
    ...body,
    permit: { ...body.permit, [field]: String(change(BigInt(body.permit[field]))) },
  })

/** Of one signature, what it does not cover: the witness is rebuilt from the body (§4.1 rule 3). */
const tampered: Readonly<Record<string, (body: SignedBody) => object>> = {
  'another outcome': (body) => ({ ...body, outcome: body.outcome === 'p1' ? 'p2' : 'p1' }),
  'another amount': otherPermit('amount', (amount) => amount + 1n),
  'another nonce': otherPermit('nonce', (nonce) => nonce ^ 1n),
  'a later deadline': otherPermit('deadline', (deadline) => deadline + 60n),
}

export const refusalRules = rulesOf('admit', {
  '2.1-bond-minimum': rule(
    'permit.amount is at least the current total bond (single form)',
    bondMinimum('single'),
  ),
  '7-bond-code': rule(
    'the code for an amount below the bond is permit_amount_below_required_bond (single form)',
    bondCodeIn('single'),
  ),
  '2.7-bond-minimum': rule(
    'permit.amount is at least the current total bond (batch form)',
    bondMinimum('batch'),
  ),
  '7-batch-bond-code': rule(
    'the code for an amount below the bond is permit_amount_below_required_bond (batch form)',
    bondCodeIn('batch'),
  ),
  '2.1-deadline-minimum': rule(
    'permit.deadline is at least five minutes beyond admission',
    refuses(soon, 'a deadline four minutes ahead'),
  ),
  '2.7-deadline-minimum': rule(
    "an item's permit.deadline is at least five minutes beyond admission",
    refuses((bench) => ({ ...soon(bench), ...asItem }), 'a deadline four minutes ahead'),
  ),
  '2.1-outcome-allowed': rule(
    'outcome must be allowed for this request',
    refuses(() => ({ price: priceOf.p3 }), 'p3, which is not allowed', lacksHalf),
  ),
  '2.2-price-allowed': rule(
    'an item has a price that the request allows',
    refuses(() => ({ price: priceOf.p3, ...asItem }), '0.5, which is not allowed', lacksHalf),
  ),
  '2.2-binary-only': rule(
    'winner-index submissions are not supported',
    refuses(() => ({ price: '1', ...asItem }), 'the index of a winner as price'),
  ),
  '5-stranger': rule('an ineligible wallet gives 403, whatever it signs', async (bench) => {
    const seen = await bench.admissions.sendStrange()
    return expectStatus(wrongly(seen, 'a valid signature of a wallet on no list'), 403)
  }),
  /**
   * Before an execution is waited for: its candidate is the one that stays active. A first payload
   * may fail in validation before its rival comes: then there is nothing to be in conflict with.
   */
  '4.1.3-conflict': rule(
    '409: a conflicting active payload prevents admission',
    async ({ admissions, may }) => {
      const first = await (may.execute ? admissions.executable() : admissions.first())
      const { authorization, pair, seen } = first
      const id = candidateIn(seen.json, seen.sent)
      const changes = { price: otherPrice(authorization), supersede: authorization.id }
      const rival = await admissions.sign(pair, changes)
      // Active again, where it had failed (§7 rule 2: the same payload may be sent again).
      if (!may.execute) await admissions.send(authorization)
      const second = await admissions.send(rival)
      if (second.status === 409) return came(second)
      const now = (await admissions.status(pair.context.question_id, id)).json
      if (hasEnded(now))
        throw new NotSeen(
          'the first payload failed before its rival was sent; use --allow-execution for one that does not fail',
        )
      const sent = `sent ${second.sent} with another signed price and nonce`
      throw new Fault(`${sent}; got ${came(second)}, expected 409 while the first is active`)
    },
  ),
})

export const submissionRules = rulesOf('admit', {
  '4.1.3-new': rule(
    '202: a new candidate was durably accepted, whatever was prepared before',
    3,
    async (bench) => expectStatus((await bench.admissions.first()).seen, 202),
  ),
  '2.5-acknowledgement': rule(
    'an acknowledgement has candidate_id (UUID), status, received_at and status_url',
    async (bench) => {
      const { seen } = await bench.admissions.first()
      if (seen.status >= 300) throw new NotSeen(`${seen.sent} was answered ${came(seen)}`)
      expectMembers(seen, acknowledgement)
      return 'all named'
    },
  ),
  '2.5-status-url': rule('status_url is relative, and the path of the status', async (bench) => {
    const first = await admitted(bench)
    const fault = 'status_url is not a relative path to the status of the candidate'
    expectThat(isStatusUrl(at(first.seen.json, 'status_url'), first), first.seen, fault)
    return 'a path'
  }),
  '9-acknowledgement-version': rule('an acknowledgement carries the version', async (bench) =>
    expectVersion((await admitted(bench)).seen),
  ),
  '4.1.3-replay': rule(
    '200: an exact replay in the round returns the existing candidate',
    async (bench) => {
      const { authorization, id, pair, seen: first } = await admitted(bench)
      const seen = wrongly(await bench.admissions.send(authorization), 'the very same bytes again')
      expectStatus(seen, 200)
      expectMembers(seen, acknowledgement)
      expectVersion(seen)
      expectThat(at(seen.json, 'candidate_id') === id, seen, 'got another candidate')
      const isPath = isStatusUrl(at(seen.json, 'status_url'), { pair, id })
      expectThat(isPath, seen, 'status_url is not a relative path to the status of the candidate')
      const isThen = sameInstant(at(seen.json, 'received_at'), at(first.json, 'received_at'))
      expectThat(isThen, seen, 'received_at differs from the first response')
      return '200, the same candidate'
    },
  ),
  '4.1.3-witness-rebuilt': rule(
    'the witness is reconstructed from the body, and only the exact payload is a replay',
    4,
    async (bench) => {
      const { authorization, questionId } = await admitted(bench)
      const body: SignedBody = JSON.parse(authorization.signed.body)
      for (const [wrong, change] of Object.entries(tampered)) {
        const under = `${wrong} under the signature of the first`
        const seen = await bench.probe.send(routes.submit(questionId, change(body), under))
        // Signature or conflict: which is examined first is left open.
        expectStatus(seen, 403, 409)
      }
      return '403 or 409'
    },
  ),
})
