/** What is to be done with each row: the journal before any context (contract §6). */

import { titleOf } from '#chain/ancillary'
import type { Chain, Hex, Signer } from '#ports'
import { type TokenUnits, toRaw } from '#protocol/amount'
import {
  ConflictError,
  InterruptedError,
  type ProposerError,
  UnavailableError,
  UsageError,
} from '#protocol/errors'
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
import { certificateCode, isAborted, newPatience, slept } from '../gateway/answer.js'
import type { GatewayClient } from '../gateway/gateway-client.js'
import type { BatchRow, IntentRow, IntentTerms, ItemRow } from '../input/input.js'
import {
  closes,
  isOpen,
  type JournaledAuthorization,
  type Offer,
} from '../journal/authorizations.js'
import type { Journal, JournalPorts, JournalView } from '../journal/journal.js'
import type { Form } from '../journal/records.js'
import type { ContextResult, ContextSource } from '../trust/context.js'
import {
  checkAsked,
  checkOutcome,
  outcomeMeant,
  outcomesFor,
  type QuestionContext,
  requestOf,
  sharedRound,
  type Trust,
} from '../trust/trust.js'
import type { SubmitParts } from './attempt.js'
import {
  byRound,
  executedBefore,
  type Intent,
  type IntentInWords,
  isOfBatch,
  savedFor,
  withoutContext,
} from './intent.js'
import type { RowOutcome } from './outcome.js'
import type { newMisplaced, Payload } from './payload.js'
import { roundsOf, type SettledEarlier, skippedOutcome } from './round-over.js'
import type { SafeSigning } from './safe.js'
import type { OnRetry } from './send.js'
import type { Prepared } from './sign.js'
import {
  type AskRules,
  checkTimeline,
  hashedRound,
  type ReadRules,
  type RoundFacts,
  type RulesStanding,
} from './terms.js'

async function withFindings(
  { judging }: ProposeParts,
  plans: readonly Planned[],
  rows: readonly (Subject & { readonly at: number })[],
  { signal }: PlanOptions,
): Promise<readonly Planned[]> {
  if (judging === undefined || rows.length === 0) return plans
  const { checker, required } = judging
  const found = await checker.check(rows, signal)
  const byPlace = new Map(rows.map(({ at }, index) => [at, found[index] ?? []]))
  return plans.map((plan, at): Planned => {
    const findings = byPlace.get(at)
    if (findings === undefined) return plan
    const { row, title } = plan
    const error = checkRefusal(row.identifier, findings, required)
    return error === undefined
      ? { ...plan, findings }
      : { kind: 'rejected', row, error, title, findings }
  })
}

/** What is about to be signed, for showing. Nothing is reserved yet. Raw token units. */
export interface Preview extends Prepared {
  readonly context: QuestionContext
  readonly requiredBondRaw: bigint
  readonly amountRaw: bigint
  readonly nonce: bigint
  readonly deadlineSeconds: bigint
  readonly outcome: OutcomeKey
  /** Outside text: escape before showing (R20). */
  readonly label: string
  readonly proposer: Address
  readonly typedData: TypedData
  readonly notes: readonly string[]
  readonly contextNotes?: readonly string[]
  /** Absent where no chain told them. */
  readonly rules?: RulesStanding | undefined
}

export interface ProposeParts {
  readonly ports: JournalPorts
  readonly journal: Journal
  readonly trust: Trust
  /** It has checked what it tells; asked only where the journal has nothing to reuse. */
  readonly contexts: ContextSource
  /** By RPC: then the round of saved bytes is examined as well. */
  readonly contextsAreFree: boolean
  /** `single`: each is shown, and its faults are its own. Default: a batch. */
  readonly form?: Form
  /** Unlocks the key; asked for only where something will be signed. */
  readonly signer: () => Promise<Signer>
  readonly proposer: () => Promise<Address>
  /** The proposer is a Safe: its owners sign, and `signer` is not asked. */
  readonly safe?: SafeSigning | undefined
  /** Without it (offline) earlier rounds are left as they are. */
  readonly gateway?: GatewayClient
  /** Without it a note says what was not checked. */
  readonly chain?: Chain | undefined
  readonly terms?: Pick<IntentTerms, 'maxAmountRaw' | 'amountTokens' | 'headroomBasisPoints'>
  readonly units?: () => Promise<readonly (TokenUnits & { readonly address: Address })[]>
  /** For a signer that takes typed data: it is asked with the whole context. */
  readonly keepContexts?: boolean
  /** Default: @noble/curves. */
  readonly recovery?: () => Promise<RecoverPublicKey>
  /** Of the single form: shows and may ask; throws to stop. Nothing is reserved before. */
  readonly confirm?: (preview: Preview) => Promise<void>
  /** Without it newer clarifications are refused. */
  readonly askRules?: AskRules | undefined
  readonly judge?: (context: QuestionContext, outcome: OutcomeKey) => Promise<void>
  readonly judging?: { readonly checker: Checker; readonly required: Required } | undefined
  /** Notes for stderr, such as the out-of-band line. */
  readonly note?: ((text: string) => void) | undefined
  readonly onSettled?: (settled: SettledEarlier) => void
  readonly signal?: AbortSignal | undefined
  /** Of a look at the rows: each is taken once. */
  readonly plans?: Map<BatchRow, Planned> | undefined
}

/** Of its context only what signing needs is kept: a whole group's texts are long. */
export interface ToSign extends ReturnType<typeof hashedRound> {
  readonly kind: 'sign'
  readonly row: IntentRow
  readonly intent: Intent
  readonly context: RoundFacts
  readonly price: string
  readonly label: string
  readonly labels: Labels
  readonly title: string | undefined
  /** On its context. */
  readonly notes: readonly string[]
  /** Typed data of equal intent is out there unsigned. */
  readonly offer?: Offer | undefined
  readonly rules?: ReadRules | undefined
  readonly whole?: QuestionContext | undefined
  /** Open in earlier rounds: settled before this is signed. */
  readonly earlier: readonly JournaledAuthorization[]
  /** What somebody has agreed to. */
  readonly shown?: Preview
}

export interface ToImport {
  readonly kind: 'import'
  readonly row: ItemRow
  readonly payload: Payload
}

export type Ready = { readonly row: BatchRow } & (
  | { readonly kind: 'send'; readonly authorization: JournaledAuthorization }
  | { readonly kind: 'done'; readonly authorization: JournaledAuthorization }
  | { readonly kind: 'rejected'; readonly error: ProposerError }
  | { readonly kind: 'skipped'; readonly result: RowOutcome }
)

export type Planned = (Ready | ToSign | ToImport) & {
  readonly title?: string | undefined
  readonly findings?: readonly QuestionFinding[]
}

export interface PlanOptions {
  readonly signal?: AbortSignal | undefined
  /** For learning contexts. */
  readonly timeoutMs?: number | undefined
  /** The plans are kept for whoever signs. */
  readonly look?: boolean
  readonly onRetry?: OnRetry | undefined
  /** `--resume`: what is accepted, or was closed by this very input, is left alone. */
  readonly resume?: string | undefined
  /** Its saved bytes are of an earlier round: not used again. */
  readonly isRetry?: boolean
  /** Rows that will be signed for a round which other questions may share. */
  readonly rounds?: RowsByRound | undefined
}

/** Nothing is written, noted or sent. */
export async function planRows(
  parts: ProposeParts,
  rows: readonly BatchRow[],
  options: PlanOptions = {},
): Promise<readonly Planned[]> {
  const { plans } = parts
  const fresh = rows.filter((row) => plans?.has(row) !== true)
  const made = (await planFresh(parts, fresh, options)).values()
  return rows.map((row) => {
    const plan: Planned | undefined = plans?.get(row) ?? made.next().value
    if (plan === undefined) throw new Error('a row was left without a plan')
    if (options.look === true) plans?.set(row, plan)
    else plans?.delete(row)
    return plan
  })
}

async function planFresh(
  parts: ProposeParts,
  rows: readonly BatchRow[],
  options: PlanOptions,
): Promise<readonly Planned[]> {
  if (rows.length === 0) return []
  const view = await parts.journal.load()
  const rounds: RowsByRound = options.rounds ?? new Map()
  const items = rows.some(({ kind }) => kind === 'item') ? await import('./payload.js') : undefined
  const misplaced = items?.newMisplaced(parts.trust.chain_id, view) ?? (() => undefined)
  const planning: { row: BatchRow; intent?: IntentInWords; known?: Planned | undefined }[] = []
  for (const row of rows) {
    if (row.kind === 'item') {
      planning.push({ row, known: await planItem(parts, view, row, options, misplaced) })
      continue
    }
    const given = await intentOf(parts, row)
    if (options.isRetry !== true) {
      planning.push({ row, intent: given, known: fromSaved(parts, view, row, given, options) })
      continue
    }
    // One that has replaced another has done its work.
    const isDone = view.find(given.supersede ?? '')?.supersededBy !== undefined
    planning.push({ row, intent: isDone ? { ...given, supersede: undefined } : given })
  }
  const asksFor = ({ intent, known }: (typeof planning)[number]) =>
    intent !== undefined &&
    (known === undefined || (known.kind === 'send' && parts.contextsAreFree))
  const asked = planning.filter(asksFor).map(({ row }) => row.identifier)
  const contexts = (await contextsOf(parts, asked, options)).values()
  const plans: Planned[] = []
  const toJudge: (Subject & { readonly at: number })[] = []
  for (const one of planning) {
    const { row, intent, known } = one
    if (!asksFor(one) || row.kind !== 'intent' || intent === undefined) {
      if (known !== undefined) plans.push(known)
      continue
    }
    const context: ContextResult | undefined = contexts.next().value
    if (context === undefined) throw new Error('a source left an identifier out')
    const given = { ...options, rounds }
    const plan = await withContext(parts, view, row, intent, context, known, given)
    if (plan.kind === 'sign' && context.context !== undefined)
      toJudge.push({ at: plans.length, context: context.context, outcome: plan.intent.outcome })
    plans.push(plan)
  }
  return withFindings(parts, plans, toJudge, options)
}

/**
 * Asked for again where the gateway is busy (robustness §6); one alone, only while a time was
 * given.
 */
async function contextsOf(
  { form, contexts, ports }: ProposeParts,
  identifiers: readonly string[],
  { timeoutMs, signal, onRetry }: PlanOptions,
): Promise<readonly ContextResult[]> {
  const isPatient = form !== 'single' || timeoutMs !== undefined
  const patience = isPatient ? newPatience(ports, timeoutMs) : () => undefined
  const results = new Map<string, ContextResult>()
  let cause: string | undefined
  const isStopped = () => signal?.reason instanceof InterruptedError
  const missing = () =>
    [...new Set(identifiers)].filter((one) => {
      const result = results.get(one)
      return result === undefined || result.error instanceof UnavailableError
    })
  for (let wanted = missing(), attempt = 1; wanted.length > 0; wanted = missing()) {
    let failure: UnavailableError | undefined
    try {
      for (const one of await contexts.contexts(wanted, { signal }))
        results.set(one.identifier, one)
    } catch (error) {
      if (!(error instanceof UnavailableError)) throw error
      failure = error
    }
    const found = wanted.map((one) => results.get(one)?.error)
    const reason = failure ?? found.find((error) => error instanceof UnavailableError)
    if (reason === undefined) break
    if (cause !== undefined && isAborted(signal) && !isStopped()) throw outOfTime(cause)
    const isLasting = reason.code === certificateCode || isAborted(signal)
    const waitMs = isLasting ? undefined : patience(reason.meta.retryAfterMs)
    if (waitMs === undefined) {
      if (failure !== undefined) throw failure
      break
    }
    // A call that was cut short tells less than the one before it.
    if (reason.code !== 'not_sent' || cause === undefined) cause = reason.detail
    onRetry?.({ attempt: attempt++, reason: reason.detail, waitMs })
    if (await slept(ports, waitMs, signal)) continue
    throw isStopped() ? signal?.reason : outOfTime(cause)
  }
  return identifiers.flatMap((one) => results.get(one) ?? [])
}

const outOfTime = (cause: string) =>
  new UnavailableError(
    'no_context',
    `the time limit was reached before a context was learned: ${cause}`,
    'check the gateway address and the network, or raise --timeout',
  )

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
  const view = await parts.journal.load()
  for (const plan of planned) {
    const { kind, row } = plan
    // Another process may have sent it since it was looked at.
    if (plan.kind === 'send') {
      plans.push({ ...plan, authorization: view.find(plan.authorization.id) ?? plan.authorization })
      continue
    }
    const wanted = kind === 'rejected' && row.kind === 'intent' && (await intentOf(parts, row))
    const executed = wanted && (await executedBefore(parts, wanted, plan.error))
    plans.push(executed ? { kind: 'send', row, authorization: executed } : plan)
  }
  const saved = plans.flatMap((plan) => (plan.kind === 'send' ? [plan.authorization] : []))
  // Only the word of a node overrules what a gateway once said: nobody else is asked before.
  const round = parts.chain === undefined ? undefined : roundsOf(parts, saved, options.signal)
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
  { proposer, terms, units }: ProposeParts,
  { kind: _kind, line: _line, element: _element, columns, amount, ...wanted }: IntentRow,
): Promise<IntentInWords> {
  const slug = isSlug(columns?.slug ?? '') ? columns?.slug : undefined
  const owner = wanted.proposer ?? (await proposer())
  const given = { slug, ...terms, ...wanted, proposer: owner }
  if (amount === undefined) return given
  const { raw, tokens } = toRaw(amount, (await units?.()) ?? [])
  const named = tokens.map(({ address }) => address)
  const both = terms?.amountTokens?.filter((address) => named.includes(address)) ?? named
  return { ...given, amountRaw: raw, amountTokens: both }
}

function fromSaved(
  parts: ProposeParts,
  view: JournalView,
  row: IntentRow,
  intent: IntentInWords,
  options: PlanOptions,
): Ready | undefined {
  const { open, closed } = savedFor(parts, view, intent, options.resume)
  if (open !== undefined) return savedOrDone(row, open, options)
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

export async function orRejected<T>(
  row: BatchRow,
  work: () => T | Promise<T>,
): Promise<T | Extract<Ready, { kind: 'rejected' }>> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof UsageError || error instanceof ConflictError)
      return { kind: 'rejected', row, error }
    throw error
  }
}

async function withContext(
  parts: ProposeParts,
  view: JournalView,
  row: IntentRow,
  wanted: IntentInWords,
  context: ContextResult,
  known: Planned | undefined,
  options: PlanOptions & { readonly rounds: RowsByRound },
): Promise<Planned> {
  if (context.error !== undefined) {
    const { error } = context
    // A round that is not open, or cannot be read, is no reason to sign again.
    if (known !== undefined) return known
    const why = options.isRetry === true ? error : withoutContext(parts, view, wanted, error)
    return { kind: 'rejected', row, error: why }
  }
  const found = context.context
  const plan = await orRejected(row, async (): Promise<Planned> => {
    // What is signed already was reviewed then.
    if (known === undefined) await checkShown(parts, row, found)
    const outcome = outcomeMeant(parts.trust, found, wanted.outcome)
    const intent = { ...wanted, outcome }
    const hashed = hashedRound(parts.trust, found)
    const { same, earlier } = byRound(parts, intent, view, found, hashed.ref)
    if (same.kind === 'reuse') return savedOrDone(row, same.authorization, options)
    const round = sharedRound(parts.trust, found, hashed.ref)
    const keep =
      round === undefined
        ? undefined
        : await takeRound(options.rounds, `${round} ${intent.proposer}`, row, found.question_id)
    if (same.kind === 'refuse') return { kind: 'rejected', row, error: same.error }
    const offer = same.kind === 'resume' ? same.offer : undefined
    const { notes } = context
    const plan = toSign(parts, view, { row, intent, earlier, offer, notes, ...hashed }, found)
    keep?.()
    return plan
  })
  return { ...plan, title: titleOf(found.request.ancillary_data) }
}

/** A sheet that was sorted by some of its columns. */
async function checkShown(
  { trust }: ProposeParts,
  { columns }: IntentRow,
  context: QuestionContext,
) {
  if (columns === undefined) return
  const { otherQuestion, saysQuestion } = await import('../input/rows.js')
  if (!saysQuestion(columns)) return
  const labels = labelsOf(outcomesFor(trust, context))
  const title = titleOf(context.request.ancillary_data)
  const why = otherQuestion(columns, { title, labels })
  if (why !== undefined)
    throw new UsageError(
      'other_question',
      why,
      'make the sheet again: its columns no longer belong together; rename a column of your own that is called title or labels',
    )
}

/** What a source has not checked: slug (R9), answer, position among the rounds. */
function toSign(
  { trust, form, keepContexts }: ProposeParts,
  view: JournalView,
  found: Pick<ToSign, 'row' | 'intent' | 'earlier' | 'offer' | 'notes' | 'witness' | 'ref'>,
  context: QuestionContext,
): ToSign {
  checkAsked(trust, context, { identifier: found.intent.identifier, requireSlugPin: true })
  const { label, price } = checkOutcome(trust, context, found.intent.outcome)
  checkTimeline(trust, context, view)
  const { question_id, bond, source, request, signing, reward, rules: told } = context
  const facts: RoundFacts = {
    question_id,
    request: { timestamp: request.timestamp, requester: request.requester },
    bond,
    signing: { chain_id: signing.chain_id },
    source: source === 'chain' ? source : 'gateway',
    reward: source === 'chain' ? reward : undefined,
  }
  const question = { ...requestOf(context), questionId: question_id }
  return {
    ...found,
    kind: 'sign',
    context: facts,
    price,
    label,
    labels: labelsOf(outcomesFor(trust, context)),
    title: titleOf(request.ancillary_data),
    rules: told && {
      told,
      fileHash: context.rules_told,
      question: { ...question, creator: told.owner ?? undefined },
    },
    whole: form === 'single' || keepContexts === true ? context : undefined,
  }
}

type RowsByRound = Map<string, { readonly questionId: Hex; readonly row: IntentRow }>

async function takeRound(
  rounds: RowsByRound,
  key: string,
  row: IntentRow,
  questionId: Hex,
): Promise<() => void> {
  const first = rounds.get(key)
  if (first !== undefined && first.row !== row) {
    const { placeText } = await import('../input/rows.js')
    throw new UsageError(
      'duplicate_row',
      `question ${questionId} shares its round with question ${first.questionId} (${placeText(first.row)}): a round accepts one proposal from a wallet`,
      'leave one of them: that proposal answers both',
    )
  }
  return () => rounds.set(key, { questionId, row })
}
