/**
 * Wallets outside this program: typed data is given out, its signature comes back later, perhaps to
 * another run. From the first instant to the last the journal holds nonce and question for it (R6,
 * R8), so that the wallet is never asked for two answers to one question.
 */
import type { Address, Signer } from '../../ports.js'
import {
  ConflictError,
  InterruptedError,
  ProposerError,
  UsageError,
} from '../../protocol/errors.js'
import { minimumDeadlineSeconds } from '../../protocol/permit.js'
import { outcomeOf } from '../../protocol/proposal.js'
import type { OutcomeKey, TypedData } from '../../protocol/schema.js'
import {
  type Authorization,
  isOfferOpen,
  isOpen,
  type Offer,
  otherTerms,
  type Wanted,
} from '../journal/authorizations.js'
import type { JournalView } from '../journal/journal.js'
import { pinnedQuestionId, untrusted } from '../trust/trust.js'
import type { AuthorizeParts, Intent } from './authorize.js'
import type { Preview } from './prepare.js'
import {
  checkedSignature,
  draftOf,
  liftedV,
  newAuthorization,
  reasonOf,
  signedOf,
} from './signature.js'

/**
 * The EIP-712 document as wallets take it: `domain.chainId` is a JSON number here, because some
 * leave a text out of the hash without a word (domain §3.1). Everything else stays as on the wire.
 */
export function walletTypedData({ domain, ...rest }: TypedData): object {
  return { ...rest, domain: { ...domain, chainId: Number(domain.chainId) } }
}

/**
 * Reserves the nonce and journals what is given out, durably, before it is. Called with the
 * journal's lock held.
 */
export async function giveOut(
  parts: AuthorizeParts,
  intent: Intent,
  prepared: Preview,
  view: JournalView,
): Promise<Offer> {
  const { draft, reserving } = draftOf(parts, intent, prepared, view)
  const offered = {
    ...draft,
    typedData: prepared.typedData,
    offeredAtMs: Math.trunc(parts.ports.clock.nowMs()),
  }
  await parts.journal.append([...reserving, { kind: 'offered', data: offered }])
  return { id: draft.id, offered, terminals: [] }
}

/**
 * Has the signer sign an offer and journals the answer. Runs without the journal's lock: a person
 * at a wallet may take a minute. With `abandonOnFailure` an offer that only this signer has seen is
 * given up where it says that it does not sign. One that merely has not answered may sign yet, so
 * the offer stays and holds its question (R8); the same intent asks for the same document again.
 */
export async function signOffer(
  parts: AuthorizeParts,
  offer: Offer,
  signer: Signer,
  options: { readonly abandonOnFailure: boolean },
): Promise<Authorization> {
  try {
    const { typedData, digest } = offer.offered
    const given =
      signer.signTypedData === undefined
        ? await signer.signDigest(digest as Address)
        : await signer.signTypedData(walletTypedData(typedData as TypedData))
    return await bringIn(parts, offer, given)
  } catch (error) {
    if (options.abandonOnFailure && !mayYetSign(error))
      await parts.journal.append([
        { kind: 'abandoned', data: { id: offer.id, reason: reasonOf(error) } },
      ])
    throw error
  }
}

/** The wallet has been asked and its answer did not come. */
const mayYetSign = (error: unknown): boolean =>
  error instanceof InterruptedError ||
  (error instanceof ProposerError &&
    ['signer_timed_out', 'signer_lost', 'timed_out'].includes(error.code))

type ImportParts = Pick<AuthorizeParts, 'ports' | 'journal' | 'trust' | 'chain'>

/**
 * Checks a signature against the offer it is for and journals it as the authorization of the same
 * id. UsageError `bad_signature`.
 */
export async function bringIn(
  parts: ImportParts,
  offer: Offer,
  given: string,
): Promise<Authorization> {
  const { ports, journal } = parts
  const signature = await checkedSignature(parts.chain, offer.offered, given)
  return journal.exclusive(async (view) => {
    const before = view.find(offer.id)
    // Another run was quicker with the same answer; its bytes are the ones that may have been sent.
    if (before !== undefined) return before
    if (!view.offers.some(({ id }) => id === offer.id)) throw offerGone(offer.id)
    const { typedData: _typedData, offeredAtMs: _offeredAtMs, ...draft } = offer.offered
    const signed = signedOf(ports, draft, signature)
    await journal.append([{ kind: 'signed', data: signed }])
    return newAuthorization(signed)
  })
}

const offerGone = (id: string) =>
  new UsageError(
    'no_offer',
    `the typed data of ${id} was given up meanwhile; its signature was not taken`,
    {
      hint: 'run `proposer sign <identifier> --outcome <p1|p2|p3> --typed-data` again',
    },
  )

/**
 * `sign <identifier> --signature`: takes the answer of a wallet outside. It must be for typed data
 * that this journal gave out and that is still open; of several it goes to the one it authorizes.
 * Brought a second time, it gives what it made the first time, while that is open (`reused`).
 * UsageError `no_offer`, `bad_signature`.
 */
export async function importSignature(
  parts: ImportParts,
  wanted: {
    readonly identifier: string
    readonly proposer?: Address | undefined
    readonly outcome?: OutcomeKey | undefined
  },
  given: string,
): Promise<{ readonly authorization: Authorization; readonly reused: boolean }> {
  const { trust, journal, ports } = parts
  const view = await journal.load()
  const questionId = pinnedQuestionId(trust, wanted.identifier)
  const isWanted = (one: Draft) =>
    (one.questionId === questionId || one.identifier === wanted.identifier) &&
    one.chainId === trust.chain_id &&
    (wanted.proposer === undefined || one.terms.proposer === wanted.proposer) &&
    (wanted.outcome === undefined || outcomeOf(one.terms.price) === wanted.outcome)
  const before = view.authorizations.findLast(
    (one) =>
      isWanted(one.signed) &&
      one.supersededBy === undefined &&
      isOpen(one, ports.clock.nowMs()) &&
      isSignatureOf(one.signed.body, given),
  )
  if (before !== undefined) return { authorization: before, reused: true }
  const candidates = view.offers.filter(
    (one) =>
      isWanted(one.offered) &&
      one.supersededBy === undefined &&
      isOfferOpen(one, ports.clock.nowMs()),
  )
  let refusal: unknown
  for (const offer of candidates) {
    if (offer.offered.spender !== trust.signed_proposer) {
      throw untrusted(
        'signed_proposer',
        `${offer.id} was given out for spender ${offer.offered.spender}, which is no longer pinned`,
      )
    }
    try {
      return { authorization: await bringIn(parts, offer, given), reused: false }
    } catch (error) {
      if (!(error instanceof UsageError)) throw error
      refusal ??= error
    }
  }
  throw refusal ?? noOffer(wanted.identifier)
}

/** What names the question, proposer and answer, in an offer as in an authorization. */
type Draft = Pick<Offer['offered'], 'questionId' | 'identifier' | 'chainId'> & {
  readonly terms: Pick<Offer['offered']['terms'], 'proposer' | 'price'>
}

/** Whether a saved payload holds this answer of a wallet, as it came or with its v lifted. */
function isSignatureOf(body: string, given: string): boolean {
  const { signature } = JSON.parse(body) as { readonly signature?: unknown }
  const answer = given.trim().toLowerCase()
  return signature === answer || signature === liftedV(answer)
}

const noOffer = (identifier: string) =>
  new UsageError(
    'no_offer',
    `no typed data that this journal gave out for ${identifier} waits for a signature`,
    {
      hint: `make it with \`proposer sign ${identifier} --outcome <p1|p2|p3> --typed-data\`; a payload signed elsewhere goes by \`proposer submit\``,
    },
  )

/**
 * Whether what was given out may still be signed: a signature that admission would refuse for its
 * deadline is of no use.
 */
export function isInTime({ offered }: Offer, nowMs: number): boolean {
  return (
    BigInt(offered.terms.deadline) >= BigInt(Math.floor(nowMs / 1_000)) + minimumDeadlineSeconds
  )
}

/**
 * Exit 5: typed data for this question and round is in the hands of a wallet outside (R8). `wanted`
 * as in `authorizationOpen`.
 */
export function offerOpen({ id, offered }: Offer, wanted?: Wanted): ConflictError {
  return new ConflictError(
    'authorization_open',
    `${id} was given out as typed data to be signed by ${offered.terms.proposer} for question ${offered.questionId}, price ${offered.terms.price}${wanted === undefined ? '' : otherTerms(offered, wanted)}`,
    {
      hint: `bring its signature with \`proposer sign ${offered.identifier} --signature <hex>\`, or replace it with --supersede ${id}`,
    },
  )
}
