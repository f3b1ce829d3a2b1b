import type { Contracts } from '#chain/round'
import { type DevChain, type DevChainOptions, startDevChain } from '#devchain/dev-chain'
import { devRpc } from '#devchain/dev-contracts'
import type { Ledger } from '#gateway/ledger/ledger'
import { createPipeline, type Pipeline, type PipelineConfig } from '#gateway/pipeline/pipeline'
import { createChainView, type LiveView } from '#gateway/view/view'
import { systemClock, systemRandom } from '#io/clock'
import { signerFromKey } from '#io/keys'
import { createChain } from '#io/rpc/rpc'
import type { Chain, Clock, Hex, Signer } from '#ports'
import type { Candidate } from '#protocol/candidate'
import { fromHex } from '#protocol/witness'
import { admit, current, openMemoryLedger, signedCandidate, type Wish } from './candidates.js'
import { newMemoryStore } from './memory-log.js'

export interface LivePipeline {
  readonly dev: DevChain
  readonly chain: Chain
  readonly contracts: Contracts
  readonly ledger: Ledger
  readonly view: LiveView
  readonly pipeline: Pipeline
  readonly executor: Signer
  signerOf(role: string, n?: number): Signer
  questionIdOf(n: number): Hex
  submit(
    n: number | Hex,
    proposer: Signer,
    nonce: string,
    more?: Partial<Pick<Wish, 'price' | 'amount' | 'deadline'>>,
  ): Promise<Candidate>
  until(id: string, reached: (candidate: Candidate) => boolean): Promise<Candidate>
  ended(id: string): Promise<Candidate>
  stop(): Promise<void>
}

export interface LiveOptions {
  readonly chain?: DevChainOptions
  readonly clock?: Clock
  readonly maxHeadAgeSeconds?: number
  readonly executor?: Partial<PipelineConfig['executor']>
  readonly requesters?: Contracts['requesters']
  readonly isDriven?: boolean
}

export async function startLivePipeline(options: LiveOptions = {}): Promise<LivePipeline> {
  const dev = await startDevChain(options.chain)
  const chain = createChain([dev.rpcUrl])
  const { chain_id: chainId, signed_proposer: signedProposer, ...trust } = dev.description.trust
  const requesters = [...trust.requesters, ...(options.requesters ?? [])]
  const contracts: Contracts = { chainId, signedProposer, ...trust, requesters }
  const clock = options.clock ?? systemClock
  const genesis = await chain.block(0n)
  if (!genesis) throw new Error('no genesis block')
  const ports = { clock, random: systemRandom }
  const ledger = await openMemoryLedger(newMemoryStore(), ports, {
    chainId,
    genesisHash: genesis.hash,
  })
  const entries = dev.description.questions.map(({ question_id, slug }) => ({
    questionId: question_id,
    slug,
  }))
  const view = createChainView({ clock, chain }, contracts, ledger, {
    maxHeadAgeSeconds: options.maxHeadAgeSeconds ?? 30,
    entries,
  })
  const signerOf = (role: string, n = 0): Signer => {
    const account = dev.description.accounts.filter((one) => one.role === role)[n]
    if (!account) throw new Error(`no account ${role} ${n}`)
    return signerFromKey(fromHex(account.private_key))
  }
  const config: PipelineConfig = {
    pipeline: { enabled: true },
    executor: { enabled: true, max_fee_gwei: 1000, batch: 10, in_flight: 16, ...options.executor },
  }
  const executor = signerOf('executor')
  const pipeline = createPipeline({
    ports,
    ledger,
    view,
    chain,
    signer: executor,
    contracts,
    config,
  })
  if (options.isDriven === true) {
    await devRpc(dev.rpcUrl).request('evm_setIntervalMining', [0])
    await view.poll()
  } else {
    await view.start()
    pipeline.start()
  }
  const until: LivePipeline['until'] = (id, reached) =>
    new Promise((resolve, reject) => {
      let forget: (() => void) | undefined
      const look = () => {
        current(ledger, id).then((candidate) => {
          if (!reached(candidate)) return
          forget?.()
          resolve(candidate)
        }, reject)
      }
      forget = ledger.onChange(look)
      look()
    })
  const questionIdOf = (n: number) => {
    const question = dev.description.questions[n]
    if (!question) throw new Error(`no question ${n}`)
    return question.question_id
  }
  return {
    dev,
    chain,
    contracts,
    ledger,
    view,
    pipeline,
    executor,
    signerOf,
    questionIdOf,
    until,
    async submit(n, proposer, nonce, more = {}) {
      const question = await view.question(typeof n === 'number' ? questionIdOf(n) : n)
      if (!question) throw new Error('the question is unknown')
      const deadline = view.nowSeconds() + 3600n
      return admit(
        ledger,
        await signedCandidate(
          { question, proposer, nonce, deadline, ...more },
          { chainId, spender: contracts.signedProposer },
        ),
      )
    },
    ended: (id) =>
      until(id, ({ progress: { status } }) => status === 'executed' || status === 'failed'),
    async stop() {
      await pipeline.stop()
      await view.stop()
      await chain.close()
      await dev.stop()
    },
  }
}

export function fastClock(times: number): Clock {
  const startedMs = Date.now()
  const startedAt = performance.now()
  const passedMs = () => (performance.now() - startedAt) * times
  return {
    nowMs: () => Math.floor(startedMs + passedMs()),
    monotonicMs: passedMs,
    sleep: (ms, signal) => systemClock.sleep(ms / times, signal),
  }
}
