/**
 * AWS KMS and Google Cloud KMS on a free loopback port, as their documentation has the wire: JSON
 * 1.1 of AWS with signed requests (SigV4), REST of Google Cloud with a service account's own token.
 * Signatures are DER, and every other one has a high s. No cloud was asked how it answers.
 */
import { createHash, createHmac, createPublicKey, generateKeyPairSync, verify } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { join } from 'node:path'
import { secp256k1 } from '@noble/curves/secp256k1'
import { type Hex, hexToBytes } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import { serveHttp } from './http-server.js'

export interface AskedOfKms {
  readonly service: 'aws' | 'gcp'
  readonly action: 'publicKey' | 'sign'
  readonly key: string
  readonly told: string
}

export type InsteadOfAnswer =
  | { readonly status: number; readonly body: unknown }
  | 'silence'
  | 'break'

export type KmsServer = Awaited<ReturnType<typeof startKms>>

const region = 'eu-central-1'
const accessKeyId = 'AKIAKMSCANARY0000001'
const secretAccessKey = 'kms-canary-secret-access-key'
const sessionToken = 'kms-canary-session-token'
const email = 'kms-canary-mail@test.iam.gserviceaccount.com'

export const keyArn = (id: string) => `arn:aws:kms:${region}:111122223333:key/${id}`
export const keyVersion = (version = 1) =>
  `projects/test/locations/global/keyRings/ring/cryptoKeys/proposer/cryptoKeyVersions/${version}`

type FakeKey = { readonly privateKey: Hex } | 'another curve'

function spkiOf(key: FakeKey): Buffer {
  if (key === 'another curve')
    return generateKeyPairSync('ec', { namedCurve: 'prime256v1' }).publicKey.export({
      type: 'spki',
      format: 'der',
    })
  const point = hexToBytes(privateKeyToAccount(key.privateKey).publicKey)
  const word = (from: number) => Buffer.from(point.subarray(from, from + 32)).toString('base64url')
  const jwk = { kty: 'EC', crv: 'secp256k1', x: word(1), y: word(33) }
  return createPublicKey({ key: jwk, format: 'jwk' }).export({ type: 'spki', format: 'der' })
}

function derSignature(digest: Uint8Array, privateKey: Hex, isHigh: boolean): Buffer {
  const { r, s } = secp256k1.sign(digest, privateKey.slice(2), { lowS: true, prehash: false })
  const told = new secp256k1.Signature(r, isHigh ? secp256k1.CURVE.n - s : s)
  return Buffer.from(told.toDERRawBytes())
}

function crc32c(bytes: Uint8Array): string {
  let crc = 0xffffffffn
  for (const byte of bytes) {
    crc ^= BigInt(byte)
    for (let bit = 0; bit < 8; bit += 1) crc = crc & 1n ? (crc >> 1n) ^ 0x82f63b78n : crc >> 1n
  }
  return String(crc ^ 0xffffffffn)
}

const sha256 = (text: string | Buffer) => createHash('sha256').update(text).digest('hex')
const hmac = (key: string | Buffer, text: string) => createHmac('sha256', key).update(text).digest()

function isSignedForAws({ method, url, headers }: IncomingMessage, body: string): boolean {
  const form =
    /^AWS4-HMAC-SHA256 Credential=([^/]+)\/(\d{8})\/([^/]+)\/kms\/aws4_request, SignedHeaders=([^,]+), Signature=([0-9a-f]{64})$/
  const [, id, day = '', place = '', names = '', signature] =
    form.exec(headers.authorization ?? '') ?? []
  if (id !== accessKeyId || headers['x-amz-security-token'] !== sessionToken) return false
  const lines = names.split(';').map((name) => `${name}:${String(headers[name]).trim()}\n`)
  const canonical = [method, url, '', lines.join(''), names, sha256(body)].join('\n')
  const scope = `${day}/${place}/kms/aws4_request`
  const text = ['AWS4-HMAC-SHA256', headers['x-amz-date'], scope, sha256(canonical)].join('\n')
  const key = [day, place, 'kms', 'aws4_request'].reduce(hmac, `AWS4${secretAccessKey}` as never)
  return hmac(key, text).toString('hex') === signature
}

export async function startKms(folder: string) {
  const account = generateKeyPairSync('rsa', { modulusLength: 2048 })
  const accountKey = account.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString()
  const credentials = join(folder, 'service-account.json')
  await writeFile(
    credentials,
    JSON.stringify({
      type: 'service_account',
      project_id: 'test',
      private_key_id: 'kms-canary-key-id',
      private_key: accountKey,
      client_email: email,
    }),
    { mode: 0o600 },
  )
  const keys = new Map<string, FakeKey>()
  const asked: AskedOfKms[] = []
  let instead: ((asked: AskedOfKms) => InsteadOfAnswer | undefined) | undefined
  let signatures = 0
  const signed = (digest: Uint8Array, { privateKey }: { privateKey: Hex }) => {
    signatures += 1
    return derSignature(digest, privateKey, signatures % 2 === 0)
  }

  const isToken = (header = '') => {
    const [head = '', claims = '', signature = ''] = header.replace(/^Bearer /, '').split('.')
    const { iss, scope } = JSON.parse(Buffer.from(claims || 'e30', 'base64url').toString())
    const isSigned = verify(
      'sha256',
      Buffer.from(`${head}.${claims}`),
      account.publicKey,
      Buffer.from(signature, 'base64url'),
    )
    return isSigned && iss === email && String(scope).includes('auth/cloudkms')
  }

  const aws = (request: IncomingMessage, body: string) => {
    const refuse = (type: string, message = 'refused') => ({
      status: 400,
      body: { __type: type, message },
    })
    if (request.headers['content-type'] !== 'application/x-amz-json-1.1')
      return refuse('SerializationException')
    if (!isSignedForAws(request, body)) return refuse('UnrecognizedClientException')
    const told = JSON.parse(body)
    const key = keys.get(told.KeyId)
    if (key === undefined) return refuse('NotFoundException')
    const isOurs = key !== 'another curve'
    if (request.headers['x-amz-target'] === 'TrentService.GetPublicKey')
      return {
        status: 200,
        body: {
          KeyId: told.KeyId,
          KeySpec: isOurs ? 'ECC_SECG_P256K1' : 'ECC_NIST_P256',
          CustomerMasterKeySpec: isOurs ? 'ECC_SECG_P256K1' : 'ECC_NIST_P256',
          KeyUsage: 'SIGN_VERIFY',
          SigningAlgorithms: ['ECDSA_SHA_256'],
          PublicKey: spkiOf(key).toString('base64'),
        },
      }
    const digest = Buffer.from(told.Message, 'base64')
    const isDigest = told.MessageType === 'DIGEST' && digest.length === 32
    if (!isDigest || told.SigningAlgorithm !== 'ECDSA_SHA_256' || !isOurs)
      return refuse('InvalidKeyUsageException')
    return {
      status: 200,
      body: {
        KeyId: told.KeyId,
        Signature: signed(digest, key).toString('base64'),
        SigningAlgorithm: 'ECDSA_SHA_256',
      },
    }
  }

  const gcp = ({ headers }: IncomingMessage, name: string, body: string) => {
    const refuse = (code: number, status: string) => ({
      status: code,
      body: { error: { code, message: 'refused', status } },
    })
    if (!isToken(headers.authorization)) return refuse(401, 'UNAUTHENTICATED')
    const key = keys.get(name)
    if (key === undefined) return refuse(404, 'NOT_FOUND')
    const isOurs = key !== 'another curve'
    if (body === '') {
      const base64 = spkiOf(key).toString('base64').replace(/.{64}/g, '$&\n')
      const pem = `-----BEGIN PUBLIC KEY-----\n${base64}\n-----END PUBLIC KEY-----\n`
      return {
        status: 200,
        body: {
          name,
          pem,
          algorithm: isOurs ? 31 : 12,
          pemCrc32c: crc32c(Buffer.from(pem)),
          protectionLevel: 2,
        },
      }
    }
    const told = JSON.parse(body)
    const digest = Buffer.from(told.digest.sha256, 'base64')
    if (digest.length !== 32 || !isOurs || told.digestCrc32c !== crc32c(digest))
      return refuse(400, 'INVALID_ARGUMENT')
    const signature = signed(digest, key)
    return {
      status: 200,
      body: {
        name,
        signature: signature.toString('base64'),
        signatureCrc32c: crc32c(signature),
        verifiedDigestCrc32c: true,
        protectionLevel: 2,
      },
    }
  }

  const answer = (request: IncomingMessage, body: string): InsteadOfAnswer => {
    const told = `${request.url} ${JSON.stringify(request.headers)} ${body}`
    const target = request.headers['x-amz-target']
    if (target !== undefined) {
      const action = target === 'TrentService.Sign' ? 'sign' : 'publicKey'
      const one = { service: 'aws', action, key: JSON.parse(body).KeyId, told } as const
      asked.push(one)
      return instead?.(one) ?? aws(request, body)
    }
    const path = /^\/v1\/(projects\/[^:?]*?)(\/publicKey|:asymmetricSign)(\?|$)/.exec(
      request.url ?? '',
    )
    const key = decodeURIComponent(path?.[1] ?? '')
    const action = path?.[2] === '/publicKey' ? 'publicKey' : 'sign'
    const one = { service: 'gcp', action, key, told } as const
    asked.push(one)
    return instead?.(one) ?? gcp(request, key, body)
  }

  const served = await serveHttp((request, body, response) => send(response, answer(request, body)))
  const { url } = served
  return {
    ...served,
    env: {
      AWS_ENDPOINT_URL_KMS: url,
      AWS_ACCESS_KEY_ID: accessKeyId,
      AWS_SECRET_ACCESS_KEY: secretAccessKey,
      AWS_SESSION_TOKEN: sessionToken,
      AWS_REGION: region,
      AWS_EC2_METADATA_DISABLED: 'true',
      CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDKMS: url,
      GOOGLE_APPLICATION_CREDENTIALS: credentials,
      METADATA_SERVER_DETECTION: 'none',
      HOME: folder,
    },
    secrets: [
      accessKeyId,
      secretAccessKey,
      sessionToken,
      'kms-canary',
      accountKey.split('\n')[3] ?? accountKey,
    ],
    asked,
    point: (key: string, privateKey: Hex) => keys.set(key, { privateKey }),
    pointElsewhere: (key: string) => keys.set(key, 'another curve'),
    instead(next: ((asked: AskedOfKms) => InsteadOfAnswer | undefined) | undefined) {
      instead = next
    },
  }
}

function send(response: ServerResponse, told: InsteadOfAnswer): void {
  if (told === 'silence') return
  if (told === 'break') {
    response.destroy()
    return
  }
  const isAws = typeof told.body === 'object' && told.body !== null && !('error' in told.body)
  response.writeHead(told.status, {
    'content-type': isAws ? 'application/x-amz-json-1.1' : 'application/json; charset=UTF-8',
  })
  response.end(typeof told.body === 'string' ? told.body : JSON.stringify(told.body))
}
