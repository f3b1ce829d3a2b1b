/** What rows must be beside each other, before anything is signed or sent (contract §6). */

import type { Hash, Hex } from '#ports'
import { type TokenUnits, toRaw } from '#protocol/amount'
import { UsageError } from '#protocol/errors'
import { outcomeNamed } from '#protocol/outcome-words'
import { outcomeOf } from '#protocol/proposal'
import type { Address } from '#protocol/schema'
import { isSlug } from '#protocol/words'
import { isOpen } from '../journal/authorizations.js'
import type { JournalView } from '../journal/journal.js'
import { howToPin } from '../trust/trust.js'
import { type BatchRow, type IntentRow, readBatch } from './input.js'
import {
  type BatchFormat,
  type BatchSource,
  type GivenRows,
  type InputFaults,
  inputFault,
  newFaults,
} from './rows.js'
import { saysQuestion } from './sheet.js'

type Named = Pick<BatchSource, 'name'>

/** `fingerprint`: however the rows are spelled. */
export interface BatchCount {
  readonly input: readonly BatchRow[]
  readonly rows: number
  readonly intents: number
  /** They are no rows. */
  readonly unanswered: readonly number[]
  readonly fingerprint: string
}

export interface BatchChecks {
  readonly hash: Hash
  readonly proposer?: () => Promise<Address>
  readonly units?: () => Promise<readonly TokenUnits[]>
  /** As far as it is known without asking. */
  readonly questionOf: (identifier: string) => Hex | undefined
  /** For something else than the row wants (R6). */
  readonly nonceHolder?: (row: IntentRow, questionId: Hex, proposer: Address) => string | undefined
}

/** All faults at once, or left to the caller who has `given` where they go. */
export async function checkBatch(
  source: BatchSource | GivenRows,
  format: BatchFormat | undefined,
  checks: BatchChecks,
  given?: InputFaults,
): Promise<BatchCount> {
  const faults = given ?? newFaults(source)
  const unanswered: number[] = []
  const rows = readBatch(source, format, {
    fault: faults.add,
    unanswered: ({ line }) => unanswered.push(line),
  })
  const check = newRowCheck(source, checks)
  let fingerprint = ''
  for (const row of rows) {
    fingerprint = checks.hash.sha256(`${fingerprint} ${keyOf(row)}`)
    const own = row.kind === 'intent' ? await checks.proposer?.() : undefined
    try {
      await checkUnit(source, row, checks)
      check(row, own)
    } catch (error) {
      if (!(error instanceof UsageError)) throw error
      faults.add(error)
    }
  }
  if (given === undefined) faults.throwAny()
  const intents = rows.filter(({ kind }) => kind === 'intent').length
  if (rows.length > 0 || faults.refuses)
    return { input: rows, rows: rows.length, intents, unanswered, fingerprint }
  const [what, hint] =
    unanswered.length > 0
      ? ['no outcome is filled in', 'fill in the outcome of the questions to propose on']
      : ['it holds no rows', 'give one proposal per line']
  throw inputFault(source, undefined, 'empty_input', what, hint)
}

/**
 * Only the question tells what an answer in words means, or whether the columns beside it are its
 * own.
 */
export const needsLook = (row: BatchRow) =>
  row.kind === 'intent' && (outcomeNamed(row.outcome) === undefined || saysQuestion(row.columns))

async function checkUnit(source: Named, row: BatchRow, { units }: BatchChecks) {
  if (row.kind !== 'intent' || row.amount === undefined) return
  const known = (await units?.()) ?? []
  try {
    toRaw(row.amount, known)
  } catch (error) {
    if (!(error instanceof UsageError)) throw error
    throw inputFault(source, row, error.code, error.detail, error.meta.hint ?? '')
  }
}

function newRowCheck(source: Named, { questionOf, nonceHolder }: BatchChecks) {
  const [refs, questions, nonces] = [newPlaces(), newPlaces(), newPlaces()]
  return (row: BatchRow, own: Address | undefined) => {
    const { identifier, clientRef } = row
    const at = row.element ?? row.line
    const proposer = row.kind === 'item' ? row.item.proposer : signerOf(source, row, own)
    const questionId = questionOf(identifier)
    if (questionId === undefined) {
      const detail = `the slug ${identifier} is not pinned in the trust file`
      throw inputFault(source, row, 'untrusted_slug', detail, howToPin(identifier))
    }
    checkSlug(source, row, questionId, questionOf)
    const once = (
      places: Map<string, number>,
      key: string,
      what: string,
      hint: string,
      code = 'duplicate_row',
    ) => {
      const earlier = places.get(key)
      places.set(key, earlier ?? at)
      if (earlier === undefined) return
      const rows = row.element === undefined ? 'lines' : 'rows'
      const detail = `${source.name}: ${rows} ${earlier} and ${at} ${what}`
      throw new UsageError(code, detail, { hint, at })
    }
    if (clientRef !== undefined)
      once(refs, clientRef, 'have the same client_ref', 'give every row its own client_ref')
    once(
      questions,
      `${questionId} ${proposer}`,
      'are the same question for the same proposer',
      'keep one of them: a round accepts one answer from a wallet',
    )
    const nonce = row.kind === 'item' ? row.item.permit.nonce : row.nonce
    if (nonce === undefined) return
    const what = `have the same nonce ${nonce} of ${proposer}`
    once(nonces, `${proposer} ${nonce}`, what, nonceHint, 'nonce_reserved')
    const holder = row.kind === 'intent' ? nonceHolder?.(row, questionId, proposer) : undefined
    if (holder === undefined) return
    const detail = `nonce ${nonce} of ${proposer} is taken already, by ${holder}`
    throw inputFault(source, row, 'nonce_reserved', detail, nonceHint)
  }
}

/** A sheet that was sorted by some of its columns has slugs beside identifiers of others. */
function checkSlug(
  source: Named,
  row: BatchRow,
  questionId: Hex,
  questionOf: BatchChecks['questionOf'],
) {
  const slug = row.columns?.slug ?? ''
  const meant = isSlug(slug) ? questionOf(slug) : undefined
  if (meant === undefined || meant === questionId) return
  const detail = `the slug ${slug} is pinned to ${meant}, and the identifier is ${questionId}`
  const hint = 'make the sheet again: its columns no longer belong together'
  throw inputFault(source, row, 'untrusted_slug', detail, hint)
}

const nonceHint = 'leave the nonce out: a fresh one is chosen; of signed items send only one'

const newPlaces = () => new Map<string, number>()

function signerOf(source: Named, row: IntentRow, own: Address | undefined) {
  if (row.proposer === undefined) return own ?? '0x'
  if (own === undefined || row.proposer === own) return row.proposer
  throw inputFault(
    source,
    row,
    'wrong_signer',
    `the row is for proposer ${row.proposer}, the account is ${own}`,
    "choose that proposer's account with --account; one batch per proposer",
  )
}

function keyOf(row: BatchRow) {
  if (row.kind === 'item') return row.body
  const { amount, lifeSeconds, ...own } = row
  const { identifier, clientRef, proposer, outcome, amountRaw, nonce, deadlineSeconds } = own
  const terms = [identifier, clientRef, proposer, outcome, amountRaw, nonce, deadlineSeconds]
  // Only where they are given: an input without them has the fingerprint that it always had.
  if (amount !== undefined || lifeSeconds !== undefined)
    return JSON.stringify([...terms, amount?.text, lifeSeconds].map((each) => String(each)))
  return JSON.stringify(terms.map((each) => (each === undefined ? null : String(each))))
}

/**
 * What is open for the row's own question is told later, with more to say of it (R8). `resume`: a
 * reservation without a signature may be this very input's, and costs its row only.
 */
export function nonceHolder(
  view: JournalView,
  of: { readonly chainId: number; readonly nowMs: number; readonly resume: boolean },
  row: IntentRow,
  questionId: Hex,
  proposer: Address,
) {
  const nonce = String(row.nonce)
  if (row.nonce === undefined || !view.isReserved(proposer, nonce)) return undefined
  const holds = ({ terms }: { readonly terms: { proposer: string; nonce: string } }) =>
    terms.proposer === proposer && terms.nonce === nonce
  const isOwn = view
    .byQuestion(questionId)
    .some(
      (one) =>
        one.signed.chainId === of.chainId &&
        holds(one.signed) &&
        (outcomeNamed(row.outcome, one.signed.labels) === outcomeOf(one.signed.terms.price) ||
          isOpen(one, of.nowMs)),
    )
  if (isOwn) return undefined
  const signed = view.authorizations.find((one) => holds(one.signed))
  if (signed !== undefined) return `${signed.id} for question ${signed.signed.questionId}`
  const given = view.offers.find(({ offered }) => holds(offered))
  if (given === undefined)
    return of.resume ? undefined : 'an earlier run that did not reach signing'
  const { offered, id } = given
  return offered.questionId === questionId
    ? undefined
    : `${id}, typed data for question ${offered.questionId}`
}
