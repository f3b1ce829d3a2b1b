/**
 * How an operator's command reaches a store, and the status of the gateway that serves it. Looking
 * opens a store read-only whoever holds it (R24). Acting goes through the gateway: by its admin
 * listener, on loopback only, at the URL that the store's lock names (contract §6).
 */
import * as z from 'zod/mini'
import type { RegistryEntry } from '#chain/questions'
import type { Ledger } from '#gateway/ledger/ledger'
import type { ActName, ActResult } from '#gateway/operator/acts'
import { shownRegistry } from '#gateway/operator/registry'
import { within } from '#gateway/view/lookups'
import {
  adminTokenFile,
  type LoadedConfig,
  loadConfig,
  registryOf,
  type StorePlace,
  settingsOf,
} from '#host/config-file'
import { openToAct } from '#host/gateway-host'
import { readPlaced } from '#host/held-store'
import { fromCwd } from '#io/home'
import { proofPath, readAdminToken, tokenProof } from '#io/serving/admin-token'
import { type HttpCall, TransportError } from '#ports'
import {
  ConflictError,
  exit,
  ProposerError,
  RejectedError,
  StorageError,
  UnauthorizedError,
  UnavailableError,
  UncertainError,
  UsageError,
} from '#protocol/errors'
import { networkFault } from '#protocol/network-words'
import { parseStatus, type StatusDocument } from '#protocol/status-document'
import { hexOf } from '#storage/durable'
import { holderText, type LockHolder, readHolder } from '#storage/lock'
import type { StoredRecord } from '#storage/record-log'
import { type LiveStatus, openStatus, statusLines } from '../hosting/live-status.js'
import { timeoutMs } from '../session/settings.js'
import type { Context } from '../terminal/context.js'
import type { Screen } from '../terminal/output.js'
import { shellWord } from '../terminal/render.js'
import { showDryRun, verbOver } from '../terminal/verb.js'

export const configFlag = {
  '--config <gateway.json>': 'path of the configuration; default: gateway.json',
} as const

/** Of a reason and a name; before anything is opened. */
const saidText = (flag: string, most: number, code: string, hint: string) => (text: string) => {
  if (text.trim() !== '' && text.length <= most) return text
  throw new UsageError(code, `${flag} must be a text of 1 to ${most} characters`, hint)
}
const reasonText = saidText('--reason', 500, 'bad_reason', 'give the reason in a sentence')
const byFlag = {
  '--by <who>': {
    about: 'who makes the change, stored with it; default: SUDO_USER, or the system user',
    parse: saidText('--by', 100, 'bad_value', 'give a name, such as --by alice'),
  },
} as const

/** Why an operator acts, and who it is: kept with the change, and shown with it. */
export const saidFlags = {
  '--reason <text>': {
    about: 'reason, stored with the change; default: by operator',
    parse: reasonText,
  },
  ...byFlag,
} as const
export const neededSaidFlags = (about: string) =>
  ({ '--reason <text>': { about, parse: reasonText, required: true }, ...byFlag }) as const

export interface Said {
  readonly reason?: string
  readonly by?: string
}

/** The default name is what the system says, which proves nothing. */
export const saidOf = (
  { env, user }: Pick<Context, 'env' | 'user'>,
  { reason, by = (env.SUDO_USER?.trim() || user)?.slice(0, 100) }: Said,
): Said => ({ ...(reason !== undefined && { reason }), ...(by !== undefined && { by }) })

export type Site = Awaited<ReturnType<typeof siteOf>>

export async function siteOf(
  context: Context,
  flags: { readonly [Name in 'config' | 'timeout']?: string | undefined } & {
    readonly dryRun?: boolean
  },
) {
  const { config, timeout, dryRun } = flags
  const limitMs = timeoutMs(timeout)
  if (config === undefined && !(await context.files.exists(fromCwd(context.cwd, 'gateway.json'))))
    throw new UsageError(
      'no_configuration',
      'gateway.json not found in this folder',
      'give --config <gateway.json>, or run the command in its folder',
    )
  const loaded = await loadConfig(context, config ?? 'gateway.json')
  const flag = config === undefined ? '' : ` --config ${shellWord(config)}`
  return {
    ...context,
    loaded,
    /** The store's folder, or its database without user and password. */
    store: await placeName(context, loaded.place),
    timeoutMs: limitMs,
    isDryRun: dryRun === true,
    /** A command of this group as it can be pasted: for the same configuration. */
    named: (text: string) => `\`proposer operator ${text}${flag}\``,
  }
}

export const placeName = async ({ edges }: Context, place: StorePlace) =>
  place.kind === 'folder' ? place.folder : (await edges.database(place.url)).name

export const siteVerb = verbOver<Site, typeof configFlag>(async (context, flags, use) =>
  use(await siteOf(context, flags)),
)

export interface StoreView {
  readonly ledger: Ledger
  readonly registry: readonly RegistryEntry[]
  readonly holder: LockHolder | undefined
}

/**
 * Opens the store for looking, feeds every record to `collectors` too, and closes it after `work`.
 * Nothing is created or locked (R24). A slug that keeps a gateway from starting is a warning.
 */
export async function look<T>(
  site: Site,
  collectors: readonly { onRecord(record: StoredRecord): void }[],
  work: (view: StoreView) => Promise<T>,
) {
  const { loaded, store, named } = site
  const configured = await registryOf(site, loaded)
  const settings = settingsOf(loaded.config, undefined)
  const collect = (record: StoredRecord) => {
    for (const collector of collectors) collector.onRecord(record)
  }
  const ledger = await readPlaced(site, loaded, settings, collect)
  try {
    const holder = loaded.place.kind === 'folder' ? await readHolder(site, store) : undefined
    const { entries, conflict } = shownRegistry(configured, ledger.questions, named)
    if (conflict)
      site.output.warning(
        conflict.code,
        `${conflict.detail}, so it is shown for neither and \`serve\` does not start: ${conflict.meta.hint ?? ''}`,
      )
    return await work({ ledger, registry: entries, holder })
  } finally {
    await ledger.close()
  }
}

export const adminUrlOf = (holder: LockHolder | undefined) =>
  holder?.state === 'alive' ? holder.adminUrl : undefined

/** Where a gateway of this configuration takes acts on this machine, if one runs. */
const adminUrlHere = ({ config }: LoadedConfig) => `http://127.0.0.1:${config.admin.port}`

const gatewayMissing = (site: Site, why: string, instead = '') =>
  new UnavailableError(
    'gateway_not_running',
    `no gateway responds: ${why}`,
    `start it with \`proposer serve --config ${shellWord(site.loaded.path)}\`${instead}`,
  )

export interface Acted {
  readonly result: ActResult
  readonly through: 'gateway' | 'store'
}

/** A gateway that starts takes acts once it has read its chain, which may be never. */
const startLimitMs = 5_000
const pauseMs = 25

/**
 * Where the gateway that serves a store in a folder takes acts; one that is starting is waited for.
 * UnavailableError (75) where nobody serves it, StorageError `store_locked` naming a holder that
 * takes no acts.
 */
async function actingUrl(site: Site) {
  const { clock, signal, store } = site
  const endMs = clock.monotonicMs() + (site.timeoutMs ?? startLimitMs)
  for (;;) {
    const holder = await readHolder(site, store)
    const url = adminUrlOf(holder)
    if (url !== undefined) return url
    if (holder === undefined || holder.state === 'free' || holder.state === 'dead')
      throw nobodyServes(site)
    const isStarting = holder.role === 'starting'
    if (!isStarting || clock.monotonicMs() > endMs)
      throw new StorageError(
        'store_locked',
        `${store} is in use by ${holderText(holder)}${isStarting ? ': it accepts changes once it has read its chain' : ''}`,
        {
          hint: isStarting
            ? 'retry when `serve` has printed its URL, or set --timeout to wait for it; if that does not help, check chain.rpc_urls'
            : 'wait until it is done, then retry',
        },
      )
    await clock.sleep(pauseMs, signal)
  }
}

const nobodyServes = (site: Site) =>
  gatewayMissing(site, `no gateway serves ${site.store}`, ', or edit gateway.json')

/**
 * Carries out one act: by the admin listener of the gateway that serves the store; in a database
 * without one on this machine, by the store itself. `undefined` with --dry-run, which only shows
 * what would be done. Rejects with what the act rejects with, and where nobody would carry it out.
 */
export async function act(site: Site, name: ActName, body: object): Promise<Acted | undefined> {
  const { store, loaded } = site
  if (site.isDryRun)
    return showDryRun(site, `carry out ${name} on ${store}`, { act: name, store, ...body })
  if (loaded.place.kind === 'folder') {
    const url = await actingUrl(site).catch((error: unknown) => {
      // A gateway whose key is lost does not start: only here can it get another one.
      const isNeeded = name === 'receipts/rotate' && error instanceof UnavailableError
      if (!isNeeded) throw error
    })
    const acted = url && (await postAct(site, url, name, body))
    if (acted) return acted
    // The gateway has gone since its lock was read.
    if (url !== undefined) throw nobodyServes(site)
  } else if (await site.files.exists(adminTokenFile(loaded))) {
    const acted = await postAct(site, adminUrlHere(loaded), name, body)
    if (acted) return acted
  }
  const { operator, close } = await openToAct(site, loaded)
  const result = await operator.run(name, body).finally(close)
  return { result, through: 'store' }
}

const Names = z.array(z.string())
const Done = z.object({
  changed: Names,
  unchanged: Names,
  reason: z.string(),
  by: z.optional(z.string()),
  notes: Names,
  bytes: z.optional(z.object({ before: z.number(), after: z.number() })),
})
const Refused = z.object({
  error: z.object({ code: z.string(), detail: z.string(), hint: z.optional(z.string()) }),
})

/**
 * Acts may be repeated: what is as requested stays. The body of an answer with 200; `undefined`
 * where nobody listens any more. Rejects with RejectedError (3) for a refusal, UnauthorizedError (4)
 * for a wrong token, UnavailableError (75) for 503, UncertainError (6) where no answer came.
 */
async function postAct(
  site: Site,
  url: string,
  name: ActName,
  body: object,
): Promise<Acted | undefined> {
  const token = await readAdminToken(adminTokenFile(site.loaded))
  if (!(await isProven(site, url, token))) return undefined
  const init = {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
    body: JSON.stringify(body),
  }
  const answer = await exchange(site, `${url}/operator/${name}`, init, uncertain)
  if (answer === undefined) return undefined
  if (answer.status !== 200) throw refusalOf(answer)
  const parsed = Done.safeParse(answer.body)
  if (parsed.success) return { result: { act: name, ...parsed.data }, through: 'gateway' }
  throw uncertain('the gateway returned an unexpected response')
}

/**
 * Whoever has taken the port of a gateway that is down is shown no token, and believed nothing.
 * `false` where nobody listens.
 */
async function isProven(site: Site, url: string, token: string) {
  const nonce = hexOf(site.random.bytes(32))
  const answer = await getAdmin(site, `${url}${proofPath}${nonce}`)
  if (answer === undefined) return false
  const { host, port } = new URL(url)
  const parsed = z.object({ proof: z.string() }).safeParse(answer)
  if (parsed.success && parsed.data.proof === tokenProof(token, Number(port), nonce)) return true
  throw new UnauthorizedError(
    'unauthorized',
    `what listens on ${host} does not know the token of this store: nothing was sent to it`,
    'where admin.token was changed after the gateway had started, or the gateway is of an earlier version, restart it; else another program has taken its port',
  )
}

/**
 * A GET of the admin listener: the body of an answer; `undefined` where nobody listens. A gateway of
 * an earlier version may not have the look. Rejects with UnavailableError (75) where no such answer
 * came: nothing is changed by looking.
 */
async function getAdmin(site: Site, url: string) {
  const limited = { ...site, timeoutMs: site.timeoutMs ?? lookMs }
  const answer = await exchange(limited, url, { method: 'GET' }, unanswered)
  if (answer === undefined) return undefined
  if (answer.status !== 200 && answer.status !== 404)
    throw unanswered(`the gateway answered ${answer.status} to ${new URL(url).pathname}`)
  return answer.body
}

const lookMs = 10_000

function unanswered(detail: string, cause?: unknown) {
  return new UnavailableError('gateway_unanswered', detail, {
    cause,
    retryable: true,
    hint: "check the gateway's process and log, then retry, or raise --timeout",
  })
}

/** Without a time limit as long as the connection lives. `lost`: what was sent may have been done. */
async function exchange(
  { clock, edges, signal, timeoutMs }: Site,
  url: string,
  init: HttpCall,
  lost: (detail: string, cause?: unknown) => ProposerError,
): Promise<{ readonly status: number; readonly body: unknown } | undefined> {
  const fetch = await edges.fetch()
  const because = (what: string, cause?: unknown) =>
    lost(`gateway ${new URL(url).host}: ${what}`, cause)
  const ask = async (over?: AbortSignal) => {
    const both = over === undefined ? signal : AbortSignal.any([signal, over])
    const { status, body } = await fetch(url, { ...init, signal: both })
    return { status, body: (await new Response(body).json()) as unknown }
  }
  try {
    if (timeoutMs === undefined) return await ask()
    const seconds = Math.ceil(timeoutMs / 100) / 10
    return await within(clock, timeoutMs, ask, () => because(`no response within ${seconds} s`))
  } catch (cause) {
    if (signal.aborted) throw signal.reason
    if (cause instanceof SyntaxError) throw because('the response is not from a gateway', cause)
    if (!(cause instanceof TransportError)) throw cause
    if (cause.phase === 'connect') return undefined
    throw because(networkFault(cause), cause)
  }
}

function refusalOf({ status, body }: { readonly status: number; readonly body: unknown }) {
  const parsed = Refused.safeParse(body)
  if (!parsed.success) return uncertain(`the gateway answered ${status} without a reason`)
  const { code, detail, hint } = parsed.data.error
  if (status === 401)
    return new UnauthorizedError(
      code,
      'the gateway rejects the token of this store',
      'admin.token was changed after the gateway had started: restart it',
    )
  if (status === 503) return new UnavailableError(code, detail, hint ?? 'retry in a moment')
  if (status >= 500)
    return new StorageError(
      code,
      detail,
      'check the gateway, then rerun the command: what is already done stays unchanged',
    )
  return status === 409
    ? new ConflictError(code, detail, hint ?? 'resolve the conflict, then retry')
    : new RejectedError(code, detail, hint ?? 'correct it, then retry')
}

const uncertain = (detail: string, cause?: unknown) =>
  new UncertainError('act_unknown', `${detail}: the change may have been made`, {
    cause,
    hint: 'rerun the command: what is already done stays unchanged',
  })

const rows = 1_000

const statusBlock =
  (status: StatusDocument, parts?: readonly string[]) =>
  ({ columns, paint }: Screen) =>
    statusLines(status, { columns, rows, paint, parts }).join('\n')

export const statusVerb = siteVerb({
  name: 'status',
  about:
    'show the status of the gateway: readiness, nodes, queue, calls, rate limit, executor, last changes',
  help: 'Exit 75 if no gateway serves the store; a gateway that is not ready is exit 0, with its reasons.',
  examples: ['operator status'],
  async run(site) {
    const { document, status } = await askStatus(site)
    const all = { ...document, store_place: site.store }
    site.output.show('operator-status', all, [statusBlock(status)])
  },
})

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
    site.output.show('operator-budget', document, [statusBlock(status, ['limit'])])
  },
})

export const topVerb = siteVerb({
  name: 'top',
  about: 'show the live status until Ctrl-C, redrawn every second',
  help: 'The gateway keeps running when you leave.',
  examples: ['operator top'],
  async run(site) {
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
  const { loaded, store } = site
  const isShared = loaded.place.kind === 'database'
  const holder = isShared ? undefined : await readHolder(site, store)
  const url = isShared ? adminUrlHere(loaded) : adminUrlOf(holder)
  const document = url && (await getAdmin(site, `${url}/operator/status`))
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
