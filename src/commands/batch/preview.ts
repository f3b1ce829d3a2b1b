/**
 * `--dry-run` of a batch: what would become of each row, and for how much; it ends with the exit
 * code of the run (contract §6).
 */

import { knownToken } from '#chain/profiles'
import type { QuestionFinding } from '#client/check/findings'
import type { GatewayClient } from '#client/gateway/gateway-client'
import type { BatchRow } from '#client/input/input'
import { placeText } from '#client/input/rows'
import { labelOf } from '#client/journal/authorizations'
import { asItemError } from '#client/propose/outcome'
import { sendable } from '#client/propose/plan'
import { acknowledgedOf, requireRules, rulesStanding, toldBy } from '#client/propose/rules'
import { checkTerms } from '#client/propose/terms'
import { nowOf } from '#client/trust/context'
import { type ProposerError, UsageError } from '#protocol/errors'
import { answerText, keyNamed } from '#protocol/outcome-words'
import { outcomeOf, priceOf } from '#protocol/proposal'
import type { Address, OutcomeKey } from '#protocol/schema'
import { findingLine } from '../session/checks.js'
import type { Context } from '../terminal/context.js'
import { table, together } from '../terminal/output.js'
import { amountText } from '../terminal/render.js'
import { newResults, type ResultStream } from '../terminal/results.js'
import type { Column } from '../terminal/table.js'
import { newFailures } from './failures.js'
import { type Opened, totalsText } from './parts.js'
import { failedBefore } from './row-text.js'

const wouldBe = {
  sign: 'would sign',
  import: 'would send',
  send: 'saved bytes',
  done: 'nothing to do',
  skipped: 'not sent',
  rejected: 'rejected',
} as const
const notSent = wouldBe.skipped

type Planned = Awaited<ReturnType<typeof sendable>>[number]

/** null where it is not known; `amount` in raw units. */
interface Terms {
  readonly outcome: OutcomeKey | null
  readonly label: string | null
  readonly title: string | null
  readonly price: string | null
  readonly amount: string | null
  readonly token: Address | null
}

interface Reviewed {
  readonly row: BatchRow
  readonly action: string
  readonly question: string
  readonly answer: string
  readonly amount: string
}
const shownAtOnce = 1_000

/**
 * Throws what the run would end with: at once where it would refuse the input, after the rows
 * where it would
 * refuse their sum: none of them is then said to be signed or sent.
 */
export async function showBatchPlan(
  context: Context,
  opened: Opened,
  {
    gateway,
    ...options
  }: {
    readonly signal: AbortSignal
    readonly gateway?: GatewayClient
  },
): Promise<void> {
  const { parts, count } = opened
  const stream = newResults(context.output, 'batch-preview', 'results')
  const counts = new Map<string, number>()
  const totals = new Map<Address, bigint>()
  const failures = newFailures()
  const sheet = newTable(stream)
  const { plans = [], refusal } = await opened.look(true)
  const shown =
    gateway === undefined ? plans : await sendable({ ...parts, gateway }, plans, options)
  for (const planned of shown) {
    const { plan, terms } = await judged(opened, planned)
    const isHeld = refusal !== undefined && ['sign', 'import', 'send'].includes(plan.kind)
    const action = isHeld ? notSent : wouldBe[plan.kind]
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

function termsOf(plan: Planned): Terms {
  const { row } = plan
  const signed = savedOf(plan)?.signed
  const key = row.kind === 'intent' ? keyNamed(row.outcome) : undefined
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

function reviewed(plan: Planned, terms: Terms, chainId: number, action: string): Reviewed {
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
): object {
  const { outcome, label, title, price, amount, token } = terms
  const error = errorOf(plan)
  return {
    client_ref: plan.row.clientRef ?? null,
    identifier: plan.row.identifier,
    line: plan.row.line,
    ...(plan.row.element === undefined ? {} : { element: plan.row.element }),
    action: action.replaceAll(' ', '_'),
    outcome,
    label,
    title,
    price,
    amount,
    token,
    journal_id: savedOf(plan)?.id ?? null,
    ...(findings && { findings }),
    error: error === undefined ? null : { code: error.code, detail: error.detail },
    ...(plan.kind === 'skipped' && plan.result.elsewhere !== undefined
      ? { elsewhere: plan.result.elsewhere }
      : {}),
    ...(plan.row.columns === undefined ? {} : { columns: plan.row.columns }),
  }
}
