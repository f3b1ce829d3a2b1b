import { readFileSync } from 'node:fs'
import fc from 'fast-check'
import { hashTypedData, keccak256, recoverAddress, stringToBytes } from 'viem'
import type { Hex } from '#ports'
import type { Address } from '#protocol/schema'
import { recoverSigner } from '#protocol/signature'
import {
  domainSeparator,
  encodedTypes,
  fromHex,
  proposalTypeHash,
  toHex,
  typedData,
  typeHashes,
  type WitnessDomain,
  type WitnessRequest,
  type WitnessTerms,
  witnessRound,
  witnessTypeString,
  witnessTypes,
} from '#protocol/witness'

interface VectorCase {
  name: string
  input: Record<string, string>
  expected: { domain_separator: string; digest: string }
  signer: string
  signature: string
  signature_compact: string
}
const vectors = JSON.parse(
  readFileSync(new URL('../../fixtures/vectors/witness.json', import.meta.url), 'utf8'),
) as {
  count: number
  constants: Record<string, string>
  cases: VectorCase[]
}

function parts(input: Record<string, string>): {
  domain: WitnessDomain
  request: WitnessRequest
  token: Address
  terms: WitnessTerms
} {
  const at = (key: string) => {
    const value = input[key]
    if (value === undefined) throw new Error(`vector without ${key}`)
    return value
  }
  return {
    domain: {
      chainId: Number(at('chain_id')),
      permit2: at('permit2') as Hex,
      signedProposer: at('signed_proposer') as Hex,
    },
    request: {
      oracle: at('oracle') as Hex,
      requester: at('requester') as Hex,
      identifier: at('identifier') as Hex,
      timestamp: at('timestamp'),
      ancillaryData: at('ancillary_data') as Hex,
    },
    token: at('token') as Hex,
    terms: {
      price: at('proposed_price'),
      amount: at('amount'),
      nonce: at('nonce'),
      deadline: at('deadline'),
    },
  }
}

function viemDigest(
  { domain, request, token, terms }: ReturnType<typeof parts>,
  maxPayment = 0n,
): Hex {
  return hashTypedData({
    domain: { name: 'Permit2', chainId: domain.chainId, verifyingContract: domain.permit2 },
    types: witnessTypes,
    primaryType: 'PermitWitnessTransferFrom',
    message: {
      permitted: { token, amount: BigInt(terms.amount) },
      spender: domain.signedProposer,
      nonce: BigInt(terms.nonce),
      deadline: BigInt(terms.deadline),
      witness: {
        oracle: request.oracle,
        requester: request.requester,
        identifier: request.identifier,
        timestamp: BigInt(request.timestamp),
        ancillaryData: request.ancillaryData,
        proposedPrice: BigInt(terms.price),
        maxPayment,
      },
    },
  })
}

test('domain §3.1: the type hashes that are written down are those of the types', () => {
  const hashed = Object.entries(encodedTypes).map(([name, text]) => [
    name,
    keccak256(stringToBytes(text)),
  ])
  expect(Object.entries(typeHashes)).toEqual(hashed)
})

test('§2.8: the constants are those of the deployed contracts', () => {
  expect(proposalTypeHash).toBe(vectors.constants.proposal_typehash)
  expect(witnessTypeString).toBe(vectors.constants.witness_type_string)
})

test('§2.8: there are 40 vectors', () => {
  expect(vectors.cases).toHaveLength(40)
})

for (const vector of vectors.cases) {
  test(`§2.8: vector: ${vector.name}`, async () => {
    const { domain, request, token, terms } = parts(vector.input)
    const maxPayment = BigInt(vector.input.max_payment ?? '')
    const digest = witnessRound(domain, request, token, maxPayment).digest(terms)
    expect(toHex(domainSeparator(domain.chainId, domain.permit2))).toBe(
      vector.expected.domain_separator,
    )
    expect(toHex(digest)).toBe(vector.expected.digest)
    expect(viemDigest({ domain, request, token, terms }, maxPayment)).toBe(vector.expected.digest)
    expect(recoverSigner(digest, vector.signature as Hex)).toBe(vector.signer)
    expect(recoverSigner(digest, vector.signature_compact as Hex)).toBe(vector.signer)
    expect(
      (
        await recoverAddress({ hash: toHex(digest), signature: vector.signature as Hex })
      ).toLowerCase(),
    ).toBe(vector.signer)
  })
}

test('§2.8: the digest equals viem for any request and terms, also when one round signs many prices', () => {
  const bytes = (length: number) =>
    fc.uint8Array({ minLength: length, maxLength: length }).map(toHex)
  const uint = fc.bigInt({ min: 0n, max: 2n ** 256n - 1n }).map(String)
  const terms = fc.record({
    price: fc.bigInt({ min: -(2n ** 255n), max: 2n ** 255n - 1n }).map(String),
    amount: uint,
    nonce: uint,
    deadline: uint,
  })
  fc.assert(
    fc.property(
      fc.record({
        chainId: fc.integer({ min: 1, max: 2 ** 31 }),
        permit2: bytes(20),
        signedProposer: bytes(20),
      }),
      fc.record({
        oracle: bytes(20),
        requester: bytes(20),
        identifier: bytes(32),
        timestamp: uint,
        ancillaryData: fc.uint8Array({ maxLength: 400 }).map(toHex),
      }),
      bytes(20),
      fc.array(terms, { minLength: 1, maxLength: 10 }),
      (domain, request, token, many) => {
        const round = witnessRound(domain, request, token)
        for (const one of many)
          expect(toHex(round.digest(one))).toBe(viemDigest({ domain, request, token, terms: one }))
      },
    ),
    { numRuns: 150 },
  )
})

test('§2.8: typed data hashes to the digest by viem although its chain id is a string', () => {
  const vector = vectors.cases[0]
  if (!vector) throw new Error('no vectors')
  const { domain, request, token, terms } = parts(vector.input)
  const payload = typedData(domain, request, token, terms)
  expect(payload.domain.chainId).toBe('137')
  expect(hashTypedData(payload as never)).toBe(vector.expected.digest)
})

test('§2.8: bytes that are not lowercase even-length hex are refused, never repaired', () => {
  for (const bad of [
    '',
    '0',
    '0x1',
    'x0ab',
    '0x0g',
    '0x/0',
    '0x:0',
    '0x`0',
    '0x0é',
    '0x\u0130\u0141',
    '0X12',
    '12',
    '0xAB',
    '0xzz',
  ])
    expect(() => fromHex(bad)).toThrow(RangeError)
})

test('§2.8: v 0 and 1, other lengths and junk recover nobody', () => {
  const digest = new Uint8Array(32).fill(7)
  expect(recoverSigner(digest, `0x${'11'.repeat(64)}00`)).toBeUndefined()
  expect(recoverSigner(digest, `0x${'11'.repeat(63)}`)).toBeUndefined()
  expect(recoverSigner(digest, `0x${'ff'.repeat(64)}1b`)).toBeUndefined()
  expect(recoverSigner(digest, `0x${'00'.repeat(64)}1b`)).toBeUndefined()
})
