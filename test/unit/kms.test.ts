import { hashMessage, recoverAddress } from 'viem'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import { openAwsKey } from '#io/kms/aws'
import { crc32c, openGcpKey } from '#io/kms/gcp'
import { addressInService, type KeyService, signerOfService } from '#io/kms/key-service'
import { keyNameOf } from '#io/kms-accounts'
import { lowercase } from '#protocol/words'
import { temporaryFolder } from '#support/folders'
import {
  type AskedOfKms,
  type InsteadOfAnswer,
  type KmsServer,
  keyArn,
  keyVersion,
  startKms,
} from '#support/kms-server'
import { refusal } from '#support/refusal'

const key = generatePrivateKey()
const address = lowercase(privateKeyToAccount(key).address)
const digest = hashMessage('one')
let kms: KmsServer
let home: string
const opened: KeyService[] = []

beforeAll(async () => {
  home = temporaryFolder()
  kms = await startKms(home)
})
afterAll(async () => {
  await kms.close()
})
beforeEach(() => {
  for (const [name, value] of Object.entries(kms.env)) vi.stubEnv(name, value)
  for (const { id } of services) kms.point(id, key)
})
afterEach(() => {
  for (const one of opened.splice(0)) one.close()
  vi.unstubAllEnvs()
  kms.instead(undefined)
})

const services = [
  {
    name: 'AWS KMS',
    id: keyArn('1234abcd-12ab-34cd-56ef-1234567890ab'),
    open: (id: string) => openAwsKey({ key: id, region: 'eu-central-1' }),
  },
  {
    name: 'Google Cloud KMS',
    id: keyVersion(),
    open: (id: string) => openGcpKey({ key: id }),
  },
] as const
const [aws, gcp] = services

async function service({ open, id }: (typeof services)[number], name = id): Promise<KeyService> {
  const one = await open(name)
  opened.push(one)
  return one
}

async function refused(work: Promise<unknown>) {
  const error = await refusal(work)
  const said = `${error.stack} ${JSON.stringify(error.meta)} ${error.detail}`
  for (const secret of kms.secrets) expect(said).not.toContain(secret)
  expect(error.cause).toBeUndefined()
  expect(error.meta.hint).toBeTruthy()
  return { code: error.code, exitCode: error.meta.exitCode }
}

describe.each(services)('$name', (one) => {
  test('its signatures, of which every other one has a high s, are 65 bytes that recover to the account', async () => {
    const found = await service(one)
    expect(await addressInService(found)).toBe(address)
    const signer = signerOfService(found, address)
    for (let index = 0; index < 12; index += 1) {
      const hash = hashMessage(`message ${index}`)
      const signature = await signer.signDigest(hash)
      expect(signature).toMatch(/^0x[0-9a-f]{64}[0-7][0-9a-f]{63}1[bc]$/)
      expect(lowercase(await recoverAddress({ hash, signature }))).toBe(address)
    }
  })

  test('the key is compared once, before the first signature, also where many are asked for at once', async () => {
    const signer = signerOfService(await service(one), address)
    const from = kms.asked.length
    await Promise.all([1, 2, 3].map((number) => signer.signDigest(hashMessage(`${number}`))))
    expect(kms.asked.slice(from).map(({ action }) => action)).toEqual([
      'publicKey',
      'sign',
      'sign',
      'sign',
    ])
  })

  test('a name that is moved to another key later is seen at its first signature', async () => {
    const signer = signerOfService(await service(one), address)
    await signer.signDigest(digest)
    kms.point(one.id, generatePrivateKey())
    expect(await refused(signer.signDigest(digest))).toEqual({ code: 'kms_other_key', exitCode: 2 })
  })

  test('a key on another curve is refused, and the error says which one it should be', async () => {
    kms.pointElsewhere(one.id)
    const error = await refusal(addressInService(await service(one)))
    expect(error).toMatchObject({ code: 'kms_wrong_key', meta: { exitCode: 2 } })
    expect(error.detail).toMatch(/ECC_NIST_P256|EC_SIGN_P256_SHA256/)
    expect(error.meta.hint).toMatch(/ECC_SECG_P256K1.*EC_SIGN_SECP256K1_SHA256/)
  })

  test('a key that is not there', async () => {
    const found = await service(one, one.id.replace(/.$/, '7') as typeof one.id)
    expect(await refused(addressInService(found))).toEqual({
      code: 'kms_key_not_found',
      exitCode: 2,
    })
  })

  test('no answer in time: exit 75, and what was asked is given up', async () => {
    kms.instead(() => 'silence')
    const held = await service(one)
    expect(await refused(signerOfService(held, address, 100).signDigest(digest))).toEqual({
      code: 'kms_timed_out',
      exitCode: 75,
    })
    kms.instead(undefined)
    expect(await signerOfService(held, address).signDigest(digest)).toMatch(/^0x/)
  })

  test('a connection that breaks once is not noticed; one that always does is exit 75', async () => {
    const signer = signerOfService(await service(one), address)
    let broken = 0
    kms.instead(() => (++broken === 1 ? 'break' : undefined))
    expect(await signer.signDigest(digest)).toMatch(/^0x/)
    kms.instead(() => 'break')
    expect(await refused(signer.signDigest(digest))).toEqual({
      code: 'kms_unreachable',
      exitCode: 75,
    })
  })

  test('what is no signature is refused as an answer, exit 75', async () => {
    const signer = signerOfService(await service(one), address)
    const signature = Buffer.from('3006020100020101', 'hex')
    kms.instead(({ action }) =>
      action === 'publicKey'
        ? undefined
        : {
            status: 200,
            body: {
              Signature: signature.toString('base64'),
              ...{ name: one.id, signature: signature.toString('base64') },
              ...{ signatureCrc32c: String(crc32c(signature)), verifiedDigestCrc32c: true },
            },
          },
    )
    expect(await refused(signer.signDigest(digest))).toEqual({ code: 'kms_answer', exitCode: 75 })
  })
})

const echoing = (status: number, body: (message: string) => object) => (asked: AskedOfKms) =>
  ({ status, body: body(asked.told) }) satisfies InsteadOfAnswer

describe('AWS KMS says no', () => {
  test.each([
    [400, 'UnrecognizedClientException', 'kms_credentials', 2],
    [400, 'ExpiredTokenException', 'kms_credentials', 2],
    [400, 'InvalidSignatureException', 'kms_credentials', 2],
    [400, 'AccessDeniedException', 'kms_access_denied', 2],
    [400, 'DisabledException', 'kms_key_disabled', 2],
    [400, 'KMSInvalidStateException', 'kms_key_disabled', 2],
    [400, 'InvalidKeyUsageException', 'kms_wrong_key', 2],
    [400, 'UnsupportedOperationException', 'kms_wrong_key', 2],
    [400, 'SomethingNewException', 'kms_refused', 2],
    [400, 'constructor', 'kms_refused', 2],
    [400, 'ThrottlingException', 'kms_throttled', 75],
    [500, 'KeyUnavailableException', 'kms_unavailable', 75],
    [500, 'KMSInternalException', 'kms_unavailable', 75],
    [502, 'SomethingNewException', 'kms_unavailable', 75],
  ])('%i %s is %s, exit %i', async (status, type, code, exitCode) => {
    kms.instead(echoing(status, (message) => ({ __type: type, message })))
    expect(await refused(addressInService(await service(aws)))).toEqual({ code, exitCode })
  })

  test('a wrong secret, and no credentials at all', async () => {
    vi.stubEnv('AWS_SECRET_ACCESS_KEY', 'another')
    const expected = { code: 'kms_credentials', exitCode: 2 }
    expect(await refused(addressInService(await service(aws)))).toEqual(expected)
    vi.stubEnv('AWS_ACCESS_KEY_ID', undefined)
    const error = await refusal(addressInService(await service(aws)))
    expect(error.detail).toBe('no credentials for AWS KMS were found')
  })
})

test.each([
  ['AWS KMS', aws],
  ['Google Cloud KMS', gcp],
])('%s: what something before it answers is no word about the key', async (_, of) => {
  for (const body of ['<html>', {}]) {
    kms.instead(() => ({ status: 200, body }))
    const found = await refused(addressInService(await service(of)))
    expect(found).toEqual({ code: 'kms_answer', exitCode: 75 })
  }
})

describe('Google Cloud KMS says no', () => {
  test.each([
    [401, 'UNAUTHENTICATED', 'kms_credentials', 2],
    [403, 'PERMISSION_DENIED', 'kms_access_denied', 2],
    [400, 'FAILED_PRECONDITION', 'kms_key_disabled', 2],
    [400, 'INVALID_ARGUMENT', 'kms_wrong_key', 2],
    [409, 'ABORTED', 'kms_refused', 2],
    [429, 'RESOURCE_EXHAUSTED', 'kms_throttled', 75],
    [500, 'INTERNAL', 'kms_unavailable', 75],
    [503, 'UNAVAILABLE', 'kms_unavailable', 75],
  ])('%i %s is %s, exit %i', async (code, status, expected, exitCode) => {
    kms.instead(echoing(code, (message) => ({ error: { code, status, message } })))
    expect(await refused(addressInService(await service(gcp)))).toEqual({
      code: expected,
      exitCode,
    })
  })

  test('a page of HTML, such as of a proxy', async () => {
    kms.instead(() => ({ status: 403, body: '<html>' }))
    expect((await refused(addressInService(await service(gcp)))).code).toBe('kms_access_denied')
  })

  test.each([
    ['a file that is not there', '/nonexistent/gcp.json'],
    ['none at all', ''],
  ])('credentials: %s', async (_, path) => {
    vi.stubEnv('GOOGLE_APPLICATION_CREDENTIALS', path)
    const found = await service(gcp)
    const error = await refusal(addressInService(found))
    expect(error).toMatchObject({ code: 'kms_credentials', meta: { exitCode: 2 } })
    expect(error.detail).toBe('no credentials for Google Cloud KMS were found')
    vi.stubEnv('GOOGLE_APPLICATION_CREDENTIALS', kms.env.GOOGLE_APPLICATION_CREDENTIALS)
    expect(await addressInService(found)).toBe(address)
  })

  test.each([
    ['the digest was not checked', { verifiedDigestCrc32c: false }],
    ['the signature was changed on the way', { signatureCrc32c: '1' }],
    ['no checksum of the signature', { signatureCrc32c: undefined }],
    ['the signature of another key', { name: keyVersion(2) }],
  ])('an answer whose integrity is not proved is refused: %s', async (_, change) => {
    const signer = signerOfService(await service(gcp), address)
    const signature = Buffer.from('3006020101020101', 'hex')
    const honest = {
      name: gcp.id,
      signature: signature.toString('base64'),
      signatureCrc32c: String(crc32c(signature)),
      verifiedDigestCrc32c: true,
    }
    kms.instead(({ action }) =>
      action === 'sign' ? { status: 200, body: { ...honest, ...change } } : undefined,
    )
    expect(await refused(signer.signDigest(digest))).toEqual({ code: 'kms_answer', exitCode: 75 })
  })

  test('its address is refused where http would carry a token through a network', async () => {
    vi.stubEnv('CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDKMS', 'http://kms.example')
    expect(await refused(addressInService(await service(gcp)))).toEqual({
      code: 'kms_endpoint',
      exitCode: 2,
    })
  })
})

describe('names of keys', () => {
  const id = '1234abcd-12ab-34cd-56ef-1234567890ab'
  test.each([
    [id, 'aws', undefined],
    [`mrk-${'0a'.repeat(16)}`, 'aws', undefined],
    ['alias/proposer/hot', 'aws', undefined],
    [keyArn(id), 'aws', 'eu-central-1'],
    ['arn:aws-us-gov:kms:us-gov-west-1:111122223333:alias/hot', 'aws', 'us-gov-west-1'],
  ])('%s is of AWS', (name, found, region) => {
    expect(keyNameOf(name)).toEqual({ service: found, key: name, region })
  })

  test('a key version is of Google Cloud', () => {
    expect(keyNameOf(keyVersion(12))).toEqual({ service: 'gcp', key: keyVersion(12) })
  })

  test.each([
    '',
    'hot',
    'alias/',
    'arn:aws:s3:::bucket',
    'arn:aws:kms:eu-central-1:1:key/x',
    keyVersion(0),
    `${keyVersion()}/`,
    `${keyVersion()}?x`,
    'projects/test/locations/global/keyRings/ring/cryptoKeys/proposer',
  ])('%j is of none', (name) => {
    expect(() => keyNameOf(name)).toThrow(expect.objectContaining({ code: 'invalid_kms_key' }))
  })
})

test('CRC-32C of "123456789" is that of RFC 3720', () => {
  expect(crc32c(new TextEncoder().encode('123456789'))).toBe(0xe3069283)
})
