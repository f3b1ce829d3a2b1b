/** `demo`: the life of a proposal, narrated (contract §6). Each step is a command of ours. */

import { join } from 'node:path'
import { knownToken } from '#chain/profiles'
import type { PolledStatus, Stage } from '#client/follow/look'
import type { QuestionContext } from '#client/trust/trust'
import { exit, FailedError, ProposerError } from '#protocol/errors'
import { conventionalLabel } from '#protocol/proposal'
import {
  type DevGateway,
  devVariables,
  type RunStep,
  withDevGateway,
} from './hosting/foreground.js'
import { unitsOf } from './session/question.js'
import type { Context } from './terminal/context.js'
import { amountText, amountWithRaw, fold, glue } from './terminal/render.js'
import { verb } from './terminal/verb.js'

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
    const options = { verb: 'demo', chain: { questions: 3 }, step, onNote: () => undefined }
    const [end] = await Promise.allSettled([
      withDevGateway(context, options, (gateway) => live(context, step, gateway)),
    ])
    const ok = end.status === 'fulfilled'
    if (!isHuman) output.show('demo', { steps, ok }, [])
    if (!ok) throw end.reason
    if (isHuman)
      output.note(
        '\nDone; nothing is left running. Next:\n  proposer devchain --write ./dev\n  proposer serve --config ./dev/gateway.json',
      )
  },
})

type DemoStep = Readonly<Record<'name' | 'detail', string> & { ok: boolean; seconds: number }>

function stepsOf({ clock, signal }: Context, report: (step: DemoStep) => void): RunStep {
  return async (name, work, detailOf) => {
    const startedMs = clock.monotonicMs()
    const done = (ok: boolean, detail: string) =>
      report({ name, ok, seconds: Math.round(clock.monotonicMs() - startedMs) / 1000, detail })
    try {
      signal.throwIfAborted()
      const value = await work()
      done(true, detailOf(value))
      return value
    } catch (cause) {
      const error: unknown = signal.aborted ? signal.reason : cause
      done(false, error instanceof ProposerError ? error.detail : 'unexpected failure')
      throw error
    }
  }
}

const nameWidth = 10

function stepText({ output }: Context, { name, ok, seconds, detail }: DemoStep) {
  const { columns, paint } = output
  const mark = ok ? 'ok' : 'failed'
  const text = `${name.padEnd(nameWidth)}${detail}  ${seconds.toFixed(1)}${glue}s`
  const told = fold(text, columns - mark.length - 1, ' '.repeat(nameWidth)).replace(glue, ' ')
  const painted = ok ? paint.green(mark) : paint.red(mark)
  return `${paint.bold(told.slice(0, nameWidth))}${told.slice(nameWidth)} ${painted}`
}

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

type Signed = Readonly<Record<'label' | 'signer' | 'digest' | 'journal_id', string | null>>
type Submitted = Readonly<Record<'outcome' | 'candidate_id', string>>
type Position = Readonly<Record<'result' | 'payout' | 'reward' | 'token', string | null>>

async function live(context: Context, step: RunStep, { url, dev, folder }: DevGateway) {
  const slug = dev.questions[0]?.slug ?? ''
  const payload = join(folder, 'payload.json')
  const variables = devVariables(folder, url, dev)
  const proposer = commandsOf(context, variables)
  /** Its own journal or the chain would make the client refuse what is late. */
  const blind = (name: string) => {
    const PROPOSER_HOME = join(folder, name)
    return commandsOf(context, { ...variables, PROPOSER_HOME, PROPOSER_RPC_URL: undefined })
  }
  await step(
    'question',
    () => proposer<{ questions: readonly [QuestionContext] }>('context', slug),
    ({ questions: [found] }) =>
      `"${slug}" is open; the bond is ${amountWithRaw(found.bond.required_bond, unitsOf(found))}; the contracts are those that are trusted`,
  )
  await step(
    'sign',
    () => proposer<Signed>('sign', slug, '--outcome', 'p2', '-o', payload),
    ({ label, signer, digest, journal_id }) =>
      `"${label ?? conventionalLabel.p2}" as ${signer}, digest ${digest?.slice(0, 10)}…, in the journal as ${journal_id}`,
  )
  const submitted = async () => {
    const told = await proposer<Submitted>('submit', slug, '--outcome', 'p2')
    return sure(told, told.outcome === 'accepted', 'the gateway did not admit it as new')
  }
  const { candidate_id: id } = await step(
    'submit',
    submitted,
    ({ candidate_id }) => `202: durable, candidate ${candidate_id}`,
  )
  const look = async (...argv: readonly string[]) => {
    const { candidates } = await proposer<{ candidates: readonly [PolledStatus] }>(...argv)
    return candidates[0]
  }
  const poll = (...until: readonly string[]) => look('poll', id, ...until, '--timeout', '30')
  for (const [name, stage, detail] of stages) await step(name, () => poll('--until', stage), detail)
  const executed = await step(
    'index',
    () => poll(),
    ({ submission }) => `matched to event ${submission?.proposal_event_index} of its block`,
  )
  const replayed = async () => {
    const told = await blind('replay')<Submitted>('submit', slug, payload)
    const isSame = told.outcome === 'replayed' && told.candidate_id === id
    return sure(told, isSame, 'the replay returned a different candidate')
  }
  await step('replay', replayed, () => 'the same bytes again: 200, the same candidate, nothing new')
  const refused = () =>
    blind('conflict')('submit', slug, '--outcome', 'p1', '--max-amount', '10000usdc').then(
      () => sure('', false, 'a second answer for the same round was admitted'),
      (error: unknown) => {
        if (error instanceof ProposerError && error.meta.exitCode === exit.reconcile)
          return error.code
        throw error
      },
    )
  await step('conflict', refused, (code) => `another answer for the same round: 409 ${code}`)
  const kept = async () => {
    const status = await look('status', id)
    const isSame = status.status === 'executed' && hashOf(status) === hashOf(executed)
    return sure(status, isSame, 'the candidate is no longer what it was')
  }
  await step('status', kept, ({ status }) => `${id} is ${status}`)
  /** The oracle pays bond and reward (domain §10). */
  const settled = async () => {
    await proposer('devchain', 'warp', '2h')
    await proposer('devchain', 'settle', slug)
    const { positions } = await proposer<{ positions: readonly [Position] }>('positions')
    const isWon = positions[0]?.result === 'undisputed'
    return sure(positions[0], isWon, 'the proposal is not settled as undisputed')
  }
  await step('settle', settled, ({ payout, reward, token }) => {
    const units = knownToken(dev.chain_id, token ?? '')
    return `two hours later on the chain, without a dispute: ${amountText(payout ?? '0', units)} paid back, ${amountText(reward ?? '0', units)} of it the reward`
  })
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

function sure<T>(value: T, isSo: boolean, fault: string) {
  if (isSo) return value
  throw new FailedError(
    'demo_failed',
    fault,
    'rerun `proposer demo`; if it fails again, please report it with this line',
  )
}
