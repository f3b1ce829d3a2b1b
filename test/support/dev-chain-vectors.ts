import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { maxUint256 } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import { topics, yesOrNoQuery } from '#chain/contracts'
import { type Anvil, startAnvil } from '#devchain/dev-anvil'
import {
  callData,
  type DevReceipt,
  type DevRpc,
  DevRpcError,
  devRpc,
  type Placed,
  placedAt,
  placing,
  receiptsOf,
} from '#devchain/dev-contracts'
import type { Hex } from '#ports'
import type { Address } from '#protocol/schema'

export interface RevertCase {
  readonly name: string
  readonly contract: 'signed_proposer' | 'oracle'
  readonly raw: Hex
  readonly error: string | null
  readonly args: readonly string[]
  readonly same_payload: string | null
}

export interface Reverts {
  readonly addresses: Readonly<Record<string, Address>>
  readonly reverts: readonly RevertCase[]
  readonly accepted: readonly { readonly name: string }[]
}

export interface WitnessCase {
  readonly name: string
  readonly input: {
    readonly chain_id: string
    readonly permit2: Address
    readonly signed_proposer: Address
    readonly token: Address
    readonly amount: string
    readonly nonce: string
    readonly deadline: string
    readonly oracle: Address
    readonly requester: Address
    readonly identifier: Hex
    readonly timestamp: string
    readonly ancillary_data: Hex
    readonly proposed_price: string
    readonly max_payment: string
  }
  readonly expected: {
    readonly proposal_struct_hash: Hex
    readonly domain_separator: Hex
    readonly digest: Hex
  }
  readonly private_key: Hex
  readonly signer: Address
  readonly signature: Hex
  readonly signature_compact: Hex
  readonly executed_on_chain: boolean
}

function readFixture(name: string): unknown {
  return JSON.parse(readFileSync(new URL(`../../fixtures/${name}`, import.meta.url), 'utf8'))
}

export const reverts = readFixture('vectors/reverts.json') as Reverts
export const witness = readFixture('vectors/witness.json') as {
  readonly constants: Readonly<Record<string, string>>
  readonly cases: readonly WitnessCase[]
}

export const genesisSeconds = 1_795_154_600

export const admin: Address = '0xad00000000000000000000000000000000000001'

export interface World {
  readonly anvil: Anvil
  readonly rpc: DevRpc
  place(contract: string, address: Address, ...setUpArgs: unknown[]): Promise<Placed>
  send(from: Address, contract: Placed, name: string, ...args: unknown[]): Promise<DevReceipt>
  revertOf(from: Address, to: Address, data: Hex, gas?: bigint): Promise<Hex>
  aside<Result>(run: () => Promise<Result>): Promise<Result>
  mint(token: Placed, to: Address, amount: bigint): Promise<void>
  approve(token: Placed, owner: Address, spender: Address, amount: bigint): Promise<void>
}

/**
 * anvil takes a mined transaction out of its pool only after its receipt can be seen. One that is
 * still there when the chain is put back is mined once more, beside what is sent next.
 */
export async function poolEmpty(rpc: DevRpc): Promise<void> {
  for (;;) {
    const { pending, queued } = await rpc.request<{ pending: Hex; queued: Hex }>(
      'txpool_status',
      [],
    )
    if (BigInt(pending) + BigInt(queued) === 0n) return
    await sleep(5)
  }
}

export async function startWorld(chainId: number): Promise<World> {
  const anvil = await startAnvil(0, [
    ...['--chain-id', String(chainId), '--timestamp', String(genesisSeconds), '--accounts', '0'],
    ...[
      '--hardfork',
      'prague',
      '--auto-impersonate',
      '--gas-limit',
      '1000000000',
      '--block-base-fee-per-gas',
      '0',
    ],
  ])
  const rpc = devRpc(anvil.rpcUrl)
  const post = async (from: Address, to: Address, data: Hex): Promise<DevReceipt> => {
    const transaction = { from, to, data, gas: '0x1312d00', gasPrice: '0x0' }
    const [receipt] = await receiptsOf(rpc, [
      await rpc.request<Hex>('eth_sendTransaction', [transaction]),
    ])
    if (receipt === undefined) throw new Error('no receipt')
    return receipt
  }
  const send: World['send'] = (from, contract, name, ...args) =>
    post(from, contract.address, callData(contract, name, args))
  return {
    anvil,
    rpc,
    send,
    async place(contract, address, ...setUpArgs) {
      const placed = placedAt(contract, address)
      await rpc.batch(placing(placed))
      if (setUpArgs.length > 0) await send(admin, placed, 'setUp', ...setUpArgs)
      return placed
    },
    async revertOf(from, to, data, gas = 20_000_000n) {
      let answer: Hex
      try {
        answer = await rpc.request<Hex>('eth_call', [
          { from, to, data, gas: `0x${gas.toString(16)}`, gasPrice: '0x0' },
          'latest',
        ])
      } catch (error) {
        if (error instanceof DevRpcError && /revert|OutOfGas/.test(error.message)) return error.data
        throw error
      }
      throw new Error(`the call succeeded: ${answer}`)
    },
    async aside(run) {
      const snapshot = await rpc.request<Hex>('evm_snapshot', [])
      try {
        return await run()
      } finally {
        await poolEmpty(rpc)
        await rpc.request('evm_revert', [snapshot])
      }
    },
    async mint(token, to, amount) {
      await send(admin, token, 'mint', to, amount)
    },
    async approve(token, owner, spender, amount) {
      await send(owner, token, 'approve', spender, amount)
    },
  }
}

export interface Round {
  readonly oracle: Address
  readonly requester: Address
  readonly identifier: Hex
  readonly timestamp: bigint
  readonly ancillaryData: Hex
}

export interface Payload {
  readonly proposal: Round & { readonly proposedPrice: bigint; readonly maxPayment: bigint }
  readonly proposer: Address
  readonly permit: {
    readonly permitted: { readonly token: Address; readonly amount: bigint }
    readonly nonce: bigint
    readonly deadline: bigint
  }
  readonly signature: Hex
  readonly payment: bigint
}

export interface Terms {
  readonly key: Hex
  readonly proposer: Address
  readonly token: Address
  readonly spender: Address
  readonly permit2: Address
  readonly amount?: bigint
  readonly nonce: bigint
  readonly deadline?: bigint
  readonly price?: bigint
  readonly maxPayment?: bigint
  readonly payment?: bigint
  readonly chainId?: number
  readonly domainVersion?: string
}

const field = (name: string, type: string) => ({ name, type })
export const permitTypes = {
  PermitWitnessTransferFrom: [
    field('permitted', 'TokenPermissions'),
    field('spender', 'address'),
    field('nonce', 'uint256'),
    field('deadline', 'uint256'),
    field('witness', 'Proposal'),
  ],
  TokenPermissions: [field('token', 'address'), field('amount', 'uint256')],
  Proposal: [
    field('oracle', 'address'),
    field('requester', 'address'),
    field('identifier', 'bytes32'),
    field('timestamp', 'uint256'),
    field('ancillaryData', 'bytes'),
    field('proposedPrice', 'int256'),
    field('maxPayment', 'uint256'),
  ],
}

export async function signPayload(round: Round, terms: Terms): Promise<Payload> {
  const proposal = {
    ...round,
    proposedPrice: terms.price ?? 10n ** 18n,
    maxPayment: terms.maxPayment ?? 0n,
  }
  const permit = {
    permitted: { token: terms.token, amount: terms.amount ?? 750_000_000n },
    nonce: terms.nonce,
    deadline: terms.deadline ?? 1_956_528_000n,
  }
  const signature = await privateKeyToAccount(terms.key).signTypedData({
    domain: {
      name: 'Permit2',
      ...(terms.domainVersion === undefined ? {} : { version: terms.domainVersion }),
      chainId: terms.chainId ?? 137,
      verifyingContract: terms.permit2,
    },
    types: permitTypes,
    primaryType: 'PermitWitnessTransferFrom',
    message: { ...permit, spender: terms.spender, witness: proposal },
  })
  return { proposal, proposer: terms.proposer, permit, signature, payment: terms.payment ?? 0n }
}

export function payloadOf({ input, signer, signature }: WitnessCase): Payload {
  return {
    proposal: {
      oracle: input.oracle,
      requester: input.requester,
      identifier: input.identifier,
      timestamp: BigInt(input.timestamp),
      ancillaryData: input.ancillary_data,
      proposedPrice: BigInt(input.proposed_price),
      maxPayment: BigInt(input.max_payment),
    },
    proposer: signer,
    permit: {
      permitted: { token: input.token, amount: BigInt(input.amount) },
      nonce: BigInt(input.nonce),
      deadline: BigInt(input.deadline),
    },
    signature,
    payment: 0n,
  }
}

export function proposeArgs({
  proposal,
  proposer,
  permit,
  signature,
  payment,
}: Payload): readonly unknown[] {
  return [proposal, proposer, permit, signature, payment]
}

export function executed(receipt: DevReceipt, signedProposer: Address): boolean {
  return receipt.logs.some(
    ({ address, topics: [topic] }) =>
      address === signedProposer && topic === topics.proposalExecuted,
  )
}

export interface Request {
  readonly requester: Address
  readonly ancillaryData?: Hex
  readonly identifier?: Hex
  readonly timestamp?: bigint
  readonly token: Placed
  readonly bondRaw?: bigint
  readonly eventBased?: boolean
}

export async function requestRound(world: World, oracle: Placed, request: Request): Promise<Round> {
  const {
    requester,
    identifier = yesOrNoQuery,
    timestamp = 1_768_486_239n,
    ancillaryData = '0x',
    bondRaw = 500_000_000n,
  } = request
  const key = [identifier, timestamp, ancillaryData]
  await world.send(requester, oracle, 'requestPrice', ...key, request.token.address, 0n)
  if (bondRaw > 0n) await world.send(requester, oracle, 'setBond', ...key, bondRaw)
  if (request.eventBased === true) await world.send(requester, oracle, 'setEventBased', ...key)
  return { oracle: oracle.address, requester, identifier, timestamp, ancillaryData }
}

export async function supportCurrency(
  world: World,
  oracle: Placed,
  token: Address,
  finalFeeRaw: bigint,
): Promise<void> {
  await world.send(
    admin,
    oracle,
    'setCurrency',
    token,
    true,
    finalFeeRaw,
    100_000_000n,
    100_000_000_000n,
  )
}

export const unlimited = maxUint256
