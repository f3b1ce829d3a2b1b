/**
 * What must hold before a slot is opened, as of one block, and how a round ended (contract §5,
 * domain §2–§4). What a later block could undo fails nobody (R14).
 */
import { signedProposerAbi } from '#chain/contracts'
import { locateProposal, type OnChainProposal, proposeCalldata } from '#chain/propose'
import { readTerms } from '#chain/questions'
import { lowercase, readContract, unlessRefused } from '#chain/reading'
import { causeOf, decodeRevert, type RevertContext } from '#chain/reverts'
import { type Contracts, keccakHex, type Round, roundRef } from '#chain/round'
import {
  defaultWhitelist,
  isOnWhitelist,
  type PinnedChain,
  readBitmap,
  readFunds,
  readRole,
  readWhitelist,
} from '#chain/wallets'
import type { BlockHeader, Hex } from '#ports'
import type {
  Candidate,
  CandidateFailure,
  CandidateSubmission,
  Progress,
} from '#protocol/candidate'
import { type FailureCode, type FailureStage, failures } from '#protocol/codes'
import { nonceBit } from '#protocol/permit'
import { outcomeOf } from '#protocol/proposal'
import type { RecoverPublicKey } from '#protocol/recovered'
import type { Address } from '#protocol/schema'
import { recoverSigner } from '#protocol/signature'
import { fromHex, proposalTypeHash, type WitnessRequest } from '#protocol/witness'
import type { CandidateCheck, Change } from '../ledger/ledger.js'
import type { Heads } from '../view/state.js'
import { chainFailure, walletAccepts } from '../view/view.js'

/** `retryable` counts where its code leaves it to the cause (contract §5). */
export function failureOf(
  stage: FailureStage,
  code: FailureCode,
  detail: string,
  retryable = false,
): CandidateFailure {
  return { stage, code, detail, retryable: failures[code].retryable ?? retryable }
}

export function stageOf({ status }: Progress): FailureStage {
  if (status === 'received') return 'validation'
  return status === 'validated' ? 'selection' : 'submission'
}

export const progressChange = ({ id }: Pick<Candidate, 'id'>, progress: Progress): Change => ({
  kind: 'candidate.progress',
  id,
  progress,
})

export const failed = (
  before: Progress,
  failure: CandidateFailure,
  submission = submissionOf(before),
): Progress => ({ status: 'failed', ...timesIn(before), submission, failure })

export const failedChange = (candidate: Candidate, failure: CandidateFailure): Change =>
  progressChange(candidate, failed(candidate.progress, failure))

export const submissionOf = (progress: Progress): CandidateSubmission | null =>
  'submission' in progress ? progress.submission : null

export const timesIn = (progress: Progress) => ({
  validatedAtMs: 'validatedAtMs' in progress ? progress.validatedAtMs : null,
  selectedAtMs: 'selectedAtMs' in progress ? progress.selectedAtMs : null,
})

export interface QuestionChain extends PinnedChain {
  readRound(questionId: Hex, blockNumber: bigint): Promise<Round | undefined>
}

export async function isSpentAt(pinned: PinnedChain, candidate: Candidate, at: bigint) {
  const { word, mask } = bitOf(candidate)
  const { chain, contracts } = pinned
  return ((await readBitmap(chain, at, contracts.permit2, candidate.proposer, word)) & mask) !== 0n
}

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
    unlessRefused(readFunds(chain, at, contracts.permit2, token, proposer)),
    unlessRefused(readTerms({ chain, contracts, at }, request)),
    chain.code(proposer, at),
    unlessRefused(readRole(chain, at, contracts.signedProposer, executor)),
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

async function readUsed(
  ports: JudgePorts,
  candidates: readonly Candidate[],
  at: BlockHeader,
): Promise<ReadonlySet<Candidate>> {
  const bitmaps = new Map<bigint, Promise<bigint>>()
  const found = candidates.map(async (one) => {
    const { word, mask } = bitOf(one)
    const bitmap = bitmaps.get(word) ?? ports.bitmapAt(one.proposer, word, at)
    bitmaps.set(word, bitmap)
    return ((await bitmap) & mask) === 0n ? [] : [one]
  })
  return new Set((await Promise.all(found)).flat())
}

export const bitOf = ({ nonce }: Candidate) => nonceBit(BigInt(nonce))

interface ClosedRound {
  readonly current: Round | undefined
  readonly proposal: OnChainProposal | undefined
}

export type RoundOutcome =
  | { readonly kind: 'executed'; readonly proposal: OnChainProposal & { bySignature: true } }
  | { readonly kind: 'failed'; readonly failure: CandidateFailure }

export const isRoundOpen = (contracts: Contracts, round: Round, candidate: Candidate) =>
  round.state === 'requested' && isSameRound(contracts, round, candidate)

const roundKeys = new WeakMap<Round, string>()

function isSameRound(contracts: Contracts, round: Round, candidate: Candidate) {
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

type Figures = Record<string, string | boolean>

export interface ProposalCall {
  readonly candidate: Candidate
  readonly calldata: Hex
  readonly walletHasCode: boolean
}

/** `closed`: how it ended is judged in finalized state. `contradiction`: of the node with itself. */
type Finding =
  | { readonly kind: 'valid'; readonly call: ProposalCall }
  | {
      readonly kind: 'failed'
      readonly code: FailureCode
      readonly detail: string
      readonly retryable: boolean
    }
  | { readonly kind: 'closed' }
  | { readonly kind: 'wait'; readonly detail: string; readonly contradiction?: string }
  | { readonly kind: 'operator' | 'unknown'; readonly detail: string }

export type Judgement = Finding & {
  readonly read?: { readonly blockNumber: bigint; readonly figures: CandidateCheck['figures'] }
}

export interface JudgePorts extends QuestionChain {
  bitmapAt(owner: Address, word: bigint, at: BlockHeader): Promise<bigint>
  noteSpent(candidate: Candidate, at: BlockHeader): void
  readonly executor: Address | undefined
  peekRound(candidate: Candidate): Round | undefined
  simulate(call: ProposalCall, at: BlockHeader): Promise<Hex | undefined>
  tokenOf(candidate: Candidate): Address | undefined
  readonly recover?: RecoverPublicKey | undefined
}

/** `competing`: the wallet's other candidates that may execute before it (contract §5). */
export async function validate(
  ports: JudgePorts,
  candidate: Candidate,
  competing: readonly Candidate[],
  { latest, finalized }: Heads,
): Promise<Judgement> {
  const figures: Figures = {}
  const read = { blockNumber: latest.number, figures }
  try {
    const found = await judge(ports, candidate, competing, latest, figures)
    if (
      found.kind === 'failed' &&
      !isShortOfSum(found.code, candidate, figures) &&
      (await runs(ports, candidate, latest))
    ) {
      const detail = `${found.detail} The node contradicts itself: propose succeeds.`
      const contradiction = `the node contradicts itself about candidate ${candidate.id}: ${found.code}, and propose succeeds`
      return { kind: 'wait', detail, contradiction, read }
    }
    if (figures.nonce_used === true) ports.noteSpent(candidate, latest)
    if (found.kind !== 'failed' || found.retryable) return { ...found, read }
    const bitmapAt: JudgePorts['bitmapAt'] = (owner, word) =>
      readBitmap(ports.chain, finalized.number, ports.contracts.permit2, owner, word)
    const settled = await judge({ ...ports, bitmapAt }, candidate, competing, finalized, {})
    if (settled.kind === 'failed' && settled.code === found.code) return { ...found, read }
    return { kind: 'wait', detail: `${found.detail} Not final yet.`, read }
  } catch (error) {
    const { kind, message: detail } = chainFailure(error)
    return { kind: kind === 'unavailable' ? 'unknown' : 'wait', detail, read }
  }
}

/** No run of one shows it. */
function isShortOfSum(
  code: FailureCode,
  { amount }: Candidate,
  { balance = '0', allowance = '0' }: Figures,
) {
  if (code === 'insufficient_balance') return BigInt(balance) >= BigInt(amount)
  return code === 'insufficient_allowance' && BigInt(allowance) >= BigInt(amount)
}

/** The exact `propose` is what counts on chain, whatever its parts say (R27). */
export async function runs(ports: JudgePorts, candidate: Candidate, at: BlockHeader) {
  if (ports.executor === undefined) return false
  const round = await ports.readRound(candidate.round.questionId, at.number)
  if (round === undefined || !isSameRound(ports.contracts, round, candidate)) return false
  return (await ports.simulate(callOf(round, candidate, true), at)) === undefined
}

function callOf(round: Round, candidate: Candidate, walletHasCode: boolean): ProposalCall {
  const { proposer, signature } = candidate
  const terms = { token: round.token.address, proposer, terms: candidate, signature }
  return { candidate, calldata: proposeCalldata({ request: round, ...terms }), walletHasCode }
}

const fail = (code: FailureCode, detail: string): Finding => ({
  kind: 'failed',
  code,
  detail,
  retryable: failures[code].retryable ?? false,
})

async function judge(
  ports: JudgePorts,
  candidate: Candidate,
  competing: readonly Candidate[],
  at: BlockHeader,
  figures: Figures,
): Promise<Finding> {
  const { amount, deadline, nonce } = candidate
  const reading = ports.chain.code(candidate.proposer, at.number)
  const ask = (round: Round) => readCall(ports, candidate, round, reading, at)
  const guess = ports.peekRound(candidate)
  const begun = guess && isRoundOpen(ports.contracts, guess, candidate) ? ask(guess) : undefined
  // The judgement meets the same failure, or has no use for the answer.
  begun?.catch(chainFailure)
  const [round, code, used] = await Promise.all([
    ports.readRound(candidate.round.questionId, at.number),
    reading,
    readUsed(ports, [candidate, ...competing], at),
  ])
  Object.assign(figures, {
    block_time: String(at.timestamp),
    ...{ deadline, amount },
    nonce_used: used.has(candidate),
    wallet_has_code: code !== '0x',
    ...(round && {
      round_timestamp: round.timestamp,
      round_state: round.state,
      paused: round.paused,
      bond: String(round.totalBondRaw),
    }),
  })
  if (round === undefined || !isRoundOpen(ports.contracts, round, candidate))
    return { kind: 'closed' }
  if (round.paused)
    return { kind: 'wait', detail: 'The question is paused or flagged at its requester.' }
  if (BigInt(amount) < round.totalBondRaw) {
    const detail = `The bond is ${round.totalBondRaw} now, above the permit amount ${amount}.`
    return fail('bond_above_permit', detail)
  }
  if (at.timestamp > BigInt(deadline)) {
    const detail = `The permit deadline ${deadline} has passed: block time is ${at.timestamp}.`
    return fail('permit_expired', detail)
  }
  if (used.has(candidate))
    return fail('permit_nonce_used', `The permit nonce ${nonce} is used or invalidated.`)
  // In another token it takes nothing; one whose token nobody can tell counts.
  const { address: token } = round.token
  const neededRaw = competing
    .filter((other) => !used.has(other) && (ports.tokenOf(other) ?? token) === token)
    .reduce((sum, other) => sum + BigInt(other.amount), BigInt(amount))
  const asked = begun && guess?.token.address === token ? begun : ask(round)
  return judgeCall(ports, { round, neededRaw, at, ...(await asked) }, figures)
}

async function readCall(
  ports: JudgePorts,
  candidate: Candidate,
  round: Round,
  reading: Promise<Hex>,
  at: BlockHeader,
) {
  const run = async () => {
    const code = await reading
    const call = callOf(round, candidate, code !== '0x')
    const [accepted, revert] = await Promise.all([
      signatureAccepted(ports, candidate, code, at),
      ports.simulate(call, at),
    ])
    return { call, accepted, revert }
  }
  const [list, funds, tried] = await Promise.all([
    readWhitelist(ports, round, candidate.proposer, at.number),
    // A trusted token that is none is a matter of configuration (domain §7, empty data).
    unlessRefused(
      readFunds(
        ports.chain,
        at.number,
        ports.contracts.permit2,
        round.token.address,
        candidate.proposer,
      ),
    ),
    run(),
  ])
  return { list, funds, ...tried }
}

interface JudgedCall extends Awaited<ReturnType<typeof readCall>> {
  readonly round: Round
  readonly neededRaw: bigint
  readonly at: BlockHeader
}

async function judgeCall(
  ports: JudgePorts,
  judged: JudgedCall,
  figures: Figures,
): Promise<Finding> {
  const { round, neededRaw, at, call, accepted, list, funds, revert } = judged
  if (funds === undefined) {
    const detail = `the token at ${round.token.address} does not answer as an ERC-20: correct chain.tokens`
    return { kind: 'operator', detail }
  }
  Object.assign(figures, {
    needed: String(neededRaw),
    balance: String(funds.balanceRaw),
    allowance: String(funds.allowanceRaw),
    signature_accepted: accepted,
    custom_whitelist: list.custom,
    signed_proposer_listed: list.spenderListed,
    proposer_listed: list.proposerListed,
    list_owned: list.owned,
    ...(ports.executor && { simulation: revert ? decodeRevert(revert).text : 'succeeds' }),
  })
  // A wallet may answer a bare call otherwise than Permit2 (domain §3.3).
  const isRunSound = ports.executor !== undefined && revert === undefined
  const isAccepted = accepted || (call.walletHasCode && isRunSound)
  const fault = standingFault(judged, isAccepted, funds)
  if (fault) return fault
  if (revert === undefined || ports.executor === undefined) return { kind: 'valid', call }
  const asked = { request: round, token: round.token.address, executor: ports.executor }
  const known = { stage: 'simulation', walletAccepts: accepted } as const
  const cause = await readCause(ports, call.candidate, asked, revert, at.number, known)
  const { detail } = cause
  return cause.kind === 'operator'
    ? { kind: 'operator', detail }
    : { kind: 'failed', code: cause.code, detail, retryable: cause.retryable }
}

function standingFault(
  { round, call, neededRaw, list }: JudgedCall,
  isAccepted: boolean,
  { balanceRaw, allowanceRaw }: Awaited<ReturnType<typeof readFunds>>,
): Finding | undefined {
  if (!isAccepted) {
    const detail = call.walletHasCode
      ? "The proposer's wallet refuses the signature (EIP-1271)."
      : 'The signature is not by the proposer.'
    return fail('signature_not_authorized', detail)
  }
  if (!list.spenderListed && !list.custom)
    return { kind: 'operator', detail: spenderUnlisted(round.oracle) }
  const unlisted = list.spenderListed
    ? "The proposer is not on the request's whitelist and SignedProposer does not own that list."
    : 'SignedProposer is not on the custom whitelist of this request, which may be paused.'
  if (!list.spenderListed || (!list.proposerListed && !list.owned))
    return fail('proposer_not_whitelisted', unlisted)
  const needed = `of the ${neededRaw} that its active authorizations need`
  if (balanceRaw < neededRaw)
    return fail('insufficient_balance', `The wallet holds ${balanceRaw} ${needed}: fund it.`)
  if (allowanceRaw < neededRaw) {
    const detail = `The wallet allows Permit2 ${allowanceRaw} ${needed}: approve Permit2.`
    return fail('insufficient_allowance', detail)
  }
  return undefined
}

const spenderUnlisted = (oracle: Address) =>
  `SignedProposer is not on the default proposer whitelist of the oracle ${oracle}: list it`

/** Code is asked (EIP-1271, EIP-7702), no code recovers (domain §3.3). */
async function signatureAccepted(
  { chain, recover }: JudgePorts,
  candidate: Candidate,
  code: Hex,
  at: BlockHeader,
) {
  const { proposer, digest, signature } = candidate
  if (code !== '0x') return walletAccepts(chain, proposer, digest, signature, at.number)
  return recoverSigner(fromHex(digest), signature, recover) === proposer
}

export async function operatorFaults(ports: JudgePorts, { number: at }: BlockHeader) {
  const { chain, contracts, executor } = ports
  const { signedProposer: spender, oracles } = contracts
  const checks = [
    orElse(contractFault(ports, at), `the contract at ${spender} is not a SignedProposer`),
    ...oracles.map((oracle) =>
      orElse(
        defaultWhitelist(chain, at, oracle)
          .then((list) => isOnWhitelist(chain, at, list, spender))
          .then((isListed) => !isListed && spenderUnlisted(oracle)),
        `the oracle at ${oracle} has no proposer whitelist: it is not a managed oracle`,
      ),
    ),
  ]
  if (executor !== undefined) {
    const named = `the executor ${executor}`
    const role = readRole(chain, at, spender, executor).then(
      (isGranted) =>
        !isGranted && `${named} lacks DELEGATED_PROPOSER_ROLE on SignedProposer: grant it`,
    )
    const funds = chain
      .balance(executor)
      .then((wei) => wei === 0n && `${named} has no balance to pay for gas: fund it`)
    checks.push(orElse(role, `the contract at ${spender} has no roles`), funds)
  }
  return (await Promise.all(checks)).flatMap((fault) => fault || [])
}

async function contractFault({ chain, contracts }: JudgePorts, at: bigint) {
  const { signedProposer: address, permit2: pinned } = contracts
  const [typeHash, permit2] = await Promise.all([
    readContract(chain, at, address, signedProposerAbi, 'PROPOSAL_TYPEHASH', []),
    readContract(chain, at, address, signedProposerAbi, 'permit2', []).then(lowercase),
  ])
  if (typeHash !== proposalTypeHash)
    return `SignedProposer at ${address} has another PROPOSAL_TYPEHASH than ${proposalTypeHash}`
  return (
    permit2 !== pinned && `SignedProposer at ${address} uses Permit2 at ${permit2}, not ${pinned}`
  )
}

/** A contract that answers otherwise is wrongly configured; a silent node says nothing. */
const orElse = async (check: Promise<string | false>, otherwise: string) =>
  (await unlessRefused(check)) ?? otherwise
