/**
 * One week from its seed: a plan in which everything happens, its course, and the reckoning at the
 * end.
 */
import { maxUint256 } from 'viem'
import type { Weather } from './rpc-proxy.js'
import type { Step } from './week-acts.js'
import { actors, askOn, contracts } from './week-chain.js'
import {
  checkChain,
  checkEnds,
  checkMoney,
  checkNonces,
  checkWaiting,
  restBlocks,
} from './week-checks.js'
import { checkHistory } from './week-judge.js'
import { steps } from './week-steps.js'
import { troubles } from './week-troubles.js'
import { listedWallets, openWeek, type WeekWorld } from './week-world.js'

const weekSeconds = 7n * 86_400n
const checkedEvery = 25

const things: Readonly<Record<string, Step>> = { ...steps, ...troubles }
const usual = [
  'submit',
  'submit',
  'several rounds at once',
  'submit a batch',
  'stand-ins',
  'dispute',
  'replay',
  'rival in a race',
  'a wallet is funded',
]

export async function runWeek(seed: number, questionCount: number, weather?: Weather) {
  const world = await openWeek(seed, questionCount, weather)
  try {
    const startSeconds = world.chain.head().seconds
    await course(world, planOf(world))
    const elapsed = world.chain.head().seconds - startSeconds
    if (elapsed < weekSeconds) await world.turn(weekSeconds - elapsed)
    await reckoning(world)
    return {
      counts: world.counts,
      blocks: world.chain.head().number,
      simulatedSeconds: world.chain.head().seconds - startSeconds,
      proxy: world.gateway.proxy,
    }
  } catch (error) {
    const told = error instanceof Error ? (error.stack ?? error.message) : String(error)
    throw new Error(
      `WEEK_SEED=${seed} WEEK_QUESTIONS=${questionCount}\n${world.steps.join('\n')}\n${told}`,
    )
  } finally {
    await world.close()
  }
}

function planOf({ dice, questions }: WeekWorld): string[] {
  const often = Array.from({ length: questions.length < 50 ? 16 : questions.length * 3 }, () =>
    dice.pick(dice.chance(0.6) ? usual : Object.keys(things)),
  )
  const nights = Array.from({ length: 8 }, () => 'a night')
  const plan = dice.shuffled([...Object.keys(things), ...often, ...nights])
  questions.forEach((_, n) => {
    plan.splice(n < 5 ? n : Math.floor((plan.length * n) / questions.length), 0, 'ask')
  })
  return plan
}

async function course(world: WeekWorld, plan: string[]): Promise<void> {
  const missed = new Map<string, number>()
  for (let at = 0; at < plan.length; at += 1) {
    const name = plan[at] ?? ''
    world.say(`— ${name}`)
    if (name === 'ask') await askNext(world)
    else if (await things[name]?.(world)) world.count(name)
    else if (!world.counts.has(name)) {
      // No occasion for it yet: once more, later.
      const times = (missed.get(name) ?? 0) + 1
      missed.set(name, times)
      if (times > 20) throw new Error(`there never was an occasion for: ${name}`)
      plan.splice(Math.min(plan.length, at + 3 + Math.floor(world.dice.next() * 10)), 0, name)
    }
    await world.dueNow(false)
    await world.calm(Math.floor(world.dice.next() * 3))
    if (at % checkedEvery === checkedEvery - 1) {
      await world.calm(restBlocks)
      await checkWaiting(world)
    }
  }
}

async function askNext(world: WeekWorld): Promise<void> {
  const question = world.questions[world.asked.length]
  if (question === undefined) return
  await askOn(world.chain, question)
  await world.turn()
  world.asked.push(question)
  world.say(`${question.name} is asked, ${question.kind}`)
}

async function reckoning(world: WeekWorld): Promise<void> {
  world.say('— the end')
  await world.dueNow(true)
  await world.calm(restBlocks)
  await checkWaiting(world)
  for (let round = 0; round < 3; round += 1) {
    for (const { address } of listedWallets) {
      await world.chain.send(actors.admin, contracts.token, 'mint', [address, 10n ** 13n])
      await world.chain.send(address, contracts.token, 'approve', [
        contracts.permit2.address,
        maxUint256,
      ])
    }
    await world.calm(3)
    const again = world.signed.filter(({ candidateId }) => {
      const progress = world.progress.get(candidateId ?? '')
      return progress?.status === 'failed' && progress.failure.retryable
    })
    if (again.length === 0) break
    for (const signed of again) await world.submit([signed], 'single')
    await world.calm(restBlocks)
  }
  const left = world.gateway.active()
  if (left.length > 0)
    throw new Error(
      `not at their end: ${left.map(({ id, progress }) => `${id} ${progress.status}`).join(', ')}`,
    )
  await world.readProposals()
  await checkEnds(world)
  checkChain(world)
  await checkNonces(world)
  await checkMoney(world)
  checkHistory(world)
}
