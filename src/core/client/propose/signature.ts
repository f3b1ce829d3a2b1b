/**
 * The one place that asks for a signature. Order: intent and nonce durable (R6), sign, check,
 * journal, and only then may it be sent.
 */

import { eip1271MagicValue } from '../../chain/constants.js'
import { onChain } from '../../chain/unavailable.js'
import { type Address, type Chain, ChainError, type Hex, type Signer } from '../../ports.js'
import { ProposerError, UsageError } from '../../protocol/errors.js'
import { identityOf, toBatchItem, toSingle } from '../../protocol/proposal.js'
import { type RecoverPublicKey, signerBy } from '../../protocol/recovered.js'
import { fromHex } from '../../protocol/witness.js'
import { isSignature } from '../../protocol/words.js'
import type { Authorization } from '../journal/authorizations.js'
import type { JournalPorts, JournalView } from '../journal/journal.js'
import type { Form, JournalEntry, Offered, Signed } from '../journal/records.js'
import type { AuthorizeParts, Intent } from './authorize.js'
import type { Preview, RoundFacts } from './prepare.js'

/**
 * What an authorization says before it is signed: all of an `offered` record but when and in which
 * form it was given out.
 */
export type Draft = Omit<Offered, 'typedData' | 'offeredAtMs'>

/**
 * The next authorization of this run, and the entries that reserve it: intent and nonce, durable
 * before anything is signed (R6).
 */
export function draftOf(
  parts: Pick<AuthorizeParts, 'journal' | 'trust'>,
  intent: Pick<Intent, 'identifier' | 'proposer' | 'clientRef' | 'supersede'>,
  prepared: Pick<
    Preview,
    'price' | 'amountRaw' | 'nonce' | 'deadlineSeconds' | 'round' | 'digest'
  > &
    Partial<Pick<Preview, 'unchecked'>> & { readonly context: RoundFacts },
  view: JournalView,
): { readonly draft: Draft; readonly reserving: readonly JournalEntry[] } {
  const { journal, trust } = parts
  const terms = {
    proposer: intent.proposer,
    price: prepared.price,
    amount: String(prepared.amountRaw),
    nonce: String(prepared.nonce),
    deadline: String(prepared.deadlineSeconds),
  }
  if (view.isReserved(terms.proposer, terms.nonce)) {
    throw new UsageError(
      'nonce_reserved',
      `nonce ${terms.nonce} was taken by another authorization meanwhile`,
      {
        hint: 'leave --nonce out: a fresh one is chosen',
      },
    )
  }
  const id = journal.nextId()
  const questionId = prepared.context.question_id
  const supersedes = intent.supersede === undefined ? {} : { supersedes: intent.supersede }
  const draft: Draft = {
    id,
    identifier: intent.identifier,
    questionId,
    chainId: trust.chain_id,
    timestamp: prepared.context.request.timestamp,
    round: prepared.round.key,
    requester: prepared.context.request.requester,
    digest: prepared.digest,
    token: prepared.context.bond.token,
    spender: trust.signed_proposer,
    ...(intent.clientRef === undefined ? {} : { clientRef: intent.clientRef }),
    terms,
    ...supersedes,
    ...(prepared.unchecked === undefined ? {} : { unchecked: [...prepared.unchecked] }),
  }
  return {
    draft,
    reserving: [
      {
        kind: 'intent',
        data: { id, identifier: intent.identifier, questionId, terms, ...supersedes },
      },
      { kind: 'nonce.reserved', data: { id, proposer: terms.proposer, nonce: terms.nonce } },
    ],
  }
}

/**
 * The journal's record of a signature: the exact bytes of the single form, or of a batch's item
 * (§2.7).
 */
export function signedOf(
  ports: Pick<JournalPorts, 'clock' | 'hash'>,
  draft: Draft,
  signature: Hex,
  form: Form = 'single',
): Signed {
  const { terms: wire, questionId, chainId, spender } = draft
  const terms = { ...wire, proposer: wire.proposer as Address }
  const body =
    form === 'single'
      ? JSON.stringify(toSingle({ ...terms, signature }))
      : JSON.stringify(toBatchItem(questionId, { ...terms, signature }, draft.clientRef))
  return {
    ...draft,
    identity: identityOf(
      ports.hash,
      { chainId, spender: spender as Hex },
      { questionId: questionId as Hex, ...terms, signature },
    ),
    form,
    body,
    sha256: ports.hash.sha256(body),
    signedAtMs: Math.trunc(ports.clock.nowMs()),
  }
}

/** A fresh authorization, never sent. */
export const newAuthorization = (signed: Signed): Authorization => ({
  id: signed.id,
  signed,
  signedAtMs: signed.signedAtMs,
  attempts: [],
  terminals: [],
})

/**
 * Reserves the nonce, signs, checks the signature as the chain will, journals the exact bytes of
 * the single form. Called with the journal's lock held. UsageError `nonce_reserved`,
 * `bad_signature`; StorageError 74, after which nothing was or will be sent.
 */
export async function signAndJournal(
  parts: AuthorizeParts,
  intent: Intent,
  prepared: Preview,
  signer: Signer,
  view: JournalView,
): Promise<Authorization> {
  const { journal, ports } = parts
  const { draft, reserving } = draftOf(parts, intent, prepared, view)
  await journal.append(reserving)
  let signature: Hex
  try {
    signature = await checkedSignature(
      parts.chain,
      draft,
      await signer.signDigest(prepared.digest),
      await parts.recovery?.(),
    )
  } catch (error) {
    // Nothing was kept that could execute; the nonce stays reserved.
    await journal.append([{ kind: 'abandoned', data: { id: draft.id, reason: reasonOf(error) } }])
    throw error
  }
  const signed = signedOf(ports, draft, signature)
  await journal.append([{ kind: 'signed', data: signed }])
  return newAuthorization(signed)
}

/** A code for the journal's `abandoned` record. */
export const reasonOf = (error: unknown): string =>
  error instanceof ProposerError ? error.code : 'signer_failed'

/**
 * The signature in a form that the chain takes, or UsageError `bad_signature`. An account without
 * code: 64 or 65 bytes that recover to the proposer, v 0 or 1 lifted to 27 or 28. An account with
 * code is asked by isValidSignature, because Permit2 will ask it; what it refuses as it is, is
 * tried with v lifted. Without a chain only recovery is possible. `recover` default: @noble/curves.
 * Source: domain §3.3.
 */
export async function checkedSignature(
  chain: Chain | undefined,
  draft: Pick<Draft, 'terms' | 'digest'>,
  given: string,
  recover?: RecoverPublicKey,
): Promise<Hex> {
  const proposer = draft.terms.proposer as Address
  const digest = draft.digest as Hex
  const bad = (why: string, hint = "check that the account is the proposer's") =>
    new UsageError(
      'bad_signature',
      `the signature does not authorize for ${proposer}: ${why}; nothing was sent`,
      { hint },
    )
  const signature = given.trim().toLowerCase() as Hex
  if (!isSignature(signature))
    throw bad(
      'it is not hex of 1 to 8,192 bytes',
      'give what the wallet answered: 0x and an even number of hex digits',
    )
  const lifted = liftedV(signature)
  if (chain !== undefined) {
    const accepted = await onChain(() =>
      acceptedByWallet(
        chain,
        proposer,
        digest,
        lifted === signature ? [signature] : [signature, lifted],
      ),
    )
    if (accepted === 'refused')
      throw bad('the wallet has code, and its isValidSignature refuses it')
    if (accepted !== 'no code') return accepted
  }
  if ((await signerOf(fromHex(digest), lifted, recover)) === proposer) return lifted
  const hint =
    chain === undefined
      ? "check that the account is the proposer's; where it is a contract wallet, give --rpc-url, so that it can be asked"
      : "check that the account is the proposer's"
  throw bad('it was made by another key, or for other data', hint)
}

/** @noble/curves takes a while to load: only where nobody brought a recovery. */
let portable: Promise<typeof import('../../protocol/signature.js')> | undefined

async function signerOf(
  digest: Uint8Array,
  signature: Hex,
  recover: RecoverPublicKey | undefined,
): Promise<Address | undefined> {
  if (recover !== undefined) return signerBy(recover, digest, signature)
  portable ??= import('../../protocol/signature.js')
  const { recoverSigner } = await portable
  return recoverSigner(digest, signature)
}

/** Wallets that end 65 bytes with 0 or 1 mean 27 or 28 (domain §3.3). */
export function liftedV<Text extends string>(signature: Text): Text {
  if (signature.length !== 132) return signature
  const v = signature.slice(130)
  return v === '00' || v === '01'
    ? (`${signature.slice(0, 130)}${v === '00' ? '1b' : '1c'}` as Text)
    : signature
}

/** The first of these signatures that the account's code takes. */
async function acceptedByWallet(
  chain: Chain,
  proposer: Address,
  digest: Hex,
  signatures: readonly Hex[],
): Promise<Hex | 'refused' | 'no code'> {
  const head = await chain.block('latest')
  if (head === null) throw new ChainError('unavailable', 'the chain has no head')
  if ((await chain.code(proposer, head.number)) === '0x') return 'no code'
  const [{ erc1271Abi }, { readContract }] = await Promise.all([
    import('../../chain/contracts.js'),
    import('../../chain/reading.js'),
  ])
  for (const signature of signatures) {
    try {
      const magic = await readContract(
        chain,
        head.number,
        proposer,
        erc1271Abi,
        'isValidSignature',
        [digest, signature],
      )
      if (magic === eip1271MagicValue) return signature
    } catch (error) {
      // A revert, or an answer of another shape, is the wallet's no.
      if (!(error instanceof ChainError) || (error.kind !== 'reverted' && error.kind !== 'refused'))
        throw error
    }
  }
  return 'refused'
}
