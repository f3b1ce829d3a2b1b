/**
 * `run`: a morning in one command (contract §9): checks, plan, one confirmation, and then the flow
 * of `batch submit --resume --wait`, whose journal makes it safe to run again after any crash.
 */

import type { Finding } from '#checks/finding'
import { isUnsettled, stateOf } from '#client/journal/authorizations'
import type { SpendingSums } from '#client/propose/look'
import { journaledFor } from '#client/propose/plan'
import { ProposerError, UncertainError, UsageError } from '#protocol/errors'
import {
  batchFlags,
  confirmSums,
  goOnCommand,
  type Opened,
  openBatch,
  readSource,
  signingText,
  totalsText,
} from './batch/parts.js'
import { showBatchPlan, submitAndReport } from './batch/running.js'
import { checksText, examine } from './doctor.js'
import { forecastText } from './plan.js'
import { asksPerson } from './session/inputs.js'
import { type Session, sessionVerb } from './session/session.js'
import { executorFlags } from './session/settings.js'
import type { Context } from './terminal/context.js'
import { counted, fields } from './terminal/render.js'

/** Contexts of more rows would keep a script from sending for a quarter of an hour. */
const summedUnasked = 2_000

export const runCommand = sessionVerb({
  name: 'run',
  about: 'check, plan, sign, submit and follow a file of proposals; safe to run again',
  args: { '<file>': 'rows to sign and send, or signed items; - for stdin' },
  flags: {
    '--details': 'show every row, not only what went wrong',
    ...batchFlags,
    ...executorFlags,
  },
  help: 'On a terminal it shows the sum and asks once. In scripts, give --yes and --max-spend.\nAfter a crash or Ctrl-C run it again: saved payloads are sent again, nothing is signed twice.',
  examples: ['run today.csv', 'run today.csv --yes --max-spend 112500usdc --json'],
  async run(context, session, given, { file: path }) {
    const flags = { ...given, resume: true }
    const source = await readSource(context, path)
    // Opened for running before anything opens it for reading: a command has one gateway.
    const gateway = await session.gateway('run')
    const asks = asksPerson(context, flags)
    const opened = await openBatch(context, session, flags, source, {
      ...(asks ? {} : { tell: signingText(gateway.origin) }),
      findings: asks,
      sums: ({ intents }, hasChain) => asks || hasChain || intents <= summedUnasked,
    })
    if (flags.dryRun === true)
      return showBatchPlan(context, opened, { signal: session.signal, gateway })
    const ready = await prepared(context, session, opened, asks && gateway.origin)
    await submitAndReport(context, session, opened, {
      kind: 'run',
      resume: true,
      wait: true,
      details: flags.details === true,
      quiet: flags.quiet === true,
      command: goOnCommand('run', path, flags),
      head: { plan: ready.plan },
      rest: { checks: ready.checks },
    })
  },
})

/**
 * What keeps it from signing is thrown; where payloads of the input are of unknown outcome, that
 * is said first (contract §6: exit 6).
 */
async function prepared(
  context: Context,
  session: Session,
  opened: Opened,
  asksFor: string | false,
) {
  const saved = await savedRows(context, opened)
  const { output } = context
  try {
    const progress = output.progress('checking')
    const checks = await examine(context, session).finally(() => progress.stop())
    const faulty = checks.filter(({ result }) => result === 'warn' || result === 'fail')
    if (faulty.length > 0) output.note(checksText(faulty, output))
    if (saved.toSign > 0) refuseFaults(checks)
    const planning = output.progress('planning')
    const isNeeded = () => asksFor !== false || context.signal.aborted
    const sums = await sumsOf(opened, isNeeded).finally(() => planning.stop())
    const plan = await planOf(context, session, opened, { saved, sums })
    output.note(plan.text)
    if (asksFor !== false) await confirmSums(context, opened, sums, asksFor)
    return { plan: plan.data, checks }
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

interface Saved {
  readonly toSign: number
  readonly toSend: number
  readonly signedBefore: number
  readonly unsettled: number
}

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

/**
 * Nothing is signed while a check fails, but for gateway and node that do not answer: rows say so
 * themselves.
 */
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

/** Without a person who is to agree to it, a sum that cannot be had keeps nobody from sending. */
async function sumsOf(opened: Opened, isNeeded: () => boolean) {
  try {
    return await opened.checkedSums()
  } catch (error) {
    const isLimit = error instanceof UsageError
    if (isNeeded() || isLimit || !(error instanceof ProposerError)) throw error
    return undefined
  }
}

async function planOf(
  context: Context,
  session: Session,
  { parts, count }: Opened,
  { saved, sums }: { readonly saved: Saved; readonly sums: SpendingSums | undefined },
) {
  const { toSend, signedBefore } = saved
  // Rows that nothing can be signed for count nothing in the sums: each says why in the report.
  const toSign = sums?.rows ?? saved.toSign
  const blocked = saved.toSign - toSign
  const rest = blocked === 0 ? '' : `, ${blocked} that cannot be signed`
  const items = {
    contextItems: parts.contextsAreFree ? 0 : toSign,
    submitItems: toSign + toSend,
    statusItems: count.rows,
  }
  const { wire, text } = await forecastText(context, session.settings, items, count.rows)
  const totals = sums && [...sums.totals].map(([token, raw]) => ({ token, amount: String(raw) }))
  return {
    data: {
      ...wire,
      to_sign: toSign,
      signed_before: signedBefore,
      blocked,
      totals: totals ?? null,
      findings: sums?.findings ?? null,
    },
    text: fields(
      [
        [
          'plan',
          `${counted(count.rows, 'row')}: ${toSign} to sign, ${signedBefore} signed before${rest}`,
        ],
        [
          'bonds',
          sums === undefined || sums.totals.size === 0
            ? undefined
            : `${totalsText(parts.trust, sums.totals)} in all`,
        ],
        ['rate limit', text],
      ],
      context.output.columns,
    ),
  }
}
