/** Answers that prove themselves, offline: told is what the gateway signed (contract §9). */

import { type Attempt, unknownId } from '#client/journal/authorizations'
import { type JournalView, keptReceipts, openJournal } from '#client/journal/journal'
import { receiptKeysOf } from '#client/trust/trust'
import { systemEd25519 } from '#io/ed25519'
import { instant } from '#protocol/candidate'
import { UsageError } from '#protocol/errors'
import {
  digestSha256,
  isHolding,
  type KeptReceipt,
  proveReceipt,
  ReceiptFile,
  type ReceiptKey,
  type ReceiptProof,
  readKeySet,
  type SignedAnswer,
  signedAnswerOf,
} from '#protocol/receipt'
import { inputJson, readInput, writeText } from './session/inputs.js'
import { withSession } from './session/session.js'
import { homeSetting, type SessionFlags } from './session/settings.js'
import type { Context } from './terminal/context.js'
import { together } from './terminal/output.js'
import { jsonText, timeText } from './terminal/render.js'
import { verb } from './terminal/verb.js'

const verifyVerb = verb({
  name: 'verify',
  about: 'verify a receipt offline: which gateway admitted which bytes when; else exit 2',
  args: { '<file>': 'what `receipt export` wrote; - for stdin' },
  flags: {
    '--keys <file>': 'JWK set of the gateway; default: receipt_keys of trust.json',
    '--request <file>': 'the bytes that were sent, where the file does not hold them',
  },
  help: 'Nothing is asked of any gateway. A receipt proves what was answered, not that the proposal was executed.',
  examples: [
    'receipt verify receipt.json',
    'receipt verify receipt.json --keys gateway-keys.json --request payload.json',
  ],
  async run(context, flags, { file: path }) {
    const file = ReceiptFile.safeParse(await inputJson(context, path))
    if (!file.success)
      throw new UsageError(
        'invalid_receipt',
        `${path} is not a receipt`,
        'give the file that `proposer receipt export` wrote',
      )
    const keys = await keysOf(context, flags)
    const given =
      (flags.request && (await readInput(context, flags.request))) || file.data.request.body
    const sha256 = given ? context.hash.sha256(given) : undefined
    const proof = proofOf(context, keys, signedAnswerOf(file.data), sha256)
    const unsigned = (['gateway', 'sent_at'] as const).filter((name) => file.data[name])
    context.output.show('receipt-verified', { ...proof, unsigned }, [
      proofBlock(proof),
      ...unsigned.map((name) => `not signed: ${name} ${file.data[name]}`),
    ])
    requireHolding(proof)
  },
})

function requireHolding({ holds, code, detail }: Proof) {
  if (holds) return
  if (code === null)
    throw new UsageError(
      'receipt_other_request',
      'the receipt does not hold: it is of other bytes than were sent',
      'give the exact bytes: --request <file>',
    )
  throw new UsageError(
    code,
    `the receipt does not hold: ${detail}`,
    code === 'receipt_unknown_key'
      ? 'pin the key with `proposer trust pin --receipts`, or give --keys <file>, once you have compared its ID with what the operator told you'
      : 'ask the operator about the candidate with the time and question; never send the signature',
  )
}

async function keysOf(context: Context, flags: SessionFlags & { keys?: string }) {
  const { keys: path } = flags
  if (path === undefined)
    return withSession(context, flags, async (session) => receiptKeysOf(await session.trust()))
  const keys = readKeySet(await inputJson(context, path))
  if (keys !== undefined) return keys
  throw new UsageError(
    'invalid_receipt_key',
    `${path} is not a JWK set`,
    'save what the gateway lists at /.well-known/http-message-signatures-directory',
  )
}

const exportVerb = verb({
  name: 'export',
  about: 'write the receipt of an authorization to a file that proves itself',
  args: { '<journal-id>': 'journal id or candidate id' },
  flags: {
    '-o, --output <file>': 'write it to this file; default: stdout',
    '--reveal-signature': 'include the bytes that were sent, with the signature',
  },
  help: 'The newest answer that admitted it is taken, else the newest that was signed.',
  examples: ['receipt export 6208acd7ce14-1 -o receipt.json'],
  async run(context, flags, { journalId: id }) {
    const { value: home } = homeSetting(context, flags)
    const view = await openJournal(context, home).load()
    const found = view.find(id) ?? view.byCandidate(id)
    if (found === undefined) throw unknownId(id)
    const signed = (await signedAttempts(context, home, found.attempts)).filter(
      ({ receipt }) => receipt.body !== undefined,
    )
    const chosen =
      signed.findLast(({ attempt }) => attempt.end?.class === 'accepted') ?? signed.at(-1)
    if (chosen === undefined)
      throw new UsageError(
        'receipt_missing',
        `the journal holds no signed answer for ${found.id}`,
        `see the attempts with \`proposer journal show ${found.id}\``,
      )
    const body = flags.revealSignature ? bodyOf(view, chosen.attempt) : undefined
    const document = fileOf(chosen.attempt, chosen.receipt, body)
    const text = jsonText({ schema: 'proposer.receipt/1', ...document }, 2)
    const { output } = context
    if (flags.output === undefined || flags.output === '-')
      return output.show('receipt', document, [() => text])
    await writeText(context, flags.output, `${text}\n`)
    output.note(`the receipt is in ${flags.output}; \`proposer receipt verify ${flags.output}\``)
  },
})

export const receiptCommand = verb({
  name: 'receipt',
  about: 'verify and export answers that the gateway has signed',
  examples: ['receipt export 6208acd7ce14-1 -o receipt.json', 'receipt verify receipt.json'],
  verbs: [verifyVerb, exportVerb],
})

/** The exact bytes of an attempt, put together as they were sent (robustness §2, Journal). */
function bodyOf(view: JournalView, { start }: Attempt) {
  const bodies = start.ids.flatMap((id) => view.find(id)?.signed.body ?? [])
  if (start.body !== undefined) return start.body
  return start.form === 'single' ? bodies.join('') : `{"proposals":[${bodies.join(',')}]}`
}

const fileOf = (
  { start, startedAtMs }: Attempt,
  { method, path, status, body = '', ...signed }: KeptReceipt,
  sent: string | undefined,
) => ({
  gateway: start.origin,
  sent_at: instant(startedAtMs),
  request: { method, path, content_digest: signed.requestDigest, body: sent },
  answer: {
    status,
    content_digest: signed.contentDigest,
    signature_input: signed.signatureInput,
    signature: signed.signature,
    body,
  },
})

async function signedAttempts(context: Context, home: string, attempts: readonly Attempt[]) {
  const names = attempts.map(({ start }) => start.attempt)
  const kept = await keptReceipts(context, home, names)
  return attempts.flatMap((attempt) => {
    const receipt = kept.get(attempt.start.attempt)
    return receipt?.signature === undefined ? [] : [{ attempt, receipt }]
  })
}

export async function receiptProofs(
  context: Context,
  flags: SessionFlags,
  attempts: readonly Attempt[],
) {
  const { home, keys } = await withSession(context, flags, async (session) => ({
    home: session.settings.home.value,
    keys: receiptKeysOf(await session.trust()),
  }))
  const proofs = new Map(
    (await signedAttempts(context, home, attempts)).map(({ attempt, receipt }) => {
      // A body that was too large to be kept is none: its digest differs.
      const answer = { ...receipt, body: receipt.body ?? '' }
      return [attempt, proofOf(context, keys, answer, attempt.start.sha256)] as const
    }),
  )
  return {
    /** `null` where the answer was not signed; `item`: what it says of this one. */
    document(attempt: Attempt, id: string) {
      const proof = proofs.get(attempt)
      if (proof === undefined) return null
      const { results, ...document } = proof
      const at = attempt.start.form === 'single' ? 0 : attempt.start.ids.indexOf(id)
      return { ...document, item: results[at] ?? null }
    },
    blocks: [...proofs].map(([{ start }, proof]) => {
      const { length } = start.ids
      return proofBlock(proof, length === 1 ? '' : `one of ${length} in the call; `)
    }),
    requireOne(id: string) {
      for (const proof of proofs.values()) requireHolding(proof)
      if (proofs.size > 0) return
      throw new UsageError(
        'receipt_missing',
        `no answer about ${id} is signed`,
        'this gateway signs no receipts, or the answer came another way; nothing is to be signed again because of it',
      )
    },
  }
}

type Proof = ReturnType<typeof proofOf>

function proofOf(
  { hash }: Context,
  keys: readonly ReceiptKey[],
  answer: SignedAnswer,
  sha256: string | undefined,
) {
  const proof = proveReceipt({ hash, ed25519: systemEd25519, keys }, answer, sha256)
  const { verdict, bytes, claims } = proof
  const [proven, fault] = verdict.result === 'proven' ? [verdict] : [undefined, verdict]
  const { method, path, status } = answer
  return {
    holds: isHolding(proof),
    keyid: proven?.keyid ?? null,
    created: proven === undefined ? null : instant(proven.created * 1_000),
    method,
    path,
    status,
    request: {
      covered: proven?.coversRequest ?? false,
      sha256: proven?.coversRequest ? digestSha256(answer.requestDigest ?? '') : null,
      bytes,
    },
    results: claims,
    code: fault?.code ?? null,
    detail: fault?.detail ?? null,
  }
}

const bytesText: Readonly<Record<ReceiptProof['bytes'], string>> = {
  same: 'covers the request: exactly the bytes that were sent',
  differ: 'covers a request, but other bytes than were sent',
  not_covered: 'does not cover the request, which had no Content-Digest',
  not_given: 'covers the request by its SHA-256; --request <file> compares the bytes',
}

function proofBlock(proof: Proof, of = '') {
  const { holds, keyid, created, method, path, status, request, results, detail, code } = proof
  if (keyid === null) return together([`${of}does NOT hold: ${detail} (${code})`])
  const what = `key ${keyid} signed this answer at ${timeText(created ?? '')}`
  return together([
    `${of}${holds ? 'holds' : 'does NOT hold'}: ${what}`,
    `request ${method} ${path}, answer ${status}`,
    bytesText[request.bytes],
    request.sha256 !== null && `SHA-256 ${request.sha256}`,
    ...results.map(claimText),
  ])
}

function claimText(claim: ReceiptProof['claims'][number]) {
  const { status_code, candidate_id, received_at, client_ref, code } = claim
  const ref = client_ref === null ? '' : ` (${JSON.stringify(client_ref)})`
  if (candidate_id === null) return `not admitted${ref}: ${status_code} ${code ?? ''}`.trimEnd()
  const how = status_code === 202 ? 'admitted' : 'known already'
  return `${how}${ref}: candidate ${candidate_id}${received_at === null ? '' : `, received ${timeText(received_at)}`}`
}
