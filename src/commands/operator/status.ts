/** `operator status` and `operator top`: the live view of `serve`, from its admin listener. */
import { parseStatus, type StatusDocument } from '#host/status-document'
import { exit, ProposerError, UnavailableError, UsageError } from '#protocol/errors'
import { holderText, readHolder } from '#storage/lock'
import type { LiveStatus } from '../hosting/live-status.js'
import type { Screen } from '../terminal/output.js'
import {
  adminUrlHere,
  adminUrlOf,
  gatewayMissing,
  getAdmin,
  type Site,
  siteVerb,
} from './access.js'

const rows = 1_000

async function statusBlock(status: StatusDocument, parts?: readonly string[]) {
  const { statusLines } = await import('../hosting/live-status.js')
  return ({ columns, paint }: Screen) =>
    statusLines(status, { columns, rows, paint, parts }).join('\n')
}

export const statusVerb = siteVerb({
  name: 'status',
  about:
    'show the status of the gateway: readiness, nodes, queue, calls, rate limit, executor, last changes',
  help: 'Exit 75 if no gateway serves the store; a gateway that is not ready is exit 0, with its reasons.',
  examples: ['operator status'],
  async run(site) {
    const { document, status } = await askStatus(site)
    const all = { ...document, store_place: site.store }
    site.output.show('operator-status', all, [await statusBlock(status)])
  },
})

/** The rate limit in it, as a command of its own had it once. */
export const budgetVerb = siteVerb({
  name: 'budget',
  about: 'another name of a part of `operator status`',
  examples: ['operator budget --json'],
  async run(site) {
    const { status } = await askStatus(site)
    const { window_ends_at: ends, ...budget } = status.budget
    const leftMs = ends === null ? 0 : Date.parse(ends) - site.clock.nowMs()
    const document = {
      served: true,
      ...budget,
      left_items: Math.max(0, budget.global_items - budget.spent_items),
      window_ends_in_seconds: Math.max(0, Math.ceil(leftMs / 1_000)),
    }
    site.output.show('operator-budget', document, [await statusBlock(status, ['limit'])])
  },
})

export const topVerb = siteVerb({
  name: 'top',
  about: 'show the live status until Ctrl-C, redrawn every second',
  help: 'The gateway keeps running when you leave.',
  examples: ['operator top'],
  async run(site) {
    const { openStatus } = await import('../hosting/live-status.js')
    const live = site.output.isForPeople ? openStatus(site) : undefined
    if (live === undefined)
      throw new UsageError(
        'not_a_terminal',
        '`operator top` requires a terminal',
        `use ${site.named('status')}, with --json for programs`,
      )
    // Leaving is how it ends well.
    site.endAs?.({ exitCode: () => exit.done })
    await watch({ ...site, timeoutMs: site.timeoutMs ?? answerMs }, live.status)
  },
})

const everyMs = 1_000
const answerMs = 3_000

async function watch(site: Site, live: LiveStatus) {
  const { clock, signal } = site
  let { status } = await askStatus(site)
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
      status = (await askStatus(site)).status
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

/**
 * UnavailableError (75) where nobody serves, no answer came, or it cannot be read. Gateways on one
 * database are asked on this machine alone.
 */
export async function askStatus(site: Site) {
  const { loaded, store, timeoutMs } = site
  const isShared = loaded.place.kind === 'database'
  const holder = isShared ? undefined : await readHolder(site, store)
  const url = isShared ? adminUrlHere(loaded) : adminUrlOf(holder)
  // A gateway of an earlier version has no such look.
  const statuses = [200, 404]
  const document = url && (await getAdmin(site, `${url}/operator/status`, { timeoutMs, statuses }))
  if (document === undefined)
    throw gatewayMissing(
      site,
      holder?.state === 'alive'
        ? `${holderText(holder)} does not listen`
        : `no gateway serves ${store}`,
    )
  const status = parseStatus(document)
  if (status !== undefined) return { document: document as object, status }
  throw new UnavailableError(
    'gateway_unanswered',
    'the gateway does not report its status',
    'use the same version of the command and the gateway',
  )
}
