/** `operator candidates` (contract §6). Signatures and raw transactions are never shown (R5). */
import { coinOf } from '#chain/profiles'
import { createRoundReader, type RegistryEntry } from '#chain/questions'
import type { Round } from '#chain/round'
import { configuredContracts } from '#gateway/config'
import { type Explanation, explain, type ServiceState } from '#gateway/status/explanation'
import {
  type CandidateRow,
  candidateRow,
  createReceipts,
  createTimeline,
  narrated,
  type TimelineEvent,
} from '#gateway/status/timeline'
import { within } from '#gateway/view/view'
import { expectedChain } from '#host/config-file'
import { ChainError, type Hex } from '#ports'
import { givenAddress } from '#protocol/address'
import { type Candidate, instant } from '#protocol/candidate'
import { RejectedError, UnavailableError } from '#protocol/errors'
import { answerText, labelIn } from '#protocol/outcome-words'
import { isCandidateId } from '#protocol/words'
import { holderText, type LockHolder } from '#storage/lock'
import { listFlags, sinceMs } from '../session/settings.js'
import { csvLine, type Output, table } from '../terminal/output.js'
import { colours, headText } from '../terminal/poll-table.js'
import {
  amountText,
  type Column,
  dateText,
  durationText,
  fields,
  fold,
  timeText,
} from '../terminal/render.js'
import { type FlagsOf, parserOf } from '../terminal/verb.js'
import { adminUrlOf, askStatus, look, type Site, siteVerb } from './access.js'

const offlineFlag = { '--offline': 'do not ask a node for token units and labels' } as const

const candidateFlags = {
  ...listFlags(Object.keys(colours)),
  '--proposer <address>': {
    about: 'only candidates of this wallet',
    parse: (text: string) => givenAddress(text, '--proposer'),
  },
  '--csv': 'print CSV (RFC 4180) of all of them, with every field, in order of admission',
  ...offlineFlag,
} as const

type ListedCandidate = CandidateRow & { readonly label: string | null }

export const candidatesListVerb = siteVerb({
  name: 'list',
  about: 'list candidates, the newest first; 50 unless --limit says otherwise',
  flags: candidateFlags,
  help: 'In CSV amounts are raw token units, gas prices wei, times UTC.',
  examples: [
    'operator candidates list --state failed --since 24h',
    'operator candidates list --csv > candidates.csv',
  ],
  async run(site, flags) {
    const { rows, more } = await listed(site, flags)
    if (flags.csv) return
    site.output.show(
      'operator-candidates',
      { candidates: rows, more },
      [
        rows.length === 0
          ? 'no matching candidates'
          : table(candidateColumns(site.clock.nowMs()), rows),
        more > 0 && `and ${more} more; --limit shows them`,
      ],
      { items: rows, summary: { shown: rows.length, more } },
    )
  },
})

export const storeExportVerb = siteVerb({
  name: 'export',
  about: 'another name of `operator candidates list --csv`',
  flags: { '--csv': 'the default' },
  examples: ['operator store export > candidates.csv'],
  async run(site) {
    const csv = site.output.isForPeople
    const { rows } = await listed(site, { csv, offline: true, limit: most })
    if (csv) return
    const candidates = rows.map(({ label: _, ...row }) => row).reverse()
    const summary = { candidates: candidates.length }
    site.output.show('operator-store-export', { candidates }, [], { items: candidates, summary })
  },
})

const most = 1_000_000

async function listed(site: Site, flags: FlagsOf<typeof candidateFlags>) {
  const { csv = false, offline, proposer, state: status, limit = csv ? most : 50 } = flags
  const since = sinceMs(flags.since, site.clock.nowMs())
  const receipts = createReceipts()
  return look(site, [receipts], async ({ ledger, registry }) => {
    const named = flags.question?.toLowerCase()
    const questionId = named && (registry.find(({ slug }) => slug === named)?.questionId ?? named)
    const isFiltered = proposer !== undefined || questionId !== undefined || since > 0
    const isWanted = (one: Candidate | undefined) =>
      one !== undefined &&
      one.proposer === (proposer ?? one.proposer) &&
      one.round.questionId === (questionId ?? one.round.questionId) &&
      one.receivedAtMs >= since
    const ids: string[] = []
    let more = 0
    for (const entry of ledger.newest()) {
      if (entry.status !== (status ?? entry.status)) continue
      // What is only counted need not be read where its entry tells enough.
      if (isFiltered && !isWanted(await ledger.get(entry.id))) continue
      if (ids.length < limit) ids.push(entry.id)
      else more += 1
    }
    const slugs = new Map(registry.map((entry) => [entry.questionId, entry.slug]))
    const found: CandidateRow[] = []
    let isFirst = true
    for (const id of csv ? ids.reverse() : ids) {
      const one = await ledger.get(id)
      if (one === undefined) continue
      const row = candidateRow(one, slugs.get(one.round.questionId), receipts)
      if (!csv) found.push(row)
      else {
        if (isFirst) site.output.text(csvLine(Object.keys(row)))
        isFirst = false
        site.output.text(csvLine(Object.values(row)))
      }
    }
    const asked = offline ? [] : found.map(({ question_id }) => question_id)
    const rounds = await knownRounds(site, registry, asked)
    const rows = found.map((row) => ({
      ...row,
      label: labelIn(rounds.get(row.question_id)?.outcomes, row.outcome),
    }))
    return { rows, more }
  })
}

export const candidateColumns = (nowMs: number): readonly Column<ListedCandidate>[] => [
  { head: 'candidate', cell: (row) => row.candidate_id },
  { head: 'status', cell: (row) => row.status, colour: (row) => colours[row.status] },
  { head: 'answer', cell: (row) => answerText(row.outcome ?? row.price, row.label), least: 8 },
  { head: 'question', cell: (row) => row.slug ?? row.question_id, least: 8 },
  { head: 'cause or stage', cell: (row) => row.failure_code ?? row.submission, least: 8 },
  {
    head: 'received',
    cell: (row) => `${durationText((nowMs - Date.parse(row.received_at)) / 1_000, 1)} ago`,
    rank: 1,
  },
]

export const candidateArg = {
  '<candidate-id>': {
    about: '',
    parse: parserOf(
      '<candidate-id>',
      (text) => [text.toLowerCase()].find(isCandidateId),
      'invalid_identifier',
      'a candidate id',
      'give the UUID that the acknowledgement gave; `proposer operator candidates list` shows them',
    ),
  },
} as const

const explaining = (name: 'explain' | 'show', about: string) =>
  siteVerb({
    name,
    about,
    args: candidateArg,
    flags: offlineFlag,
    examples: [`operator candidates ${name} 3f2b8c1e-8d5a-4a52-9c3d-0a1b2c3d4e5f`],
    async run(site, { offline }, { candidateId: id }) {
      const history = createTimeline(id)
      const receipts = createReceipts()
      await look(site, [history, receipts], async ({ ledger, registry, holder }) => {
        const { candidate } = history
        if (!candidate)
          throw new RejectedError(
            'candidate_not_found',
            `candidate ${id} not found in the store`,
            `list them with ${site.named('candidates list')}, or give --config of the gateway that answered`,
          )
        const { questionId } = candidate.round
        const slug = registry.find((entry) => entry.questionId === questionId)?.slug
        const { config } = site.loaded
        const rounds = await knownRounds(site, registry, offline ? [] : [questionId])
        const round = rounds.get(questionId)
        const told = explain(history, candidate, ledger, {
          nowMs: site.clock.nowMs(),
          slug,
          service: await serviceOf(site, holder),
          pipelineEnabled: config.pipeline.enabled,
          executorEnabled: config.executor.enabled,
          token: round?.token,
          outcomes: round?.outcomes,
        })
        const [kind, more] =
          name === 'explain'
            ? ['candidate-explanation', {}]
            : ['operator-candidate', candidateRow(candidate, slug, receipts)]
        site.output.show(kind, { ...told, ...more }, [
          (screen) => explanationText(told, history.events, screen, coinOf(config.chain.id)),
        ])
      })
    },
  })

export const explainVerb = explaining(
  'explain',
  'explain the history of a candidate, and what comes next',
)
export const showVerb = explaining('show', 'another name of `operator candidates explain --json`')

async function serviceOf(site: Site, holder: LockHolder | undefined): Promise<ServiceState> {
  if (holder === undefined) return { kind: 'none' }
  if (adminUrlOf(holder) === undefined) return { kind: 'held', by: holderText(holder) }
  try {
    const { status } = await askStatus({ ...site, timeoutMs: patienceMs })
    return { kind: 'serves', reasons: status.reasons }
  } catch (error) {
    // That nobody answers is part of the answer.
    if (error instanceof UnavailableError) return { kind: 'serves', reasons: undefined }
    throw error
  }
}

const patienceMs = 3_000

/** What only the chain knows: units of tokens, labels of outcomes. No node need tell them. */
async function knownRounds(
  site: Site,
  registry: readonly RegistryEntry[],
  questionIds: readonly Hex[],
) {
  const { config } = site.loaded
  const rounds = new Map<Hex, Round>()
  if (questionIds.length === 0) return rounds
  const read = async () => {
    const chain = await site.edges.chain(config.chain.rpc_urls, expectedChain(config))
    const reader = createRoundReader(chain, configuredContracts(config))
    const readOne = async (id: Hex) => {
      const entry = registry.find(({ questionId }) => questionId === id)
      const round = await reader.read(id, entry)
      if (round !== undefined) rounds.set(id, round)
    }
    await Promise.all([...new Set(questionIds)].map(readOne))
  }
  await within(site.clock, patienceMs, read).catch((error: unknown) => {
    if (!(error instanceof ChainError)) throw error
  })
  return rounds
}

export function explanationText(
  explanation: Explanation,
  events: readonly TimelineEvent[],
  { columns, paint }: Pick<Output, 'columns' | 'paint'>,
  coin = "of the chain's coin",
) {
  const { token, slug, question_id, outcome, label, price, status, next } = explanation
  const seconds = explanation.deadline_in_seconds
  const left = seconds >= 0 ? `in ${durationText(seconds)}` : `${durationText(-seconds)} ago`
  const head = fields(
    [
      ['question', slug ?? question_id],
      ['id', slug === null ? null : question_id],
      ['round', dateText(String(explanation.round.timestamp))],
      ['proposer', explanation.proposer],
      ['answer', outcome === null ? `price ${price}` : answerText(outcome, label)],
      ['authorizes', amountText(explanation.amount, token ?? undefined)],
      ['deadline', `${timeText(explanation.deadline)}, ${left}`],
    ],
    columns,
  )
  const says = Object.entries({
    next: next.expected,
    'the proposer': next.proposer,
    'the operator': next.operator,
  })
  return [
    headText(explanation.candidate_id, paint[colours[status]](status), columns),
    head,
    '',
    ...events.map((event) =>
      eventText(event.atMs, narrated(event, token ?? undefined, coin), columns),
    ),
    '',
    ...says.flatMap(([who, text]) =>
      text === null ? [] : [fold(`${who}: ${text}`, columns, '  ')],
    ),
  ].join('\n')
}

function eventText(atMs: number | undefined, lines: readonly string[], columns: number) {
  const at = atMs === undefined ? '(time not kept)     ' : timeText(instant(atMs))
  const [first = '', ...others] = lines
  return [
    fold(`${at}  ${first}`, columns, '    '),
    ...others.map((line) => `    ${fold(line, columns - 4, '    ')}`),
  ].join('\n')
}
