import type { Implementations } from '#chain/implementations'
import { proposeCalldata } from '#chain/propose'
import type { RegistryEntry } from '#chain/questions'
import type { Contracts } from '#chain/round'
import { signTransaction } from '#chain/transaction'
import type { Failpoint } from '#gateway/executor/state'
import type { Ledger, NewCandidate } from '#gateway/ledger/ledger'
import { createPipeline, type Pipeline, type PipelineConfig } from '#gateway/pipeline/pipeline'
import { createChainView, type LiveView } from '#gateway/view/view'
import { signerFromKey } from '#io/keys'
import type { Hex, Signer } from '#ports'
import type { Candidate, Progress } from '#protocol/candidate'
import { admit, current, openMemoryLedger, signedCandidate } from './candidates.js'
import { createFakeChain, createFakeClock, type FakeChain, type FakeClock } from './fake-chain.js'
import { ask, endow, otherRelayerExecutes, questionText } from './fake-events.js'
import { fakeContracts, token } from './fake-world.js'
import { violationsText } from './history/observed-history.js'
import { recordHistory } from './history/recorder.js'
import { type MemoryStore, newMemoryStore } from './memory-log.js'
import { seededRandom } from './sim-files.js'

export function testSigner(n: number): Signer {
  return signerFromKey(new Uint8Array(32).fill(n + 1))
}

export interface WorldOptions {
  readonly config?: { readonly [K in keyof PipelineConfig]?: Partial<PipelineConfig[K]> }
  readonly executor?: boolean
  readonly signing?: (key: Signer) => Signer
  readonly seed?: number
  readonly entries?: readonly RegistryEntry[]
  readonly contracts?: Contracts
  readonly failpoint?: Failpoint
  readonly implementations?: Implementations
}

export interface PipelineWorld {
  readonly chain: FakeChain
  readonly clock: FakeClock
  readonly random: ReturnType<typeof seededRandom>
  readonly executor: Signer
  readonly proposer: (n?: number) => Signer
  readonly ledger: Ledger
  readonly view: LiveView
  readonly pipeline: Pipeline
  failpoint: Failpoint
  restart(signer?: Signer): Promise<void>
  killedAt(point: string): Promise<void>
  succeedBy(signer: Signer): Promise<void>
  turn(): Promise<void>
  pass(blocks?: number): Promise<void>
  emptyBlocks(count: number): Promise<void>
  question(name?: string, resData?: string): Promise<Hex>
  submit(questionId: Hex, wish?: SubmitWish): Promise<Candidate>
  now(candidate: Candidate): Promise<Candidate>
  progress(candidate: Candidate): Promise<Progress>
  /** Code of its failure, else its status. */
  end(candidate: Candidate): Promise<string>
  ends(candidates: readonly Candidate[]): Promise<string[]>
  reject(candidate: Candidate): Promise<void>
}

export interface SubmitWish {
  readonly by?: number
  readonly price?: string
  readonly amount?: string
  readonly nonce?: string
  readonly deadline?: bigint
  readonly signature?: Hex
}

const defaults: PipelineConfig = {
  pipeline: { enabled: true },
  executor: { enabled: true, max_fee_gwei: 1000, batch: 10, in_flight: 16 },
}

export async function createPipelineWorld(options: WorldOptions = {}): Promise<PipelineWorld> {
  const chain = createFakeChain()
  const { contracts = fakeContracts } = options
  const clock = createFakeClock(chain)
  const random = seededRandom(options.seed ?? 1)
  const store: MemoryStore = newMemoryStore()
  const executor = testSigner(0)
  const signing = options.signing ?? ((key) => key)
  const proposer = (n = 0) => testSigner(n + 1)
  const genesis = await chain.block(0n)
  if (!genesis) throw new Error('no genesis')
  for (const n of [0, 1, 2]) endow(chain, proposer(n).address)
  if (options.executor !== false) chain.happen((state) => state.relayers.add(executor.address))
  chain.mine(3)
  chain.fund(executor.address, 10n ** 20n)
  chain.mine(3)
  let nonce = 0
  const binding = { chainId: fakeContracts.chainId, spender: fakeContracts.signedProposer }
  const recorder = recordHistory(binding)

  const world = {
    chain,
    clock,
    random,
    executor,
    proposer,
    failpoint: options.failpoint ?? (async () => undefined),
  } as unknown as {
    -readonly [K in keyof PipelineWorld]: PipelineWorld[K]
  }
  world.restart = async (signer = signing(executor)) => {
    const ports = { clock, random }
    world.ledger = await openMemoryLedger(
      store,
      ports,
      { chainId: fakeContracts.chainId, genesisHash: genesis.hash },
      recorder.store,
    )
    world.view = createChainView({ clock, chain }, contracts, world.ledger, {
      maxHeadAgeSeconds: 30,
      entries: options.entries ?? [],
      implementations: options.implementations,
    })
    world.pipeline = createPipeline({
      ports,
      ledger: world.ledger,
      view: world.view,
      chain: recorder.chain(chain),
      signer,
      contracts,
      config: {
        pipeline: { ...defaults.pipeline, ...options.config?.pipeline },
        executor: { ...defaults.executor, ...options.config?.executor },
      },
      failpoint: (name) => world.failpoint(name),
    })
    await world.view.poll()
  }
  world.turn = async () => {
    await world.view.poll()
    await world.pipeline.step()
    if (recorder.history.verdict().broken > 0)
      throw new Error(violationsText(recorder.history.verdict()))
  }
  world.pass = async (blocks = 1) => {
    for (let passed = 0; passed < blocks; passed += 1) {
      chain.mine()
      clock.monotonic += 2_000
      await world.turn()
    }
  }
  world.killedAt = async (point) => {
    world.failpoint = async (name) => {
      if (name === point) throw new Error('killed')
    }
    await expect(world.turn()).rejects.toThrow('killed')
    world.failpoint = async () => undefined
    await world.restart()
  }
  world.succeedBy = async (signer) => {
    chain.happen((state) => state.relayers.add(signer.address))
    chain.fund(signer.address, 10n ** 20n)
    await world.restart(signer)
  }
  world.emptyBlocks = async (count) => {
    for (let block = 0; block < count; block += 1) {
      chain.mine(1, { empty: true })
      clock.monotonic += 2_000
      await world.turn()
    }
  }
  world.question = async (name = 'Rain?', resData) => {
    const questionId = ask(chain, questionText(name, resData))
    chain.mine()
    await world.view.poll()
    return questionId
  }
  world.submit = async (questionId, wish = {}) => {
    const question = await world.view.question(questionId)
    if (!question) throw new Error(`the view knows no question ${questionId}`)
    nonce += 1
    const { by = 0, deadline = chain.head.timestamp + 3_600n, ...rest } = wish
    return admit(
      world.ledger,
      await signedCandidate(
        { nonce: String(nonce), ...rest, question, proposer: proposer(by), deadline },
        binding,
      ),
    )
  }
  world.now = (candidate) => current(world.ledger, candidate.id)
  world.progress = async (candidate) => (await world.now(candidate)).progress
  world.end = async (candidate) => {
    const progress = await world.progress(candidate)
    return progress.status === 'failed' ? progress.failure.code : progress.status
  }
  world.ends = (candidates) => Promise.all(candidates.map(world.end))
  world.reject = async (candidate) => {
    const none = { validatedAtMs: null, selectedAtMs: null, submission: null }
    const failure = {
      stage: 'submission',
      code: 'operator_rejected',
      detail: 'no',
      retryable: false,
    } as const
    const progress = {
      ...none,
      ...(await world.progress(candidate)),
      status: 'failed',
      failure,
    } as const
    await world.ledger.commit([{ kind: 'candidate.progress', id: candidate.id, progress }])
  }
  await world.restart()
  return world
}

export async function oneCandidate(options: WorldOptions = {}) {
  const world = await createPipelineWorld(options)
  const questionId = await world.question()
  const candidate = await world.submit(questionId)
  return { world, questionId, candidate }
}

export const proposals = (world: PipelineWorld) =>
  world.chain.taken.filter(({ to }) => to !== world.executor.address)
export const noncesOf = (world: PipelineWorld) => [
  ...new Set(proposals(world).map(({ nonce }) => nonce)),
]

export async function foreignTransaction(
  { chain, proposer }: PipelineWorld,
  signer: Signer,
  nonce: number,
): Promise<void> {
  const call = { to: proposer(2).address, data: '0x', gas: 21_000n } as const
  const fees = { maxFeePerGas: 10n ** 12n, maxPriorityFeePerGas: 10n ** 11n }
  const unsigned = { chainId: fakeContracts.chainId, nonce, ...call, ...fees }
  await chain.send((await signTransaction(signer, unsigned)).raw)
}

/** Another relayer brings this payload on chain. */
export function anotherExecutes({ view, chain }: PipelineWorld, terms: NewCandidate): void {
  const request = view.known(terms.round.questionId)?.round
  if (request === undefined) throw new Error('unknown question')
  const { proposer, signature } = terms
  const calldata = proposeCalldata({ request, token, proposer, terms, signature })
  otherRelayerExecutes(chain, calldata, testSigner(9).address)
}
