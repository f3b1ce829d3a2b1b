/**
 * Rows of a batch input as intents to sign or complete items to send, and what they must be beside
 * each other before anything is signed or sent (contract §6, Batch input).
 */

import * as z from 'zod/mini'
import type { Hash, Hex } from '#ports'
import { lowercased } from '#protocol/address'
import { parseAmount, type TokenUnits, toRaw, type WrittenAmount } from '#protocol/amount'
import { instantMs, spanMs } from '#protocol/duration'
import { UsageError } from '#protocol/errors'
import { objectOf, readJson } from '#protocol/json'
import { identifierHint, namedQuestion } from '#protocol/market-url'
import { outcomeNamed, wordFault } from '#protocol/outcome-words'
import { outcomeKeys, outcomeOf, priceOf } from '#protocol/proposal'
import {
  type Address,
  BatchItem,
  Bytes32,
  ClientRef,
  Identifier,
  NonzeroAddress,
  type SignedProposal,
  Uint256,
} from '#protocol/schema'
import { isSlug, isUint256 } from '#protocol/words'
import { isOpen } from '../journal/authorizations.js'
import type { JournalView } from '../journal/journal.js'
import { howToPin } from '../trust/trust.js'
import {
  arrayRows,
  type BatchFormat,
  type BatchSource,
  type Columns,
  documentSchema,
  formatOf,
  type GivenRows,
  type InputFaults,
  inputFault,
  lineRows,
  newFaults,
  orTold,
  type Place,
  readCells,
  requireFew,
  type SheetRow,
  saysQuestion,
  sheetRows,
  type TextRow,
} from './rows.js'

interface RowBase extends Place {
  readonly identifier: string
  readonly clientRef?: string | undefined
  /** Columns of a sheet that are not ours: carried through to the results. */
  readonly columns?: Columns | undefined
}

/** Given only where the user gave them: they make intents differ (contract §6). */
export interface IntentTerms {
  readonly identifier: string
  /** Raw token units; default: the required bond and the headroom on it. */
  readonly amountRaw?: bigint | undefined
  /** Slack for a bond that is raised later, in hundredths of a percent; not beside an amount. */
  readonly headroomBasisPoints?: bigint | undefined
  /** Refuses above it; raw token units. */
  readonly maxAmountRaw?: bigint | undefined
  /** Tokens that amount and cap are of; absent: any. */
  readonly amountTokens?: readonly Address[] | undefined
  readonly nonce?: bigint | undefined
  /** Unix seconds; default: `lifeSeconds` from now. */
  readonly deadlineSeconds?: bigint | undefined
  /**
   * Terms that are another owner's word (`--parts`), held to what this machine would sign
   * (contract §9).
   */
  readonly foreign?: { readonly amount: boolean; readonly deadline: boolean } | undefined
  /** Default: an hour. It makes no intent differ, so that the same file can be run again. */
  readonly lifeSeconds?: bigint | undefined
  /** Journal id of the open authorization this one replaces. */
  readonly supersede?: string | undefined
  readonly clientRef?: string | undefined
  readonly slug?: string | undefined
  /** Hash of the clarifications that the answer takes into account (contract §9). */
  readonly rulesSeen?: Hex | undefined
}

export interface IntentRow extends RowBase, IntentTerms {
  readonly kind: 'intent'
  readonly isEvent?: true
  readonly outcome: string
  readonly proposer?: Address | undefined
  /** In the unit of a token, which only the trust file or a node tells (contract §9). */
  readonly amount?: WrittenAmount | undefined
}

/** Signed elsewhere, or by `batch sign`: sent as it stands in the file. */
export interface ItemRow extends RowBase, Pick<IntentTerms, 'supersede'> {
  readonly kind: 'item'
  readonly item: BatchItem
  readonly body: string
  /** A v1 payload, of which `item` says the same. */
  readonly payload?: SignedProposal
}

export type BatchRow = IntentRow | ItemRow

interface Told {
  fault(error: UsageError): void
  unanswered(place: Place): void
}

/** With `told` faults go there, and what can still be read is. */
export function readBatch(
  source: BatchSource | GivenRows,
  format?: BatchFormat,
  told?: Told,
): readonly BatchRow[] {
  const rows: BatchRow[] = []
  const take = <T extends Place>(some: Iterable<T>, read: (row: T) => BatchRow | undefined) =>
    orTold(() => {
      let count = 0
      for (const row of some) {
        requireFew(source, ++count, row)
        rows.push(...[orTold(() => read(row), told?.fault) ?? []].flat())
      }
    }, told?.fault)
  if ('rows' in source)
    take(
      source.rows.map((fields, at) => ({ fields, line: at + 1 })),
      ({ fields, ...place }) => rowOf(fields, place, undefined, faultAt(source, place)),
    )
  else if ((format ?? formatOf(source)) === 'csv')
    take(sheetRows(source, sheetFields), (row) => fromSheet(source, row, told))
  else take(textRows(source, format ?? formatOf(source)), (row) => fromJson(source, row))
  return rows
}

function* textRows(source: BatchSource, format: BatchFormat): Generator<TextRow> {
  const schema = documentSchema(source)
  const what = 'it is the printed result of another command, which holds no rows'
  if (schema !== undefined && schema !== signedSchema)
    throw inputFault(source, undefined, 'invalid_row', what, signedHint)
  if (schema !== undefined) yield* arrayRows(source, 'results')
  else yield* format === 'json' ? arrayRows(source) : lineRows(source)
}

const signedSchema = 'proposer.batch-signed/1'
const signedHint = 'give the rows themselves, or what `proposer batch sign` wrote with -o'

const encoder = new TextEncoder()

type Fault = (detail: string, hint?: string) => UsageError

const faultAt =
  (source: Pick<BatchSource, 'name'>, place: Place): Fault =>
  (detail, hint = rowHint) =>
    inputFault(source, place, 'invalid_row', detail, hint)

function fromJson(source: BatchSource, row: TextRow): BatchRow | undefined {
  const { text, whole, value: element, ...place } = row
  const fault = faultAt(source, place)
  const read =
    element === undefined ? readJson(encoder.encode(text)) : ({ ok: true, value: element } as const)
  if (!read.ok) {
    const hint = 'give the whole file; nothing was signed or sent'
    if (!whole) throw inputFault(source, place, 'input_torn', 'the last line is cut off', hint)
    throw fault(
      read.detail.replace(/^the body is not acceptable JSON: /, 'the row is not one JSON object: '),
    )
  }
  const value = objectOf(read.value)
  if (value === undefined) throw fault('the row is not one JSON object')
  if (value.schema === signedSchema && 'summary' in value) return undefined
  if (!('journal_id' in value)) return rowOf(value, place, text, fault)
  if (value.payload === undefined)
    throw fault('it is the printed result of another command, and no row', signedHint)
  // Rejected when it was signed; `-o` leaves it out too.
  if (value.payload === null) return undefined
  const payload = objectOf(value.payload)
  if (payload === undefined) throw fault('payload is not a signed item', signedHint)
  return rowOf(payload, place, undefined, fault)
}

type Fields = Readonly<Record<string, unknown>>

function fromSheet(source: BatchSource, row: SheetRow, told?: Told): BatchRow | undefined {
  const { line } = row
  const { fields, columns } = readCells(source, row, sheetFields)
  if (
    fields.outcome === undefined &&
    fields.proposed_price === undefined &&
    !('signature' in fields)
  ) {
    told?.unanswered({ line })
    return undefined
  }
  // A worksheet without identifiers is one of slugs.
  const identifier = fields.identifier ?? columns.slug
  const named = identifier === undefined ? fields : { ...fields, identifier }
  const read = rowOf(named, { line }, undefined, faultAt(source, { line }))
  return Object.keys(columns).length === 0 ? read : { ...read, columns }
}

const rowHint =
  'a row is {identifier, outcome or proposed_price, client_ref?, proposer?, amount?, nonce?, deadline?, rules_seen?}, or a signed batch item'

/** A JSON number small enough to be exact counts as its digits. */
const digits = z.transform((value) => (typeof value === 'number' ? String(value) : value))
const Written = z.optional(z.pipe(digits, z.string()))
const IntentInput = z.strictObject({
  identifier: Identifier,
  outcome: z.optional(z.string()),
  proposed_price: z.optional(z.unknown()),
  client_ref: z.optional(ClientRef),
  proposer: z.optional(NonzeroAddress),
  amount: Written,
  nonce: z.optional(z.pipe(digits, Uint256)),
  deadline: Written,
  rules_seen: z.optional(Bytes32),
})
const intentFields = Object.keys(IntentInput.shape)
const sheetFields = {
  intent: intentFields,
  signed: ['max_payment', 'permit.amount', 'permit.nonce', 'permit.deadline', 'signature'],
}

const amountForms = 'is neither raw units in digits nor an amount such as 750usdc or 0.5usdc'
const deadlineForms =
  'is neither Unix seconds nor a duration such as 90m or 2h30m nor a time such as 2026-11-20T05:38:00Z'

const fieldFaults: Readonly<Record<string, string>> = {
  identifier: 'identifier is neither a question id nor a slug nor a URL of Polymarket',
  amount: `amount ${amountForms}`,
  nonce: 'nonce is not a whole number below 2^256 in digits',
  deadline: `deadline ${deadlineForms}`,
  client_ref: 'client_ref is not a text of at most 256 bytes without control characters',
  proposer: 'proposer is not an address, or its checksum (EIP-55) is wrong',
  rules_seen: 'rules_seen is not the hash that `context` prints: 0x and 64 lowercase hex digits',
}

function rowOf(value: Fields, place: Place, text: string | undefined, fault: Fault): BatchRow {
  if ('version' in value)
    throw fault(
      'it is a v1 payload, which a batch does not accept (§9): send it with `proposer submit`',
    )
  if ('signature' in value) return itemOf(value, place, text, fault)
  const named = namedQuestion(String(value.identifier))
  const parsed = IntentInput.safeParse({
    ...value,
    ...(named && { identifier: named.identifier }),
    proposer: lowercased(value.proposer),
  })
  const wrong: UsageError[] = []
  const orWrong = <T>(read: () => T) => orTold(read, (error) => wrong.push(error))
  const issues = parsed.success ? [] : parsed.error.issues
  for (const issue of issues) wrong.push(fieldFault(issue, value, fault))
  const isFaulty = (name: string) => issues.some(({ path }) => path[0] === name)
  const textOf = (name: string) =>
    value[name] === undefined || isFaulty(name) ? undefined : String(value[name])
  const amount = orWrong(() => amountIn(textOf('amount'), fault))
  const deadline = orWrong(() => deadlineIn(textOf('deadline'), fault))
  const outcome = isFaulty('outcome')
    ? undefined
    : orWrong(() => outcomeIn(textOf('outcome'), value.proposed_price, fault))
  if (!parsed.success || outcome === undefined || wrong.length > 0) throw allOf(wrong, place)
  const { identifier, client_ref: clientRef, proposer, nonce, rules_seen: rulesSeen } = parsed.data
  return {
    kind: 'intent',
    ...place,
    identifier,
    ...(named?.isEvent === true && { isEvent: true }),
    outcome,
    clientRef,
    proposer,
    ...amount,
    nonce: nonce === undefined ? undefined : BigInt(nonce),
    ...deadline,
    rulesSeen,
  }
}

function fieldFault(issue: z.core.$ZodIssue, value: Fields, fault: Fault) {
  if (issue.code === 'unrecognized_keys')
    return fault(`${short(issue.keys[0] ?? '')} is not a field of a row`)
  const field = String(issue.path[0])
  return fault(
    fieldFaults[field] ?? `${field} is not a text`,
    field === 'identifier' ? identifierHint(String(value.identifier)) : undefined,
  )
}

function allOf(wrong: readonly UsageError[], place: Place) {
  const [first, ...others] = wrong
  if (first === undefined) throw new Error('a row is faulty without a fault')
  if (others.length === 0) return first
  const more = others.map(({ detail }) => detail.slice(detail.indexOf(': ') + 2))
  const hints = [...new Set(wrong.flatMap(({ meta }) => meta.hint ?? []))].join('; ')
  const at = place.element ?? place.line
  return new UsageError(first.code, [first.detail, ...more].join('; '), { hint: hints, at })
}

function amountIn(text: string | undefined, fault: Fault): Pick<IntentRow, 'amount' | 'amountRaw'> {
  if (text === undefined) return {}
  try {
    const amount = parseAmount(text, 'amount', true)
    // A spreadsheet's power of ten is no unit.
    if (/^e\d+$/.test(amount.unit)) throw fault(`amount ${amountForms}`)
    return amount.unit === 'raw' ? { amountRaw: toRaw(amount, []).raw } : { amount }
  } catch (error) {
    if (!(error instanceof UsageError) || error.code === 'invalid_row') throw error
    throw fault(`amount ${amountForms}`, error.meta.hint)
  }
}

function deadlineIn(
  text: string | undefined,
  fault: Fault,
): Pick<IntentRow, 'deadlineSeconds' | 'lifeSeconds'> {
  if (text === undefined) return {}
  const seconds = (ms: number) => BigInt(Math.floor(ms / 1_000))
  if (isUint256(text)) return { deadlineSeconds: BigInt(text) }
  const [span, instant] = [spanMs(text), instantMs(text)]
  if (span !== undefined) return { lifeSeconds: seconds(span) }
  if (instant !== undefined && instant >= 0) return { deadlineSeconds: seconds(instant) }
  throw fault(`deadline ${deadlineForms}`, 'give deadline 90m, or leave it out for an hour')
}

function outcomeIn(word: string | undefined, price: unknown, fault: Fault) {
  const wrong = word === undefined ? undefined : wordFault(word)
  if (wrong !== undefined) throw fault(`outcome ${short(word ?? '')} ${wrong}`)
  const said = word === undefined ? undefined : (outcomeNamed(word) ?? word.trim())
  const outcome = price === undefined ? said : outcomeOf(String(price))
  if (price !== undefined && outcome === undefined)
    throw fault(
      `proposed_price must be one of ${outcomeKeys.map((each) => priceOf[each]).join(', ')}`,
    )
  if (outcome === undefined)
    throw fault('outcome is missing (p1, p2, p3 or the answer in words; or proposed_price)')
  if (said !== undefined && said !== outcome)
    throw fault('outcome and proposed_price say different things')
  return outcome
}

function itemOf(value: Fields, place: Place, text: string | undefined, fault: Fault): ItemRow {
  const parsed = BatchItem.safeParse(value)
  if (!parsed.success) {
    const [issue] = parsed.error.issues
    const path = issue?.path.map(String).join('.') ?? ''
    if (issue?.code === 'unrecognized_keys')
      throw fault(`${short(issue.keys[0] ?? '')} is not a field of a signed item`)
    throw fault(
      path === ''
        ? 'it is not a signed batch item'
        : `${short(path)} of the signed item is missing or malformed`,
    )
  }
  const item = parsed.data
  const { identifier, client_ref: clientRef } = item
  return { kind: 'item', ...place, identifier, clientRef, item, body: text ?? JSON.stringify(item) }
}

const longestShown = 40

const short = (name: string) =>
  JSON.stringify(name.length > longestShown ? `${name.slice(0, longestShown)}…` : name)

type Named = Pick<BatchSource, 'name'>

export interface BatchChecks {
  readonly hash: Hash
  readonly proposer?: () => Promise<Address>
  readonly units?: () => Promise<readonly TokenUnits[]>
  /** As far as it is known without asking. */
  readonly questionOf: (identifier: string) => Hex | undefined
  /** For something else than the row wants (R6). */
  readonly nonceHolder?: (row: IntentRow, questionId: Hex, proposer: Address) => string | undefined
}

/**
 * All faults at once, or left to the caller who has `given` where they go. `unanswered`: lines
 * that are no rows; `fingerprint`: however the rows are spelled.
 */
export async function checkBatch(
  source: BatchSource | GivenRows,
  format: BatchFormat | undefined,
  checks: BatchChecks,
  given?: InputFaults,
) {
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
      await check(row, own)
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

function newRowCheck(source: Named, { units, questionOf, nonceHolder }: BatchChecks) {
  const [refs, questions, nonces] = [newPlaces(), newPlaces(), newPlaces()]
  return async (row: BatchRow, own: Address | undefined) => {
    const { identifier, clientRef } = row
    const at = row.element ?? row.line
    const fault = (code: string, detail: string, hint: string) =>
      inputFault(source, row, code, detail, hint)
    const amount = row.kind === 'intent' ? row.amount : undefined
    if (amount !== undefined) {
      const known = (await units?.()) ?? []
      orTold(
        () => toRaw(amount, known),
        ({ code, detail, meta }) => {
          throw fault(code, detail, meta.hint ?? '')
        },
      )
    }
    const proposer = row.kind === 'item' ? row.item.proposer : (row.proposer ?? own ?? '0x')
    if (row.kind === 'intent' && own !== undefined && proposer !== own)
      throw fault(
        'wrong_signer',
        `the row is for proposer ${proposer}, the account is ${own}`,
        "choose that proposer's account with --account; one batch per proposer",
      )
    const questionId = questionOf(identifier)
    if (questionId === undefined) {
      const detail = `the slug ${identifier} is not pinned in the trust file`
      throw fault('untrusted_slug', detail, howToPin(identifier))
    }
    // A sheet that was sorted by some of its columns has slugs beside identifiers of others.
    const slug = row.columns?.slug ?? ''
    const meant = isSlug(slug) ? questionOf(slug) : undefined
    if (meant !== undefined && meant !== questionId) {
      const detail = `the slug ${slug} is pinned to ${meant}, and the identifier is ${questionId}`
      const hint = 'make the sheet again: its columns no longer belong together'
      throw fault('untrusted_slug', detail, hint)
    }
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
    throw fault('nonce_reserved', detail, nonceHint)
  }
}

const nonceHint = 'leave the nonce out: a fresh one is chosen; of signed items send only one'

const newPlaces = () => new Map<string, number>()

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
