/**
 * An allow-list of fields (R5): no payload, signature or digest. The permit nonce gives no power
 * without the signature, and support asks for it first.
 */
import type { JournaledAuthorization, Offer } from '../journal/authorizations.js'
import type { JournalView } from '../journal/fold.js'
import { attemptRow, journalRow } from '../journal/rows.js'

export interface BundleScope {
  readonly question?: string
  readonly sinceMs?: number
}

/** The newest so many are reported (R17); a question or a time narrows further. */
export const bundleLimit = 1_000
const attemptLimit = 20

export function journalPart(
  { authorizations, offers }: Pick<JournalView, 'authorizations' | 'offers'>,
  { question, sinceMs = 0 }: BundleScope,
  nowMs: number,
) {
  const isWanted = (one: JournaledAuthorization | Offer) => {
    const { questionId, identifier } = 'signed' in one ? one.signed : one.offered
    const isAsked = question === undefined || question === questionId || question === identifier
    return isAsked && lastMsOf(one) >= sinceMs
  }
  const [wantedOffers, wanted] = [offers.filter(isWanted), authorizations.filter(isWanted)]
  const rows = [...wantedOffers.slice(-bundleLimit), ...wanted.slice(-bundleLimit)]
    .slice(-bundleLimit)
    .map((one) => partRow(one, nowMs))
  return { authorizations: rows, left_out: wanted.length + wantedOffers.length - rows.length }
}

export function journalSignatures(
  view: Pick<JournalView, 'authorizations' | 'offers'>,
): readonly string[] {
  const parts = view.offers.flatMap((one) => one.parts.map(({ signature }) => signature))
  const whole = view.authorizations.flatMap(({ signed }) => {
    // In the body alone (journal records, `signed`); both forms of payload name it so.
    const found = /"signature"\s*:\s*"(0x[0-9a-f]+)"/i.exec(signed.body)?.[1]
    return found === undefined ? [] : [found]
  })
  return [...parts, ...whole]
}

function lastMsOf(one: JournaledAuthorization | Offer): number {
  if (!('signed' in one)) return one.offered.offeredAtMs
  const { signedAtMs, terminalAtMs = 0, attempts } = one
  const sent = attempts.slice(-attemptLimit).map(({ startedAtMs }) => startedAtMs)
  return Math.max(signedAtMs, terminalAtMs, ...sent)
}

function partRow(one: JournaledAuthorization | Offer, nowMs: number) {
  const { price: _price, token: _token, digest: _digest, ...row } = journalRow(one, nowMs)
  const all = 'signed' in one ? one.attempts : []
  const attempts = all.slice(-attemptLimit)
  return {
    ...row,
    attempts: attempts.map((attempt) => ({ ...attemptRow(attempt), form: attempt.start.form })),
    attempts_left_out: all.length - attempts.length,
  }
}
