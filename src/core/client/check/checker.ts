import pLimit from 'p-limit'
import { oracleAbi, tooEarlyPrice, topics } from '#chain/contracts'
import { logRanges } from '#chain/log-ranges'
import { addressTopic, firstBlockFrom } from '#chain/propose'
import { createRoundReader, managedRequestId } from '#chain/questions'
import { heldRequest, latestBlock, readContract, unlessRefused } from '#chain/reading'
import { readRequest, stakeEventOf } from '#chain/stakes'
import {
  type Chain,
  ChainError,
  type Clock,
  type Hex,
  type Market,
  type Markets,
  SlugLookUpError,
} from '#ports'
import { inGroups } from '#protocol/capped'
import { UnavailableError } from '#protocol/errors'
import { once } from '#protocol/once'
import { nowOf } from '../trust/context.js'
import { contractsOf, kindOf, type QuestionContext, requestOf, type Trust } from '../trust/trust.js'
import { type EarlierRound, findingsOf, type Subject, type Thresholds } from './findings.js'

export type MarketReads = Pick<Markets, 'byQuestions' | 'market'>

interface CheckParts {
  readonly trust: Trust
  readonly clock: Clock
  readonly chain: Chain | undefined
  readonly markets: MarketReads | undefined
  readonly thresholds: Thresholds
}

/** A URL of 50 is some 4 KB. */
const idsAtOnce = 50
/** Gamma allows an address 300 calls in 10 s. */
const callsAtOnce = 4

export type Checker = ReturnType<typeof newChecker>

export const newChecker = (parts: CheckParts) => ({
  async check(subjects: readonly Subject[], signal: AbortSignal = new AbortController().signal) {
    signal.throwIfAborted()
    const { trust, clock, chain, thresholds: limits } = parts
    const nowSeconds = await nowOf({ chain, trust, ports: parts }).catch((error: unknown) => {
      // A silent node: the findings say so themselves.
      if (error instanceof UnavailableError) return clock.nowMs() / 1_000
      throw error
    })
    const contexts = subjects.map(({ context }) => context)
    const [marketIn, livenessIn] = [marketOf(parts, contexts, signal), livenessOf(chain)]
    const all = await Promise.all(
      subjects.map(async (subject) => {
        const { context } = subject
        const isReopened = chain && (await orSilent(() => reopenedOf(chain, trust, context)))
        const [market, livenessSeconds, earlier] = await Promise.all([
          marketIn(context),
          livenessIn(context),
          chain && isReopened === true ? orSilent(() => earlierRound(chain, context)) : undefined,
        ])
        const facts = { nowSeconds, market, isReopened, earlier, livenessSeconds }
        return findingsOf({ ...subject, ...facts, limits })
      }),
    )
    signal.throwIfAborted()
    return all
  },
})

const notShown = 'the node does not show how the earlier round ended'

async function reopenedOf(chain: Chain, trust: Trust, context: QuestionContext) {
  const { requester } = context.request
  if (kindOf(trust, requester) === 'direct') return undefined
  if (context.reopened !== undefined) return context.reopened
  const { question_id: questionId } = context
  const reader = createRoundReader(chain, contractsOf(trust))
  return (await reader.read(questionId, { questionId, requester }))?.isReopened
}

async function orSilent<T>(read: () => Promise<T>) {
  try {
    return await read()
  } catch (error) {
    if (error instanceof ChainError) return `the node did not answer (${error.kind})`
    throw error
  }
}

/** Set for the request, else its own, else the oracle's (domain §4, Liveness). */
function livenessOf(
  chain: Chain | undefined,
): (context: QuestionContext) => Promise<bigint | string> {
  if (chain === undefined) return async () => 'liveness is read from a node'
  const defaults = new Map<string, Promise<bigint | undefined>>()
  const head = once(() => latestBlock(chain))
  return async ({ request }) => {
    const asked = requestOf({ request })
    const { oracle } = request
    const found = await orSilent(async () => {
      const { number: at } = await head()
      const usual =
        defaults.get(oracle) ??
        unlessRefused(readContract(chain, at, oracle, oracleAbi, 'defaultLiveness', []))
      defaults.set(oracle, usual)
      const key = [managedRequestId(asked)] as const
      const [custom, own, standard] = await Promise.all([
        unlessRefused(readContract(chain, at, oracle, oracleAbi, 'customLivenessValues', key)),
        heldRequest(chain, at, asked),
        usual,
      ])
      return custom && (custom[0] || own.requestSettings.customLiveness || standard)
    })
    return found ?? 'the oracle does not report its liveness'
  }
}

/** By question id, many at once; of neg-risk ones by slug (domain §5.4). */
function marketOf(
  { trust, markets: api }: CheckParts,
  contexts: readonly QuestionContext[],
  signal: AbortSignal,
): (context: QuestionContext) => Promise<Market | string> {
  if (api === undefined) return async () => 'no market API is configured (gamma-url)'
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
  const isNegRisk = ({ request }: QuestionContext) =>
    kindOf(trust, request.requester) === 'uma-ctf-adapter-negrisk'
  const named = contexts.filter((one) => !isNegRisk(one)).map(({ question_id }) => question_id)
  const ids = [...new Set(named)]
  const asked = Promise.all([
    ...inGroups(ids, idsAtOnce).map((some) => ask(some, () => api.byQuestions(some, signal))),
    ...contexts
      .filter(isNegRisk)
      .map(({ question_id, slug }) =>
        slug === undefined
          ? found.set(question_id, 'Gamma finds a neg-risk market by its slug alone')
          : ask([question_id], async () => [await api.market(slug, signal)]),
      ),
  ])
  return async ({ question_id }) => {
    await asked
    return found.get(question_id) ?? 'Gamma knows no market of this question'
  }
}

/** Several share a second. */
const blocksOfOneTime = 8n
/** From settlement to reset (domain §10): an hour of Polygon, then a day. */
const blocksOfSettlement = [2_000n, 43_200n]
const tooEarly = String(tooEarlyPrice)

/**
 * A dispute opens the next round in its own transaction; a reset comes some time after the
 * settlement as "too early".
 */
async function earlierRound(
  chain: Chain,
  { request }: QuestionContext,
): Promise<EarlierRound | string> {
  const { oracle, requester, timestamp, ancillary_data } = request
  const head = await latestBlock(chain)
  const first = (await firstBlockFrom(chain, BigInt(timestamp), head)) ?? head.number
  const last = first + blocksOfOneTime
  const filter = {
    addresses: [oracle],
    topics: [[topics.disputePrice, topics.settle], [addressTopic(requester)]],
  }
  let to = last < head.number ? last : head.number
  for (const before of [0n, ...blocksOfSettlement]) {
    const from = first > before ? first - before : 0n
    let end: EarlierRound | undefined
    for await (const { logs } of logRanges(chain, filter, { from, to }))
      for (const event of logs.map(stakeEventOf)) {
        if (event?.kind !== 'disputed' && event?.kind !== 'settled') continue
        const isOwn = event.requester === requester && event.ancillaryData === ancillary_data
        const isTooEarly = event.kind === 'settled'
        const isEnd = isTooEarly ? event.price === tooEarly : before === 0n
        if (!isOwn || !isEnd || event.timestamp === timestamp) continue
        const { wallet: proposer, disputer, transaction: transactionHash, price } = event
        const round = { ...requestOf({ request }), timestamp: event.timestamp }
        end = {
          ...{ isTooEarly, proposer, disputer, transactionHash },
          price: isTooEarly ? (await readRequest(chain, head.number, round)).price : price,
        }
      }
    if (end !== undefined) return end
    if (from === 0n) break
    to = from - 1n
  }
  return notShown
}
