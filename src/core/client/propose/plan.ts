/** What is to be done with each row: the journal before any context (contract §6). */

import { titleOf } from '#chain/ancillary'
import type { Chain, Hex, Signer } from '#ports'
import { type TokenUnits, toRaw } from '#protocol/amount'
import { ConflictError, type ProposerError, UsageError } from '#protocol/errors'
import { type Labels, labelsOf } from '#protocol/outcome-words'
import type { RecoverPublicKey } from '#protocol/recovered'
import type { Address, OutcomeKey, TypedData } from '#protocol/schema'
import { isSlug } from '#protocol/words'
import type { Checker } from '../check/checker.js'
import {
  checkRefusal,
  type QuestionFinding,
  type Required,
  type Subject,
} from '../check/findings.js'
import type { GatewayClient } from '../gateway/gateway-client.js'
import type { BatchRow, IntentRow, ItemRow } from '../input/input.js'
import type { Place } from '../input/rows.js'
import {
  closes,
  isOpen,
  type JournaledAuthorization,
  type Offer,
} from '../journal/authorizations.js'
import type { Journal, JournalPorts, JournalView } from '../journal/journal.js'
import {
  type ContextResult,
  type ContextSource,
  confirmByChain,
  nowOf,
  rulesOfRound,
} from '../trust/context.js'
import {
  checkAsked,
  checkContext,
  checkOutcome,
  mayBeAt,
  outcomesByText,
  type QuestionContext,
  requireImplementations,
  sharedRound,
  type Trust,
} from '../trust/trust.js'
import type { SubmitParts } from './attempt.js'
import { type AskOptions, contextsOf } from './contexts.js'
import {
  byRound,
  executedBefore,
  type Intent,
  type IntentInWords,
  isEqualTo,
  knownQuestionId,
  meantIn,
  savedFor,
  withoutContext,
} from './intent.js'
import type { RowOutcome } from './outcome.js'
import type { newMisplaced, Payload } from './payload.js'
import { roundsOf, type SettledEarlier, settleEarlier, skippedOutcome } from './round-over.js'
import type { AskRules, ReadRules, RulesStanding } from './rules.js'
import type { SafeSigning } from './safe.js'
import type { Prepared } from './sign.js'
import { checkTimeline, type HashedRound, hashedRound, type RoundFacts } from './terms.js'

export interface RequiredCheck {
  readonly checker: Checker
  readonly required: Required
}

export interface Judged extends Subject {
  readonly at: number
}

export async function withFindings(
  { judging }: ProposeParts,
  plans: readonly Planned[],
  rows: readonly Judged[],
  { look, signal }: PlanOptions,
): Promise<readonly Planned[]> {
  if (judging === undefined || rows.length === 0) return plans
  const { checker, required } = judging
  const found = await checker.check(rows, signal)
  const byPlace = new Map(rows.map(({ at }, index) => [at, found[index] ?? []]))
  return plans.map((plan, at): Planned => {
    const findings = byPlace.get(at)
    if (findings === undefined) return plan
    const { row, title } = plan
    const told = look === true ? { findings } : {}
    const error = checkRefusal(row.identifier, findings, required)
    return error === undefined
      ? { ...plan, ...told }
      : { kind: 'rejected', row, error, title, ...told }
  })
}

/** What a caller brings for one proposal. */
export interface AuthorizeParts {
  readonly ports: JournalPorts
  readonly journal: Journal
  readonly trust: Trust
  /** Asked for only where the journal has nothing to reuse. */
  readonly context: () => Promise<QuestionContext>
  /** Unlocks the key; asked for only where something will be signed. */
  readonly signer: () => Promise<Signer>
  /** The proposer is a Safe: its owners sign, and `signer` is not asked. */
  readonly safe?: SafeSigning | undefined
  /** Default: @noble/curves. */
  readonly recovery?: () => Promise<RecoverPublicKey>
  /** Settles earlier rounds; without it (offline) the context is at hand. */
  readonly gateway?: GatewayClient
  /** Without it a note says what was not checked. */
  readonly chain?: Chain | undefined
  /** Shows and may ask; throws to stop. Called before anything is reserved or signed. */
  readonly confirm?: (preview: Preview) => Promise<void>
  /** Without it newer clarifications are refused. */
  readonly askRules?: AskRules | undefined
  readonly judge?: (context: QuestionContext, outcome: OutcomeKey) => Promise<void>
  /** Notes for stderr, such as the out-of-band line. */
  readonly note?: ((text: string) => void) | undefined
  readonly onSettled?: (settled: SettledEarlier) => void
  readonly signal?: AbortSignal | undefined
}

/** What is about to be signed, for showing. Nothing is reserved yet. Raw token units. */
export interface Preview extends Prepared {
  readonly context: QuestionContext
  readonly requiredBondRaw: bigint
  readonly outcome: OutcomeKey
  /** Outside text: escape before showing (R20). */
  readonly label: string
  readonly proposer: Address
  readonly typedData: TypedData
  readonly notes: readonly string[]
  /** Absent where no chain told them. */
  readonly rules?: RulesStanding | undefined
}

export interface ProposeParts {
  /** One proposal alone, whose context nobody has checked, by the single route. */
  readonly alone?: (AuthorizeParts & { readonly intent: IntentInWords }) | undefined
  readonly ports: JournalPorts
  readonly journal: Journal
  readonly trust: Trust
  readonly contexts: ContextSource
  readonly kept?: Map<string, ContextResult> | undefined
  /** By RPC: then the round of saved bytes is examined as well. */
  readonly contextsAreFree: boolean
  readonly signer: () => Promise<Signer>
  readonly proposer: () => Promise<Address>
  /** Without it (offline) earlier rounds are left as they are. */
  readonly gateway?: GatewayClient
  readonly chain?: Chain | undefined
  readonly maxAmountRaw?: bigint | undefined
  readonly amountTokens?: readonly Address[] | undefined
  readonly headroomBasisPoints?: bigint | undefined
  readonly units?: () => Promise<readonly (TokenUnits & { readonly address: Address })[]>
  /** For a signer that takes typed data: it is asked with the whole context. */
  readonly keepContexts?: boolean
  readonly recover?: RecoverPublicKey | undefined
  readonly recovery?: () => Promise<RecoverPublicKey>
  readonly askRules?: AskRules | undefined
  readonly judging?: RequiredCheck | undefined
  readonly note?: ((text: string) => void) | undefined
}

/** Of its context only what signing needs is kept: a whole group's texts are long. */
/** `notes`: on what was checked of a context that stands alone. */
export interface ToSign extends Pick<HashedRound, 'witness' | 'ref'> {
  readonly kind: 'sign'
  readonly row: IntentRow
  readonly intent: Intent
  readonly context: RoundFacts
  readonly price: string
  readonly label: string
  readonly labels: Labels
  readonly title: string | undefined
  readonly notes: readonly string[]
  /** Typed data of equal intent is out there unsigned. */
  readonly offer?: Offer | undefined
  readonly rules?: ReadRules | undefined
  readonly whole?: QuestionContext | undefined
  readonly earlier: readonly SettledEarlier[]
}

export interface ToImport {
  readonly kind: 'import'
  readonly row: ItemRow
  readonly payload: Payload
}

export type Ready =
  | {
      readonly kind: 'send'
      readonly row: BatchRow
      readonly authorization: JournaledAuthorization
    }
  | {
      readonly kind: 'done'
      readonly row: BatchRow
      readonly authorization: JournaledAuthorization
    }
  | { readonly kind: 'rejected'; readonly row: BatchRow; readonly error: ProposerError }
  | { readonly kind: 'skipped'; readonly row: BatchRow; readonly result: RowOutcome }

export type Planned = (Ready | ToSign | ToImport) & {
  readonly title?: string | undefined
  readonly findings?: readonly QuestionFinding[]
}

export interface PlanOptions extends AskOptions {
  /** `--resume`: what is accepted, or was closed by this very input, is left alone. */
  readonly resume?: string | undefined
  /** Its saved bytes are of an earlier round: not used again. */
  readonly isRetry?: boolean
  /** Rows that will be signed for a round which other questions may share. */
  readonly rounds?: RowsByRound | undefined
}

export async function planRows(
  parts: ProposeParts,
  rows: readonly BatchRow[],
  options: PlanOptions = {},
): Promise<readonly Planned[]> {
  const view = await parts.journal.load()
  const rounds: RowsByRound = options.rounds ?? new Map()
  const items = rows.some(({ kind }) => kind === 'item') ? await import('./payload.js') : undefined
  const misplaced = items?.newMisplaced(parts.trust.chain_id, view) ?? (() => undefined)
  const planning: { row: BatchRow; intent?: IntentInWords; known?: Planned | undefined }[] = []
  for (const row of rows) {
    const intent = row.kind === 'intent' ? await intentOf(parts, row) : undefined
    const known =
      row.kind === 'item'
        ? await planItem(parts, view, row, options, misplaced)
        : options.isRetry === true || intent === undefined
          ? undefined
          : fromSaved(parts, view, row, intent, options)
    planning.push(intent === undefined ? { row, known } : { row, intent, known })
  }
  const asksFor = ({ row, known }: (typeof planning)[number]) =>
    row.kind === 'intent' &&
    (known === undefined || (known.kind === 'send' && parts.contextsAreFree))
  const asked = planning.filter(asksFor).map(({ row }) => row.identifier)
  const contexts = (await contextsOf(parts, asked, options))[Symbol.iterator]()
  const plans: Planned[] = []
  const toJudge: Judged[] = []
  for (const one of planning) {
    const { row, intent, known } = one
    if (!asksFor(one) || row.kind !== 'intent' || intent === undefined) {
      if (known !== undefined) plans.push(known)
      continue
    }
    const context: ContextResult | undefined = contexts.next().value
    if (context === undefined) throw new Error('a source left an identifier out')
    const plan = await withContext(parts, view, { row, intent, context, known, rounds }, options)
    if (plan.kind === 'sign' && context.context !== undefined)
      toJudge.push({ at: plans.length, context: context.context, outcome: plan.intent.outcome })
    plans.push(plan)
  }
  return withFindings(parts, plans, toJudge, options)
}

/**
 * What was executed in a round that takes no proposal is replayed; what must not be sent is
 * skipped.
 */
export async function sendable(
  parts: ProposeParts & SubmitParts,
  planned: readonly Planned[],
  options: Pick<PlanOptions, 'signal'>,
): Promise<readonly Planned[]> {
  const plans: Planned[] = []
  for (const plan of planned) {
    const { kind, row } = plan
    const wanted = kind === 'rejected' && row.kind === 'intent' && (await intentOf(parts, row))
    const executed = wanted && (await executedBefore(parts, wanted, plan.error))
    plans.push(executed ? { kind: 'send', row, authorization: executed } : plan)
  }
  const saved = plans.flatMap((plan) => (plan.kind === 'send' ? [plan.authorization] : []))
  // Only the word of a node overrules what a gateway once said: nobody else is asked before.
  const round = parts.chain === undefined ? undefined : roundsOf(parts, saved, true, options.signal)
  const checked: Planned[] = []
  for (const plan of plans) {
    const result =
      plan.kind === 'send' ? await skippedOutcome(parts, plan.authorization, round) : undefined
    checked.push(result === undefined ? plan : { kind: 'skipped', row: plan.row, result })
  }
  return checked
}

export async function journaledFor(
  parts: ProposeParts,
  view: JournalView,
  row: BatchRow,
  resume: string,
): Promise<JournaledAuthorization | undefined> {
  const plan =
    row.kind === 'item'
      ? await planItem(parts, view, row, { resume }, () => undefined)
      : fromSaved(parts, view, row, await intentOf(parts, row), { resume })
  return plan !== undefined && 'authorization' in plan ? plan.authorization : undefined
}

async function intentOf(
  { alone, proposer, maxAmountRaw, amountTokens, headroomBasisPoints, units }: ProposeParts,
  { kind: _kind, line: _line, element: _element, columns, amount, ...wanted }: IntentRow,
): Promise<IntentInWords> {
  if (alone !== undefined) return alone.intent
  const owner = wanted.proposer ?? (await proposer())
  const slug = isSlug(columns?.slug ?? '') ? columns?.slug : undefined
  const given = {
    ...wanted,
    slug,
    proposer: owner,
    maxAmountRaw,
    amountTokens,
    headroomBasisPoints,
  }
  if (amount === undefined) return given
  const { raw, tokens } = toRaw(amount, (await units?.()) ?? [])
  const named = tokens.map(({ address }) => address)
  const both = amountTokens?.filter((address) => named.includes(address)) ?? named
  return { ...given, amountRaw: raw, amountTokens: both }
}

function fromSaved(
  parts: ProposeParts,
  view: JournalView,
  row: IntentRow,
  intent: IntentInWords,
  options: PlanOptions,
): Ready | undefined {
  const { trust } = parts
  const open = savedFor(parts, view, intent)
  if (open !== undefined) return savedOrDone(row, open, options)
  const questionId = knownQuestionId(trust, row.identifier, view)
  if (questionId === undefined || options.resume === undefined) return undefined
  const isEqual = isEqualTo(trust, intent, questionId)
  const closed = view
    .byQuestion(questionId)
    .findLast(
      (one) =>
        isOfBatch(one, options.resume) &&
        isEqual(one) &&
        one.signed.chainId === trust.chain_id &&
        mayBeAt(trust, one.signed),
    )
  return closed && { kind: 'done', row, authorization: closed }
}

function savedOrDone(
  row: BatchRow,
  authorization: JournaledAuthorization,
  { resume }: PlanOptions,
): Ready {
  const { terminal, candidateId } = authorization
  // Failed, but not for good: an exact replay puts the candidate back (contract §5).
  const mayBePutBack = terminal?.outcome === 'failed' && !closes(terminal)
  const isDone = resume !== undefined && candidateId !== undefined && !mayBePutBack
  return { kind: isDone ? 'done' : 'send', row, authorization }
}

const isOfBatch = ({ attempts }: JournaledAuthorization, fingerprint: string | undefined) =>
  fingerprint !== undefined && attempts.some(({ start }) => start.batch === fingerprint)

/**
 * R22: the journal may know it. What is open (R8), or has its nonce or signature (R6), stands in
 * its way.
 */
async function planItem(
  parts: ProposeParts,
  view: JournalView,
  row: ItemRow,
  options: PlanOptions,
  misplaced: ReturnType<typeof newMisplaced>,
): Promise<Planned> {
  const { importable, readItem } = await import('./payload.js')
  const payload = readItem(parts, row, view)
  const { same } = payload
  if (same !== undefined)
    return isOfBatch(same, options.resume) && !isOpen(same, parts.ports.clock.nowMs())
      ? { kind: 'done', row, authorization: same }
      : savedOrDone(row, same, options)
  return orRejected(row, () => {
    misplaced(row.body, payload.proposal)
    importable(parts, view, payload)
    return { kind: 'import', row, payload }
  })
}

async function orRejected(row: BatchRow, plan: () => Planned | Promise<Planned>): Promise<Planned> {
  try {
    return await plan()
  } catch (error) {
    if (error instanceof UsageError || error instanceof ConflictError)
      return { kind: 'rejected', row, error }
    throw error
  }
}

interface WithContext {
  readonly row: IntentRow
  readonly intent: IntentInWords
  readonly context: ContextResult
  readonly known: Planned | undefined
  readonly rounds: RowsByRound
}

async function withContext(
  parts: ProposeParts,
  view: JournalView,
  { row, intent: wanted, context, known, rounds }: WithContext,
  options: PlanOptions,
): Promise<Planned> {
  if (context.error !== undefined) {
    const { error } = context
    // A round that is not open, or cannot be read, is no reason to sign again.
    if (known !== undefined) return known
    const isAgain = options.isRetry === true && parts.alone === undefined
    const why = isAgain ? error : withoutContext(parts, view, wanted, error)
    return { kind: 'rejected', row, error: why }
  }
  const plan = await orRejected(row, async () => {
    // What is signed already was reviewed then.
    if (known === undefined) await checkShown(parts, row, context.context)
    const intent = meantIn(parts, wanted, context.context)
    const ref = () => hashedRound(parts.trust, context.context).ref
    const { same, earlier } = byRound(parts, intent, view, context.context, ref)
    if (same.kind === 'reuse') return savedOrDone(row, same.authorization, options)
    const questionId = context.context.question_id
    const round = sharedRound(parts.trust, context.context, ref)
    const keep =
      round === undefined || parts.alone !== undefined
        ? undefined
        : await takeRound(rounds, round, { row, proposer: intent.proposer, questionId })
    if (same.kind === 'refuse') return { kind: 'rejected', row, error: same.error }
    const settled: SettledEarlier[] = []
    const offer = same.kind === 'resume' ? same.offer : undefined
    // What was given out has settled them before.
    const isGiven = offer !== undefined && options.isRetry === true
    if (options.look !== true && !isGiven) {
      const onSettled = (one: SettledEarlier) => {
        settled.push(one)
        parts.alone?.onSettled?.(one)
      }
      await settleEarlier({ ...parts, onSettled, signal: options.signal }, earlier)
      for (const note of context.notes) parts.note?.(note)
    }
    const found = { row, intent, context: context.context, earlier: settled, offer }
    const plan = await toSign(parts, view, found)
    keep?.()
    return plan
  })
  if (options.look !== true) return plan
  return { ...plan, title: titleOf(context.context.request.ancillary_data) }
}

/** A sheet that was sorted by some of its columns. */
async function checkShown(
  { trust }: ProposeParts,
  { columns }: IntentRow,
  context: QuestionContext,
): Promise<void> {
  if (columns === undefined) return
  const { otherQuestion, saysQuestion } = await import('../input/sheet.js')
  if (!saysQuestion(columns)) return
  const labels = labelsOf(context.outcomes ?? outcomesByText(trust, context))
  const title = titleOf(context.request.ancillary_data)
  const why = otherQuestion(columns, { title, labels })
  if (why !== undefined)
    throw new UsageError(
      'other_question',
      why,
      'make the sheet again: its columns no longer belong together; rename a column of your own that is called title or labels',
    )
}

/**
 * What a source has not checked: slug (R9), answer, position among the rounds; of a context that
 * stands alone, everything.
 */
async function toSign(
  parts: ProposeParts,
  view: JournalView,
  found: Pick<ToSign, 'row' | 'intent' | 'earlier' | 'offer'> & {
    readonly context: QuestionContext
  },
): Promise<ToSign> {
  const { trust, chain, alone, keepContexts } = parts
  const { intent, context } = found
  const asked = { identifier: intent.identifier, requireSlugPin: true }
  const notes =
    alone === undefined
      ? checkAsked(trust, context, asked)
      : checkContext(trust, context, { ...asked, nowSeconds: await nowOf(parts) })
  const { label, price } = checkOutcome(trust, context, intent.outcome)
  checkTimeline(trust, context, view)
  const told = alone && chain ? await confirmed(chain, trust, context) : context.rules
  const { question_id, bond, source, request, signing, reward } = context
  const isByChain = alone === undefined ? source === 'chain' : chain !== undefined
  const facts: RoundFacts = {
    question_id,
    request: { timestamp: request.timestamp, requester: request.requester },
    bond,
    signing: { chain_id: signing.chain_id },
    source: isByChain ? 'chain' : 'gateway',
    ...(source === 'chain' && reward !== undefined && { reward }),
  }
  const { witness, ref } = hashedRound(trust, context)
  const { oracle, requester, identifier, ancillary_data: ancillaryData } = request
  const question = { questionId: question_id, oracle, requester, identifier: identifier.raw }
  const rules = told && {
    told,
    fileHash: context.rules_told,
    question: { ...question, ancillaryData, creator: told.owner ?? undefined },
  }
  return {
    ...found,
    kind: 'sign',
    context: facts,
    price,
    label,
    labels: labelsOf(context.outcomes ?? outcomesByText(trust, context)),
    title: titleOf(request.ancillary_data),
    notes,
    witness,
    ref,
    rules,
    whole: keepContexts === true ? context : undefined,
  }
}

async function confirmed(chain: Chain, trust: Trust, context: QuestionContext) {
  await requireImplementations(chain, trust)
  const round = await confirmByChain(chain, trust, context)
  return context.rules ?? rulesOfRound(chain, round)
}

type RowsByRound = Map<string, { readonly questionId: Hex; readonly place: string }>

async function takeRound(
  rounds: RowsByRound,
  round: string,
  { row, proposer, questionId }: { row: Place; proposer: Address; questionId: Hex },
): Promise<() => void> {
  const { placeText } = await import('../input/rows.js')
  const place = placeText(row)
  const key = `${round} ${proposer}`
  const first = rounds.get(key)
  if (first !== undefined && first.place !== place)
    throw new UsageError(
      'duplicate_row',
      `question ${questionId} shares its round with question ${first.questionId} (${first.place}): a round accepts one proposal from a wallet`,
      'leave one of them: that proposal answers both',
    )
  return () => rounds.set(key, { questionId, place })
}
