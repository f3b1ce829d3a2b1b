import type { Hex } from '#ports'

export const version = {
  api: 'v1',
  schema: 'signed-proposal-v1',
  witness: 'permit2-signed-proposer-v1',
} as const

export const limits = {
  batchItems: 100,
  signatureBytes: 8192,
  slugLength: 200,
  clientRefBytes: 256,
} as const

export const patterns = {
  uint256: /^(0|[1-9]\d{0,77})$/,
  address: /^0x[0-9a-f]{40}$/,
  bytes32: /^0x[0-9a-f]{64}$/,
  bytes: /^0x([0-9a-f]{2})*$/,
  uuid: /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/,
  // A bounded repeat is slow in V8 over 16 KiB: the length is judged apart.
  signature: /^0x[0-9a-f]+$/,
  clientRef: /^[^\u0000-\u001f\u007f-\u009f]*$/,
} as const

export const fitsUint256 = (digits: string) => digits.length < 78 || BigInt(digits) < 2n ** 256n
export const fitsSignature = (hex: string) =>
  hex.length % 2 === 0 && hex.length <= 2 + 2 * limits.signatureBytes
export const fitsClientRef = (text: string) =>
  new TextEncoder().encode(text).length <= limits.clientRefBytes

/** viem decodes addresses with a checksum in their letters. */
export const lowercase = (hex: string) => hex.toLowerCase() as Hex

export const zeroAddress: Hex = `0x${'0'.repeat(40)}`

const ofForm =
  (pattern: RegExp) =>
  (text: string): text is Hex =>
    pattern.test(text)
export const isUint256 = (text: string) => patterns.uint256.test(text) && fitsUint256(text)
export const isAddress = ofForm(patterns.address)
export const isBytes32 = ofForm(patterns.bytes32)
/** Not always in lower case (§1). */
export const isCandidateId = (text: string) => patterns.uuid.test(text.toLowerCase())
export const isSignature = (text: string): text is Hex =>
  patterns.signature.test(text) && fitsSignature(text)
export const isClientRef = (given: unknown) =>
  typeof given === 'string' && patterns.clientRef.test(given) && fitsClientRef(given)

/** Nothing else is a question id (contract §9). */
export const isQuestionId = ofForm(patterns.bytes32)

/** `eligibility` is a route (contract §2, §9). */
export const isSlug = (text: string) =>
  /^[a-z0-9-]{1,200}$/.test(text) && text !== 'eligibility' && !isQuestionId(text)

export const isIdentifier = (text: string) => isQuestionId(text) || isSlug(text)

/** Where the configuration says nothing of it (contract §7). */
export const usualPorts = { listen: 8787, admin: 8788 } as const
