import { randomBytes } from 'node:crypto'
import { secp256k1 } from '@noble/curves/secp256k1'
import { keccak_256 } from '@noble/hashes/sha3'

const hex = (bytes) => `0x${Buffer.from(bytes).toString('hex')}`

export function makeWallets(count) {
  return Array.from({ length: count }, () => {
    const key = secp256k1.utils.randomPrivateKey()
    return {
      key,
      address: hex(keccak_256(secp256k1.getPublicKey(key, false).subarray(1)).subarray(12)),
    }
  })
}

export async function questionsOf(url, identifiers) {
  const found = []
  for (let start = 0; start < identifiers.length; start += 100) {
    const answer = await fetch(`${url}/propose/batch/signing-data`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ identifiers: identifiers.slice(start, start + 100) }),
    })
    if (answer.status !== 200)
      throw new Error(`signing-data answered ${answer.status}: ${await answer.text()}`)
    for (const { signing_data, error } of (await answer.json()).results) {
      if (error !== undefined) throw new Error(`signing-data: ${error.detail}`)
      found.push(signing_data)
    }
  }
  return found
}

export function peerContext(questions, wallets) {
  const [first] = questions
  return {
    chain_id: first.signing.chain_id,
    permit2: first.contracts.permit2,
    signed_proposer: first.contracts.signed_proposer,
    token: first.bond.token,
    bond: first.bond.required_bond,
    allowlist: wallets.map(({ address }) => address),
    questions: questions.map(({ question_id, request }) => ({
      question_id,
      oracle: request.oracle,
      requester: request.requester,
      identifier: request.identifier.raw,
      timestamp: request.timestamp,
      ancillary_data: request.ancillary_data,
    })),
  }
}

/**
 * One signed proposal for each wallet and question, as a v1 request and as a batch item: one active
 * payload per proposer and round is what a gateway lets in.
 */
export function signAll({ witnessRound }, questions, wallets) {
  const rounds = questions.map(({ question_id, request, bond, contracts, signing }) => ({
    question_id,
    amount: bond.required_bond,
    round: witnessRound(
      {
        chainId: signing.chain_id,
        permit2: contracts.permit2,
        signedProposer: contracts.signed_proposer,
      },
      {
        oracle: request.oracle,
        requester: request.requester,
        identifier: request.identifier.raw,
        timestamp: request.timestamp,
        ancillaryData: request.ancillary_data,
      },
      bond.token,
    ),
  }))
  const deadline = String(Math.floor(Date.now() / 1000) + 6 * 3600)
  return wallets.flatMap(({ key, address }) => {
    const word = BigInt(hex(randomBytes(31))) << 8n
    return rounds.map(({ question_id, amount, round }, index) => {
      const nonce = String(word + BigInt(index))
      const signature = secp256k1.sign(round.digest({ price: '0', amount, nonce, deadline }), key)
      const signed = `${hex(signature.toCompactRawBytes())}${(27 + signature.recovery).toString(16)}`
      const body = {
        version: { api: 'v1', schema: 'signed-proposal-v1', witness: 'permit2-signed-proposer-v1' },
        proposer: address,
        outcome: 'p1',
        max_payment: '0',
        permit: { amount, nonce, deadline },
        signature: signed,
      }
      const item = {
        identifier: question_id,
        proposer: address,
        proposed_price: '0',
        max_payment: '0',
        permit: { amount, nonce, deadline: Number(deadline) },
        signature: signed,
      }
      return { path: `/v1/proposals/${question_id}`, body: JSON.stringify(body), item }
    })
  })
}
