/** A question, by whatever name (contract §9). Its text is outside text, shown harmless (R20). */
import { plainText, titleOf } from '#chain/ancillary'
import { coinOf, knownToken } from '#chain/profiles'
import type { Rules, RulesUpdate } from '#chain/rules'
import { onChain } from '#chain/unavailable'
import type { MarketReads, QuestionFinding } from '#client/check/checker'
import { knownQuestionId } from '#client/propose/intent'
import type { Required } from '#client/propose/plan'
import { contextsFrom, tokenIn } from '#client/trust/context'
import { contractsOf, type QuestionContext, type Trust } from '#client/trust/trust'
import { type Chain, type Market, type Markets, SlugLookUpError } from '#ports'
import { parseAmount, toRaw } from '#protocol/amount'
import { inGroups } from '#protocol/capped'
import { RejectedError, UnavailableError, UsageError } from '#protocol/errors'
import { namedQuestion, requireIdentifier } from '#protocol/market-url'
import { once } from '#protocol/once'
import { type answersText, answerText } from '#protocol/outcome-words'
import type { Address } from '#protocol/schema'
import { fromHex } from '#protocol/witness'
import { isQuestionId, limits } from '#protocol/words'
import { csvLine, type Rows } from '../terminal/output.js'
import {
  amountText,
  amountWithRaw,
  counted,
  dateText,
  publicUrl,
  type TokenUnits,
  timeText,
} from '../terminal/render.js'
import type { FlagsOf } from '../terminal/verb.js'
import { inputJson } from './inputs.js'
import type { Session } from './session.js'
import {
  type Configured,
  type checkFlags,
  headroomBasisPoints,
  percentOf,
  type Setting,
  secondsOf,
} from './settings.js'

export { requireIdentifier } from '#protocol/market-url'

export const hasGateway = ({ settings: { gateway, local } }: Configured) =>
  (gateway ?? local) !== undefined

export const asksGateway = (session: Session) =>
  session.settings.rpcUrl === undefined || hasGateway(session)

/** Without budget from a node where one is configured; kind `direct` is the gateway's to tell. */
export const contextSource = async (session: Session) =>
  contextsFrom({
    trust: await session.trust(),
    clock: session.clock,
    chain: await session.chain(),
    gateway: asksGateway(session) ? () => session.gateway('read') : undefined,
  })

export const unitsOf = ({ bond, signing, token }: QuestionContext) =>
  knownToken(signing.chain_id, bond.token) ?? token

export function contextRows(context: QuestionContext): Rows {
  const { request, bond, contracts, signing, outcomes, price } = context
  const answers = outcomes
    ? outcomes
        .map((one) => `${answerText(one.outcome, one.label)}${one.allowed ? '' : ' (not allowed)'}`)
        .join(', ')
    : `prices ${price.allowed_values.join(', ')}`
  return [
    ['question', context.question_id],
    ['slug', context.slug],
    ['answers', answers],
    ['bond', amountWithRaw(bond.required_bond, unitsOf(context))],
    ['token', bond.token],
    ['round', dateText(request.timestamp)],
    ['rules', context.rules && rulesLine(context.rules)],
    ['oracle', request.oracle],
    ['requester', request.requester],
    ['oracle id', request.identifier.raw],
    ['chain', String(signing.chain_id)],
    ['permit2', contracts.permit2],
    ['signed proposer', contracts.signed_proposer],
    ['source', context.source],
  ]
}

const shownRules = 10_000

export function rulesLine({ updates, hash }: Rules) {
  const last = updates.at(-1)
  return last === undefined
    ? `no clarification (${hash})`
    : `${counted(updates.length, 'clarification')}, the last ${timeText(last.at)} (${hash})`
}

export const clarificationTexts = (updates: readonly RulesUpdate[]) =>
  updates.map(({ at, text }) => {
    const plain = plainText(text)
    const characters = plain.length > shownRules ? [...plain] : []
    const shown =
      characters.length <= shownRules
        ? plain
        : `${characters.slice(0, shownRules).join('')}… [${characters.length} characters in all; --json has them]`
    return `clarification of ${timeText(at)}: ${shown}`
  })

export const questionText = (ancillaryData: string) =>
  plainText(new TextDecoder().decode(fromHex(ancillaryData)))

export type CheckFlags = FlagsOf<typeof checkFlags>

export const requiredBy = ({ requireCheck, requireKnown }: CheckFlags) => ({
  check: requireCheck === true,
  known: requireKnown === true,
})

export const isRequired = ({ check, known }: Required) => check || known

export async function openChecker(session: Session) {
  const { clock, settings } = session
  const thresholds = {
    pricePercent: percentOf(settings.checkPrice),
    gameSeconds: secondsOf(settings.checkGame),
    livenessSeconds: secondsOf(settings.checkLiveness),
    rewardPercent: percentOf(settings.checkReward),
    rulesSeconds: secondsOf(settings.checkRules),
  }
  const [trust, chain, markets, { newChecker }] = await Promise.all([
    session.trust(),
    session.chain(),
    session.markets(),
    import('#client/check/checker'),
  ])
  return newChecker({ trust, clock, chain, markets: markets && limited(markets), thresholds })
}

/** A market API that takes longer has told nothing: no signature waits for it. */
const longestMs = 10_000

function limited(markets: Markets): MarketReads {
  const within = (signal: AbortSignal) => AbortSignal.any([signal, AbortSignal.timeout(longestMs)])
  return {
    byQuestions: (ids, signal) => markets.byQuestions(ids, within(signal)),
    market: (slug, signal) => markets.market(slug, within(signal)),
  }
}
export const findingLine = ({ id, detail, source }: QuestionFinding) =>
  `warn: ${id}: ${detail} [${source}]`

export const tallyText = ({ warn, unknown }: Record<'warn' | 'unknown', number>) =>
  `${counted(warn, 'warning')}, ${unknown} unknown`

interface WorksheetRow {
  readonly identifier: string
  readonly slug: string | null
  readonly title: string | null
  readonly outcomes: Parameters<typeof answersText>[0]
  readonly bond: string | null
  readonly reward: string | null
  readonly ends_at?: string | null
  readonly units: TokenUnits | undefined
  readonly rules?: Rules | undefined
}

/** Characters of clarifications in a cell: a row of input holds 64 KiB. */
const mostText = 16_000
const tooLong = 'too long for a cell: read them with `proposer context`'

const columns = [
  ...['identifier', 'slug', 'title', 'labels', 'bond', 'reward', 'ends_at'],
  ...['clarifications', 'rules_seen', 'outcome'],
]

export const worksheetHead = csvLine(columns)

export function worksheetLine({ outcomes, bond, reward, units, rules, ...row }: WorksheetRow) {
  const labels = outcomes.map(({ outcome, label }) => answerText(outcome, label)).join('; ')
  const amounts = [bond, reward].map((raw) => raw && amountText(raw, units))
  const texts = rules?.updates.map(({ at, text }) => `${at}: ${plainText(text)}`).join(' | ')
  return csvLine([
    ...[row.identifier, row.slug, row.title, labels, ...amounts, row.ends_at],
    // Who has not got them whole has not read them.
    ...(texts === undefined || texts.length > mostText
      ? [texts && tooLong, '']
      : [texts, rules?.hash]),
    '',
  ])
}

const gammaLimitMs = 20_000
const askedAtOnce = 10

/**
 * A slug that is not pinned is looked up at Gamma, and holds for this run where the chain confirms
 * it (R9); without either it is the gateway's to read.
 */
export async function identify(session: Session, texts: readonly string[]) {
  const found: string[] = []
  const view = once(() => session.journal.load())
  for (const some of inGroups(texts, askedAtOnce))
    found.push(...(await Promise.all(some.map((one) => identifyOne(session, one, view)))))
  return found
}

export async function identifyOne(
  session: Session,
  text: string,
  view: Session['journal']['load'] = session.journal.load,
) {
  const identifier = requireIdentifier(text)
  if (isQuestionId(identifier)) return identifier
  if (namedQuestion(text)?.isEvent === true) {
    const market = await onlyMarket(session, identifier)
    if (market !== undefined) return learn(session, market)
  }
  if (knownQuestionId(await session.trust(), identifier, await view())) return identifier
  const market = (await session.chain()) && (await marketOf(session, identifier))
  return market === undefined ? identifier : learn(session, market)
}

export function noteOnce({ output }: Session): (text: string) => void {
  const notes = new Set<string>()
  return (text) => {
    if (!notes.has(text)) output.remark(text)
    notes.add(text)
  }
}

export async function* contextGroups<Asked extends { readonly identifier: string }>(
  session: Session,
  all: readonly Asked[],
  what: string,
) {
  const source = await contextSource(session)
  const note = noteOnce(session)
  const progress = session.output.progress(what)
  try {
    for (const group of inGroups(all, limits.batchItems)) {
      const typed = group.map(({ identifier }) => identifier)
      const names = await identify(session, typed)
      const found = await source.contexts(names, { signal: session.until })
      for (const one of found) if (one.context) one.notes.forEach(note)
      yield group.flatMap((asked, at) => {
        const result = found[at]
        return result === undefined ? [] : [{ asked, result }]
      })
    }
  } finally {
    progress.stop()
  }
}

export const marketOf = async (session: Session, slug: string) =>
  orGammaDown(session, async (signal) => (await session.markets())?.market(slug, signal))

export async function onlyMarket(session: Session, slug: string) {
  const markets = await orGammaDown(session, async (signal) =>
    (await session.markets())?.event(slug, signal),
  )
  if (markets === undefined || markets.length === 1) return markets?.[0]
  const shown = markets.map((one) => `${one.slug} (${one.title})`)
  throw new UsageError(
    'several_markets',
    `the event ${slug} has ${markets.length} markets: ${shown.join('; ')}`,
    'name one of them by its slug',
  )
}

async function learn(session: Session, market: Market) {
  const trust = await session.trust()
  const { slug } = market
  if (Object.hasOwn(trust.slugs, slug)) return slug
  const chain = await session.chain()
  if (chain === undefined) return slug
  const { questionId, round } = await confirmedMarket(chain, trust, market)
  // In memory alone: only `trust pin` writes pins.
  trust.slugs[slug] = questionId
  const { gammaUrl } = session.settings
  const from = gammaUrl === undefined ? 'Gamma' : publicUrl(gammaUrl.value)
  const title = titleOf(round.ancillaryData) ?? 'a question without a title'
  session.output.remark(
    `${slug} is ${questionId} (${title}), according to ${from}; the chain has that question. Pin it with \`proposer trust pin ${slug}\``,
  )
  return slug
}

export async function confirmedMarket(chain: Chain, trust: Trust, { slug, questionId }: Market) {
  const { createRoundReader } = await import('#chain/questions')
  const round =
    questionId &&
    (await onChain(() => createRoundReader(chain, contractsOf(trust)).read(questionId)))
  if (questionId !== undefined && round !== undefined) return { questionId, round }
  throw new RejectedError(
    'question_not_found',
    questionId === undefined
      ? `the market ${slug} has no oracle question`
      : `Gamma says that ${slug} is ${questionId}, and no pinned requester on the chain knows it`,
    'check the slug, the requesters in the trust file and the --rpc-url',
  )
}

export async function orGammaDown<T>(
  { until: outer, settings }: Pick<Session, 'until' | 'settings'>,
  ask: (signal: AbortSignal) => Promise<T>,
) {
  const signal = AbortSignal.any([outer, AbortSignal.timeout(gammaLimitMs)])
  try {
    return await ask(signal)
  } catch (error) {
    outer.throwIfAborted()
    if (!(error instanceof SlugLookUpError)) throw error
    const host = new URL(settings.gammaUrl?.value ?? 'https://gamma').host
    throw new UnavailableError(
      'gamma_unavailable',
      `Gamma ${host}: ${error.message}`,
      'retry later, or use question ids, pinned slugs or --source chain, which need no Gamma',
    )
  }
}

export interface PinnedUnits extends TokenUnits {
  readonly address: Address
}

/** With the tokens that it may be of: any where it was given raw (contract §9, Amounts). */
export async function givenAmount(
  setting: Setting | undefined,
  units: () => Promise<readonly PinnedUnits[]>,
) {
  if (setting === undefined) return undefined
  const { value, from, origin } = setting
  const written = parseAmount(value, from, origin !== 'flag')
  if (written.unit === 'raw') return { raw: toRaw(written, []).raw, tokens: undefined }
  const { raw, tokens } = toRaw(written, await units())
  return { raw, tokens: tokens.map(({ address }) => address) }
}

export function maxFeeWei(setting: Setting | undefined, chainId: number) {
  if (setting === undefined) return undefined
  const { value, from, origin } = setting
  const symbol = coinOf(chainId)
  const coins = symbol === undefined ? [] : [{ symbol, decimals: 18 }]
  return toRaw(parseAmount(value, from, origin !== 'flag', symbol?.toLowerCase()), coins).raw
}

/** What a setting lets be authorized; `beside`: an amount whose tokens they have to share. */
export async function capsOf(
  { settings }: Session,
  units: () => Promise<readonly PinnedUnits[]>,
  beside: Awaited<ReturnType<typeof givenAmount>>,
) {
  const cap = await givenAmount(settings.maxAmount, units)
  const [one, other] = [beside?.tokens, cap?.tokens]
  return {
    maxAmountRaw: cap?.raw,
    amountTokens: one && other ? one.filter((address) => other.includes(address)) : (one ?? other),
    headroomBasisPoints: headroomBasisPoints(settings.headroom),
  }
}

export const pinnedToken = (
  { chain_id: chainId, token_info: info }: Pick<Trust, 'chain_id' | 'token_info'>,
  token: Address,
) => knownToken(chainId, token) ?? info?.[token]

/** The known ones of the pinned tokens: by `pinnedToken`, --context, or the node. */
export async function pinnedUnits(
  session: Session,
  contextFile?: string,
  pins?: Trust,
): Promise<readonly PinnedUnits[]> {
  const trust = pins ?? (await session.trust())
  const unpinned = once(async () => {
    const chain = await session.chain()
    return chain ? chainTokens(chain, trust) : fileToken
  })
  const fileToken = async (address: Address) =>
    // stdin is read once, for the signature.
    contextFile === undefined || contextFile === '-'
      ? undefined
      : tokenIn(await inputJson(session, contextFile), address)
  const found = await Promise.all(
    trust.tokens.map(async (address) => {
      const units = pinnedToken(trust, address) ?? (await (await unpinned())(address))
      return units ? [{ address, symbol: units.symbol, decimals: units.decimals }] : []
    }),
  )
  return found.flat()
}

async function chainTokens(
  chain: Chain,
  trust: Trust,
): Promise<(address: Address) => Promise<TokenUnits>> {
  const [{ pinnedHeads }, { readToken }] = await Promise.all([
    import('#client/funds/funds'),
    import('#chain/questions'),
  ])
  const { latest } = await pinnedHeads(chain, trust)
  return (address) => onChain(() => readToken(chain, address, latest.number))
}
