/**
 * The life of bonds on a fake chain, with the money: what wallets pay in, and what the oracle pays
 * out (domain §10). Each in the next block, with its logs.
 */
import type { Abi } from 'viem'
import { yesOrNoQuery } from '#chain/contracts'
import type { Hex } from '#ports'
import type { Address } from '#protocol/schema'
import { oracleAbi } from '#support/whole-abis'
import type { FakeChain } from './fake-chain.js'
import {
  adapter,
  type FakeLog,
  type FakeRequest,
  finalFeeRaw,
  logOf,
  openRound,
  oracle,
  proposeOnOracle,
  questionOf,
  requestKey,
  requestOf,
  token,
  type World,
} from './fake-world.js'

export interface FakeRound {
  readonly questionId: Hex
  readonly timestamp: bigint
}

export const roundOf = (chain: FakeChain, questionId: Hex): FakeRound => ({
  questionId,
  timestamp: questionOf(chain.world, questionId).timestamp,
})

function heldIn(world: World, { questionId, timestamp }: FakeRound): FakeRequest {
  const { ancillaryData } = questionOf(world, questionId)
  const found = world.requests.get(requestKey(adapter, yesOrNoQuery, timestamp, ancillaryData))
  if (found === undefined) throw new Error('no such round')
  return found
}

function pay(world: World, wallet: Address, raw: bigint): void {
  world.balances.set(wallet, (world.balances.get(wallet) ?? 0n) + raw)
}

const paidFor = ({ bondRaw }: FakeRequest) => bondRaw + finalFeeRaw

const argsOf = (world: World, { questionId, timestamp }: FakeRound) => ({
  requester: adapter,
  proposer: heldIn(world, { questionId, timestamp }).proposer,
  identifier: yesOrNoQuery,
  timestamp,
  ancillaryData: questionOf(world, questionId).ancillaryData,
})

export function stakeOn(
  chain: FakeChain,
  questionId: Hex,
  wallet: Address,
  price: bigint,
  rewardRaw = 0n,
): void {
  chain.happen((world, time) => {
    const request = requestOf(world, questionId)
    const logs = proposeOnOracle(world, questionId, wallet, price, time)
    request.rewardRaw = rewardRaw
    pay(world, wallet, -paidFor(request))
    return logs
  })
}

export function contest(
  chain: FakeChain,
  round: FakeRound,
  disputer: Address,
  asksAgain: boolean,
): void {
  chain.happen((world, time) => {
    const request = heldIn(world, round)
    Object.assign(request, { state: 4, disputer })
    pay(world, disputer, -paidFor(request))
    const disputed = logOf(oracle, oracleAbi as Abi, 'DisputePrice', {
      ...argsOf(world, round),
      disputer,
      proposedPrice: request.price,
    })
    return asksAgain ? [disputed, ...openRound(world, round.questionId, time)] : [disputed]
  })
}

export function vote(chain: FakeChain, round: FakeRound): void {
  chain.happen((world) => (heldIn(world, round).state = 5))
}

export function settle(chain: FakeChain, round: FakeRound, resolved?: bigint): void {
  chain.happen((world) => {
    const request = heldIn(world, round)
    const { bondRaw, disputer, proposer, price } = request
    const isContested = disputer !== undefined
    const isRight = resolved === undefined || resolved === price
    const winner = isContested && !isRight ? disputer : proposer
    const payout =
      paidFor(request) + (isContested ? bondRaw - bondRaw / 2n : (request.rewardRaw ?? 0n))
    Object.assign(request, { state: 6, resolved: isContested ? (resolved ?? price) : price })
    const logs: FakeLog[] = []
    if (world.blocked.has(winner)) {
      world.deferred.set(winner, (world.deferred.get(winner) ?? 0n) + payout)
      const args = { currency: token, deferredRecipient: winner, amount: payout }
      logs.push(logOf(oracle, oracleAbi as Abi, 'PayoutDeferred', args))
    } else pay(world, winner, payout)
    const settled = logOf(oracle, oracleAbi as Abi, 'Settle', {
      ...argsOf(world, round),
      disputer: disputer ?? `0x${'0'.repeat(40)}`,
      price: request.resolved,
      payout,
    })
    return [...logs, settled]
  })
}

export function block(chain: FakeChain, wallet: Address, isBlocked = true): void {
  chain.happen((world) => {
    if (isBlocked) world.blocked.add(wallet)
    else world.blocked.delete(wallet)
  })
}

export function claim(chain: FakeChain, wallet: Address): void {
  chain.happen((world) => {
    const amount = world.deferred.get(wallet) ?? 0n
    if (amount === 0n) return []
    world.deferred.delete(wallet)
    pay(world, wallet, amount)
    const args = { currency: token, deferredRecipient: wallet, to: wallet, amount }
    return [logOf(oracle, oracleAbi as Abi, 'ClaimedDeferredPayout', args)]
  })
}

export function transfer(chain: FakeChain, wallet: Address, raw: bigint): void {
  chain.happen((world) => pay(world, wallet, raw))
}
