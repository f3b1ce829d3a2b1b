/**
 * The gateway of a simulation: store, view, pipeline and executor as `serve` puts them together,
 * without a listener, on a simulated disk. A process that was killed does nothing more, wherever it
 * was: what it waits for never comes.
 */

import type { RegistryEntry } from '#chain/questions'
import { parseConfig } from '#gateway/config'
import { createGateway, type Gateway } from '#gateway/gateway'
import type { Ledger } from '#gateway/ledger/ledger'
import { compactLedger } from '#gateway/ledger/store'
import { foldLedger, openLedger, storeLog } from '#gateway/ledger/writer'
import type { ActName } from '#gateway/operator/acts'
import { createOperatorService, type OperatorService } from '#gateway/operator/service'
import { createPipeline, type Pipeline } from '#gateway/pipeline/pipeline'
import { createChainView, type LiveView } from '#gateway/view/view'
import { systemHash } from '#io/clock'
import { type Chain, type Hex, type Signer, TransportError } from '#ports'
import { ProposerError, StorageError } from '#protocol/errors'
import type { Address } from '#protocol/schema'
import { acquireLock } from '#storage/lock'
import { openLog } from '#storage/log'
import type { FakeChain } from '../fake-chain.js'
import { chainSectionOf } from '../fake-view.js'
import { fakeContracts } from '../fake-world.js'
import { SimFiles, SimHost, seededRandom } from '../sim-files.js'
import type { History } from './history.js'
import type { Script } from './script.js'
import type { SimTime } from './time.js'

const store = '/data/store'

export interface Call {
  readonly method: string
  readonly path: string
  readonly body: string | undefined
}

interface Life {
  isAlive: boolean
  readonly ledger: Ledger
  readonly pipeline: Pipeline
  readonly view: LiveView
  readonly gateway: Gateway
  readonly desk: OperatorService
}

export interface GatewayProcess {
  readonly disk: SimFiles
  ledger(): Ledger | undefined
  up(): Promise<boolean>
  turn(): Promise<void>
  handle(
    call: Call,
  ): Promise<{ readonly status: number; readonly headers: Headers; readonly text: string }>
  act(name: ActName, body: unknown): Promise<void>
  endIfBroken(): void
  crash(power: number | undefined): void
  powerAtDeath: number | undefined
}

export interface GatewaySimParts {
  readonly script: Script
  readonly time: SimTime
  readonly chain: FakeChain
  readonly history: History
  readonly executor: Signer
  readonly proposers: readonly Address[]
  readonly genesisHash: Hex
}

const gatewayConfig = parseConfig(
  {
    chain: chainSectionOf(fakeContracts),
    budget: { per_ip_items: 1_000_000, global_items: 1_000_000 },
  },
  'simulation',
)

const never = <T>() => new Promise<T>(() => undefined)

export function createGatewayProcess(parts: GatewaySimParts): GatewayProcess {
  const { script, time, chain, history, executor } = parts
  const disk = new SimFiles()
  disk.isTraced = false
  const host = new SimHost()
  const settings = {
    chainId: fakeContracts.chainId,
    genesisHash: parts.genesisHash,
    allowlist: parts.proposers,
    admissionEnabled: true,
  }
  let processes = 0
  let life: Life | undefined
  let isBroken = false
  let deathSeed: number | undefined
  let turning: Promise<void> | undefined

  /** The chain as this process reaches it; what it hands over has to be durable first (R1, R15). */
  const chainOf = (isAlive: () => boolean): Chain => {
    const gated: Record<string, unknown> = {}
    for (const [name, method] of Object.entries(chain)) {
      if (typeof method !== 'function') continue
      gated[name] = async (...args: readonly unknown[]) => {
        if (!isAlive()) return never()
        if (name === 'send' && !disk.holdsDurably(String(args[0])))
          history.fault('R15: a transaction was sent whose bytes are not durable')
        try {
          return await Reflect.apply(method, chain, args)
        } finally {
          if (!isAlive()) await never()
        }
      }
    }
    return gated as unknown as Chain
  }

  const end = (pid: number) => {
    if (life) life.isAlive = false
    life = undefined
    isBroken = false
    turning = undefined
    host.kill(pid)
    if (deathSeed === undefined) return
    disk.crash(deathSeed)
    host.reboot()
    deathSeed = undefined
    history.count('power cuts')
  }

  const watch = (pid: number, mine: { isAlive: boolean }) =>
    disk.death().then(() => {
      if (!mine.isAlive) return
      mine.isAlive = false
      history.count('gateway deaths')
      if (deathSeed === undefined) deathSeed = self.powerAtDeath
      self.powerAtDeath = undefined
      end(pid)
    })

  const start = async (): Promise<boolean> => {
    const pid = ++processes
    const mine = { isAlive: true }
    const isAlive = () => mine.isAlive
    const death = watch(pid, mine)
    const opening = open(pid, isAlive, mine)
    const opened = await Promise.race([opening, death.then(() => undefined)]).catch(
      (error: unknown) => {
        if (!(error instanceof StorageError)) throw error
        if (error.code === 'store_damaged' || error.code === 'store_too_new')
          history.fault(`R11: ${error.code}: ${error.detail}`)
        return undefined
      },
    )
    if (opened === undefined) {
      opening.catch(() => undefined)
      if (mine.isAlive) disk.kill()
      mine.isAlive = false
      end(pid)
      return false
    }
    life = Object.assign(mine, opened)
    history.count('gateway starts')
    return true
  }

  const open = async (
    pid: number,
    isAlive: () => boolean,
    mine: { isAlive: boolean },
  ): Promise<Omit<Life, 'isAlive'>> => {
    const clock = time.clockOf('gateway', isAlive)
    const random = seededRandom(script.seed * 1_000 + pid)
    const files = disk.process()
    const lock = await acquireLock({ files, liveness: host.liveness(pid), random }, store, 'serve')
    const fold = foldLedger()
    const log = await openLog(
      { files, clock, hash: systemHash },
      store,
      {
        ...storeLog,
        fence: () => lock.fence(),
        segmentBytes: script.segmentBytes,
      },
      fold.onRecord,
    )
    log.onFailure(() => {
      if (mine.isAlive) isBroken = true
    })
    const ledger = await openLedger({ clock, random }, log, fold.state, settings)
    await history.follow(
      ledger,
      [...ledger.newest()].map(({ id }) => id),
    )
    const gated = chainOf(isAlive)
    const entries: readonly RegistryEntry[] = []
    const view = createChainView({ clock, chain: gated }, fakeContracts, ledger, {
      maxHeadAgeSeconds: gatewayConfig.chain.max_head_age_seconds,
      entries,
    })
    const pipeline = createPipeline({
      ports: { clock, random },
      ledger,
      view,
      chain: gated,
      signer: executor,
      contracts: fakeContracts,
      config: gatewayConfig,
    })
    const gateway = createGateway({
      ports: { clock, random, hash: systemHash },
      config: gatewayConfig,
      ledger,
      view,
      pipeline,
    })
    const desk = createOperatorService({
      clock,
      ledger,
      configured: entries,
      isKnown: async () => true,
      code: async () => ({ pins: {}, now: {} }),
      compact: async (sinceMs) => {
        await compactLedger(log, fold.state, sinceMs)
        return { before: 0, after: 0 }
      },
    })
    await view.poll()
    return { ledger, pipeline, view, gateway, desk }
  }

  const step = async (now: Life): Promise<void> => {
    const work = now.view.poll().then(() => now.pipeline.step())
    try {
      await Promise.race([work, died(now)])
    } catch (error) {
      if (!now.isAlive) return
      if (!(error instanceof StorageError)) throw error
      // The store takes no more writes: whoever owns it ends the process (R10).
      isBroken = true
    }
  }

  const died = (now: Life): Promise<void> => (now.isAlive ? disk.death() : Promise.resolve())

  const self: GatewayProcess = {
    disk,
    powerAtDeath: undefined,
    ledger: () => life?.ledger,
    up: async () => life !== undefined || (await start()),
    turn() {
      const now = life
      if (now === undefined) return Promise.resolve()
      turning ??= step(now).finally(() => {
        if (life === now) turning = undefined
      })
      return turning
    },
    async handle({ method, path, body }) {
      const now = life
      if (now === undefined) throw new TransportError('connect', 'ECONNREFUSED', 'nobody listens')
      const request = new Request('http://gateway.test/', {
        method,
        headers: body === undefined ? {} : { 'content-type': 'application/json' },
        ...(body === undefined ? {} : { body }),
      })
      const work = now.gateway
        .handle(request, { address: '192.0.2.1', target: path, method })
        .then(async (answer) => ({
          status: answer.status,
          headers: answer.headers,
          text: await answer.text(),
        }))
      const answer = await Promise.race([work, died(now)])
      if (answer === undefined || !now.isAlive)
        throw new TransportError('exchange', 'ECONNRESET', 'the gateway died')
      return answer
    },
    async act(name, body) {
      const now = life
      if (now === undefined) return
      try {
        await Promise.race([now.desk.run(name, body), died(now)])
      } catch (error) {
        if (!(error instanceof ProposerError)) throw error
        history.count('operator acts refused')
      }
    },
    endIfBroken() {
      if (isBroken) self.crash(undefined)
    },
    crash(power) {
      deathSeed = power
      if (life) life.isAlive = false
      disk.kill()
      end(processes)
    },
  }
  return self
}
