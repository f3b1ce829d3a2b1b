/** What a run of the checks works with: gateway, wallets, questions, and what it may do. */
import * as z from 'zod'
import { withBudget } from '#client/budget/budgeted-client'
import type { Planner } from '#client/budget/planner'
import { createGatewayClient, parseBaseUrl } from '#client/gateway/gateway-client'
import { type Trust as Pins, pinnedQuestionId, unpinnedSlug } from '#client/trust/trust'
import { Trust } from '#client/trust/trust-file'
import type { BenchParts, Bet } from '#conformance/bench'
import { createProbe } from '#conformance/probe'
import { systemEd25519 } from '#io/ed25519'
import type { Signer } from '#ports'
import { UsageError } from '#protocol/errors'
import { Bytes32 } from '#protocol/schema'
import { givenAmount, pinnedUnits } from '../session/amounts.js'
import { executorFlags, signerFlags } from '../session/flags.js'
import { identify } from '../session/identify.js'
import { confirm, readInput } from '../session/inputs.js'
import { requireIdentifier } from '../session/question.js'
import { openPlanner, openTarget, type Session } from '../session/session.js'
import type { Context } from '../terminal/context.js'
import { visible } from '../terminal/render.js'
import type { EveryFlag, FlagsOf } from '../terminal/verb.js'

const gather = (value: string, before: readonly string[] = []) => [
  ...before,
  ...value.split(',').filter((one) => one !== ''),
]

export const conformanceFlags = {
  '--question <id|slug|url>': {
    about: 'open question to propose on; may be repeated',
    parse: gather,
  },
  '--dev-ready <file>':
    'take everything from the ready line of `serve --dev --json` (- for stdin); allows execution and overrun',
  '--dev': 'check a gateway of this version, started for this run with a chain of its own',
  '--read-only': {
    about: 'run only checks that submit nothing',
    conflicts: ['--allow-execution'],
  },
  '--allow-execution': 'also run checks that execute a proposal on chain',
  '--overrun-budget': 'also exceed the rate limit; waits for its window to end',
  '--max-amount <amount>': 'maximum amount of the executed proposal',
  '--only <id|family>': {
    about: 'run only these checks or sections, such as 2.7; may be repeated',
    parse: gather,
  },
  '--list': 'list the checks, each with its rule, and exit',
  '--junit <file>': 'also write JUnit XML; - for stdout instead of the list',
  ...signerFlags,
  ...executorFlags,
} as const
export type ConformanceFlags = FlagsOf<typeof conformanceFlags> & EveryFlag

const ReadyLine = z.object({
  event: z.literal('ready'),
  url: z.string(),
  dev: z.object({
    rpc_url: z.string().optional(),
    trust: Trust,
    accounts: z.array(z.object({ role: z.string(), private_key: z.string() })),
    questions: z.array(z.object({ question_id: Bytes32, slug: z.string() })),
  }),
})
/** What a development gateway tells of itself: address, pins, throwaway keys, open questions. */
export type ReadyLine = z.infer<typeof ReadyLine>

export const readyOf = (line: unknown): ReadyLine => ReadyLine.parse(line)

/** The first line of the file (`-`: stdin) that is one. UsageError `no_ready_line`. */
export async function readReadyLine(context: Context, path: string): Promise<ReadyLine> {
  const text = new TextDecoder().decode(await readInput(context, path))
  for (const line of text.split('\n').filter((one) => one.startsWith('{'))) {
    try {
      const parsed = ReadyLine.safeParse(JSON.parse(line))
      if (parsed.success) return parsed.data
    } catch {
      // Not this line; where none is, the error below says so.
    }
  }
  throw new UsageError(
    'no_ready_line',
    `${path === '-' ? 'stdin' : path} holds no ready line of a development gateway`,
    'give what `proposer serve --dev --json` printed',
  )
}

/** A development chain's money is nobody's. */
export const betsOwnMoney = (flags: ConformanceFlags, ready: ReadyLine | undefined) =>
  flags.allowExecution === true && ready === undefined

function betText({
  context: { question_id, slug, bond },
  proposer,
  outcome,
  label,
  amountRaw,
  bondIsConfirmed,
}: Bet): string {
  const question = slug === undefined ? question_id : `${visible(slug)} (${question_id})`
  const source = bondIsConfirmed
    ? 'the bond is read from the node'
    : 'the bond is reported by the gateway; --rpc-url would confirm it'
  return `goes on chain: ${outcome} (${visible(label)}) on ${question}, ${amountRaw} raw units of ${bond.token} from ${proposer}; ${source}`
}

export interface RunParts {
  readonly bench: BenchParts
  readonly planner: Planner
  close(): Promise<void>
}

/** `quiet` ends what is drawn on the terminal, before anything is asked. */
export async function openParts(
  context: Context,
  session: Session,
  flags: ConformanceFlags,
  ready: ReadyLine | undefined,
  quiet: () => void,
): Promise<RunParts> {
  const { output, clock } = context
  const { settings, signal } = session
  const { question: named = [] } = flags
  const trust = ready?.dev.trust ?? (await session.trust())
  // Pins and node of the settings are another chain's than the development gateway's.
  const asked =
    ready === undefined ? await identify(context, session, named) : named.map(requireIdentifier)
  const questions = questionsOf(trust, asked, ready)
  const wallets = ready === undefined ? await ownWallets(session, flags) : await devWallets(ready)
  const may = {
    admit: flags.readOnly !== true,
    execute: flags.readOnly !== true && (flags.allowExecution ?? ready !== undefined),
    overrun: flags.overrunBudget ?? ready !== undefined,
  }
  const cap = await givenAmount(settings.maxAmount, () =>
    pinnedUnits(context, session, undefined, trust),
  )
  const isOwnMoney = betsOwnMoney(flags, ready)
  // A node that is configured knows another chain than the development gateway's.
  const url = ready?.dev.rpc_url
  const devChain = async () => (url === undefined ? undefined : context.edges.chain([url]))
  const chain = await (ready === undefined ? session.chain() : devChain())
  const strangerWallet = may.admit ? await throwawayWallet(session) : undefined
  const mode = flags.readOnly === true ? 'read' : 'run'
  const target = await openTarget(context, settings, flags, mode)
  const base = parseBaseUrl(target.baseUrl, target.allowHttp)
  const planner = await openPlanner(context, settings, target.origin ?? base.origin)
  const probe = createProbe({ fetch: target.fetch, base: base.href, clock, planner, signal })
  const client = createGatewayClient({ ...target, fetch: probe.fetch, clock })
  const gateway = withBudget(client, planner, { signal })
  return {
    planner,
    bench: {
      ports: session.ports,
      ed25519: systemEd25519,
      journal: session.journal,
      probe,
      gateway,
      trust,
      wallets,
      questions,
      may,
      isLocal: target.isLocal,
      signal,
      async confirmBet(bet) {
        quiet()
        if (isOwnMoney && !settings.yes) await confirm(context, `${betText(bet)}. Sign it?`, false)
        else output.note(betText(bet))
      },
      chain,
      strangerWallet,
      maxAmountRaw: cap?.raw,
    },
    async close() {
      await gateway.close()
      await target.close()
    },
  }
}

/** The questions that are asked for, or all of the development gateway, with the slugs known. */
function questionsOf(
  trust: Pins,
  asked: readonly string[],
  ready: ReadyLine | undefined,
): BenchParts['questions'] {
  const known = ready?.dev.questions ?? []
  const identifiers = asked.length > 0 ? asked : known.map(({ question_id }) => question_id)
  return identifiers.map((identifier) => {
    const dev = known.find(({ slug }) => slug === identifier)
    const questionId = pinnedQuestionId(trust, identifier) ?? dev?.question_id
    if (questionId === undefined) throw unpinnedSlug(identifier)
    const named =
      known.find(({ question_id }) => question_id === questionId)?.slug ??
      Object.entries(trust.slugs).findLast(([, id]) => id === questionId)?.[0]
    return { questionId, slug: named }
  })
}

/** Made for this run and forgotten with it: its wallet is on no list and holds nothing. */
async function throwawayWallet({ ports }: Session): Promise<Signer> {
  const { signerFromKey } = await import('#io/keys')
  return signerFromKey(ports.random.bytes(32))
}

async function devWallets({ dev }: ReadyLine): Promise<readonly Signer[]> {
  const { parseKey, signerFromKey } = await import('#io/keys')
  return dev.accounts
    .filter(({ role }) => role === 'proposer')
    .map(({ private_key }) => signerFromKey(parseKey(private_key, 'the ready line')))
}

/** Without an account only what signs nothing can be examined, and that has to be said. */
async function ownWallets(session: Session, flags: ConformanceFlags): Promise<readonly Signer[]> {
  try {
    const signer = await session.account.signer()
    if (signer.signTypedData === undefined) return [signer]
  } catch (error) {
    if (flags.readOnly === true && error instanceof UsageError && error.code === 'no_account')
      return []
    throw error
  }
  throw new UsageError(
    'signer_outside',
    'the checks sign many authorizations, and an external wallet would ask about each',
    'give a separate key with --account or PROPOSER_KEY_FILE, or --read-only',
  )
}
