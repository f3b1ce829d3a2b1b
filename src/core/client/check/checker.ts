/** What findings are made of. */
import pLimit from 'p-limit'
import { oracleAbi } from '#chain/contracts'
import { createRoundReader, managedRequestId } from '#chain/questions'
import { headOf, readContract, unlessRefused } from '#chain/reading'
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
import { nowOf } from '../trust/context.js'
import { contractsOf, kindOf, type QuestionContext, type Trust } from '../trust/trust.js'
import { earlierRound } from './earlier-round.js'
import { type Facts, findingsOf, type Subject, type Thresholds } from './findings.js'

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
  ): Promise<Known> => {
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
        fresh.size === 0 ? undefined : chain && orSilent(async () => (await headOf(chain)).number)
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
async function orSilent<T>(read: () => Promise<T>): Promise<T | string> {
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
    const { oracle, requester, identifier, timestamp, ancillary_data: ancillaryData } = request
    const key = [requester, identifier.raw, BigInt(timestamp), ancillaryData] as const
    const found = await orSilent(async () => {
      const managed = managedRequestId({ requester, identifier: identifier.raw, ancillaryData })
      const standard =
        defaults.get(oracle) ??
        unlessRefused(readContract(chain, at, oracle, oracleAbi, 'defaultLiveness', []))
      defaults.set(oracle, standard)
      standard.catch(() => defaults.delete(oracle))
      const [custom, own, usual] = await Promise.all([
        unlessRefused(
          readContract(chain, at, oracle, oracleAbi, 'customLivenessValues', [managed]),
        ),
        readContract(chain, at, oracle, oracleAbi, 'getRequest', key),
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
