/**
 * Rows of a batch input as intents to sign or complete items to send (contract §6, Batch input),
 * checked as a whole before use.
 */
import { optional } from 'zod/mini'
import type { Address, Hash, Hex } from '../../ports.js'
import { UsageError } from '../../protocol/errors.js'
import { readJson } from '../../protocol/json.js'
import { outcomeKeys, outcomeOf, priceOf } from '../../protocol/proposal.js'
import {
  BatchItem,
  ClientRef,
  isIdentifier,
  NonzeroAddress,
  OutcomeKey,
  Uint256,
} from '../../protocol/schema.js'
import { howToPin } from '../trust/trust.js'
import {
  arrayRows,
  type BatchFormat,
  type BatchSource,
  csvRows,
  documentSchema,
  formatOf,
  inputFault,
  lineRows,
  type Place,
  type TextRow,
} from './rows.js'

interface RowBase extends Place {
  /** Question id or slug. */
  readonly identifier: string
  readonly clientRef?: string
}

/** To be signed. Terms only where the row gives them: they make intents differ (contract §6). */
export interface IntentRow extends RowBase {
  readonly kind: 'intent'
  readonly outcome: OutcomeKey
  readonly proposer?: Address
  readonly amountRaw?: bigint
  readonly nonce?: bigint
  /** Unix seconds. */
  readonly deadlineSeconds?: bigint
}

/** Signed elsewhere, or by `batch sign`: sent as it stands in the file. */
export interface ItemRow extends RowBase {
  readonly kind: 'item'
  readonly item: BatchItem
  /** The item's exact bytes. */
  readonly body: string
}

export type BatchRow = IntentRow | ItemRow

/**
 * The rows in order, some at a time; `format` overrides extension and first byte. Each row's shape
 * is checked. UsageError (exit 2) naming file, line and field: `invalid_row`, `invalid_csv`,
 * `invalid_json_array`, `input_torn`, `row_too_long`, `too_many_rows`, `input_too_large`.
 */
export async function* readBatch(
  source: BatchSource,
  format?: BatchFormat,
): AsyncGenerator<BatchRow[]> {
  const chosen = format ?? (await formatOf(source))
  if (chosen === 'csv') {
    yield* fromCsv(source)
    return
  }
  const schema = await documentSchema(source)
  if (schema !== undefined && schema !== signedSchema)
    throw inputFault(
      source,
      undefined,
      'invalid_row',
      'it is the printed result of another command, which holds no rows',
      signedHint,
    )
  const texts =
    schema !== undefined
      ? arrayRows(source, 'results')
      : chosen === 'json'
        ? arrayRows(source)
        : lineRows(source)
  for await (const rows of texts) yield rows.flatMap((row) => fromJson(source, row) ?? [])
}

/** What `batch sign --json` prints. */
const signedSchema = 'proposer.batch-signed/1'
const signedHint = 'give the rows themselves, or what `proposer batch sign` wrote with -o'

/**
 * What the whole input comes to. `fingerprint` is the same for the same rows, however they are
 * spelled.
 */
export interface BatchCount {
  readonly rows: number
  readonly intents: number
  readonly fingerprint: string
}

export interface BatchChecks {
  readonly hash: Hash
  /** Whose proposals the intents become; asked for where a row does not name one. */
  readonly proposer?: () => Promise<Address>
  /** The question id of an identifier, as far as it is known without asking. */
  readonly questionOf: (identifier: string) => Hex | undefined
  /**
   * Who holds the nonce that a row names for itself, for something else than the row wants (R6);
   * default: nobody is known to.
   */
  readonly nonceHolder?: (row: IntentRow, questionId: Hex, proposer: Address) => string | undefined
}

/**
 * Reads the whole input once before anything is signed or sent: every row's shape, that no
 * client_ref and no question of one proposer comes twice (UsageError `duplicate_row`, both lines
 * named), and that no nonce of one proposer does, or is held by something else (`nonce_reserved`,
 * R6). A proposer other than the account's: `wrong_signer`. A slug that is not pinned:
 * `untrusted_slug`. An empty input: `empty_input`.
 */
export async function checkBatch(
  source: BatchSource,
  format: BatchFormat | undefined,
  checks: BatchChecks,
): Promise<BatchCount> {
  const { hash, questionOf, nonceHolder } = checks
  const refs = newLineTable(hash)
  const questions = newLineTable(hash)
  const nonces = newLineTable(hash)
  let [rows, intents, fingerprint] = [0, 0, '']
  for await (const some of readBatch(source, format)) {
    for (const row of some) {
      rows++
      if (row.kind === 'intent') intents++
      const proposer = row.kind === 'item' ? row.item.proposer : await signerOf(source, row, checks)
      const questionId = questionOf(row.identifier)
      if (questionId === undefined) {
        throw inputFault(
          source,
          row,
          'untrusted_slug',
          `the slug ${row.identifier} is not pinned in the trust file`,
          howToPin(row.identifier),
        )
      }
      const earlierRef =
        row.clientRef === undefined ? undefined : refs.add(row.clientRef, numberOf(row))
      if (earlierRef !== undefined)
        throw twice(
          source,
          earlierRef,
          row,
          'have the same client_ref',
          'give every row a client_ref of its own',
        )
      const earlier = questions.add(`${questionId} ${proposer}`, numberOf(row))
      if (earlier !== undefined) {
        throw twice(
          source,
          earlier,
          row,
          'are the same question for the same proposer',
          'leave one of them: a round takes one answer of a wallet',
        )
      }
      const nonce = row.kind === 'item' ? row.item.permit.nonce : row.nonce
      const earlierNonce =
        nonce === undefined ? undefined : nonces.add(`${proposer} ${nonce}`, numberOf(row))
      if (earlierNonce !== undefined)
        throw twice(
          source,
          earlierNonce,
          row,
          `have the same nonce ${nonce} of ${proposer}`,
          nonceHint,
          'nonce_reserved',
        )
      const holder =
        row.kind === 'intent' && row.nonce !== undefined
          ? nonceHolder?.(row, questionId, proposer as Address)
          : undefined
      if (holder !== undefined)
        throw inputFault(
          source,
          row,
          'nonce_reserved',
          `nonce ${nonce} of ${proposer} is taken already, by ${holder}`,
          nonceHint,
        )
      fingerprint = hash.sha256(`${fingerprint} ${keyOf(row)}`)
    }
  }
  if (rows === 0)
    throw inputFault(
      source,
      undefined,
      'empty_input',
      'it holds no rows',
      'give one proposal per line',
    )
  return { rows, intents, fingerprint }
}

const nonceHint = 'leave the nonce out: a fresh one is chosen; of signed items send only one'

/** How people count the rows of an input: elements of an array, else lines. */
const numberOf = ({ line, element = line }: Place): number => element

const twice = (
  source: BatchSource,
  earlier: number,
  row: Place,
  what: string,
  hint: string,
  code = 'duplicate_row',
) =>
  new UsageError(
    code,
    `${source.name}: ${row.element === undefined ? 'lines' : 'rows'} ${earlier} and ${numberOf(row)} ${what}`,
    { hint },
  )

async function signerOf(
  source: BatchSource,
  row: IntentRow,
  { proposer }: BatchChecks,
): Promise<Address> {
  const own = await proposer?.()
  if (row.proposer === undefined) return own ?? '0x'
  if (own === undefined || row.proposer === own) return row.proposer
  throw inputFault(
    source,
    row,
    'wrong_signer',
    `the row is for proposer ${row.proposer}, the account is ${own}`,
    "choose the proposer's own account with --account, one batch a proposer",
  )
}

const keyOf = (row: BatchRow): string =>
  row.kind === 'item'
    ? row.body
    : JSON.stringify(
        [
          row.identifier,
          row.clientRef,
          row.proposer,
          row.outcome,
          row.amountRaw,
          row.nonce,
          row.deadlineSeconds,
        ].map((each) => (each === undefined ? null : String(each))),
      )

/**
 * Bytes of a key's SHA-256 that are kept: enough that two keys never meet, little enough for a
 * million rows.
 */
const [keyWords, slotWords] = [3, 4] as const

/**
 * On which line a key came first. Plain numbers in one array: a million strings would not fit
 * beside the journal.
 */
function newLineTable(hash: Hash): { add(key: string, line: number): number | undefined } {
  let slots = new Uint32Array(1_024 * slotWords)
  let used = 0
  const slotOf = (table: Uint32Array, words: readonly number[]) => {
    const size = table.length / slotWords
    for (let slot = (words[0] ?? 0) % size; ; slot = (slot + 1) % size) {
      const at = slot * slotWords
      // Lines count from 1, so that 0 is an empty slot.
      if (table[at + keyWords] === 0 || words.every((word, index) => table[at + index] === word))
        return at
    }
  }
  const grow = () => {
    const larger = new Uint32Array(slots.length * 2)
    for (let at = 0; at < slots.length; at += slotWords) {
      if (slots[at + keyWords] !== 0)
        larger.set(
          slots.subarray(at, at + slotWords),
          slotOf(larger, [...slots.subarray(at, at + keyWords)]),
        )
    }
    slots = larger
  }
  return {
    add(key, line) {
      if ((used + 1) * slotWords * 2 > slots.length) grow()
      const digest = hash.sha256(key)
      const words = Array.from({ length: keyWords }, (_, index) =>
        Number.parseInt(digest.slice(index * 8, index * 8 + 8), 16),
      )
      const at = slotOf(slots, words)
      const earlier = slots[at + keyWords]
      if (earlier !== undefined && earlier !== 0) return earlier
      slots.set([...words, line], at)
      used++
      return undefined
    },
  }
}

const intentFields = [
  'identifier',
  'outcome',
  'proposed_price',
  'client_ref',
  'proposer',
  'amount',
  'nonce',
  'deadline',
] as const
const csvFields: readonly string[] = [
  ...intentFields,
  'max_payment',
  'permit.amount',
  'permit.nonce',
  'permit.deadline',
  'signature',
]

const encoder = new TextEncoder()

/** `undefined`: a line of what `batch sign` printed that holds no item. */
function fromJson(source: BatchSource, { text, whole, ...place }: TextRow): BatchRow | undefined {
  const fault = (detail: string, hint = rowHint) =>
    inputFault(source, place, 'invalid_row', detail, hint)
  const read = readJson(encoder.encode(text))
  if (!read.ok) {
    if (!whole)
      throw inputFault(
        source,
        place,
        'input_torn',
        'the last line is cut off',
        'give the whole file; nothing was signed or sent',
      )
    throw fault(
      read.detail.replace(/^the body is not acceptable JSON: /, 'the row is not one JSON object: '),
    )
  }
  if (typeof read.value !== 'object' || read.value === null || Array.isArray(read.value))
    throw fault('the row is not one JSON object')
  const value = read.value as Record<string, unknown>
  if (value.schema === signedSchema && 'summary' in value) return undefined
  if (!('journal_id' in value)) return rowOf(value, place, text, fault)
  // A result of `batch sign`, or of another verb.
  const { payload } = value
  if (payload === undefined)
    throw fault('it is the printed result of another command, and no row', signedHint)
  // Rejected when it was signed; `-o` leaves it out too.
  if (payload === null) return undefined
  if (typeof payload !== 'object' || Array.isArray(payload))
    throw fault('payload is not a signed item', signedHint)
  return rowOf(payload as Record<string, unknown>, place, undefined, fault)
}

async function* fromCsv(source: BatchSource): AsyncGenerator<BatchRow[]> {
  let names: readonly string[] | undefined
  for await (const records of csvRows(source)) {
    const rows: BatchRow[] = []
    for (const { line, cells } of records) {
      if (names === undefined) {
        names = headerOf(source, line, cells)
        continue
      }
      const fault = (detail: string) => inputFault(source, line, 'invalid_row', detail, rowHint)
      if (cells.length !== names.length)
        throw fault(`the row has ${cells.length} cells, the header has ${names.length}`)
      rows.push(rowOf(objectOf(names, cells), { line }, undefined, fault))
    }
    yield rows
  }
}

const headerHint = `the columns are ${intentFields.join(', ')}; of signed items ${csvFields.slice(-5).join(', ')}`

function headerOf(source: BatchSource, line: number, cells: readonly string[]): readonly string[] {
  const names = cells.map((cell) => cell.trim())
  for (const [index, name] of names.entries()) {
    if (!csvFields.includes(name))
      throw inputFault(
        source,
        line,
        'invalid_csv',
        `the header has a column ${short(name)} that no row has`,
        headerHint,
      )
    if (names.indexOf(name) !== index)
      throw inputFault(
        source,
        line,
        'invalid_csv',
        `the header has the column ${name} twice`,
        headerHint,
      )
  }
  return names
}

/**
 * An empty cell is a field that is not given. A permit's deadline is a number in the item (§2.7).
 */
function objectOf(names: readonly string[], cells: readonly string[]): Record<string, unknown> {
  const row: Record<string, unknown> = {}
  const permit: Record<string, unknown> = {}
  for (const [index, name] of names.entries()) {
    const cell = cells[index] ?? ''
    if (cell === '') continue
    if (!name.startsWith('permit.')) row[name] = cell
    else
      permit[name.slice(7)] =
        name === 'permit.deadline' && /^\d{1,15}$/.test(cell) ? Number(cell) : cell
  }
  return Object.keys(permit).length === 0 ? row : { ...row, permit }
}

const rowHint =
  'a row is {identifier, outcome or proposed_price, client_ref?, proposer?, amount?, nonce?, deadline?}, or a signed batch item'

function rowOf(
  value: Record<string, unknown>,
  place: Place,
  text: string | undefined,
  fault: (detail: string) => UsageError,
): BatchRow {
  if ('version' in value)
    throw fault('it is a v1 payload, which no batch takes (§9): send it with `proposer submit`')
  if ('signature' in value) return itemOf(value, place, text, fault)
  for (const name of Object.keys(value)) {
    if (!intentFields.some((field) => field === name))
      throw fault(`${short(name)} is not a field of a row`)
  }
  const { identifier, outcome: key, proposed_price: price, client_ref: clientRef, proposer } = value
  if (typeof identifier !== 'string' || !isIdentifier(identifier))
    throw fault('identifier is neither a question id nor a slug')
  const outcome = outcomeIn(key, price, fault)
  if (clientRef !== undefined && !ClientRef.safeParse(clientRef).success)
    throw fault('client_ref is not a text of at most 256 bytes without control characters')
  if (proposer !== undefined && !NonzeroAddress.safeParse(proposer).success)
    throw fault('proposer is not a lowercase address')
  const amountRaw = whole(value.amount, 'amount', fault)
  const nonce = whole(value.nonce, 'nonce', fault)
  const deadlineSeconds = whole(value.deadline, 'deadline', fault)
  return {
    kind: 'intent',
    ...place,
    identifier,
    outcome,
    ...(clientRef === undefined ? {} : { clientRef: clientRef as string }),
    ...(proposer === undefined ? {} : { proposer: proposer as Address }),
    ...(amountRaw === undefined ? {} : { amountRaw }),
    ...(nonce === undefined ? {} : { nonce }),
    ...(deadlineSeconds === undefined ? {} : { deadlineSeconds }),
  }
}

/** Of a value that is told in an error. */
const longestShown = 40

const OptionalOutcome = optional(OutcomeKey)

function outcomeIn(
  key: unknown,
  price: unknown,
  fault: (detail: string) => UsageError,
): OutcomeKey {
  if (key === undefined && price === undefined)
    throw fault('outcome is missing (p1, p2 or p3; or proposed_price)')
  const outcome = OptionalOutcome.safeParse(key)
  if (!outcome.success)
    throw fault(`outcome ${JSON.stringify(key)?.slice(0, longestShown)} is none of p1, p2, p3`)
  if (price === undefined) return outcome.data ?? 'p1'
  const priced = outcomeOf(String(price))
  if (priced === undefined)
    throw fault(`proposed_price is none of ${outcomeKeys.map((each) => priceOf[each]).join(', ')}`)
  if (outcome.data !== undefined && outcome.data !== priced)
    throw fault('outcome and proposed_price say different things')
  return priced
}

/** A decimal string, or a JSON number small enough to be exact. */
function whole(
  value: unknown,
  field: string,
  fault: (detail: string) => UsageError,
): bigint | undefined {
  if (value === undefined) return undefined
  const text = typeof value === 'number' ? String(value) : value
  if (!Uint256.safeParse(text).success)
    throw fault(`${field} is not a whole number below 2^256 in digits`)
  return BigInt(text as string)
}

function itemOf(
  value: Record<string, unknown>,
  place: Place,
  text: string | undefined,
  fault: (detail: string) => UsageError,
): ItemRow {
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
  return {
    kind: 'item',
    ...place,
    identifier: item.identifier,
    ...(item.client_ref === undefined ? {} : { clientRef: item.client_ref }),
    item,
    body: text ?? JSON.stringify(item),
  }
}

/** A name of the input in a message: outside text, so not at any length. */
const short = (name: string) => JSON.stringify(name.length > 40 ? `${name.slice(0, 40)}…` : name)
