/**
 * What a log holds, in the words in which its invariants are written (robustness §1). No signature
 * and no raw transaction is part of it (R5).
 */

/** The rules that a history can show to be kept. */
export const historyRules = ['R1', 'R2', 'R3', 'R4', 'R6', 'R7', 'R8'] as const
export type HistoryRule = (typeof historyRules)[number]

/** Facts of a gateway's store. `round`: key of the round; `payload`: payload identity (R22). */
export type StoreFact = Readonly<
  | {
      kind: 'candidate'
      id: string
      sequence: number
      payload: string
      round: string
      /**
       * Where it stood when a compaction wrote it again; absent where it was admitted, or put
       * back by a replay.
       */
      stands?: CandidateStanding
    }
  | { kind: 'progress'; id: string; stands: CandidateStanding }
  /**
   * An executor nonce bound to candidates. `kept`: repeated by a compaction, in whatever state it
   * is.
   */
  | {
      kind: 'slot'
      id: string
      executor: string
      nonce: number
      candidates: readonly string[]
      kept: boolean
    }
  /** Every nonce up to this one was bound before; all that a compaction leaves of closed slots. */
  | { kind: 'bound'; executor: string; nonce: number }
  | { kind: 'transaction'; slot: string; transaction: SignedTransaction }
  /** A node took it, or a receipt of it was counted on. */
  | {
      kind: 'acted'
      slot: string
      hash: string
      what: 'sent' | 'mined'
      /** What a receipt says. */
      status?: 'success' | 'reverted'
    }
  | {
      kind: 'closed'
      slot: string
      outcome: string
      hash: string | null
    }
>

/** `waiting`: on no transaction any more, or not yet. */
export type CandidateStanding = 'waiting' | 'selected' | 'executed' | 'failed'

/**
 * What was signed under a slot's nonce. `nonce` and `calls` are absent where a compaction has
 * dropped the bytes.
 */
export interface SignedTransaction {
  readonly hash: string
  readonly does: 'propose' | 'cancel'
  readonly candidates: readonly string[]
  readonly nonce: number | undefined
  /**
   * One an authorization, index by index with `candidates`: a name for its calldata, the same for
   * the same bytes.
   */
  readonly calls: readonly string[] | undefined
}

/**
 * What an authorization is for. `round` is absent where a payload was signed elsewhere. Times in
 * Unix milliseconds and seconds.
 */
export interface Claim {
  readonly id: string
  /**
   * Of this chain and question by this proposer: with the round, what takes one signature at a time
   * (R8).
   */
  readonly question: string
  readonly round: string | undefined
  /** Of the round, by this proposer, whichever question names it; absent in records of 0.1. */
  readonly roundKey?: string | undefined
  /** `<proposer> <nonce>`. */
  readonly nonce: string
  readonly chainId: number
  readonly atMs: number
  readonly deadlineSeconds: number
  readonly supersedes: string | undefined
}

/** Facts of a client's journal. */
export type JournalFact = Readonly<
  | { kind: 'reserved'; id: string; nonce: string }
  /** Typed data in the hands of a wallet outside. */
  | { kind: 'offered'; claim: Claim }
  | {
      kind: 'signed'
      claim: Claim
      /** What the nonce authorizes: two encodings of one signature say the same. */
      terms: string
      /** Absent where a payload was signed elsewhere. */
      token: string | undefined
      /** Names the bytes, signature included. */
      bytes: string
      /** Whether the recorded hash is that of the bytes. */
      isWhole: boolean
      /** Fields that the bytes say otherwise than the record. */
      differs: readonly string[]
      /**
       * `copied` from another run before it is sent; `imported`: signed elsewhere. Neither is
       * reserved for in the log.
       */
      origin: 'own' | 'copied' | 'imported' | 'imported and copied'
    }
  | {
      kind: 'attempt'
      attempt: string
      ids: readonly string[]
      origin: string
      sha256: string
      /**
       * Whether the hash is that of the saved bytes, alone or put together as a batch. Absent where
       * the run does not hold all of them.
       */
      isSaved: boolean | undefined
    }
  | {
      kind: 'ended'
      id: string
      class: 'accepted' | 'refused' | 'deferred' | 'reconcile' | 'uncertain'
    }
  /** A receipt kept with an attempt, and what of it is not what the attempt has. */
  | { kind: 'receipt'; attempt: string; differs: 'request' | 'answer' | undefined }
  | { kind: 'acknowledged'; id: string }
  /** `closes`: nothing of it can execute any more (contract §1). */
  | { kind: 'terminal'; id: string; closes: boolean }
  | { kind: 'abandoned'; id: string }
>

/** A rule that does not hold, and where. */
export interface Violation {
  readonly rule: HistoryRule
  /** A sentence that names the ids. */
  readonly detail: string
}

/** How the parts of a check report what they found. */
export interface RuleReport {
  /** One thing more that a rule was asked about. */
  count(rule: HistoryRule): void
  broken(rule: HistoryRule, detail: string): void
}
