/** What verbs of the client share: opened on first use, closed at the end. */

import { requireRpcUrl } from '#chain/unavailable'
import type { BudgetedClient } from '#client/budget/planner'
import { type Journal, openJournal } from '#client/journal/journal'
import {
  onlyRequester,
  parseTrust,
  profilePins,
  receiptKeysOf,
  type Trust,
  wholePins,
} from '#client/trust/trust'
import { systemEd25519 } from '#io/ed25519'
import { permissionsOf } from '#io/files'
import { type Chain, ChainError, type Markets } from '#ports'
import { givenAddress } from '#protocol/address'
import { exit, ProposerError, UnavailableError, UsageError } from '#protocol/errors'
import { codeText } from '#protocol/network-words'
import { once } from '#protocol/once'
import { shellWord } from '#protocol/text'
import type { Context } from '../terminal/context.js'
import { visible } from '../terminal/render.js'
import { verbOver } from '../terminal/verb.js'
import { type Account, executorKeyOf, inputJson, openAccount } from './inputs.js'
import {
  allowedHttp,
  type Configured,
  requireGammaUrl,
  requireTarget,
  resolveSettings,
  type SessionFlags,
  type Setting,
  type Settings,
} from './settings.js'

export interface Session extends Configured {
  readonly journal: Journal
  readonly account: Account
  trust(): Promise<Trust>
  /**
   * In-process, `run` takes its store's lock and executes; `read` only looks (contract §6, --local).
   * A command has one: what is to run is opened before anything opens it for reading.
   */
  gateway(mode: 'run' | 'read'): Promise<BudgetedClient>
  chain(): Promise<Chain | undefined>
  markets(): Promise<Markets | undefined>
  /** Aborted by Ctrl-C, as `signal`, or when --timeout has run out. */
  readonly until: AbortSignal
}

export async function withSession<T>(
  context: Context,
  flags: SessionFlags,
  use: (session: Session) => Promise<T>,
) {
  const settings = await resolveSettings(context, flags)
  const configured = { ...context, settings }
  const { clock } = context
  const journal = openJournal(context, settings.home.value)
  // A second Ctrl-C says what the first would have: 6 where something is unknown (contract §9).
  context.endAs?.({ exitCode: () => (journal.isUnsettled() ? exit.unknown : exit.interrupted) })
  const account = openAccount(configured, flags)
  const limit = timeLimit(settings.timeoutMs)
  const startedMs = clock.monotonicMs()
  const until = AbortSignal.any([context.signal, limit.signal])
  const closers: (() => Promise<void>)[] = [() => journal.close(), async () => limit.stop()]
  const session: Session = {
    ...configured,
    journal,
    account,
    until,
    trust: once(async () => {
      const trust = await loadTrust(configured)
      return flags.requester === undefined
        ? trust
        : onlyRequester(trust, givenAddress(flags.requester, '--requester'))
    }),
    gateway: once(async (mode: 'run' | 'read') => {
      const target = await openTarget(configured, flags, mode)
      closers.push(target.close)
      const { timeoutMs } = settings
      const leftMs = () => timeoutMs && timeoutMs - (clock.monotonicMs() - startedMs)
      const [{ createGatewayClient }, { withBudget }] = await Promise.all([
        import('#client/gateway/gateway-client'),
        import('#client/budget/planner'),
      ])
      const receipts = await receiptChecksOf(session)
      const client = createGatewayClient({ ...target, clock, receipts })
      const planner = await openPlanner(configured, client.origin)
      const gateway = withBudget(client, planner, { signal: until, leftMs })
      closers.push(() => gateway.close())
      return gateway
    }),
    chain: once(async () =>
      settings.rpcUrl
        ? context.edges.chain([requireRpcUrl(settings.rpcUrl.value, settings.rpcUrl.from)])
        : undefined,
    ),
    markets: once(async () => {
      if (settings.gammaUrl === undefined) return undefined
      const url = requireGammaUrl(settings.gammaUrl)
      const { gammaMarkets } = await import('#io/gamma')
      return gammaMarkets(await context.edges.fetch(), url)
    }),
  }
  const [outcome] = await Promise.allSettled([use(session)])
  account.dispose()
  const closed: PromiseSettledResult<void>[] = []
  for (const close of closers.reverse()) closed.push(...(await Promise.allSettled([close()])))
  if (outcome.status === 'rejected') throw stoppedOr(context, withHost(outcome.reason, settings))
  // What the verb did is done; what did not close well is still reported.
  for (const one of closed) if (one.status === 'rejected') throw one.reason
  return outcome.value
}

export async function requireChain(session: Session, what: string) {
  const chain = await session.chain()
  if (chain) return chain
  throw new UsageError(
    'no_rpc_url',
    `${what} needs a node, and none is configured`,
    'give --rpc-url <url>, or set PROPOSER_RPC_URL',
  )
}

/** What core works with, of what every session has. */
export const partsOf = async (session: Session) => ({
  ...{ ports: session, journal: session.journal },
  ...{ trust: await session.trust(), chain: await session.chain() },
})

export const sessionVerb = verbOver<Session>(withSession)

/** After --timeout: the error of a call without an answer (contract §6, exit 75). */
function timeLimit(timeoutMs: number | undefined) {
  const controller = new AbortController()
  const end = (ms: number) => {
    const detail = `no response within ${ms / 1000} s`
    controller.abort(new UnavailableError('timed_out', detail, 'raise --timeout, or retry later'))
  }
  const timer = timeoutMs && setTimeout(end, timeoutMs, timeoutMs)
  return { signal: controller.signal, stop: () => clearTimeout(timer) }
}

/** A call that admits nothing and was cut short left nothing unknown (contract §6, exit 130). */
function stoppedOr(context: Context, error: unknown) {
  const deferred = error instanceof ProposerError && error.meta.exitCode === exit.deferred
  return context.signal.aborted && deferred ? context.signal.reason : error
}

export async function openTarget(context: Configured, flags: SessionFlags, mode: 'run' | 'read') {
  const { settings } = context
  const { kind, setting } = requireTarget(settings)
  if (kind === 'gateway') {
    const fetch = await context.edges.fetch()
    const allowHttp = allowedHttp(settings.allowHttp)
    const close = async () => undefined
    return { fetch, baseUrl: setting.value, allowHttp, isLocal: false, close }
  }
  const { openLocalGateway } = await import('#host/gateway-host')
  const { fetch, origin, close } = await openLocalGateway(context, setting.value, mode, {
    executorKey: executorKeyOf(context, settings.home.value, flags),
    onWait: (reason) => context.output.note(`the gateway waits: ${visible(reason)}`),
    onWarning: (code, detail) => context.output.warning(code, detail),
  })
  // No socket is opened: it only completes the URLs that the handler reads its paths from.
  const baseUrl = 'http://localhost'
  return { fetch: context.traced?.(fetch) ?? fetch, baseUrl, origin, isLocal: true, close }
}

export async function openPlanner(context: Configured, origin: string) {
  const { createPlanner } = await import('#client/budget/planner')
  const planner = createPlanner(context, context.settings.home.value, origin, {
    onWait: (waitMs, reason) =>
      context.output.countdown(`Rate limit reached (${visible(reason)}); next request`, {
        nowMs: context.clock.nowMs(),
        waitMs,
      }),
    onNote: (text) => context.output.remark(text),
  })
  await planner.snapshot()
  return planner
}

export async function builtInPins({ files, settings: { trust, profile } }: Configured) {
  if (trust.origin !== 'default' || (await files.exists(trust.value))) return undefined
  return profilePins(profile.value)
}

export async function loadTrust(context: Configured) {
  const { settings } = context
  const { value: path, from, origin } = settings.trust
  const builtIn = await builtInPins(context)
  if (builtIn !== undefined) return wholePins(settings.profile.value, builtIn)
  if (!(await context.files.exists(path))) {
    const make =
      'make it with `proposer trust init --from <file>` (a trust.json or the ready line of a dev chain)'
    throw new UsageError(
      'no_trust',
      `the contracts to trust are not pinned: ${path} (${from}) does not exist`,
      origin === 'environment'
        ? `unset ${from}, or ${make}, or give --trust <file>`
        : `${make}, give --trust <file>, or use a built-in profile: --profile polygon or --profile dev`,
    )
  }
  const mode = (await permissionsOf(path)) ?? 0
  if ((mode & 0o022) !== 0)
    throw new UsageError(
      'trust_writable',
      `${path} (${from}) can be changed by others: its mode is ${mode.toString(8)}, and must be 644 or less`,
      `look at what is in it, then \`chmod go-w ${shellWord(path)}\``,
    )
  return parseTrust(await inputJson(context, path), path)
}

export const slugsById = (slugs: Trust['slugs']) =>
  new Map(Object.entries(slugs).map(([slug, id]) => [id, slug]))

/** Host and setting of what failed (contract §9); nothing else of a URL (R5). */
export function withHost(error: unknown, { rpcUrl, gateway }: Settings) {
  const cause = error instanceof UnavailableError ? error.meta.cause : error
  if (cause instanceof ChainError && cause.kind === 'unavailable' && rpcUrl !== undefined) {
    const said = cause.message.replace(/^the RPC node: /, '')
    return named(error, 'chain_unavailable', 'RPC node', rpcUrl, said)
  }
  // What says more, as of an admitted payload, keeps its words and its hint.
  const isPlain =
    error instanceof UnavailableError && error.detail.startsWith('no connection to the gateway')
  if (isPlain && gateway !== undefined)
    return named(error, error.code, 'gateway', gateway, error.detail)
  return error
}

const codes = /\b(?:E[A-Z_]{3,}|UND_ERR_[A-Z_]+|[A-Z_]*CERT[A-Z_]*|[A-Z_]*SELF_SIGNED\w*)\b/

function named(error: unknown, code: string, what: string, setting: Setting, said: string) {
  if (!URL.canParse(setting.value)) return error
  const fault = codeText(codes.exec(said)?.[0] ?? '')
  const { hint, ...meta } = error instanceof UnavailableError ? error.meta : {}
  return new UnavailableError(code, `${what} ${new URL(setting.value).host}: ${fault ?? said}`, {
    ...meta,
    cause: error,
    hint: fault === undefined && hint !== undefined ? hint : `check ${setting.from}, then retry`,
  })
}

/** An unreadable trust file is told, and stops no sending: saved bytes stay replayable (R7). */
async function receiptChecksOf({ output, hash, trust }: Session) {
  const told = new Set<string>()
  const keys = await trust()
    .then(receiptKeysOf)
    .catch((error: unknown) => {
      if (!(error instanceof ProposerError)) throw error
      if (error.code !== 'no_trust')
        output.warning('receipts_unchecked', `receipts are not checked: ${error.detail}`)
      return []
    })
  return {
    hash,
    ed25519: systemEd25519,
    keys,
    onUnproven(code: string, detail: string) {
      if (told.has(code)) return
      told.add(code)
      output.warning(
        code,
        `the gateway's answer is not proven: ${detail}. It counts as it is: do not sign again because of it. The journal keeps it (\`proposer journal show <journal-id> --verify\`)`,
      )
    },
  }
}
