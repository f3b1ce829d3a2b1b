/**
 * From raw revert bytes to whose fault it is (domain §7, contract §5); measured: `reverts.json`.
 */

import { decodeAbiParameters, parseAbi, toFunctionSelector } from 'viem'
import type { Hex } from '#ports'
import { type FailureCode, failures } from '#protocol/codes'
import type { Address } from '#protocol/schema'
import { plainText } from './ancillary.js'
import { roles, roundStates } from './contracts.js'

export const revertAbi = parseAbi([
  'error Error(string message)',
  'error Panic(uint256 code)',
  // SignedProposer (domain §2)
  'error PaymentExceedsMaxPayment()',
  'error PermitTokenMismatch(address requestCurrency, address permitToken)',
  'error PermitTransferAmountMismatch(uint256 expectedAmount, uint256 receivedAmount)',
  'error AccessControlUnauthorizedAccount(address account, bytes32 neededRole)',
  'error ReentrancyGuardReentrantCall()',
  'error SafeERC20FailedOperation(address token)',
  'error AddressEmptyCode(address target)',
  'error FailedCall()',
  // Permit2 (domain §3.3)
  'error SignatureExpired(uint256 signatureDeadline)',
  'error InvalidNonce()',
  'error InvalidAmount(uint256 maxAmount)',
  'error InvalidSignatureLength()',
  'error InvalidSignature()',
  'error InvalidSigner()',
  'error InvalidContractSignature()',
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
  'error NoDeferredPayoutToClaim()',
  'error BondBelowMinimumBond()',
  'error BondExceedsMaximumBond()',
  // whitelists, tokens, the adapter
  'error OwnableUnauthorizedAccount(address account)',
  'error ERC20InsufficientBalance(address sender, uint256 balance, uint256 needed)',
  'error ERC20InsufficientAllowance(address spender, uint256 allowance, uint256 needed)',
  'error ERC20InvalidSender(address sender)',
  'error ERC20InvalidReceiver(address receiver)',
  'error EnforcedPause()',
])

const bySelector = new Map<string, (typeof revertAbi)[number]>(
  revertAbi.map((item) => [
    toFunctionSelector({ ...item, type: 'function', outputs: [], stateMutability: 'view' }),
    item,
  ]),
)

/** `name`: the error's, `empty` (no data) or `unknown`. */
type RevertReason = Readonly<ReturnType<typeof decodeRevert>>

const longestWords = 200

export function decodeRevert(raw: Hex) {
  if (raw === '0x') return { name: 'empty', args: [], text: 'no revert data' }
  const item = bySelector.get(raw.slice(0, 10).toLowerCase())
  if (item === undefined) return unknownReason(raw)
  let values: readonly unknown[]
  try {
    values = item.inputs.length === 0 ? [] : decodeAbiParameters(item.inputs, `0x${raw.slice(10)}`)
  } catch {
    return unknownReason(raw)
  }
  const { name } = item
  const args = values.map((value) =>
    typeof value === 'string' && name !== 'Error' ? value.toLowerCase() : String(value),
  )
  const text =
    name === 'Error'
      ? JSON.stringify(plainText((args[0] ?? '').slice(0, longestWords)))
      : `${name}(${args.join(', ')})`
  return { name, args, text }
}

function unknownReason(raw: Hex) {
  const shown = raw.length > 138 ? `${raw.slice(0, 138)}…` : raw
  return { name: 'unknown', args: [raw.slice(0, 10).toLowerCase()], text: `unknown error ${shown}` }
}

type CandidateCode = FailureCode &
  (
    | `insufficient_${string}`
    | `permit_${string}`
    | 'bond_above_permit'
    | 'request_not_open'
    | 'proposer_not_whitelisted'
    | 'signature_not_authorized'
    | 'token_blocked'
  )

/** Faults of the operator: they fail no candidate and halt the queue (contract §5). */
type OperatorFaultCode =
  | 'executor_role_missing'
  | 'signed_proposer_not_whitelisted'
  | 'payment_not_zero'
  | 'out_of_gas'

/** At the block of the call. Raw token units. */
export interface RevertContext {
  readonly stage: 'simulation' | 'execution'
  readonly signedProposer: Address
  readonly oracle: Address
  readonly hasCustomWhitelist: boolean
  /** Of all that could execute together. */
  readonly neededRaw: bigint
  /** Absent where nobody read them. */
  readonly balanceRaw?: bigint
  readonly allowanceRaw?: bigint
  readonly roundState?: number
  readonly bondRaw?: bigint
  /** Revert data is then the wallet's own (domain §3.3). */
  readonly proposerHasCode?: boolean
  /** This signature, asked alone. */
  readonly walletAccepts?: boolean
  readonly executorHasRole?: boolean
  readonly spenderListed?: boolean
  readonly gasExhausted?: boolean
}

type RevertCause = { readonly detail: string; readonly reason: RevertReason } & (
  | {
      readonly kind: 'candidate'
      readonly code: CandidateCode | 'simulation_reverted' | 'execution_reverted'
      readonly retryable: boolean
    }
  | { readonly kind: 'operator'; readonly code: OperatorFaultCode }
)

const tokenErrors = new Set([
  'Error',
  'ERC20InsufficientBalance',
  'ERC20InsufficientAllowance',
  'SafeERC20FailedOperation',
  'unknown',
  'empty',
])

const allowanceTexts = ['ERC20: insufficient allowance', 'ERC20: transfer amount exceeds allowance']

/** Errors without a rule below that no later state makes go away (domain §7). */
const permanentErrors = new Set([
  'PermitTokenMismatch',
  'CannotProposeTooEarly',
  'ProposerAddressCannotBeZero',
  'AddressEmptyCode',
  'FailedCall',
  'empty',
])

type Verdict =
  | readonly [CandidateCode | OperatorFaultCode, detail: string, retryable?: boolean]
  | 'wallet'
  | undefined

const refusedByWallet = ({ proposerHasCode, walletAccepts }: RevertContext) =>
  proposerHasCode === true && walletAccepts !== true
const forged = ({ proposerHasCode }: RevertContext, isConfirmed: boolean) =>
  proposerHasCode === true && !isConfirmed ? 'wallet' : undefined
const notAuthorized = (detail: string) => ['signature_not_authorized', detail] as const
const badSignature = ({ name }: RevertReason) =>
  notAuthorized(`The signature does not authorize this proposal: ${name}.`)
const taken = (rest: string) =>
  ['request_not_open', `The round is already proposed, disputed or settled${rest}.`] as const

const rules: Readonly<Record<string, (reason: RevertReason, context: RevertContext) => Verdict>> = {
  AccessControlUnauthorizedAccount: ({ args: [account, role] }, context) =>
    role !== roles.delegatedProposer
      ? undefined
      : (forged(context, context.executorHasRole === false) ?? [
          'executor_role_missing',
          `The executor ${account} lacks DELEGATED_PROPOSER_ROLE on SignedProposer: grant it.`,
        ]),
  // Payment is 0 in every proposal of ours.
  PaymentExceedsMaxPayment: (_, context) =>
    forged(context, false) ?? [
      'payment_not_zero',
      'The executor asked for a payment above the signed maximum: payment must be 0.',
    ],
  // The underflow of amount − payment (domain §2.1 step 9).
  Panic: ({ args: [code] }, context) =>
    code !== '17'
      ? undefined
      : (forged(context, false) ?? [
          'payment_not_zero',
          'The executor asked for a payment above permit.amount: payment must be 0.',
        ]),
  SenderNotWhitelisted: (_, context) =>
    context.hasCustomWhitelist
      ? (forged(context, context.spenderListed !== true) ?? [
          'proposer_not_whitelisted',
          'SignedProposer is not on the custom whitelist of this request, which may be paused.',
        ])
      : (forged(context, context.spenderListed === false) ?? [
          'signed_proposer_not_whitelisted',
          "SignedProposer is not on the oracle's default proposer whitelist: list it.",
        ]),
  ProposerNotWhitelisted: () => [
    'proposer_not_whitelisted',
    "The proposer is not on the request's proposer whitelist.",
  ],
  OwnableUnauthorizedAccount: ({ args: [account] }, { signedProposer }) =>
    account !== signedProposer
      ? undefined
      : [
          'proposer_not_whitelisted',
          "The proposer is not on the request's whitelist and SignedProposer does not own that list; the request may be paused.",
        ],
  SignatureExpired: ({ args: [deadline] }) => [
    'permit_expired',
    `The permit deadline ${deadline} has passed by block time.`,
  ],
  InvalidNonce: () => ['permit_nonce_used', 'The permit nonce is already used or invalidated.'],
  RequestStateNotRequested: () => taken(''),
  PermitTokenMismatch: ({ args: [currency = '1'] }) =>
    BigInt(currency) !== 0n
      ? undefined
      : [
          'request_not_open',
          'The oracle knows no request with this requester, identifier, timestamp and ancillary data.',
        ],
  PermitTransferAmountMismatch: ({ args: [expected, received] }) => [
    'token_blocked',
    `The token takes a fee: ${received} of ${expected} arrived.`,
    false,
  ],
  SafeERC20FailedOperation: ({ args: [token] }) => [
    'token_blocked',
    `The token ${token} refused a transfer without a reason.`,
  ],
  ERC20InsufficientAllowance: ({ args: [spender, allowance, needed] }, { oracle }) =>
    spender !== oracle
      ? undefined
      : ['bond_above_permit', `The bond ${needed} is above the permit amount ${allowance}.`],
  Error: ({ args: [words = ''], text }, context) => {
    if (words === 'TRANSFER_FROM_FAILED') return transferFailed(context)
    if (allowanceTexts.includes(words))
      return ['bond_above_permit', 'The bond is above the permit amount.']
    if (refusedByWallet(context)) return 'wallet'
    return ['token_blocked', `The token refused a transfer: ${text}.`]
  },
  InvalidSigner: badSignature,
  InvalidSignature: badSignature,
  InvalidSignatureLength: badSignature,
  InvalidContractSignature: badSignature,
  unknown: (_, context) => (refusedByWallet(context) ? 'wallet' : undefined),
  empty: (_, context) => {
    const who = context.proposerHasCode ? "the proposer's wallet" : 'it'
    if (!context.gasExhausted) return refusedByWallet(context) ? 'wallet' : undefined
    return [
      'out_of_gas',
      `The transaction ran out of gas: ${who} used more than was estimated before it was sent.`,
    ]
  },
}

/** Permit2 has one string for every refusal (domain §3.3). */
function transferFailed(context: RevertContext): Verdict {
  const { neededRaw, balanceRaw, allowanceRaw, roundState = roundStates.requested } = context
  if (roundState !== roundStates.requested) return taken(', and the wallet could not pay either')
  if (balanceRaw !== undefined && balanceRaw < neededRaw)
    return [
      'insufficient_balance',
      `The wallet holds ${balanceRaw} of the ${neededRaw} it authorized: fund it.`,
    ]
  if (allowanceRaw !== undefined && allowanceRaw < neededRaw)
    return [
      'insufficient_allowance',
      `The wallet allows Permit2 ${allowanceRaw} of the ${neededRaw} it authorized: approve Permit2.`,
    ]
  if (balanceRaw === undefined || allowanceRaw === undefined)
    return [
      'insufficient_balance',
      `The token refused to move ${neededRaw}: check the wallet's balance and its approval of Permit2.`,
    ]
  return [
    'token_blocked',
    'The token refused the transfer although balance and approval suffice: it is paused or blocks the wallet.',
  ]
}

/**
 * An `InvalidNonce` or `request_not_open` may be our own earlier success, an unknown request a
 * lagging node. Data from a call that ran a wallet's code may be forged (domain §3.3): the
 * operator, whose faults halt the queue, is blamed only for what our own reads confirm.
 */
export function causeOf(raw: Hex, context: RevertContext): RevertCause {
  const reason = decodeRevert(raw)
  const verdict = bondRisen(reason, context) ?? rules[reason.name]?.(reason, context)
  const reverted = (detail: string, retryable: boolean): RevertCause => {
    const code = context.stage === 'simulation' ? 'simulation_reverted' : 'execution_reverted'
    return { kind: 'candidate', code, retryable, detail, reason }
  }
  // The nonce is unspent after any revert.
  if (verdict === undefined)
    return reverted(`propose reverted: ${reason.text}.`, !permanentErrors.has(reason.name))
  if (verdict === 'wallet' && !refusedByWallet(context)) {
    // Not retryable (contract §5, domain §7).
    const detail = `The proposer's wallet accepts the signature when it is asked alone, and reverts within propose: ${reason.text}.`
    return reverted(detail, false)
  }
  const [code, detail, retryable] =
    verdict === 'wallet'
      ? notAuthorized(`The proposer's wallet refused the signature: ${reason.text}.`)
      : verdict
  if (!(code in failures))
    return { kind: 'operator', code: code as OperatorFaultCode, detail, reason }
  const known = code as CandidateCode
  const mayExecute = retryable ?? failures[known].retryable ?? true
  return { kind: 'candidate', code: known, retryable: mayExecute, detail, reason }
}

/** Tokens differ in what they look at first; the bond does not lie (§7). */
function bondRisen({ name }: RevertReason, context: RevertContext): Verdict {
  const { bondRaw = 0n, neededRaw, roundState = roundStates.requested } = context
  if (!tokenErrors.has(name) || roundState !== roundStates.requested || bondRaw <= neededRaw)
    return undefined
  return ['bond_above_permit', `The bond is ${bondRaw} now, above the permit amount ${neededRaw}.`]
}
