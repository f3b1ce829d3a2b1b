/**
 * What must hold before a slot is opened (contract §5), as of one block, and at the end by a run of
 * the exact `propose`. What a later block could undo fails nobody (R14).
 */
import { oracleAbi, signedProposerAbi, whitelistAbi } from '#chain/contracts'
import { proposeCalldata } from '#chain/propose'
import { lowercase, readContract, unlessRefused } from '#chain/reading'
import { decodeRevert } from '#chain/reverts'
import type { Round } from '#chain/round'
import { type BlockHeader, ChainError, type Hex } from '#ports'
import type { Candidate } from '#protocol/candidate'
import { type FailureCode, failures } from '#protocol/codes'
import type { RecoverPublicKey } from '#protocol/recovered'
import type { Address } from '#protocol/schema'
import { recoverSigner } from '#protocol/signature'
import { fromHex, proposalTypeHash } from '#protocol/witness'
import type { CandidateCheck } from '../ledger/ledger.js'
import type { Heads } from '../view/state.js'
import { chainFailure, walletAccepts } from '../view/view.js'
import {
  isRoundOpen,
  isSameRound,
  type QuestionChain,
  readBitmapOf,
  readCause,
  readFunds,
  readRole,
  readUsedNonces,
  readWhitelist,
} from './contract-reads.js'

export type SideBySide<T> = ReturnType<typeof sideBySide<T>>

export function sideBySide<T>() {
  const begun: Promise<readonly PromiseSettledResult<T>[]>[] = []
  return {
    add(work: Promise<T>) {
      begun.push(Promise.allSettled([work]))
    },
    /** When all has ended. Rejects with its first failure, a bug before those of the chain. */
    async ended(): Promise<readonly T[]> {
      const results = (await Promise.all(begun)).flat()
      const failures = results.filter((one) => one.status === 'rejected')
      const first = failures.find(({ reason }) => !(reason instanceof ChainError)) ?? failures[0]
      if (first) throw first.reason
      return results.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []))
    },
  }
}

/** A judgement takes a millisecond: others have their turn in between. */
const begunAtOnce = 4

export async function inParts<T, R>(
  all: readonly T[],
  turn: () => Promise<void>,
  work: (one: T) => Promise<R>,
): Promise<readonly R[]> {
  const begun = sideBySide<R>()
  for (const [at, one] of all.entries()) {
    if (at > 0 && at % begunAtOnce === 0) await turn()
    begun.add(work(one))
  }
  return begun.ended()
}

type Figures = Record<string, string | boolean>

export interface ProposalCall {
  readonly candidate: Candidate
  readonly calldata: Hex
  /** It may answer otherwise when it is mined. */
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
  bitmapOf(owner: Address, at: BlockHeader): (word: bigint) => Promise<bigint>
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
    const afresh = { ...ports, bitmapOf: (owner: Address) => readBitmapOf(ports, owner, finalized) }
    const settled = await judge(afresh, candidate, competing, finalized, {})
    if (settled.kind === 'failed' && settled.code === found.code) return { ...found, read }
    return { kind: 'wait', detail: `${found.detail} Not final yet.`, read }
  } catch (error) {
    const { kind, message: detail } = chainFailure(error)
    return { kind: kind === 'unavailable' ? 'unknown' : 'wait', detail, read }
  }
}

/** Not by all that is before it: no run of one `propose` shows that. */
function isShortOfSum(
  code: FailureCode,
  { amount }: Candidate,
  { balance = '0', allowance = '0' }: Figures,
) {
  if (code === 'insufficient_balance') return BigInt(balance) >= BigInt(amount)
  return code === 'insufficient_allowance' && BigInt(allowance) >= BigInt(amount)
}

/** The exact `propose` is what counts on chain, whatever its parts say (R27). */
export async function runs(
  ports: Pick<JudgePorts, 'contracts' | 'executor' | 'readRound' | 'simulate'>,
  candidate: Candidate,
  at: BlockHeader,
): Promise<boolean> {
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
  const [round, code, isUsed] = await Promise.all([
    ports.readRound(candidate.round.questionId, at.number),
    reading,
    readUsedNonces(ports.bitmapOf(candidate.proposer, at), [candidate, ...competing]),
  ])
  Object.assign(figures, {
    block_time: String(at.timestamp),
    ...{ deadline, amount },
    nonce_used: isUsed(candidate),
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
  if (isUsed(candidate))
    return fail('permit_nonce_used', `The permit nonce ${nonce} is used or invalidated.`)
  // In another token it takes nothing; one whose token nobody can tell counts.
  const { address: token } = round.token
  const neededRaw = competing
    .filter((other) => !isUsed(other) && (ports.tokenOf(other) ?? token) === token)
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
    unlessRefused(readFunds(ports, round.token.address, candidate.proposer, at.number)),
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
  const unlisted = (detail: string) => fail('proposer_not_whitelisted', detail)
  if (!isAccepted) {
    const detail = call.walletHasCode
      ? "The proposer's wallet refuses the signature (EIP-1271)."
      : 'The signature is not by the proposer.'
    return fail('signature_not_authorized', detail)
  }
  if (!list.spenderListed && !list.custom)
    return { kind: 'operator', detail: spenderUnlisted(round.oracle) }
  if (!list.spenderListed)
    return unlisted(
      'SignedProposer is not on the custom whitelist of this request, which may be paused.',
    )
  if (!list.proposerListed && !list.owned)
    return unlisted(
      "The proposer is not on the request's whitelist and SignedProposer does not own that list.",
    )
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
  return code === '0x'
    ? signerOf(candidate, recover) === proposer
    : walletAccepts(chain, proposer, digest, signature, at.number)
}

const signers = new WeakMap<Candidate, ReturnType<typeof recoverSigner>>()

function signerOf(candidate: Candidate, recover: RecoverPublicKey | undefined) {
  const { digest, signature } = candidate
  if (!signers.has(candidate))
    signers.set(candidate, recoverSigner(fromHex(digest), signature, recover))
  return signers.get(candidate)
}

export async function operatorFaults(ports: JudgePorts, { number: at }: BlockHeader) {
  const { chain, contracts, executor } = ports
  const { signedProposer: spender, oracles } = contracts
  const checks = [
    orElse(contractFault(ports, at), `the contract at ${spender} is not a SignedProposer`),
    ...oracles.map((oracle) =>
      orElse(
        listFault(ports, oracle, at),
        `the oracle at ${oracle} has no proposer whitelist: it is not a managed oracle`,
      ),
    ),
  ]
  if (executor !== undefined) {
    const named = `the executor ${executor}`
    const role = readRole(ports, executor, at).then(
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
  const address = contracts.signedProposer
  const [typeHash, permit2] = await Promise.all([
    readContract(chain, at, address, signedProposerAbi, 'PROPOSAL_TYPEHASH', []),
    readContract(chain, at, address, signedProposerAbi, 'permit2', []),
  ])
  if (typeHash !== proposalTypeHash)
    return `SignedProposer at ${address} has another PROPOSAL_TYPEHASH than ${proposalTypeHash}`
  return (
    lowercase(permit2) !== contracts.permit2 &&
    `SignedProposer at ${address} uses Permit2 at ${lowercase(permit2)}, not ${contracts.permit2}`
  )
}

async function listFault({ chain, contracts }: JudgePorts, oracle: Address, at: bigint) {
  const list = await readContract(chain, at, oracle, oracleAbi, 'defaultProposerWhitelist', [])
  const spender = [contracts.signedProposer] as const
  const isListed = readContract(chain, at, lowercase(list), whitelistAbi, 'isOnWhitelist', spender)
  return !(await isListed) && spenderUnlisted(oracle)
}

/** A contract that answers otherwise is wrongly configured; a silent node says nothing. */
const orElse = async (check: Promise<string | false>, otherwise: string) =>
  (await unlessRefused(check)) ?? otherwise
