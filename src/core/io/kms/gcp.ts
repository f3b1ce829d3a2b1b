import { createRequire } from 'node:module'
import { UsageError } from '#protocol/errors'
import { urlFault } from '#protocol/plain-http'
import {
  callLimitMs,
  isMissing,
  type KeyPlace,
  type KeyService,
  type KmsFault,
  kmsError,
  packageMissing,
  unusable,
  wrongKey,
} from './key-service.js'

const packageName = '@google-cloud/kms'
const algorithm = 'EC_SIGN_SECP256K1_SHA256'

type Sdk = typeof import('@google-cloud/kms')
type Client = InstanceType<Sdk['KeyManagementServiceClient']>
type Auth = Client['auth']

async function loadSdk() {
  try {
    return await import('@google-cloud/kms')
  } catch (error) {
    throw isMissing(error, packageName) ? packageMissing(packageName, 5) : error
  }
}

/** As the client of AWS does. */
const transporterOptions = {
  timeout: callLimitMs,
  retryConfig: { retry: 2, noResponseRetries: 2, httpMethodsToRetry: ['GET', 'POST'] },
}

/** The client would end the process where there are no credentials. */
async function connect({ KeyManagementServiceClient }: Sdk, place: KeyPlace) {
  const ofSdk = createRequire(createRequire(import.meta.url).resolve(packageName))
  const { GoogleAuth } = ofSdk('google-gax') as { GoogleAuth: new (options: object) => Auth }
  const auth = new GoogleAuth({
    scopes: KeyManagementServiceClient.scopes,
    clientOptions: { transporterOptions },
  })
  auth.useJWTAccessWithScope = true
  await auth.getClient().catch(() => {
    // Its own words name files of this machine.
    throw kmsError(place, 'no_credentials')
  })
  return new KeyManagementServiceClient({ auth, fallback: true, ...endpoint() })
}

const endpointVariable = 'CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDKMS'

function endpoint() {
  const text = process.env[endpointVariable]
  if (text === undefined || text === '') return undefined
  const fault = urlFault(text)
  if (fault !== undefined)
    throw new UsageError(
      'kms_endpoint',
      `the URL of ${endpointVariable} ${fault}`,
      'give https://host[:port], or http:// for localhost, 127.0.0.0/8 or [::1]',
    )
  const { protocol, hostname, port } = new URL(text)
  const standard = protocol === 'http:' ? 80 : 443
  return { protocol: protocol.slice(0, -1), apiEndpoint: hostname, port: Number(port) || standard }
}

/** By google.rpc.Status, else by the status of HTTP. */
const faults: Readonly<Record<string, KmsFault>> = {
  UNAUTHENTICATED: 'bad_credentials',
  401: 'bad_credentials',
  PERMISSION_DENIED: 'denied',
  403: 'denied',
  NOT_FOUND: 'not_found',
  404: 'not_found',
  FAILED_PRECONDITION: 'disabled',
  INVALID_ARGUMENT: 'wrong_key',
  RESOURCE_EXHAUSTED: 'throttled',
  429: 'throttled',
}

interface CallError extends Error {
  readonly config?: { readonly url?: unknown }
  readonly status?: number
}

function faultOf(error: unknown) {
  if (!(error instanceof Error)) return undefined
  const { config, status, message }: CallError = error
  if (error instanceof SyntaxError) return 'unreadable'
  if (status === undefined) return undefined
  if (status >= 500) return 'unavailable'
  if (!String(config?.url).includes('/cryptoKeyVersions/')) return 'bad_credentials'
  const name = /"status":\s*"([A-Z_]{1,32})"/.exec(message)?.[1]
  return (
    faults[name ?? ''] ?? faults[status] ?? { refused: `${name ?? 'an error'} (status ${status})` }
  )
}

const advice = {
  credentials:
    'set GOOGLE_APPLICATION_CREDENTIALS, or run `gcloud auth application-default login`, or give this machine a service account',
  rights: 'grant the roles cloudkms.signer and cloudkms.publicKeyViewer on the key',
  enable:
    'enable its version with `gcloud kms keys versions enable`, after `gcloud kms keys versions restore` where needed',
}

export async function openGcpKey({ key }: { key: string }): Promise<KeyService> {
  const sdk = await loadSdk()
  const place: KeyPlace = { name: 'Google Cloud KMS', key, advice }
  let connected: Promise<Client> | undefined
  const client = () => {
    connected ??= connect(sdk, place).catch((error: unknown) => {
      connected = undefined
      throw error
    })
    return connected
  }
  const once = { retry: null, timeout: callLimitMs }
  return {
    ...place,
    async publicKey() {
      const [found] = await (await client()).getPublicKey({ name: key }, once)
      if (found.name !== key) throw unusable(place, 'is about another key')
      if (found.algorithm !== algorithm) throw wrongKey(place, `is of algorithm ${found.algorithm}`)
      const pem = found.pem ?? ''
      if (numberOf(found.pemCrc32c) !== crc32c(new TextEncoder().encode(pem)))
        throw unusable(place, 'has another checksum than it says')
      return bytesOfPem(pem)
    },
    async signDigest(digest) {
      const asked = {
        name: key,
        digest: { sha256: digest },
        digestCrc32c: { value: crc32c(digest) },
      }
      const [signed] = await (await client()).asymmetricSign(asked, once)
      if (signed.name !== key) throw unusable(place, 'is about another key')
      if (signed.verifiedDigestCrc32c !== true)
        throw unusable(place, 'does not confirm the checksum of the digest')
      const der = bytesOf(signed.signature)
      if (numberOf(signed.signatureCrc32c) !== crc32c(der))
        throw unusable(place, 'has another checksum than it says')
      return der
    },
    faultOf,
    close() {
      connected?.then((one) => one.close()).catch(() => undefined)
    },
  }
}

const numberOf = (wrapped: { readonly value?: unknown } | null | undefined) =>
  wrapped?.value === undefined || wrapped.value === null ? undefined : Number(wrapped.value)

const bytesOf = (value: Uint8Array | string | null | undefined): Uint8Array =>
  typeof value === 'string' ? Buffer.from(value, 'base64') : (value ?? new Uint8Array())

function bytesOfPem(pem: string) {
  const base64 = /^-----BEGIN PUBLIC KEY-----([\w+/=\s]*)-----END PUBLIC KEY-----\s*$/.exec(
    pem,
  )?.[1]
  return new Uint8Array(Buffer.from(base64 ?? '', 'base64'))
}

/** CRC-32C (RFC 3720, B.4). */

const table = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte
  for (let bit = 0; bit < 8; bit += 1) value = value & 1 ? (value >>> 1) ^ 0x82f63b78 : value >>> 1
  return value
})

export function crc32c(bytes: Uint8Array) {
  let crc = 0xffffffff
  for (const byte of bytes) crc = (table[(crc ^ byte) & 0xff] ?? 0) ^ (crc >>> 8)
  return (crc ^ 0xffffffff) >>> 0
}
