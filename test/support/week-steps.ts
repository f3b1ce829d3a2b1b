/**
 * What may happen in the week. A step finds its own occasion; `false` where there is none. What it
 * breaks it mends some steps later. Each is counted by its name, so that a run tells which things
 * it has seen.
 */
import { maxUint256 } from 'viem'
import { witnessTypeString } from '#chain/contracts'
import { callData, placedAt } from '#devchain/dev-contracts'
import type { Hex } from '#ports'
import {
  act,
  hasSigned,
  invalidate,
  isAdapter,
  isBusy,
  isProposed,
  isRequested,
  newRound,
  openRound,
  openRounds,
  relay,
  rivalProposes,
  type Step,
  slack,
  underway,
} from './week-acts.js'
import { actors, askOn, contracts, requestKey } from './week-chain.js'
import { bondOf, operatorFaults, type Signed } from './week-model.js'
import { signedBy, weekWallets, witnessOf } from './week-wallets.js'
import { listedWallets, type WeekWorld } from './week-world.js'

const { admin, disputer, relayer } = actors
const { oracle, token, permit2 } = contracts

export const steps = {
  async submit(world) {
    const round = await openRound(world)
    const wallet =
      round && world.dice.shuffled(listedWallets).find((one) => !isBusy(world, one, round))
    if (!round || !wallet) return false
    const amount = (await bondOf(world.chain, round.question, round.timestamp)) + slack(world)
    await world.submit([await world.sign(wallet, round, { amount })], 'single')
    return true
  },

  async 'submit a batch'(world) {
    const list: Signed[] = []
    for (let item = 0; item < 6; item += 1) {
      const round = await openRound(world)
      if (round === undefined) return false
      list.push(await world.sign(world.dice.pick(listedWallets), round))
    }
    const [again] = list
    if (again) list.push(await world.sign(again.wallet, await world.roundOf(again.question)))
    await world.submit(list, 'batch')
    return true
  },

  async 'several rounds at once'(world) {
    const rounds = await openRounds(world, 6)
    const wallets = world.dice.shuffled(listedWallets)
    const pairs = rounds.flatMap((round, index) => {
      const wallet = wallets[index]
      return wallet && isRequested(round) && !isBusy(world, wallet, round)
        ? [{ wallet, round }]
        : []
    })
    if (pairs.length < 3) return false
    const list: Signed[] = []
    for (const { wallet, round } of pairs)
      list.push(await world.sign(wallet, round, { seconds: 7_200n }))
    await world.submit(list, 'batch')
    const [spoilt] = world.dice.shuffled(list)
    const how = world.dice.pick(['rival', 'invalidated', 'not', 'not'])
    if (spoilt && how === 'rival')
      await rivalProposes(world, { ...spoilt, timestamp: spoilt.proposal.timestamp }, true)
    if (spoilt && how === 'invalidated') await invalidate(world, spoilt)
    await world.turn()
    return true
  },

  /** The wallet can pay for each of its signatures, and for no two of them (contract §5). */
  async 'more signed than owned'(world) {
    const wallet = world.dice.pick(listedWallets)
    const rounds = (await openRounds(world, 4)).filter(
      (round) => isRequested(round) && !isBusy(world, wallet, round),
    )
    const [balance, allowance] = await Promise.all([
      world.chain.read<bigint>(token, 'balanceOf', [wallet.address]),
      world.chain.read<bigint>(token, 'allowance', [wallet.address, permit2.address]),
    ])
    const amount = (balance * 3n) / 5n
    if (allowance < amount) return false
    const bonds = await Promise.all(
      rounds.map(({ question, timestamp }) => bondOf(world.chain, question, timestamp)),
    )
    const list: Signed[] = []
    for (const [index, round] of rounds.entries())
      if ((bonds[index] ?? 0n) <= amount)
        list.push(await world.sign(wallet, round, { amount, seconds: 7_200n }))
    if (list.length < 2) return false
    await world.submit(list, 'batch')
    return true
  },

  async 'stand-ins'(world) {
    const round = await openRound(world)
    if (round === undefined) return false
    const wallets = world.dice
      .shuffled(listedWallets.filter((one) => !isBusy(world, one, round)))
      .slice(0, 4)
    const list: Signed[] = []
    for (const wallet of wallets) list.push(await world.sign(wallet, round, { seconds: 7_200n }))
    await world.submit(list, world.dice.chance(0.5) ? 'batch' : 'single')
    return true
  },

  async replay(world) {
    const known = world.signed.filter(({ candidateId }) => candidateId !== undefined)
    if (known.length === 0) return false
    await world.submit([world.dice.pick(known)], world.dice.chance(0.5) ? 'single' : 'batch')
    return true
  },

  async conflict(world) {
    const signed = await underway(world)
    if (signed === undefined) return false
    const round = await world.roundOf(signed.question)
    await world.submit([await world.sign(signed.wallet, round)], 'single')
    return true
  },

  async 'what is refused'(world) {
    const round = await openRound(world)
    if (round === undefined) return false
    const bond = await bondOf(world.chain, round.question, round.timestamp)
    await world.submit([await world.sign(weekWallets.stranger, round)], 'single')
    await world.submit([await world.sign(weekWallets.anna, round, { amount: bond - 1n })], 'batch')
    await world.submit([await world.sign(weekWallets.anna, round, { seconds: 299n })], 'single')
    const early = world.questions.find((question) => !world.asked.includes(question))
    if (early)
      await world.submit(
        [
          await world.sign(weekWallets.bert, {
            ...round,
            question: early,
            timestamp: 1_800_000_000n,
          }),
        ],
        'single',
      )
    return true
  },

  async 'a second signature'(world) {
    const round = await openRound(world)
    const wallet =
      round && world.dice.shuffled(listedWallets).find((one) => !hasSigned(world, one, round))
    if (!round || !wallet) return false
    const price = world.dice.pick(round.question.prices)
    await act(world, wallet.address, token, 'approve', permit2.address, 0n)
    const [first] = await world.submit([await world.sign(wallet, round, { price })], 'single')
    // It fails by what a look after its admission shows.
    await world.turn()
    await act(world, wallet.address, token, 'approve', permit2.address, maxUint256)
    if (
      first !== true ||
      isBusy(world, wallet, round) ||
      !isRequested(await world.roundOf(round.question))
    )
      return false
    const second = await world.sign(wallet, round, { price })
    const [accepted] = await world.submit([second], 'single')
    if (accepted !== true) return false
    const [earlier] = world.signed.filter(
      (one) =>
        one.wallet === wallet && one.proposal.timestamp === round.timestamp && one !== second,
    )
    if (earlier && world.dice.chance(0.5)) await invalidate(world, earlier)
    await world.calm(4)
    if (earlier) await world.submit([earlier], 'single')
    return true
  },

  async 'a signature of an older round'(world) {
    const found = await openRound(world, isAdapter)
    const wallet =
      found && world.dice.shuffled(listedWallets).find((one) => !isBusy(world, one, found))
    if (!found || !wallet) return false
    const signed = await world.sign(wallet, found)
    if (!(await newRound(world, found.question))) return false
    await world.submit([signed], 'single')
    return true
  },

  async 'rival first'(world) {
    const round = await openRound(world)
    if (round === undefined || !(await rivalProposes(world, round, false))) return false
    await world.turn()
    return true
  },

  async 'rival in a race'(world) {
    const signed = await underway(world)
    if (signed === undefined) return false
    const { question, proposal } = signed
    if (
      !(await rivalProposes(
        world,
        { question, timestamp: proposal.timestamp },
        world.dice.chance(0.8),
      ))
    )
      return false
    await world.turn()
    return true
  },

  async 'another relayer in a race'(world) {
    const signed = await underway(world)
    if (signed === undefined || !(await relay(world, signed, world.dice.chance(0.7)))) return false
    await world.turn()
    return true
  },

  async 'a proposal from elsewhere'(world) {
    const round = await openRound(world)
    const wallet =
      round && world.dice.shuffled(listedWallets).find((one) => !hasSigned(world, one, round))
    if (!round || !wallet || !(await relay(world, await world.sign(wallet, round), true)))
      return false
    await world.turn()
    return true
  },

  async 'a twin from elsewhere'(world) {
    const signed = await underway(world)
    if (signed === undefined) return false
    const { question, proposal, wallet } = signed
    const price = world.dice.chance(0.7) ? proposal.proposedPrice : world.dice.pick(question.prices)
    const twin = await world.sign(
      wallet,
      { ...(await world.roundOf(question)), timestamp: proposal.timestamp },
      { price },
    )
    if (!(await relay(world, twin, true))) return false
    await world.turn()
    return true
  },

  /** Another application of Permit2 uses the nonce; that leaves no event. */
  async 'a nonce spent elsewhere'(world) {
    const signed = await underway(world)
    if (signed === undefined) return false
    const { wallet, proposal, permit } = signed
    const other = {
      proposal,
      permit: { ...permit, permitted: { ...permit.permitted, amount: 1n } },
    }
    const domain = { chainId: 31337, permit2: permit2.address, spender: relayer }
    const { signature } = await signedBy(wallet, other, domain)
    const details = { to: actors.vault, requestedAmount: 1n }
    const args = [
      other.permit,
      details,
      wallet.address,
      witnessOf(proposal),
      witnessTypeString,
      signature,
    ]
    if (
      (await world.chain.call(
        relayer,
        permit2.address,
        callData(permit2, 'permitWitnessTransferFrom', args),
      )) === undefined
    )
      return false
    await world.chain.send(relayer, permit2, 'permitWitnessTransferFrom', args, {
      first: world.dice.chance(0.5),
      mayRevert: true,
    })
    world.say(`${signed.name}: its nonce is used elsewhere`)
    await world.turn()
    return true
  },

  async "the executor's key is used elsewhere"(world) {
    // Run dry, it cannot pay for this either.
    if ((await operatorFaults(world.chain)).length > 0) return false
    await underway(world)
    await useExecutorKey(world, world.dice.chance(0.6))
    await world.turn()
    return true
  },

  /**
   * So that the node calls the nonce too low that the gateway has just found free (robustness §3).
   */
  async "the executor's key is quicker"(world) {
    if ((await operatorFaults(world.chain)).length > 0) return false
    let isQuicker = false
    world.gateway.beforeSend(async () => {
      await useExecutorKey(world, true)
      await world.chain.mine()
      isQuicker = true
    })
    await underway(world)
    await world.turn()
    world.gateway.beforeSend(undefined)
    return isQuicker
  },

  async dispute(world) {
    const round = await world.findRound(isProposed)
    if (round === undefined) return false
    const { question, timestamp } = round
    if (!(await act(world, disputer, oracle, 'disputePrice', ...requestKey(question, timestamp))))
      return false
    const { timestamp: now } = await world.roundOf(question)
    world.say(`${question.name} is disputed: ${now === timestamp ? 'no new round' : 'a new round'}`)
    world.count(now === timestamp ? 'dispute without a new round' : 'dispute with a new round')
    return true
  },

  async 'a new round'(world) {
    const signed = world.dice.chance(0.5) ? await underway(world) : undefined
    const round = signed ? await world.roundOf(signed.question) : await world.findRound(() => true)
    if (round === undefined || round.resolved || round.question.kind === 'direct') return false
    return newRound(world, round.question)
  },

  /**
   * Of kind `direct`: a request under another timestamp, and a registry that names it after the
   * next start.
   */
  async 'a new registry'(world) {
    const round = await world.findRound(({ question }) => question.kind === 'direct')
    if (round === undefined) return false
    const timestamp = world.chain.head().seconds
    await askOn(world.chain, round.question, timestamp)
    await world.turn()
    const timestamps = new Map(world.registry).set(round.question.questionId, timestamp)
    await world.gateway.register(world.questions, timestamps)
    await world.gateway.restart()
    world.registry.set(round.question.questionId, timestamp)
    world.say(`the registry names another round of ${round.question.name}`)
    await world.turn()
    return true
  },

  async settle(world) {
    const round = await world.findRound(isProposed)
    if (round === undefined) return false
    await world.turn(7_300n)
    const { question, timestamp } = round
    if (!(await act(world, admin, oracle, 'settle', ...requestKey(question, timestamp))))
      return false
    if (
      isAdapter(question) &&
      !round.paused &&
      (await world.roundOf(question)).timestamp === timestamp
    )
      await act(
        world,
        admin,
        placedAt('CtfAdapter', question.requester),
        'resolve',
        question.questionId,
      )
    if (question.kind === 'oo-reporter')
      await act(world, admin, contracts.reporter, 'resolve', question.questionId, 0n)
    world.say(`${question.name} is settled`)
    return true
  },

  async invalidate(world) {
    const signed = await underway(world)
    if (signed === undefined) return false
    await invalidate(world, signed)
    return true
  },

  async restart(world) {
    await underway(world)
    await world.gateway.restart()
    world.say('restart')
    await world.turn()
    return true
  },

  async 'the gateway is away'(world) {
    const signed = await underway(world)
    await world.gateway.restart(async () => {
      const meanwhile = world.dice.pick(['rival', 'relayer', 'nothing'])
      if (signed && meanwhile === 'rival')
        await rivalProposes(world, { ...signed, timestamp: signed.proposal.timestamp }, true)
      if (signed && meanwhile === 'relayer') await relay(world, signed, true)
      await world.chain.mine(world.dice.pick([2n, 3_600n]))
      await world.chain.mineMany(world.dice.pick([1, 3, 140]))
    })
    world.say('the gateway is back')
    await world.turn()
    return true
  },

  async 'an hour'(world) {
    if (world.dice.chance(0.5)) await underway(world, { seconds: 900n })
    await world.turn(3_600n)
    return true
  },

  async 'a night'(world) {
    await world.turn(BigInt(Math.floor(6 * 3_600 + world.dice.next() * 4 * 3_600)))
    return true
  },
} as const satisfies Record<string, Step>

async function useExecutorKey(world: WeekWorld, next: boolean): Promise<void> {
  const fees = {
    maxFeePerGas: '0x38d7ea4c68000',
    maxPriorityFeePerGas: '0x5af3107a4000',
    gas: '0x5208',
  }
  const transaction = { from: actors.executor, to: actors.vault, value: '0x1', ...fees }
  const at = next
    ? {
        nonce: await world.chain.request<Hex>('eth_getTransactionCount', [
          actors.executor,
          'latest',
        ]),
      }
    : {}
  world.foreign.push(
    await world.chain.request<Hex>('eth_sendTransaction', [{ ...transaction, ...at }]),
  )
  world.say("the executor's key sends something else")
}
