/** Rows of a batch input: intents to sign, items to send (contract §6). */
import type * as z from 'zod/mini'
import type { Hash, Hex } from '#ports'
import { lowercased } from '#protocol/address'
import { parseAmount, type TokenUnits, toRaw, type WrittenAmount } from '#protocol/amount'
import { instantMs, spanMs } from '#protocol/duration'
import { UsageError } from '#protocol/errors'
import { didYouMean, nearest } from '#protocol/guess'
import { type Json, objectOf, readJson } from '#protocol/json'
import { identifierHint, namedQuestion } from '#protocol/market-url'
import { outcomeNamed, wordFault } from '#protocol/outcome-words'
import { outcomeKeys, outcomeOf, priceOf } from '#protocol/proposal'
import {
  type Address,
  BatchItem,
  Bytes32,
  ClientRef,
  NonzeroAddress,
  type SignedProposal,
} from '#protocol/schema'
import { counted } from '#protocol/text'
import { isSlug, isUint256 } from '#protocol/words'
import { journalRecordOf } from '../journal/authorizations.js'
import type { JournalView } from '../journal/journal.js'
import { unpinnedSlug } from '../trust/trust.js'
import {
  type BatchFormat,
  type BatchSource,
  type CsvRow,
  csvRows,
  faultAt,
  formatOf,
  inputLimits,
  newFaults,
  type Place,
  positionOf,
  signedHint,
  type TextRow,
  textRows,
} from './rows.js'

export type Columns = Readonly<Record<string, string>>

interface RowBase extends Place, Pick<IntentTerms, 'identifier' | 'clientRef'> {
  /** Of a sheet, not ours: carried along to the results. */
  readonly columns?: Columns | undefined
}

export interface IntentTerms {
  /** Question id or slug. */
  readonly identifier: string
  /** Raw token units; default: the required bond and its headroom. */
  readonly amountRaw?: bigint | undefined
  /** For a bond that is raised later, in hundredths of a percent; not beside an amount. */
  readonly headroomBasisPoints?: bigint | undefined
  /** Refuses above it; raw token units. */
  readonly maxAmountRaw?: bigint | undefined
  /** Tokens that amount and cap are of; absent: any. */
  readonly amountTokens?: readonly Address[] | undefined
  /** Of Permit2; default: a fresh one. */
  readonly nonce?: bigint | undefined
  /** Unix seconds; default: `lifeSeconds` from now. */
  readonly deadlineSeconds?: bigint | undefined
  /** Another owner's word (`--parts`). */
  readonly foreign?: { readonly amount: boolean; readonly deadline: boolean } | undefined
  /** Default: an hour. It makes no intent differ. */
  readonly lifeSeconds?: bigint | undefined
  readonly supersede?: string | undefined
  /** Your own, kept in the journal. */
  readonly clientRef?: string | undefined
  readonly slug?: string | undefined
  /** Hash of the clarifications that the answer takes into account. */
  readonly rulesSeen?: Hex | undefined
}

export interface IntentRow extends RowBase, IntentTerms {
  readonly kind: 'intent'
  readonly isEvent?: true
  readonly outcome: string
  readonly proposer?: Address | undefined
  /** In the unit of a token, until the whole input is checked. */
  readonly amount?: WrittenAmount | undefined
}

/** Sent as it stands. */
export interface ItemRow extends RowBase, Pick<IntentTerms, 'supersede'> {
  readonly kind: 'item'
  readonly item: BatchItem
  readonly body: string
  readonly payload?: SignedProposal
}

export type BatchRow = IntentRow | ItemRow

type Source = BatchSource | { readonly name: string; readonly rows: readonly Json[] }

export function readBatch(source: Source, format?: BatchFormat) {
  const faults = newFaults(source)
  const rows: BatchRow[] = []
  /** Lines that are no rows. */
  const unanswered: number[] = []
  const take = <T extends Place>(some: Iterable<T>, read: (row: T) => BatchRow | undefined) =>
    faults.during(() => {
      let count = 0
      for (const row of some) {
        const what = `there are more than ${inputLimits.rows} rows`
        if (++count > inputLimits.rows)
          throw faultAt(row, 'too_many_rows', what, 'split it into several files')
        const made = faults.during(() => read(row), row)
        if (made) rows.push(made)
      }
    })
  if ('rows' in source) {
    const given = source.rows.map((fields, at) => ({ fields, line: at + 1 }))
    take(given, ({ fields, line }) => rowOf(fields, { line }))
  } else if ((format ?? formatOf(source)) === 'csv')
    take(sheetRows(source), (row) => {
      const made = fromSheet(row)
      if (!made) unanswered.push(row.line)
      return made
    })
  else take(textRows(source, format, signedSchema), fromJson)
  return { rows, unanswered, faults }
}

const signedSchema = 'proposer.batch-signed/1'

function fromJson({ text, whole, ...place }: TextRow): BatchRow | undefined {
  const read = readJson(new TextEncoder().encode(text))
  if (!read.ok && !whole)
    throw new UsageError('input_torn', 'the last line is cut off', 'give the whole file')
  if (!read.ok) throw wrongRow(read.detail.replace('the body is not acceptable JSON', notAnObject))
  const value = objectOf(read.value)
  if (!value) throw wrongRow(notAnObject)
  if (value.schema === signedSchema && 'summary' in value) return undefined
  if (!('journal_id' in value)) return rowOf(value, place, text)
  // Rejected when it was signed.
  if (value.payload === null) return undefined
  const payload = objectOf(value.payload)
  if (payload) return rowOf(payload, place)
  throw wrongRow('it is the printed result of another command, and no row', signedHint)
}

const notAnObject = 'the row is not one JSON object'

function* sheetRows(source: BatchSource) {
  let names: readonly string[] | undefined
  for (const row of csvRows(source)) {
    if (names) yield { ...row, names }
    else if (row.fault) throw row.fault
    else names = namesIn(row)
  }
}

function namesIn({ line, cells }: CsvRow) {
  const wrong = (detail: string) => {
    const hint = `identifier,outcome is enough; our columns are ${ourFields.join(', ')}; any other is carried along`
    return faultAt({ line }, 'invalid_csv', detail, hint)
  }
  const names = cells.map((cell, at) => {
    const name = cell.trim()
    if (ourFields.includes(name.toLowerCase())) return name.toLowerCase()
    // Carried along, it would say nothing.
    const meant = nearest(name.replace(/[ -]/g, '_'), ourFields)
    if (meant.length > 0)
      throw wrong(`the header has a column ${short(name)}: ${didYouMean(meant)}`)
    return name === '' ? `column_${at + 1}` : name
  })
  const twice = names.find((name, at) => names.indexOf(name) !== at)
  if (twice !== undefined) throw wrong(`the header has the column ${twice} twice`)
  const need = (one: string, other: string) => {
    if (names.includes(one) || names.includes(other)) return
    throw wrong(`the header has no column ${one} (or ${other})`)
  }
  need('identifier', 'slug')
  need('outcome', 'proposed_price')
  return names
}

function fromSheet({ line, cells, names, fault }: CsvRow & { readonly names: readonly string[] }) {
  if (fault) throw fault
  if (cells.length !== names.length)
    throw wrongRow(
      `the row has ${counted(cells.length, 'cell')}, the header has ${names.length}`,
      'give every row as many cells as the header; quote a cell that holds the delimiter',
    )
  const fields: Record<string, unknown> = {}
  const others: [string, string][] = []
  for (const [at, name] of names.entries()) {
    const cell = cells[at] ?? ''
    if (cell.includes('\0')) throw wrongRow(`${name} holds a NUL`, 'save the sheet as CSV in UTF-8')
    if (/^\s*=/.test(cell))
      throw wrongRow(`${name} holds a formula`, 'save the values of the sheet, not its formulas')
    const value = name === 'client_ref' ? cell : cell.trim()
    const isNumber = name === 'permit.deadline' && /^\d{1,15}$/.test(value)
    const [field = '', part] = name.split('.')
    if (!ourFields.includes(name)) others.push([name, cell])
    else if (value === '') continue
    else if (part === undefined) fields[field] = value
    else fields[field] = { ...objectOf(fields[field]), [part]: isNumber ? Number(value) : value }
  }
  if (!['outcome', 'proposed_price', 'signature'].some((name) => name in fields)) return undefined
  // No name is that of a prototype.
  const columns: Columns = Object.fromEntries(others)
  // A worksheet without identifiers is one of slugs.
  const read = rowOf({ identifier: columns.slug, ...fields }, { line })
  return others.length === 0 ? read : { ...read, columns }
}

const rowHint =
  'a row is {identifier, outcome or proposed_price, client_ref?, proposer?, amount?, nonce?, deadline?, rules_seen?}, or a signed batch item'

const wrongRow = (detail: string, hint = rowHint) => new UsageError('invalid_row', detail, hint)

/** What is wrong, and what to do. */
const fieldFaults = {
  identifier: ['neither a question id nor a slug nor a URL of Polymarket'],
  client_ref: ['not a text of at most 256 bytes without control characters'],
  proposer: ['not an address, or its checksum (EIP-55) is wrong'],
  amount: [
    'neither raw units in digits nor an amount such as 750usdc',
    'give it as 750usdc, 0.5usdc or 750000000raw',
  ],
  nonce: ['not a whole number below 2^256 in digits'],
  deadline: [
    'neither Unix seconds nor a duration such as 90m nor a time such as 2026-11-20T05:38:00Z',
    'give deadline 90m, or leave it out for an hour',
  ],
  rules_seen: ['not the hash that `context` prints: 0x and 64 lowercase hex digits'],
} as const
const intentFields = [...Object.keys(fieldFaults), 'outcome', 'proposed_price']
const permitFields = ['permit.amount', 'permit.nonce', 'permit.deadline']
const ourFields = [...intentFields, 'max_payment', ...permitFields, 'signature']

function rowOf(value: Json, place: Place, text?: string): BatchRow {
  if ('version' in value) throw wrongRow('it is a v1 payload (§9): send it with `proposer submit`')
  if ('signature' in value) return itemOf(value, place, text)
  const details: string[] = []
  const hints = new Set<string>()
  const refuse = (detail: string, hint = rowHint) => {
    details.push(detail)
    hints.add(hint)
    return undefined
  }
  const read = <T>(name: keyof typeof fieldFaults, by: (given: unknown) => T | undefined) => {
    const given = value[name]
    const [what, hint] = fieldFaults[name]
    return given === undefined ? undefined : (by(given) ?? refuse(`${name} is ${what}`, hint))
  }
  const question = textIn(value.identifier)
  const named = namedQuestion(question)
  if (!named) refuse(`identifier is ${fieldFaults.identifier[0]}`, identifierHint(question))
  const terms = {
    clientRef: read('client_ref', parsed(ClientRef)),
    proposer: read('proposer', (given) => parsed(NonzeroAddress)(lowercased(given))),
    ...read('amount', amountIn),
    nonce: read('nonce', wholeIn),
    ...read('deadline', deadlineIn),
    rulesSeen: read('rules_seen', parsed(Bytes32)),
  }
  const outcome = outcomeIn(value, refuse)
  const other = Object.keys(value).find((name) => !intentFields.includes(name))
  if (other !== undefined) refuse(`${short(other)} is not a field of a row`)
  if (!named || outcome === undefined || details.length > 0)
    throw wrongRow(details.join('; '), [...hints].join('; '))
  const { identifier, isEvent } = named
  return { kind: 'intent', ...place, identifier, outcome, ...terms, ...(isEvent && { isEvent }) }
}

const parsed =
  <T>(schema: z.ZodMiniType<T>) =>
  (given: unknown) =>
    schema.safeParse(given).data

const textIn = (given: unknown) =>
  typeof given === 'string' || typeof given === 'number' ? String(given) : ''

const wholeIn = (given: unknown) => (isUint256(textIn(given)) ? BigInt(textIn(given)) : undefined)

function amountIn(given: unknown) {
  try {
    const amount = parseAmount(textIn(given), 'amount', true)
    // A spreadsheet's power of ten is no unit.
    if (/^e\d+$/.test(amount.unit)) return undefined
    return amount.unit === 'raw' ? { amountRaw: toRaw(amount, []).raw } : { amount }
  } catch (error) {
    if (error instanceof UsageError) return undefined
    throw error
  }
}

function deadlineIn(given: unknown) {
  const text = textIn(given)
  const [whole, span, instant] = [wholeIn(text), spanMs(text), instantMs(text)]
  const seconds = (ms: number) => BigInt(Math.floor(ms / 1_000))
  if (whole !== undefined) return { deadlineSeconds: whole }
  if (span !== undefined) return { lifeSeconds: seconds(span) }
  return instant !== undefined && instant >= 0 ? { deadlineSeconds: seconds(instant) } : undefined
}

function outcomeIn(
  { outcome: word, proposed_price: price }: Json,
  refuse: (detail: string) => undefined,
) {
  const priced = outcomeOf(String(price))
  if (price !== undefined && priced === undefined) {
    const prices = outcomeKeys.map((each) => priceOf[each]).join(', ')
    return refuse(`proposed_price must be one of ${prices}`)
  }
  if (word === undefined)
    return (
      priced ?? refuse('outcome is missing (p1, p2, p3 or the answer in words; or proposed_price)')
    )
  if (typeof word !== 'string') return refuse('outcome is not a text')
  const wrong = wordFault(word)
  if (wrong !== undefined) return refuse(`outcome ${short(word)} ${wrong}`)
  const said = outcomeNamed(word) ?? word.trim()
  const isSame = priced === undefined || priced === said
  return isSame ? said : refuse('outcome and proposed_price say different things')
}

function itemOf(value: Json, place: Place, text: string | undefined): ItemRow {
  const { success, data: item, error } = BatchItem.safeParse(value)
  if (!success) {
    const [issue] = error.issues
    throw wrongRow(
      issue?.code === 'unrecognized_keys'
        ? `${short(issue.keys[0] ?? '')} is not a field of a signed item`
        : `${short(issue?.path.join('.') ?? '')} of the signed item is missing or malformed`,
    )
  }
  const { identifier, client_ref: clientRef } = item
  return { kind: 'item', ...place, identifier, clientRef, item, body: text ?? JSON.stringify(item) }
}

const short = (name: string) => JSON.stringify(name.length > 40 ? `${name.slice(0, 40)}…` : name)

type PinnedUnits = TokenUnits & { readonly address: Address }

interface BatchChecks {
  readonly hash: Hash
  readonly proposer: () => Promise<Address>
  readonly units?: () => Promise<readonly PinnedUnits[]>
  readonly questionOf: (identifier: string) => Hex | undefined
  /** `resume`: a nonce that is reserved and not signed may be this input's. */
  readonly journal?: { readonly view: JournalView; readonly resume: boolean }
}

/** `fingerprint`: however the rows are spelled. */
export async function checkBatch(
  { rows, unanswered, faults }: ReturnType<typeof readBatch>,
  checks: BatchChecks,
) {
  const intents = rows.filter((row) => row.kind === 'intent')
  const own = intents.length > 0 ? await checks.proposer() : undefined
  const isInUnits = intents.some(({ amount }) => amount !== undefined)
  const units = isInUnits ? await checks.units?.() : undefined
  const places = new Map<string, number>()
  let fingerprint = ''
  const checked = rows.map((row) => {
    fingerprint = checks.hash.sha256(`${fingerprint} ${keyOf(row)}`)
    faults.during(() => checkRow(row, own, places, checks), row)
    return faults.during(() => inRaw(row, units ?? []), row) ?? row
  })
  const [what, hint] =
    unanswered.length === 0
      ? ['it holds no rows', 'give one proposal per line']
      : ['no outcome is filled in', 'fill in the outcome of the questions to propose on']
  if (rows.length === 0 && !faults.refuses) faults.add(new UsageError('empty_input', what, hint))
  return { input: checked, rows: rows.length, intents: intents.length, unanswered, fingerprint }
}

function inRaw(row: BatchRow, units: readonly PinnedUnits[]): BatchRow {
  if (row.kind === 'item' || row.amount === undefined) return row
  const { raw, tokens } = toRaw(row.amount, units)
  return { ...row, amountRaw: raw, amountTokens: tokens.map(({ address }) => address) }
}

function checkRow(
  row: BatchRow,
  own: Address | undefined,
  places: Map<string, number>,
  { questionOf, journal }: BatchChecks,
) {
  const { identifier, clientRef, columns } = row
  const once = (key: string, what: string, hint: string, code = 'duplicate_row') => {
    const [earlier, at] = [places.get(key), positionOf(row)]
    places.set(key, earlier ?? at)
    const rows = row.element === undefined ? 'lines' : 'rows'
    if (earlier !== undefined)
      throw new UsageError(code, `${rows} ${earlier} and ${at} ${what}`, { hint, at })
  }
  const isItem = row.kind === 'item'
  const { proposer = own ?? '0x', nonce } = isItem ? { ...row.item, ...row.item.permit } : row
  if (!isItem && proposer !== own)
    throw new UsageError(
      'wrong_signer',
      `the row is for proposer ${proposer}, the account is ${own}`,
      "choose that proposer's account with --account; one batch per proposer",
    )
  const questionId = questionOf(identifier)
  if (!questionId) throw unpinnedSlug(identifier)
  // A sheet sorted by some of its columns has slugs beside identifiers of others.
  const slug = columns?.slug ?? ''
  const meant = isSlug(slug) ? questionOf(slug) : undefined
  if (meant && meant !== questionId)
    throw new UsageError(
      'untrusted_slug',
      `the slug ${slug} is pinned to ${meant}, and the identifier is ${questionId}`,
      'make the sheet again: its columns no longer belong together',
    )
  if (clientRef !== undefined)
    once(`ref ${clientRef}`, 'have the same client_ref', 'give every row its own client_ref')
  once(
    `question ${questionId} ${proposer}`,
    'are the same question for the same proposer',
    'keep one of them: a round accepts one answer from a wallet',
  )
  if (nonce === undefined) return
  const what = `have the same nonce ${nonce} of ${proposer}`
  once(`nonce ${nonce} ${proposer}`, what, nonceHint, 'nonce_reserved')
  if (isItem || !journal?.view.isReserved(proposer, String(nonce))) return
  const { view, resume } = journal
  const holder = [...view.authorizations, ...view.offers]
    .map(journalRecordOf)
    .find(({ terms }) => terms.proposer === proposer && terms.nonce === String(nonce))
  // Of its own question it is told later, with its terms (R8).
  if (holder ? holder.questionId === questionId : resume) return
  const by = holder
    ? `${holder.id} for question ${holder.questionId}`
    : 'an earlier run that did not reach signing'
  const taken = `nonce ${nonce} of ${proposer} is taken already, by ${by}`
  throw new UsageError('nonce_reserved', taken, nonceHint)
}

const nonceHint = 'leave the nonce out: a fresh one is chosen; of signed items send only one'

function keyOf(row: BatchRow) {
  if (row.kind === 'item') return row.body
  const { identifier, clientRef, proposer, outcome, amountRaw, nonce, deadlineSeconds } = row
  const { amount, lifeSeconds } = row
  const terms = [identifier, clientRef, proposer, outcome, amountRaw, nonce, deadlineSeconds]
  // An input without them has the fingerprint that it always had.
  return JSON.stringify(
    amount === undefined && lifeSeconds === undefined
      ? terms.map((each) => each?.toString())
      : [...terms, amount?.text, lifeSeconds].map(String),
  )
}
