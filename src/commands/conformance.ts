/** `conformance <url>`: named checks of the service spec against any gateway (contract §6). */

import { join } from 'node:path'
import * as z from 'zod'
import { withBudget } from '#client/budget/budgeted-client'
import { planBatch } from '#client/budget/forecast'
import { createGatewayClient, parseBaseUrl } from '#client/gateway/gateway-client'
import { type Trust as Pins, pinnedQuestionId, unpinnedSlug } from '#client/trust/trust'
import { Trust } from '#client/trust/trust-file'
import { type BenchParts, type Bet, createBench } from '#conformance/bench'
import { createProbe } from '#conformance/probe'
import { type CheckResult, itemsOf, rules, rulesNamed, runRules } from '#conformance/run'
import { unseenRules } from '#conformance/unseen'
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
import { type EveryFlag, type FlagsOf, verb } from './terminal/verb.js'

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
  help: 'Without --allow-execution, amounts are more than any wallet holds, so that nothing admitted can be executed; or one raw unit, which a correct gateway refuses. With it, p2 (p1 where that is not allowed) is proposed on the last free question with its bond, after confirmation or with --yes; with --rpc-url the node confirms round and bond.\n\nA run uses some 1,100 items of the rate limit and waits for its windows: about 10 minutes at the default of 120 items in 60 s. An estimate is printed on stderr before the first check. --only with a section (2.7) fits one window; 4.2.1 and 8 do not, because they send whole batches.\n\nUse a separate wallet and --home: what is signed holds its question until its deadline, 15 minutes. Until then it counts as reserved: `funds` of that home reports 2^128 and more as missing, and `submit --rpc-url` is refused.',
  examples: [
    'conformance https://gateway.example --read-only --question some-slug',
    'conformance https://gateway.example --only 2.7 --only 4.1 --question some-slug',
    'conformance --dev --junit report.xml',
    'serve --dev --json > ready.json',
    'conformance --dev-ready ready.json --junit report.xml',
  ],
  async run(context, flags, { url }) {
    const chosen = chosenRules(flags.only ?? [])
    if (flags.list) return list(context, chosen)
    refuseContradictions(flags, url)
    if (flags.dev) return checkOwn(context, flags, chosen)
    const ready =
      flags.devReady === undefined ? undefined : await readReadyLine(context, flags.devReady)
    const target = url ?? ready?.url
    // The address in the command's own words outranks every other.
    const all =
      target === undefined || flags.local !== undefined ? flags : { ...flags, gateway: target }
    await withSession(context, all, (session) => {
      requireTarget(session.settings)
      return check(session, all, chosen, ready)
    })
  },
})

/** A whole run fits windows of seconds: the default ones would be waited for. */
const assignments = ['budget.per_ip_items=450', 'budget.window_seconds=4']

async function checkOwn(context: Context, flags: ConformanceFlags, chosen: typeof rules) {
  const { output } = context
  const progress = output.progress('starting a chain and a gateway')
  const onNote = (text: string) => output.note(visible(text))
  const options = { verb: 'conformance --dev', assignments, onNote }
  await withDevGateway(context, options, ({ url, dev, folder }) => {
    progress.stop()
    const ready = ReadyLine.parse({ event: 'ready', url, dev })
    const own = { ...flags, gateway: url, home: flags.home ?? join(folder, 'home') }
    return withSession(context, own, (session) => check(session, own, chosen, ready))
  }).finally(() => progress.stop())
}

function chosenRules(only: readonly string[]) {
  const unknown = only.find((name) => rulesNamed(name).length === 0)
  if (unknown !== undefined) {
    throw new UsageError(
      'unknown_check',
      `--only ${unknown} is neither a check nor a section`,
      'see `proposer conformance --list`',
    )
  }
  const named = only.flatMap(rulesNamed)
  return only.length === 0 ? rules : rules.filter((one) => named.includes(one))
}

function refuseContradictions(flags: ConformanceFlags, url: string | undefined) {
  const { local, gateway, trust, junit, json, ndjson, dev, devReady } = flags
  const usage = (fault: string, hint: string) => new UsageError('usage', fault, hint)
  if (url !== undefined && (local ?? gateway) !== undefined)
    throw usage('the gateway is given twice', 'give the URL, or --gateway, or --local')
  if (devReady !== undefined && (local ?? trust) !== undefined)
    throw usage('--dev-ready already has gateway and pins', 'omit --local and --trust')
  if (dev && (url ?? local ?? gateway ?? devReady ?? trust) !== undefined)
    throw usage(
      '--dev starts its own gateway and has its pins',
      'omit --dev, or the gateway and --trust',
    )
  if (junit === '-' && (json === true || ndjson === true))
    throw usage('--junit - and --json cannot both use stdout', 'give --junit a file')
}

function list({ output }: Context, chosen: typeof rules) {
  const checks = chosen.map(({ run: _run, ...entry }) => entry)
  const width = Math.max(...checks.map(({ id }) => id.length))
  output.show('conformance-list', { checks, unseen: unseenRules }, [
    () =>
      [
        ...checks.map(({ id, tier, items, section, says }) => {
          const cost = `${tier.padEnd(7)}  ${String(items).padStart(3)}`
          return `${id.padEnd(width)}  ${cost}  ${section}: ${says}`
        }),
        '',
        'The number is the cost of a check, in rate-limit items.',
        '',
        'Not visible from outside:',
        ...unseenRules.map(({ section, says, why }) => `${section}: ${says} (${why})`),
      ].join('\n'),
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
  const parts = await openParts(session, flags, ready, () => progress?.stop())
  const report = teller(session, flags)
  const progress = output.isTerminal ? undefined : output.progress('checking')
  const bench = createBench(parts.bench)
  const onCheck = (one: CheckResult) => {
    report(one)
    progress?.update(`${one.id}: ${one.result}`)
  }
  const checks = await runRules(bench, chosen, onCheck, () =>
    tellEstimate(session, parts, chosen),
  ).finally(async () => {
    progress?.stop()
    await parts.close()
  })
  const summary = summaryOf(checks)
  if (flags.junit !== undefined) {
    const text = junitText(checks, (clock.monotonicMs() - startedMs) / 1_000)
    if (flags.junit === '-') output.text(text)
    // Our files are ours alone, but a report is collected by whoever runs the pipeline.
    else await readableByUmask(await writeText(session, flags.junit, text))
  }
  if (!output.isForPeople) output.show('conformance', { checks, summary, unseen: unseenRules }, [])
  else if (flags.junit === '-') output.note(summaryText(summary))
  else output.text(`\n${summaryText(summary)}\n`)
  const failed = checks.flatMap(({ id, result }) => (result === 'fail' ? [id] : []))
  if (failed.length > 0)
    throw new RejectedError(
      'not_conformant',
      `${failed.length} of ${checks.length} checks failed: ${failed.slice(0, 5).join(', ')}${failed.length > 5 ? ', …' : ''}`,
      'each says what was sent and received; run one alone with `proposer conformance <url> --only <id>`',
    )
  const unusable = summary.skipped > 0 ? bench.unusable() : undefined
  if (unusable !== undefined)
    throw new RejectedError(
      'no_usable_question',
      `${unusable}: checks were skipped that need one`,
      'give an open question that the pins know with --question',
    )
}

/**
 * Before the first check: windows are waited out, and the default ones are long (§8). One answer
 * has reported the budget by then.
 */
async function tellEstimate(
  { output }: Context,
  { bench, planner }: Awaited<ReturnType<typeof openParts>>,
  chosen: typeof rules,
) {
  const items = itemsOf(chosen, bench)
  const budget = await planner.snapshot()
  const { limitItems, windowMs, learnt } = budget
  const { seconds } = planBatch({ contextItems: 0, submitItems: items, statusItems: 0 }, budget)
  if (bench.isLocal || seconds === 0) return
  const overrun =
    bench.may.overrun && chosen.some(({ tier }) => tier === 'overrun') ? windowMs / 1_000 : 0
  const measure = `${limitItems} items in ${windowMs / 1_000} s${learnt ? '' : ', the default of the spec: this gateway reports none'}`
  const long = seconds + overrun
  const about = long < 100 ? `${Math.ceil(long)} s` : `${Math.ceil(long / 60)} min`
  output.note(
    `note: about ${about}: ${items} items at a rate limit of ${measure}; --only <section> runs fewer checks`,
  )
}

function teller({ output }: Context, flags: ConformanceFlags): (check: CheckResult) => void {
  if (output.isByLine) return (one) => output.line(one)
  if (!output.isForPeople || flags.junit === '-') return () => undefined
  return (one) => output.text(listLine(one, output))
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

/** XML 1.0 has no way to write most control characters; `visible` has spelled them out. */
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

/** A line for people; what failed or was left out says why, and notes follow. */
function listLine(
  { id, result, detail, notes = [] }: CheckResult,
  { paint, columns, isTerminal }: Output,
) {
  const mark = { pass: paint.green('ok  '), fail: paint.red('FAIL'), skip: paint.dim('skip') }[
    result
  ]
  const lines = [...(result === 'pass' ? [] : [detail]), ...notes.map((note) => `note: ${note}`)]
  // What a program reads stays on its line.
  const width = isTerminal ? columns : Number.POSITIVE_INFINITY
  return `${mark}  ${visible(id)}\n${lines.map((text) => `${fold(visible(text), width, '      ')}\n`).join('')}`
}

function summaryText({ total, passed, failed, skipped }: ReturnType<typeof summaryOf>) {
  return `${counted(total, 'check')}: ${passed} passed, ${failed} failed, ${skipped} skipped`
}

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
type ReadyLine = z.infer<typeof ReadyLine>

/** The first of the file (`-`: stdin). UsageError `no_ready_line`. */
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

/** A development chain's money is nobody's. */
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
  const question = slug === undefined ? question_id : `${visible(slug)} (${question_id})`
  const source = bondIsConfirmed
    ? 'the bond is read from the node'
    : 'the bond is reported by the gateway; --rpc-url would confirm it'
  return `goes on chain: ${outcome} (${visible(label)}) on ${question}, ${amountRaw} raw units of ${bond.token} from ${proposer}; ${source}`
}

/** `quiet` ends what is drawn on the terminal, before anything is asked. */
async function openParts(
  session: Session,
  flags: ConformanceFlags,
  ready: ReadyLine | undefined,
  quiet: () => void,
) {
  const { output, clock, settings, until: signal } = session
  const { question: named = [] } = flags
  const trust = ready?.dev.trust ?? (await session.trust())
  // Pins and node of the settings are another chain's than the development gateway's.
  const asked = ready === undefined ? await identify(session, named) : named.map(requireIdentifier)
  const questions = questionsOf(trust, asked, ready)
  const wallets = ready === undefined ? await ownWallets(session, flags) : devWallets(ready)
  const may = {
    admit: flags.readOnly !== true,
    execute: flags.readOnly !== true && (flags.allowExecution ?? ready !== undefined),
    overrun: flags.overrunBudget ?? ready !== undefined,
  }
  const cap = await givenAmount(settings.maxAmount, () => pinnedUnits(session, undefined, trust))
  // A node that is configured knows another chain than the development gateway's.
  const url = ready?.dev.rpc_url
  const devChain = url === undefined ? undefined : session.edges.chain([url])
  const chain = await (ready === undefined ? session.chain() : devChain)
  // Made for this run and forgotten with it: its wallet is on no list and holds nothing.
  const strangerWallet = may.admit ? signerFromKey(session.random.bytes(32)) : undefined
  const mode = flags.readOnly ? 'read' : 'run'
  const target = await openTarget(session, flags, mode)
  const base = parseBaseUrl(target.baseUrl, target.allowHttp)
  const planner = await openPlanner(session, target.origin ?? base.origin)
  const probe = createProbe({ fetch: target.fetch, base: base.href, clock, planner, signal })
  const client = createGatewayClient({ ...target, fetch: probe.fetch, clock })
  const gateway = withBudget(client, planner, { signal })
  const bench: BenchParts = {
    ...{ probe, gateway, trust, wallets, questions, may, signal, chain, strangerWallet },
    ports: session,
    ed25519: systemEd25519,
    journal: session.journal,
    isLocal: target.isLocal,
    async confirmBet(bet) {
      quiet()
      if (betsOwnMoney(flags, ready) && !settings.yes)
        await confirm(session, `${betText(bet)}. Sign it?`, false)
      else output.note(betText(bet))
    },
    maxAmountRaw: cap?.raw,
  }
  return {
    planner,
    bench,
    close: target.close,
  }
}

/** The questions that are asked for, or all of the development gateway, with the slugs known. */
function questionsOf(trust: Pins, asked: readonly string[], ready: ReadyLine | undefined) {
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

const devWallets = ({ dev }: ReadyLine) =>
  dev.accounts
    .filter(({ role }) => role === 'proposer')
    .map(({ private_key }) => signerFromKey(parseKey(private_key, 'the ready line')))

/** Without an account only what signs nothing can be examined, and that has to be said. */
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
