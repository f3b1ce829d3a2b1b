/**
 * Contract §5's validation: the chain is read again as of one block, cheap facts first, and at the
 * end the exact `propose` is run from the executor. What a later block could still undo fails
 * nobody: such a verdict has to hold at the finalized block too (R14).
 */
import {
  erc20Abi,
  oracleAbi,
  permit2Abi,
  roles,
  signedProposerAbi,
  whitelistAbi,
} from '../../chain/contracts.js'
import { proposeCalldata } from '../../chain/propose.js'
import type { RegistryEntry, RoundReader } from '../../chain/questions.js'
import { lowercase, readContract, zeroAddress } from '../../chain/reading.js'
import { causeOf, decodeRevert } from '../../chain/reverts.js'
import {
  type Contracts,
  keccakHex,
  type Round,
  requestStates,
  roundRef,
} from '../../chain/round.js'
import { type Address, type BlockHeader, type Chain, ChainError, type Hex } from '../../ports.js'
import { type Candidate, type FailureCode, failures } from '../../protocol/candidate.js'
import { nonceBit, nonceUsed } from '../../protocol/permit.js'
import { recoverSigner } from '../../protocol/signature.js'
import { fromHex, type WitnessRequest } from '../../protocol/witness.js'
import type { Heads } from '../view/view.js'
import { isMagicAnswer, isValidSignatureCall } from '../view/wallets.js'

/** What was read on the way to a verdict; see `CandidateCheck`. */
export interface Read {
  readonly blockNumber: bigint
  readonly figures: Readonly<Record<string, string | boolean>>
}

export type Verdict = Judgement & { readonly read?: Read }

type Judgement =
  | { readonly kind: 'valid'; readonly round: Round; readonly calldata: Hex }
  | {
      readonly kind: 'failed'
      readonly code: FailureCode
      readonly detail: string
      readonly retryable: boolean
    }
  /**
   * The candidate's round is not open at the head; how it ended is judged in finalized state
   * (`endingOf`).
   */
  | { readonly kind: 'closed' }
  /**
   * Nothing to hold against the candidate, but not now: paused, or a failure that is not final yet.
   * `contradiction`: what the node tells of it cannot all be so.
   */
  | { readonly kind: 'wait'; readonly why: string; readonly contradiction?: string }
  /** The operator's fault: halts the queue and fails nothing. */
  | { readonly kind: 'operator'; readonly fault: string }
  /** The chain gave no answer: try again. */
  | { readonly kind: 'unknown'; readonly why: string }

export interface ValidationPorts {
  readonly chain: Chain
  readonly contracts: Contracts
  readonly rounds: RoundReader
  entry(questionId: Hex): RegistryEntry | undefined
  /** Who would send `propose`; without one the last step is left out. */
  readonly executor: Address | undefined
  /** The token of another candidate's amount; `undefined` where nothing at hand tells it. */
  tokenOf(candidate: Candidate): Address | undefined
  /** Told what the bitmap showed at a block, by its hash. */
  noteNonces(owner: Address, word: bigint, bitmap: bigint, at: Hex): void
}

/**
 * Judges a candidate at the head, and a failure that no replay can undo at the finalized block
 * again. `ahead`: the wallet's other candidates that may execute before it; amounts in the same
 * token count (contract §5). Amounts in raw token units. Rejects with nothing but bugs.
 */
export async function validate(
  ports: ValidationPorts,
  candidate: Candidate,
  ahead: readonly Candidate[],
  heads: Heads,
): Promise<Verdict> {
  const figures: Record<string, string | boolean> = {}
  const read = { blockNumber: heads.latest.number, figures }
  const noted: Parameters<ValidationPorts['noteNonces']>[] = []
  const reading: ValidationPorts = { ...ports, noteNonces: (...note) => noted.push(note) }
  try {
    const verdict = await judge(reading, candidate, ahead, heads.latest, figures)
    const isOfSum = verdict.kind === 'failed' && isShortOfSum(verdict.code, candidate, figures)
    if (verdict.kind === 'failed' && !isOfSum && (await runs(ports, candidate, heads.latest))) {
      const why = `${verdict.detail} The node contradicts itself: propose succeeds.`
      return {
        kind: 'wait',
        why,
        contradiction: `the node contradicts itself about candidate ${candidate.id}: ${verdict.code}, and propose succeeds`,
        read,
      }
    }
    for (const note of noted) ports.noteNonces(...note)
    if (verdict.kind !== 'failed' || verdict.retryable) return { ...verdict, read }
    const settled = await judge(ports, candidate, ahead, heads.finalized, {})
    if (settled.kind === 'failed' && settled.code === verdict.code) return { ...verdict, read }
    return { kind: 'wait', why: `${verdict.detail} Not final yet.`, read }
  } catch (error) {
    if (!(error instanceof ChainError)) throw error
    // An odd answer is looked at again with every block, and told to whoever asks why it waits.
    return { kind: error.kind === 'unavailable' ? 'unknown' : 'wait', why: error.message, read }
  }
}

/**
 * The wallet can pay for this candidate, but not for all that is before it: no run of one `propose`
 * shows that.
 */
function isShortOfSum(
  code: FailureCode,
  { amount }: Candidate,
  { balance = '0', allowance = '0' }: Read['figures'],
): boolean {
  const held =
    code === 'insufficient_balance' ? balance : code === 'insufficient_allowance' ? allowance : '0'
  return BigInt(held) >= BigInt(amount)
}

/**
 * Whether the exact `propose` succeeds at the block: it is what counts on chain, whatever its parts
 * tell (R27). False without an executor too. Rejects with `ChainError`.
 */
export async function runs(
  ports: Pick<ValidationPorts, 'chain' | 'contracts' | 'executor' | 'rounds' | 'entry'>,
  candidate: Candidate,
  at: BlockHeader,
): Promise<boolean> {
  const { chain, contracts, executor, rounds } = ports
  const { questionId, key } = candidate.round
  if (executor === undefined) return false
  const round = await rounds.read(questionId, ports.entry(questionId), at.number)
  if (
    round === undefined ||
    roundRef(contracts, questionId, round, keccakHex(round.ancillaryData)).key !== key
  )
    return false
  return (await simulate(chain, contracts, executor, callOf(round, candidate), at)) === undefined
}

const callOf = (round: Round, candidate: Candidate): Hex =>
  proposeCalldata({
    request: round,
    token: round.token.address,
    proposer: candidate.proposer,
    terms: candidate,
    signature: candidate.signature,
  })

async function judge(
  ports: ValidationPorts,
  candidate: Candidate,
  ahead: readonly Candidate[],
  at: BlockHeader,
  figures: Record<string, string | boolean>,
): Promise<Judgement> {
  const { chain, contracts } = ports
  const fail = (
    code: Exclude<FailureCode, 'simulation_reverted' | 'execution_reverted' | 'token_blocked'>,
    detail: string,
  ): Judgement => ({
    kind: 'failed',
    code,
    detail,
    retryable: failures[code].retryable,
  })
  const [round, code, bitmaps] = await Promise.all([
    ports.rounds.read(
      candidate.round.questionId,
      ports.entry(candidate.round.questionId),
      at.number,
    ),
    chain.code(candidate.proposer, at.number),
    readBitmaps(ports, candidate.proposer, [candidate, ...ahead], at),
  ])
  Object.assign(figures, {
    block_time: String(at.timestamp),
    deadline: candidate.deadline,
    amount: candidate.amount,
    nonce_used: bitmaps.used(candidate),
    wallet_has_code: code !== '0x',
    ...(round && {
      round_timestamp: round.timestamp,
      round_state: round.state,
      paused: round.paused,
      bond: String(round.totalBondRaw),
    }),
  })
  if (round === undefined || !isOpen(contracts, round, candidate)) return { kind: 'closed' }
  if (round.paused)
    return { kind: 'wait', why: 'The question is paused or flagged at its requester.' }
  if (BigInt(candidate.amount) < round.totalBondRaw) {
    return fail(
      'bond_above_permit',
      `The bond is ${round.totalBondRaw} now, above the permit amount ${candidate.amount}.`,
    )
  }
  if (at.timestamp > BigInt(candidate.deadline)) {
    return fail(
      'permit_expired',
      `The permit deadline ${candidate.deadline} has passed: block time is ${at.timestamp}.`,
    )
  }
  if (bitmaps.used(candidate))
    return fail('permit_nonce_used', `The permit nonce ${candidate.nonce} is used or invalidated.`)

  // Amounts in another token take nothing from this one; one whose token nobody can tell counts.
  const neededRaw = ahead
    .filter(
      (other) =>
        !bitmaps.used(other) &&
        (ports.tokenOf(other) ?? round.token.address) === round.token.address,
    )
    .reduce((sum, other) => sum + BigInt(other.amount), BigInt(candidate.amount))
  const call = callOf(round, candidate)
  const [accepted, list, funds, run] = await Promise.all([
    signatureAccepted(chain, candidate, code, at),
    readWhitelist(chain, contracts, round, candidate.proposer, at),
    readFunds(chain, contracts, round.token.address, candidate.proposer, at).catch(
      (error: unknown) => {
        // A trusted token that is none is a matter of configuration (domain §7, empty data).
        if (error instanceof ChainError && error.kind !== 'unavailable') return undefined
        throw error
      },
    ),
    simulate(chain, contracts, ports.executor, call, at),
  ])
  if (funds === undefined) {
    return {
      kind: 'operator',
      fault: `the token at ${round.token.address} does not answer as an ERC-20: correct chain.tokens`,
    }
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
    ...(ports.executor && { simulation: run === undefined ? 'succeeds' : decodeRevert(run).text }),
  })
  // A wallet may answer a bare call otherwise than Permit2: then the run decides, which asks it as
  // the chain will (domain §3.3).
  const isRunSound = code !== '0x' && ports.executor !== undefined && run === undefined
  if (!accepted && !isRunSound) {
    return fail(
      'signature_not_authorized',
      code === '0x'
        ? 'The signature is not by the proposer.'
        : "The proposer's wallet refuses the signature (EIP-1271).",
    )
  }
  if (!list.spenderListed) {
    if (!list.custom) return { kind: 'operator', fault: spenderUnlisted(round.oracle) }
    return fail(
      'proposer_not_whitelisted',
      'SignedProposer is not on the custom whitelist of this request, which may be paused.',
    )
  }
  if (!list.proposerListed && !list.owned) {
    return fail(
      'proposer_not_whitelisted',
      "The proposer is not on the request's whitelist and SignedProposer does not own that list.",
    )
  }
  if (funds.balanceRaw < neededRaw) {
    return fail(
      'insufficient_balance',
      `The wallet holds ${funds.balanceRaw} of the ${neededRaw} that its active authorizations need: fund it.`,
    )
  }
  if (funds.allowanceRaw < neededRaw) {
    return fail(
      'insufficient_allowance',
      `The wallet allows Permit2 ${funds.allowanceRaw} of the ${neededRaw} that its active authorizations need: approve Permit2.`,
    )
  }
  if (run !== undefined) {
    // Where the wallet has code the revert data may be its own words: the role is read, not
    // believed (domain §3.3).
    const hasRole = code === '0x' ? undefined : await readRole(chain, contracts, ports.executor, at)
    const cause = causeOf(run, {
      stage: 'simulation',
      signedProposer: contracts.signedProposer,
      oracle: round.oracle,
      hasCustomWhitelist: list.custom,
      neededRaw: BigInt(candidate.amount),
      ...funds,
      roundState: requestStates.indexOf(round.state),
      proposerHasCode: code !== '0x',
      walletAccepts: accepted,
      spenderListed: list.spenderListed,
      ...(hasRole === undefined ? {} : { executorHasRole: hasRole }),
    })
    if (cause.kind === 'operator') return { kind: 'operator', fault: cause.detail }
    return { kind: 'failed', code: cause.code, detail: cause.detail, retryable: cause.retryable }
  }
  return { kind: 'valid', round, calldata: call }
}

/** Whether a question's current round is the candidate's and takes proposals. */
export function isOpen(contracts: Contracts, round: Round, candidate: Candidate): boolean {
  if (round.state !== 'requested') return false
  return (
    roundRef(contracts, round.questionId, round, keccakHex(round.ancillaryData)).key ===
    candidate.round.key
  )
}

/** The fault that a default whitelist without SignedProposer is (contract §5). */
export function spenderUnlisted(oracle: Address): string {
  return `SignedProposer is not on the default proposer whitelist of the oracle ${oracle}: list it`
}

async function readBitmaps(
  ports: ValidationPorts,
  owner: Address,
  candidates: readonly Candidate[],
  at: BlockHeader,
) {
  const words = new Set(candidates.map(({ nonce }) => nonceBit(BigInt(nonce)).word))
  const read = await Promise.all(
    [...words].map(async (word) => [word, await readBitmap(ports, owner, word, at)] as const),
  )
  const bitmaps = new Map(read)
  return {
    used: ({ nonce }: Candidate) =>
      nonceUsed(BigInt(nonce), bitmaps.get(nonceBit(BigInt(nonce)).word) ?? 0n),
  }
}

async function readBitmap(
  ports: ValidationPorts,
  owner: Address,
  word: bigint,
  at: BlockHeader,
): Promise<bigint> {
  const bitmap = await readContract(
    ports.chain,
    at.number,
    ports.contracts.permit2,
    permit2Abi,
    'nonceBitmap',
    [owner, word],
  )
  ports.noteNonces(owner, word, bitmap, at.hash)
  return bitmap
}

/**
 * As the chain judges: code at the proposer now is asked (EIP-1271, EIP-7702 included), no code
 * recovers (domain §3.3).
 */
async function signatureAccepted(
  chain: Chain,
  candidate: Candidate,
  code: Hex,
  at: BlockHeader,
): Promise<boolean> {
  if (code === '0x')
    return recoverSigner(fromHex(candidate.digest), candidate.signature) === candidate.proposer
  try {
    return isMagicAnswer(
      await chain.call(
        isValidSignatureCall(candidate.proposer, candidate.digest, candidate.signature),
        at.number,
      ),
    )
  } catch (error) {
    // A refusal in whatever form the wallet gives it
    if (error instanceof ChainError && error.kind === 'reverted') return false
    throw error
  }
}

/** Who may propose through whom: `effective = custom || default` (domain §4, Whitelists). */
export async function readWhitelist(
  chain: Chain,
  contracts: Contracts,
  request: WitnessRequest,
  proposer: Address,
  at: BlockHeader,
) {
  const { oracle, requester, identifier, ancillaryData } = request
  const [custom, standard] = await Promise.all([
    readContract(chain, at.number, oracle, oracleAbi, 'getCustomProposerWhitelist', [
      requester,
      identifier,
      ancillaryData,
    ]),
    readContract(chain, at.number, oracle, oracleAbi, 'defaultProposerWhitelist', []),
  ])
  const isCustom = lowercase(custom) !== zeroAddress
  const list = lowercase(isCustom ? custom : standard)
  // Anything may be set as a request's list: what does not answer lists nobody, and a list without
  // an owner is owned by nobody.
  const answered = <T>(work: Promise<T>, otherwise: T): Promise<T> =>
    work.catch((error: unknown) => {
      if (error instanceof ChainError && error.kind !== 'unavailable') return otherwise
      throw error
    })
  const isListed = (who: Address) =>
    answered(readContract(chain, at.number, list, whitelistAbi, 'isOnWhitelist', [who]), false)
  const [spenderListed, proposerListed, owner] = await Promise.all([
    isListed(contracts.signedProposer),
    isListed(proposer),
    answered(readContract(chain, at.number, list, whitelistAbi, 'owner', []), zeroAddress),
  ])
  return {
    custom: isCustom,
    spenderListed,
    proposerListed,
    owned: lowercase(owner) === contracts.signedProposer,
  }
}

/** The wallet's balance and its allowance to Permit2, raw token units. */
export async function readFunds(
  chain: Chain,
  contracts: Contracts,
  token: Address,
  wallet: Address,
  at: BlockHeader,
) {
  const [balanceRaw, allowanceRaw] = await Promise.all([
    readContract(chain, at.number, token, erc20Abi, 'balanceOf', [wallet]),
    readContract(chain, at.number, token, erc20Abi, 'allowance', [wallet, contracts.permit2]),
  ])
  return { balanceRaw, allowanceRaw }
}

/** Whether the executor may call `propose`; `undefined` where there is none. */
async function readRole(
  chain: Chain,
  contracts: Contracts,
  executor: Address | undefined,
  at: BlockHeader,
): Promise<boolean | undefined> {
  if (executor === undefined) return undefined
  return readContract(chain, at.number, contracts.signedProposer, signedProposerAbi, 'hasRole', [
    roles.delegatedProposer,
    executor,
  ])
}

/** Runs `propose` without sending it: `undefined` where it succeeds, else the raw revert data. */
async function simulate(
  chain: Chain,
  contracts: Contracts,
  executor: Address | undefined,
  data: Hex,
  at: BlockHeader,
): Promise<Hex | undefined> {
  if (executor === undefined) return undefined
  try {
    await chain.call({ to: contracts.signedProposer, data, from: executor }, at.number)
    return undefined
  } catch (error) {
    if (error instanceof ChainError && error.kind === 'reverted') return error.data
    throw error
  }
}
