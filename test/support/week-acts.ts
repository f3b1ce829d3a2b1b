/**
 * What the steps of the week are made of: rounds to propose in, signatures on their way, and what
 * others do to them.
 */

import { callData, type Placed, placedAt } from '#devchain/dev-contracts'
import type { Address } from '#protocol/schema'
import { actors, contracts, requestKey, type WeekQuestion } from './week-chain.js'
import type { Signed } from './week-model.js'
import type { WeekWallet } from './week-wallets.js'
import {
  listedWallets,
  proposeArgs,
  type RoundNow,
  type Terms,
  type WeekWorld,
} from './week-world.js'

export type Step = (world: WeekWorld) => Promise<boolean>

const { admin, rival, relayer } = actors
const { oracle, permit2, signedProposer } = contracts
const tokens = 10n ** 6n

export const isRequested = ({ state, paused, resolved }: RoundNow) =>
  state === 1 && !paused && !resolved
export const isProposed = ({ state }: RoundNow) => state === 2
export const isAdapter = ({ kind }: WeekQuestion) =>
  kind === 'uma-ctf-adapter' || kind === 'uma-ctf-adapter-negrisk'

export function isBusy(
  world: WeekWorld,
  wallet: WeekWallet,
  { question, timestamp }: RoundNow,
): boolean {
  return world.gateway
    .active()
    .some(
      ({ proposer, round }) =>
        proposer === wallet.address &&
        round.questionId === question.questionId &&
        BigInt(round.timestamp) === timestamp,
    )
}

export async function openRound(
  world: WeekWorld,
  wanted: (question: WeekQuestion) => boolean = () => true,
): Promise<RoundNow | undefined> {
  const found = await world.findRound((round) => isRequested(round) && wanted(round.question))
  if (found !== undefined) return found
  const over = await world.findRound(({ question, paused, resolved }) => {
    return question.kind !== 'direct' && wanted(question) && !paused && !resolved
  })
  if (over === undefined || !(await newRound(world, over.question))) return undefined
  return world.roundOf(over.question)
}

export async function openRounds(world: WeekWorld, most: number): Promise<readonly RoundNow[]> {
  const rounds: RoundNow[] = []
  for (const question of world.dice.shuffled(world.asked).slice(0, most)) {
    const round = await world.roundOf(question)
    if (
      isRequested(round) ||
      (question.kind !== 'direct' &&
        !round.paused &&
        !round.resolved &&
        (await newRound(world, question)))
    )
      rounds.push(await world.roundOf(question))
  }
  return rounds
}

export async function newRound(world: WeekWorld, question: WeekQuestion): Promise<boolean> {
  const contract = isAdapter(question)
    ? placedAt('CtfAdapter', question.requester)
    : contracts.reporter
  if (
    !(await act(
      world,
      admin,
      contract,
      isAdapter(question) ? 'reset' : 'rerequest',
      question.questionId,
    ))
  )
    return false
  world.say(`${question.name} has a new round`)
  return true
}

async function admitted(
  world: WeekWorld,
  { among = listedWallets, ...terms }: Terms & { readonly among?: readonly WeekWallet[] } = {},
): Promise<Signed | undefined> {
  const round = await openRound(world)
  if (round === undefined) return undefined
  const wallet = world.dice.shuffled(among).find((one) => !isBusy(world, one, round))
  if (wallet === undefined) return undefined
  const signed = await world.sign(wallet, round, terms)
  const [done] = await world.submit([signed], world.dice.chance(0.5) ? 'single' : 'batch')
  return done === true ? signed : undefined
}

export const slack = (world: WeekWorld) =>
  world.dice.pick([0n, 0n, 0n, 50n * tokens, 400n * tokens])

export async function act(
  world: WeekWorld,
  from: Address,
  contract: Placed,
  name: string,
  ...args: unknown[]
): Promise<boolean> {
  if (
    (await world.chain.call(from, contract.address, callData(contract, name, args))) === undefined
  )
    return false
  await world.chain.send(from, contract, name, args)
  await world.turn()
  return true
}

export async function rivalProposes(
  world: WeekWorld,
  { question, timestamp }: { question: WeekQuestion; timestamp: bigint },
  first: boolean,
) {
  const args = [...requestKey(question, timestamp), world.dice.pick(question.prices)]
  if (
    (await world.chain.call(rival, oracle.address, callData(oracle, 'proposePrice', args))) ===
    undefined
  )
    return false
  await world.chain.send(rival, oracle, 'proposePrice', args, { first, mayRevert: true })
  world.say(`rival proposes on ${question.name}${first ? ', first in the block' : ''}`)
  return true
}

export async function relay(world: WeekWorld, signed: Signed, first: boolean): Promise<boolean> {
  const data = callData(signedProposer, 'propose', proposeArgs(signed))
  if ((await world.chain.call(relayer, signedProposer.address, data)) === undefined) return false
  await world.chain.send(relayer, signedProposer, 'propose', proposeArgs(signed), {
    first,
    mayRevert: true,
  })
  world.say(`relayer sends ${signed.name}${first ? ', first in the block' : ''}`)
  return true
}

export async function underway(
  world: WeekWorld,
  terms: Terms & { readonly among?: readonly WeekWallet[] } = {},
): Promise<Signed | undefined> {
  const active = world.gateway.active().filter(({ progress }) => progress.status !== 'executed')
  const names = new Set(
    terms.among?.map(({ address }) => address) ?? active.map(({ proposer }) => proposer),
  )
  const found = world.dice.shuffled(active).find(({ proposer }) => names.has(proposer))
  const signed = found && world.signed.find(({ candidateId }) => candidateId === found.id)
  return signed && world.dice.chance(0.4) ? signed : admitted(world, terms)
}

export async function invalidate(
  world: WeekWorld,
  { name, wallet, permit: { nonce } }: Signed,
): Promise<void> {
  const how = { first: world.dice.chance(0.5) }
  await world.chain.send(
    wallet.address,
    permit2,
    'invalidateUnorderedNonces',
    [nonce >> 8n, 1n << (nonce & 0xffn)],
    how,
  )
  world.say(`${name} is invalidated`)
  await world.turn()
}

export function hasSigned(
  world: WeekWorld,
  wallet: WeekWallet,
  { question, timestamp }: RoundNow,
): boolean {
  return world.signed.some(
    (one) =>
      one.wallet === wallet && one.question === question && one.proposal.timestamp === timestamp,
  )
}
