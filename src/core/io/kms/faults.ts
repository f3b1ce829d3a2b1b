/**
 * Why a key service does not sign (contract §6, §9). The words of a service or of its client are
 * never shown: they repeat requests, with their credentials (R5). Names of keys are quoted, for
 * /readyz is read by everybody.
 */

import { UnavailableError, UsageError } from '#protocol/errors'
import { networkFault } from '#protocol/network-words'
import { quoteWords } from '#protocol/node-words'

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

/** Without a fault: of a connection that failed. */
export function kmsError(place: KeyPlace, fault: KmsFault | undefined, error?: unknown) {
  const { name, advice } = place
  const key = quoteWords(place.key)
  switch (fault) {
    case undefined:
      return new UnavailableError(
        'kms_unreachable',
        `${name}: ${networkFault(error)}`,
        'check the network and the address of the service, then try again',
      )
    case 'no_credentials':
      return new UsageError(
        'kms_credentials',
        `no credentials for ${name} were found`,
        advice.credentials,
      )
    case 'bad_credentials':
      return new UsageError(
        'kms_credentials',
        `${name} does not take the credentials: they are wrong or have expired`,
        advice.credentials,
      )
    case 'denied':
      return new UsageError(
        'kms_access_denied',
        `${name} denies access to the key ${key}, or there is no such key`,
        advice.rights,
      )
    case 'not_found':
      return new UsageError(
        'kms_key_not_found',
        `${name} has no key ${key}`,
        'check its name, account or project, and region',
      )
    case 'disabled':
      return new UsageError(
        'kms_key_disabled',
        `the key ${key} of ${name} does not sign in its state: it is disabled, to be deleted, or not yet enabled`,
        advice.enable,
      )
    case 'wrong_key':
      return wrongKey(place, 'cannot sign with ECDSA on secp256k1')
    case 'throttled':
      return new UnavailableError(
        'kms_throttled',
        `${name} limits the rate of calls, and it is reached`,
        'try again in a minute, or raise the quota for signatures',
      )
    case 'unavailable':
      return new UnavailableError(
        'kms_unavailable',
        `${name} cannot use the key ${key} at the moment`,
        'try again in a minute',
      )
    case 'unreadable':
      return unusable(place, 'is not in the form of the service')
    default:
      return new UsageError(
        'kms_refused',
        `${name} refuses to use the key ${key}: ${fault.refused}`,
        'look the name up in the documentation of the service',
      )
  }
}

export const wrongKey = ({ name, key }: KeyPlace, why: string) =>
  new UsageError(
    'kms_wrong_key',
    `the key ${quoteWords(key)} of ${name} ${why}`,
    'make a key for signing: of spec ECC_SECG_P256K1 (AWS) or algorithm EC_SIGN_SECP256K1_SHA256 (Google Cloud)',
  )

/** Asked again, the service may answer as it should. */
export const unusable = ({ name, key }: KeyPlace, why: string) =>
  new UnavailableError(
    'kms_answer',
    `the answer of ${name} for the key ${quoteWords(key)} cannot be used: it ${why}`,
    'try again; if it stays so, look for what changes answers between here and the service',
  )

export const otherKey = ({ name, key }: KeyPlace, address: string, why: string) =>
  new UsageError(
    'kms_other_key',
    `the key ${quoteWords(key)} of ${name} ${why}, not of the account's ${address}`,
    'let the name lead to the former key again, or make another account with `proposer account add-kms`',
  )

export const tooLate = ({ name, key }: KeyPlace, limitMs: number) =>
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

/** The package itself, and not one that it needs. */
export const isMissing = (error: unknown, packageName: string) =>
  error instanceof Error &&
  'code' in error &&
  /^(ERR_)?MODULE_NOT_FOUND$/.test(String(error.code)) &&
  error.message.includes(`'${packageName}'`)
