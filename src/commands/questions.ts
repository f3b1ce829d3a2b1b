/** `questions`: what can be proposed now, and what each source cannot know (contract §6). */
import { aggregating } from '#chain/aggregate'
import { createRoundReader } from '#chain/questions'
import type { Round } from '#chain/round'
import { onChain } from '#chain/unavailable'
import {
  byChain,
  byGateway,
  type ListedQuestion,
  type QuestionSeen,
  type QuestionSource,
  reopenedFirst,
  roundFactsOf,
  scanFacts,
  takeWanted,
  unconfirmed,
} from '#client/questions/listing'
import { chainNow, rulesOfRound } from '#client/trust/context'
import { contractsOf } from '#client/trust/trust'
import { yieldToEvents } from '#io/serving/load'
import type { Hex } from '#ports'
import { spanMs } from '#protocol/duration'
import { UnavailableError, UsageError } from '#protocol/errors'
import { answersText } from '#protocol/outcome-words'
import { zeroAddress } from '#protocol/words'
import { contextSource, orGammaDown, worksheetHead, worksheetLine } from './session/question.js'
import {
  builtInPins,
  requireChain,
  type Session,
  sessionVerb,
  slugsById,
} from './session/session.js'
import { sinceMs, wholeNumber } from './session/settings.js'
import { table } from './terminal/output.js'
import { amountText, type Column, counted, fold, timeText } from './terminal/render.js'
import { type FlagsOf, verb } from './terminal/verb.js'

const questionFlags = {
  '--source <source>': {
    about:
      'source to read; default: registry with --local, otherwise gamma if the profile has it, otherwise chain',
    choices: ['registry', 'chain', 'gamma'],
  },
  '--questions <file>': 'read the registry from this questions.json',
  '--mine': 'list questions that this home has signed for, in any state',
  '--all': 'list answered and paused questions too',
  '--closing <duration>': {
    about: 'list events that end within this time, such as 2h',
    parse: closingOf,
  },
  '--since <time>': { about: 'look back this far: an age, or a time', default: '7d' },
  '--limit <n>': { about: 'maximum number of rows', default: '50' },
  '--csv': 'print a worksheet: fill in outcome, then hand it to batch submit',
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
  async run(session, flags) {
    const { output } = session
    const { questions, source, since, left_out, notes, rulesOf } = await findQuestions(
      session,
      flags,
    )
    for (const note of notes) output.remark(note)
    if (flags.csv) {
      const rules = await Promise.all(questions.map(rulesOf))
      return output.text(
        questions.reduce(
          (text, { question_id: identifier, token, ...row }, at) =>
            text +
            worksheetLine({ ...row, identifier, rules: rules[at], units: token ?? undefined }),
          worksheetHead,
        ),
      )
    }
    const summary = { source, since, left_out, notes }
    output.show(
      'questions',
      { questions, ...summary },
      [
        questions.length === 0
          ? () => fold(emptyText(flags, since), output.columns)
          : table(columns, questions),
      ],
      { items: questions, summary: { ...summary, questions: questions.length } },
    )
  },
})

export const questionsCommand = verb({
  name: 'questions',
  about: 'list questions that can be proposed on',
  examples: ['questions list'],
  verbs: [listVerb],
})

function closingOf(text: string) {
  const span = spanMs(/^\d+$/.test(text) ? `${text}s` : text)
  if (span !== undefined && span > 0) return span
  throw new UsageError(
    'bad_closing',
    `--closing ${text} is not a duration`,
    'give a duration such as --closing 2h or --closing 90m',
  )
}

function emptyText({ mine, all }: ListFlags, since: string | null) {
  const back = since === null ? '' : ` since ${timeText(since)}`
  if (mine) return `no question${back} that this home has signed for`
  return `no ${all ? '' : 'open '}question${back}`
}

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
]

async function findQuestions(session: Session, flags: ListFlags) {
  const limit = wholeNumber('--limit', flags.limit, 1, 10_000)
  sinceMs(flags.since, 0)
  const { local } = session.settings
  const { questions: file } = flags
  const wanted = flags.source ?? ((file ?? local) === undefined ? undefined : 'registry')
  if (file !== undefined && wanted !== 'registry')
    throw new UsageError(
      'two_sources',
      `--questions is a registry, and --source is ${wanted}`,
      'omit one of them',
    )
  const search = await searchOf({ session, flags, limit }, wanted)
  const source = wanted ?? defaultSource(search, (await session.markets()) !== undefined)
  if (source !== 'gamma' && flags.closing !== undefined)
    throw new UsageError(
      'closing_unknown',
      `--closing requires --source gamma, not ${source}: only gamma knows when an event ends`,
      'add --source gamma, or omit --closing',
    )
  const found = await { chain: fromChain, gamma: fromGamma, registry: fromRegistry }[source](search)
  return { ...found, source, rulesOf: search.rulesOf }
}

async function pinned(session: Session) {
  const builtIn = await builtInPins(session)
  const trust =
    builtIn === undefined
      ? await session.trust()
      : { ...builtIn, signed_proposer: builtIn.signed_proposer ?? zeroAddress }
  const { slugs } = trust
  const { clock } = session
  const chain = await session.chain()
  const nowMs = chain === undefined ? clock.nowMs() : 1000 * (await chainNow(chain, trust, clock))
  const entries = Object.entries(slugs).map(([slug, questionId]) => ({ slug, questionId }))
  return { contracts: contractsOf(trust), chain, nowMs, slugs, entries }
}

function defaultSource({ slugs, chain }: Search, hasMarkets: boolean) {
  if (hasMarkets) return 'gamma'
  if (chain !== undefined) return 'chain'
  // What `serve --dev` and `devchain` print names all of their questions.
  if (Object.keys(slugs).length > 0) return 'registry'
  throw new UsageError(
    'no_source',
    'no source of questions: no node, market API or pinned slug',
    'give --rpc-url <url>, --local <gateway.json> or --questions <file>',
  )
}

interface Asking {
  readonly session: Session
  readonly flags: ListFlags
  readonly limit: number
}

async function searchOf(asking: Asking, wanted: string | undefined) {
  const { session, flags } = asking
  const { questions: file } = flags
  const { local } = session.settings
  const held =
    local !== undefined && file === undefined && wanted === 'registry'
      ? {
          ...(await (await import('#host/held-store')).readRegistry(session, local.value)),
          ...{ nowMs: session.clock.nowMs(), slugs: {} },
        }
      : await pinned(session)
  const missing = 'give the path of a questions.json'
  const entries =
    file === undefined
      ? held.entries
      : await (await import('#host/config-file')).readQuestions(session, file, missing)
  const { chain, nowMs } = held
  const authorizations = flags.mine ? (await session.journal.load()).authorizations : []
  const signed = new Set(authorizations.map((one) => one.signed.questionId))
  const wallets = new Set<string>(authorizations.map((one) => one.signed.terms.proposer))
  const isMine = (id: Hex, proposer: string | null | undefined) =>
    signed.has(id) || wallets.has(proposer ?? '')
  const untilMs = flags.closing === undefined ? undefined : nowMs + flags.closing
  const endsInTime = ({ ends_at }: ListedQuestion) =>
    untilMs === undefined || (ends_at !== null && Date.parse(ends_at) <= untilMs)
  const asked = chain && aggregating(chain, yieldToEvents)
  const rounds = new Map<ListedQuestion, Round>()
  return {
    ...{ ...asking, ...held, entries },
    ...{ chain: asked, rounds, untilMs, signed, isMine },
    sinceMs: sinceMs(flags.since, nowMs),
    isWanted: (one: ListedQuestion) =>
      endsInTime(one) &&
      (flags.mine
        ? isMine(one.question_id, one.proposed_by)
        : flags.all === true || one.state === null || one.state === 'requested'),
    async rulesOf(one: ListedQuestion) {
      const round = rounds.get(one)
      return asked && round && rulesOfRound(asked, round)
    },
  }
}
type Search = Awaited<ReturnType<typeof searchOf>>

/** The chain is asked, else of a registry the gateway; nobody confirms what only Gamma says. */
async function askedBy(
  { session, chain, contracts, rounds }: Search,
  source: QuestionSource,
): Promise<Parameters<typeof takeWanted>[1]> {
  if (chain !== undefined) {
    const reader = createRoundReader(chain, contracts)
    return async (some) => {
      const read = await onChain(() =>
        Promise.all(some.map(({ questionId, entry }) => reader.read(questionId, entry))),
      )
      return some.flatMap((seen, at) => {
        const round = read[at]
        if (round === undefined) return []
        const question = byChain(seen, round, source)
        rounds.set(question, round)
        return question
      })
    }
  }
  if (source === 'gamma') return async (some) => some.map((one) => unconfirmed(one, source))
  const gateway = await contextSource(session)
  return async (some) => {
    const ids = some.map(({ questionId }) => questionId)
    const results = await gateway.contexts(ids, { signal: session.until })
    return some.flatMap((seen, at) => {
      const { error, context } = results[at] ?? {}
      if (error instanceof UnavailableError) throw error
      return context ? byGateway(seen, context) : []
    })
  }
}

function confirm(search: Search, candidates: readonly QuestionSeen[], source: QuestionSource) {
  const { session, chain, limit, isWanted } = search
  const what = `asking for ${counted(candidates.length, 'question')}`
  return session.output.during(what, async (progress) => {
    const ask = await askedBy(search, source)
    let asked = 0
    const told = async (some: readonly QuestionSeen[]) => {
      session.until.throwIfAborted()
      const answers = await ask(some)
      asked += some.length
      progress.update(`asked for ${asked} of ${candidates.length} questions`)
      return answers
    }
    // A registry is short, and only the chain knows which rounds were opened again.
    const asksAll = source === 'registry' && chain !== undefined
    return takeWanted(candidates, told, { limit, isWanted, asksAll })
  })
}

async function fromChain(search: Search) {
  const { session, flags, contracts, signed, isMine } = search
  const chain = search.chain ?? (await requireChain(session, '--source chain'))
  const notes: string[] = []
  const { facts, from } = await session.output.during(
    'reading the logs of the oracle',
    (progress) =>
      onChain(() =>
        scanFacts(
          {
            ...{ chain, contracts, files: session.files, hash: session.hash },
            home: session.settings.home.value,
            signal: session.until,
            onProgress: (block, head) => progress.update(`reading logs: block ${block} of ${head}`),
            onNote: (text) => notes.push(text),
          },
          BigInt(Math.floor(Math.max(0, search.sinceMs) / 1000)),
        ),
      ),
  )
  const { rounds, unnamed } = roundFactsOf(facts, contracts)
  const slugs = slugsById(search.slugs)
  const wanted = rounds.filter(({ questionId, state, proposer, openedAt }) => {
    if (flags.mine) return isMine(questionId, proposer)
    return flags.all === true || (state === 'requested' && (openedAt ?? 0) >= Number(from))
  })
  const seen = new Set(wanted.map(({ questionId }) => questionId))
  const candidates: QuestionSeen[] = [
    ...wanted.map(({ questionId, requester, isReopened }) => ({
      ...{ questionId, slug: slugs.get(questionId), reopened: isReopened },
      entry: { questionId, requester },
    })),
    ...[...signed].flatMap((questionId) =>
      seen.has(questionId) ? [] : { questionId, slug: slugs.get(questionId) },
    ),
  ]
  const since = instant(search.sinceMs)
  if (unnamed > 0)
    notes.unshift(`${counted(unnamed, 'open round')} of requesters whose logs have no question id`)
  notes.unshift(
    `read from the chain since ${timeText(since)}: without event ends, and without slugs that \`proposer trust pin\` has not pinned`,
  )
  return found(await confirm({ ...search, chain }, candidates, 'chain'), since, notes)
}

const found = (
  { questions, unseen }: Awaited<ReturnType<typeof confirm>>,
  since: string | null,
  notes: readonly string[],
) => ({
  questions,
  since,
  left_out: unseen,
  notes: unseen === 0 ? notes : [...notes, `${counted(unseen, 'question')} more than --limit`],
})

const instant = (ms: number) => new Date(Math.max(0, Math.floor(ms / 1000)) * 1000).toISOString()

async function fromRegistry(search: Search) {
  const candidates = search.entries.map((entry) => ({
    ...{ questionId: entry.questionId, slug: entry.slug, entry },
  }))
  const note =
    search.chain === undefined
      ? 'the gateway was asked about the pinned slugs: it reports open questions only, without reward and earlier rounds; a node (--rpc-url) reports all'
      : 'only the registry was read; other questions are not listed'
  return found(await confirm(search, candidates, 'registry'), null, [note])
}

const marketsAtOnce = 100
const mostPages = 30

async function fromGamma(search: Search) {
  const { session, flags, chain, limit, untilMs } = search
  const markets = await session.markets()
  if (markets === undefined)
    throw new UsageError(
      'no_gamma_url',
      '--source gamma needs the address of a market API, and none is configured',
      'give --gamma-url https://gamma-api.polymarket.com, or `proposer config set gamma-url` with it',
    )
  const questions: ListedQuestion[] = []
  const since = instant(search.sinceMs)
  const endsBefore = untilMs === undefined ? undefined : instant(untilMs)
  let isLast = false
  for (let page = 0; page < mostPages && !isLast && questions.length < limit; page++) {
    const offset = page * marketsAtOnce
    const query = { endsAfter: since, endsBefore, offset, limit: marketsAtOnce }
    const read = await orGammaDown(session, (signal) => markets.page(query, signal))
    isLast = read.isLast
    const left = limit - questions.length
    const candidates = read.markets.flatMap(
      ({ questionId, slug, title, endsAt, statuses, status = 'requested' }) => {
        const isOpen = flags.all === true || flags.mine === true || status === 'requested'
        if (questionId === undefined || (chain === undefined && !isOpen)) return []
        return [{ questionId, slug, title, endsAt, reopened: statuses.includes('disputed') }]
      },
    )
    questions.push(...(await confirm({ ...search, limit: left }, candidates, 'gamma')).questions)
  }
  return {
    questions: reopenedFirst(questions),
    since,
    left_out: isLast && questions.length < limit ? 0 : null,
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
