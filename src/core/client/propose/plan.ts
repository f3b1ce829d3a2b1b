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
import type { Payload } from './payload.js'
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
  /** Of a look at the rows, for whoever signs: each is taken once. */
  readonly plans?: Map<BatchRow, Planned> | undefined
}

export interface ToSign extends ReturnType<typeof hashedRound> {
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
  readonly timeoutMs?: number | undefined
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

/** A row as the journal alone has it; `known`: nothing else need be asked. */
interface Found {
  readonly row: BatchRow
  readonly intent?: IntentInWords
  readonly known?: Planned | undefined
}

async function planFresh(
  parts: ProposeParts,
  rows: readonly BatchRow[],
  options: PlanOptions,
): Promise<readonly Planned[]> {
  if (rows.length === 0) return []
  const view = await parts.journal.load()
  const found = await inJournal(parts, view, rows, options)
  const asksFor = ({ intent, known }: Found) =>
    intent !== undefined &&
    (known === undefined || (known.kind === 'send' && parts.contextsAreFree))
  const asked = found.filter(asksFor).map(({ row }) => row.identifier)
  const contexts = await contextsOf(parts, asked, options)
  const rounds = options.rounds ?? new Map()
  const plans: Planned[] = []
  const subjects = new Map<Planned, Subject>()
  for (const one of found) {
    const { row, intent, known } = one
    if (!asksFor(one) || row.kind !== 'intent' || intent === undefined) {
      if (known !== undefined) plans.push(known)
      continue
    }
    const result = contexts.get(row.identifier)
    if (result === undefined) throw new Error('a source left an identifier out')
    const plan = await withContext(parts, view, { row, intent, known }, result, {
      ...options,
      rounds,
    })
    if (plan.kind === 'sign' && result.context !== undefined)
      subjects.set(plan, { context: result.context, outcome: plan.intent.outcome })
    plans.push(plan)
  }
  return withFindings(parts, plans, subjects, options)
}

async function inJournal(
  parts: ProposeParts,
  view: JournalView,
  rows: readonly BatchRow[],
  options: PlanOptions,
) {
  const found: Found[] = []
  for (const row of rows) {
    if (row.kind === 'item') {
      found.push({ row, known: await planItem(parts, view, row, options) })
      continue
    }
    const intent = await intentOf(parts, row)
    if (options.isRetry !== true)
      found.push({ row, intent, known: fromSaved(parts, view, row, intent, options) })
    // One that has replaced another has done its work.
    else if (view.find(intent.supersede ?? '')?.supersededBy !== undefined)
      found.push({ row, intent: { ...intent, supersede: undefined } })
    else found.push({ row, intent })
  }
  return found
}

async function withFindings(
  { judging }: ProposeParts,
  plans: readonly Planned[],
  subjects: ReadonlyMap<Planned, Subject>,
  { signal }: PlanOptions,
): Promise<readonly Planned[]> {
  if (judging === undefined || subjects.size === 0) return plans
  const { checker, required } = judging
  const found = (await checker.check([...subjects.values()], signal)).values()
  return plans.map((plan): Planned => {
    if (!subjects.has(plan)) return plan
    const { row, title } = plan
    const findings: readonly QuestionFinding[] = found.next().value ?? []
    const error = checkRefusal(row.identifier, findings, required)
    return error === undefined
      ? { ...plan, findings }
      : { kind: 'rejected', row, error, title, findings }
  })
}

/**
 * By identifier. Asked for again where the gateway is busy (robustness §6); one alone, only while
 * a time was given.
 */
async function contextsOf(
  { form, contexts, ports }: ProposeParts,
  identifiers: readonly string[],
  { timeoutMs, signal, onRetry }: PlanOptions,
): Promise<ReadonlyMap<string, ContextResult>> {
  const isPatient = form !== 'single' || timeoutMs !== undefined
  const patience = isPatient ? newPatience(ports, timeoutMs) : () => undefined
  const results = new Map<string, ContextResult>()
  let cause: string | undefined
  const isStopped = () => signal?.reason instanceof InterruptedError
  for (let attempt = 1; ; attempt++) {
    const wanted = [...new Set(identifiers)].filter((one) => {
      const result = results.get(one)
      return result === undefined || result.error instanceof UnavailableError
    })
    if (wanted.length === 0) return results
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
    if (reason === undefined) return results
    if (cause !== undefined && isAborted(signal) && !isStopped()) throw outOfTime(cause)
    const isLasting = reason.code === certificateCode || isAborted(signal)
    const waitMs = isLasting ? undefined : patience(reason.meta.retryAfterMs)
    if (waitMs === undefined && failure !== undefined) throw failure
    if (waitMs === undefined) return results
    // A call that was cut short tells less than the one before it.
    if (reason.code !== 'not_sent' || cause === undefined) cause = reason.detail
    onRetry?.({ attempt, reason: reason.detail, waitMs })
    if (!(await slept(ports, waitMs, signal))) throw isStopped() ? signal?.reason : outOfTime(cause)
  }
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
    const executed = wanted && executedBefore(parts, view, wanted, plan.error)
    plans.push(executed ? { kind: 'send', row, authorization: executed } : plan)
  }
  const saved = plans.flatMap((plan) => (plan.kind === 'send' ? [plan.authorization] : []))
  // Only the word of a node overrules what a gateway once said: nobody else is asked before.
  const round = parts.chain && roundsOf(parts, saved, options.signal)
  const checked: Planned[] = []
  for (const plan of plans) {
    const result = plan.kind === 'send' && (await skippedOutcome(parts, plan.authorization, round))
    checked.push(result ? { kind: 'skipped', row: plan.row, result } : plan)
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
      ? await planItem(parts, view, row, { resume })
      : fromSaved(parts, view, row, await intentOf(parts, row), { resume })
  return plan !== undefined && 'authorization' in plan ? plan.authorization : undefined
}

async function intentOf(
  { proposer, terms, units }: ProposeParts,
  { kind: _kind, line: _line, element: _element, columns, amount, ...wanted }: IntentRow,
): Promise<IntentInWords> {
  const slug = isSlug(columns?.slug ?? '') ? columns?.slug : undefined
  const owner = wanted.proposer ?? (await proposer())
  const intent = { slug, ...terms, ...wanted, proposer: owner }
  if (amount === undefined) return intent
  const { raw, tokens } = toRaw(amount, (await units?.()) ?? [])
  const named = tokens.map(({ address }) => address)
  const both = terms?.amountTokens?.filter((address) => named.includes(address)) ?? named
  return { ...intent, amountRaw: raw, amountTokens: both }
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

/** R22: the journal may know it. What is open (R8), or has its nonce (R6), stands in its way. */
async function planItem(
  parts: ProposeParts,
  view: JournalView,
  row: ItemRow,
  options: PlanOptions,
): Promise<Planned> {
  const { importable, readItem, requirePlace } = await import('./payload.js')
  const payload = readItem(parts, row, view)
  const { same } = payload
  if (same !== undefined)
    return isOfBatch(same, options.resume) && !isOpen(same, parts.ports.clock.nowMs())
      ? { kind: 'done', row, authorization: same }
      : savedOrDone(row, same, options)
  return orRejected(row, () => {
    requirePlace(parts.trust.chain_id, view, row.body, payload.proposal)
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
  {
    row,
    intent: wanted,
    known,
  }: Found & { readonly row: IntentRow; readonly intent: IntentInWords },
  result: ContextResult,
  options: PlanOptions & { readonly rounds: RowsByRound },
): Promise<Planned> {
  if (result.error !== undefined) {
    const { error } = result
    // A round that is not open, or cannot be read, is no reason to sign again.
    if (known !== undefined) return known
    const why = options.isRetry === true ? error : withoutContext(parts, view, wanted, error)
    return { kind: 'rejected', row, error: why }
  }
  const { context, notes } = result
  const { trust } = parts
  const title = titleOf(context.request.ancillary_data)
  const plan = await orRejected(row, async (): Promise<Planned> => {
    const labels = labelsOf(outcomesFor(trust, context))
    // What is signed already was reviewed then.
    if (known === undefined) await checkShown(row, title, labels)
    const intent = { ...wanted, outcome: outcomeMeant(trust, context, wanted.outcome) }
    const hashed = hashedRound(trust, context)
    const { same, earlier } = byRound(parts, intent, view, context, hashed.ref)
    if (same.kind === 'reuse') return savedOrDone(row, same.authorization, options)
    const round = sharedRound(trust, context, hashed.ref)
    const key = round && `${round} ${intent.proposer}`
    if (key) await requireAlone(options.rounds.get(key), row, context.question_id)
    if (same.kind === 'refuse') return { kind: 'rejected', row, error: same.error }
    // What a source has not checked: slug (R9), answer, position among the rounds.
    checkAsked(trust, context, { identifier: intent.identifier, requireSlugPin: true })
    const { label, price } = checkOutcome(trust, context, intent.outcome)
    checkTimeline(trust, context, view)
    if (key) options.rounds.set(key, { questionId: context.question_id, row })
    return {
      kind: 'sign',
      ...{ row, intent, price, label, labels, title, notes, earlier, ...hashed },
      offer: same.kind === 'resume' ? same.offer : undefined,
      ...factsOf(context),
      whole: parts.form === 'single' || parts.keepContexts === true ? context : undefined,
    }
  })
  return { ...plan, title }
}

/** A sheet that was sorted by some of its columns. */
async function checkShown({ columns }: IntentRow, title: string | undefined, labels: Labels) {
  if (columns === undefined) return
  const { otherQuestion } = await import('../input/rows.js')
  const why = otherQuestion(columns, { title, labels })
  if (why !== undefined)
    throw new UsageError(
      'other_question',
      why,
      'make the sheet again: its columns no longer belong together; rename a column of your own that is called title or labels',
    )
}

/** Of a context only what signing needs: a whole group's texts are long (R17). */
function factsOf(context: QuestionContext): Pick<ToSign, 'context' | 'rules'> {
  const { question_id, bond, source, request, signing, reward, rules, rules_told } = context
  const { timestamp, requester } = request
  const isOwn = source === 'chain'
  return {
    context: {
      ...{ question_id, bond, request: { timestamp, requester } },
      signing: { chain_id: signing.chain_id },
      source: isOwn ? source : 'gateway',
      reward: isOwn ? reward : undefined,
    },
    rules: rules && {
      ...{ rules, rules_told },
      question: {
        ...requestOf(context),
        questionId: question_id,
        creator: rules.owner ?? undefined,
      },
    },
  }
}

type RowsByRound = Map<string, { readonly questionId: Hex; readonly row: IntentRow }>

/** A round that other questions share takes one proposal of a wallet (domain §10). */
async function requireAlone(
  first: { readonly questionId: Hex; readonly row: IntentRow } | undefined,
  row: IntentRow,
  questionId: Hex,
) {
  if (first === undefined || first.row === row) return
  const { placeText } = await import('../input/rows.js')
  throw new UsageError(
    'duplicate_row',
    `question ${questionId} shares its round with question ${first.questionId} (${placeText(first.row)}): a round accepts one proposal from a wallet`,
    'leave one of them: that proposal answers both',
  )
}
