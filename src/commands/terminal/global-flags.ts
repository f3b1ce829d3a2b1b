/** The flags of every command (contract §6, §9). */
import { type Command, Option } from 'commander'
import { UsageError } from '../../core/protocol/errors.js'
import { colorChoices } from './output.js'

/**
 * Flags of every command (contract §6). Those that take a value are told apart from verbs by
 * `takesValue`.
 */
const everywhere = [
  ['--gateway <url>', 'gateway URL'],
  ['--local <gateway.json>', 'run the gateway of this configuration in-process instead'],
  ['--profile <name>', 'configuration profile to use'],
  ['--home <dir>', 'folder for journal, keystores, trust and configuration'],
  ['--account <name>', 'keystore of the proposer'],
  ['--rpc-url <url>', 'JSON-RPC URL of a node'],
  ['--trust <file>', 'file of the pinned contracts'],
  ['--timeout <duration>', 'stop waiting after this time: 120, 90m or 2h30m'],
  ['--json', 'print one JSON document'],
  ['--ndjson', 'print one JSON line per item as it settles'],
  ['--field <path>', 'one value of the JSON document, raw, such as candidate_id'],
  ['-q, --quiet', 'suppress notes and progress'],
  ['-y, --yes', 'skip confirmation prompts'],
  ['-v, --verbose', 'show requests and responses on stderr, without secrets'],
  ['--color <auto|always|never>', 'when to use colors; default: auto'],
] as const

export const takesValue: ReadonlySet<string> = new Set(
  everywhere.flatMap(([flags]) => (flags.includes('<') ? (flags.split(' ')[0] ?? []) : [])),
)

/** Adds them to the program. `--field` and `--ndjson` together are a UsageError. */
export function addGlobalFlags(program: Command): void {
  for (const [flags, description] of everywhere) {
    const option = new Option(flags, description)
    program.addOption(flags.startsWith('--color') ? option.choices(colorChoices) : option)
  }
  program.hook('preAction', () => {
    const { ndjson, field } = program.opts()
    if (ndjson === true && field !== undefined)
      throw new UsageError(
        'usage',
        '--field and --ndjson cannot be used together',
        'omit one of them',
      )
  })
}
