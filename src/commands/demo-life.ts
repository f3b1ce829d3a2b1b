/**
 * One proposal from question to chain: a dev chain, a gateway on a loopback port, and the client's
 * own functions against it.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  type PolledStatus,
  pollCandidates,
  type Stage,
  statusOnce,
} from '../core/client/follow/follow.js'
import { createGatewayClient } from '../core/client/gateway/gateway-client.js'
import { openJournal } from '../core/client/journal/journal.js'
import type { SubmitParts } from '../core/client/propose/attempt.js'
import { type AuthorizeParts, authorize } from '../core/client/propose/authorize.js'
import type { SubmissionResult } from '../core/client/propose/outcome.js'
import { submitAuthorization } from '../core/client/propose/send.js'
import { gatewayContexts } from '../core/client/trust/gateway-contexts.js'
import { parseTrust } from '../core/client/trust/trust-file.js'
import type { DevDescription } from '../core/devchain/dev-chain.js'
import { configure } from '../core/host/config-file.js'
import { startServer } from '../core/host/server.js'
import { FailedError, ProposerError } from '../core/protocol/errors.js'
import { conventionalLabel } from '../core/protocol/proposal.js'
import type { OutcomeKey } from '../core/protocol/schema.js'
import { unitsOf } from './question.js'
import type { Context } from './terminal/context.js'
import { amountWithRaw } from './terminal/render.js'
import { programVersion } from './terminal/version.js'

export interface DemoStep {
  readonly name: string
  readonly ok: boolean
  readonly seconds: number
  /** One sentence for people; outside text in it is not yet escaped. */
  readonly detail: string
}

/** Runs a named step and tells how it went; what it throws goes on to the caller. */
type Step = <T>(name: string, work: () => Promise<T>, detail: (value: T) => string) => Promise<T>

function steps(context: Context, told: (step: DemoStep) => void): Step {
  return async (name, work, detail) => {
    const startedMs = context.clock.monotonicMs()
    const seconds = () => Math.round(context.clock.monotonicMs() - startedMs) / 1000
    try {
      context.signal.throwIfAborted()
      const value = await work()
      told({ name, ok: true, seconds: seconds(), detail: detail(value) })
      return value
    } catch (cause) {
      // A step that was cut short fails in many ways; the reason is one.
      const error: unknown = context.signal.aborted ? context.signal.reason : cause
      told({
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
const questionCount = 3

/**
 * Lives through every step. Everything it makes is gone when it settles, whatever happened. Rejects
 * with the first step's failure.
 */
export async function liveOnce(context: Context, told: (step: DemoStep) => void): Promise<void> {
  const step = steps(context, told)
  const folder = await mkdtemp(join(tmpdir(), 'proposer-demo-'))
  const closers: (() => Promise<void>)[] = [() => rm(folder, { recursive: true, force: true })]
  try {
    const { startDevChain, writeDevFolder } = await import('../core/devchain/dev-chain.js')
    const chain = await step(
      'chain',
      () => startDevChain({ questions: questionCount }),
      ({ description }) =>
        `a chain of its own with contracts, funded accounts and ${description.questions.length} open questions`,
    )
    closers.push(chain.stop)
    const server = await step(
      'gateway',
      async () => {
        await writeDevFolder(join(folder, 'gateway'), chain.description)
        const path = join(folder, 'gateway', 'gateway.json')
        // Its notes would fall between the steps.
        const opened = await startServer(
          context,
          await configure(context, path, { assignments: [], port: 0 }),
          {
            executorKey: { home: join(folder, 'home'), password: async () => '' },
            version: programVersion,
            onNote: () => undefined,
            onWarning: (code, detail) => context.output.warning(code, detail),
          },
        )
        closers.push(() => opened.close())
        await opened.ready()
        return opened
      },
      ({ url }) => `listens on ${url}, its store on disk`,
    )
    await propose(
      context,
      step,
      { dev: chain.description, url: server.url, home: join(folder, 'home') },
      closers,
    )
  } finally {
    for (const close of closers.reverse()) await close()
  }
}

interface Setting {
  readonly dev: DevDescription
  readonly url: string
  readonly home: string
}

async function propose(
  context: Context,
  step: Step,
  setting: Setting,
  closers: (() => Promise<void>)[],
): Promise<void> {
  const { dev, url, home } = setting
  const { clock, random, hash, files, liveness, signal } = context
  const ports = { clock, random, hash, files, liveness }
  const [question] = dev.questions
  const account = dev.accounts.find(({ role }) => role === 'proposer')
  if (!question || !account) throw new RangeError('the dev chain has no question or no proposer')
  const { parseKey, signerFromKey } = await import('../core/io/keys.js')
  const signer = signerFromKey(parseKey(account.private_key, 'the dev chain'))
  const journal = openJournal(ports, home)
  closers.push(
    () => journal.close(),
    async () => signer.dispose(),
  )
  const trust = parseTrust(dev.trust, 'the dev chain')
  const gateway = createGatewayClient({ fetch: await context.edges.fetch(), baseUrl: url, clock })
  const chain = await context.edges.chain([dev.rpc_url])

  const asked = await step(
    'question',
    async () => {
      const [result] = await gatewayContexts(gateway, trust, clock).contexts([question.slug], {
        signal,
      })
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
    ports,
    journal,
    trust,
    gateway,
    chain,
    signal,
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
  const accepted = await step(
    'submit',
    async () => admitted(await send(), 202),
    ({ candidateId }) => `202: durable, candidate ${candidateId}`,
  )

  const target = { candidateId: accepted.candidateId, identifier: question.question_id }
  const pollParts = { ports, gateway, journal }
  const follow = (until: Stage | undefined) => async () => {
    const { candidates, error } = await pollCandidates(pollParts, [target], {
      signal,
      timeoutMs: 30_000,
      ...(until ? { until } : {}),
    })
    if (error) throw error
    const [status] = candidates
    if (!status) throw new RangeError('no status of the candidate')
    return status
  }
  await step(
    'validate',
    follow('validated'),
    () => 'the gateway read the chain again and tried the exact call',
  )
  await step('select', follow('selected'), () => 'chosen for the one execution slot of this round')
  await step(
    'execute',
    follow('confirmed'),
    (status) => `on chain and final: transaction ${hashOf(status)}`,
  )
  const executed = await step(
    'index',
    follow(undefined),
    (status) => `matched to event ${status.submission?.proposal_event_index} of its block`,
  )

  await step(
    'replay',
    async () => {
      const again = admitted(await send(), 200)
      if (again.candidateId !== accepted.candidateId)
        throw differs('the replay gave another candidate')
      return again
    },
    () => 'the same bytes again: 200, the same candidate, nothing new',
  )
  await step(
    'conflict',
    async () => {
      // With a look at the chain the client itself would refuse to sign an answer that comes too
      // late.
      const { chain: _, ...blind } = parts
      return refusal(
        await submitAuthorization(parts, (await sign(blind, 'p1')).authorization, { signal }),
      )
    },
    (code) => `another answer for the same round: 409 ${code}`,
  )
  await step(
    'status',
    async () => {
      const status = await statusOnce(pollParts, target, { signal })
      if (
        status.status !== 'executed' ||
        status.submission?.transaction_hash !== executed.submission?.transaction_hash
      ) {
        throw differs('the candidate is no longer what it was')
      }
      return status
    },
    ({ status, candidate_id }) => `${candidate_id} is ${status}`,
  )
}

const hashOf = (status: Pick<PolledStatus, 'submission'>) =>
  `${status.submission?.transaction_hash?.slice(0, 10)}…`

function differs(detail: string): FailedError {
  return new FailedError('demo_failed', detail, {
    hint: 'run `proposer demo` again; if it stays so, please report it with this line',
  })
}

function admitted(
  result: SubmissionResult,
  expected: 200 | 202,
): Extract<SubmissionResult, { outcome: 'accepted' | 'replayed' }> {
  if (result.error) throw result.error
  if (result.statusCode !== expected)
    throw differs(`the gateway answered ${result.statusCode}, not ${expected}`)
  return result
}

function refusal(result: SubmissionResult): string {
  if (result.outcome === 'conflict') return result.error.code
  throw result.error ?? differs('a second answer for the same round was let in')
}
