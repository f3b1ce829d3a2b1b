import { randomBytes } from 'node:crypto'
import { secp256k1 } from '@noble/curves/secp256k1'
import type { DevAccount } from '#devchain/dev-contracts'
import { priceOf } from '#protocol/proposal'
import type { BatchSigningData, OutcomeKey } from '#protocol/schema'
import { type WitnessRound, witnessRound } from '#protocol/witness'

export interface Payload {
  readonly identity: string
  readonly proposer: string
  readonly questionId: string
  readonly nonce: string
  readonly path: string
  readonly body: string
}

interface Planned {
  readonly round: number
  readonly wallet: number
  readonly nonce: string
  readonly outcome: OutcomeKey
}

export const identityOf = (proposer: string, questionId: string, nonce: string, price: string) =>
  `${proposer} ${questionId} ${nonce} ${price}`

const freshNonce = () => String(BigInt(`0x${randomBytes(31).toString('hex')}`))

export function planProposals(count: number, wallets: number, random: () => number) {
  const jobs: Planned[][] = []
  let rounds = 0
  let planned = 0
  const one = (wallet: number, round: number, more: Partial<Planned> = {}): Planned => {
    planned += 1
    const outcome = random() < 0.5 ? 'p1' : 'p2'
    return { round, wallet: wallet % wallets, nonce: freshNonce(), outcome, ...more }
  }
  while (planned < count) {
    const choice = random()
    const wallet = Math.floor(random() * wallets)
    const round = rounds++
    if (choice < 0.4) jobs.push([one(wallet, round)])
    else if (choice < 0.8) jobs.push([0, 1, 2].map((other) => one(wallet + other, round)))
    else if (choice < 0.9) jobs.push([one(wallet, round), one(wallet, round)])
    else {
      const nonce = freshNonce()
      jobs.push([one(wallet, round, { nonce }), one(wallet, rounds++, { nonce })])
    }
  }
  return { rounds, jobs }
}

export class Witnesses {
  readonly #known = new Map<string, { readonly round: WitnessRound; readonly amount: string }>()

  add({ question_id, request, bond, contracts, signing }: BatchSigningData): void {
    const domain = {
      chainId: signing.chain_id,
      permit2: contracts.permit2,
      signedProposer: contracts.signed_proposer,
    }
    const asked = {
      oracle: request.oracle,
      requester: request.requester,
      identifier: request.identifier.raw,
      timestamp: request.timestamp,
      ancillaryData: request.ancillary_data,
    }
    const round = witnessRound(domain as never, asked as never, bond.token as never)
    this.#known.set(question_id, { round, amount: bond.required_bond })
  }

  sign({ nonce, outcome }: Planned, questionId: string, wallet: DevAccount): Payload {
    const known = this.#known.get(questionId)
    if (known === undefined) throw new RangeError(`nobody has told of ${questionId}`)
    const deadline = String(Math.floor(Date.now() / 1_000) + 6 * 3_600)
    const { amount } = known
    const terms = { price: priceOf[outcome], amount, nonce, deadline }
    const signature = secp256k1.sign(known.round.digest(terms), wallet.private_key.slice(2))
    const proposer = wallet.address
    const bytes = Buffer.from(signature.toCompactRawBytes()).toString('hex')
    return {
      identity: identityOf(proposer, questionId, nonce, priceOf[outcome]),
      proposer,
      questionId,
      nonce,
      path: `/v1/proposals/${questionId}`,
      body: JSON.stringify({
        version: { api: 'v1', schema: 'signed-proposal-v1', witness: 'permit2-signed-proposer-v1' },
        proposer,
        outcome,
        max_payment: '0',
        permit: { amount, nonce, deadline },
        signature: `0x${bytes}${(27 + signature.recovery).toString(16)}`,
      }),
    }
  }
}
