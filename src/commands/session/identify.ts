/** What users call questions (contract §9, Identifiers). */
import { titleOf } from '#chain/ancillary'
import { onChain } from '#chain/unavailable'
import { knownQuestionId } from '#client/propose/intent'
import { contractsOf, type Trust } from '#client/trust/trust'
import { type Chain, type Market, SlugLookUpError } from '#ports'
import { inGroups } from '#protocol/capped'
import { RejectedError, UnavailableError, UsageError } from '#protocol/errors'
import { namedQuestion } from '#protocol/market-url'
import { isQuestionId, limits } from '#protocol/words'
import type { Context } from '../terminal/context.js'
import { publicUrl, visible } from '../terminal/render.js'
import { contextSource, requireIdentifier } from './question.js'
import type { Session } from './session.js'

const gammaLimitMs = 20_000
const askedAtOnce = 10

/**
 * Question ids and slugs of what was typed, in order. A slug that is not pinned is looked up at
 * Gamma,
 * and holds for this run where the chain confirms it (R9); without either it is the gateway's to
 * read.
 */
export async function identify(context: Context, session: Session, texts: readonly string[]) {
  const found: string[] = []
  const isKnown = knownHere(session)
  for (let at = 0; at < texts.length; at += askedAtOnce) {
    const some = texts.slice(at, at + askedAtOnce)
    found.push(
      ...(await Promise.all(some.map((one) => identifyOne(context, session, one, isKnown)))),
    )
  }
  return found
}

/**
 * Contexts of many questions, as many at a time as one call takes. Notes of all of them are told
 * once, at the end.
 */
export async function* contextGroups<Asked>(
  context: Context,
  session: Session,
  all: readonly Asked[],
  nameOf: (one: Asked) => string,
  what: string,
) {
  const { output } = context
  const source = await contextSource(context, session)
  const notes = new Set<string>()
  const progress = output.progress(what)
  try {
    for (const group of inGroups(all, limits.batchItems)) {
      const names = await identify(context, session, group.map(nameOf))
      const found = await source.contexts(names, { signal: session.signal })
      for (const one of found) for (const note of one.context ? one.notes : []) notes.add(note)
      yield found.flatMap((result, at) => {
        const asked = group[at]
        return asked === undefined ? [] : [{ asked, result }]
      })
    }
  } finally {
    progress.stop()
  }
  for (const note of notes) output.note(`note: ${visible(note)}`)
}

function knownHere(session: Session): (slug: string) => Promise<boolean> {
  let loading: ReturnType<Session['journal']['load']> | undefined
  return async (slug) => {
    loading ??= session.journal.load()
    return knownQuestionId(await session.trust(), slug, await loading) !== undefined
  }
}

async function identifyOne(
  context: Context,
  session: Session,
  text: string,
  isKnown: (slug: string) => Promise<boolean>,
) {
  const identifier = requireIdentifier(text)
  if (isQuestionId(identifier)) return identifier
  if (namedQuestion(text)?.isEvent === true) {
    const market = await onlyMarket(session, identifier)
    if (market !== undefined) return learn(context, session, market)
  }
  if (await isKnown(identifier)) return identifier
  const market = (await session.chain()) && (await marketOf(session, identifier))
  return market === undefined ? identifier : learn(context, session, market)
}

/** `undefined` where Gamma is not configured, or knows none. */
export const marketOf = async (session: Session, slug: string) =>
  orGammaDown(session, async (signal) => (await session.markets())?.market(slug, signal))

/** The one market of an event; `undefined` as above. */
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

async function learn(context: Context, session: Session, market: Market) {
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
  context.output.note(
    `note: ${visible(`${slug} is ${questionId} (${title}), according to ${from}; the chain has that question. Pin it with \`proposer trust pin ${slug}\``)}`,
  )
  return slug
}

/** At a pinned requester. RejectedError `question_not_found`. */
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
  { signal: outer, settings }: Pick<Session, 'signal' | 'settings'>,
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
