/**
 * An explanation for people: a head, one line or a few for each thing that happened, and what comes
 * next.
 */
import type { ExplainedEvent, Explanation } from '../../core/gateway/status/explanation.js'
import { colours } from '../terminal/candidate-text.js'
import type { Output } from '../terminal/output.js'
import { amountText, dateText, fields, fold, timeText, visible } from '../terminal/render.js'

type Token = Explanation['token']

/** At most `columns` wide but for hashes and ids, which stay whole. */
export function explanationText(
  shown: Explanation,
  { columns, paint }: Pick<Output, 'columns' | 'paint'>,
): string {
  const { token } = shown
  const seconds = shown.deadline_in_seconds
  const left = seconds >= 0 ? `in ${duration(seconds)}` : `${duration(-seconds)} ago`
  const head = fields(
    [
      ['question', shown.slug ?? shown.question_id],
      ['id', shown.slug === null ? null : shown.question_id],
      ['round', dateText(String(shown.round.timestamp))],
      ['proposer', shown.proposer],
      [
        'answer',
        shown.outcome === null ? `price ${shown.price}` : `${shown.outcome} (price ${shown.price})`,
      ],
      ['authorizes', amountText(shown.amount, token ?? undefined)],
      ['deadline', `${timeText(shown.deadline)}, ${left}`],
      ['before it', rivalsText(shown)],
    ],
    columns,
  )
  const events = shown.events.map((event) => eventText(event as ExplainedEvent, token, columns))
  const { next } = shown
  return [
    `${shown.candidate_id}  ${paint[colours[shown.status]](shown.status)}`,
    head,
    '',
    ...events,
    '',
    fold(`next: ${next.expected}`, columns, '  '),
    ...(next.proposer === null ? [] : [fold(`the proposer: ${next.proposer}`, columns, '  ')]),
    ...(next.operator === null ? [] : [fold(`the operator: ${next.operator}`, columns, '  ')]),
  ].join('\n')
}

/** Seconds as people say them: `2 h 5 min`. */
function duration(seconds: number): string {
  const [days, hours, minutes] = [
    Math.floor(seconds / 86_400),
    Math.floor(seconds / 3_600) % 24,
    Math.floor(seconds / 60) % 60,
  ]
  if (days > 0) return `${days} d ${hours} h`
  if (hours > 0) return `${hours} h ${minutes} min`
  return minutes > 0 ? `${minutes} min ${seconds % 60} s` : `${seconds} s`
}

function rivalsText({ rivals }: Explanation): string | null {
  const before = rivals.filter(({ is_before }) => is_before)
  const [first] = before
  if (first === undefined)
    return rivals.length === 0 ? null : `nobody; ${rivals.length} more came later in this round`
  return `${first.candidate_id} (${first.status})${before.length === 1 ? '' : ` and ${before.length - 1} more`}`
}

function eventText(event: ExplainedEvent, token: Token, columns: number): string {
  const [what, ...more] = saying(event, token)
  const at = event.at === null ? '(time not kept)     ' : timeText(event.at)
  // The time takes a column of its own where there is room for one.
  const room = columns - at.length - 2
  if (room < 40)
    return [
      at,
      ...[what ?? '', ...more].map((line) => `  ${fold(line, columns - 2, '    ')}`),
    ].join('\n')
  const indent = ' '.repeat(at.length + 2)
  const told = [what ?? '', ...more].map((line, index) =>
    fold(line, room, `${indent}${index === 0 ? '  ' : '  '}`),
  )
  return `${at}  ${told.join(`\n${indent}`)}`
}

const text = (value: unknown): string =>
  value === null || value === undefined ? 'unknown' : String(value)
const names = (value: unknown): readonly string[] => (Array.isArray(value) ? value.map(String) : [])
const part = (value: unknown): Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {}

/** What happened, in lines; the first says it, the others give figures. */
function saying(event: ExplainedEvent, token: Token): readonly string[] {
  switch (event.event) {
    case 'received':
      return ['received']
    case 'compacted':
      return ['(a compaction has dropped the details of what follows: older than 90 days)']
    case 'checked':
      return checkLines(part(event.check), token)
    case 'validated':
      return ['validated']
    case 'selected':
      return ['selected for execution']
    case 'stands_in_again':
      return ['its nonce is settled without it: stands in again']
    case 'made_room':
      return ['cannot go on yet, and lets another one of its round go first: stands in again']
    case 'put_back':
      return ['the same payload came again: back to received']
    case 'nonce_reserved':
      return [
        `nonce ${text(event.nonce)} of ${text(event.executor)} reserved${withOthers(event.others)}`,
      ]
    case 'signed':
      return signedLines(event)
    case 'sent':
      return ['sent', text(event.hash)]
    case 'submitted':
      return ['submitted', text(event.hash)]
    case 'mined':
      return minedLines(event)
    case 'confirmed':
      return ['confirmed']
    case 'reverted':
      return ['its transaction reverted', text(event.hash)]
    case 'left_out':
      return ['left out of the transaction that goes in place of this one:', text(event.hash)]
    case 'fell_back':
      return [
        `a reorganisation took back "${text(event.from)}": submitted again by`,
        text(event.hash),
      ]
    case 'indexed':
      return [`on the chain: ProposePrice is log ${text(event.event_index)} of its block`]
    case 'nonce_settled':
      return [
        `nonce ${text(event.nonce)} is settled for good: ${outcomes[text(event.outcome)] ?? text(event.outcome)}`,
      ]
    case 'failed':
    case 'rejected':
      return failureTextOf(part(event.failure), text(event.next_action), event.event === 'rejected')
    case 'wallet_allowed':
      return [`operator: its wallet may propose: ${text(event.reason)}`]
    case 'wallet_disallowed':
      return [`operator: its wallet may not propose any more: ${text(event.reason)}`]
    case 'question_set':
      return [`operator: the entry of its question was set: ${text(event.reason)}`]
    case 'question_removed':
      return [`operator: the entry of its question was removed: ${text(event.reason)}`]
    case 'store_repaired':
      return [
        `operator: the store was repaired, ${text(event.lost_bytes)} bytes given up: ${text(event.reason)}`,
      ]
  }
}

const outcomes: Readonly<Record<string, string>> = {
  executed: 'executed by the transaction above',
  reverted: 'its transaction reverted',
  cancelled: 'the cancellation was mined, and no proposal',
  foreign:
    'by no transaction of this store (another one used it, or it was given up with its former executor)',
}

const withOthers = (value: unknown): string => {
  const others = names(value)
  return others.length === 0
    ? ''
    : `, with ${others.length} ${others.length === 1 ? 'other' : 'others'}: ${others.join(', ')}`
}

const verdicts: Readonly<Record<string, string>> = {
  valid: 'found valid',
  failed: 'found wanting',
  closed: 'the round is closed',
  wait: 'has to wait',
  operator: "held up by the operator's part",
}

function checkLines(check: Readonly<Record<string, unknown>>, token: Token): readonly string[] {
  const figures = part(check.figures)
  const amount = (name: string) =>
    figures[name] === undefined ? undefined : shownAmount(text(figures[name]), token)
  const either = (name: string, yes: string, no: string) =>
    figures[name] === undefined ? undefined : figures[name] === true ? yes : no
  const groups: readonly (readonly (readonly [string, string | undefined])[])[] = [
    [
      ['bond', amount('bond')],
      ['authorized', amount('amount')],
    ],
    [['needed by all that is active', amount('needed')]],
    [
      ['balance', amount('balance')],
      ['allowance', amount('allowance')],
    ],
    [
      [
        'request',
        figures.round_state === undefined
          ? undefined
          : `${text(figures.round_state)}${figures.paused === true ? ', paused' : ''}`,
      ],
      ['nonce', either('nonce_used', 'used', 'unused')],
      ['signature', either('signature_accepted', 'accepted', 'refused')],
    ],
    [['simulation', figures.simulation === undefined ? undefined : text(figures.simulation)]],
  ]
  const told = groups
    .map((group) =>
      group
        .flatMap(([name, value]) => (value === undefined ? [] : [`${name} ${value}`]))
        .join(' · '),
    )
    .filter((line) => line !== '')
  const why = check.detail === null || check.detail === undefined ? '' : `: ${text(check.detail)}`
  const verdict = `${verdicts[text(check.verdict)] ?? text(check.verdict)}${why}`
  // What holds it up without a figure of its own was found out around it, not by reading the chain
  // for it.
  return told.length === 0
    ? [`block ${text(check.block_number)}: ${verdict}`]
    : [`checked at block ${text(check.block_number)}: ${verdict}`, ...told]
}

/** An allowance beyond what any token has is meant to be without limit. */
const shownAmount = (raw: string, token: Token) =>
  /^\d+$/.test(raw) && BigInt(raw) >= 2n ** 128n ? 'unlimited' : amountText(raw, token ?? undefined)

const signings: Readonly<Record<string, string>> = {
  first: 'a transaction',
  fee_bump: 'the same at a higher fee',
  trim: 'a smaller transaction, in place of the one before,',
  anew: 'no node has taken the one before: a transaction made anew is',
  cancel: 'a cancellation',
}

function signedLines(event: ExplainedEvent): readonly string[] {
  const attempt = part(event.attempt)
  const leftOut = names(event.left_out)
  const fees = `at most ${gwei(attempt.max_fee_per_gas)} gwei for gas, ${gwei(attempt.max_priority_fee_per_gas)} gwei tip`
  const what = `${signings[text(event.as)] ?? 'a transaction'} signed under nonce ${text(event.nonce)}${withOthers(event.others)}`
  return [
    what,
    ...(leftOut.length === 0 ? [] : [`without ${leftOut.join(', ')}`]),
    text(attempt.hash),
    fees,
  ]
}

function minedLines(event: ExplainedEvent): readonly string[] {
  const paid =
    event.gas_price_wei === undefined
      ? `gas ${text(event.gas_used)}`
      : `gas ${text(event.gas_used)} × ${gwei(event.gas_price_wei)} gwei = ${coins(BigInt(text(event.gas_used)) * BigInt(text(event.gas_price_wei)))} of the chain's coin`
  const carried = Number(event.carried) > 1 ? `, for ${text(event.carried)} proposals` : ''
  const what = event.transaction === 'cancel' ? 'the cancellation is mined' : 'mined'
  return [
    `${what} in block ${text(event.block_number)}: ${text(event.status)}`,
    `block hash ${text(event.block_hash)}`,
    `${paid}${carried}`,
  ]
}

function failureTextOf(
  failure: Readonly<Record<string, unknown>>,
  nextAction: string,
  isRejection: boolean,
): readonly string[] {
  const fate =
    failure.retryable === true
      ? 'the same payload may still execute'
      : 'this payload cannot execute any more'
  const head = isRejection ? 'operator: rejected' : 'failed'
  return [
    `${head} (${text(failure.stage)}): ${text(failure.code)}`,
    visible(text(failure.detail)),
    `${fate}; next action: ${nextAction}`,
  ]
}

/** Wei as a decimal number of `decimals` places, without trailing zeros. */
function decimal(wei: bigint, decimals: number): string {
  const digits = wei.toString().padStart(decimals + 1, '0')
  const fraction = digits.slice(-decimals).replace(/0+$/, '')
  return `${digits.slice(0, -decimals)}${fraction === '' ? '' : `.${fraction}`}`
}
const gwei = (wei: unknown): string =>
  /^\d+$/.test(text(wei)) ? decimal(BigInt(text(wei)), 9) : text(wei)
const coins = (wei: bigint): string => decimal(wei, 18)
