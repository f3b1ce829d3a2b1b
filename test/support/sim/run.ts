/**
 * Client, gateway, executor and chain in one process, through one script, from one seed (robustness
 * §8; T1, T6, T8). After the script the machines lose their power once more, the world calms down,
 * and the judge looks at what is left.
 */
import type { JournalView } from '#client/journal/journal'
import { signerFromKey } from '#io/keys'
import type { Hex, Signer } from '#ports'
import { createFakeChain, type FakeChain } from '../fake-chain.js'
import { ask, dispute, endow, questionText } from '../fake-events.js'
import { proposeOnOracle, requestOf } from '../fake-world.js'
import { type SendWatch, watchSends } from '../reorg-watch.js'
import { type ClientProcess, createClientProcess } from './client-process.js'
import { createGatewayProcess, type GatewayProcess } from './gateway-process.js'
import { createHistory, type History } from './history.js'
import { judge } from './judge.js'
import { noteMaker } from './makers.js'
import { createNetwork, type Network } from './network.js'
import { type Machine, questionCount, type Script, type Step } from './script.js'
import { createSimTime, type SimTime } from './time.js'

const blockSeconds = 2
const calmBlocks = 30

export interface Simulation {
  readonly script: Script
  readonly time: SimTime
  readonly chain: FakeChain
  readonly watch: SendWatch
  readonly gateway: GatewayProcess
  readonly clients: readonly ClientProcess[]
  readonly network: Network
  readonly history: History
  readonly questions: readonly Hex[]
  minedAtMs: number
}

export interface Outcome {
  readonly faults: readonly string[]
  readonly counts: ReadonlyMap<string, number>
}

export async function runScript(script: Script): Promise<Outcome> {
  const { history, sim } = await open(script)
  try {
    for (const step of script.steps) {
      await sim.time.drive(take(sim, step))
      await settle(sim)
      if (history.faults.length > 0) return history
    }
    await calm(sim)
  } catch (error) {
    history.fault(
      `a bug: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`,
    )
  }
  return history
}

async function open(script: Script): Promise<{ sim: Simulation; history: History }> {
  const chain = createFakeChain()
  chain.finalityLag = script.finalityLag
  const executor = rememberingSigner(0)
  const signers = [rememberingSigner(1), rememberingSigner(2)]
  for (const { address } of signers) endow(chain, address)
  chain.happen((world) => {
    world.relayers.add(executor.address)
    return []
  })
  const questions = Array.from({ length: questionCount }, (_, n) =>
    ask(chain, questionText(`Question ${n}?`)),
  )
  chain.mine()
  chain.fund(executor.address, 10n ** 20n)
  chain.mine(script.finalityLag)
  const genesis = await chain.block(0n)
  if (genesis === null) throw new Error('no genesis')
  const history = createHistory()
  const time = createSimTime()
  const watch = watchSends(chain, executor.address)
  const gateway = createGatewayProcess({
    script,
    time,
    chain,
    history,
    executor,
    proposers: signers.map(({ address }) => address),
    genesisHash: genesis.hash,
  })
  const network = createNetwork(gateway, history, time)
  const clients = signers.map((signer, index) =>
    createClientProcess({
      machine: index === 0 ? 'client0' : 'client1',
      index,
      seed: script.seed,
      time,
      network,
      history,
      signer,
    }),
  )
  const sim = {
    script,
    time,
    chain,
    watch,
    gateway,
    clients,
    network,
    history,
    questions,
    minedAtMs: 0,
  }
  time.onPassed = () => passed(sim)
  await time.drive(gateway.up())
  return { sim, history }
}

/**
 * Chain time goes as fast as the time that passes; a block for each piece, and the gateway looks at
 * it.
 */
function passed(sim: Simulation): void {
  const { chain, time } = sim
  const seconds = Math.floor((time.monotonicMs() - sim.minedAtMs) / 1_000)
  if (seconds < blockSeconds) return
  sim.minedAtMs = time.monotonicMs()
  chain.nextSeconds = BigInt(seconds)
  chain.mine()
  chain.nextSeconds = BigInt(blockSeconds)
  turn(sim)
}

function turn({ gateway, history }: Simulation): void {
  gateway
    .turn()
    .catch((error: unknown) =>
      history.fault(
        `a bug in the gateway: ${error instanceof Error ? error.stack : String(error)}`,
      ),
    )
}

async function settle({ gateway, time, watch, history }: Simulation): Promise<void> {
  await time.drive(gateway.turn())
  gateway.endIfBroken()
  await time.drive(gateway.up())
  for (const fault of watch.faults) history.fault(`R3: ${fault}`)
}

const clientOf = ({ clients }: Simulation, index: number): ClientProcess => {
  const found = clients[index]
  if (!found) throw new Error(`no client ${index}`)
  return found
}
const questionOf = ({ questions }: Simulation, index: number): Hex => {
  const found = questions[index]
  if (!found) throw new Error(`no question ${index}`)
  return found
}
const machineOf = (sim: Simulation, machine: Machine): GatewayProcess | ClientProcess =>
  machine === 'gateway' ? sim.gateway : clientOf(sim, machine === 'client0' ? 0 : 1)

async function take(sim: Simulation, step: Step): Promise<void> {
  const { chain, gateway, network, history, time } = sim
  history.count('steps')
  switch (step.do) {
    case 'submit':
      return clientOf(sim, step.client).submit(
        questionOf(sim, step.question),
        step.outcome,
        step.timeoutMs,
      )
    case 'batch': {
      const asked = step.questions.map((index) => questionOf(sim, index))
      return clientOf(sim, step.client).batch(asked, step.outcome, step.timeoutMs)
    }
    case 'replay':
      await clientOf(sim, step.client).replay(step.timeoutMs)
      return
    case 'status':
      return clientOf(sim, step.client).status(step.timeoutMs)
    case 'copies': {
      const call = network.last.get(clientOf(sim, step.client).machine)
      if (call === undefined) return
      await Promise.allSettled(Array.from({ length: step.count }, () => network.deliver(call)))
      history.count('copies', step.count)
      return
    }
    case 'crash':
      machineOf(sim, step.machine).crash(step.power)
      return
    case 'disk': {
      const { machine, power, verb, nth, does, always } = step
      const target = machineOf(sim, machine)
      target.disk.resetCounts()
      // A process that dies at every start would only stand for one that is down.
      const isDeath = does === 'kill-before' || does === 'kill-after'
      target.disk.faults = [{ verb, nth, does, ...(always === true && !isDeath ? { always } : {}) }]
      target.powerAtDeath = power
      return
    }
    case 'heal':
      machineOf(sim, step.machine).disk.faults = []
      return
    case 'network':
      network.faults.push(...step.faults)
      return
    case 'wall':
      time.jump(step.machine, step.seconds * 1_000)
      return
    case 'chain-time':
      chain.nextSeconds = BigInt(step.seconds + blockSeconds)
      chain.mine()
      chain.nextSeconds = BigInt(blockSeconds)
      return
    case 'chain-fault':
      chain.fault(step.method, 'unavailable', { times: step.times })
      return
    case 'send-fault':
      chain.fault('send', step.kind, step.applied ? { applied: true } : {})
      return
    case 'drop-pool':
      chain.clearPool()
      return
    case 'reorg':
      return reorganise(chain, step)
    case 'rival': {
      const questionId = questionOf(sim, step.question)
      chain.happen((world, now) => {
        if (requestOf(world, questionId).state !== 1) return []
        return proposeOnOracle(world, questionId, rememberingSigner(9).address, 0n, now)
      })
      return
    }
    case 'dispute': {
      const questionId = questionOf(sim, step.question)
      if (requestOf(chain.world, questionId).state === 2) dispute(chain, questionId)
      return
    }
    case 'operator': {
      const { machine } = clientOf(sim, step.client)
      const address = rememberingSigner(step.client + 1).address
      const candidate = gateway
        .ledger()
        ?.active()
        .find(({ proposer, progress }) => proposer === address && progress.status !== 'executed')
      if (step.act === 'candidates/reject')
        return candidate && gateway.act(step.act, { candidate_id: candidate.id, reason: machine })
      return gateway.act(step.act, {
        ...(step.act === 'allow' || step.act === 'disallow' ? { addresses: [address] } : {}),
        reason: machine,
      })
    }
    case 'pass':
      return pass(sim, step.blocks, step.empty === true)
  }
}

function reorganise(
  chain: FakeChain,
  { depth, drop, empty }: Extract<Step, { do: 'reorg' }>,
): void {
  const final = chain.head.number - BigInt(chain.finalityLag)
  const most = Number(chain.head.number - (final > 0n ? final : 0n)) - 1
  const undone = Math.min(depth, most)
  if (undone < 1) return
  chain.reorg(undone, { drop })
  chain.mine(undone + 1, { empty })
}

async function pass(sim: Simulation, blocks: number, empty: boolean): Promise<void> {
  const clock = sim.time.clockOf('world', () => true)
  for (let block = 0; block < blocks; block++) {
    if (empty) sim.chain.mine(1, { empty: true })
    await clock.sleep(blockSeconds * 1_000)
    await sim.gateway.turn()
    sim.gateway.endIfBroken()
    await sim.gateway.up()
  }
}

function isDone({ gateway }: Simulation): boolean {
  const ledger = gateway.ledger()
  return ledger !== undefined && ledger.slots().length === 0 && ledger.active().length === 0
}

async function calm(sim: Simulation): Promise<void> {
  const { script, time, chain, gateway, clients, network, history } = sim
  network.faults.length = 0
  for (const [index, each] of [gateway, ...clients].entries()) {
    each.disk.faults = []
    each.powerAtDeath = undefined
    each.crash(script.seed + index)
  }
  time.setRight()
  chain.clearFaults()
  await time.drive(gateway.up())
  await time.drive(network.flush())
  await time.drive(gateway.act('resume', {}))
  await time.drive(
    gateway.act('allow', {
      addresses: [rememberingSigner(1).address, rememberingSigner(2).address],
    }),
  )
  await time.drive(pass(sim, 1, false))
  const views: JournalView[] = []
  for (const client of clients) if (client.isUsed()) await time.drive(client.replay(30_000))
  for (let block = 0; block < calmBlocks && !isDone(sim); block++)
    await time.drive(pass(sim, 1, false))
  for (const client of clients) {
    if (client.isUsed()) await time.drive(client.status(10_000))
    views.push(await time.drive(client.read()))
  }
  if (history.faults.length === 0) await judge(sim, views)
}

/**
 * Signatures are the dear part of a schedule. A key's signature of a digest is the same every time
 * (RFC 6979): it is made once.
 */
const made = new Map<string, Hex>()
const signers = new Map<number, Signer>()

function rememberingSigner(n: number): Signer {
  const known = signers.get(n)
  if (known) return known
  const signer = signerFromKey(new Uint8Array(32).fill(n + 1))
  const remembering: Signer = {
    address: signer.address,
    async signDigest(digest) {
      const key = `${signer.address} ${digest}`
      const signature = made.get(key) ?? (await signer.signDigest(digest))
      made.set(key, signature)
      noteMaker(digest, signature, signer.address)
      return signature
    },
  }
  signers.set(n, remembering)
  return remembering
}

interface Shrunk {
  readonly script: Script
  readonly faults: readonly string[]
}

/** Makes a failing script shorter: steps go for as long as it still fails. */
export async function shrink(script: Script): Promise<Shrunk> {
  let best: Shrunk = { script, faults: (await runScript(script)).faults }
  for (
    let size = Math.ceil(script.steps.length / 2);
    size >= 1 && best.faults.length > 0;
    size = size === 1 ? 0 : Math.ceil(size / 2)
  ) {
    for (let from = 0; from < best.script.steps.length; ) {
      const steps = best.script.steps.filter((_, index) => index < from || index >= from + size)
      const shorter = { ...best.script, steps }
      const { faults } = await runScript(shorter)
      if (faults.length > 0) best = { script: shorter, faults }
      else from += size
    }
  }
  return best
}
