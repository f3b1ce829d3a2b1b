import { randomBytes } from 'node:crypto'
import { secp256k1 } from '@noble/curves/secp256k1'

const hex = (bytes) => `0x${Buffer.from(bytes).toString('hex')}`
export const version = {
  api: 'v1',
  schema: 'signed-proposal-v1',
  witness: 'permit2-signed-proposer-v1',
}
const prices = { p1: '0', p2: '1000000000000000000' }

/**
 * The dev chain's proposers as signers; each hands out its permit nonces in order, so that a word
 * is full before the next is touched.
 */
export function makeSigners(accounts) {
  return accounts
    .filter(({ role }) => role === 'proposer')
    .map(({ address, private_key }) => {
      let nonce = BigInt(hex(randomBytes(30))) << 16n
      return {
        address,
        key: private_key.slice(2),
        nextNonce() {
          nonce += 1n
          return String(nonce)
        },
      }
    })
}

/**
 * One signed authorization for a question's context (the answer of the batch signing-data route):
 * the bytes for the single route and the item for the batch route. With `forger`, another wallet's
 * key makes the signature.
 */
export function authorize({ witnessRound }, context, signer, outcome, forger = signer) {
  const { request, bond, contracts, signing, question_id } = context
  const round = witnessRound(
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
  )
  const deadline = Math.floor(Date.now() / 1000) + 6 * 3600
  const permit = {
    amount: bond.required_bond,
    nonce: signer.nextNonce(),
    deadline: String(deadline),
  }
  const signed = secp256k1.sign(round.digest({ price: prices[outcome], ...permit }), forger.key)
  const signature = `${hex(signed.toCompactRawBytes())}${(27 + signed.recovery).toString(16)}`
  const proposer = signer.address
  return {
    path: `/v1/proposals/${question_id}`,
    body: JSON.stringify({ version, proposer, outcome, max_payment: '0', permit, signature }),
    item: {
      identifier: question_id,
      proposer,
      proposed_price: prices[outcome],
      max_payment: '0',
      permit: { ...permit, deadline },
      signature,
    },
  }
}
