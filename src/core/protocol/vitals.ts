import type { Hex } from '#ports'
import type { GatewayGauges } from './call.js'
import type { FailureCode } from './codes.js'

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
  | {
      readonly kind: 'stage'
      readonly stage: Exclude<LifeStage, 'received'>
      readonly seconds: number
    }
  /** So long after it was received; executed once that is final. */
  | {
      readonly kind: 'ended'
      readonly outcome: 'executed' | 'failed'
      readonly code: FailureCode | 'none'
      readonly seconds: number
    }
  /**
   * The first of its nonce, with a higher fee, with fewer proposals, afresh because no node took
   * it, or giving the nonce back.
   */
  | { readonly kind: 'signed'; readonly as: 'first' | 'fee_bump' | 'trim' | 'anew' | 'cancel' }
  | { readonly kind: 'settled'; readonly end: 'executed' | 'reverted' | 'cancelled' | 'foreign' }
  | { readonly kind: 'synced'; readonly seconds: number }
  | { readonly kind: 'written'; readonly bytes: number }
  | { readonly kind: 'appended'; readonly seconds: number }
  | { readonly kind: 'charged'; readonly seconds: number }
  /** A transaction was tried again; a write was refused because another gateway leads. */
  | { readonly kind: 'retried' }
  | { readonly kind: 'fenced' }
  | { readonly kind: 'rpc'; readonly method: string; readonly outcome: RpcOutcome }

export interface StateLine {
  readonly event: string
  readonly candidate_id?: string
  readonly question_id?: Hex
  /** The implementation that is pinned, and the one that it runs. */
  readonly contract?: Hex
  readonly pinned?: Hex
  readonly runs?: Hex
  readonly slot?: string
  readonly nonce?: number
  readonly hash?: Hex
  readonly block?: string
  readonly code?: string
  readonly stage?: string
  readonly kind?: string
  readonly candidates?: number
  readonly enabled?: boolean
  readonly node?: number
  readonly epoch?: number
  readonly reasons?: number
  readonly keyid?: string
  /** Another gateway on the same store did it. */
  readonly elsewhere?: true
}

export interface NodeVitals {
  readonly node: number
  readonly isHealthy: boolean
  readonly headNumber: bigint | undefined
  /** Since it first reported its newest block. */
  readonly headAgeSeconds: number | undefined
  /** Since the start, by whether the answer could be read. */
  readonly requests: { readonly answered: number; readonly unanswered: number }
}

/** `state`: accounts with code and the price of gas. */
export const rpcClasses = ['heads', 'logs', 'contracts', 'state', 'transactions'] as const
export type RpcClass = (typeof rpcClasses)[number]

export interface RpcCounts {
  readonly requests: number
  readonly methods: Readonly<Record<RpcClass, number>>
}

/** So few single proposals that the executor's balance pays for are low. */
export const fewProposals = 50

/** Nothing is asked for a look at this. */
export interface ExecutorVitals {
  readonly openSlots: number
  readonly highestNonce: number
  /** Bound and not yet used; `undefined` while not read. */
  readonly nonceGap: { readonly latest: number | undefined; readonly finalized: number | undefined }
  readonly balanceWei: bigint | undefined
  readonly paidProposals: number | undefined
  readonly newestHash: Hex | undefined
}

/** Of a store that several gateways share, as this one last heard. */
export interface ClusterVitals {
  readonly leads: boolean
  readonly leader: string | undefined
  readonly epoch: number
  readonly lagRecords: number
  readonly gateways: number
}

export interface GatewayStatus {
  readonly reasons: readonly string[]
  readonly gauges: GatewayGauges
  readonly vitals?: Vitals
}

export interface Vitals {
  /** Of the candidate that has been in the stage for longest; 0 where there is none. */
  readonly oldestSeconds: Readonly<Record<QueueStage, number>>
  readonly head: { readonly number: bigint; readonly ageSeconds: number } | undefined
  readonly nodes: readonly NodeVitals[]
  readonly rpc?: RpcCounts | undefined
  /** `due`: they wait to be read again. */
  readonly questions: { readonly known: number; readonly due: number }
  readonly code: {
    readonly changed: number
    readonly oracles: readonly { readonly address: Hex; readonly version: 2 | 3 }[]
  }
  readonly executor: ExecutorVitals | undefined
  readonly store: { readonly isFull: boolean; readonly isFailed: boolean }
  readonly cluster?: ClusterVitals | undefined
  readonly admissionEnabled: boolean
}
