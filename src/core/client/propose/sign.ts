/**
 * The one place that asks for a signature: nonce durable (R6), sign, check, journal. Typed data
 * given to a wallet outside holds nonce and question until it comes back signed (R8).
 */

import { eip1271MagicValue } from '#chain/constants'
import { knownToken } from '#chain/profiles'
import { onChain } from '#chain/unavailable'
import { type Chain, ChainError, type Hex, type ShownRow, type Signer } from '#ports'
import { amountWithRaw } from '#protocol/amount'
import type { RoundRef } from '#protocol/candidate'
import { InterruptedError, ProposerError, StorageError, UsageError } from '#protocol/errors'
import { outcomeNamed } from '#protocol/outcome-words'
import { identityOf, outcomeOf, toBatchItem, toSingle } from '#protocol/proposal'
import { type RecoverPublicKey, signerBy } from '#protocol/recovered'
import type { Address } from '#protocol/schema'
import { fromHex } from '#protocol/witness'
import { isSignature } from '#protocol/words'
import {
  answerOf,
  type ChainCheck,
  type Form,
  isOpen,
  type JournalEntry,
  type JournaledAuthorization,
  journalRecordOf,
  type Offer,
  type Offered,
  type Recorded,
  type Signed,
  signatureInBody,
  supersededError,
} from '../journal/authorizations.js'
import type { JournalPorts, JournalView } from '../journal/journal.js'
import { pinnedQuestionId, type QuestionContext, requireThat, type Trust } from '../trust/trust.js'
import { type Intent, nonceReserved, type RulesStanding } from './intent.js'
import type { CollectParts, SafeSigning } from './safe.js'

export type Draft = Omit<Offered, 'typedData' | 'offeredAtMs'>

export interface Prepared extends Pick<Draft, 'labels' | 'title' | 'digest'> {
  readonly context: QuestionContext
  readonly price: string
  readonly terms: Omit<Draft['terms'], 'proposer'>
  readonly round: RoundRef
  readonly unchecked: readonly ChainCheck[]
  readonly rules?: Pick<RulesStanding, 'rules'> | undefined
}

/** `entries`: durable before anything is signed (R6). */
export function draftOf(
  { journal, trust }: Pick<OfferParts, 'journal' | 'trust'>,
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
function signedOf(ports: JournalPorts, draft: Draft, signature: Hex, form: Form): Signed {
  const { questionId, clientRef } = draft
  const terms = { ...draft.terms, signature }
  const body = JSON.stringify(
    form === 'single' ? toSingle(terms) : toBatchItem(questionId, terms, clientRef),
  )
  const identity = identityOf(ports.hash, draft, { questionId, ...terms })
  return { ...draft, identity, ...savedBody(ports, body, form) }
}

export const savedBody = (
  { clock, hash }: Pick<JournalPorts, 'clock' | 'hash'>,
  body: string,
  form: Form,
) => ({ form, body, sha256: hash.sha256(body), signedAtMs: Math.trunc(clock.nowMs()) })

export function newAuthorization(signed: Signed): JournaledAuthorization {
  const { id, signedAtMs } = signed
  return { id, signed, signedAtMs, attempts: [], terminals: [] }
}

interface OfferParts extends CollectParts {
  readonly ports: JournalPorts
  readonly safe?: SafeSigning | undefined
  readonly recover?: RecoverPublicKey | undefined
}

/** In order; a fault of one item is its result. After any other none counts as signed. */
export async function signDrafts(
  { ports, journal, chain, recover }: Omit<OfferParts, 'trust'>,
  drafts: readonly Draft[],
  signer: Signer,
  form: Form,
) {
  if (drafts.length === 0) return []
  const signing = drafts.map(async (draft) => {
    const { id } = draft
    try {
      const given = await signer.signDigest(draft.digest)
      const signature = await checkedSignature(chain, draft, given, recover)
      const authorization = newAuthorization(signedOf(ports, draft, signature, form))
      return { kind: 'send', id, authorization } as const
    } catch (error) {
      return { kind: 'rejected', id, error: error as ProposerError } as const
    }
  })
  const tried = await Promise.all(signing)
  const broken = tried.find((one) => one.kind === 'rejected' && !isOwnFailure(one.error))
  await journal.append(
    tried.map((one) =>
      one.kind === 'rejected' || broken
        ? abandoned(one.id, one.error ?? broken?.error)
        : { kind: 'signed', data: one.authorization.signed },
    ),
  )
  if (broken) throw broken.error
  return tried
}

export const isOwnFailure = (error: unknown): error is ProposerError =>
  error instanceof ProposerError &&
  !(error instanceof StorageError) &&
  error.code !== 'implementation_changed'

const codeOf = (error: unknown) => (error instanceof ProposerError ? error.code : 'signer_failed')

const abandoned = (id: string, error: unknown): JournalEntry => ({
  kind: 'abandoned',
  data: { id, reason: codeOf(error) },
})

/** Of a wallet with code, which is asked itself. */
export const chainOfWallet = async (chain: Chain | undefined, wallet: Address) =>
  chain !== undefined && (await onChain(() => chain.code(wallet))) !== '0x' ? chain : undefined

/** As Permit2 will: by recovery, or isValidSignature of a wallet with code (`chain`). */
async function checkedSignature(
  chain: Chain | undefined,
  { digest, terms: { proposer } }: Draft,
  given: string,
  recover?: RecoverPublicKey,
) {
  const bad = (
    why: string,
    hint = "check that the account is the proposer's; a contract wallet is asked only with --rpc-url",
  ) => {
    const detail = `the signature does not authorize for ${proposer}: ${why}; nothing was sent`
    return new UsageError('bad_signature', detail, hint)
  }
  const signature = given.trim().toLowerCase()
  const form = 'give what the wallet returned: 0x and an even number of hex digits'
  if (!isSignature(signature)) throw bad('it is not hex of 1 to 8,192 bytes', form)
  if (chain === undefined) {
    const lifted = liftedV(signature)
    // Slow to load.
    const recovery = recover ?? (await import('#protocol/signature')).recoverWithNoble
    if (signerBy(recovery, fromHex(digest), lifted) === proposer) return lifted
    throw bad('it was made by another key, or for other data')
  }
  const { accepted, why } = await onChain(() => askWallet(chain, proposer, digest, signature))
  if (accepted !== undefined) return accepted
  throw bad(why)
}

/** For 27 or 28 some wallets end with 0 or 1 (domain §3.3). */
const liftedV = <Text extends string>(signature: Text) =>
  (signature.length === 132
    ? signature.replace(/0[01]$/, (v) => (v === '00' ? '1b' : '1c'))
    : signature) as Text

/** What its isValidSignature accepts, or why it refuses. */
async function askWallet(chain: Chain, wallet: Address, digest: Hex, signature: Hex) {
  const { erc1271Abi: abi } = await import('#chain/contracts')
  const { latestBlock, readContract } = await import('#chain/reading')
  const { number } = await latestBlock(chain)
  for (const accepted of new Set([signature, liftedV(signature)])) {
    const args = [digest, accepted] as const
    const asked = readContract(chain, number, wallet, abi, 'isValidSignature', args)
    // A revert, or an answer of another shape, is the wallet's no.
    const magic = await asked.catch((error: unknown) => {
      if (!(error instanceof ChainError && ['reverted', 'refused'].includes(error.kind)))
        throw error
    })
    if (magic === eip1271MagicValue) return { accepted }
  }
  const { readSafe, safeRefusal } = await import('#chain/safe')
  const safe = readSafe(chain, await chain.chainId(), wallet)
  const facts = await safe.catch((error: unknown) => {
    if (!(error instanceof UsageError && error.code === 'not_a_safe')) throw error
  })
  const why = facts && safeRefusal(facts, digest, signature)
  const refusal = 'its isValidSignature refuses it'
  return { why: why === undefined ? refusal : `the Safe refuses it: ${why}` }
}

/** Beside a wallet (contract §9, `--browser`). */
function offerRows(trust: Trust, offered: Offered): readonly ShownRow[] {
  const { identifier, questionId, token, spender, chainId, digest } = offered
  const { amount, deadline, proposer } = offered.terms
  const units = trust.token_info?.[token] ?? knownToken(chainId, token)
  return [
    ['question', offered.title ?? identifier],
    ['identifier', identifier],
    ['answer', answerOf(offered)],
    ['authorizes', amountWithRaw(amount, units)],
    ['deadline', `${new Date(Number(deadline) * 1_000).toISOString()} (unix ${deadline})`],
    ['proposer', proposer],
    ['spender', spender],
    ['chain', String(chainId)],
    ['question id', questionId],
    ['digest', digest],
  ]
}

/** Some wallets leave a text `chainId` out of the hash (domain §3.1). */
export function walletTypedData({ domain, ...rest }: Offered['typedData']) {
  return { ...rest, domain: { ...domain, chainId: Number(domain.chainId) } }
}

/** A `fresh` offer that is refused is given up, unless it may be signed yet (R8). */
export async function signOffer(
  parts: OfferParts,
  offer: Offer,
  signer: Signer,
  { fresh = false } = {},
) {
  const { safe, journal } = parts
  const { id, offered } = offer
  try {
    const rows = offerRows(parts.trust, offered)
    const given =
      safe === undefined
        ? (signer.signTypedData?.(walletTypedData(offered.typedData), rows) ??
          signer.signDigest(offered.digest))
        : (await import('./safe.js')).collectParts(parts, safe, offer, rows)
    return await bringIn(parts, offer, await given)
  } catch (error) {
    const mayYetSign = error instanceof InterruptedError || yetToSign.test(codeOf(error))
    // Owners of a Safe may go on with its parts elsewhere.
    const hasParts = (one: Offer) => one.id === id && one.parts.length > 0
    if (fresh && !mayYetSign && !safe?.given && !(await journal.load()).offers.some(hasParts))
      await journal.append([abandoned(id, error)])
    throw error
  }
}

/** `superseded`: it was signed, and replaced meanwhile. */
const yetToSign = /^(signer_timed_out|signer_lost|timed_out|safe_below_threshold|superseded)$/

export async function bringIn(
  { ports, journal, chain }: OfferParts,
  { id, offered }: Offer,
  given: string,
) {
  const wallet = await chainOfWallet(chain, offered.terms.proposer)
  const signature = await checkedSignature(wallet, offered, given)
  return journal.exclusive(async (view) => {
    const before = view.find(id)
    // Another run was quicker.
    if (before !== undefined) return before
    const open = view.offers.find((one) => one.id === id)
    if (open === undefined)
      throw noOffer(
        `the typed data of ${id} was dropped meanwhile; its signature was not accepted`,
        'run `proposer sign <identifier> --outcome <answer> --typed-data` again',
      )
    const replaced = supersededError(open)
    if (replaced !== undefined) throw replaced
    const { typedData: _typedData, offeredAtMs: _offeredAtMs, ...draft } = offered
    const signed = signedOf(ports, draft, signature, 'single')
    await journal.append([{ kind: 'signed', data: signed }])
    return newAuthorization(signed)
  })
}

const noOffer = (detail: string, hint: string) => new UsageError('no_offer', detail, hint)

/** To the open offer that it authorizes; a second time, to what it made then. */
export async function importSignature(
  parts: OfferParts,
  wanted: { identifier: string; proposer?: Address | undefined; outcome?: string | undefined },
  given: string,
) {
  const { trust, journal, ports } = parts
  const { identifier, proposer, outcome } = wanted
  const view = await journal.load()
  const nowMs = ports.clock.nowMs()
  const questionId = pinnedQuestionId(trust, identifier)
  const isWanted = (one: Recorded) => {
    const { terms, labels, ...record } = journalRecordOf(one)
    return (
      (record.questionId === questionId || record.identifier === identifier) &&
      record.chainId === trust.chain_id &&
      (proposer ?? terms.proposer) === terms.proposer &&
      (outcome === undefined || outcomeNamed(outcome, labels) === outcomeOf(terms.price)) &&
      one.supersededBy === undefined &&
      isOpen(one, nowMs)
    )
  }
  const answer = given.trim().toLowerCase()
  const before = view.authorizations.findLast(
    (one) => isWanted(one) && [answer, liftedV(answer)].includes(signatureInBody(one.signed.body)),
  )
  if (before !== undefined) return { authorization: before, reused: true }
  let refusal: UsageError | undefined
  for (const offer of view.offers.filter(isWanted)) {
    const { spender } = offer.offered
    requireThat(
      spender === trust.signed_proposer,
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
  const detail = `no typed data issued by this journal for ${identifier} waits for a signature`
  const hint = `issue it with \`proposer sign ${identifier} --outcome <answer> --typed-data\`; send a payload signed elsewhere with \`proposer submit\``
  throw refusal ?? noOffer(detail, hint)
}
