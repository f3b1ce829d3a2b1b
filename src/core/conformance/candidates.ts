/**
 * What is admitted, and what is told of a candidate by the single route and in batches. Nothing of
 * it can execute but what is meant to, and, where the gateway breaks the rule of the bond, one raw
 * unit.
 */
import type { Form } from '#client/journal/records'
import type { QuestionContext } from '#client/trust/trust'
import { outcomeOf, priceOf } from '#protocol/proposal'
import {
  candidateIn,
  hasEnded,
  leastRaw,
  otherPrice,
  type ProbeTerms,
  type SentProbe,
} from './admissions.js'
import { type Bench, type Body, chainRound } from './bench.js'
import { changed } from './bodies.js'
import { routes } from './probe.js'
import {
  about,
  acknowledgement,
  answers,
  at,
  came,
  type Expect,
  expectAll,
  expectMembers,
  expectStatus,
  Fault,
  given,
  has,
  hasLongHex,
  hasVersion,
  is,
  malformed,
  member,
  memberOf,
  NotSeen,
  notServed,
  type ProbeExchange,
  type Run,
  resultsIn,
  rulesOf,
  type Seen,
  sameInstant,
  statusMembers,
  timeMs,
  wrongly,
} from './rule.js'

/** The first submission and the candidate that came of it; NotSeen where none did. */
async function admitted(
  bench: Bench,
): Promise<SentProbe & { readonly id: string; readonly questionId: string }> {
  const first = await bench.admissions.first()
  const id = candidateIn(first.seen.json, first.seen.sent)
  return { ...first, id, questionId: first.pair.context.question_id }
}

/** What a form's refusal of one authorization came to: an item's own, or the whole call's. */
function refusalOf(seen: Seen, wrong: string): Seen {
  const json = at(seen.json, 'results.0')
  const status = at(json, 'status_code')
  return wrongly(typeof status === 'number' ? { ...seen, status, json } : seen, wrong)
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
    const seen = refusalOf(await bench.admissions.sendWrong(own, fits), wrong)
    return expectStatus(seen, ...malformed)
  }

/** A minute less than the five that are asked for, so that clocks may differ. */
const soon =
  (form: Form) =>
  (bench: Bench): ProbeTerms => ({ form, deadlineSeconds: bench.nowSeconds() + 240n })
const isSoon = 'a deadline four minutes ahead'

/**
 * One raw unit, whatever the gateway says the bond is. Fault where that is admitted: it can be
 * paid.
 */
const tooLittle =
  (form: Form): ProbeExchange =>
  async (bench) => {
    if (!(await bench.open()).some(isBonded))
      throw new NotSeen('no question has a bond of more than one raw unit')
    const { admissions } = bench
    const { journalId, ...sent } = await admissions.sendWrong(
      { amountRaw: leastRaw, form },
      isBonded,
    )
    const seen = refusalOf(sent, 'an amount of one raw unit, which is below the bond')
    const isAdmitted = seen.status >= 200 && seen.status < 300
    const cancel = `it was admitted and may execute; revoke it with \`proposer revoke ${journalId}\``
    expectAll(seen, { [`got ${came(seen)}: ${cancel}`]: !isAdmitted })
    return seen
  }

type Answered = readonly [ProbeExchange, ...Expect[]]
/**
 * One unit below the bond too, but only where the chain says what the bond is, and a bond may be
 * spent (R21). The contract takes no less than the bond, so that nothing of it executes.
 */
const bondMinimum = (form: Form): Answered => [
  tooLittle(form),
  answers(...malformed),
  async (_json, bench, seen) => {
    const context = (await bench.open()).find(isBonded)
    const round = bench.may.execute && context && (await chainRound(bench, context.question_id))
    if (!round || round.totalBondRaw < 2n) return came(seen)
    const terms = { amountRaw: round.totalBondRaw - 1n, form }
    const sent = await bench.admissions.sendWrong(
      terms,
      ({ question_id }) => question_id === context?.question_id,
    )
    const close = refusalOf(sent, 'an amount of one raw unit below the bond')
    return expectStatus(close, ...malformed)
  },
]

const bondCode = (form: Form): Answered => [
  tooLittle(form),
  (json, _bench, seen) => {
    const code = at(json, 'error.code')
    const isCode = code === 'permit_amount_below_required_bond'
    expectAll(given(seen, ...malformed), { [`got ${came(seen)}`]: isCode })
    return came(seen)
  },
]

/**
 * The path that an acknowledgement of this candidate may give, without its first slash; the spec
 * shows no other.
 */
function isStatusUrl(url: unknown, { pair, id }: { pair: SentProbe['pair']; id: string }): boolean {
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
    refused(soon('single'), isSoon),
  ],
  '2.7-deadline-minimum': [
    "an item's permit.deadline is at least five minutes beyond admission",
    refused(soon('batch'), isSoon),
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
    async ({ admissions }) => {
      const seen = await admissions.sendStrange()
      return expectStatus(wrongly(seen, 'a valid signature of a wallet on no list'), 403)
    },
  ],
  /**
   * Before an execution is waited for: its candidate is the one that stays active. A first payload
   * may fail in validation before its rival comes: then there is nothing to be in conflict with.
   */
  '4.1.3-conflict': [
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
  ],
})

export const submissionRules = rulesOf('admit', {
  '4.1.3-new': [
    '202: a new candidate was durably accepted, whatever was prepared before',
    async ({ admissions }) => (await admissions.first()).seen,
    answers(202),
    3,
  ],
  '2.5-acknowledgement': [
    'an acknowledgement has candidate_id (UUID), status, received_at and status_url',
    async ({ admissions }) => {
      const { seen } = await admissions.first()
      if (seen.status >= 300) throw new NotSeen(`${seen.sent} was answered ${came(seen)}`)
      return seen
    },
    has(acknowledgement),
  ],
  ...about(async (bench) => (await admitted(bench)).seen, {
    '2.5-status-url': [
      'status_url is relative, and the path of the status',
      'a path',
      async (json, bench) => ({
        [wrongUrl]: isStatusUrl(at(json, 'status_url'), await admitted(bench)),
      }),
    ],
    '9-acknowledgement-version': ['an acknowledgement carries the version', hasVersion],
  }),
  '4.1.3-replay': [
    '200: an exact replay in the round returns the existing candidate',
    async (bench) => {
      const first = await admitted(bench)
      const again = await bench.admissions.send(first.authorization)
      const seen = wrongly(again, 'the very same bytes again')
      expectStatus(seen, 200)
      expectMembers(seen, acknowledgement)
      await hasVersion(seen.json, bench, seen)
      const received = at(first.seen.json, 'received_at')
      expectAll(seen, {
        'got another candidate': at(seen.json, 'candidate_id') === first.id,
        [wrongUrl]: isStatusUrl(at(seen.json, 'status_url'), first),
        'received_at differs from the first response': sameInstant(
          at(seen.json, 'received_at'),
          received,
        ),
      })
      return '200, the same candidate'
    },
  ],
  '4.1.3-witness-rebuilt': [
    'the witness is reconstructed from the body, and only the exact payload is a replay',
    async (bench) => {
      const { authorization, questionId } = await admitted(bench)
      const body: Body = JSON.parse(authorization.signed.body)
      for (const [wrong, change] of Object.entries(tampered)) {
        const call = routes.submit(questionId, changed(body, change))
        // Signature or conflict: which is examined first is left open.
        const seen = await bench.probe.send(call, `${wrong} under the signature of the first`)
        expectStatus(seen, 403, 409)
      }
      return '403 or 409'
    },
    4,
  ],
})

const status: ProbeExchange = async (bench) => {
  const { id, questionId } = await admitted(bench)
  return given(await bench.admissions.status(questionId, id), 200)
}

const candidatePath = 'results.0.candidate'
const batchedStatus: ProbeExchange = async (bench) => {
  const { id } = await admitted(bench)
  const seen = given(await bench.probe.send(routes.batch('statuses', [id])), 200)
  const result = at(seen.json, 'results.0')
  const code = at(result, 'status_code')
  const again = at(result, 'candidate.candidate_id')
  expectAll(seen, {
    [`got item ${String(code)}, expected 200`]: code === 200,
    'candidate_id is missing or different': at(result, 'candidate_id') === id,
    'the candidate has another candidate_id': !is.given(again) || again === id,
  })
  return seen
}

const hasNoSecret: Expect = (_json, _bench, seen) => ({
  'the status holds hex longer than a hash: a signature or executable data': !hasLongHex(seen),
})
const noSecret = 'no hex longer than a hash'

const names = (json: unknown, id: string): boolean =>
  json === id || (is.structure(json) && Object.values(json).some((value) => names(value, id)))

export const statusRules = rulesOf('admit', {
  ...about(status, {
    '2.6-status-fields': [
      'status has identity, outcome, price, times, status, submission and failure',
      has(statusMembers),
      async (json, bench) => {
        const { id, questionId, authorization, seen: first } = await admitted(bench)
        const { price, proposer } = authorization.signed.terms
        const [name, received] = member(json, /recei/) ?? []
        const [question, told] = [at(json, 'question_id'), at(json, 'proposer')]
        for (const field of ['validated_at', 'selected_at'].filter(
          (one) => !is.there(at(json, one)),
        ))
          bench.onNote?.(
            `${field} is absent until it is reached, or has another name; §2.6 leaves that open`,
          )
        return {
          'the status does not name the candidate': names(json, id),
          'question_id differs': question === undefined || question === questionId,
          'proposer is not the one that signed': !is.given(told) || told === proposer,
          'outcome is missing, or not the signed one': at(json, 'outcome') === outcomeOf(price),
          'price is missing, or not the signed decimal string': at(json, 'price') === price,
          'the time of receipt is missing or invalid': is.instant(received),
          [`${name} is not received_at of the acknowledgement`]: sameInstant(
            received,
            at(first.json, 'received_at'),
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
      return expectStatus(wrongly(seen, "another question's candidate"), 404)
    },
  ],
  '4.1.4-status-by-slug': [
    'the identifier of a status may be the slug',
    async (bench) => {
      const { id, pair } = await admitted(bench)
      const { slug } = pair.context
      if (slug === undefined) throw new NotSeen('no slug is pinned for the question')
      return expectStatus(await bench.admissions.status(slug, id), 200)
    },
  ],
  '1-candidate-uuid': [
    'candidate_id is a hyphenated UUID',
    async (bench) => {
      const { id, questionId } = await admitted(bench)
      const seen = await bench.admissions.status(questionId, id.replaceAll('-', ''))
      return expectStatus(wrongly(seen, 'the hyphens left out'), ...notServed)
    },
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
      (json) => ({
        'a result has an error beside its candidate': !is.given(at(json, 'results.0.error')),
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
    async (bench) => {
      const { id } = await admitted(bench)
      const call = routes.batch('statuses', [bench.ports.random.uuid(), id])
      const seen = await bench.probe.send(call)
      expectStatus(seen, 200)
      const found = resultsIn(seen.json).find((one) => at(one, 'candidate_id') === id)
      expectAll(seen, {
        'the known candidate was not answered 200 beside an unknown one':
          at(found, 'status_code') === 200,
      })
      return '200 beside 404'
    },
    2,
  ],
  '4.2.7-no-next-action': [
    'batch status omits next_action; failure has only code and detail',
    async (bench) => {
      if (!is.given(at((await ended(bench)).json, 'failure')))
        throw new NotSeen('the candidate did not fail')
      const seen = await batchedStatus(bench)
      const failure = at(seen.json, `${candidatePath}.failure`)
      const actual = ['stage', 'retryable', 'can_resubmit', 'next_action'].filter((field) =>
        is.there(at(failure, field)),
      )
      expectAll(seen, { [`failure has ${actual.join(', ')}`]: actual.length === 0 })
      expectMembers(seen, { code: is.word, detail: is.text }, failure)
      return 'code and detail'
    },
  ],
})

async function ended(bench: Bench): Promise<Seen> {
  const { id, questionId } = await admitted(bench)
  return bench.admissions.ended(questionId, id)
}
function failureCode(json: unknown): string {
  return String(at(json, 'failure.code')).slice(0, 64)
}

export const unknownCandidateRules = rulesOf('read', {
  '4.1.4-unknown-candidate': [
    'an unknown candidate is 404',
    async ({ context, probe, ports }) => {
      const { question_id } = await context()
      const call = routes.status(question_id, ports.random.uuid())
      return probe.send(call, 'a random candidate id')
    },
    answers(404),
  ],
})

const executable: ProbeExchange = async ({ admissions }) => (await admissions.executable()).seen
async function executed({ admissions }: Bench): Promise<Seen> {
  const { pair, seen } = await admissions.executable()
  const id = candidateIn(seen.json, seen.sent)
  const end = await admissions.ended(pair.context.question_id, id)
  if (!is.given(at(end.json, 'failure'))) return end
  throw new NotSeen(`the candidate failed: ${failureCode(end.json)}`)
}

/** A block's time is not the gateway's clock. */
const clockSkewMs = 60_000

export const executionRules = rulesOf('execute', {
  '4.1.3-unprepared': ['no preparation is required before a submission', executable, answers(202)],
  '2.6-stages': [
    'receipt, validation and selection have their times, in this order',

    executed,
    (json) => {
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
      (_json, _bench, seen) => ({
        'the status holds hex longer than a hash: executable data': !hasLongHex(seen),
      }),
      has({ 'submission.status': is.word, 'submission.transaction_hash': is.hash }),
      has({ failure: is.none }),
      (json) => {
        const stages = { submission: /^submi/, confirmation: /^confirm/, indexing: /^index/ }
        let before = timeMs(memberOf(json, /select/)) ?? 0
        return Object.fromEntries(
          Object.entries(stages).flatMap(([stage, name]) => {
            const time = timeMs(memberOf(at(json, 'submission'), name))
            const isAfter = Number(time) >= before - clockSkewMs
            before = Number(time)
            return [
              [`submission has no time of ${stage}`, time !== undefined],
              [`the time of ${stage} is before that of the stage before it`, isAfter],
            ]
          }),
        )
      },
      (json) => String(at(json, 'submission.transaction_hash')),
    ],
    '6-event-index': [
      'submission.proposal_event_index is a JSON number',
      (json) => ({
        'proposal_event_index is not a JSON number': Number.isInteger(
          at(json, 'submission.proposal_event_index'),
        ),
      }),
      (json) => String(at(json, 'submission.proposal_event_index')),
    ],
  }),
  '2.7-batch-executed': [
    'a batch status of an executed candidate has its submission, and null for failure',
    async (bench) => {
      await executed(bench)
      const { json, sent } = await executable(bench)
      const seen = await bench.probe.send(routes.batch('statuses', [candidateIn(json, sent)]))
      expectStatus(seen, 200)
      const members = { submission: is.given, failure: is.none }
      expectMembers(seen, members, at(seen.json, candidatePath))
      return 'submission, no failure'
    },
  ],
  '3.2-replay-after-execution': [
    'a replay in the current round returns the existing candidate',
    async (bench) => {
      const { authorization, seen: first } = await bench.admissions.executable()
      await executed(bench)
      const seen = await bench.admissions.send(authorization)
      expectStatus(seen, 200)
      const [id, then] = [at(first.json, 'candidate_id'), at(first.json, 'received_at')]
      expectAll(seen, {
        'got another candidate': at(seen.json, 'candidate_id') === id,
        'received_at differs': sameInstant(at(seen.json, 'received_at'), then),
      })
      return '200, the same candidate'
    },
  ],
  '4.1.3-request-state': [
    '409: a request state prevents admission',
    async (bench) => {
      const { pair, authorization } = await bench.admissions.executable()
      await executed(bench)
      const view = await bench.journal.load()
      // The rival of the conflict check holds the question now, where it ran.
      const holder =
        view
          .byQuestion(pair.context.question_id)
          .findLast(({ supersededBy }) => supersededBy === undefined) ?? authorization
      const changes = { price: otherPrice(authorization), supersede: holder.id }
      const seen = await bench.admissions.send(await bench.admissions.sign(pair, changes))
      return expectStatus(seen, 409)
    },
  ],
})
