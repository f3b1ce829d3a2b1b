/** What verbs of the client share, each part opened on first use, all closed at the end. */

import { requireRpcUrl } from '#chain/unavailable'
import type { BudgetedClient } from '#client/budget/budgeted-client'
import type { Planner } from '#client/budget/planner'
import { type Journal, type JournalPorts, openJournal } from '#client/journal/journal'
import { onlyRequester, type Trust } from '#client/trust/trust'
import { type ProfilePins, parseTrust, profilePins, wholePins } from '#client/trust/trust-file'
import { permissionsOf } from '#io/files'
import type { Chain, Fetch, Markets } from '#ports'
import { givenAddress } from '#protocol/address'
import { exit, ProposerError, UnavailableError, UsageError } from '#protocol/errors'
import { once } from '#protocol/once'
import { shellWord } from '#protocol/text'
import type { Context } from '../terminal/context.js'
import { visible } from '../terminal/render.js'
import {
  type ArgsOf,
  type ArgTable,
  type EveryFlag,
  type FlagsOf,
  type FlagTable,
  type MakeCommand,
  type VerbTable,
  verb,
} from '../terminal/verb.js'
import { executorKeyOf } from './executor-key.js'
import type { SessionFlags } from './flags.js'
import { parseJson, readInput } from './inputs.js'
import { type Account, openAccount } from './key-source.js'
import { withHost } from './network-faults.js'
import { receiptChecksOf } from './receipts.js'
import {
  allowedHttp,
  requireGammaUrl,
  requireTarget,
  resolveSettings,
  type Settings,
} from './settings.js'

export interface Session {
  readonly settings: Settings
  readonly ports: JournalPorts
  /** Touches no file before it is used. */
  readonly journal: Journal
  readonly account: Account
  trust(): Promise<Trust>
  /**
   * `run`: an in-process gateway takes its store's lock and executes; `read`: it only looks
   * (contract §6,
   * --local). Calls of a remote one wait for the budget of this home.
   */
  gateway(mode: 'run' | 'read'): Promise<BudgetedClient>
  chain(): Promise<Chain | undefined>
  markets(): Promise<Markets | undefined>
  /** Aborted by Ctrl-C, or when --timeout has run out. */
  readonly signal: AbortSignal
}

export async function withSession<T>(
  context: Context,
  flags: SessionFlags,
  use: (session: Session) => Promise<T>,
): Promise<T> {
  const settings = await resolveSettings(context, flags)
  const { clock, random, hash, files, liveness } = context
  const ports: JournalPorts = { clock, random, hash, files, liveness }
  const journal = openJournal(ports, settings.home.value)
  // A second Ctrl-C says what the first would have: 6 where something is unknown (contract §9).
  context.endAs?.({ exitCode: () => (journal.isUnsettled() ? exit.unknown : exit.interrupted) })
  const account = openAccount(context, settings, flags)
  const limit = timeLimit(settings.timeoutMs)
  const startedMs = clock.monotonicMs()
  const signal = AbortSignal.any([context.signal, limit.signal])
  const closers: (() => Promise<void>)[] = [() => journal.close(), async () => limit.stop()]
  const session: Session = {
    settings,
    ports,
    journal,
    account,
    signal,
    trust: once(async () => {
      const trust = await loadTrust(context, settings)
      return flags.requester === undefined
        ? trust
        : onlyRequester(trust, givenAddress(flags.requester, '--requester'))
    }),
    gateway: once(async (mode: 'run' | 'read') => {
      const target = await openTarget(context, settings, flags, mode)
      closers.push(target.close)
      const { timeoutMs } = settings
      const leftMs = () =>
        timeoutMs === undefined ? undefined : timeoutMs - (clock.monotonicMs() - startedMs)
      const [{ createGatewayClient }, { withBudget }] = await Promise.all([
        import('#client/gateway/gateway-client'),
        import('#client/budget/budgeted-client'),
      ])
      const receipts = await receiptChecksOf(context, session.trust)
      const client = createGatewayClient({ ...target, clock, receipts })
      const planner = await openPlanner(context, settings, client.origin)
      const gateway = withBudget(client, planner, { signal, leftMs })
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
  // What the verb did is done; a journal or store that did not close well is still reported.
  for (const one of closed) if (one.status === 'rejected') throw one.reason
  return outcome.value
}

interface SessionVerb<Args, Flags, Above> extends VerbTable<Args, Flags, Above> {
  readonly fixed?: Partial<SessionFlags>
  readonly run: (
    context: Context,
    session: Session,
    flags: FlagsOf<Flags> & FlagsOf<Above> & EveryFlag,
    args: ArgsOf<Args>,
  ) => Promise<void>
}

export const sessionVerb = <
  const Args extends ArgTable = Record<never, string>,
  const Flags extends FlagTable = Record<never, string>,
  const Above extends FlagTable = Record<never, string>,
>({
  run,
  fixed,
  ...made
}: SessionVerb<Args, Flags, Above>): MakeCommand =>
  verb<Args, Flags, Above>({
    ...made,
    run: (context, flags, args) =>
      withSession(context, { ...flags, ...fixed }, (session) => run(context, session, flags, args)),
  })

/** After --timeout: the error of a call without an answer (contract §6, exit 75). */
function timeLimit(timeoutMs: number | undefined): { readonly signal: AbortSignal; stop(): void } {
  const controller = new AbortController()
  if (timeoutMs === undefined) return { signal: controller.signal, stop: () => undefined }
  const timer = setTimeout(() => {
    const detail = `no response within ${timeoutMs / 1000} s`
    controller.abort(new UnavailableError('timed_out', detail, 'raise --timeout, or retry later'))
  }, timeoutMs)
  return { signal: controller.signal, stop: () => clearTimeout(timer) }
}

/** A call that admits nothing and was cut short left nothing unknown (contract §6, exit 130). */
function stoppedOr(context: Context, error: unknown): unknown {
  const deferred = error instanceof ProposerError && error.meta.exitCode === exit.deferred
  return context.signal.aborted && deferred ? context.signal.reason : error
}

export interface OpenTarget {
  readonly fetch: Fetch
  readonly baseUrl: string
  readonly origin?: string
  readonly allowHttp?: readonly string[] | undefined
  readonly isLocal: boolean
  close(): Promise<void>
}

export async function openTarget(
  context: Context,
  settings: Settings,
  flags: SessionFlags,
  mode: 'run' | 'read',
): Promise<OpenTarget> {
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
  // No socket is opened: the name only completes the URLs that the handler reads its paths from.
  const baseUrl = 'http://localhost'
  return { fetch: context.traced?.(fetch) ?? fetch, baseUrl, origin, isLocal: true, close }
}

export async function openPlanner(
  context: Context,
  { home }: Settings,
  origin: string,
): Promise<Planner> {
  const { createPlanner } = await import('#client/budget/planner')
  const planner = createPlanner(context, home.value, origin, {
    onWait: (waitMs, reason) =>
      context.output.countdown(`Rate limit reached (${visible(reason)}); next request`, {
        nowMs: context.clock.nowMs(),
        waitMs,
      }),
    onNote: (text) => context.output.note(`note: ${text}`),
  })
  // What is wrong with the log is said before anything is signed.
  await planner.snapshot()
  return planner
}

/** Only for a built-in profile whose own file is not there and not named. */
export async function builtInPins(
  context: Context,
  { trust, profile }: Settings,
): Promise<ProfilePins | undefined> {
  if (trust.origin !== 'default' || (await context.files.exists(trust.value))) return undefined
  return profilePins(profile.value)
}

/** UsageError `no_trust`, `trust_writable` where others may change the file, `bad_trust`. */
export async function loadTrust(context: Context, settings: Settings): Promise<Trust> {
  const { value: path, from } = settings.trust
  const builtIn = await builtInPins(context, settings)
  if (builtIn !== undefined) return wholePins(settings.profile.value, builtIn)
  if (!(await context.files.exists(path))) {
    throw new UsageError(
      'no_trust',
      `the contracts to trust are not pinned: ${path} (${from}) does not exist`,
      'make it with `proposer trust init --from <file>` (a trust.json or the ready line of a dev chain), give --trust <file>, or use a built-in profile: --profile polygon or --profile dev',
    )
  }
  const mode = (await permissionsOf(path)) ?? 0
  if ((mode & 0o022) !== 0)
    throw new UsageError(
      'trust_writable',
      `${path} (${from}) can be changed by others: its mode is ${mode.toString(8)}, and must be 644 or less`,
      `look at what is in it, then \`chmod go-w ${shellWord(path)}\``,
    )
  const json = parseJson(await readInput(context, path), path)
  return parseTrust(json, path)
}
