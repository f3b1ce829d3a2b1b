import { recoverTransactionAddress, type TransactionSerializedEIP1559 } from 'viem'
import type { Address } from '#protocol/schema'

const most = 10_000
const senders = new Map<string, Address>()

export async function senderOf(raw: TransactionSerializedEIP1559): Promise<Address> {
  const known = senders.get(raw)
  if (known) return known
  const sender = await recoverTransactionAddress({ serializedTransaction: raw })
  const address = sender.toLowerCase() as Address
  if (senders.size < most) senders.set(raw, address)
  return address
}
