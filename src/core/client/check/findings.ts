/** Before an answer is signed (contract §9). A silent source is `unknown`, never `ok`. */

import type { Market } from '#ports'
import { durationText } from '#protocol/duration'
import { UsageError } from '#protocol/errors'
import { answerText, labelIn } from '#protocol/outcome-words'
import type { OutcomeKey } from '#protocol/schema'
import { counted } from '#protocol/text'
import type { QuestionContext } from '../trust/trust.js'

export type QuestionFinding = ReturnType<typeof findingsOf>[number]

export interface Thresholds {
  readonly pricePercent: number
  readonly gameSeconds: number
  readonly livenessSeconds: number
  /** Of the bond. */
  readonly rewardPercent: number
  readonly rulesSeconds: number
}

export interface Subject {
  readonly context: QuestionContext
  readonly outcome?: OutcomeKey | undefined
}

/** A text says why it is not known. */
interface Case extends Subject {
  readonly limits: Thresholds
  readonly nowSeconds: number
  readonly market: Market | string
  /** `disputed`: an answer that the voters have not judged (domain §5.1). */
  readonly earlier: { readonly detail: string; readonly disputed: OutcomeKey | undefined } | string
  readonly livenessSeconds: bigint | string
}

interface Found {
  readonly result: 'ok' | 'warn' | 'unknown'
  /** May hold outside text (R20). */
  readonly detail: string
  readonly source?: string
}
const saying = (result: Found['result']) => (detail: string) => ({ result, detail })
const [ok, warn, unknown] = [saying('ok'), saying('warn'), saying('unknown')]
const okIf = (isSo: boolean, detail: string, fault = '') =>
  isSo ? ok(detail) : warn(detail + fault)

export const findingsOf = (one: Case) =>
  Object.entries(judges).map(([id, { source: usual, judge }]) => {
    const { result, detail, source = usual }: Found = judge(one)
    return { id, question_id: one.context.question_id, result, detail, source }
  })

function eventEnded({ market, nowSeconds, limits }: Case) {
  if (typeof market === 'string') return unknown(market)
  const nowMs = nowSeconds * 1_000
  if (market.closed) return ok('the market is closed')
  const game = Date.parse(market.gameStartsAt ?? '')
  if (game > nowMs) return warn(`the game begins ${instant(game)}`)
  if (game > nowMs - limits.gameSeconds * 1_000)
    return warn(`the game began ${durationText(nowSeconds - game / 1_000)} ago`)
  const end = Date.parse(market.endsAt ?? '')
  if (end > nowMs) return warn(`the event ends ${instant(end)}`)
  return Number.isNaN(end)
    ? unknown('the market names no end')
    : ok(`the event ended ${instant(end)}`)
}

function marketPrice({ context, outcome, market, limits }: Case) {
  if (typeof market === 'string') return unknown(market)
  const { prices } = market
  if (prices === undefined) return unknown('the market names no prices')
  const named = (key: OutcomeKey) => answerText(key, labelIn(context.outcomes, key))
  if (outcome === undefined)
    return unknown(
      `${named('p2')} is at ${percent(prices.p2)}, ${named('p1')} at ${percent(prices.p1)}; no answer is given to compare`,
    )
  const isHalf = outcome === 'p3'
  const price = isHalf ? 1 - Math.abs(prices.p2 - prices.p1) : prices[outcome]
  const detail = isHalf
    ? `the market pays ${percent(prices.p2)} and ${percent(prices.p1)}, and ${named('p3')} pays half for both`
    : `the market pays ${percent(price)} for ${named(outcome)}`
  const { pricePercent } = limits
  return okIf(price * 100 >= pricePercent, detail, `, under ${pricePercent} %`)
}

function earlierRound({ context, outcome, earlier }: Case) {
  if (context.reopened === false) return ok('there was no earlier round')
  if (typeof earlier === 'string') return unknown(earlier)
  const { disputed, detail } = earlier
  return okIf(disputed !== undefined && outcome !== undefined && disputed !== outcome, detail)
}

export const notRead = 'it is not known whether there was an earlier round'

function reopened({ context, market }: Case) {
  if (context.reopened === undefined)
    return typeof market !== 'string' && market.statuses.includes('disputed')
      ? { ...warn('an answer was disputed before'), source: 'gamma' }
      : unknown(notRead)
  return context.reopened
    ? warn('the question was asked before: an earlier round ended without an answer')
    : ok('this is its first round')
}

function liveness({ livenessSeconds, limits }: Case) {
  if (typeof livenessSeconds === 'string') return unknown(livenessSeconds)
  return okIf(
    livenessSeconds <= limits.livenessSeconds,
    `an answer can be disputed for ${durationText(Number(livenessSeconds))}`,
    `, more than ${durationText(limits.livenessSeconds)}`,
  )
}

function reward({ context, limits }: Case) {
  const { reward: raw, bond } = context
  if (raw === undefined) return unknown('the reward is read from a node')
  const [rewardRaw, bondRaw] = [BigInt(raw), BigInt(bond.required_bond)]
  if (bondRaw === 0n) return ok('nothing is at stake')
  const share = (100 * Number(rewardRaw)) / Number(bondRaw)
  return okIf(
    share >= limits.rewardPercent,
    rewardRaw === 0n
      ? 'there is no reward for the bond'
      : `the reward is ${Number(share.toFixed(3))} % of the bond: one lost bond is ${counted(bondRaw / rewardRaw, 'reward')}`,
  )
}

function rulesAge({ context: { rules }, nowSeconds, limits }: Case) {
  if (rules === undefined) return unknown('rules unknown: they are read from a node')
  const last = rules.updates.at(-1)
  if (last === undefined) return ok('there is no clarification')
  const age = nowSeconds - Date.parse(last.at) / 1_000
  if (Number.isNaN(age)) return unknown(`a clarification is of the time ${last.at}`)
  return okIf(
    age >= limits.rulesSeconds,
    `the last of ${counted(rules.updates.length, 'clarification')} is ${durationText(Math.max(0, age))} old`,
  )
}

/** In the order they are shown, with whose word each is. */
const judges = {
  event_ended: { source: 'gamma', judge: eventEnded },
  market_price: { source: 'gamma', judge: marketPrice },
  earlier_round: { source: 'chain', judge: earlierRound },
  reopened: { source: 'chain', judge: reopened },
  liveness: { source: 'chain', judge: liveness },
  reward: { source: 'chain', judge: reward },
  rules_age: { source: 'chain', judge: rulesAge },
}

const percent = (price: number) => `${Number((price * 100).toFixed(2))} %`
const instant = (ms: number) =>
  new Date(ms).toISOString().replace('T', ' ').slice(0, 16).concat('Z')

export interface Required {
  readonly check: boolean
  readonly known: boolean
}

export function checkRefusal(
  identifier: string,
  findings: readonly QuestionFinding[],
  { check, known }: Required,
) {
  const [first, ...others] = findings.filter(
    ({ result }) => (check && result === 'warn') || (known && result === 'unknown'),
  )
  if (first === undefined) return undefined
  const more = others.length === 0 ? '' : `, and ${counted(others.length, 'finding')} more`
  const flag = first.result === 'warn' ? '--require-check' : '--require-known'
  return new UsageError(
    'check_failed',
    `${first.id} of ${identifier} is ${first.result}: ${first.detail}${more}; nothing was signed for it`,
    `\`proposer check ${identifier}\` shows all findings; ${flag} asks for this`,
  )
}
