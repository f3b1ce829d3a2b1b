/**
 * Signs a slot's transactions and hands their bytes to the nodes, each step durable before the next
 * (robustness §3, domain §8).
 */
import type { Contracts } from '../../chain/round.js'
import {
  type Chain,
  ChainError,
  type Clock,
  type Hex,
  type Random,
  type Signer,
} from '../../ports.js'
import type { Candidate } from '../../protocol/candidate.js'
import type { Ledger, Slot, SlotAttempt } from '../ledger/ledger.js'
import { commitOn } from '../pipeline/commit-on.js'
import type { Heads } from '../view/view.js'
import { createFaults, type Faults } from './faults.js'
import { createSendPatience, type SendPatience } from './send-patience.js'
import { attemptChanges, sentChanges } from './slot-changes.js'
import { canRaise, type Fees, feesFor, gasLimit, signTransaction } from './transaction.js'

/** Called by name after each durable step, for crash tests (R23). */
export type Failpoint = (
  name: 'selected' | 'reserved' | 'prepared' | 'sent' | 'confirmed',
) => Promise<void>

export interface SenderPorts {
  readonly clock: Clock
  readonly random: Random
  readonly chain: Chain
  readonly signer: Signer
  readonly contracts: Contracts
  readonly ledger: Ledger
  readonly maxFeeGwei: number
  readonly failpoint: Failpoint
}

/**
 * What is to be signed: calldata for SignedProposer with the candidates it carries, or a
 * self-transfer that gives the nonce back.
 */
export type Wish =
  | {
      readonly kind: 'propose'
      readonly candidateIds: readonly string[]
      readonly data: Hex
      readonly gas: bigint
    }
  | { readonly kind: 'cancel' }

/** Transactions that are not of a slot yet, as a subject of faults. */
export const newSlots = 'opening'

export interface Sender {
  readonly patience: SendPatience
  readonly faults: Faults
  /**
   * Signs under the slot's nonce and makes it durable, in place of `replaced` where it is given.
   * `slotCandidates`: all of the slot's that are alive. False where the fee ceiling holds it back,
   * which is noted, or a candidate has moved on. Rejects with `ChainError`.
   */
  sign(
    slot: Slot,
    wish: Wish,
    heads: Heads,
    slotCandidates: readonly Candidate[],
    replaced?: SlotAttempt,
  ): Promise<boolean>
  /**
   * Whether the fee ceiling allows a higher fee than this one's; that it does not is noted of the
   * slot.
   */
  mayRaise(slot: Slot, attempt: SlotAttempt): boolean
  /** Hands the stored bytes over. True where the slot may go on at once. */
  send(
    slot: Slot,
    attempt: SlotAttempt,
    slotCandidates: readonly Candidate[],
    heads: Heads,
  ): Promise<boolean>
  /**
   * Whether nodes that count the slot's nonce as used refuse its stored bytes for that very reason.
   * Where they hold or take them, or refuse them for another reason, the nonce may yet be ours;
   * that is noted of the slot.
   */
  confirmsUsed(slot: Slot, attempt: SlotAttempt, isHeld: boolean): Promise<boolean>
  /**
   * Whether a transaction with this gas limit can be paid for now; what stands against it is noted
   * of the opening. Rejects with `ChainError`.
   */
  canPay(gas: bigint, heads: Heads): Promise<boolean>
  /** The slot is closed. */
  forget(slot: Slot): void
}

/** Source: robustness §3 (the node-answer table), domain §8 (fees). */
export function createSender(ports: SenderPorts): Sender {
  const { clock, chain, signer, contracts, ledger } = ports
  const ceilingWei = BigInt(Math.floor(ports.maxFeeGwei * 1e9))
  const ceilingName = `executor.max_fee_gwei ${ports.maxFeeGwei}`
  const patience = createSendPatience(clock, ports.random)
  const faults = createFaults()

  const fees = async (
    about: string,
    kind: Wish['kind'],
    heads: Heads,
    replaced?: SlotAttempt,
  ): Promise<Fees | undefined> => {
    const replacing = replaced && {
      maxFeePerGas: BigInt(replaced.maxFeePerGas),
      maxPriorityFeePerGas: BigInt(replaced.maxPriorityFeePerGas),
    }
    const found = feesFor(contracts.chainId, heads.latest, await chain.tip(), ceilingWei, {
      kind,
      replacing,
    })
    if (!found)
      faults.note(
        about,
        `gas costs ${heads.latest.baseFeePerGas} wei and the tip, more than ${ceilingName} allows: waiting`,
      )
    return found
  }

  const noteRefusal = (slot: Slot, attempt: SlotAttempt, error: ChainError, heads: Heads) => {
    patience.refused(attempt.hash, heads.latest.number, error.kind)
    // Stored bytes are sent for a former executor too: it is the slot's own that pays.
    const executor = `the ${slot.executor === signer.address ? '' : 'former '}executor ${slot.executor}`
    if (error.kind === 'insufficient_funds')
      faults.refuse(slot.id, `${executor} cannot pay for its transaction: fund it`)
    if (error.kind === 'refused')
      faults.refuse(
        slot.id,
        `the node refuses the transaction of nonce ${slot.nonce}: ${error.message}`,
      )
    // A lower nonce is missing. Ours are sent before; if it lasts, it is one that this store does
    // not know.
    if (
      error.kind === 'nonce_too_high' &&
      patience.refusedForBlocks(attempt.hash, heads.latest.number) >= 3n
    ) {
      faults.refuse(slot.id, `the node waits for a nonce below ${slot.nonce} of ${executor}`)
    }
  }

  return {
    patience,
    faults,
    async sign(slot, wish, heads, slotCandidates, replaced) {
      const found = await fees(slot.id, wish.kind, heads, replaced)
      if (found === undefined) return false
      const call =
        wish.kind === 'propose'
          ? { to: contracts.signedProposer, data: wish.data, gas: wish.gas }
          : { to: signer.address, data: '0x' as const, gas: await selfTransferGas() }
      const { raw, hash } = await signTransaction(signer, {
        chainId: contracts.chainId,
        nonce: slot.nonce,
        ...call,
        ...found,
      })
      // Signed again for the same fees it is the same transaction: then the bytes that are there go
      // on.
      patience.startOver(hash)
      if (slot.attempts.some((attempt) => attempt.hash === hash)) return false
      const attempt: SlotAttempt = {
        hash,
        raw,
        kind: wish.kind,
        candidateIds: wish.kind === 'propose' ? wish.candidateIds : [],
        maxFeePerGas: String(found.maxFeePerGas),
        maxPriorityFeePerGas: String(found.maxPriorityFeePerGas),
        preparedAtMs: clock.nowMs(),
        sentAtMs: null,
      }
      if (
        !(await commitOn(
          ledger,
          slotCandidates,
          attemptChanges(slot, attempt, slotCandidates, clock.nowMs()),
        ))
      )
        return false
      await ports.failpoint('prepared')
      return true
    },
    mayRaise({ id }, { kind, maxFeePerGas }) {
      if (canRaise({ maxFeePerGas: BigInt(maxFeePerGas) }, kind, ceilingWei)) return true
      const stuck = `a transaction that pays ${maxFeePerGas} wei for gas at most is not mined`
      faults.note(id, `${stuck}, and ${ceilingName} allows no higher fee: waiting`)
      return false
    },
    async send(slot, attempt, slotCandidates, heads) {
      try {
        await chain.send(attempt.raw)
      } catch (error) {
        if (!(error instanceof ChainError)) throw error
        // None of the answers leads to another nonce (robustness §3).
        if (error.kind !== 'already_known') {
          noteRefusal(slot, attempt, error, heads)
          return error.kind === 'underpriced'
        }
      }
      patience.sent(attempt.hash, heads.latest.number)
      faults.drop(slot.id)
      await commitOn(
        ledger,
        slotCandidates,
        sentChanges(slot, attempt, slotCandidates, clock.nowMs()),
      )
      await ports.failpoint('sent')
      return false
    },
    async confirmsUsed(slot, attempt, isHeld) {
      let but = 'takes a transaction of that nonce'
      try {
        if (!isHeld) await chain.send(attempt.raw)
      } catch (error) {
        if (!(error instanceof ChainError)) throw error
        if (error.kind === 'unavailable') return false
        if (error.kind === 'nonce_too_low') return true
        if (error.kind !== 'already_known')
          but = `refuses a transaction of that nonce for another reason: ${error.message}`
      }
      faults.note(
        slot.id,
        `the node says that nonce ${slot.nonce} of ${slot.executor} is used, and ${but}`,
      )
      return false
    },
    async canPay(gas, heads) {
      const [found, balanceWei] = await Promise.all([
        fees(newSlots, 'propose', heads),
        chain.balance(signer.address),
      ])
      if (found === undefined) return false
      const costWei = gas * found.maxFeePerGas
      if (balanceWei >= costWei) return true
      faults.note(
        newSlots,
        `the executor ${signer.address} holds ${balanceWei} wei, its transaction may cost ${costWei}: fund it`,
      )
      return false
    },
    forget(slot) {
      faults.drop(slot.id)
      for (const { hash } of slot.attempts) patience.forget(hash)
    },
  }

  async function selfTransferGas(): Promise<bigint> {
    return gasLimit(
      await chain.estimateGas({ to: signer.address, data: '0x', from: signer.address }),
    )
  }
}
