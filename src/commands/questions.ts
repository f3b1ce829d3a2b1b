/** `questions`: what can be proposed now, and what each source cannot know (contract §6). */
import { aggregating } from '#chain/aggregate'
import { createRoundReader, type RegistryEntry } from '#chain/questions'
import type { Contracts, Round } from '#chain/round'
import type { Rules } from '#chain/rules'
import { onChain } from '#chain/unavailable'
import { roundFactsOf, scanFacts } from '#client/questions/facts'
import {
  byGateway,
  fromLogs,
  fromMarkets,
  type ListedQuestion,
  onlyWanted,
  type QuestionSeen,
  type QuestionSource,
  unconfirmed,
} from '#client/questions/listing'
import { chainNow, rulesOfRound } from '#client/trust/context'
import { contractsOf, type Trust } from '#client/trust/trust'
import { yieldToEvents } from '#io/serving/load'
import type { Chain, Hex, Markets } from '#ports'
import { spanMs } from '#protocol/duration'
import { UnavailableError, UsageError } from '#protocol/errors'
import { answersText } from '#protocol/outcome-words'
import { limits, zeroAddress } from '#protocol/words'
import { wholeNumber } from './hosting/foreground.js'
import { sinceMs } from './session/flags.js'
import { orGammaDown } from './session/identify.js'
import { contextSource } from './session/question.js'
import { builtInPins, type Session, sessionVerb } from './session/session.js'
import { worksheetText } from './session/worksheet.js'
import type { Context } from './terminal/context.js'
import { table } from './terminal/output.js'
import { amountText, counted, dateText, fold, timeText, visible } from './terminal/render.js'
import { type Column, wideFlag } from './terminal/table.js'
import { type FlagsOf, verb } from './terminal/verb.js'

type ListedRules = ReadonlyMap<string, Rules>

const questionFlags = {
  '--source <source>': {
    about:
      'source to read; default: registry with --local, otherwise gamma if the profile has it, otherwise chain',
    choices: ['registry', 'chain', 'gamma'],
  },
  '--questions <file>': 'read the registry from this questions.json',
  '--mine': 'list questions that this home has signed for, in any state',
  '--all': 'list answered and paused questions too',
  '--closing <duration>': 'list events that end within this time, such as 2h',
  '--since <time>': { about: 'look back this far: an age, or a time', default: '7d' },
  '--limit <n>': { about: 'maximum number of rows', default: '50' },
  '--csv': 'print a worksheet: fill in outcome, then hand it to batch submit',
  ...wideFlag,
  '--gamma-url <url>': "Polymarket's market API",
} as const
type ListFlags = FlagsOf<typeof questionFlags>

const listVerb = sessionVerb({
  name: 'list',
  about: 'list open questions, re-opened rounds first',
  flags: questionFlags,
  help: 'The chain knows what was asked since --since, but neither slugs nor when an event ends.\nGamma knows both; a node (--rpc-url) confirms round, bond and state.',
  examples: [
    'questions list --rpc-url http://127.0.0.1:8545',
    'questions list --source gamma --closing 2h',
    'questions list --csv > today.csv',
  ],
  async run(context, session, flags) {
    const limit = wholeNumber('--limit', flags.limit, 1, 10_000)
    const since = (nowMs: number) => sinceMs(flags.since, nowMs)
    since(0)
    const closingMs = flags.closing === undefined ? undefined : closingOf(flags.closing)
    const rules = new Map<string, Rules>()
    const found = await findQuestions(context, session, {
      source: flags.source,
      questionsFile: flags.questions,
      isMine: flags.mine === true,
      isAll: flags.all === true,
      closingMs,
      since,
      limit,
      rules: flags.csv === true ? rules : undefined,
    })
    show(context, found, flags, rules)
  },
})

export const questionsCommand = verb({
  name: 'questions',
  about: 'list questions that can be proposed on',
  examples: ['questions list'],
  verbs: [listVerb],
})

function closingOf(text: string): number {
  const span = spanMs(/^\d+$/.test(text) ? `${text}s` : text)
  if (span !== undefined && span > 0) return span
  throw new UsageError(
    'bad_closing',
    `--closing ${text} is not a duration`,
    'give a duration such as --closing 2h or --closing 90m',
  )
}

function show(context: Context, found: FoundQuestions, flags: ListFlags, rules: ListedRules) {
  const { output } = context
  const { questions, source, notes, leftOut } = found
  for (const note of notes) output.note(`note: ${visible(note)}`)
  if (flags.csv === true) {
    output.text(worksheetText(questions.map((one) => sheetRow(one, rules))))
    return
  }
  const summary = { source, since: found.since, left_out: leftOut, notes }
  output.show(
    'questions',
    { questions, ...summary },
    [
      questions.length === 0
        ? () => fold(emptyText(flags, found), output.columns)
        : table(columns, questions, flags.wide === true),
    ],
    { items: questions, summary: { ...summary, questions: questions.length } },
  )
}

function emptyText({ mine, all }: ListFlags, { since }: FoundQuestions): string {
  const back = since === null ? '' : ` since ${timeText(since)}`
  if (mine === true) return `no question${back} that this home has signed for`
  return `no ${all === true ? '' : 'open '}question${back}`
}

const sheetRow = (
  { question_id: identifier, token, ...row }: ListedQuestion,
  rules: ListedRules,
) => ({
  ...row,
  rules: rules.get(identifier),
  identifier,
  units: token ?? undefined,
})

const columns: readonly Column<ListedQuestion>[] = [
  { head: 'question', cell: (one) => one.slug ?? one.question_id },
  { head: 'title', least: 12, cell: (one) => one.title },
  {
    head: 'answers',
    least: 10,
    rank: 3,
    cell: (one) => answersText(one.outcomes),
  },
  {
    head: 'bond',
    right: true,
    cell: (one) => one.bond && amountText(one.bond, one.token ?? undefined),
  },
  {
    head: 'reward',
    right: true,
    rank: 4,
    cell: (one) => one.reward && amountText(one.reward, one.token ?? undefined),
  },
  {
    head: 'state',
    cell: (one) => (one.reopened ? `${one.state} again` : (one.state ?? 'not confirmed')),
    colour: (one) => (one.reopened ? 'yellow' : 'white'),
  },
  { head: 'proposed by', rank: 5, cell: (one) => one.proposed_by },
  { head: 'ends', rank: 1, cell: (one) => one.ends_at && timeText(one.ends_at) },
  {
    head: 'round',
    wide: true,
    cell: (one) => one.round_timestamp && dateText(one.round_timestamp).split(' (')[0],
  },
  { head: 'question id', wide: true, cell: (one) => one.question_id },
  { head: 'confirmed by', wide: true, cell: (one) => one.confirmed_by ?? 'nobody' },
]

interface QuestionsAsked {
  readonly source: QuestionSource | undefined
  readonly questionsFile: string | undefined
  readonly isMine: boolean
  readonly isAll: boolean
  readonly closingMs: number | undefined
  /** The instant to look back to, by now; both Unix milliseconds. */
  readonly since: (nowMs: number) => number
  readonly limit: number
  /** Takes clarifications by question id, as far as a chain tells them. */
  readonly rules: Map<string, Rules> | undefined
}

interface FoundQuestions {
  readonly questions: readonly ListedQuestion[]
  readonly source: QuestionSource
  /** How far was looked back, RFC 3339; null where the source has no such bound. */
  readonly since: string | null
  readonly leftOut: number | null
  readonly notes: readonly string[]
}

interface Search {
  readonly context: Context
  readonly session: Session
  readonly asked: QuestionsAsked
  readonly trust: Trust
  readonly chain: Chain | undefined
  readonly nowMs: number
  readonly sinceMs: number
  readonly signed: Signed
  isWanted(question: ListedQuestion): boolean
}

interface Signed {
  readonly ids: ReadonlySet<string>
  readonly wallets: ReadonlySet<string>
}

async function findQuestions(
  context: Context,
  session: Session,
  asked: QuestionsAsked,
): Promise<FoundQuestions> {
  const { local } = session.settings
  const isFile = asked.questionsFile !== undefined
  if (isFile && (asked.source ?? 'registry') !== 'registry')
    throw new UsageError(
      'two_sources',
      `--questions is a registry, and --source is ${asked.source}`,
      'omit one of them',
    )
  if (local !== undefined && !isFile && (asked.source ?? 'registry') === 'registry')
    return fromLocal(context, session, asked, local.value)
  const builtIn = await builtInPins(context, session.settings)
  // Looking needs no spender.
  const trust =
    builtIn === undefined
      ? await session.trust()
      : { ...builtIn, signed_proposer: builtIn.signed_proposer ?? zeroAddress }
  const chain = await session.chain()
  const nowMs =
    chain === undefined
      ? context.clock.nowMs()
      : 1000 * (await chainNow(chain, trust, context.clock))
  const search = await searchOf(context, session, asked, { trust, chain, nowMs })
  const markets = await session.markets()
  const source = asked.source ?? defaultSource(search, markets !== undefined)
  if (source !== 'gamma') refuseClosing(asked, source)
  if (source === 'gamma') return fromGamma(search, markets)
  if (source === 'chain') return fromChain(search)
  const { readQuestionsFile } = await import('#host/local-registry')
  const entries =
    asked.questionsFile === undefined
      ? Object.entries(trust.slugs).map(([slug, questionId]) => ({ slug, questionId }))
      : await readQuestionsFile(context, asked.questionsFile)
  return fromRegistry(search, entries)
}

function defaultSource({ trust, chain, asked }: Search, hasMarkets: boolean): QuestionSource {
  if (asked.questionsFile !== undefined) return 'registry'
  if (hasMarkets) return 'gamma'
  if (chain !== undefined) return 'chain'
  // What `serve --dev` and `devchain` print names all of their questions.
  if (Object.keys(trust.slugs).length > 0) return 'registry'
  throw new UsageError(
    'no_source',
    'no source of questions: no node, market API or pinned slug',
    'give --rpc-url <url>, --local <gateway.json> or --questions <file>',
  )
}

function refuseClosing({ closingMs }: QuestionsAsked, source: QuestionSource) {
  if (closingMs === undefined) return
  throw new UsageError(
    'closing_unknown',
    `--closing requires --source gamma, not ${source}: only gamma knows when an event ends`,
    'add --source gamma, or omit --closing',
  )
}

async function searchOf(
  context: Context,
  session: Session,
  asked: QuestionsAsked,
  { trust, chain, nowMs }: Pick<Search, 'trust' | 'chain' | 'nowMs'>,
): Promise<Search> {
  const authorizations = asked.isMine ? (await session.journal.load()).authorizations : []
  const signed: Signed = {
    ids: new Set(authorizations.map((one) => one.signed.questionId)),
    wallets: new Set(authorizations.map((one) => one.signed.terms.proposer)),
  }
  const isMine = ({ question_id, proposed_by }: ListedQuestion) =>
    signed.ids.has(question_id) || signed.wallets.has(proposed_by ?? '')
  const untilMs = asked.closingMs === undefined ? undefined : nowMs + asked.closingMs
  const endsInTime = ({ ends_at }: ListedQuestion) =>
    untilMs === undefined || (ends_at !== null && Date.parse(ends_at) <= untilMs)
  const isOpen = ({ state }: ListedQuestion) => state === null || state === 'requested'
  return {
    context,
    session,
    asked,
    trust,
    chain: chain && aggregating(chain, yieldToEvents),
    nowMs,
    sinceMs: asked.since(nowMs),
    signed,
    isWanted: (one) => endsInTime(one) && (asked.isMine ? isMine(one) : asked.isAll || isOpen(one)),
  }
}

async function confirm(
  { context, session, asked, isWanted }: Search,
  chain: Chain,
  contracts: Contracts,
  candidates: readonly QuestionSeen[],
  source: QuestionSource,
  limit = asked.limit,
) {
  const progress = context.output.progress(`asking for ${counted(candidates.length, 'question')}`)
  const rounds: Round[] = []
  try {
    const found = await onlyWanted(createRoundReader(chain, contracts), candidates, {
      source,
      limit,
      isWanted,
      onRound: (round) => rounds.push(round),
      signal: session.signal,
      onProgress: (done) => progress.update(`asked for ${done} of ${candidates.length} questions`),
    })
    if (asked.rules !== undefined) await readAllRules(chain, rounds, asked.rules)
    return found
  } finally {
    progress.stop()
  }
}

async function readAllRules(chain: Chain, rounds: readonly Round[], into: Map<string, Rules>) {
  const read = await Promise.all(rounds.map((round) => rulesOfRound(chain, round)))
  for (const [at, { questionId }] of rounds.entries()) {
    const rules = read[at]
    if (rules !== undefined) into.set(questionId, rules)
  }
}

const moreNote = (count: number) =>
  count === 0 ? [] : [`${counted(count, 'question')} more than --limit`]

async function fromChain(search: Search): Promise<FoundQuestions> {
  const { context, session, asked, trust, chain, sinceMs, signed } = search
  if (chain === undefined)
    throw new UsageError(
      'no_rpc_url',
      '--source chain needs a node, and none is configured',
      'give --rpc-url <url>, or set PROPOSER_RPC_URL',
    )
  const contracts = contractsOf(trust)
  const notes: string[] = []
  const progress = context.output.progress('reading the logs of the oracle')
  const { facts, from } = await onChain(() =>
    scanFacts(
      {
        ...{ chain, contracts, files: context.files, hash: context.hash },
        home: session.settings.home.value,
        signal: session.signal,
        onProgress: (block, head) => progress.update(`reading logs: block ${block} of ${head}`),
        onNote: (text) => notes.push(text),
      },
      BigInt(Math.floor(Math.max(0, sinceMs) / 1000)),
    ),
  ).finally(progress.stop)
  const { rounds, unnamed } = roundFactsOf(facts, contracts)
  const slugs = new Map(Object.entries(trust.slugs).map(([slug, id]) => [id, slug]))
  const wanted = rounds.filter(({ questionId, state, proposer, openedAt }) => {
    if (asked.isMine) return signed.ids.has(questionId) || signed.wallets.has(proposer ?? '')
    return asked.isAll || (state === 'requested' && (openedAt ?? 0) >= Number(from))
  })
  const seen = new Set(wanted.map(({ questionId }) => questionId))
  const older = [...signed.ids].filter((id) => !seen.has(id as Hex))
  const { questions, unseen } = await confirm(
    search,
    chain,
    contracts,
    [...fromLogs(wanted, slugs), ...older.map((id) => candidateOf(id as Hex, slugs))],
    'chain',
  )
  const since = instant(sinceMs)
  return {
    ...{ questions, source: 'chain', since, leftOut: unseen },
    notes: [
      `read from the chain since ${timeText(since)}; it knows neither event ends nor slugs that are not pinned`,
      ...(unnamed === 0
        ? []
        : [`${counted(unnamed, 'open round')} of requesters whose logs have no question id`]),
      ...notes,
      ...moreNote(unseen),
    ],
  }
}

const candidateOf = (questionId: Hex, slugs: ReadonlyMap<Hex, string>): QuestionSeen => ({
  questionId,
  slug: slugs.get(questionId),
})

const instant = (ms: number) => new Date(Math.max(0, Math.floor(ms / 1000)) * 1000).toISOString()

async function fromLocal(
  context: Context,
  session: Session,
  asked: QuestionsAsked,
  path: string,
): Promise<FoundQuestions> {
  refuseClosing(asked, 'registry')
  const { readRegistry } = await import('#host/local-registry')
  const { entries, contracts, chain } = await readRegistry(context, path)
  const trust = {} as Trust
  const nowMs = context.clock.nowMs()
  const search = await searchOf(context, session, asked, { trust, chain, nowMs })
  return registryOnChain(search, chain, contracts, entries)
}

async function fromRegistry(
  search: Search,
  entries: readonly RegistryEntry[],
): Promise<FoundQuestions> {
  const { context, session, asked, trust, chain, isWanted } = search
  if (chain !== undefined) return registryOnChain(search, chain, contractsOf(trust), entries)
  const source = await contextSource(context, session)
  const questions: ListedQuestion[] = []
  let next = 0
  while (next < entries.length && questions.length < asked.limit) {
    const some = entries.slice(next, next + limits.batchItems)
    const ids = some.map(({ questionId }) => questionId)
    const results = await source.contexts(ids, { signal: session.signal })
    for (const [index, result] of results.entries()) {
      const entry = some[index]
      if (entry === undefined) continue
      if (result.error instanceof UnavailableError) throw result.error
      const question = result.context && byGateway(entry, result.context)
      if (question !== undefined && isWanted(question)) questions.push(question)
    }
    next += some.length
  }
  const shown = questions.slice(0, asked.limit)
  const leftOut = entries.length - next + questions.length - shown.length
  return {
    ...{ questions: shown, source: 'registry', since: null, leftOut },
    notes: [
      'the gateway was asked about the pinned slugs: it reports open questions only, without reward and earlier rounds; a node (--rpc-url) reports all',
      ...moreNote(leftOut),
    ],
  }
}

async function registryOnChain(
  search: Search,
  chain: Chain,
  contracts: Contracts,
  entries: readonly RegistryEntry[],
): Promise<FoundQuestions> {
  const candidates = entries.map((entry) => ({
    ...{ questionId: entry.questionId, slug: entry.slug, entry },
  }))
  // A registry is short, and only the chain knows which rounds were opened again.
  const all = await confirm(search, chain, contracts, candidates, 'registry', candidates.length)
  const questions = all.questions.slice(0, search.asked.limit)
  const leftOut = all.questions.length - questions.length
  return {
    ...{ questions, source: 'registry', since: null, leftOut },
    notes: ['only the registry was read; other questions are not listed', ...moreNote(leftOut)],
  }
}

const marketsAtOnce = 100
const mostPages = 30

async function fromGamma(search: Search, markets: Markets | undefined): Promise<FoundQuestions> {
  const { session, asked, trust, chain, nowMs, sinceMs, isWanted } = search
  if (markets === undefined)
    throw new UsageError(
      'no_gamma_url',
      '--source gamma needs the address of a market API, and none is configured',
      'give --gamma-url https://gamma-api.polymarket.com, or `proposer config set gamma-url` with it',
    )
  const found: ListedQuestion[] = []
  const since = instant(sinceMs)
  const endsBefore = asked.closingMs === undefined ? undefined : instant(nowMs + asked.closingMs)
  let isLast = false
  let page = 0
  for (; page < mostPages && !isLast && found.length < asked.limit; page++) {
    const offset = page * marketsAtOnce
    const query = { endsAfter: since, endsBefore, offset, limit: marketsAtOnce }
    const read = await orGammaDown(session, (signal) => markets.page(query, signal))
    isLast = read.isLast
    const left = asked.limit - found.length
    if (chain === undefined) {
      const open = read.markets.filter(
        ({ status }) => asked.isAll || asked.isMine || (status ?? 'requested') === 'requested',
      )
      const rows = fromMarkets(open).map((one) => unconfirmed(one, 'gamma'))
      found.push(...rows.filter(isWanted).slice(0, left))
      continue
    }
    const candidates = fromMarkets(read.markets)
    const { questions } = await confirm(
      search,
      chain,
      contractsOf(trust),
      candidates,
      'gamma',
      left,
    )
    found.push(...questions)
  }
  const questions = [
    ...found.filter(({ reopened }) => reopened === true),
    ...found.filter(({ reopened }) => reopened !== true),
  ]
  return {
    ...{
      questions,
      source: 'gamma',
      since,
      leftOut: isLast && found.length < asked.limit ? 0 : null,
    },
    notes: [
      `Gamma was asked for events that end after ${timeText(since)}`,
      ...(chain === undefined
        ? [
            'without a node (--rpc-url) nothing of it is confirmed: bond, reward and state are not known',
          ]
        : []),
      ...(isLast ? [] : ['Gamma has more: raise --limit, or narrow it with --closing and --since']),
    ],
  }
}
