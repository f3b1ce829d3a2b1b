/**
 * What `batch sign` and `batch submit` share: flags, the first reading of the input, and what the
 * core needs.
 */
import { type BatchChecks, type BatchCount, checkBatch, nonceHolder } from '#client/input/check'
import { readBatch } from '#client/input/input'
import {
  type BatchSource,
  batchFormats,
  type InputFaults,
  inputLimits,
  newFaults,
} from '#client/input/rows'
import { knownQuestionId } from '#client/propose/intent'
import { newSpending, type Totals } from '#client/propose/limits'
import { lookAt, type SpendingSums } from '#client/propose/look'
import type { ProposeParts } from '#client/propose/plan'
import type { Trust } from '#client/trust/trust'
import { systemCurve } from '#io/keys'
import { eventUrl } from '#protocol/market-url'
import { once } from '#protocol/once'
import { confirm, readInput } from '../session/inputs.js'
import { signingParts } from '../session/intent.js'
import {
  commonTokens,
  flagged,
  givenAmount,
  identify,
  isRequired,
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
  headroomBasisPoints,
  requesterFlag,
  type SessionFlags,
  signerFlags,
} from '../session/settings.js'
import type { Context } from '../terminal/context.js'
import { amountWithRaw, counted, foldAround, visible } from '../terminal/render.js'
import type { FlagsOf } from '../terminal/verb.js'

/** For inputs that neither name nor first byte tell about. */
export const formatFlag = {
  '--format <format>': {
    about: 'input format; default: from extension or first byte',
    choices: batchFormats,
  },
} as const

export const readSource = async (context: Context, path: string) => ({
  name: path === '-' ? 'stdin' : path,
  bytes: await readInput(context, path, undefined, inputLimits.bytes),
})

export const signing = {
  ...formatFlag,
  ...signerFlags,
  ...browserFlags,
  ...requesterFlag,
  ...checkFlags,
  '--headroom <percent>': 'authorize this much above the bond, in case it is raised; default: 0',
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

export interface Opening {
  readonly tell?: (count: BatchCount, proposer: string, sum: string) => string
  readonly sums?: (count: BatchCount, hasChain: boolean) => boolean
  readonly findings?: boolean
}

/**
 * Checks the whole input before anything is signed. Whether its sum fits is for `checkedSums` to
 * say.
 */
export async function openBatch(
  session: Session,
  flags: BatchFlags,
  source: BatchSource,
  opening: Opening,
) {
  const units = once(() => pinnedUnits(session, flags.context))
  const maxSpend = await givenAmount(flagged('--max-spend', flags.maxSpend), units)
  const maxAmount = await givenAmount(session.settings.maxAmount, units)
  const limits = { fit: flags.fit === true, maxSpendRaw: maxSpend?.raw }
  const [trust, chain] = [await session.trust(), await session.chain()]
  const proposer = once(() => session.account.address())
  const view = await session.journal.load()
  const journalNow = {
    chainId: trust.chain_id,
    nowMs: session.clock.nowMs(),
    resume: flags.resume === true,
  }
  await identifyRows(session, source, flags.format)
  const faults = newFaults(source)
  const checks: BatchChecks = {
    hash: session.hash,
    proposer,
    units,
    questionOf: (identifier) => knownQuestionId(trust, identifier, view),
    nonceHolder: (row, questionId, owner) => nonceHolder(view, journalNow, row, questionId, owner),
  }
  const count = await checkBatch(source, flags.format, checks, faults)
  let sums: SpendingSums | undefined
  const counting = opening.sums?.(count, chain !== undefined) === true
  let parts: ProposeParts = {
    ...(await orFaults(faults, () => signingParts(session, flags))),
    plans: new Map(),
    recovery: async () => systemCurve().recover,
    keepContexts: flags.signer !== undefined || flags.browser === true,
    contextsAreFree: flags.context !== undefined || chain !== undefined,
    proposer,
    signer: once(async () => {
      session.account.expect?.(count.intents)
      const signer = await session.account.signer()
      const sum =
        sums === undefined || sums.totals.size === 0
          ? ''
          : ` for ${totalsText(trust, sums.totals)} in all`
      if (opening.tell) session.output.note(opening.tell(count, signer.address, sum))
      return signer
    }),
    terms: {
      maxAmountRaw: maxAmount?.raw,
      amountTokens: commonTokens([maxSpend, maxAmount]),
      headroomBasisPoints: headroomBasisPoints(session.settings.headroom),
    },
    units,
    note: noteOnce(session),
  }
  const looking = {
    signal: session.until,
    resume: flags.resume ? count.fingerprint : undefined,
    limits,
  }
  if (faults.refuses) await lookAt(parts, count.input, source, { ...looking, faults })
  const required = requiredBy(flags)
  const checker =
    isRequired(required) || flags.dryRun === true || opening.findings
      ? await openChecker(session)
      : undefined
  const judging = checker && { checker, required }
  if (isRequired(required)) parts = { ...parts, judging }
  const look = async (all = counting) => {
    const looked = await lookAt({ ...parts, judging }, count.input, source, { ...looking, all })
    sums = looked.sums
    return looked
  }
  /** `undefined` where nothing asks for it. Throws as `lookAt`, and its refusal. */
  const checkedSums = async () => {
    const { refusal } = await look()
    if (refusal) throw refusal
    return sums
  }
  noteUnanswered(session, count)
  return { parts, look, count, spending: newSpending(parts, limits), checkedSums }
}

function noteOnce({ output }: Context): (text: string) => void {
  const notes = new Set<string>()
  return (text) => {
    if (!notes.has(text)) output.note(`note: ${visible(text)}`)
    notes.add(text)
  }
}

const unheard = { fault: () => undefined, unanswered: () => undefined }

/** What is wrong with the input comes before what cannot be had for it. */
async function orFaults<T>(faults: InputFaults, work: () => Promise<T>) {
  try {
    return await work()
  } catch (error) {
    faults.throwAny()
    throw error
  }
}

function noteUnanswered({ output }: Context, { unanswered }: BatchCount) {
  if (unanswered.length === 0) return
  const shown = unanswered.slice(0, 10)
  const more =
    unanswered.length > shown.length ? ` and ${unanswered.length - shown.length} more` : ''
  output.note(
    `note: left out without an outcome: ${counted(unanswered.length, 'row')}, line ${shown.join(', ')}${more}`,
  )
}

export async function confirmSums(
  context: Context,
  { parts }: Opened,
  sums: SpendingSums | undefined,
  origin: string,
) {
  if (sums === undefined || sums.rows === 0) return
  const { findings } = sums
  if (findings !== undefined && findings.warn + findings.unknown > 0)
    context.output.note(
      `findings: ${tallyText(findings)}; \`proposer check\` with this file shows them`,
    )
  const what = `Sign ${counted(sums.rows, 'proposal')} as ${await parts.proposer()} for ${totalsText(parts.trust, sums.totals)} in all, and send to ${origin}?`
  await confirm(context, foldAround(what, context.output.columns), false)
}

async function identifyRows(session: Session, source: BatchSource, format: BatchFlags['format']) {
  if (session.settings.gammaUrl === undefined) return
  const { slugs } = await session.trust()
  // What is wrong with a row is said by the reading that checks all of them.
  const intents = readBatch(source, format, unheard).filter((row) => row.kind === 'intent')
  const named = intents.map(({ identifier, isEvent }) =>
    isEvent ? eventUrl(identifier) : identifier,
  )
  for (const [index, slug] of (await identify(session, named)).entries()) {
    const event = intents[index]?.isEvent ? intents[index]?.identifier : undefined
    const questionId = slugs[slug]
    if (event !== undefined && questionId !== undefined) slugs[event] = questionId
  }
}

export const totalsText = (trust: Trust, totals: Totals) =>
  [...totals]
    .map(([token, raw]) => amountWithRaw(String(raw), pinnedToken(trust, token)))
    .join(' and ')
