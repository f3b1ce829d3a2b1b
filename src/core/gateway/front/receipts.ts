/** Answers that prove themselves (contract §9): which are signed, and the list of keys. */
import type { Clock, Hash } from '#ports'
import { jwkOf, receiptHeaders } from '#protocol/receipt'
import { refuse } from '#protocol/refusal'
import type { LedgerFacts } from '../ledger/ledger.js'
import { type Exchange, json, type RouteAnswer, refusalAnswer } from './answer.js'

export interface ReceiptSigner {
  current(
    nowSeconds: number,
  ): { readonly kid: string; readonly sign: (bytes: Uint8Array) => Uint8Array } | undefined
}

export type ReceiptHeaders = Readonly<Record<string, string>> | undefined

/**
 * Nothing was admitted under them, and whoever floods the gateway must not make it sign (R19).
 */
const unsigned = new Set([429, 503])

export const createReceiptSigning =
  ({ hash, clock }: { hash: Hash; clock: Clock }, signer: ReceiptSigner) =>
  ({ call, requestDigest }: Exchange, { status, body }: RouteAnswer) => {
    const nowSeconds = Math.floor(clock.nowMs() / 1_000)
    const key = unsigned.has(status) ? undefined : signer.current(nowSeconds)
    if (key === undefined) return undefined
    const { method, target: path } = call
    return receiptHeaders(hash, { method, path, status, body, requestDigest }, key, nowSeconds)
  }

export function directoryAnswer({ receiptKeys }: Pick<LedgerFacts, 'receiptKeys'>): RouteAnswer {
  if (receiptKeys.size === 0)
    return refusalAnswer(refuse('route_not_found', 'this gateway signs no receipts'))
  return json(200, { keys: [...receiptKeys.values()].map(jwkOf) })
}
