/**
 * What is to be done with each row of a batch: the journal is looked at before any context is asked
 * for (contract §6).
 */
import { domainOf, roundRef } from '../../chain/round.js'
import type { Address, Chain, Hex, Signer } from '../../ports.js'
import type { RoundRef } from '../../protocol/candidate.js'
import {
  ConflictError,
  InterruptedError,
  type ProposerError,
  UnavailableError,
  UsageError,
} from '../../protocol/errors.js'
import { fromBatchItem, identityOf } from '../../protocol/proposal.js'
import type { RecoverPublicKey } from '../../protocol/recovered.js'
import { type WitnessRound, witnessRound } from '../../protocol/witness.js'
import type { GatewayClient } from '../gateway/gateway-client.js'
import { isAborted, newPatience } from '../gateway/retry.js'
import type { BatchRow, IntentRow, ItemRow } from '../input/input.js'
import {
  type Authorization,
  closes,
  equalIntent,
  isOpen,
  type Offer,
  offersFor,
  openFor,
} from '../journal/authorizations.js'
import type { Journal, JournalPorts, JournalView } from '../journal/journal.js'
import type { ContextResult, ContextSource, QuestionContext } from '../trust/context.js'
import {
  checkAsked,
  checkOutcome,
  contractsOf,
  isNamedByText,
  kindOf,
  mayBeAt,
  type Trust,
  unpinnedSlug,
} from '../trust/trust.js'
import { authorizationOpen, byRound, type Intent, knownQuestionId, wantedOf } from './authorize.js'
import { type SettledEarlier, settleEarlier } from './earlier.js'
import { offerOpen } from './outside.js'
import { newMisplaced, offerAnswered } from './payload.js'
import { checkTimeline, type RoundFacts, requestOf } from './prepare.js'

export interface BatchParts {
  readonly ports: JournalPorts
  readonly journal: Journal
  readonly trust: Trust
  /** Checked against trust by the source. */
  readonly contexts: ContextSource
  /** Contexts cost no budget (RPC): then the round of saved bytes is looked at as well. */
  readonly contextsAreFree: boolean
  /** Unlocks the key; asked for only where something will be signed. */
  readonly signer: () => Promise<Signer>
  /** The account of rows that name no proposer. */
  readonly proposer: () => Promise<Address>
  /** Settles authorizations of earlier rounds; without it (offline) they are left as they are. */
  readonly gateway?: GatewayClient
  readonly chain?: Chain
  /** Refuses to sign for more, raw token units. */
  readonly maxAmountRaw?: bigint
  readonly headroomBasisPoints?: bigint
  /** For a signer that takes typed data: it is asked with the whole context. */
  readonly keepContexts?: boolean
  /**
   * How our own signatures are checked. Asked for a whole group
   * at once.
   */
  readonly recover?: RecoverPublicKey
  readonly note?: (text: string) => void
}

/**
 * A row that has to be signed, checked against trust. Only what signing needs of its context is
 * kept: with all its text it would outlive the signatures of a whole group.
 */
export interface ToSign {
  readonly kind: 'sign'
  readonly row: IntentRow
  readonly intent: Intent
  readonly context: RoundFacts
  readonly price: string
  /**
   * The question's round, hashed once: what differs between its authorizations is little (§2.8).
   */
  readonly witness: WitnessRound
  readonly ref: RoundRef
  /** Only with `keepContexts`. */
  readonly whole?: QuestionContext
  /** What became of the question's authorizations of earlier rounds. */
  readonly earlier: readonly SettledEarlier[]
}

/** One row and what becomes of it. */
export type Planned =
  /** Saved bytes. */
  | { readonly kind: 'send'; readonly row: BatchRow; readonly authorization: Authorization }
  /** Signed elsewhere: journaled first. */
  | { readonly kind: 'import'; readonly row: ItemRow; readonly questionId: Hex }
  | ToSign
  /** Nothing is left to do, or nothing can be done. */
  | { readonly kind: 'done'; readonly row: BatchRow; readonly authorization: Authorization }
  | {
      readonly kind: 'rejected'
      readonly row: BatchRow
      readonly error: ProposerError
      readonly authorization?: Authorization
    }

export interface PlanOptions {
  /**
   * Fingerprint of the input: what is accepted, or was closed by this very batch, is left alone
   * (`--resume`).
   */
  readonly resume?: string
  readonly signal?: AbortSignal
  /** For a row whose saved bytes turned out to be of an earlier round: not used again. */
  readonly afresh?: boolean
  /** Only looks: earlier rounds are left unsettled and nothing is noted. */
  readonly look?: boolean
  readonly onRetry?: (event: { readonly reason: string; readonly waitMs: number }) => void
}

/**
 * Looks each row up; asks for the contexts of those that have to be signed. Throws UnavailableError
 * where no context could be had.
 */
export async function planRows(
  parts: BatchParts,
  rows: readonly BatchRow[],
  options: PlanOptions = {},
): Promise<readonly Planned[]> {
  const view = await parts.journal.load()
  const misplaced = newMisplaced(parts.trust.chain_id, view)
  const plans: (Planned | undefined)[] = []
  const asking: {
    readonly at: number
    readonly row: IntentRow
    readonly intent: Intent
    readonly reusable?: Authorization
  }[] = []
  for (const [at, row] of rows.entries()) {
    if (row.kind === 'item') {
      plans.push(fromItem(parts, view, row, options, misplaced))
      continue
    }
    const intent = await intentOf(parts, row)
    const known = fromJournal(parts, view, row, intent, options)
    plans.push(known)
    if (known === undefined) asking.push({ at, row, intent })
    else if (known.kind === 'send' && parts.contextsAreFree)
      asking.push({ at, row, intent, reusable: known.authorization })
  }
  const contexts = await contextsOf(
    parts,
    asking.map(({ row }) => row.identifier),
    options,
  )
  for (const [index, { at, row, intent, reusable }] of asking.entries()) {
    const context = contexts[index]
    if (context === undefined) throw new Error('a source left an identifier out')
    plans[at] = await withContext(parts, view, { row, intent, context, reusable }, options)
  }
  return plans.flatMap((plan) => plan ?? [])
}

/**
 * What the journal holds for a row, as `planRows` with `resume` would find it without asking
 * anybody.
 */
export async function savedFor(
  parts: BatchParts,
  view: JournalView,
  row: BatchRow,
  fingerprint: string,
): Promise<Authorization | undefined> {
  const options = { resume: fingerprint }
  const plan =
    row.kind === 'item'
      ? fromItem(parts, view, row, options, () => undefined)
      : fromJournal(parts, view, row, await intentOf(parts, row), options)
  return plan !== undefined && 'authorization' in plan ? plan.authorization : undefined
}

/** The intent that a row stands for. */
async function intentOf(
  parts: Pick<BatchParts, 'proposer' | 'maxAmountRaw' | 'headroomBasisPoints'>,
  row: IntentRow,
): Promise<Intent> {
  const { kind: _kind, line: _line, ...wanted } = row
  return {
    ...wanted,
    proposer: row.proposer ?? (await parts.proposer()),
    ...(parts.maxAmountRaw === undefined ? {} : { maxAmountRaw: parts.maxAmountRaw }),
    ...(parts.headroomBasisPoints === undefined
      ? {}
      : { headroomBasisPoints: parts.headroomBasisPoints }),
  }
}

function questionIdOf(
  { trust }: Pick<BatchParts, 'trust'>,
  identifier: string,
  view: JournalView,
): Hex {
  const questionId = knownQuestionId(trust, identifier, view)
  if (questionId !== undefined) return questionId
  throw unpinnedSlug(identifier)
}

/** What the journal alone says; `undefined`: a context is needed. */
function fromJournal(
  parts: BatchParts,
  view: JournalView,
  row: IntentRow,
  intent: Intent,
  options: PlanOptions,
): Planned | undefined {
  const questionId = questionIdOf(parts, row.identifier, view)
  const wanted = wantedOf(parts.trust, intent, questionId)
  const of = view
    .byQuestion(questionId)
    .filter(
      (one) =>
        equalIntent(one, wanted) &&
        one.signed.chainId === wanted.chainId &&
        mayBeAt(parts.trust, one.signed),
    )
  if (options.afresh === true) return undefined
  const open = openFor(of, wanted, parts.ports.clock.nowMs()).at(-1)
  if (open !== undefined) return savedOrDone(row, open, options)
  const closed = of.findLast((one) => isOfBatch(one, options.resume))
  return closed === undefined ? undefined : { kind: 'done', row, authorization: closed }
}

const savedOrDone = (
  row: BatchRow,
  authorization: Authorization,
  { resume }: PlanOptions,
): Planned =>
  resume !== undefined && authorization.candidateId !== undefined && !mayBePutBack(authorization)
    ? { kind: 'done', row, authorization }
    : { kind: 'send', row, authorization }

/** Failed, but not for good: an exact replay puts the candidate back (contract §5). */
const mayBePutBack = ({ terminal }: Authorization) =>
  terminal?.outcome === 'failed' && !closes(terminal)

const isOfBatch = ({ attempts }: Authorization, fingerprint: string | undefined) =>
  fingerprint !== undefined && attempts.some(({ start }) => start.batch === fingerprint)

/**
 * Signed elsewhere: by its identity the journal may know it (R22). Another open authorization of
 * the question stands in its way (R8), and so does what the journal has signed with its nonce or
 * its signature (R6).
 */
function fromItem(
  parts: Pick<BatchParts, 'ports' | 'trust'>,
  view: JournalView,
  row: ItemRow,
  options: PlanOptions,
  misplaced: ReturnType<typeof newMisplaced>,
): Planned {
  const { ports, trust } = parts
  const nowMs = ports.clock.nowMs()
  const questionId = questionIdOf(parts, row.identifier, view)
  const normal = fromBatchItem(questionId, row.item)
  const known = view.byIdentity(
    identityOf(
      ports.hash,
      { chainId: trust.chain_id, spender: trust.signed_proposer as Hex },
      normal,
    ),
  )
  if (known !== undefined) {
    return isOfBatch(known, options.resume) && !isOpen(known, nowMs)
      ? { kind: 'done', row, authorization: known }
      : savedOrDone(row, known, options)
  }
  try {
    misplaced(row.body, normal, normal.signature)
    importable(parts, view, normal)
  } catch (error) {
    if (error instanceof UsageError || error instanceof ConflictError)
      return { kind: 'rejected', row, error }
    throw error
  }
  return { kind: 'import', row, questionId }
}

/**
 * Whether an item may be taken over (R8), and the typed data it is the answer to, where this
 * journal gave it out. ConflictError `authorization_open` where something else is open for its
 * question.
 */
export function importable(
  { ports, trust }: Pick<BatchParts, 'ports' | 'trust'>,
  view: JournalView,
  item: ReturnType<typeof fromBatchItem>,
): Offer | undefined {
  const wanted = { questionId: item.questionId, proposer: item.proposer, chainId: trust.chain_id }
  const nowMs = ports.clock.nowMs()
  const other = openFor(view.byQuestion(item.questionId), wanted, nowMs).at(-1)
  if (other !== undefined) throw authorizationOpen(other)
  const offers = offersFor(view.offers, wanted, nowMs)
  const answered = offerAnswered(offers, item, item.signature)
  const given = offers.findLast((one) => one !== answered)
  if (given !== undefined) throw offerOpen(given)
  return answered
}

interface WithContext {
  readonly row: IntentRow
  readonly intent: Intent
  readonly context: ContextResult
  readonly reusable: Authorization | undefined
}

async function withContext(
  parts: BatchParts,
  view: JournalView,
  { row, intent, context, reusable }: WithContext,
  options: PlanOptions,
): Promise<Planned> {
  if (context.error !== undefined) {
    // A round that is not open, or cannot be read, is no reason to sign again: the saved bytes stay
    // the answer.
    if (reusable !== undefined) return { kind: 'send', row, authorization: reusable }
    const questionId = questionIdOf(parts, row.identifier, view)
    const open = openFor(
      view.byQuestion(questionId),
      wantedOf(parts.trust, intent, questionId),
      parts.ports.clock.nowMs(),
    ).at(-1)
    const named =
      context.error instanceof ConflictError && open !== undefined && options.afresh !== true
    return {
      kind: 'rejected',
      row,
      error: named ? authorizationOpen(open, context.error.detail) : context.error,
    }
  }
  const { same, earlier } = byRound(parts, intent, view, context.context)
  if (same.kind === 'refuse') return { kind: 'rejected', row, error: same.error }
  if (same.kind === 'reuse') return savedOrDone(row, same.authorization, options)
  if (options.look === true)
    return toSign(parts, view, { row, intent, context: context.context, earlier: [] })
  const settled = earlier.length === 0 ? [] : await settleAll(parts, earlier, options)
  if (settled instanceof ConflictError) return { kind: 'rejected', row, error: settled }
  for (const note of context.notes) parts.note?.(note)
  return toSign(parts, view, { row, intent, context: context.context, earlier: settled })
}

/**
 * What became of a question's authorizations of earlier rounds, or what stands in the way of a new
 * one (§3 rule 3).
 */
async function settleAll(
  parts: BatchParts,
  earlier: readonly Authorization[],
  { signal }: PlanOptions,
): Promise<readonly SettledEarlier[] | ConflictError> {
  const settled: SettledEarlier[] = []
  const settling = {
    ...parts,
    onSettled: (one: SettledEarlier) => settled.push(one),
    ...(signal === undefined ? {} : { signal }),
  }
  try {
    for (const one of earlier) await settleEarlier(settling, one)
    return settled
  } catch (error) {
    if (error instanceof ConflictError) return error
    throw error
  }
}

/**
 * Checks what the source of a context has not: that its slug is pinned (R9), the answer to it, its
 * place in the question's rounds. Hashes its text.
 */
function toSign(
  parts: BatchParts,
  view: JournalView,
  one: Pick<ToSign, 'row' | 'intent' | 'earlier'> & { readonly context: QuestionContext },
): Planned {
  const { row, intent, context, earlier } = one
  const { trust } = parts
  try {
    checkAsked(trust, context, { identifier: intent.identifier, requireSlugPin: true })
    const { price } = checkOutcome(trust, context, intent.outcome)
    checkTimeline(trust, context, view)
    const contracts = contractsOf(trust)
    const request = {
      ...requestOf(context),
      // Hashed when the source checked the context.
      ...(isNamedByText(kindOf(trust, context.request.requester))
        ? { ancillaryHash: context.question_id as Hex }
        : {}),
    }
    const witness = witnessRound(domainOf(contracts), request, context.bond.token as Hex)
    const ref = roundRef(contracts, context.question_id as Hex, request, witness.ancillaryHash)
    const { question_id, bond, signing, source } = context
    const facts: RoundFacts = {
      question_id,
      request: { timestamp: request.timestamp, requester: request.requester },
      bond,
      signing: { chain_id: signing.chain_id },
      source,
    }
    const whole = parts.keepContexts === true ? { whole: context } : {}
    return { kind: 'sign', row, intent, context: facts, price, witness, ref, earlier, ...whole }
  } catch (error) {
    if (error instanceof UsageError) return { kind: 'rejected', row, error }
    throw error
  }
}

/**
 * The contexts in order, asked for again where the gateway was busy (robustness §6). Throws
 * UnavailableError, or the signal's reason.
 */
async function contextsOf(
  parts: Pick<BatchParts, 'contexts' | 'ports'>,
  identifiers: readonly string[],
  options: PlanOptions,
): Promise<readonly ContextResult[]> {
  const patience = newPatience(parts.ports)
  const results = new Map<string, ContextResult>()
  let cause: string | undefined
  const missing = () => [...new Set(identifiers)].filter((one) => isTransient(results.get(one)))
  for (let wanted = missing(); wanted.length > 0; wanted = missing()) {
    let failure: UnavailableError | undefined
    try {
      for (const one of await parts.contexts.contexts(
        wanted,
        options.signal === undefined ? {} : { signal: options.signal },
      ))
        results.set(one.identifier, one)
    } catch (error) {
      if (!(error instanceof UnavailableError)) throw error
      failure = error
    }
    const transient = wanted
      .map((one) => results.get(one)?.error)
      .find((error) => error instanceof UnavailableError)
    const reason = failure ?? transient
    if (reason === undefined) break
    if (
      cause !== undefined &&
      isAborted(options.signal) &&
      !(options.signal?.reason instanceof InterruptedError)
    )
      throw outOfTime(cause)
    const waitMs = isAborted(options.signal) ? undefined : patience(reason.meta.retryAfterMs)
    if (waitMs === undefined) {
      if (failure !== undefined) throw failure
      break
    }
    // A call that was cut short tells less than the one before it.
    if (reason.code !== 'not_sent' || cause === undefined) cause = reason.detail
    options.onRetry?.({ reason: reason.detail, waitMs })
    try {
      await parts.ports.clock.sleep(waitMs, options.signal)
    } catch (error) {
      if (!isAborted(options.signal) || error instanceof InterruptedError) throw error
      throw outOfTime(cause)
    }
  }
  return identifiers.flatMap((one) => results.get(one) ?? [])
}

/** Exit 75: no context until the time given ran out, with what kept it from us. */
const outOfTime = (cause: string) =>
  new UnavailableError(
    'no_context',
    `the time given ran out before a context was learned: ${cause}`,
    {
      hint: 'check the gateway address and the network, or give it longer with --timeout',
    },
  )

const isTransient = (result: ContextResult | undefined) =>
  result === undefined || result.error instanceof UnavailableError
