/**
 * A chain view with a state of its own, and wallets that sign for what it shows: what admission
 * needs of the world, without a chain.
 */

import { keccak256, toHex as textToHex } from 'viem'
import { generatePrivateKey, privateKeyToAddress, sign } from 'viem/accounts'
import { yesOrNoQuery } from '#chain/constants'
import { type Contracts, domainOf, type Round, roundRef } from '#chain/round'
import type { ChainView, Question } from '#gateway/view/state'
import type { Hex } from '#ports'
import { UnavailableError } from '#protocol/errors'
import { priceOf, type Terms, toBatchItem, toSingle } from '#protocol/proposal'
import type { Address, BatchItem, OutcomeKey, SignedProposal } from '#protocol/schema'
import { toHex, witnessRound } from '#protocol/witness'

const address = (digit: string): Address => `0x${digit.repeat(40)}`

export const testContracts: Contracts = {
  chainId: 31337,
  permit2: '0x000000000022d473030f116ddee9f6b43ac78ba3',
  signedProposer: address('5'),
  oracles: [address('0').replace(/.$/, 'a') as Address],
  requesters: [{ address: address('b'), kind: 'uma-ctf-adapter' }],
  tokens: [address('c')],
}

/** `chain` of a gateway.json for these contracts. */
export const chainSectionOf = ({ chainId, signedProposer, ...contracts }: Contracts) => ({
  id: chainId,
  rpc_urls: ['http://127.0.0.1:1'],
  signed_proposer: signedProposer,
  ...contracts,
})

export const testBondRaw = 750_000_000n
export const testNowSeconds = 1_800_000_000n

export function makeQuestion(
  name: string,
  changes: Partial<Round> & {
    readonly slug?: string
    readonly labels?: readonly [string, string]
  } = {},
): Question {
  const { slug, labels = ['No', 'Yes'], ...round } = changes
  const ancillaryData = textToHex(
    `q: title: ${name}, res_data: p1: 0, p2: 1. Where p1 corresponds to ${labels[0]}, p2 to ${labels[1]}.`,
  )
  const questionId = keccak256(ancillaryData)
  const [oracle = address('a')] = testContracts.oracles
  const whole: Round = {
    questionId,
    kind: 'uma-ctf-adapter',
    oracle,
    requester: address('b'),
    identifier: yesOrNoQuery,
    timestamp: '1799000000',
    ancillaryData,
    state: 'requested',
    paused: false,
    token: { address: address('c'), symbol: 'USDC.e', decimals: 6 },
    totalBondRaw: testBondRaw,
    rewardRaw: 0n,
    isReopened: false,
    outcomes: [
      { outcome: 'p1', label: labels[0], price: priceOf.p1, allowed: true },
      { outcome: 'p2', label: labels[1], price: priceOf.p2, allowed: true },
      { outcome: 'p3', label: 'Unknown', price: priceOf.p3, allowed: false },
    ],
    blockNumber: 100n,
    ...round,
  }
  const witness = witnessRound(domainOf(testContracts), whole, whole.token.address)
  return {
    questionId,
    slug,
    round: whole,
    ref: roundRef(testContracts, questionId, whole, witness.ancillaryHash),
    witness,
  }
}

export function advanced(question: Question, timestamp: string): Question {
  const round: Round = { ...question.round, timestamp }
  const witness = witnessRound(domainOf(testContracts), round, round.token.address)
  return {
    ...question,
    round,
    ref: roundRef(testContracts, question.questionId, round, witness.ancillaryHash),
    witness,
  }
}

export function sibling(question: Question, name: string): Question {
  const questionId = keccak256(textToHex(name))
  return {
    ...question,
    questionId,
    slug: undefined,
    round: { ...question.round, questionId },
    ref: { ...question.ref, questionId },
  }
}

export interface FakeView extends ChainView {
  idOf(identifier: string): Hex | undefined
  put(question: Question): void
  readonly unseen: Map<string, Question>
  readonly faultList: string[]
  readonly usedNonces: Set<string>
  readonly wallets: Map<Address, Hex>
  offline: boolean
  nowValue: bigint
}

export function createFakeView(questions: readonly Question[] = []): FakeView {
  const memory = new Map<string, Question>()
  const unreadable = () =>
    new UnavailableError('state_unavailable', 'the node does not answer', { hint: 'try again' })
  const view: FakeView = {
    unseen: new Map(),
    faultList: [],
    usedNonces: new Set(),
    wallets: new Map(),
    offline: false,
    nowValue: testNowSeconds,
    put(question) {
      memory.set(question.questionId, question)
      if (question.slug !== undefined) memory.set(question.slug, question)
    },
    faults: () => view.faultList,
    idOf: (identifier) => memory.get(identifier)?.questionId,
    nowSeconds: () => view.nowValue,
    known: (identifier) => memory.get(identifier),
    readAhead: () => undefined,
    async question(identifier) {
      if (view.offline) throw unreadable()
      const found = view.unseen.get(identifier)
      if (found) view.put(found)
      return memory.get(identifier)
    },
    nonceKnownUsed: (owner, nonce) => view.usedNonces.has(`${owner}|${nonce}`),
    async hasCode(account) {
      if (view.offline) throw unreadable()
      return view.wallets.has(account)
    },
    knownCode: (account) => (view.wallets.has(account) ? undefined : false),
    async authorizes(wallet, _digest, signature) {
      if (view.offline) throw unreadable()
      return view.wallets.get(wallet) === signature
    },
  }
  for (const question of questions) view.put(question)
  return view
}

export interface Wallet {
  readonly address: Address
  readonly privateKey: Hex
}

export function makeWallet(): Wallet {
  const privateKey = generatePrivateKey()
  return { privateKey, address: privateKeyToAddress(privateKey).toLowerCase() as Address }
}

let nextNonce = 1
export function termsOf(
  wallet: Wallet,
  outcome: OutcomeKey = 'p2',
  changes: Partial<Terms> = {},
): Terms {
  return {
    proposer: wallet.address,
    price: priceOf[outcome],
    amount: String(testBondRaw),
    nonce: String(nextNonce++),
    deadline: String(testNowSeconds + 3_600n),
    ...changes,
  }
}

export async function signTerms(wallet: Wallet, question: Question, terms: Terms): Promise<Hex> {
  return sign({
    hash: toHex(question.witness.digest(terms)),
    privateKey: wallet.privateKey,
    to: 'hex',
  })
}

export async function signedBody(
  wallet: Wallet,
  question: Question,
  outcome: OutcomeKey = 'p2',
  changes: Partial<Terms> = {},
): Promise<SignedProposal> {
  const terms = termsOf(wallet, outcome, changes)
  return toSingle({ ...terms, signature: await signTerms(wallet, question, terms) })
}

export async function signedItem(
  wallet: Wallet,
  question: Question,
  outcome: OutcomeKey = 'p2',
  changes: Partial<Terms> = {},
): Promise<BatchItem> {
  const terms = termsOf(wallet, outcome, changes)
  return toBatchItem(question.questionId, {
    ...terms,
    signature: await signTerms(wallet, question, terms),
  })
}

export function compactSignature(signature: Hex): Hex {
  const v = Number.parseInt(signature.slice(130), 16)
  const top = Number.parseInt(signature.slice(66, 68), 16) | (v === 28 ? 0x80 : 0)
  return `0x${signature.slice(2, 66)}${top.toString(16).padStart(2, '0')}${signature.slice(68, 130)}`
}
