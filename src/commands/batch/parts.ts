import type { PolledStatus } from '#client/follow/look'
import { gravest, gravity } from '#client/gateway/answer'
import { type BatchRow, checkBatch, readBatch } from '#client/input/input'
import { type BatchSource, batchFormats, inputLimits, newFaults } from '#client/input/rows'
import { answerOf, type JournaledAuthorization } from '#client/journal/authorizations'
import { knownQuestionId } from '#client/propose/intent'
import { lookAt, newSpending, type SpendingSums, type Totals } from '#client/propose/limits'
import type { ProposeParts } from '#client/propose/plan'
import type { RowResult } from '#client/propose/submit'
import type { Trust } from '#client/trust/trust'
import { systemCurve } from '#io/keys'
import {
  type ExitCode,
  exit,
  FailedError,
  InterruptedError,
  PendingError,
  ProposerError,
  UnavailableError,
} from '#protocol/errors'
import { eventUrl } from '#protocol/market-url'
import { once } from '#protocol/once'
import { confirm, readInput } from '../session/inputs.js'
import { outOfBandData, settledData, signingParts } from '../session/intent.js'
import {
  capsOf,
  givenAmount,
  identify,
  isRequired,
  noteOnce,
  openChecker,
  pinnedToken,
  pinnedUnits,
  requiredBy,
  tallyText,
} from '../session/question.js'
import type { Session } from '../session/session.js'
import {
  browserFlags,
  checkFlags,
  flagged,
  headroomFlag,
  requesterFlag,
  type SessionFlags,
  signerFlags,
} from '../session/settings.js'
import type { Context } from '../terminal/context.js'
import { type Block, together } from '../terminal/output.js'
import { amountWithRaw, counted, errorData, foldAround } from '../terminal/render.js'
import type { FlagsOf } from '../terminal/verb.js'

export const formatFlag = {
  '--format <format>': {
    about: 'input format; default: from extension or first byte',
    choices: batchFormats,
  },
} as const

export const readSource = async (context: Context, path: string, hint?: string) => ({
  name: path === '-' ? 'stdin' : path,
  bytes: await readInput(context, path, hint, inputLimits.bytes),
})

export const signing = {
  ...formatFlag,
  ...signerFlags,
  ...browserFlags,
  ...requesterFlag,
  ...checkFlags,
  ...headroomFlag,
  '--max-amount <amount>': 'refuse to authorize more than this for one row; headroom is cut to it',
  '--max-spend <amount>': 'refuse to authorize more than this for all rows together',
  '--fit': 'sign the first rows that limit and wallet cover',
  '--context <file>': 'contexts to sign, from `batch context --json`',
} as const
export const batchFlags = {
  ...signing,
  '--dry-run': 'show what would happen; sign and send nothing',
} as const
export type BatchFlags = FlagsOf<typeof batchFlags> & SessionFlags & { readonly resume?: boolean }

export type Opened = Awaited<ReturnType<typeof openBatch>>

/** Before anything is signed the whole input is checked; its sum is for `checkedSums` to judge. */
export async function openBatch(
  session: Session,
  flags: BatchFlags,
  source: BatchSource,
  { origin, asks = false }: { readonly origin?: string; readonly asks?: boolean } = {},
) {
  const units = once(() => pinnedUnits(session, flags.context))
  const maxSpend = await givenAmount(flagged('--max-spend', flags.maxSpend), units)
  const terms = await capsOf(session, units, maxSpend)
  const limits = { fit: flags.fit === true, maxSpendRaw: maxSpend?.raw }
  const [trust, chain] = [await session.trust(), await session.chain()]
  const proposer = once(() => session.account.address())
  const view = await session.journal.load()
  const input = readBatch(source, flags.format)
  const { faults } = input
  await identifyRows(session, input.rows)
  const count = await checkBatch(input, {
    hash: session.hash,
    proposer,
    units,
    questionOf: (identifier) => knownQuestionId(trust, identifier, view),
    journal: { view, resume: flags.resume === true },
  })
  const required = requiredBy(flags)
  const isJudged = isRequired(required) || flags.dryRun === true || asks
  const [made, checker] = await Promise.all([
    signingParts(session, flags),
    isJudged ? openChecker(session) : undefined,
  ]).catch((error: unknown) => {
    // What is wrong with the input comes before what cannot be had for it.
    faults.throwAny()
    throw error
  })
  const judging = checker && { checker, required }
  let sums: SpendingSums | undefined
  const parts: ProposeParts = {
    ...made,
    plans: new Map(),
    recovery: async () => systemCurve().recover,
    contextsAreFree: flags.context !== undefined || chain !== undefined,
    proposer,
    signer: once(async () => {
      const signer = await session.account.signer(count.intents)
      if (asks) return signer
      const sum = sums?.totals.size ? ` for ${totalsText(trust, sums.totals)}` : ''
      const sent = origin === undefined ? '' : ` and sending ${count.rows} to ${origin}`
      session.output.note(
        `signing up to ${counted(count.intents, 'proposal')} as ${signer.address}${sum}${sent}`,
      )
      return signer
    }),
    terms,
    judging: isRequired(required) ? judging : undefined,
    note: noteOnce(session),
  }
  const resume = flags.resume ? count.fingerprint : undefined
  const looking = { signal: session.until, resume }
  if (faults.refuses)
    await lookAt({ ...parts, judging: undefined }, count.input, faults, limits, looking)
  const look = async (all: boolean) => {
    const options = { ...looking, all }
    const given = { ...parts, judging }
    const looked = await lookAt(given, count.input, newFaults(source), limits, options)
    sums = looked.sums
    return looked
  }
  /** `undefined` where `all` is not wanted and nothing bounds the sum. Throws its refusal. */
  const checkedSums = async (all = asks) => {
    const { refusal } = await look(all)
    if (refusal) throw refusal
    return sums
  }
  const { length } = count.unanswered
  const lines = [...count.unanswered.slice(0, 10), length > 10 ? '…' : []].flat().join(', ')
  if (length > 0)
    parts.note?.(`left out without an outcome: ${counted(length, 'row')}, line ${lines}`)
  return { parts, look, count, spending: newSpending(parts, limits), checkedSums, origin, asks }
}

export async function confirmSums(
  context: Context,
  { parts, origin, asks }: Opened,
  sums: SpendingSums | undefined,
) {
  if (!asks || sums === undefined || sums.rows === 0) return
  const { findings } = sums
  if (findings !== undefined && findings.warn + findings.unknown > 0)
    context.output.note(
      `findings: ${tallyText(findings)}; \`proposer check\` with this file shows them`,
    )
  const what = `Sign ${counted(sums.rows, 'proposal')} as ${await parts.proposer()} for ${totalsText(parts.trust, sums.totals)}, and send to ${origin}?`
  await confirm(context, foldAround(what, context.output.columns), false)
}

async function identifyRows(session: Session, rows: readonly BatchRow[]) {
  if (session.settings.gammaUrl === undefined) return
  const { slugs } = await session.trust()
  const intents = rows.filter((row) => row.kind === 'intent')
  const named = intents.map((row) => (row.isEvent ? eventUrl(row.identifier) : row.identifier))
  const found = await identify(session, named)
  for (const [index, { isEvent, identifier }] of intents.entries()) {
    const questionId = slugs[found[index] ?? '']
    if (isEvent && questionId !== undefined) slugs[identifier] = questionId
  }
}

export const totalsData = (totals: Totals) =>
  [...totals].map(([token, raw]) => ({ token, amount: String(raw) }))

export const totalsText = (trust: Trust, totals: Totals) =>
  `${[...totals].map(([token, raw]) => amountWithRaw(raw, pinnedToken(trust, token))).join(' and ')} in all`

/** Rows that a cause names, and causes that are told apart: a gateway's codes have no end. */
const [namedRows, shownCauses] = [5, 20]

/** A row that is held back here (exit 2) is less than any that has gone out and went wrong. */
const rowGravity: readonly ExitCode[] = [
  ...gravity.filter((code) => code !== exit.usage && code !== exit.refused),
  exit.usage,
  exit.refused,
]

interface Cause {
  readonly word: string
  readonly where: string
  readonly error: ProposerError
  readonly names: string[]
  count: number
}

interface AllRows {
  readonly total: number
  readonly goOn: string
  readonly stopped?: unknown
  /** The causes stand on the screen already. */
  readonly isShown?: boolean
}

export function newFailures() {
  const causes = new Map<string, Cause>()
  const all = () => [...causes.values()]
  const errorOf = ({ total, goOn, stopped, isShown = false }: AllRows) => {
    const failed = sumOf(all())
    const ofCode = (code: ExitCode) => all().filter(({ error }) => error.meta.exitCode === code)
    // Contract §6: 130 where nothing is unknown, else 6.
    if (stopped instanceof ProposerError && ofCode(exit.unknown).length === 0)
      return new InterruptedError(
        stopped.code,
        `${stopped.detail}; ${failed} of ${total} rows are left`,
        { retryable: true, hint: goOn },
      )
    const worst = rowGravity.map(ofCode).find(({ length }) => length > 0) ?? []
    const [first] = worst
    if (first === undefined) return undefined
    const { code, meta } = first.error
    const { exitCode, retryable } = meta
    const count = sumOf(worst)
    const others = failed > count ? `, ${failed - count} more with other faults` : ''
    const told = `${first.where}: ${first.error.detail}`
    const detail = isShown
      ? `${failed} of ${total} rows did not succeed; see the causes above`
      : failed === 1
        ? told
        : `${count} of ${total} rows${others}; the first, ${told}`
    const isLater = exitCode === exit.unknown || exitCode === exit.deferred
    const ownHint = isShown ? 'follow the hints above' : meta.hint
    const hint = isLater ? laterHint(goOn, worst) : ownHint
    return new ProposerError(code, detail, { exitCode, hint, retryable })
  }
  return {
    add(where: string, error: ProposerError, word = '', name = where) {
      const key = `${word} ${error.code} ${error.meta.exitCode}`
      const cause = causes.get(key) ?? { word, where, error, names: [], count: 0 }
      cause.count++
      if (cause.names.length < namedRows) cause.names.push(name)
      causes.set(key, cause)
    },
    blocks() {
      const sorted = all().sort((one, other) => other.count - one.count)
      const others = sorted.slice(shownCauses)
      return [
        ...sorted.slice(0, shownCauses).map(causeBlock),
        others.length > 0 && `${counted(sumOf(others), 'row')} of ${others.length} other causes`,
      ]
    },
    throwAny(rows: AllRows, beside?: ProposerError) {
      // Whoever is still on the way, and a Ctrl-C, is in the error of all.
      const isTold = beside instanceof PendingError || beside instanceof InterruptedError
      const worst = gravest([errorOf(rows), isTold ? undefined : beside]) ?? beside
      if (worst) throw worst
    },
  }
}

/**
 * Faults that the same input again does nothing about: what another gateway has is sent there, and
 * a round that is over stays so.
 */
const ownWays = ['other_origin', 'round_over']

function laterHint(goOn: string, causes: readonly Cause[]) {
  const own = causes.filter(({ error }) => ownWays.includes(error.code))
  const hints = own.map(({ error: { meta }, count }) =>
    count > 1 ? meta.hint?.replace(/(proposer replay) \S+/, '$1 --all') : meta.hint,
  )
  return (own.length < causes.length ? [goOn, ...hints] : hints).join(
    '; if that does not settle it: ',
  )
}

function causeBlock({ word, error, names, count }: Cause) {
  const more = count > names.length ? ` and ${count - names.length} more` : ''
  const { hint } = error.meta
  const below =
    (text: string): Block =>
    ({ columns }) =>
      `  ${foldAround(text, columns - 2, '  ')}`
  return together([
    `${counted(count, 'row')} ${word} (${error.code}): ${names.join(', ')}${more}`,
    below(error.detail),
    hint !== undefined && below(`hint: ${hint}`),
  ])
}

const sumOf = (causes: readonly Cause[]) => causes.reduce((sum, { count }) => sum + count, 0)

/** The batch route tells no next action (§4.2 rule 7). */
export function rowFailedError({ candidate_id: candidateId, failure }: PolledStatus) {
  const { code = 'failed', detail = '', retryable } = failure ?? {}
  return failedError(code, detail || 'no reason was given', candidateId, retryable)
}

export function failedBefore(
  { candidateId, terminal }: JournaledAuthorization,
  status: string | undefined = terminal?.outcome,
) {
  if (candidateId === undefined || status !== 'failed') return undefined
  const { code, retryable } = terminal ?? {}
  const detail = `candidate ${candidateId} has failed${code === undefined ? '' : ` (${code})`}`
  return failedError(code ?? 'failed', detail, candidateId, retryable)
}

function failedError(code: string, detail: string, id: string, retryable: boolean | undefined) {
  const hint = `see \`proposer status ${id}\` for what to do next`
  return new FailedError(code, detail, { hint, retryable })
}

export function nameOf({ row, authorization }: Pick<RowResult, 'row' | 'authorization'>) {
  const { clientRef, identifier, columns } = row
  const signed = authorization?.signed
  if (clientRef !== undefined) return clientRef
  const question = signed?.title ?? (columns?.title || columns?.slug || identifier)
  return signed === undefined ? question : `${question} ${answerOf(signed)}`
}

export const notFollowed = ({ candidate, elsewhere }: RowResult) =>
  new UnavailableError(
    'other_origin',
    `candidate ${candidate?.candidateId} is held by ${elsewhere?.origin}, which is not the configured gateway`,
    `\`proposer poll ${candidate?.candidateId} ${elsewhere?.flag}\``,
  )

/** Contract §4. */
export const candidateOf = ({ candidate_id, status, received_at, ...one }: PolledStatus) => ({
  candidate_id,
  status,
  received_at: received_at ?? null,
  submission: one.submission,
  failure: errorData(one.failure),
})

export function resultOf(result: RowResult, status?: PolledStatus) {
  const { row, outcome, statusCode, authorization, candidate, error, elsewhere, earlier } = result
  const known = candidate && {
    candidate_id: candidate.candidateId,
    status: candidate.status || null,
    received_at: candidate.receivedAt || null,
    as_of: candidate.asOf,
  }
  return {
    client_ref: row.clientRef ?? null,
    identifier: row.identifier,
    outcome,
    status_code: statusCode,
    candidate: status ? candidateOf(status) : (known ?? null),
    error: errorData(error),
    journal_id: authorization?.id ?? null,
    elsewhere,
    out_of_band: result.outOfBand && outOfBandData(result.outOfBand),
    settled: settledData(earlier),
    columns: row.columns,
  }
}
