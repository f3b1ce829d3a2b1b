/** `trust`: the pinned contracts that every signature is checked against (contract §7; R9). */
import { basename, dirname } from 'node:path'
import { Command } from 'commander'
import { keccakHex } from '../core/chain/round.js'
import { valueOf as acceptedValue } from '../core/client/sending/answer.js'
import { parseTrust, type Trust } from '../core/client/signing/trust.js'
import type { Hex } from '../core/ports.js'
import { UsageError } from '../core/protocol/errors.js'
import { BatchSigningData } from '../core/protocol/schema.js'
import { makeDurableDir, publishFile, writeAll } from '../core/storage/durable.js'
import type { Context } from './context.js'
import { requireIdentifier } from './context-verb.js'
import { confirm, readInput } from './session/inputs.js'
import { type Session, type SessionFlags, withSession } from './session/session.js'
import { verifyTrust } from './trust-verify.js'
import { fields, visible } from './view/render.js'

const kinds = ['uma-ctf-adapter', 'uma-ctf-adapter-negrisk', 'oo-reporter', 'direct'] as const

export const trustCommand = (context: Context): Command =>
  new Command('trust')
    .description('pin the contracts that proposals may be signed for, and verify them on the chain')
    .addHelpText('after', '\nExamples:\n  proposer trust init --from ready.json\n  proposer trust verify --rpc-url http://127.0.0.1:8545')
    .addCommand(showCommand(context))
    .addCommand(initCommand(context))
    .addCommand(verifyCommand(context))

const showCommand = (context: Context) =>
  new Command('show')
    .description('what is pinned, and in which file')
    .addHelpText('after', '\nExample:\n  proposer trust show')
    .action(async (_own: unknown, command: Command) => {
      await withSession(context, command.optsWithGlobals<SessionFlags>(), async (session) => {
        const trust = await session.trust()
        const path = session.settings.trust.value
        context.output.result('trust', { path, ...trust }, () =>
          [fields([['file', path]], context.output.columns), trustText(trust, context.output.columns)].join('\n'),
        )
      })
    })

interface InitFlags extends SessionFlags {
  readonly from?: string
  readonly kind?: string
}

const initCommand = (context: Context) =>
  new Command('init')
    .description('write the pins of the selected profile')
    .argument('[identifier]', 'pin what the gateway names for this question, after you have agreed')
    .option('--from <file>', 'a trust.json, the ready line of a development chain, or its dev object; - for stdin')
    .option(`--kind <${kinds.join('|')}>`, 'kind of the requester, where the gateway is asked')
    .addHelpText(
      'after',
      '\nWhat a gateway names is only as good as the gateway: compare it with a source of your own.\n\nExamples:\n  proposer trust init --from ready.json\n  proposer trust init some-slug --gateway https://gateway.example',
    )
    .action(async (identifier: string | undefined, _own: unknown, command: Command) => {
      const flags = command.optsWithGlobals<InitFlags>()
      if ((identifier === undefined) === (flags.from === undefined)) {
        throw new UsageError('trust_source', 'trust init needs either --from <file> or a question to ask the gateway about', {
          hint: 'run `proposer trust init --from <file>`, or name a question ID or slug',
        })
      }
      await withSession(context, flags, async (session) => {
        const trust =
          flags.from === undefined ? await fromGateway(session, identifier ?? '', flags.kind) : await fromFile(context, flags.from)
        await write(context, session, trust, flags.from === undefined)
      })
    })

/** Finds the pins in what a development chain or gateway printed, or takes the file as the pins themselves. */
async function fromFile(context: Context, path: string): Promise<Trust> {
  const json = firstJson(new TextDecoder().decode(await readInput(context, path)), path)
  const dev = member(json, 'dev')
  return parseTrust(member(dev, 'trust') ?? member(json, 'trust') ?? json, path)
}

const member = (json: unknown, key: string): unknown =>
  typeof json === 'object' && json !== null && Object.hasOwn(json, key) ? (json as Record<string, unknown>)[key] : undefined

/** The whole text as JSON, or its first line that is: output of `serve` may hold more lines than the ready line. */
function firstJson(text: string, path: string): unknown {
  for (const candidate of [text, ...text.split('\n').filter((line) => line.startsWith('{'))]) {
    try {
      return JSON.parse(candidate)
    } catch {
      // not this line; where none is JSON the error below says so
    }
  }
  throw new UsageError('input_not_json', `${path === '-' ? 'stdin' : path} holds no JSON`, {
    hint: 'give a trust.json, or what `proposer serve --dev --json` or `proposer devchain --json` printed',
  })
}

/** The contracts that a gateway names for one question. Not trusted before a person has agreed (R9). */
async function fromGateway(session: Session, identifier: string, kind: string | undefined): Promise<Trust> {
  requireIdentifier(identifier)
  const gateway = await session.gateway('read')
  const { results } = acceptedValue(await gateway.contexts([identifier], { signal: session.signal }))
  const answered = results[0]
  if (!answered || answered.error) {
    throw new UsageError('no_context', `the gateway gave no context for ${identifier}: ${answered?.error?.detail ?? 'no answer'}`, {
      hint: 'name a question that is open now',
    })
  }
  const parsed = BatchSigningData.safeParse(answered.signing_data)
  if (!parsed.success) {
    throw new UsageError('no_context', `the gateway's context for ${identifier} does not have its shape`, {
      hint: 'make sure that --gateway is a proposer gateway',
    })
  }
  const { data } = parsed
  return parseTrust(
    {
      chain_id: data.signing.chain_id,
      permit2: data.contracts.permit2,
      signed_proposer: data.contracts.signed_proposer,
      oracles: [data.request.oracle],
      requesters: [{ address: data.request.requester, kind: kind ?? kindOf(data) }],
      tokens: [data.bond.token],
      slugs: identifier === data.question_id ? {} : { [identifier]: data.question_id },
    },
    'the answer of the gateway',
  )
}

/** Only the IDs of CTF adapter questions are the hash of their text (domain §5.1); other kinds must be named. */
function kindOf(data: BatchSigningData): string {
  if (keccakHex(data.request.ancillary_data as Hex) === data.question_id) return 'uma-ctf-adapter'
  throw new UsageError('kind_needed', 'the question ID is not the hash of its text, so the kind of its requester must be named', {
    hint: `add --kind ${kinds.slice(2).join(' or --kind ')}`,
  })
}

/** Writes the pins whole. Asks where they come from a gateway, or replace others. */
async function write(context: Context, session: Session, trust: Trust, fromOutside: boolean): Promise<void> {
  const { output } = context
  const path = session.settings.trust.value
  const text = `${JSON.stringify(trust, undefined, 2)}\n`
  const current = (await context.files.exists(path)) ? new TextDecoder().decode(await readInput(context, path)) : undefined
  if (fromOutside || (current !== undefined && current !== text)) {
    output.warn(trustText(trust, output.columns))
    const question =
      current === undefined || current === text ? `Trust these contracts (${path})?` : `Replace what ${path} trusts by these contracts?`
    await confirm(context, visible(question), session.settings.yes)
  }
  const folder = dirname(path)
  await makeDurableDir(context.files, folder)
  await publishFile(context.files, folder, basename(path), (handle) => writeAll(handle, new TextEncoder().encode(text)))
  output.result('trust', { path, ...trust }, () => `pinned in ${visible(path)}; verify it with \`proposer trust verify --rpc-url <url>\``)
}

const verifyCommand = (context: Context) =>
  new Command('verify')
    .description('ask the chain whether the pinned contracts are what they should be; exit 2 where they are not')
    .addHelpText('after', '\nExample:\n  proposer trust verify --rpc-url http://127.0.0.1:8545')
    .action(async (_own: unknown, command: Command) => {
      await withSession(context, command.optsWithGlobals<SessionFlags>(), async (session) => {
        const trust = await session.trust()
        const chain = await session.chain()
        if (!chain) {
          throw new UsageError('no_rpc_url', 'trust verify asks the chain, and no node is named', {
            hint: 'give --rpc-url <url>, or set PROPOSER_RPC_URL',
          })
        }
        const checks = await verifyTrust(chain, trust)
        const failed = checks.filter(({ ok }) => !ok)
        const { output } = context
        output.result('trust-verified', { path: session.settings.trust.value, ok: failed.length === 0, checks }, () =>
          checks
            .map(({ ok, name, detail }) => `${ok ? output.paint.green('ok  ') : output.paint.red('FAIL')}  ${name}: ${visible(detail)}`)
            .join('\n'),
        )
        if (failed.length === 0) return
        throw new UsageError(
          'trust_not_verified',
          `${failed.length} of ${checks.length} checks failed: ${failed.map(({ name }) => name).join(', ')}`,
          {
            hint: 'sign nothing with these pins before you know why: wrong file, wrong chain, or wrong node',
          },
        )
      })
    })

function trustText(trust: Trust, columns: number): string {
  return fields(
    [
      ['chain', String(trust.chain_id)],
      ['permit2', trust.permit2],
      ['signed proposer', trust.signed_proposer],
      ...trust.oracles.map((address) => ['oracle', address] as const),
      ...trust.requesters.map(({ address, kind }) => ['requester', `${address} (${kind})`] as const),
      ...trust.tokens.map((address) => ['token', address] as const),
      ...Object.entries(trust.slugs).map(([slug, id]) => ['slug', `${slug} ${id}`] as const),
    ],
    columns,
  )
}
