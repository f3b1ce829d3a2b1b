/**
 * Keys in a key management service (contract §9). A service signs any digest, tells no recovery
 * id, and its s is high as often as low.
 */

import type { Hex, Signer } from '#ports'
import { ProposerError } from '#protocol/errors'
import { addressOf } from '#protocol/recovered'
import type { Address } from '#protocol/schema'
import { completeSignature, isPoint, numbersOfDer } from '#protocol/signature'
import { fromHex, toHex } from '#protocol/witness'
import {
  type KeyPlace,
  type KmsFault,
  kmsError,
  otherKey,
  tooLate,
  unusable,
  wrongKey,
} from './faults.js'

/**
 * Calls may reject with whatever the service's own client rejects with; `faultOf` reads that. No
 * such error may be shown or kept: it holds the request with its credentials (R5).
 */
export interface KeyService extends KeyPlace {
  publicKey(signal: AbortSignal): Promise<Uint8Array>
  signDigest(digest: Uint8Array, signal: AbortSignal): Promise<Uint8Array>
  /** `undefined` where the service said nothing: the connection failed. */
  faultOf(error: unknown): KmsFault | undefined
  close(): void
}

/** For each call, with the look for credentials, wherever they come from. */
export const callLimitMs = 5_000

/** SubjectPublicKeyInfo of a key on secp256k1 (RFC 5480) up to the point of 65 bytes. */
const spkiStart = '0x3056301006072a8648ce3d020106052b8104000a034200'

export async function addressInService(service: KeyService, limitMs = callLimitMs) {
  const spki = await inTime(service, limitMs, (signal) => service.publicKey(signal))
  const point = spki.subarray(-65)
  if (toHex(spki.subarray(0, -65)) === spkiStart && isPoint(point)) return addressOf(point)
  throw wrongKey(service, 'is not on the curve secp256k1')
}

/** The public key is compared before the first signature. */
export function signerOfService(
  service: KeyService,
  address: Address,
  limitMs = callLimitMs,
): Signer & { dispose(): void } {
  let compared: Promise<void> | undefined
  const compare = async () => {
    const found = await addressInService(service, limitMs)
    if (found !== address) throw otherKey(service, address, `is that of ${found}`)
  }
  return {
    address,
    async signDigest(digest: Hex) {
      compared ??= compare().catch((error: unknown) => {
        compared = undefined
        throw error
      })
      await compared
      const bytes = fromHex(digest)
      const der = await inTime(service, limitMs, (signal) => service.signDigest(bytes, signal))
      return completed(service, bytes, der, address)
    },
    dispose: () => service.close(),
  }
}

function completed(place: KeyPlace, digest: Uint8Array, der: Uint8Array, address: Address) {
  const numbers = numbersOfDer(der)
  if (numbers === undefined) throw unusable(place, 'is no signature in DER')
  const signature = completeSignature(digest, numbers, address)
  if (signature !== undefined) return signature
  // An alias that was moved since the keys were compared.
  throw otherKey(place, address, 'made a signature of another account')
}

/** Ends the wait; a client that cannot be stopped goes on for nobody. */
async function inTime<T>(
  service: KeyService,
  limitMs: number,
  ask: (signal: AbortSignal) => Promise<T>,
) {
  const overdue = new AbortController()
  let timer: NodeJS.Timeout | undefined
  const limit = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      reject(tooLate(service, limitMs))
      overdue.abort()
    }, limitMs)
  })
  try {
    return await Promise.race([ask(overdue.signal), limit])
  } catch (error) {
    throw error instanceof ProposerError ? error : kmsError(service, service.faultOf(error), error)
  } finally {
    clearTimeout(timer)
  }
}
