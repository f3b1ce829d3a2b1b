/**
 * `sign`: builds the typed data itself, checks it against trust, shows it, signs and journals (R9;
 * contract §6).
 */

import { basename, dirname } from 'node:path'
import { Command } from 'commander'
import { answerOf, labelOf } from '../core/client/journal/authorizations.js'
import { uncheckedOf } from '../core/client/journal/records.js'
import {
  type Authorized,
  authorize,
  authorized,
  offerTypedData,
} from '../core/client/propose/authorize.js'
import type { SettledEarlier } from '../core/client/propose/earlier.js'
import { importSignature, walletTypedData } from '../core/client/propose/outside.js'
import type { SafePartsFile } from '../core/client/propose/safe.js'
import { fromCwd } from '../core/io/home-paths.js'
import { PendingError, UsageError } from '../core/protocol/errors.js'
import { outcomeOf } from '../core/protocol/proposal.js'
import type { Address, TypedData } from '../core/protocol/schema.js'
import { publishFile, writeAll } from '../core/storage/durable.js'
import { identify } from './session/identify.js'
import { readInput } from './session/inputs.js'
import {
  addIntentFlags,
  authorizeParts,
  type IntentFlags,
  parseIntent,
  requireOutcome,
  showPreview,
  signingFlags,
} from './session/intent.js'
import { requireIdentifier } from './session/question.js'
import { collector, settledData, withSettled } from './session/rounds.js'
import { type Session, withSession } from './session/session.js'
import type { Context } from './terminal/context.js'
import { fields } from './terminal/render.js'

interface SignFlags extends IntentFlags {
  readonly output?: string
  readonly typedData?: boolean
  readonly signature?: string
}

export const signCommand = (context: Context): Command =>
  addIntentFlags(
    new Command('sign')
      .description('sign a proposal and save it in the journal; send nothing')
      .argument('<identifier>', 'question id, slug or Polymarket URL')
      .option('-o, --output <file>', 'write the payload to this file; - prints only the payload')
      .option(
        '--typed-data',
        'print EIP-712 JSON for an external wallet; reserves its nonce and question',
      )
      .option(
        '--signature <hex>',
        'attach the signature the wallet returned; - reads it from stdin',
      ),
  )
    .addHelpText(
      'after',
      '\nThe same call again prints the same saved payload while it is open.\n\nExamples:\n  proposer sign some-slug --outcome p2 --max-amount 750usdc\n  proposer sign some-slug --outcome p2 --context context.json -o payload.json\n  proposer sign some-slug --outcome p2 --signer http://127.0.0.1:1248\n  proposer sign some-slug --outcome p2 --proposer 0x8ba1f109551bd432803012645ac136ddd64dba72 --typed-data > typed.json\n  proposer sign some-slug --signature "$(cat signature.txt)"',
    )
    .action(async (given: string, _own: unknown, command: Command) => {
      const flags = command.optsWithGlobals<SignFlags>()
      if (flags.signature !== undefined) return bringBack(context, given, flags, flags.signature)
      await parseIntent(context, given, flags, '0x')
      const settled: SettledEarlier[] = []
      const signing = withSession(context, flags, async (session) => {
        const [identifier = given] = await identify(context, session, [given])
        const made = await authorizeParts(context, session, flags, identifier)
        let collected: SafePartsFile | undefined
        const safe = made.safe && {
          ...made.safe,
          collected: (parts: SafePartsFile) => {
            collected = parts
          },
        }
        const onSettled = collector(context, flags.quiet === true, settled)
        const parts = { ...made, onSettled, safe }
        const intent = await parseIntent(
          context,
          identifier,
          flags,
          await session.account.address(),
          session,
        )
        if (flags.dryRun === true) return showPreview(context, session, flags, parts, intent)
        if (flags.typedData === true)
          return giveTypedData(context, flags, identifier, await offerTypedData(parts, intent))
        try {
          await showSigned(context, flags, identifier, await authorize(parts, intent), settled)
        } catch (error) {
          const isShort = error instanceof PendingError && error.code === 'safe_below_threshold'
          if (isShort && collected !== undefined) await showParts(context, flags, collected)
          throw error
        }
      })
      await signing.catch((error: unknown) => {
        throw context.output.mode === 'human' ? error : withSettled(error, settled)
      })
    })

async function showSigned(
  context: Context,
  flags: SignFlags,
  identifier: string,
  signed: Authorized,
  settled: readonly SettledEarlier[] = [],
): Promise<void> {
  const { output } = context
  if (signed.reused)
    output.note(`note: ${signed.journalId} is open with the same answer; these are its saved bytes`)
  if (flags.output === '-') {
    output.text(output.isTerminal ? `${signed.body}\n` : signed.body)
    return
  }
  const file = flags.output === undefined ? undefined : fromCwd(context.cwd, flags.output)
  if (file !== undefined) await writeSecret(context, file, signed.body)
  const record = signed.authorization.signed
  const result = {
    journal_id: signed.journalId,
    question_id: signed.questionId,
    identifier,
    digest: signed.digest ?? null,
    signer: signed.signer,
    payload: JSON.parse(signed.body) as object,
    label: labelOf(record),
    reused: signed.reused,
    unchecked: uncheckedOf(record),
    rules: record.rules ?? null,
    ...(settled.length === 0 ? {} : { settled: settledData(settled) }),
  }
  output.result('signed', result, () =>
    fields(
      [
        [signed.reused ? 'signed before' : 'signed', signed.journalId],
        ['question', signed.questionId],
        ['answer', answerOf(record)],
        ['signer', signed.signer],
        ['digest', signed.digest],
        ['payload', file],
        [
          'next',
          file === undefined
            ? `proposer submit ${identifier} --outcome ${outcomeOf(record.terms.price)}`
            : `proposer submit ${identifier} ${flags.output}`,
        ],
      ],
      output.columns,
    ),
  )
}

/** What the next owner needs, with -o in a file. It holds signatures, so a screen gets no part (R5). */
async function showParts(context: Context, flags: SignFlags, parts: SafePartsFile): Promise<void> {
  const { output } = context
  const text = `${JSON.stringify(parts, null, 2)}\n`
  if (flags.output === '-') return output.text(text)
  const file = flags.output === undefined ? undefined : fromCwd(context.cwd, flags.output)
  if (file !== undefined) await writeSecret(context, file, text)
  const { schema: _schema, ...data } = parts
  output.result('safe-parts', data, () =>
    fields(
      [
        ['Safe', parts.safe],
        ['signed by', parts.signatures.map(({ owner }) => owner).join(', ')],
        ['threshold', String(parts.threshold)],
        ['digest', parts.digest],
        ['parts', file],
      ],
      output.columns,
    ),
  )
}

/**
 * `--typed-data`: stdout is the document alone, so that it can be piped into a wallet; --json wraps
 * it.
 */
async function giveTypedData(
  context: Context,
  flags: SignFlags,
  identifier: string,
  { offer, reused }: Awaited<ReturnType<typeof offerTypedData>>,
): Promise<void> {
  const { output } = context
  const { id, offered } = offer
  const typedData = walletTypedData(offered.typedData as TypedData)
  const text = `${JSON.stringify(typedData)}\n`
  const next = `proposer sign ${identifier} --signature <hex>`
  if (flags.output !== undefined && flags.output !== '-')
    await writeSecret(context, fromCwd(context.cwd, flags.output), text)
  if (output.mode === 'human' && (flags.output === undefined || flags.output === '-')) {
    output.text(text)
    output.note(
      `${id}${reused ? ', given out before,' : ''} waits for the signature of ${offered.terms.proposer}; attach it with \`${next}\``,
    )
    return
  }
  const result = {
    journal_id: id,
    question_id: offered.questionId,
    identifier,
    digest: offered.digest,
    proposer: offered.terms.proposer,
    typed_data: typedData,
    reused,
    unchecked: uncheckedOf(offered),
    rules: offered.rules ?? null,
  }
  output.result('typed-data', result, () =>
    fields(
      [
        [reused ? 'issued before' : 'issued', id],
        ['question', offered.questionId],
        ['proposer', offered.terms.proposer],
        ['digest', offered.digest],
        ['next', next],
      ],
      output.columns,
    ),
  )
}

async function bringBack(
  context: Context,
  named: string,
  flags: SignFlags,
  given: string,
): Promise<void> {
  requireIdentifier(named)
  const without = signingFlags.find((flag) => flag !== 'outcome' && flags[flag] !== undefined)
  if (
    without !== undefined ||
    flags.typedData === true ||
    flags.signer !== undefined ||
    flags.supersede !== undefined
  ) {
    throw new UsageError(
      'flag_without_meaning',
      '--signature belongs to saved typed data, which already has all terms',
      {
        hint: 'omit the flags that say what to sign; --proposer, --safe, --outcome and --rpc-url may stay',
      },
    )
  }
  const outcome = flags.outcome === undefined ? undefined : requireOutcome(flags.outcome)
  const text = given === '-' ? new TextDecoder().decode(await readInput(context, '-')) : given
  await withSession(context, flags, async (session) => {
    const [identifier = named] = await identify(context, session, [named])
    const [trust, chain] = [await session.trust(), await session.chain()]
    const { authorization, reused } = await importSignature(
      {
        ports: session.ports,
        journal: session.journal,
        trust,
        ...(chain === undefined ? {} : { chain }),
      },
      { identifier, outcome, proposer: await namedProposer(session, flags) },
      // Wallets and their tools like to print it as a JSON string.
      text.trim().replace(/^"(.*)"$/, '$1'),
    )
    await showSigned(context, flags, identifier, authorized(authorization, reused))
  })
}

/** Only where the user names one: the journal knows for whom it gave out typed data. */
const namedProposer = (session: Session, flags: SignFlags): Promise<Address> | undefined =>
  flags.proposer === undefined && flags.safe === undefined ? undefined : session.account.address()

/** The exact bytes, 0600: they hold a signature or what one can be made of (R5). */
async function writeSecret(context: Context, path: string, body: string): Promise<void> {
  const bytes = new TextEncoder().encode(body)
  await publishFile(context.files, dirname(path), basename(path), (handle) =>
    writeAll(handle, bytes),
  )
}
