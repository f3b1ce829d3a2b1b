/** `journal show --verify`: the receipts of an authorization's attempts, proven again (contract §9). */
import type { Attempt } from '../core/client/journal/authorizations.js'
import { keptReceipts } from '../core/client/journal/receipts.js'
import { receiptKeysOf } from '../core/client/trust/trust-file.js'
import { systemEd25519 } from '../core/io/ed25519.js'
import { UsageError } from '../core/protocol/errors.js'
import {
  isHolding,
  type KeptReceipt,
  proveReceipt,
  type ReceiptProof,
} from '../core/protocol/kept-receipt.js'
import type { SignedAnswer } from '../core/protocol/receipt.js'
import { notHolding } from './receipt.js'
import { proofDocument, proofText } from './receipt-text.js'
import { type SessionFlags, withSession } from './session/session.js'
import type { Context } from './terminal/context.js'

interface Proven {
  readonly attempt: Attempt
  readonly answer: SignedAnswer
  readonly proof: ReceiptProof
}

/** The proofs of one authorization. */
export interface AttemptProofs {
  /** `null` where the answer to this attempt was not signed. `item`: what it says of this one. */
  document(attempt: Attempt, id: string): object | null
  texts(columns: number): readonly string[]
  /** UsageError (2) where a receipt does not hold, or `receipt_missing` where there is none. */
  requireOne(id: string): void
}

/** Reads the receipts from the disk, and judges them by the pinned keys. Asks no gateway. */
export async function receiptProofs(
  context: Context,
  flags: SessionFlags,
  attempts: readonly Attempt[],
): Promise<AttemptProofs> {
  const { home, keys } = await withSession(context, flags, async (session) => ({
    home: session.settings.home.value,
    keys: receiptKeysOf(await session.trust()),
  }))
  const names = attempts.map(({ start }) => start.attempt)
  const kept = await keptReceipts(context, home, names)
  const ports = { hash: context.hash, ed25519: systemEd25519, keys }
  const proven = attempts.flatMap((attempt): readonly Proven[] => {
    const receipt = kept.get(attempt.start.attempt)
    if (receipt?.signature === undefined) return []
    const answer = answerOf(receipt)
    return [{ attempt, answer, proof: proveReceipt(ports, answer, attempt.start.sha256) }]
  })
  return {
    document(attempt, id) {
      const found = proven.find((one) => one.attempt === attempt)
      if (found === undefined) return null
      const { results, ...document } = proofDocument(found.answer, found.proof)
      const at = attempt.start.form === 'single' ? 0 : attempt.start.ids.indexOf(id)
      return { ...document, item: results[at] ?? null }
    },
    texts: (columns) =>
      proven.map(({ attempt, answer, proof }) => {
        const { ids } = attempt.start
        const of = ids.length === 1 ? '' : `one of ${ids.length} in the call; `
        return `${of}${proofText(answer, proof, columns)}`
      }),
    requireOne(id) {
      const broken = proven.find(({ proof }) => !isHolding(proof))
      if (broken) throw notHolding(broken.proof)
      if (proven.length > 0) return
      throw new UsageError('receipt_missing', `no answer about ${id} is signed`, {
        hint: 'this gateway signs no receipts, or the answer came another way; nothing is to be signed again because of it',
      })
    },
  }
}

/** A body that was too large to be kept is no body, so that its digest differs. */
const answerOf = ({ body = '', ...rest }: KeptReceipt): SignedAnswer => ({ ...rest, body })
