/** What contracts say at one block, and how a round ended (contract §5, domain §2–§4). */
import {
  erc20Abi,
  oracleAbi,
  permit2Abi,
  roles,
  signedProposerAbi,
  whitelistAbi,
} from '#chain/contracts'
import { locateProposal, type OnChainProposal } from '#chain/propose'
import { readTerms } from '#chain/questions'
import { lowercase, readContract, unlessRefused, zeroAddress } from '#chain/reading'
import { causeOf, type RevertContext } from '#chain/reverts'
import { type Contracts, keccakHex, type Round, roundRef } from '#chain/round'
import { type BlockHeader, type Chain, type ChainCall, ChainError, type Hex } from '#ports'
import type { Candidate, CandidateFailure } from '#protocol/candidate'
import type { FailureCode } from '#protocol/codes'
import { nonceBit } from '#protocol/permit'
import { outcomeOf } from '#protocol/proposal'
import type { Address } from '#protocol/schema'
import type { WitnessRequest } from '#protocol/witness'
import type { Heads } from '../view/state.js'
import { failureOf, stageOf } from './progress.js'

export interface PinnedChain {
  readonly chain: Chain
  readonly contracts: Contracts
}

export interface QuestionChain extends PinnedChain {
  readRound(questionId: Hex, blockNumber: bigint): Promise<Round | undefined>
}

export async function revertOf(chain: Chain, call: ChainCall, at: bigint) {
  try {
    await chain.call(call, at)
    return undefined
  } catch (error) {
    if (error instanceof ChainError && error.kind === 'reverted') return error.data
    throw error
  }
}

const readBitmap = ({ chain, contracts }: PinnedChain, owner: Address, word: bigint, at: bigint) =>
  readContract(chain, at, contracts.permit2, permit2Abi, 'nonceBitmap', [owner, word])

export async function isSpentAt(pinned: PinnedChain, candidate: Candidate, at: bigint) {
  const { word, mask } = bitOf(candidate)
  return ((await readBitmap(pinned, candidate.proposer, word, at)) & mask) !== 0n
}

/** `effective = custom || default` (domain §4, Whitelists). */
export async function readWhitelist(
  { chain, contracts }: PinnedChain,
  { oracle, requester, identifier, ancillaryData }: WitnessRequest,
  proposer: Address,
  at: bigint,
) {
  const request = [requester, identifier, ancillaryData] as const
  const [custom, standard] = await Promise.all([
    readContract(chain, at, oracle, oracleAbi, 'getCustomProposerWhitelist', request),
    readContract(chain, at, oracle, oracleAbi, 'defaultProposerWhitelist', []),
  ])
  const isCustom = lowercase(custom) !== zeroAddress
  const list = lowercase(isCustom ? custom : standard)
  const isListed = (who: Address) =>
    unlessRefused(readContract(chain, at, list, whitelistAbi, 'isOnWhitelist', [who]))
  const [spenderListed, proposerListed, owner] = await Promise.all([
    isListed(contracts.signedProposer),
    isListed(proposer),
    unlessRefused(readContract(chain, at, list, whitelistAbi, 'owner', [])),
  ])
  return {
    custom: isCustom,
    spenderListed: spenderListed ?? false,
    proposerListed: proposerListed ?? false,
    owned: owner !== undefined && lowercase(owner) === contracts.signedProposer,
  }
}

export async function readFunds(
  { chain, contracts }: PinnedChain,
  token: Address,
  wallet: Address,
  at: bigint,
) {
  const [balanceRaw, allowanceRaw] = await Promise.all([
    readContract(chain, at, token, erc20Abi, 'balanceOf', [wallet]),
    readContract(chain, at, token, erc20Abi, 'allowance', [wallet, contracts.permit2]),
  ])
  return { balanceRaw, allowanceRaw }
}

export const readRole = ({ chain, contracts }: PinnedChain, executor: Address, at: bigint) =>
  readContract(chain, at, contracts.signedProposer, signedProposerAbi, 'hasRole', [
    roles.delegatedProposer,
    executor,
  ])

/** Revert data may be a wallet's own words, so what it says is read at its block (domain §3.3). */
export async function readCause(
  pinned: PinnedChain,
  { proposer, amount }: Candidate,
  call: { readonly request: WitnessRequest; readonly token: Address; readonly executor: Address },
  revert: Hex,
  at: bigint,
  known: Pick<RevertContext, 'stage' | 'walletAccepts' | 'gasExhausted'>,
) {
  const { chain, contracts } = pinned
  const { request, token, executor } = call
  const [list, funds, terms, code, executorHasRole] = await Promise.all([
    unlessRefused(readWhitelist(pinned, request, proposer, at)),
    unlessRefused(readFunds(pinned, token, proposer, at)),
    unlessRefused(readTerms({ chain, contracts, at }, request)),
    chain.code(proposer, at),
    unlessRefused(readRole(pinned, executor, at)),
  ])
  return causeOf(revert, {
    ...known,
    signedProposer: contracts.signedProposer,
    oracle: request.oracle,
    hasCustomWhitelist: list?.custom ?? false,
    neededRaw: BigInt(amount),
    ...funds,
    ...(terms && { roundState: terms.state, bondRaw: terms.totalBondRaw }),
    proposerHasCode: code !== '0x',
    ...(executorHasRole !== undefined && { executorHasRole }),
    ...(list && { spenderListed: list.spenderListed }),
  })
}

export function readBitmapOf(pinned: PinnedChain, owner: Address, at: BlockHeader) {
  const bitmaps = new Map<bigint, Promise<bigint>>()
  return (word: bigint) => {
    const known = bitmaps.get(word)
    if (known) return known
    const reading = readBitmap(pinned, owner, word, at.number)
    bitmaps.set(word, reading)
    reading.catch(() => bitmaps.delete(word))
    return reading
  }
}

export async function readUsedNonces(
  bitmapAt: (word: bigint) => Promise<bigint>,
  candidates: readonly Candidate[],
): Promise<(candidate: Candidate) => boolean> {
  const words = new Set(candidates.map((one) => bitOf(one).word))
  const bitmaps = new Map(
    await Promise.all([...words].map(async (word) => [word, await bitmapAt(word)] as const)),
  )
  return (one) => ((bitmaps.get(bitOf(one).word) ?? 0n) & bitOf(one).mask) !== 0n
}

const bits = new WeakMap<Candidate, ReturnType<typeof nonceBit>>()

export function bitOf(candidate: Candidate) {
  const bit = bits.get(candidate) ?? nonceBit(BigInt(candidate.nonce))
  bits.set(candidate, bit)
  return bit
}

interface ClosedRound {
  /** `undefined` where no trusted requester knows the question. */
  readonly current: Round | undefined
  readonly proposal: OnChainProposal | undefined
}

export type OwnProposal = Extract<OnChainProposal, { bySignature: true }>

export type RoundOutcome =
  | { readonly kind: 'executed'; readonly proposal: OwnProposal }
  | { readonly kind: 'failed'; readonly failure: CandidateFailure }

export const isRoundOpen = (contracts: Contracts, round: Round, candidate: Candidate) =>
  round.state === 'requested' && isSameRound(contracts, round, candidate)

const roundKeys = new WeakMap<Round, string>()

export function isSameRound(contracts: Contracts, round: Round, candidate: Candidate) {
  const key =
    roundKeys.get(round) ??
    roundRef(contracts, round.questionId, round, keccakHex(round.ancillaryData)).key
  roundKeys.set(round, key)
  return key === candidate.round.key
}

/** As of the finalized block; `undefined` while it is open, or not reached yet. */
export async function readRoundEnd(
  ports: QuestionChain,
  candidate: Candidate,
  { latest, finalized }: Heads,
): Promise<ClosedRound | undefined> {
  const { questionId, oracle, requester, identifier, timestamp, ancillaryHash } = candidate.round
  const current = await ports.readRound(questionId, finalized.number)
  if (current === undefined) {
    const newest = await ports.readRound(questionId, latest.number)
    return newest === undefined ? { current: undefined, proposal: undefined } : undefined
  }
  // A round of a time that finalized state has passed, and not in it, was undone (R14).
  if (isRoundOpen(ports.contracts, current, candidate) || finalized.timestamp < BigInt(timestamp))
    return undefined
  const { ancillaryData } = current
  if (keccakHex(ancillaryData) !== ancillaryHash) return { current, proposal: undefined }
  const request = { oracle, requester, identifier, timestamp, ancillaryData }
  const { signedProposer } = ports.contracts
  const proposal = await locateProposal(ports.chain, request, signedProposer, finalized, candidate)
  return { current, proposal }
}

/** `bySignature`: it is its own, whoever sent it (domain §9). */
export function endingOf(
  candidate: Candidate,
  { proposal, current }: ClosedRound,
  stage = stageOf(candidate.progress),
): RoundOutcome {
  if (proposal?.bySignature) return { kind: 'executed', proposal }
  const failed = (code: FailureCode, detail: string): RoundOutcome => ({
    kind: 'failed',
    failure: failureOf(stage, code, detail),
  })
  const { timestamp } = candidate.round
  if (current && current.timestamp !== timestamp) {
    const detail = `The question is in the round of ${current.timestamp}; this was signed for the round of ${timestamp}.`
    return failed('round_advanced', detail)
  }
  if (proposal) {
    const { proposer, price, transactionHash } = proposal
    const where = transactionHash === null ? '' : `, in transaction ${transactionHash}`
    const detail = `${proposer} proposed ${outcomeOf(price) ?? `price ${price}`} first${where}.`
    return failed('superseded', detail)
  }
  const detail = current
    ? `The request is ${current.state}.`
    : 'No trusted requester knows the question any more.'
  return failed('request_not_open', detail)
}
