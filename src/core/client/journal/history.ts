/**
 * A journal's records in the words of its rules (R4, R6 to R8), for the history checker. No
 * signature leaves it: bytes go by their hash.
 */

import type { Claim, JournalFact } from '../../history/facts.js'
import type { Hash } from '../../ports.js'
import { outcomeKeys, priceOf } from '../../protocol/proposal.js'
import { closes } from './authorizations.js'
import type { AttemptStart, JournalRecord, Offered, Signed } from './records.js'

type Saved = Pick<Signed, 'body' | 'sha256'>

/**
 * Reads the records of one run, in their order. `token`: the run's. A record that says nothing
 * about a rule gives no fact; one about several authorizations gives one for each.
 */
export function createJournalFacts(
  hash: Hash,
  token: string,
): (record: Omit<JournalRecord, 'timeMs'>) => readonly JournalFact[] {
  const saved = new Map<string, Saved>()

  const isSaved = ({ ids, form, sha256 }: AttemptStart): boolean | undefined => {
    const items = ids.flatMap((id) => saved.get(id) ?? [])
    const [only] = items
    if (only === undefined || items.length !== ids.length) return undefined
    if (items.length === 1 && only.sha256 === sha256) return true
    return (
      form === 'batch' &&
      hash.sha256(`{"proposals":[${items.map(({ body }) => body).join(',')}]}`) === sha256
    )
  }

  return (record) => {
    const { kind, data } = record as JournalRecord
    switch (kind) {
      case 'nonce.reserved':
        return [{ kind: 'reserved', id: data.id, nonce: `${data.proposer} ${data.nonce}` }]
      case 'offered':
        return [{ kind: 'offered', claim: claimOf(data, data.offeredAtMs) }]
      case 'signed': {
        const { price, amount, deadline } = data.terms
        saved.set(data.id, { body: data.body, sha256: data.sha256 })
        const isOwn = data.id.startsWith(`${token}-`)
        return [
          {
            kind: 'signed',
            claim: claimOf(data, data.signedAtMs),
            terms: `${data.questionId} ${price} ${amount} ${deadline}`,
            token: data.token,
            bytes: `${data.identity} ${data.sha256}`,
            isWhole: hash.sha256(data.body) === data.sha256,
            differs: differencesOf(data),
            // A payload that was signed elsewhere comes without the digest that it was signed over.
            origin:
              data.digest === undefined
                ? isOwn
                  ? 'imported'
                  : 'imported and copied'
                : isOwn
                  ? 'own'
                  : 'copied',
          },
        ]
      }
      case 'attempt.start': {
        const { attempt, ids, origin, sha256, body } = data
        return [
          {
            kind: 'attempt',
            attempt,
            ids,
            origin,
            sha256,
            isSaved: body === undefined ? isSaved(data) : hash.sha256(body) === sha256,
          },
        ]
      }
      case 'attempt.end':
        return data.results.map(({ id, class: outcome }) => ({ kind: 'ended', id, class: outcome }))
      case 'ack':
        return [{ kind: 'acknowledged', id: data.id }]
      case 'terminal':
        return [{ kind: 'terminal', id: data.id, closes: closes(data) }]
      case 'abandoned':
        return [{ kind: 'abandoned', id: data.id }]
      case 'intent':
        return []
    }
  }
}

function claimOf(record: Signed | Offered, atMs: number): Claim {
  const { proposer, nonce, deadline } = record.terms
  return {
    id: record.id,
    question: `${record.questionId} ${proposer}`,
    round: record.timestamp,
    nonce: `${proposer} ${nonce}`,
    chainId: record.chainId,
    atMs,
    deadlineSeconds: Number(deadline),
    supersedes: record.supersedes,
  }
}

/**
 * Fields that a payload says otherwise than the record that it is saved in. What a payload leaves
 * out authorizes nothing, and is not looked at.
 */
function differencesOf({ body, terms }: Pick<Signed, 'body' | 'terms'>): readonly string[] {
  const said = saidBy(body)
  if (said === undefined) return ['form']
  const fields = ['proposer', 'price', 'amount', 'nonce', 'deadline'] as const
  return fields.filter((field) => said[field] !== undefined && said[field] !== terms[field])
}

/** What the bytes of either form say (spec §2.1, §2.7); `undefined` for what is no JSON object. */
function saidBy(
  body: string,
): { readonly [K in keyof Signed['terms']]: string | undefined } | undefined {
  const payload = objectOf(() => JSON.parse(body) as unknown)
  if (payload === undefined) return undefined
  const { amount, nonce, deadline } = objectOf(() => payload.permit) ?? {}
  const key = outcomeKeys.find((each) => each === payload.outcome)
  return {
    proposer: textOf(payload.proposer)?.toLowerCase(),
    price:
      payload.outcome === undefined
        ? textOf(payload.proposed_price)
        : key === undefined
          ? 'none'
          : priceOf[key],
    amount: textOf(amount),
    nonce: textOf(nonce),
    deadline: textOf(deadline),
  }
}

function objectOf(read: () => unknown): Readonly<Record<string, unknown>> | undefined {
  try {
    const value = read()
    return typeof value === 'object' && value !== null
      ? (value as Record<string, unknown>)
      : undefined
  } catch {
    // Bytes that are no JSON say nothing of what was recorded.
    return undefined
  }
}

const textOf = (value: unknown): string | undefined =>
  value === undefined ? undefined : String(value)
