/** `operator`: the local toolkit on a gateway's store (contract §6). */
import { saidWords } from '#gateway/operator/acts'
import { createDecisions, type OperatorDecision } from '#gateway/status/listing'
import { registryOf } from '#host/config-file'
import { instant } from '#protocol/candidate'
import { jwkOf } from '#protocol/receipt'
import { listFlags, sinceMs } from '../session/settings.js'
import { table } from '../terminal/output.js'
import { fold, timeText } from '../terminal/render.js'
import { type MakeCommand, verb } from '../terminal/verb.js'
import { configFlag, look, siteVerb } from './access.js'
import {
  actExamples,
  admissionVerbs,
  allowVerbs,
  compactVerb,
  questionVerbs,
  rejectVerb,
  repinVerb,
  rotateVerb,
} from './acts.js'
import { candidatesListVerb, explainVerb, showVerb, storeExportVerb } from './candidates.js'
import { acceptLossVerb, gatewaysVerb, resignVerb, storeInitVerb, upgradeVerb } from './shared.js'
import { budgetVerb, statusVerb, topVerb } from './status.js'
import { backupVerb, copyVerb, repairVerb, verifyVerb } from './store.js'

/** `since` is null where only the configuration says so; `by`: who decided, where that is known. */
const decisionOf = <Otherwise>(decision: OperatorDecision | undefined, otherwise: Otherwise) => ({
  since: decision === undefined ? null : instant(decision.atMs),
  reason: decision?.reason ?? otherwise,
  by: decision?.by ?? null,
})

const sinceText = ({ since, reason, by }: ReturnType<typeof decisionOf<string>>) =>
  `${since === null ? '' : `since ${timeText(since)}: `}${saidWords(reason, by)}`

const walletsListVerb = siteVerb({
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

const questionsListVerb = siteVerb({
  name: 'list',
  about: 'list entries in force and where they come from',
  flags: listFlags(Object.keys(sources)),
  examples: ['operator questions list --state removed'],
  async run(context, site, flags) {
    const decisions = createDecisions()
    const since = sinceMs(flags.since, context.clock.nowMs())
    const { limit } = flags
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
const receiptKeysVerb = siteVerb({
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

const group = (
  name: string,
  about: string,
  examples: readonly string[],
  verbs: readonly MakeCommand[],
) => verb({ name, about, examples, verbs })

export const operatorCommand = verb({
  name: 'operator',
  about:
    'manage a gateway: allowlist, questions, candidates, store. Lists work whether it runs or not',
  flags: configFlag,
  examples: [
    'operator status',
    'operator allow 0x8ba1f109551bd432803012645ac136ddd64dba72 --reason "contract signed"',
    'operator candidates explain 3f2b8c1e-8d5a-4a52-9c3d-0a1b2c3d4e5f',
    'operator pause --reason "node upgrade"',
  ],
  verbs: [
    ...[statusVerb, topVerb, ...allowVerbs, walletsListVerb, ...admissionVerbs],
    group(
      'questions',
      'manage the question registry: slugs, requesters, requests',
      ['operator questions list', actExamples.add, actExamples.import],
      [questionsListVerb, ...questionVerbs],
    ),
    group(
      'candidates',
      'list, explain and reject candidates',
      [
        'operator candidates list --state failed',
        'operator candidates list --csv > candidates.csv',
        'operator candidates explain 3f2b8c1e-8d5a-4a52-9c3d-0a1b2c3d4e5f',
        actExamples.reject,
      ],
      [candidatesListVerb, showVerb, explainVerb, rejectVerb],
    ),
    group(
      'store',
      'verify, back up, compact, repair and copy the store',
      [
        'operator store verify',
        'operator store backup /backup/monday',
        'operator store compact',
        'operator store copy --from ./gateway-store --to postgres://proposer@db.internal/proposer',
      ],
      [
        ...[storeInitVerb, upgradeVerb, verifyVerb, backupVerb, compactVerb, storeExportVerb],
        ...[copyVerb, repairVerb, acceptLossVerb],
      ],
    ),
    group('trust', 'pin the code of oracles and tokens', [actExamples.repin], [repinVerb]),
    group(
      'receipts',
      'list and rotate the key that answers are signed with',
      ['operator receipts list', 'operator receipts rotate --reason "yearly"'],
      [receiptKeysVerb, rotateVerb],
    ),
    ...[budgetVerb, gatewaysVerb],
    group(
      'leader',
      'manage the leader of several gateways on one PostgreSQL store',
      ['operator gateways', 'operator leader resign --reason "node upgrade"'],
      [resignVerb],
    ),
  ],
})
