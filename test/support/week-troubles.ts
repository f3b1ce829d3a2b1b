/**
 * What goes wrong for a while in the week: pauses, lists, bonds, funds, roles, wallets, fees. Each
 * mends itself some steps later.
 */

import { maxUint256 } from 'viem'
import { yesOrNoQuery } from '#chain/contracts'
import { callData, type Placed, placedAt } from '#devchain/dev-contracts'
import type { Address } from '#protocol/schema'
import { isAdapter, isBusy, isRequested, openRound, type Step, underway } from './week-acts.js'
import { actors, contracts, delegate, noAddress, type WeekQuestion } from './week-chain.js'
import { checkWaiting, restBlocks } from './week-checks.js'
import { bondOf } from './week-model.js'
import { type WeekWallet, weekAddress, weekWallets } from './week-wallets.js'
import { listedWallets, type WeekWorld } from './week-world.js'

const { admin, executor, vault } = actors
const { oracle, token, permit2, signedProposer, proposers } = contracts
const tokens = 10n ** 6n

type Call = readonly [from: Address, contract: Placed, name: string, ...args: unknown[]]

/** Done, unless it would be refused as things are: a paused token moves nothing, not even back. */
async function done(
  world: WeekWorld,
  [from, contract, name, ...args]: Call,
  first = false,
): Promise<boolean> {
  if (
    (await world.chain.call(from, contract.address, callData(contract, name, args))) === undefined
  )
    return false
  await world.chain.send(from, contract, name, args, { first })
  return true
}

const send = async (world: WeekWorld, [from, contract, name, ...args]: Call) => {
  await world.chain.send(from, contract, name, args)
}

async function forAWhile(
  world: WeekWorld,
  name: string,
  off: Call,
  on: Call,
  first = world.dice.chance(0.5),
): Promise<boolean> {
  if (!(await done(world, off, first))) return false
  world.say(name)
  world.later(`no longer: ${name}`, () => done(world, on))
  await world.turn()
  return true
}

async function question(
  world: WeekWorld,
  wanted: (question: WeekQuestion) => boolean = () => true,
): Promise<WeekQuestion | undefined> {
  const signed = world.dice.chance(0.6) ? await underway(world) : undefined
  if (signed && wanted(signed.question)) return signed.question
  return (await world.findRound((round) => isRequested(round) && wanted(round.question)))?.question
}

async function adapterVerb(
  world: WeekWorld,
  off: 'pause' | 'flag',
  on: 'unpause' | 'unflag',
): Promise<boolean> {
  const found = await question(world, isAdapter)
  if (found === undefined) return false
  const { resolved, paused } = await world.roundOf(found)
  if (resolved || paused) return false
  const adapter = placedAt('CtfAdapter', found.requester)
  return forAWhile(
    world,
    `${off} ${found.name}`,
    [admin, adapter, off, found.questionId],
    [admin, adapter, on, found.questionId],
  )
}

async function customList(world: WeekWorld, list: Placed, name: string): Promise<boolean> {
  const found = await question(world)
  if (found === undefined) return false
  const set = (address: Address): Call => {
    const request = [found.requester, yesOrNoQuery, found.ancillaryData]
    return [admin, oracle, 'requestManagerSetProposerWhitelist', ...request, address]
  }
  return forAWhile(world, `${name} may propose on ${found.name}`, set(list.address), set(noAddress))
}

async function setBond(
  world: WeekWorld,
  { name, requester, ancillaryData }: WeekQuestion,
  amount: bigint,
  first: boolean,
): Promise<true> {
  const request = [requester, yesOrNoQuery, ancillaryData, token.address]
  await world.chain.send(admin, oracle, 'requestManagerSetBond', [...request, amount], { first })
  world.say(`the bond of ${name} becomes ${amount}`)
  await world.turn()
  return true
}

async function busyWallet(
  world: WeekWorld,
  among?: readonly WeekWallet[],
): Promise<WeekWallet | undefined> {
  return (await underway(world, among ? { among } : {}))?.wallet
}

export const troubles = {
  pause: (world) => adapterVerb(world, 'pause', 'unpause'),
  flag: (world) => adapterVerb(world, 'flag', 'unflag'),
  /**
   * Candidates that were admitted before the pause and had not had their turn: they wait, and go on
   * when it is over.
   */
  async 'paused before its turn'(world) {
    const halt = [admin, signedProposer, 'removeDelegatedProposer', executor] as const
    await send(world, halt)
    await world.turn()
    const signed = await underway(world)
    const round = signed && (await world.roundOf(signed.question))
    if (round && isRequested(round) && isAdapter(round.question)) {
      const adapter = placedAt('CtfAdapter', round.question.requester)
      const verb = world.dice.chance(0.5) ? 'pause' : 'flag'
      await forAWhile(
        world,
        `${verb} ${round.question.name}`,
        [admin, adapter, verb, round.question.questionId],
        [admin, adapter, `un${verb}`, round.question.questionId],
      )
    }
    await send(world, [admin, signedProposer, 'addDelegatedProposer', executor])
    await world.calm(restBlocks)
    return (await checkWaiting(world)).includes('paused')
  },

  'nobody may propose': (world) => customList(world, contracts.nobody, 'nobody'),
  'everybody may propose': (world) => customList(world, contracts.everybody, 'everybody'),
  'a club may propose': (world) => customList(world, contracts.club, 'the club'),
  /**
   * One signature may be on its way; the turn of the others comes when the bond is above what they
   * allow.
   */
  async 'a higher bond'(world) {
    const round = await openRound(world)
    if (round === undefined) return false
    const totalRaw = await bondOf(world.chain, round.question, round.timestamp)
    const wallets = world.dice
      .shuffled(listedWallets.filter((one) => !isBusy(world, one, round)))
      .slice(0, 3)
    const list = await Promise.all(
      wallets.map((wallet) => world.sign(wallet, round, { amount: totalRaw, seconds: 7_200n })),
    )
    if (list.length > 0) await world.submit(list, 'batch')
    return setBond(world, round.question, totalRaw + world.dice.pick([1n, 300n * tokens]), true)
  },

  async 'a lower bond'(world) {
    const found = await question(world)
    return (
      found !== undefined &&
      setBond(world, found, world.dice.pick([100n * tokens, 300n * tokens]), world.dice.chance(0.5))
    )
  },

  async 'funds moved away'(world) {
    const wallet = await busyWallet(world)
    if (wallet === undefined) return false
    const held = await world.chain.read<bigint>(token, 'balanceOf', [wallet.address])
    const part = world.dice.chance(0.5) ? held : (held * 9n) / 10n
    return forAWhile(
      world,
      `${wallet.name} moves ${part} away`,
      [wallet.address, token, 'transfer', vault, part],
      [vault, token, 'transfer', wallet.address, part],
      // Before a proposal takes its bond from what is to be moved.
      true,
    )
  },

  async 'a smaller allowance'(world) {
    const wallet = await busyWallet(world)
    if (wallet === undefined) return false
    const allowance = world.dice.pick([0n, 700n * tokens, 1_600n * tokens])
    return forAWhile(
      world,
      `${wallet.name} allows Permit2 ${allowance}`,
      [wallet.address, token, 'approve', permit2.address, allowance],
      [wallet.address, token, 'approve', permit2.address, maxUint256],
    )
  },

  async 'a wallet is funded'(world) {
    const wallet = world.dice.pick([weekWallets.poor, weekWallets.pauper, ...listedWallets])
    await world.chain.send(admin, token, 'mint', [wallet.address, 1_500n * tokens])
    world.say(`${wallet.name} gets 1500`)
    await world.turn()
    return true
  },

  async 'the role is revoked'(world) {
    if (world.dice.chance(0.5)) await underway(world)
    return forAWhile(
      world,
      'the executor has no role',
      [admin, signedProposer, 'removeDelegatedProposer', executor],
      [admin, signedProposer, 'addDelegatedProposer', executor],
    )
  },

  async 'SignedProposer is taken off the default whitelist'(world) {
    if (world.dice.chance(0.5)) await underway(world)
    const { address } = signedProposer
    return forAWhile(
      world,
      'SignedProposer is not listed',
      [address, proposers, 'removeFromWhitelist', address],
      [address, proposers, 'addToWhitelist', address],
    )
  },

  async 'the executor runs dry'(world) {
    const balance = async (wei: bigint) => {
      await world.chain.request('anvil_setBalance', [executor, `0x${wei.toString(16)}`])
      return true
    }
    if (world.dice.chance(0.5)) await underway(world)
    await balance(world.dice.pick([0n, 10n ** 12n]))
    world.say('the executor is drained')
    world.later('the executor is funded', () => balance(10n ** 20n))
    await underway(world)
    await world.turn()
    return true
  },

  async 'the token is paused'(world) {
    if (await world.chain.read<boolean>(token, 'paused', [])) return false
    await underway(world)
    return forAWhile(
      world,
      'the token is paused',
      [admin, token, 'setPaused', true],
      [admin, token, 'setPaused', false],
    )
  },

  async 'a wallet is blocked'(world) {
    const wallet = await busyWallet(world)
    if (wallet === undefined) return false
    const set = (value: boolean): Call => [admin, token, 'setBlacklisted', wallet.address, value]
    return forAWhile(world, `${wallet.name} is blocked`, set(true), set(false))
  },

  async 'a contract wallet changes its mind'(world) {
    const wallet = weekWallets.moody
    if ((await busyWallet(world, [wallet])) === undefined) return false
    const mode = (value: number): Call => [
      admin,
      placedAt('Wallet', wallet.address),
      'setMode',
      value,
    ]
    return forAWhile(world, 'moody refuses', mode(world.dice.pick([1, 2])), mode(0))
  },

  /** EIP-7702: the delegate knows signatures, and takes the account's own. */
  async 'a delegation that signs'(world) {
    const wallet = weekWallets.smart
    await delegate(world.chain, wallet, weekWallets.safe.address)
    await world.chain.send(admin, placedAt('Wallet', wallet.address), 'setOwner', [wallet.address])
    await world.turn()
    world.say('smart delegates to a wallet')
    world.later('smart delegates to nobody', () => delegate(world.chain, wallet, undefined))
    return (await busyWallet(world, [wallet])) !== undefined
  },

  /**
   * EIP-7702: the delegate knows nothing of signatures, so that the account's own is worth nothing
   * for a while.
   */
  async 'a delegation that does not sign'(world) {
    const wallet = weekWallets.mute
    const signed = await busyWallet(world, [wallet])
    await world.chain.request('anvil_setCode', [
      weekAddress('mute delegate'),
      placedAt('Mute', wallet.address).artifact.code,
    ])
    await delegate(world.chain, wallet, weekAddress('mute delegate'))
    world.say('mute delegates to code that does not sign')
    world.later('mute delegates to nobody', () => delegate(world.chain, wallet, undefined))
    await world.turn()
    return signed !== undefined
  },

  async 'gas is dear'(world) {
    const fee = async (gwei: bigint) => {
      await world.chain.request('anvil_setNextBlockBaseFeePerGas', [
        `0x${(gwei * 10n ** 9n).toString(16)}`,
      ])
      return true
    }
    await underway(world)
    // Above what may be paid, or between what was offered and what may be paid: then a higher fee
    // is due.
    await fee(world.dice.pick([5_000n, 300n]))
    world.say('gas is dear')
    await world.turn()
    await underway(world)
    world.later('gas is cheap', () => fee(1n))
    return true
  },
} as const satisfies Record<string, Step>
