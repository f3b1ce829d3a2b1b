/** The flow of `batch submit` and `run` (contract §6, §9), and what it would do. */
import { knownToken } from '#chain/profiles'
import type { PollResult } from '#client/follow/follow'
import { endOf, type PolledStatus } from '#client/follow/look'
import type { GatewayClient } from '#client/gateway/gateway-client'
import type { BatchRow } from '#client/input/input'
import { placeText } from '#client/input/rows'
import { labelOf, type Signed } from '#client/journal/authorizations'
import { acknowledgedOf, checkTerms, requireRules, rulesStanding } from '#client/propose/intent'
import { addTotal } from '#client/propose/limits'
import { sendable } from '#client/propose/plan'
import { asItemError, type RowResult, submitRows } from '#client/propose/submit'
import { nowOf } from '#client/trust/context'
import { PendingError, ProposerError, UsageError } from '#protocol/errors'
import { answerText, outcomeNamed } from '#protocol/outcome-words'
import { outcomeOf, priceOf } from '#protocol/proposal'
import type { Address } from '#protocol/schema'
import { follow } from '../session/follow.js'
import { asksPerson } from '../session/inputs.js'
import { collector } from '../session/intent.js'
import { findingLine } from '../session/question.js'
import type { Session } from '../session/session.js'
import { executorFlags } from '../session/settings.js'
import type { Context } from '../terminal/context.js'
import { newResults, table, together } from '../terminal/output.js'
import { amountText, type Column, counted, errorData } from '../terminal/render.js'
import { fileWord, flagWords } from '../terminal/verb.js'
import {
  type BatchFlags,
  candidateOf,
  failedBefore,
  nameOf,
  newFailures,
  notFollowed,
  type Opened,
  openBatch,
  readSource,
  resultOf,
  rowFailedError,
  signing,
  totalsData,
  totalsText,
} from './parts.js'

interface Sending {
  readonly kind: 'batch' | 'run'
  readonly wait: boolean
  ready(opened: Opened): Promise<{ readonly head?: object; readonly rest?: object }>
}

/** What was signed is in the journal, so the same input goes on where it stopped. */
export async function sendInput(
  session: Session,
  path: string,
  flags: BatchFlags,
  { kind, wait, ready }: Sending,
) {
  const { output, clock, signal, settings } = session
  const source = await readSource(session, path)
  const gateway = await session.gateway('run')
  const asks = asksPerson(session, flags)
  const opened = await openBatch(session, flags, source, { origin: gateway.origin, asks })
  if (flags.dryRun) return showBatchPlan(session, opened, gateway)
  const { count, parts, spending } = opened
  const { head, rest } = await ready(opened)
  const startedMs = clock.monotonicMs()
  const { timeoutMs } = settings
  const leftMs = () => timeoutMs && Math.max(1, timeoutMs - (clock.monotonicMs() - startedMs))
  const stream = newResults(output, kind, 'results', head)
  const { onSettled } = collector(session, flags)
  const results = new Map<BatchRow, RowResult>()
  const bar = { verb: wait ? 'sending (1 of 2)' : 'sending', total: count.rows }
  const progress = output.progress({ ...bar, done: 0 })
  // Those of a second pass take the place of the first.
  const send = async (rows: readonly BatchRow[]) => {
    const sent = submitRows({ ...parts, gateway }, rows, {
      fingerprint: count.fingerprint,
      resume: flags.resume === true,
      spending,
      timeoutMs: leftMs(),
      signal,
      chunkSize: (wantItems, options) => gateway.chunkSize(wantItems, options),
      onRetry: ({ reason, waitMs }) =>
        output.countdown(`${reason}; resending the same bytes`, { nowMs: clock.nowMs(), waitMs }),
    })
    for await (const some of sent) {
      for (const one of some) {
        results.set(one.row, one)
        for (const earlier of one.earlier ?? []) onSettled(earlier)
        if (output.isByLine) stream.item(resultOf(one))
      }
      progress.update({ ...bar, done: results.size })
    }
  }
  let broken: ProposerError | undefined
  try {
    await send(count.input)
    const unknown = kind === 'run' && !signal.aborted ? [...results.values()].filter(isUnknown) : []
    if (unknown.length > 0) {
      const payloads = counted(unknown.length, 'payload')
      output.note(`replaying ${payloads} whose outcome is unknown; nothing is signed`)
      await send(unknown.map(({ row }) => row))
    }
  } catch (error) {
    // What was sent is told, whatever becomes of the rest.
    if (!(error instanceof ProposerError) || results.size === 0) throw error
    broken = error
  } finally {
    progress.stop()
  }
  const all = [...results.values()]
  const followed = wait && !broken ? await followAll(session, all, leftMs()) : undefined
  const ends = all.map((one) => [one, endedAs(one, followed)] as const)
  const done = ends.filter(([{ outcome }, end]) =>
    followed ? end?.word === 'executed' : outcome === 'accepted' || outcome === 'replayed',
  ).length
  const end = `${done} of ${counted(count.rows, 'row')} ${wait ? 'executed' : 'accepted'} in`
  output.mark(done === count.rows, end, clock.monotonicMs() - startedMs)
  const failures = report(session, opened, stream, ends, { wait, rest })
  const again = goOnCommand(kind, path, flags)
  const isSigned = all.some(({ authorization }) => authorization !== undefined)
  const goOn = isSigned
    ? `continue with ${again}: saved bytes are sent again, nothing is signed twice`
    : `nothing was signed or sent; start again with ${again}`
  const stopped = signal.aborted ? signal.reason : undefined
  const isShown = output.isForPeople && output.isTerminal
  failures.throwAny({ total: count.rows, goOn, stopped, isShown }, broken ?? followed?.stopped)
}

/** Gateway, home and their like are added to every hint where it is printed. */
function goOnCommand(kind: Sending['kind'], path: string, flags: BatchFlags) {
  const verb = kind === 'run' ? kind : 'batch submit'
  const resume = kind === 'run' ? '' : ' --resume'
  const words = flagWords({ ...signing, ...executorFlags }, flags)
  const rows = path === '-' ? ' and the same rows on stdin' : ''
  return `\`proposer ${verb} ${fileWord(path)}${resume}${words}\`${rows}`
}

/** Their bytes are saved: sent again they settle what they are (R7). */
const isUnknown = ({ outcome, elsewhere, outOfBand }: RowResult) =>
  outcome === 'unknown' && elsewhere === undefined && outOfBand === undefined

function countsOf(results: Iterable<RowResult>) {
  const counts = { accepted: 0, replayed: 0, rejected: 0, unknown: 0, deferred: 0 }
  for (const { outcome } of results) counts[outcome]++
  return counts
}

interface End {
  readonly word: 'executed' | 'failed' | 'pending'
  readonly where: string
  readonly error?: ProposerError | undefined
  readonly status?: PolledStatus | undefined
}

/** Of the gateway's candidates; one of another gateway can only be asked for there. */
async function followAll(
  session: Session,
  results: readonly RowResult[],
  timeoutMs: number | undefined,
) {
  const targets = results.flatMap(({ candidate, elsewhere }) =>
    candidate === undefined || elsewhere !== undefined ? [] : [candidate],
  )
  const { journal } = session
  const parts = { ports: session, gateway: await session.gateway('run'), journal }
  const how = { verb: 'following (2 of 2)', timeoutMs, brief: true }
  const { candidates, refusals, stopped } = await follow(session, parts, targets, how).catch(
    (error: unknown): Pick<PollResult, 'candidates' | 'refusals' | 'stopped'> => {
      // What was admitted is reported whatever becomes of the polling.
      if (!(error instanceof ProposerError)) throw error
      return { candidates: [], refusals: new Map(), stopped: error }
    },
  )
  const byId = new Map(candidates.map((one) => [one.candidate_id, one]))
  return { byId, refusals, stopped }
}

function endedAs(
  one: RowResult,
  followed: Awaited<ReturnType<typeof followAll>> | undefined,
): End | undefined {
  const { authorization, candidate, elsewhere, row } = one
  if (candidate === undefined) return undefined
  const { candidateId } = candidate
  if (followed !== undefined && elsewhere === undefined) {
    const refusal = followed.refusals.get(candidateId)
    const status = refusal === undefined ? followed.byId.get(candidateId) : undefined
    const word: End['word'] = (status && endOf(status)) ?? 'pending'
    const known = { word, where: `candidate ${candidateId}`, status }
    if (word === 'executed') return known
    if (status && word === 'failed') return { ...known, error: rowFailedError(status) }
    const last = status ? `it is ${status.status}` : 'no status was read'
    const hint = 'check again with `proposer poll --all`'
    const pending = new PendingError('still_pending', `${last}: its end is not known yet`, {
      hint,
      retryable: true,
    })
    return { ...known, error: refusal ?? pending }
  }
  const where = placeText(row)
  const failed = authorization && failedBefore(authorization, candidate.status)
  if (followed !== undefined && candidate.status === 'executed') return { word: 'executed', where }
  if (followed !== undefined && one.error !== undefined) return { word: 'pending', where }
  if (failed) return { word: 'failed', where, error: failed }
  return followed && { word: 'pending', where, error: notFollowed(one) }
}

function report(
  { output }: Context,
  { parts, count }: Opened,
  stream: ReturnType<typeof newResults>,
  ends: readonly (readonly [RowResult, End | undefined])[],
  { wait, rest }: { readonly wait: boolean; readonly rest?: object | undefined },
) {
  const failures = newFailures()
  const totals = new Map<Address, bigint>()
  const words = wait ? { executed: 0, failed: 0, pending: 0 } : { failed: 0 }
  for (const [one, end] of ends) {
    const { row, error, outcome, authorization, candidate } = one
    if (error) failures.add(placeText(row), error, outcome, nameOf(one))
    if (end?.error) failures.add(end.where, end.error, end.word, nameOf(one))
    if (end) Object.assign(words, { [end.word]: 1 + (words[end.word] ?? 0) })
    const signed = authorization?.signed
    if (candidate !== undefined && signed?.token !== undefined)
      addTotal(totals, signed.token, BigInt(signed.terms.amount))
    if (!output.isByLine) stream.item(resultOf(one, end?.status))
    else if (end?.status)
      output.line({
        client_ref: row.clientRef ?? null,
        identifier: row.identifier,
        candidate: candidateOf(end.status),
      })
  }
  const ended = { ...countsOf(ends.map(([one]) => one)), ...words }
  const told = Object.entries(ended).flatMap(([word, of]) => (of > 0 ? `${of} ${word}` : []))
  stream.end({ summary: { rows: count.rows, ...ended }, ...rest }, [
    `${counted(count.rows, 'row')}: ${told.join(', ')}`,
    totals.size > 0 && `authorized ${totalsText(parts.trust, totals)}`,
    ...failures.blocks(),
  ])
  return failures
}

const actions = {
  sign: 'would_sign',
  import: 'would_send',
  send: 'saved_bytes',
  done: 'nothing_to_do',
  skipped: 'not_sent',
  rejected: 'rejected',
} as const

/** Throws what the run would end with; where it would refuse the sum, no row is said to be signed. */
export async function showBatchPlan(
  { output, until: signal }: Session,
  opened: Opened,
  gateway?: GatewayClient,
) {
  const { parts, count } = opened
  const stream = newResults(output, 'batch-preview', 'results')
  const counts: Record<string, number> = {}
  const totals = new Map<Address, bigint>()
  const failures = newFailures()
  const faults: string[] = []
  const rows: Previewed[] = []
  const { plans = [], refusal } = await opened.look(true)
  const shown = gateway ? await sendable({ ...parts, gateway }, plans, { signal }) : plans
  for (const plan of shown) {
    const { row, findings = [] } = plan
    const word = await judged(opened, plan)
    const kind = plan.kind === 'sign' && word.error ? 'rejected' : plan.kind
    const isHeld = refusal !== undefined && ['sign', 'import', 'send'].includes(kind)
    const one = previewOf(plan, isHeld ? actions.skipped : actions[kind], word)
    counts[one.action] = (counts[one.action] ?? 0) + 1
    if (one.action === actions.sign && one.token !== null)
      addTotal(totals, one.token, BigInt(one.amount ?? 0))
    const place = placeText(row)
    for (const finding of findings)
      if (finding.result === 'warn') faults.push(`${place}: ${findingLine(finding)}`)
    if (word.error) {
      faults.push(`${place}: ${word.error.detail}`)
      failures.add(place, asItemError(row, word.error))
    }
    stream.item(one)
    rows.push({ ...one, row })
  }
  if (rows.length > 0) {
    stream.block(together([table(columnsOf(parts.trust.chain_id), rows), ...faults]))
    stream.gap()
  }
  const told = Object.entries(counts).map(([action, of]) => `${of} ${action.replaceAll('_', ' ')}`)
  stream.end({ dry_run: true, summary: counts, totals: totalsData(totals) }, [
    told.join(', '),
    totals.size > 0 && `would authorize ${totalsText(parts.trust, totals)}`,
    refusal !== undefined && 'nothing would be signed or sent',
  ])
  if (refusal !== undefined) throw refusal
  failures.throwAny({ total: count.rows, goOn: 'retry later' })
}

type Planned = Awaited<ReturnType<typeof sendable>>[number]

async function judged({ parts, spending }: Opened, plan: Planned): Promise<Word> {
  if (plan.kind === 'rejected') return { error: plan.error }
  if (plan.kind === 'skipped') return { error: plan.result.error }
  if (plan.kind === 'done') return { error: failedBefore(plan.authorization) }
  if (plan.kind !== 'sign') return {}
  const { intent, context } = plan
  try {
    const { amountRaw } = checkTerms(intent, context, await nowOf(parts))
    const seen = acknowledgedOf(await parts.journal.load(), context)
    const standing = context.rules && rulesStanding(context.rules, intent, seen, context)
    await requireRules(intent.identifier, standing, undefined)
    // Without `fit` the sum is judged as a whole.
    if (spending.limits.fit) await spending.take(plan, amountRaw)
    return { amountRaw }
  } catch (error) {
    if (!(error instanceof UsageError)) throw error
    return { error }
  }
}

interface Word {
  readonly amountRaw?: bigint
  readonly error?: ProposerError | undefined
}

type Previewed = ReturnType<typeof previewOf> & { readonly row: BatchRow }

function previewOf(plan: Planned, action: string, { amountRaw, error }: Word) {
  const { row, findings } = plan
  const skipped = plan.kind === 'skipped' ? plan.result : undefined
  const saved = 'authorization' in plan ? plan.authorization : skipped?.authorization
  return {
    client_ref: row.clientRef ?? null,
    identifier: row.identifier,
    line: row.line,
    element: row.element,
    action,
    ...termsOf(plan, saved?.signed, amountRaw),
    journal_id: saved?.id ?? null,
    findings,
    error: errorData(error),
    elsewhere: skipped?.elsewhere,
    columns: row.columns,
  }
}

function termsOf(plan: Planned, signed: Signed | undefined, amountRaw: bigint | undefined) {
  const { row, title = null } = plan
  if (plan.kind === 'sign') {
    const { outcome } = plan.intent
    const { token } = plan.context.bond
    const amount = amountRaw === undefined ? null : String(amountRaw)
    return { outcome, label: plan.labels[outcome], title, price: plan.price, amount, token }
  }
  const isItem = row.kind === 'item'
  const key = isItem ? undefined : outcomeNamed(row.outcome)
  const own = isItem ? row.item.proposed_price : key && priceOf[key]
  const price = signed?.terms.price ?? own ?? null
  const ownAmount = isItem ? row.item.permit.amount : row.amountRaw?.toString()
  return {
    outcome: (price && outcomeOf(price)) || null,
    label: signed === undefined ? null : labelOf(signed),
    title,
    price,
    amount: signed?.terms.amount ?? ownAmount ?? null,
    token: signed?.token ?? null,
  }
}

const columnsOf = (chainId: number): readonly Column<Previewed>[] => [
  { head: 'row', right: true, cell: ({ element, line }) => String(element ?? line) },
  { head: 'reference', rank: 2, least: 8, cell: (one) => one.client_ref },
  {
    head: 'question',
    least: 6,
    cell: ({ title, columns, identifier }) => title ?? columns?.slug ?? identifier,
  },
  {
    head: 'answer',
    least: 8,
    // What is not understood is shown as it was written.
    cell: ({ outcome, label, row, price }) =>
      outcome ? answerText(outcome, label) : row.kind === 'intent' ? row.outcome : price,
  },
  {
    head: 'amount',
    right: true,
    cell({ amount, token }) {
      const units = knownToken(chainId, token ?? '')
      return amount && (units === undefined ? `${amount}raw` : amountText(amount, units))
    },
  },
  // What is to be signed is the rule; what is not stands out.
  {
    head: 'what',
    least: 6,
    cell: ({ action }) => (action === actions.sign ? '' : action.replaceAll('_', ' ')),
  },
]
