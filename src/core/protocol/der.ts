/**
 * An ECDSA signature (RFC 3279, 2.2.3) and a public key (RFC 5480) of a key service. Strict: one
 * value has one spelling.
 */

export interface SignatureNumbers {
  readonly r: bigint
  readonly s: bigint
}

const tag = { integer: 0x02, sequence: 0x30 } as const

/** A sequence of two integers of 33 bytes at most: its length is one byte. */
const longestNumber = 33

/** Whether the numbers are below the order of the curve is the caller's to see. */
export function signatureOfDer(der: Uint8Array): SignatureNumbers | undefined {
  if (der[0] !== tag.sequence || der[1] !== der.length - 2) return undefined
  const r = numberAt(der, 2)
  if (r === undefined) return undefined
  const s = numberAt(der, r.end)
  return s?.end === der.length ? { r: r.value, s: s.value } : undefined
}

function numberAt(
  der: Uint8Array,
  at: number,
): { readonly value: bigint; readonly end: number } | undefined {
  const length = der[at + 1] ?? 0
  const start = at + 2
  const end = start + length
  const [first = 0, second = 0] = der.subarray(start, end)
  const isWhole =
    der[at] === tag.integer && length >= 1 && length <= longestNumber && end <= der.length
  const isNegative = first >= 0x80
  // Zero, too: it is no r and no s.
  const isPadded = first === 0 && second < 0x80
  if (!isWhole || isNegative || isPadded || (length === longestNumber && first !== 0))
    return undefined
  const digits = Array.from(der.subarray(start, end), (byte) => byte.toString(16).padStart(2, '0'))
  return { value: BigInt(`0x${digits.join('')}`), end }
}

const spkiOfSecp256k1 = [
  ...[0x30, 0x56, 0x30, 0x10],
  ...[0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01],
  ...[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x0a],
  ...[0x03, 0x42, 0x00],
]

/** 65 bytes. Whether the point is on the curve is the caller's to see. */
export function secp256k1PointOfSpki(spki: Uint8Array): Uint8Array | undefined {
  const point = spki.subarray(spkiOfSecp256k1.length)
  const isOfCurve = spkiOfSecp256k1.every((byte, index) => spki[index] === byte)
  return isOfCurve && point.length === 65 && point[0] === 4 ? point : undefined
}
