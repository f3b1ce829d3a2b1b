/**
 * The one place that asks for a signature: nonce durable (R6), sign, check, journal, and only
 * then may it be sent. A wallet outside is a signer that takes long: typed data is given out, its
 * signature comes back later, perhaps to another run, and the journal holds nonce and question
 * meanwhile (R8).
 */

import { titleOf } from '#chain/ancillary'
import { eip1271MagicValue } from '#chain/constants'
import { knownToken } from '#chain/profiles'
import { onChain } from '#chain/unavailable'
import { type Chain, ChainError, type Hex, type ShownRow, type Signer } from '#ports'
import { amountWithRaw } from '#protocol/amount'
import type { RoundRef } from '#protocol/candidate'
import { InterruptedError, ProposerError, StorageError, UsageError } from '#protocol/errors'
import { type Labels, outcomeNamed } from '#protocol/outcome-words'
import { identityOf, outcomeOf, toBatchItem, toSingle } from '#protocol/proposal'
import { type RecoverPublicKey, signerBy } from '#protocol/recovered'
import type { Address, TypedData } from '#protocol/schema'
import { fromHex } from '#protocol/witness'
import { isSignature } from '#protocol/words'
import {
  answerOf,
  isOpen,
  type JournaledAuthorization,
  journalRecordOf,
  type Offer,
  signatureInBody,
} from '../journal/authorizations.js'
import type { Journal, JournalPorts, JournalView } from '../journal/journal.js'
import type { ChainCheck, Form, JournalEntry, Offered, Signed } from '../journal/records.js'
import { pinnedQuestionId, type QuestionContext, type Trust, untrusted } from '../trust/trust.js'
import type { Intent } from './intent.js'
import type { SafeSigning } from './safe.js'
import { nonceReserved, type RulesStanding } from './terms.js'

export type Draft = Omit<Offered, 'typedData' | 'offeredAtMs'>

/** What a record is made of. */
export interface Prepared {
  readonly context: QuestionContext
  readonly price: string
  readonly labels?: Labels | undefined
  readonly title?: string | undefined
  readonly terms: Omit<Draft['terms'], 'proposer'>
  readonly digest: Hex
  readonly round: RoundRef
  readonly unchecked: readonly ChainCheck[]
  readonly rules?: Pick<RulesStanding, 'rules'> | undefined
}

/** `entries`: durable before anything is signed (R6). */
export function draftOf(
  { journal, trust }: { readonly journal: Journal; readonly trust: Trust },
  intent: Pick<Intent, 'identifier' | 'slug' | 'proposer' | 'clientRef' | 'supersede'>,
  prepared: Prepared,
  view: JournalView,
) {
  const { identifier, proposer, clientRef, slug, supersede: supersedes } = intent
  const { labels, title, digest, unchecked } = prepared
  const { question_id: questionId, request, bond, source, reward } = prepared.context
  const terms = { proposer, ...prepared.terms }
  const { nonce } = terms
  if (view.isReserved(proposer, nonce))
    throw nonceReserved(`${nonce} was taken by another authorization meanwhile`)
  const id = journal.nextId()
  const draft: Draft = {
    ...{ id, identifier, questionId, chainId: trust.chain_id, timestamp: request.timestamp },
    ...{ round: prepared.round.key, requester: request.requester, digest, token: bond.token },
    ...{ spender: trust.signed_proposer, clientRef, title, slug, terms, labels, supersedes },
    unchecked: [...unchecked],
    rules: prepared.rules?.rules.hash,
    reward: source === 'chain' ? reward : undefined,
  }
  const entries: readonly JournalEntry[] = [
    { kind: 'intent', data: { id, identifier, questionId, terms, supersedes } },
    { kind: 'nonce.reserved', data: { id, proposer, nonce } },
  ]
  return { draft, entries }
}

/** The exact bytes (§2.7). */
function signedOf(
  ports: Pick<JournalPorts, 'clock' | 'hash'>,
  draft: Draft,
  signature: Hex,
  form: Form,
): Signed {
  const { questionId, chainId, spender, clientRef } = draft
  const terms = { ...draft.terms, signature }
  const body = JSON.stringify(
    form === 'single' ? toSingle(terms) : toBatchItem(questionId, terms, clientRef),
  )
  const identity = identityOf(ports.hash, { chainId, spender }, { questionId, ...terms })
  return { ...draft, identity, ...savedBody(ports, body, form) }
}

export const savedBody = (
  { clock, hash }: Pick<JournalPorts, 'clock' | 'hash'>,
  body: string,
  form: Form,
) => ({ form, body, sha256: hash.sha256(body), signedAtMs: Math.trunc(clock.nowMs()) })

export const newAuthorization = (signed: Signed): JournaledAuthorization => ({
  id: signed.id,
  signed,
  signedAtMs: signed.signedAtMs,
  attempts: [],
  terminals: [],
})

interface SigningParts {
  readonly ports: JournalPorts
  readonly journal: Journal
  readonly chain?: Chain | undefined
  readonly recover?: RecoverPublicKey | undefined
}

/**
 * Checked as the chain will. A failure of one item is its result; after any other nothing is
 * journaled as signed.
 */
export async function signDrafts(
  { ports, journal, chain, recover }: SigningParts,
  drafts: readonly Draft[],
  signer: Signer,
  form: Form,
) {
  const signed = await Promise.allSettled(
    drafts.map(async (draft) => {
      const given = await signer.signDigest(draft.digest)
      return signedOf(ports, draft, await checkedSignature(chain, draft, given, recover), form)
    }),
  )
  const failures = signed.flatMap((one) => (one.status === 'rejected' ? [one] : []))
  const broken = failures.find(({ reason }) => !isOwnFailure(reason))
  const entries = signed.map((one, at): JournalEntry => {
    if (one.status === 'fulfilled' && broken === undefined)
      return { kind: 'signed', data: one.value }
    const { reason } = one.status === 'rejected' ? one : (broken ?? {})
    return { kind: 'abandoned', data: { id: drafts[at]?.id ?? '', reason: reasonOf(reason) } }
  })
  if (entries.length > 0) await journal.append(entries)
  if (broken !== undefined) throw broken.reason
  return new Map(
    signed.map((one, at) => [
      drafts[at]?.id,
      one.status === 'fulfilled'
        ? { authorization: newAuthorization(one.value), reused: false }
        : { error: one.reason as ProposerError },
    ]),
  )
}

export const isOwnFailure = (error: unknown): error is ProposerError =>
  error instanceof ProposerError &&
  !(error instanceof StorageError) &&
  error.code !== 'implementation_changed'

const reasonOf = (error: unknown) => (error instanceof ProposerError ? error.code : 'signer_failed')

/**
 * Without code: 64 or 65 bytes that recover, v lifted (domain §3.3). With code isValidSignature
 * is asked, as Permit2 will.
 */
async function checkedSignature(
  chain: Chain | undefined,
  draft: Pick<Draft, 'terms' | 'digest'>,
  given: string,
  recover?: RecoverPublicKey,
): Promise<Hex> {
  const { digest, terms } = draft
  const { proposer } = terms
  const bad = (why: string, hint = "check that the account is the proposer's") =>
    new UsageError(
      'bad_signature',
      `the signature does not authorize for ${proposer}: ${why}; nothing was sent`,
      hint,
    )
  const signature = given.trim().toLowerCase()
  if (!isSignature(signature))
    throw bad(
      'it is not hex of 1 to 8,192 bytes',
      'give what the wallet returned: 0x and an even number of hex digits',
    )
  const lifted = liftedV(signature)
  if (chain !== undefined) {
    const tried = [...new Set([signature, lifted])]
    const accepted = await onChain(() => acceptedByWallet(chain, proposer, digest, tried))
    if (accepted === 'refused') throw bad(await refusalByCode(chain, proposer, digest, signature))
    if (accepted !== 'no code') return accepted
  }
  if ((await signerOf(fromHex(digest), lifted, recover)) === proposer) return lifted
  const contract = '; where it is a contract wallet, give --rpc-url, so that it can be asked'
  throw bad(
    'it was made by another key, or for other data',
    `check that the account is the proposer's${chain === undefined ? contract : ''}`,
  )
}

/** Other wallets keep their reasons to themselves. */
async function refusalByCode(chain: Chain, proposer: Address, digest: Hex, signature: Hex) {
  const general = 'the wallet has code, and its isValidSignature refuses it'
  const { readSafe, safeRefusal } = await import('#chain/safe')
  try {
    const facts = await onChain(async () => readSafe(chain, await chain.chainId(), proposer))
    const why = safeRefusal(facts, digest, signature)
    return why === undefined ? general : `the Safe refuses it: ${why}`
  } catch (error) {
    if (error instanceof UsageError && error.code === 'not_a_safe') return general
    throw error
  }
}

async function signerOf(digest: Uint8Array, signature: Hex, recover: RecoverPublicKey | undefined) {
  if (recover !== undefined) return signerBy(recover, digest, signature)
  // @noble/curves takes a while to load: only where nobody brought a recovery.
  const { recoverSigner } = await import('#protocol/signature')
  return recoverSigner(digest, signature)
}

/** Wallets that end 65 bytes with 0 or 1 mean 27 or 28 (domain §3.3). */
function liftedV<Text extends string>(signature: Text): Text {
  const lifted = { '00': '1b', '01': '1c' }[signature.length === 132 ? signature.slice(130) : '']
  return lifted === undefined ? signature : (`${signature.slice(0, 130)}${lifted}` as Text)
}

async function acceptedByWallet(
  chain: Chain,
  proposer: Address,
  digest: Hex,
  signatures: readonly Hex[],
) {
  const [{ erc1271Abi: abi }, { latestBlock, readContract }] = await Promise.all([
    import('#chain/contracts'),
    import('#chain/reading'),
  ])
  const { number } = await latestBlock(chain)
  if ((await chain.code(proposer, number)) === '0x') return 'no code'
  for (const signature of signatures) {
    try {
      const args = [digest, signature] as const
      const magic = await readContract(chain, number, proposer, abi, 'isValidSignature', args)
      if (magic === eip1271MagicValue) return signature
    } catch (error) {
      // A revert, or an answer of another shape, is the wallet's no.
      if (!(error instanceof ChainError) || !['reverted', 'refused'].includes(error.kind))
        throw error
    }
  }
  return 'refused'
}

/** What is signed, in words, for the page that stands beside a wallet (contract §9, `--browser`). */
function offerRows(trust: Trust, offered: Offered): readonly ShownRow[] {
  const { identifier, questionId, terms, token, spender, chainId, digest, typedData } = offered
  const title = titleOf(typedData.message.witness.ancillaryData as Hex)
  const units = trust.token_info?.[token] ?? knownToken(chainId, token)
  return [
    ['question', title ?? identifier],
    ...(title === undefined ? [] : ([['identifier', identifier]] as const)),
    ['answer', answerOf(offered)],
    ['authorizes', amountWithRaw(terms.amount, units)],
    [
      'deadline',
      `${new Date(Number(terms.deadline) * 1000).toISOString()} (unix ${terms.deadline})`,
    ],
    ['proposer', terms.proposer],
    ['spender', spender],
    ['chain', String(chainId)],
    ['question id', questionId],
    ['digest', digest],
  ]
}

interface ImportParts extends SigningParts {
  readonly trust: Trust
  readonly safe?: SafeSigning | undefined
  readonly note?: ((text: string) => void) | undefined
}

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
        : (await import('./safe.js')).collectParts(parts, parts.safe, offer, rows)
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
  const isWanted = (one: JournaledAuthorization | Offer) => {
    const record = journalRecordOf(one)
    return (
      (record.questionId === questionId || record.identifier === identifier) &&
      record.chainId === trust.chain_id &&
      (proposer === undefined || record.terms.proposer === proposer) &&
      (outcome === undefined ||
        outcomeNamed(outcome, record.labels) === outcomeOf(record.terms.price)) &&
      one.supersededBy === undefined &&
      isOpen(one, nowMs)
    )
  }
  const before = view.authorizations.findLast(
    (one) => isWanted(one) && isSignatureOf(one.signed.body, given),
  )
  if (before !== undefined) return { authorization: before, reused: true }
  let refusal: unknown
  for (const offer of view.offers.filter(isWanted)) {
    const { spender } = offer.offered
    if (spender !== trust.signed_proposer)
      throw untrusted(
        'signed_proposer',
        `${offer.id} was issued for spender ${spender}, which is no longer pinned`,
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
