/** `operator status` and `operator top`: the live view of `serve`, from its admin listener. */
import { Command } from 'commander'
import { readStatus, type StatusDocument } from '../../core/host/status-document.js'
import { exit, ProposerError, UnavailableError, UsageError } from '../../core/protocol/errors.js'
import { holderText } from '../../core/storage/lock.js'
import type { LiveStatus } from '../hosting/live-status.js'
import { openStatus } from '../hosting/terminal-status.js'
import type { Context } from '../terminal/context.js'
import { notServed, type Site, servingUrl, siteOf } from './access.js'
import { getAdmin } from './remote.js'

/** What it says, in lines; of parts alone where they are named. */
const statusText = async (
  { output }: Context,
  status: StatusDocument,
  parts?: readonly string[],
) => {
  const { statusLines } = await import('../hosting/live-status.js')
  const { columns, paint } = output
  return statusLines(status, { columns, rows: mostLines, paint, parts }).join('\n')
}

export const operatorStatusCommand = (context: Context) =>
  new Command('status')
    .description(
      'show the status of the gateway: readiness, nodes, queue, calls, rate limit, executor, last changes',
    )
    .addHelpText(
      'after',
      '\nExit 75 if no gateway serves the store; a gateway that is not ready is exit 0, with its reasons.\n\nExample:\n  proposer operator status',
    )
    .action(async (_own: unknown, command: Command) => {
      const site = await siteOf(context, command)
      const { document, status } = await askStatus(context, site)
      const text = await statusText(context, status)
      const all = { ...document, store_place: site.store }
      context.output.result('operator-status', all, () => text)
    })

/** The rate limit in it, as a command of its own had it once. */
export const budgetCommand = (context: Context) =>
  new Command('budget')
    .description('another name of a part of `operator status`')
    .addHelpText('after', '\nExample:\n  proposer operator budget --json')
    .action(async (_own: unknown, command: Command) => {
      const { status } = await askStatus(context, await siteOf(context, command))
      const { window_ends_at: ends, ...budget } = status.budget
      const leftMs = ends === null ? 0 : Date.parse(ends) - context.clock.nowMs()
      const document = {
        served: true,
        ...budget,
        left_items: Math.max(0, budget.global_items - budget.spent_items),
        window_ends_in_seconds: Math.max(0, Math.ceil(leftMs / 1_000)),
      }
      const text = await statusText(context, status, ['limit'])
      context.output.result('operator-budget', document, () => text)
    })

/** More than it ever has. */
const mostLines = 1_000

export const topCommand = (context: Context) =>
  new Command('top')
    .description('show the live status until Ctrl-C, redrawn every second')
    .addHelpText(
      'after',
      '\nThe gateway keeps running when you leave.\n\nExample:\n  proposer operator top',
    )
    .action(async (_own: unknown, command: Command) => {
      const site = await siteOf(context, command)
      const live = context.output.mode === 'human' ? await openStatus(context) : undefined
      if (live === undefined)
        throw new UsageError('not_a_terminal', '`operator top` requires a terminal', {
          hint: `use ${site.named('status')}, with --json for programs`,
        })
      // Leaving is how it ends well.
      context.endAs?.({ exitCode: () => exit.done })
      await watch(context, { ...site, timeoutMs: site.timeoutMs ?? answerMs }, live.status)
    })

const everyMs = 1_000
const answerMs = 3_000

async function watch(
  context: Context,
  site: Site,
  live: Pick<LiveStatus, 'start' | 'end'>,
): Promise<void> {
  const { clock, signal } = context
  let { status } = await askStatus(context, site)
  let heardMs = clock.monotonicMs()
  let lost: string | undefined
  live.start(() => {
    if (lost === undefined) return status
    const seconds = Math.round((clock.monotonicMs() - heardMs) / 1_000)
    return { ...status, reasons: [`as of ${seconds} s ago: ${lost}`] }
  })
  for (;;) {
    // Aborted by Ctrl-C, which is looked at next.
    await clock.sleep(everyMs, signal).catch(() => undefined)
    if (signal.aborted) break
    try {
      status = (await askStatus(context, site)).status
      heardMs = clock.monotonicMs()
      lost = undefined
    } catch (error) {
      if (signal.aborted) break
      // It may come back: a gateway that is started anew is found by its lock.
      if (!(error instanceof ProposerError)) throw error
      lost = error.detail
    }
  }
  await live.end('left; the gateway keeps running')
}

/** UnavailableError (75) where nobody serves, no answer came, or it cannot be read. */
export async function askStatus(
  context: Context,
  site: Site,
): Promise<{ readonly document: object; readonly status: StatusDocument }> {
  const { timeoutMs } = site
  const { url, holder } = await servingUrl(context, site)
  // A gateway of an earlier version has no such look.
  const statuses = [200, 404]
  const document =
    url && (await getAdmin(context, `${url}/operator/status`, { timeoutMs, statuses }))
  if (document === undefined)
    throw notServed(
      site,
      holder?.state === 'alive'
        ? `${holderText(holder)} does not listen`
        : `no gateway serves ${site.store}`,
    )
  const status = readStatus(document)
  if (status !== undefined) return { document: document as object, status }
  throw new UnavailableError('gateway_unanswered', 'the gateway does not report its status', {
    hint: 'use the same version of the command and the gateway',
  })
}
