/** What happened to a candidate, in the words of `operator candidates explain` and of the page. */
import { amountText, type TokenUnits } from '#protocol/amount'
import type { CandidateCheck } from '../ledger/ledger.js'
import { saidWords } from '../operator/acts.js'
import type { TimelineEvent } from './timeline.js'

type Of<Kind extends TimelineEvent['kind']> = Extract<TimelineEvent, { readonly kind: Kind }>

/** What, then its details, a line each. Outside text is not escaped. */
export function narrated(
  event: TimelineEvent,
  token: TokenUnits | undefined,
  coin = "of the chain's coin",
): readonly string[] {
  const hash = ('hash' in event ? event.hash : null) ?? 'unknown'
  const decided = (what: string) =>
    'reason' in event ? [`operator: ${what}: ${saidWords(event.reason, event.by)}`] : [what]
  switch (event.kind) {
    case 'compacted':
      return ['(details older than 90 days were dropped by a compaction)']
    case 'checked':
      return checkLines(event.check, token)
    case 'selected':
      return ['selected for execution']
    case 'stands_in_again':
      return ['its nonce was settled without it: a stand-in again']
    case 'made_room':
      return [
        'cannot continue yet, and another candidate of its round goes first: on standby again',
      ]
    case 'put_back':
      return ['the same payload was sent again: back to received']
    case 'nonce_reserved':
      return [`nonce ${event.nonce} of ${event.executor} reserved${withOthers(event.others)}`]
    case 'signed':
      return signedLines(event)
    case 'sent':
    case 'submitted':
      return [event.kind, hash]
    case 'mined':
      return minedLines(event, coin)
    case 'reverted':
      return ['its transaction reverted', hash]
    case 'left_out':
      return ['left out of the transaction that replaces this one:', hash]
    case 'fell_back':
      return [`a reorganization undid "${event.from}": submitted again by`, hash]
    case 'indexed':
      return [`on the chain: ProposePrice is log ${event.eventIndex ?? 'unknown'} of its block`]
    case 'nonce_settled':
      return [`nonce ${event.nonce} is final: ${outcomes[event.outcome] ?? event.outcome}`]
    case 'failed':
    case 'rejected':
      return failureLines(event)
    case 'wallet_allowed':
      return decided('its wallet was allowed')
    case 'wallet_disallowed':
      return decided('its wallet was removed from the allowlist')
    case 'question_set':
      return decided('the entry of its question was set')
    case 'question_removed':
      return decided('the entry of its question was removed')
    case 'store_repaired':
      return decided(`the store was repaired, ${event.lostBytes} bytes lost`)
    default:
      return [event.kind]
  }
}

const outcomes: Readonly<Record<string, string>> = {
  executed: 'executed by the transaction above',
  reverted: 'its transaction reverted',
  cancelled: 'the cancellation was mined, and no proposal',
  foreign: 'used outside this store, or given up with its former executor',
}

function withOthers(others: readonly string[]) {
  const word = others.length === 1 ? 'other' : 'others'
  return others.length === 0 ? '' : `, with ${others.length} ${word}: ${others.join(', ')}`
}

const verdicts: Readonly<Record<CandidateCheck['verdict'], string>> = {
  valid: 'found valid',
  failed: 'found invalid',
  closed: 'the round is closed',
  wait: 'must wait',
  operator: 'waits for the operator',
}

function checkLines(
  { blockNumber, verdict, detail, figures }: CandidateCheck,
  token: TokenUnits | undefined,
) {
  // An allowance beyond what any token has is meant to be without limit.
  const amount = (raw: string) =>
    /^\d+$/.test(raw) && BigInt(raw) >= 2n ** 128n ? 'unlimited' : amountText(raw, token)
  const either = (yes: string, no: string) => (value: string) => (value === 'true' ? yes : no)
  const plain = (value: string) => value
  const paused = figures.paused === true ? ', paused' : ''
  const groups: readonly (readonly (readonly [string, string, (value: string) => string])[])[] = [
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
      ['request', 'round_state', (state) => state + paused],
      ['nonce', 'nonce_used', either('used', 'unused')],
      ['signature', 'signature_accepted', either('accepted', 'refused')],
    ],
    [['simulation', 'simulation', plain]],
  ]
  const lines = groups
    .map((group) =>
      group
        .flatMap(([name, key, write]) =>
          figures[key] === undefined ? [] : `${name} ${write(String(figures[key]))}`,
        )
        .join(' · '),
    )
    .filter((line) => line !== '')
  const why = detail === null ? '' : `: ${detail}`
  // Without a figure of its own it was found out around it, not by reading the chain for it.
  const head = lines.length === 0 ? 'block' : 'checked at block'
  return [`${head} ${blockNumber}: ${verdicts[verdict]}${why}`, ...lines]
}

const signings: Readonly<Record<Of<'signed'>['as'], string>> = {
  first: 'a transaction',
  fee_bump: 'the same at a higher fee',
  trim: 'a smaller replacement',
  anew: 'no node took the previous one: a new transaction is',
  cancel: 'a cancellation',
}

function signedLines({ nonce, attempt, others, leftOut, as }: Of<'signed'>) {
  const { hash, maxFeePerGas, maxPriorityFeePerGas } = attempt
  return [
    `${signings[as]} signed under nonce ${nonce}${withOthers(others)}`,
    ...(leftOut.length === 0 ? [] : [`without ${leftOut.join(', ')}`]),
    hash,
    `at most ${decimal(maxFeePerGas, 9)} gwei for gas, ${decimal(maxPriorityFeePerGas, 9)} gwei tip`,
  ]
}

function minedLines(event: Of<'mined'>, coin: string) {
  const { gasUsed, gasPriceWei: price, carried, blockNumber, blockHash, status } = event
  const wei = BigInt(gasUsed) * BigInt(price ?? 0)
  const cost = price && ` × ${decimal(price, 9)} gwei = ${decimal(wei, 18)} ${coin}`
  const what = event.transaction === 'cancel' ? 'the cancellation is mined' : 'mined'
  const shared = carried > 1 ? `, for ${carried} proposals` : ''
  return [
    `${what} in block ${blockNumber}: ${status}`,
    `block hash ${blockHash}`,
    `gas ${gasUsed}${cost ?? ''}${shared}`,
  ]
}

function failureLines({ kind, failure, nextAction, by }: Of<'failed' | 'rejected'>) {
  const { stage, code, detail, retryable } = failure
  const fate = retryable
    ? 'the same payload may still execute'
    : 'this payload can no longer execute'
  return [
    `${kind === 'rejected' ? 'operator: rejected' : 'failed'} (${stage}): ${code}`,
    detail,
    `${fate}; next action: ${nextAction}`,
    ...(by === undefined ? [] : [`by ${by}`]),
  ]
}

/** Wei as a decimal number of `decimals` places, without trailing zeros. */
function decimal(wei: bigint | string, decimals: number) {
  const digits = wei.toString().padStart(decimals + 1, '0')
  const fraction = digits.slice(-decimals).replace(/0+$/, '')
  return `${digits.slice(0, -decimals)}${fraction === '' ? '' : `.${fraction}`}`
}
