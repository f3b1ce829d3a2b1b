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
import type { Address, CandidateStatus } from '#protocol/schema'
import { devSigner, type ProposeWish, type StillChain } from './reorg-gateway.js'
import { failureTable } from './week-model.js'

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
type Failure = NonNullable<CandidateStatus['failure']>
export interface Failing extends Trouble {
  readonly code: Failure['code']
  readonly retryable: boolean
  readonly canResubmit: boolean
  readonly nextAction: Failure['next_action']
  readonly detail: RegExp
  readonly before?: {
    readonly code?: Failing['code']
    readonly nextAction?: Failing['nextAction']
    readonly detail: RegExp
  }
  readonly readiness?: 'any'
  readonly only?: 'before sending' | 'after sending'
}
type How = Pick<Trouble, 'happens'> & Partial<Omit<Failing, 'row' | 'why' | 'code' | 'detail'>>

export interface OperatorTrouble extends Trouble {
  readonly only?: 'before sending'
  readonly reason: RegExp
}
export interface Stage {
  readonly still: StillChain
  readonly questionId: Hex
}

/** What the code says unless the row says otherwise. */
function failing(
  row: string,
  why: string,
  code: Failing['code'],
  detail: RegExp,
  how: How,
): Failing {
  const { retryable = false, next = '' } = failureTable[code] ?? {}
  const nextAction = next as Failing['nextAction']
  const canResubmit = nextAction !== 'wait_for_new_round'
  return { row, why, code, detail, retryable, canResubmit, nextAction, ...how }
}

export function troublesOn(stage: () => Stage) {
  const act: Tell = (...args) => stage().still.act(...args)
  const request = (method: string, params: unknown[]) => stage().still.rpc.request(method, params)
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
  const setCode = (address: Address, code: string) => request('anvil_setCode', [address, code])
  const placeCode = (address: Address, contract: string) =>
    setCode(address, artifact(contract).code)
  const held = () => stage().still.rpc.read<bigint>(token, 'balanceOf', [wallet])
  const setWhitelist = async (tell: Tell, list: Address) =>
    tell(admin, oracle, 'requestManagerSetProposerWhitelist', ...(await managedArgs()), list)
  const rivalProposes = async (tell: Tell) =>
    tell(rival, oracle, 'proposePrice', ...(await roundArgs()), 0n)
  const raisesBond = async (tell: Tell) =>
    tell(
      ...([admin, oracle, 'requestManagerSetBond'] as const),
      ...[...(await managedArgs()), token.address, 600_000_000n],
    )
  const sets = (name: string, about: readonly unknown[]) => ({
    happens: (tell: Tell) => tell(admin, token, name, ...about, true),
    heals: () => act(admin, token, name, ...about, false),
  })

  async function becomeWallet(owner: Address = wallet): Promise<void> {
    await placeCode(wallet, 'Wallet')
    await act(admin, placedAt('Wallet', wallet), 'setOwner', owner)
  }
  const setMode = (mode: number) => ({
    given: () => becomeWallet(),
    happens: (tell: Tell) => tell(admin, placedAt('Wallet', wallet), 'setMode', mode),
    before: { detail: /wallet refuses the signature/ },
  })
  async function makeList(owner: Address, members: readonly Address[]): Promise<void> {
    await placeCode(ownList.address, 'AddressWhitelist')
    await act(admin, ownList, 'setUp', admin)
    for (const member of members) await act(admin, ownList, 'addToWhitelist', member)
    if (owner !== admin) await act(admin, ownList, 'transferOwnership', owner)
  }
  async function asSignedProposer(tell: Tell, name: string, ...args: unknown[]): Promise<void> {
    const balance = `0x${(10n ** 20n).toString(16)}`
    await request('anvil_setBalance', [signedProposer.address, balance])
    await tell(signedProposer.address, proposers, name, ...args)
  }
  const losesFunctions = (address: Address, name?: string) => ({
    happens: () => placeCode(address, 'Mute'),
    ...(name !== undefined && { heals: () => placeCode(address, name) }),
  })
  const signs = 'signature_not_authorized'
  const transfer = 'TRANSFER_FROM_FAILED'
  const bondIsAbove = /bond (is 850000000 now,|850000000 is) above the permit amount 750000000/
  const neverSent = { happens: async () => undefined, only: 'before sending' } as const
  const mined = { only: 'after sending', readiness: 'any' } as const

  const failures: readonly Failing[] = [
    failing(
      'SignatureExpired',
      'the deadline passes',
      'permit_expired',
      /deadline \d+ has passed/,
      {
        happens: () => stage().still.later(7_200),
      },
    ),
    failing(
      'InvalidNonce',
      'the owner cancels the nonce',
      'permit_nonce_used',
      /nonce.*used or invalidated/,
      {
        wish: { nonce: String(77n * 256n + 3n) },
        happens: (tell) => tell(wallet, permit2, 'invalidateUnorderedNonces', 77n, 8n),
      },
    ),
    failing('InvalidSigner', 'another key has signed', signs, /not by the proposer/, {
      wish: { key: devSigner('proposer', 1) },
      ...neverSent,
    }),
    failing(
      'InvalidSigner',
      'the wallet, whose owner has another key, loses its code',
      signs,
      /InvalidSigner/,
      {
        given: () => becomeWallet(devAccount('proposer', 1).address),
        wish: { key: devSigner('proposer', 1) },
        happens: () => setCode(wallet, '0x'),
        before: { detail: /not by the proposer/ },
      },
    ),
    failing(
      'InvalidSignatureLength',
      'the wallet, which takes longer signatures, loses its code',
      signs,
      /InvalidSignatureLength/,
      {
        given: () => becomeWallet(),
        wish: { spoil: (signature) => `${signature}00` },
        happens: () => setCode(wallet, '0x'),
        before: { detail: /not by the proposer/ },
      },
    ),
    failing('InvalidSignature', 'v is 0 or 1', signs, /not by the proposer/, {
      wish: { spoil: (good) => `${good.slice(0, -2)}${good.endsWith('1b') ? '00' : '01'}` as Hex },
      ...neverSent,
    }),
    failing(
      'InvalidContractSignature',
      'the wallet says no',
      signs,
      /InvalidContractSignature/,
      setMode(1),
    ),
    failing(
      "InvalidContractSignature, or a wallet's own data",
      'the wallet reverts with a text',
      signs,
      /wallet refused the signature: "wallet: nope"/,
      setMode(2),
    ),
    failing(
      'InvalidContractSignature, or empty',
      'the account delegates to code that knows no signatures (EIP-7702)',
      signs,
      /wallet refused the signature: no revert data/,
      {
        given: () => placeCode(ownList.address, 'Mute'),
        happens: () => setCode(wallet, `0xef0100${ownList.address.slice(2)}`),
        before: { detail: /wallet refuses the signature/ },
      },
    ),
    failing(
      transfer,
      'the wallet spends its balance',
      'insufficient_balance',
      /holds 749999999 of the 750000000.*fund it/,
      {
        happens: async (tell) => tell(admin, token, 'burn', wallet, (await held()) - totalRaw + 1n),
        heals: () => act(admin, token, 'mint', wallet, 1n),
      },
    ),
    failing(
      transfer,
      'the wallet takes its approval back',
      'insufficient_allowance',
      /allows Permit2 5 of the 750000000.*approve Permit2/,
      {
        happens: (tell) => tell(wallet, token, 'approve', permit2.address, 5n),
        heals: () => act(wallet, token, 'approve', permit2.address, unlimited),
      },
    ),
    failing(transfer, 'the token is paused', 'token_blocked', /paused or blocks the wallet/, {
      ...sets('setPaused', []),
      retryable: true,
    }),
    failing(
      transfer,
      'the token blocks the proposer',
      'token_blocked',
      /paused or blocks the wallet/,
      { ...sets('setBlacklisted', [wallet]), retryable: true },
    ),
    failing(
      `${transfer}, which may hide a taken round`,
      'a rival is first, and the wallet has spent its balance',
      'superseded',
      new RegExp(`${rival} proposed p1 first`),
      {
        happens: async (tell) => {
          await rivalProposes(tell)
          await tell(admin, token, 'burn', wallet, await held())
        },
      },
    ),
    failing(
      'PermitTransferAmountMismatch',
      'the token begins to take a fee',
      'token_blocked',
      /takes a fee: 742500000 of 750000000/,
      { happens: () => placeCode(token.address, 'FeeToken') },
    ),
    failing(
      'OwnableUnauthorizedAccount(SignedProposer)',
      'the request is paused by an empty custom whitelist',
      'proposer_not_whitelisted',
      /paused/,
      {
        happens: (tell) => setWhitelist(tell, devAddresses.nobody),
        heals: () => setWhitelist(act, zero),
      },
    ),
    failing(
      'OwnableUnauthorizedAccount(SignedProposer)',
      'the default whitelist goes to another owner, who has not listed the proposer',
      'proposer_not_whitelisted',
      /does not own that list/,
      {
        happens: (tell) =>
          tell(admin, signedProposer, 'transferWhitelistOwnership', proposers.address, rival),
        heals: () => act(rival, proposers, 'addToWhitelist', wallet),
      },
    ),
    failing(
      'SenderNotWhitelisted',
      'the request gets a custom whitelist without SignedProposer',
      'proposer_not_whitelisted',
      /SignedProposer is not on the custom whitelist/,
      {
        given: () => makeList(admin, [wallet]),
        happens: (tell) => setWhitelist(tell, ownList.address),
        heals: () => act(admin, ownList, 'addToWhitelist', signedProposer.address),
      },
    ),
    failing(
      'SenderNotWhitelisted',
      'the request gets a custom whitelist that SignedProposer owns and is not on',
      'proposer_not_whitelisted',
      /SignedProposer is not on the custom whitelist/,
      {
        given: () => makeList(signedProposer.address, []),
        happens: (tell) => setWhitelist(tell, ownList.address),
        heals: () => setWhitelist(act, zero),
      },
    ),
    failing(
      'RequestStateNotRequested',
      'a rival is first',
      'superseded',
      new RegExp(`${rival} proposed p1 first, in transaction 0x`),
      { happens: rivalProposes },
    ),
    failing(
      'RequestStateNotRequested',
      'a rival is first, and a dispute opens a new round',
      'superseded',
      /proposed p1 first/,
      {
        happens: async (tell) => {
          const args = await roundArgs()
          await rivalProposes(tell)
          await tell(disputer, oracle, 'disputePrice', ...args)
        },
        canResubmit: true,
        before: {
          code: 'round_advanced',
          nextAction: 'sign_new_authorization',
          detail: /is in the round of \d+; this was signed for the round of \d+/,
        },
      },
    ),
    failing(
      'ERC20InsufficientAllowance(oracle, have, need)',
      'the custom bond is raised',
      'bond_above_permit',
      bondIsAbove,
      { happens: raisesBond },
    ),
    failing(
      'Error "ERC20: insufficient allowance"',
      'the custom bond is raised, with a token of an older kind',
      'bond_above_permit',
      /bond is (850000000 now, )?above the permit amount/,
      { given: () => placeCode(token.address, 'LegacyToken'), happens: raisesBond },
    ),
    failing(
      'Error "ERC20: transfer amount exceeds balance"',
      'the custom bond is raised, with a token that moves the balance first',
      'bond_above_permit',
      bondIsAbove,
      { given: () => placeCode(token.address, 'BridgedToken'), happens: raisesBond },
    ),
    failing(
      "Error with the token's own text",
      'the token blocks the oracle',
      'token_blocked',
      /token refused a transfer: "Blacklistable: account is blacklisted"/,
      { ...sets('setBlacklisted', [oracle.address]), retryable: true },
    ),
    failing(
      'empty data, gasUsed ≈ limit',
      'SignedProposer uses all the gas that there is (INVALID)',
      'execution_reverted',
      /out of gas/,
      {
        happens: () => setCode(signedProposer.address, '0xfe'),
        heals: () => placeCode(signedProposer.address, 'SignedProposer'),
        retryable: true,
        only: 'after sending',
      },
    ),
    failing(
      'empty data, gas left',
      'the token loses the functions that are called',
      'execution_reverted',
      /no revert data/,
      { ...losesFunctions(token.address), ...mined },
    ),
    failing(
      'empty data, gas left',
      'the oracle loses the functions that are called',
      'execution_reverted',
      /no revert data/,
      { ...losesFunctions(oracle.address, 'ManagedOracle'), ...mined },
    ),
  ]

  const operators: readonly OperatorTrouble[] = [
    {
      row: 'AccessControlUnauthorizedAccount',
      why: 'the executor loses its role',
      happens: (tell) => tell(admin, signedProposer, 'removeDelegatedProposer', executor),
      heals: () => act(admin, signedProposer, 'addDelegatedProposer', executor),
      reason: /executor 0x[0-9a-f]{40} lacks DELEGATED_PROPOSER_ROLE on SignedProposer: grant it/,
    },
    {
      row: 'SenderNotWhitelisted',
      why: 'SignedProposer is taken off the default whitelist',
      happens: (tell) => asSignedProposer(tell, 'removeFromWhitelist', signedProposer.address),
      heals: () => asSignedProposer(act, 'addToWhitelist', signedProposer.address),
      reason:
        /SignedProposer is not on the default proposer whitelist of the oracle 0x[0-9a-f]{40}: list it/,
    },
    {
      row: 'empty data, gas left',
      why: 'the oracle has no such function',
      ...losesFunctions(oracle.address, 'ManagedOracle'),
      reason: /oracle at 0x[0-9a-f]{40} has no proposer whitelist: it is not a managed oracle/,
      only: 'before sending',
    },
    {
      row: 'empty data, gas left',
      why: 'the token has no such function',
      ...losesFunctions(token.address, 'Token'),
      reason: new RegExp(token.address),
      only: 'before sending',
    },
  ]
  return { failing: failures, operators, roundArgs }
}
