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
import { UnavailableError } from '#protocol/errors'
import { once } from '#protocol/once'
import { outcomeOf } from '#protocol/proposal'
import { nowOf } from '../trust/context.js'
import { kindOf, type QuestionContext, requestOf, type Trust } from '../trust/trust.js'
import { findingsOf, notRead, type Subject, type Thresholds } from './findings.js'

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

export const newChecker = ({ trust, clock, chain, markets, thresholds: limits }: CheckParts) => ({
  async check(subjects: readonly Subject[], signal: AbortSignal = new AbortController().signal) {
    signal.throwIfAborted()
    const now = nowOf({ chain, trust, ports: { clock } })
    const nowSeconds = await now.catch((error: unknown) => {
      // A silent node: the findings say so themselves.
      if (error instanceof UnavailableError) return clock.nowMs() / 1_000
      throw error
    })
    const contexts = subjects.map(({ context }) => context)
    const marketIn = marketOf(trust, markets, contexts, signal)
    const ask = chain && asking(chain)
    const all = await Promise.all(
      subjects.map(async (subject) => {
        const { context } = subject
        const [market, livenessSeconds, earlier] = await Promise.all([
          marketIn(context),
          ask?.(livenessOf, context) ?? 'liveness is read from a node',
          (context.reopened && ask?.(earlierRound, context)) || notRead,
        ])
        return findingsOf({ ...subject, nowSeconds, market, earlier, livenessSeconds, limits })
      }),
    )
    signal.throwIfAborted()
    return all
  },
})

/** A text where the node is silent. */
function asking(chain: Chain) {
  const head = once(() => latestBlock(chain))
  return async <T>(
    read: (chain: Chain, context: QuestionContext, head: BlockHeader) => Promise<T>,
    context: QuestionContext,
  ) => {
    try {
      return await read(chain, context, await head())
    } catch (error) {
      if (error instanceof ChainError) return `the node did not answer (${error.kind})`
      throw error
    }
  }
}

/** Set for the request, else its own, else the oracle's (domain §4, Liveness). */
async function livenessOf(chain: Chain, context: QuestionContext, { number: at }: BlockHeader) {
  const asked = requestOf(context)
  const { oracle } = asked
  const key = [managedRequestId(asked)] as const
  const [custom, own, standard] = await Promise.all([
    unlessRefused(readContract(chain, at, oracle, oracleAbi, 'customLivenessValues', key)),
    heldRequest(chain, at, asked),
    unlessRefused(readContract(chain, at, oracle, oracleAbi, 'defaultLiveness', [])),
  ])
  const found = custom && (custom[0] || own.requestSettings.customLiveness || standard)
  return found ?? 'the oracle does not report its liveness'
}

/** By question id, many at once; of neg-risk ones by slug (domain §5.4). */
function marketOf(
  trust: Trust,
  api: MarketReads | undefined,
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
  const ids = new Set<Hex>()
  const calls: Promise<void>[] = []
  for (const { request, question_id: id, slug } of contexts)
    if (kindOf(trust, request.requester) !== 'uma-ctf-adapter-negrisk') ids.add(id)
    else if (slug === undefined) found.set(id, 'Gamma finds a neg-risk market by its slug alone')
    else calls.push(ask([id], async () => [await api.market(slug, signal)]))
  for (const some of inGroups([...ids], idsAtOnce))
    calls.push(ask(some, () => api.byQuestions(some, signal)))
  const asked = Promise.all(calls)
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
async function earlierRound(chain: Chain, context: QuestionContext, head: BlockHeader) {
  const asked = requestOf(context)
  const { oracle, requester, timestamp, ancillaryData } = asked
  const first = (await firstBlockFrom(chain, BigInt(timestamp), head)) ?? head.number
  const filter = {
    addresses: [oracle],
    topics: [[topics.disputePrice, topics.settle], [addressTopic(requester)]],
  }
  const last = first + blocksOfOneTime
  let to = last < head.number ? last : head.number
  for (const before of [0n, ...blocksOfSettlement]) {
    const from = first > before ? first - before : 0n
    let end: Extract<StakeEvent, { kind: 'disputed' | 'settled' }> | undefined
    for await (const { logs } of logRanges(chain, filter, { from, to }))
      for (const event of logs.map(stakeEventOf)) {
        if (event?.kind !== 'disputed' && event?.kind !== 'settled') continue
        const isOwn = event.requester === requester && event.ancillaryData === ancillaryData
        const isEnd = event.kind === 'settled' ? event.price === tooEarly : before === 0n
        if (isOwn && isEnd && event.timestamp !== timestamp) end = event
      }
    to = from - 1n
    if (end === undefined) continue
    const { wallet, disputer, transaction } = end
    const isDispute = end.kind === 'disputed'
    const round = { ...asked, timestamp: end.timestamp }
    // A settlement tells the price of the voters.
    const { price } = isDispute ? end : await readRequest(chain, head.number, round)
    const answered = outcomeOf(price)
    const dispute = disputer === undefined ? '' : `, and ${disputer} disputed it`
    const verdict = isDispute ? '' : '; the voters called it too early'
    return {
      disputed: isDispute ? answered : undefined,
      detail: `${wallet} answered ${answered ?? `price ${price}`}${dispute}${verdict} (transaction ${transaction})`,
    }
  }
  return 'the node does not show how the earlier round ended'
}
