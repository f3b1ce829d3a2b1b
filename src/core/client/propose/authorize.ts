/**
 * Signing one proposal (R9): from a checked context, nonce reserved, journaled before it is sent.
 */
import type { Hex, Signer } from '../../ports.js'
import { ProposerError, UsageError } from '../../protocol/errors.js'
import type { JournaledAuthorization, Offer } from '../journal/authorizations.js'
import type { JournalView } from '../journal/journal.js'
import { requireImplementations } from '../trust/implementations.js'
import type { QuestionContext } from '../trust/trust.js'
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
import { type AuthorizeParts, type Preview, prepare, rulesNow } from './prepare.js'
import { settleEarlier } from './round-over.js'
import { requireRules } from './rules.js'
import { draftOf, signDrafts } from './sign.js'
import { hashedRound } from './terms.js'

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

/** `sign` (R6-R9, contract §6): reuses an open authorization of equal intent, else signs. */
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
