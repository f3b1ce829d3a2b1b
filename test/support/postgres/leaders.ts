import { setTimeout as sleep } from 'node:timers/promises'
import type { GatewayConfig } from '#gateway/config'
import type { Failpoint } from '#gateway/executor/state'
import { createPipeline } from '#gateway/pipeline/pipeline'
import { createChainView, type LiveView } from '#gateway/view/view'
import type { LoadedConfig } from '#host/config-file'
import { type HeldStore, holdDatabase } from '#host/held-store'
import { systemClock, systemRandom } from '#io/clock'
import { createClosers } from '#io/closers'
import { postgresDatabase } from '#io/postgres'
import type { Clock, Hex, Machine, Signer } from '#ports'
import type { Candidate } from '#protocol/candidate'
import { signedCandidate } from '../candidates.js'
import { createFakeChain, type FakeChain } from '../fake-chain.js'
import { ask, endow, questionText } from '../fake-events.js'
import { fakeContracts } from '../fake-world.js'
import { testSigner } from '../pipeline-world.js'
import type { PostgresServer } from './server.js'

export type LeaderWorld = Awaited<ReturnType<typeof openLeaderWorld>>

export interface OpenOptions {
  readonly url?: string
  readonly signer?: Signer | null
  readonly failpoint?: Failpoint
}

export interface Member {
  readonly store: HeldStore
  readonly epoch: number | undefined
  faults(): readonly string[]
  submit(questionId: Hex): Promise<Candidate>
  freeze(): void
  thaw(passedMs: number): void
  stop(): Promise<void>
}

export const executorKey = testSigner(0)
export const otherKey = testSigner(9)
const proposer = testSigner(1)
const binding = { chainId: fakeContracts.chainId, spender: fakeContracts.signedProposer }
const config = {
  pipeline: { enabled: true },
  executor: { enabled: true, max_fee_gwei: 1000, batch: 10, in_flight: 16 },
  chain: { confirmations: 'finalized' },
  budget: { window_seconds: 60, per_ip_items: 100, global_items: 1000 },
} as unknown as GatewayConfig

export async function openLeaderWorld(server: PostgresServer) {
  const url = await server.createDatabase()
  const chain = createFakeChain()
  endow(chain, proposer.address)
  chain.happen((world) => {
    for (const { address } of [executorKey, otherKey]) world.relayers.add(address)
    return []
  })
  chain.mine(3)
  for (const { address } of [executorKey, otherKey]) chain.fund(address, 10n ** 20n)
  chain.mine(3)
  const genesis = await chain.block(0n)
  const sends: Hex[] = []
  const unknownSends: Hex[] = []
  const members = new Set<Member & { readonly view: LiveView; readonly isFrozen: boolean }>()
  const admin = await postgresDatabase(url).connect()
  let isOver = false
  let nonce = 0
  const blocks = (async () => {
    while (!isOver) {
      chain.mine()
      for (const { view, isFrozen } of members) if (!isFrozen) await view.poll()
      await sleep(50)
    }
  })()

  const sendNoted = async (raw: Hex) => {
    const known = await admin.query(
      `SELECT FROM proposer.record WHERE k LIKE 'slot.%' AND strpos(d::text, $1) > 0`,
      [raw],
    )
    if (known.length === 0) unknownSends.push(raw)
    sends.push(raw)
    return chain.send(raw)
  }

  const open = async ({
    url: own = url,
    signer: key = executorKey,
    failpoint,
  }: OpenOptions = {}) => {
    const signer = key ?? undefined
    const closers = createClosers()
    const clock = freezable(chain)
    const database = postgresDatabase(own)
    const machine = {
      clock,
      random: systemRandom,
      edges: { database: async () => database },
      liveness: { host: 'test' },
    } as unknown as Machine
    const settings = async () => ({
      chainId: fakeContracts.chainId,
      genesisHash: genesis?.hash,
      allowlist: [],
      admissionEnabled: true,
    })
    const hold = { signer, settings, onObservation: () => undefined, onWarning: () => undefined }
    const store = await holdDatabase(machine, own, { config } as LoadedConfig, hold, closers)
    const { ledger } = store
    const view = createChainView({ clock, chain }, fakeContracts, ledger, {
      maxHeadAgeSeconds: 3_600,
      entries: [],
    })
    await view.poll()
    const execution = store.execution((leading, fence) =>
      createPipeline({
        ports: { clock, random: systemRandom },
        ledger: leading,
        view,
        chain: {
          ...chain,
          async send(raw) {
            await fence()
            return sendNoted(raw)
          },
        },
        signer,
        contracts: fakeContracts,
        config,
        failpoint: failpoint ?? (async () => undefined),
      }),
    )
    execution.start()
    const member = {
      store,
      view,
      get isFrozen() {
        return clock.isFrozen
      },
      get epoch() {
        return store.cluster?.epoch()
      },
      faults: execution.faults,
      freeze: clock.freeze,
      thaw: clock.thaw,
      async submit(questionId: Hex) {
        await view.poll()
        const question = await view.question(questionId)
        if (!question) throw new Error(`the view knows no question ${questionId}`)
        const wish = { question, proposer, nonce: String(++nonce) }
        const deadline = chain.head.timestamp + 36_000n
        const admission = await ledger.admit(await signedCandidate({ ...wish, deadline }, binding))
        if (admission.kind === 'conflict') throw new Error('it is not admitted')
        return admission.candidate
      },
      async stop() {
        members.delete(member)
        await execution.stop()
        await view.stop()
        await closers.close()
        await database.close()
      },
    }
    members.add(member)
    return member
  }
  return {
    chain,
    url,
    sends,
    unknownSends,
    open,
    async question() {
      const id = ask(chain, questionText(`Rain ${++nonce}?`))
      const seen = chain.head.number
      while (chain.head.number < seen + 2n) await sleep(10)
      return id
    },
    sql: (text: string) => admin.query(text),
    async close() {
      for (const member of members) {
        member.thaw(0)
        await member.stop()
      }
      isOver = true
      await blocks
      admin.destroy()
    },
  }
}

function freezable(chain: FakeChain): Clock & {
  readonly isFrozen: boolean
  freeze(): void
  thaw(passedMs: number): void
} {
  let passedBy = 0
  let frozen: Promise<void> | undefined
  let release: (() => void) | undefined
  return {
    nowMs: () => Number(chain.head.timestamp) * 1000,
    monotonicMs: () => systemClock.monotonicMs() + passedBy,
    async sleep(ms, signal) {
      await systemClock.sleep(ms, signal)
      await frozen
    },
    get isFrozen() {
      return frozen !== undefined
    },
    freeze() {
      frozen ??= new Promise((resolve) => {
        release = resolve
      })
    },
    thaw(passedMs) {
      passedBy += passedMs
      frozen = undefined
      release?.()
    },
  }
}

export const executedOn = ({ taken, truth }: FakeChain): number =>
  new Set(
    taken
      .filter(({ to }) => to === fakeContracts.signedProposer)
      .filter(({ hash }) => truth.receipt(hash)?.status === 'success')
      .map(({ hash }) => hash),
  ).size
