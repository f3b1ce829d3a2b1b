/**
 * Who made which signature, remembered across schedules. Stands in for `recoverSigner` in a file of
 * its own without imports, because it is loaded while that module is being replaced.
 */

import type { Hex } from '#ports'
import type { RecoverPublicKey } from '#protocol/recovered'
import type { Address } from '#protocol/schema'
import type { recoverSigner } from '#protocol/signature'

const makers = new Map<string, Address | undefined>()

const hexOf = (bytes: Uint8Array): Hex =>
  `0x${Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('hex')}`

export function noteMaker(digest: Hex, signature: Hex, maker: Address): void {
  makers.set(`${digest} ${signature}`, maker)
}

export function rememberingRecovery(real: typeof recoverSigner): typeof recoverSigner {
  return (digest: Uint8Array, signature: Hex, recover?: RecoverPublicKey) => {
    const key = `${hexOf(digest)} ${signature}`
    if (makers.has(key)) return makers.get(key)
    const maker = real(digest, signature, recover)
    makers.set(key, maker)
    return maker
  }
}
