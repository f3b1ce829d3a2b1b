/**
 * What a run leaves behind, in the words in which its invariants are written (robustness §1): facts
 * that a log was given, and what the world saw of the program. No signature and no raw transaction
 * is part of it (R5).
 */

/** The rules that a history can show to be kept. */
export const historyRules = ['R1', 'R2', 'R3', 'R4', 'R6', 'R7', 'R8'] as const
export type HistoryRule = (typeof historyRules)[number]

/** What each of them says, for people. */
export const ruleTexts: Readonly<Record<HistoryRule, string>> = {
  R1: 'nothing was acted on before it was durable',
  R2: 'one payload is one candidate',
  R3: 'one slot a round, one nonce a slot',
  R4: 'bytes were saved before they were sent',
  R6: 'no permit nonce serves two authorizations',
  R7: 'saved bytes never change, and nothing is signed over an unknown outcome',
  R8: 'one open authorization for a question and round',
}

/** Facts of a gateway's store. `round`: key of the round; `payload`: payload identity (R22). */
export type StoreFact =
  | {
      readonly kind: 'candidate'
      readonly id: string
      readonly sequence: number
      readonly payload: string
      readonly round: string
      /**
       * Where it stood when a compaction told it again; absent where it was admitted, or put back
       * by a replay.
       */
      readonly stands?: CandidateStanding
    }
  | { readonly kind: 'progress'; readonly id: string; readonly stands: CandidateStanding }
  /**
   * An executor nonce bound to candidates. `kept`: told again by a compaction, in whatever state it
   * is.
   */
  | {
      readonly kind: 'slot'
      readonly id: string
      readonly executor: string
      readonly nonce: number
      readonly candidates: readonly string[]
      readonly kept: boolean
    }
  /** Every nonce up to this one was bound before; all that a compaction leaves of closed slots. */
  | { readonly kind: 'bound'; readonly executor: string; readonly nonce: number }
  | { readonly kind: 'transaction'; readonly slot: string; readonly transaction: SignedTransaction }
  /** A node took it, or a receipt of it was counted on. */
  | {
      readonly kind: 'acted'
      readonly slot: string
      readonly hash: string
      readonly what: 'sent' | 'mined'
      /** What a receipt says. */
      readonly status?: 'success' | 'reverted'
    }
  | {
      readonly kind: 'closed'
      readonly slot: string
      readonly outcome: string
      readonly hash: string | null
    }

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
  /** Of this chain and question by this proposer: what R8 is about, together with the round. */
  readonly question: string
  readonly round: string | undefined
  /** `<proposer> <nonce>`. */
  readonly nonce: string
  readonly chainId: number
  readonly atMs: number
  readonly deadlineSeconds: number
  readonly supersedes: string | undefined
}

/** Facts of a client's journal. */
export type JournalFact =
  | { readonly kind: 'reserved'; readonly id: string; readonly nonce: string }
  /** Typed data in the hands of a wallet outside. */
  | { readonly kind: 'offered'; readonly claim: Claim }
  | {
      readonly kind: 'signed'
      readonly claim: Claim
      /** What the nonce authorizes: two encodings of one signature say the same. */
      readonly terms: string
      /** Absent where a payload was signed elsewhere. */
      readonly token: string | undefined
      /** Names the bytes, signature included. */
      readonly bytes: string
      /** Whether the recorded hash is that of the bytes. */
      readonly isWhole: boolean
      /** Fields that the bytes say otherwise than the record. */
      readonly differs: readonly string[]
      /**
       * `copied` from another run before it is sent; `imported`: signed elsewhere. Neither is
       * reserved for in the log.
       */
      readonly origin: 'own' | 'copied' | 'imported' | 'imported and copied'
    }
  | {
      readonly kind: 'attempt'
      readonly attempt: string
      readonly ids: readonly string[]
      readonly origin: string
      readonly sha256: string
      /**
       * Whether the hash is that of the saved bytes, alone or put together as a batch; absent where
       * the run does not hold all of them.
       */
      readonly isSaved: boolean | undefined
    }
  | {
      readonly kind: 'ended'
      readonly id: string
      readonly class: 'accepted' | 'refused' | 'deferred' | 'reconcile' | 'uncertain'
    }
  | { readonly kind: 'acknowledged'; readonly id: string }
  /** `closes`: nothing of it can execute any more (contract §1). */
  | { readonly kind: 'terminal'; readonly id: string; readonly closes: boolean }
  | { readonly kind: 'abandoned'; readonly id: string }

/**
 * One thing that happened. `log` names a store, or a run of a journal; lines count from 1 and grow
 * within a log.
 */
export type HistoryEvent =
  | {
      readonly kind: 'written'
      readonly log: string
      readonly line: number
      readonly fact: StoreFact | JournalFact
    }
  /** Everything of the log up to this line is durable. */
  | { readonly kind: 'synced'; readonly log: string; readonly line: number }
  /**
   * Found after a crash: lines up to this one are there, and durable now; what was written above it
   * is gone.
   */
  | { readonly kind: 'reopened'; readonly log: string; readonly line: number }
  /** The gateway answered a submission. */
  | {
      readonly kind: 'answered'
      readonly status: 200 | 202
      readonly candidate: string
      readonly payload: string
    }
  /** It told a status. */
  | { readonly kind: 'told'; readonly candidate: string }
  /** A transaction left for a node. */
  | {
      readonly kind: 'handed'
      readonly hash: string
      readonly sender: string
      readonly nonce: number
    }
  /** A transaction is in a block; `rounds`: those that its ProposePrice logs name. */
  | {
      readonly kind: 'mined'
      readonly block: string
      readonly hash: string
      readonly rounds: readonly string[]
    }
  /** The block is not canonical any more. */
  | { readonly kind: 'undone'; readonly block: string }
  /** A request of a client left its process. */
  | { readonly kind: 'sent'; readonly origin: string; readonly sha256: string }

/** A rule that does not hold, and where. */
export interface Violation {
  readonly rule: HistoryRule
  /** A sentence that names the ids. */
  readonly detail: string
}

/** How the parts of a checker tell what they found. */
export interface Findings {
  /** One thing more that a rule was asked about. */
  count(rule: HistoryRule): void
  broken(rule: HistoryRule, detail: string): void
}
