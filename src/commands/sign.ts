/**
 * `sign`: builds the typed data itself, checks it against trust, shows it, signs and journals (R9;
 * contract §6).
 */

import { basename, dirname } from 'node:path'
import { answerOf, labelOf } from '#client/journal/authorizations'
import { uncheckedOf } from '#client/journal/records'
import { importSignature, walletTypedData } from '#client/propose/outside'
import type { SettledEarlier } from '#client/propose/round-over'
import type { SafePartsFile } from '#client/propose/safe'
import { authorize, offerTypedData, type RowAuthorized } from '#client/propose/sign-rows'
import { fromCwd } from '#io/home'
import { PendingError, UsageError } from '#protocol/errors'
import { outcomeOf } from '#protocol/proposal'
import type { TypedData } from '#protocol/schema'
import { publishText } from '#storage/durable'
import { settledData, settlingSession } from './session/follow.js'
import { readText } from './session/inputs.js'
import {
  authorizeParts,
  intentFlags,
  parseIntent,
  requireOutcome,
  showPreview,
  signingFlags,
} from './session/intent.js'
import { identify, requireIdentifier } from './session/question.js'
import { type Session, withSession } from './session/session.js'
import type { SessionFlags } from './session/settings.js'
import type { Context } from './terminal/context.js'
import { rows } from './terminal/output.js'
import { type FlagsOf, verb } from './terminal/verb.js'

const flagTable = {
  '-o, --output <file>': 'write the payload to this file; - prints only the payload',
  '--typed-data': 'print EIP-712 JSON for an external wallet; reserves its nonce and question',
  '--signature <hex>': 'attach the signature the wallet returned; - reads it from stdin',
  ...intentFlags,
} as const
type SignFlags = FlagsOf<typeof flagTable> & SessionFlags

export const signCommand = verb({
  name: 'sign',
  about: 'sign a proposal and save it in the journal; send nothing',
  args: { '<identifier>': 'question id, slug or Polymarket URL' },
  flags: flagTable,
  help: 'The same call again prints the same saved payload while it is open.',
  examples: [
    'sign some-slug --outcome p2 --max-amount 750usdc',
    'sign some-slug --outcome p2 --context context.json -o payload.json',
    'sign some-slug --outcome p2 --signer http://127.0.0.1:1248',
    'sign some-slug --outcome p2 --proposer 0x8ba1f109551bd432803012645ac136ddd64dba72 --typed-data > typed.json',
    'sign some-slug --signature "$(cat signature.txt)"',
  ],
  async run(context, flags, { identifier: named }) {
    if (flags.signature !== undefined) return bringBack(context, named, flags, flags.signature)
    await parseIntent(context, named, flags, '0x')
    await settlingSession(context, flags, named, async (session, identifier, settling) => {
      const made = await authorizeParts(session, flags, identifier)
      let collected: SafePartsFile | undefined
      const safe = made.safe && {
        ...made.safe,
        collected: (parts: SafePartsFile) => {
          collected = parts
        },
      }
      const parts = { ...made, onSettled: settling.onSettled, safe }
      const proposer = await session.account.address()
      const intent = await parseIntent(context, identifier, flags, proposer, session)
      if (flags.dryRun) return showPreview(session, flags, parts, intent)
      if (flags.typedData)
        return giveTypedData(context, flags, identifier, await offerTypedData(parts, intent))
      try {
        const signed = await authorize(parts, intent)
        await showSigned(context, flags, identifier, signed, settling.settled)
      } catch (error) {
        const isShort = error instanceof PendingError && error.code === 'safe_below_threshold'
        if (isShort && collected !== undefined) await showParts(context, flags, collected)
        throw error
      }
    })
  },
})

async function showSigned(
  context: Context,
  flags: SignFlags,
  identifier: string,
  { authorization, reused }: RowAuthorized,
  settled: readonly SettledEarlier[] = [],
) {
  const { output } = context
  const { id, signed: record } = authorization
  const { body, questionId, digest, terms } = record
  if (reused) output.note(`note: ${id} is open with the same answer; these are its saved bytes`)
  if (flags.output === '-') {
    output.text(output.isTerminal ? `${body}\n` : body)
    return
  }
  const file = await saved(context, flags, body)
  const result = {
    journal_id: id,
    question_id: questionId,
    identifier,
    digest: digest ?? null,
    signer: terms.proposer,
    payload: JSON.parse(body) as object,
    label: labelOf(record),
    reused,
    unchecked: uncheckedOf(record),
    rules: record.rules ?? null,
    ...(settled.length === 0 ? {} : { settled: settledData(settled) }),
  }
  const next = file === undefined ? `--outcome ${outcomeOf(terms.price)}` : flags.output
  output.show('signed', result, [
    rows([
      [reused ? 'signed before' : 'signed', id],
      ['question', questionId],
      ['answer', answerOf(record)],
      ['signer', terms.proposer],
      ['digest', digest],
      ['payload', file],
      ['next', `proposer submit ${identifier} ${next}`],
    ]),
  ])
}

/** What the next owner needs, with -o in a file. It holds signatures, so a screen gets no part (R5). */
async function showParts(context: Context, flags: SignFlags, parts: SafePartsFile) {
  const { output } = context
  const text = `${JSON.stringify(parts, null, 2)}\n`
  if (flags.output === '-') return output.text(text)
  const file = await saved(context, flags, text)
  const { schema: _schema, ...data } = parts
  output.show('safe-parts', data, [
    rows([
      ['Safe', parts.safe],
      ['signed by', parts.signatures.map(({ owner }) => owner).join(', ')],
      ['threshold', String(parts.threshold)],
      ['digest', parts.digest],
      ['parts', file],
    ]),
  ])
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
) {
  const { output } = context
  const { id, offered } = offer
  const typedData = walletTypedData(offered.typedData as TypedData)
  const text = `${JSON.stringify(typedData)}\n`
  const next = `proposer sign ${identifier} --signature <hex>`
  const file = await saved(context, flags, text)
  if (output.isForPeople && file === undefined) {
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
  output.show('typed-data', result, [
    rows([
      [reused ? 'issued before' : 'issued', id],
      ['question', offered.questionId],
      ['proposer', offered.terms.proposer],
      ['digest', offered.digest],
      ['next', next],
    ]),
  ])
}

async function bringBack(context: Context, named: string, flags: SignFlags, given: string) {
  requireIdentifier(named)
  const { typedData, signer, supersede } = flags
  const isOwn = signingFlags.some((flag) => flag !== 'outcome' && flags[flag] !== undefined)
  if (isOwn || typedData === true || (signer ?? supersede) !== undefined)
    throw new UsageError(
      'flag_without_meaning',
      '--signature belongs to saved typed data, which already has all terms',
      'omit the flags that say what to sign; --proposer, --safe, --outcome and --rpc-url may stay',
    )
  const outcome = flags.outcome === undefined ? undefined : requireOutcome(flags.outcome)
  const text = given === '-' ? await readText(context, '-') : given
  await withSession(context, flags, async (session) => {
    const [identifier = named] = await identify(session, [named])
    const chain = await session.chain()
    const signed = await importSignature(
      {
        ports: session,
        journal: session.journal,
        trust: await session.trust(),
        ...(chain && { chain }),
      },
      { identifier, outcome, proposer: await namedProposer(session, flags) },
      // Wallets and their tools like to print it as a JSON string.
      text.trim().replace(/^"(.*)"$/, '$1'),
    )
    await showSigned(context, flags, identifier, signed)
  })
}

const namedProposer = (session: Session, flags: SignFlags) =>
  flags.proposer === undefined && flags.safe === undefined ? undefined : session.account.address()

/** The exact bytes in the file of -o, 0600: they hold a signature or what one can be made of (R5). */
async function saved({ cwd, files }: Context, { output }: SignFlags, body: string) {
  if (output === undefined || output === '-') return undefined
  const path = fromCwd(cwd, output)
  await publishText(files, dirname(path), basename(path), body)
  return path
}
