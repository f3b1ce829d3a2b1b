/**
 * The real gateway of the simulated week, put together as `--local` does it: file store in a
 * temporary folder, JSON-RPC to the chain, its loops on the test's clock. It can be closed and
 * opened again. Everything the ledger says is written down with the heads it was said at.
 */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { yesOrNoQuery } from '#chain/contracts'
import { devAccount } from '#devchain/dev-contracts'
import { gasCeilingsOf, heldBack } from '#gateway/executor/state'
import type { SlotAttempt } from '#gateway/ledger/ledger'
import { loadConfig } from '#host/config-file'
import { type HostedGateway, openHostedGateway } from '#host/gateway-host'
import { systemFiles } from '#io/files'
import { createChain } from '#io/rpc/rpc'
import type { Candidate, Progress } from '#protocol/candidate'
import type { CandidateStatus } from '#protocol/schema'
import { fakeContext } from './cli.js'
import { temporaryFolder } from './folders.js'
import type { History } from './history/observed-history.js'
import { recordHistory } from './history/recorder.js'
import { openRpcProxy, type RpcProxy, type Weather } from './rpc-proxy.js'
import { seededRandom } from './sim-files.js'
import { contracts, directTimestamp, type WeekChain, type WeekQuestion } from './week-chain.js'
import { createWeekPorts } from './week-ports.js'
import { weekWallets } from './week-wallets.js'

export interface Said {
  readonly candidateId: string
  readonly progress: Progress
  readonly latest: bigint
  readonly finalized: bigint
  readonly active: readonly Candidate[]
}

export interface SlotStory {
  readonly nonce: number
  readonly candidateIds: readonly string[]
  readonly rounds: readonly string[]
  readonly attempts: SlotAttempt[]
  readonly openedAt: bigint
  readonly active: readonly Candidate[]
  outcome: string | undefined
  closedAt: bigint | undefined
}

export interface Answer {
  readonly status: number
  readonly body: Record<string, unknown>
}

export interface WeekGateway {
  news(): readonly Said[]
  readonly slots: ReadonlyMap<string, SlotStory>
  newSlots(): readonly SlotStory[]
  active(): readonly Candidate[]
  /** Why what its wallet has cost keeps a candidate waiting; `undefined`: it does not. */
  heldBack(candidateId: string, secondsAgo: bigint): string | undefined
  readonly history: History
  faults(): readonly string[]
  post(path: string, body: unknown): Promise<Answer>
  status(questionId: string, candidateId: string): Promise<CandidateStatus>
  pass(ms: number): Promise<void>
  beforeSend(happening: (() => Promise<void>) | undefined): void
  restart(meanwhile?: () => Promise<void>): Promise<void>
  register(
    questions: readonly WeekQuestion[],
    timestamps: ReadonlyMap<string, bigint>,
  ): Promise<void>
  readonly proxy: Pick<RpcProxy, 'requests' | 'handed'> | undefined
  close(): Promise<void>
}

export async function openWeekGateway(
  week: WeekChain,
  questions: readonly WeekQuestion[],
  seed: number,
  weather?: Weather,
): Promise<WeekGateway> {
  const proxy = weather && (await openRpcProxy(week.rpcUrl, { ...weather, seed }))
  const rpcUrl = proxy?.url ?? week.rpcUrl
  const folder = temporaryFolder()
  const ports = createWeekPorts(week.head().seconds)
  const rpc = createChain([rpcUrl])
  const recorder = recordHistory({ chainId: 31337, spender: contracts.signedProposer.address })
  const chain = ports.chain(recorder.chain(rpc))
  const { context } = fakeContext(folder, { chain, clock: ports.clock })
  const world = {
    ...context,
    random: seededRandom(seed),
    files: ports.files(recorder.files(systemFiles)),
  }
  const slots = new Map<string, SlotStory>()
  let said: Said[] = []
  let opened: SlotStory[] = []
  let hosted: HostedGateway | undefined
  const open = () => {
    if (hosted === undefined) throw new Error('the gateway is closed')
    return hosted
  }

  const register: WeekGateway['register'] = async (all, timestamps) => {
    const entries = all.map(({ kind, name, questionId, requester, ancillaryData }) => ({
      question_id: questionId,
      slug: `week-${name}`,
      ...(kind === 'direct'
        ? {
            request: {
              oracle: contracts.oracle.address,
              requester,
              identifier: yesOrNoQuery,
              timestamp: String(timestamps.get(questionId) ?? directTimestamp),
              ancillary_data: ancillaryData,
            },
          }
        : {}),
    }))
    await writeFile(join(folder, 'questions.json'), JSON.stringify(entries))
  }

  /**
   * Written down before anything else can happen; ends the test where a round is in two slots (R3).
   */
  const listen = ({ ledger, view }: HostedGateway) => {
    ledger.onChange((events) => {
      const heads = view.heads()
      const active = ledger.active()
      if (heads === undefined) return
      for (const event of events) {
        if (event.kind === 'candidate.progress') {
          const { id: candidateId, progress } = event
          said.push({
            candidateId,
            progress,
            latest: heads.latest.number,
            finalized: heads.finalized.number,
            active,
          })
        } else if (event.kind === 'slot.opened') {
          const { id, nonce, candidateIds } = event.slot
          const rounds = candidateIds.map((candidate) => ledger.byId(candidate)?.roundKey ?? '')
          const fresh = {
            openedAt: heads.latest.number,
            active,
            outcome: undefined,
            closedAt: undefined,
          }
          const slot: SlotStory = { nonce, candidateIds, rounds, attempts: [], ...fresh }
          slots.set(id, slot)
          opened.push(slot)
        } else if (event.kind === 'slot.attempt')
          slots.get(event.slotId)?.attempts.push(event.attempt)
        else if (event.kind === 'slot.closed') {
          const slot = slots.get(event.slotId)
          if (slot)
            Object.assign(slot, { outcome: event.outcome.kind, closedAt: heads.finalized.number })
        }
      }
    })
  }

  /** Behind a lossy node whatever is awaited may sleep before it asks again: time goes on for it. */
  const patiently = async <T>(work: Promise<T>): Promise<T> => {
    let isDone = proxy === undefined
    const ended = () => {
      isDone = true
    }
    work.then(ended, ended)
    for (await ports.quiet(); !isDone; await ports.quiet()) ports.pass(week.head().seconds, 500)
    return work
  }
  /** Reads that were lost are asked again until the gateway is at the head of the chain. */
  const catchUp = async () => {
    for (
      let tries = 0;
      proxy && open().view.heads()?.latest.number !== week.head().number;
      tries++
    ) {
      if (tries === 240) throw new Error(`the gateway does not reach block ${week.head().number}`)
      ports.pass(week.head().seconds, 500)
      await ports.quiet()
    }
  }

  const start = async () => {
    const loaded = await loadConfig(world, join(folder, 'gateway.json'))
    const executorKey = { home: folder, password: async () => '' }
    // Listened to before its loops have taken a step.
    const listened = openHostedGateway(world, loaded, { executorKey }).then((opened) => {
      listen(opened)
      return opened
    })
    hosted = await patiently(listened)
    await ports.quiet()
    await catchUp()
  }

  const call = async (path: string, init?: RequestInit): Promise<Answer> => {
    const handle = recorder.gateway((request) => open().gateway.handle(request, { charged: false }))
    const answer = await patiently(handle(new Request(`http://gateway.test${path}`, init)))
    return { status: answer.status, body: (await answer.json()) as Record<string, unknown> }
  }

  const at = (placed: { readonly address: string }) => placed.address
  const config = {
    store: './store',
    chain: {
      id: 31337,
      rpc_urls: [rpcUrl],
      permit2: at(contracts.permit2),
      signed_proposer: at(contracts.signedProposer),
      oracles: [at(contracts.oracle)],
      requesters: [
        { address: at(contracts.adapter), kind: 'uma-ctf-adapter' },
        { address: at(contracts.negRisk), kind: 'uma-ctf-adapter-negrisk' },
        { address: at(contracts.reporter), kind: 'oo-reporter' },
        ...[
          ...new Set(
            questions.filter(({ kind }) => kind === 'direct').map(({ requester }) => requester),
          ),
        ].map((address) => ({
          address,
          kind: 'direct',
        })),
      ],
      tokens: [at(contracts.token)],
    },
    questions: './questions.json',
    admission: {
      allowlist: Object.values(weekWallets)
        .filter(({ listed }) => listed)
        .map(({ address }) => address),
    },
    executor: { key_file: './executor.key' },
  }
  await writeFile(join(folder, 'gateway.json'), JSON.stringify(config))
  await writeFile(join(folder, 'executor.key'), `${devAccount('executor').private_key}\n`, {
    mode: 0o600,
  })
  await register(questions, new Map())
  await start()

  return {
    news() {
      const fresh = said
      said = []
      return fresh
    },
    slots,
    newSlots() {
      const fresh = opened
      opened = []
      return fresh
    },
    active: () => open().ledger.active(),
    heldBack(candidateId, secondsAgo) {
      const { ledger, view } = open()
      const candidate = ledger.active().find(({ id }) => id === candidateId)
      const heads = view.heads()
      const ceilings = gasCeilingsOf({ executor: {} })
      if (!candidate || !heads) return undefined
      const latest = { ...heads.latest, timestamp: heads.latest.timestamp - secondsAgo }
      return heldBack(candidate, ledger, ceilings, { ...heads, latest })
    },
    history: recorder.history,
    faults: () => open().gateway.readiness(),
    post: (path, body) =>
      call(path, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      }),
    async status(questionId, candidateId) {
      const { status, body } = await call(`/v1/proposals/${questionId}/status/${candidateId}`)
      if (status !== 200)
        throw new Error(`no status of ${candidateId}: ${status} ${JSON.stringify(body)}`)
      return body as CandidateStatus
    },
    async pass(ms) {
      ports.pass(week.head().seconds, ms)
      await ports.quiet()
      await catchUp()
    },
    beforeSend: ports.beforeSend,
    async restart(meanwhile) {
      await patiently(Promise.resolve(hosted?.close()))
      hosted = undefined
      await meanwhile?.()
      ports.pass(week.head().seconds, 0)
      await start()
    },
    register,
    proxy,
    async close() {
      await hosted?.close()
      hosted = undefined
      await rpc.close()
      await proxy?.close()
    },
  }
}
