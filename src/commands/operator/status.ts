/** `operator status` and `operator top`: the live view of `serve`, from its admin listener. */
import { Command } from 'commander'
import { coinOf } from '../../core/chain/profiles.js'
import type { StatusSnapshot } from '../../core/host/snapshot.js'
import { readStatusDocument } from '../../core/host/status-document.js'
import { exit, ProposerError, UnavailableError, UsageError } from '../../core/protocol/errors.js'
import { holderText } from '../../core/storage/lock.js'
import { openStatus } from '../hosting/terminal-status.js'
import type { Context } from '../terminal/context.js'
import { shellWord } from '../terminal/render.js'
import { type Site, servingUrl, siteOf } from './access.js'
import { getAdmin } from './remote.js'

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
      const { document, figures } = await askStatus(context, site, site.timeoutMs)
      const { output } = context
      const { statusLines } = await import('../hosting/live-status.js')
      const { columns, paint } = output
      output.result('operator-status', { ...document, store_place: site.store }, () =>
        statusLines(figures, { columns, rows: mostLines, paint, coin: coinIn(site) }).join('\n'),
      )
    })

/** Symbol of the coin that gas is paid in, where it is known. */
const coinIn = ({ loaded }: Site) => coinOf(loaded.config.chain.id)

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
      await watch(context, site, live.status)
    })

const everyMs = 1_000
const answerMs = 3_000

async function watch(
  context: Context,
  site: Site,
  status: {
    start(figures: () => StatusSnapshot, coin?: string): void
    end(lastWord: string): Promise<void>
  },
): Promise<void> {
  const { clock, signal } = context
  const limitMs = site.timeoutMs ?? answerMs
  let { figures } = await askStatus(context, site, limitMs)
  let heardMs = clock.monotonicMs()
  let lost: string | undefined
  status.start(() => {
    if (lost === undefined) return figures
    const seconds = Math.round((clock.monotonicMs() - heardMs) / 1_000)
    return { ...figures, reasons: [`as of ${seconds} s ago: ${lost}`] }
  }, coinIn(site))
  for (;;) {
    // Aborted by Ctrl-C, which is looked at next.
    await clock.sleep(everyMs, signal).catch(() => undefined)
    if (signal.aborted) break
    try {
      figures = (await askStatus(context, site, limitMs)).figures
      heardMs = clock.monotonicMs()
      lost = undefined
    } catch (error) {
      if (signal.aborted) break
      // It may come back: a gateway that is started anew is found by its lock.
      if (!(error instanceof ProposerError)) throw error
      lost = error.detail
    }
  }
  await status.end('left; the gateway keeps running')
}

/** UnavailableError (75) where nobody serves, no answer came, or it cannot be read. */
async function askStatus(
  context: Context,
  site: Site,
  timeoutMs: number | undefined,
): Promise<{ readonly document: object; readonly figures: StatusSnapshot }> {
  const { url, holder } = await servingUrl(context, site)
  // A gateway of an earlier version has no such look.
  const statuses = [200, 404]
  const document =
    url && (await getAdmin(context, `${url}/operator/status`, { timeoutMs, statuses }))
  if (document === undefined) {
    const isHeld = holder?.state === 'alive'
    const why = isHeld ? `${holderText(holder)} does not listen` : `no gateway serves ${site.store}`
    throw new UnavailableError('gateway_not_running', `no gateway responds: ${why}`, {
      hint: `start it with \`proposer serve --config ${shellWord(site.loaded.path)}\``,
    })
  }
  const figures = readStatusDocument(document, context.clock.nowMs())
  if (figures !== undefined) return { document: document as object, figures }
  throw new UnavailableError('gateway_unanswered', 'the gateway does not report its status', {
    hint: 'use the same version of the command and the gateway',
  })
}
