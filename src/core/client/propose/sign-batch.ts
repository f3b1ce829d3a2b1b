/**
 * Signatures in groups (R6, R8), a hundred at a time under the lock: nonces in one append, then
 * the signatures in another.
 */

import { onChain } from '#chain/unavailable'
import type { Signer } from '#ports'
import { ProposerError, UsageError } from '#protocol/errors'
import { toHex } from '#protocol/witness'
import { limits } from '#protocol/words'
import { pinnedHeads, spentNonces } from '../funds/funds.js'
import type { BatchRow } from '../input/input.js'
import { inGroups } from '../input/rows.js'
import type { JournaledAuthorization } from '../journal/authorizations.js'
import type { JournalView } from '../journal/journal.js'
import { chainChecks, type JournalEntry, type Signed } from '../journal/records.js'
import { chainNow } from '../trust/context.js'
import {
  nothingPinned,
  type QuestionContext,
  requireImplementations,
  sharedRound,
} from '../trust/trust.js'
import { signInRound, wrongSigner } from './authorize.js'
import { byRound, offerOpen } from './intent.js'
import type { Spending } from './look.js'
import { asItemError } from './outcome.js'
import { importRecord, newMisplaced } from './payload.js'
import {
  type BatchParts,
  type Planned,
  planRows,
  type Ready,
  type ToImport,
  type ToSign,
} from './plan.js'
import {
  acknowledgedOf,
  firstRulesNotes,
  RulesChangedError,
  type RulesStanding,
  requireRules,
  rulesStanding,
  toldBy,
} from './rules.js'
import {
  draftOf,
  isOwnFailure,
  newAuthorization,
  type Reserved,
  type Signing,
  signDrafts,
} from './sign.js'
import { checkTerms, checkTimeline, cutNotes, nonceReserved, nonceSpent } from './terms.js'

type Waiting = ToSign | ToImport

type Made = Signing | { readonly imported: Signed } | Reserved

interface Taken {
  /** Question ids and keys of shared rounds, by proposer. */
  readonly questions: Set<string>
  readonly nonces: Set<string>
}

/** A wallet outside, which may ask a person, signs one by one without the lock. */
export async function signGroup(
  parts: BatchParts,
  spending: Spending,
  group: readonly Waiting[],
): Promise<readonly Signing[]> {
  if (group.length === 0) return []
  const signer = group.some(({ kind }) => kind === 'sign') ? await parts.signer() : undefined
  if (signer?.signTypedData !== undefined) return signOneByOne(parts, spending, group, signer)
  const { chain, trust, ports, journal, recover } = parts
  if (chain !== undefined && signer !== undefined && trust.implementations === undefined)
    parts.note?.(nothingPinned)
  const nowSeconds =
    chain === undefined ? ports.clock.nowMs() / 1_000 : await chainNow(chain, trust, ports.clock)
  // A wallet without code need not be asked for each signature.
  const hasCode =
    chain !== undefined &&
    signer !== undefined &&
    (await onChain(() => chain.code(signer.address))) !== '0x'
  const signing = { ports, journal, recover, chain: hasCode ? chain : undefined }
  const rules = await rulesOfRows(parts, group)
  return journal.exclusive(async (view) => {
    const taken: Taken = { questions: new Set(), nonces: new Set() }
    const signings: Promise<readonly Signing[]>[] = []
    let hasFailed = false
    try {
      for (let at = 0; at < group.length && !hasFailed; at += limits.batchItems) {
        const made: Made[] = []
        for (const one of group.slice(at, at + limits.batchItems))
          made.push(await make(parts, spending, { one, view, signer, nowSeconds, rules }, taken))
        const reserved = await withoutSpent(parts, made)
        const entries = reserved.flatMap(entriesOf)
        if (entries.length > 0) await journal.append(entries)
        // Another thread may be at these while the next are made ready.
        const some = signSome(signing, reserved, signer)
        some.catch(() => {
          hasFailed = true
        })
        signings.push(some)
      }
    } finally {
      // Nothing goes on without the lock.
      await Promise.allSettled(signings)
    }
    return (await Promise.all(signings)).flat()
  })
}

function entriesOf(made: Made): readonly JournalEntry[] {
  if ('draft' in made) return made.reserving
  return 'imported' in made ? [{ kind: 'signed', data: made.imported }] : []
}

async function signSome(
  parts: Parameters<typeof signDrafts>[0],
  made: readonly Made[],
  signer: Signer | undefined,
): Promise<readonly Signing[]> {
  const drafts = made.flatMap((one) => ('draft' in one ? [one.draft] : []))
  const signed = (
    signer === undefined ? [] : await signDrafts(parts, drafts, signer, 'batch')
  ).values()
  return made.map((one): Signing => {
    if ('imported' in one) return newAuthorization(one.imported)
    if (!('draft' in one)) return one
    const signing: Signing | undefined = signed.next().value
    if (signing === undefined) throw new Error('a draft was not signed')
    return signing
  })
}

interface Making {
  readonly one: Waiting
  readonly view: JournalView
  readonly signer: Signer | undefined
  readonly nowSeconds: number
  readonly rules: RowRules
}

async function make(
  parts: BatchParts,
  spending: Spending,
  making: Making,
  { questions, nonces }: Taken,
): Promise<Made> {
  const { one } = making
  const [questionId, proposer] =
    one.kind === 'import'
      ? [one.payload.proposal.questionId, one.payload.proposal.proposer]
      : [one.context.question_id, one.intent.proposer]
  const shared =
    one.kind === 'sign' ? sharedRound(parts.trust, one.context, () => one.ref) : undefined
  const keys = [questionId, ...(shared === undefined ? [] : [shared])].map(
    (key) => `${key} ${proposer}`,
  )
  // R8 and R6 for callers whose input nobody has checked.
  const made = keys.some((key) => questions.has(key))
    ? twin()
    : await ownFailure(() =>
        one.kind === 'import'
          ? importOf(parts, one, making.view)
          : draftFor(parts, spending, one, making),
      )
  for (const key of keys) questions.add(key)
  const record = 'draft' in made ? made.draft : 'imported' in made ? made.imported : undefined
  if (record === undefined) return made
  const nonce = `${record.terms.proposer} ${record.terms.nonce}`
  if (nonces.has(nonce))
    return nonceReserved(
      `${record.terms.nonce} appears twice in this batch for the same proposer`,
      'the nonce',
    )
  nonces.add(nonce)
  return made
}

async function draftFor(
  parts: BatchParts,
  spending: Spending,
  row: ToSign,
  { view, signer, nowSeconds, rules: read }: Making,
): Promise<Made> {
  const { intent, context, price, labels, title, witness, ref } = row
  if (signer?.address !== intent.proposer) throw wrongSigner(signer, intent)
  const { same } = byRound(parts, intent, view, context, () => ref)
  if (same.kind === 'refuse') throw same.error
  if (same.kind === 'reuse') return same.authorization
  if (same.kind === 'resume') throw offerOpen(same.offer)
  checkTimeline(parts.trust, context, view)
  const rules = read.get(row)
  if (rules instanceof ProposerError) throw rules
  const checked = checkTerms(intent, context, nowSeconds)
  const { amountRaw, deadlineSeconds } = checked
  for (const note of cutNotes(intent, checked, context)) parts.note?.(note)
  await spending.take(context.bond.token, intent.proposer, amountRaw)
  const nonce = intent.nonce ?? parts.journal.nextNonce()
  const digest = toHex(
    witness.digest({
      price,
      amount: String(amountRaw),
      nonce: String(nonce),
      deadline: String(deadlineSeconds),
    }),
  )
  // Its context says whether it is the chain's; nonce and funds are examined here.
  const unchecked =
    parts.chain === undefined
      ? chainChecks
      : context.source === 'chain'
        ? []
        : (['round', 'bond'] as const)
  for (const note of firstRulesNotes(intent.identifier, rules)) parts.note?.(note)
  const terms = {
    context,
    price,
    labels,
    title,
    amountRaw,
    nonce,
    deadlineSeconds,
    digest,
    unchecked,
  }
  return draftOf(parts, intent, { ...terms, round: ref, rules }, view)
}

async function importOf(
  parts: BatchParts,
  { payload }: ToImport,
  view: JournalView,
): Promise<Made> {
  const { proposal, body, identity } = payload
  const known = view.byIdentity(identity)
  if (known !== undefined) return known
  if (view.isReserved(proposal.proposer, proposal.nonce))
    newMisplaced(parts.trust.chain_id, view)(body, proposal)
  return { imported: importRecord(parts, view, payload) }
}

async function ownFailure<T>(work: () => Promise<T>): Promise<T | ProposerError> {
  try {
    return await work()
  } catch (error) {
    if (isOwnFailure(error)) return error
    throw error
  }
}

/** Before the nonce is reserved. */
async function withoutSpent(
  { chain, trust }: BatchParts,
  made: readonly Made[],
): Promise<readonly Made[]> {
  const claims = made.flatMap((one) => {
    if (!('draft' in one)) return []
    const { id, terms } = one.draft
    return [{ id, owner: terms.proposer, nonce: BigInt(terms.nonce) }]
  })
  if (chain === undefined || claims.length === 0) return made
  const [{ latest }] = await Promise.all([
    pinnedHeads(chain, trust),
    requireImplementations(chain, trust),
  ])
  const spent = await onChain(() => spentNonces(chain, trust.permit2, latest.number, claims))
  return made.map((one) =>
    'draft' in one && spent.has(one.draft.id)
      ? nonceSpent(one.draft.terms.nonce, one.draft.terms.proposer)
      : one,
  )
}

async function signOneByOne(
  parts: BatchParts,
  spending: Spending,
  group: readonly Waiting[],
  signer: Signer,
): Promise<readonly Signing[]> {
  const results: Signing[] = []
  for (const one of group) {
    const made = await ownFailure(async () => {
      if (one.kind === 'import') return signGroup(parts, spending, [one])
      const { intent, context } = one
      const { amountRaw } = checkTerms(intent, context, parts.ports.clock.nowMs() / 1_000)
      await spending.take(context.bond.token, intent.proposer, amountRaw)
      const signing = { ...parts, context: async () => wholeOf(one), signer: async () => signer }
      return [(await signInRound(signing, intent)).authorization]
    })
    results.push(...[made].flat())
  }
  return results
}

function wholeOf({ whole }: ToSign): QuestionContext {
  if (whole === undefined)
    throw new Error('the context of a row for an external wallet was not kept')
  return whole
}

const twin = () =>
  new UsageError(
    'duplicate_row',
    'the same question or round appears twice in this batch for the same proposer',
    'leave one of them',
  )

export async function authorizePlans(
  parts: BatchParts,
  plans: readonly Planned[],
  spending: Spending,
): Promise<readonly Ready[]> {
  const waiting = plans.filter(
    (plan): plan is ToSign | ToImport => plan.kind === 'sign' || plan.kind === 'import',
  )
  const signings = await signGroup(parts, spending, waiting)
  const made = new Map(waiting.map((plan, at) => [plan.row, signings[at]]))
  return plans.map((plan): Ready => {
    if (plan.kind !== 'sign' && plan.kind !== 'import') return plan
    const { row } = plan
    const signing = made.get(row)
    if (signing === undefined) throw new Error('an item was left unsigned')
    return signing instanceof ProposerError
      ? { kind: 'rejected', row, error: signing }
      : { kind: 'send', row, authorization: signing }
  })
}

export type RowSigned =
  | {
      readonly row: BatchRow
      readonly authorization: JournaledAuthorization
      readonly reused: boolean
      readonly error?: undefined
    }
  | { readonly row: BatchRow; readonly error: ProposerError }

/**
 * Durable before they are yielded. The next contexts are learned meanwhile; what is decided then
 * is examined again under the lock.
 */
export async function* signBatch(
  parts: BatchParts,
  rows: readonly BatchRow[],
  options: { readonly spending: Spending; readonly signal?: AbortSignal },
): AsyncGenerator<readonly RowSigned[]> {
  const leaving = new AbortController()
  const signal = AbortSignal.any([leaving.signal, ...(options.signal ? [options.signal] : [])])
  const rounds = new Map()
  // Contexts that cost budget come slowly: what there is of them is signed.
  const groups = inGroups(rows, parts.contextsAreFree ? 2 * limits.batchItems : limits.batchItems)
  const plan = async (group: readonly BatchRow[] | undefined) =>
    group && planRows(parts, group, { signal, rounds })
  let coming = plan(groups[0])
  try {
    for (let at = 1; ; at++) {
      const plans = await coming
      if (plans === undefined) return
      coming = plan(groups[at])
      coming.catch(() => undefined)
      signal.throwIfAborted()
      const signed = await authorizePlans(parts, plans, options.spending)
      yield signed.map((one, index): RowSigned => {
        const { row } = one
        if (one.kind === 'rejected') return { row, error: asItemError(row, one.error) }
        if (one.kind === 'skipped') throw new Error('nothing is skipped where nothing is sent')
        return {
          row,
          authorization: one.authorization,
          reused: plans[index]?.kind === 'send',
        }
      })
    }
  } finally {
    leaving.abort()
    await Promise.allSettled([coming])
  }
}

type RowRules = ReadonlyMap<ToSign | ToImport, RulesStanding | RulesChangedError>

/** At one block. Without the lock: a person may take a minute. */
async function rulesOfRows(
  { chain, trust, journal, askRules }: BatchParts,
  group: readonly (ToSign | ToImport)[],
): Promise<RowRules> {
  const rows = group.flatMap((one) =>
    one.kind === 'sign' && one.rules !== undefined ? [{ one, read: one.rules }] : [],
  )
  const found = new Map<ToSign, RulesStanding | RulesChangedError>()
  if (chain === undefined || rows.length === 0) return found
  const [{ readRules }, { latest }] = await Promise.all([
    import('#chain/rules'),
    pinnedHeads(chain, trust),
  ])
  const view = await journal.load()
  const rules = await onChain(() =>
    Promise.all(rows.map(({ read }) => readRules(chain, read.question, latest.number))),
  )
  for (const [at, { one, read }] of rows.entries()) {
    const now = rules[at]
    if (now === undefined) continue
    const { intent, context } = one
    const seen = acknowledgedOf(view, context)
    const standing = rulesStanding(now, intent, seen, toldBy(read))
    found.set(one, await orChanged(intent.identifier, standing, askRules))
  }
  return found
}

async function orChanged(
  identifier: string,
  standing: RulesStanding,
  ask: BatchParts['askRules'],
): Promise<RulesStanding | RulesChangedError> {
  try {
    await requireRules(identifier, standing, ask)
    return standing
  } catch (error) {
    if (error instanceof RulesChangedError) return error
    throw error
  }
}
