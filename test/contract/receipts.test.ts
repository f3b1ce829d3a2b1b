import { createPublicKey, verify } from 'node:crypto'
import { httpbis } from 'http-message-signatures'
import type { ReceiptSigner } from '#gateway/front/routes'
import { systemEd25519 } from '#io/ed25519'
import { newReceiptKey } from '#io/receipt-keys'
import { digestHeader, judgeReceipt, type ReceiptKey, receiptDirectory } from '#protocol/receipt'
import { makeQuestion, signedBody, signedItem } from '#support/fake-view'
import { openFront, testHash, testRandom } from '#support/front'

const key = newReceiptKey({ hash: testHash, random: testRandom })
const signer: ReceiptSigner & { fault(): undefined } = {
  current: () => key,
  fault: () => undefined,
}
const first = makeQuestion('first', { slug: 'first-question' })
const submitPath = `/v1/proposals/${first.questionId}`

const open = (config: object = {}) => openFront({ wallets: 3, config, parts: { receipts: signer } })

async function judged(
  response: Response,
  method: string,
  path: string,
  requestDigest?: string,
  keys: readonly ReceiptKey[] = [key],
) {
  const header = (name: string) => response.headers.get(name) ?? undefined
  const answer = {
    method,
    path,
    status: response.status,
    body: await response.clone().text(),
    requestDigest,
    contentDigest: header('content-digest'),
    signatureInput: header('signature-input'),
    signature: header('signature'),
  }
  return judgeReceipt({ hash: testHash, ed25519: systemEd25519 }, answer, keys, 1_800_000_000)
}

test('contract §9: an admission proves itself, its bytes too where they came with a digest', async () => {
  const front = await open()
  const body = JSON.stringify(await signedBody(front.wallets[0], first))
  const digest = digestHeader(testHash.sha256(body))
  const admitted = await front.post(submitPath, body, { 'content-digest': digest })
  expect(admitted.status).toBe(202)
  expect(await judged(admitted, 'POST', submitPath, digest)).toMatchObject({
    result: 'proven',
    keyid: key.kid,
    created: 1_800_000_000,
    coversRequest: true,
  })
  const replayed = await front.post(submitPath, body)
  expect(replayed.status).toBe(200)
  expect(await judged(replayed, 'POST', submitPath)).toMatchObject({ coversRequest: false })
})

test('contract §9: an RFC 9421 library by others verifies the answer to a batch', async () => {
  const front = await open()
  const proposals = await Promise.all(front.wallets.map((one) => signedItem(one, first)))
  const body = JSON.stringify({ proposals })
  const digest = digestHeader(testHash.sha256(body))
  const response = await front.post('/propose/batch', body, { 'content-digest': digest })
  const publicKey = createPublicKey({
    key: { kty: 'OKP', crv: 'Ed25519', x: key.x },
    format: 'jwk',
  })
  const isTrue = await httpbis.verifyMessage(
    {
      keyLookup: async ({ keyid }) => ({
        id: keyid ?? '',
        algs: ['ed25519'],
        verify: async (data, signature) => verify(null, data, publicKey, signature),
      }),
      tolerance: 1e9,
    },
    { status: response.status, headers: Object.fromEntries(response.headers) },
    {
      method: 'POST',
      url: 'https://gateway.test/propose/batch',
      headers: { 'content-digest': digest },
    },
  )
  expect(isTrue).toBe(true)
  expect(response.headers.get('content-digest')).toBe(
    digestHeader(testHash.sha256(await response.text())),
  )
})

test('contract §9: refusals and reads are signed; 429, 503 and what is free are not', async () => {
  const front = await open({ budget: { per_ip_items: 3, global_items: 100 } })
  const eligibility = front.eligibility
  expect(await judged(await front.get(eligibility), 'GET', eligibility)).toMatchObject({
    result: 'proven',
  })
  const refused = await front.post(submitPath, '{}')
  expect(refused.status).toBe(422)
  expect(await judged(refused, 'POST', submitPath)).toMatchObject({ result: 'proven' })
  await front.get(eligibility)
  const late = await front.get(eligibility)
  expect(late.status).toBe(429)
  for (const response of [late, await front.get('/healthz'), await front.get('/nowhere')]) {
    expect(response.headers.get('signature')).toBeNull()
    expect(response.headers.get('content-digest')).toBeNull()
  }
})

test('contract §9: without a key answers are as they were', async () => {
  const front = await openFront()
  const response = await front.get(front.eligibility)
  expect(response.headers.get('signature-input')).toBeNull()
  expect((await front.get(receiptDirectory)).status).toBe(404)
  expect(front.gateway.readiness()).toEqual([])
})

test('contract §9: a gateway whose key has ended says so, and answers without receipts', async () => {
  const fault = 'receipts cannot be signed: the key has ended'
  const front = await openFront({
    parts: { receipts: { current: () => undefined, fault: () => fault } },
  })
  const response = await front.get(front.eligibility)
  expect(response.status).toBe(200)
  expect(response.headers.get('signature')).toBeNull()
  expect(front.gateway.readiness()).toEqual([fault])
})

test.each([
  ['another body', digestHeader('11'.repeat(32))],
  ['no digest', 'sha-256'],
  ['junk', ')('],
  ['a huge header', `sha-256=:${'A'.repeat(8_000)}:`],
])('contract §9: %s is 400 bad_digest, and admits nothing', async (_name, digest) => {
  const front = await open()
  const body = JSON.stringify(await signedBody(front.wallets[0], first))
  const response = await front.post(submitPath, body, { 'content-digest': digest })
  expect(response.status).toBe(400)
  expect(await judged(response, 'POST', submitPath)).toMatchObject({ coversRequest: false })
  expect(await response.json()).toMatchObject({ error: { code: 'bad_digest' } })
  expect(front.ledger.active()).toEqual([])
  const again = await front.post(submitPath, body)
  expect(again.status).toBe(202)
})

test('RFC 9530: a digest of another kind alone is not judged and not signed', async () => {
  const front = await open()
  const body = JSON.stringify(await signedBody(front.wallets[0], first))
  const response = await front.post(submitPath, body, { 'content-digest': 'sha-512=:AAAA:' })
  expect(response.status).toBe(202)
  expect(await judged(response, 'POST', submitPath)).toMatchObject({ coversRequest: false })
})

test('contract §9: the directory lists the keys of the store, ended ones with their end', async () => {
  const front = await open()
  const ended = { kid: 'old', x: key.x, nbf: 1, exp: 2 }
  for (const one of [ended, { kid: key.kid, x: key.x, nbf: 2 }])
    await front.ledger.commit([{ kind: 'receipt.key', key: one, reason: 'test' }])
  const response = await front.get(receiptDirectory)
  expect(response.headers.get('ratelimit-limit')).toBeNull()
  expect(await response.json()).toEqual({
    keys: [
      { kty: 'OKP', crv: 'Ed25519', kid: 'old', x: key.x, use: 'sig', nbf: 1, exp: 2 },
      { kty: 'OKP', crv: 'Ed25519', kid: key.kid, x: key.x, use: 'sig', nbf: 2 },
    ],
  })
})

test('contract §9: a browser may send the digest and read the receipt', async () => {
  const origin = 'https://app.example'
  const front = await open({ cors: { origins: [origin] } })
  const response = await front.get(front.eligibility, {
    origin,
  })
  expect(response.headers.get('access-control-expose-headers')).toContain(
    'Content-Digest, Signature-Input, Signature',
  )
})
