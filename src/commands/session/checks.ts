/** Findings before a signature, for the verbs that sign and for `check` (contract §9). */
import type { MarketReads } from '#client/check/checker'
import { checkRefusal, type QuestionFinding, type Required } from '#client/check/findings'
import type { Markets } from '#ports'
import { counted } from '../terminal/render.js'
import type { FlagsOf } from '../terminal/verb.js'
import type { Session } from './session.js'
import { type checkFlags, percentOf, type Settings, secondsOf } from './settings.js'

export type CheckFlags = FlagsOf<typeof checkFlags>

export const requiredBy = ({ requireCheck, requireKnown }: CheckFlags) => ({
  check: requireCheck === true,
  known: requireKnown === true,
})

export const isRequired = ({ check, known }: Required) => check || known

export async function openChecker(session: Session, clock: Checking['clock']) {
  const thresholds = thresholdsOf(session.settings)
  const [trust, chain, markets, { newChecker }] = await Promise.all([
    session.trust(),
    session.chain(),
    session.markets(),
    import('#client/check/checker'),
  ])
  return newChecker({ trust, clock, chain, markets: markets && limited(markets), thresholds })
}

/** A market API that takes longer has told nothing: nobody waits for it with a signature. */
const longestMs = 10_000

function limited(markets: Markets): MarketReads {
  const within = (signal: AbortSignal) => AbortSignal.any([signal, AbortSignal.timeout(longestMs)])
  return {
    byQuestions: (ids, signal) => markets.byQuestions(ids, within(signal)),
    market: (slug, signal) => markets.market(slug, within(signal)),
  }
}
type Checking = Parameters<typeof import('#client/check/checker').newChecker>[0]

export function thresholdsOf(settings: Settings) {
  return {
    pricePercent: percentOf(settings.checkPrice),
    gameSeconds: secondsOf(settings.checkGame),
    livenessSeconds: secondsOf(settings.checkLiveness),
    rewardPercent: percentOf(settings.checkReward),
    rulesSeconds: secondsOf(settings.checkRules),
  }
}

export const findingLine = ({ id, detail, source }: QuestionFinding) =>
  `warn: ${id}: ${detail} [${source}]`

export function findingLines(findings: readonly QuestionFinding[]) {
  const unknown = findings.filter(({ result }) => result === 'unknown').map(({ id }) => id)
  return [
    ...findings.filter(({ result }) => result === 'warn').map(findingLine),
    ...(unknown.length === 0 ? [] : [`unknown: ${unknown.join(', ')}`]),
  ]
}

/** `5 ok, 1 warn, 1 unknown`. */
export function countsOf(findings: readonly QuestionFinding[]) {
  const counts = { ok: 0, warn: 0, unknown: 0 }
  for (const { result } of findings) counts[result]++
  return counts
}

/** What is said of many questions at once, before their sum is asked for. */
export const tallyText = (counts: ReturnType<typeof countsOf>) =>
  `${counted(counts.warn, 'warning')}, ${counts.unknown} unknown`

export function requireFindings(
  identifier: string,
  findings: readonly QuestionFinding[],
  flags: CheckFlags,
) {
  const error = checkRefusal(identifier, findings, requiredBy(flags))
  if (error !== undefined) throw error
}
