/** `conformance <url>`: named checks of the service spec against any gateway (contract §6). */

import { join } from 'node:path'
import * as z from 'zod'
import { withBudget } from '#client/budget/planner'
import { createGatewayClient, parseBaseUrl } from '#client/gateway/gateway-client'
import { pinnedQuestionId, Trust, unpinnedSlug } from '#client/trust/trust'
import type { Bet } from '#conformance/bench'
import { createProbe } from '#conformance/probe'
import { type CheckResult, rules, rulesNamed, runRules, unseenRules } from '#conformance/run'
import { systemEd25519 } from '#io/ed25519'
import { readableByUmask } from '#io/files'
import { parseKey, signerFromKey } from '#io/keys'
import { RejectedError, UsageError } from '#protocol/errors'
import { Bytes32 } from '#protocol/schema'
import { withDevGateway } from './hosting/foreground.js'
import { confirm, jsonIn, readText, writeText } from './session/inputs.js'
import { givenAmount, identify, pinnedUnits, requireIdentifier } from './session/question.js'
import { openPlanner, openTarget, type Session, withSession } from './session/session.js'
import { executorFlags, requireTarget, signerFlags } from './session/settings.js'
import type { Context } from './terminal/context.js'
import type { Output } from './terminal/output.js'
import { counted, fold, visible } from './terminal/render.js'
import { type EveryFlag, type FlagsOf, parserOf, verb } from './terminal/verb.js'

const gather = (value: string, before: readonly string[] = []) => [
  ...before,
  ...value.split(',').filter((one) => one !== ''),
]

const conformanceFlags = {
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
type ConformanceFlags = FlagsOf<typeof conformanceFlags> & EveryFlag

export const conformanceCommand = verb({
  name: 'conformance',
  about: 'check a gateway against the service spec, rule by rule; exit 3 if it breaks one',
  args: { '[url]': 'base URL of the gateway; or --gateway, --local, --dev, --dev-ready' },
  flags: conformanceFlags,
  help: 'Without --allow-execution, amounts are more than any wallet holds, so that nothing admitted can be executed; or one raw unit, which a correct gateway refuses. With it, p2 (p1 where that is not allowed) is proposed on the last free question with its bond, after confirmation or with --yes; with --rpc-url the node confirms round and bond.\n\nA run uses some 1,100 items of the rate limit and waits for its windows: about 10 minutes at the default of 120 items in 60 s. `--list` has the cost of each check. --only with a section (2.7) fits one window; 4.2.1 and 8 do not, because they send whole batches.\n\nUse a separate wallet and --home: what is signed holds its question until its deadline, 15 minutes. Until then it counts as reserved: `funds` of that home reports 2^128 and more as missing, and `submit --rpc-url` is refused.',
  examples: [
    'conformance https://gateway.example --read-only --question some-slug',
    'conformance https://gateway.example --only 2.7 --only 4.1 --question some-slug',
    'conformance --dev --junit report.xml',
    'serve --dev --json > ready.json',
    'conformance --dev-ready ready.json --junit report.xml',
  ],
  async run(context, flags, { url }) {
    const chosen = chosenRules(flags.only)
    if (flags.list) return list(context, chosen)
    refuseContradictions(flags, url)
    if (flags.dev) return checkOwn(context, flags, chosen)
    const ready =
      flags.devReady === undefined ? undefined : await readReadyLine(context, flags.devReady)
    const gateway = url ?? ready?.url
    const all = gateway === undefined ? flags : { ...flags, gateway }
    await withSession(context, all, (session) => {
      requireTarget(session.settings)
      return check(session, all, chosen, ready)
    })
  },
})

/** Windows of the default length would be waited for. */
const assignments = ['budget.per_ip_items=450', 'budget.window_seconds=4']

async function checkOwn(context: Context, flags: ConformanceFlags, chosen: typeof rules) {
  const { output } = context
  const onNote = (text: string) => output.note(visible(text))
  const options = { verb: 'conformance --dev', assignments, onNote }
  await output.during('starting a chain and a gateway', (line) =>
    withDevGateway(context, options, ({ url, dev, folder }) => {
      line.stop()
      const ready = ReadyLine.parse({ event: 'ready', url, dev })
      const own = { ...flags, gateway: url, home: flags.home ?? join(folder, 'home') }
      return withSession(context, own, (session) => check(session, own, chosen, ready))
    }),
  )
}

const rulesOf = parserOf(
  '--only',
  (name) => (rulesNamed(name).length > 0 ? rulesNamed(name) : undefined),
  'unknown_check',
  'a check or a section',
  'see `proposer conformance --list`',
)

function chosenRules(only: readonly string[] = []) {
  const named = only.flatMap(rulesOf)
  return only.length === 0 ? rules : rules.filter((one) => named.includes(one))
}

function refuseContradictions(flags: ConformanceFlags, url: string | undefined) {
  const { local, gateway, trust, junit, json, ndjson, dev, devReady } = flags
  const usage = (fault: string, hint: string) => new UsageError('usage', fault, hint)
  const [, second] = [url ?? devReady, local, gateway, dev].filter((one) => one !== undefined)
  if (second !== undefined)
    throw usage(
      'the gateway is given twice',
      'give one of its URL, --gateway, --local, --dev and --dev-ready',
    )
  if ((dev ?? devReady) !== undefined && trust !== undefined)
    throw usage('a development gateway has its own pins', 'omit --trust')
  if (junit === '-' && (json || ndjson))
    throw usage('--junit - and --json cannot both use stdout', 'give --junit a file')
}

function list({ output }: Context, chosen: typeof rules) {
  const checks = chosen.map(({ run: _run, ...entry }) => entry)
  const width = Math.max(...checks.map(({ id }) => id.length))
  const lines = checks.map(
    ({ id, tier, items, section, says }) =>
      `${id.padEnd(width)}  ${tier.padEnd(7)}  ${String(items).padStart(3)}  ${section}: ${says}`,
  )
  const unseen = unseenRules.map(({ section, says, why }) => `${section}: ${says} (${why})`)
  const cost = 'The number is the cost of a check, in rate-limit items.'
  output.show('conformance-list', { checks, unseen: unseenRules }, [
    () => [...lines, '', cost, '', 'Not visible from outside:', ...unseen].join('\n'),
  ])
}

async function check(
  session: Session,
  flags: ConformanceFlags,
  chosen: typeof rules,
  ready?: ReadyLine,
) {
  const { output, clock } = session
  const startedMs = clock.monotonicMs()
  // Before anything is printed or sent: without a terminal nobody can be asked later.
  if (betsOwnMoney(flags, ready) && !session.isInteractive)
    await confirm(session, 'A proposal would go on chain, with its bond.', session.settings.yes)
  const isListed = output.isForPeople && flags.junit !== '-'
  const { checks, unusable } = await output.during('checking', async (line) => {
    const { close, ...parts } = await openParts(session, flags, ready)
    const onCheck = (one: CheckResult) => {
      output.item(one)
      if (isListed) output.text(listLine(one, output))
      line.update(`checking: ${one.id} ${one.result}`)
    }
    return runRules(parts, chosen, onCheck).finally(close)
  })
  const summary = summaryOf(checks)
  if (flags.junit !== undefined) {
    const text = junitText(checks, (clock.monotonicMs() - startedMs) / 1_000)
    if (flags.junit === '-') output.text(text)
    // Our files are ours alone, but whoever runs the pipeline collects a report.
    else await readableByUmask(await writeText(session, flags.junit, text))
  }
  const { total, passed, failed, skipped } = summary
  const sums = `${counted(total, 'check')}: ${passed} passed, ${failed} failed, ${skipped} skipped`
  if (flags.junit === '-') output.note(sums)
  else output.show('conformance', { checks, summary, unseen: unseenRules }, [() => `\n${sums}`])
  if (failed > 0) {
    const ids = checks.flatMap(({ id, result }) => (result === 'fail' ? [id] : []))
    throw new RejectedError(
      'not_conformant',
      `${failed} of ${total} checks failed: ${ids.slice(0, 5).join(', ')}${failed > 5 ? ', …' : ''}`,
      'each says what was sent and received; run one alone with `proposer conformance <url> --only <id>`',
    )
  }
  if (skipped > 0 && unusable !== undefined)
    throw new RejectedError(
      'no_usable_question',
      `${unusable}: checks were skipped that need one`,
      'give an open question that the pins know with --question',
    )
}

function summaryOf(checks: readonly CheckResult[]) {
  const count = (result: CheckResult['result']) =>
    checks.filter((check) => check.result === result).length
  return {
    total: checks.length,
    passed: count('pass'),
    failed: count('fail'),
    skipped: count('skip'),
  }
}

/** XML 1.0 cannot write most control characters; `visible` has spelled them out. */
const xml = (text: string) =>
  visible(text).replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`)

function junitText(checks: readonly CheckResult[], seconds: number) {
  const { total, failed, skipped } = summaryOf(checks)
  const cases = checks.map(({ id, section, result, detail }) => {
    const start = `    <testcase classname="${xml(section)}" name="${xml(id)}"`
    const message = `message="${xml(detail)}"`
    if (result === 'pass') return `${start}/>`
    const inner =
      result === 'skip' ? `<skipped ${message}/>` : `<failure ${message}>${xml(detail)}</failure>`
    return `${start}>\n      ${inner}\n    </testcase>`
  })
  const counts = `tests="${total}" failures="${failed}" skipped="${skipped}" time="${seconds.toFixed(3)}"`
  return [
    '<?xml version="1.0" encoding="UTF-8"?>',
    `<testsuites name="proposer conformance" ${counts}>`,
    `  <testsuite name="conformance" ${counts}>`,
    ...cases,
    '  </testsuite>',
    '</testsuites>',
    '',
  ].join('\n')
}

function listLine(
  { id, result, detail, notes = [] }: CheckResult,
  { paint, columns, isTerminal }: Output,
) {
  const marks = { pass: paint.green('ok  '), fail: paint.red('FAIL'), skip: paint.dim('skip') }
  // What a program reads stays on its line.
  const width = isTerminal ? columns : Infinity
  const lines = [...(result === 'pass' ? [] : [detail]), ...notes.map((note) => `note: ${note}`)]
  return `${marks[result]}  ${visible(id)}\n${lines.map((text) => `${fold(visible(text), width, '      ')}\n`).join('')}`
}

const ReadyLine = z.object({
  event: z.literal('ready'),
  url: z.string(),
  dev: z.object({
    rpc_url: z.string().optional(),
    trust: Trust,
    accounts: z.array(z.object({ role: z.string(), private_key: z.string() })),
    questions: z.array(z.object({ question_id: Bytes32 })),
  }),
})
type ReadyLine = z.infer<typeof ReadyLine>

async function readReadyLine(context: Context, path: string) {
  for (const line of jsonIn(await readText(context, path))) {
    const parsed = ReadyLine.safeParse(line)
    if (parsed.success) return parsed.data
  }
  throw new UsageError(
    'no_ready_line',
    `${path === '-' ? 'stdin' : path} holds no ready line of a development gateway`,
    'give what `proposer serve --dev --json` printed',
  )
}

const betsOwnMoney = (flags: ConformanceFlags, ready: ReadyLine | undefined) =>
  flags.allowExecution && ready === undefined

function betText({
  context: { question_id, slug, bond },
  proposer,
  outcome,
  label,
  amountRaw,
  bondIsConfirmed,
}: Bet) {
  const question = slug ? `${visible(slug)} (${question_id})` : question_id
  const source = bondIsConfirmed
    ? 'the bond is read from the node'
    : 'the bond is reported by the gateway; --rpc-url would confirm it'
  return `goes on chain: ${outcome} (${visible(label)}) on ${question}, ${amountRaw} raw units of ${bond.token} from ${proposer}; ${source}`
}

async function openParts(session: Session, flags: ConformanceFlags, ready: ReadyLine | undefined) {
  const { output, clock, settings, until: signal } = session
  const { trust, named, wallets, chain } = await (ready === undefined
    ? configuredParts(session, flags)
    : devParts(session, flags, ready))
  const questions = named.map((identifier) => {
    const questionId = pinnedQuestionId(trust, identifier)
    if (questionId === undefined) throw unpinnedSlug(identifier)
    const [slug] = Object.entries(trust.slugs).findLast(([, id]) => id === questionId) ?? []
    return { questionId, slug }
  })
  const writes = flags.readOnly !== true
  const may = {
    admit: writes,
    execute: writes && (flags.allowExecution ?? ready !== undefined),
    overrun: flags.overrunBudget ?? ready !== undefined,
  }
  const cap = await givenAmount(settings.maxAmount, () => pinnedUnits(session, undefined, trust))
  // Made for this run alone: its wallet is on no list and holds nothing.
  const strangerWallet = writes ? signerFromKey(session.random.bytes(32)) : undefined
  const target = await openTarget(session, flags, writes ? 'run' : 'read')
  const base = parseBaseUrl(target.baseUrl, target.allowHttp)
  const planner = await openPlanner(session, target.origin ?? base.origin)
  const probe = createProbe({ fetch: target.fetch, base: base.href, clock, planner, signal })
  const client = createGatewayClient({ ...target, fetch: probe.fetch, clock })
  return {
    ...{ probe, trust, wallets, questions, may, signal, chain, strangerWallet },
    gateway: withBudget(client, planner, { signal }),
    ports: session,
    ed25519: systemEd25519,
    journal: session.journal,
    isLocal: target.isLocal,
    close: target.close,
    async confirmBet(bet: Bet) {
      if (betsOwnMoney(flags, ready) && !settings.yes)
        await confirm(session, `${betText(bet)}. Sign it?`, false)
      else output.note(betText(bet))
    },
    maxAmountRaw: cap?.raw,
  }
}

/** Pins and node of the settings are another chain's than the development gateway's. */
async function devParts({ edges }: Session, { question }: ConformanceFlags, { dev }: ReadyLine) {
  const { rpc_url: url, trust, questions, accounts } = dev
  return {
    trust,
    named: question?.map(requireIdentifier) ?? questions.map(({ question_id }) => question_id),
    wallets: accounts
      .filter(({ role }) => role === 'proposer')
      .map(({ private_key }) => signerFromKey(parseKey(private_key, 'the ready line'))),
    chain: url === undefined ? undefined : await edges.chain([url]),
  }
}

async function configuredParts(session: Session, flags: ConformanceFlags) {
  const trust = await session.trust()
  const named = await identify(session, flags.question ?? [])
  return { trust, named, wallets: await ownWallets(session, flags), chain: await session.chain() }
}

async function ownWallets(session: Session, flags: ConformanceFlags) {
  try {
    const signer = await session.account.signer()
    if (signer.signTypedData === undefined) return [signer]
  } catch (error) {
    if (flags.readOnly && error instanceof UsageError && error.code === 'no_account') return []
    throw error
  }
  throw new UsageError(
    'signer_outside',
    'the checks sign many authorizations, and an external wallet would ask about each',
    'give a separate key with --account or PROPOSER_KEY_FILE, or --read-only',
  )
}
