/**
 * R4, R6 and R7 over what a client's journal holds durably, and what left its processes; R8 has two
 * judges of its own.
 */
import type { Claim, Findings, JournalFact } from './events.js'
import { createRunsJudge } from './open-in-runs.js'
import { createStreamJudge } from './open-in-stream.js'

/** What a Permit2 nonce serves, as far as the records tell it. */
interface Served {
  readonly id: string
  readonly terms: string
  readonly round: string | undefined
  readonly token: string | undefined
}

/**
 * Pairs of authorizations for one question and round that no record orders: R8 cannot be told of
 * any, R7 not of some of them.
 */
export interface Unordered {
  R7: number
  R8: number
}

/**
 * Who finds a second authorization beside an open one (R8), or beside one whose outcome is unknown
 * (R7).
 */
export interface RivalJudge {
  fact(log: string, fact: JournalFact): void
  /**
   * Tells what can only be said once everything was told, and what no record orders; changes
   * nothing.
   */
  end(tell: Findings): Readonly<Unordered>
}

/**
 * Takes durable facts in their order. `order` says what the order of logs means: in `one` stream
 * all of them are told as they happened; told log after log (`by log`), only what no order of the
 * logs explains is a violation, since no clock decides one (R13). Sources: robustness R4, R6, R7,
 * R8; contract §1.
 */
export function createJournalRules(
  findings: Findings,
  order: 'one' | 'by log',
): {
  fact(log: string, fact: JournalFact): void
  sent(origin: string, sha256: string): void
  /** As of `RivalJudge`. */
  end(tell: Findings): Readonly<Unordered>
} {
  const { count, broken } = findings
  const judge: RivalJudge =
    order === 'one' ? createStreamJudge(findings) : createRunsJudge(findings)
  const reserved = new Map<string, string>()
  const nonceOf = new Map<string, string>()
  const serves = new Map<string, Served>()
  const bytesOf = new Map<string, string>()
  /**
   * Attempts of a run that does not hold the bytes itself, where another may: it may have brought
   * in what this one had given out.
   */
  const unsaved: { readonly attempt: string; readonly ids: readonly string[] }[] = []
  const started = new Set<string>()
  const unreserved: Claim[] = []

  const onSigned = (fact: Extract<JournalFact, { kind: 'signed' }>) => {
    const { claim, terms, token, bytes, isWhole, differs, origin } = fact
    const { id, nonce, round } = claim
    count('R6')
    count('R7')
    if (!isWhole)
      broken('R7', `the bytes saved as ${id} do not have the hash that was recorded with them`)
    else if (differs.length > 0)
      broken(
        'R7',
        `the bytes saved as ${id} say another ${differs.join(' and ')} than what was recorded of them`,
      )
    const inUse = serves.get(`${claim.chainId} ${nonce}`)
    if (
      inUse !== undefined &&
      inUse.id !== id &&
      (inUse.terms !== terms || differ(inUse.round, round) || differ(inUse.token, token))
    )
      broken('R6', `nonce ${nonceText(nonce)} serves two authorizations, ${inUse.id} and ${id}`)
    serves.set(`${claim.chainId} ${nonce}`, {
      id: inUse?.id ?? id,
      terms: inUse?.terms ?? terms,
      round: inUse?.round ?? round,
      token: inUse?.token ?? token,
    })
    if (origin === 'own' && nonceOf.get(id) !== nonce)
      broken(
        'R6',
        `${id} was signed with nonce ${nonceText(nonce)}, which was not reserved for it before`,
      )
    if (origin === 'copied') unreserved.push(claim)
    const before = bytesOf.get(id)
    if (before !== undefined && before !== bytes)
      broken('R7', `two different payloads are saved as ${id}`)
    bytesOf.set(id, bytes)
  }

  const onAttempt = (fact: Extract<JournalFact, { kind: 'attempt' }>) => {
    const { attempt, ids, origin, sha256, isSaved } = fact
    count('R4')
    count('R7')
    if (isSaved === false)
      broken('R7', `attempt ${attempt} sends other bytes than those saved as ${ids.join(', ')}`)
    if (order === 'one') tellUnsaved(findings, attempt, ids)
    else if (ids.some((id) => !bytesOf.has(id))) unsaved.push({ attempt, ids })
    started.add(`${origin} ${sha256}`)
  }

  const tellUnsaved = (tell: Findings, attempt: string, ids: readonly string[]) => {
    const missing = ids.filter((id) => !bytesOf.has(id))
    if (missing.length > 0)
      tell.broken(
        'R4',
        `attempt ${attempt} was begun before the bytes of ${missing.join(', ')} were saved`,
      )
  }

  return {
    fact(log, fact) {
      if (fact.kind === 'reserved') {
        count('R6')
        const holder = reserved.get(fact.nonce)
        if (holder !== undefined && holder !== fact.id)
          broken(
            'R6',
            `nonce ${nonceText(fact.nonce)} is reserved twice, for ${holder} and ${fact.id}`,
          )
        reserved.set(fact.nonce, fact.id)
        nonceOf.set(fact.id, fact.nonce)
        return
      }
      if (fact.kind === 'signed') onSigned(fact)
      if (fact.kind === 'attempt') onAttempt(fact)
      judge.fact(log, fact)
    },
    sent(origin, sha256) {
      count('R4')
      if (!started.has(`${origin} ${sha256}`))
        broken(
          'R4',
          `a request of ${sha256} left for ${origin} before an attempt with it was durable`,
        )
    },
    end(tell) {
      for (const { attempt, ids } of unsaved) tellUnsaved(tell, attempt, ids)
      for (const { id, nonce } of unreserved)
        if (nonceOf.get(id) !== nonce)
          tell.broken(
            'R6',
            `${id} was signed with nonce ${nonceText(nonce)}, which no run reserved for it`,
          )
      return judge.end(tell)
    },
  }
}

/** Whether two records say different things; one that says nothing says nothing else. */
const differ = (one: string | undefined, other: string | undefined) =>
  one !== undefined && other !== undefined && one !== other

/** `<proposer> <nonce>` for people. */
const nonceText = (nonce: string): string => {
  const [proposer = '', value = ''] = nonce.split(' ')
  return `${value} of ${proposer}`
}
