import { generateKeyPairSync, sign } from 'node:crypto'
import fc from 'fast-check'
import { httpbis } from 'http-message-signatures'
import { systemHash } from '#io/clock'
import { systemEd25519 } from '#io/ed25519'
import {
  base64UrlOf,
  digestHeader,
  judgeDigest,
  judgeReceipt,
  keyBytes,
  type ReceiptKey,
  receiptHeaders,
  receiptSkewSeconds,
  type SignedAnswer,
  thumbprintOf,
} from '#protocol/receipt'

const created = 1_790_000_000
const requestBody = '{"version":"v1"}'
const requestDigest = digestHeader(systemHash.sha256(requestBody))
const exchange = {
  method: 'POST',
  path: '/propose/batch',
  status: 200,
  body: '{"results":[],"ü":1}',
  requestDigest,
}

const signer = systemEd25519.signer(new Uint8Array(32).fill(7))
const x = base64UrlOf(signer.publicKey)
const key: ReceiptKey = { kid: thumbprintOf(systemHash, x), x }
const ports = { hash: systemHash, ed25519: systemEd25519 }

function receipt(changes: Partial<typeof exchange> = {}): SignedAnswer {
  const answer = { ...exchange, ...changes }
  const headers = receiptHeaders(systemHash, answer, { kid: key.kid, sign: signer.sign }, created)
  return {
    ...answer,
    contentDigest: headers['content-digest'],
    signatureInput: headers['signature-input'],
    signature: headers.signature,
  }
}
const request = {
  method: 'POST',
  url: 'https://gateway.example/propose/batch',
  headers: { 'Content-Digest': requestDigest },
}
const judge = (answer: SignedAnswer, keys = [key], nowSeconds?: number) =>
  judgeReceipt(ports, answer, keys, nowSeconds)
const codeOf = (verdict: ReturnType<typeof judge>) =>
  verdict.result === 'proven' ? 'proven' : verdict.code

test('contract §9: we verify its receipts, whatever label and order it chooses', async () => {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519')
  const jwk = publicKey.export({ format: 'jwk' })
  const contentDigest = digestHeader(systemHash.sha256(exchange.body))
  const signed = await httpbis.signMessage(
    {
      key: {
        id: 'theirs',
        alg: 'ed25519',
        sign: async (data) => sign(null, data, privateKey),
      },
      name: 'sig1',
      fields: ['@method;req', 'content-digest;req', '@path;req', '@status', 'content-digest'],
      params: ['tag', 'alg', 'keyid', 'created'],
      paramValues: { tag: 'proposer-receipt', created: new Date(created * 1_000) },
    },
    { status: 200, headers: { 'Content-Digest': contentDigest } },
    request,
  )
  const signedHeaders: Readonly<Record<string, unknown>> = signed.headers
  const header = (name: string) => String(signedHeaders[name])
  const answer: SignedAnswer = {
    ...exchange,
    contentDigest,
    signatureInput: header('Signature-Input'),
    signature: header('Signature'),
  }
  const theirs = { kid: 'theirs', x: jwk.x ?? '' }
  expect(judge(answer, [theirs], created)).toEqual({
    result: 'proven',
    keyid: 'theirs',
    created,
    coversRequest: true,
  })
  expect(codeOf(judge({ ...answer, status: 202 }, [theirs]))).toBe('receipt_invalid')
})

test('contract §9: a receipt holds, with and without the digest of a request', () => {
  expect(judge(receipt(), [key], created)).toMatchObject({
    result: 'proven',
    coversRequest: true,
  })
  const { requestDigest: _, ...bare } = exchange
  const headers = receiptHeaders(systemHash, bare, { kid: key.kid, sign: signer.sign }, created)
  const answer: SignedAnswer = {
    ...bare,
    contentDigest: headers['content-digest'],
    signatureInput: headers['signature-input'],
    signature: headers.signature,
  }
  expect(judge(answer)).toMatchObject({ result: 'proven', coversRequest: false })
})

test('contract §9: with any one byte changed it does not hold', () => {
  const whole = receipt()
  const fields = ['body', 'contentDigest', 'signatureInput', 'signature', 'requestDigest', 'path']
  fc.assert(
    fc.property(
      fc.constantFrom(...(fields as (keyof SignedAnswer)[])),
      fc.nat(),
      fc.integer({ min: 1, max: 94 }),
      (field, at, shift) => {
        const text = String(whole[field])
        const index = at % text.length
        const code = text.charCodeAt(index)
        const other = String.fromCharCode(((code - 32 + shift) % 95) + 32)
        const changed = text.slice(0, index) + other + text.slice(index + 1)
        expect(judge({ ...whole, [field]: changed }).result).toBe('unproven')
      },
    ),
    { numRuns: 2_000 },
  )
})

const without = (answer: SignedAnswer, from: string | RegExp, to: string): SignedAnswer => ({
  ...answer,
  signatureInput: answer.signatureInput?.replace(from, to),
})
test.each<[string, (answer: SignedAnswer) => SignedAnswer, string]>([
  ['no signature', ({ signature: _, signatureInput: __, ...rest }) => rest, 'receipt_missing'],
  ['half of it', ({ signature: _, ...rest }) => rest, 'receipt_malformed'],
  ['junk', (answer) => ({ ...answer, signatureInput: '((' }), 'receipt_malformed'],
  ['no Content-Digest', ({ contentDigest: _, ...rest }) => rest, 'receipt_malformed'],
  [
    'a huge header',
    (answer) => ({ ...answer, signature: `a=:${'A'.repeat(5_000)}:` }),
    'receipt_too_large',
  ],
  ['another tag', (one) => without(one, 'proposer-receipt', 'web-bot'), 'receipt_wrong_tag'],
  ['another algorithm', (one) => without(one, 'ed25519', 'hmac-sha256'), 'receipt_wrong_algorithm'],
  ['no algorithm', (one) => without(one, ';alg="ed25519"', ''), 'receipt_wrong_algorithm'],
  ['a part left out', (one) => without(one, '"@status" ', ''), 'receipt_wrong_components'],
  [
    'a part more',
    (one) => without(one, '("@status"', '("date" "@status"'),
    'receipt_wrong_components',
  ],
  [
    'a part twice',
    (one) => without(one, '("@status"', '("@status" "@status"'),
    'receipt_wrong_components',
  ],
  ['no time', (one) => without(one, `created=${created};`, ''), 'receipt_malformed'],
  ['another time', (one) => without(one, String(created), String(created + 1)), 'receipt_invalid'],
  ['another key', (one) => without(one, key.kid, 'another'), 'receipt_unknown_key'],
  ['another body', (answer) => ({ ...answer, body: '{}' }), 'receipt_digest_differs'],
  ['another status', (answer) => ({ ...answer, status: 202 }), 'receipt_invalid'],
  [
    'another request',
    (answer) => ({ ...answer, requestDigest: digestHeader('00'.repeat(32)) }),
    'receipt_invalid',
  ],
  ['a request without digest', ({ requestDigest: _, ...rest }) => rest, 'receipt_invalid'],
])('contract §9: %s is refused by name', (_name, change, code) => {
  expect(codeOf(judge(change(receipt())))).toBe(code)
})

test('contract §9: the key must be pinned, and valid when the receipt was made', () => {
  const answer = receipt()
  expect(codeOf(judge(answer, []))).toBe('receipt_unknown_key')
  expect(codeOf(judge(answer, [{ ...key, x: base64UrlOf(new Uint8Array(32).fill(9)) }]))).toBe(
    'receipt_invalid',
  )
  expect(codeOf(judge(answer, [{ ...key, exp: created - 1 }]))).toBe('receipt_key_expired')
  expect(codeOf(judge(answer, [{ ...key, exp: created }]))).toBe('proven')
  expect(codeOf(judge(answer, [{ ...key, nbf: created + receiptSkewSeconds + 1 }]))).toBe(
    'receipt_key_expired',
  )
})

test('contract §9: clocks may differ by five minutes', () => {
  for (const [by, code] of [
    [receiptSkewSeconds, 'proven'],
    [-receiptSkewSeconds, 'proven'],
    [receiptSkewSeconds + 1, 'receipt_clock_skew'],
    [-receiptSkewSeconds - 1, 'receipt_clock_skew'],
  ] as const)
    expect(codeOf(judge(receipt(), [key], created + by))).toBe(code)
})

test.each<[string, string]>([
  [requestDigest, 'same'],
  [`${requestDigest}, sha-512=:AAAA:`, 'same'],
  [digestHeader('00'.repeat(32)), 'differs'],
  ['sha-512=:AAAA:', 'unknown'],
  ['', 'malformed'],
  ['sha-256', 'malformed'],
  ['sha-256=abc', 'malformed'],
  ['sha-256=:!!:', 'malformed'],
])('RFC 9530: %s', (header, verdict) => {
  expect(judgeDigest(systemHash, header, requestBody)).toBe(verdict)
})

test('contract §9: a huge one is not read', () => {
  const header = `sha-256=:${'A'.repeat(5_000)}:`
  expect(judgeDigest(systemHash, header, requestBody)).toBe('malformed')
})

test('RFC 8037 A.3: the thumbprint of the RFC', () => {
  expect(thumbprintOf(systemHash, '11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo')).toBe(
    'kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k',
  )
})

test('a key is 32 bytes in base64url and nothing else', () => {
  expect(keyBytes(x)).toEqual(signer.publicKey)
  for (const text of ['', 'a', `${x}=`, `${x}A`, x.replace(/.$/, '?')])
    expect(keyBytes(text)).toBeUndefined()
})

test('headers of any text prove nothing, and nothing is thrown', () => {
  fc.assert(
    fc.property(fc.string(), fc.string(), (signatureInput, signature) => {
      const any = { ...receipt(), signatureInput, signature, contentDigest: signature }
      expect(judge(any).result).toBe('unproven')
    }),
  )
})
