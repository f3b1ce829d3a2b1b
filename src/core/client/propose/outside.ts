/**
 * Wallets outside: typed data is given out, its signature comes back later, perhaps to another
 * run. The journal holds nonce and question meanwhile (R6, R8).
 */
import type { Signer } from '#ports'
import { InterruptedError, ProposerError, UsageError } from '#protocol/errors'
import { outcomeNamed } from '#protocol/outcome-words'
import { outcomeOf } from '#protocol/proposal'
import type { Address, TypedData } from '#protocol/schema'
import {
  isOpen,
  type JournaledAuthorization,
  type Offer,
  signatureInBody,
} from '../journal/authorizations.js'
import type { JournalView } from '../journal/journal.js'
import type { Offered, Signed } from '../journal/records.js'
import { pinnedQuestionId, untrusted } from '../trust/trust.js'
import type { Intent } from './intent.js'
import type { ProposeParts } from './plan.js'
import {
  checkedSignature,
  draftOf,
  liftedV,
  newAuthorization,
  offerRows,
  type Prepared,
  reasonOf,
  signedOf,
} from './sign.js'

type ImportParts = Pick<ProposeParts, 'ports' | 'journal' | 'trust' | 'chain' | 'safe' | 'note'>

/** Some wallets leave a text `chainId` out of the hash without a word (domain §3.1). */
export function walletTypedData({ domain, ...rest }: TypedData): object {
  return { ...rest, domain: { ...domain, chainId: Number(domain.chainId) } }
}

export async function giveOut(
  parts: ImportParts,
  intent: Intent,
  prepared: Prepared & { readonly typedData: TypedData },
  view: JournalView,
): Promise<Offer> {
  const { draft, entries } = draftOf(parts, intent, prepared, view)
  const offeredAtMs = Math.trunc(parts.ports.clock.nowMs())
  const offered = { ...draft, typedData: prepared.typedData, offeredAtMs }
  await parts.journal.append([...entries, { kind: 'offered', data: offered }])
  return { id: draft.id, offered, parts: [], terminals: [] }
}

/**
 * Without the lock: a person may take a minute. With `abandonOnFailure` an offer that this signer
 * refused is given up; one that has not answered may sign yet (R8).
 */
export async function signOffer(
  parts: ImportParts,
  offer: Offer,
  signer: Signer,
  options: { readonly abandonOnFailure: boolean },
): Promise<JournaledAuthorization> {
  try {
    const { typedData, digest } = offer.offered
    const document = walletTypedData(typedData as TypedData)
    const rows = offerRows(parts.trust, offer.offered)
    const given =
      parts.safe === undefined
        ? (signer.signTypedData?.(document, rows) ?? signer.signDigest(digest))
        : (await import('./safe.js')).collectParts(parts, parts.safe, offer)
    return await bringIn(parts, offer, await given)
  } catch (error) {
    const isKept = mayYetSign(error) || (await hasParts(parts, offer))
    if (options.abandonOnFailure && !isKept)
      await parts.journal.append([
        { kind: 'abandoned', data: { id: offer.id, reason: reasonOf(error) } },
      ])
    throw error
  }
}

/** Owners of a Safe may go on with what one of them has signed, here or on another machine. */
const hasParts = async ({ safe, journal }: ImportParts, { id }: Offer) =>
  safe !== undefined &&
  (safe.given !== undefined ||
    (await journal.load()).offers.some((one) => one.id === id && one.parts.length > 0))

/** The wallet has been asked and its answer did not come. */
const mayYetSign = (error: unknown) =>
  error instanceof InterruptedError ||
  (error instanceof ProposerError &&
    ['signer_timed_out', 'signer_lost', 'timed_out', 'safe_below_threshold'].includes(error.code))

export async function bringIn(
  { ports, journal, chain }: ImportParts,
  offer: Offer,
  given: string,
): Promise<JournaledAuthorization> {
  const signature = await checkedSignature(chain, offer.offered, given)
  return journal.exclusive(async (view) => {
    const before = view.find(offer.id)
    // Another run was quicker; its bytes may have been sent.
    if (before !== undefined) return before
    if (!view.offers.some(({ id }) => id === offer.id))
      throw new UsageError(
        'no_offer',
        `the typed data of ${offer.id} was dropped meanwhile; its signature was not accepted`,
        'run `proposer sign <identifier> --outcome <answer> --typed-data` again',
      )
    const { typedData: _typedData, offeredAtMs: _offeredAtMs, ...draft } = offer.offered
    const signed = signedOf(ports, draft, signature, 'single')
    await journal.append([{ kind: 'signed', data: signed }])
    return newAuthorization(signed)
  })
}

/**
 * Of several open offers it goes to the one it authorizes; a second time, to what it made the
 * first time.
 */
export async function importSignature(
  parts: ImportParts,
  wanted: {
    readonly identifier: string
    readonly proposer?: Address | undefined
    readonly outcome?: string | undefined
  },
  given: string,
) {
  const { trust, journal, ports } = parts
  const { identifier, proposer, outcome } = wanted
  const view = await journal.load()
  const nowMs = ports.clock.nowMs()
  const questionId = pinnedQuestionId(trust, identifier)
  const isWanted = (one: Signed | Offered) =>
    (one.questionId === questionId || one.identifier === identifier) &&
    one.chainId === trust.chain_id &&
    (proposer === undefined || one.terms.proposer === proposer) &&
    (outcome === undefined || outcomeNamed(outcome, one.labels) === outcomeOf(one.terms.price))
  const before = view.authorizations.findLast(
    (one) =>
      isWanted(one.signed) &&
      one.supersededBy === undefined &&
      isOpen(one, nowMs) &&
      isSignatureOf(one.signed.body, given),
  )
  if (before !== undefined) return { authorization: before, reused: true }
  let refusal: unknown
  for (const offer of view.offers) {
    const { id, offered, supersededBy } = offer
    if (!isWanted(offered) || supersededBy !== undefined || !isOpen(offer, nowMs)) continue
    if (offered.spender !== trust.signed_proposer)
      throw untrusted(
        'signed_proposer',
        `${id} was issued for spender ${offered.spender}, which is no longer pinned`,
      )
    try {
      return { authorization: await bringIn(parts, offer, given), reused: false }
    } catch (error) {
      if (!(error instanceof UsageError)) throw error
      refusal ??= error
    }
  }
  throw refusal ?? noOffer(identifier)
}

function isSignatureOf(body: string, given: string) {
  const signature = signatureInBody(body)
  const answer = given.trim().toLowerCase()
  return signature === answer || signature === liftedV(answer)
}

const noOffer = (identifier: string) =>
  new UsageError(
    'no_offer',
    `no typed data issued by this journal for ${identifier} waits for a signature`,
    `issue it with \`proposer sign ${identifier} --outcome <answer> --typed-data\`; a payload signed elsewhere goes by \`proposer submit\``,
  )
