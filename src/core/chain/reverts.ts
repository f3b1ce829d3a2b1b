/**
 * From raw revert bytes to what went wrong and whose fault it is. Source: domain §7 (causes),
 * contract §5 (failure codes), `reverts.json` (every case measured on the real contracts).
 */
import { decodeAbiParameters, parseAbi, toFunctionSelector } from 'viem'
import type { Address, Hex } from '../ports.js'
import { type FailureCode, failures } from '../protocol/candidate.js'
import { plainText } from './ancillary.js'
import { roles, roundStates } from './contracts.js'

/**
 * Every error that SignedProposer, Permit2, the managed oracle, its whitelists, the adapter or a
 * known token answers with.
 */
export const revertAbi = parseAbi([
  'error Error(string message)',
  'error Panic(uint256 code)',
  // SignedProposer (domain §2)
  'error PaymentExceedsMaxPayment()',
  'error PermitTokenMismatch(address requestCurrency, address permitToken)',
  'error PermitTransferAmountMismatch(uint256 expectedAmount, uint256 receivedAmount)',
  'error CannotRemoveSelfFromWhitelist()',
  'error NewOwnerNotWhitelisted(address newOwner)',
  'error AccessControlUnauthorizedAccount(address account, bytes32 neededRole)',
  'error AccessControlBadConfirmation()',
  'error ReentrancyGuardReentrantCall()',
  'error SafeERC20FailedOperation(address token)',
  'error AddressEmptyCode(address target)',
  'error FailedCall()',
  'error TryMulticallReentrantCall()',
  'error TryMulticallInvalidSelector(uint256 index, bytes4 selector)',
  // Permit2 (domain §3.3)
  'error SignatureExpired(uint256 signatureDeadline)',
  'error InvalidNonce()',
  'error InvalidAmount(uint256 maxAmount)',
  'error InvalidSignatureLength()',
  'error InvalidSignature()',
  'error InvalidSigner()',
  'error InvalidContractSignature()',
  'error LengthMismatch()',
  // the managed oracle (domain §4)
  'error RequestStateNotRequested()',
  'error RequestStateNotProposed()',
  'error RequestStateNotInvalid()',
  'error RequestNotSettled()',
  'error RequestNotSettleable()',
  'error RequesterNotWhitelisted()',
  'error ProposerNotWhitelisted()',
  'error SenderNotWhitelisted()',
  'error CannotProposeTooEarly()',
  'error ProposerAddressCannotBeZero()',
  'error AncillaryDataTooLong()',
  'error UnsupportedIdentifier()',
  'error UnsupportedCurrency()',
  'error TimestampInFuture()',
  'error ZeroBondNotAllowed()',
  'error BondBelowMinimumBond()',
  'error BondExceedsMaximumBond()',
  // whitelists, tokens, the adapter
  'error OwnableUnauthorizedAccount(address account)',
  'error OwnableInvalidOwner(address owner)',
  'error ERC20InsufficientBalance(address sender, uint256 balance, uint256 needed)',
  'error ERC20InsufficientAllowance(address spender, uint256 allowance, uint256 needed)',
  'error ERC20InvalidSender(address sender)',
  'error ERC20InvalidReceiver(address receiver)',
  'error EnforcedPause()',
  'error InvalidOOPrice()',
])

const bySelector = new Map(
  revertAbi.map(
    (item) => [toFunctionSelector(item.name + signatureOf(item.inputs)), item] as const,
  ),
)

function signatureOf(inputs: readonly { readonly type: string }[]): string {
  return `(${inputs.map((input) => input.type).join(',')})`
}

/**
 * A decoded revert. `name` is the error's name, `Error`, `Panic`, `empty` (no data) or `unknown`
 * (other data).
 */
export interface RevertReason {
  readonly name: string
  /**
   * As text: integers decimal, addresses and bytes lowercase hex; of `unknown` the raw selector or
   * data.
   */
  readonly args: readonly string[]
  /**
   * For people, without a full stop: `PermitTokenMismatch(0x…, 0x…)`, `"TRANSFER_FROM_FAILED"`, `no
   * revert data`.
   */
  readonly text: string
}

/** What is shown of the words of an `Error`, in UTF-16 units. */
const longestWords = 200

/**
 * Raw revert data of a failed call, decoded. Never throws: data that does not fit its selector's
 * error is `unknown`.
 */
export function decodeRevert(raw: Hex): RevertReason {
  if (raw === '0x') return { name: 'empty', args: [], text: 'no revert data' }
  const selector = raw.slice(0, 10).toLowerCase() as Hex
  const item = bySelector.get(selector)
  if (item === undefined) return unknownReason(raw)
  let values: readonly unknown[]
  try {
    values = item.inputs.length === 0 ? [] : decodeAbiParameters(item.inputs, `0x${raw.slice(10)}`)
  } catch {
    // Anybody's contract may answer with a known selector and broken data; that is a fact about the
    // data, not a failure of ours.
    return unknownReason(raw)
  }
  const args = values.map((value) =>
    typeof value === 'string' && item.name !== 'Error' ? value.toLowerCase() : String(value),
  )
  // Anybody's contract chooses these words, and they are shown and stored (R17, R20).
  if (item.name === 'Error')
    return {
      name: item.name,
      args,
      text: JSON.stringify(plainText((args[0] ?? '').slice(0, longestWords))),
    }
  return { name: item.name, args, text: `${item.name}(${args.join(', ')})` }
}

function unknownReason(raw: Hex): RevertReason {
  const shown = raw.length > 138 ? `${raw.slice(0, 138)}…` : raw
  return { name: 'unknown', args: [raw.slice(0, 10).toLowerCase()], text: `unknown error ${shown}` }
}

/** The part of contract §5's failure codes that a revert can lead to. */
export type RevertFailureCode = Extract<
  FailureCode,
  | 'insufficient_balance'
  | 'insufficient_allowance'
  | 'permit_nonce_used'
  | 'permit_expired'
  | 'bond_above_permit'
  | 'request_not_open'
  | 'proposer_not_whitelisted'
  | 'signature_not_authorized'
  | 'simulation_reverted'
  | 'execution_reverted'
  | 'token_blocked'
>

/** Faults of the operator: they fail no candidate and halt the queue (contract §5). */
export type OperatorFaultCode =
  | 'executor_role_missing'
  | 'signed_proposer_not_whitelisted'
  | 'payment_not_zero'
  | 'out_of_gas'

/** What the caller knows about the call that reverted. Amounts are raw token units. */
export interface RevertContext {
  /**
   * Whether the call was simulated or mined: decides between `simulation_reverted` and
   * `execution_reverted`.
   */
  readonly stage: 'simulation' | 'execution'
  readonly signedProposer: Address
  readonly oracle: Address
  /**
   * Whether the request has a custom proposer whitelist (`getCustomProposerWhitelist` is not zero).
   */
  readonly hasCustomWhitelist: boolean
  /** permit.amount, summed over what of this wallet could execute together. */
  readonly neededRaw: bigint
  /**
   * The proposer's balance and its allowance to Permit2 at the block of the call; absent where
   * nobody read them.
   */
  readonly balanceRaw?: bigint
  readonly allowanceRaw?: bigint
  /** `getState` at the block of the call; a funding failure hides a round that is taken. */
  readonly roundState?: number
  /** What the round charges a proposal at the block of the call; absent where nobody read it. */
  readonly bondRaw?: bigint
  /** Whether there is code at the proposer: its revert data is then its own (domain §3.3). */
  readonly proposerHasCode?: boolean
  /**
   * Whether that code has been seen to accept this signature at this block, so that a strange
   * revert is not the wallet's.
   */
  readonly walletAccepts?: boolean
  /**
   * What `hasRole(DELEGATED_PROPOSER_ROLE, executor)` says at the block of the call; absent where
   * nobody read it.
   */
  readonly executorHasRole?: boolean
  /**
   * Whether SignedProposer is on the whitelist that applies, at the block of the call; absent where
   * nobody read it.
   */
  readonly spenderListed?: boolean
  /** Whether the transaction used nearly all of its gas limit. */
  readonly gasExhausted?: boolean
}

/**
 * `retryable`: the same signed payload may still execute later (contract §5, domain §7). `detail`
 * is one sentence.
 */
export type RevertCause =
  | {
      readonly kind: 'candidate'
      readonly code: RevertFailureCode
      readonly retryable: boolean
      readonly detail: string
      readonly reason: RevertReason
    }
  | {
      readonly kind: 'operator'
      readonly code: OperatorFaultCode
      readonly detail: string
      readonly reason: RevertReason
    }

type NamedCode = Exclude<RevertFailureCode, 'simulation_reverted' | 'execution_reverted'>

/**
 * The three spellings of "the oracle was approved for less than the bond" that tokens use (domain
 * §7).
 */
const allowanceTexts = new Set([
  'ERC20: insufficient allowance',
  'ERC20: transfer amount exceeds allowance',
])

/** How tokens refuse: with these errors, with words of their own, or with nothing. */
const tokenErrors = new Set([
  'Error',
  'ERC20InsufficientBalance',
  'ERC20InsufficientAllowance',
  'SafeERC20FailedOperation',
  'unknown',
  'empty',
])

/** Errors that say the signature does not authorize the payload (domain §7). */
const signatureErrors = new Set([
  'InvalidSigner',
  'InvalidSignature',
  'InvalidSignatureLength',
  'InvalidContractSignature',
])

/**
 * Errors that no later state makes go away (domain §7), though they say nothing about signature,
 * round or funds.
 */
const permanentErrors = new Set([
  'PermitTokenMismatch',
  'CannotProposeTooEarly',
  'ProposerAddressCannotBeZero',
  'AddressEmptyCode',
  'FailedCall',
  'empty',
])

/**
 * Why a `propose` reverted and what follows for its candidate. What only the caller can tell comes
 * first there: an `InvalidNonce` or a `request_not_open` may be our own earlier success, or
 * `superseded`; an unknown request may be a lagging node (domain §7). Data from a call that ran a
 * wallet's code may be forged by it (domain §3.3): the operator, whose faults halt the queue for
 * everybody, is then blamed only for what our own reads confirm. Throws nothing. Source: domain §7,
 * contract §5.
 */
export function causeOf(raw: Hex, context: RevertContext): RevertCause {
  const reason = decodeRevert(raw)
  const candidate = (
    code: NamedCode,
    detail: string,
    retryable = failures[code].retryable ?? true,
  ): RevertCause => ({
    kind: 'candidate',
    code,
    retryable,
    detail,
    reason,
  })
  const operator = (code: OperatorFaultCode, detail: string): RevertCause => ({
    kind: 'operator',
    code,
    detail,
    reason,
  })
  const hasCode = context.proposerHasCode === true
  const byWallet = (): RevertCause => {
    if (refusedByWallet(context))
      return candidate(
        'signature_not_authorized',
        `The proposer's wallet refused the signature: ${reason.text}.`,
      )
    return {
      kind: 'candidate',
      code: revertedAt(context),
      // Domain §7, a wallet's own data: only after the wallet changes, which contract §5 calls not
      // retryable.
      retryable: false,
      detail: `The proposer's wallet accepts the signature when it is asked alone, and reverts within propose: ${reason.text}.`,
      reason,
    }
  }
  const { bondRaw = 0n, neededRaw, roundState = roundStates.requested } = context
  // Tokens differ in what they look at first, and so in their words; the bond itself does not lie
  // (domain §7).
  if (tokenErrors.has(reason.name) && roundState === roundStates.requested && bondRaw > neededRaw)
    return candidate(
      'bond_above_permit',
      `The bond is ${bondRaw} now, above the permit amount ${neededRaw}.`,
    )
  switch (reason.name) {
    case 'AccessControlUnauthorizedAccount':
      if (reason.args[1] !== roles.delegatedProposer) break
      if (hasCode && context.executorHasRole !== false) return byWallet()
      return operator(
        'executor_role_missing',
        `The executor ${reason.args[0]} lacks DELEGATED_PROPOSER_ROLE on SignedProposer: grant it.`,
      )
    case 'PaymentExceedsMaxPayment':
      // Payment is 0 in every proposal of ours, so no read can confirm this one.
      if (hasCode) return byWallet()
      return operator(
        'payment_not_zero',
        'The executor asked for a payment above the signed maximum: payment must be 0.',
      )
    case 'Panic':
      // 0x11 is the underflow of amount − payment, the only arithmetic of propose() that can fail
      // (domain §2.1 step 9).
      if (reason.args[0] !== '17') break
      if (hasCode) return byWallet()
      return operator(
        'payment_not_zero',
        'The executor asked for a payment above permit.amount: payment must be 0.',
      )
    case 'SenderNotWhitelisted':
      if (
        hasCode &&
        (context.hasCustomWhitelist
          ? context.spenderListed === true
          : context.spenderListed !== false)
      )
        return byWallet()
      if (context.hasCustomWhitelist)
        return candidate(
          'proposer_not_whitelisted',
          'SignedProposer is not on the custom whitelist of this request, which may be paused.',
        )
      return operator(
        'signed_proposer_not_whitelisted',
        "SignedProposer is not on the oracle's default proposer whitelist: list it.",
      )
    case 'ProposerNotWhitelisted':
      return candidate(
        'proposer_not_whitelisted',
        "The proposer is not on the request's proposer whitelist.",
      )
    case 'OwnableUnauthorizedAccount':
      if (reason.args[0] !== context.signedProposer) break
      return candidate(
        'proposer_not_whitelisted',
        "The proposer is not on the request's whitelist and SignedProposer does not own that list; the request may be paused.",
      )
    case 'SignatureExpired':
      return candidate(
        'permit_expired',
        `The permit deadline ${reason.args[0]} has passed by block time.`,
      )
    case 'InvalidNonce':
      return candidate('permit_nonce_used', 'The permit nonce is already used or invalidated.')
    case 'RequestStateNotRequested':
      return candidate('request_not_open', 'The round is already proposed, disputed or settled.')
    case 'PermitTokenMismatch':
      if (BigInt(reason.args[0] ?? '1') !== 0n) break
      return candidate(
        'request_not_open',
        'The oracle knows no request with this requester, identifier, timestamp and ancillary data.',
      )
    case 'PermitTransferAmountMismatch':
      return candidate(
        'token_blocked',
        `The token takes a fee: ${reason.args[1]} of ${reason.args[0]} arrived.`,
        false,
      )
    case 'SafeERC20FailedOperation':
      return candidate(
        'token_blocked',
        `The token ${reason.args[0]} refused a transfer without a reason.`,
      )
    case 'ERC20InsufficientAllowance':
      if (reason.args[0] !== context.oracle) break
      return candidate(
        'bond_above_permit',
        `The bond ${reason.args[2]} is above the permit amount ${reason.args[1]}.`,
      )
    case 'Error': {
      const text = reason.args[0] ?? ''
      if (text === 'TRANSFER_FROM_FAILED') return transferFailed(context, candidate)
      if (allowanceTexts.has(text))
        return candidate('bond_above_permit', 'The bond is above the permit amount.')
      if (refusedByWallet(context)) return byWallet()
      return candidate('token_blocked', `The token refused a transfer: ${reason.text}.`)
    }
    default:
      break
  }
  if (signatureErrors.has(reason.name))
    return candidate(
      'signature_not_authorized',
      `The signature does not authorize this proposal: ${reason.name}.`,
    )
  if (reason.name === 'empty' && context.gasExhausted === true)
    return operator(
      'out_of_gas',
      `The transaction ran out of gas: ${hasCode ? "the proposer's wallet" : 'it'} used more than was estimated before it was sent.`,
    )
  if ((reason.name === 'empty' || reason.name === 'unknown') && refusedByWallet(context))
    return byWallet()
  return {
    kind: 'candidate',
    code: revertedAt(context),
    // The nonce is unspent after any revert: unless we know better, the authorization is still live
    // and must count as such.
    retryable: !permanentErrors.has(reason.name),
    detail: `propose reverted: ${reason.text}.`,
    reason,
  }
}

function revertedAt({ stage }: RevertContext): RevertFailureCode {
  return stage === 'simulation' ? 'simulation_reverted' : 'execution_reverted'
}

function refusedByWallet(context: RevertContext): boolean {
  return context.proposerHasCode === true && context.walletAccepts !== true
}

/**
 * Permit2 has one string for every refusal of the token: balance, allowance, pause, blacklist
 * (domain §3.3).
 */
function transferFailed(
  context: RevertContext,
  candidate: (code: NamedCode, detail: string) => RevertCause,
): RevertCause {
  if (context.roundState !== undefined && context.roundState !== roundStates.requested)
    return candidate(
      'request_not_open',
      'The round is already proposed, disputed or settled, and the wallet could not pay either.',
    )
  const { neededRaw, balanceRaw, allowanceRaw } = context
  if (balanceRaw !== undefined && balanceRaw < neededRaw)
    return candidate(
      'insufficient_balance',
      `The wallet holds ${balanceRaw} of the ${neededRaw} it authorized: fund it.`,
    )
  if (allowanceRaw !== undefined && allowanceRaw < neededRaw)
    return candidate(
      'insufficient_allowance',
      `The wallet allows Permit2 ${allowanceRaw} of the ${neededRaw} it authorized: approve Permit2.`,
    )
  if (balanceRaw === undefined || allowanceRaw === undefined)
    return candidate(
      'insufficient_balance',
      `The token refused to move ${neededRaw}: check the wallet's balance and its approval of Permit2.`,
    )
  return candidate(
    'token_blocked',
    'The token refused the transfer although balance and approval suffice: it is paused or blocks the wallet.',
  )
}
