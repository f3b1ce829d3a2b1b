import { UsageError } from '#protocol/errors'
import {
  isMissing,
  type KeyPlace,
  type KeyService,
  type KmsFault,
  packageMissing,
  unusable,
  wrongKey,
} from './key-service.js'

const packageName = '@aws-sdk/client-kms'

async function loadSdk() {
  process.env.AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED ??= 'true'
  try {
    return await import('@aws-sdk/client-kms')
  } catch (error) {
    throw isMissing(error, packageName) ? packageMissing(packageName, 3) : error
  }
}

/** API reference, common errors and those of Sign. */
const names: Readonly<Partial<Record<Exclude<KmsFault, object>, readonly string[]>>> = {
  no_credentials: [
    'CredentialsProviderError',
    'TokenProviderError',
    'MissingAuthenticationToken',
    'MissingAuthenticationTokenException',
  ],
  bad_credentials: [
    'ExpiredToken',
    'ExpiredTokenException',
    'RequestExpired',
    'InvalidClientTokenId',
    'UnrecognizedClientException',
    'InvalidSignatureException',
    'SignatureDoesNotMatch',
    'IncompleteSignature',
    'IncompleteSignatureException',
  ],
  denied: ['AccessDenied', 'AccessDeniedException', 'NotAuthorized', 'OptInRequired'],
  not_found: ['NotFoundException', 'InvalidArnException'],
  disabled: ['DisabledException', 'KMSInvalidStateException'],
  wrong_key: ['InvalidKeyUsageException', 'UnsupportedOperationException'],
  throttled: [
    'Throttling',
    'ThrottlingException',
    'LimitExceededException',
    'RequestLimitExceeded',
    'TooManyRequestsException',
  ],
  unavailable: [
    'KeyUnavailableException',
    'DependencyTimeoutException',
    'KMSInternalException',
    'InternalFailure',
    'InternalError',
    'ServiceUnavailable',
    'ServiceUnavailableException',
  ],
}
const faults = new Map(
  Object.entries(names).flatMap(([fault, some]) =>
    some.map((name) => [name, fault as keyof typeof names] as const),
  ),
)

function faultOf(error: unknown) {
  if (!(error instanceof Error)) return undefined
  const known = faults.get(error.name)
  if (known !== undefined) return known
  const status = statusOf(error)
  if (status === undefined) return undefined
  if (status === 429) return 'throttled'
  if (status >= 500) return 'unavailable'
  if (status < 300) return 'unreadable'
  const name = /^[A-Za-z]{1,64}$/.exec(error.name)?.[0]
  return { refused: `${name ?? 'an error'} (status ${status})` }
}

const statusOf = (error: Error) =>
  '$metadata' in error
    ? (error.$metadata as { readonly httpStatusCode?: number } | undefined)?.httpStatusCode
    : undefined

const advice = {
  credentials:
    'set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this machine a role; `aws sts get-caller-identity` tells who you are',
  rights: 'allow kms:GetPublicKey and kms:Sign on the key, in its key policy or in IAM',
  enable: 'enable it with `aws kms enable-key`, after `aws kms cancel-key-deletion` where needed',
}

export async function openAwsKey({
  key,
  region,
}: {
  key: string
  region: string
}): Promise<KeyService> {
  const { KMSClient, GetPublicKeyCommand, SignCommand } = await loadSdk()
  const client = new KMSClient({ region })
  const place: KeyPlace = { name: 'AWS KMS', key, advice }
  return {
    ...place,
    async publicKey(abortSignal) {
      const asked = new GetPublicKeyCommand({ KeyId: key })
      const { KeySpec, KeyUsage, PublicKey } = await client.send(asked, { abortSignal })
      if (PublicKey === undefined) throw unusable(place, 'holds no public key')
      if (KeySpec !== 'ECC_SECG_P256K1' || KeyUsage !== 'SIGN_VERIFY')
        throw wrongKey(place, `is of spec ${KeySpec} for ${KeyUsage}`)
      return PublicKey
    },
    async signDigest(digest, abortSignal) {
      const asked = new SignCommand({
        KeyId: key,
        Message: digest,
        MessageType: 'DIGEST',
        SigningAlgorithm: 'ECDSA_SHA_256',
      })
      const { Signature } = await client.send(asked, { abortSignal })
      if (Signature === undefined) throw unusable(place, 'holds no signature')
      return Signature
    },
    faultOf,
    close: () => client.destroy(),
  }
}

export async function currentRegion() {
  const { KMSClient } = await loadSdk()
  const client = new KMSClient({})
  try {
    return await client.config.region()
  } catch {
    // Its own words name files of this machine.
    throw new UsageError(
      'kms_region',
      'no region of AWS is set, and the name of the key tells none',
      'set AWS_REGION, or name the key by its ARN',
    )
  } finally {
    client.destroy()
  }
}
