/** `trust`: the pinned contracts that every signature is checked against (contract §7; R9). */
import { Command, Option } from 'commander'
import { unconfirmedAmong } from '../core/chain/profiles.js'
import { requesterKinds } from '../core/chain/round.js'
import { type TrustFinding, verifyTrust } from '../core/checks/trust.js'
import { chainNow } from '../core/client/trust/context.js'
import {
  howToRepin,
  implementationsNow,
  nothingPinned,
} from '../core/client/trust/implementations.js'
import { type ProfilePins, profilePins, wholePins } from '../core/client/trust/profile-pins.js'
import { parseTrust, type Trust } from '../core/client/trust/trust-file.js'
import { mergePins } from '../core/client/trust/trust-merge.js'
import { givenAddress } from '../core/protocol/address.js'
import { ProposerError, UsageError } from '../core/protocol/errors.js'
import { readInput } from './session/inputs.js'
import { builtInPins, type Session, type SessionFlags, withSession } from './session/session.js'
import type { Context } from './terminal/context.js'
import { type DryRunFlag, dryRunOption } from './terminal/dry-run.js'
import type { Output } from './terminal/output.js'
import { fields, fold } from './terminal/render.js'
import { pinsOfQuestion, showQuestion } from './trust-question.js'
import { listedKeys } from './trust-receipts.js'
import { firstJson, refuseChanges, trustText, write } from './trust-write.js'

export const trustCommand = (context: Context): Command =>
  new Command('trust')
    .description('pin the contracts that proposals may be signed for, and verify them on the chain')
    .addHelpText(
      'after',
      '\nExamples:\n  proposer trust init --from ready.json\n  proposer trust verify --rpc-url http://127.0.0.1:8545',
    )
    .addCommand(showCommand(context))
    .addCommand(initCommand(context))
    .addCommand(pinCommand(context))
    .addCommand(verifyCommand(context))

const showCommand = (context: Context) =>
  new Command('show')
    .description('show the pins, and their file')
    .addHelpText('after', '\nExample:\n  proposer trust show')
    .action(async (_own: unknown, command: Command) => {
      await withSession(context, command.optsWithGlobals<SessionFlags>(), async (session) => {
        const { output } = context
        const { trust, profile } = session.settings
        const path = trust.value
        const builtIn = await builtInPins(context, session.settings)
        if (builtIn === undefined) {
          const pins = await session.trust()
          return output.result('trust', { path, ...pins }, () =>
            shownText(['file', path], pins, output.columns),
          )
        }
        const name = profile.value
        if (builtIn.signed_proposer === null) {
          const how = `\`proposer trust init --profile ${name} --signed-proposer 0x…\` pins it and everything else`
          output.warning(
            'signed_proposer_needed',
            `signed_proposer is missing: no public source lists it; ${how}`,
          )
        }
        warnUnconfirmed(context, name, builtIn)
        const where = ['built in', `profile ${name}; ${path} does not exist`] as const
        output.result('trust', { path: null, built_in: name, ...builtIn }, () =>
          shownText(where, builtIn, output.columns),
        )
      })
    })

const shownText = (head: readonly [string, string], pins: ProfilePins, columns: number) =>
  [fields([head], columns), trustText(pins, columns)].join('\n')

function warnUnconfirmed(context: Context, profile: string, pins: ProfilePins): boolean {
  const { oracles, requesters, tokens } = pins
  const addresses = [...oracles, ...requesters.map(({ address }) => address), ...tokens]
  const doubts = unconfirmedAmong(profile, addresses)
  for (const doubt of doubts) context.output.warning('unconfirmed_pin', doubt)
  return doubts.length > 0
}

const kindOption = (description: string) =>
  new Option('--kind <kind>', description).choices(requesterKinds).argParser((text) => text)

interface InitFlags extends SessionFlags, DryRunFlag {
  readonly signedProposer?: string
  readonly from?: string
  readonly kind?: string
}

const initCommand = (context: Context) =>
  new Command('init')
    .description('write the pins of the selected profile; existing pins stay')
    .argument('[identifier]', 'pin what the gateway reports for this question, after confirmation')
    .option(
      '--from <file>',
      'a trust.json, the ready line of a development chain, or its dev object; - for stdin',
    )
    .option(...dryRunOption)
    .option(
      '--signed-proposer <address>',
      'with a built-in profile: the SignedProposer of your operator',
    )
    .addOption(kindOption('kind of the requester, if the gateway is asked'))
    .addHelpText(
      'after',
      '\nPins from a gateway are only as good as the gateway: compare them with an independent source.\n\nExamples:\n  proposer trust init --from ready.json\n  proposer trust init some-slug --gateway https://gateway.example\n  proposer trust init --profile polygon --signed-proposer 0x8ba1f109551bd432803012645ac136ddd64dba72',
    )
    .action(async (identifier: string | undefined, _own: unknown, command: Command) => {
      const flags = command.optsWithGlobals<InitFlags>()
      const { from, kind, signedProposer } = flags
      const isDryRun = flags.dryRun === true
      if (identifier !== undefined && from !== undefined)
        throw trustSource('either --from <file> or a question, not both')
      if ((identifier ?? from) !== undefined && signedProposer !== undefined) {
        throw trustSource(
          '--signed-proposer without --from and without a question: it completes a built-in profile',
        )
      }
      await withSession(context, { ...flags, makesProfile: true }, async (session) => {
        const writeAs = async (pins: Trust, fromOutside: boolean) =>
          write(context, session, await withCode(context, session, pins), { fromOutside, isDryRun })
        if (from !== undefined) return writeAs(await fromFile(context, from), false)
        if (identifier !== undefined)
          return writeAs((await pinsOfQuestion(session, identifier, kind)).pins, true)
        const name = session.settings.profile.value
        const pins = profilePins(name)
        if (pins === undefined)
          throw trustSource(
            'either --from <file>, a question to ask the gateway about, or a built-in profile',
          )
        const address =
          signedProposer && givenAddress(signedProposer, '--signed-proposer', 'bad_address')
        const trust = wholePins(name, pins, address)
        await writeAs(trust, warnUnconfirmed(context, name, trust))
      })
    })

/** With a node of their chain, what oracles and tokens run is pinned too; else that is told. */
async function withCode({ output }: Context, session: Session, pins: Trust): Promise<Trust> {
  const chain = await session.chain()
  if (chain === undefined || pins.implementations !== undefined) return pins
  try {
    await chainNow(chain, pins, session.ports.clock)
    return { ...pins, implementations: await implementationsNow(chain, pins) }
  } catch (error) {
    if (!(error instanceof ProposerError)) throw error
    output.warning('implementations_unpinned', `${nothingPinned} (${error.detail})`)
    return pins
  }
}

interface PinFlags extends SessionFlags, DryRunFlag {
  readonly receipts?: boolean
  readonly requester?: string
  readonly kind?: string
  readonly oracle?: string
  readonly token?: string
}

const pinCommand = (context: Context) =>
  new Command('pin')
    .description('add pins: what a question needs, or a requester, an oracle or a token')
    .argument('[identifier]', 'question id, slug or Polymarket URL to pin, with all it needs')
    .option('--requester <address>', 'contract that asks questions; requires --kind')
    .addOption(kindOption('of the requester'))
    .option('--oracle <address>', 'oracle that it asks')
    .option('--token <address>', 'token that bonds are paid in')
    .option('--receipts', 'keys that the gateway signs its answers with')
    .option('--gamma-url <url>', "Polymarket's market API, which knows slugs")
    .option(...dryRunOption)
    .addHelpText(
      'after',
      '\nShows what is added and asks for confirmation; a node (--rpc-url) checks it on the chain first.\nExisting pins stay as they are: only trust init changes a pin.\n\nExamples:\n  proposer trust pin some-slug --gateway https://gateway.example\n  proposer trust pin --requester 0x8ba1f109551bd432803012645ac136ddd64dba72 --kind uma-ctf-adapter --yes\n  proposer trust pin --receipts --gateway https://gateway.example',
    )
    .action(async (identifier: string | undefined, _own: unknown, command: Command) => {
      const { requester, kind, oracle, token, receipts, ...flags } =
        command.optsWithGlobals<PinFlags>()
      if ([identifier, requester, oracle, token, receipts].every((one) => one === undefined))
        throw new UsageError(
          'trust_source',
          'trust pin needs a question, or --requester, --oracle, --token or --receipts',
          'run `proposer trust pin <question id or slug>`, or name a contract: --token 0x…',
        )
      // A question tells its requester itself; only its kind may have to be named.
      const lacksPartner = requester === undefined ? identifier === undefined : kind === undefined
      if (lacksPartner && (requester ?? kind) !== undefined)
        throw new UsageError(
          'kind_needed',
          '--requester and --kind must be used together',
          `add --kind ${requesterKinds.join(' or --kind ')}`,
        )
      await withSession(context, flags, async (session) => {
        const current = await session.trust()
        const asked =
          identifier === undefined ? undefined : await pinsOfQuestion(session, identifier, kind)
        if (asked !== undefined) await showQuestion(context, session, asked)
        const base = asked?.pins ?? current
        const more = {
          ...base,
          requesters: [
            ...base.requesters,
            ...(requester === undefined ? [] : [{ address: requester, kind: kind ?? '' }]),
          ],
          oracles: [...base.oracles, oracle ?? []].flat(),
          tokens: [...base.tokens, token ?? []].flat(),
          ...(receipts === true && {
            receipt_keys: await listedKeys(context, session.settings, flags),
          }),
        }
        // Built-in pins have no file yet, and belong into it too.
        const pins = parseTrust(more, 'what is to be pinned')
        const { trust, changed, added } = mergePins(current, pins)
        refuseChanges(changed)
        await confirmAdded(context, session, trust, added)
        const isDryRun = flags.dryRun === true
        await write(context, session, trust, { fromOutside: true, onlyAdds: true, isDryRun })
      })
    })

/** With a node: what is new is what it should be there (contract §9). */
async function confirmAdded(
  context: Context,
  session: Session,
  trust: Trust,
  added: readonly string[],
): Promise<void> {
  const chain = await session.chain()
  if (chain === undefined) return
  await chainNow(chain, trust, session.ports.clock)
  const addresses = added.flatMap((line) => /0x[0-9a-f]{40}$/.exec(line) ?? [])
  if (addresses.length === 0) return
  const checks = (await verifyTrust(chain, trust)).filter(({ name }) =>
    addresses.some((address) => name.includes(address)),
  )
  if (context.output.mode === 'human') context.output.warn(checksText(context.output, checks))
  refuseUnverified(checks)
}

const trustSource = (needs: string) =>
  new UsageError(
    'trust_source',
    `trust init needs ${needs}`,
    'run `proposer trust init --from <file>`, name a question id or slug, or give --profile polygon --signed-proposer 0x…',
  )

async function fromFile(context: Context, path: string): Promise<Trust> {
  const json = firstJson(new TextDecoder().decode(await readInput(context, path)), path)
  const dev = member(json, 'dev')
  return parseTrust(member(dev, 'trust') ?? member(json, 'trust') ?? json, path)
}

const member = (json: unknown, key: string): unknown =>
  typeof json === 'object' && json !== null && Object.hasOwn(json, key)
    ? (json as Record<string, unknown>)[key]
    : undefined

const verifyCommand = (context: Context) =>
  new Command('verify')
    .description('verify the pinned contracts on chain; exit 2 if one differs')
    .option('--repin', 'show what code oracles and tokens run, old and new, and pin it; asks')
    .option(...dryRunOption)
    .addHelpText(
      'after',
      '\nWhere a proxy runs code other than the pinned code, nothing is signed until it is pinned again.\n\nExamples:\n  proposer trust verify --rpc-url http://127.0.0.1:8545\n  proposer trust verify --repin --yes',
    )
    .action(async (_own: unknown, command: Command) => {
      const flags = command.optsWithGlobals<SessionFlags & DryRunFlag & { repin?: boolean }>()
      if (flags.dryRun === true && flags.repin !== true)
        throw new UsageError(
          'flag_without_meaning',
          'trust verify writes nothing without --repin',
          'leave --dry-run out',
        )
      await withSession(context, flags, async (session) => {
        const trust = await session.trust()
        const chain = await session.chain()
        if (!chain) {
          throw new UsageError(
            'no_rpc_url',
            'trust verify needs a node, and none is configured',
            'give --rpc-url <url>, or set PROPOSER_RPC_URL',
          )
        }
        const checks = await verifyTrust(chain, trust)
        const { output } = context
        if (flags.repin === true) {
          // Other code of a contract that is not what it should be is no upgrade.
          refuseUnverified(checks.filter(({ id }) => id !== 'implementation'))
          const implementations = await implementationsNow(chain, trust)
          const isDryRun = flags.dryRun === true
          return write(
            context,
            session,
            { ...trust, implementations },
            { fromOutside: true, isDryRun },
          )
        }
        const path =
          (await builtInPins(context, session.settings)) === undefined
            ? session.settings.trust.value
            : null
        const shown = checks.map(({ id, name, result, detail }) => {
          return { check: id, name, ok: result === 'pass', detail }
        })
        const ok = shown.every((one) => one.ok)
        output.result('trust-verified', { path, ok, checks: shown }, () =>
          checksText(output, checks),
        )
        refuseUnverified(checks)
      })
    })

const checksText = ({ columns, paint }: Output, checks: readonly TrustFinding[]): string =>
  checks
    .map(({ result, name, detail }) => {
      const text = fold(`${name}: ${detail}`, columns - 6).replaceAll('\n', '\n      ')
      return `${result === 'pass' ? paint.green('ok  ') : paint.red('FAIL')}  ${text}`
    })
    .join('\n')

function refuseUnverified(checks: readonly TrustFinding[]): void {
  const failed = checks.filter(({ result }) => result === 'fail')
  if (failed.length === 0) return
  const codes = failed.filter(({ id }) => id === 'implementation')
  if (codes.length === failed.length)
    throw new UsageError(
      'implementation_changed',
      codes.map(({ detail }) => detail).join('; '),
      howToRepin,
    )
  throw new UsageError(
    'trust_not_verified',
    `${failed.length} of ${checks.length} checks failed: ${failed.map(({ name }) => name).join(', ')}`,
    'do not sign with these pins until you know why: wrong file, wrong chain, or wrong node',
  )
}
