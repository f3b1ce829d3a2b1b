/**
 * How each failure of domain §7 comes about on the contracts of a dev chain, and what the gateway
 * is to make of it (contract §5).
 */
import { yesOrNoQuery } from '#chain/contracts'
import { artifact } from '#devchain/dev-artifacts'
import {
  devAccount,
  devAddresses,
  devBondRaw,
  devFinalFeeRaw,
  placedAt,
} from '#devchain/dev-contracts'
import type { Hex } from '#ports'
import type { CandidateStatus } from '#protocol/responses'
import type { Address } from '#protocol/schema'
import { devSigner, type ProposeWish, type StillChain } from './reorg-gateway.js'

const totalRaw = devBondRaw + devFinalFeeRaw
const admin = devAccount('admin').address
const rival = devAccount('rival').address
const disputer = devAccount('disputer').address
const wallet = devAccount('proposer').address
const executor = devAccount('executor').address
const zero: Address = `0x${'0'.repeat(40)}`
const unlimited = 2n ** 256n - 1n

const token = placedAt('Token', devAddresses.token)
const oracle = placedAt('ManagedOracle', devAddresses.oracle)
const adapter = placedAt('CtfAdapter', devAddresses.adapter)
const permit2 = placedAt('Permit2', devAddresses.permit2)
const signedProposer = placedAt('SignedProposer', devAddresses.signedProposer)
const proposers = placedAt('AddressWhitelist', devAddresses.proposers)
const ownList = placedAt('AddressWhitelist', '0x00000000000000000000000000000000000c0007')

/**
 * Something that goes wrong. `tell` puts a transaction where it belongs: into a block of its own,
 * or before the executor's in its block.
 */
export type Tell = StillChain['act']
export interface Trouble {
  readonly row: string
  readonly why: string
  readonly wish?: ProposeWish
  readonly given?: () => Promise<unknown>
  readonly happens: (tell: Tell) => Promise<unknown>
  readonly heals?: () => Promise<unknown>
}
export interface Failing extends Trouble {
  readonly code: NonNullable<CandidateStatus['failure']>['code']
  readonly retryable: boolean
  readonly canResubmit: boolean
  readonly nextAction: NonNullable<CandidateStatus['failure']>['next_action']
  readonly detail: RegExp
  readonly before?: {
    readonly code: Failing['code']
    readonly nextAction?: Failing['nextAction']
    readonly detail: RegExp
  }
  readonly readiness?: 'any'
  readonly only?: 'before sending' | 'after sending'
}

export interface OperatorTrouble extends Trouble {
  readonly only?: 'before sending'
  readonly reason: RegExp
}
export interface Stage {
  readonly still: StillChain
  readonly questionId: Hex
}

export function troublesOn(stage: () => Stage) {
  async function roundArgs(id: Hex = stage().questionId): Promise<readonly unknown[]> {
    const question = await stage().still.rpc.read<{ requestTimestamp: bigint; ancillaryData: Hex }>(
      adapter,
      'getQuestion',
      [id],
    )
    return [adapter.address, yesOrNoQuery, question.requestTimestamp, question.ancillaryData]
  }
  async function managedArgs(): Promise<readonly unknown[]> {
    const [requester, identifier, , ancillaryData] = await roundArgs()
    return [requester, identifier, ancillaryData]
  }
  const placeCode = (address: Address, contract: string) =>
    stage().still.rpc.request('anvil_setCode', [address, artifact(contract).code])
  const removeCode = (address: Address) =>
    stage().still.rpc.request('anvil_setCode', [address, '0x'])
  const delegate = (address: Address, to: Address) =>
    stage().still.rpc.request('anvil_setCode', [address, `0xef0100${to.slice(2)}`])
  const setWhitelist = async (tell: Tell, list: Address) =>
    tell(admin, oracle, 'requestManagerSetProposerWhitelist', ...(await managedArgs()), list)
  const rivalProposes = async (tell: Tell) =>
    tell(rival, oracle, 'proposePrice', ...(await roundArgs()), 0n)
  const setBond = async (tell: Tell, bondRaw: bigint) =>
    tell(admin, oracle, 'requestManagerSetBond', ...(await managedArgs()), token.address, bondRaw)

  async function becomeWallet(owner: Address = wallet): Promise<void> {
    await placeCode(wallet, 'Wallet')
    await stage().still.act(admin, placedAt('Wallet', wallet), 'setOwner', owner)
  }
  async function makeList(owner: Address, members: readonly Address[]): Promise<void> {
    await placeCode(ownList.address, 'AddressWhitelist')
    await stage().still.act(admin, ownList, 'setUp', admin)
    for (const member of members) await stage().still.act(admin, ownList, 'addToWhitelist', member)
    if (owner !== admin) await stage().still.act(admin, ownList, 'transferOwnership', owner)
  }
  async function asSignedProposer(tell: Tell, name: string, ...args: unknown[]): Promise<void> {
    await stage().still.rpc.request('anvil_setBalance', [
      signedProposer.address,
      `0x${(10n ** 20n).toString(16)}`,
    ])
    await tell(signedProposer.address, proposers, name, ...args)
  }

  const wallets = {
    code: 'signature_not_authorized',
    retryable: false,
    canResubmit: true,
    nextAction: 'sign_new_authorization',
  } as const
  const unlisted = {
    code: 'proposer_not_whitelisted',
    retryable: true,
    canResubmit: true,
    nextAction: 'contact_operator',
  } as const
  const closed = {
    code: 'superseded',
    retryable: false,
    canResubmit: false,
    nextAction: 'wait_for_new_round',
  } as const
  const bond = {
    code: 'bond_above_permit',
    retryable: false,
    canResubmit: true,
    nextAction: 'sign_new_authorization',
  } as const
  const funds = {
    code: 'insufficient_balance',
    retryable: true,
    canResubmit: true,
    nextAction: 'fund_wallet',
  } as const
  const blocked = {
    code: 'token_blocked',
    canResubmit: true,
    nextAction: 'contact_operator',
  } as const

  const failing: readonly Failing[] = [
    {
      row: 'SignatureExpired',
      why: 'the deadline passes',
      happens: () => stage().still.later(7_200),
      ...{
        code: 'permit_expired',
        retryable: false,
        canResubmit: true,
        nextAction: 'sign_new_authorization',
      },
      detail: /deadline \d+ has passed/,
    },
    {
      row: 'InvalidNonce',
      why: 'the owner cancels the nonce',
      wish: { nonce: String(77n * 256n + 3n) },
      happens: (tell) => tell(wallet, permit2, 'invalidateUnorderedNonces', 77n, 8n),
      ...{
        code: 'permit_nonce_used',
        retryable: false,
        canResubmit: true,
        nextAction: 'sign_new_authorization',
      },
      detail: /nonce.*used or invalidated/,
    },
    {
      row: 'InvalidSigner',
      why: 'another key has signed',
      wish: { key: devSigner('proposer', 1) },
      happens: async () => undefined,
      ...wallets,
      detail: /not by the proposer/,
      only: 'before sending',
    },
    {
      row: 'InvalidSigner',
      why: 'the wallet, whose owner has another key, loses its code',
      given: () => becomeWallet(devAccount('proposer', 1).address),
      wish: { key: devSigner('proposer', 1) },
      happens: () => removeCode(wallet),
      ...wallets,
      detail: /InvalidSigner/,
      before: { code: 'signature_not_authorized', detail: /not by the proposer/ },
    },
    {
      row: 'InvalidSignatureLength',
      why: 'the wallet, which takes longer signatures, loses its code',
      given: () => becomeWallet(),
      wish: { spoil: (signature) => `${signature}00` },
      happens: () => removeCode(wallet),
      ...wallets,
      detail: /InvalidSignatureLength/,
      before: { code: 'signature_not_authorized', detail: /not by the proposer/ },
    },
    {
      row: 'InvalidSignature',
      why: 'v is 0 or 1',
      wish: {
        spoil: (signature) =>
          `${signature.slice(0, -2)}${signature.endsWith('1b') ? '00' : '01'}` as Hex,
      },
      happens: async () => undefined,
      ...wallets,
      detail: /not by the proposer/,
      only: 'before sending',
    },
    {
      row: 'InvalidContractSignature',
      why: 'the wallet says no',
      given: () => becomeWallet(),
      happens: (tell) => tell(admin, placedAt('Wallet', wallet), 'setMode', 1),
      ...wallets,
      detail: /InvalidContractSignature/,
      before: { code: 'signature_not_authorized', detail: /wallet refuses the signature/ },
    },
    {
      row: "InvalidContractSignature, or a wallet's own data",
      why: 'the wallet reverts with a text',
      given: () => becomeWallet(),
      happens: (tell) => tell(admin, placedAt('Wallet', wallet), 'setMode', 2),
      ...wallets,
      detail: /wallet refused the signature: "wallet: nope"/,
      before: { code: 'signature_not_authorized', detail: /wallet refuses the signature/ },
    },
    {
      row: 'InvalidContractSignature, or empty',
      why: 'the account delegates to code that knows no signatures (EIP-7702)',
      given: () => placeCode(ownList.address, 'Mute'),
      happens: () => delegate(wallet, ownList.address),
      ...wallets,
      detail: /wallet refused the signature: no revert data/,
      before: { code: 'signature_not_authorized', detail: /wallet refuses the signature/ },
    },
    {
      row: 'TRANSFER_FROM_FAILED',
      why: 'the wallet spends its balance',
      happens: async (tell) => {
        const held = await stage().still.rpc.read<bigint>(token, 'balanceOf', [wallet])
        await tell(admin, token, 'burn', wallet, held - totalRaw + 1n)
      },
      heals: () => stage().still.act(admin, token, 'mint', wallet, 1n),
      ...funds,
      detail: /holds 749999999 of the 750000000.*fund it/,
    },
    {
      row: 'TRANSFER_FROM_FAILED',
      why: 'the wallet takes its approval back',
      happens: (tell) => tell(wallet, token, 'approve', permit2.address, 5n),
      heals: () => stage().still.act(wallet, token, 'approve', permit2.address, unlimited),
      ...{
        code: 'insufficient_allowance',
        retryable: true,
        canResubmit: true,
        nextAction: 'approve_permit2',
      },
      detail: /allows Permit2 5 of the 750000000.*approve Permit2/,
    },
    {
      row: 'TRANSFER_FROM_FAILED',
      why: 'the token is paused',
      happens: (tell) => tell(admin, token, 'setPaused', true),
      heals: () => stage().still.act(admin, token, 'setPaused', false),
      ...{ ...blocked, retryable: true },
      detail: /paused or blocks the wallet/,
    },
    {
      row: 'TRANSFER_FROM_FAILED',
      why: 'the token blocks the proposer',
      happens: (tell) => tell(admin, token, 'setBlacklisted', wallet, true),
      heals: () => stage().still.act(admin, token, 'setBlacklisted', wallet, false),
      ...{ ...blocked, retryable: true },
      detail: /paused or blocks the wallet/,
    },
    {
      row: 'TRANSFER_FROM_FAILED, which may hide a taken round',
      why: 'a rival is first, and the wallet has spent its balance',
      happens: async (tell) => {
        await rivalProposes(tell)
        await tell(
          admin,
          token,
          'burn',
          wallet,
          await stage().still.rpc.read<bigint>(token, 'balanceOf', [wallet]),
        )
      },
      ...closed,
      detail: new RegExp(`${rival} proposed p1 first`),
    },
    {
      row: 'PermitTransferAmountMismatch',
      why: 'the token begins to take a fee',
      happens: () => placeCode(token.address, 'FeeToken'),
      ...{ ...blocked, retryable: false },
      detail: /takes a fee: 742500000 of 750000000/,
    },
    {
      row: 'OwnableUnauthorizedAccount(SignedProposer)',
      why: 'the request is paused by an empty custom whitelist',
      happens: (tell) => setWhitelist(tell, devAddresses.nobody),
      heals: async () => setWhitelist(stage().still.act, zero),
      ...unlisted,
      detail: /paused/,
    },
    {
      row: 'OwnableUnauthorizedAccount(SignedProposer)',
      why: 'the default whitelist goes to another owner, who has not listed the proposer',
      happens: (tell) =>
        tell(admin, signedProposer, 'transferWhitelistOwnership', proposers.address, rival),
      heals: () => stage().still.act(rival, proposers, 'addToWhitelist', wallet),
      ...unlisted,
      detail: /does not own that list/,
    },
    {
      row: 'SenderNotWhitelisted',
      why: 'the request gets a custom whitelist without SignedProposer',
      given: () => makeList(admin, [wallet]),
      happens: (tell) => setWhitelist(tell, ownList.address),
      heals: () => stage().still.act(admin, ownList, 'addToWhitelist', signedProposer.address),
      ...unlisted,
      detail: /SignedProposer is not on the custom whitelist/,
    },
    {
      row: 'SenderNotWhitelisted',
      why: 'the request gets a custom whitelist that SignedProposer owns and is not on',
      given: () => makeList(signedProposer.address, []),
      happens: (tell) => setWhitelist(tell, ownList.address),
      heals: async () => setWhitelist(stage().still.act, zero),
      ...unlisted,
      detail: /SignedProposer is not on the custom whitelist/,
    },
    {
      row: 'RequestStateNotRequested',
      why: 'a rival is first',
      happens: rivalProposes,
      ...closed,
      detail: new RegExp(`${rival} proposed p1 first, in transaction 0x`),
    },
    {
      row: 'RequestStateNotRequested',
      why: 'a rival is first, and a dispute opens a new round',
      happens: async (tell) => {
        const args = await roundArgs()
        await rivalProposes(tell)
        await tell(disputer, oracle, 'disputePrice', ...args)
      },
      ...{ ...closed, canResubmit: true },
      detail: /proposed p1 first/,
      before: {
        code: 'round_advanced',
        nextAction: 'sign_new_authorization',
        detail: /is in the round of \d+; this was signed for the round of \d+/,
      },
    },
    {
      row: 'ERC20InsufficientAllowance(oracle, have, need)',
      why: 'the custom bond is raised',
      happens: (tell) => setBond(tell, 600_000_000n),
      ...bond,
      detail: /bond (is 850000000 now,|850000000 is) above the permit amount 750000000/,
    },
    {
      row: 'Error "ERC20: insufficient allowance"',
      why: 'the custom bond is raised, with a token of an older kind',
      given: () => placeCode(token.address, 'LegacyToken'),
      happens: (tell) => setBond(tell, 600_000_000n),
      ...bond,
      detail: /bond is (850000000 now, )?above the permit amount/,
    },
    {
      row: 'Error "ERC20: transfer amount exceeds balance"',
      why: 'the custom bond is raised, with a token that moves the balance first',
      given: () => placeCode(token.address, 'BridgedToken'),
      happens: (tell) => setBond(tell, 600_000_000n),
      ...bond,
      detail: /bond (is 850000000 now,|850000000 is) above the permit amount 750000000/,
    },
    {
      row: "Error with the token's own text",
      why: 'the token blocks the oracle',
      happens: (tell) => tell(admin, token, 'setBlacklisted', oracle.address, true),
      heals: () => stage().still.act(admin, token, 'setBlacklisted', oracle.address, false),
      ...{ ...blocked, retryable: true },
      detail: /token refused a transfer: "Blacklistable: account is blacklisted"/,
    },
    {
      row: 'empty data, gasUsed ≈ limit',
      why: 'SignedProposer uses all the gas that there is (INVALID)',
      happens: () => stage().still.rpc.request('anvil_setCode', [signedProposer.address, '0xfe']),
      heals: () => placeCode(signedProposer.address, 'SignedProposer'),
      ...{
        code: 'execution_reverted',
        retryable: true,
        canResubmit: true,
        nextAction: 'contact_operator',
      },
      detail: /out of gas/,
      only: 'after sending',
    },
    {
      row: 'empty data, gas left',
      why: 'the token loses the functions that are called',
      happens: () => placeCode(token.address, 'Mute'),
      ...{
        code: 'execution_reverted',
        retryable: false,
        canResubmit: true,
        nextAction: 'contact_operator',
      },
      detail: /no revert data/,
      only: 'after sending',
      readiness: 'any',
    },
    {
      row: 'empty data, gas left',
      why: 'the oracle loses the functions that are called',
      happens: () => placeCode(oracle.address, 'Mute'),
      heals: () => placeCode(oracle.address, 'ManagedOracle'),
      ...{
        code: 'execution_reverted',
        retryable: false,
        canResubmit: true,
        nextAction: 'contact_operator',
      },
      detail: /no revert data/,
      only: 'after sending',
      readiness: 'any',
    },
  ]

  const operators: readonly OperatorTrouble[] = [
    {
      row: 'AccessControlUnauthorizedAccount',
      why: 'the executor loses its role',
      happens: (tell) => tell(admin, signedProposer, 'removeDelegatedProposer', executor),
      heals: () => stage().still.act(admin, signedProposer, 'addDelegatedProposer', executor),
      reason: /executor 0x[0-9a-f]{40} lacks DELEGATED_PROPOSER_ROLE on SignedProposer: grant it/,
    },
    {
      row: 'SenderNotWhitelisted',
      why: 'SignedProposer is taken off the default whitelist',
      happens: (tell) => asSignedProposer(tell, 'removeFromWhitelist', signedProposer.address),
      heals: () => asSignedProposer(stage().still.act, 'addToWhitelist', signedProposer.address),
      reason:
        /SignedProposer is not on the default proposer whitelist of the oracle 0x[0-9a-f]{40}: list it/,
    },
    {
      row: 'empty data, gas left',
      why: 'the oracle has no such function',
      happens: () => placeCode(oracle.address, 'Mute'),
      heals: () => placeCode(oracle.address, 'ManagedOracle'),
      reason: /oracle at 0x[0-9a-f]{40} has no proposer whitelist: it is not a managed oracle/,
      only: 'before sending',
    },
    {
      row: 'empty data, gas left',
      why: 'the token has no such function',
      happens: () => placeCode(token.address, 'Mute'),
      heals: () => placeCode(token.address, 'Token'),
      reason: new RegExp(token.address),
      only: 'before sending',
    },
  ]
  return { failing, operators, roundArgs }
}
