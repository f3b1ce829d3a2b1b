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
import type { Address } from '#protocol/schema'
import { isSlug } from '#protocol/words'
import type { Checker } from '../check/checker.js'
import {
  checkRefusal,
  type QuestionFinding,
  type Required,
  type Subject,
} from '../check/findings.js'
import { certificateCode, isAborted, newPatience } from '../gateway/answer.js'
import type { GatewayClient } from '../gateway/gateway-client.js'
import type { BatchRow, IntentRow, ItemRow } from '../input/input.js'
import { type Place, placeText } from '../input/rows.js'
import { otherQuestion, saysQuestion } from '../input/sheet.js'
import { closes, isOpen, type JournaledAuthorization } from '../journal/authorizations.js'
import type { Journal, JournalPorts, JournalView } from '../journal/journal.js'
import type { ContextResult, ContextSource } from '../trust/context.js'
import {
  checkAsked,
  checkOutcome,
  mayBeAt,
  outcomesByText,
  type QuestionContext,
  sharedRound,
  type Trust,
} from '../trust/trust.js'
import type { SubmitParts } from './attempt.js'
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
import { importable, newMisplaced, type Payload, readItem } from './payload.js'
import { roundsOf, type SettledEarlier, settleEarlier, skippedOutcome } from './round-over.js'
import type { AskRules, ReadRules } from './rules.js'
import { checkTimeline, type HashedRound, hashedRound, type RoundFacts } from './terms.js'

export interface RequiredCheck {
  readonly checker: Checker
  readonly required: Required
}

export interface Judged extends Subject {
  readonly at: number
}

export async function withFindings(
  { judging }: BatchParts,
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

export interface BatchParts {
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
  readonly askRules?: AskRules | undefined
  readonly judging?: RequiredCheck | undefined
  readonly note?: ((text: string) => void) | undefined
}

/** Of its context only what signing needs is kept: a whole group's texts are long. */
export interface ToSign extends Pick<HashedRound, 'witness' | 'ref'> {
  readonly kind: 'sign'
  readonly row: IntentRow
  readonly intent: Intent
  readonly context: RoundFacts
  readonly price: string
  readonly labels: Labels
  readonly title: string | undefined
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

export interface PlanOptions {
  /** `--resume`: what is accepted, or was closed by this very input, is left alone. */
  readonly resume?: string | undefined
  readonly signal?: AbortSignal | undefined
  /** Its saved bytes are of an earlier round: not used again. */
  readonly isRetry?: boolean
  /** Earlier rounds are left unsettled, nothing is noted. */
  readonly look?: boolean
  readonly onRetry?: ((event: { reason: string; waitMs: number }) => void) | undefined
  /** Rows that will be signed for a round which other questions may share. */
  readonly rounds?: RowsByRound | undefined
}

export async function planRows(
  parts: BatchParts,
  rows: readonly BatchRow[],
  options: PlanOptions = {},
): Promise<readonly Planned[]> {
  const view = await parts.journal.load()
  const rounds: RowsByRound = options.rounds ?? new Map()
  const misplaced = newMisplaced(parts.trust.chain_id, view)
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
  parts: BatchParts & SubmitParts,
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
  parts: BatchParts,
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
  { proposer, maxAmountRaw, amountTokens, headroomBasisPoints, units }: BatchParts,
  { kind: _kind, line: _line, element: _element, columns, amount, ...wanted }: IntentRow,
): Promise<IntentInWords> {
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
  parts: BatchParts,
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
  parts: BatchParts,
  view: JournalView,
  row: ItemRow,
  options: PlanOptions,
  misplaced: ReturnType<typeof newMisplaced>,
): Promise<Planned> {
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
  parts: BatchParts,
  view: JournalView,
  { row, intent: wanted, context, known, rounds }: WithContext,
  options: PlanOptions,
): Promise<Planned> {
  if (context.error !== undefined) {
    const { error } = context
    // A round that is not open, or cannot be read, is no reason to sign again.
    if (known !== undefined) return known
    const why = options.isRetry === true ? error : withoutContext(parts, view, wanted, error)
    return { kind: 'rejected', row, error: why }
  }
  const plan = await orRejected(row, async () => {
    // What is signed already was reviewed then.
    if (known === undefined) checkShown(parts, row, context.context)
    const intent = meantIn(parts, wanted, context.context)
    const ref = () => hashedRound(parts.trust, context.context).ref
    const { same, earlier } = byRound(parts, intent, view, context.context, ref)
    if (same.kind === 'reuse') return savedOrDone(row, same.authorization, options)
    const questionId = context.context.question_id
    const round = sharedRound(parts.trust, context.context, ref)
    const keep =
      round === undefined
        ? undefined
        : takeRound(rounds, round, { row, proposer: intent.proposer, questionId })
    if (same.kind === 'refuse') return { kind: 'rejected', row, error: same.error }
    const settled: SettledEarlier[] = []
    if (options.look !== true) {
      const onSettled = (one: SettledEarlier) => settled.push(one)
      await settleEarlier({ ...parts, onSettled, signal: options.signal }, earlier)
      for (const note of context.notes) parts.note?.(note)
    }
    const plan = toSign(parts, view, row, intent, context.context, settled)
    keep?.()
    return plan
  })
  if (options.look !== true) return plan
  return { ...plan, title: titleOf(context.context.request.ancillary_data) }
}

/** A sheet that was sorted by some of its columns. */
function checkShown({ trust }: BatchParts, { columns }: IntentRow, context: QuestionContext): void {
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

/** What a source has not checked: slug (R9), answer, position among the rounds. */
function toSign(
  { trust, keepContexts }: BatchParts,
  view: JournalView,
  row: IntentRow,
  intent: Intent,
  context: QuestionContext,
  earlier: readonly SettledEarlier[],
): ToSign {
  checkAsked(trust, context, { identifier: intent.identifier, requireSlugPin: true })
  const { price } = checkOutcome(trust, context, intent.outcome)
  checkTimeline(trust, context, view)
  const { witness, ref } = hashedRound(trust, context)
  const { question_id, bond, source, request, signing, reward } = context
  const facts: RoundFacts = {
    question_id,
    request: { timestamp: request.timestamp, requester: request.requester },
    bond,
    signing: { chain_id: signing.chain_id },
    source,
    ...(reward !== undefined && { reward }),
  }
  const whole = keepContexts === true ? context : undefined
  const { rules: told, rules_told: fileHash } = context
  const { oracle, requester, identifier, ancillary_data: ancillaryData } = request
  const question = { questionId: question_id, oracle, requester, identifier: identifier.raw }
  const rules = told && {
    told,
    fileHash,
    question: { ...question, ancillaryData, creator: told.owner ?? undefined },
  }
  return {
    kind: 'sign',
    row,
    intent,
    context: facts,
    price,
    labels: labelsOf(context.outcomes ?? outcomesByText(trust, context)),
    title: titleOf(context.request.ancillary_data),
    witness,
    ref,
    earlier,
    rules,
    whole,
  }
}

type RowsByRound = Map<string, { readonly questionId: Hex; readonly place: string }>

function takeRound(
  rounds: RowsByRound,
  round: string,
  { row, proposer, questionId }: { row: Place; proposer: Address; questionId: Hex },
): () => void {
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

/**
 * Asked for again where the gateway is busy (robustness §6). What was looked at is taken once:
 * the budget of one.
 */
async function contextsOf(
  { contexts, ports, kept }: BatchParts,
  identifiers: readonly string[],
  { look, signal, onRetry }: PlanOptions,
): Promise<readonly ContextResult[]> {
  const patience = newPatience(ports)
  const results = new Map(
    identifiers.flatMap((one) => {
      const result = kept?.get(one)
      return result === undefined ? [] : [[one, result] as const]
    }),
  )
  let cause: string | undefined
  const isStopped = () => signal?.reason instanceof InterruptedError
  const missing = () =>
    [...new Set(identifiers)].filter((one) => {
      const result = results.get(one)
      return result === undefined || result.error instanceof UnavailableError
    })
  for (let wanted = missing(); wanted.length > 0; wanted = missing()) {
    let failure: UnavailableError | undefined
    try {
      for (const one of await contexts.contexts(wanted, signal === undefined ? {} : { signal }))
        results.set(one.identifier, one)
    } catch (error) {
      if (!(error instanceof UnavailableError)) throw error
      failure = error
    }
    const reason = failure ?? wanted.map((one) => results.get(one)?.error).find(isUnavailable)
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
    onRetry?.({ reason: reason.detail, waitMs })
    try {
      await ports.clock.sleep(waitMs, signal)
    } catch (error) {
      if (!isAborted(signal) || error instanceof InterruptedError) throw error
      throw outOfTime(cause)
    }
  }
  for (const [one, result] of results) {
    if (look !== true) kept?.delete(one)
    else if (result.context !== undefined) kept?.set(one, result)
  }
  return identifiers.flatMap((one) => results.get(one) ?? [])
}

const isUnavailable = (error: ProposerError | undefined): error is UnavailableError =>
  error instanceof UnavailableError

const outOfTime = (cause: string) =>
  new UnavailableError(
    'no_context',
    `the time limit was reached before a context was learned: ${cause}`,
    'check the gateway address and the network, or raise --timeout',
  )
