/** What findings are made of. */
import pLimit from 'p-limit'
import { oracleAbi, topics } from '#chain/contracts'
import { logRanges } from '#chain/log-ranges'
import { addressTopic, firstBlockFrom } from '#chain/propose'
import { createRoundReader, managedRequestId } from '#chain/questions'
import { heldRequest, latestBlock, loggedEvent, readContract, unlessRefused } from '#chain/reading'
import { readRequest, stakeEventOf } from '#chain/stakes'
import {
  type Chain,
  ChainError,
  type ChainLog,
  type Clock,
  type Hex,
  type Market,
  type Markets,
  SlugLookUpError,
} from '#ports'
import { inGroups } from '#protocol/capped'
import { UnavailableError } from '#protocol/errors'
import { lowercase } from '#protocol/words'
import { nowOf } from '../trust/context.js'
import { contractsOf, kindOf, type QuestionContext, requestOf, type Trust } from '../trust/trust.js'
import {
  type EarlierRound,
  type Facts,
  findingsOf,
  type Subject,
  type Thresholds,
} from './findings.js'

export type MarketReads = Pick<Markets, 'byQuestions' | 'market'>

interface CheckParts {
  readonly trust: Trust
  readonly clock: Clock
  readonly chain: Chain | undefined
  /** `undefined`: what it alone tells is unknown. */
  readonly markets: MarketReads | undefined
  readonly thresholds: Thresholds
}

/** Ids in one call: a URL of 50 is some 4 KB. */
const idsAtOnce = 50
/** Gamma allows 300 calls in 10 s, for everything that this address asks it. */
const callsAtOnce = 4

type Known = Omit<Facts, 'nowSeconds'>

export type Checker = ReturnType<typeof newChecker>

export function newChecker(parts: CheckParts) {
  const { trust, chain, thresholds } = parts
  const known = new Map<string, Promise<Known>>()
  const gamma = gammaOf(parts)
  const liveness = livenessOf(chain)
  const keyOf = ({ question_id, request }: QuestionContext) =>
    `${question_id} ${request.requester} ${request.timestamp}`
  const gather = async (
    context: QuestionContext,
    markets: MarketsFound,
    head: Promise<bigint | string> | undefined,
  ) => {
    const isReopened = chain && (await orSilent(() => reopenedOf(chain, trust, context)))
    const [found, livenessSeconds, earlier] = await Promise.all([
      markets,
      liveness(context, await head),
      chain !== undefined && isReopened === true
        ? orSilent(async () => (await earlierRound(chain, context)) ?? notShown)
        : undefined,
    ])
    return {
      market: found(context),
      isReopened: typeof isReopened === 'boolean' ? isReopened : undefined,
      earlier,
      livenessSeconds,
    }
  }
  return {
    /** Facts of a question are kept, so that a plan and a signature ask once. */
    async check(subjects: readonly Subject[], signal?: AbortSignal) {
      signal?.throwIfAborted()
      const fresh = new Map(
        subjects
          .filter(({ context }) => !known.has(keyOf(context)))
          .map(({ context }) => [keyOf(context), context]),
      )
      const markets = gamma([...fresh.values()], signal)
      const head =
        fresh.size === 0
          ? undefined
          : chain && orSilent(async () => (await latestBlock(chain)).number)
      for (const [key, context] of fresh) known.set(key, gather(context, markets, head))
      const now = await nowOf({ chain, trust, ports: parts }).catch((error: unknown) => {
        // A silent node: the findings say so themselves.
        if (error instanceof UnavailableError) return parts.clock.nowMs() / 1_000
        throw error
      })
      const all = await Promise.all(
        subjects.map(async (subject) => {
          const facts = await known.get(keyOf(subject.context))
          if (facts === undefined) throw new Error('facts were left out')
          return findingsOf(subject, { ...facts, nowSeconds: now }, thresholds)
        }),
      )
      signal?.throwIfAborted()
      return all
    },
  }
}

type MarketsFound = Promise<(context: QuestionContext) => Market | string>

const notShown = 'the node does not show how the earlier round ended'

async function reopenedOf(chain: Chain, trust: Trust, context: QuestionContext) {
  const { requester } = context.request
  if (kindOf(trust, requester) === 'direct') return undefined
  if (context.reopened !== undefined) return context.reopened
  const reader = createRoundReader(chain, contractsOf(trust))
  const round = await reader.read(context.question_id, {
    questionId: context.question_id,
    requester,
  })
  return round?.isReopened
}

/** What a node does not answer is silence: the reason as a text. */
async function orSilent<T>(read: () => Promise<T>) {
  try {
    return await read()
  } catch (error) {
    if (error instanceof ChainError) return `the node did not answer (${error.kind})`
    throw error
  }
}

/** Seconds: what was set for the request, else its own, else the oracle's (domain §4, Liveness). */
function livenessOf(chain: Chain | undefined) {
  const defaults = new Map<string, Promise<bigint | undefined>>()
  return async ({ request }: QuestionContext, at: bigint | string | undefined) => {
    if (chain === undefined) return 'liveness is read from a node'
    if (typeof at !== 'bigint') return at ?? 'the node has no latest block'
    const asked = requestOf({ request })
    const { oracle } = asked
    const found = await orSilent(async () => {
      const managed = managedRequestId(asked)
      const standard =
        defaults.get(oracle) ??
        unlessRefused(readContract(chain, at, oracle, oracleAbi, 'defaultLiveness', []))
      defaults.set(oracle, standard)
      standard.catch(() => defaults.delete(oracle))
      const [custom, own, usual] = await Promise.all([
        unlessRefused(
          readContract(chain, at, oracle, oracleAbi, 'customLivenessValues', [managed]),
        ),
        heldRequest(chain, at, asked),
        standard,
      ])
      if (custom === undefined) return undefined
      return custom[0] || own.requestSettings.customLiveness || usual
    })
    return found ?? 'the oracle does not report its liveness'
  }
}

/** Markets of questions: by question id, many at once; of neg-risk ones by slug (domain §5.4). */
function gammaOf({ trust, markets: api }: CheckParts) {
  const atOnce = pLimit(callsAtOnce)
  return async (contexts: readonly QuestionContext[], outer?: AbortSignal): MarketsFound => {
    if (api === undefined) return () => 'no market API is configured (gamma-url)'
    const found = new Map<Hex, Market>()
    const silent = new Map<Hex, string>()
    const isNegRisk = ({ request }: QuestionContext) =>
      kindOf(trust, request.requester) === 'uma-ctf-adapter-negrisk'
    const ids = contexts.filter((one) => !isNegRisk(one)).map(({ question_id }) => question_id)
    const ask = async (of: readonly Hex[], read: Reader) => {
      try {
        for (const market of await read(api, outer ?? new AbortController().signal))
          if (market.questionId !== undefined) found.set(market.questionId, market)
      } catch (error) {
        if (!(error instanceof SlugLookUpError)) throw error
        const why = error.message
        for (const id of of) silent.set(id, `Gamma does not answer: ${why}`)
      }
    }
    await Promise.all([
      ...inGroups(ids, idsAtOnce).map((some) =>
        atOnce(() => ask(some, (markets, signal) => markets.byQuestions(some, signal))),
      ),
      ...contexts
        .filter(isNegRisk)
        .map(({ question_id, slug }) =>
          slug === undefined
            ? silent.set(question_id, 'Gamma finds a neg-risk market by its slug alone')
            : atOnce(() =>
                ask([question_id], async (markets, signal) =>
                  [(await markets.market(slug, signal)) ?? []].flat(),
                ),
              ),
        ),
    ])
    return ({ question_id }) =>
      found.get(question_id) ?? silent.get(question_id) ?? 'Gamma knows no market of this question'
  }
}

type Reader = (markets: MarketReads, signal: AbortSignal) => Promise<readonly Market[]>

/** Blocks after the first of its time that may hold the request: several share a second. */
const blocksOfOneTime = 8n
/**
 * Blocks before the reset that may hold the settlement: the oracle's settler settles, and somebody
 * else calls the adapter's `resolve` then (domain §10). First an hour of Polygon, then a day.
 */
const blocksOfSettlement = [2_000n, 43_200n] as const
const tooEarly = String(-(2n ** 255n))

/**
 * From the transaction that opened this round, whose timestamp is its block's; of a reset from
 * the settlement before it.
 */
async function earlierRound(
  chain: Chain,
  { request }: QuestionContext,
): Promise<EarlierRound | undefined> {
  const { oracle, requester, timestamp, ancillary_data } = request
  const head = await chain.block('latest')
  if (head === null) return undefined
  const first = await firstBlockFrom(chain, BigInt(timestamp), head)
  if (first === undefined) return undefined
  const last = first + blocksOfOneTime
  const logs = await chain.logs({
    fromBlock: first,
    toBlock: last < head.number ? last : head.number,
    addresses: [oracle],
    topics: [[topics.requestPrice, topics.disputePrice, topics.settle]],
  })
  const opened = logs.find((log) => {
    const args = loggedEvent(oracleAbi, 'RequestPrice', log)?.args
    return (
      log.address === oracle &&
      args?.ancillaryData === ancillary_data &&
      lowercase(args.requester) === requester &&
      String(args.timestamp) === timestamp
    )
  })
  if (opened === undefined) return undefined
  const { transactionHash } = opened
  const disputed = logs
    .flatMap((log) => ownEvent(request, log))
    .find(
      (one) =>
        one.kind === 'disputed' &&
        one.transaction === transactionHash &&
        one.timestamp !== timestamp,
    )
  if (disputed !== undefined)
    return { end: 'disputed', ...answerIn(disputed), price: disputed.price }
  return (
    (await calledTooEarly(chain, request, opened.blockNumber, head.number)) ?? {
      end: 'reset',
      transactionHash,
    }
  )
}

type Request = QuestionContext['request']

async function calledTooEarly(
  chain: Chain,
  request: Request,
  to: bigint,
  head: bigint,
): Promise<EarlierRound | undefined> {
  const { oracle, requester } = request
  const filter = { addresses: [oracle], topics: [[topics.settle], [addressTopic(requester)]] }
  let end = to
  for (const blocks of blocksOfSettlement) {
    const from = to > blocks ? to - blocks : 0n
    let found: OwnEvent | undefined
    for await (const { logs } of logRanges(chain, filter, { from, to: end }))
      found =
        logs
          .flatMap((log) => ownEvent(request, log))
          .findLast(({ kind, price }) => kind === 'settled' && price === tooEarly) ?? found
    if (found !== undefined) {
      const asked = { ...requestOf({ request }), timestamp: found.timestamp }
      const { price } = await readRequest(chain, head, asked)
      return { end: 'too early', ...answerIn(found), price }
    }
    if (from === 0n) return undefined
    end = from - 1n
  }
  return undefined
}

type OwnEvent = ReturnType<typeof ownEvent>[number]

function ownEvent({ oracle, requester, ancillary_data }: Request, log: ChainLog) {
  const event = stakeEventOf(log)
  const isOurs =
    event !== undefined &&
    'text' in event &&
    event.oracle === oracle &&
    event.requester === requester &&
    event.ancillaryData === ancillary_data
  return isOurs ? [event] : []
}

const answerIn = (event: OwnEvent) => ({
  proposer: event.wallet,
  disputer: 'disputer' in event ? event.disputer : undefined,
  transactionHash: event.transaction,
})
