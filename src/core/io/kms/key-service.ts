/** It tells no recovery id, and its s is high as often as low (contract §9). */
import type { Hex, Signer } from '#ports'
import { ProposerError, UnavailableError, UsageError } from '#protocol/errors'
import { networkFault } from '#protocol/network-words'
import { quoteWords } from '#protocol/node-words'
import { addressOf } from '#protocol/recovered'
import type { Address } from '#protocol/schema'
import { completeSignature, isPoint, numbersOfDer } from '#protocol/signature'
import { fromHex, toHex } from '#protocol/witness'

export interface KeyService extends KeyPlace {
  publicKey(signal: AbortSignal): Promise<Uint8Array>
  signDigest(digest: Uint8Array, signal: AbortSignal): Promise<Uint8Array>
  /** `undefined`: the connection failed. */
  faultOf(error: unknown): KmsFault | undefined
  close(): void
}

export const callLimitMs = 5_000

/** SubjectPublicKeyInfo (RFC 5480) up to the point of 65 bytes. */
const spkiStart = '0x3056301006072a8648ce3d020106052b8104000a034200'

export async function addressInService(service: KeyService, limitMs = callLimitMs) {
  const spki = await inTime(service, limitMs, (signal) => service.publicKey(signal))
  const point = spki.subarray(-65)
  if (toHex(spki.subarray(0, -65)) === spkiStart && isPoint(point)) return addressOf(point)
  throw wrongKey(service, 'is not on the curve secp256k1')
}

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
  // An alias may have been moved.
  throw otherKey(place, address, 'made a signature of another account')
}

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

export interface KeyPlace {
  readonly name: string
  readonly key: string
  readonly advice: {
    readonly credentials: string
    readonly rights: string
    readonly enable: string
  }
}

export type KmsFault =
  | 'no_credentials'
  | 'bad_credentials'
  | 'denied'
  | 'not_found'
  | 'disabled'
  | 'wrong_key'
  | 'throttled'
  | 'unavailable'
  | 'unreadable'
  | { readonly refused: string }

export function kmsError(place: KeyPlace, fault: KmsFault | undefined, error?: unknown) {
  if (fault === undefined)
    return new UnavailableError(
      'kms_unreachable',
      `${place.name}: ${networkFault(error)}`,
      'check the network and the address of the service, then try again',
    )
  const key = quoteWords(place.key)
  if (typeof fault === 'string') return errors[fault](place, key)
  return new UsageError(
    'kms_refused',
    `${place.name} refuses to use the key ${key}: ${fault.refused}`,
    'look the name up in the documentation of the service',
  )
}

const errors: Record<Exclude<KmsFault, object>, (place: KeyPlace, key: string) => ProposerError> = {
  no_credentials: ({ name, advice }) =>
    new UsageError('kms_credentials', `no credentials for ${name} were found`, advice.credentials),
  bad_credentials: ({ name, advice }) =>
    new UsageError(
      'kms_credentials',
      `${name} does not take the credentials: they are wrong or have expired`,
      advice.credentials,
    ),
  denied: ({ name, advice }, key) =>
    new UsageError(
      'kms_access_denied',
      `${name} denies access to the key ${key}, or there is no such key`,
      advice.rights,
    ),
  not_found: ({ name }, key) =>
    new UsageError(
      'kms_key_not_found',
      `${name} has no key ${key}`,
      'check its name, account or project, and region',
    ),
  disabled: ({ name, advice }, key) =>
    new UsageError(
      'kms_key_disabled',
      `the key ${key} of ${name} does not sign in its state: it is disabled, to be deleted, or not yet enabled`,
      advice.enable,
    ),
  wrong_key: (place) => wrongKey(place, 'cannot sign with ECDSA on secp256k1'),
  throttled: ({ name }) =>
    new UnavailableError(
      'kms_throttled',
      `${name} limits the rate of calls, and it is reached`,
      'try again in a minute, or raise the quota for signatures',
    ),
  unavailable: ({ name }, key) =>
    new UnavailableError(
      'kms_unavailable',
      `${name} cannot use the key ${key} at the moment`,
      'try again in a minute',
    ),
  unreadable: (place) => unusable(place, 'is not in the form of the service'),
}

export const wrongKey = ({ name, key }: KeyPlace, why: string) =>
  new UsageError(
    'kms_wrong_key',
    `the key ${quoteWords(key)} of ${name} ${why}`,
    'make a key for signing: of spec ECC_SECG_P256K1 (AWS) or algorithm EC_SIGN_SECP256K1_SHA256 (Google Cloud)',
  )

export const unusable = ({ name, key }: KeyPlace, why: string) =>
  new UnavailableError(
    'kms_answer',
    `the answer of ${name} for the key ${quoteWords(key)} cannot be used: it ${why}`,
    'try again; if it stays so, look for what changes answers between here and the service',
  )

const otherKey = ({ name, key }: KeyPlace, address: string, why: string) =>
  new UsageError(
    'kms_other_key',
    `the key ${quoteWords(key)} of ${name} ${why}, not of the account's ${address}`,
    'let the name lead to the former key again, or make another account with `proposer account add-kms`',
  )

const tooLate = ({ name, key }: KeyPlace, limitMs: number) =>
  new UnavailableError(
    'kms_timed_out',
    `${name} did not answer for the key ${quoteWords(key)} within ${limitMs / 1_000} s`,
    'check the network, then try again',
  )

export const packageMissing = (packageName: string, major: number) =>
  new UsageError(
    'kms_package_missing',
    `the package ${packageName}, which talks to the key service, is not installed`,
    `install it: \`npm install ${packageName}@${major}\`, with --global if proposer was installed that way`,
  )

export const isMissing = (error: unknown, packageName: string) =>
  error instanceof Error &&
  'code' in error &&
  /^(ERR_)?MODULE_NOT_FOUND$/.test(String(error.code)) &&
  error.message.includes(`'${packageName}'`)
