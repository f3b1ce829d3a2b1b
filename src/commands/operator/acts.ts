/** The verbs of `operator` that change something, as a table (contract §6, §7). */
import { type ActName, mostAddresses } from '#gateway/operator/acts'
import { keptDays } from '#gateway/operator/service'
import { receiptKeyFile } from '#host/receipts'
import { newReceiptKey, readReceiptKeys, writeReceiptKeys } from '#io/receipt-keys'
import { givenAddress } from '#protocol/address'
import { durationMs } from '#protocol/duration'
import { UsageError } from '#protocol/errors'
import { isCandidateId, isQuestionId, isSlug } from '#protocol/words'
import { readOwnJson } from '../session/inputs.js'
import type { Context } from '../terminal/context.js'
import { counted } from '../terminal/render.js'
import {
  type ArgsOf,
  type ArgTable,
  dryRunFlag,
  type FlagsOf,
  type FlagTable,
  type MakeCommand,
  verb,
} from '../terminal/verb.js'
import {
  type Acted,
  act,
  type configFlag,
  neededSaidFlags,
  type Said,
  type Site,
  saidFlags,
  saidOf,
  siteOf,
} from './access.js'
import { requireStore } from './store.js'

interface ActVerb<Args, Flags> {
  readonly name: string
  readonly about: string
  readonly act: ActName
  readonly args?: Args
  readonly flags?: Flags
  /** Default: the flags of a reason that may be left out. */
  readonly said?: FlagTable
  readonly example: string
  body?(args: ArgsOf<Args>, flags: FlagsOf<Flags>, context: Context): object | Promise<object>
  /** What it gives goes into the body. */
  before?(context: Context, site: Site): Promise<object | undefined>
  readonly help?: string
  lines?(name: string): readonly [changed: string, same: string]
  show?(context: Context, acted: Acted, site: Site): void
}

const actVerb =
  <
    const Args extends ArgTable = Record<never, string>,
    const Flags extends FlagTable = Record<never, string>,
  >({
    lines = (name) => [name, name],
    said = saidFlags,
    ...made
  }: ActVerb<Args, Flags>): MakeCommand =>
  (context) =>
    verb<Args, FlagTable, typeof configFlag>({
      ...made,
      flags: { ...made.flags, ...said, ...dryRunFlag },
      examples: [made.example],
      async run(_context, flags, args) {
        const given = flags as typeof flags & FlagsOf<Flags> & Said
        const why = '--by <who>' in said ? saidOf(context, given) : {}
        const body = { ...(await made.body?.(args, given, context)), ...why }
        const site = await siteOf(context, flags)
        const more = await made.before?.(context, site)
        const acted = await act(context, site, made.act, { ...more, ...body })
        if (acted === undefined) return
        if (made.show) return made.show(context, acted, site)
        const { result, through } = acted
        context.output.show('operator-act', { ...result, through }, [
          ...result.changed.map((name) => lines(name)[0]),
          ...result.unchanged.map((name) => lines(name)[1]),
          ...result.notes,
        ])
      },
    })(context)

const allowVerb = (
  name: 'allow' | 'disallow',
  about: string,
  reason: string,
  [now, before]: readonly [string, string],
) =>
  actVerb({
    name,
    about,
    act: name,
    args: {
      '<address...>': {
        about: 'wallets',
        parse: (text: string, before: readonly string[] = []) => [...before, requireWallet(text)],
      },
    },
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
    lines: (wallet) => [`${wallet} ${now}`, `${wallet} ${before}: nothing changed`],
  })

const switchVerb = (name: 'pause' | 'resume', about: string, state: string) =>
  actVerb({
    name,
    about,
    act: name,
    example: `operator ${name} --reason "node upgrade"`,
    lines: () => [`admission is ${state} now`, `admission was already ${state}: nothing changed`],
  })

export const allowVerbs = [
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

export const admissionVerbs = [
  switchVerb(
    'pause',
    'stop admission (503 admission_disabled); admitted candidates continue',
    'paused',
  ),
  switchVerb('resume', 'resume admission', 'open'),
]

export const actExamples = {
  add: 'operator questions add 0x7c1e5f0a9b3d42861f0e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c5b4a3928 --slug will-it-rain',
  import: 'operator questions import more-questions.json',
  reject:
    'operator candidates reject 3f2b8c1e-8d5a-4a52-9c3d-0a1b2c3d4e5f --reason "asked for by the proposer"',
  repin: 'operator trust repin --reason "version 3, audited"',
} as const

const questionArg = {
  '<question-id>': {
    about: '0x and 64 hex digits',
    parse(text: string) {
      const id = text.toLowerCase()
      if (isQuestionId(id)) return id
      throw new UsageError(
        'invalid_identifier',
        `"${text.slice(0, 80)}" is not a question id`,
        'give 0x and 64 hex digits; `proposer context <slug>` shows the id of a slug',
      )
    },
  },
} as const

export const questionVerbs = [
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
      // Through JSON, what is not given is not there.
      return { entries: [JSON.parse(JSON.stringify(entry))] }
    },
    lines: (id) => [
      `${id} is in the registry now`,
      `${id} was already in the registry: nothing changed`,
    ],
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
    lines: (id) => [
      `${id} is removed from the registry`,
      `${id} was not in the registry: nothing changed`,
    ],
  }),
]

export const candidateArg = {
  '<candidate-id>': {
    about: '',
    parse(text: string) {
      const id = text.toLowerCase()
      if (isCandidateId(id)) return id
      throw new UsageError(
        'invalid_identifier',
        `<candidate-id> "${text.slice(0, 80)}" is not a candidate id`,
        'give the UUID that the acknowledgement gave; `proposer operator candidates list` shows them',
      )
    },
  },
} as const

export const rejectVerb = actVerb({
  name: 'reject',
  about: 'reject a candidate permanently; its proposer sees the reason as failure detail',
  act: 'candidates/reject',
  args: candidateArg,
  said: neededSaidFlags('reason shown to the proposer'),
  example: actExamples.reject,
  body: ({ candidateId }) => ({ candidate_id: candidateId }),
  lines: (id) => [`candidate ${id} is rejected`, `candidate ${id} is unchanged`],
})

export const compactVerb = actVerb({
  name: 'compact',
  about:
    'compact candidates that ended over 90 days ago: all stay readable, newer ones keep every detail',
  act: 'store/compact',
  said: {},
  example: 'operator store compact',
  before: requireStore,
  show({ output }, { result: { bytes }, through }, { loaded }) {
    const { before = 0, after = 0 } = bytes ?? {}
    const more =
      loaded.place.kind === 'database'
        ? ': all records stay, and the next start reads a snapshot first'
        : after <= before
          ? ''
          : // What is young is reported beside what is folded, so that a small store can grow.
            `: it grew, because every candidate is also stored whole now; it shrinks once more of them are older than ${keptDays} days`
    output.show(
      'operator-store-compaction',
      { bytes_before: before, bytes_after: after, through },
      [`the store had ${before} bytes, now ${after}${more}`],
    )
  },
})

export const repinVerb = actVerb({
  name: 'repin',
  about: 'pin the current code of oracles and tokens, after they were upgraded',
  act: 'trust/repin',
  said: neededSaidFlags('reason, stored with it'),
  example: actExamples.repin,
  lines: (contract) => [`${contract} is pinned anew`, `${contract} runs what is pinned`],
})

function requireWallet(text: string) {
  const address = givenAddress(text)
  if (/[1-9a-f]/.test(address.slice(2))) return address
  throw new UsageError(
    'invalid_address',
    'the zero address is not a wallet',
    'give the address of a wallet',
  )
}

function requireSlug(slug: string) {
  if (isSlug(slug)) return slug
  throw new UsageError(
    'invalid_identifier',
    `--slug "${slug.slice(0, 80)}" is not a slug`,
    'give lowercase letters, digits and hyphens, 200 at most; not `eligibility`, and no question id',
  )
}

/** Gateways on one store get the new file one after the other. */
const defaultOverlap = '24h'

export const rotateVerb = actVerb({
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
  async before(context, site) {
    const path = keyFileOf(site)
    const next = newReceiptKey(context)
    if (!site.isDryRun) {
      const held = (await context.files.exists(path))
        ? await readReceiptKeys(context.hash, path)
        : []
      // First the file: a store that names a key which nobody holds would stop the gateway.
      await writeReceiptKeys(context.files, path, [next, ...held].slice(0, mostKept))
    }
    return { kid: next.kid, x: next.x }
  },
  show({ output }, { result, through }, site) {
    const path = keyFileOf(site)
    output.show('operator-act', { ...result, through, key_file: path }, [
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

function overlapOf(text: string) {
  const ms = durationMs(text)
  if (ms !== undefined && ms <= 365 * 86_400_000) return Math.ceil(ms / 1_000)
  throw new UsageError(
    'bad_duration',
    `--overlap ${text.slice(0, 80)} is not a duration of at most 365 days`,
    'give a duration such as --overlap 24h, or --overlap 0',
  )
}
