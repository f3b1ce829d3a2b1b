/** Rows of a batch input as intents to sign or complete items to send (contract §6, Batch input). */

import * as z from 'zod/mini'
import type { UsageError } from '../../protocol/errors.js'
import { readJson } from '../../protocol/json.js'
import { outcomeKeys, outcomeOf, priceOf } from '../../protocol/proposal.js'
import {
  type Address,
  BatchItem,
  ClientRef,
  Identifier,
  NonzeroAddress,
  OutcomeKey,
  Uint256,
} from '../../protocol/schema.js'
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
  readonly clientRef?: string | undefined
}

/** To be signed. Terms only where the row gives them: they make intents differ (contract §6). */
export interface IntentRow extends RowBase {
  readonly kind: 'intent'
  readonly outcome: OutcomeKey
  readonly proposer?: Address | undefined
  readonly amountRaw?: bigint | undefined
  readonly nonce?: bigint | undefined
  /** Unix seconds. */
  readonly deadlineSeconds?: bigint | undefined
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

const encoder = new TextEncoder()

type Fault = (detail: string, hint?: string) => UsageError

const faultAt =
  (source: BatchSource, place: Place): Fault =>
  (detail, hint = rowHint) =>
    inputFault(source, place, 'invalid_row', detail, hint)

/** `undefined`: a line of what `batch sign` printed that holds no item. */
function fromJson(source: BatchSource, { text, whole, ...place }: TextRow): BatchRow | undefined {
  const fault = faultAt(source, place)
  const read = readJson(encoder.encode(text))
  if (!read.ok) {
    const hint = 'give the whole file; nothing was signed or sent'
    if (!whole) throw inputFault(source, place, 'input_torn', 'the last line is cut off', hint)
    throw fault(
      read.detail.replace(/^the body is not acceptable JSON: /, 'the row is not one JSON object: '),
    )
  }
  const value = objectIn(read.value)
  if (value === undefined) throw fault('the row is not one JSON object')
  if (value.schema === signedSchema && 'summary' in value) return undefined
  if (!('journal_id' in value)) return rowOf(value, place, text, fault)
  // A result of `batch sign`, or of another verb.
  if (value.payload === undefined)
    throw fault('it is the printed result of another command, and no row', signedHint)
  // Rejected when it was signed; `-o` leaves it out too.
  if (value.payload === null) return undefined
  const payload = objectIn(value.payload)
  if (payload === undefined) throw fault('payload is not a signed item', signedHint)
  return rowOf(payload, place, undefined, fault)
}

type Fields = Readonly<Record<string, unknown>>

const objectIn = (value: unknown): Fields | undefined =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
    ? (value as Fields)
    : undefined

const signedFields = [
  'max_payment',
  'permit.amount',
  'permit.nonce',
  'permit.deadline',
  'signature',
]

async function* fromCsv(source: BatchSource): AsyncGenerator<BatchRow[]> {
  let names: readonly string[] | undefined
  for await (const records of csvRows(source)) {
    const rows: BatchRow[] = []
    for (const { line, cells } of records) {
      if (names === undefined) {
        names = headerOf(source, line, cells)
        continue
      }
      const fault = faultAt(source, { line })
      if (cells.length !== names.length)
        throw fault(`the row has ${cells.length} cells, the header has ${names.length}`)
      rows.push(rowOf(fieldsOf(names, cells), { line }, undefined, fault))
    }
    yield rows
  }
}

function headerOf(source: BatchSource, line: number, cells: readonly string[]): readonly string[] {
  const hint = `the columns are ${intentFields.join(', ')}; of signed items ${signedFields.join(', ')}`
  const wrong = (detail: string) => inputFault(source, { line }, 'invalid_csv', detail, hint)
  const names = cells.map((cell) => cell.trim())
  for (const [index, name] of names.entries()) {
    if (![...intentFields, ...signedFields].includes(name))
      throw wrong(`the header has a column ${short(name)} that no row has`)
    if (names.indexOf(name) !== index) throw wrong(`the header has the column ${name} twice`)
  }
  return names
}

/** An empty cell is a field that is not given. A permit's deadline is a number in the item (§2.7). */
function fieldsOf(names: readonly string[], cells: readonly string[]): Fields {
  const row: Record<string, unknown> = {}
  const permit: Record<string, unknown> = {}
  for (const [index, name] of names.entries()) {
    const cell = cells[index] ?? ''
    const isNumber = name === 'permit.deadline' && /^\d{1,15}$/.test(cell)
    if (cell === '') continue
    if (name.startsWith('permit.')) permit[name.slice(7)] = isNumber ? Number(cell) : cell
    else row[name] = cell
  }
  return Object.keys(permit).length === 0 ? row : { ...row, permit }
}

const rowHint =
  'a row is {identifier, outcome or proposed_price, client_ref?, proposer?, amount?, nonce?, deadline?}, or a signed batch item'

/** A decimal string, or a JSON number small enough to be exact. */
const Whole = z.optional(
  z.pipe(
    z.transform((value) => (typeof value === 'number' ? String(value) : value)),
    Uint256,
  ),
)
const IntentInput = z.strictObject({
  identifier: Identifier,
  outcome: z.optional(OutcomeKey),
  proposed_price: z.optional(z.unknown()),
  client_ref: z.optional(ClientRef),
  proposer: z.optional(NonzeroAddress),
  amount: Whole,
  nonce: Whole,
  deadline: Whole,
})
const intentFields = Object.keys(IntentInput.shape)

/** What is wrong with a field of an intent. */
const fieldFaults: Readonly<Record<string, string>> = {
  identifier: 'identifier is neither a question id nor a slug',
  client_ref: 'client_ref is not a text of at most 256 bytes without control characters',
  proposer: 'proposer is not a lowercase address',
}

function rowOf(value: Fields, place: Place, text: string | undefined, fault: Fault): BatchRow {
  if ('version' in value)
    throw fault('it is a v1 payload, which no batch takes (§9): send it with `proposer submit`')
  if ('signature' in value) return itemOf(value, place, text, fault)
  const parsed = IntentInput.safeParse(value)
  if (!parsed.success) {
    const { issues } = parsed.error
    const other = issues.find(({ code }) => code === 'unrecognized_keys')
    if (other?.code === 'unrecognized_keys')
      throw fault(`${short(other.keys[0] ?? '')} is not a field of a row`)
    const field = String(issues[0]?.path[0])
    if (field === 'outcome')
      throw fault(
        `outcome ${JSON.stringify(value.outcome)?.slice(0, longestShown)} is none of p1, p2, p3`,
      )
    throw fault(fieldFaults[field] ?? `${field} is not a whole number below 2^256 in digits`)
  }
  const { identifier, client_ref: clientRef, proposer, amount, nonce, deadline } = parsed.data
  const whole = (digits: string | undefined) => (digits === undefined ? undefined : BigInt(digits))
  return {
    kind: 'intent',
    ...place,
    identifier,
    outcome: outcomeIn(parsed.data.outcome, parsed.data.proposed_price, fault),
    clientRef,
    proposer,
    amountRaw: whole(amount),
    nonce: whole(nonce),
    deadlineSeconds: whole(deadline),
  }
}

function outcomeIn(key: OutcomeKey | undefined, price: unknown, fault: Fault): OutcomeKey {
  const outcome = price === undefined ? key : outcomeOf(String(price))
  if (price !== undefined && outcome === undefined)
    throw fault(`proposed_price is none of ${outcomeKeys.map((each) => priceOf[each]).join(', ')}`)
  if (outcome === undefined) throw fault('outcome is missing (p1, p2 or p3; or proposed_price)')
  if (key !== undefined && key !== outcome)
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

/** Of text of the input that is told in an error. */
const longestShown = 40

const short = (name: string) =>
  JSON.stringify(name.length > longestShown ? `${name.slice(0, longestShown)}…` : name)
