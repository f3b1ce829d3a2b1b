/**
 * What a client's journal holds durably, judged (R4, R6, R7); one signature a round has a judge of
 * its own (R8).
 */
import type { Claim, JournalFact, RuleReport } from './facts.js'

/** Pairs of authorizations for one question and round that no record orders. */
export interface Unordered {
  R7: number
  R8: number
}

/** Who finds a second authorization beside an open one (R8), or an unknown one (R7). */
export interface RivalJudge {
  fact(log: string, fact: JournalFact): void
  /** Reports what shows only at the end, and what no record orders; changes nothing. */
  end(report: RuleReport): Readonly<Unordered>
}

/** What a Permit2 nonce serves, as far as the records say. */
interface Served {
  readonly id: string
  readonly terms: string
  readonly round: string | undefined
  readonly token: string | undefined
}

interface JournalRules {
  readonly report: RuleReport
  /** Authorizations by reserved nonce, and the other way. */
  readonly reserved: Map<string, string>
  readonly nonceOf: Map<string, string>
  readonly serves: Map<string, Served>
  readonly bytesOf: Map<string, string>
  /**
   * Attempts of a run that does not hold the bytes itself, where another may: it may have brought
   * in what this one had given out.
   */
  readonly unsaved: { readonly attempt: string; readonly ids: readonly string[] }[]
  /** Copies, whose nonces another run may have reserved. */
  readonly copied: Claim[]
}

/**
 * Takes durable facts in their order. `isOneStream`: facts of all logs come as they happened.
 * Otherwise only what no order of the logs explains is a violation, since no clock decides one
 * (R13). Sources: robustness R4, R6, R7, R8; contract §1.
 */
export function createJournalRules(
  report: RuleReport,
  judge: RivalJudge,
  isOneStream: boolean,
): RivalJudge {
  const rules: JournalRules = {
    report,
    reserved: new Map(),
    nonceOf: new Map(),
    serves: new Map(),
    bytesOf: new Map(),
    unsaved: [],
    copied: [],
  }
  return {
    fact(log, fact) {
      if (fact.kind === 'reserved') {
        checkReservation(rules, fact)
        return
      }
      if (fact.kind === 'receipt') {
        checkReceipt(rules, fact)
        return
      }
      if (fact.kind === 'signed') checkSigned(rules, fact)
      if (fact.kind === 'attempt') checkAttempt(rules, fact, isOneStream)
      judge.fact(log, fact)
    },
    end(final) {
      for (const { attempt, ids } of rules.unsaved) reportUnsaved(rules, final, attempt, ids)
      for (const { id, nonce } of rules.copied)
        if (rules.nonceOf.get(id) !== nonce)
          final.broken(
            'R6',
            `${id} was signed with nonce ${nonceText(nonce)}, which no run reserved for it`,
          )
      return judge.end(final)
    },
  }
}

type Fact<Kind extends JournalFact['kind']> = Extract<JournalFact, { kind: Kind }>

function checkReservation({ report, reserved, nonceOf }: JournalRules, fact: Fact<'reserved'>) {
  const { id, nonce } = fact
  report.count('R6')
  const holder = reserved.get(nonce) ?? id
  if (holder !== id)
    report.broken('R6', `nonce ${nonceText(nonce)} is reserved twice, for ${holder} and ${id}`)
  reserved.set(nonce, id)
  nonceOf.set(id, nonce)
}

function checkSigned(rules: JournalRules, fact: Fact<'signed'>): void {
  const { report, serves, bytesOf } = rules
  const { claim, terms, token, bytes, isWhole, differs, origin } = fact
  const { id, nonce, round } = claim
  report.count('R6')
  report.count('R7')
  if (!isWhole)
    report.broken('R7', `the bytes saved as ${id} do not have the hash that was recorded with them`)
  else if (differs.length > 0)
    report.broken(
      'R7',
      `the bytes saved as ${id} say another ${differs.join(' and ')} than what was recorded of them`,
    )
  const key = authorizationKey(claim)
  const inUse = serves.get(key)
  if (
    inUse !== undefined &&
    inUse.id !== id &&
    (inUse.terms !== terms || differ(inUse.round, round) || differ(inUse.token, token))
  )
    report.broken(
      'R6',
      `nonce ${nonceText(nonce)} serves two authorizations, ${inUse.id} and ${id}`,
    )
  serves.set(key, {
    id: inUse?.id ?? id,
    terms: inUse?.terms ?? terms,
    round: inUse?.round ?? round,
    token: inUse?.token ?? token,
  })
  if (origin === 'own' && rules.nonceOf.get(id) !== nonce)
    report.broken(
      'R6',
      `${id} was signed with nonce ${nonceText(nonce)}, which was not reserved for it before`,
    )
  if (origin === 'copied') rules.copied.push(claim)
  if ((bytesOf.get(id) ?? bytes) !== bytes)
    report.broken('R7', `two different payloads are saved as ${id}`)
  bytesOf.set(id, bytes)
}

function checkAttempt(rules: JournalRules, fact: Fact<'attempt'>, isOneStream: boolean): void {
  const { report, bytesOf, unsaved } = rules
  const { attempt, ids, isSaved } = fact
  report.count('R4')
  report.count('R7')
  if (isSaved === false)
    report.broken(
      'R7',
      `attempt ${attempt} sends other bytes than those saved as ${ids.join(', ')}`,
    )
  if (isOneStream) reportUnsaved(rules, report, attempt, ids)
  else if (ids.some((id) => !bytesOf.has(id))) unsaved.push({ attempt, ids })
}

function checkReceipt({ report }: JournalRules, { attempt, differs }: Fact<'receipt'>): void {
  report.count('R7')
  if (differs === undefined) return
  const what = differs === 'request' ? 'other bytes than were sent' : 'another answer'
  report.broken('R7', `the receipt that is kept with attempt ${attempt} is of ${what}`)
}

function reportUnsaved(
  { bytesOf }: JournalRules,
  report: RuleReport,
  attempt: string,
  ids: readonly string[],
): void {
  const missing = ids.filter((id) => !bytesOf.has(id)).join(', ')
  if (missing !== '')
    report.broken('R4', `attempt ${attempt} was begun before the bytes of ${missing} were saved`)
}

/** Whether two records say different things; one that says nothing says nothing else. */
const differ = (one: string | undefined, other: string | undefined) =>
  one !== undefined && other !== undefined && one !== other

/** `<proposer> <nonce>` for people. */
const nonceText = (nonce: string): string => {
  const [proposer = '', value = ''] = nonce.split(' ')
  return `${value} of ${proposer}`
}

/** Without an RPC a deadline has passed this long after it by the wall clock (contract §1). */
const expiryMarginMs = 3_600_000

/** Whether a claim's deadline had passed by the clock of whoever signed at `atMs`. */
export const hasExpired = ({ deadlineSeconds }: Claim, atMs: number): boolean =>
  atMs > deadlineSeconds * 1_000 + expiryMarginMs

/**
 * Names what a claim authorizes, under whichever id it came into the journal. A nonce serves one
 * authorization (R6), and one that came in twice is no rival of itself.
 */
export const authorizationKey = ({ chainId, nonce }: Claim): string => `${chainId} ${nonce}`

/** Names what is broken of a pair. `wasUnknown`: the first had no known outcome then (R7). */
export function reportPair(
  report: RuleReport,
  first: string,
  second: string,
  wasUnknown: boolean,
): void {
  const both = `${second} was signed while`
  if (wasUnknown)
    report.broken(
      'R7',
      `${both} the outcome of ${first}, for the same question and round, was unknown`,
    )
  else
    report.broken(
      'R8',
      `${both} ${first}, for the same question and round, was open, and does not supersede it`,
    )
}
