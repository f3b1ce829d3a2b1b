/** `operator`: the local toolkit on a gateway's store (contract §6). */
import type { RegistryEntry } from '#chain/questions'
import type { OperatorDecision } from '#gateway/ledger/ledger'
import { type ActName, mostAddresses, saidWords } from '#gateway/operator/acts'
import { createDecisions } from '#gateway/status/timeline'
import { registryOf } from '#host/config-file'
import { receiptKeyFile } from '#host/receipts'
import { newReceiptKey, readReceiptKeys, writeReceiptKeys } from '#io/receipt-keys'
import { givenAddress } from '#protocol/address'
import { instant } from '#protocol/candidate'
import { durationMs } from '#protocol/duration'
import { UsageError } from '#protocol/errors'
import { jwkOf } from '#protocol/receipt'
import { isQuestionId, isSlug, zeroAddress } from '#protocol/words'
import { readOwnJson } from '../session/inputs.js'
import { listFlags, sinceMs } from '../session/settings.js'
import type { Context } from '../terminal/context.js'
import { table } from '../terminal/output.js'
import { counted, timeText } from '../terminal/render.js'
import {
  type ArgsOf,
  type ArgTable,
  dryRunFlag,
  type FlagsOf,
  type FlagTable,
  type MakeCommand,
  parserOf,
  repeated,
  type VerbHead,
  verb,
} from '../terminal/verb.js'
import {
  type Acted,
  act,
  budgetVerb,
  configFlag,
  gatewaysVerb,
  look,
  neededSaidFlags,
  resignVerb,
  type Said,
  type Site,
  saidFlags,
  saidOf,
  siteOf,
  siteVerb,
  statusVerb,
  topVerb,
} from './access.js'
import {
  candidateArg,
  candidatesListVerb,
  explainVerb,
  showVerb,
  storeExportVerb,
} from './candidates.js'
import {
  acceptLossVerb,
  backupVerb,
  copyVerb,
  repairVerb,
  requireStore,
  storeInitVerb,
  upgradeVerb,
  verifyVerb,
} from './store.js'

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
  async run(site, { all }) {
    const decisions = createDecisions()
    await look(site, [decisions], async ({ ledger, holder }) => {
      const former = all ? decisions.wallets.keys() : []
      const wallets = [...new Set([...ledger.allowlist, ...former])].sort().map((address) => ({
        address,
        allowed: ledger.eligible(address),
        ...decisionOf(decisions.wallets.get(address), 'listed in the configuration'),
      }))
      const decision = decisionOf(ledger.admissionDecision, 'as it began')
      const { admissionEnabled: enabled } = ledger
      const { enabled: configured } = site.loaded.config.admission
      const admission = { enabled, configured, ...decision }
      const why = decision.since === null ? '' : ` ${sinceText(decision)}`
      const served = holder?.state === 'alive' && holder.role.startsWith('serve')
      site.output.show(
        'allowlist',
        { admission, served, wallets },
        [
          configured
            ? `admission is ${enabled ? 'open' : 'paused'}${why}`
            : 'admission is closed: admission.enabled is false in the configuration',
          ...wallets.map(
            (row) => `${row.address} ${row.allowed ? '' : 'off the list, '}${sinceText(row)}`,
          ),
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
  async run(site, flags) {
    const decisions = createDecisions()
    const since = sinceMs(flags.since, site.clock.nowMs())
    const { limit } = flags
    await look(site, [decisions], async ({ registry, ledger }) => {
      const configured = await registryOf(site, site.loaded)
      const removed = configured.flatMap(({ questionId }) =>
        ledger.questions.get(questionId) === null ? { questionId } : [],
      )
      const rowOf = (state?: 'removed') => (entry: RegistryEntry) => {
        const { questionId, slug, requester, request } = entry
        const isOurs = ledger.questions.has(questionId)
        const decision = isOurs ? decisions.questions.get(questionId) : undefined
        return {
          question_id: questionId,
          slug: slug ?? null,
          requester: requester ?? request?.requester ?? null,
          has_request: request !== undefined,
          source: sources[state ?? (decision === undefined ? 'file' : 'operator')],
          ...decisionOf(decision, null),
        }
      }
      const all = [...registry.map(rowOf()), ...removed.map(rowOf('removed'))]
      const [, source] = Object.entries(sources).find(([state]) => state === flags.state) ?? []
      const found = all.filter(
        (row) =>
          (source === undefined || row.source === source) &&
          (flags.question === undefined || [row.slug, row.question_id].includes(flags.question)) &&
          (since === 0 || Date.parse(row.since ?? '') >= since),
      )
      const questions = limit === undefined ? found : found.slice(-limit)
      const older = found.length - questions.length
      site.output.show(
        'operator-questions',
        { questions },
        questions.length === 0
          ? [`nothing matches; the registry holds ${all.length}`]
          : [
              table(
                [
                  { head: 'question', cell: (row) => row.slug ?? row.question_id, least: 12 },
                  { head: 'from', cell: (row) => row.source, least: 8 },
                  { head: 'since', cell: (row) => row.since && timeText(row.since), rank: 2 },
                  { head: 'reason', cell: (row) => row.reason, least: 8, rank: 1 },
                ],
                questions,
              ),
              older > 0 && `and ${older} more; --limit ${found.length} shows them`,
            ],
        { items: questions, summary: { questions: registry.length, removed: removed.length } },
      )
    })
  },
})

const receiptKeysVerb = siteVerb({
  name: 'list',
  about: 'list the public keys of the store, ended ones too',
  examples: ['operator receipts list --json'],
  async run(site) {
    const keys = await look(site, [], async ({ ledger }) => [...ledger.receiptKeys.values()])
    site.output.show('operator-receipts', { keys: keys.map(jwkOf) }, [
      keys.length === 0 &&
        'the store has no receipt key: `serve` makes one where gateway.json has receipts',
      ...keys.map(({ kid, nbf = 0, exp }) => {
        const end = exp === undefined ? 'signs now' : `ends ${instant(exp * 1_000)}`
        return `${kid} from ${instant(nbf * 1_000)}, ${end}`
      }),
    ])
  },
})

interface ActVerb<Args, Flags> extends VerbHead<Args, Flags> {
  readonly act: ActName
  readonly said?: FlagTable
  readonly example: string
  body?(args: ArgsOf<Args>, flags: FlagsOf<Flags>, context: Context): object | Promise<object>
  before?(site: Site): Promise<object | undefined>
  readonly told?: readonly [now: string, before: string]
  show?(site: Site, acted: Acted): void
}

const actVerb = <
  const Args extends ArgTable = Record<never, string>,
  const Flags extends FlagTable = Record<never, string>,
>({
  told: [now, before] = ['', ''],
  said = saidFlags,
  ...made
}: ActVerb<Args, Flags>) =>
  verb<Args, FlagTable, typeof configFlag>({
    ...made,
    flags: { ...made.flags, ...said, ...dryRunFlag },
    examples: [made.example],
    async run(context, flags, args) {
      const given = flags as typeof flags & FlagsOf<Flags> & Said
      const why = '--by <who>' in said ? saidOf(context, given) : {}
      const body = { ...(await made.body?.(args, given, context)), ...why }
      const site = await siteOf(context, flags)
      const more = await made.before?.(site)
      const acted = await act(site, made.act, { ...more, ...body })
      if (acted === undefined) return
      if (made.show) return made.show(site, acted)
      const { result, through } = acted
      context.output.show('operator-act', { ...result, through }, [
        ...result.changed.map((name) => `${name} ${now}`),
        ...result.unchanged.map((name) => `${name} ${before}: nothing changed`),
        ...result.notes,
      ])
    },
  })

const requireWallet = parserOf(
  '<address>',
  (text) => [givenAddress(text)].find((address) => address !== zeroAddress),
  'invalid_address',
  'a wallet',
  'give the address of a wallet',
)

const wallets = repeated(requireWallet)

const allowVerb = (
  name: 'allow' | 'disallow',
  about: string,
  reason: string,
  told: readonly [string, string],
) =>
  actVerb({
    name,
    about,
    act: name,
    told,
    args: { '<address...>': { about: 'wallets', parse: wallets } },
    example: `operator ${name} 0x8ba1f109551bd432803012645ac136ddd64dba72 --reason "${reason}"`,
    body({ address }) {
      const addresses = [...new Set(address)]
      if (addresses.length <= mostAddresses) return { addresses }
      throw new UsageError(
        'too_many_addresses',
        `${name} accepts at most ${mostAddresses} wallets at a time, got ${addresses.length}`,
        'split them over several commands',
      )
    },
  })

const switchVerb = (name: 'pause' | 'resume', about: string, state: string) =>
  actVerb({
    name,
    about,
    act: name,
    example: `operator ${name} --reason "node upgrade"`,
    told: [`is ${state} now`, `was already ${state}`],
  })

const allowVerbs = [
  allowVerb('allow', 'add wallets to the allowlist', 'contract signed', [
    'may propose now',
    'is already allowed',
  ]),
  allowVerb(
    'disallow',
    'remove wallets from the allowlist; their candidates in progress continue',
    'contract ended',
    ['removed from the allowlist', 'is not on the allowlist'],
  ),
]

const admissionVerbs = [
  switchVerb(
    'pause',
    'stop admission (503 admission_disabled); admitted candidates continue',
    'paused',
  ),
  switchVerb('resume', 'resume admission', 'open'),
]

const actExamples = {
  add: 'operator questions add 0x7c1e5f0a9b3d42861f0e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c5b4a3928 --slug will-it-rain',
  import: 'operator questions import more-questions.json',
  reject:
    'operator candidates reject 3f2b8c1e-8d5a-4a52-9c3d-0a1b2c3d4e5f --reason "asked for by the proposer"',
  repin: 'operator trust repin --reason "version 3, audited"',
} as const

const questionArg = {
  '<question-id>': {
    about: '0x and 64 hex digits',
    parse: parserOf(
      '<question-id>',
      (text) => [text.toLowerCase()].find(isQuestionId),
      'invalid_identifier',
      'a question id',
      'give 0x and 64 hex digits; `proposer context <slug>` shows the id of a slug',
    ),
  },
} as const

const requireSlug = parserOf(
  '--slug',
  (text) => (isSlug(text) ? text : undefined),
  'invalid_identifier',
  'a slug',
  'give lowercase letters, digits and hyphens, 200 at most; not `eligibility`, and no question id',
)

const questionVerbs = [
  actVerb({
    name: 'add',
    about: 'add one question, or change its entry; the chain confirms it first',
    act: 'questions/add',
    args: questionArg,
    flags: {
      '--slug <slug>': { about: 'name that clients may use for it', parse: requireSlug },
      '--requester <address>': {
        about: 'only trusted requester to ask',
        parse: (text: string) => givenAddress(text, '--requester'),
      },
      '--request <file.json>':
        'its request, for a requester of kind direct: {oracle, requester, identifier, timestamp, ancillary_data}',
    },
    example: actExamples.add,
    async body({ questionId }, { slug, requester, request: file }, context) {
      const request = file === undefined ? undefined : await readOwnJson(context, file)
      const entry = { question_id: questionId, slug, requester, request }
      return { entries: [JSON.parse(JSON.stringify(entry))] }
    },
    told: ['is in the registry now', 'was already in the registry'],
  }),
  actVerb({
    name: 'import',
    about: 'add every question of a file, or none of them',
    act: 'questions/add',
    args: { '<file>': 'a JSON array of entries as in questions.json; - for stdin' },
    example: actExamples.import,
    async body({ file }, _flags, context) {
      const entries = await readOwnJson(context, file)
      if (Array.isArray(entries) && entries.length > 0) return { entries }
      throw new UsageError(
        'questions_invalid',
        `${file} holds no entries`,
        'give a JSON array of entries as in questions.json',
      )
    },
    show({ output }, { result, through }) {
      const { changed, unchanged } = result
      output.show('operator-act', { ...result, through }, [
        `${counted(changed.length, 'question')} added or changed, ${unchanged.length} already in the registry`,
      ])
    },
  }),
  actVerb({
    name: 'remove',
    about: 'remove an entry, also one of the questions file, until it is added again',
    act: 'questions/remove',
    args: questionArg,
    example:
      'operator questions remove 0x7c1e5f0a9b3d42861f0e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c5b4a3928 --reason "asked twice"',
    body: ({ questionId }) => ({ question_id: questionId }),
    told: ['is removed from the registry', 'was not in the registry'],
  }),
]

const rejectVerb = actVerb({
  name: 'reject',
  about: 'reject a candidate permanently; its proposer sees the reason as failure detail',
  act: 'candidates/reject',
  args: candidateArg,
  said: neededSaidFlags('reason shown to the proposer'),
  example: actExamples.reject,
  body: ({ candidateId }) => ({ candidate_id: candidateId }),
  told: ['is rejected', 'is as it was'],
})

const compactVerb = actVerb({
  name: 'compact',
  about:
    'compact candidates that ended over 90 days ago: all stay readable, newer ones keep every detail',
  act: 'store/compact',
  said: {},
  example: 'operator store compact',
  before: requireStore,
  show({ output }, { result: { bytes }, through }) {
    const { before = 0, after = 0 } = bytes ?? {}
    const document = { bytes_before: before, bytes_after: after, through }
    output.show('operator-store-compaction', document, [
      `the store had ${before} bytes, now ${after}`,
    ])
  },
})

const repinVerb = actVerb({
  name: 'repin',
  about: 'pin the current code of oracles and tokens, after they were upgraded',
  act: 'trust/repin',
  said: neededSaidFlags('reason, stored with it'),
  example: actExamples.repin,
  told: ['is pinned anew', 'runs what is pinned'],
})

/** Gateways on one store get the new file one after the other. */
const defaultOverlap = '24h'
const overlapOf = parserOf(
  '--overlap',
  (text) => {
    const seconds = Math.ceil((durationMs(text) ?? Number.NaN) / 1_000)
    return seconds <= 365 * 86_400 ? seconds : undefined
  },
  'bad_duration',
  'a duration of at most 365 days',
  'give a duration such as --overlap 24h, or --overlap 0',
)

const rotateVerb = actVerb({
  name: 'rotate',
  about: 'make a new receipt key; the one before stays listed, with the time it ends',
  act: 'receipts/rotate',
  flags: {
    '--overlap <duration>': {
      about: `for how long the key before may still sign; 0 where it was stolen; default: ${defaultOverlap}`,
      parse: overlapOf,
    },
  },
  help: 'The new key goes into the key file, before the ones that are there. A gateway that runs takes it at once.\nCopy the file to every other gateway on the same store before the overlap ends.',
  example: 'operator receipts rotate --reason "yearly"',
  body: (_args, { overlap = overlapOf(defaultOverlap) }) => ({ overlap_seconds: overlap }),
  async before(site) {
    const path = keyFileOf(site)
    const next = newReceiptKey(site)
    if (!site.isDryRun) {
      const held = (await site.files.exists(path)) ? await readReceiptKeys(site.hash, path) : []
      // First the file: a store that names a key which nobody holds would stop the gateway.
      await writeReceiptKeys(site.files, path, [next, ...held].slice(0, mostKept))
    }
    return { kid: next.kid, x: next.x }
  },
  show(site, { result, through }) {
    const path = keyFileOf(site)
    site.output.show('operator-act', { ...result, through, key_file: path }, [
      `answers are signed with the key ${[...result.changed, ...result.unchanged][0]} now`,
      ...result.notes,
      `${path} holds it; copy it to every other gateway on this store`,
    ])
  },
})

/** A file of secrets has an upper bound, and older keys have ended. */
const mostKept = 4

function keyFileOf({ loaded }: Site) {
  const path = receiptKeyFile(loaded)
  if (path !== undefined) return path
  throw new UsageError(
    'no_receipts',
    `receipts are not configured in ${loaded.path}`,
    'add "receipts": {"key_file": "./receipt-key.json"} to gateway.json; the next `proposer serve` makes the key',
  )
}

const group = (name: string, about: string, examples: string[], verbs: MakeCommand[]) =>
  verb({ name, about, examples, verbs })

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
