import type { Form } from '#client/journal/records'
import type { QuestionContext } from '#client/trust/trust'
import { outcomeOf, priceOf } from '#protocol/proposal'
import {
  acknowledgement,
  type Expected,
  is,
  malformed,
  notSeen,
  notServed,
  replayOf,
  sameInstant,
  statusMembers,
  timeMs,
} from './answer.js'
import {
  allows,
  type Bench,
  candidateIn,
  chainRound,
  changed,
  hasEnded,
  leastRaw,
  rivalTo,
  slugOf,
} from './bench.js'
import { routes } from './probe.js'
import { about, type Row, rulesOf, type Step } from './rule.js'

const isBonded = ({ bond }: QuestionContext) => BigInt(bond.required_bond) > leastRaw
const lacksHalf = (context: QuestionContext) => !allows(context, 'p3')

const wrongly =
  (...given: Parameters<Bench['sendWrong']>): Step =>
  ({ sendWrong }) =>
    sendWrong(...given)

/** A minute less than the five that are asked for, so that clocks may differ. */
const soon = (form: Form) => wrongly({ form, lifeSeconds: 240 }, 'a deadline four minutes ahead')

const tooLittle = (form: Form) =>
  wrongly({ amountRaw: leastRaw, form }, 'an amount of one raw unit', isBonded)

/**
 * One unit below the bond too, where the chain says what the bond is, and it may be spent (R21).
 * The contract takes no less, so that nothing of it executes.
 */
const bondMinimum = (form: Form): Row => [
  `permit.amount is at least the current total bond (${form} form)`,
  tooLittle(form),
  malformed,
  async (bench) => {
    const context = bench.open().find(isBonded)
    const round = bench.may.execute && context && (await chainRound(bench, context))
    if (!round || round.totalBondRaw < 2n) return true
    const terms = { amountRaw: round.totalBondRaw - 1n, form }
    return bench.sendWrong(terms, 'one raw unit less than the bond', (one) => one === context)
  },
  malformed,
]

const bondCode = (form: Form): Row => [
  `the code for an amount below the bond is permit_amount_below_required_bond (${form} form)`,
  tooLittle(form),
  ({ seen }) => void seen.given(...malformed),
  { 'error.code': 'permit_amount_below_required_bond' },
]

const withId = (one: Awaited<ReturnType<Bench['firstAdmitted']>>) => {
  return { ...one, id: candidateIn(one.ack) }
}
type Admitted = ReturnType<typeof withId>
const admitted = async ({ firstAdmitted }: Bench) => withId(await firstAdmitted())

/** With or without its first slash. */
const hasStatusUrl = ({ pair, id }: Admitted): Expected => ({
  status_url(url: unknown) {
    if (!is.text(url) || /^[a-z][a-z0-9+.-]*:|^\/\//i.test(url)) return false
    const { question_id, slug = question_id } = pair.context
    return [question_id, slug].some((identifier) => {
      const { path } = routes.status(identifier, id)
      // Below a base URL with a path, or relative to it.
      return url.endsWith(path) || (url.length > id.length && path.endsWith(`/${url}`))
    })
  },
})

const plus = (more: bigint) => (text: string) => String(BigInt(text) + more)
const tampered = {
  'another outcome': { outcome: (outcome: string) => (outcome === 'p1' ? 'p2' : 'p1') },
  'another amount': { permit: { amount: plus(1n) } },
  'another nonce': { permit: { nonce: (text: string) => String(BigInt(text) ^ 1n) } },
  'a later deadline': { permit: { deadline: plus(60n) } },
}

const refusalRules = rulesOf('admit', {
  '2.1-bond-minimum': bondMinimum('single'),
  '7-bond-code': bondCode('single'),
  '2.7-bond-minimum': bondMinimum('batch'),
  '7-batch-bond-code': bondCode('batch'),
  '2.1-deadline-minimum': [
    'permit.deadline is at least five minutes beyond admission',
    soon('single'),
    malformed,
  ],
  '2.7-deadline-minimum': [
    "an item's permit.deadline is at least five minutes beyond admission",
    soon('batch'),
    malformed,
  ],
  '2.1-outcome-allowed': [
    'outcome must be allowed for this request',
    wrongly({ price: priceOf.p3 }, 'p3, which is not allowed', lacksHalf),
    malformed,
  ],
  '2.2-price-allowed': [
    'an item has a price that the request allows',
    wrongly({ price: priceOf.p3, form: 'batch' }, '0.5, which is not allowed', lacksHalf),
    malformed,
  ],
  '2.2-binary-only': [
    'winner-index submissions are not supported',
    wrongly({ price: '1', form: 'batch' }, 'the index of a winner as price'),
    malformed,
  ],
  '5-stranger': [
    'an ineligible wallet gives 403, whatever it signs',
    async ({ strangerWallet, context, propose, sign }) => {
      const wallet = strangerWallet ?? notSeen('no key of a wallet outside the allowlist was given')
      return propose([await sign({ wallet, context: context() })])
    },
    [403],
  ],
  // Before an execution is waited for, whose candidate stays active; another may fail before its
  // rival comes, and then there is nothing to be in conflict with.
  '4.1.3-conflict': [
    '409: a conflicting active payload prevents admission',
    async ({ executable, firstAdmitted, may, propose, sign, send }) => {
      const first = withId(await (may.execute ? executable() : firstAdmitted()))
      const rival = await sign(first.pair, rivalTo(first.authorization))
      // Active again, where it had failed (§7 rule 2).
      if (!may.execute) await propose([first.authorization])
      const second = await propose([rival])
      const status = routes.status(first.questionId, first.id)
      if (second.status !== 409 && hasEnded(await send(status)))
        notSeen(
          'the first payload failed before its rival was sent; use --allow-execution for one that does not fail',
        )
      return second.with('another signed price and nonce')
    },
    [409],
  ],
})

const submissionRules = rulesOf('admit', {
  '4.1.3-new': [
    '202: a new candidate was durably accepted, whatever was prepared before',
    ({ firstAdmitted }) => firstAdmitted(),
    [202],
    3,
  ],
  '2.5-acknowledgement': [
    'an acknowledgement has candidate_id (UUID), status, received_at and status_url',
    ({ firstAdmitted }) => firstAdmitted(),
    ({ seen }) => void seen.given(200, 202),
    acknowledgement,
  ],
  ...about(admitted, {
    '2.5-status-url': ['status_url is relative, and the path of the status', hasStatusUrl],
    '9-acknowledgement-version': [
      'an acknowledgement carries the version',
      { version: is.version },
    ],
    '4.1.3-replay': [
      '200: an exact replay in the round returns the existing candidate',
      async ({ propose, authorization }) =>
        (await propose([authorization])).with('the very same bytes again'),
      [200],
      { ...acknowledgement, version: is.version },
      replayOf,
      hasStatusUrl,
    ],
    '4.1.3-witness-rebuilt': [
      'the witness is reconstructed from the body, and only the exact payload is a replay',
      ({ authorization, questionId }) =>
        Object.entries(tampered).map(([name, change]) => {
          const body = changed(JSON.parse(authorization.signed.body), change)
          return routes.submit(questionId, body, `${name} under the signature of the first`)
        }),
      // Signature or conflict: which is examined first is left open.
      [403, 409],
      4,
    ],
  }),
})

const status = async (bench: Bench) => {
  const first = await admitted(bench)
  const seen = await bench.send(routes.status(first.questionId, first.id))
  return { ...first, seen: seen.given(200) }
}

const batchedStatus = async (bench: Bench) => {
  const { id } = await admitted(bench)
  const whole = (await bench.send(routes.batch('statuses', [id]))).given(200)
  whole.must({ 'results.0.status_code': 200, 'results.0.candidate_id': id })
  const seen = whole.in('results.0.candidate')
  const again = seen.at('candidate_id')
  seen.must(is.absent(again) || again === id)
  return { whole, seen }
}

/** No hex longer than a hash: a signature, or a transaction that could be sent (§2.6). */
const hasNoSecret: Step = ({ seen }) => !/[0-9a-f]{65,}/i.test(seen.text)

const ended = async ({ firstAdmitted }: Bench) => (await firstAdmitted()).ended()

const statusRules = rulesOf('admit', {
  ...about(status, {
    '2.6-status-fields': [
      'status has identity, outcome, price, times, status, submission and failure',
      statusMembers,
      ({ seen, id, questionId, authorization, ack, onNote }) => {
        const { price, proposer } = authorization.signed.terms
        for (const field of ['validated_at', 'selected_at'])
          if (!is.there(seen.at(field)))
            onNote?.(`${field} is absent until then, or has another name; §2.6 leaves that open`)
        seen.must(JSON.stringify(seen.json).includes(`"${id}"`))
        return {
          question_id: (told: unknown) => told === undefined || told === questionId,
          proposer: (told: unknown) => is.absent(told) || told === proposer,
          ...{ outcome: outcomeOf(price), price },
          '~recei': sameInstant(ack.at('received_at')),
        }
      },
    ],
    '9-status-version': ['status carries the version', { version: is.version }],
    '2.6-no-signature': ['signatures and executable data are never returned', hasNoSecret],
  }),
  ...about(admitted, {
    '4.1.4-mismatched-pair': [
      'a candidate of another question is 404',
      ({ id, open, questionId }) => {
        const other =
          open().find(({ question_id }) => question_id !== questionId) ??
          notSeen('another question is required: add --question')
        return routes.status(other.question_id, id)
      },
      [404],
    ],
    '4.1.4-status-by-slug': [
      'the identifier of a status may be the slug',
      ({ id, pair }) => routes.status(slugOf(pair.context), id),
      [200],
    ],
    '1-candidate-uuid': [
      'candidate_id is a hyphenated UUID',
      ({ id, questionId }) => routes.status(questionId, id.replaceAll('-', '')),
      notServed,
    ],
  }),
  '2.6-failure': [
    'failure has stage, code, detail, retryable, can_resubmit and next_action',
    ended,
    ({ seen }) => seen.in('failure'),
    { 'stage code next_action': is.word, detail: is.text, 'retryable can_resubmit': is.flag },
    5,
  ],
  ...about(batchedStatus, {
    '2.7-batch-status-fields': [
      'a batch status has status, submission and failure',
      statusMembers,
      ({ whole }) => is.absent(whole.at('results.0.error')),
    ],
    '2.6-batch-no-signature': [
      'signatures and executable data are never returned, in batches either',
      hasNoSecret,
    ],
  }),
  ...about(admitted, {
    '4.2.6-siblings': [
      'an unknown candidate does not fail other look-ups',
      ({ ports, id }) => routes.batch('statuses', [ports.random.uuid(), id]),
      [200],
      ({ id }) => ({ 'results.1.candidate_id': id, 'results.1.status_code': 200 }),
      2,
    ],
  }),
  '4.2.7-no-next-action': [
    'batch status omits next_action; failure has only code and detail',
    async (bench) => {
      if (is.given((await ended(bench)).at('failure'))) return batchedStatus(bench)
      notSeen('the candidate did not fail')
    },
    ({ seen }) => seen.in('failure'),
    { 'stage retryable can_resubmit next_action': undefined, code: is.word, detail: is.text },
  ],
})

const executed = async ({ executable }: Bench) => {
  const first = withId(await executable())
  const seen = await first.ended()
  if (is.given(seen.at('failure')))
    notSeen(`the candidate failed: ${String(seen.at('failure.code')).slice(0, 64)}`)
  return { ...first, seen }
}

/** A block's time is not the gateway's clock. */
const clockSkewMs = 60_000
const inOrder = (times: readonly unknown[], slackMs = 0) =>
  times.every((time, index) => timeMs(time) >= timeMs(times[index - 1] ?? 0) - slackMs)

const executionRules = rulesOf('execute', {
  '4.1.3-unprepared': [
    'no preparation is required before a submission',
    ({ executable }) => executable(),
    [202],
  ],
  ...about(executed, {
    '2.6-stages': [
      'receipt, validation and selection have their times, in this order',
      ({ seen }) => inOrder(['~recei', '~valid', '~select'].map((name) => seen.at(name))),
      8,
    ],
    '2.6-submission': [
      'submission has status, transaction_hash and three times',
      hasNoSecret,
      { 'submission.status': is.word, 'submission.transaction_hash': is.hash, failure: null },
      ({ seen }) => {
        const times = ['submi', 'confi', 'index'].map((name) => seen.at(`submission.~^${name}`))
        return inOrder([seen.at('~select') ?? 0, ...times], clockSkewMs)
      },
    ],
    '6-event-index': [
      'submission.proposal_event_index is a JSON number',
      { 'submission.proposal_event_index': Number.isInteger },
    ],
    '2.7-batch-executed': [
      'a batch status of an executed candidate has its submission, and null for failure',
      ({ id }) => routes.batch('statuses', [id]),
      [200],
      { 'results.0.candidate.submission': is.given, 'results.0.candidate.failure': null },
    ],
    '3.2-replay-after-execution': [
      'a replay in the current round returns the existing candidate',
      ({ propose, authorization }) => propose([authorization]),
      [200],
      replayOf,
    ],
    '4.1.3-request-state': [
      '409: a request state prevents admission',
      async ({ propose, sign, journal, pair, authorization, questionId }) => {
        // Maybe the rival of the conflict check.
        const holder = (await journal.load())
          .byQuestion(questionId)
          .findLast(({ supersededBy }) => supersededBy === undefined)
        const rival = rivalTo(authorization, holder?.id)
        return propose([await sign(pair, rival)])
      },
      [409],
    ],
  }),
})

/** An execution's wallet could not hold the amounts of other admissions beside its own. */
export const candidateRules = [
  ...refusalRules,
  ...executionRules,
  ...submissionRules,
  ...rulesOf('read', {
    '4.1.4-unknown-candidate': [
      'an unknown candidate is 404',
      ({ context, ports }) => routes.status(context().question_id, ports.random.uuid()),
      [404],
    ],
  }),
  ...statusRules,
]
