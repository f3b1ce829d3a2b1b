import type { Hex } from '#ports'
import type { FailureCode } from './codes.js'

export const lifeStages = [
  'received',
  'validated',
  'selected',
  'submitted',
  'confirmed',
  'executed',
] as const
export type LifeStage = (typeof lifeStages)[number]

/**
 * `trim`: with fewer proposals; `anew`: because no node took it; `cancel`: the nonce is given back.
 */
export const signings = ['first', 'fee_bump', 'trim', 'anew', 'cancel'] as const
export type SignedAs = (typeof signings)[number]

export const slotEnds = ['executed', 'reverted', 'cancelled', 'foreign'] as const

/** `refused`: any other error of the node itself. */
export type RpcOutcome = 'ok' | 'reverted' | 'unavailable' | 'refused'

/** Durations by the monotonic clock (R13). */
export type Observation =
  | {
      readonly kind: 'stage'
      readonly stage: Exclude<LifeStage, 'received'>
      readonly seconds: number
    }
  /** After it was received; executed once that is final. */
  | {
      readonly kind: 'ended'
      readonly outcome: 'executed' | 'failed'
      readonly code: FailureCode | 'none'
      readonly seconds: number
    }
  | { readonly kind: 'signed'; readonly as: SignedAs }
  | { readonly kind: 'settled'; readonly end: (typeof slotEnds)[number] }
  | { readonly kind: 'synced' | 'appended' | 'charged'; readonly seconds: number }
  | { readonly kind: 'written'; readonly bytes: number }
  | { readonly kind: 'retried' | 'fenced' }
  | { readonly kind: 'rpc'; readonly method: string; readonly outcome: RpcOutcome }

export interface StateLine {
  readonly event: string
  readonly candidate_id?: string
  readonly question_id?: Hex
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
  readonly elsewhere?: true
}

/** `state`: accounts with code and the price of gas. */
export const rpcClasses = ['heads', 'logs', 'contracts', 'state', 'transactions'] as const
export type RpcClass = (typeof rpcClasses)[number]

export interface RpcCounts {
  readonly requests: number
  readonly methods: Readonly<Record<RpcClass, number>>
}

export const fewProposals = 50
