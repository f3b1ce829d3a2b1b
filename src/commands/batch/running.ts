/**
 * The flow of `batch submit` and `run`: sends an input, sends once more what stays unknown, follows,
 * and tells what became of it (contract §6, §9).
 */
import { knownToken } from '#chain/profiles'
import type { QuestionFinding } from '#client/check/findings'
import { type BatchPolled, followBatch, type PolledCandidate } from '#client/follow/follow'
import { gravest } from '#client/gateway/answer'
import type { GatewayClient } from '#client/gateway/gateway-client'
import type { BatchRow } from '#client/input/input'
import { placeText } from '#client/input/rows'
import { labelOf } from '#client/journal/authorizations'
import { addTotal } from '#client/propose/limits'
import { asItemError } from '#client/propose/outcome'
import { sendable } from '#client/propose/plan'
import { type RowResult, submitRows } from '#client/propose/submit'
import {
  acknowledgedOf,
  checkTerms,
  requireRules,
  rulesStanding,
  toldBy,
} from '#client/propose/terms'
import { nowOf } from '#client/trust/context'
import { InterruptedError, PendingError, ProposerError, UsageError } from '#protocol/errors'
import { answerText, outcomeNamed } from '#protocol/outcome-words'
import { outcomeOf, priceOf } from '#protocol/proposal'
import type { Address } from '#protocol/schema'
import { collector, followMany, noteFallenRewards } from '../session/follow.js'
import { asksPerson } from '../session/inputs.js'
import { findingLine } from '../session/question.js'
import type { Session } from '../session/session.js'
import { executorFlags } from '../session/settings.js'
import type { Context } from '../terminal/context.js'
import { newResults, type ResultStream, table, together } from '../terminal/output.js'
import { amountText, type Column, counted, errorData } from '../terminal/render.js'
import { fileWord, flagWords } from '../terminal/verb.js'
import {
  type BatchFlags,
  batchSummaryText,
  cellsOf,
  failedBefore,
  nameOf,
  newFailures,
  notFollowed,
  type Opened,
  type Opening,
  openBatch,
  pendingError,
  readSource,
  resultOf,
  rowFailedError,
  rowFailureOf,
  signing,
  totalsText,
} from './parts.js'

type SendFlags = BatchFlags & { readonly details?: boolean }

interface Sending {
  readonly kind: 'batch' | 'run'
  readonly wait: boolean
  /** Whether the sum is wanted although nobody is asked. */
  readonly sums?: Opening['sums']
  /** Before anything is signed; `asksFor`: the gateway that a person is to agree to. */
  ready(
    opened: Opened,
    asksFor: string | false,
  ): Promise<{ readonly head?: object; readonly rest?: object }>
}

export async function sendInput(
  session: Session,
  path: string,
  flags: SendFlags,
  { ready, sums, ...how }: Sending,
) {
  const source = await readSource(session, path)
  // Opened for running before anything opens it for reading: a command has one gateway.
  const gateway = await session.gateway('run')
  const { origin } = gateway
  const asks = asksPerson(session, flags)
  const tell: Opening['tell'] = ({ rows, intents }, signer, sum) =>
    `signing up to ${counted(intents, 'proposal')} as ${signer}${sum} and sending ${rows} to ${origin}`
  const opened = await openBatch(session, flags, source, {
    ...(asks ? {} : { tell }),
    sums: (count, hasChain) => asks || sums?.(count, hasChain) === true,
    findings: asks,
  })
  if (flags.dryRun) return showBatchPlan(session, opened, gateway)
  const told = await ready(opened, asks && origin)
  await submitAndReport(session, opened, { ...flags, ...how, path, ...told })
}

type Running = SendFlags &
  Omit<Sending, 'ready' | 'sums'> &
  Awaited<ReturnType<Sending['ready']>> & { readonly path: string }

/**
 * What finishes this input, for a hint, in backticks: gateway, home and their like are added to
 * every hint where it is printed.
 */
function goOnCommand({ kind, path, ...flags }: Running) {
  const verb = kind === 'run' ? kind : 'batch submit'
  const resume = kind === 'run' ? '' : ' --resume'
  const words = flagWords({ ...signing, ...executorFlags }, flags)
  const rows = path === '-' ? ' and the same rows on stdin' : ''
  return `\`proposer ${verb} ${fileWord(path)}${resume}${words}\`${rows}`
}

/**
 * Throws the gravest of what went wrong; what was signed is in the journal, so the same input
 * goes on where it stopped.
 */
async function submitAndReport(session: Session, opened: Opened, running: Running) {
  const { output, clock } = session
  const startedMs = clock.monotonicMs()
  const gateway = await session.gateway('run')
  const { timeoutMs } = session.settings
  const leftMs = () =>
    timeoutMs === undefined ? undefined : Math.max(1, timeoutMs - (clock.monotonicMs() - startedMs))
  const { count, parts } = opened
  const report = newReport(session, opened, running)
  const held: RowResult[] = []
  const tellEarlier = collector(session, running.quiet === true, [])
  const send = (rows: readonly BatchRow[]) =>
    submitRows({ ...parts, gateway }, rows, {
      fingerprint: count.fingerprint,
      resume: running.resume === true,
      spending: opened.spending,
      timeoutMs: leftMs(),
      signal: session.signal,
      chunkSize: (wantItems, options) => gateway.chunkSize(wantItems, options),
      onRetry: ({ reason, waitMs }) =>
        output.countdown(`${reason}; resending the same bytes`, { nowMs: clock.nowMs(), waitMs }),
    })
  const bar = { verb: running.wait ? 'sending (1 of 2)' : 'sending', total: count.rows }
  const progress = output.progress({ ...bar, done: 0 })
  try {
    for await (const some of send(count.input)) {
      for (const one of some) {
        report.count(one)
        for (const earlier of one.earlier ?? []) tellEarlier(earlier)
        // With `wait` a document tells the end of each row; lines tell it as it comes.
        if (running.wait) held.push(one)
        else report.judge(one)
        if (!running.wait || output.isByLine) report.tell(one)
      }
      const { counts } = report
      const done = Object.values(counts).reduce((sum, each) => sum + each, 0)
      progress.update({ ...bar, done, counts: Object.entries(counts) })
    }
    // Their bytes are saved: sent again they settle what they are (R7).
    if (running.kind === 'run') await replayUnknown(session, held, send, report)
  } finally {
    progress.stop()
  }
  for (const one of held) report.judge(one)
  const ends = running.wait ? await followHeld(session, held, leftMs(), report) : undefined
  const { accepted, replayed } = report.counts
  const done = ends?.counts.executed ?? accepted + replayed
  const end = `${done} of ${counted(count.rows, 'row')} ${ends ? 'executed' : 'accepted'} in`
  output.mark(done === count.rows, end, clock.monotonicMs() - startedMs)
  if (ends !== undefined) {
    const byId = new Map(ends.polled.candidates.map((one) => [one.candidateId, one]))
    for (const one of held) {
      const polled = one.candidate === undefined ? undefined : byId.get(one.candidate.candidateId)
      if (!output.isByLine) report.tell(one, polled)
      else if (polled?.candidate !== undefined)
        output.line({
          client_ref: one.row.clientRef ?? null,
          identifier: one.row.identifier,
          candidate: polled.candidate,
        })
    }
  }
  report.end(ends)
}

/** Results of the second pass take the place of the first. */
async function replayUnknown(
  context: Context,
  held: RowResult[],
  send: (rows: readonly BatchRow[]) => AsyncIterable<readonly RowResult[]>,
  report: Report,
) {
  const places = new Map(
    held.flatMap((one, at) =>
      one.outcome === 'unknown' && one.elsewhere === undefined && one.outOfBand === undefined
        ? [[one.row, at] as const]
        : [],
    ),
  )
  if (places.size === 0 || context.signal.aborted) return
  context.output.note(
    `replaying ${counted(places.size, 'payload')} whose outcome is unknown; nothing is signed`,
  )
  for await (const some of send([...places.keys()])) {
    for (const one of some) {
      const at = places.get(one.row)
      const before = at === undefined ? undefined : held[at]
      if (at === undefined || before === undefined) continue
      held[at] = one
      report.count(before, -1)
      report.count(one)
      if (context.output.isByLine) report.tell(one)
    }
  }
}

interface Ends {
  readonly polled: BatchPolled
  readonly counts: { executed: number; failed: number; pending: number }
}

type Report = ReturnType<typeof newReport>

/** Counts, groups and prints; holds no row (R17). */
function newReport(context: Context, { parts, count }: Opened, running: Running) {
  const { output } = context
  const counts = { accepted: 0, replayed: 0, rejected: 0, unknown: 0, deferred: 0 }
  const failures = newFailures()
  const totals = new Map<Address, bigint>()
  const stream = newResults(output, running.kind, 'results', running.head)
  let isSigned = false
  let failed = 0
  return {
    counts,
    wrong: failures.add,
    count(one: RowResult, by: 1 | -1 = 1) {
      counts[one.outcome] += by
    },
    judge(one: RowResult) {
      const place = placeText(one.row)
      const { authorization, candidate } = one
      isSigned ||= authorization !== undefined
      if (one.error) failures.add(place, one.error, one.outcome, nameOf(one))
      const failure = running.wait ? undefined : rowFailureOf(one)
      if (failure !== undefined) {
        failed++
        failures.add(place, failure, 'failed', nameOf(one))
      }
      const token = authorization?.signed.token
      if (candidate !== undefined && token !== undefined)
        addTotal(totals, token, BigInt(authorization?.signed.terms.amount ?? 0))
    },
    tell(one: RowResult, polled?: PolledCandidate) {
      if (output.isForPeople && running.details !== true) return
      stream.item(resultOf(one, polled), () => cellsOf(one, polled))
    },
    end(ends: Ends | undefined) {
      const summary = {
        rows: count.rows,
        ...counts,
        ...(ends === undefined ? { failed } : ends.counts),
      }
      stream.end({ summary, ...running.rest }, [
        batchSummaryText(summary),
        totals.size > 0 && `authorized ${totalsText(parts.trust, totals)} in all`,
        ...failures.blocks(),
      ])
      const error = failures.error({
        total: count.rows,
        goOn: isSigned
          ? `continue with ${goOnCommand(running)}: saved bytes are sent again, nothing is signed twice`
          : `nothing was signed or sent; start again with ${goOnCommand(running)}`,
        stopped: context.signal.aborted ? context.signal.reason : undefined,
        isShown: output.isForPeople && output.isTerminal,
      })
      const stopped = ends?.polled.stopped
      // Whoever is still on the way, and a Ctrl-C, is in the error of all.
      const isTold = stopped instanceof PendingError || stopped instanceof InterruptedError
      const worst = gravest([error, isTold ? undefined : stopped]) ?? stopped
      if (worst) throw worst
    },
  }
}

async function followHeld(
  session: Session,
  held: readonly RowResult[],
  timeoutMs: number | undefined,
  report: Report,
) {
  // A candidate of another gateway can only be asked for there.
  const [away, here] = [
    held.filter(({ elsewhere }) => elsewhere !== undefined),
    held.filter(({ elsewhere }) => elsewhere === undefined),
  ]
  const isDone = ({ candidate }: RowResult) => candidate?.status === 'executed'
  const gone = away.filter((one) => one.error === undefined && rowFailureOf(one) !== undefined)
  const left = away.filter(
    (one) => one.candidate !== undefined && !isDone(one) && one.candidate.status !== 'failed',
  )
  const placed = (word: string, one: RowResult, error: ProposerError) =>
    report.wrong(placeText(one.row), error, word, nameOf(one))
  for (const one of left) if (one.error === undefined) placed('pending', one, notFollowed(one))
  const ids = here.flatMap(({ candidate }) =>
    candidate === undefined ? [] : [candidate.candidateId],
  )
  const names = new Map(here.map((one) => [one.candidate?.candidateId, nameOf(one)]))
  const gateway = await session.gateway('run')
  const { journal } = session
  const polled = await followMany(session, 'following (2 of 2)', ids.length, (shows) =>
    followBatch({ ports: session, gateway, journal }, ids, {
      ...shows,
      signal: session.signal,
      timeoutMs,
    }),
  ).catch((error: unknown): BatchPolled => {
    // What was admitted is reported whatever becomes of the polling.
    if (!(error instanceof ProposerError)) throw error
    return {
      candidates: ids.map((candidateId) => ({ candidateId, statusCode: null })),
      stopped: error,
    }
  })
  for (const one of gone) placed('failed', one, rowFailureOf(one) ?? notFollowed(one))
  const counts = { executed: away.filter(isDone).length, failed: gone.length, pending: left.length }
  for (const one of polled.candidates) {
    const { candidateId: id } = one
    const wrong = (word: 'failed' | 'pending', error: ProposerError) => {
      counts[word]++
      report.wrong(`candidate ${id}`, error, word, names.get(id) ?? id)
    }
    if (one.end === 'executed') counts.executed++
    else if (one.end === 'failed') wrong('failed', rowFailedError(one))
    else wrong('pending', one.error ?? pendingError(one, 'check again with `proposer poll --all`'))
  }
  const view = await journal.load()
  const signed = ids.flatMap((id) => view.byCandidate(id)?.signed ?? [])
  await noteFallenRewards(session, signed)
  return { polled, counts }
}

const wouldBe = {
  sign: 'would sign',
  import: 'would send',
  send: 'saved bytes',
  done: 'nothing to do',
  skipped: 'not sent',
  rejected: 'rejected',
} as const

type Planned = Awaited<ReturnType<typeof sendable>>[number]

type Terms = ReturnType<typeof termsOf>
type Reviewed = ReturnType<typeof reviewed>

const shownAtOnce = 1_000

/**
 * Throws what the run would end with: at once where it would refuse the input, after the rows where
 * it would refuse their sum: none of them is then said to be signed or sent.
 */
export async function showBatchPlan(
  { output, until: signal }: Session,
  opened: Opened,
  gateway?: GatewayClient,
) {
  const { parts, count } = opened
  const stream = newResults(output, 'batch-preview', 'results')
  const counts = new Map<string, number>()
  const totals = new Map<Address, bigint>()
  const failures = newFailures()
  const sheet = newTable(stream)
  const { plans = [], refusal } = await opened.look(true)
  const shown = gateway ? await sendable({ ...parts, gateway }, plans, { signal }) : plans
  for (const planned of shown) {
    const { plan, terms } = await judged(opened, planned)
    const isHeld = refusal !== undefined && ['sign', 'import', 'send'].includes(plan.kind)
    const action = isHeld ? wouldBe.skipped : wouldBe[plan.kind]
    counts.set(action, (counts.get(action) ?? 0) + 1)
    if (plan.kind === 'sign' && !isHeld && terms.token !== null)
      totals.set(terms.token, (totals.get(terms.token) ?? 0n) + BigInt(terms.amount ?? 0))
    const error = errorOf(plan)
    if (error !== undefined) failures.add(placeText(plan.row), asItemError(plan.row, error))
    sheet.add(reviewed(plan, terms, parts.trust.chain_id, action), error, planned.findings ?? [])
    stream.item(previewOf(plan, terms, action, planned.findings))
  }
  sheet.end()
  const summary = Object.fromEntries(
    [...counts].map(([action, count]) => [action.replaceAll(' ', '_'), count]),
  )
  const sums = [...totals].map(([token, amount]) => ({ token, amount: String(amount) }))
  stream.end({ dry_run: true, summary, totals: sums }, [
    [...counts].map(([action, count]) => `${count} ${action}`).join(', '),
    totals.size > 0 && `would authorize ${totalsText(parts.trust, totals)} in all`,
    refusal !== undefined && 'nothing would be signed or sent',
  ])
  if (refusal !== undefined) throw refusal
  const error = failures.error({ total: count.rows, goOn: 'retry later' })
  if (error) throw error
}

/**
 * The plan, or its rejection where the run would find its terms wrong or has nothing left for it.
 */
async function judged(
  { parts, spending }: Opened,
  plan: Planned,
): Promise<{ readonly plan: Planned; readonly terms: Terms }> {
  if (plan.kind !== 'sign') return { plan, terms: termsOf(plan) }
  const { intent, context, row } = plan
  const token = context.bond.token
  const { outcome } = intent
  const said: Terms = {
    outcome,
    label: plan.labels[outcome],
    title: plan.title ?? null,
    price: plan.price,
    amount: null,
    token,
  }
  try {
    const { amountRaw } = checkTerms(intent, context, await nowOf(parts))
    const seen = acknowledgedOf(await parts.journal.load(), context)
    const { rules } = plan
    const standing = rules && rulesStanding(rules.told, intent, seen, toldBy(rules))
    await requireRules(intent.identifier, standing, undefined)
    // Without `fit` the sum is judged as a whole.
    if (spending.limits.fit) await spending.take(plan, amountRaw)
    return { plan, terms: { ...said, amount: String(amountRaw) } }
  } catch (error) {
    if (!(error instanceof UsageError)) throw error
    return { plan: { kind: 'rejected', row, error }, terms: said }
  }
}

const savedOf = (plan: Planned) =>
  plan.kind === 'skipped'
    ? plan.result.authorization
    : 'authorization' in plan
      ? plan.authorization
      : undefined

/** null where it is not known; `amount` in raw units. */
function termsOf(plan: Planned) {
  const { row } = plan
  const signed = savedOf(plan)?.signed
  const key = row.kind === 'intent' ? outcomeNamed(row.outcome) : undefined
  const [price, amount] =
    signed !== undefined
      ? [signed.terms.price, signed.terms.amount]
      : row.kind === 'item'
        ? [row.item.proposed_price, row.item.permit.amount]
        : [key && priceOf[key], row.amountRaw === undefined ? null : String(row.amountRaw)]
  return {
    outcome: (price && outcomeOf(price)) || null,
    label: signed === undefined ? null : labelOf(signed),
    title: plan.title ?? null,
    price: price ?? null,
    amount,
    token: signed?.token ?? null,
  }
}

function errorOf(plan: Planned) {
  if (plan.kind === 'rejected') return plan.error
  if (plan.kind === 'skipped') return plan.result.error
  return plan.kind === 'done' ? failedBefore(plan.authorization) : undefined
}

function reviewed(plan: Planned, terms: Terms, chainId: number, action: string) {
  const { row } = plan
  const { outcome, label, title, price, amount, token } = terms
  const units = knownToken(chainId, token ?? '')
  // What is not understood is shown as it was written.
  const written = row.kind === 'intent' ? row.outcome : (price ?? '')
  return {
    row,
    // What is to be signed is the rule; what is not stands out.
    action: action === wouldBe.sign ? '' : action,
    question: title ?? row.columns?.slug ?? row.identifier,
    answer: outcome === null ? written : answerText(outcome, label),
    amount: amount === null ? '' : units === undefined ? `${amount}raw` : amountText(amount, units),
  }
}

const columns: readonly Column<Reviewed>[] = [
  { head: 'row', right: true, cell: ({ row }) => String(row.element ?? row.line) },
  { head: 'reference', rank: 2, least: 8, cell: ({ row }) => row.clientRef },
  { head: 'question', least: 6, cell: ({ question }) => question },
  { head: 'answer', least: 8, cell: ({ answer }) => answer },
  { head: 'amount', right: true, cell: ({ amount }) => amount },
  { head: 'what', least: 6, cell: ({ action }) => action },
]

function newTable(stream: ResultStream) {
  let shown: Reviewed[] = []
  let faults: string[] = []
  const end = () => {
    if (shown.length === 0) return
    stream.block(together([table(columns, shown), ...faults]))
    stream.gap()
    shown = []
    faults = []
  }
  return {
    add(row: Reviewed, error: ProposerError | undefined, found: readonly QuestionFinding[]) {
      shown.push(row)
      const place = placeText(row.row)
      for (const one of found)
        if (one.result === 'warn') faults.push(`${place}: ${findingLine(one)}`)
      if (error) faults.push(`${place}: ${error.detail}`)
      if (shown.length === shownAtOnce) end()
    },
    end,
  }
}

function previewOf(
  plan: Planned,
  terms: Terms,
  action: string,
  findings?: readonly QuestionFinding[],
) {
  return {
    client_ref: plan.row.clientRef ?? null,
    identifier: plan.row.identifier,
    line: plan.row.line,
    element: plan.row.element,
    action: action.replaceAll(' ', '_'),
    ...terms,
    journal_id: savedOf(plan)?.id ?? null,
    findings,
    error: errorData(errorOf(plan)),
    elsewhere: plan.kind === 'skipped' ? plan.result.elsewhere : undefined,
    columns: plan.row.columns,
  }
}
