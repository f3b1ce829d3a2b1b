/**
 * `--dry-run` of a batch: what would become of each row, and for how much; it ends with the exit
 * code of the run (contract §6).
 */

import { knownToken } from '../../core/chain/profiles.js'
import type { GatewayClient } from '../../core/client/gateway/gateway-client.js'
import { placeText } from '../../core/client/input/rows.js'
import { planRows, planSubmission } from '../../core/client/propose/plan.js'
import { asItemError } from '../../core/client/propose/row-outcome.js'
import { checkSpending, inGroups } from '../../core/client/propose/spending.js'
import { checkTerms } from '../../core/client/propose/terms.js'
import { chainNow } from '../../core/client/trust/context.js'
import { UsageError } from '../../core/protocol/errors.js'
import { keyNamed } from '../../core/protocol/outcome-words.js'
import { outcomeOf, priceOf } from '../../core/protocol/proposal.js'
import type { Address } from '../../core/protocol/schema.js'
import type { Context } from '../terminal/context.js'
import { amountText } from '../terminal/render.js'
import { type Opened, totalsText } from './parts.js'
import { newResultStream, newTally } from './text.js'
import { failedBefore } from './wait.js'

const wouldBe = {
  sign: 'would sign',
  import: 'would send',
  send: 'saved bytes',
  done: 'nothing to do',
  skipped: 'not sent',
  rejected: 'rejected',
} as const
type Planned = Awaited<ReturnType<typeof planSubmission>>[number]

/** What a row says or would say; `amount` in raw units, null where it is not known. */
interface Terms {
  /** null for an answer in words whose meaning is not known. */
  readonly price: string | null
  readonly amount: string | null
  readonly token: Address | null
}

/**
 * Shows each row; with the `gateway` that it would be sent to, also what would be held back. Throws
 * what the run would end with.
 */
export async function showBatchPlan(
  context: Context,
  opened: Opened,
  {
    gateway,
    ...options
  }: {
    readonly resume?: string | undefined
    readonly signal: AbortSignal
    readonly gateway?: GatewayClient
  },
): Promise<void> {
  const { parts, rows, count, spending } = opened
  const stream = newResultStream(context.output, 'batch-preview', 'results')
  const counts = new Map<string, number>()
  const totals = new Map<Address, bigint>()
  const tally = newTally()
  for await (const group of inGroups(rows(), 100)) {
    const looking = { ...options, look: true }
    const plans =
      gateway === undefined
        ? await planRows(parts, group, looking)
        : await planSubmission({ ...parts, gateway }, group, looking)
    for (const planned of plans) {
      const { plan, terms } = await judged(opened, planned)
      const action = wouldBe[plan.kind]
      counts.set(action, (counts.get(action) ?? 0) + 1)
      if (plan.kind === 'sign' && terms.token !== null)
        totals.set(terms.token, (totals.get(terms.token) ?? 0n) + BigInt(terms.amount ?? 0))
      const error = errorOf(plan)
      if (error !== undefined) tally.add(placeText(plan.row), asItemError(plan.row, error))
      stream.item(previewOf(plan, terms), () => cellsOf(plan, terms, parts.trust.chain_id))
    }
  }
  const summary = Object.fromEntries(
    [...counts].map(([action, count]) => [action.replaceAll(' ', '_'), count]),
  )
  const sums = [...totals].map(([token, amount]) => ({ token, amount: String(amount) }))
  stream.end({ dry_run: true, summary, totals: sums }, () =>
    [
      [...counts].map(([action, count]) => `${count} ${action}`).join(', '),
      ...(totals.size === 0 ? [] : [`would authorize ${totalsText(parts.trust, totals)} in all`]),
    ].join('\n'),
  )
  await checkSpending(parts, rows(), spending.limits, options.signal)
  const error = tally.error({ total: count.rows, goOn: 'run the same command again later' })
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
  const { chain, trust, ports } = parts
  const token = context.bond.token
  try {
    const nowSeconds =
      chain === undefined ? ports.clock.nowMs() / 1_000 : await chainNow(chain, trust, ports.clock)
    const { amountRaw } = checkTerms(intent, context, nowSeconds)
    // Without `fit` the sum is judged as a whole.
    if (spending.limits.fit) await spending.take(token, intent.proposer, amountRaw)
    return { plan, terms: { price: plan.price, amount: String(amountRaw), token } }
  } catch (error) {
    if (!(error instanceof UsageError)) throw error
    return {
      plan: { kind: 'rejected', row, error },
      terms: { price: plan.price, amount: null, token },
    }
  }
}

const savedOf = (plan: Planned) =>
  plan.kind === 'skipped'
    ? plan.result.authorization
    : 'authorization' in plan
      ? plan.authorization
      : undefined

function termsOf(plan: Planned): Terms {
  const saved = savedOf(plan)
  if (saved !== undefined)
    return {
      price: saved.signed.terms.price,
      amount: saved.signed.terms.amount,
      token: saved.signed.token ?? null,
    }
  const { row } = plan
  if (row.kind === 'item')
    return { price: row.item.proposed_price, amount: row.item.permit.amount, token: null }
  const key = keyNamed(row.outcome)
  return {
    price: key === undefined ? null : priceOf[key],
    amount: row.amountRaw === undefined ? null : String(row.amountRaw),
    token: null,
  }
}

function errorOf(plan: Planned) {
  if (plan.kind === 'rejected') return plan.error
  if (plan.kind === 'skipped') return plan.result.error
  return plan.kind === 'done' ? failedBefore(plan.authorization) : undefined
}

function cellsOf(
  plan: Planned,
  { price, amount, token }: Terms,
  chainId: number,
): readonly string[] {
  const authorizes = amount === null ? '' : amountText(amount, knownToken(chainId, token ?? ''))
  const name = plan.row.clientRef ?? plan.row.identifier
  return [
    wouldBe[plan.kind].padEnd(13),
    name,
    price === null ? '' : (outcomeOf(price) ?? price),
    authorizes,
    errorOf(plan)?.detail ?? '',
  ]
}

function previewOf(plan: Planned, { price, amount, token }: Terms): object {
  const error = errorOf(plan)
  return {
    client_ref: plan.row.clientRef ?? null,
    identifier: plan.row.identifier,
    line: plan.row.line,
    ...(plan.row.element === undefined ? {} : { element: plan.row.element }),
    action: wouldBe[plan.kind].replaceAll(' ', '_'),
    outcome: (price && outcomeOf(price)) ?? null,
    price,
    amount,
    token,
    journal_id: savedOf(plan)?.id ?? null,
    error: error === undefined ? null : { code: error.code, detail: error.detail },
    ...(plan.kind === 'skipped' && plan.result.elsewhere !== undefined
      ? { elsewhere: plan.result.elsewhere }
      : {}),
  }
}
