/**
 * Records of the client's journal (robustness §2, Journal): what is appended, what is read back,
 * and their shapes. Signatures are in `signed.body` only; they leave by explicit reveal (R5). Read
 * without zod: every `sign` reads what earlier runs have written.
 */
import { StorageError } from '../../protocol/errors.js'
import {
  anything,
  flag,
  integer,
  list,
  maybe,
  members,
  number,
  oneOf,
  orNull,
  type Read,
  type ReadBy,
  record,
  ShapeError,
  text,
} from '../../protocol/plain.js'
import { isAddress, isBytes, isBytes32, isCandidateId, isUint256 } from '../../protocol/words.js'

/** What only a chain can tell of an authorization before it is signed (robustness §6). */
export const chainChecks = ['round', 'bond', 'nonce', 'balance', 'allowance'] as const
export type ChainCheck = (typeof chainChecks)[number]

/**
 * What no chain had confirmed when this was signed or given out; a record that does not say counts
 * as all of it.
 */
export const uncheckedOf = (record: {
  readonly unchecked?: readonly ChainCheck[] | undefined
}): readonly ChainCheck[] => record.unchecked ?? chainChecks

const [address, bytes, bytes32, uint256] = [
  text(isAddress),
  text(isBytes),
  text(isBytes32),
  text(isUint256),
]

/** `<12 hex of the run>-<number>`: short, stable, ours. */
const journalId = text((id) => /^[0-9a-f]{12}-[1-9]\d{0,8}$/.test(id))

/** What an attempt can have done (robustness §6): see `classify`. */
const attemptClass = oneOf('accepted', 'refused', 'deferred', 'reconcile', 'uncertain')
export type AttemptClass = ReadBy<typeof attemptClass>

const unchecked = maybe(list(oneOf(...chainChecks)))

const form = oneOf('single', 'batch')
export type Form = ReadBy<typeof form>

const terms = members({
  proposer: address,
  price: uint256,
  amount: uint256,
  nonce: uint256,
  deadline: uint256,
})

/** As the schema TypedData of the wire. */
const typedData = members({
  domain: members({ name: oneOf('Permit2'), chainId: uint256, verifyingContract: address }),
  types: record(list(members({ name: text(), type: text() }))),
  primaryType: oneOf('PermitWitnessTransferFrom'),
  message: members({
    permitted: members({ token: address, amount: uint256 }),
    spender: address,
    nonce: uint256,
    deadline: uint256,
    witness: members({
      oracle: address,
      requester: address,
      identifier: bytes32,
      timestamp: uint256,
      ancillaryData: bytes,
      proposedPrice: uint256,
      maxPayment: uint256,
    }),
  }),
})

/** What was wanted, before anything is signed. `supersedes` is an override of R8. */
const intent = members({
  id: journalId,
  identifier: text(),
  questionId: bytes32,
  terms,
  supersedes: maybe(journalId),
})

/** A Permit2 nonce taken for good (R6), a decimal string. */
const nonceReserved = members({ id: journalId, proposer: address, nonce: uint256 })

/**
 * Typed data that was given to a wallet outside (robustness §2, Journal): whoever holds it may
 * sign, so it keeps its nonce and its question until its signature is here, it is abandoned, or it
 * can no longer execute. Everything of a `signed` but the bytes.
 */
const offered = members({
  id: journalId,
  identifier: text(),
  questionId: bytes32,
  chainId: integer(1),
  timestamp: uint256,
  round: text(),
  requester: maybe(address),
  digest: bytes32,
  token: address,
  spender: address,
  clientRef: maybe(text()),
  terms,
  typedData,
  offeredAtMs: number,
  supersedes: maybe(journalId),
  unchecked,
})
export type Offered = ReadBy<typeof offered>

/**
 * The bytes that may be sent, exactly. `round` and `digest` are absent where a payload was signed
 * elsewhere.
 */
const signed = members({
  id: journalId,
  identifier: text(),
  questionId: bytes32,
  chainId: integer(1),
  /** Timestamp of the round that the witness names; decimal string of Unix seconds. */
  timestamp: maybe(uint256),
  /** Key of the round (R3). */
  round: maybe(text()),
  /** Absent in records of 0.1, and where a payload was signed elsewhere. */
  requester: maybe(address),
  digest: maybe(bytes32),
  token: maybe(address),
  spender: maybe(address),
  clientRef: maybe(text()),
  terms,
  /** Payload identity (R22). */
  identity: text(),
  form,
  /** Request body of the single route, or the item of a batch. */
  body: text(),
  sha256: text(),
  signedAtMs: number,
  supersedes: maybe(journalId),
  unchecked,
})
export type Signed = ReadBy<typeof signed>

/**
 * Durable before connect (R4). `origin`: `local:<store id>` or the origin of the base URL. `body`
 * only where it is not `signed.body`.
 */
const attemptStart = members({
  attempt: text(),
  ids: list(journalId, 1),
  origin: text(),
  form,
  sha256: text(),
  body: maybe(text()),
  /**
   * Fingerprint of the batch input that the items come from: `--resume` finishes exactly that one.
   */
  batch: maybe(text()),
})
export type AttemptStart = ReadBy<typeof attemptStart>

const attemptEnd = members({
  id: journalId,
  class: attemptClass,
  status: maybe(integer()),
  code: maybe(text()),
})
export type AttemptEnd = ReadBy<typeof attemptEnd>

/**
 * `status` and `received_at` are the gateway's own words, '' where it told none; `answer` is the
 * candidate as it told it (contract §9). `candidate_id` is written in lower case, for version 0.1
 * reads no other.
 */
const ack = members({
  id: journalId,
  candidate_id: text(isCandidateId),
  status: text(),
  received_at: text(),
  replayed: flag,
  answer: maybe(anything),
})

/**
 * The id of an acknowledgement as its gateway spelt it: its routes may tell capitals from small
 * letters.
 */
export function spelledId({ candidate_id: id, answer }: ReadBy<typeof ack>): string {
  const spelled =
    typeof answer === 'object' && answer !== null && 'candidate_id' in answer
      ? answer.candidate_id
      : undefined
  return typeof spelled === 'string' && spelled.toLowerCase() === id.toLowerCase() ? spelled : id
}

/** The end of an authorization: of its candidate, or by finalized chain state. */
const terminal = members({
  id: journalId,
  outcome: oneOf('executed', 'failed', 'nonce_used', 'expired'),
  code: maybe(text()),
  retryable: maybe(flag),
  transaction_hash: maybe(orNull(bytes32)),
  /** Log index of the ProposePrice in its block. */
  event_index: maybe(orNull(integer(0))),
  /** The status that told the end, where its own word did not. */
  answer: maybe(anything),
})
export type Terminal = ReadBy<typeof terminal>

/** The readers of the records, by kind. */
export const recordShapes = {
  intent,
  'nonce.reserved': nonceReserved,
  offered,
  signed,
  'attempt.start': attemptStart,
  'attempt.end': members({ attempt: text(), results: list(attemptEnd, 1) }),
  ack,
  terminal,
  /** An intent that will not be signed. */
  abandoned: members({ id: journalId, reason: text() }),
} as const
type Shapes = typeof recordShapes

export type JournalKind = keyof Shapes
/** What is appended. */
export type JournalEntry = {
  [K in JournalKind]: { readonly kind: K; readonly data: ReadBy<Shapes[K]> }
}[JournalKind]
/** What is read back; `timeMs` is Unix milliseconds and orders nothing. */
export type JournalRecord = JournalEntry & { readonly timeMs: number }

export const isJournalKind = (kind: string): kind is JournalKind =>
  Object.hasOwn(recordShapes, kind)

/**
 * A stored record as its kind, or StorageError `journal_damaged` where its checksum held but its
 * shape does not.
 */
export function readRecord(
  kind: string,
  data: unknown,
  timeMs: number,
  where: string,
): JournalRecord | undefined {
  // The log lets only known kinds and `x-` ones through; the latter are for later versions.
  if (!isJournalKind(kind)) return undefined
  const read: Read<unknown> = recordShapes[kind]
  try {
    return { kind, data: read(data), timeMs } as JournalRecord
  } catch (error) {
    if (!(error instanceof ShapeError)) throw error
    throw new StorageError(
      'journal_damaged',
      `${where}: a ${kind} record does not have its shape`,
      {
        hint: 'restore the journal folder from a backup, and do not sign again for the questions in it before that',
      },
    )
  }
}
