/** A question, its clarifications and its findings for people: outside text, shown harmless (R20). */
import { plainText } from '#chain/ancillary'
import { knownToken } from '#chain/profiles'
import type { Rules, RulesUpdate } from '#chain/rules'
import type { MarketReads } from '#client/check/checker'
import { checkRefusal, type QuestionFinding, type Required } from '#client/check/findings'
import type { AskRules } from '#client/propose/rules'
import { contextsFrom } from '#client/trust/context'
import type { QuestionContext, Trust } from '#client/trust/trust'
import type { Markets } from '#ports'
import { UsageError } from '#protocol/errors'
import { identifierHint, namedQuestion } from '#protocol/market-url'
import { type answersText, answerText } from '#protocol/outcome-words'
import { fromHex } from '#protocol/witness'
import { isQuestionId } from '#protocol/words'
import type { Context } from '../terminal/context.js'
import { csvLine, type Screen } from '../terminal/output.js'
import {
  amountText,
  amountWithRaw,
  counted,
  dateText,
  fold,
  foldAround,
  type TokenUnits,
  timeText,
} from '../terminal/render.js'
import type { FlagsOf } from '../terminal/verb.js'
import { asksPerson, confirm } from './inputs.js'
import type { Session } from './session.js'
import {
  type checkFlags,
  type GlobalFlags,
  percentOf,
  type Settings,
  secondsOf,
} from './settings.js'

/** Without a node a gateway is needed: `session.gateway` says so where none is configured. */
export const asksGateway = ({ settings }: Session) =>
  settings.rpcUrl === undefined || (settings.gateway ?? settings.local) !== undefined

/**
 * From the chain where a node is configured, without budget; else, and for kind `direct`, from the
 * gateway. `pins`: those of one requester.
 */
export const contextSource = async ({ clock }: Context, session: Session, pins?: Trust) =>
  contextsFrom({
    trust: pins ?? (await session.trust()),
    clock,
    chain: await session.chain(),
    gateway: asksGateway(session) ? () => session.gateway('read') : undefined,
  })

/** Of an event's URL the event's slug. UsageError `invalid_identifier`. */
export function requireIdentifier(text: string) {
  const named = namedQuestion(text)
  if (named !== undefined) return named.identifier
  throw new UsageError(
    'invalid_identifier',
    `"${text}" is neither a question id, nor a slug, nor a URL of Polymarket`,
    identifierHint(text),
  )
}

/** As we know the token; else as the chain, or the file of the context, says. */
export const unitsOf = ({ bond, signing, token }: QuestionContext) =>
  knownToken(signing.chain_id, bond.token) ?? token

/** `YES_OR_NO_QUERY (0x5945535f…)`; whole where it is no name. */
function oracleIdText(raw: string) {
  const name = new TextDecoder().decode(fromHex(raw)).replace(/\0+$/, '')
  return /^[A-Z0-9_/ .-]{3,32}$/i.test(name) ? `${name} (${raw.slice(0, 10)}…)` : raw
}

export function contextRows(
  context: QuestionContext,
): (readonly [string, string | null | undefined])[] {
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
    ['oracle id', oracleIdText(request.identifier.raw)],
    ['chain', String(signing.chain_id)],
    ['permit2', contracts.permit2],
    ['signed proposer', contracts.signed_proposer],
    ['source', context.source],
  ]
}

/** Characters of a clarification; and of a question, from its beginning and from its meaning. */
const shownRules = 10_000
const shownText = 400

/** `2 clarifications, the last 2026-11-20 17:01:30Z (0x…)`, or `none (0x…)`. */
export function rulesLine({ updates, hash }: Rules): string {
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

/** `--yes` does not acknowledge what nobody has read. `undefined`: nobody can be asked. */
export function askingForRules(
  context: Context,
  flags: Pick<GlobalFlags, 'quiet' | 'yes'>,
): AskRules | undefined {
  if (!asksPerson(context, flags)) return undefined
  const { output } = context
  return async (identifier, { newer, unknownHash }) => {
    // Whatever turns makes room for the question.
    output.progress('').stop()
    const head =
      unknownHash === undefined
        ? `The rules of ${identifier} have changed since they were acknowledged.`
        : `The acknowledged hash is not a state of the rules of ${identifier}: ${unknownHash}`
    for (const text of [head, ...clarificationTexts(newer)])
      output.note(fold(text, output.columns, '  '))
    try {
      await confirm(context, 'Sign with these rules?', false)
      return true
    } catch (error) {
      if (error instanceof UsageError && error.code === 'declined') return false
      throw error
    }
  }
}

export function requireRulesHash(text: string | undefined) {
  if (text === undefined) return undefined
  const hash = text.toLowerCase()
  if (isQuestionId(hash)) return hash
  throw new UsageError(
    'bad_rules_seen',
    '--rules-seen is not a hash of 32 bytes in hex',
    'give the hash that `proposer context <identifier>` prints under rules',
  )
}

export const questionText = (ancillaryData: string): string =>
  plainText(new TextDecoder().decode(fromHex(ancillaryData)))

/**
 * How the text begins and what its answers mean, which stands at its end (domain §5.3: the last
 * `res_data:` counts).
 * `whole` is the command that shows all of it.
 */
export const textInShort =
  (text: string, whole: string) =>
  ({ columns }: Screen) => {
    const meaningAt = text.lastIndexOf('res_data:')
    const cut = meaningAt < 0 ? text.length : meaningAt
    const parts = [text.slice(0, cut), text.slice(cut)].map((part) => [...part])
    const over = parts.reduce((sum, { length }) => sum + Math.max(0, length - shownText), 0)
    if (over === 0) return fold(text, columns)
    return [
      ...parts.map((part) => {
        const shown = part.slice(0, shownText).join('')
        return part.length > shownText ? `${shown}…` : shown
      }),
      `[${over} characters left out; the whole text: \`${whole}\`]`,
    ]
      .filter((line) => line !== '')
      .map((line) => foldAround(line.trim(), columns))
      .join('\n')
  }

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

function thresholdsOf(settings: Settings) {
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
function countsOf(findings: readonly QuestionFinding[]) {
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

interface WorksheetRow {
  /** The question id: it needs no pin. */
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

/** Of every worksheet, in this order; `outcome` is left empty, to be filled in. */
const columns = [
  ...['identifier', 'slug', 'title', 'labels', 'bond', 'reward', 'ends_at'],
  ...['clarifications', 'rules_seen', 'outcome'],
]

/** Rows of a sheet as CSV, with the head. Titles and labels are outside text, escaped here (R20). */
export const worksheetText = (rows: readonly WorksheetRow[]) =>
  worksheetHead + rows.map(worksheetLine).join('')

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
