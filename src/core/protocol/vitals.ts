/**
 * How a running gateway does, as gateway, metrics, log and live status hand it to each other. No
 * address, signature or URL is part of it.
 */
import type { Hex } from '../ports.js'
import type { GatewayGauges } from './call.js'
import type { FailureCode } from './codes.js'

/** Where a candidate stands, with the steps of its submission told apart (contract §5). */
export type LifeStage =
  | 'received'
  | 'validated'
  | 'selected'
  | 'submitted'
  | 'confirmed'
  | 'executed'

export type QueueStage = 'received' | 'validated' | 'selected'

/** `refused` is any error of the node itself but a revert. */
export type RpcOutcome = 'ok' | 'reverted' | 'unavailable' | 'refused'

/** Something that happened once, to be counted. Durations by the monotonic clock (R13). */
export type Observation =
  /** A candidate reached a stage, so long after it had reached the one before. */
  | {
      readonly kind: 'stage'
      readonly stage: Exclude<LifeStage, 'received'>
      readonly seconds: number
    }
  /** A candidate came to its end, so long after it was received; executed once that is final. */
  | {
      readonly kind: 'ended'
      readonly outcome: 'executed' | 'failed'
      readonly code: FailureCode | 'none'
      readonly seconds: number
    }
  /**
   * A transaction was signed. The first of its nonce, the same with a higher fee, with fewer
   * proposals, afresh because no node took it, or giving the nonce back.
   */
  | { readonly kind: 'signed'; readonly as: 'first' | 'fee_bump' | 'trim' | 'anew' | 'cancel' }
  /** An executor nonce came to its end in finalized state. */
  | { readonly kind: 'settled'; readonly end: 'executed' | 'reverted' | 'cancelled' | 'foreign' }
  | { readonly kind: 'synced'; readonly seconds: number }
  | { readonly kind: 'written'; readonly bytes: number }
  /** Of a store in a database: a group of records was committed, a charge of the rate limit. */
  | { readonly kind: 'appended'; readonly seconds: number }
  | { readonly kind: 'charged'; readonly seconds: number }
  /** A transaction was tried again; a write was refused because another gateway leads. */
  | { readonly kind: 'retried' }
  | { readonly kind: 'fenced' }
  | { readonly kind: 'rpc'; readonly method: string; readonly outcome: RpcOutcome }

/** One line of the state log: what changed, by ids only (R5, robustness §5). */
export interface StateLine {
  readonly event: string
  readonly candidate_id?: string
  readonly question_id?: Hex
  /** A pinned contract, the implementation that is pinned, and the one that it runs. */
  readonly contract?: Hex
  readonly pinned?: Hex
  readonly runs?: Hex
  readonly slot?: string
  readonly nonce?: number
  readonly hash?: Hex
  readonly block?: string
  readonly code?: string
  readonly stage?: string
  /** Of a transaction: what it is for, or how it ended. */
  readonly kind?: string
  readonly candidates?: number
  readonly enabled?: boolean
  readonly node?: number
  /** Of a lease: the epoch that it began. */
  readonly epoch?: number
  readonly reasons?: number
  /** Of a key that receipts are signed with. */
  readonly keyid?: string
  /** Another gateway on the same store did it, and this one has read it. */
  readonly elsewhere?: true
}

export interface NodeVitals {
  /** Its place in `chain.rpc_urls`, from 1. */
  readonly node: number
  readonly isHealthy: boolean
  readonly headNumber: bigint | undefined
  /** Since it first reported its newest block. */
  readonly headAgeSeconds: number | undefined
  /** Requests to it since the start, by whether an answer came that could be read. */
  readonly requests: { readonly answered: number; readonly unanswered: number }
}

/**
 * JSON-RPC methods by what they are about: blocks and chain id, logs, runs of contracts, the state of
 * accounts with code and the price of gas, transactions.
 */
export const rpcClasses = ['heads', 'logs', 'contracts', 'state', 'transactions'] as const
export type RpcClass = (typeof rpcClasses)[number]

/** HTTP requests to all nodes, and the methods in them. */
export interface RpcCounts {
  readonly requests: number
  readonly methods: Readonly<Record<RpcClass, number>>
}

/**
 * Proposals that the executor's balance pays for: below the first it is low, and from the second
 * on it is enough again, so that a price of gas that goes up and down is no news each time.
 */
export const [fewProposals, enoughProposals] = [50, 100]

/** The executor as the pipeline last read it: nothing is asked for a look at this. */
export interface ExecutorVitals {
  readonly openSlots: number
  readonly highestNonce: number
  /**
   * Nonces bound and not yet used at the head, and not yet used in finalized state; `undefined`
   * while not read.
   */
  readonly nonceGap: { readonly latest: number | undefined; readonly finalized: number | undefined }
  readonly balanceWei: bigint | undefined
  /** About so many single proposals the balance pays for at the gas price of the head. */
  readonly paidProposals: number | undefined
  readonly newestHash: Hex | undefined
}

/** Of a store that several gateways share, as this one last heard. */
export interface ClusterVitals {
  /** Whether this gateway leads. */
  readonly leads: boolean
  readonly leader: string | undefined
  readonly epoch: number
  /** Records that this gateway has not read yet. */
  readonly lagRecords: number
  readonly gateways: number
}

/** A gateway at one moment; `vitals` where its process is around it. */
export interface GatewayStatus {
  readonly reasons: readonly string[]
  readonly gauges: GatewayGauges
  readonly vitals?: Vitals
}

/** A gateway at the moment of asking, beside its gauges. */
export interface Vitals {
  /**
   * How long the candidate that has been in the stage for longest has been there; 0 where there is
   * none.
   */
  readonly oldestSeconds: Readonly<Record<QueueStage, number>>
  readonly head: { readonly number: bigint; readonly ageSeconds: number } | undefined
  readonly nodes: readonly NodeVitals[]
  /** Absent for a chain that has no nodes, as in tests. */
  readonly rpc?: RpcCounts | undefined
  /** Questions that the view holds, and those of them that wait to be read again. */
  readonly questions: { readonly known: number; readonly due: number }
  /** Pinned contracts that run other code, and the version of each managed oracle that says so. */
  readonly code: {
    readonly changed: number
    readonly oracles: readonly { readonly address: Hex; readonly version: 2 | 3 }[]
  }
  /** Absent where the executor is switched off. */
  readonly executor: ExecutorVitals | undefined
  readonly store: { readonly isFull: boolean; readonly isFailed: boolean }
  /** Absent for a store of this gateway alone. */
  readonly cluster?: ClusterVitals | undefined
  /** False while the operator, or the configuration, admits nobody. */
  readonly admissionEnabled: boolean
}
