/**
 * A user's machine in a simulation: each command is a process of its own on the same disk (R12),
 * and may die at any call.
 */

import { pollCandidates } from '#client/follow/follow'
import { createGatewayClient, type GatewayClient } from '#client/gateway/gateway-client'
import { stateOf } from '#client/journal/authorizations'
import {
  type Journal,
  type JournalPorts,
  type JournalView,
  openJournal,
} from '#client/journal/journal'
import { newSpending } from '#client/propose/limits'
import type { SentOutcome } from '#client/propose/send'
import { replay, submitRows } from '#client/propose/submit'
import { gatewayContexts } from '#client/trust/context'
import { systemHash } from '#io/clock'
import type { Hex, Random, Signer } from '#ports'
import { ProposerError } from '#protocol/errors'
import { submitIntent } from '../client-world.js'
import { fakeTrust as trust } from '../fake-world.js'
import { SimFiles, SimHost, seededRandom } from '../sim-files.js'
import type { History } from './history.js'
import { rememberedKey } from './keys.js'
import type { Network } from './network.js'
import type { Machine } from './script.js'
import { type SimTime, startSeconds } from './time.js'

/** The same for all, so that signatures can be remembered. */
const deadlineSeconds = BigInt(startSeconds) + 10_800n

export interface ClientProcess {
  readonly machine: Machine
  readonly disk: SimFiles
  submit(questionId: Hex, outcome: 'p1' | 'p2', timeoutMs: number): Promise<void>
  batch(questionIds: readonly Hex[], outcome: 'p1' | 'p2', timeoutMs: number): Promise<void>
  replay(timeoutMs: number): Promise<readonly SentOutcome[]>
  status(timeoutMs: number): Promise<void>
  isUsed(): boolean
  read(): Promise<JournalView>
  crash(power: number | undefined): void
  powerAtDeath: number | undefined
}

export interface ClientSimParts {
  readonly machine: Machine
  readonly index: number
  readonly seed: number
  readonly time: SimTime
  readonly network: Network
  readonly history: History
  readonly signer: Signer
}

interface Command {
  readonly ports: JournalPorts
  readonly journal: Journal
  readonly gateway: GatewayClient
}

/**
 * Tokens and nonces are drawn alike in every schedule, so that signatures can be remembered; the
 * rest comes from the seed.
 */
function randomOf(index: number, pid: number, seed: number): Random {
  const pooled = seededRandom(index * 100 + pid)
  const own = seededRandom(seed * 1_000 + index * 100 + pid)
  return {
    uuid: own.uuid,
    bytes: (length) => (length === 6 || length === 31 ? pooled : own).bytes(length),
  }
}

export function createClientProcess(parts: ClientSimParts): ClientProcess {
  const { machine, index, time, network, history } = parts
  const disk = new SimFiles()
  disk.isTraced = false
  const host = new SimHost()
  let processes = 0
  let deathSeed: number | undefined
  const signer: Signer = {
    address: parts.signer.address,
    signDigest(digest) {
      history.signed(machine, disk, digest)
      return parts.signer.signDigest(digest)
    },
  }

  const settle = () => {
    if (deathSeed === undefined) return
    disk.crash(deathSeed)
    host.reboot()
    deathSeed = undefined
    history.count('power cuts')
  }

  const run = async <T>(work: (command: Command) => Promise<T>): Promise<T | undefined> => {
    const pid = ++processes
    let isAlive = true
    const clock = time.clockOf(machine, () => isAlive)
    const random = randomOf(index, pid, parts.seed)
    const ports: JournalPorts = {
      clock,
      random,
      hash: systemHash,
      files: disk.process(),
      liveness: host.liveness(pid),
    }
    const journal = openJournal(ports, '/home')
    const fetch = network.fetchOf(machine, disk)
    const gateway = createGatewayClient({ fetch, baseUrl: 'http://127.0.0.1:8787', clock })
    const death = disk.death().then(() => {
      if (!isAlive) return
      history.count('client deaths')
      deathSeed = client.powerAtDeath
      client.powerAtDeath = undefined
    })
    const whole = (async () => {
      const result = await work({ ports, journal, gateway })
      await journal.close()
      return result
    })()
    try {
      return (await Promise.race([whole, death])) ?? undefined
    } catch (error) {
      if (!(error instanceof ProposerError)) throw error
      if (error.code === 'store_damaged' || error.code === 'journal_damaged')
        history.fault(`R11: ${machine}: ${error.code}: ${error.detail}`)
      history.count(`client refused: ${error.code}`)
      return undefined
    } finally {
      whole.catch(() => undefined)
      isAlive = false
      host.kill(pid)
      settle()
    }
  }

  const keep = (results: readonly SentOutcome[]) => {
    for (const result of results) {
      history.count(`outcome ${result.outcome}`)
      const { candidate, error, authorization } = result
      if (error !== undefined || candidate === undefined) continue
      const { signature } = JSON.parse(authorization.signed.body) as { signature: string }
      history.kept.push({ machine, signature, candidateId: candidate.candidateId })
    }
  }

  const proposing = ({ ports, journal, gateway }: Command) => ({
    ports,
    recovery: async () => rememberedKey,
    journal,
    gateway,
    trust,
    contexts: gatewayContexts(gateway, trust, ports.clock),
    contextsAreFree: false,
    signer: async () => signer,
    proposer: async () => signer.address,
  })

  const client: ClientProcess = {
    machine,
    disk,
    powerAtDeath: undefined,
    async submit(identifier, outcome, timeoutMs) {
      const intent = { identifier, proposer: signer.address, outcome, deadlineSeconds }
      await run(async (command) =>
        keep([await submitIntent(proposing(command), intent, { timeoutMs })]),
      )
    },
    async batch(identifiers, outcome, timeoutMs) {
      await run(async (command) => {
        const batch = proposing(command)
        const rows = identifiers.map((identifier, line) => ({
          kind: 'intent' as const,
          line: line + 1,
          identifier,
          outcome,
          deadlineSeconds,
        }))
        const options = {
          fingerprint: identifiers.join(),
          timeoutMs,
          spending: newSpending(batch, { fit: false }),
        }
        for await (const some of submitRows(batch, rows, options))
          history.count('batch rows', some.length)
      })
    },
    async replay(timeoutMs) {
      const told = await run(async ({ ports, journal, gateway }) => {
        const { results } = await replay({ ports, journal, gateway }, 'all', { timeoutMs })
        keep(results)
        return results
      })
      return told ?? []
    },
    async status(timeoutMs) {
      await run(async ({ ports, journal, gateway }) => {
        const view = await journal.load()
        const nowMs = ports.clock.nowMs()
        const targets = view.authorizations.flatMap((one) => {
          const state = stateOf(one, nowMs)
          return state.kind === 'accepted'
            ? [{ candidateId: state.candidateId, identifier: one.signed.questionId }]
            : []
        })
        if (targets.length > 0)
          await pollCandidates({ ports, journal, gateway }, targets, { timeoutMs })
      })
    },
    isUsed: () => processes > 0,
    async read() {
      const random = randomOf(index, ++processes, parts.seed)
      const clock = time.clockOf(machine, () => true)
      const ports = {
        clock,
        random,
        hash: systemHash,
        files: disk.process(),
        liveness: host.liveness(processes),
      }
      return openJournal(ports, '/home').load()
    },
    crash(power) {
      deathSeed = power
      disk.kill()
      settle()
    },
  }
  return client
}
