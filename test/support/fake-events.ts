import { type Abi, keccak256, stringToHex, toHex } from 'viem'
import { implementationSlot, permit2Abi, yesOrNoQuery } from '#chain/contracts'
import type { Hex } from '#ports'
import type { Address } from '#protocol/schema'
import { ctfAdapterAbi, oracleAbi, proxyAbi } from '#support/whole-abis'
import type { FakeChain } from './fake-chain.js'
import {
  adapter,
  creator,
  fakeContracts,
  logOf,
  managedOf,
  openRound,
  oracle,
  proposeOnOracle,
  questionOf,
  requestOf,
  runPropose,
  token,
} from './fake-world.js'

export function questionText(
  name: string,
  resData = 'res_data: p1: 0, p2: 1, p3: 0.5. Where p1 corresponds to No, p2 to Yes, p3 to unknown/50-50.',
): Hex {
  return stringToHex(
    `q: title: ${name}, description: Did it? ${resData},initializer:91430cad2d3975766499717fa0d66a78d814e5c5`,
  )
}

export function ask(chain: FakeChain, ancillaryData: Hex): Hex {
  const questionId = keccak256(ancillaryData)
  chain.happen((world, time) => {
    world.questions.set(questionId, {
      ancillaryData,
      timestamp: time,
      paused: false,
      flagged: false,
      resolved: false,
    })
    const initialized = logOf(adapter, ctfAdapterAbi as Abi, 'QuestionInitialized', {
      questionID: questionId,
      requestTimestamp: time,
      creator: adapter,
      ancillaryData,
      rewardToken: token,
      reward: 0n,
      proposalBond: 0n,
    })
    return [...openRound(world, questionId, time), initialized]
  })
  return questionId
}

export function dispute(chain: FakeChain, questionId: Hex): void {
  chain.happen((world, time) => {
    const request = requestOf(world, questionId)
    const { timestamp, ancillaryData } = questionOf(world, questionId)
    Object.assign(request, { state: 4, disputer: adapter })
    questionOf(world, questionId).isReset = true
    const disputed = logOf(oracle, oracleAbi as Abi, 'DisputePrice', {
      requester: adapter,
      proposer: request.proposer,
      disputer: adapter,
      identifier: yesOrNoQuery,
      timestamp,
      ancillaryData,
      proposedPrice: request.price,
    })
    const reset = logOf(adapter, ctfAdapterAbi as Abi, 'QuestionReset', { questionID: questionId })
    return [disputed, ...openRound(world, questionId, time), reset]
  })
}

export function clarify(
  chain: FakeChain,
  questionId: Hex,
  text: string | Uint8Array,
  owner: Address = creator,
): void {
  const update = toHex(text)
  chain.happen((world, time) => {
    const question = questionOf(world, questionId)
    question.updates = [...(question.updates ?? []), { owner, timestamp: time, update }]
    return []
  })
}

export function updateRules(chain: FakeChain, questionId: Hex, text: string): void {
  chain.happen((world, timestamp) => {
    const managed = managedOf(world, questionId)
    world.rules ??= new Map()
    world.rules.set(managed, [
      ...(world.rules.get(managed) ?? []),
      { timestamp, update: toHex(text) },
    ])
  })
}

export function rivalProposes(chain: FakeChain, questionId: Hex, rival: Address, price = 0n): void {
  chain.happen((world, time) => proposeOnOracle(world, questionId, rival, price, time))
}

export function otherRelayerExecutes(chain: FakeChain, calldata: Hex, relayer: Address): void {
  chain.happen((world, time) => {
    world.relayers.add(relayer)
    return runPropose(world, relayer, calldata, time)
  }, calldata)
}

export function setPaused(chain: FakeChain, questionId: Hex, paused: boolean): void {
  chain.happen((world) => {
    questionOf(world, questionId).paused = paused
    return [
      logOf(adapter, ctfAdapterAbi as Abi, paused ? 'QuestionPaused' : 'QuestionUnpaused', {
        questionID: questionId,
      }),
    ]
  })
}

export function setCustomBond(chain: FakeChain, questionId: Hex, bondRaw: bigint): void {
  chain.happen((world) => {
    const managedRequestId = managedOf(world, questionId)
    world.customBonds.set(managedRequestId, bondRaw)
    const { ancillaryData } = questionOf(world, questionId)
    const args = {
      managedRequestId,
      requester: adapter,
      identifier: yesOrNoQuery,
      ancillaryData,
      currency: token,
      bond: bondRaw,
    }
    return [logOf(oracle, oracleAbi as Abi, 'CustomBondSet', args)]
  })
}

export function invalidateNonces(
  chain: FakeChain,
  owner: Address,
  word: bigint,
  mask: bigint,
): void {
  chain.happen((world) => {
    world.bitmaps.set(`${owner}|${word}`, (world.bitmaps.get(`${owner}|${word}`) ?? 0n) | mask)
    return [
      logOf(fakeContracts.permit2, permit2Abi as Abi, 'UnorderedNonceInvalidation', {
        owner,
        word,
        mask,
      }),
    ]
  })
}

export function endow(
  chain: FakeChain,
  wallet: Address,
  raw = 10n ** 12n,
  allowanceRaw = 2n ** 200n,
): void {
  chain.happen((world) => {
    world.balances.set(wallet, raw)
    world.allowances.set(wallet, allowanceRaw)
  })
}

export function upgrade(chain: FakeChain, proxy: Address, implementation: Address): void {
  chain.happen(({ storage, codes }) => {
    storage.set(`${proxy}|${implementationSlot}`, `0x${'0'.repeat(24)}${implementation.slice(2)}`)
    codes.set(implementation, `0x60${implementation.slice(2)}`)
    return [logOf(proxy, proxyAbi as Abi, 'Upgraded', { implementation })]
  })
}
