/**
 * What is admitted, and what is told of a candidate by the single route and in batches. Nothing of
 * it can execute but what is meant to, and, where the gateway breaks the rule of the bond, one raw
 * unit.
 */
import type { Form } from '#client/journal/records'
import type { QuestionContext } from '#client/trust/trust'
import { outcomeOf, priceOf } from '#protocol/proposal'
import {
  type Bench,
  candidateIn,
  hasEnded,
  leastRaw,
  type Pair,
  type ProbeTerms,
  rivalTo,
} from './admissions.js'
import {
  acknowledgement,
  at,
  Fault,
  is,
  malformed,
  member,
  memberOf,
  NotSeen,
  notServed,
  type Seen,
  sameInstant,
  statusMembers,
  timeMs,
} from './answer.js'
import { chainRound, changed } from './bench.js'
import { routes } from './probe.js'
import {
  about,
  type Expect,
  has,
  hasVersion,
  type ProbeExchange,
  type Run,
  rulesOf,
} from './rule.js'

async function admitted({ admissions }: Bench) {
  const first = await admissions.first()
  return { ...first, id: candidateIn(first.seen) }
}

/** What a form's refusal of one authorization came to: an item's own, or the whole call's. */
function refusalOf(seen: Seen, wrong: string) {
  const [status] = seen.codes
  const own = typeof status === 'number' ? { status, json: seen.at('results.0') } : {}
  return seen.as(own).with(wrong)
}

const isBonded = ({ bond }: QuestionContext) => BigInt(bond.required_bond) > leastRaw
const lacksHalf = ({ price }: QuestionContext) => !price.allowed_values.includes(priceOf.p3)

const refused =
  (
    terms: ProbeTerms | ((bench: Bench) => ProbeTerms),
    wrong: string,
    fits: (context: QuestionContext) => boolean = () => true,
  ): Run =>
  async (bench) => {
    if (!(await bench.open()).some(fits))
      throw new NotSeen(`no given question makes this wrong: ${wrong}`)
    const own = typeof terms === 'function' ? terms(bench) : terms
    const { seen } = await bench.admissions.sendWrong(own, fits)
    return refusalOf(seen, wrong).expect(...malformed)
  }

/** A minute less than the five that are asked for, so that clocks may differ. */
const soon = (form: Form) =>
  refused(
    ({ nowSeconds }) => ({ form, deadlineSeconds: nowSeconds() + 240n }),
    'a deadline four minutes ahead',
  )

/**
 * One raw unit, whatever the gateway says the bond is. Fault where that is admitted: it can be
 * paid.
 */
const tooLittle =
  (form: Form): ProbeExchange =>
  async (bench) => {
    if (!(await bench.open()).some(isBonded))
      throw new NotSeen('no question has a bond of more than one raw unit')
    const terms = { amountRaw: leastRaw, form }
    const sent = await bench.admissions.sendWrong(terms, isBonded)
    const seen = refusalOf(sent.seen, 'an amount of one raw unit, which is below the bond')
    const isAdmitted = seen.status >= 200 && seen.status < 300
    const cancel = `it was admitted and may execute; revoke it with \`proposer revoke ${sent.journalId}\``
    seen.holds({ [`got ${seen.came}: ${cancel}`]: !isAdmitted })
    return seen
  }

type Answered = readonly [ProbeExchange, ...(Expect | readonly number[])[]]
/**
 * One unit below the bond too, but only where the chain says what the bond is, and a bond may be
 * spent (R21). The contract takes no less than the bond, so that nothing of it executes.
 */
const bondMinimum = (form: Form): Answered => [
  tooLittle(form),
  malformed,
  async (seen, bench) => {
    const context = (await bench.open()).find(isBonded)
    const round = bench.may.execute && context && (await chainRound(bench, context.question_id))
    if (!round || round.totalBondRaw < 2n) return seen.came
    const terms = { amountRaw: round.totalBondRaw - 1n, form }
    const close = await bench.admissions.sendWrong(
      terms,
      ({ question_id }) => question_id === context?.question_id,
    )
    return refusalOf(close.seen, 'an amount of one raw unit below the bond').expect(...malformed)
  },
]

const bondCode = (form: Form): Answered => [
  tooLittle(form),
  (seen) => {
    const isCode = seen.at('error.code') === 'permit_amount_below_required_bond'
    seen.given(...malformed).holds({ [`got ${seen.came}`]: isCode })
    return seen.came
  },
]

/**
 * The path that an acknowledgement of this candidate may give, without its first slash; the spec
 * shows no other.
 */
function isStatusUrl(url: unknown, { pair, id }: { pair: Pair; id: string }) {
  if (!is.text(url) || /^[a-z][a-z0-9+.-]*:|^\/\//i.test(url)) return false
  const { question_id, slug = question_id } = pair.context
  return [question_id, slug].some((identifier) => {
    const { path } = routes.status(identifier, id)
    // Below a base URL with a path, or relative to it.
    return url.endsWith(path) || (url.length > id.length && path.endsWith(`/${url}`))
  })
}
const wrongUrl = 'status_url is not a relative path to the status of the candidate'

const plus = (more: bigint) => (text: string) => String(BigInt(text) + more)
/** Of one signature, what it does not cover: the witness is rebuilt from the body (§4.1 rule 3). */
const tampered = {
  'another outcome': { outcome: (outcome: string) => (outcome === 'p1' ? 'p2' : 'p1') },
  'another amount': { permit: { amount: plus(1n) } },
  'another nonce': { permit: { nonce: (text: string) => String(BigInt(text) ^ 1n) } },
  'a later deadline': { permit: { deadline: plus(60n) } },
}

const bonded = 'permit.amount is at least the current total bond'
const coded = 'the code for an amount below the bond is permit_amount_below_required_bond'

export const refusalRules = rulesOf('admit', {
  '2.1-bond-minimum': [`${bonded} (single form)`, ...bondMinimum('single')],
  '7-bond-code': [`${coded} (single form)`, ...bondCode('single')],
  '2.7-bond-minimum': [`${bonded} (batch form)`, ...bondMinimum('batch')],
  '7-batch-bond-code': [`${coded} (batch form)`, ...bondCode('batch')],
  '2.1-deadline-minimum': [
    'permit.deadline is at least five minutes beyond admission',
    soon('single'),
  ],
  '2.7-deadline-minimum': [
    "an item's permit.deadline is at least five minutes beyond admission",
    soon('batch'),
  ],
  '2.1-outcome-allowed': [
    'outcome must be allowed for this request',
    refused({ price: priceOf.p3 }, 'p3, which is not allowed', lacksHalf),
  ],
  '2.2-price-allowed': [
    'an item has a price that the request allows',
    refused({ price: priceOf.p3, form: 'batch' }, '0.5, which is not allowed', lacksHalf),
  ],
  '2.2-binary-only': [
    'winner-index submissions are not supported',
    refused({ price: '1', form: 'batch' }, 'the index of a winner as price'),
  ],
  '5-stranger': [
    'an ineligible wallet gives 403, whatever it signs',
    async ({ admissions }) =>
      (await admissions.sendStrange()).with('a valid signature of a wallet on no list'),
    [403],
  ],
  /**
   * Before an execution is waited for: its candidate is the one that stays active. A first payload
   * may fail in validation before its rival comes: then there is nothing to be in conflict with.
   */
  '4.1.3-conflict': [
    '409: a conflicting active payload prevents admission',
    async ({ admissions, may }) => {
      const first = await (may.execute ? admissions.executable() : admissions.first())
      const id = candidateIn(first.seen)
      const rival = await admissions.sign(first.pair, rivalTo(first.authorization))
      // Active again, where it had failed (§7 rule 2: the same payload may be sent again).
      if (!may.execute) await admissions.send(first.authorization)
      const second = await admissions.send(rival)
      if (second.status === 409) return second.came
      if (hasEnded(await admissions.status(first.questionId, id)))
        throw new NotSeen(
          'the first payload failed before its rival was sent; use --allow-execution for one that does not fail',
        )
      const sent = `sent ${second.sent} with another signed price and nonce`
      throw new Fault(`${sent}; got ${second.came}, expected 409 while the first is active`)
    },
  ],
})

export const submissionRules = rulesOf('admit', {
  '4.1.3-new': [
    '202: a new candidate was durably accepted, whatever was prepared before',
    async ({ admissions }) => (await admissions.first()).seen,
    [202],
    3,
  ],
  '2.5-acknowledgement': [
    'an acknowledgement has candidate_id (UUID), status, received_at and status_url',
    async ({ admissions }) => {
      const { seen } = await admissions.first()
      if (seen.status >= 300) throw seen.unanswered()
      return seen
    },
    has(acknowledgement),
  ],
  ...about(async (bench) => (await admitted(bench)).seen, {
    '2.5-status-url': [
      'status_url is relative, and the path of the status',
      'a path',
      async (seen, bench) => ({
        [wrongUrl]: isStatusUrl(seen.at('status_url'), await admitted(bench)),
      }),
    ],
    '9-acknowledgement-version': ['an acknowledgement carries the version', hasVersion],
  }),
  '4.1.3-replay': [
    '200: an exact replay in the round returns the existing candidate',
    async (bench) => {
      const { authorization } = await admitted(bench)
      return (await bench.admissions.send(authorization)).with('the very same bytes again')
    },
    [200],
    has(acknowledgement),
    hasVersion,
    async (again, bench) => {
      const first = await admitted(bench)
      return {
        'got another candidate': again.at('candidate_id') === first.id,
        [wrongUrl]: isStatusUrl(again.at('status_url'), first),
        'received_at differs from the first response': sameReceipt(again, first.seen),
      }
    },
    '200, the same candidate',
  ],
  '4.1.3-witness-rebuilt': [
    'the witness is reconstructed from the body, and only the exact payload is a replay',
    async (bench) => {
      const { authorization, questionId } = await admitted(bench)
      const body: unknown = JSON.parse(authorization.signed.body)
      for (const [wrong, change] of Object.entries(tampered)) {
        const call = routes.submit(questionId, changed(body, change))
        // Signature or conflict: which is examined first is left open.
        const seen = await bench.send(call, `${wrong} under the signature of the first`)
        seen.expect(403, 409)
      }
      return '403 or 409'
    },
    4,
  ],
})

const sameReceipt = (...seen: readonly [Seen, Seen]) => {
  const [one, other] = seen.map((each) => each.at('received_at'))
  return sameInstant(one, other)
}

const status: ProbeExchange = async (bench) => {
  const { id, questionId } = await admitted(bench)
  return (await bench.admissions.status(questionId, id)).given(200)
}

const candidatePath = 'results.0.candidate'
const batchedStatus: ProbeExchange = async (bench) => {
  const { id } = await admitted(bench)
  const seen = (await bench.batch('statuses', [id])).given(200)
  const again = seen.at(`${candidatePath}.candidate_id`)
  seen.holds({
    [`got item ${String(seen.codes[0])}, expected 200`]: seen.codes[0] === 200,
    'candidate_id is missing or different': seen.at('results.0.candidate_id') === id,
    'the candidate has another candidate_id': !is.given(again) || again === id,
  })
  return seen
}

const hasNoSecret: Expect = ({ hasLongHex }) => ({
  'the status holds hex longer than a hash: a signature or executable data': !hasLongHex,
})
const noSecret = 'no hex longer than a hash'

const names = (json: unknown, id: string): boolean =>
  json === id || (is.structure(json) && Object.values(json).some((value) => names(value, id)))

export const statusRules = rulesOf('admit', {
  ...about(status, {
    '2.6-status-fields': [
      'status has identity, outcome, price, times, status, submission and failure',
      has(statusMembers),
      async (seen, bench) => {
        const { id, questionId, authorization, seen: first } = await admitted(bench)
        const { price, proposer } = authorization.signed.terms
        const [name, received] = member(seen.json, /recei/) ?? []
        const [question, told] = [seen.at('question_id'), seen.at('proposer')]
        for (const field of ['validated_at', 'selected_at'].filter(
          (one) => !is.there(seen.at(one)),
        ))
          bench.onNote?.(
            `${field} is absent until it is reached, or has another name; §2.6 leaves that open`,
          )
        return {
          'the status does not name the candidate': names(seen.json, id),
          'question_id differs': question === undefined || question === questionId,
          'proposer is not the one that signed': !is.given(told) || told === proposer,
          'outcome is missing, or not the signed one': seen.at('outcome') === outcomeOf(price),
          'price is missing, or not the signed decimal string': seen.at('price') === price,
          'the time of receipt is missing or invalid': is.instant(received),
          [`${name} is not received_at of the acknowledgement`]: sameInstant(
            received,
            first.at('received_at'),
          ),
        }
      },
      'all named',
    ],
    '9-status-version': ['status carries the version', hasVersion],
    '2.6-no-signature': [
      'signatures and executable data are never returned',
      hasNoSecret,
      noSecret,
    ],
  }),
  '4.1.4-mismatched-pair': [
    'a candidate of another question is 404',
    async (bench) => {
      const { id, questionId } = await admitted(bench)
      const other = (await bench.open()).find(({ question_id }) => question_id !== questionId)
      if (other === undefined) throw new NotSeen('another question is required: add --question')
      const seen = await bench.admissions.status(other.question_id, id)
      return seen.with("another question's candidate")
    },
    [404],
  ],
  '4.1.4-status-by-slug': [
    'the identifier of a status may be the slug',
    async (bench) => {
      const { id, pair } = await admitted(bench)
      const { slug } = pair.context
      if (slug === undefined) throw new NotSeen('no slug is pinned for the question')
      return bench.admissions.status(slug, id)
    },
    [200],
  ],
  '1-candidate-uuid': [
    'candidate_id is a hyphenated UUID',
    async (bench) => {
      const { id, questionId } = await admitted(bench)
      const seen = await bench.admissions.status(questionId, id.replaceAll('-', ''))
      return seen.with('the hyphens left out')
    },
    notServed,
  ],
  '2.6-failure': [
    'failure has stage, code, detail, retryable, can_resubmit and next_action',
    ended,
    has(
      {
        ...{ stage: is.word, code: is.word, detail: is.text },
        ...{ retryable: is.flag, can_resubmit: is.flag, next_action: is.word },
      },
      'failure',
    ),
    failureCode,
    5,
  ],
  ...about(batchedStatus, {
    '2.7-batch-status-fields': [
      'a batch status has status, submission and failure',
      has(statusMembers, candidatePath),
      (seen) => ({
        'a result has an error beside its candidate': !is.given(seen.at('results.0.error')),
      }),
    ],
    '2.6-batch-no-signature': [
      'signatures and executable data are never returned, in batches either',
      hasNoSecret,
      noSecret,
    ],
  }),
  '4.2.6-siblings': [
    'an unknown candidate does not fail other look-ups',
    async (bench) =>
      bench.batch('statuses', [bench.ports.random.uuid(), (await admitted(bench)).id]),
    [200],
    async ({ results }, bench) => {
      const { id } = await admitted(bench)
      const found = results.find((one) => at(one, 'candidate_id') === id)
      return {
        'the known candidate was not answered 200 beside an unknown one':
          at(found, 'status_code') === 200,
      }
    },
    '200 beside 404',
    2,
  ],
  '4.2.7-no-next-action': [
    'batch status omits next_action; failure has only code and detail',
    async (bench) => {
      if (is.given((await ended(bench)).at('failure'))) return batchedStatus(bench)
      throw new NotSeen('the candidate did not fail')
    },
    (seen) => {
      const failure = seen.at(`${candidatePath}.failure`)
      const actual = ['stage', 'retryable', 'can_resubmit', 'next_action'].filter((field) =>
        is.there(at(failure, field)),
      )
      return { [`failure has ${actual.join(', ')}`]: actual.length === 0 }
    },
    has({ code: is.word, detail: is.text }, `${candidatePath}.failure`),
    'code and detail',
  ],
})

async function ended(bench: Bench): Promise<Seen> {
  const { id, questionId } = await admitted(bench)
  return bench.admissions.ended(questionId, id)
}
function failureCode(seen: Seen) {
  return String(seen.at('failure.code')).slice(0, 64)
}

export const unknownCandidateRules = rulesOf('read', {
  '4.1.4-unknown-candidate': [
    'an unknown candidate is 404',
    async ({ context, send, ports }) => {
      const { question_id } = await context()
      return send(routes.status(question_id, ports.random.uuid()), 'a random candidate id')
    },
    [404],
  ],
})

const executable: ProbeExchange = async ({ admissions }) => (await admissions.executable()).seen
async function executed({ admissions }: Bench) {
  const { questionId, seen } = await admissions.executable()
  const end = await admissions.ended(questionId, candidateIn(seen))
  if (!is.given(end.at('failure'))) return end
  throw new NotSeen(`the candidate failed: ${failureCode(end)}`)
}

/** A block's time is not the gateway's clock. */
const clockSkewMs = 60_000

export const executionRules = rulesOf('execute', {
  '4.1.3-unprepared': ['no preparation is required before a submission', executable, [202]],
  '2.6-stages': [
    'receipt, validation and selection have their times, in this order',
    executed,
    ({ json }) => {
      const times = [/recei/, /valid/, /select/].map((name) => timeMs(memberOf(json, name)))
      return {
        'an executed candidate lacks a timestamp': times.every(is.there),
        'the times are not in order': times.every(
          (time, index) => index === 0 || Number(time) >= Number(times[index - 1]),
        ),
      }
    },
    'in order',
    8,
  ],
  ...about(executed, {
    '2.6-submission': [
      'submission has status, transaction_hash and three times',
      ({ hasLongHex }) => ({
        'the status holds hex longer than a hash: executable data': !hasLongHex,
      }),
      has({
        'submission.status': is.word,
        'submission.transaction_hash': is.hash,
        failure: is.none,
      }),
      (seen) => {
        const stages = { submission: /^submi/, confirmation: /^confirm/, indexing: /^index/ }
        let before = timeMs(memberOf(seen.json, /select/)) ?? 0
        return Object.fromEntries(
          Object.entries(stages).flatMap(([stage, name]) => {
            const time = timeMs(memberOf(seen.at('submission'), name))
            const isAfter = Number(time) >= before - clockSkewMs
            before = Number(time)
            return [
              [`submission has no time of ${stage}`, time !== undefined],
              [`the time of ${stage} is before that of the stage before it`, isAfter],
            ]
          }),
        )
      },
      (seen) => String(seen.at('submission.transaction_hash')),
    ],
    '6-event-index': [
      'submission.proposal_event_index is a JSON number',
      (seen) => {
        const index = seen.at('submission.proposal_event_index')
        seen.holds({ 'proposal_event_index is not a JSON number': Number.isInteger(index) })
        return String(index)
      },
    ],
  }),
  '2.7-batch-executed': [
    'a batch status of an executed candidate has its submission, and null for failure',
    async (bench) => {
      await executed(bench)
      return bench.batch('statuses', [candidateIn(await executable(bench))])
    },
    [200],
    has({ submission: is.given, failure: is.none }, candidatePath),
    'submission, no failure',
  ],
  '3.2-replay-after-execution': [
    'a replay in the current round returns the existing candidate',
    async (bench) => {
      await executed(bench)
      return bench.admissions.send((await bench.admissions.executable()).authorization)
    },
    [200],
    async (seen, bench) => {
      const first = await executable(bench)
      return {
        'got another candidate': seen.at('candidate_id') === first.at('candidate_id'),
        'received_at differs': sameReceipt(seen, first),
      }
    },
    '200, the same candidate',
  ],
  '4.1.3-request-state': [
    '409: a request state prevents admission',
    async (bench) => {
      const { pair, authorization, questionId } = await bench.admissions.executable()
      await executed(bench)
      // The rival of the conflict check holds the question now, where it ran.
      const holder = (await bench.journal.load())
        .byQuestion(questionId)
        .findLast(({ supersededBy }) => supersededBy === undefined)
      const rival = rivalTo(authorization, holder?.id)
      return bench.admissions.send(await bench.admissions.sign(pair, rival))
    },
    [409],
  ],
})
