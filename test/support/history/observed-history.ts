/**
 * The rules of a history (T14) over a run as it happened: facts count from the moment their log made
 * them durable, and whatever the world saw before that is a violation.
 */
import type { JournalFact, StoreFact } from './facts.js'
import { createRuleCheck, type RuleVerdict } from './rule-check.js'

export type Verdict = RuleVerdict

/**
 * One thing that happened in a run: a fact that a log was given, or what the world saw of it. `log` names a store, or a run of a journal; lines count from 1 and grow
 * within a log.
 */
export type HistoryEvent =
  | {
      readonly kind: 'written'
      readonly log: string
      readonly line: number
      readonly fact: StoreFact | JournalFact
    }
  | { readonly kind: 'synced'; readonly log: string; readonly line: number }
  /**
   * Found after a crash: lines up to this one are there, and durable now; what was written above it
   * is gone.
   */
  | { readonly kind: 'reopened'; readonly log: string; readonly line: number }
  | {
      readonly kind: 'answered'
      readonly status: 200 | 202
      readonly candidate: string
      readonly payload: string
    }
  | { readonly kind: 'told'; readonly candidate: string }
  | {
      readonly kind: 'handed'
      readonly hash: string
      readonly sender: string
      readonly nonce: number
    }
  | {
      readonly kind: 'mined'
      readonly block: string
      readonly hash: string
      readonly rounds: readonly string[]
    }
  | { readonly kind: 'undone'; readonly block: string }
  | { readonly kind: 'sent'; readonly origin: string; readonly sha256: string }

type Check = ReturnType<typeof createRuleCheck>

export type History = ReturnType<typeof createHistory>

export function createHistory() {
  const check = createRuleCheck()
  const world = createWorldRules(check)
  const waiting = new Map<
    string,
    { readonly line: number; readonly fact: StoreFact | JournalFact }[]
  >()
  const durable: Check['durable'] = (fact) => {
    check.durable(fact)
    if (fact.kind === 'attempt') world.started.add(`${fact.origin} ${fact.sha256}`)
  }
  const upTo = (log: string, line: number, isEnd: boolean) => {
    const queue = waiting.get(log) ?? []
    const later = queue.findIndex((one) => one.line > line)
    const count = later < 0 ? queue.length : later
    for (const { fact } of queue.slice(0, count)) durable(fact)
    if (isEnd) waiting.delete(log)
    else queue.splice(0, count)
  }
  return {
    durable,
    verdict: check.verdict,
    add(event: HistoryEvent) {
      if (event.kind === 'written') {
        const queue = waiting.get(event.log)
        if (queue) queue.push(event)
        else waiting.set(event.log, [event])
      } else if (event.kind === 'synced' || event.kind === 'reopened')
        upTo(event.log, event.line, event.kind === 'reopened')
      else world.event(event)
    },
  }
}

type WorldEvent = Exclude<HistoryEvent, { kind: 'written' | 'synced' | 'reopened' }>

function createWorldRules({ report, store }: Check) {
  const { count, broken } = report
  const { candidates, transactions } = store
  const started = new Set<string>()
  const admitted = new Set<string>()
  const proposedIn = new Map<string, { readonly block: string; readonly hash: string }>()
  const inBlock = new Map<string, string[]>()
  const durableCandidate = (id: string, what: string) => {
    count('R1')
    if (!candidates.has(id))
      broken('R1', `${what} candidate ${id}, of which no record was durable by then`)
  }
  const event = (event: WorldEvent): void => {
    switch (event.kind) {
      case 'sent':
        count('R4')
        if (!started.has(`${event.origin} ${event.sha256}`))
          broken(
            'R4',
            `a request of ${event.sha256} left for ${event.origin} before an attempt with it was durable`,
          )
        return
      case 'answered': {
        const { status, candidate, payload } = event
        durableCandidate(candidate, `${status} was answered for`)
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
        durableCandidate(event.candidate, 'a status was told of')
        return
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
        for (const round of inBlock.get(event.block) ?? [])
          if (proposedIn.get(round)?.block === event.block) proposedIn.delete(round)
        inBlock.delete(event.block)
    }
  }
  return { started, event }
}

export function violationsText({
  violations,
  broken,
}: Pick<RuleVerdict, 'violations' | 'broken'>): string {
  const lines = violations.map(({ rule, detail }) => `${rule}: ${detail}`)
  const more = broken - violations.length
  return [...lines, ...(more > 0 ? [`and ${more} more`] : [])].join('\n')
}
