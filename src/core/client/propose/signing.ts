/**
 * Signatures in groups (R6, R8): nonces of many items durable in one append, then their signatures,
 * then all of these durable in another, a whole group under one hold of the journal's lock. What
 * single signing checks is checked for every item.
 */
import { onChain } from '../../chain/unavailable.js'
import type { Address, Hex, Signer } from '../../ports.js'
import { ProposerError, StorageError, UsageError } from '../../protocol/errors.js'
import { fromBatchItem, identityOf } from '../../protocol/proposal.js'
import { toHex } from '../../protocol/witness.js'
import { pinnedHeads, spentNonces } from '../funds/funds.js'
import type { Authorization } from '../journal/authorizations.js'
import type { JournalView } from '../journal/journal.js'
import { type ChainCheck, chainChecks, type JournalEntry, type Signed } from '../journal/records.js'
import { chainNow, type QuestionContext } from '../trust/context.js'
import { byRound, signInRound } from './authorize.js'
import { offerOpen } from './outside.js'
import { newMisplaced } from './payload.js'
import { type BatchParts, importable, type Planned, type ToSign } from './plan.js'
import { checkTerms, checkTimeline, cutNotes, type RoundFacts } from './prepare.js'
import {
  checkedSignature,
  type Draft,
  draftOf,
  newAuthorization,
  reasonOf,
  signedOf,
} from './signature.js'
import type { Spending } from './spending.js'

export type ToImport = Extract<Planned, { kind: 'import' }>

/** An authorization whose bytes are durable, or why there is none. */
export type Signing = Authorization | ProposerError

type Made =
  | { readonly kind: 'known'; readonly authorization: Authorization }
  | { readonly kind: 'failed'; readonly error: ProposerError }
  | { readonly kind: 'record'; readonly signed: Signed }
  | { readonly kind: 'draft'; readonly draft: Draft; readonly reserving: readonly JournalEntry[] }

/**
 * So many of a group are reserved, signed and journaled together, while the next so many are made
 * ready.
 */
const signedInOneGo = 100

/**
 * Signs and imports a group, in order; each failure is its item's own (UsageError as `prepare` has
 * them, ConflictError `authorization_open`). A wallet outside, which may ask a person, signs one by
 * one without the lock. Rejects for StorageError 74, a key that cannot be unlocked or is another's,
 * and a chain that does not answer.
 */
export async function signGroup(
  parts: BatchParts,
  spending: Spending,
  group: readonly (ToSign | ToImport)[],
): Promise<readonly Signing[]> {
  if (group.length === 0) return []
  const signer = group.some(({ kind }) => kind === 'sign') ? await parts.signer() : undefined
  if (signer?.signTypedData !== undefined) return signOneByOne(parts, spending, group, signer)
  const { chain, trust, ports, journal } = parts
  const nowSeconds =
    chain === undefined ? ports.clock.nowMs() / 1_000 : await chainNow(chain, trust, ports.clock)
  const asked =
    chain !== undefined &&
    signer !== undefined &&
    (await onChain(() => chain.code(signer.address))) !== '0x'
      ? chain
      : undefined
  return journal.exclusive(async (view) => {
    const held = new Set<string>()
    const nonces = new Set<string>()
    const signings: Promise<readonly Signing[]>[] = []
    let hasFailed = false
    try {
      for (let at = 0; at < group.length && !hasFailed; at += signedInOneGo) {
        const reserved = await reserve(group.slice(at, at + signedInOneGo), view, { held, nonces })
        // Another thread may be at these while the next are made ready.
        const signing = signAndJournal(reserved)
        signing.catch(() => {
          hasFailed = true
        })
        signings.push(signing)
      }
    } finally {
      // Nothing goes on without the lock.
      await Promise.allSettled(signings)
    }
    return (await Promise.all(signings)).flat()
  })

  /** What there is of each item before a signature: nonces of drafts are durable. */
  async function reserve(
    some: readonly (ToSign | ToImport)[],
    view: JournalView,
    { held, nonces }: { readonly held: Set<string>; readonly nonces: Set<string> },
  ): Promise<readonly Made[]> {
    const made: Made[] = []
    for (const one of some) {
      const question =
        one.kind === 'import'
          ? `${one.questionId} ${one.row.item.proposer}`
          : `${one.context.question_id} ${one.intent.proposer}`
      const asMade: Made = held.has(question)
        ? { kind: 'failed', error: heldInGroup() }
        : await ownFailure(() => make(one, view, signer, nowSeconds))
      held.add(question)
      // What the group itself takes is in no view yet.
      const terms =
        asMade.kind === 'draft'
          ? asMade.draft.terms
          : asMade.kind === 'record'
            ? asMade.signed.terms
            : undefined
      const nonce = terms === undefined ? undefined : `${terms.proposer} ${terms.nonce}`
      made.push(
        nonce !== undefined && nonces.has(nonce)
          ? { kind: 'failed', error: nonceInGroup(nonce) }
          : asMade,
      )
      if (nonce !== undefined) nonces.add(nonce)
    }
    const reserved = await withoutSpent(parts, made)
    const reserving = reserved.flatMap((one) => (one.kind === 'draft' ? one.reserving : []))
    if (reserving.length > 0) await journal.append(reserving)
    return reserved
  }

  async function signAndJournal(reserved: readonly Made[]): Promise<readonly Signing[]> {
    const results: Signing[] = []
    const entries: JournalEntry[] = []
    const signed = await Promise.all(
      reserved.map((one) =>
        one.kind === 'draft' && signer !== undefined ? signDraft(one.draft, signer) : one,
      ),
    )
    for (const [index, one] of reserved.entries()) {
      const signing = signed[index] ?? one
      if (signing.kind === 'record') entries.push({ kind: 'signed', data: signing.signed })
      if (one.kind === 'draft' && signing.kind === 'failed')
        entries.push({
          kind: 'abandoned',
          data: { id: one.draft.id, reason: reasonOf(signing.error) },
        })
      results.push(resultOf(signing))
    }
    if (entries.length > 0) await journal.append(entries)
    return results
  }

  async function make(
    one: ToSign | ToImport,
    view: JournalView,
    signer: Signer | undefined,
    nowSeconds: number,
  ): Promise<Made> {
    if (one.kind === 'import') return importOf(parts, one, view)
    if (signer?.address !== one.intent.proposer) throw wrongSigner(signer, one.intent.proposer)
    const { intent, context, price, witness, ref } = one
    // Another process may have signed since the look-up.
    const { same } = byRound(parts, intent, view, context)
    if (same.kind === 'refuse') throw same.error
    if (same.kind === 'reuse') return { kind: 'known', authorization: same.authorization }
    if (same.kind === 'resume') throw offerOpen(same.offer)
    checkTimeline(parts.trust, context, view)
    const checked = checkTerms(intent, context, nowSeconds)
    const { amountRaw, deadlineSeconds } = checked
    for (const note of cutNotes(intent, checked)) parts.note?.(note)
    await spending.take(context.bond.token as Address, intent.proposer, amountRaw)
    const nonce = intent.nonce ?? parts.journal.nextNonce()
    const terms = {
      price,
      amount: String(amountRaw),
      nonce: String(nonce),
      deadline: String(deadlineSeconds),
    }
    const digest = toHex(witness.digest(terms))
    const prepared = {
      context,
      price,
      amountRaw,
      nonce,
      deadlineSeconds,
      round: ref,
      digest,
      unchecked: uncheckedIn(parts, context),
    }
    return { kind: 'draft', ...draftOf(parts, intent, prepared, view) }
  }

  async function signDraft(draft: Draft, signer: Signer): Promise<Made> {
    return ownFailure(async () => {
      const signature = await checkedSignature(
        asked,
        draft,
        await signer.signDigest(draft.digest as Hex),
        parts.recover,
      )
      return { kind: 'record', signed: signedOf(ports, draft, signature, 'batch') }
    })
  }
}

/**
 * What no chain has confirmed of a row: its context says whether it is the chain's; nonce and funds
 * are looked at here.
 */
const uncheckedIn = ({ chain }: BatchParts, { source }: RoundFacts): readonly ChainCheck[] =>
  chain === undefined ? chainChecks : source === 'chain' ? [] : ['round', 'bond']

/** A failure that says what is wrong with one item; anything else ends the batch. */
async function ownFailure(work: () => Promise<Made>): Promise<Made> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof ProposerError && !(error instanceof StorageError))
      return { kind: 'failed', error }
    throw error
  }
}

function resultOf(made: Made): Signing {
  if (made.kind === 'known') return made.authorization
  if (made.kind === 'failed') return made.error
  if (made.kind === 'record') return newAuthorization(made.signed)
  throw new Error('a draft was left unsigned')
}

/**
 * Drafts whose nonce Permit2 has as used or cancelled fail before it is reserved; one read a word
 * of 256 nonces.
 */
async function withoutSpent(
  { chain, trust }: BatchParts,
  made: readonly Made[],
): Promise<readonly Made[]> {
  if (chain === undefined) return made
  const claims = made.flatMap((one) =>
    one.kind === 'draft'
      ? [
          {
            id: one.draft.id,
            owner: one.draft.terms.proposer as Address,
            nonce: BigInt(one.draft.terms.nonce),
          },
        ]
      : [],
  )
  if (claims.length === 0) return made
  const { latest } = await pinnedHeads(chain, trust)
  const spent = await onChain(() =>
    spentNonces(chain, trust.permit2 as Address, latest.number, claims),
  )
  return made.map((one) => {
    if (one.kind !== 'draft' || !spent.has(one.draft.id)) return one
    const { proposer, nonce } = one.draft.terms
    const error = new UsageError(
      'nonce_spent',
      `Permit2 has nonce ${nonce} of ${proposer} as used or cancelled`,
      {
        hint: 'leave the nonce out: a fresh one is chosen',
      },
    )
    return { kind: 'failed', error }
  })
}

/** The record of an item that was signed elsewhere, unless the journal knows it by now. */
function importOf(parts: BatchParts, { row, questionId }: ToImport, view: JournalView): Made {
  const { ports, journal, trust } = parts
  const proposal = fromBatchItem(questionId, row.item)
  const { questionId: _question, signature, ...terms } = proposal
  const identity = identityOf(
    ports.hash,
    { chainId: trust.chain_id, spender: trust.signed_proposer as Hex },
    { questionId, signature, ...terms },
  )
  const known = view.byIdentity(identity)
  if (known !== undefined) return { kind: 'known', authorization: known }
  if (view.isReserved(terms.proposer, terms.nonce))
    newMisplaced(trust.chain_id, view)(row.body, proposal, signature)
  const answered = importable(parts, view, proposal)
  const { typedData: _typedData, offeredAtMs: _offeredAtMs, ...askedFor } = answered?.offered ?? {}
  const signed: Signed = {
    ...askedFor,
    id: answered?.id ?? journal.nextId(),
    identifier: row.identifier,
    questionId,
    chainId: trust.chain_id,
    spender: trust.signed_proposer,
    ...(row.clientRef === undefined ? {} : { clientRef: row.clientRef }),
    terms,
    identity,
    form: 'batch',
    body: row.body,
    sha256: ports.hash.sha256(row.body),
    signedAtMs: Math.trunc(ports.clock.nowMs()),
  }
  return { kind: 'record', signed }
}

async function signOneByOne(
  parts: BatchParts,
  spending: Spending,
  group: readonly (ToSign | ToImport)[],
  signer: Signer,
): Promise<readonly Signing[]> {
  const results: Signing[] = []
  for (const one of group) {
    const made = await ownFailure(async () => {
      if (one.kind === 'import')
        return parts.journal.exclusive(async (view) => journaled(parts, importOf(parts, one, view)))
      const { amountRaw } = checkTerms(one.intent, one.context, parts.ports.clock.nowMs() / 1_000)
      await spending.take(one.context.bond.token as Address, one.intent.proposer, amountRaw)
      const { authorization } = await signInRound(
        { ...parts, context: async () => wholeOf(one), signer: async () => signer },
        one.intent,
      )
      return { kind: 'known', authorization }
    })
    results.push(resultOf(made))
  }
  return results
}

function wholeOf({ whole }: ToSign): QuestionContext {
  if (whole === undefined)
    throw new Error('the context of a row for an outside wallet was not kept')
  return whole
}

async function journaled({ journal }: BatchParts, made: Made): Promise<Made> {
  if (made.kind === 'record') await journal.append([{ kind: 'signed', data: made.signed }])
  return made
}

const wrongSigner = (signer: Signer | undefined, proposer: Address) =>
  new UsageError(
    'wrong_signer',
    `the key is for ${signer?.address ?? 'nobody'}, the proposer is ${proposer}`,
    {
      hint: "choose the proposer's own account with --account",
    },
  )

/** `checkBatch` has refused such an input; this holds R6 for every other caller. */
const nonceInGroup = (nonce: string) =>
  new UsageError(
    'nonce_reserved',
    `nonce ${nonce.split(' ')[1]} stands twice in this batch for the same proposer`,
    {
      hint: 'leave the nonce out: a fresh one is chosen',
    },
  )

/** `checkBatch` has refused such an input; this holds R8 for every other caller. */
const heldInGroup = () =>
  new UsageError(
    'duplicate_row',
    'the same question stands twice in this batch for the same proposer',
    { hint: 'leave one of them' },
  )
