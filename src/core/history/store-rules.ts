/**
 * R1 to R3 over what a gateway's store holds durably and what the world saw of that gateway. Each
 * fact and event costs its own size.
 */
import type {
  CandidateStanding,
  Findings,
  HistoryEvent,
  SignedTransaction,
  StoreFact,
} from './events.js'

interface Slot {
  readonly id: string
  readonly executor: string
  readonly nonce: number
  readonly candidates: ReadonlySet<string>
  isOpen: boolean
  /** What the calldata for each candidate was, when it was first signed for. */
  readonly calls: Map<string, string>
  /** Candidates of which it is on record that they rest on none of its transactions any more. */
  readonly left: Set<string>
}

interface Transaction {
  readonly slot: Slot
  readonly signed: SignedTransaction
  /** Of the newest receipt on record. */
  status: 'success' | 'reverted' | undefined
}

interface Candidate {
  readonly payload: string
  readonly round: string
}

/**
 * Takes durable facts and observations in their order; tells violations as they show. Sources:
 * robustness R1, R2, R3, R13.
 */
export function createStoreRules(findings: Findings): {
  fact(fact: StoreFact): void
  event(
    event: Extract<HistoryEvent, { kind: 'answered' | 'told' | 'handed' | 'mined' | 'undone' }>,
  ): void
} {
  const candidates = new Map<string, Candidate>()
  const sequences = new Map<number, string>()
  const idOf = new Map<string, string>()
  const admitted = new Set<string>()
  const slots = new Map<string, Slot>()
  /** Open slots by round. */
  const live = new Map<string, Slot>()
  /** By round, in words, what has executed it for good. */
  const executed = new Map<string, string>()
  const bound = new Map<string, string>()
  const highest = new Map<string, number>()
  const transactions = new Map<string, Transaction>()
  const proposedIn = new Map<string, { readonly block: string; readonly hash: string }>()
  const inBlock = new Map<string, string[]>()
  /** Open slots that a compaction told before their candidates. */
  const keptFor = new Map<string, Slot>()
  const { count, broken } = findings

  const roundsOf = (ids: Iterable<string>) =>
    [...ids].flatMap((id) => candidates.get(id)?.round ?? [])

  const onCandidate = ({
    id,
    sequence,
    payload,
    round,
    stands,
  }: Extract<StoreFact, { kind: 'candidate' }>) => {
    count('R2')
    const other = idOf.get(payload)
    if (other !== undefined && other !== id)
      broken('R2', `candidates ${other} and ${id} are one payload`)
    const before = candidates.get(id)
    if (before !== undefined && before.payload !== payload)
      broken('R2', `candidate ${id} stands for two payloads`)
    const holder = sequences.get(sequence)
    if (holder !== undefined && holder !== id)
      broken('R2', `candidate ${id} has the sequence number ${sequence} of candidate ${holder}`)
    sequences.set(sequence, id)
    idOf.set(payload, id)
    candidates.set(id, { payload, round })
    const kept = keptFor.get(id)
    if (kept?.isOpen === true) live.set(round, kept)
    // With a slot that is still open, a reorganisation may undo it; closed slots are gone, and what
    // they executed is final.
    else if (stands === 'executed') executed.set(round, `candidate ${id}`)
    keptFor.delete(id)
    if (stands !== undefined) onProgress(id, stands)
  }

  const onProgress = (id: string, stands: CandidateStanding) => {
    const slot = live.get(candidates.get(id)?.round ?? '')
    if (slot?.isOpen !== true || !slot.candidates.has(id)) return
    if (stands === 'selected' || stands === 'executed') slot.left.delete(id)
    else slot.left.add(id)
  }

  const onSlot = ({
    id,
    executor,
    nonce,
    candidates: ids,
    kept,
  }: Extract<StoreFact, { kind: 'slot' }>) => {
    count('R3')
    const name = `${executor} ${nonce}`
    const holder = bound.get(name)
    // A gap below may be filled by what carries no proposal, also under a nonce whose end a lost
    // chain took along.
    const isFiller = ids.length === 0 && slots.get(holder ?? '')?.isOpen !== true
    if (!isFiller && holder !== undefined && holder !== id)
      broken('R3', `nonce ${nonce} of ${executor} is bound a second time, by slot ${id}`)
    else if (!isFiller && !kept && nonce <= (highest.get(executor) ?? -1))
      broken(
        'R3',
        `slot ${id} binds nonce ${nonce} of ${executor}, below one that was bound before`,
      )
    bound.set(name, id)
    highest.set(executor, Math.max(nonce, highest.get(executor) ?? -1))
    const slot: Slot = {
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
      for (const each of ids) keptFor.set(each, slot)
      return
    }
    const rounds = roundsOf(ids)
    if (new Set(rounds).size !== ids.length)
      broken('R3', `slot ${id} carries two candidates of one round, or one that is unknown`)
    for (const round of rounds) {
      const other = live.get(round)
      if (other?.isOpen === true)
        broken('R3', `slots ${other.id} and ${id} are open for one round (${round})`)
      const done = executed.get(round)
      if (done !== undefined)
        broken('R3', `slot ${id} is opened for a round that ${done} has executed (${round})`)
      live.set(round, slot)
    }
  }

  const onTransaction = (slot: Slot, signed: SignedTransaction) => {
    count('R3')
    const { hash, does, candidates: ids, nonce, calls } = signed
    const known = transactions.get(hash)
    if (known !== undefined && known.slot !== slot)
      broken('R3', `transaction ${hash} belongs to two slots, ${known.slot.id} and ${slot.id}`)
    if (nonce !== undefined && nonce !== slot.nonce)
      broken(
        'R3',
        `transaction ${hash} of slot ${slot.id} has nonce ${nonce}, the slot has ${slot.nonce}`,
      )
    if (does === 'cancel' && ids.length > 0)
      broken(
        'R3',
        `transaction ${hash} of slot ${slot.id} is a cancellation and carries candidates`,
      )
    for (const [index, id] of ids.entries()) {
      if (!slot.candidates.has(id))
        broken(
          'R3',
          `transaction ${hash} carries candidate ${id}, which is none of slot ${slot.id}`,
        )
      const call = calls?.[index]
      const before = slot.calls.get(id)
      if (call === undefined) continue
      if (before !== undefined && before !== call)
        broken(
          'R3',
          `transaction ${hash} of slot ${slot.id} carries other calldata for candidate ${id} than the one before it`,
        )
      slot.calls.set(id, call)
    }
    if (calls !== undefined && calls.length !== ids.length)
      broken(
        'R3',
        `transaction ${hash} of slot ${slot.id} carries ${calls.length} calls for ${ids.length} candidates`,
      )
    transactions.set(hash, { slot, signed, status: known?.status })
  }

  const onClosed = (slot: Slot, { outcome, hash }: Extract<StoreFact, { kind: 'closed' }>) => {
    slot.isOpen = false
    const known = hash === null ? undefined : transactions.get(hash)
    const named = known?.slot === slot ? known : undefined
    // A foreign end names none; every other is that of a transaction which was on record before it
    // was sent.
    if (hash !== null && named === undefined)
      broken(
        'R1',
        `the end (${outcome}) of slot ${slot.id} is that of transaction ${hash}, of which the slot has no record`,
      )
    if (hash === null && outcome === 'executed')
      broken('R1', `the end (${outcome}) of slot ${slot.id} names no transaction`)
    // A success that holds no proposal ends as reverted too: then it is on record of each candidate
    // that it failed.
    const { candidates: carried = [] } = named?.signed ?? {}
    if (
      outcome === 'reverted' &&
      named?.status === 'success' &&
      carried.length > 0 &&
      !carried.some((id) => slot.left.has(id))
    )
      broken(
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

  /** A fact about a slot has to find it open. */
  const openSlot = (id: string, what: string): Slot | undefined => {
    const slot = slots.get(id)
    if (slot?.isOpen === true) return slot
    broken('R3', `${what} is on record for slot ${id}, which is not open`)
    return undefined
  }

  const durable = (id: string, what: string) => {
    count('R1')
    if (!candidates.has(id))
      broken('R1', `${what} candidate ${id}, of which no record was durable by then`)
  }

  const release = (round: string, hash: string) => {
    if (proposedIn.get(round)?.hash === hash) proposedIn.delete(round)
  }

  return {
    fact(fact) {
      switch (fact.kind) {
        case 'candidate':
          return onCandidate(fact)
        case 'progress':
          return onProgress(fact.id, fact.stands)
        case 'slot':
          return onSlot(fact)
        case 'bound':
          highest.set(fact.executor, Math.max(fact.nonce, highest.get(fact.executor) ?? -1))
          return
        case 'transaction': {
          const slot = openSlot(fact.slot, `transaction ${fact.transaction.hash}`)
          if (slot) onTransaction(slot, fact.transaction)
          return
        }
        case 'acted': {
          count('R1')
          const known = transactions.get(fact.hash)
          if (known?.slot.id !== fact.slot)
            broken(
              'R1',
              `transaction ${fact.hash} was ${fact.what} for slot ${fact.slot}, which has no record of it`,
            )
          else if (fact.status !== undefined) known.status = fact.status
          return
        }
        case 'closed': {
          const slot = openSlot(fact.slot, `the end (${fact.outcome})`)
          if (slot) onClosed(slot, fact)
        }
      }
    },
    event(event) {
      switch (event.kind) {
        case 'answered': {
          const { status, candidate, payload } = event
          durable(candidate, `${status} was answered for`)
          count('R2')
          const known = candidates.get(candidate)
          if (known !== undefined && known.payload !== payload)
            broken(
              'R2',
              `payload ${payload} was answered with candidate ${candidate}, which stands for another one`,
            )
          if (status === 202 && admitted.has(payload))
            broken(
              'R2',
              `payload ${payload} was answered 202 a second time, as candidate ${candidate}`,
            )
          if (status === 202) admitted.add(payload)
          return
        }
        case 'told':
          return durable(event.candidate, 'a status was told of')
        case 'handed': {
          count('R1')
          const known = transactions.get(event.hash)
          if (known === undefined) {
            broken(
              'R1',
              `transaction ${event.hash} was handed to a node before any record of it was durable`,
            )
            return
          }
          const { executor, nonce } = known.slot
          if (executor !== event.sender || nonce !== event.nonce)
            broken(
              'R3',
              `transaction ${event.hash} went out as nonce ${event.nonce} of ${event.sender}, its slot is nonce ${nonce} of ${executor}`,
            )
          return
        }
        case 'mined':
          // Other senders propose too; only one of our own may ever do so for a round.
          if (!transactions.has(event.hash)) return
          for (const round of event.rounds) {
            count('R3')
            const before = proposedIn.get(round)
            if (before !== undefined && before.hash !== event.hash)
              broken(
                'R3',
                `transactions ${before.hash} and ${event.hash} both proposed for one round (${round})`,
              )
            proposedIn.set(round, { block: event.block, hash: event.hash })
          }
          inBlock.set(event.block, [...(inBlock.get(event.block) ?? []), ...event.rounds])
          return
        case 'undone':
          for (const round of inBlock.get(event.block) ?? []) {
            const { block, hash } = proposedIn.get(round) ?? {}
            if (block === event.block && hash !== undefined) release(round, hash)
          }
          inBlock.delete(event.block)
      }
    },
  }
}
