import { setTimeout as sleep } from 'node:timers/promises'
import { topics } from '#chain/contracts'
import type { DevChain } from '#devchain/dev-chain'
import { type DevReceipt, devRpc } from '#devchain/dev-contracts'
import type { Slot, SlotAttempt, SlotOutcome } from '#gateway/ledger/ledger'
import type { Hex } from '#ports'
import { type Candidate, type Progress, wireStatus } from '#protocol/candidate'
import {
  type AdmissionCall,
  admissionModel,
  groupsOf,
  type LoggedPayload,
  type Stage,
} from './admission-model.js'
import { detailOf, type Watched } from './clients.js'
import type { Cluster } from './cluster.js'
import { linearize } from './linearizable.js'
import { identityOf, type Payload } from './payloads.js'

interface Row {
  readonly n: string
  readonly k: string
  readonly d: {
    readonly candidate?: Candidate
    readonly id?: string
    readonly progress?: Progress
    readonly slot?: Slot
    readonly slotId?: string
    readonly attempt?: SlotAttempt
    readonly outcome?: SlotOutcome
  }
}

interface LoggedCandidate {
  readonly candidate: Candidate
  readonly stages: Stage[]
  progress: Progress
}

interface LoggedSlot {
  readonly slot: Slot
  readonly hashes: Set<string>
  outcome: SlotOutcome | undefined
}

interface Log {
  readonly candidates: ReadonlyMap<string, LoggedCandidate>
  readonly slots: ReadonlyMap<string, LoggedSlot>
  readonly elections: number
  readonly records: number
}

export interface Verdict {
  readonly faults: readonly string[]
  readonly figures: Readonly<Record<string, number>>
}

export async function untilAtRest(query: Cluster['query']): Promise<void> {
  let [seen, sinceMs] = ['', performance.now()]
  for (;;) {
    const [row] = await query<{ candidates: string; slots: string; records: string }>(
      `SELECT (SELECT count(*) FROM proposer.candidate
                WHERE status IN ('received', 'validated', 'selected')) AS candidates,
              (SELECT count(*) FROM proposer.slot WHERE outcome IS NULL) AS slots,
              (SELECT count(*) FROM proposer.record
                WHERE k IN ('candidate.progress', 'slot.opened', 'slot.mined', 'slot.closed')) AS records`,
    )
    if (row?.candidates === '0' && row.slots === '0') return
    const now = JSON.stringify(row)
    if (now !== seen) [seen, sinceMs] = [now, performance.now()]
    if (performance.now() - sinceMs > 120_000)
      throw new Error(`the executor does not come to rest: ${now}`)
    await sleep(1_000)
  }
}

async function readLog(query: Cluster['query'], faults: string[]): Promise<Log> {
  const rows = await query<Row & { n: string }>('SELECT n, k, d FROM proposer.record ORDER BY n')
  const candidates = new Map<string, LoggedCandidate>()
  const slots = new Map<string, LoggedSlot>()
  const stage = (candidate: Candidate): Stage => {
    const status = wireStatus(candidate)
    return { status: status.status, detail: detailOf(status) }
  }
  const moved = (id: string, progress: Progress) => {
    const known = candidates.get(id)
    if (known === undefined) return faults.push(`the log moves ${id}, which was never received`)
    known.progress = progress
    return known.stages.push(stage({ ...known.candidate, progress }))
  }
  for (const [index, { n, k, d }] of rows.entries()) {
    if (Number(n) !== index + 1) faults.push(`record ${index + 1} of the log is missing`)
    if (k === 'candidate.received' && d.candidate) {
      const candidate = { ...d.candidate, progress: { status: 'received' } } as const
      if (candidates.has(candidate.id)) faults.push(`${candidate.id} is received twice`)
      const { progress } = candidate
      candidates.set(candidate.id, { candidate, progress, stages: [stage(candidate)] })
    } else if (k === 'candidate.progress' && d.id && d.progress) moved(d.id, d.progress)
    else if (k === 'candidate.whole' && d.candidate) moved(d.candidate.id, d.candidate.progress)
    else if (k === 'slot.opened' && d.slot) {
      const hashes = new Set<string>(d.slot.attempts.map(({ hash }) => hash))
      slots.set(d.slot.id, { slot: d.slot, hashes, outcome: undefined })
    } else if (k === 'slot.attempt' && d.slotId && d.attempt)
      slots.get(d.slotId)?.hashes.add(d.attempt.hash)
    else if (k === 'slot.closed' && d.slotId) {
      const slot = slots.get(d.slotId)
      if (slot && d.outcome) slot.outcome = d.outcome
    }
  }
  const elections = rows.filter(({ k }) => k === 'leader.elected').length
  return { candidates, slots, elections, records: rows.length }
}

const keyOf = ({ proposer, round, nonce, price }: Candidate) =>
  identityOf(proposer, round.questionId, nonce, price)

function judgeLog(
  { candidates, slots }: Log,
  payloads: readonly Payload[],
  acknowledged: readonly Watched[],
  faults: string[],
): void {
  const ids = new Map<string, string>()
  const sent = new Set(payloads.map(({ identity }) => identity))
  for (const { candidate } of candidates.values()) {
    const key = keyOf(candidate)
    if (ids.has(key)) faults.push(`R2: ${key} is ${ids.get(key)} and ${candidate.id}`)
    if (!sent.has(key)) faults.push(`${key} was never sent`)
    ids.set(key, candidate.id)
  }
  for (const { payload, id } of acknowledged)
    if (ids.get(payload.identity) !== id)
      faults.push(`R1: ${id} was acknowledged; the log has ${ids.get(payload.identity)}`)
  const nonces = new Set<string>()
  for (const { slot } of slots.values()) {
    const nonce = `${slot.executor} ${slot.nonce}`
    if (slot.candidateIds.length === 0) continue
    if (nonces.has(nonce)) faults.push(`R3: two slots with proposals have the nonce ${nonce}`)
    nonces.add(nonce)
  }
}

const nonceOf = ({ proposer, nonce }: Candidate) => `${proposer} ${nonce}`

interface ChainLog {
  readonly logIndex: Hex
  readonly transactionHash: Hex
  readonly topics: readonly Hex[]
}

async function judgeChain(
  chain: DevChain,
  { candidates, slots }: Log,
  faults: string[],
): Promise<Record<string, number>> {
  const rpc = devRpc(chain.rpcUrl)
  const { trust, accounts } = chain.description
  const filter = { address: trust.oracles, topics: [topics.proposePrice], fromBlock: '0x0' }
  const events = await rpc.request<ChainLog[]>('eth_getLogs', [{ ...filter, toBlock: 'latest' }])
  const executedAt = new Map<string, Candidate>()
  const byRound = new Map<string, LoggedCandidate[]>()
  const spent = new Set<string>()
  for (const one of candidates.values()) {
    const { candidate, progress } = one
    const { key } = candidate.round
    byRound.set(key, [...(byRound.get(key) ?? []), one])
    if (progress.status !== 'executed') continue
    const { transactionHash, proposalEventIndex } = progress.submission
    executedAt.set(`${transactionHash} ${proposalEventIndex}`, candidate)
    spent.add(nonceOf(candidate))
  }
  const isSpent = ({ candidate, progress }: LoggedCandidate) =>
    progress.status === 'failed' &&
    progress.failure.code === 'permit_nonce_used' &&
    spent.has(nonceOf(candidate))
  let withoutNonce = 0
  for (const [round, all] of byRound) {
    const executed = all.filter(({ progress }) => progress.status === 'executed').length
    if (executed === 0 && all.every(isSpent)) withoutNonce += 1
    else if (executed !== 1) {
      const ends = all.map(({ progress }) => progress)
      faults.push(`R13: ${executed} were executed in ${round}: ${JSON.stringify(ends)}`)
    }
  }
  for (const { transactionHash, logIndex, topics: said } of events) {
    const at = `${transactionHash} ${Number(logIndex)}`
    const candidate = executedAt.get(at)
    if (candidate === undefined) faults.push(`nobody's proposal is on the chain: ${at}`)
    else if (!said[2]?.endsWith(candidate.proposer.slice(2)))
      faults.push(`${at} is not by ${candidate.proposer}`)
    executedAt.delete(at)
  }
  for (const [at, { id }] of executedAt) faults.push(`${id} is told to be executed at ${at}`)

  const executor = accounts.find(({ role }) => role === 'executor')?.address
  const sent = Number(await rpc.request<Hex>('eth_getTransactionCount', [executor, 'latest']))
  const mined = new Map<number, LoggedSlot>()
  const transactions = new Map<string, string>()
  let reverted = 0
  for (const logged of slots.values()) {
    const { slot, hashes, outcome } = logged
    if (!outcome?.hash) {
      faults.push(`the slot of nonce ${slot.nonce} ended without a transaction`)
      continue
    }
    if (!hashes.has(outcome.hash)) faults.push(`R15: ${outcome.hash} was not in the log before`)
    if (mined.has(slot.nonce)) faults.push(`R3: nonce ${slot.nonce} has two slots that were mined`)
    mined.set(slot.nonce, logged)
    const receipt = await rpc.request<DevReceipt & { from: string }>('eth_getTransactionReceipt', [
      outcome.hash,
    ])
    if (receipt.from !== executor) faults.push(`${outcome.hash} is by ${receipt.from}`)
    if (receipt.status !== '0x1') reverted += 1
    const rounds = slot.candidateIds.map((id) => candidates.get(id)?.candidate.round.key ?? id)
    for (const round of rounds) {
      if (transactions.has(round)) faults.push(`R3: ${round} has a second transaction`)
      transactions.set(round, outcome.hash)
    }
  }
  for (let nonce = 0; nonce < sent; nonce += 1)
    if (!mined.has(nonce)) faults.push(`R3: the transaction of nonce ${nonce} is in no slot`)
  return {
    rounds: byRound.size,
    'rounds whose nonce was spent': withoutNonce,
    events: events.length,
    transactions: sent,
    reverted,
  }
}

function judgeCalls(
  { candidates }: Log,
  payloads: readonly Payload[],
  calls: readonly AdmissionCall[],
  faults: string[],
): Record<string, number> {
  const logged = new Map([...candidates.values()].map((one) => [keyOf(one.candidate), one]))
  const all = payloads.map(({ identity, proposer, questionId, nonce }): LoggedPayload => {
    const found = logged.get(identity)
    const candidate = found && { id: found.candidate.id, stages: found.stages }
    return { identity, proposer, round: questionId, nonce, candidate }
  })
  const groups = groupsOf(all)
  const groupOf = new Map(groups.flatMap((group) => group.map((one) => [one.identity, group])))
  const callsOf = new Map<readonly LoggedPayload[] | undefined, AdmissionCall[]>()
  for (const call of calls) {
    const group = groupOf.get(call.input.identity)
    const history = callsOf.get(group)
    if (history === undefined) callsOf.set(group, [call])
    else history.push(call)
  }
  let unknown = 0
  for (const group of groups) {
    const history = callsOf.get(group) ?? []
    unknown += history.filter(({ output }) => output === undefined).length
    const found = linearize(admissionModel(group), history)
    if (found.isLinearizable) continue
    const stages = group.map(({ candidate }) => candidate)
    faults.push(
      `not linearizable: ${JSON.stringify({ stuck: found.stuck, placed: found.placed.slice(-6), stages })}`,
    )
  }
  return { groups: groups.length, calls: calls.length, 'outcome unknown': unknown }
}

export async function judge(
  { chain, query }: Cluster,
  payloads: readonly Payload[],
  told: { readonly calls: readonly AdmissionCall[]; readonly acknowledged: readonly Watched[] },
): Promise<Verdict> {
  const faults: string[] = []
  const log = await readLog(query, faults)
  judgeLog(log, payloads, told.acknowledged, faults)
  const onChain = await judgeChain(chain, log, faults)
  const linear = judgeCalls(log, payloads, told.calls, faults)
  const { candidates, records, elections } = log
  const acknowledged = told.acknowledged.length
  return {
    faults,
    figures: {
      acknowledged,
      candidates: candidates.size,
      records,
      elections,
      ...onChain,
      ...linear,
    },
  }
}
