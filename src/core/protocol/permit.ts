/** Beyond admission (§8). */
export const minimumDeadlineSeconds = 300n

export type PermitFault =
  | { readonly code: 'permit_amount_below_required_bond'; readonly detail: string }
  | { readonly code: 'permit_deadline_too_soon'; readonly detail: string }

/**
 * Amounts in raw token units, times in Unix seconds; `nowSeconds` is the later of wall clock and
 * head time (contract §2).
 */
export function permitFault(
  permit: { amount: string; deadline: string },
  bondRaw: bigint,
  nowSeconds: bigint,
): PermitFault | undefined {
  if (BigInt(permit.amount) < bondRaw) {
    return {
      code: 'permit_amount_below_required_bond',
      detail: `permit.amount is ${permit.amount}; the current total bond is ${bondRaw}; sign again with an amount of at least ${bondRaw}`,
    }
  }
  const earliest = nowSeconds + minimumDeadlineSeconds
  if (BigInt(permit.deadline) < earliest) {
    return {
      code: 'permit_deadline_too_soon',
      detail: `permit.deadline is ${permit.deadline}; it must be ${earliest} or later (five minutes after admission); sign again with a later deadline`,
    }
  }
  return undefined
}

/** Word position of the owner's bitmap and the bit's mask (domain §3.2). */
export function nonceBit(nonce: bigint): { readonly word: bigint; readonly mask: bigint } {
  return { word: nonce >> 8n, mask: 1n << (nonce & 0xffn) }
}

export function nonceUsed(nonce: bigint, bitmapWord: bigint) {
  return (bitmapWord & nonceBit(nonce).mask) !== 0n
}
