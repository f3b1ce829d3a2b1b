/**
 * `receipt`: answers that prove themselves, offline (contract §9). What is told comes from what the
 * gateway has signed, never from what stands beside it.
 */
import { basename, dirname } from 'node:path'
import { Command } from 'commander'
import { readKeySet } from '../core/client/gateway/receipt-directory.js'
import type { Attempt, JournaledAuthorization } from '../core/client/journal/authorizations.js'
import { openJournal } from '../core/client/journal/journal.js'
import { keptReceipts } from '../core/client/journal/receipts.js'
import { unknownId } from '../core/client/journal/saved.js'
import { receiptKeysOf } from '../core/client/trust/trust-file.js'
import { systemEd25519 } from '../core/io/ed25519.js'
import { fromCwd } from '../core/io/home-paths.js'
import { instant } from '../core/protocol/candidate.js'
import { UsageError } from '../core/protocol/errors.js'
import {
  isHolding,
  type KeptReceipt,
  proveReceipt,
  ReceiptFile,
  signedAnswerOf,
} from '../core/protocol/kept-receipt.js'
import type { ReceiptKey } from '../core/protocol/receipt.js'
import { publishText } from '../core/storage/durable.js'
import { proofDocument, proofText } from './receipt-text.js'
import { parseJson, readInput } from './session/inputs.js'
import { type SessionFlags, withSession } from './session/session.js'
import { type GlobalFlags, homeSetting } from './session/settings.js'
import type { Context } from './terminal/context.js'
import { jsonText } from './terminal/render.js'

export const receiptCommand = (context: Context): Command =>
  new Command('receipt')
    .description('verify and export answers that the gateway has signed')
    .addHelpText(
      'after',
      '\nExamples:\n  proposer receipt export 6208acd7ce14-1 -o receipt.json\n  proposer receipt verify receipt.json',
    )
    .addCommand(verifyCommand(context))
    .addCommand(exportCommand(context))

interface VerifyFlags extends SessionFlags {
  readonly keys?: string
  readonly request?: string
}

const verifyCommand = (context: Context) =>
  new Command('verify')
    .description('verify a receipt offline: which gateway admitted which bytes when; else exit 2')
    .argument('<file>', 'what `receipt export` wrote; - for stdin')
    .option('--keys <file>', 'JWK set of the gateway; default: receipt_keys of trust.json')
    .option('--request <file>', 'the bytes that were sent, where the file does not hold them')
    .addHelpText(
      'after',
      '\nNothing is asked of any gateway. A receipt proves what was answered, not that the proposal was executed.\n\nExamples:\n  proposer receipt verify receipt.json\n  proposer receipt verify receipt.json --keys gateway-keys.json --request payload.json',
    )
    .action(async (path: string, _own: unknown, command: Command) => {
      const flags = command.optsWithGlobals<VerifyFlags>()
      const file = ReceiptFile.safeParse(parseJson(await readInput(context, path), path))
      if (!file.success)
        throw new UsageError('invalid_receipt', `${path} is not a receipt`, {
          hint: 'give the file that `proposer receipt export` wrote',
        })
      const keys = await keysOf(context, flags)
      const { body } = file.data.request
      const request = flags.request && (await readInput(context, flags.request))
      const given = request || body
      const sha256 = given === undefined || given === '' ? undefined : context.hash.sha256(given)
      const answer = signedAnswerOf(file.data)
      const ports = { hash: context.hash, ed25519: systemEd25519, keys }
      const proof = proveReceipt(ports, answer, sha256)
      context.output.result('receipt-verified', proofDocument(answer, proof), () =>
        proofText(answer, proof, context.output.columns),
      )
      if (!isHolding(proof)) throw notHolding(proof)
    })

/** Exit 2, with what is wrong as the code. */
export function notHolding({ verdict }: ReturnType<typeof proveReceipt>): UsageError {
  if (verdict.result === 'proven')
    return new UsageError(
      'receipt_other_request',
      'the receipt does not hold: it is of other bytes than were sent',
      { hint: 'give the exact bytes: --request <file>' },
    )
  return new UsageError(verdict.code, `the receipt does not hold: ${verdict.detail}`, {
    hint:
      verdict.code === 'receipt_unknown_key'
        ? 'pin the key with `proposer trust pin --receipts`, or give --keys <file>, once you have compared its ID with what the operator told you'
        : 'ask the operator about the candidate with the time and question; never send the signature',
  })
}

async function keysOf(context: Context, flags: VerifyFlags): Promise<readonly ReceiptKey[]> {
  if (flags.keys === undefined)
    return withSession(context, flags, async (session) => receiptKeysOf(await session.trust()))
  const keys = readKeySet(parseJson(await readInput(context, flags.keys), flags.keys))
  if (keys !== undefined) return keys
  throw new UsageError('invalid_receipt_key', `${flags.keys} is not a JWK set`, {
    hint: 'save what the gateway lists at /.well-known/http-message-signatures-directory',
  })
}

interface ExportFlags extends GlobalFlags {
  readonly output?: string
  readonly revealSignature?: boolean
}

const exportCommand = (context: Context) =>
  new Command('export')
    .description('write the receipt of an authorization to a file that proves itself')
    .argument('<journal-id>', 'journal id or candidate id')
    .option('-o, --output <file>', 'write it to this file; default: stdout')
    .option('--reveal-signature', 'include the bytes that were sent, with the signature')
    .addHelpText(
      'after',
      '\nThe newest answer that admitted it is taken, else the newest that was signed.\n\nExample:\n  proposer receipt export 6208acd7ce14-1 -o receipt.json',
    )
    .action(async (id: string, own: ExportFlags, command: Command) => {
      const { value: home } = homeSetting(context, command.optsWithGlobals<GlobalFlags>())
      const found = await authorizationOf(context, home, id)
      const names = found.attempts.map(({ start }) => start.attempt)
      const receipts = await keptReceipts(context, home, names)
      const signed = found.attempts.flatMap((attempt) => {
        const receipt = receipts.get(attempt.start.attempt)
        return receipt?.signature === undefined || receipt.body === undefined
          ? []
          : [{ attempt, receipt }]
      })
      const chosen =
        signed.findLast(({ attempt }) => attempt.end?.class === 'accepted') ?? signed.at(-1)
      if (chosen === undefined)
        throw new UsageError(
          'receipt_missing',
          `the journal holds no signed answer for ${found.id}`,
          { hint: `see the attempts with \`proposer journal show ${found.id}\`` },
        )
      const isRevealed = own.revealSignature === true
      const body = isRevealed ? await bodyOf(context, home, chosen.attempt) : undefined
      const { schema: _, ...document } = fileOf(chosen.attempt, chosen.receipt, body)
      const text = `${jsonText({ schema: 'proposer.receipt/1', ...document }, 2)}\n`
      const { output } = context
      if (own.output === undefined || own.output === '-')
        return output.mode === 'human'
          ? output.text(text)
          : output.result('receipt', document, () => '')
      const path = fromCwd(context.cwd, own.output)
      await publishText(context.files, dirname(path), basename(path), text)
      output.note(`the receipt is in ${own.output}; \`proposer receipt verify ${own.output}\``)
    })

async function authorizationOf(
  context: Context,
  home: string,
  id: string,
): Promise<JournaledAuthorization> {
  const journal = openJournal(context, home)
  try {
    const view = await journal.load()
    const found = view.find(id) ?? view.byCandidate(id)
    if (found === undefined) throw unknownId(id)
    return found
  } finally {
    await journal.close()
  }
}

/** The exact bytes of an attempt, put together as they were sent (robustness §2, Journal). */
async function bodyOf(context: Context, home: string, { start }: Attempt): Promise<string> {
  const journal = openJournal(context, home)
  try {
    const view = await journal.load()
    const bodies = start.ids.flatMap((id) => view.find(id)?.signed.body ?? [])
    return start.form === 'single'
      ? (start.body ?? bodies.join(''))
      : (start.body ?? `{"proposals":[${bodies.join(',')}]}`)
  } finally {
    await journal.close()
  }
}

const fileOf = (
  { start, startedAtMs }: Attempt,
  {
    method,
    path,
    status,
    requestDigest,
    contentDigest,
    signatureInput,
    signature,
    body,
  }: KeptReceipt,
  sent: string | undefined,
): ReceiptFile => ({
  schema: 'proposer.receipt/1',
  gateway: start.origin,
  sent_at: instant(startedAtMs),
  request: {
    method,
    path,
    ...(requestDigest !== undefined && { content_digest: requestDigest }),
    ...(sent !== undefined && { body: sent }),
  },
  answer: {
    status,
    ...(contentDigest !== undefined && { content_digest: contentDigest }),
    ...(signatureInput !== undefined && { signature_input: signatureInput }),
    ...(signature !== undefined && { signature }),
    body: body ?? '',
  },
})
