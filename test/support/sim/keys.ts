import type { RecoverPublicKey } from '#protocol/recovered'
import { recoverWithNoble } from '#protocol/signature'
import { toHex } from '#protocol/witness'

const keys = new Map<string, Uint8Array | undefined>()

export const rememberedKey: RecoverPublicKey = (digest, compact, parity) => {
  const signature = `${toHex(digest)} ${toHex(compact)} ${parity}`
  const known = keys.get(signature)
  if (known !== undefined) return known
  const key = recoverWithNoble(digest, compact, parity)
  keys.set(signature, key)
  return key
}
