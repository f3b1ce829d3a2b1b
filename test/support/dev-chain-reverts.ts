/** How each case of `reverts.json` is brought about on our contracts. */

import { yesOrNoQuery } from '#chain/constants'

import { callData, type Placed } from '#devchain/dev-contracts'
import type { Hex } from '#ports'
import type { Address } from '#protocol/schema'
import {
  admin,
  type Payload,
  proposeArgs,
  type Request,
  type Round,
  requestRound,
  reverts,
  signPayload,
  startWorld,
  supportCurrency,
  type Terms,
  unlimited,
} from './dev-chain-vectors.js'

const named = (name: string): Address => {
  const address = reverts.addresses[name]
  if (address === undefined) throw new Error(`reverts.json names no ${name}`)
  return address
}

export interface Keys {
  readonly proposer: Hex
  readonly other: Hex
}

const requester: Address = '0x3c44cdddb6a900fa2b585dd299e03d12fa4293bc'
const stranger: Address = '0xa0ee7a142d267c1f36714e4a8f75612f20a79720'
const zero: Address = '0x0000000000000000000000000000000000000000'

export type Bench = Awaited<ReturnType<typeof startBench>>

export async function startBench(keys: Keys) {
  const extra = (n: number) => `0x${'0'.repeat(35)}c000${n}` as const
  const world = await startWorld(137)
  const signedProposer = await world.place(
    'SignedProposer',
    named('signed_proposer'),
    admin,
    named('permit2'),
  )
  const permit2 = await world.place('Permit2', named('permit2'))
  const listed = await world.place('AddressWhitelist', extra(1), admin)
  const empty = await world.place('AddressWhitelist', extra(2), admin)
  const everybody = await world.place('DisabledAddressWhitelist', extra(3), admin)
  const requesters = await world.place('AddressWhitelist', extra(4), admin)
  const oracle = await world.place(
    'ManagedOracle',
    named('oracle'),
    admin,
    listed.address,
    requesters.address,
  )
  const token = await world.place('Token', named('token'), admin)
  const legacyToken = await world.place('LegacyToken', named('legacy_token'), admin)
  const feeToken = await world.place('FeeToken', extra(5), admin)
  const wallet = await world.place('Wallet', named('wallet'))
  const mute = await world.place('Mute', extra(6))
  const proposer = named('proposer')
  const relayer = named('relayer')
  await world.send(admin, signedProposer, 'addDelegatedProposer', relayer)
  await world.send(admin, requesters, 'addToWhitelist', requester)
  await world.send(admin, oracle, 'setIdentifier', yesOrNoQuery, true)
  await world.send(admin, listed, 'addToWhitelist', signedProposer.address)
  await world.send(admin, listed, 'transferOwnership', signedProposer.address)
  for (const coin of [token, legacyToken, feeToken]) {
    await supportCurrency(world, oracle, coin.address, 250_000_000n)
    for (const owner of [proposer, named('other'), wallet.address]) {
      await world.mint(coin, owner, 10_000_000_000n)
      await world.approve(coin, owner, permit2.address, unlimited)
    }
  }
  let rounds = 0
  let nonces = 1000n
  return {
    ...{
      world,
      signedProposer,
      permit2,
      oracle,
      token,
      legacyToken,
      feeToken,
      wallet,
      mute,
      listed,
      empty,
      everybody,
      keys,
      proposer,
      relayer,
    },
    ask: (request: Partial<Request> = {}) => {
      rounds += 1
      const ancillaryData: Hex = `0x${Buffer.from(`q: case ${rounds}, `).toString('hex')}`
      return requestRound(world, oracle, {
        requester,
        token,
        eventBased: true,
        ancillaryData,
        ...request,
      })
    },
    sign: (round: Round, terms: Partial<Terms> = {}) => {
      nonces += 1n
      const usual = {
        key: keys.proposer,
        proposer,
        token: token.address,
        spender: signedProposer.address,
        permit2: permit2.address,
      }
      return signPayload(round, { ...usual, nonce: nonces, ...terms })
    },
    refusal: (payload: Payload, from: Address = relayer, gas?: bigint) =>
      world.revertOf(
        from,
        signedProposer.address,
        callData(signedProposer, 'propose', proposeArgs(payload)),
        gas,
      ),
    refused: (from: Address, contract: Placed, name: string, ...args: unknown[]) =>
      world.revertOf(from, contract.address, callData(contract, name, args)),
    execute: (payload: Payload) =>
      world.send(relayer, signedProposer, 'propose', ...proposeArgs(payload)),
  }
}

type Provoke = (bench: Bench) => Promise<Hex>

const altered =
  (change: (payload: Payload) => Payload): Provoke =>
  async (bench) =>
    bench.refusal(change(await bench.sign(await bench.ask())))

const signedWith =
  (terms: Partial<Terms>): Provoke =>
  async (bench) =>
    bench.refusal(await bench.sign(await bench.ask(), terms))

const elsewhere =
  (change: (round: Round) => Round): Provoke =>
  async (bench) =>
    bench.refusal(await bench.sign(change(await bench.ask())))

const withSignature = (signature: (good: Hex) => Hex): Provoke =>
  altered((payload) => ({ ...payload, signature: signature(payload.signature) }))

const withPermit = (change: Partial<Payload['permit']>): Provoke =>
  altered((payload) => ({ ...payload, permit: { ...payload.permit, ...change } }))

const withProposal = (change: Partial<Payload['proposal']>): Provoke =>
  altered((payload) => ({ ...payload, proposal: { ...payload.proposal, ...change } }))

const after =
  (prepare: (bench: Bench, round: Round) => Promise<unknown>): Provoke =>
  async (bench) => {
    const round = await bench.ask()
    const payload = await bench.sign(round)
    await prepare(bench, round)
    return bench.refusal(payload)
  }

const walletCase =
  (mode: number): Provoke =>
  async (bench) => {
    await bench.world.send(admin, bench.wallet, 'setOwner', bench.proposer)
    await bench.world.send(admin, bench.wallet, 'setMode', mode)
    return bench.refusal(await bench.sign(await bench.ask(), { proposer: bench.wallet.address }))
  }

export function delegate(bench: Bench, to: Placed): Promise<unknown> {
  return bench.world.rpc.request('anvil_setCode', [
    bench.proposer,
    `0xef0100${to.address.slice(2)}`,
  ])
}

export const keyArgs = ({ requester: from, identifier, timestamp, ancillaryData }: Round) => [
  from,
  identifier,
  timestamp,
  ancillaryData,
]
const managedArgs = ({ requester: from, identifier, ancillaryData }: Round) => [
  from,
  identifier,
  ancillaryData,
]

export function customWhitelist(bench: Bench, round: Round, whitelist: Address): Promise<unknown> {
  return bench.world.send(
    admin,
    bench.oracle,
    'requestManagerSetProposerWhitelist',
    ...managedArgs(round),
    whitelist,
  )
}

export function customBond(bench: Bench, round: Round, bondRaw: bigint): Promise<unknown> {
  return bench.world.send(
    admin,
    bench.oracle,
    'requestManagerSetBond',
    ...managedArgs(round),
    bench.token.address,
    bondRaw,
  )
}

const disburse = (bench: Bench, amount: bigint) =>
  bench.world.send(admin, bench.token, 'burn', bench.proposer, 10_000_000_000n - amount)

async function taken(bench: Bench, round: Round): Promise<void> {
  await bench.execute(await bench.sign(round, { key: bench.keys.other, proposer: named('other') }))
}

const dispute = async (bench: Bench, round: Round): Promise<void> => {
  await taken(bench, round)
  await bench.world.mint(bench.token, stranger, 10_000_000_000n)
  await bench.world.approve(bench.token, stranger, bench.oracle.address, unlimited)
  await bench.world.send(stranger, bench.oracle, 'disputePrice', ...keyArgs(round))
}

const pastLiveness = async (bench: Bench, round: Round): Promise<void> => {
  await taken(bench, round)
  await bench.world.rpc.request('evm_increaseTime', [7201])
  await bench.world.rpc.request('evm_mine', [])
}

const multicall = (
  bench: Bench,
  payloads: readonly Payload[],
  from: Address = bench.relayer,
): Promise<Hex> =>
  bench.refused(
    from,
    bench.signedProposer,
    'multicall',
    payloads.map((payload) => callData(bench.signedProposer, 'propose', proposeArgs(payload))),
  )

const text = 'q: direct, '
const directKey = [yesOrNoQuery, 1_768_486_239n, `0x${Buffer.from(text).toString('hex')}`]

const requested =
  (change: {
    from?: Address
    identifier?: Hex
    timestamp?: bigint
    ancillaryData?: Hex
    currency?: Address
  }): Provoke =>
  (bench) =>
    bench.refused(
      change.from ?? requester,
      bench.oracle,
      'requestPrice',
      change.identifier ?? directKey[0],
      change.timestamp ?? directKey[1],
      change.ancillaryData ?? directKey[2],
      change.currency ?? bench.token.address,
      0n,
    )

const managerBond =
  (bondRaw: bigint): Provoke =>
  async (bench) =>
    bench.refused(
      admin,
      bench.oracle,
      'requestManagerSetBond',
      ...managedArgs(await bench.ask()),
      bench.token.address,
      bondRaw,
    )

export const provocations: Readonly<Record<string, Provoke>> = {
  caller_lacks_role: async (bench) =>
    bench.refusal(await bench.sign(await bench.ask()), named('unprivileged')),
  payment_exceeds_max_payment: altered((payload) => ({ ...payload, payment: 1n })),
  unknown_request: elsewhere((round) => ({ ...round, ancillaryData: '0x6e6f6e65' })),
  wrong_round_timestamp: elsewhere((round) => ({ ...round, timestamp: round.timestamp + 1n })),
  ancillary_bytes_changed: elsewhere((round) => ({
    ...round,
    ancillaryData: round.ancillaryData.slice(0, -2) as Hex,
  })),
  wrong_requester: elsewhere((round) => ({ ...round, requester: stranger })),
  wrong_token: async (bench) =>
    bench.refusal(await bench.sign(await bench.ask(), { token: bench.legacyToken.address })),
  zero_token_unknown_request: async (bench) =>
    bench.refusal(
      await bench.sign({ ...(await bench.ask()), ancillaryData: '0x6e6f6e65' }, { token: zero }),
    ),
  oracle_has_no_code: elsewhere((round) => ({ ...round, oracle: stranger })),
  oracle_is_other_contract: async (bench) =>
    bench.refusal(await bench.sign({ ...(await bench.ask()), oracle: bench.token.address })),
  deadline_expired: signedWith({ deadline: 1_795_154_549n }),
  deadline_zero: signedWith({ deadline: 0n }),
  nonce_used_by_other_proposal: async (bench) => {
    await bench.execute(await bench.sign(await bench.ask(), { nonce: 7n }))
    return bench.refusal(await bench.sign(await bench.ask(), { nonce: 7n }))
  },
  exact_replay_after_success: async (bench) => {
    const payload = await bench.sign(await bench.ask())
    await bench.execute(payload)
    return bench.refusal(payload)
  },
  nonce_invalidated_by_owner: async (bench) => {
    const payload = await bench.sign(await bench.ask(), { nonce: 7n * 256n + 3n })
    await bench.world.send(bench.proposer, bench.permit2, 'invalidateUnorderedNonces', 7n, 1n << 3n)
    return bench.refusal(payload)
  },
  signature_by_other_key: async (bench) =>
    bench.refusal(await bench.sign(await bench.ask(), { key: bench.keys.other })),
  price_altered: withProposal({ proposedPrice: 0n }),
  max_payment_altered: withProposal({ maxPayment: 1n }),
  amount_altered: async (bench) => {
    const payload = await bench.sign(await bench.ask())
    const permitted = { ...payload.permit.permitted, amount: payload.permit.permitted.amount + 1n }
    return bench.refusal({ ...payload, permit: { ...payload.permit, permitted } })
  },
  deadline_altered: withPermit({ deadline: 1_956_528_001n }),
  wrong_spender: signedWith({ spender: '0xf5059a5d33d5853360d16c683c16e67980206f36' }),
  wrong_chain_id: signedWith({ chainId: 1 }),
  domain_with_version: signedWith({ domainVersion: '1' }),
  signature_v_0_or_1: withSignature(
    (good) => `${good.slice(0, -2)}${good.endsWith('1b') ? '00' : '01'}` as Hex,
  ),
  signature_all_zero: withSignature(() => `0x${'00'.repeat(65)}`),
  signature_empty: withSignature(() => '0x'),
  signature_63_bytes: withSignature((good) => good.slice(0, -4) as Hex),
  signature_66_bytes: withSignature((good) => `${good}00`),
  proposer_zero_address: altered((payload) => ({ ...payload, proposer: zero })),
  eip1271_wrong_magic: walletCase(1),
  eip1271_wallet_reverts: walletCase(2),
  owner_contract_without_1271: async (bench) =>
    bench.refusal(await bench.sign(await bench.ask(), { proposer: bench.mute.address })),
  eip7702_delegate_without_1271: after((bench) => delegate(bench, bench.mute)),
  eip7702_delegate_other_owner: after((bench) => delegate(bench, bench.wallet)),
  balance_too_low: after((bench) => disburse(bench, 749_999_999n)),
  amount_above_balance_but_bond_covered: async (bench) => {
    const payload = await bench.sign(await bench.ask(), { amount: 2_000_000_000n })
    await disburse(bench, 800_000_000n)
    return bench.refusal(payload)
  },
  permit2_allowance_too_low: after((bench) =>
    bench.world.approve(bench.token, bench.proposer, bench.permit2.address, 749_999_999n),
  ),
  token_paused: after((bench) => bench.world.send(admin, bench.token, 'setPaused', true)),
  proposer_blacklisted: after((bench) =>
    bench.world.send(admin, bench.token, 'setBlacklisted', bench.proposer, true),
  ),
  oracle_blacklisted: after((bench) =>
    bench.world.send(admin, bench.token, 'setBlacklisted', bench.oracle.address, true),
  ),
  fee_on_transfer_token: async (bench) => {
    const round = await bench.ask({ token: bench.feeToken })
    return bench.refusal(
      await bench.sign(round, { token: bench.feeToken.address, amount: 760_000_000n }),
    )
  },
  amount_below_bond_modern_token: signedWith({ amount: 749_999_999n }),
  amount_below_bond_legacy_token: async (bench) => {
    const round = await bench.ask({ token: bench.legacyToken })
    return bench.refusal(
      await bench.sign(round, { token: bench.legacyToken.address, amount: 749_999_999n }),
    )
  },
  custom_bond_raised_after_signing: after((bench, round) => customBond(bench, round, 600_000_000n)),
  payment_plus_bond_above_amount: signedWith({ maxPayment: 5n, payment: 1n }),
  payment_above_amount: signedWith({ maxPayment: 1_000_000_000n, payment: 750_000_001n }),
  proposer_not_whitelisted_sp_not_owner: after(async (bench, round) => {
    await bench.world.send(admin, bench.empty, 'addToWhitelist', bench.signedProposer.address)
    await customWhitelist(bench, round, bench.empty.address)
  }),
  signed_proposer_not_whitelisted: after(async (bench, round) => {
    await bench.world.send(admin, bench.empty, 'addToWhitelist', bench.proposer)
    await customWhitelist(bench, round, bench.empty.address)
  }),
  signed_proposer_owns_but_not_listed: after(async (bench, round) => {
    await bench.world.send(admin, bench.empty, 'transferOwnership', bench.signedProposer.address)
    await customWhitelist(bench, round, bench.empty.address)
  }),
  request_paused_by_empty_custom_whitelist: after((bench, round) =>
    customWhitelist(bench, round, bench.empty.address),
  ),
  already_proposed_by_another: after(taken),
  already_proposed_and_no_funds: after(async (bench, round) => {
    await taken(bench, round)
    await disburse(bench, 0n)
  }),
  proposal_expired_unsettled: after(pastLiveness),
  settled: after(async (bench, round) => {
    await pastLiveness(bench, round)
    await bench.world.send(admin, bench.oracle, 'settle', ...keyArgs(round))
  }),
  disputed_round: after(dispute),
  too_early_price_on_event_based: signedWith({ price: -(2n ** 255n) }),
  multicall_one_bad_item: async (bench) => {
    const bad = await bench.sign(await bench.ask(), { key: bench.keys.other })
    return multicall(bench, [
      await bench.sign(await bench.ask()),
      bad,
      await bench.sign(await bench.ask()),
    ])
  },
  multicall_same_nonce_twice: async (bench) =>
    multicall(bench, [
      await bench.sign(await bench.ask(), { nonce: 9n }),
      await bench.sign(await bench.ask(), { nonce: 9n }),
    ]),
  multicall_same_request_twice: async (bench) => {
    const round = await bench.ask()
    return multicall(bench, [await bench.sign(round), await bench.sign(round)])
  },
  multicall_caller_lacks_role: async (bench) =>
    multicall(bench, [await bench.sign(await bench.ask())], named('unprivileged')),
  out_of_gas: async (bench) =>
    bench.refusal(await bench.sign(await bench.ask()), bench.relayer, 60_000n),
  request_by_unlisted_requester: requested({ from: stranger }),
  request_unsupported_identifier: requested({ identifier: `0x${'77'.repeat(32)}` }),
  request_unsupported_currency: requested({ currency: stranger }),
  request_timestamp_in_future: requested({ timestamp: 2n ** 64n }),
  request_ancillary_8140_bytes: requested({ ancillaryData: `0x${'61'.repeat(8140)}` }),
  request_twice: async (bench) => {
    const round = await bench.ask()
    return bench.refused(
      requester,
      bench.oracle,
      'requestPrice',
      ...keyArgs(round).slice(1),
      bench.token.address,
      0n,
    )
  },
  manager_bond_zero: managerBond(0n),
  manager_bond_below_minimum: managerBond(99_999_999n),
  manager_bond_above_maximum: managerBond(100_000_000_001n),
  settle_not_settleable: async (bench) =>
    bench.refused(admin, bench.oracle, 'settle', ...keyArgs(await bench.ask())),
  settle_by_non_resolver: async (bench) =>
    bench.refused(stranger, bench.oracle, 'settle', ...keyArgs(await bench.ask())),
  settle_and_get_price_unsettled: async (bench) =>
    bench.refused(
      requester,
      bench.oracle,
      'settleAndGetPrice',
      ...keyArgs(await bench.ask()).slice(1),
    ),
  direct_proposal_unlisted: async (bench) =>
    bench.refused(stranger, bench.oracle, 'proposePrice', ...keyArgs(await bench.ask()), 0n),
  dispute_without_proposal: async (bench) =>
    bench.refused(stranger, bench.oracle, 'disputePrice', ...keyArgs(await bench.ask())),
}
