/** `plan`: what a batch costs in items, windows and time, without a network (§8, contract §6). */
import { type BatchCost, type BatchPlan, planBatch } from '#client/budget/forecast'
import { createPlanner } from '#client/budget/planner'
import { type BudgetView, defaultBudget } from '#client/budget/window'
import { parseBaseUrl } from '#client/gateway/gateway-client'
import { readBatch } from '#client/input/input'
import { type BatchFormat, inputLimits, newFaults } from '#client/input/rows'
import { fromCwd } from '#io/home'
import { durationMs } from '#protocol/duration'
import { UsageError } from '#protocol/errors'
import { formatFlag, readSource } from './batch/parts.js'
import { requireTarget, resolveSettings, type Settings } from './session/settings.js'
import type { Context } from './terminal/context.js'
import { counted } from './terminal/render.js'
import { verb } from './terminal/verb.js'

export const planCommand = verb({
  name: 'plan',
  about: 'estimate rate-limit use and time of a batch; no network access',
  args: { '<file|count>': 'batch input (- for stdin), or number of proposals' },
  flags: {
    ...formatFlag,
    '--no-context': 'do not count contexts: they come from a node or a file (as with --rpc-url)',
    '--no-wait': 'do not count polling after submission',
    '--limit <items>': 'items per window; default: last reported by the gateway, or 120',
    '--window <duration>':
      'length of a window, such as 60 or 1m; default: last reported by the gateway, or 60',
  },
  examples: ['plan 500', 'plan proposals.csv --rpc-url https://node.example --no-wait'],
  async run(context, flags, { file: given }) {
    const limit = wholeNumber(flags.limit, '--limit')
    const window = wholeNumber(
      flags.window && String((durationMs(flags.window) ?? 0) / 1000),
      '--window',
    )
    const settings = await resolveSettings(context, flags)
    const rows = await rowsOf(context, given, flags.format)
    const budget = await budgetOf(context, settings, limit, window)
    const asksContext = flags.context === true && settings.rpcUrl === undefined
    const items = rows.intents + rows.signed
    const plan = planBatch(
      {
        contextItems: asksContext ? rows.intents : 0,
        submitItems: items,
        statusItems: flags.wait === true ? items : 0,
      },
      budget,
    )
    context.output.show('plan', wireOf(plan, rows, budget), [
      sentenceOf(context, plan),
      budgetText(budget),
    ])
  },
})

export async function forecastText(
  context: Context,
  settings: Settings,
  items: BatchCost,
  rows: number,
): Promise<{ readonly wire: ReturnType<typeof wireOf>; readonly text: string }> {
  const budget = await budgetOf(context, settings, undefined, undefined)
  const plan = planBatch(items, budget)
  return {
    wire: wireOf(plan, { intents: rows, signed: 0 }, budget),
    text: sentenceOf(context, plan),
  }
}

function sentenceOf({ clock }: Context, { items, windows, seconds }: BatchPlan) {
  const end = new Date(clock.nowMs() + seconds * 1_000).toISOString().slice(11, 19)
  return `${counted(items, 'request')} in ${counted(windows.length, 'window')}, about ${timeText(seconds)}, until ${end}Z`
}

interface Rows {
  readonly intents: number
  /** Complete items: no context is needed for them. */
  readonly signed: number
}

async function rowsOf(context: Context, given: string, format: BatchFormat | undefined) {
  if (/^\d+$/.test(given)) return { intents: wholeNumber(given, 'the count') ?? 0, signed: 0 }
  // A number that is no count is not the name of a file, unless there is one.
  if (
    /^[-+]?\d[\d_.,e+]*$/i.test(given) &&
    !(await context.files.exists(fromCwd(context.cwd, given)))
  )
    wholeNumber(given, 'the count')
  const source = await readSource(context, given)
  const faults = newFaults(source)
  const rows = readBatch(source, format, { fault: faults.add, unanswered: () => undefined })
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
  readonly source: 'flags' | 'learnt' | 'default' | 'local'
}

/** Flags win; then what the configured gateway last told this home; then §8's defaults. */
async function budgetOf(
  context: Context,
  settings: Settings,
  limit: number | undefined,
  window: number | undefined,
): Promise<PlanBudget> {
  const target = settings.gateway || settings.local ? requireTarget(settings) : undefined
  const known =
    target?.kind === 'gateway' ? await learnt(context, settings, target.setting.value) : undefined
  if (limit !== undefined || window !== undefined) {
    const limitItems = limit ?? known?.limitItems ?? defaultBudget.limitItems
    const windowMs =
      window === undefined ? (known?.windowMs ?? defaultBudget.windowMs) : window * 1_000
    return {
      source: 'flags',
      learnt: false,
      limitItems,
      windowMs,
      spentItems: 0,
      roomItems: limitItems,
      endsInMs: 0,
    }
  }
  const unspent = { learnt: false, ...defaultBudget, spentItems: 0, endsInMs: 0 }
  // Contract §6: an in-process gateway charges nothing.
  if (target?.kind === 'local')
    return { ...unspent, source: 'local', roomItems: Number.MAX_SAFE_INTEGER }
  return known?.learnt === true
    ? { ...known, source: 'learnt' }
    : {
        ...unspent,
        ...known,
        source: 'default',
        roomItems: known?.roomItems ?? defaultBudget.limitItems,
      }
}

const learnt = (context: Context, settings: Settings, gateway: string) =>
  createPlanner(context, settings.home.value, parseBaseUrl(gateway).origin).snapshot()

const listedWindows = 100

function wireOf(plan: BatchPlan, rows: Rows, budget: PlanBudget) {
  return {
    items: plan.items,
    windows: plan.windows.length,
    seconds: plan.seconds,
    calls: plan.calls.map(({ call, items, calls, firstWindow, lastWindow }) => ({
      call,
      items,
      calls,
      first_window: firstWindow,
      last_window: lastWindow,
    })),
    rows: rows.intents + rows.signed,
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
  flags: 'from the flags',
  learnt: 'reported by the gateway',
  default: 'the default; this gateway has not reported its own',
  local: 'an in-process gateway has no rate limit',
}

function budgetText({ source, limitItems, windowMs, spentItems }: PlanBudget): string {
  if (source === 'local') return sourceText.local
  const spent = spentItems > 0 ? `; ${counted(spentItems, 'item')} spent already` : ''
  return `${limitItems} items per ${windowMs / 1_000} s (${sourceText[source]})${spent}`
}

/** `45 s`, `11 min 25 s`, `2 h 5 min 0 s`. */
function timeText(seconds: number): string {
  const [hours, minutes] = [Math.floor(seconds / 3_600), Math.floor((seconds % 3_600) / 60)]
  const parts = [
    ...(hours > 0 ? [`${hours} h`] : []),
    ...(hours + minutes > 0 ? [`${minutes} min`] : []),
    `${seconds % 60} s`,
  ]
  return parts.join(' ')
}

/** UsageError `bad_number`: more than a batch may hold is no plan. */
function wholeNumber(text: string | undefined, name: string) {
  if (text === undefined) return undefined
  const value = /^\d{1,9}$/.test(text) ? Number(text) : 0
  if (value >= 1 && value <= inputLimits.rows) return value
  throw new UsageError(
    'bad_number',
    `${name} must be a whole number from 1 to ${inputLimits.rows}`,
    'such as 120',
  )
}
