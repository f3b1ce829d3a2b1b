/**
 * From plans to signatures (R6, R8): a hundred at a time under the lock, nonces in one append, then
 * the signatures in another; one alone where somebody is asked in between.
 */

import { domainOf } from '#chain/round'
import { onChain } from '#chain/unavailable'
import type { Hex, Signer } from '#ports'
import { ProposerError, UsageError } from '#protocol/errors'
import type { Address } from '#protocol/schema'
import { toHex, typedData } from '#protocol/witness'
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
  type Planned,
  type PlanOptions,
  type Preview,
  type ProposeParts,
  planRows,
  type Ready,
  type ToImport,
  type ToSign,
} from './plan.js'
import { type SettledEarlier, settleEarlier } from './round-over.js'
import {
  type Draft,
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

type Waiting = ToSign | ToImport

export interface RowAuthorized {
  readonly authorization: JournaledAuthorization
  /** Signed before, perhaps by another process meanwhile. */
  readonly reused: boolean
}

/** What becomes of a row under the lock: `draft` is signed once all `entries` are durable. */
type Made = Partial<RowAuthorized> & {
  readonly error?: ProposerError
  readonly entries?: readonly JournalEntry[]
  readonly draft?: Draft
}

export async function settle(
  parts: ProposeParts,
  plan: Planned,
  signal: AbortSignal | undefined,
): Promise<Planned & { readonly settled?: readonly SettledEarlier[] }> {
  if (plan.kind !== 'sign') return plan
  const settled = await settleEarlier({ ...parts, signal }, plan.earlier)
  for (const note of plan.notes) parts.note?.(note)
  return { ...plan, settled }
}

/** What is shown, and a wallet outside, which may ask a person, one by one without the lock. */
async function signGroup(
  parts: ProposeParts,
  spending: Spending,
  group: readonly Waiting[],
  given?: Signer,
): Promise<readonly Made[]> {
  const isUnseen = group.some((one) => one.kind === 'sign' && one.shown === undefined)
  const isShown = isUnseen && parts.form === 'single'
  const signer = given ?? (isUnseen && !isShown ? await parts.signer() : undefined)
  if (isShown || signer?.signTypedData !== undefined) {
    const results: Made[] = []
    for (const one of group)
      results.push(
        await ownFailure(async () => {
          if (one.kind === 'import') return (await signGroup(parts, spending, [one]))[0] ?? {}
          return signOne(
            parts,
            spending,
            one,
            isShown ? undefined : await signerOf(parts, one.intent),
          )
        }),
      )
    return results
  }
  const { chain, trust, ports, journal, form = 'batch', recovery } = parts
  if (chain !== undefined && isUnseen && trust.implementations === undefined)
    parts.note?.(nothingPinned)
  const nowSeconds = await nowOf(parts)
  // A wallet without code need not be asked for each signature.
  const hasCode =
    chain !== undefined &&
    signer !== undefined &&
    (await onChain(() => chain.code(signer.address))) !== '0x'
  const recover = signer && (await recovery?.())
  const signing = { ports, journal, recover, chain: hasCode ? chain : undefined }
  const rules = await rulesOfRows(parts, group)
  return journal.exclusive(async (view) => {
    const making = { view, signer, nowSeconds, rules }
    const made = await withoutSpent(parts, await madeOf(parts, spending, group, making))
    const entries = made.flatMap((one) => one.entries ?? [])
    if (entries.length > 0) await journal.append(entries)
    const drafts = made.flatMap(({ draft }) => draft ?? [])
    const signed = signer ? await signDrafts(signing, drafts, signer, form) : new Map()
    return made.map((one): Made => (one.draft ? signed.get(one.draft.id) : one))
  })
}

interface Making {
  readonly view: JournalView
  readonly signer: Signer | undefined
  readonly nowSeconds: number
  readonly rules: RowRules
}

/** R8 and R6 for callers whose input nobody has checked. */
async function madeOf(
  parts: ProposeParts,
  spending: Spending,
  group: readonly Waiting[],
  making: Making,
) {
  /** Questions, shared rounds and nonces, each with its proposer. */
  const seen = new Set<string>()
  const isSeen = (key: string) => {
    const { size } = seen
    return seen.add(key).size === size
  }
  const all: Made[] = []
  for (const one of group) {
    const isImport = one.kind === 'import'
    const questionId = isImport ? one.payload.proposal.questionId : one.context.question_id
    const { proposer } = isImport ? one.payload.proposal : one.intent
    const shared = isImport ? undefined : sharedRound(parts.trust, one.context, one.ref)
    const keys = new Set([questionId, shared ?? questionId])
    const isTwin = [...keys].filter((key) => isSeen(`${key} ${proposer}`)).length > 0
    const made = isTwin
      ? { error: twin() }
      : await ownFailure(() =>
          isImport ? importOf(parts, one, making.view) : draftFor(parts, spending, one, making),
        )
    const { nonce } = made.draft?.terms ?? (made.entries && made.authorization?.signed.terms) ?? {}
    const isTwice = nonce !== undefined && isSeen(`nonce ${nonce} ${proposer}`)
    all.push(isTwice ? { error: nonceTwice(nonce) } : made)
  }
  return all
}

async function draftFor(
  parts: ProposeParts,
  spending: Spending,
  row: ToSign,
  { view, signer, nowSeconds, rules: read }: Making,
): Promise<Made> {
  const { intent } = row
  if (signer?.address !== intent.proposer) throw wrongSigner(signer, intent)
  const known = signedMeanwhile(parts, row, view)
  if (known !== undefined) return known
  if (row.shown !== undefined) return draftOf(parts, intent, row.shown, view)
  const rules = read.get(row)
  if (rules instanceof ProposerError) throw rules
  const prepared = await termsOf(parts, spending, row, nowSeconds, rules)
  for (const note of prepared.notes) parts.note?.(note)
  return draftOf(parts, intent, prepared, view)
}

/** Under the lock: what another process has done meanwhile. */
function foundAgain(parts: ProposeParts, row: ToSign, view: JournalView) {
  const { intent, context, ref } = row
  const { same } = byRound(parts, intent, view, context, ref)
  if (same.kind === 'refuse') throw same.error
  if (same.kind === 'none') checkTimeline(parts.trust, context, view)
  return same
}

function signedMeanwhile(parts: ProposeParts, row: ToSign, view: JournalView) {
  const same = foundAgain(parts, row, view)
  if (same.kind === 'resume') throw offerOpen(same.offer)
  return same.kind === 'reuse' ? { authorization: same.authorization, reused: true } : undefined
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
  { payload }: ToImport,
  view: JournalView,
): Promise<Made> {
  const known = view.byIdentity(payload.identity)
  if (known !== undefined) return { authorization: known, reused: true }
  const { importRecord } = await import('./payload.js')
  const data = importRecord(parts, view, payload)
  const entries = [{ kind: 'signed', data } as const]
  return { authorization: newAuthorization(data), reused: false, entries }
}

async function ownFailure(work: () => Promise<Made>): Promise<Made> {
  try {
    return await work()
  } catch (error) {
    if (isOwnFailure(error)) return { error }
    throw error
  }
}

/** Before the nonce is reserved. */
async function withoutSpent(parts: ProposeParts, made: readonly Made[]): Promise<readonly Made[]> {
  const drafts = made.flatMap(({ draft }) => draft ?? [])
  const claims = drafts.map(({ id, terms: { proposer: owner, nonce } }) => ({ id, owner, nonce }))
  const spent = await spentOf(parts, claims)
  return made.map((one) =>
    one.draft !== undefined && spent.has(one.draft.id)
      ? { error: nonceSpent(one.draft.terms.nonce, one.draft.terms.proposer) }
      : one,
  )
}

async function requireUnspent(parts: ProposeParts, owner: Address, nonce: string) {
  if ((await parts.journal.load()).isReserved(owner, nonce))
    throw nonceReserved(`${nonce} already serves another authorization of this journal`)
  const spent = await spentOf(parts, [{ id: '', owner, nonce }])
  if (spent.size > 0) throw nonceSpent(nonce, owner, '--nonce')
}

async function spentOf(
  { chain, trust }: ProposeParts,
  claims: readonly { readonly id: string; readonly owner: Address; readonly nonce: string }[],
): Promise<ReadonlySet<string>> {
  if (chain === undefined || claims.length === 0) return new Set()
  const { pinnedHeads, spentNonces } = await import('../funds/funds.js')
  const [{ latest }] = await Promise.all([
    pinnedHeads(chain, trust),
    requireImplementations(chain, trust),
  ])
  const asked = claims.map((one) => ({ ...one, nonce: BigInt(one.nonce) }))
  return onChain(() => spentNonces(chain, trust.permit2, latest.number, asked))
}

/** What will be signed, for showing. */
async function prepare(parts: ProposeParts, spending: Spending, row: ToSign): Promise<Preview> {
  const { trust, chain, form } = parts
  const { intent, label, witness, context } = row
  const rules = (await rulesNow(parts, [row])).get(row)
  const nowSeconds = await nowOf(parts)
  const prepared = await termsOf(parts, spending, row, nowSeconds, rules)
  const { terms } = prepared
  await requireUnspent(parts, intent.proposer, terms.nonce)
  // A person who signs many may come to this one an hour after it was planned.
  if (form !== 'single' && chain !== undefined) {
    await confirmByChain(chain, trust, context)
    await newSpending(parts).take(row, prepared.amountRaw)
  }
  await compareServersTypedData(context, (theirs) => toHex(witness.digest(theirs)))
  const document = [
    domainOf(contractsOf(trust)),
    requestOf(context),
    context.bond.token,
    terms,
  ] as const
  return {
    ...prepared,
    outcome: intent.outcome,
    label,
    proposer: intent.proposer,
    typedData: typedData(...document),
    notes: [...chainNotes(chain, trust, context), ...prepared.notes],
  }
}

/** Nothing is reserved before it is shown and agreed to. */
async function agreed(parts: ProposeParts, spending: Spending, row: ToSign): Promise<Preview> {
  const { safe, askRules } = parts
  const shown = await prepare(parts, spending, row)
  // Loaded where a Safe signs: it needs viem, which signing alone does without.
  if (safe !== undefined) (await import('./safe.js')).requireSameDocument(safe, shown.digest)
  await parts.confirm?.(shown)
  await requireRules(row.intent.identifier, shown.rules, askRules)
  return shown
}

/** With a person or a wallet outside in between, who must not keep other processes waiting. */
async function signOne(
  parts: ProposeParts,
  spending: Spending,
  row: ToSign,
  given?: Signer,
): Promise<RowAuthorized> {
  const bringsIn = async (offer: Offer, signer: Signer, abandonOnFailure: boolean) => ({
    authorization: await signOffer(parts, offer, signer, { abandonOnFailure }),
    reused: false,
  })
  // Another process may have had it signed, or given it up, since it was planned.
  const again = row.offer && foundAgain(parts, row, await parts.journal.load())
  if (again?.kind === 'reuse') return { authorization: again.authorization, reused: true }
  if (again?.kind === 'resume') {
    const { offer } = again
    await spending.take(row, BigInt(offer.offered.terms.amount))
    const rules = await rulesOfOffer(parts, row, offer)
    const signer = given ?? (await signerOf(parts, row.intent))
    return bringsIn({ ...offer, offered: { ...offer.offered, ...rules } }, signer, false)
  }
  const shown = await agreed(parts, spending, { ...row, offer: undefined })
  const signer = given ?? (await signerOf(parts, row.intent))
  if (signer.signTypedData !== undefined) {
    const held = await hold(parts, row, shown)
    if (held.offer === undefined) return { authorization: held.same.authorization, reused: true }
    if (held.same !== undefined) throw offerOpen(held.offer)
    return bringsIn(held.offer, signer, true)
  }
  const [made] = await signGroup(parts, spending, [{ ...row, shown }], signer)
  return authorized(made)
}

function authorized({ authorization, reused = false, error }: Made = {}): RowAuthorized {
  if (error !== undefined) throw error
  if (authorization === undefined) throw new Error('a row was left unsigned')
  return { authorization, reused }
}

/** Gives typed data out: it keeps nonce and question until its signature is here (R6, R8). */
const hold = (parts: ProposeParts, row: ToSign, shown: Preview) =>
  parts.journal.exclusive(async (view) => {
    const same = foundAgain(parts, row, view)
    if (same.kind === 'reuse') return { same }
    if (same.kind === 'resume') return { same, offer: same.offer }
    return { offer: await giveOut(parts, row.intent, shown, view) }
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
  return plan.kind === 'send'
    ? { authorization: plan.authorization, reused: true }
    : signOne(parts, spending, plan)
}

/** `--dry-run`: writes nothing. */
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

/** `sign --typed-data`: an equal intent gets the same document. */
export async function offerTypedData(given: ProposeParts, intent: IntentInWords) {
  const { parts, plan, spending } = await planOne(given, intent, { isRetry: true })
  if (plan.kind === 'send') throw authorizationOpen(plan.authorization)
  if (plan.offer !== undefined) return { offer: plan.offer, reused: true }
  const held = await hold(parts, plan, await agreed(parts, spending, plan))
  if (held.offer === undefined) throw authorizationOpen(held.same.authorization)
  return { offer: held.offer, reused: held.same !== undefined }
}

export const intentRow = (intent: IntentInWords) =>
  ({ kind: 'intent', line: 1, ...intent }) as const

async function planOne(given: ProposeParts, intent: IntentInWords, options: PlanOptions = {}) {
  const parts = { ...given, form: 'single' } as const
  const { signal } = parts
  const [planned] = await planRows(parts, [intentRow(intent)], { ...options, signal })
  const isSettled = options.look === true || planned === undefined
  const plan = isSettled ? planned : await settle(parts, planned, signal)
  if (plan?.kind === 'rejected') throw plan.error
  if (plan?.kind !== 'send' && plan?.kind !== 'sign')
    throw new Error('an intent was planned as something else')
  return { parts, plan, spending: newSpending(parts) }
}

async function rulesOfOffer(
  parts: ProposeParts,
  row: ToSign,
  { id }: Offer,
): Promise<{ rules?: Hex }> {
  const { intent, context } = row
  parts.note?.(`${id} was already issued as typed data; that is what is signed`)
  await parts.judge?.(context, intent.outcome)
  const standing = (await rulesNow(parts, [row])).get(row)
  await requireRules(intent.identifier, standing, parts.askRules)
  return standing === undefined ? {} : { rules: standing.rules.hash }
}

async function signerOf(
  { safe, signer: unlock, chain, trust }: ProposeParts,
  intent: Intent,
): Promise<Signer> {
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

const nonceTwice = (nonce: string) =>
  nonceReserved(`${nonce} appears twice in this batch for the same proposer`, 'the nonce')

export async function authorizePlans(
  parts: ProposeParts,
  plans: readonly Planned[],
  spending: Spending,
): Promise<Ready[]> {
  const isWaiting = (plan: Planned) => plan.kind === 'sign' || plan.kind === 'import'
  const made = (await signGroup(parts, spending, plans.filter(isWaiting))).values()
  return plans.map((plan): Ready => {
    if (plan.kind !== 'sign' && plan.kind !== 'import') return plan
    const { row } = plan
    const one: Made = made.next().value ?? {}
    return one.error === undefined
      ? { kind: 'send', row, authorization: authorized(one).authorization }
      : { kind: 'rejected', row, error: one.error }
  })
}

type RowRules = ReadonlyMap<ToSign, RulesStanding | RulesChangedError>

/** Without the lock: a person may take a minute. */
async function rulesOfRows(parts: ProposeParts, group: readonly Waiting[]): Promise<RowRules> {
  const rows = group.flatMap((one) => (one.kind === 'sign' && !one.shown ? [one] : []))
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
