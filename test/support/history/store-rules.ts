import type { CandidateStanding, RuleReport, SignedTransaction, StoreFact } from './facts.js'

interface SlotRecord {
  readonly id: string
  readonly executor: string
  readonly nonce: number
  readonly candidates: ReadonlySet<string>
  isOpen: boolean
  readonly calls: Map<string, string>
  readonly left: Set<string>
}

export interface StoreRules {
  readonly report: RuleReport
  readonly candidates: Map<string, { readonly payload: string; readonly round: string }>
  readonly bySequence: Map<number, string>
  readonly byPayload: Map<string, string>
  readonly slots: Map<string, SlotRecord>
  readonly live: Map<string, SlotRecord>
  readonly executed: Map<string, string>
  readonly bound: Map<string, string>
  readonly highest: Map<string, number>
  readonly transactions: Map<
    string,
    {
      readonly slot: SlotRecord
      readonly signed: SignedTransaction
      status: 'success' | 'reverted' | undefined
    }
  >
  readonly keptFor: Map<string, SlotRecord>
}

export const newStoreRules = (report: RuleReport): StoreRules => ({
  report,
  candidates: new Map(),
  bySequence: new Map(),
  byPayload: new Map(),
  slots: new Map(),
  live: new Map(),
  executed: new Map(),
  bound: new Map(),
  highest: new Map(),
  transactions: new Map(),
  keptFor: new Map(),
})

export function checkStoreFact(rules: StoreRules, fact: StoreFact): void {
  const { report, slots, transactions } = rules
  const openSlot = (id: string, what: string): SlotRecord | undefined => {
    const slot = slots.get(id)
    if (slot?.isOpen === true) return slot
    report.broken('R3', `${what} is on record for slot ${id}, which is not open`)
    return undefined
  }
  switch (fact.kind) {
    case 'candidate':
      checkCandidate(rules, fact)
      return
    case 'progress':
      noteStanding(rules, fact.id, fact.stands)
      return
    case 'slot':
      checkOpening(rules, fact)
      return
    case 'bound':
      raise(rules, fact)
      return
    case 'transaction': {
      const slot = openSlot(fact.slot, `transaction ${fact.transaction.hash}`)
      if (slot) checkTransaction(rules, slot, fact.transaction)
      return
    }
    case 'acted': {
      report.count('R1')
      const { hash, what, slot, status } = fact
      const known = transactions.get(hash)
      if (known?.slot.id !== slot)
        report.broken(
          'R1',
          `transaction ${hash} was ${what} for slot ${slot}, which has no record of it`,
        )
      else if (status !== undefined) known.status = status
      return
    }
    case 'closed': {
      const slot = openSlot(fact.slot, `the end (${fact.outcome})`)
      if (slot) checkClosing(rules, slot, fact)
    }
  }
}

type Fact<Kind extends StoreFact['kind']> = Extract<StoreFact, { kind: Kind }>

function raise({ highest }: StoreRules, { executor, nonce }: Fact<'bound'> | Fact<'slot'>): void {
  highest.set(executor, Math.max(nonce, highest.get(executor) ?? -1))
}

function checkCandidate(rules: StoreRules, fact: Fact<'candidate'>): void {
  const { report, candidates, bySequence, byPayload, keptFor } = rules
  const { id, sequence, payload, round, stands } = fact
  report.count('R2')
  const other = byPayload.get(payload)
  if (other !== undefined && other !== id)
    report.broken('R2', `candidates ${other} and ${id} are one payload`)
  if ((candidates.get(id)?.payload ?? payload) !== payload)
    report.broken('R2', `candidate ${id} stands for two payloads`)
  const holder = bySequence.get(sequence) ?? id
  if (holder !== id)
    report.broken(
      'R2',
      `candidate ${id} has the sequence number ${sequence} of candidate ${holder}`,
    )
  bySequence.set(sequence, id)
  byPayload.set(payload, id)
  candidates.set(id, { payload, round })
  const kept = keptFor.get(id)
  if (kept?.isOpen === true) rules.live.set(round, kept)
  else if (stands === 'executed') rules.executed.set(round, `candidate ${id}`)
  keptFor.delete(id)
  if (stands !== undefined) noteStanding(rules, id, stands)
}

function noteStanding({ candidates, live }: StoreRules, id: string, stands: CandidateStanding) {
  const slot = live.get(candidates.get(id)?.round ?? '')
  if (slot?.isOpen !== true || !slot.candidates.has(id)) return
  if (stands === 'selected' || stands === 'executed') slot.left.delete(id)
  else slot.left.add(id)
}

function checkOpening(rules: StoreRules, fact: Fact<'slot'>): void {
  const { report, slots, bound, highest, live, executed, candidates } = rules
  const { id, executor, nonce, candidates: ids, kept } = fact
  report.count('R3')
  const name = `${executor} ${nonce}`
  const holder = bound.get(name)
  // A gap below may be filled by what carries no proposal, also under a nonce whose end a lost
  // chain took along.
  const isFiller = ids.length === 0 && slots.get(holder ?? '')?.isOpen !== true
  if (!isFiller && holder !== undefined && holder !== id)
    report.broken('R3', `nonce ${nonce} of ${executor} is bound a second time, by slot ${id}`)
  else if (!isFiller && !kept && nonce <= (highest.get(executor) ?? -1))
    report.broken(
      'R3',
      `slot ${id} binds nonce ${nonce} of ${executor}, below one that was bound before`,
    )
  bound.set(name, id)
  raise(rules, fact)
  const slot: SlotRecord = {
    id,
    executor,
    nonce,
    candidates: new Set(ids),
    isOpen: true,
    calls: new Map(),
    left: new Set(),
  }
  slots.set(id, slot)
  if (kept) {
    for (const each of ids) rules.keptFor.set(each, slot)
    return
  }
  const rounds = ids.flatMap((each) => candidates.get(each)?.round ?? [])
  if (new Set(rounds).size !== ids.length)
    report.broken('R3', `slot ${id} carries two candidates of one round, or one that is unknown`)
  for (const round of rounds) {
    const other = live.get(round)
    if (other?.isOpen === true)
      report.broken('R3', `slots ${other.id} and ${id} are open for one round (${round})`)
    const done = executed.get(round)
    if (done !== undefined)
      report.broken('R3', `slot ${id} is opened for a round that ${done} has executed (${round})`)
    live.set(round, slot)
  }
}

function checkTransaction(rules: StoreRules, slot: SlotRecord, signed: SignedTransaction): void {
  const { report, transactions } = rules
  const { hash, does, candidates: ids, nonce, calls } = signed
  const broken = (detail: string) => report.broken('R3', `transaction ${hash} ${detail}`)
  report.count('R3')
  const known = transactions.get(hash)
  if (known !== undefined && known.slot !== slot)
    broken(`belongs to two slots, ${known.slot.id} and ${slot.id}`)
  if (nonce !== undefined && nonce !== slot.nonce)
    broken(`of slot ${slot.id} has nonce ${nonce}, the slot has ${slot.nonce}`)
  if (does === 'cancel' && ids.length > 0)
    broken(`of slot ${slot.id} is a cancellation and carries candidates`)
  for (const [index, id] of ids.entries()) {
    if (!slot.candidates.has(id))
      broken(`carries candidate ${id}, which is none of slot ${slot.id}`)
    const call = calls?.[index]
    if (call === undefined) continue
    if ((slot.calls.get(id) ?? call) !== call)
      broken(`of slot ${slot.id} carries other calldata for candidate ${id} than the one before it`)
    slot.calls.set(id, call)
  }
  if (calls !== undefined && calls.length !== ids.length)
    broken(`of slot ${slot.id} carries ${calls.length} calls for ${ids.length} candidates`)
  transactions.set(hash, { slot, signed, status: known?.status })
}

function checkClosing(rules: StoreRules, slot: SlotRecord, fact: Fact<'closed'>): void {
  const { report, transactions, candidates, live, executed } = rules
  const { outcome, hash } = fact
  slot.isOpen = false
  const known = hash === null ? undefined : transactions.get(hash)
  const named = known?.slot === slot ? known : undefined
  const end = `the end (${outcome}) of slot ${slot.id}`
  // A foreign end names none; every other is that of a transaction which was on record before it
  // was sent.
  if (hash !== null && named === undefined)
    report.broken('R1', `${end} is that of transaction ${hash}, of which the slot has no record`)
  if (hash === null && outcome === 'executed') report.broken('R1', `${end} names no transaction`)
  // A success that holds no proposal ends as reverted too: then it is on record of each candidate
  // that it failed.
  const { candidates: carried = [] } = named?.signed ?? {}
  const isContradicted = outcome === 'reverted' && named?.status === 'success'
  if (isContradicted && carried.length > 0 && !carried.some((id) => slot.left.has(id)))
    report.broken(
      'R3',
      `slot ${slot.id} ends as reverted, and the receipt on record of its transaction ${hash} is a success`,
    )
  for (const id of slot.candidates) {
    const round = candidates.get(id)?.round
    if (round === undefined) continue
    if (live.get(round) === slot) live.delete(round)
    if (outcome === 'executed' && carried.includes(id)) executed.set(round, `slot ${slot.id}`)
  }
}
