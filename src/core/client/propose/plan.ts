/** What is to be done with each row: the journal before any context (contract §6). */
import { titleOf } from '#chain/ancillary'
import type { Chain, Signer } from '#ports'
import {
  ConflictError,
  InterruptedError,
  type ProposerError,
  UnavailableError,
  UsageError,
} from '#protocol/errors'
import { answersText, folded, type Labels, labelsOf } from '#protocol/outcome-words'
import type { RecoverPublicKey } from '#protocol/recovered'
import type { Address, OutcomeKey, TypedData } from '#protocol/schema'
import { counted, visible } from '#protocol/text'
import { isSlug } from '#protocol/words'
import type { Checker, QuestionFinding } from '../check/checker.js'
import { certificateCode, isAborted, newPatience, slept } from '../gateway/answer.js'
import type { GatewayClient } from '../gateway/gateway-client.js'
import type { BatchRow, Columns, IntentRow, IntentTerms, ItemRow } from '../input/input.js'
import {
  closes,
  type Form,
  isOpen,
  type JournaledAuthorization,
  type Offer,
} from '../journal/authorizations.js'
import type { Journal, JournalPorts, JournalView } from '../journal/journal.js'
import type { ContextResult, ContextSource } from '../trust/context.js'
import {
  checkAsked,
  checkOutcome,
  outcomeMeant,
  outcomesFor,
  type QuestionContext,
  sharedRound,
  type Trust,
} from '../trust/trust.js'
import {
  type AskRules,
  authorizationOpen,
  byRound,
  checkTimeline,
  executedBefore,
  hashedRound,
  type Intent,
  type IntentInWords,
  isOfBatch,
  oursFor,
  type RulesStanding,
} from './intent.js'
import type { Payload } from './payload.js'
import type { SafeSigning } from './safe.js'
import {
  type RowOutcome,
  roundsOf,
  type SettledEarlier,
  type SubmitOptions,
  type SubmitParts,
  skippedOutcome,
} from './send.js'
import type { Prepared } from './sign.js'

/** What is about to be signed. Raw token units. */
export interface Preview extends Prepared {
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
  /** Asked where the journal has nothing to reuse. */
  readonly contexts: ContextSource
  /** By RPC: the round of saved bytes is examined too. */
  readonly contextsAreFree: boolean
  readonly form?: Form
  /** Asked only to sign. */
  readonly signer: () => Promise<Signer>
  readonly proposer: () => Promise<Address>
  /** Its owners sign, and `signer` is not asked. */
  readonly safe?: SafeSigning | undefined
  /** Without it earlier rounds are left alone. */
  readonly gateway?: GatewayClient
  readonly chain?: Chain | undefined
  readonly terms?: Pick<IntentTerms, 'maxAmountRaw' | 'amountTokens' | 'headroomBasisPoints'>
  /** Default: @noble/curves. */
  readonly recovery?: () => Promise<RecoverPublicKey>
  /** Of the single form: may show and ask; throws to stop. */
  readonly confirm?: (preview: Preview) => Promise<void>
  /** Without it newer clarifications are refused. */
  readonly askRules?: AskRules | undefined
  readonly judge?: (context: QuestionContext, outcome: OutcomeKey) => Promise<void>
  readonly judging?: { readonly checker: Checker; readonly required: Required } | undefined
  readonly note?: ((text: string) => void) | undefined
  readonly onSettled?: (settled: SettledEarlier) => void
  readonly signal?: AbortSignal | undefined
  /** Of a look at the rows. */
  readonly plans?: Map<BatchRow, Planned> | undefined
}

export interface ToSign extends ReturnType<typeof hashedRound> {
  readonly kind: 'sign'
  readonly row: IntentRow
  readonly intent: Intent
  readonly context: QuestionContext
  readonly price: string
  readonly labels: Labels
  readonly title: string | undefined
  readonly notes: readonly string[]
  /** Of equal intent, given out and unsigned. */
  readonly offer?: Offer | undefined
  readonly earlier: readonly JournaledAuthorization[]
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
  | { readonly kind: 'rejected'; readonly error: ProposerError; readonly intent?: IntentInWords }
  | { readonly kind: 'skipped'; readonly result: RowOutcome }
)

export type Planned = (Ready | ToSign | ToImport) & {
  readonly title?: string | undefined
  readonly findings?: readonly QuestionFinding[]
}

export interface PlanOptions extends SubmitOptions {
  readonly look?: boolean
  /** Fingerprint of an input whose accepted and closed rows are left alone. */
  readonly resume?: string | undefined
  /** Its saved bytes are of an earlier round: not used again. */
  readonly isRetry?: boolean
  /** By round and proposer, where other questions may share the round. */
  readonly rounds?: Map<string, ToSign>
}

/** Nothing is written, noted or sent. */
export async function planRows(
  parts: ProposeParts,
  rows: readonly BatchRow[],
  options: PlanOptions = {},
) {
  const { plans = new Map<BatchRow, Planned>() } = parts
  const planning = { rounds: new Map(), ...options, parts, view: await parts.journal.load() }
  const found: (Asking | Planned)[] = []
  for (const row of rows) found.push(plans.get(row) ?? (await inJournal(planning, row)))
  const asked = found.flatMap((one) => ('kind' in one ? [] : one.row.identifier))
  const contexts = await contextsOf(parts, asked, options)
  const made: Planned[] = []
  for (const one of found)
    made.push('kind' in one ? one : await withContext(planning, one, contexts))
  const planned = await judged(parts, made, options.signal)
  for (const plan of planned)
    if (options.look) plans.set(plan.row, plan)
    else plans.delete(plan.row)
  return planned
}

interface Planning extends PlanOptions {
  readonly parts: ProposeParts
  readonly view: JournalView
}

interface Asking {
  readonly row: IntentRow
  readonly intent: IntentInWords
  readonly known?: Planned | undefined
}

async function inJournal(planning: Planning, row: BatchRow): Promise<Asking | Planned> {
  if (row.kind === 'item') return planItem(planning, row)
  const { parts, view, resume } = planning
  const { terms, proposer: ownWallet } = parts
  const { columns, ...given } = row
  const tokens = row.amountTokens ?? terms?.amountTokens
  const intent: IntentInWords = {
    slug: isSlug(columns?.slug ?? '') ? columns?.slug : undefined,
    ...{ ...terms, ...given, proposer: row.proposer ?? (await ownWallet()) },
    amountTokens: tokens?.filter((one) => terms?.amountTokens?.includes(one) !== false),
  }
  if (planning.isRetry) {
    // What it named is replaced already.
    const isReplaced = view.find(intent.supersede ?? '')?.supersededBy !== undefined
    return { row, intent: isReplaced ? { ...intent, supersede: undefined } : intent }
  }
  const { open, equal } = oursFor(parts, view, intent)
  const saved = intent.supersede ? undefined : equal.findLast((one) => open.includes(one))
  const closed = equal.findLast((one) => isOfBatch(one, resume))
  if (!saved && closed) return { kind: 'done', row, authorization: closed }
  const known = saved && savedOrDone(planning, row, saved)
  const isEnough = known?.kind === 'done' || !parts.contextsAreFree
  return known && isEnough ? known : { row, intent, known }
}

async function judged(
  { judging }: ProposeParts,
  plans: readonly Planned[],
  signal: AbortSignal | undefined,
) {
  const asked = plans.flatMap((plan) => (plan.kind === 'sign' && !plan.findings ? plan : []))
  if (!judging || asked.length === 0) return plans
  const { checker, required } = judging
  const subjects = asked.map(({ context, intent }) => ({ context, outcome: intent.outcome }))
  const found = (await checker.check(subjects, signal)).values()
  return plans.map((plan): Planned => {
    if (plan.kind !== 'sign' || plan.findings) return plan
    const { row, title } = plan
    const { value: findings = [] } = found.next()
    const error = checkRefusal(row.identifier, findings, required)
    return error ? { kind: 'rejected', row, error, title, findings } : { ...plan, findings }
  })
}

export type Required = Readonly<Record<'check' | 'known', boolean>>

export function checkRefusal(
  identifier: string,
  findings: readonly QuestionFinding[],
  { check, known }: Required,
) {
  const [first, ...others] = findings.filter(
    ({ result }) => (check && result === 'warn') || (known && result === 'unknown'),
  )
  if (!first) return undefined
  const more = others.length > 0 ? `, and ${counted(others.length, 'finding')} more` : ''
  const flag = first.result === 'warn' ? '--require-check' : '--require-known'
  return new UsageError(
    'check_failed',
    `${first.id} of ${identifier} is ${first.result}: ${first.detail}${more}; nothing was signed for it`,
    `\`proposer check ${identifier}\` shows all findings; ${flag} asks for this`,
  )
}

/** Asked for again while the gateway is busy (robustness §6); one alone only in a given time. */
async function contextsOf(
  { form, contexts, ports }: ProposeParts,
  identifiers: readonly string[],
  { timeoutMs, signal, onRetry }: PlanOptions,
) {
  const isHasty = form === 'single' && timeoutMs === undefined
  const patience = isHasty ? () => undefined : newPatience(ports, timeoutMs)
  const results = new Map<string, ContextResult>()
  let wanted = [...new Set(identifiers)]
  let cause: string | undefined
  for (let attempt = 1; wanted.length > 0; attempt++) {
    let failure: UnavailableError | undefined
    try {
      for (const one of await contexts.contexts(wanted, { signal }))
        results.set(one.identifier, one)
      wanted = wanted.filter((one) => results.get(one)?.error instanceof UnavailableError)
    } catch (error) {
      if (!(error instanceof UnavailableError)) throw error
      failure = error
    }
    const reason = failure ?? results.get(wanted[0] ?? '')?.error
    if (!reason) break
    const isOver = isAborted(signal)
    const isLasting = isOver || reason.code === certificateCode
    const waitMs = isLasting ? undefined : patience(reason.meta.retryAfterMs)
    if (waitMs !== undefined) {
      cause = reason.detail
      onRetry?.({ attempt, reason: cause, waitMs })
      if (await slept(ports, waitMs, signal)) continue
    } else if (!isOver || cause === undefined) {
      if (failure) throw failure
      break
    }
    if (signal?.reason instanceof InterruptedError) throw signal.reason
    throw new UnavailableError(
      'no_context',
      `the time limit was reached before a context was learned: ${cause}`,
      'check the gateway address and the network, or raise --timeout',
    )
  }
  return results
}

export async function sendable(
  parts: ProposeParts & SubmitParts,
  planned: readonly Planned[],
  { signal }: Pick<PlanOptions, 'signal'>,
) {
  const view = await parts.journal.load()
  const plans = planned.map((plan): Planned => {
    // Another process may have sent it since.
    if (plan.kind === 'send')
      return { ...plan, authorization: view.find(plan.authorization.id) ?? plan.authorization }
    if (plan.kind !== 'rejected' || !plan.intent) return plan
    const authorization = executedBefore(parts, view, plan.intent, plan.error)
    return authorization ? { kind: 'send', row: plan.row, authorization } : plan
  })
  const saved = plans.flatMap((plan) => (plan.kind === 'send' ? [plan.authorization] : []))
  // Only a node overrules what a gateway once said: nobody else is asked before.
  const round = parts.chain && roundsOf(parts, saved, signal)
  const checking = plans.map(async (plan): Promise<Planned> => {
    const result = plan.kind === 'send' && (await skippedOutcome(parts, plan.authorization, round))
    return result ? { kind: 'skipped', row: plan.row, result } : plan
  })
  return Promise.all(checking)
}

export async function journaledFor(
  parts: ProposeParts,
  view: JournalView,
  row: BatchRow,
  resume: string,
) {
  const found = await inJournal({ parts: { ...parts, contextsAreFree: false }, view, resume }, row)
  return 'authorization' in found ? found.authorization : undefined
}

function savedOrDone(
  { resume, parts }: Planning,
  row: BatchRow,
  authorization: JournaledAuthorization,
): Ready {
  const { terminal, candidateId } = authorization
  // Failed, but not for good: an exact replay puts the candidate back (contract §5).
  const mayBePutBack = terminal?.outcome === 'failed' && !closes(terminal)
  const isDone =
    (resume !== undefined && candidateId !== undefined && !mayBePutBack) ||
    (isOfBatch(authorization, resume) && !isOpen(authorization, parts.ports.clock.nowMs()))
  return { kind: isDone ? 'done' : 'send', row, authorization }
}

/** R22: the journal may know it. What is open (R8), or has its nonce (R6), stands in its way. */
async function planItem(planning: Planning, row: ItemRow): Promise<Planned> {
  const { parts, view } = planning
  const { importable, readItem } = await import('./payload.js')
  const payload = readItem(parts, row, view)
  if (payload.same) return savedOrDone(planning, row, payload.same)
  return orRejected(row, () => {
    importable(parts, view, payload)
    return { kind: 'import', row, payload }
  })
}

export async function orRejected<T>(row: BatchRow, work: () => T | Promise<T>) {
  try {
    return await work()
  } catch (error) {
    if (error instanceof UsageError || error instanceof ConflictError)
      return { kind: 'rejected', row, error } as const
    throw error
  }
}

async function withContext(
  planning: Planning,
  { row, intent: wanted, known }: Asking,
  contexts: ReadonlyMap<string, ContextResult>,
): Promise<Planned> {
  const { parts, view, rounds, isRetry } = planning
  const { trust } = parts
  const result = contexts.get(row.identifier)
  if (!result) throw new Error('a source left an identifier out')
  if (result.error) {
    // A round that is not open, or cannot be read, is no reason to sign again.
    if (known) return known
    const isConflict = !isRetry && result.error instanceof ConflictError
    const open = isConflict ? oursFor(parts, view, wanted).open.at(-1) : undefined
    const isOther = open && open.id !== wanted.supersede
    const error = isOther ? authorizationOpen(open, undefined, result.error.detail) : result.error
    return { kind: 'rejected', row, error, intent: wanted }
  }
  const { context, notes } = result
  const title = titleOf(context.request.ancillary_data)
  const plan = await orRejected(row, async (): Promise<Planned> => {
    const outcomes = outcomesFor(trust, context)
    const labels = labelsOf(outcomes)
    if (!known) requireOwnQuestion(row, title, outcomes)
    const intent = { ...wanted, outcome: outcomeMeant(trust, context, wanted.outcome) }
    const hashed = hashedRound(trust, context)
    const round = sharedRound(trust, context, hashed.ref)
    const key = round && `${round} ${intent.proposer}`
    const first = rounds?.get(key ?? '')
    if (first && first.row !== row) {
      const { line, element } = first.row
      const place = element ? `row ${element}` : `line ${line}`
      throw new UsageError(
        'duplicate_row',
        `question ${context.question_id} shares its round with question ${first.context.question_id} (${place}): a round accepts one proposal from a wallet`,
        'leave one of them: that proposal answers both',
      )
    }
    const { saved, offer, earlier } = byRound(parts, intent, view, context, hashed.ref)
    if (saved) return savedOrDone(planning, row, saved)
    // What a source has not checked (R9).
    checkAsked(trust, context, intent.identifier, true)
    const { price } = checkOutcome(trust, context, intent.outcome)
    checkTimeline(trust, context, view)
    const toSign: ToSign = {
      kind: 'sign',
      ...{ row, intent, context, price, labels, title, notes, earlier, offer, ...hashed },
    }
    if (key) rounds?.set(key, toSign)
    return toSign
  })
  return { ...plan, title }
}

/** Without regard to case, Unicode form and blanks. */
function shownIn(columns: Columns = {}) {
  const cells = Object.entries(columns)
  const cell = (name: string) =>
    folded(cells.find(([column]) => column.toLowerCase() === name)?.[1] ?? '')
  return { title: cell('title'), labels: cell('labels') }
}

export const saysQuestion = (columns?: Columns) => Object.values(shownIn(columns)).join('') !== ''

function requireOwnQuestion(
  { columns }: IntentRow,
  title: string | undefined,
  outcomes: ReturnType<typeof outcomesFor>,
) {
  const shown = shownIn(columns)
  const spellings = (own: string) => [folded(own), folded(visible(own))]
  // A worksheet guards what looks like a formula.
  const titles = spellings(title ?? '').flatMap((own) => [own, `'${own}`])
  const isTitle = title === undefined || ['', ...titles].includes(shown.title)
  const rest = outcomes
    .flatMap(({ outcome, label }) => spellings(label ?? '').map((own) => `${own} (${outcome})`))
    .reduce((text, answer) => text.replace(answer, ''), shown.labels)
  if (isTitle && /^[\s;,']*$/.test(rest)) return
  throw new UsageError(
    'other_question',
    isTitle
      ? `its labels are not those of the question, which are ${answersText(outcomes)}`
      : `its title is not that of the question, which is ${JSON.stringify(title)}`,
    'make the sheet again, or rename a column of your own that is called title or labels',
  )
}
