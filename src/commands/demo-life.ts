/**
 * One proposal from question to chain: a dev chain, a gateway on a loopback port, and the client's
 * own functions against it.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { knownToken } from '../core/chain/profiles.js'
import { pollCandidates } from '../core/client/follow/follow.js'
import { statusOnce } from '../core/client/follow/look.js'
import type { PolledStatus, Stage } from '../core/client/follow/status.js'
import { createGatewayClient } from '../core/client/gateway/gateway-client.js'
import { openJournal } from '../core/client/journal/journal.js'
import type { SubmitParts } from '../core/client/propose/attempt.js'
import { authorize } from '../core/client/propose/authorize.js'
import type { SubmissionResult } from '../core/client/propose/outcome.js'
import type { AuthorizeParts } from '../core/client/propose/prepare.js'
import { submitAuthorization } from '../core/client/propose/send.js'
import { gatewayContexts } from '../core/client/trust/gateway-contexts.js'
import { parseTrust } from '../core/client/trust/trust-file.js'
import type { DevDescription } from '../core/devchain/dev-chain.js'
import { configure } from '../core/host/config-file.js'
import { startServer } from '../core/host/server.js'
import { type Closers, createClosers } from '../core/io/closers.js'
import { FailedError, ProposerError } from '../core/protocol/errors.js'
import { conventionalLabel } from '../core/protocol/proposal.js'
import type { OutcomeKey } from '../core/protocol/schema.js'
import { programVersion } from '../core/protocol/version.js'
import { unitsOf } from './session/question.js'
import type { Context } from './terminal/context.js'
import { amountText, amountWithRaw } from './terminal/render.js'

export interface DemoStep {
  readonly name: string
  readonly ok: boolean
  readonly seconds: number
  /** One sentence for people; outside text in it is not yet escaped. */
  readonly detail: string
}

/** Runs a named step and tells how it went; what it throws goes on to the caller. */
export type RunStep = <T>(
  name: string,
  work: () => Promise<T>,
  detail: (value: T) => string,
) => Promise<T>

/** Makes `RunStep`s that are reported one by one. */
export function steps(context: Context, report: (step: DemoStep) => void): RunStep {
  return async (name, work, detail) => {
    const startedMs = context.clock.monotonicMs()
    const seconds = () => Math.round(context.clock.monotonicMs() - startedMs) / 1000
    try {
      context.signal.throwIfAborted()
      const value = await work()
      report({ name, ok: true, seconds: seconds(), detail: detail(value) })
      return value
    } catch (cause) {
      // A step that was cut short fails in many ways; the reason is one.
      const error: unknown = context.signal.aborted ? context.signal.reason : cause
      report({
        name,
        ok: false,
        seconds: seconds(),
        detail: error instanceof ProposerError ? error.detail : 'unexpected failure',
      })
      throw error
    }
  }
}

/**
 * Questions of the demo's chain: the one it answers is enough; a few make the chain look lived in.
 */
export const questionCount = 3

/** The oracle's default liveness (domain §4). */
const livenessSeconds = 7_200

/**
 * Lives through every step. Everything it makes is gone when it settles, whatever happened. Rejects
 * with the first step's failure.
 */
export async function liveOnce(context: Context, report: (step: DemoStep) => void): Promise<void> {
  const step = steps(context, report)
  const folder = await mkdtemp(join(tmpdir(), 'proposer-demo-'))
  const home = join(folder, 'home')
  const closers = createClosers()
  closers.add(() => rm(folder, { recursive: true, force: true }))
  try {
    const { startDevChain } = await import('../core/devchain/dev-chain.js')
    const { writeDevFolder } = await import('../core/devchain/dev-folder.js')
    const { description, stop } = await step(
      'chain',
      () => startDevChain({ questions: questionCount }),
      (chain) =>
        `a throwaway chain with contracts, funded accounts and ${chain.description.questions.length} open questions`,
    )
    closers.add(stop)
    const { url } = await step(
      'gateway',
      async () => {
        const files = join(folder, 'gateway')
        await writeDevFolder(files, description)
        const config = { assignments: [], port: 0 }
        // The store that the environment names is not one for a chain that is thrown away.
        const machine = { ...context, storeUrlFile: undefined }
        const loaded = await configure(machine, join(files, 'gateway.json'), config)
        const opened = await startServer(context, loaded, {
          executorKey: { home, password: async () => '' },
          version: programVersion,
          // Its notes would fall between the steps.
          onNote: () => undefined,
          onWarning: (code, detail) => context.output.warning(code, detail),
        })
        closers.add(opened.close)
        await opened.ready()
        return opened
      },
      (server) => `listens on ${server.url}, its store on disk`,
    )
    await propose(context, step, { dev: description, url, home }, closers)
  } finally {
    await closers.close()
  }
}

interface Setting {
  readonly dev: DevDescription
  readonly url: string
  readonly home: string
}

/** What the client's functions take, for the first proposer and the first question of the chain. */
export async function openClient(context: Context, { dev, url, home }: Setting, closers: Closers) {
  const { clock, random, hash, files, liveness, signal, edges } = context
  const ports = { clock, random, hash, files, liveness }
  const [question] = dev.questions
  const account = dev.accounts.find(({ role }) => role === 'proposer')
  if (!question || !account) throw new RangeError('the dev chain has no question or no proposer')
  const { parseKey, signerFromKey } = await import('../core/io/keys.js')
  const signer = signerFromKey(parseKey(account.private_key, 'the dev chain'))
  closers.add(signer.dispose)
  const journal = openJournal(ports, home)
  closers.add(() => journal.close())
  const trust = parseTrust(dev.trust, 'the dev chain')
  const gateway = createGatewayClient({ fetch: await edges.fetch(), baseUrl: url, clock })
  const chain = await edges.chain([dev.rpc_url])
  return { ports, journal, trust, gateway, chain, signal, signer, question }
}

type Client = Awaited<ReturnType<typeof openClient>>

/** Asks for the question and signs an answer, in two steps; what sends it, and signs another. */
export async function signAnswer(context: Context, step: RunStep, client: Client) {
  const { gateway, trust, signal, signer, question } = client
  const asked = await step(
    'question',
    async () => {
      const source = gatewayContexts(gateway, trust, context.clock)
      const [result] = await source.contexts([question.slug], { signal })
      if (!result) throw new RangeError('no answer for the question')
      if (result.error) throw result.error
      return result.context
    },
    (found) => {
      const bond = amountWithRaw(found.bond.required_bond, unitsOf(found))
      return `"${question.slug}" is open; the bond is ${bond}; the contracts are those that are trusted`
    },
  )
  const label =
    asked.outcomes?.find(({ outcome }) => outcome === 'p2')?.label ?? conventionalLabel.p2
  const parts: SubmitParts & AuthorizeParts = {
    ...client,
    context: async () => asked,
    signer: async () => signer,
  }
  const sign = (from: AuthorizeParts, outcome: OutcomeKey) =>
    authorize(from, { identifier: question.question_id, proposer: signer.address, outcome })
  const signed = await step(
    'sign',
    () => sign(parts, 'p2'),
    ({ digest, journalId }) =>
      `"${label}" as ${signer.address}, digest ${digest?.slice(0, 10)}…, in the journal as ${journalId}`,
  )
  const send = () => submitAuthorization(parts, signed.authorization, { signal })
  return { parts, sign, send }
}

async function propose(
  context: Context,
  step: RunStep,
  setting: Setting,
  closers: Closers,
): Promise<void> {
  const client = await openClient(context, setting, closers)
  const { parts, sign, send } = await signAnswer(context, step, client)
  const { signal, question } = client
  const { candidateId } = await step(
    'submit',
    async () => admittedAs(await send(), 202),
    (accepted) => `202: durable, candidate ${accepted.candidateId}`,
  )
  const target = { candidateId, identifier: question.question_id }
  const executed = await followToEnd(client, step, target)
  await replayStep(step, send, candidateId)
  await step(
    'conflict',
    async () => {
      // With a look at the chain the client itself would refuse to sign an answer that comes too
      // late.
      const { chain: _, ...blind } = parts
      const { authorization } = await sign(blind, 'p1')
      return refusal(await submitAuthorization(parts, authorization, { signal }))
    },
    (code) => `another answer for the same round: 409 ${code}`,
  )
  await step(
    'status',
    async () => {
      const status = await statusOnce(client, target, { signal })
      const hash = status.submission?.transaction_hash
      if (status.status === 'executed' && hash === executed.submission?.transaction_hash)
        return status
      throw differs('the candidate is no longer what it was')
    },
    ({ status, candidate_id }) => `${candidate_id} is ${status}`,
  )
  await settleStep(context, step, client, setting)
}

/** Past its liveness the oracle settles the proposal, and pays bond and reward (domain §10). */
const settleStep = (
  { files, hash }: Context,
  step: RunStep,
  { chain, trust, journal, signal, signer, question }: Client,
  { dev, home }: Setting,
): Promise<unknown> =>
  step(
    'settle',
    async () => {
      const { settleRound, warp } = await import('../core/devchain/dev-life.js')
      const { readPositions } = await import('../core/client/positions/positions.js')
      await warp(dev.rpc_url, livenessSeconds)
      await settleRound(dev.rpc_url, question.slug)
      const reading = { chain, trust, files, hash, home, signal, view: await journal.load() }
      const { positions } = await readPositions(reading, [signer.address])
      const [position] = positions
      if (position?.result === 'undisputed') return position
      throw differs('the proposal is not settled as undisputed')
    },
    ({ payout, reward, token }) => {
      const amount = (raw: string | null) =>
        amountText(raw ?? '0', knownToken(dev.chain_id, token ?? ''))
      return `two hours later on the chain, without a dispute: ${amount(payout)} paid back, ${amount(reward)} of it the reward`
    },
  )

interface Target {
  readonly candidateId: string
  readonly identifier: string
}

/** What follows a candidate to a stage, by default to its end; its status then. */
export const followTo =
  (client: Client, target: Target, until?: Stage) => async (): Promise<PolledStatus> => {
    const options = { signal: client.signal, timeoutMs: 30_000, ...(until && { until }) }
    const { candidates, error } = await pollCandidates(client, [target], options)
    if (error) throw error
    const [status] = candidates
    if (!status) throw new RangeError('no status for the candidate')
    return status
  }

/** Follows the candidate through each stage; its status at the end. */
async function followToEnd(client: Client, step: RunStep, target: Target): Promise<PolledStatus> {
  await step(
    'validate',
    followTo(client, target, 'validated'),
    () => 'the gateway read the chain again and simulated the exact call',
  )
  await step(
    'select',
    followTo(client, target, 'selected'),
    () => 'selected for the one execution slot of this round',
  )
  await step(
    'execute',
    followTo(client, target, 'confirmed'),
    (status) => `on chain and final: transaction ${hashOf(status)}`,
  )
  return step(
    'index',
    followTo(client, target),
    (status) => `matched to event ${status.submission?.proposal_event_index} of its block`,
  )
}

/** The beginning of a transaction's hash, for people. */
export const hashOf = (status: Pick<PolledStatus, 'submission'>) =>
  `${status.submission?.transaction_hash?.slice(0, 10)}…`

/** What the demo shows is not so. */
export function differs(detail: string): FailedError {
  return new FailedError(
    'demo_failed',
    detail,
    'rerun `proposer demo`; if it fails again, please report it with this line',
  )
}

/** What was admitted with that status. Throws FailedError `demo_failed`, or the refusal. */
export function admittedAs(
  result: SubmissionResult,
  expected: 200 | 202,
): Extract<SubmissionResult, { outcome: 'accepted' | 'replayed' }> {
  if (result.error) throw result.error
  if (result.statusCode !== expected)
    throw differs(`the gateway answered ${result.statusCode}, not ${expected}`)
  return result
}

/** The step that sends admitted bytes once more: 200, and the same candidate. */
export const replayStep = (
  step: RunStep,
  send: () => Promise<SubmissionResult>,
  candidateId: string,
): Promise<void> =>
  step(
    'replay',
    async () => {
      const again = admittedAs(await send(), 200)
      if (again.candidateId !== candidateId)
        throw differs('the replay returned a different candidate')
    },
    () => 'the same bytes again: 200, the same candidate, nothing new',
  )

function refusal(result: SubmissionResult): string {
  if (result.outcome === 'conflict') return result.error.code
  throw result.error ?? differs('a second answer for the same round was admitted')
}
