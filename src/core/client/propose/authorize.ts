/**
 * Signing (R9): typed data built by us from a checked context; nonce reserved, signature checked
 * and journaled before anything is sent.
 */
import type { Address, Chain, Hex, Signer } from '../../ports.js'
import { ConflictError, ProposerError, UsageError } from '../../protocol/errors.js'
import { outcomeOf, priceOf } from '../../protocol/proposal.js'
import type { RecoverPublicKey } from '../../protocol/recovered.js'
import type { OutcomeKey } from '../../protocol/schema.js'
import type { GatewayClient } from '../gateway/gateway-client.js'
import {
  type Authorization,
  equalIntent,
  isOpen,
  type Offer,
  offersFor,
  openFor,
  otherTerms,
  type Wanted,
} from '../journal/authorizations.js'
import type { Journal, JournalPorts, JournalView } from '../journal/journal.js'
import type { QuestionContext } from '../trust/context.js'
import { atRequester, mayBeAt, pinnedQuestionId, type Trust } from '../trust/trust.js'
import { type SettledEarlier, settleEarlier } from './earlier.js'
import { giveOut, isInTime, offerOpen, signOffer } from './outside.js'
import { type Preview, prepare } from './prepare.js'
import { signAndJournal } from './signature.js'

export type { Preview } from './prepare.js'

/**
 * What the user wants signed. Optional terms only where the user gave them: they make intents
 * differ (contract §6).
 */
export interface Intent {
  /** Question id or slug. */
  readonly identifier: string
  readonly proposer: Address
  readonly outcome: OutcomeKey
  /** Raw token units; default: the required bond and the headroom on it. */
  readonly amountRaw?: bigint
  /**
   * Slack for a bond that is raised later, in hundredths of a percent of it; default 0. Does not
   * count where the amount is given.
   */
  readonly headroomBasisPoints?: bigint
  /** Refuses above it; raw token units. */
  readonly maxAmountRaw?: bigint
  readonly nonce?: bigint
  /** Unix seconds; default: an hour from now. */
  readonly deadlineSeconds?: bigint
  /** Journal id of the open authorization this one replaces (R8). */
  readonly supersede?: string
  readonly clientRef?: string
}

export interface AuthorizeParts {
  readonly ports: JournalPorts
  readonly journal: Journal
  readonly trust: Trust
  /** Asked for only where the journal has nothing to reuse; checked against trust again here. */
  readonly context: () => Promise<QuestionContext>
  /** Unlocks the key; asked for only where something will be signed. */
  readonly signer: () => Promise<Signer>
  /** How our own signature is checked. Default: @noble/curves. */
  readonly recovery?: () => Promise<RecoverPublicKey>
  /**
   * Settles an authorization of an earlier round by its saved id. Without it (offline) the context
   * is taken to be at hand.
   */
  readonly gateway?: GatewayClient
  /**
   * Independent reads: round, nonce bit, head time, balance, code. Without it a note says what was
   * not checked.
   */
  readonly chain?: Chain
  /**
   * Whether a slug that trust.json does not pin means this question; without it such a slug is
   * refused.
   */
  readonly confirmSlug?: (slug: string, questionId: string) => Promise<boolean>
  /** Shows and may ask; throws to stop. Called before anything is reserved or signed. */
  readonly confirm?: (preview: Preview) => Promise<void>
  /** Notes for stderr, such as the out-of-band line of robustness §6. */
  readonly note?: (text: string) => void
  /** Told what became of each authorization of an earlier round. */
  readonly onSettled?: (settled: SettledEarlier) => void
  readonly signal?: AbortSignal
}

export interface Authorized {
  readonly authorization: Authorization
  /** The journal had an open authorization of equal intent: its saved bytes, nothing was signed. */
  readonly reused: boolean
  readonly journalId: string
  readonly questionId: Hex
  /** Absent only for a payload that was signed elsewhere. */
  readonly digest: Hex | undefined
  readonly signer: Address
  /** The exact bytes of the request. */
  readonly body: string
}

/**
 * `sign`: reuses an open authorization of equal intent, refuses a differing one in the same round
 * (ConflictError `authorization_open`, exit 5) unless `supersede` names it, settles one of an
 * earlier round, else signs anew. Nothing is signed on UsageError (exit 2). Sources: R6-R9,
 * contract §6.
 */
export async function authorize(parts: AuthorizeParts, intent: Intent): Promise<Authorized> {
  const reusable = await reusableFor(parts, intent, await parts.journal.load())
  if (reusable !== undefined) return authorized(reusable, true)
  return signInRound(parts, intent)
}

/**
 * `--dry-run`: everything up to the signature; writes nothing. `reused` is set where the journal's
 * bytes would be used, `resumed` where typed data that was given out before would be signed.
 */
export async function preview(
  parts: AuthorizeParts,
  intent: Intent,
): Promise<Preview | { readonly reused: Authorization } | { readonly resumed: Offer }> {
  const view = await parts.journal.load()
  const reusable = await reusableFor(parts, intent, view)
  if (reusable !== undefined) return { reused: reusable }
  const context = await contextFor(parts, intent, view)
  const { same } = byRound(parts, intent, view, context)
  if (same.kind === 'resume') return { resumed: same.offer }
  const prepared = await prepare(parts, intent, context, view)
  if (same.kind === 'reuse') return { reused: same.authorization }
  if (same.kind === 'refuse') throw same.error
  return prepared
}

/**
 * Signs for the round that the context names, whatever earlier rounds left open: those are settled
 * first (§3 rule 3). Where an equal one is open in this very round, its bytes are used. Errors as
 * `authorize`.
 */
export async function signInRound(parts: AuthorizeParts, intent: Intent): Promise<Authorized> {
  const before = await parts.journal.load()
  const context = await contextFor(parts, intent, before)
  const { same, earlier } = byRound(parts, intent, before, context)
  if (same.kind === 'refuse') throw same.error
  if (same.kind === 'reuse') return authorized(same.authorization, true)
  for (const one of earlier) await settleEarlier(parts, one)
  if (same.kind === 'resume') {
    parts.note?.(`${same.offer.id} was given out as typed data before; that is what is signed`)
    return authorized(
      await signOffer(parts, same.offer, await signerOf(parts, intent), {
        abandonOnFailure: false,
      }),
      false,
    )
  }
  const prepared = await prepare(parts, intent, context, before)
  await parts.confirm?.(prepared)
  // Unlocking may ask for a password, which must not keep other processes waiting.
  const signer = await signerOf(parts, intent)
  const made = await parts.journal.exclusive(async (view) => {
    // Another process may have signed since.
    const now = byRound(parts, intent, view, context).same
    if (now.kind === 'refuse') throw now.error
    if (now.kind === 'reuse') return authorized(now.authorization, true)
    if (now.kind === 'resume') throw offerOpen(now.offer)
    if (signer.signTypedData !== undefined) return giveOut(parts, intent, prepared, view)
    return authorized(await signAndJournal(parts, intent, prepared, signer, view), false)
  })
  return 'offered' in made
    ? authorized(await signOffer(parts, made, signer, { abandonOnFailure: true }), false)
    : made
}

/**
 * `sign --typed-data`: the EIP-712 document for a wallet outside; its nonce is reserved and its
 * question held until the signature is brought back (`importSignature`). Asked again with an equal
 * intent, the same document. ConflictError `authorization_open` (exit 5) where the question is
 * signed for already; UsageError as `authorize`.
 */
export async function offerTypedData(
  parts: AuthorizeParts,
  intent: Intent,
): Promise<{ readonly offer: Offer; readonly reused: boolean }> {
  const before = await parts.journal.load()
  const context = await contextFor(parts, intent, before)
  const { same, earlier } = byRound(parts, intent, before, context)
  if (same.kind === 'refuse') throw same.error
  if (same.kind === 'reuse') throw authorizationOpen(same.authorization)
  if (same.kind === 'resume') return { offer: same.offer, reused: true }
  for (const one of earlier) await settleEarlier(parts, one)
  const prepared = await prepare(parts, intent, context, before)
  await parts.confirm?.(prepared)
  return parts.journal.exclusive(async (view) => {
    const now = byRound(parts, intent, view, context).same
    if (now.kind === 'refuse') throw now.error
    if (now.kind === 'reuse') throw authorizationOpen(now.authorization)
    if (now.kind === 'resume') return { offer: now.offer, reused: true }
    return { offer: await giveOut(parts, intent, prepared, view), reused: false }
  })
}

async function signerOf(parts: AuthorizeParts, intent: Intent): Promise<Signer> {
  const signer = await parts.signer()
  if (signer.address === intent.proposer) return signer
  throw new UsageError(
    'wrong_signer',
    `the key is for ${signer.address}, the proposer is ${intent.proposer}`,
    {
      hint: "choose the proposer's own account with --account",
    },
  )
}

/** What a command tells of an authorization. */
export function authorized(authorization: Authorization, reused: boolean): Authorized {
  const { id, signed } = authorization
  return {
    authorization,
    reused,
    journalId: id,
    questionId: signed.questionId as Hex,
    digest: signed.digest as Hex | undefined,
    signer: signed.terms.proposer as Hex,
    body: signed.body,
  }
}

/**
 * Contract §6: the journal comes before any context. Where the context costs nothing (offline file,
 * RPC) its round is looked at too.
 */
async function reusableFor(
  parts: AuthorizeParts,
  intent: Intent,
  view: JournalView,
): Promise<Authorization | undefined> {
  const questionId = knownQuestionId(parts.trust, intent.identifier, view)
  if (questionId === undefined || intent.supersede !== undefined) return undefined
  const wanted = wantedOf(parts.trust, intent, questionId)
  const equal = openFor(view.byQuestion(questionId), wanted, parts.ports.clock.nowMs()).findLast(
    (one) => equalIntent(one, wanted),
  )
  if (equal === undefined || (parts.gateway !== undefined && parts.chain === undefined))
    return equal
  const context = await parts.context().catch((error: unknown) => {
    // A round that is not open, or cannot be read, is no reason to sign again: the saved bytes stay
    // the answer.
    if (error instanceof ProposerError) return undefined
    throw error
  })
  return context === undefined || inRound(parts.trust, equal, context) ? equal : undefined
}

/**
 * The context, or `authorization_open` where it cannot be had while another authorization for the
 * question is open.
 */
async function contextFor(
  parts: AuthorizeParts,
  intent: Intent,
  view: JournalView,
): Promise<QuestionContext> {
  try {
    return await parts.context()
  } catch (error) {
    const questionId = knownQuestionId(parts.trust, intent.identifier, view)
    if (!(error instanceof ConflictError) || questionId === undefined) throw error
    const open = openFor(
      view.byQuestion(questionId),
      wantedOf(parts.trust, intent, questionId),
      parts.ports.clock.nowMs(),
    )
    const newest = open.at(-1)
    throw newest === undefined || newest.id === intent.supersede
      ? error
      : authorizationOpen(newest, error.detail)
  }
}

/** The part of a context that names its round. */
type RoundNamed = Pick<QuestionContext, 'question_id'> & {
  readonly request: Pick<QuestionContext['request'], 'timestamp' | 'requester'>
}

export type Same =
  | { readonly kind: 'none' }
  | { readonly kind: 'reuse'; readonly authorization: Authorization }
  /** Typed data of equal intent is out there unsigned. */
  | { readonly kind: 'resume'; readonly offer: Offer }
  | { readonly kind: 'refuse'; readonly error: ProposerError }

/** What the journal holds for this question: in the context's round (R8), and in earlier ones. */
export function byRound(
  parts: Pick<AuthorizeParts, 'ports' | 'trust'>,
  intent: Intent,
  view: JournalView,
  context: RoundNamed,
): { readonly same: Same; readonly earlier: readonly Authorization[] } {
  // What is open at another requester is of another round, and not of an earlier one.
  const trust = atRequester(parts.trust, context.request.requester)
  const wanted = wantedOf(trust, intent, context.question_id as Hex)
  const open = openFor(view.byQuestion(wanted.questionId), wanted, parts.ports.clock.nowMs())
  const earlier = open.filter((one) => !inRound(trust, one, context))
  const here = open.filter((one) => inRound(trust, one, context))
  const offers = offersFor(view.offers, wanted, parts.ports.clock.nowMs()).filter(
    ({ offered }) => offered.timestamp === context.request.timestamp,
  )
  if (intent.supersede !== undefined) {
    const named =
      here.find(({ id }) => id === intent.supersede) ??
      offers.find(({ id }) => id === intent.supersede)
    if (
      named === undefined &&
      !isClosedOne(view.find(intent.supersede), wanted, parts.ports.clock.nowMs())
    ) {
      const error = new UsageError(
        'not_superseded',
        `${intent.supersede} is not an open authorization for this question and round`,
        {
          hint: 'see `proposer journal list` for the open ones',
        },
      )
      return { same: { kind: 'refuse', error }, earlier }
    }
    const other = here.findLast((one) => one !== named)
    if (other !== undefined)
      return {
        same: { kind: 'refuse', error: authorizationOpen(other, undefined, wanted) },
        earlier,
      }
    const given = offers.findLast((one) => one !== named)
    return {
      same:
        given === undefined
          ? { kind: 'none' }
          : { kind: 'refuse', error: offerOpen(given, wanted) },
      earlier,
    }
  }
  const equal = here.findLast((one) => equalIntent(one, wanted))
  if (equal !== undefined) return { same: { kind: 'reuse', authorization: equal }, earlier }
  const newest = here.at(-1)
  if (newest !== undefined)
    return {
      same: { kind: 'refuse', error: authorizationOpen(newest, undefined, wanted) },
      earlier,
    }
  const given = offers.at(-1)
  if (given === undefined) return { same: { kind: 'none' }, earlier }
  const usable =
    equalIntent({ signed: given.offered }, wanted) && isInTime(given, parts.ports.clock.nowMs())
  return {
    same: usable
      ? { kind: 'resume', offer: given }
      : { kind: 'refuse', error: offerOpen(given, wanted) },
    earlier,
  }
}

/** One that was revoked or has ended since the user named it stands in nobody's way. */
const isClosedOne = (found: Authorization | undefined, wanted: Wanted, nowMs: number): boolean =>
  found !== undefined &&
  found.signed.questionId === wanted.questionId &&
  found.signed.terms.proposer === wanted.proposer &&
  !isOpen(found, nowMs)

/**
 * A payload signed elsewhere does not tell its round: it counts in every one, which is the safe
 * side.
 */
const inRound = (trust: Trust, { signed }: Authorization, { request }: RoundNamed): boolean =>
  signed.timestamp === undefined ||
  (signed.timestamp === request.timestamp && mayBeAt(atRequester(trust, request.requester), signed))

/**
 * Exit 5 of our own: another open authorization for this question and round, named, with what
 * settles it (contract §6). `wanted` tells which of its explicit terms differ.
 */
export function authorizationOpen(
  authorization: Authorization,
  because?: string,
  wanted?: Wanted,
): ConflictError {
  const { id, signed, candidateId } = authorization
  const settles =
    candidateId !== undefined
      ? `follow it with \`proposer poll ${candidateId}\``
      : authorization.attempts.length === 0
        ? `send it with \`proposer submit ${signed.identifier} --outcome ${outcomeOf(signed.terms.price) ?? '<p1|p2|p3>'}\``
        : `send it again with \`proposer replay ${id}\``
  const why = because === undefined ? '' : ` (${because})`
  return new ConflictError(
    'authorization_open',
    `${id} is an open authorization by ${signed.terms.proposer} for question ${signed.questionId}, signed for ${outcomeOf(signed.terms.price) ?? `price ${signed.terms.price}`}${wanted === undefined ? '' : otherTerms(signed, wanted)}${why}`,
    { hint: `${settles}, or replace it with --supersede ${id}` },
  )
}

/**
 * The question id of an identifier without asking anybody: itself, the pin of a slug, or what the
 * slug meant when it was signed for.
 */
export function knownQuestionId(
  trust: Trust,
  identifier: string,
  view: JournalView,
): Hex | undefined {
  const pinned = pinnedQuestionId(trust, identifier)
  if (pinned !== undefined) return pinned
  // Whoever confirmed the slug once, when it was signed for, meant this question.
  const before = view
    .byIdentifier(identifier)
    .findLast(({ signed }) => signed.chainId === trust.chain_id)
  return before?.signed.questionId as Hex | undefined
}

/** What of an intent makes it equal to another (contract §6). */
export function wantedOf(trust: Trust, intent: Intent, questionId: Hex): Wanted {
  return {
    questionId,
    proposer: intent.proposer,
    chainId: trust.chain_id,
    price: priceOf[intent.outcome],
    mayBeAt: (record) => mayBeAt(trust, record),
    ...(intent.amountRaw === undefined ? {} : { amount: String(intent.amountRaw) }),
    ...(intent.nonce === undefined ? {} : { nonce: String(intent.nonce) }),
    ...(intent.deadlineSeconds === undefined ? {} : { deadline: String(intent.deadlineSeconds) }),
  }
}
