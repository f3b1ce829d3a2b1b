/**
 * The simulated week: chain, gateway, wallets and questions together, what the world signs and
 * sends, and time.
 */
import { yesOrNoQuery } from '#chain/contracts'
import type { Hex } from '#ports'
import type { Progress } from '#protocol/candidate'
import type { Weather } from './rpc-proxy.js'
import { type Dice, diceOf, seeded } from './sim-files.js'
import {
  blockSeconds,
  contracts,
  requestKey,
  startWeekChain,
  type WeekChain,
  type WeekQuestion,
  weekQuestion,
} from './week-chain.js'
import { openWeekGateway, type WeekGateway } from './week-gateway.js'
import { judgeAnswer, judgeSaid } from './week-judge.js'
import { bondOf, currentRound, factsOf, type Signed } from './week-model.js'
import { type ChainProposal, proposalsIn } from './week-proposals.js'
import { signedBy, type WeekWallet, weekWallets } from './week-wallets.js'

export interface RoundNow {
  readonly question: WeekQuestion
  readonly timestamp: bigint
  readonly state: number
  readonly paused: boolean
  readonly resolved: boolean
}

export interface Terms {
  readonly price?: bigint
  readonly amount?: bigint
  readonly seconds?: bigint
}

export interface WeekWorld {
  readonly chain: WeekChain
  readonly gateway: WeekGateway
  readonly dice: Dice
  readonly questions: readonly WeekQuestion[]
  readonly asked: WeekQuestion[]
  readonly registry: Map<string, bigint>
  readonly signed: Signed[]
  readonly proposals: ChainProposal[]
  readonly foreign: Hex[]
  readonly progress: Map<string, Progress>
  readonly steps: string[]
  readonly counts: Map<string, number>
  say(text: string): void
  count(name: string): void
  readProposals(): Promise<void>
  turn(seconds?: bigint): Promise<void>
  calm(blocks: number): Promise<void>
  roundOf(question: WeekQuestion): Promise<RoundNow>
  findRound(wanted: (round: RoundNow) => boolean): Promise<RoundNow | undefined>
  sign(wallet: WeekWallet, round: RoundNow, terms?: Terms): Promise<Signed>
  submit(list: readonly Signed[], form: 'single' | 'batch'): Promise<readonly boolean[]>
  /**
   * What undoes a step, due some steps later; all of it by the end. False where it cannot be done
   * yet: it is tried again.
   */
  later(name: string, undo: () => Promise<boolean>): void
  dueNow(everything: boolean): Promise<void>
  close(): Promise<void>
}

const usualSeconds = [900n, 7_200n, 86_400n, 518_400n]

export const listedWallets: readonly WeekWallet[] = Object.values(weekWallets).filter(
  ({ listed }) => listed,
)

export async function openWeek(
  seed: number,
  questionCount: number,
  weather?: Weather,
): Promise<WeekWorld> {
  const chain = await startWeekChain()
  const questions = Array.from({ length: questionCount }, (_, n) => weekQuestion(n))
  let gateway: WeekGateway
  try {
    gateway = await openWeekGateway(chain, questions, seed, weather)
  } catch (error) {
    await chain.stop()
    throw error
  }
  const dice = diceOf(seeded(seed))
  const nonces = new Map<string, bigint>()
  const rounds = new Map<WeekQuestion, { readonly at: bigint; readonly round: RoundNow }>()
  let readTo = chain.head().number
  let due: { readonly name: string; readonly at: number; readonly undo: () => Promise<boolean> }[] =
    []

  const world: WeekWorld = {
    chain,
    gateway,
    dice,
    questions,
    asked: [],
    registry: new Map(
      questions
        .filter(({ kind }) => kind === 'direct')
        .map(({ questionId }) => [questionId, 1_800_000_000n]),
    ),
    signed: [],
    proposals: [],
    foreign: [],
    progress: new Map(),
    steps: [],
    counts: new Map(),
    say(text) {
      const { number, seconds } = chain.head()
      world.steps.push(
        `${world.steps.length} block ${number} +${seconds - 1_800_000_000n}s ${text}`,
      )
    },
    count: (name) => world.counts.set(name, (world.counts.get(name) ?? 0) + 1),
    async readProposals() {
      const { number } = chain.head()
      if (number <= readTo) return
      world.proposals.push(...(await proposalsIn(chain, readTo + 1n, number)))
      readTo = number
    },
    async turn(seconds = blockSeconds) {
      await chain.mine(seconds)
      await gateway.pass(Number(seconds) * 1_000)
      await judgeSaid(world)
    },
    async calm(blocks) {
      for (let mined = 0; mined < blocks; mined += 1) await world.turn()
    },
    async roundOf(question) {
      const known = rounds.get(question)
      const { number: at } = chain.head()
      if (known?.at === at) return known.round
      const { current, paused, resolved } = await currentRound(chain, question, world.registry)
      const state = await chain.read<number>(
        contracts.oracle,
        'getState',
        requestKey(question, current),
      )
      const round = { question, timestamp: current, state, paused, resolved }
      rounds.set(question, { at, round })
      return round
    },
    async findRound(wanted) {
      for (const question of dice.shuffled(world.asked).slice(0, 30)) {
        const round = await world.roundOf(question)
        if (round.timestamp !== 0n && wanted(round)) return round
      }
      return undefined
    },
    async sign(wallet, { question, timestamp }, terms = {}) {
      const nonce = (nonces.get(wallet.name) ?? BigInt(wallet.address) << 16n) + 1n
      nonces.set(wallet.name, nonce)
      const [requester, , , ancillaryData] = requestKey(question, timestamp)
      const amount = terms.amount ?? (await bondOf(chain, question, timestamp))
      const deadline = chain.head().seconds + (terms.seconds ?? dice.pick(usualSeconds))
      const proposedPrice = terms.price ?? dice.pick(question.prices)
      const authorized = {
        proposal: {
          oracle: contracts.oracle.address,
          requester,
          identifier: yesOrNoQuery,
          timestamp,
          ancillaryData,
          proposedPrice,
          maxPayment: 0n,
        },
        permit: { permitted: { token: contracts.token.address, amount }, nonce, deadline },
      }
      const domain = {
        chainId: 31337,
        permit2: contracts.permit2.address,
        spender: contracts.signedProposer.address,
      }
      const name = `#${world.signed.length} ${wallet.name} ${question.name}@${timestamp - 1_800_000_000n}`
      const signed = {
        ...authorized,
        ...(await signedBy(wallet, authorized, domain)),
        name,
        wallet,
        question,
        candidateId: undefined,
      }
      world.signed.push(signed)
      return signed
    },
    async submit(list, form) {
      const admitted: boolean[] = []
      const before = await Promise.all(
        list.map(async (signed) => ({
          signed,
          facts: await factsOf(chain, signed, world.registry, chain.head().number),
        })),
      )
      const active = gateway.active()
      const answers = [...(await post(gateway, list, form))]
      // A lossy node: the same bytes again. Others may have come between: it is not judged by itself.
      let isRepeated = false
      for (const [index, signed] of list.entries())
        for (let tries = 0; gateway.proxy && answers[index]?.status === 503; tries += 1) {
          if (tries === 20) throw new Error(`${signed.name} gets nothing but 503`)
          isRepeated = true
          await gateway.pass(1_000)
          const [again] = await post(gateway, [signed], 'single')
          if (again !== undefined) answers[index] = again
        }
      if (isRepeated) world.count('503, and the same bytes again')
      for (const [index, { signed, facts }] of before.entries()) {
        const answer = answers[index]
        if (answer === undefined) throw new Error('an item has no answer')
        world.say(
          `${form} ${signed.name} for ${signed.permit.permitted.amount} → ${answer.status} ${answer.code ?? answer.candidateId}`,
        )
        world.count(`answer ${answer.status} ${answer.code ?? ''}`.trimEnd())
        if (!isRepeated) judgeAnswer(signed, facts, answer, active, list.slice(0, index))
        admitted.push(answer.status === 202)
        if (answer.candidateId !== undefined) signed.candidateId = answer.candidateId
      }
      await gateway.pass(0)
      await judgeSaid(world)
      return admitted
    },
    later(name, undo) {
      due.push({ name, at: world.steps.length + 4 + Math.floor(dice.next() * 12), undo })
    },
    async dueNow(everything) {
      const now = due.filter(({ at }) => everything || at <= world.steps.length)
      due = due.filter((one) => !now.includes(one))
      for (const one of now) {
        if (await one.undo()) world.say(one.name)
        else due.push(one)
      }
      if (now.length > 0) await world.turn()
      if (everything && due.length > 0) await world.dueNow(true)
    },
    async close() {
      await gateway.close()
      await chain.stop()
    },
  }
  return world
}

export interface WeekAnswer {
  readonly status: number
  readonly code: string | undefined
  readonly candidateId: string | undefined
}

const outcomes = new Map([
  [0n, 'p1'],
  [10n ** 18n, 'p2'],
  [5n * 10n ** 17n, 'p3'],
])
const version = { api: 'v1', schema: 'signed-proposal-v1', witness: 'permit2-signed-proposer-v1' }

async function post(
  gateway: WeekGateway,
  list: readonly Signed[],
  form: 'single' | 'batch',
): Promise<readonly WeekAnswer[]> {
  if (form === 'batch') {
    const proposals = list.map(({ question, wallet, proposal, permit, signature }) => ({
      identifier: question.questionId,
      proposer: wallet.address,
      proposed_price: String(proposal.proposedPrice),
      max_payment: '0',
      permit: {
        amount: String(permit.permitted.amount),
        nonce: String(permit.nonce),
        deadline: Number(permit.deadline),
      },
      signature,
    }))
    const { status, body } = await gateway.post('/propose/batch', { proposals })
    if (status !== 200) throw new Error(`the batch was refused: ${status} ${JSON.stringify(body)}`)
    const results = body.results as readonly {
      status_code: number
      error?: { code: string }
      candidate?: { candidate_id: string }
    }[]
    return results.map(({ status_code, error, candidate }) => ({
      status: status_code,
      code: error?.code,
      candidateId: candidate?.candidate_id,
    }))
  }
  const answers: WeekAnswer[] = []
  for (const { question, wallet, proposal, permit, signature } of list) {
    const { status, body } = await gateway.post(`/v1/proposals/${question.questionId}`, {
      version,
      proposer: wallet.address,
      outcome: outcomes.get(proposal.proposedPrice),
      max_payment: '0',
      permit: {
        amount: String(permit.permitted.amount),
        nonce: String(permit.nonce),
        deadline: String(permit.deadline),
      },
      signature,
    })
    const error = body.error as { code: string } | undefined
    answers.push({
      status,
      code: error?.code,
      candidateId: body.candidate_id as string | undefined,
    })
  }
  return answers
}

export function proposeArgs({ proposal, permit, wallet, signature }: Signed): readonly unknown[] {
  return [proposal, wallet.address, permit, signature, 0n]
}
