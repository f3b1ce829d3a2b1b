import {
  type AttemptEndRecord,
  type AttemptStart,
  closes,
  type JournalRecord,
  type Offered,
  type Signed,
} from '#client/journal/authorizations'
import type { Hash } from '#ports'
import { outcomeKeys, priceOf } from '#protocol/proposal'
import { digestHeader, judgeDigest } from '#protocol/receipt'
import type { Claim, JournalFact } from './facts.js'

type Saved = Pick<Signed, 'body' | 'sha256'>

export function createJournalFacts(
  hash: Hash,
  token: string,
): (record: Omit<JournalRecord, 'timeMs'>) => readonly JournalFact[] {
  const saved = new Map<string, Saved>()
  const sent = new Map<string, string>()
  return (record) => {
    const { kind, data } = record as JournalRecord
    switch (kind) {
      case 'nonce.reserved':
        return [{ kind: 'reserved', id: data.id, nonce: `${data.proposer} ${data.nonce}` }]
      case 'offered':
        return [{ kind: 'offered', claim: claimOf(data, data.offeredAtMs) }]
      case 'safe.part':
        return []
      case 'signed':
        saved.set(data.id, { body: data.body, sha256: data.sha256 })
        return [signedFact(hash, token, data)]
      case 'attempt.start': {
        const { attempt, ids, origin, sha256, body } = data
        sent.set(attempt, sha256)
        const isSaved =
          body === undefined ? areSaved(hash, saved, data) : hash.sha256(body) === sha256
        return [{ kind: 'attempt', attempt, ids, origin, sha256, isSaved }]
      }
      case 'attempt.end':
        return [
          ...data.results.map(
            ({ id, class: outcome }) => ({ kind: 'ended', id, class: outcome }) as const,
          ),
          ...receiptFacts(hash, data, sent.get(data.attempt)),
        ]
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

function receiptFacts(
  hash: Hash,
  { attempt, receipt }: AttemptEndRecord,
  sha256: string | undefined,
): readonly JournalFact[] {
  if (receipt === undefined) return []
  const { requestDigest, contentDigest, body, result } = receipt
  const isOther = requestDigest !== undefined && sha256 && requestDigest !== digestHeader(sha256)
  const isTorn =
    result === 'proven' &&
    body !== undefined &&
    (contentDigest === undefined || judgeDigest(hash, contentDigest, body) !== 'same')
  const differs = isOther ? 'request' : isTorn ? 'answer' : undefined
  return [{ kind: 'receipt', attempt, differs }]
}

function signedFact(hash: Hash, token: string, data: Signed): JournalFact {
  const { price, amount, deadline } = data.terms
  const isOwn = data.id.startsWith(`${token}-`)
  const isImported = data.digest === undefined
  return {
    kind: 'signed',
    claim: claimOf(data, data.signedAtMs),
    terms: `${data.questionId} ${price} ${amount} ${deadline}`,
    token: data.token,
    bytes: `${data.identity} ${data.sha256}`,
    isWhole: hash.sha256(data.body) === data.sha256,
    differs: differencesOf(data),
    origin: isImported ? (isOwn ? 'imported' : 'imported and copied') : isOwn ? 'own' : 'copied',
  }
}

function areSaved(
  hash: Hash,
  saved: ReadonlyMap<string, Saved>,
  { ids, form, sha256 }: AttemptStart,
): boolean | undefined {
  const items = ids.flatMap((id) => saved.get(id) ?? [])
  const [only] = items
  if (only === undefined || items.length !== ids.length) return undefined
  if (items.length === 1 && only.sha256 === sha256) return true
  return (
    form === 'batch' &&
    hash.sha256(`{"proposals":[${items.map(({ body }) => body).join(',')}]}`) === sha256
  )
}

function claimOf(record: Signed | Offered, atMs: number): Claim {
  const { proposer, nonce, deadline } = record.terms
  return {
    id: record.id,
    question: `${record.questionId} ${proposer}`,
    round: record.timestamp,
    ...(record.round !== undefined && { roundKey: `${record.round} ${proposer}` }),
    nonce: `${proposer} ${nonce}`,
    chainId: record.chainId,
    atMs,
    deadlineSeconds: Number(deadline),
    supersedes: record.supersedes,
  }
}

function differencesOf({ body, terms }: Pick<Signed, 'body' | 'terms'>): readonly string[] {
  const payload = objectOf(body)
  if (payload === undefined) return ['form']
  const { permit, outcome, proposed_price: price } = payload
  const { amount, nonce, deadline } = Object(permit) as Readonly<Record<string, unknown>>
  const key = outcomeKeys.find((each) => each === outcome)
  const said: Readonly<Record<string, unknown>> = {
    proposer: payload.proposer === undefined ? undefined : String(payload.proposer).toLowerCase(),
    price: outcome === undefined ? price : key === undefined ? 'none' : priceOf[key],
    amount,
    nonce,
    deadline,
  }
  return (['proposer', 'price', 'amount', 'nonce', 'deadline'] as const).filter(
    (field) => said[field] !== undefined && String(said[field]) !== terms[field],
  )
}

function objectOf(body: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(body)
    return typeof value === 'object' && value !== null
      ? (value as Readonly<Record<string, unknown>>)
      : undefined
  } catch {
    return undefined
  }
}
