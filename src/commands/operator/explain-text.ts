/**
 * An explanation for people: a head, one line or a few for each thing that happened, and what comes
 * next.
 */
import type { ExplainedEvent, Explanation } from '#gateway/status/explanation'
import { answerText } from '#protocol/outcome-words'
import { colours, headText } from '../terminal/candidate-text.js'
import type { Output } from '../terminal/output.js'
import { amountText, dateText, fields, fold, timeText, visible } from '../terminal/render.js'
import { saidWords } from './access.js'

type Token = Explanation['token']
interface Money {
  readonly token: Token
  readonly coin: string
}

/** At most `columns` wide but for hashes and ids, which stay whole. */
export function explanationText(
  explanation: Explanation,
  { columns, paint }: Pick<Output, 'columns' | 'paint'>,
  coin = "of the chain's coin",
): string {
  const { token, slug, question_id, outcome, label, price, status, next } = explanation
  const seconds = explanation.deadline_in_seconds
  const left = seconds >= 0 ? `in ${duration(seconds)}` : `${duration(-seconds)} ago`
  const head = fields(
    [
      ['question', slug ?? question_id],
      ['id', slug === null ? null : question_id],
      ['round', dateText(String(explanation.round.timestamp))],
      ['proposer', explanation.proposer],
      ['answer', outcome === null ? `price ${price}` : answerText(outcome, label)],
      ['authorizes', amountText(explanation.amount, token ?? undefined)],
      ['deadline', `${timeText(explanation.deadline)}, ${left}`],
      ['before it', rivalsText(explanation)],
    ],
    columns,
  )
  const says = [
    ['next', next.expected],
    ['the proposer', next.proposer],
    ['the operator', next.operator],
  ] as const
  return [
    headText(explanation.candidate_id, paint[colours[status]](status), columns),
    head,
    '',
    ...explanation.events.map((event) =>
      eventText(event as ExplainedEvent, { token, coin }, columns),
    ),
    '',
    ...says.flatMap(([who, text]) =>
      text === null ? [] : [fold(`${who}: ${text}`, columns, '  ')],
    ),
  ].join('\n')
}

function duration(seconds: number): string {
  const days = Math.floor(seconds / 86_400)
  const hours = Math.floor(seconds / 3_600) % 24
  const minutes = Math.floor(seconds / 60) % 60
  if (days > 0) return `${days} d ${hours} h`
  if (hours > 0) return `${hours} h ${minutes} min`
  return minutes > 0 ? `${minutes} min ${seconds % 60} s` : `${seconds} s`
}

function rivalsText({ rivals }: Explanation): string | null {
  const [first, ...others] = rivals.filter(({ is_before }) => is_before)
  if (first !== undefined)
    return `${first.candidate_id} (${first.status})${others.length === 0 ? '' : ` and ${others.length} more`}`
  return rivals.length === 0 ? null : `nobody; ${rivals.length} more came later in this round`
}

function eventText(event: ExplainedEvent, money: Money, columns: number): string {
  const lines = linesOf(event, money)
  const at = event.at === null ? '(time not kept)     ' : timeText(event.at)
  // The time takes a column of its own where there is room for one, and for a hash beside it.
  const room = columns - at.length - 2
  const widest = Math.max(...lines.flatMap((line) => line.split(' ')).map(({ length }) => length))
  if (room < Math.max(40, widest))
    return [at, ...lines.map((line) => `  ${fold(line, columns - 2, '    ')}`)].join('\n')
  const indent = ' '.repeat(at.length + 2)
  return `${at}  ${lines.map((line) => fold(line, room, `${indent}  `)).join(`\n${indent}`)}`
}

const text = (value: unknown): string =>
  value === null || value === undefined ? 'unknown' : String(value)
const names = (value: unknown): readonly string[] => (Array.isArray(value) ? value.map(String) : [])
type Part = Readonly<Record<string, unknown>>
const part = (value: unknown): Part =>
  typeof value === 'object' && value !== null ? (value as Part) : {}

/** What happened, in lines; `{key}` stands for what the event has there. */
const sentences: Partial<Record<ExplainedEvent['event'], readonly string[]>> = {
  received: ['received'],
  compacted: ['(details older than 90 days were dropped by a compaction)'],
  validated: ['validated'],
  selected: ['selected for execution'],
  stands_in_again: ['its nonce was settled without it: a stand-in again'],
  made_room: [
    'cannot continue yet, and another candidate of its round goes first: on standby again',
  ],
  put_back: ['the same payload was sent again: back to received'],
  sent: ['sent', '{hash}'],
  submitted: ['submitted', '{hash}'],
  confirmed: ['confirmed'],
  reverted: ['its transaction reverted', '{hash}'],
  left_out: ['left out of the transaction that replaces this one:', '{hash}'],
  fell_back: ['a reorganization undid "{from}": submitted again by', '{hash}'],
  indexed: ['on the chain: ProposePrice is log {event_index} of its block'],
  wallet_allowed: ['operator: its wallet was allowed: {reason}'],
  wallet_disallowed: ['operator: its wallet was removed from the allowlist: {reason}'],
  question_set: ['operator: the entry of its question was set: {reason}'],
  question_removed: ['operator: the entry of its question was removed: {reason}'],
  store_repaired: ['operator: the store was repaired, {lost_bytes} bytes lost: {reason}'],
}

function linesOf(event: ExplainedEvent, { token, coin }: Money): readonly string[] {
  const lines = sentences[event.event]
  if (lines)
    return lines.map((line) =>
      line.replace(/\{(\w+)\}/g, (_, key: string) =>
        key === 'reason' ? saidWords(text(event.reason), byOf(event)) : text(event[key]),
      ),
    )
  switch (event.event) {
    case 'checked':
      return checkLines(part(event.check), token)
    case 'nonce_reserved':
      return [
        `nonce ${text(event.nonce)} of ${text(event.executor)} reserved${withOthers(event.others)}`,
      ]
    case 'signed':
      return signedLines(event)
    case 'mined':
      return minedLines(event, coin)
    case 'nonce_settled': {
      const outcome = text(event.outcome)
      return [`nonce ${text(event.nonce)} is final: ${outcomes[outcome] ?? outcome}`]
    }
    default:
      return [
        ...failureLines(part(event.failure), text(event.next_action), event.event === 'rejected'),
        ...(byOf(event) === undefined ? [] : [`by ${visible(text(event.by))}`]),
      ]
  }
}

const byOf = ({ by }: ExplainedEvent) => (typeof by === 'string' ? by : undefined)

const outcomes: Readonly<Record<string, string>> = {
  executed: 'executed by the transaction above',
  reverted: 'its transaction reverted',
  cancelled: 'the cancellation was mined, and no proposal',
  foreign: 'used outside this store, or given up with its former executor',
}

function withOthers(value: unknown): string {
  const others = names(value)
  const word = others.length === 1 ? 'other' : 'others'
  return others.length === 0 ? '' : `, with ${others.length} ${word}: ${others.join(', ')}`
}

const verdicts: Readonly<Record<string, string>> = {
  valid: 'found valid',
  failed: 'found invalid',
  closed: 'the round is closed',
  wait: 'must wait',
  operator: 'waits for the operator',
}

function checkLines(check: Part, token: Token): readonly string[] {
  const figures = part(check.figures)
  const amount = (raw: unknown) => amountShown(text(raw), token)
  const either = (yes: string, no: string) => (value: unknown) => (value === true ? yes : no)
  const groups: readonly (readonly (readonly [string, string, (value: unknown) => string])[])[] = [
    [
      ['bond', 'bond', amount],
      ['authorized', 'amount', amount],
    ],
    [['needed by all active authorizations', 'needed', amount]],
    [
      ['balance', 'balance', amount],
      ['allowance', 'allowance', amount],
    ],
    [
      [
        'request',
        'round_state',
        (state) => `${text(state)}${figures.paused === true ? ', paused' : ''}`,
      ],
      ['nonce', 'nonce_used', either('used', 'unused')],
      ['signature', 'signature_accepted', either('accepted', 'refused')],
    ],
    [['simulation', 'simulation', text]],
  ]
  const lines = groups
    .map((group) =>
      group
        .filter(([, key]) => figures[key] !== undefined)
        .map(([name, key, write]) => `${name} ${write(figures[key])}`)
        .join(' · '),
    )
    .filter((line) => line !== '')
  const why = check.detail === null || check.detail === undefined ? '' : `: ${text(check.detail)}`
  const verdict = `${verdicts[text(check.verdict)] ?? text(check.verdict)}${why}`
  // Without a figure of its own it was found out around it, not by reading the chain for it.
  const head = lines.length === 0 ? 'block' : 'checked at block'
  return [`${head} ${text(check.block_number)}: ${verdict}`, ...lines]
}

/** An allowance beyond what any token has is meant to be without limit. */
const amountShown = (raw: string, token: Token) =>
  /^\d+$/.test(raw) && BigInt(raw) >= 2n ** 128n ? 'unlimited' : amountText(raw, token ?? undefined)

const signings: Readonly<Record<string, string>> = {
  first: 'a transaction',
  fee_bump: 'the same at a higher fee',
  trim: 'a smaller replacement',
  anew: 'no node took the previous one: a new transaction is',
  cancel: 'a cancellation',
}

function signedLines(event: ExplainedEvent): readonly string[] {
  const attempt = part(event.attempt)
  const leftOut = names(event.left_out)
  const what = signings[text(event.as)] ?? 'a transaction'
  return [
    `${what} signed under nonce ${text(event.nonce)}${withOthers(event.others)}`,
    ...(leftOut.length === 0 ? [] : [`without ${leftOut.join(', ')}`]),
    text(attempt.hash),
    `at most ${gwei(attempt.max_fee_per_gas)} gwei for gas, ${gwei(attempt.max_priority_fee_per_gas)} gwei tip`,
  ]
}

function minedLines(event: ExplainedEvent, coin: string): readonly string[] {
  const { gas_used: gas, gas_price_wei: price, carried } = event
  const cost =
    price === undefined
      ? ''
      : ` × ${gwei(price)} gwei = ${decimal(BigInt(text(gas)) * BigInt(text(price)), 18)} ${coin}`
  const what = event.transaction === 'cancel' ? 'the cancellation is mined' : 'mined'
  const shared = Number(carried) > 1 ? `, for ${text(carried)} proposals` : ''
  return [
    `${what} in block ${text(event.block_number)}: ${text(event.status)}`,
    `block hash ${text(event.block_hash)}`,
    `gas ${text(gas)}${cost}${shared}`,
  ]
}

function failureLines(failure: Part, nextAction: string, isRejection: boolean): readonly string[] {
  const fate =
    failure.retryable === true
      ? 'the same payload may still execute'
      : 'this payload can no longer execute'
  return [
    `${isRejection ? 'operator: rejected' : 'failed'} (${text(failure.stage)}): ${text(failure.code)}`,
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
