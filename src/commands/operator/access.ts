/**
 * How an operator's command reaches a store and its gateway. Looking opens a store read-only (R24).
 * Acting goes by the admin listener, on loopback, at the URL that the store's lock names.
 */
import * as z from 'zod/mini'
import type { RegistryEntry } from '#chain/questions'
import type { Ledger } from '#gateway/ledger/ledger'
import { type ActName, ActResult, defaultReason } from '#gateway/operator/acts'
import { shownRegistry } from '#gateway/operator/registry'
import { within } from '#gateway/view/view'
import {
  adminTokenFile,
  type LoadedConfig,
  loadConfig,
  pastedCommand,
  registryOf,
  type StorePlace,
  settingsOf,
  storeFolder,
} from '#host/config-file'
import { openToAct } from '#host/gateway-host'
import { readPlaced } from '#host/held-store'
import { fromCwd } from '#io/home'
import { proofPath, readAdminToken, tokenProof } from '#io/serving/admin-token'
import { type HttpCall, type SqlDatabase, TransportError } from '#ports'
import { instant } from '#protocol/candidate'
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
import { endLease, leaseOf } from '#storage/postgres/leadership'
import { isGone, membersOf, type SeenMember } from '#storage/postgres/members'
import { requireTables } from '#storage/postgres/schema'
import { openQueries, type Queries } from '#storage/postgres/session'
import type { StoredRecord } from '#storage/record-log'
import { type LiveStatus, openStatus, statusLines } from '../hosting/live-status.js'
import { timeoutMs } from '../session/settings.js'
import type { Context } from '../terminal/context.js'
import type { Screen } from '../terminal/output.js'
import { counted, durationText, fold, shellWord } from '../terminal/render.js'
import { dryRunFlag, showDryRun, verbOver } from '../terminal/verb.js'

export const configFlag = {
  '--config <gateway.json>': 'path of the configuration; default: gateway.json',
} as const

const saidText = (flag: string, most: number, code: string, hint: string) => (text: string) => {
  if (text.trim() !== '' && text.length <= most) return text
  throw new UsageError(code, `${flag} must be a text of 1 to ${most} characters`, hint)
}
const parse = saidText('--reason', 500, 'bad_reason', 'give the reason in a sentence')
const byFlag = {
  '--by <who>': {
    about: 'who makes the change, stored with it; default: SUDO_USER, or the system user',
    parse: saidText('--by', 100, 'bad_value', 'give a name, such as --by alice'),
  },
} as const

export const saidFlags = {
  '--reason <text>': { about: 'reason, stored with the change; default: by operator', parse },
  ...byFlag,
} as const
export const neededSaidFlags = (about: string) =>
  ({ '--reason <text>': { about, parse, required: true }, ...byFlag }) as const

export type Said = Partial<Readonly<Record<'reason' | 'by', string>>>

export const saidOf = (
  { env, user }: Pick<Context, 'env' | 'user'>,
  { reason, by = (env.SUDO_USER?.trim() || user)?.slice(0, 100) }: Said,
): Said => ({ ...(reason !== undefined && { reason }), ...(by !== undefined && { by }) })

export type Site = Awaited<ReturnType<typeof siteOf>>

export async function siteOf(
  context: Context,
  flags: { config?: string; timeout?: string | undefined; dryRun?: boolean },
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
  return {
    ...context,
    loaded,
    store: await placeName(context, loaded.place),
    timeoutMs: limitMs,
    isDryRun: dryRun === true,
    named: pastedCommand(loaded),
  }
}

export const placeName = async ({ edges }: Context, place: StorePlace) =>
  place.kind === 'folder' ? place.folder : (await edges.database(place.url)).name

export const siteVerb = verbOver<Site, typeof configFlag>(async (context, flags, use) =>
  use(await siteOf(context, flags)),
)

interface StoreView {
  readonly ledger: Ledger
  readonly registry: readonly RegistryEntry[]
  readonly holder: LockHolder | undefined
}

/** Nothing is created or locked (R24). A slug that keeps a gateway from starting is a warning. */
export async function look<T>(
  site: Site,
  collectors: readonly { onRecord(record: StoredRecord): void }[],
  work: (view: StoreView) => Promise<T>,
) {
  const { loaded, named } = site
  const configured = await registryOf(site, loaded)
  const settings = settingsOf(loaded.config, undefined)
  const ledger = await readPlaced(site, loaded, settings, (record) => {
    for (const collector of collectors) collector.onRecord(record)
  })
  try {
    const holder = loaded.place.kind === 'folder' ? await holderOf(site) : undefined
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

async function holderOf(site: Site) {
  const holder = await readHolder(site, site.store)
  return holder?.state === 'free' || holder?.state === 'dead' ? undefined : holder
}

export const adminUrlOf = (holder: LockHolder | undefined) =>
  holder?.state === 'alive' ? holder.adminUrl : undefined

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

const startLimitMs = 5_000
const pauseMs = 25

/**
 * A gateway that starts is waited for. `undefined`: the store itself takes the act, which is of a
 * database, or of a gateway that does not start because its receipt key is lost.
 */
async function actingUrl(site: Site, name: ActName) {
  const { clock, signal, store, loaded } = site
  if (loaded.place.kind === 'database')
    return (await site.files.exists(adminTokenFile(loaded))) ? adminUrlHere(loaded) : undefined
  const endMs = clock.monotonicMs() + (site.timeoutMs ?? startLimitMs)
  for (;;) {
    const holder = await holderOf(site)
    const url = adminUrlOf(holder)
    if (url !== undefined) return url
    if (holder === undefined && name === 'receipts/rotate') return undefined
    if (holder === undefined) throw nobodyServes(site)
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

export async function act(site: Site, name: ActName, body: object): Promise<Acted | undefined> {
  const { store, loaded } = site
  if (site.isDryRun)
    return showDryRun(site, `carry out ${name} on ${store}`, { act: name, store, ...body })
  const url = await actingUrl(site, name)
  const acted = url && (await postAct(site, url, name, body))
  if (acted) return acted
  // The gateway has gone since its lock was read.
  if (url !== undefined && loaded.place.kind === 'folder') throw nobodyServes(site)
  const { operator, close } = await openToAct(site, loaded)
  const result = await operator.run(name, body).finally(close)
  return { result, through: 'store' }
}

const Refused = z.object({
  error: z.object({ code: z.string(), detail: z.string(), hint: z.optional(z.string()) }),
})

async function postAct(
  site: Site,
  url: string,
  name: ActName,
  body: object,
): Promise<Acted | undefined> {
  const token = await readAdminToken(adminTokenFile(site.loaded))
  if (!(await isProven(site, url, token))) return undefined
  const answer = await exchange(site, `${url}/operator/${name}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
    body: JSON.stringify(body),
  })
  if (answer === undefined) return undefined
  if (answer.status !== 200) throw refusalOf(answer)
  const parsed = ActResult.safeParse(answer.body)
  if (parsed.success) return { result: parsed.data, through: 'gateway' }
  throw uncertain('the gateway returned an unexpected response')
}

/** Whoever has taken the port of a gateway that is down is shown no token, and believed nothing. */
async function isProven(site: Site, url: string, token: string) {
  const nonce = hexOf(site.random.bytes(32))
  const answer = await exchange(site, `${url}${proofPath}${nonce}`)
  if (answer === undefined) return false
  const { host, port } = new URL(url)
  const parsed = z.object({ proof: z.string() }).safeParse(answer.body)
  if (parsed.success && parsed.data.proof === tokenProof(token, Number(port), nonce)) return true
  throw new UnauthorizedError(
    'unauthorized',
    `what listens on ${host} does not know the token of this store: nothing was sent to it`,
    'restart the gateway if admin.token was changed or its version is an earlier one; else another program has its port',
  )
}

const lookMs = 10_000

interface Answer {
  readonly status: number
  readonly body: unknown
}

/**
 * `undefined` where nobody listens. Without `act` nothing is changed; an earlier version may answer
 * 404. An act may have been done where no answer came.
 */
async function exchange(site: Site, url: string, act?: HttpCall): Promise<Answer | undefined> {
  const { clock, edges, signal, timeoutMs = act ? undefined : lookMs } = site
  const fetch = await edges.fetch()
  const { host, pathname } = new URL(url)
  const lost = (what: string, cause?: unknown) =>
    (act ? uncertain : unanswered)(`gateway ${host}: ${what}`, cause)
  const ask = async (over?: AbortSignal) => {
    const both = over === undefined ? signal : AbortSignal.any([signal, over])
    const { status, body } = await fetch(url, { ...act, signal: both })
    const text = await new Response(body).text().catch((cause: unknown) => {
      if (both.aborted) throw cause
      throw lost('its response broke off', cause)
    })
    return { status, body: JSON.parse(text) as unknown }
  }
  const seconds = Math.ceil((timeoutMs ?? 0) / 100) / 10
  const late = () => lost(`no response within ${seconds} s`)
  try {
    const answer = await (timeoutMs === undefined ? ask() : within(clock, timeoutMs, ask, late))
    if (act || answer.status === 200 || answer.status === 404) return answer
    throw lost(`it answered ${answer.status} to ${pathname}`)
  } catch (cause) {
    if (signal.aborted) throw signal.reason
    if (cause instanceof SyntaxError) throw lost('the response is not from a gateway', cause)
    if (!(cause instanceof TransportError)) throw cause
    if (cause.phase === 'connect') return undefined
    throw lost(networkFault(cause), cause)
  }
}

function refusalOf({ status, body }: Answer) {
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
  if (status >= 500) return new StorageError(code, detail, `check the gateway, then ${rerun}`)
  const Refusal = status === 409 ? ConflictError : RejectedError
  return new Refusal(code, detail, hint ?? 'correct it, then retry')
}

const rerun = 'rerun the command: what is already done stays unchanged'

const uncertain = (detail: string, cause?: unknown) =>
  new UncertainError('act_unknown', `${detail}: the change may have been made`, {
    cause,
    hint: rerun,
  })

const unanswered = (detail: string, cause?: unknown) =>
  new UnavailableError('gateway_unanswered', detail, {
    cause,
    retryable: true,
    hint: "check the gateway's process and log, then retry, or raise --timeout",
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
  while (!signal.aborted)
    try {
      await clock.sleep(everyMs, signal)
      status = (await askStatus(site)).status
      heardMs = clock.monotonicMs()
      lost = undefined
    } catch (error) {
      if (signal.aborted) break
      // A gateway that is started anew is found by its lock.
      if (!(error instanceof ProposerError)) throw error
      lost = error.detail
    }
  await live.end('left; the gateway keeps running')
}

/** Gateways on one database are asked on this machine alone. */
export async function askStatus(site: Site) {
  const { loaded, store } = site
  const isShared = loaded.place.kind === 'database'
  const holder = isShared ? undefined : await holderOf(site)
  const url = isShared ? adminUrlHere(loaded) : adminUrlOf(holder)
  const answer = url && (await exchange(site, `${url}/operator/status`))
  if (!answer)
    throw gatewayMissing(
      site,
      holder?.state === 'alive'
        ? `${holderText(holder)} does not listen`
        : `no gateway serves ${store}`,
    )
  const status = parseStatus(answer.body)
  if (status !== undefined) return { document: answer.body as object, status }
  throw new UnavailableError(
    'gateway_unanswered',
    'the gateway does not report its status',
    'use the same version of the command and the gateway',
  )
}

export async function sharedDatabase({ edges, loaded: { place, path } }: Site) {
  if (place.kind === 'database') return edges.database(place.url)
  throw new UsageError(
    'store_not_shared',
    `the store of ${path} is the folder ${storeFolder({ place })}, which one gateway serves`,
    'this command is for a store in PostgreSQL: give --config with its gateway.json, or set PROPOSER_STORE_URL_FILE',
  )
}

export async function withQueries<T>(
  database: SqlDatabase,
  work: (queries: Queries) => Promise<T>,
) {
  const queries = openQueries(database)
  try {
    return await work(queries)
  } finally {
    queries.close()
  }
}

async function withStore<T>(site: Site, work: (queries: Queries) => Promise<T>) {
  const database = await sharedDatabase(site)
  await requireTables(database)
  return withQueries(database, work)
}

export const gatewaysVerb = siteVerb({
  name: 'gateways',
  about: 'list the gateways of a PostgreSQL store: which run, which leads, how far each has read',
  examples: ['operator gateways --json'],
  async run(site) {
    const { lease, members } = await withStore(site, async (queries) => ({
      members: await membersOf(queries),
      lease: await leaseOf(queries),
    }))
    const { n: records, leader: id, epoch, endsInMs } = lease
    const lease_ends_in_seconds = Math.ceil(endsInMs / 1_000)
    const leader = id === undefined ? null : { id, epoch, lease_ends_in_seconds }
    const gone = members.filter(isGone).length
    const counts = [
      counted(members.length - gone, 'gateway'),
      ...(gone === 0 ? [] : [`${gone} gone`]),
      counted(records, 'record'),
      leader === null ? 'no leader' : `epoch ${epoch}`,
    ]
    const document = { store: site.store, records, leader, gateways: members.map(memberJson) }
    site.output.show('operator-gateways', document, [counts.join(', '), ...members.map(memberText)])
  },
})

const memberJson = (member: SeenMember) => ({
  id: member.id,
  leads: member.isLeader,
  version: member.version,
  host: member.host,
  admin_url: member.adminUrl ?? null,
  executor: member.executor ?? null,
  lag_records: member.lag,
  started_at: instant(member.startedAtMs),
  seen_seconds_ago: Math.floor(member.seenMsAgo / 1_000),
  gone: isGone(member),
})

const memberText =
  (one: SeenMember) =>
  ({ columns }: Screen) => {
    const age = durationText(one.seenMsAgo / 1_000, 1)
    const read = one.lag === 0 ? 'has read everything' : `lags ${counted(one.lag, 'record')}`
    const lines = [
      `version ${one.version} on ${one.host}${one.adminUrl ? `, admin ${one.adminUrl}` : ''}`,
      one.executor ? `executor ${one.executor}` : 'no executor key',
      isGone(one) ? `gone: no sign of life for ${age}` : `${read}; seen ${age} ago`,
    ].map((line) => `\n  ${fold(line, columns - 2, '    ')}`)
    return `${one.id}${one.isLeader ? '  leads' : ''}${lines.join('')}`
  }

export const resignVerb = siteVerb({
  name: 'resign',
  about: 'end the lease of the leading gateway, so that another one executes',
  flags: { ...saidFlags, ...dryRunFlag },
  examples: ['operator leader resign --reason "node upgrade"'],
  async run(site, flags) {
    const { store, clock, random } = site
    const { reason = defaultReason, by } = saidOf(site, flags)
    await withStore(site, async (queries) => {
      const { leader, epoch } = await leaseOf(queries)
      const said = { reason, ...(by && { by }) }
      if (leader === undefined) {
        const document = { store, led: null, through: null, ...said, others: 0 }
        const text = 'no gateway leads: there is no lease to end'
        return site.output.show('operator-leader', document, [text])
      }
      if (site.isDryRun) {
        const would = `end the lease of gateway ${leader} on ${store}`
        return showDryRun(site, would, { act: 'leader/resign', store, gateway: leader })
      }
      const members = await membersOf(queries)
      const { host = null, adminUrl: admin_url = null } =
        members.find(({ id }) => id === leader) ?? {}
      const led = { id: leader, epoch, host, admin_url }
      const through = (await endLease(queries, { leader, reason, by, clock, random }))
        ? 'store'
        : null
      const others = members.filter((one) => one.id !== leader && !isGone(one)).length
      site.output.show('operator-leader', { store, led, through, ...said, others }, [
        `gateway ${leader}${host ? ` on ${host}` : ''} led with epoch ${epoch}`,
        through
          ? `its lease has ended; ${others === 0 ? 'no other gateway runs: it may lead again' : `${counted(others, 'other gateway')} may take over`}`
          : 'it has already lost the lease',
      ])
    })
  },
})
