import type { JournalFact, RuleReport } from './facts.js'
import { authorizationKey, createStreamOrder } from './stream-order.js'

interface Served {
  readonly id: string
  readonly terms: string
  readonly round: string | undefined
  readonly token: string | undefined
}

interface JournalRules {
  readonly report: RuleReport
  readonly reserved: Map<string, string>
  readonly nonceOf: Map<string, string>
  readonly serves: Map<string, Served>
  readonly bytesOf: Map<string, string>
}

export function createJournalRules(report: RuleReport) {
  const rules: JournalRules = {
    report,
    reserved: new Map(),
    nonceOf: new Map(),
    serves: new Map(),
    bytesOf: new Map(),
  }
  const noteStanding = createStreamOrder(report)
  return (fact: JournalFact): void => {
    if (fact.kind === 'reserved') checkReservation(rules, fact)
    else if (fact.kind === 'receipt') checkReceipt(rules, fact)
    else {
      if (fact.kind === 'signed') checkSigned(rules, fact)
      if (fact.kind === 'attempt') checkAttempt(rules, fact)
      noteStanding(fact)
    }
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
  if ((origin === 'own' || origin === 'copied') && rules.nonceOf.get(id) !== nonce)
    report.broken(
      'R6',
      `${id} was signed with nonce ${nonceText(nonce)}, which was not reserved for it before`,
    )
  if ((bytesOf.get(id) ?? bytes) !== bytes)
    report.broken('R7', `two different payloads are saved as ${id}`)
  bytesOf.set(id, bytes)
}

function checkAttempt({ report, bytesOf }: JournalRules, fact: Fact<'attempt'>): void {
  const { attempt, ids, isSaved } = fact
  report.count('R4')
  report.count('R7')
  if (isSaved === false)
    report.broken(
      'R7',
      `attempt ${attempt} sends other bytes than those saved as ${ids.join(', ')}`,
    )
  const missing = ids.filter((id) => !bytesOf.has(id)).join(', ')
  if (missing !== '')
    report.broken('R4', `attempt ${attempt} was begun before the bytes of ${missing} were saved`)
}

function checkReceipt({ report }: JournalRules, { attempt, differs }: Fact<'receipt'>): void {
  report.count('R7')
  if (differs === undefined) return
  const what = differs === 'request' ? 'other bytes than were sent' : 'another answer'
  report.broken('R7', `the receipt that is kept with attempt ${attempt} is of ${what}`)
}

const differ = (one: string | undefined, other: string | undefined) =>
  one !== undefined && other !== undefined && one !== other

const nonceText = (nonce: string): string => {
  const [proposer = '', value = ''] = nonce.split(' ')
  return `${value} of ${proposer}`
}
