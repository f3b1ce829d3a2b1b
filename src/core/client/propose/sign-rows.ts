/** By the hundred under the lock: their nonces in one append (R6), the signatures in another. */

import { domainOf } from '#chain/round'
import { onChain } from '#chain/unavailable'
import type { Signer } from '#ports'
import { ProposerError, UsageError } from '#protocol/errors'
import { toHex, typedData } from '#protocol/witness'
import { lowercase } from '#protocol/words'
import type { BatchRow, IntentRow } from '../input/input.js'
import {
  chainChecks,
  type JournalEntry,
  type JournaledAuthorization,
  type Offer,
} from '../journal/authorizations.js'
import type { JournalView } from '../journal/journal.js'
import { confirmByChain, nowOf } from '../trust/context.js'
import {
  contractsOf,
  nothingPinned,
  requestOf,
  requireImplementations,
  sharedRound,
} from '../trust/trust.js'
import {
  acknowledgedOf,
  authorizationOpen,
  byRound,
  chainNotes,
  checkTerms,
  checkTimeline,
  compareServersTypedData,
  firstRulesNotes,
  type Intent,
  type IntentInWords,
  nonceReserved,
  nonceSpent,
  type RulesChangedError,
  type RulesStanding,
  requireRules,
  rulesChange,
  rulesStanding,
} from './intent.js'
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
import { endOfEarlier, type SettledEarlier } from './send.js'
import {
  chainOfWallet,
  type Draft,
  draftOf,
  isOwnFailure,
  newAuthorization,
  signDrafts,
  signOffer,
} from './sign.js'

export interface RowAuthorized {
  readonly authorization: JournaledAuthorization
  readonly reused: boolean
}

export type Settled = Planned & { readonly settled?: readonly SettledEarlier[] }

/** Earlier rounds are over before anything is signed (§3 rule 3). */
export async function settlePlans(
  parts: ProposeParts,
  plans: readonly Planned[],
  signal?: AbortSignal,
) {
  const all: Settled[] = []
  for (const plan of plans) {
    const settling = async (): Promise<Settled> => {
      if (plan.kind !== 'sign') return plan
      const settled: SettledEarlier[] = []
      for (const earlier of plan.earlier) {
        const end = await endOfEarlier(parts, earlier, signal)
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

/** What a person may be asked about is signed one by one, without the lock. */
export async function authorizePlans(
  parts: ProposeParts,
  plans: readonly Planned[],
  spending: Spending,
): Promise<Ready[]> {
  const waiting = plans.filter(isWaiting)
  const isShown = parts.form === 'single'
  const isSigned = waiting.some(({ kind }) => kind === 'sign')
  const signer = isSigned && !isShown ? await parts.signer() : undefined
  const isAsked = isShown || signer?.signTypedData !== undefined
  const made = isAsked ? [] : await signAtOnce(parts, spending, waiting, signer)
  for (const one of isAsked ? waiting : []) {
    const signing = async (): Promise<Ready> => {
      const authorization = await signOne(parts, spending, one)
      return { kind: 'send', row: one.row, authorization }
    }
    made.push(await orOwnFailure(one, signing))
  }
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

type Made =
  | (Ready & { readonly entries?: readonly JournalEntry[] })
  | ({ readonly kind: 'draft'; readonly row: BatchRow } & ReturnType<typeof draftOf>)

const draftsIn = (made: readonly Made[]) =>
  made.flatMap((one) => (one.kind === 'draft' ? one.draft : []))

async function signAtOnce(
  parts: ProposeParts,
  spending: Spending,
  group: readonly Waiting[],
  signer?: Signer,
): Promise<Ready[]> {
  const { chain, trust, ports, journal, form = 'batch', recovery } = parts
  const unseen = group.flatMap((one) => (one.kind === 'sign' && !one.shown ? one : []))
  if (chain !== undefined && unseen.length > 0 && trust.implementations === undefined)
    parts.note?.(nothingPinned)
  const nowSeconds = await nowOf(parts)
  const recover = signer && (await recovery?.())
  const wallet = signer && (await chainOfWallet(chain, signer.address))
  const rules = new Map<Waiting, RulesStanding | RulesChangedError>()
  // Without the lock: a person may take a minute.
  for (const [row, standing] of await rulesNow(parts, unseen))
    rules.set(row, (await rulesChange(row.intent.identifier, standing, parts.askRules)) ?? standing)
  return journal.exclusive(async (view) => {
    const requireNew = newTwinCheck(parts)
    const draftFor = async (plan: Waiting): Promise<Made> => {
      requireNew(plan)
      if (plan.kind === 'import') return importOf(parts, plan, view)
      const { row, intent, shown } = plan
      requireSigner(signer, intent)
      const { saved, offer } = foundAgain(parts, plan, view)
      if (saved !== undefined) return { kind: 'send', row, authorization: saved }
      if (offer !== undefined) throw authorizationOpen(offer)
      const standing = rules.get(plan)
      if (standing instanceof ProposerError) throw standing
      const prepared = shown ?? (await termsOf(parts, spending, plan, nowSeconds, standing))
      if (shown === undefined) for (const note of prepared.notes) parts.note?.(note)
      return { kind: 'draft', row, ...draftOf(parts, intent, prepared, view) }
    }
    const tried: Made[] = []
    for (const one of group) tried.push(await orOwnFailure(one, () => draftFor(one)))
    const spent = await spentOf(parts, draftsIn(tried))
    const made = tried.map((one): Made => {
      if (one.kind !== 'draft' || !spent.has(one.draft.id)) return one
      const { nonce, proposer } = one.draft.terms
      return { kind: 'rejected', row: one.row, error: nonceSpent(nonce, proposer) }
    })
    const entries = made.flatMap((one) => one.entries ?? [])
    if (entries.length > 0) await journal.append(entries)
    const signing = { ports, journal, recover, chain: wallet }
    const signed = signer ? await signDrafts(signing, draftsIn(made), signer, form) : []
    const results = signed.values()
    return made.map((one) => (one.kind === 'draft' ? { row: one.row, ...resultOf(results) } : one))
  })
}

function resultOf<T>(results: Iterator<T>): T {
  const { done, value } = results.next()
  if (done === true) throw new Error('a row was left unsigned')
  return value
}

/** No question or round (R8), no nonce (R6) twice in an input that nobody has checked. */
function newTwinCheck({ trust }: ProposeParts) {
  const seen = new Set<string>()
  const isSeen = (...key: readonly unknown[]) => seen.size === seen.add(key.join(' ')).size
  return (one: Waiting) => {
    const { questionId, proposer, nonce } =
      one.kind === 'import'
        ? one.payload.proposal
        : { ...one.intent, questionId: one.context.question_id }
    const round = one.kind === 'sign' && sharedRound(trust, one.context, one.ref)
    const isRoundSeen = round && isSeen(round, proposer)
    if (isSeen(questionId, proposer) || isRoundSeen)
      throw new UsageError(
        'duplicate_row',
        'the same question or round appears twice in this batch for the same proposer',
        'leave one of them',
      )
    if (nonce !== undefined && isSeen('nonce', nonce, proposer))
      throw nonceReserved(`${nonce} appears twice in this batch for the same proposer`)
  }
}

/** What another process has done meanwhile. */
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
  const { notes, ...sums } = checkTerms(intent, context, nowSeconds)
  const nonce = intent.nonce ?? journal.nextNonce()
  await spending.take(row, sums.amountRaw)
  const [amount, deadline] = [String(sums.amountRaw), String(sums.deadlineSeconds)]
  const terms = { price, amount, nonce: String(nonce), deadline }
  // Its context says whether it is the chain's; the others are examined here.
  const ofContext = context.source === 'chain' ? [] : (['round', 'bond'] as const)
  return {
    ...{ context, price, labels, title, ...sums, nonce, terms, round, rules },
    digest: toHex(witness.digest(terms)),
    unchecked: chain === undefined ? chainChecks : ofContext,
    notes: [...notes, ...firstRulesNotes(intent.identifier, rules)],
  }
}

async function importOf(parts: ProposeParts, { row, payload }: ToImport, view: JournalView) {
  const known = view.byIdentity(payload.identity)
  if (known !== undefined) return { kind: 'send', row, authorization: known } as const
  const { importRecord } = await import('./payload.js')
  const data = importRecord(parts, view, payload)
  const authorization = newAuthorization(data)
  return { kind: 'send', row, authorization, entries: [{ kind: 'signed', data }] } as const
}

async function spentOf(
  { chain, trust }: ProposeParts,
  drafts: readonly Pick<Draft, 'id' | 'terms'>[],
) {
  if (chain === undefined || drafts.length === 0) return new Set<string>()
  const { pinnedHeads, spentNonces } = await import('../funds/funds.js')
  const [{ latest }] = await Promise.all([
    pinnedHeads(chain, trust),
    requireImplementations(chain, trust),
  ])
  const claims = drafts.map(({ id, terms }) => {
    return { id, owner: terms.proposer, nonce: BigInt(terms.nonce) }
  })
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
  const spent = await spentOf(parts, [{ id: '', terms: { proposer, ...terms } }])
  if (spent.size > 0) throw nonceSpent(nonce, proposer)
  // It may have been planned an hour ago.
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
  // It needs viem, which signing alone does without.
  if (safe !== undefined) (await import('./safe.js')).requireSameDocument(safe, shown.digest)
  await parts.confirm?.(shown)
  await requireRules(row.intent.identifier, shown.rules, askRules)
  return shown
}

async function signOne(parts: ProposeParts, spending: Spending, plan: Waiting) {
  const alone = async (one: Waiting, signer?: Signer) => {
    const [made] = await signAtOnce(parts, spending, [one], signer)
    if (made?.kind === 'send') return made.authorization
    throw made?.kind === 'rejected' ? made.error : new Error('a row was left unsigned')
  }
  if (plan.kind === 'import') return alone(plan)
  const { intent } = plan
  // It may have been signed or replaced since it was planned.
  const again = plan.offer && foundAgain(parts, plan, await parts.journal.load())
  if (again?.saved !== undefined) return again.saved
  if (again?.offer !== undefined) {
    const { id, offered } = again.offer
    await spending.take(plan, BigInt(offered.terms.amount))
    parts.note?.(`${id} was already issued as typed data; that is what is signed`)
    await parts.judge?.(plan.context, intent.outcome)
    const rules = (await rulesNow(parts, [plan])).get(plan)
    await requireRules(intent.identifier, rules, parts.askRules)
    const newer = { ...offered, ...(rules && { rules: rules.rules.hash }) }
    return signOffer(parts, { ...again.offer, offered: newer }, await signerOf(parts, intent))
  }
  const shown = await agreed(parts, spending, plan)
  const signer = await signerOf(parts, intent)
  if (signer.signTypedData === undefined) return alone({ ...plan, shown }, signer)
  const held = await hold(parts, plan, shown)
  if (held.reused) throw authorizationOpen(held.offer)
  return held.saved ?? signOffer(parts, held.offer, signer, { fresh: true })
}

const hold = (parts: ProposeParts, row: ToSign, shown: Preview) =>
  parts.journal.exclusive(async (view) => {
    const { saved, offer } = foundAgain(parts, row, view)
    if (saved !== undefined) return { saved }
    if (offer !== undefined) return { offer, reused: true } as const
    const { draft, entries } = draftOf(parts, row.intent, shown, view)
    const offeredAtMs = Math.trunc(parts.ports.clock.nowMs())
    const offered = { ...draft, typedData: shown.typedData, offeredAtMs }
    await parts.journal.append([...entries, { kind: 'offered', data: offered }])
    return { offer: { id: draft.id, offered, parts: [], terminals: [] }, reused: false } as const
  })

/**
 * Reuses what is open of equal intent, else signs. What differs is `authorization_open` (exit 5),
 * unless `supersede` names it.
 */
export async function authorize(
  given: ProposeParts,
  intent: IntentInWords,
): Promise<RowAuthorized> {
  const { parts, plan, spending } = await planOne(given, intent)
  const reused = plan.kind === 'send'
  const authorization = reused ? plan.authorization : await signOne(parts, spending, plan)
  return { authorization, reused }
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

async function signerOf({ safe, signer: unlock, chain, trust }: ProposeParts, intent: Intent) {
  const signer =
    safe === undefined ? await unlock() : (await import('./safe.js')).safeItself(safe.safe)
  // A person may have taken minutes to agree.
  if (chain !== undefined) await requireImplementations(chain, trust)
  requireSigner(signer, intent)
  return signer
}

function requireSigner(signer: Signer | undefined, { proposer }: Intent) {
  if (signer && lowercase(signer.address) === proposer) return
  throw new UsageError(
    'wrong_signer',
    `the key is for ${signer?.address ?? 'nobody'}, the proposer is ${proposer}`,
    "choose that proposer's account with --account",
  )
}

/** At one block: a clarification may have come since the context was read. */
async function rulesNow({ chain, trust, journal }: ProposeParts, rows: readonly ToSign[]) {
  const asked = rows.filter(({ context }) => context.rules !== undefined)
  if (chain === undefined || asked.length === 0) return new Map<ToSign, RulesStanding>()
  const { readRules } = await import('#chain/rules')
  const { pinnedHeads } = await import('../funds/funds.js')
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
