/** `run` (contract §9): checks, plan, one confirmation, and the flow of `batch submit --resume --wait`. */
import type { Finding } from '#checks/finding'
import { createPlanner } from '#client/budget/planner'
import { type BatchPlan, type BudgetView, emptyLog, planBatch, viewOf } from '#client/budget/window'
import { parseBaseUrl } from '#client/gateway/gateway-client'
import { readBatch } from '#client/input/input'
import { type BatchFormat, inputLimits } from '#client/input/rows'
import { isUnsettled, stateOf } from '#client/journal/authorizations'
import type { SpendingSums } from '#client/propose/limits'
import { journaledFor } from '#client/propose/plan'
import { durationText } from '#protocol/duration'
import { ProposerError, UncertainError, UsageError } from '#protocol/errors'
import {
  batchFlags,
  confirmSums,
  formatFlag,
  type Opened,
  readSource,
  totalsData,
  totalsText,
} from './batch/parts.js'
import { sendInput } from './batch/running.js'
import { checksText, examine } from './doctor.js'
import { type Session, sessionVerb } from './session/session.js'
import {
  type Configured,
  executorFlags,
  requireTarget,
  resolveSettings,
  wholeNumber,
} from './session/settings.js'
import type { Context } from './terminal/context.js'
import { counted, fields } from './terminal/render.js'
import { verb } from './terminal/verb.js'

/** Contexts of more rows would keep a script from sending for a quarter of an hour. */
const summedUnasked = 2_000

export const runCommand = sessionVerb({
  name: 'run',
  about: 'check, plan, sign, submit and follow a file of proposals; safe to run again',
  args: { '<file>': 'rows to sign and send, or signed items; - for stdin' },
  flags: { ...batchFlags, ...executorFlags },
  help: 'On a terminal it shows the sum and asks once. In scripts, give --yes and --max-spend.\nAfter a crash or Ctrl-C run it again: saved payloads are sent again, nothing is signed twice.',
  examples: ['run today.csv', 'run today.csv --yes --max-spend 112500usdc --json'],
  run: (session, flags, { file }) =>
    sendInput(
      session,
      file,
      { ...flags, resume: true },
      {
        kind: 'run',
        wait: true,
        ready: (opened) => prepared(session, opened),
      },
    ),
})

/** Unknown outcomes of the input's payloads are said first (contract §6: exit 6). */
async function prepared(session: Session, opened: Opened) {
  const saved = await savedRows(session, opened)
  const { output } = session
  try {
    const { findings: checks } = await output.during('checking', () => examine(session))
    const faulty = checks.filter(({ result }) => result === 'warn' || result === 'fail')
    if (faulty.length > 0) output.note(checksText(faulty)(output))
    if (saved.toSign > 0) refuseFaults(checks)
    const sums = await output.during('planning', () => sumsOf(session, opened))
    const plan = await planOf(session, opened, { saved, sums })
    output.note(fields(plan.rows, output.columns))
    await confirmSums(session, opened, sums)
    return { head: { plan: plan.data }, rest: { checks } }
  } catch (error) {
    if (saved.unsettled === 0 || !(error instanceof ProposerError)) throw error
    throw new UncertainError(
      'outcome_unknown',
      `${counted(saved.unsettled, 'payload')} of this input may have been admitted by an earlier run; before they were sent again: ${error.detail}`,
      {
        hint: `\`proposer replay --all\` sends the saved bytes again and signs nothing; ${error.meta.hint ?? ''}`,
        retryable: true,
      },
    )
  }
}

type Saved = Awaited<ReturnType<typeof savedRows>>

async function savedRows({ clock }: Context, { parts, count }: Opened) {
  const view = await parts.journal.load()
  const found = { toSign: 0, toSend: 0, signedBefore: 0, unsettled: 0 }
  for (const row of count.input) {
    const saved = await journaledFor(parts, view, row, count.fingerprint)
    if (saved === undefined) found[row.kind === 'item' ? 'toSend' : 'toSign']++
    else {
      const { kind } = stateOf(saved, clock.nowMs())
      found.signedBefore++
      if (kind !== 'accepted' && kind !== 'closed') found.toSend++
      if (kind === 'unknown' && isUnsettled(saved)) found.unsettled++
    }
  }
  return found
}

/** Nothing is signed while a check fails; of a silent gateway or node the rows tell. */
function refuseFaults(checks: readonly Finding[]) {
  const failed = checks.filter(
    ({ id, result }) => result === 'fail' && id !== 'gateway' && id !== 'rpc',
  )
  const [first] = failed
  if (first === undefined) return
  if (failed.every(({ id }) => id === 'implementation'))
    throw new UsageError('implementation_changed', first.detail, first.fix)
  const ids = [...new Set(failed.map(({ id }) => id))].join(', ')
  throw new UsageError(
    'doctor_found_faults',
    `nothing was signed: ${counted(failed.length, 'check')} failed (${ids}): ${first.detail}`,
    `${first.fix}; \`proposer doctor\` runs the checks alone`,
  )
}

/** Where nobody is to agree to it, a sum that cannot be had stops no sending. */
async function sumsOf({ signal }: Context, { checkedSums, parts, count, asks }: Opened) {
  const isFree = parts.chain !== undefined || count.intents <= summedUnasked
  try {
    return await checkedSums(asks || isFree)
  } catch (error) {
    const isLimit = error instanceof UsageError
    if (asks || signal.aborted || isLimit || !(error instanceof ProposerError)) throw error
    return undefined
  }
}

async function planOf(
  session: Session,
  { parts, count }: Opened,
  { saved, sums }: { readonly saved: Saved; readonly sums: SpendingSums | undefined },
) {
  const { toSend, signedBefore } = saved
  const toSign = sums?.rows ?? saved.toSign
  const blocked = saved.toSign - toSign
  const rest = blocked === 0 ? '' : `, ${blocked} that cannot be signed`
  const contextItems = parts.contextsAreFree ? 0 : toSign
  const budget = await budgetOf(session)
  const cost = { contextItems, submitItems: toSign + toSend, statusItems: count.rows }
  const plan = planBatch(cost, budget)
  const what = `${toSign} to sign, ${signedBefore} signed before${rest}`
  return {
    data: {
      ...wireOf(plan, count.rows, budget),
      to_sign: toSign,
      signed_before: signedBefore,
      blocked,
      totals: sums ? totalsData(sums.totals) : null,
      findings: sums?.findings ?? null,
    },
    rows: [
      ['plan', `${counted(count.rows, 'row')}: ${what}`],
      ['bonds', sums?.totals.size ? totalsText(parts.trust, sums.totals) : null],
      ['rate limit', sentenceOf(session, plan)],
    ] as const,
  }
}

export const planCommand = verb({
  name: 'plan',
  about: 'estimate rate-limit use and time of a batch; no network access',
  args: { '<file|count>': 'batch input (- for stdin), or number of proposals' },
  flags: {
    ...formatFlag,
    '--no-context': 'do not count contexts: they come from a node or a file (as with --rpc-url)',
    '--no-wait': 'do not count polling after submission',
  },
  examples: ['plan 500', 'plan proposals.csv --rpc-url https://node.example --no-wait'],
  async run(context, flags, { file: given }) {
    const settings = await resolveSettings(context, flags)
    const { intents, signed } = await rowsOf(context, given, flags.format)
    const budget = await budgetOf({ ...context, settings })
    const contextItems = flags.context && settings.rpcUrl === undefined ? intents : 0
    const submitItems = intents + signed
    const statusItems = flags.wait ? submitItems : 0
    const plan = planBatch({ contextItems, submitItems, statusItems }, budget)
    context.output.show('plan', wireOf(plan, submitItems, budget), [
      sentenceOf(context, plan),
      budgetText(budget),
    ])
  },
})

function sentenceOf({ clock }: Context, { items, windows, seconds }: BatchPlan) {
  const end = new Date(clock.nowMs() + seconds * 1_000).toISOString().slice(11, 19)
  return `${counted(items, 'request')} in ${counted(windows.length, 'window')}, about ${durationText(seconds)}, until ${end}Z`
}

async function rowsOf(context: Context, given: string, format: BatchFormat | undefined) {
  if (/^\d+$/.test(given))
    return { intents: wholeNumber('the count', given, 1, inputLimits.rows), signed: 0 }
  const hint = 'give the path of a readable file, or - for stdin, or give a whole number'
  const source = await readSource(context, given, hint)
  const { rows, faults } = readBatch(source, format)
  faults.throwAny()
  if (rows.length === 0)
    throw new UsageError(
      'empty_input',
      `${source.name} holds no rows`,
      'give one proposal per line, or a count',
    )
  const signed = rows.filter(({ kind }) => kind === 'item').length
  return { intents: rows.length - signed, signed }
}

interface PlanBudget extends BudgetView {
  readonly source: 'learnt' | 'default' | 'local'
}

async function budgetOf(context: Configured): Promise<PlanBudget> {
  const { settings } = context
  const unspent = viewOf(emptyLog('', 0), 0)
  const target = settings.gateway || settings.local ? requireTarget(settings) : undefined
  // Contract §6: an in-process gateway charges nothing.
  if (target?.kind === 'local')
    return { ...unspent, source: 'local', roomItems: Number.MAX_SAFE_INTEGER }
  if (target === undefined) return { ...unspent, source: 'default' }
  const { origin } = parseBaseUrl(target.setting.value)
  const known = await createPlanner(context, settings.home.value, origin).snapshot()
  return { ...unspent, ...known, source: known?.learnt ? 'learnt' : 'default' }
}

const listedWindows = 100

function wireOf(plan: BatchPlan, rows: number, budget: PlanBudget) {
  return {
    items: plan.items,
    windows: plan.windows.length,
    seconds: plan.seconds,
    calls: plan.calls.map(({ firstWindow: first_window, lastWindow: last_window, ...one }) => ({
      ...one,
      first_window,
      last_window,
    })),
    rows,
    budget: {
      source: budget.source,
      limit: budget.source === 'local' ? null : budget.limitItems,
      window_seconds: budget.windowMs / 1_000,
      spent: budget.spentItems,
    },
    timeline: plan.windows
      .slice(0, listedWindows)
      .map(({ startsSeconds, items }) => ({ starts_seconds: startsSeconds, ...items })),
  }
}

const sourceText: Record<PlanBudget['source'], string> = {
  learnt: 'reported by the gateway',
  default: 'the default; this gateway has not reported its own',
  local: 'an in-process gateway has no rate limit',
}

function budgetText({ source, limitItems, windowMs, spentItems }: PlanBudget) {
  if (source === 'local') return sourceText.local
  const spent = spentItems > 0 ? `; ${counted(spentItems, 'item')} spent already` : ''
  return `${limitItems} items per ${windowMs / 1_000} s (${sourceText[source]})${spent}`
}
