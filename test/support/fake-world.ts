/**
 * A tiny model of the contracts that the gateway talks to: state as plain data, calls decoded by
 * viem, reverts with the real data. What `propose` does, and in which order it fails, is domain
 * §2.1.
 */

import {
  type Abi,
  concatHex,
  decodeFunctionData,
  type EncodeFunctionResultParameters,
  encodeAbiParameters,
  encodeErrorResult,
  encodeEventTopics,
  encodeFunctionResult,
  toFunctionSelector,
} from 'viem'
import {
  canonicalPermit2,
  ctfAdapterAbi,
  eip1271MagicValue,
  erc20Abi,
  oracleAbi,
  oracleV3Abi,
  permit2Abi,
  roles,
  signedProposerAbi,
  typeHashes,
  whitelistAbi,
  yesOrNoQuery,
} from '#chain/contracts'
import { managedRequestId } from '#chain/questions'
import { zeroAddress } from '#chain/reading'
import { revertAbi } from '#chain/reverts'
import { type Contracts, domainOf } from '#chain/round'
import type { Trust } from '#client/trust/trust'
import type { Hex } from '#ports'
import type { Address } from '#protocol/schema'
import { recoverSigner } from '#protocol/signature'
import { witnessRound } from '#protocol/witness'

const at = (digits: string): Address => `0x${digits.padStart(40, '0')}`

export const fakeContracts: Contracts = {
  chainId: 31337,
  permit2: canonicalPermit2,
  signedProposer: at('5109'),
  oracles: [at('0a')],
  requesters: [{ address: at('ada'), kind: 'uma-ctf-adapter' }],
  tokens: [at('70')],
}
export const trustIn = (contracts: Contracts): Trust => ({
  chain_id: contracts.chainId,
  permit2: contracts.permit2,
  signed_proposer: contracts.signedProposer,
  oracles: [...contracts.oracles],
  requesters: contracts.requesters.map((each) => ({ ...each })),
  tokens: [...contracts.tokens],
  slugs: {},
})
export const fakeTrust = trustIn(fakeContracts)
export const [oracle = zeroAddress] = fakeContracts.oracles
export const [token = zeroAddress] = fakeContracts.tokens
export const adapter: Address = fakeContracts.requesters[0]?.address ?? zeroAddress
/** With the adapter as its only requester. */
export const adapterTrust: Trust = {
  ...fakeTrust,
  requesters: [{ address: adapter, kind: 'uma-ctf-adapter' }],
}
export const defaultList = at('115')
export const emptyList = at('e1')
export const finalFeeRaw = 250_000_000n
export const bondRaw = 500_000_000n

export interface FakeRequest {
  state: number
  bondRaw: bigint
  proposer: Address
  price: bigint
  proposalTime: bigint
  rewardRaw?: bigint
  disputer?: Address
  resolved?: bigint
}

export const creator: Address = at('c')

export interface FakeQuestion {
  ancillaryData: Hex
  timestamp: bigint
  paused: boolean
  flagged: boolean
  resolved: boolean
  isReset?: boolean
  updates?: { owner: Address; timestamp: bigint; update: Hex }[]
}

export interface World {
  balances: Map<Address, bigint>
  allowances: Map<Address, bigint>
  bitmaps: Map<string, bigint>
  questions: Map<Hex, FakeQuestion>
  requests: Map<string, FakeRequest>
  customBonds: Map<Hex, bigint>
  customLists: Map<Hex, Address>
  lists: Map<Address, { owner: Address; members: Set<Address> }>
  relayers: Set<Address>
  wallets: Map<Address, boolean>
  blocked: Set<Address>
  deferred: Map<Address, bigint>
  typeHash: Hex
  storage: Map<string, Hex>
  codes: Map<Address, Hex>
  rules?: Map<Hex, { timestamp: bigint; update: Hex }[]>
}

export function emptyWorld(): World {
  const lists = new Map([
    [
      defaultList,
      { owner: fakeContracts.signedProposer, members: new Set([fakeContracts.signedProposer]) },
    ],
    [emptyList, { owner: zeroAddress, members: new Set<Address>() }],
  ])
  return {
    balances: new Map(),
    allowances: new Map(),
    bitmaps: new Map(),
    questions: new Map(),
    requests: new Map(),
    customBonds: new Map(),
    customLists: new Map(),
    lists,
    relayers: new Set(),
    wallets: new Map(),
    blocked: new Set(),
    deferred: new Map(),
    typeHash: typeHashes.proposal,
    storage: new Map(),
    codes: new Map(),
  }
}

export class Revert extends Error {
  constructor(readonly data: Hex) {
    super('execution reverted')
  }
}

function revert(errorName: string, args: readonly unknown[] = []): never {
  throw new Revert(
    encodeErrorResult({ abi: revertAbi, errorName, args } as unknown as Parameters<
      typeof encodeErrorResult
    >[0]),
  )
}

export interface FakeLog {
  readonly address: Address
  readonly topics: readonly Hex[]
  readonly data: Hex
}

export function logOf(
  address: Address,
  abi: Abi,
  eventName: string,
  args: Record<string, unknown>,
): FakeLog {
  const event = abi.find((item) => item.type === 'event' && item.name === eventName)
  if (event?.type !== 'event') throw new Error(`no event ${eventName}`)
  const plain = event.inputs.filter(({ indexed }) => !indexed)
  return {
    address,
    topics: encodeEventTopics({ abi, eventName, args } as unknown as Parameters<
      typeof encodeEventTopics
    >[0]) as Hex[],
    data: encodeAbiParameters(plain, plain.map(({ name }) => args[name ?? '']) as never),
  }
}

export const requestKey = (
  requester: string,
  identifier: string,
  timestamp: bigint,
  ancillaryData: Hex,
) => `${requester.toLowerCase()}|${identifier}|${timestamp}|${ancillaryData}`

export function openRound(world: World, questionId: Hex, timestamp: bigint): FakeLog[] {
  const question = questionOf(world, questionId)
  question.timestamp = timestamp
  const request = { state: 1, bondRaw, proposer: zeroAddress, price: 0n, proposalTime: 0n }
  world.requests.set(requestKey(adapter, yesOrNoQuery, timestamp, question.ancillaryData), request)
  return [
    logOf(oracle, oracleAbi, 'RequestPrice', {
      requester: adapter,
      identifier: yesOrNoQuery,
      timestamp,
      ancillaryData: question.ancillaryData,
      currency: token,
      reward: 0n,
      finalFee: finalFeeRaw,
    }),
  ]
}

export function questionOf(world: World, questionId: Hex): FakeQuestion {
  const question = world.questions.get(questionId)
  if (!question) throw new Error(`no question ${questionId}`)
  return question
}

export function requestOf(world: World, questionId: Hex): FakeRequest {
  return roundOf(world, questionId, questionOf(world, questionId).timestamp)
}

export function roundOf(world: World, questionId: Hex, timestamp: bigint): FakeRequest {
  const { ancillaryData } = questionOf(world, questionId)
  const request = world.requests.get(requestKey(adapter, yesOrNoQuery, timestamp, ancillaryData))
  if (!request) throw new Error(`no request of ${questionId}`)
  return request
}

export function managedOf(world: World, questionId: Hex): Hex {
  return managedRequestId({
    requester: adapter,
    identifier: yesOrNoQuery,
    ancillaryData: questionOf(world, questionId).ancillaryData,
  })
}

export function proposeOnOracle(
  world: World,
  questionId: Hex,
  proposer: Address,
  price: bigint,
  time: bigint,
): FakeLog[] {
  const { timestamp, ancillaryData } = questionOf(world, questionId)
  const request = requestOf(world, questionId)
  if (request.state !== 1) revert('RequestStateNotRequested')
  Object.assign(request, { state: 2, proposer, price, proposalTime: time })
  return [
    proposeLog({
      requester: adapter,
      proposer,
      identifier: yesOrNoQuery,
      timestamp,
      ancillaryData,
      price,
      time,
    }),
  ]
}

function proposeLog(fields: {
  requester: Address
  proposer: Address
  identifier: Hex
  timestamp: bigint
  ancillaryData: Hex
  price: bigint
  time: bigint
}): FakeLog {
  const { price: proposedPrice, time, ...rest } = fields
  return logOf(oracle, oracleAbi, 'ProposePrice', {
    ...rest,
    proposedPrice,
    expirationTimestamp: time + 7200n,
    currency: token,
  })
}

const signers = new Map<string, Address | undefined>()

function signerOf(digest: Uint8Array, signature: Hex): Address | undefined {
  const key = `${Buffer.from(digest).toString('hex')}${signature}`
  if (signers.has(key)) return signers.get(key)
  const signer = recoverSigner(digest, signature)
  if (signers.size < 10_000) signers.set(key, signer)
  return signer
}

export function runPropose(world: World, from: Address, data: Hex, time: bigint): FakeLog[] {
  const { functionName, args } = decodeFunctionData({
    abi: itemOf(signedProposerAbi, data) as typeof signedProposerAbi,
    data,
  })
  if (functionName === 'multicall')
    return args[0].flatMap((call) => runPropose(world, from, call, time))
  if (functionName !== 'propose') throw new Revert('0x')
  const [proposal, checksummed, permit, signature, payment] = args
  const proposer = checksummed.toLowerCase() as Address
  const { identifier, timestamp, ancillaryData, proposedPrice: price } = proposal
  const requester = proposal.requester.toLowerCase() as Address
  const amount = permit.permitted.amount
  const permitToken = permit.permitted.token.toLowerCase() as Address
  if (!world.relayers.has(from))
    revert('AccessControlUnauthorizedAccount', [from, roles.delegatedProposer])
  if (payment > proposal.maxPayment) revert('PaymentExceedsMaxPayment')
  const request = world.requests.get(requestKey(requester, identifier, timestamp, ancillaryData))
  if (!request || permitToken !== token)
    revert('PermitTokenMismatch', [request ? token : zeroAddress, permitToken])
  if (time > permit.deadline) revert('SignatureExpired', [permit.deadline])
  const word = `${proposer}|${permit.nonce >> 8n}`
  const bit = 1n << (permit.nonce & 255n)
  const used = world.bitmaps.get(word) ?? 0n
  if (used & bit) revert('InvalidNonce')
  const wallet = world.wallets.get(proposer)
  if (wallet === false) revert('InvalidContractSignature')
  if (wallet === undefined) {
    const signed = {
      oracle: proposal.oracle.toLowerCase() as Address,
      requester,
      identifier,
      timestamp: String(timestamp),
      ancillaryData,
    }
    const terms = {
      price: String(price),
      amount: String(amount),
      nonce: String(permit.nonce),
      deadline: String(permit.deadline),
    }
    const digest = witnessRound(domainOf(fakeContracts), signed, permitToken).digest(terms)
    if (signerOf(digest, signature) !== proposer) revert('InvalidSigner')
  }
  const balance = world.balances.get(proposer) ?? 0n
  const allowance = world.allowances.get(proposer) ?? 0n
  if (balance < amount || allowance < amount) revert('Error', ['TRANSFER_FROM_FAILED'])
  const managed = managedRequestId({ requester, identifier, ancillaryData })
  const list = world.lists.get(world.customLists.get(managed) ?? defaultList)
  if (!list) throw new Revert('0x')
  if (!list.members.has(proposer) && list.owner !== fakeContracts.signedProposer) {
    revert('OwnableUnauthorizedAccount', [fakeContracts.signedProposer])
  }
  if (!list.members.has(fakeContracts.signedProposer)) revert('SenderNotWhitelisted')
  if (request.state !== 1) revert('RequestStateNotRequested')
  const total = totalBond(world, managed, request)
  if (total > amount) revert('ERC20InsufficientAllowance', [oracle, amount, total])
  world.bitmaps.set(word, used | bit)
  world.balances.set(proposer, balance - total)
  world.allowances.set(proposer, allowance - amount)
  Object.assign(request, { state: 2, proposer, price, proposalTime: time })
  return [
    proposeLog({ requester, proposer, identifier, timestamp, ancillaryData, price, time }),
    logOf(fakeContracts.signedProposer, signedProposerAbi, 'ProposalExecuted', {
      proposer,
      oracle,
      requester,
      identifier,
      timestamp,
      proposedPrice: price,
      totalBond: total,
      payment: 0n,
    }),
  ]
}

function totalBond(world: World, managed: Hex, request: FakeRequest): bigint {
  const custom = world.customBonds.get(managed) ?? 0n
  return (custom !== 0n ? custom : request.bondRaw) + finalFeeRaw
}

const abis = new Map<Address, Abi>([
  [oracle, [...oracleAbi, ...oracleV3Abi] as Abi],
  [adapter, ctfAdapterAbi],
  [token, erc20Abi],
  [fakeContracts.permit2, permit2Abi],
  [fakeContracts.signedProposer, signedProposerAbi],
])

const items = new Map<Abi, ReadonlyMap<string, Abi>>()

/**
 * The one function that the data calls, as an ABI of its own: a decoder hashes every name before
 * it.
 */
function itemOf(abi: Abi, data: Hex): Abi {
  const known =
    items.get(abi) ??
    new Map(
      abi.flatMap((one) => (one.type === 'function' ? [[toFunctionSelector(one), [one]]] : [])),
    )
  items.set(abi, known)
  return known.get(data.slice(0, 10)) ?? abi
}

const rewardOfVersion3 = '0xf9a8f368'

type Decoded = { readonly functionName: string; readonly args?: readonly unknown[] | undefined }
const decodedCalls = new Map<Hex, Decoded>()

function decoded(abi: Abi, data: Hex): Decoded {
  const known = decodedCalls.get(data)
  if (known) return known
  const call = decodeFunctionData({ abi, data })
  if (data.length < 2_000 && decodedCalls.size < 10_000) decodedCalls.set(data, call)
  return call
}

export function callWorld(
  world: World,
  call: { to: Address; data: Hex; from?: Address },
  time: bigint,
): Hex {
  const { to, data } = call
  if (world.wallets.has(to))
    return concatHex([
      world.wallets.get(to) ? eip1271MagicValue : '0xffffffff',
      `0x${'0'.repeat(56)}`,
    ])
  const abi = world.lists.has(to) ? whitelistAbi : abis.get(to)
  if (!abi) return '0x'
  if (data.startsWith(rewardOfVersion3)) throw new Revert('0x')
  const item = itemOf(abi as Abi, data)
  const { functionName, args = [] } = decoded(item, data)
  if (functionName === 'propose' || functionName === 'multicall') {
    const copy = structuredClone(world)
    runPropose(copy, call.from ?? zeroAddress, data, time)
    return encodeAbiParameters([{ type: 'uint256' }], [0n])
  }
  const answer = answerOf(world, to, functionName, args)
  return encodeFunctionResult({
    abi: item,
    functionName,
    result: answer,
  } as unknown as EncodeFunctionResultParameters)
}

function answerOf(world: World, to: Address, name: string, args: readonly unknown[]): unknown {
  const [first, second, third, fourth] = args as [string, string, bigint, Hex]
  const lower = (text: string) => text.toLowerCase() as Address
  const list = world.lists.get(to)
  switch (name) {
    case 'isOnWhitelist':
      return list?.members.has(lower(first)) ?? false
    case 'owner':
      return list?.owner
    case 'getQuestion': {
      const question = world.questions.get(first as Hex)
      const {
        timestamp = 0n,
        paused = false,
        resolved = false,
        ancillaryData = '0x',
      } = question ?? {}
      const numbers = {
        requestTimestamp: timestamp,
        reward: 0n,
        proposalBond: bondRaw,
        liveness: 7200n,
        manualResolutionTimestamp: 0n,
      }
      return {
        ...numbers,
        resolved,
        paused,
        reset: question?.isReset ?? false,
        refund: false,
        rewardToken: token,
        creator,
        ancillaryData,
      }
    }
    case 'getUpdates':
      return (world.questions.get(first as Hex)?.updates ?? []).filter(
        ({ owner }) => owner === lower(second),
      )
    case 'getRequestRulesUpdates':
      if (world.rules === undefined) throw new Revert('0x')
      return (
        world.rules.get(
          managedRequestId({
            requester: lower(first),
            identifier: second as Hex,
            ancillaryData: third as unknown as Hex,
          }),
        ) ?? []
      )
    case 'isFlagged':
      return world.questions.get(first as Hex)?.flagged ?? false
    case 'optimisticOracle':
      return oracle
    case 'getState':
      return world.requests.get(requestKey(first, second, third, fourth))?.state ?? 0
    case 'getRequest': {
      const request = world.requests.get(requestKey(first, second, third, fourth))
      return {
        proposer: request?.proposer ?? zeroAddress,
        disputer: request?.disputer ?? zeroAddress,
        currency: request ? token : zeroAddress,
        settled: request?.state === 6,
        requestSettings: {
          eventBased: true,
          refundOnDispute: true,
          callbackOnPriceProposed: false,
          callbackOnPriceDisputed: true,
          callbackOnPriceSettled: false,
          bond: request?.bondRaw ?? 0n,
          customLiveness: 0n,
        },
        proposedPrice: request?.price ?? 0n,
        resolvedPrice: request?.resolved ?? 0n,
        expirationTime: request?.proposalTime ? request.proposalTime + 7200n : 0n,
        reward: request?.disputer ? 0n : (request?.rewardRaw ?? 0n),
        finalFee: request ? finalFeeRaw : 0n,
        proposalTime: request?.proposalTime ?? 0n,
      }
    }
    case 'customLivenessValues':
      return [0n, false]
    case 'defaultLiveness':
      return 7200n
    case 'customBonds':
      return [world.customBonds.get(first as Hex) ?? 0n, false]
    case 'getCustomProposerWhitelist': {
      const managed = managedRequestId({
        requester: lower(first),
        identifier: second as Hex,
        ancillaryData: third as unknown as Hex,
      })
      return world.customLists.get(managed) ?? zeroAddress
    }
    case 'defaultProposerWhitelist':
      return defaultList
    case 'deferredPayouts':
      return world.deferred.get(lower(second)) ?? 0n
    case 'nonceBitmap':
      return world.bitmaps.get(`${lower(first)}|${second}`) ?? 0n
    case 'balanceOf':
      return world.balances.get(lower(first)) ?? 0n
    case 'allowance':
      return world.allowances.get(lower(first)) ?? 0n
    case 'symbol':
      return 'USDC.e'
    case 'decimals':
      return 6
    case 'PROPOSAL_TYPEHASH':
      return world.typeHash
    case 'permit2':
      return fakeContracts.permit2
    case 'hasRole':
      return world.relayers.has(lower(second))
    default:
      throw new Error(`the model has no ${name}`)
  }
}
