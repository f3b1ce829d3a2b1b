import { createHash } from 'node:crypto'
import { createGatewayClient, type GatewayClient } from '#client/gateway/gateway-client'
import type { BatchRow } from '#client/input/input'
import type { JournaledAuthorization } from '#client/journal/authorizations'
import { type Journal, type JournalPorts, openJournal } from '#client/journal/journal'
import type { Intent, IntentInWords } from '#client/propose/intent'
import { payloadRow } from '#client/propose/payload'
import type { ProposeParts } from '#client/propose/plan'
import { type SubmitParts, sendAll } from '#client/propose/send'
import { intentRow } from '#client/propose/sign-rows'
import { type SubmitRowsOptions, submitOne } from '#client/propose/submit'
import { gatewayContexts, givenContexts } from '#client/trust/context'
import type { QuestionContext, Trust } from '#client/trust/trust'
import { signerFromKey } from '#io/keys'
import type { Clock, Fetch, Hash, Hex, Signer } from '#ports'
import { typedData } from '#protocol/witness'
import { pins, questionContext, type ScriptedGateway, scriptedGateway } from './scripted-gateway.js'
import { SimFiles, SimHost, seededRandom } from './sim-files.js'

export const sha256: Hash = { sha256: (data) => createHash('sha256').update(data).digest('hex') }

export interface EventClock extends Clock {
  drive<T>(work: Promise<T>, unless?: Promise<unknown>): Promise<T>
  setMs(ms: number): void
}

export function createSleepers(nowMs: () => number) {
  let sleepers: { readonly atMs: number; readonly wake: () => void }[] = []
  const sleep: Clock['sleep'] = (ms, signal) =>
    new Promise((resolve, reject) => {
      if (signal?.aborted === true) return reject(signal.reason)
      const stop = () => {
        sleepers = sleepers.filter((each) => each !== sleeper)
        reject(signal?.reason)
      }
      const wake = () => {
        signal?.removeEventListener('abort', stop)
        resolve()
      }
      const sleeper = { atMs: nowMs() + Math.max(0, ms), wake }
      sleepers.push(sleeper)
      signal?.addEventListener('abort', stop)
    })
  return { sleep, next: () => sleepers.sort((a, b) => a.atMs - b.atMs).shift() }
}

export function eventClock(startMs = 1_760_000_100_000): EventClock {
  let timeMs = startMs
  const { sleep, next: nextSleeper } = createSleepers(() => timeMs)
  return {
    nowMs: () => timeMs,
    monotonicMs: () => timeMs,
    setMs: (ms) => {
      timeMs = ms
    },
    sleep,
    async drive(work, unless) {
      let done = false
      const finish = () => {
        done = true
      }
      work.then(finish, finish)
      unless?.then(finish, finish)
      while (!done) {
        for (let turn = 0; turn < 40 && !done; turn++)
          await new Promise((resolve) => setImmediate(resolve))
        const next = done ? undefined : nextSleeper()
        if (next === undefined) continue
        timeMs = Math.max(timeMs, next.atMs)
        next.wake()
      }
      return work
    },
  }
}

export interface World {
  readonly sim: SimFiles
  readonly host: SimHost
  readonly clock: EventClock
  readonly gateway: ScriptedGateway
  readonly trust: Trust
  readonly signatures: string[]
  readonly drive: EventClock['drive']
  /** As another process reads it. */
  journal(): ReturnType<Journal['load']>
  run(options?: { fetch?: Fetch; origin?: string; key?: number }): Run
}

/** The typed data of its question, as an honest gateway has them. */
export function honestTypedData({ gateway }: World, terms: Parameters<typeof typedData>[3]) {
  const { request, identifier, contracts, bond } = gateway.question
  const round = {
    ...{ ...request, identifier: identifier.raw },
    ancillaryData: request.ancillary_data,
  }
  const domain = {
    chainId: 31337,
    permit2: contracts.permit2,
    signedProposer: contracts.signed_proposer,
  }
  return typedData(domain as never, round as never, bond.token as Hex, terms)
}

export interface Run {
  readonly parts: SubmitParts & ProposeParts
  readonly journal: Journal
  readonly client: GatewayClient
  readonly notes: string[]
  readonly intent: Intent
}

export const keyBytes = (n: number): Uint8Array => new Uint8Array(32).fill(n)

export function makeWorld(seed = 1): World {
  const sim = new SimFiles()
  const host = new SimHost()
  const clock = eventClock()
  const gateway = scriptedGateway(questionContext('Will it hold?'))
  const trust: Trust = { ...pins, slugs: { 'will-it-hold': gateway.question.question_id } }
  const signatures: string[] = []
  let processes = 0
  return {
    sim,
    host,
    clock,
    gateway,
    trust,
    signatures,
    drive: clock.drive,
    journal() {
      return clock.drive(this.run().journal.load())
    },
    run({ fetch = gateway.fetch, origin, key = 7 } = {}) {
      processes++
      const ports: JournalPorts = {
        clock,
        random: seededRandom(seed * 1_000 + processes),
        hash: sha256,
        files: sim.process(),
        liveness: host.liveness(processes),
      }
      const journal = openJournal(ports, '/home')
      const client = createGatewayClient({
        fetch,
        baseUrl: gateway.url,
        clock,
        ...(origin === undefined ? {} : { origin }),
      })
      const signer = countingSigner(key, signatures)
      const notes: string[] = []
      const parts = {
        ports,
        journal,
        trust,
        gateway: client,
        signer: async () => signer,
        note: (text: string) => notes.push(text),
        contexts: gatewayContexts(client, trust, clock),
        contextsAreFree: false,
        proposer: async () => signer.address,
      }
      const intent: Intent = {
        identifier: gateway.question.question_id,
        proposer: signer.address,
        outcome: 'p2',
      }
      return { parts, journal, client, notes, intent }
    },
  }
}

type SendParts = SubmitParts & ProposeParts

/** As `submit` tells it: what was not even signed is thrown. */
async function submitted(parts: SendParts, row: BatchRow, options: SubmitRowsOptions) {
  const result = await submitOne({ ...parts, form: 'single' }, row, options)
  const { authorization, candidate } = result
  if (authorization === undefined) throw result.error
  const { id: journalId, signed } = authorization
  const candidateId = candidate?.candidateId ?? ''
  return { ...result, authorization, journalId, candidateId, questionId: signed.questionId }
}

export const submitIntent = (
  parts: SendParts,
  intent: IntentInWords,
  options: SubmitRowsOptions = {},
) => submitted(parts, intentRow(intent), options)

export const submitPayload = async (
  parts: SendParts,
  identifier: string,
  body: string,
  { supersede, ...options }: SubmitRowsOptions & { readonly supersede?: string } = {},
) => submitted(parts, payloadRow(identifier, body, supersede), options)

export async function sendAgain(
  parts: SubmitParts,
  authorization: JournaledAuthorization,
  options: SubmitRowsOptions = {},
) {
  const { timeoutMs, signal, onRetry } = options
  const sending = { timeoutMs, signal, onRetry }
  const [result] = (await sendAll(parts, [authorization], sending)).results
  if (result === undefined) throw new Error('an item was left without an outcome')
  return result
}

/** As a file holds it, checked like that of any source. */
export const atHand = (
  { trust, chain, ports: { clock } }: ProposeParts,
  context: () => Promise<QuestionContext>,
) => ({ contexts: givenContexts({ trust, chain, clock }, context), contextsAreFree: true })

function countingSigner(key: number, signatures: string[]): Signer {
  const signer = signerFromKey(keyBytes(key))
  return {
    address: signer.address,
    signDigest(digest) {
      signatures.push(digest)
      return signer.signDigest(digest)
    },
  }
}

export function nextRound(gateway: ScriptedGateway, timestamp = '1760000050'): void {
  gateway.question.request.timestamp = timestamp
}
