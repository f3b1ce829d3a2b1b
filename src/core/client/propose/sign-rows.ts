/**
 * From plans to signatures: a hundred at a time under the lock, their nonces in one append (R6),
 * the signatures in another; one alone where somebody is asked in between.
 */

import { domainOf } from '#chain/round'
import { onChain } from '#chain/unavailable'
import type { Signer } from '#ports'
import { ProposerError, UsageError } from '#protocol/errors'
import { toHex, typedData } from '#protocol/witness'
import type { OpenClaim } from '../funds/funds.js'
import type { BatchRow, IntentRow } from '../input/input.js'
import type { JournaledAuthorization, Offer } from '../journal/authorizations.js'
import type { JournalView } from '../journal/journal.js'
import { chainChecks, type JournalEntry } from '../journal/records.js'
import { confirmByChain, nowOf } from '../trust/context.js'
import {
  contractsOf,
  nothingPinned,
  requestOf,
  requireImplementations,
  sharedRound,
} from '../trust/trust.js'
import { authorizationOpen, byRound, type Intent, type IntentInWords, offerOpen } from './intent.js'
import { newSpending, type Spending } from './limits.js'
import {
  orRejected,
  type Planned,
  type PlanOptions,
  type Preview,
  type ProposeParts,
  planRows,
  type Ready,
  type ToImport,
  type ToSign,
} from './plan.js'
import { endOfEarlier, type SettledEarlier } from './round-over.js'
import {
  chainOfWallet,
  draftOf,
  giveOut,
  isOwnFailure,
  newAuthorization,
  signDrafts,
  signOffer,
} from './sign.js'
import {
  acknowledgedOf,
  chainNotes,
  checkTerms,
  checkTimeline,
  compareServersTypedData,
  firstRulesNotes,
  nonceReserved,
  nonceSpent,
  type RulesChangedError,
  type RulesStanding,
  requireRules,
  rulesChange,
  rulesStanding,
} from './terms.js'

export interface RowAuthorized {
  readonly authorization: JournaledAuthorization
  /** Signed before. */
  readonly reused: boolean
}

export type Settled = Planned & { readonly settled?: readonly SettledEarlier[] }

/** What is open in earlier rounds is over before anything is signed (§3 rule 3). */
export async function settlePlans(
  parts: ProposeParts,
  plans: readonly Planned[],
  signal: AbortSignal | undefined,
) {
  const all: Settled[] = []
  for (const plan of plans) {
    const settling = async (): Promise<Settled> => {
      if (plan.kind !== 'sign') return plan
      const settled: SettledEarlier[] = []
      for (const earlier of plan.earlier) {
        const end = await endOfEarlier({ ...parts, signal }, earlier)
        if (end === undefined) continue
        parts.note?.(end.line)
        parts.onSettled?.(end)
        settled.push(end)
      }
      for (const note of plan.notes) parts.note?.(note)
      return { ...plan, settled }
    }
    all.push(await orRejected(plan.row, settling))
  }
  return all
}

type Waiting = ToSign | ToImport

const isWaiting = (plan: Planned) => plan.kind === 'sign' || plan.kind === 'import'

/** What is shown, and a wallet outside, which may ask a person, one by one without the lock. */
export async function authorizePlans(
  parts: ProposeParts,
  plans: readonly Planned[],
  spending: Spending,
): Promise<Ready[]> {
  const waiting = plans.filter(isWaiting)
  const isShown = parts.form === 'single'
  const isSigned = waiting.some(({ kind }) => kind === 'sign')
  const signer = isSigned && !isShown ? await parts.signer() : undefined
  const made: Ready[] = []
  if (isShown || signer?.signTypedData !== undefined)
    for (const one of waiting)
      if (one.kind === 'import') made.push(...(await signAtOnce(parts, spending, [one])))
      else made.push(await orOwnFailure(one, () => signOne(parts, spending, one)))
  else made.push(...(await signAtOnce(parts, spending, waiting, signer)))
  const results = made.values()
  return plans.map((plan) => (isWaiting(plan) ? resultOf(results) : plan))
}

/** Any other fault ends the run. */
async function orOwnFailure<T>({ row }: Waiting, work: () => T | Promise<T>) {
  try {
    return await work()
  } catch (error) {
    if (isOwnFailure(error)) return { kind: 'rejected', row, error } as const
    throw error
  }
}

/** `entries` are durable before a draft is signed. */
type Made =
  | (Ready & { readonly entries?: readonly JournalEntry[] })
  | ({ readonly kind: 'draft'; readonly row: BatchRow } & ReturnType<typeof draftOf>)

async function signAtOnce(
  parts: ProposeParts,
  spending: Spending,
  group: readonly Waiting[],
  signer?: Signer,
): Promise<readonly Ready[]> {
  const { chain, trust, ports, journal, form = 'batch', recovery } = parts
  const unseen = group.flatMap((one) => (one.kind === 'sign' && !one.shown ? one : []))
  if (chain !== undefined && unseen.length > 0 && trust.implementations === undefined)
    parts.note?.(nothingPinned)
  const nowSeconds = await nowOf(parts)
  const recover = signer && (await recovery?.())
  const wallet = signer && (await chainOfWallet(chain, signer.address))
  const signing = { ports, journal, recover, chain: wallet }
  const rules = await rulesOfRows(parts, unseen)
  return journal.exclusive(async (view) => {
    const made = await madeOf(parts, spending, group, { view, signer, nowSeconds, rules })
    const entries = made.flatMap((one) => one.entries ?? [])
    if (entries.length > 0) await journal.append(entries)
    const drafts = made.flatMap((one) => (one.kind === 'draft' ? one.draft : []))
    const signed = signer ? await signDrafts(signing, drafts, signer, form) : []
    const results = signed.values()
    return made.map((one) => (one.kind === 'draft' ? { row: one.row, ...resultOf(results) } : one))
  })
}

function resultOf<T>(results: Iterator<T>): T {
  const { done, value } = results.next()
  if (done === true) throw new Error('a row was left unsigned')
  return value
}

interface Making {
  readonly view: JournalView
  readonly signer: Signer | undefined
  readonly nowSeconds: number
  readonly rules: RowRules
}

/** R8 and R6 for callers whose input nobody has checked: no question, round or nonce twice. */
async function madeOf(
  parts: ProposeParts,
  spending: Spending,
  group: readonly Waiting[],
  making: Making,
) {
  const seen = new Set<string>()
  const isSeen = (...key: readonly unknown[]) => {
    const { size } = seen
    return seen.add(key.join(' ')).size === size
  }
  const makeOf = (one: Waiting): Made | Promise<Made> => {
    const isImport = one.kind === 'import'
    const { proposer, nonce } = isImport ? one.payload.proposal : one.intent
    const questionId = isImport ? one.payload.proposal.questionId : one.context.question_id
    const round = isImport ? undefined : sharedRound(parts.trust, one.context, one.ref)
    const isRoundSeen = round !== undefined && isSeen(round, proposer)
    if (isSeen(questionId, proposer) || isRoundSeen) throw twin()
    if (nonce !== undefined && isSeen('nonce', nonce, proposer))
      throw nonceReserved(`${nonce} appears twice in this batch for the same proposer`, 'the nonce')
    return isImport ? importOf(parts, one, making.view) : draftFor(parts, spending, one, making)
  }
  const all: Made[] = []
  for (const one of group) all.push(await orOwnFailure(one, () => makeOf(one)))
  const drafts = all.flatMap((one) => (one.kind === 'draft' ? one.draft : []))
  const claims = drafts.map(({ id, terms }) => ({
    ...{ id, owner: terms.proposer, nonce: BigInt(terms.nonce) },
  }))
  const spent = await spentOf(parts, claims)
  return all.map((one): Made => {
    if (one.kind !== 'draft' || !spent.has(one.draft.id)) return one
    const { row, draft } = one
    return { kind: 'rejected', row, error: nonceSpent(draft.terms.nonce, draft.terms.proposer) }
  })
}

async function draftFor(
  parts: ProposeParts,
  spending: Spending,
  plan: ToSign,
  { view, signer, nowSeconds, rules }: Making,
): Promise<Made> {
  const { row, intent, shown } = plan
  if (signer?.address !== intent.proposer) throw wrongSigner(signer, intent)
  const { saved, offer } = foundAgain(parts, plan, view)
  if (saved !== undefined) return { kind: 'send', row, authorization: saved }
  if (offer !== undefined) throw offerOpen(offer)
  const standing = rules.get(plan)
  if (standing instanceof ProposerError) throw standing
  const prepared = shown ?? (await termsOf(parts, spending, plan, nowSeconds, standing))
  if (shown === undefined) for (const note of prepared.notes) parts.note?.(note)
  return { kind: 'draft', row, ...draftOf(parts, intent, prepared, view) }
}

/** Under the lock: what another process has done meanwhile. */
function foundAgain(parts: ProposeParts, { intent, context, ref }: ToSign, view: JournalView) {
  const found = byRound(parts, intent, view, context, ref)
  if (!found.saved && !found.offer) checkTimeline(parts.trust, context, view)
  return found
}

async function termsOf(
  { chain, journal }: ProposeParts,
  spending: Spending,
  row: ToSign,
  nowSeconds: number,
  rules: RulesStanding | undefined,
) {
  const { intent, context, price, labels, title, witness, ref: round } = row
  const checked = checkTerms(intent, context, nowSeconds)
  const { requiredBondRaw, amountRaw, deadlineSeconds } = checked
  const nonce = intent.nonce ?? journal.nextNonce()
  await spending.take(row, amountRaw)
  const [amount, deadline] = [String(amountRaw), String(deadlineSeconds)]
  const terms = { price, amount, nonce: String(nonce), deadline }
  const digest = toHex(witness.digest(terms))
  // Its context says whether it is the chain's; nonce and funds are examined here.
  const ofContext = context.source === 'chain' ? [] : (['round', 'bond'] as const)
  const unchecked = chain === undefined ? chainChecks : ofContext
  const notes = [...checked.notes, ...firstRulesNotes(intent.identifier, rules)]
  return {
    ...{ context, price, labels, title, requiredBondRaw, amountRaw, nonce, deadlineSeconds },
    ...{ terms, digest, round, unchecked, rules, notes },
  }
}

async function importOf(
  parts: ProposeParts,
  { row, payload }: ToImport,
  view: JournalView,
): Promise<Made> {
  const known = view.byIdentity(payload.identity)
  if (known !== undefined) return { kind: 'send', row, authorization: known }
  const { importRecord } = await import('./payload.js')
  const data = importRecord(parts, view, payload)
  const entries = [{ kind: 'signed', data } as const]
  return { kind: 'send', row, authorization: newAuthorization(data), entries }
}

async function spentOf(
  { chain, trust }: ProposeParts,
  claims: readonly Pick<OpenClaim, 'id' | 'owner' | 'nonce'>[],
): Promise<ReadonlySet<string>> {
  if (chain === undefined || claims.length === 0) return new Set()
  const { pinnedHeads, spentNonces } = await import('../funds/funds.js')
  const [{ latest }] = await Promise.all([
    pinnedHeads(chain, trust),
    requireImplementations(chain, trust),
  ])
  return onChain(() => spentNonces(chain, trust.permit2, latest.number, claims))
}

async function prepare(parts: ProposeParts, spending: Spending, row: ToSign) {
  const { trust, chain, form, journal } = parts
  const { intent, labels, witness, context } = row
  const { proposer, outcome } = intent
  const rules = (await rulesNow(parts, [row])).get(row)
  const prepared = await termsOf(parts, spending, row, await nowOf(parts), rules)
  const { terms, nonce } = prepared
  if ((await journal.load()).isReserved(proposer, terms.nonce))
    throw nonceReserved(`${nonce} already serves another authorization of this journal`)
  const spent = await spentOf(parts, [{ id: '', owner: proposer, nonce }])
  if (spent.size > 0) throw nonceSpent(nonce, proposer, '--nonce')
  // A person who signs many may come to this one an hour after it was planned.
  if (form !== 'single' && chain !== undefined) {
    await confirmByChain(chain, trust, context)
    await newSpending(parts).take(row, prepared.amountRaw)
  }
  await compareServersTypedData(context, (theirs) => toHex(witness.digest(theirs)))
  const domain = domainOf(contractsOf(trust))
  return {
    ...{ ...prepared, outcome, label: labels[outcome], proposer },
    typedData: typedData(domain, requestOf(context), context.bond.token, terms),
    notes: [...chainNotes(chain, trust, context), ...prepared.notes],
  }
}

async function agreed(parts: ProposeParts, spending: Spending, row: ToSign) {
  const { safe, askRules } = parts
  const shown = await prepare(parts, spending, row)
  // Loaded where a Safe signs: it needs viem, which signing alone does without.
  if (safe !== undefined) (await import('./safe.js')).requireSameDocument(safe, shown.digest)
  await parts.confirm?.(shown)
  await requireRules(row.intent.identifier, shown.rules, askRules)
  return shown
}

/** A person or a wallet outside must not keep other processes waiting. */
async function signOne(parts: ProposeParts, spending: Spending, plan: ToSign): Promise<Ready> {
  const { row, intent } = plan
  // Another process may have had it signed, or replaced it, since it was planned.
  const again = plan.offer && foundAgain(parts, plan, await parts.journal.load())
  if (again?.saved !== undefined) return { kind: 'send', row, authorization: again.saved }
  if (again?.offer !== undefined) {
    const { offer } = again
    await spending.take(plan, BigInt(offer.offered.terms.amount))
    const offered = { ...offer.offered, ...(await rulesOfOffer(parts, plan, offer)) }
    const signer = await signerOf(parts, intent)
    const authorization = await signOffer(parts, { ...offer, offered }, signer)
    return { kind: 'send', row, authorization }
  }
  const shown = await agreed(parts, spending, plan)
  const signer = await signerOf(parts, intent)
  if (signer.signTypedData === undefined)
    return resultOf((await signAtOnce(parts, spending, [{ ...plan, shown }], signer)).values())
  const held = await hold(parts, plan, shown)
  if (held.reused) throw offerOpen(held.offer)
  const authorization = held.saved ?? (await signOffer(parts, held.offer, signer, { fresh: true }))
  return { kind: 'send', row, authorization }
}

const hold = (parts: ProposeParts, row: ToSign, shown: Preview) =>
  parts.journal.exclusive(async (view) => {
    const { saved, offer } = foundAgain(parts, row, view)
    if (saved !== undefined) return { saved }
    if (offer !== undefined) return { offer, reused: true } as const
    return { offer: await giveOut(parts, row.intent, shown, view), reused: false } as const
  })

/**
 * Reuses an open authorization of equal intent, else signs. One that differs in the same round is
 * `authorization_open` (exit 5) unless `supersede` names it.
 */
export async function authorize(
  given: ProposeParts,
  intent: IntentInWords,
): Promise<RowAuthorized> {
  const { parts, plan, spending } = await planOne(given, intent)
  const [made] = await authorizePlans(parts, [plan], spending)
  if (made?.kind === 'rejected') throw made.error
  if (made?.kind !== 'send') throw new Error('an intent was left unsigned')
  return { authorization: made.authorization, reused: plan.kind === 'send' }
}

/** Writes nothing. */
export async function preview(
  given: ProposeParts,
  intent: IntentInWords,
): Promise<Preview | { readonly reused: JournaledAuthorization } | { readonly resumed: Offer }> {
  const { parts, plan, spending } = await planOne(given, intent, { look: true })
  if (plan.kind === 'send') return { reused: plan.authorization }
  for (const note of plan.notes) parts.note?.(note)
  if (plan.offer !== undefined) return { resumed: plan.offer }
  return { ...(await prepare(parts, spending, plan)), contextNotes: plan.notes }
}

/** An equal intent gets the same document. */
export async function offerTypedData(given: ProposeParts, intent: IntentInWords) {
  const { parts, plan, spending } = await planOne(given, intent, { isRetry: true })
  if (plan.kind === 'send') throw authorizationOpen(plan.authorization)
  if (plan.offer !== undefined) return { offer: plan.offer, reused: true }
  const held = await hold(parts, plan, await agreed(parts, spending, plan))
  if (held.saved !== undefined) throw authorizationOpen(held.saved)
  return held
}

export const intentRow = (intent: IntentInWords): IntentRow => ({
  kind: 'intent',
  line: 1,
  ...intent,
})

async function planOne(given: ProposeParts, intent: IntentInWords, options: PlanOptions = {}) {
  const parts = { ...given, form: 'single' } as const
  const { signal } = parts
  const planned = await planRows(parts, [intentRow(intent)], { ...options, signal })
  const [plan] = options.look ? planned : await settlePlans(parts, planned, signal)
  if (plan?.kind === 'rejected') throw plan.error
  if (plan?.kind !== 'send' && plan?.kind !== 'sign')
    throw new Error('an intent was planned as something else')
  return { parts, plan, spending: newSpending(parts) }
}

async function rulesOfOffer(parts: ProposeParts, row: ToSign, { id }: Offer) {
  const { intent, context } = row
  parts.note?.(`${id} was already issued as typed data; that is what is signed`)
  await parts.judge?.(context, intent.outcome)
  const standing = (await rulesNow(parts, [row])).get(row)
  await requireRules(intent.identifier, standing, parts.askRules)
  return standing && { rules: standing.rules.hash }
}

async function signerOf({ safe, signer: unlock, chain, trust }: ProposeParts, intent: Intent) {
  const signer =
    safe === undefined ? await unlock() : (await import('./safe.js')).safeItself(safe.safe)
  // A person may have taken minutes to agree.
  if (chain !== undefined) await requireImplementations(chain, trust)
  if (signer.address === intent.proposer) return signer
  throw wrongSigner(signer, intent)
}

const wrongSigner = (signer: Signer | undefined, { proposer }: Pick<Intent, 'proposer'>) =>
  new UsageError(
    'wrong_signer',
    `the key is for ${signer?.address ?? 'nobody'}, the proposer is ${proposer}`,
    "choose that proposer's account with --account",
  )

const twin = () =>
  new UsageError(
    'duplicate_row',
    'the same question or round appears twice in this batch for the same proposer',
    'leave one of them',
  )

type RowRules = ReadonlyMap<ToSign, RulesStanding | RulesChangedError>

/** Without the lock: a person may take a minute. */
async function rulesOfRows(parts: ProposeParts, rows: readonly ToSign[]) {
  const found = new Map<ToSign, RulesStanding | RulesChangedError>()
  for (const [row, standing] of await rulesNow(parts, rows))
    found.set(row, (await rulesChange(row.intent.identifier, standing, parts.askRules)) ?? standing)
  return found
}

/** At one block: a clarification may have come since the context was read. */
async function rulesNow(
  { chain, trust, journal }: ProposeParts,
  rows: readonly ToSign[],
): Promise<ReadonlyMap<ToSign, RulesStanding>> {
  const asked = rows.filter(({ context }) => context.rules !== undefined)
  if (chain === undefined || asked.length === 0) return new Map()
  const [{ readRules }, { pinnedHeads }] = await Promise.all([
    import('#chain/rules'),
    import('../funds/funds.js'),
  ])
  const { latest } = await pinnedHeads(chain, trust)
  const view = await journal.load()
  const standing = async (row: ToSign) => {
    const { intent, context } = row
    const creator = context.rules?.owner ?? undefined
    const question = { ...requestOf(context), questionId: context.question_id, creator }
    const rules = await readRules(chain, question, latest.number)
    if (rules === undefined) return []
    return [[row, rulesStanding(rules, intent, acknowledgedOf(view, context), context)] as const]
  }
  return new Map((await onChain(() => Promise.all(asked.map(standing)))).flat())
}
