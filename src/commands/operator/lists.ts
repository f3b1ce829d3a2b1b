/** What `list` shows of `operator`, `operator questions` and `operator receipts` (contract §6, §7). */
import { createDecisions, type OperatorDecision } from '#gateway/status/listing'
import { registryOf } from '#host/config-file'
import { instant } from '#protocol/candidate'
import { jwkOf } from '#protocol/receipt'
import { wholeNumber } from '../hosting/foreground.js'
import { listFlags, sinceMs } from '../session/flags.js'
import { table } from '../terminal/output.js'
import { fold, timeText } from '../terminal/render.js'
import { look, saidWords, siteVerb } from './access.js'

/** `since` is null where only the configuration says so; `by`: who decided, where that is known. */
const decisionOf = <Otherwise>(decision: OperatorDecision | undefined, otherwise: Otherwise) => ({
  since: decision === undefined ? null : instant(decision.atMs),
  reason: decision?.reason ?? otherwise,
  by: decision?.by ?? null,
})

const sinceText = ({ since, reason, by }: ReturnType<typeof decisionOf<string>>) =>
  `${since === null ? '' : `since ${timeText(since)}: `}${saidWords(reason, by)}`

export const walletsListVerb = siteVerb({
  name: 'list',
  about: 'list who may propose, since when and why, and whether admission is open',
  flags: { '--all': 'include removed wallets' },
  examples: ['operator list --all'],
  async run(context, site, { all }) {
    const decisions = createDecisions()
    await look(context, site, [decisions], async ({ ledger, holder }) => {
      const former = all === true ? decisions.wallets.keys() : []
      const wallets = [...new Set([...ledger.allowlist, ...former])].sort().map((address) => ({
        address,
        allowed: ledger.eligible(address),
        ...decisionOf(decisions.wallets.get(address), 'listed in the configuration'),
      }))
      const decision = decisionOf(decisions.admission, 'as it began')
      const enabled = ledger.admissionEnabled
      const { enabled: configured } = site.loaded.config.admission
      const admission = { enabled, configured, ...decision }
      const why = decision.since === null ? '' : ` ${sinceText(decision)}`
      const served = holder?.state === 'alive' && holder.role.startsWith('serve')
      context.output.show(
        'allowlist',
        { admission, served, wallets },
        [
          configured
            ? `admission is ${enabled ? 'open' : 'paused'}${why}`
            : 'admission is closed: admission.enabled is false in the configuration',
          ...wallets.map((row) => ({ columns }: { readonly columns: number }) => {
            const state = row.allowed ? '' : 'off the list, '
            return `${row.address}\n  ${fold(`${state}${sinceText(row)}`, columns - 2, '  ')}`
          }),
        ],
        { items: wallets, summary: { wallets: wallets.length, admission } },
      )
    })
  },
})

const sources = { file: 'questions file', operator: 'operator', removed: 'removed by operator' }

export const questionsListVerb = siteVerb({
  name: 'list',
  about: 'list entries in force and where they come from',
  flags: listFlags(Object.keys(sources)),
  examples: ['operator questions list --state removed'],
  async run(context, site, flags) {
    const decisions = createDecisions()
    const since = sinceMs(flags.since, context.clock.nowMs())
    const limit =
      flags.limit === undefined ? undefined : wholeNumber('--limit', flags.limit, 1, 1_000_000)
    await look(context, site, [decisions], async ({ registry, ledger }) => {
      const configured = new Set(
        (await registryOf(context, site.loaded)).map(({ questionId }) => questionId),
      )
      const removed = [...ledger.questions].filter(
        ([questionId, entry]) => entry === null && configured.has(questionId),
      )
      const all = [
        ...registry.map(({ questionId, slug, requester, request }) => {
          const isOurs = ledger.questions.has(questionId)
          const decision = isOurs ? decisions.questions.get(questionId) : undefined
          return {
            question_id: questionId,
            slug: slug ?? null,
            requester: requester ?? request?.requester ?? null,
            has_request: request !== undefined,
            source: decision === undefined ? sources.file : sources.operator,
            ...decisionOf(decision, null),
          }
        }),
        ...removed.map(([questionId]) => ({
          question_id: questionId,
          slug: null,
          requester: null,
          has_request: false,
          source: sources.removed,
          ...decisionOf(decisions.questions.get(questionId), null),
        })),
      ]
      const source = Object.entries(sources).find(([state]) => state === flags.state)?.[1]
      const found = all.filter(
        (row) =>
          (source === undefined || row.source === source) &&
          (flags.question === undefined || [row.slug, row.question_id].includes(flags.question)) &&
          (since === 0 || Date.parse(row.since ?? '') >= since),
      )
      const questions = limit === undefined ? found : found.slice(-limit)
      const older = found.length - questions.length
      context.output.show(
        'operator-questions',
        { questions },
        all.length === 0
          ? ['the registry is empty; questions of trusted adapters are still served by their ids']
          : questions.length === 0
            ? [`nothing matches; the registry holds ${all.length}`]
            : [
                table(
                  [
                    { head: 'question', cell: (row) => row.slug ?? row.question_id, least: 12 },
                    { head: 'from', cell: (row) => row.source, least: 8 },
                    { head: 'since', cell: (row) => row.since && timeText(row.since), rank: 2 },
                    { head: 'reason', cell: (row) => row.reason, least: 8, rank: 1 },
                    { head: 'requester', cell: (row) => row.requester, wide: true },
                    { head: 'question id', cell: (row) => row.question_id, wide: true },
                  ],
                  questions,
                  flags.wide === true,
                ),
                older > 0 && `and ${older} more; --limit ${found.length} shows them`,
              ],
        {
          items: questions,
          summary: { questions: registry.length, removed: removed.length },
        },
      )
    })
  },
})

/** The keys that answers are signed with (contract §9). */
export const receiptKeysVerb = siteVerb({
  name: 'list',
  about: 'list the public keys of the store, ended ones too',
  examples: ['operator receipts list --json'],
  async run(context, site) {
    const keys = await look(context, site, [], async ({ ledger }) => [
      ...ledger.receiptKeys.values(),
    ])
    context.output.show('operator-receipts', { keys: keys.map(jwkOf) }, [
      keys.length === 0 &&
        'the store has no receipt key: `serve` makes one where gateway.json has receipts',
      ...keys.map(({ kid, nbf = 0, exp }) => {
        const end = exp === undefined ? 'signs now' : `ends ${instant(exp * 1_000)}`
        return `${kid} from ${instant(nbf * 1_000)}, ${end}`
      }),
    ])
  },
})
