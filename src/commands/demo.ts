/**
 * `demo`: the whole life of a proposal on a throwaway chain, narrated (contract §6). Each step is a
 * command of this program.
 */

import { join } from 'node:path'
import { knownToken } from '#chain/profiles'
import type { PolledStatus, Stage } from '#client/follow/look'
import type { QuestionContext } from '#client/trust/trust'
import { FailedError, ProposerError } from '#protocol/errors'
import { conventionalLabel } from '#protocol/proposal'
import {
  type DevGateway,
  devVariables,
  type RunStep,
  withDevGateway,
} from './hosting/foreground.js'
import { unitsOf } from './session/question.js'
import type { Context } from './terminal/context.js'
import { amountText, amountWithRaw, fold } from './terminal/render.js'
import { verb } from './terminal/verb.js'

interface DemoStep {
  readonly name: string
  readonly ok: boolean
  readonly seconds: number
  readonly detail: string
}

/** One is enough; a few make the chain look lived in. */
const questions = 3

export const demoCommand = verb({
  name: 'demo',
  about:
    'show the whole life of a proposal on a throwaway chain: question, signature, admission, execution, replay, conflict',
  examples: ['demo', 'demo --json'],
  async run(context) {
    const { output } = context
    const isHuman = output.isForPeople
    const steps: DemoStep[] = []
    const step = stepsOf(context, (done) => {
      steps.push(done)
      output.item(done)
      if (isHuman) output.text(`${stepText(context, done)}\n`)
    })
    if (isHuman)
      output.note(
        'A proposal from question to chain, with the real client, gateway and contracts:\n',
      )
    const options = { verb: 'demo', questions, step, onNote: () => undefined }
    const [failure] = await withDevGateway(context, options, (gateway) =>
      live(context, step, gateway),
    ).then(
      () => [],
      (error: unknown) => [error],
    )
    const ok = failure === undefined
    if (!isHuman) output.show('demo', { steps, ok }, [])
    if (!ok) throw failure
    if (isHuman)
      output.note(
        '\nDone; nothing is left running. Next:\n  proposer devchain --write ./dev\n  proposer serve --config ./dev/gateway.json',
      )
  },
})

function stepsOf({ clock, signal }: Context, report: (step: DemoStep) => void): RunStep {
  return async (name, work, detail) => {
    const startedMs = clock.monotonicMs()
    const done = (ok: boolean, text: string) =>
      report({
        name,
        ok,
        seconds: Math.round(clock.monotonicMs() - startedMs) / 1000,
        detail: text,
      })
    try {
      signal.throwIfAborted()
      const value = await work()
      done(true, detail(value))
      return value
    } catch (cause) {
      // A step that was cut short fails in many ways.
      const error: unknown = signal.aborted ? signal.reason : cause
      done(false, error instanceof ProposerError ? error.detail : 'unexpected failure')
      throw error
    }
  }
}

const nameWidth = 9

function stepText({ output }: Context, { name, ok, seconds, detail }: DemoStep) {
  const { columns, paint } = output
  const mark = ok ? 'ok' : 'failed'
  const painted = ok ? paint.green(mark) : paint.red(mark)
  // The time stands behind the text where it has room, so that no line is wider than the terminal.
  const room = columns - nameWidth - 1
  const lines = fold(detail, room).split('\n')
  const last = lines.pop() ?? ''
  const time = `${seconds.toFixed(1)} s`
  const end = `${paint.dim(time)} ${painted}`
  const isWide = last.length + time.length + mark.length + 3 > room
  lines.push(...(isWide ? [last, end] : [`${last}  ${end}`]))
  return `${paint.bold(name.padEnd(nameWidth))} ${lines.join(`\n${' '.repeat(nameWidth + 1)}`)}`
}

/** As whoever has these variables, and no other of this program. */
const commandsOf =
  (context: Context, variables: Readonly<Record<string, string | undefined>>) =>
  async <T extends object>(...argv: readonly string[]) => {
    const others = Object.entries(context.env).filter(([name]) => !name.startsWith('PROPOSER_'))
    let document: object = {}
    await context.runVerb(argv, {
      ...context,
      env: { ...Object.fromEntries(others), ...variables },
      environmentKey: undefined,
      endAs: () => undefined,
      output: {
        ...context.output,
        isForPeople: false,
        isByLine: false,
        notesAreTerminal: false,
        result: (_kind, data) => {
          document = data
        },
      },
    })
    return document as T
  }

interface Submitted {
  readonly outcome: string
  readonly candidate_id: string
}

type Position = Readonly<Record<'result' | 'payout' | 'reward' | 'token', string | null>>

async function live(context: Context, step: RunStep, { url, dev, folder }: DevGateway) {
  const [question] = dev.questions
  if (!question) throw new RangeError('the dev chain has no question')
  const { slug } = question
  const payload = join(folder, 'payload.json')
  const variables = devVariables(folder, url, dev)
  const proposer = commandsOf(context, variables)
  /** Its own journal or the chain would make the client refuse what is late. */
  const blind = (name: string) =>
    commandsOf(context, {
      ...variables,
      PROPOSER_HOME: join(folder, name),
      PROPOSER_RPC_URL: undefined,
    })
  await step(
    'question',
    () => proposer<{ questions: readonly [QuestionContext] }>('context', slug),
    ({ questions: [found] }) =>
      `"${slug}" is open; the bond is ${amountWithRaw(found.bond.required_bond, unitsOf(found))}; the contracts are those that are trusted`,
  )
  await step(
    'sign',
    () =>
      proposer<Record<'label' | 'signer' | 'digest' | 'journal_id', string | null>>(
        ...['sign', slug, '--outcome', 'p2', '-o', payload],
      ),
    ({ label, signer, digest, journal_id }) =>
      `"${label ?? conventionalLabel.p2}" as ${signer}, digest ${digest?.slice(0, 10)}…, in the journal as ${journal_id}`,
  )
  const { candidate_id: id } = await step(
    'submit',
    async () =>
      shown(
        await proposer<Submitted>('submit', slug, '--outcome', 'p2'),
        ({ outcome }) => outcome === 'accepted',
        'the gateway did not admit it as new',
      ),
    ({ candidate_id }) => `202: durable, candidate ${candidate_id}`,
  )
  const poll = (...until: readonly string[]) =>
    one(proposer('poll', id, ...until, '--timeout', '30'))
  for (const [name, stage, detail] of stages) await step(name, () => poll('--until', stage), detail)
  const executed = await step(
    'index',
    () => poll(),
    ({ submission }) => `matched to event ${submission?.proposal_event_index} of its block`,
  )
  await step(
    'replay',
    async () =>
      shown(
        await blind('replay')<Submitted>('submit', slug, payload),
        ({ outcome, candidate_id }) => outcome === 'replayed' && candidate_id === id,
        'the replay returned a different candidate',
      ),
    () => 'the same bytes again: 200, the same candidate, nothing new',
  )
  await step(
    'conflict',
    () =>
      blind('conflict')('submit', slug, '--outcome', 'p1', '--max-amount', '10000usdc').then(
        () => {
          throw differs('a second answer for the same round was admitted')
        },
        (error: unknown) => {
          if (error instanceof ProposerError && error.meta.exitCode === 5) return error.code
          throw error
        },
      ),
    (code) => `another answer for the same round: 409 ${code}`,
  )
  await step(
    'status',
    async () =>
      shown(
        await one(proposer('status', id)),
        (status) => status.status === 'executed' && hashOf(status) === hashOf(executed),
        'the candidate is no longer what it was',
      ),
    ({ status, candidate_id }) => `${candidate_id} is ${status}`,
  )
  /** The oracle pays bond and reward (domain §10). */
  await step(
    'settle',
    async () => {
      await proposer('devchain', 'warp', '2h')
      await proposer('devchain', 'settle', slug)
      const { positions } = await proposer<{ positions: readonly Position[] }>('positions')
      const [position] = positions
      if (position?.result === 'undisputed') return position
      throw differs('the proposal is not settled as undisputed')
    },
    (position) => settledText(position, dev.chain_id),
  )
}

function settledText({ payout, reward, token }: Position, chainId: number) {
  const amount = (raw: string | null) => amountText(raw ?? '0', knownToken(chainId, token ?? ''))
  return `two hours later on the chain, without a dispute: ${amount(payout)} paid back, ${amount(reward)} of it the reward`
}

const hashOf = ({ submission }: PolledStatus) => submission?.transaction_hash

const stages: readonly (readonly [string, Stage, (status: PolledStatus) => string])[] = [
  ['validate', 'validated', () => 'the gateway read the chain again and simulated the exact call'],
  ['select', 'selected', () => 'selected for the one execution slot of this round'],
  [
    'execute',
    'confirmed',
    (status) => `on chain and final: transaction ${hashOf(status)?.slice(0, 10)}…`,
  ],
]

async function one(told: Promise<{ readonly candidates?: readonly PolledStatus[] }>) {
  const [status] = (await told).candidates ?? []
  if (!status) throw new RangeError('no status for the candidate')
  return status
}

function shown<T>(value: T, isSo: (value: T) => boolean, detail: string) {
  if (isSo(value)) return value
  throw differs(detail)
}

const differs = (detail: string) =>
  new FailedError(
    'demo_failed',
    detail,
    'rerun `proposer demo`; if it fails again, please report it with this line',
  )
