/**
 * What a log holds, in the words in which its invariants are written (robustness §1). No signature
 * and no raw transaction is part of it (R5).
 */

export const historyRules = ['R1', 'R2', 'R3', 'R4', 'R6', 'R7', 'R8'] as const
export type HistoryRule = (typeof historyRules)[number]

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
  | {
      kind: 'acted'
      slot: string
      hash: string
      what: 'sent' | 'mined'
      status?: 'success' | 'reverted'
    }
  | {
      kind: 'closed'
      slot: string
      outcome: string
      hash: string | null
    }
>

export type CandidateStanding = 'waiting' | 'selected' | 'executed' | 'failed'

export interface SignedTransaction {
  readonly hash: string
  readonly does: 'propose' | 'cancel'
  readonly candidates: readonly string[]
  readonly nonce: number | undefined
  readonly calls: readonly string[] | undefined
}

export interface Claim {
  readonly id: string
  readonly question: string
  readonly round: string | undefined
  readonly roundKey?: string | undefined
  readonly nonce: string
  readonly chainId: number
  readonly atMs: number
  readonly deadlineSeconds: number
  readonly supersedes: string | undefined
}

export type JournalFact = Readonly<
  | { kind: 'reserved'; id: string; nonce: string }
  | { kind: 'offered'; claim: Claim }
  | {
      kind: 'signed'
      claim: Claim
      terms: string
      token: string | undefined
      bytes: string
      isWhole: boolean
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
      isSaved: boolean | undefined
    }
  | {
      kind: 'ended'
      id: string
      class: 'accepted' | 'refused' | 'deferred' | 'reconcile' | 'uncertain'
    }
  | { kind: 'receipt'; attempt: string; differs: 'request' | 'answer' | undefined }
  | { kind: 'acknowledged'; id: string }
  | { kind: 'terminal'; id: string; closes: boolean }
  | { kind: 'abandoned'; id: string }
>

export interface Violation {
  readonly rule: HistoryRule
  readonly detail: string
}

export interface RuleReport {
  count(rule: HistoryRule): void
  broken(rule: HistoryRule, detail: string): void
}
