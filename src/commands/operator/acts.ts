/**
 * The verbs of `operator` that change something, as a table: allow, disallow, pause, resume,
 * questions add|import|remove, candidates reject, store compact (contract §6, §7).
 */

import { Command } from 'commander'
import { type ActName, type ActResult, mostAddresses } from '../../core/gateway/operator/acts.js'
import { keptDays } from '../../core/gateway/operator/service.js'
import { givenAddress } from '../../core/protocol/address.js'
import { UsageError } from '../../core/protocol/errors.js'
import { isQuestionId, isSlug } from '../../core/protocol/words.js'
import { readOwnJson } from '../session/inputs.js'
import type { Context } from '../terminal/context.js'
import { dryRunOption } from '../terminal/dry-run.js'
import { counted, fold } from '../terminal/render.js'
import { type Acted, act, candidateIdOf, type Site, siteOf } from './access.js'
import { requireStore } from './inspection.js'
import { byOption, reasonOption, type SaidFlags, saidFlags } from './said.js'

interface ActFlags extends SaidFlags {
  readonly slug?: string
  readonly requester?: string
  readonly request?: string
}

interface ActVerb {
  readonly name: string
  readonly description: string
  readonly act: ActName
  /** Name and description. */
  readonly argument?: readonly [string, string?]
  readonly options?: readonly (readonly [flags: string, description: string])[]
  readonly reason: 'optional' | 'required' | 'none'
  readonly example: string
  /** What goes with the act. UsageError for what is wrong on the command line. */
  body?(given: readonly string[], flags: ActFlags, context: Context): object | Promise<object>
  /** What must be so before it. */
  before?(context: Context, site: Site): Promise<void>
  /** A line for a name that was changed, and for one that was so already. */
  lines?(name: string): readonly [changed: string, same: string]
  /** Where the outcome is printed otherwise. */
  print?(context: Context, acted: Acted, site: Site): void
}

const allowVerb = (
  name: 'allow' | 'disallow',
  description: string,
  reason: string,
  [now, before]: readonly [string, string],
): ActVerb => ({
  name,
  description,
  act: name,
  argument: ['<address...>', 'wallets'],
  reason: 'optional',
  example: `${name} 0x8ba1f109551bd432803012645ac136ddd64dba72 --reason "${reason}"`,
  body(given) {
    const addresses = [...new Set(given.map(requireWallet))]
    if (addresses.length <= mostAddresses) return { addresses }
    throw new UsageError(
      'too_many_addresses',
      `${name} accepts at most ${mostAddresses} wallets at a time, got ${addresses.length}`,
      { hint: 'split them over several commands' },
    )
  },
  lines: (wallet) => [`${wallet} ${now}`, `${wallet} ${before}: nothing changed`],
})

const switchVerb = (name: 'pause' | 'resume', description: string, state: string): ActVerb => ({
  name,
  description,
  act: name,
  reason: 'optional',
  example: `${name} --reason "node upgrade"`,
  lines: () => [`admission is ${state} now`, `admission was already ${state}: nothing changed`],
})

export const actVerbs = {
  allow: allowVerb('allow', 'add wallets to the allowlist', 'contract signed', [
    'may propose now',
    'is already allowed',
  ]),
  disallow: allowVerb(
    'disallow',
    'remove wallets from the allowlist; their candidates in progress continue',
    'contract ended',
    ['removed from the allowlist', 'is not on the allowlist'],
  ),
  pause: switchVerb(
    'pause',
    'stop admission (503 admission_disabled); admitted candidates continue',
    'paused',
  ),
  resume: switchVerb('resume', 'resume admission', 'open'),
  add: {
    name: 'add',
    description: 'add one question, or change its entry; the chain confirms it first',
    act: 'questions/add',
    argument: ['<question-id>', '0x and 64 hex digits'],
    options: [
      ['--slug <slug>', 'name that clients may use for it'],
      ['--requester <address>', 'only trusted requester to ask'],
      [
        '--request <file.json>',
        'its request, for a requester of kind direct: {oracle, requester, identifier, timestamp, ancillary_data}',
      ],
    ],
    reason: 'optional',
    example:
      'questions add 0x7c1e5f0a9b3d42861f0e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c5b4a3928 --slug will-it-rain',
    async body([given = ''], { slug, requester, request }, context) {
      requireSlug(slug)
      const entry = {
        question_id: requireQuestionId(given),
        slug,
        requester: requester === undefined ? undefined : givenAddress(requester, '--requester'),
        request: request === undefined ? undefined : await readOwnJson(context, request),
      }
      // Through JSON, what is not given is not there.
      return { entries: [JSON.parse(JSON.stringify(entry))] }
    },
    lines: (id) => [
      `${id} is in the registry now`,
      `${id} was already in the registry: nothing changed`,
    ],
  },
  import: {
    name: 'import',
    description: 'add every question of a file, or none of them',
    act: 'questions/add',
    argument: ['<file>', 'a JSON array of entries as in questions.json; - for stdin'],
    reason: 'optional',
    example: 'questions import more-questions.json',
    async body([file = ''], _flags, context) {
      const entries = await readOwnJson(context, file)
      if (Array.isArray(entries) && entries.length > 0) return { entries }
      throw new UsageError('questions_invalid', `${file} holds no entries`, {
        hint: 'give a JSON array of entries as in questions.json',
      })
    },
    print({ output }, { result, through }) {
      const { changed, unchanged } = result
      const line = `${counted(changed.length, 'question')} added or changed, ${unchanged.length} already in the registry`
      output.result('operator-act', { ...result, through }, () => fold(line, output.columns, '  '))
    },
  },
  remove: {
    name: 'remove',
    description: 'remove an entry, also one of the questions file, until it is added again',
    act: 'questions/remove',
    argument: ['<question-id>', '0x and 64 hex digits'],
    reason: 'optional',
    example:
      'questions remove 0x7c1e5f0a9b3d42861f0e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c5b4a3928 --reason "asked twice"',
    body: ([given = '']) => ({ question_id: requireQuestionId(given) }),
    lines: (id) => [
      `${id} is removed from the registry`,
      `${id} was not in the registry: nothing changed`,
    ],
  },
  reject: {
    name: 'reject',
    description: 'reject a candidate permanently; its proposer sees the reason as failure detail',
    act: 'candidates/reject',
    argument: ['<candidate-id>'],
    reason: 'required',
    example:
      'candidates reject 3f2b8c1e-8d5a-4a52-9c3d-0a1b2c3d4e5f --reason "asked for by the proposer"',
    body: ([given = '']) => ({ candidate_id: candidateIdOf(given) }),
    lines: (id) => [`candidate ${id} is rejected`, `candidate ${id} is unchanged`],
  },
  compact: {
    name: 'compact',
    description:
      'compact candidates that ended over 90 days ago: all stay readable, newer ones keep every detail',
    act: 'store/compact',
    reason: 'none',
    example: 'store compact',
    before: requireStore,
    print({ output }, { result: { bytes }, through }, { loaded }) {
      const { before = 0, after = 0 } = bytes ?? {}
      const line = `the store had ${before} bytes, now ${after}`
      // What is young is reported beside what is folded, so that a small store can grow.
      const grown = `: it grew, because every candidate is also stored whole now; it shrinks once more of them are older than ${keptDays} days`
      const snapshot = ': all records stay, and the next start reads a snapshot first'
      output.result(
        'operator-store-compaction',
        { bytes_before: before, bytes_after: after, through },
        () => {
          const isShared = loaded.place.kind === 'database'
          const text = isShared ? `${line}${snapshot}` : after <= before ? line : `${line}${grown}`
          return fold(text, output.columns, '  ')
        },
      )
    },
  },
  repin: {
    name: 'repin',
    description: 'pin the current code of oracles and tokens, after they were upgraded',
    act: 'trust/repin',
    reason: 'required',
    example: 'trust repin --reason "version 3, audited"',
    lines: (contract) => [`${contract} is pinned anew`, `${contract} runs what is pinned`],
  },
} as const satisfies Record<string, ActVerb>

/** The command of a verb: reads its line, carries the act out, prints what it came to. */
export function actCommand(context: Context, verb: ActVerb): Command {
  const command = new Command(verb.name).description(verb.description)
  if (verb.argument) command.argument(...verb.argument)
  for (const option of verb.options ?? []) command.option(...option)
  if (verb.reason === 'optional') command.option(...reasonOption)
  if (verb.reason === 'required')
    command.requiredOption(
      reasonOption[0],
      verb.act === 'candidates/reject' ? 'reason shown to the proposer' : 'reason, stored with it',
    )
  if (verb.reason !== 'none') command.option(...byOption)
  return command
    .option(...dryRunOption)
    .addHelpText('after', `\nExample:\n  proposer operator ${verb.example}`)
    .action(async () => {
      const flags = command.opts<ActFlags>()
      const said = verb.reason === 'none' ? {} : saidFlags(context, flags)
      const body = { ...(await verb.body?.(command.args, flags, context)), ...said }
      const site = await siteOf(context, command)
      await verb.before?.(context, site)
      const acted = await act(context, site, verb.act, body)
      if (acted === undefined) return
      if (verb.print) verb.print(context, acted, site)
      else printActed(context, acted, verb.lines ?? ((name) => [name, name]))
    })
}

function printActed(
  { output }: Context,
  { result, through }: Acted,
  lines: NonNullable<ActVerb['lines']>,
): void {
  output.result(
    'operator-act',
    { ...result, through },
    ({ changed, unchanged, notes }: ActResult) =>
      [
        ...changed.map((name) => lines(name)[0]),
        ...unchanged.map((name) => lines(name)[1]),
        ...notes,
      ]
        .map((line) => fold(line, output.columns, '  '))
        .join('\n'),
  )
}

function requireWallet(text: string): string {
  const address = givenAddress(text)
  if (/[1-9a-f]/.test(address.slice(2))) return address
  throw new UsageError('invalid_address', 'the zero address is not a wallet', {
    hint: 'give the address of a wallet',
  })
}

function requireSlug(slug: string | undefined): void {
  if (slug === undefined || isSlug(slug)) return
  throw new UsageError('invalid_identifier', `--slug "${slug.slice(0, 80)}" is not a slug`, {
    hint: 'give lowercase letters, digits and hyphens, 200 at most; not `eligibility`, and no question id',
  })
}

function requireQuestionId(text: string): string {
  const id = text.toLowerCase()
  if (isQuestionId(id)) return id
  throw new UsageError('invalid_identifier', `"${text.slice(0, 80)}" is not a question id`, {
    hint: 'give 0x and 64 hex digits; `proposer context <slug>` shows the id of a slug',
  })
}
