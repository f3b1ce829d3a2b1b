/** Before an answer is signed (contract §9). A silent source is `unknown`, never `ok`. */
import pLimit from 'p-limit'
import { oracleAbi, tooEarlyPrice, topics } from '#chain/contracts'
import { logRanges } from '#chain/log-ranges'
import { addressTopic, firstBlockFrom } from '#chain/propose'
import { managedRequestId } from '#chain/questions'
import { heldRequest, latestBlock, readContract, unlessRefused } from '#chain/reading'
import { readRequest, type StakeEvent, stakeEventOf } from '#chain/stakes'
import {
  type BlockHeader,
  type Chain,
  ChainError,
  type Clock,
  type Hex,
  type Market,
  type Markets,
  SlugLookUpError,
} from '#ports'
import { inGroups } from '#protocol/capped'
import { durationText } from '#protocol/duration'
import { UnavailableError } from '#protocol/errors'
import { once } from '#protocol/once'
import { answerText, labelIn } from '#protocol/outcome-words'
import { outcomeOf } from '#protocol/proposal'
import type { OutcomeKey } from '#protocol/schema'
import { counted } from '#protocol/text'
import { nowOf } from '../trust/context.js'
import { kindOf, type QuestionContext, requestOf, type Trust } from '../trust/trust.js'

export type MarketReads = Pick<Markets, 'byQuestions' | 'market'>

interface CheckParts {
  readonly trust: Trust
  readonly clock: Clock
  readonly chain: Chain | undefined
  readonly markets: MarketReads | undefined
  readonly thresholds: {
    readonly pricePercent: number
    readonly gameSeconds: number
    readonly livenessSeconds: number
    /** Of the bond. */
    readonly rewardPercent: number
    readonly rulesSeconds: number
  }
}

export interface Subject {
  readonly context: QuestionContext
  readonly outcome?: OutcomeKey | undefined
}

interface Case extends Subject {
  readonly limits: CheckParts['thresholds']
  readonly nowSeconds: number
  /** A text says why it is not known. */
  readonly reading: Promise<Market | string>
  readonly node?: (() => Promise<{ readonly chain: Chain; readonly head: BlockHeader }>) | undefined
}

interface Found {
  readonly result: 'ok' | 'warn' | 'unknown'
  /** May hold outside text (R20). */
  readonly detail: string
  readonly source?: string
}

export type Checker = ReturnType<typeof newChecker>
export type QuestionFinding = Awaited<ReturnType<typeof findingsOf>>[number]

export const newChecker = ({ trust, clock, chain, markets, thresholds: limits }: CheckParts) => ({
  async check(subjects: readonly Subject[], signal: AbortSignal = new AbortController().signal) {
    signal.throwIfAborted()
    const nowSeconds = await nowOf({ chain, trust, ports: { clock } }).catch((error: unknown) => {
      // The findings say that the node is silent.
      if (error instanceof UnavailableError) return clock.nowMs() / 1_000
      throw error
    })
    const marketIn = marketOf(trust, markets, subjects, signal)
    const node = chain && once(async () => ({ chain, head: await latestBlock(chain) }))
    const all = await Promise.all(
      subjects.map((subject) =>
        findingsOf({ ...subject, limits, nowSeconds, node, reading: marketIn(subject.context) }),
      ),
    )
    signal.throwIfAborted()
    return all
  },
})

const findingsOf = (one: Case) =>
  Promise.all(
    Object.entries(judges).map(async ([id, judge]) => {
      const found = await judge(one).catch((error: unknown) => {
        if (error instanceof ChainError) return unknown(`the node did not answer (${error.kind})`)
        throw error
      })
      const { question_id } = one.context
      return { id, question_id, ...found, source: found.source ?? 'chain' }
    }),
  )

const ok = (detail: string): Found => ({ result: 'ok', detail })
const warn = (detail: string): Found => ({ result: 'warn', detail })
const unknown = (detail: string): Found => ({ result: 'unknown', detail })
const okIf = (isSo: boolean, detail: string, fault = '') =>
  isSo ? ok(detail) : warn(detail + fault)

/** A URL of 50 is some 4 KB. */
const idsAtOnce = 50
/** Gamma allows an address 300 calls in 10 s. */
const callsAtOnce = 4

/** By question id, many at once; neg-risk ones by slug (domain §5.4). */
function marketOf(
  trust: Trust,
  api: MarketReads | undefined,
  subjects: readonly Subject[],
  signal: AbortSignal,
) {
  if (!api) return async () => 'no market API is configured (gamma-url)'
  const atOnce = pLimit(callsAtOnce)
  const found = new Map<Hex, Market | string>()
  const ask = (ids: readonly Hex[], read: () => Promise<readonly (Market | undefined)[]>) =>
    atOnce(async () => {
      try {
        for (const market of await read())
          if (market?.questionId !== undefined) found.set(market.questionId, market)
      } catch (error) {
        if (!(error instanceof SlugLookUpError)) throw error
        for (const id of ids) found.set(id, `Gamma does not answer: ${error.message}`)
      }
    })
  const ids = new Set<Hex>()
  const calls: Promise<void>[] = []
  for (const { request, question_id: id, slug } of subjects.map(({ context }) => context))
    if (kindOf(trust, request.requester) !== 'uma-ctf-adapter-negrisk') ids.add(id)
    else if (slug === undefined) found.set(id, 'Gamma finds a neg-risk market by its slug alone')
    else calls.push(ask([id], async () => [await api.market(slug, signal)]))
  for (const some of inGroups([...ids], idsAtOnce))
    calls.push(ask(some, () => api.byQuestions(some, signal)))
  const asked = Promise.all(calls)
  return async ({ question_id }: QuestionContext) => {
    await asked
    return found.get(question_id) ?? 'Gamma knows no market of this question'
  }
}

function byMarket(judge: (market: Market, one: Case) => Found) {
  return async (one: Case): Promise<Found> => {
    const market = await one.reading
    const found = typeof market === 'string' ? unknown(market) : judge(market, one)
    return { ...found, source: 'gamma' }
  }
}

function eventEnded(market: Market, { nowSeconds, limits }: Case) {
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

function marketPrice({ prices }: Market, { context, outcome, limits: { pricePercent } }: Case) {
  if (!prices) return unknown('the market names no prices')
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
  return okIf(price * 100 >= pricePercent, detail, `, under ${pricePercent} %`)
}

const notRead = 'it is not known whether there was an earlier round'

/** Several share a second. */
const blocksOfOneTime = 8n
/** From settlement to reset (domain §10): none after a dispute, an hour of Polygon, then a day. */
const blocksToReset = [0n, 2_000n, 43_200n]

/** A dispute opens the next round at once; a reset comes after a settlement as "too early". */
async function earlierRound({ context, outcome, node }: Case) {
  if (context.reopened === false) return ok('there was no earlier round')
  if (context.reopened === undefined || !node) return unknown(notRead)
  const { chain, head } = await node()
  const request = requestOf(context)
  const { oracle, requester, timestamp, ancillaryData } = request
  const first = (await firstBlockFrom(chain, BigInt(timestamp), head)) ?? head.number
  const filter = {
    addresses: [oracle],
    topics: [[topics.disputePrice, topics.settle], [addressTopic(requester)]],
  }
  const last = first + blocksOfOneTime
  let to = last < head.number ? last : head.number
  for (const before of blocksToReset) {
    const from = first > before ? first - before : 0n
    let end: Extract<StakeEvent, { kind: 'disputed' | 'settled' }> | undefined
    for await (const { logs } of logRanges(chain, filter, { from, to }))
      for (const event of logs.map(stakeEventOf)) {
        if (event?.kind !== 'disputed' && event?.kind !== 'settled') continue
        const isOwn = event.requester === requester && event.ancillaryData === ancillaryData
        const isEnd =
          event.kind === 'settled' ? event.price === String(tooEarlyPrice) : before === 0n
        if (isOwn && isEnd && event.timestamp !== timestamp) end = event
      }
    to = from - 1n
    if (!end) continue
    const { wallet, disputer, transaction } = end
    const isDispute = end.kind === 'disputed'
    const round = { ...request, timestamp: end.timestamp }
    // A settlement tells the voters' price.
    const { price } = isDispute ? end : await readRequest(chain, head.number, round)
    const answered = outcomeOf(price)
    const dispute = disputer ? `, and ${disputer} disputed it` : ''
    const verdict = isDispute ? '' : '; the voters called it too early'
    const isOther = answered !== undefined && outcome !== undefined && answered !== outcome
    return okIf(
      isDispute && isOther,
      `${wallet} answered ${answered ?? `price ${price}`}${dispute}${verdict} (transaction ${transaction})`,
    )
  }
  return unknown('the node does not show how the earlier round ended')
}

async function reopened({ context, reading }: Case) {
  if (context.reopened !== undefined)
    return context.reopened
      ? warn('the question was asked before: an earlier round ended without an answer')
      : ok('this is its first round')
  const market = await reading
  return typeof market !== 'string' && market.statuses.includes('disputed')
    ? { ...warn('an answer was disputed before'), source: 'gamma' }
    : unknown(notRead)
}

/** Set for the request, else its own, else the oracle's (domain §4, Liveness). */
async function liveness({ context, node, limits }: Case) {
  if (!node) return unknown('liveness is read from a node')
  const { chain, head } = await node()
  const at = head.number
  const request = requestOf(context)
  const { oracle } = request
  const key = [managedRequestId(request)] as const
  const [custom, own, standard] = await Promise.all([
    unlessRefused(readContract(chain, at, oracle, oracleAbi, 'customLivenessValues', key)),
    heldRequest(chain, at, request),
    unlessRefused(readContract(chain, at, oracle, oracleAbi, 'defaultLiveness', [])),
  ])
  const seconds = custom && (custom[0] || own.requestSettings.customLiveness || standard)
  if (seconds === undefined) return unknown('the oracle does not report its liveness')
  return okIf(
    seconds <= limits.livenessSeconds,
    `an answer can be disputed for ${durationText(Number(seconds))}`,
    `, more than ${durationText(limits.livenessSeconds)}`,
  )
}

async function reward({ context, limits }: Case) {
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

async function rulesAge({ context: { rules }, nowSeconds, limits }: Case) {
  if (!rules) return unknown('rules unknown: they are read from a node')
  const last = rules.updates.at(-1)
  if (!last) return ok('there is no clarification')
  const age = nowSeconds - Date.parse(last.at) / 1_000
  if (Number.isNaN(age)) return unknown(`a clarification is of the time ${last.at}`)
  return okIf(
    age >= limits.rulesSeconds,
    `the last of ${counted(rules.updates.length, 'clarification')} is ${durationText(Math.max(0, age))} old`,
  )
}

/** In the order they are shown. */
const judges: Readonly<Record<string, (one: Case) => Promise<Found>>> = {
  event_ended: byMarket(eventEnded),
  market_price: byMarket(marketPrice),
  earlier_round: earlierRound,
  reopened,
  liveness,
  reward,
  rules_age: rulesAge,
}

const percent = (price: number) => `${Number((price * 100).toFixed(2))} %`
const instant = (ms: number) => `${new Date(ms).toISOString().slice(0, 16).replace('T', ' ')}Z`
