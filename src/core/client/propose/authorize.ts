/**
 * Signing one proposal (R9): from a checked context, nonce reserved, journaled before it is sent.
 */

import { titleOf } from '#chain/ancillary'
import { domainOf } from '#chain/round'
import { onChain } from '#chain/unavailable'
import type { Chain, Hex, Signer } from '#ports'
import { amountText } from '#protocol/amount'
import { ProposerError, UsageError } from '#protocol/errors'
import { labelsOf } from '#protocol/outcome-words'
import type { RecoverPublicKey } from '#protocol/recovered'
import type { Address, OutcomeKey, TypedData } from '#protocol/schema'
import { toHex, typedData, witnessRound } from '#protocol/witness'
import type { GatewayClient } from '../gateway/gateway-client.js'
import type { JournaledAuthorization, Offer } from '../journal/authorizations.js'
import type { Journal, JournalPorts, JournalView } from '../journal/journal.js'
import { chainChecks } from '../journal/records.js'
import { chainNow, confirmByChain, noNodeForRules, rulesOfRound } from '../trust/context.js'
import {
  checkContext,
  checkOutcome,
  contractsOf,
  kindOf,
  nothingPinned,
  outcomesByText,
  pinnedQuestionId,
  type QuestionContext,
  requireImplementations,
  type Trust,
  untrusted,
} from '../trust/trust.js'
import {
  authorizationOpen,
  byRound,
  type InJournal,
  type Intent,
  type IntentInWords,
  meantBy,
  meantIn,
  offerOpen,
  savedFor,
  withoutContext,
} from './intent.js'
import { giveOut, signOffer } from './outside.js'
import { type SettledEarlier, settleEarlier } from './round-over.js'
import {
  type AskRules,
  acknowledgedOf,
  firstRulesNotes,
  type RulesStanding,
  requireRules,
  rulesStanding,
} from './rules.js'
import type { SafeSigning } from './safe.js'
import { draftOf, type Prepared, signDrafts } from './sign.js'
import {
  checkTerms,
  checkTimeline,
  cutNotes,
  hashedRound,
  nonceReserved,
  nonceSpent,
} from './terms.js'

export interface Authorized {
  readonly authorization: JournaledAuthorization
  readonly reused: boolean
  readonly journalId: string
  readonly questionId: Hex
  /** Absent only for a payload that was signed elsewhere. */
  readonly digest: Hex | undefined
  readonly signer: Hex
  readonly body: string
}

export function authorized(authorization: JournaledAuthorization, reused: boolean): Authorized {
  const { id, signed } = authorization
  return {
    authorization,
    reused,
    journalId: id,
    questionId: signed.questionId,
    digest: signed.digest,
    signer: signed.terms.proposer,
    body: signed.body,
  }
}

/**
 * `sign` (R6-R9, contract §6): reuses an open authorization of equal intent, else signs. One that
 * differs in the same round is `authorization_open` (exit 5) unless `supersede` names it.
 */
export async function authorize(parts: AuthorizeParts, intent: IntentInWords): Promise<Authorized> {
  const look = await lookUp(parts, intent)
  return look.same.kind === 'reuse' ? authorized(look.same.authorization, true) : sign(parts, look)
}

/** Whatever earlier rounds left open (§3 rule 3). */
export async function signInRound(
  parts: AuthorizeParts,
  intent: IntentInWords,
): Promise<Authorized> {
  return sign(parts, await inRound(parts, intent, await parts.journal.load(), undefined))
}

/** `--dry-run`: writes nothing. */
export async function preview(
  parts: AuthorizeParts,
  intent: IntentInWords,
): Promise<Preview | { readonly reused: JournaledAuthorization } | { readonly resumed: Offer }> {
  const { same, context, view, intent: meant } = await lookUp(parts, intent)
  if (same.kind === 'reuse') return { reused: same.authorization }
  if (same.kind === 'resume') return { resumed: same.offer }
  const prepared = await prepare(parts, meant, contextIn(context), view)
  if (same.kind === 'refuse') throw same.error
  return prepared
}

/**
 * `sign --typed-data`: nonce and question are held until `importSignature`. An equal intent gets
 * the same document.
 */
export async function offerTypedData(
  parts: AuthorizeParts,
  intent: IntentInWords,
): Promise<{ readonly offer: Offer; readonly reused: boolean }> {
  const look = await inRound(parts, intent, await parts.journal.load(), undefined)
  const known = (same: InJournal) => {
    if (same.kind === 'refuse') throw same.error
    if (same.kind === 'reuse') throw authorizationOpen(same.authorization)
    return same.kind === 'resume' ? { offer: same.offer, reused: true } : undefined
  }
  const before = known(look.same)
  if (before !== undefined) return before
  const prepared = await settleAndPrepare(parts, look)
  return parts.journal.exclusive(async (view) => {
    const meanwhile = known(
      byRound(parts, look.intent, view, prepared.context, () => prepared.round).same,
    )
    if (meanwhile !== undefined) return meanwhile
    return { offer: await giveOut(parts, look.intent, prepared, view), reused: false }
  })
}

interface Look extends ReturnType<typeof byRound> {
  readonly intent: Intent
  readonly view: JournalView
  readonly context?: QuestionContext
}

function contextIn(context: QuestionContext | undefined): QuestionContext {
  if (context === undefined) throw new Error('nothing is signed without a context')
  return context
}

/** The journal comes before any context (contract §6); a free one is examined too. */
async function lookUp(parts: AuthorizeParts, intent: IntentInWords): Promise<Look> {
  const view = await parts.journal.load()
  const saved = savedFor(parts, view, intent)
  return saved !== undefined && parts.gateway !== undefined && parts.chain === undefined
    ? reusing(intent, view, saved)
    : inRound(parts, intent, view, saved)
}

function reusing(
  intent: IntentInWords,
  view: JournalView,
  authorization: JournaledAuthorization,
): Look {
  const meant = meantBy(intent, authorization.signed)
  if (meant === undefined) throw new Error('saved bytes were found for an answer they do not have')
  return { same: { kind: 'reuse', authorization }, earlier: [], intent: meant, view }
}

/** A context that cannot be had is no reason to sign again. */
async function inRound(
  parts: AuthorizeParts,
  wanted: IntentInWords,
  view: JournalView,
  saved: JournaledAuthorization | undefined,
): Promise<Look> {
  let context: QuestionContext
  try {
    context = await parts.context()
  } catch (error) {
    if (!(error instanceof ProposerError)) throw error
    if (saved !== undefined) return reusing(wanted, view, saved)
    throw withoutContext(parts, view, wanted, error)
  }
  const intent = meantIn(parts, wanted, context)
  const ref = () => hashedRound(parts.trust, context).ref
  return { ...byRound(parts, intent, view, context, ref), intent, view, context }
}

async function settleAndPrepare(parts: AuthorizeParts, look: Look): Promise<Preview> {
  await settleEarlier(parts, look.earlier)
  const prepared = await prepare(parts, look.intent, contextIn(look.context), look.view)
  // Loaded where a Safe signs: it needs viem, which signing alone does without.
  if (parts.safe !== undefined)
    (await import('./safe.js')).requireSameDocument(parts.safe, prepared.digest)
  await parts.confirm?.(prepared)
  await requireRules(look.intent.identifier, prepared.rules, parts.askRules)
  return prepared
}

async function sign(parts: AuthorizeParts, look: Look): Promise<Authorized> {
  const { same, intent } = look
  if (same.kind === 'refuse') throw same.error
  if (same.kind === 'reuse') return authorized(same.authorization, true)
  if (same.kind === 'resume') {
    await settleEarlier(parts, look.earlier)
    parts.note?.(`${same.offer.id} was already issued as typed data; that is what is signed`)
    await parts.judge?.(contextIn(look.context), intent.outcome)
    const rules = await rulesOfOffer(parts, look)
    const signer = await signerOf(parts, intent)
    const offer = { ...same.offer, offered: { ...same.offer.offered, ...rules } }
    return authorized(await signOffer(parts, offer, signer, { abandonOnFailure: false }), false)
  }
  const prepared = await settleAndPrepare(parts, look)
  // Unlocking may ask for a password, which must not keep other processes waiting.
  const signer = await signerOf(parts, intent)
  const made = await parts.journal.exclusive(async (view) => {
    const now = byRound(parts, intent, view, prepared.context, () => prepared.round).same
    if (now.kind === 'refuse') throw now.error
    if (now.kind === 'reuse') return authorized(now.authorization, true)
    if (now.kind === 'resume') throw offerOpen(now.offer)
    if (signer.signTypedData !== undefined) return giveOut(parts, intent, prepared, view)
    return authorized(await signNow(parts, intent, prepared, signer, view), false)
  })
  return 'offered' in made
    ? authorized(await signOffer(parts, made, signer, { abandonOnFailure: true }), false)
    : made
}

async function rulesOfOffer(
  { chain, trust, askRules }: AuthorizeParts,
  { intent, context, view }: Look,
): Promise<{ rules?: Hex }> {
  if (chain === undefined) return {}
  const standing = await rulesNow(chain, trust, intent, contextIn(context), view)
  await requireRules(intent.identifier, standing, askRules)
  return standing === undefined ? {} : { rules: standing.rules.hash }
}

async function signNow(
  parts: AuthorizeParts,
  intent: Intent,
  prepared: Preview,
  signer: Signer,
  view: JournalView,
): Promise<JournaledAuthorization> {
  const { ports, journal, chain } = parts
  const { draft, reserving } = draftOf(parts, intent, prepared, view)
  await journal.append(reserving)
  const recover = await parts.recovery?.()
  const [signing] = await signDrafts({ ports, journal, chain, recover }, [draft], signer, 'single')
  if (signing === undefined) throw new Error('a draft was not signed')
  if (signing instanceof ProposerError) throw signing
  return signing
}

async function signerOf(parts: AuthorizeParts, intent: Intent): Promise<Signer> {
  const signer =
    parts.safe === undefined
      ? await parts.signer()
      : (await import('./safe.js')).safeItself(parts.safe.safe)
  // A person may have taken minutes to agree.
  if (parts.chain !== undefined) await requireImplementations(parts.chain, parts.trust)
  if (signer.address === intent.proposer) return signer
  throw wrongSigner(signer, intent)
}

export const wrongSigner = (signer: Signer | undefined, { proposer }: Pick<Intent, 'proposer'>) =>
  new UsageError(
    'wrong_signer',
    `the key is for ${signer?.address ?? 'nobody'}, the proposer is ${proposer}`,
    "choose that proposer's account with --account",
  )

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
  /** Without it an unpinned slug is refused. */
  readonly confirmSlug?: (slug: string, questionId: string) => Promise<boolean>
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

export async function prepare(
  parts: AuthorizeParts,
  intent: Intent,
  context: QuestionContext,
  view: JournalView,
): Promise<Preview> {
  const { trust, chain, ports } = parts
  const nowSeconds =
    chain === undefined ? ports.clock.nowMs() / 1_000 : await chainNow(chain, trust, ports.clock)
  const confirmedQuestionId = await confirmedSlug(parts, intent, context)
  const notes = checkContext(trust, context, {
    identifier: intent.identifier,
    nowSeconds,
    requireSlugPin: true,
    confirmedQuestionId,
  })
  const { label, price } = checkOutcome(trust, context, intent.outcome)
  checkTimeline(trust, context, view)
  if (chain !== undefined) await requireImplementations(chain, trust)
  const rules =
    chain === undefined ? undefined : await rulesNow(chain, trust, intent, context, view)
  const checked = checkTerms(intent, context, nowSeconds, chain !== undefined)
  const { requiredBondRaw, amountRaw, deadlineSeconds } = checked
  const nonce = intent.nonce ?? parts.journal.nextNonce()
  if (view.isReserved(intent.proposer, String(nonce)))
    throw nonceReserved(`${nonce} already serves another authorization of this journal`)
  const token = context.bond.token
  if (chain !== undefined) await checkFunds(chain, trust, intent, { nonce, amountRaw, token }, view)
  const terms = {
    price,
    amount: String(amountRaw),
    nonce: String(nonce),
    deadline: String(deadlineSeconds),
  }
  const { request, witness, ref } = hashedRound(trust, context)
  await compareServersTypedData(context, (theirs) => toHex(witness.digest(theirs)))
  return {
    context,
    outcome: intent.outcome,
    label,
    labels: labelsOf(context.outcomes ?? outcomesByText(trust, context)),
    title: titleOf(context.request.ancillary_data),
    price,
    proposer: intent.proposer,
    amountRaw,
    requiredBondRaw,
    nonce,
    deadlineSeconds,
    digest: toHex(witness.digest(terms)),
    typedData: typedData(domainOf(contractsOf(trust)), request, token, terms),
    round: ref,
    notes: [
      ...notes,
      ...chainNotes(parts, context),
      ...cutNotes(intent, checked, context),
      ...firstRulesNotes(intent.identifier, rules),
    ],
    unchecked: chain === undefined ? chainChecks : [],
    rules,
  }
}

/** Clarifications are read again: one may have come since. */
export async function rulesNow(
  chain: Chain,
  trust: Trust,
  intent: Intent,
  context: QuestionContext,
  view: JournalView,
): Promise<RulesStanding | undefined> {
  const rules = await rulesOfRound(chain, await confirmByChain(chain, trust, context))
  return rules && rulesStanding(rules, intent, acknowledgedOf(view, context), context)
}

function chainNotes(
  { chain, trust }: AuthorizeParts,
  { request, source }: QuestionContext,
): string[] {
  if (chain === undefined)
    return [
      'without an RPC the round, the bond, the nonce, the balance, the allowance and the code of the contracts were not checked on chain',
      ...(source === 'file' ? [noNodeForRules] : []),
    ]
  const code = trust.implementations === undefined ? [nothingPinned] : []
  return kindOf(trust, request.requester) === 'direct'
    ? [
        'only the gateway or the file says that this question id means this request: no chain can confirm it (kind direct)',
        ...code,
      ]
    : code
}

async function confirmedSlug(
  { trust, confirmSlug }: AuthorizeParts,
  { identifier }: Intent,
  { question_id }: QuestionContext,
): Promise<string | undefined> {
  if (pinnedQuestionId(trust, identifier) !== undefined || confirmSlug === undefined)
    return undefined
  return (await confirmSlug(identifier, question_id)) ? question_id : undefined
}

/** Nonce free; balance and allowance ≥ all that is open and this (spec §5). */
async function checkFunds(
  chain: Chain,
  trust: Trust,
  { proposer, supersede }: Intent,
  { nonce, amountRaw, token }: { nonce: bigint; amountRaw: bigint; token: Address },
  view: JournalView,
): Promise<void> {
  // Signing without a chain does without viem.
  const { fundsOf, pinnedHeads, spentNonces } = await import('../funds/funds.js')
  const { latest } = await pinnedHeads(chain, trust)
  const claim = { id: '', owner: proposer, nonce }
  const spent = await onChain(() => spentNonces(chain, trust.permit2, latest.number, [claim]))
  if (spent.size > 0) throw nonceSpent(nonce, proposer, '--nonce')
  const funds = await fundsOf(chain, trust, view, proposer, token, { except: supersede })
  const { balanceRaw, allowanceRaw, reservedRaw } = funds
  const text = (raw: bigint) => amountText(String(raw), funds)
  const needs = `this needs ${text(amountRaw)} beside ${text(reservedRaw)} reserved by open authorizations`
  const settle = 'settle what is open (`proposer journal list`)'
  if (balanceRaw < reservedRaw + amountRaw)
    throw new UsageError(
      'insufficient_balance',
      `${proposer} holds ${text(balanceRaw)}; ${needs}`,
      `fund the wallet, or ${settle}`,
    )
  if (allowanceRaw < reservedRaw + amountRaw)
    throw new UsageError(
      'insufficient_allowance',
      `${proposer} lets Permit2 move ${text(allowanceRaw)}; ${needs}`,
      `let Permit2 move more with \`proposer funds approve\`, or ${settle}`,
    )
}

/** By digest, under its own permit terms; never signed (R9). */
async function compareServersTypedData(
  { typed_data }: QuestionContext,
  digestOf: (terms: Parameters<ReturnType<typeof witnessRound>['digest']>[0]) => Hex,
): Promise<void> {
  if (typed_data === undefined) return
  const { TypedData } = await import('#protocol/schema')
  const parsed = TypedData.safeParse(typed_data)
  if (!parsed.success) throw untrusted('typed_data', 'typed_data is malformed')
  const { domain, message } = parsed.data
  const { witness, permitted, nonce, deadline } = message
  const theirs = witnessRound(
    {
      chainId: Number(domain.chainId),
      permit2: domain.verifyingContract,
      signedProposer: message.spender,
    },
    {
      oracle: witness.oracle,
      requester: witness.requester,
      identifier: witness.identifier,
      timestamp: witness.timestamp,
      ancillaryData: witness.ancillaryData,
    },
    permitted.token,
    BigInt(witness.maxPayment),
  )
  const terms = { price: witness.proposedPrice, amount: permitted.amount, nonce, deadline }
  if (toHex(theirs.digest(terms)) !== digestOf(terms))
    throw untrusted(
      'typed_data',
      'the typed_data of the server does not hash to what its own signing data says',
    )
}
