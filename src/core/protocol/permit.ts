import { refuse } from './refusal.js'

/** Beyond admission (§8). */
export const minimumDeadlineSeconds = 300n

/**
 * Raw token units and Unix seconds; `nowSeconds` is the later of wall clock and head time (contract
 * §2).
 */
export function permitFault(
  { amount, deadline }: { amount: string; deadline: string },
  bondRaw: bigint,
  nowSeconds: bigint,
) {
  if (BigInt(amount) < bondRaw)
    return refuse(
      'permit_amount_below_required_bond',
      `permit.amount is ${amount}; the current total bond is ${bondRaw}; sign again with an amount of at least ${bondRaw}`,
    )
  const earliest = nowSeconds + minimumDeadlineSeconds
  if (BigInt(deadline) >= earliest) return undefined
  return refuse(
    'permit_deadline_too_soon',
    `permit.deadline is ${deadline}; it must be ${earliest} or later (five minutes after admission); sign again with a later deadline`,
  )
}

/** In the owner's bitmap (domain §3.2). */
export const nonceBit = (nonce: bigint) => ({ word: nonce >> 8n, mask: 1n << (nonce & 0xffn) })

export const nonceUsed = (nonce: bigint, bitmapWord: bigint) =>
  (bitmapWord & nonceBit(nonce).mask) !== 0n
