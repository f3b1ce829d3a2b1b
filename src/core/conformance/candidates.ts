import type { Form, JournaledAuthorization } from '#client/journal/authorizations'
import { checkTerms } from '#client/propose/intent'
import { confirmByChain, nowOf } from '#client/trust/context'
import { checkOutcome, type QuestionContext } from '#client/trust/trust'
import { outcomeOf, priceOf } from '#protocol/proposal'
import {
  about,
  allows,
  type Bench,
  chainRound,
  changed,
  given,
  leastRaw,
  noPair,
  onceARun,
  outcomeFor,
  type Pair,
  type Part,
  type ProbeTerms,
  type Row,
  rivalTo,
  rulesOf,
  type Step,
  slugOf,
} from './bench.js'
import {
  absentOr,
  batchOf,
  is,
  malformed,
  notSeen,
  notServed,
  type Seen,
  sameInstant,
  statusOf,
  timeMs,
} from './probe.js'

export const acknowledgement = {
  candidate_id: is.uuid,
  status: is.word,
  received_at: is.instant,
  status_url: is.there,
}

export const replayOf = ({ ack }: { ack: Seen }) => ({
  candidate_id: ack.candidate,
  received_at: sameInstant(ack.at('received_at')),
})

/** At any time (§2.6, §2.7). */
const statusMembers = { status: is.word, 'submission failure': is.nullable }

/** In our words, or by what only an end has (§2.6). */
export const hasEnded = (status: Seen) =>
  ['executed', 'failed'].includes(String(status.at('status'))) ||
  is.structure(status.at('failure')) ||
  is.given(status.at('submission.proposal_event_index'))

/** To be refused, item or call, which frees the question. */
const wrongly =
  (terms: ProbeTerms, wrong: string, fits?: (one: QuestionContext) => boolean) =>
  async ({ pairs, sign, propose }: Bench) => {
    const [pair = noPair()] = await pairs(fits)
    const signed = await sign(pair, terms)
    const whole = (await propose([signed])).with(wrong)
    const [status = whole.status] = whole.codes.filter((one) => typeof one === 'number')
    const seen = whole.as({ status, json: whole.at('results.0') ?? whole.json })
    if (terms.amountRaw === undefined || status >= 300) return seen
    throw seen.fault(`: admitted, it may execute; revoke it with \`proposer revoke ${signed.id}\``)
  }

async function submitted(bench: Bench, pair: Pair, authorization: JournaledAuthorization) {
  const seen = await bench.propose([authorization])
  if (seen.at('error.code') === 'proposer_not_eligible')
    notSeen(`${pair.wallet.address} is not eligible here`)
  return { authorization, pair, seen, ack: seen, questionId: pair.context.question_id }
}
type Admitted = Awaited<ReturnType<typeof submitted>>

/** Prepared before with its nonce, for each outcome: that reserves nothing (§4.1 rule 2). */
const first = onceARun(async (bench) => {
  const [pair = noPair()] = await bench.pairs()
  const authorization = await bench.sign(pair)
  const body = JSON.parse(authorization.signed.body)
  for (const outcome of ['p1', 'p2']) {
    const other = () => ({ ...body, signature: undefined, outcome })
    await bench.send(bench.prepare(other, undefined, pair.context.question_id))
  }
  return submitted(bench, pair, authorization)
})
const admitted: readonly [typeof first, Step<Admitted>] = [first, ({ ack }) => void ack.candidate]

const executable = onceARun(async (bench) => {
  const { chain, trust, maxAmountRaw, closed } = bench
  const pair = (await bench.pairs()).at(-1) ?? noPair()
  const { wallet, context } = pair
  if (chain) await confirmByChain(chain, trust, context)
  const read = { ...context, source: chain ? 'chain' : 'gateway' } as const
  const { amountRaw } = checkTerms({ maxAmountRaw }, read, await nowOf(bench))
  const outcome = outcomeFor(context)
  const { label } = checkOutcome(trust, context, outcome)
  const bet = { context, proposer: wallet.address, outcome, label, amountRaw }
  await bench.confirmBet?.({ ...bet, bondIsConfirmed: chain !== undefined })
  closed.add(context.question_id)
  return submitted(bench, pair, await bench.sign(pair, { amountRaw }))
})

const statusCall = ({ questionId, ack }: Admitted) => statusOf(questionId, ack.candidate)

const untilEnded = (from: typeof first) =>
  onceARun(async (bench) => {
    const candidate = await from(bench)
    const { clock } = bench.ports
    const untilMs = clock.monotonicMs() + 90_000
    for (;;) {
      const seen = (await bench.send(statusCall(candidate))).given(200)
      if (hasEnded(seen)) return { ...candidate, seen }
      if (!is.word(seen.at('status'))) notSeen(`${seen.sent} gave no status`)
      if (clock.monotonicMs() > untilMs) notSeen('the candidate did not end in 90 s')
      await clock.sleep(2_000, bench.signal)
    }
  })

const isBonded = ({ bond }: QuestionContext) => BigInt(bond.required_bond) > leastRaw
const lacksHalf = (context: QuestionContext) => !allows(context, 'p3')

/** Of five asked for: clocks may differ by a minute. */
const soon = (form: Form) => wrongly({ form, lifeSeconds: 240 }, 'a deadline four minutes ahead')

const tooLittle = (form: Form) =>
  wrongly({ amountRaw: leastRaw, form }, 'an amount of one raw unit', isBonded)

/** Also one unit below the bond of the chain (R21): the contract takes no less. */
const bondMinimum = (form: Form): Row => [
  tooLittle(form),
  malformed,
  async (bench) => {
    const context = bench.open().find(isBonded)
    const round = bench.may.execute && context && (await chainRound(bench, context))
    if (!round || round.totalBondRaw < 2n) return true
    const terms = { amountRaw: round.totalBondRaw - 1n, form }
    return wrongly(terms, 'one raw unit less than the bond', (one) => one === context)(bench)
  },
  malformed,
]
const bondCode = (form: Form): Row => [
  tooLittle(form),
  ({ seen }) => void seen.given(...malformed),
  { 'error.code': 'permit_amount_below_required_bond' },
]

/** Its first slash may be missing. */
const hasStatusUrl = ({ pair, ack }: Admitted) => ({
  status_url(url: unknown) {
    if (!is.text(url) || /^[a-z][a-z0-9+.-]*:|^\/\//i.test(url)) return false
    const { question_id, slug = question_id } = pair.context
    return [question_id, slug].some((identifier) => {
      const { path } = statusOf(identifier, ack.candidate)
      // Below a base URL with a path, or relative to it.
      return url.endsWith(path) || (url.includes('/') && path.endsWith(`/${url}`))
    })
  },
})

const plus = (more: bigint) => (text: string) => String(BigInt(text) + more)
const tampered = {
  'another outcome': { outcome: (outcome: string) => (outcome === 'p1' ? 'p2' : 'p1') },
  'another amount': { permit: { amount: plus(1n) } },
  'another nonce': { permit: { nonce: plus(1n) } },
  'a later deadline': { permit: { deadline: plus(60n) } },
}

const refusalRules = rulesOf('admit', {
  '2.1-bond-minimum: permit.amount is at least the total bond': bondMinimum('single'),
  '7-bond-code: less than the bond is permit_amount_below_required_bond': bondCode('single'),
  '2.7-bond-minimum: permit.amount is at least the total bond': bondMinimum('batch'),
  '7-batch-bond-code: less than the bond is permit_amount_below_required_bond': bondCode('batch'),
  '2.1-deadline-minimum: deadline is five minutes ahead or more': [soon('single'), malformed],
  '2.7-deadline-minimum: deadline is five minutes ahead or more': [soon('batch'), malformed],
  '2.1-outcome-allowed: outcome is allowed for this request': [
    wrongly({ price: priceOf.p3 }, 'p3, which is not allowed', lacksHalf),
    malformed,
  ],
  '2.2-price-allowed: proposed_price is allowed for this request': [
    wrongly({ price: priceOf.p3, form: 'batch' }, '0.5, which is not allowed', lacksHalf),
    malformed,
  ],
  '2.2-binary-only: the index of a winner is no price': [
    wrongly({ price: '1', form: 'batch' }, 'the index of a winner as price'),
    malformed,
  ],
  '5-stranger: an ineligible wallet is 403, though it signs': [
    async ({ strangerWallet, context, propose, sign }) => {
      const wallet = strangerWallet ?? notSeen('no key of a wallet outside the allowlist was given')
      return propose([await sign({ wallet, context: context() })])
    },
    [403],
  ],
  // Before the execution is awaited. Another may fail before its rival comes.
  '4.1.3-conflict: a payload in conflict with an active one is 409': [
    async (bench) => {
      const { may, propose, sign } = bench
      const held = await (may.execute ? executable : first)(bench)
      const status = statusCall(held)
      const rival = await sign(held.pair, rivalTo(held.authorization))
      // Active again, where it had failed (§7 rule 2).
      if (!may.execute) await propose([held.authorization])
      const second = await propose([rival])
      if (second.status !== 409 && hasEnded(await bench.send(status)))
        notSeen('the first payload failed before its rival came: add --allow-execution')
      return second.with('another signed price and nonce')
    },
    [409],
  ],
})

const submissionRules = rulesOf('admit', {
  '4.1.3-new: a new candidate is 202, whatever was prepared': [first, [202], 3],
  '2.5-acknowledgement: it has candidate_id (UUID), status, received_at, status_url': [
    first,
    ({ seen }) => void seen.given(200, 202),
    acknowledgement,
  ],
  ...about(admitted, {
    '2.5-status-url: status_url is the relative path of the status': hasStatusUrl,
    '9-acknowledgement-version §2.5: an acknowledgement has the version': { version: is.version },
    '4.1.3-replay: an exact replay is 200, with the existing candidate': [
      async ({ propose, authorization }) =>
        (await propose([authorization])).with('the very same bytes again'),
      [200],
      { ...acknowledgement, version: is.version },
      replayOf,
      hasStatusUrl,
    ],
    '4.1.3-witness-rebuilt: the witness is rebuilt, only the exact payload a replay': [
      ({ authorization, questionId, submit }) =>
        Object.entries(tampered).map(([name, change]) => {
          const body = () => changed(JSON.parse(authorization.signed.body), change)
          return submit(body, `${name} under the signature of the first`, questionId)
        }),
      // Signature or conflict: either may be examined first.
      [403, 409],
      4,
    ],
  }),
})

const batchedStatus: readonly Part<Admitted>[] = [
  ({ ack }) => batchOf('statuses', [ack.candidate]),
  given,
  'results.0',
  ({ ack: { candidate } }) => ({
    candidate_id: candidate,
    'candidate.candidate_id': absentOr(candidate),
    status_code: 200,
  }),
]

/** No signature and no transaction: hex longer than a hash (§2.6). */
const hasNoSecret: Step = ({ seen }) => !/[0-9a-f]{65,}/i.test(seen.text)

const ended = untilEnded(first)

const statusRules = rulesOf('admit', {
  ...about([...admitted, statusCall, given], {
    '2.6-status-fields: status has identity, outcome, price, times, submission, failure': [
      statusMembers,
      ({ seen, ack }) => JSON.stringify(seen.json).includes(`"${ack.candidate}"`),
      ({ seen, questionId, authorization, ack, onNote }) => {
        const { price, proposer } = authorization.signed.terms
        for (const field of ['validated_at', 'selected_at'])
          if (seen.at(field) === undefined)
            onNote?.(`${field} is absent until then, or has another name; §2.6 leaves that open`)
        return {
          question_id: (told: unknown) => told === undefined || told === questionId,
          proposer: absentOr(proposer),
          ...{ outcome: outcomeOf(price), price },
          '~recei': sameInstant(ack.at('received_at')),
        }
      },
    ],
    '9-status-version: status carries the version': { version: is.version },
    '2.6-no-signature: status has no signature or executable data': hasNoSecret,
  }),
  ...about(admitted, {
    '4.1.4-mismatched-pair: a candidate of another question is 404': [
      ({ ack, usable, questionId }) => {
        const other =
          usable.find(({ question_id }) => question_id !== questionId) ??
          notSeen('another question is required: add --question')
        return statusOf(other.question_id, ack.candidate)
      },
      [404],
    ],
    '4.1.4-status-by-slug: a status is found by the slug too': [
      ({ ack, pair }) => statusOf(slugOf(pair.context), ack.candidate),
      [200],
    ],
    '1-candidate-uuid: candidate_id is a hyphenated UUID': [
      ({ ack, questionId }) => statusOf(questionId, ack.candidate.replaceAll('-', '')),
      notServed,
    ],
    '4.2.6-siblings: an unknown candidate fails no other look-up': [
      ({ newId, ack }) => batchOf('statuses', [newId(), ack.candidate]),
      [200],
      ({ ack }) => ({ 'results.1.candidate_id': ack.candidate, 'results.1.status_code': 200 }),
      2,
    ],
  }),
  '2.6-failure: failure has stage, code, detail, retryable, can_resubmit, next_action': [
    ended,
    'failure',
    { 'stage code next_action': is.word, detail: is.text, 'retryable can_resubmit': is.flag },
    5,
  ],
  ...about([...admitted, ...batchedStatus], {
    '2.7-batch-status-fields: a batch status has status, submission and failure': [
      { error: is.absent },
      'candidate',
      statusMembers,
    ],
    '2.6-batch-no-signature: a batch status has no signature either': hasNoSecret,
  }),
  ...about([ended], {
    '4.2.7-no-next-action: in a batch, failure has only code and detail': [
      ({ seen }) => void (is.given(seen.at('failure')) || notSeen('the candidate did not fail')),
      ...batchedStatus,
      'candidate.failure',
      { 'stage retryable can_resubmit next_action': undefined, code: is.word, detail: is.text },
    ],
  }),
})

const succeeded: Step = ({ seen }) => {
  if (is.given(seen.at('failure')))
    notSeen(`the candidate failed: ${String(seen.at('failure.code')).slice(0, 64)}`)
}

const inOrder = (times: readonly unknown[], slackMs = 0) =>
  times.every((time, index) => timeMs(time) >= timeMs(times[index - 1] ?? 0) - slackMs)

const ofExecution = about([untilEnded(executable), succeeded], {
  '2.6-stages: receipt, validation and selection have times in order': [
    ({ seen }) => inOrder(['~recei', '~valid', '~select'].map((name) => seen.at(name))),
    8,
  ],
  '2.6-submission: submission has status, transaction_hash and three times': [
    hasNoSecret,
    { 'submission.status': is.word, 'submission.transaction_hash': is.hash, failure: null },
    ({ seen }) => {
      const times = ['submi', 'confi', 'index'].map((name) => seen.at(`submission.~^${name}`))
      // Blocks have another clock than the gateway.
      return inOrder([seen.at('~select') ?? 0, ...times], 60_000)
    },
  ],
  '6-event-index: submission.proposal_event_index is a JSON number': {
    'submission.proposal_event_index': is.index,
  },
  '2.7-batch-executed: executed, a batch status has submission, failure null': [
    ({ ack }) => batchOf('statuses', [ack.candidate]),
    [200],
    'results.0.candidate',
    { submission: is.given, failure: null },
  ],
  '3.2-replay-after-execution: executed, a replay is 200 with the candidate': [
    ({ propose, authorization }) => propose([authorization]),
    [200],
    replayOf,
  ],
  '4.1.3-request-state: after execution another payload is 409': [
    async ({ propose, sign, journal, pair, authorization, questionId }) => {
      const all = (await journal.load()).byQuestion(questionId)
      // Maybe the conflict check's rival.
      const holder = all.findLast(({ supersededBy }) => supersededBy === undefined)
      return propose([await sign(pair, rivalTo(authorization, holder?.id))])
    },
    [409],
  ],
})

const executionRules = rulesOf('execute', {
  '4.1.3-unprepared §1: a submission needs no preparation': [executable, [202]],
  ...ofExecution,
})

/** Executions first: their wallet could not hold other amounts too. */
export const candidateRules = [
  ...refusalRules,
  ...executionRules,
  ...submissionRules,
  ...rulesOf('read', {
    '4.1.4-unknown-candidate: an unknown candidate is 404': [
      ({ context, newId }) => statusOf(context().question_id, newId()),
      [404],
    ],
  }),
  ...statusRules,
]
