/** One proposal: `sign` (R9; contract §6), and `submit`, whose outcome is settled or unknown (R7). */

import { knownToken } from '#chain/profiles'
import type { PolledStatus } from '#client/follow/look'
import {
  answerOf,
  executedText,
  type JournaledAuthorization,
  labelOf,
  uncheckedOf,
} from '#client/journal/authorizations'
import { executedBefore, type IntentInWords } from '#client/propose/intent'
import type { Preview, ProposeParts } from '#client/propose/plan'
import type { SafePartsFile } from '#client/propose/safe'
import type { SettledEarlier } from '#client/propose/send'
import { importSignature, walletTypedData } from '#client/propose/sign'
import { authorize, intentRow, offerTypedData, type RowAuthorized } from '#client/propose/sign-rows'
import { PendingError, type ProposerError, UsageError } from '#protocol/errors'
import { outcomeOf } from '#protocol/proposal'
import { parseJson, readInput, readText, writeText } from './session/inputs.js'
import {
  authorizeParts,
  collector,
  intentFlags,
  parseIntent,
  requireOutcome,
  settledData,
  showPreview,
  showSaved,
  signingFlags,
} from './session/intent.js'
import { identifyOne, requireIdentifier } from './session/question.js'
import { partsOf, type Session, withSession } from './session/session.js'
import { executorFlags, type SessionFlags } from './session/settings.js'
import type { Context } from './terminal/context.js'
import { amountText, amountWithRaw } from './terminal/render.js'
import { type FlagsOf, verb } from './terminal/verb.js'

const signFlags = {
  '-o, --output <file>': 'write the payload to this file; - prints only the payload',
  '--typed-data': 'print EIP-712 JSON for an external wallet; reserves its nonce and question',
  '--signature <hex>': 'attach the signature the wallet returned; - reads it from stdin',
  ...intentFlags,
} as const
type SignFlags = FlagsOf<typeof signFlags> & SessionFlags

export const signCommand = verb({
  name: 'sign',
  about: 'sign a proposal and save it in the journal; send nothing',
  args: { '<identifier>': 'question id, slug or Polymarket URL' },
  flags: signFlags,
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
    const { settled, onSettled } = collector(context, flags)
    await withSession(context, flags, async (session) => {
      const { words, parts: others } = await parseIntent(session, named, flags)
      const identifier = await identifyOne(session, named)
      const made = await authorizeParts(session, flags, identifier, { others })
      let collected: SafePartsFile | undefined
      const safe = made.safe && {
        ...made.safe,
        collected: (parts: SafePartsFile) => {
          collected = parts
        },
      }
      const parts = { ...made, onSettled, safe }
      const intent = { ...words, identifier, proposer: await session.account.address() }
      if (flags.dryRun) return showPreview(session, flags, parts, intent)
      if (flags.typedData)
        return giveTypedData(context, flags, identifier, await offerTypedData(parts, intent))
      try {
        const signed = await authorize(parts, intent)
        await showSigned(context, flags, identifier, signed, settled)
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
  if (reused) output.remark(`${id} is open with the same answer; these are its saved bytes`)
  if (flags.output === '-') return output.text(output.isTerminal ? `${body}\n` : body)
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
    settled: settledData(settled),
  }
  const next = file === undefined ? `--outcome ${outcomeOf(terms.price)}` : flags.output
  output.show('signed', result, [
    [
      [reused ? 'signed before' : 'signed', id],
      ['question', questionId],
      ['answer', answerOf(record)],
      ['signer', terms.proposer],
      ['digest', digest],
      ['payload', file],
      ['next', `proposer submit ${identifier} ${next}`],
    ],
  ])
}

/** It holds signatures, so a screen gets no part (R5). */
async function showParts(context: Context, flags: SignFlags, parts: SafePartsFile) {
  const { output } = context
  const text = `${JSON.stringify(parts, null, 2)}\n`
  if (flags.output === '-') return output.text(text)
  const file = await saved(context, flags, text)
  const { schema: _schema, ...data } = parts
  output.show('safe-parts', data, [
    [
      ['Safe', parts.safe],
      ['signed by', parts.signatures.map(({ owner }) => owner).join(', ')],
      ['threshold', String(parts.threshold)],
      ['digest', parts.digest],
      ['parts', file],
    ],
  ])
}

/** stdout is the document alone, to be piped into a wallet; --json wraps it. */
async function giveTypedData(
  context: Context,
  flags: SignFlags,
  identifier: string,
  { offer, reused }: Awaited<ReturnType<typeof offerTypedData>>,
) {
  const { output } = context
  const { id, offered } = offer
  const typedData = walletTypedData(offered.typedData)
  const text = `${JSON.stringify(typedData)}\n`
  const next = `proposer sign ${identifier} --signature <hex>`
  const file = await saved(context, flags, text)
  if (output.isForPeople && file === undefined) {
    output.text(text)
    return output.note(
      `${id}${reused ? ', given out before,' : ''} waits for the signature of ${offered.terms.proposer}; attach it with \`${next}\``,
    )
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
    [
      [reused ? 'issued before' : 'issued', id],
      ['question', offered.questionId],
      ['proposer', offered.terms.proposer],
      ['digest', offered.digest],
      ['next', next],
    ],
  ])
}

function refuseFlags(flags: object, names: readonly string[], what: string, source: string) {
  const given = names
    .filter((name) => Reflect.get(flags, name) !== undefined)
    .map((name) => `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`)
    .join(', ')
  if (given === '') return
  throw new UsageError(
    'flag_without_meaning',
    `${given} cannot be used with ${what}, which has all terms`,
    `omit ${given}, or omit ${source}`,
  )
}

async function bringBack(context: Context, named: string, flags: SignFlags, given: string) {
  requireIdentifier(named)
  const own = signingFlags.filter((flag) => flag !== 'outcome')
  refuseFlags(
    flags,
    [...own, 'typedData', 'signer', 'supersede'],
    'saved typed data',
    '--signature',
  )
  const outcome = flags.outcome === undefined ? undefined : requireOutcome(flags.outcome)
  const text = given === '-' ? await readText(context, '-') : given
  const isNamed = (flags.proposer ?? flags.safe) !== undefined
  await withSession(context, flags, async (session) => {
    const identifier = await identifyOne(session, named)
    const signed = await importSignature(
      await partsOf(session),
      { identifier, outcome, proposer: isNamed ? await session.account.address() : undefined },
      // Wallets and their tools like to print it as a JSON string.
      text.trim().replace(/^"(.*)"$/, '$1'),
    )
    await showSigned(context, flags, identifier, signed)
  })
}

const saved = async (context: Context, { output }: SignFlags, body: string) =>
  output === undefined || output === '-' ? undefined : writeText(context, output, body)

const submitFlags = {
  '--wait': 'wait until the candidate is executed or failed',
  ...intentFlags,
  ...executorFlags,
} as const
type SubmitFlags = FlagsOf<typeof submitFlags> & SessionFlags

export const submitCommand = verb({
  name: 'submit',
  about: 'send a proposal; sign it first unless a payload is given',
  args: {
    '<identifier>': 'question id, slug or Polymarket URL',
    '[payload]': 'a signed payload, - for stdin',
  },
  flags: submitFlags,
  help: 'Exit 6: the outcome is unknown. Run `proposer replay`; never sign again.',
  examples: ['submit some-slug --outcome p2 --wait', 'submit some-slug payload.json'],
  async run(context, flags, { identifier: named, payload }) {
    requireIdentifier(named)
    if (payload !== undefined) refuseFlags(flags, signingFlags, 'a signed payload', 'the payload')
    await withSession(context, flags, (session) => submit(session, flags, named, payload))
  },
})

async function previewIntent(
  session: Session,
  flags: SubmitFlags,
  parts: ProposeParts,
  intent: IntentInWords,
) {
  try {
    await showPreview(session, flags, parts, intent)
  } catch (error) {
    const { gateway } = parts
    const view = await session.journal.load()
    const executed = gateway && executedBefore({ ...parts, gateway }, view, intent, error)
    if (executed === undefined) throw error
    const text = `${executedText(executed)}; nothing would be signed`
    showSaved(session, 'executed', executed.id, executed.signed, text)
  }
}

async function submit(session: Session, flags: SubmitFlags, named: string, payload?: string) {
  const { output, clock } = session
  const startedMs = clock.monotonicMs()
  const body = payload === undefined ? '' : await payloadText(session, payload)
  const given = payload === undefined ? await parseIntent(session, named, flags) : undefined
  const identifier = await identifyOne(session, named)
  if (flags.dryRun && !given) return showPayload(session, identifier, body, flags.supersede)
  const gateway = flags.dryRun ? undefined : await session.gateway('run')
  const others = given?.parts
  const made = await authorizeParts(session, flags, identifier, { others, isBrief: true })
  const proposer = given && (await session.account.address())
  const intent = given && proposer && { ...given.words, identifier, proposer }
  if (!gateway) return intent && previewIntent(session, flags, made, intent)
  const { settled, onSettled } = collector(session, flags)
  let isShown = false
  const parts = {
    ...made,
    gateway,
    onSettled,
    confirm: async (shown: Preview) => {
      isShown = true
      await made.confirm?.(shown)
    },
  }
  const [{ payloadRow }, { submitOne }, { follow, retryNote }, { failureText }] = await Promise.all(
    [
      import('#client/propose/payload'),
      import('#client/propose/submit'),
      import('./session/follow.js'),
      import('./terminal/poll-table.js'),
    ],
  )
  const row = intent ? intentRow(intent) : payloadRow(identifier, body, flags.supersede)
  const { timeoutMs } = session.settings
  const options = { timeoutMs, signal: session.signal, onRetry: retryNote(session) }
  const sent = await output.during('signing and sending', () => submitOne(parts, row, options))
  const { outcome, authorization, candidate, error: refusal } = sent
  if (refusal) throw refusal
  if (!authorization || !candidate) throw new Error('what was not refused has a candidate')
  const { id, signed } = authorization
  const { candidateId } = candidate
  const accepted = {
    journal_id: id,
    outcome,
    candidate_id: candidateId,
    status: candidate.status || null,
    question_id: signed.questionId,
    received_at: candidate.receivedAt || null,
    unchecked: uncheckedOf(signed),
    settled: settledData(settled),
  }
  if (flags.wait) output.item({ schema: 'proposer.submitted/1', ...accepted })
  const left = timeoutMs && Math.max(1, timeoutMs - (clock.monotonicMs() - startedMs))
  const target = { candidateId, identifier: signed.questionId }
  const followed = flags.wait
    ? await follow(session, parts, [target], { timeoutMs: left })
    : undefined
  /** `undefined`: not waited for; `null`: the gateway told nothing of it. */
  const last = followed ? (followed.candidates[0] ?? null) : undefined
  const status = last?.status ?? accepted.status
  const units = knownToken(signed.chainId, signed.token ?? '')
  output.show('submitted', { ...accepted, status, candidate: last }, [
    !isShown && signed.identifier,
    !isShown && `${answerOf(signed)}, ${amountText(signed.terms.amount, units)}`,
    standing(authorization, candidateId, last?.status ?? outcome, last?.submission),
    last ? failureText(last, id) : undefined,
  ])
  if (followed?.error) throw stillPending(followed.error, candidateId, status)
}

function standing(
  authorization: JournaledAuthorization,
  candidateId: string,
  word: string,
  submission: PolledStatus['submission'] = null,
) {
  const executed = executedText(authorization)
  if (executed) return `${executed} (candidate ${candidateId}, journal ${authorization.id})`
  const hash = submission?.transaction_hash
  const where = hash == null ? '' : ` in transaction ${hash}`
  return `${word} ${candidateId} (journal ${authorization.id})${where}`
}

/** What was admitted is on its way: exit 75 would deny it (contract §6). */
function stillPending(error: ProposerError, id: string, status: string | null) {
  if (error.code !== 'no_status') return error
  return new PendingError(
    'still_pending',
    `candidate ${id} was ${status ?? 'not checked yet'} when it was admitted; ${error.detail}`,
    { hint: `continue with \`proposer poll ${id}\``, retryable: true },
  )
}

async function payloadText(context: Context, path: string) {
  const bytes = await readInput(context, path)
  parseJson(bytes, path)
  return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
}

/** Without its signature. Refuses what the sending would refuse. */
async function showPayload(
  session: Session,
  identifier: string,
  body: string,
  supersede: string | undefined,
) {
  const { importable, payloadRow, readItem } = await import('#client/propose/payload')
  const trust = await session.trust()
  const row = payloadRow(identifier, body, supersede)
  const view = await session.journal.load()
  const parts = { ports: session, trust }
  const payload = readItem(parts, row, view)
  if (payload.same === undefined) importable(parts, view, payload)
  const { origin } = await session.gateway('read')
  const { proposer, outcome, permit } = row.payload
  const bytes = new TextEncoder().encode(body).length
  const [token = '', ...others] = trust.tokens
  const units = others.length === 0 ? knownToken(trust.chain_id, token) : undefined
  const preview = { dry_run: true, identifier, origin, bytes, proposer, outcome, permit }
  session.output.show('preview', preview, [
    [
      ['would send', `${bytes} bytes to ${origin}`],
      ['answer', outcome],
      ['authorizes', amountWithRaw(permit.amount, units)],
    ],
  ])
}
