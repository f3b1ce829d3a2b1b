/** A whole batch input, read once before anything is signed or sent (contract §6, Batch input). */

import type { Hash, Hex } from '../../ports.js'
import { UsageError } from '../../protocol/errors.js'
import type { Address } from '../../protocol/schema.js'
import { howToPin } from '../trust/trust.js'
import { type BatchRow, type IntentRow, readBatch } from './input.js'
import { type BatchFormat, type BatchSource, inputFault, type Place } from './rows.js'

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
 * Reads the whole input once before anything is signed or sent, and checks every row's shape. No
 * client_ref and no question of one proposer may come twice (UsageError `duplicate_row`, both lines
 * named). No nonce of one proposer may, or be held by something else (`nonce_reserved`, R6). A
 * proposer other than the account's: `wrong_signer`. A slug that is not pinned: `untrusted_slug`.
 * An empty input: `empty_input`.
 */
export async function checkBatch(
  source: BatchSource,
  format: BatchFormat | undefined,
  checks: BatchChecks,
): Promise<BatchCount> {
  const { hash, questionOf, nonceHolder } = checks
  const [refs, questions, nonces] = [newLineTable(hash), newLineTable(hash), newLineTable(hash)]
  let [rows, intents, fingerprint] = [0, 0, '']
  for await (const some of readBatch(source, format)) {
    for (const row of some) {
      rows++
      if (row.kind === 'intent') intents++
      const { identifier, clientRef } = row
      const proposer = row.kind === 'item' ? row.item.proposer : await signerOf(source, row, checks)
      const questionId = questionOf(identifier)
      if (questionId === undefined) {
        const detail = `the slug ${identifier} is not pinned in the trust file`
        throw inputFault(source, row, 'untrusted_slug', detail, howToPin(identifier))
      }
      /** No two rows may have the same of what a key says. */
      const once = (table: LineTable, key: string, what: string, hint: string, code?: string) => {
        const earlier = table(key, row.element ?? row.line)
        if (earlier !== undefined) throw twice(source, earlier, row, what, hint, code)
      }
      if (clientRef !== undefined)
        once(refs, clientRef, 'have the same client_ref', 'give every row a client_ref of its own')
      once(
        questions,
        `${questionId} ${proposer}`,
        'are the same question for the same proposer',
        'leave one of them: a round takes one answer of a wallet',
      )
      const nonce = row.kind === 'item' ? row.item.permit.nonce : row.nonce
      if (nonce !== undefined) {
        const what = `have the same nonce ${nonce} of ${proposer}`
        once(nonces, `${proposer} ${nonce}`, what, nonceHint, 'nonce_reserved')
      }
      const holder =
        row.kind === 'intent' && nonce !== undefined
          ? nonceHolder?.(row, questionId, proposer)
          : undefined
      if (holder !== undefined) {
        const detail = `nonce ${nonce} of ${proposer} is taken already, by ${holder}`
        throw inputFault(source, row, 'nonce_reserved', detail, nonceHint)
      }
      fingerprint = hash.sha256(`${fingerprint} ${keyOf(row)}`)
    }
  }
  if (rows > 0) return { rows, intents, fingerprint }
  const hint = 'give one proposal per line'
  throw inputFault(source, undefined, 'empty_input', 'it holds no rows', hint)
}

const nonceHint = 'leave the nonce out: a fresh one is chosen; of signed items send only one'

const twice = (
  source: BatchSource,
  earlier: number,
  { line, element }: Place,
  what: string,
  hint: string,
  code = 'duplicate_row',
) => {
  const rows = element === undefined ? 'lines' : 'rows'
  const detail = `${source.name}: ${rows} ${earlier} and ${element ?? line} ${what}`
  return new UsageError(code, detail, { hint })
}

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

function keyOf(row: BatchRow): string {
  if (row.kind === 'item') return row.body
  const { identifier, clientRef, proposer, outcome, amountRaw, nonce, deadlineSeconds } = row
  const terms = [identifier, clientRef, proposer, outcome, amountRaw, nonce, deadlineSeconds]
  return JSON.stringify(terms.map((each) => (each === undefined ? null : String(each))))
}

/** On which line a key came first; `undefined` the first time. */
type LineTable = (key: string, line: number) => number | undefined

/** Keeps as much of a key's SHA-256 as makes two keys never meet. */
function newLineTable(hash: Hash): LineTable {
  const lines = new Map<string, number>()
  return (key, line) => {
    const digest = hash.sha256(key).slice(0, 24)
    const earlier = lines.get(digest)
    if (earlier === undefined) lines.set(digest, line)
    return earlier
  }
}
