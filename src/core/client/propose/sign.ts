/**
 * The one place that asks for a signature: nonce durable (R6), sign, check, journal, and only
 * then may it be sent.
 */

import { titleOf } from '#chain/ancillary'
import { eip1271MagicValue } from '#chain/constants'
import { knownToken } from '#chain/profiles'
import { onChain } from '#chain/unavailable'
import { type Chain, ChainError, type Hex, type ShownRow, type Signer } from '#ports'
import { amountWithRaw } from '#protocol/amount'
import type { RoundRef } from '#protocol/candidate'
import { ProposerError, StorageError, UsageError } from '#protocol/errors'
import type { Labels } from '#protocol/outcome-words'
import { identityOf, toBatchItem, toSingle } from '#protocol/proposal'
import { type RecoverPublicKey, signerBy } from '#protocol/recovered'
import type { Address } from '#protocol/schema'
import { fromHex } from '#protocol/witness'
import { isSignature } from '#protocol/words'
import { answerOf, type JournaledAuthorization } from '../journal/authorizations.js'
import type { Journal, JournalPorts, JournalView } from '../journal/journal.js'
import type { ChainCheck, Form, JournalEntry, Offered, Signed } from '../journal/records.js'
import type { Trust } from '../trust/trust.js'
import type { Intent } from './intent.js'
import { nonceReserved, type RoundFacts, type RulesStanding } from './terms.js'

export type Draft = Omit<Offered, 'typedData' | 'offeredAtMs'>

/** What a record is made of. */
export interface Prepared {
  readonly context: RoundFacts
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
export function signedOf(
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

export const reasonOf = (error: unknown) =>
  error instanceof ProposerError ? error.code : 'signer_failed'

/**
 * Without code: 64 or 65 bytes that recover, v lifted (domain §3.3). With code isValidSignature
 * is asked, as Permit2 will.
 */
export async function checkedSignature(
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
export function liftedV<Text extends string>(signature: Text): Text {
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
export function offerRows(trust: Trust, offered: Offered): readonly ShownRow[] {
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
