/**
 * The ledger on a record log (robustness §2). Another log, PostgreSQL's say, takes the place of the
 * one on disk unchanged (R25).
 */

import pLimit, { type LimitFunction } from 'p-limit'
import type { Clock, Hex, Random } from '../../ports.js'
import type { Candidate } from '../../protocol/candidate.js'
import { StorageError } from '../../protocol/errors.js'
import type { Address } from '../../protocol/schema.js'
import type { RecordLog, RecordLogReader, StoredRecord } from '../../storage/record-log.js'
import type { CandidateEntry } from './entries.js'
import type {
  Admission,
  Change,
  Ledger,
  LedgerEvent,
  LedgerFacts,
  NewCandidate,
  StoreInfo,
} from './ledger.js'
import {
  activeOf,
  apply,
  changeFault,
  emptyState,
  type LedgerRecord,
  type LedgerState,
  nonceSlot,
  roundSlot,
} from './state.js'
import { toRecord, wholeOf } from './whole.js'

/** Version of the records below; a store of a higher one is refused (robustness §2, Versions). */
export const storeFormat = { name: 'store', version: 1 } as const

/** What configuration and chain say of a store. */
export interface LedgerSettings {
  readonly chainId: number
  /** `undefined` where the node could not be asked; then the store has to exist. */
  readonly genesisHash: Hex | undefined
  /**
   * gateway.json's allowlist: wallets the store has never heard of are allowed, those an operator
   * took off stay off (contract §7).
   */
  readonly allowlist: readonly Address[]
  /** gateway.json's `admission.enabled`; the operator's own switch lies in the store. */
  readonly admissionEnabled: boolean
}

/**
 * Folds a log while it is being opened: hand `onRecord` to the opening, then `state` with what it
 * opened to `openLedger` or `ledgerReader`. `facts` may be asked before that.
 */
export function foldLedger(): {
  onRecord(record: StoredRecord): void
  readonly state: LedgerState
  readonly facts: LedgerFacts
} {
  const state = emptyState()
  return {
    state,
    facts: factsOf(state),
    onRecord(record) {
      try {
        apply(state, record)
      } catch (cause) {
        throw new StorageError(
          'store_damaged',
          `record ${record.sequence} (${record.kind}) contradicts the records before it: ${String(cause)}`,
          { hint: 'restore the store from a backup, and report this', cause },
        )
      }
    },
  }
}

/** An open ledger. */
interface Open {
  readonly clock: Clock
  readonly random: Random
  readonly log: RecordLog
  readonly state: LedgerState
  readonly listeners: Set<(changes: readonly LedgerEvent[]) => void>
  /** A change is judged on the state that all earlier ones have left. */
  readonly inOrder: LimitFunction
  claims: Claims
}

/** What a group of appends claims before it is durable; void once the next group is decided. */
interface Claims {
  readonly group: number
  readonly byIdentity: Map<string, Candidate>
  /** Ids of candidates, by round and by nonce of their proposers. */
  readonly byKey: Map<string, string>
}

const noClaims = (group: number): Claims => ({ group, byIdentity: new Map(), byKey: new Map() })

/**
 * The ledger for writing; a new store gets its identity first. Throws StorageError
 * `store_other_chain` where the store belongs to another chain, RangeError for a new store without
 * a genesis hash.
 */
export async function openLedger(
  { clock, random }: { readonly clock: Clock; readonly random: Random },
  log: RecordLog,
  state: LedgerState,
  settings: LedgerSettings,
): Promise<Ledger> {
  const inOrder = pLimit(1)
  const listeners: Open['listeners'] = new Set()
  const open: Open = { clock, random, log, state, listeners, inOrder, claims: noClaims(0) }
  const { chainId, genesisHash } = settings
  if (state.info === undefined) {
    if (genesisHash === undefined) throw new RangeError('a new store needs the genesis hash')
    const info = { storeId: random.uuid(), chainId, genesisHash }
    await write(open, () => [{ kind: 'store.opened', info }])
  }
  refuseOtherChain(state.info, settings)
  const reason = 'listed in the configuration'
  const listed = [...new Set(settings.allowlist)]
    .filter((address) => !state.allowlist.has(address))
    .map((address) => ({ kind: 'allowlist.set', address, allowed: true, reason }) as const)
  if (listed.length > 0) await write(open, () => listed)
  return ledgerOf(log, state, settings, {
    admit: (candidate) => admit(open, candidate),
    replay: (id) => replay(open, id),
    commit: (changes, basis) => inOrder(() => commit(open, changes, basis)),
    onChange(listener) {
      listeners.add(listener)
      return () => {
        listeners.delete(listener)
      }
    },
    async close() {
      await inOrder(async () => undefined)
      await log.close()
    },
  })
}

function write(
  { log, state }: Open,
  decide: (group: number) => readonly LedgerRecord[],
  aboutBytes?: number,
): Promise<unknown> {
  return log.append(
    (group) => decide(group).map(toRecord),
    (stored) => {
      for (const record of stored) apply(state, record)
    },
    aboutBytes,
  )
}

function report({ listeners }: Open, events: readonly LedgerEvent[]): void {
  for (const listener of listeners) listener(events)
}

/** Those of an earlier group are applied by now, or have failed with it. */
function claimsOf(open: Open, group: number): Claims {
  if (open.claims.group !== group) open.claims = noClaims(group)
  return open.claims
}

/** About what a candidate's record takes, in bytes: signatures of contract wallets are long. */
const bytesOf = ({ signature }: NewCandidate): number => signature.length + 1_536

const keysOf = ({ proposer, round, nonce }: NewCandidate) =>
  [roundSlot(proposer, round.key), nonceSlot(proposer, nonce)] as const

/** What a new candidate meets: a copy in this group, one that is known, or a rival. */
type Met =
  | { readonly kind: 'copy'; readonly candidate: Candidate }
  | { readonly kind: 'known'; readonly entry: CandidateEntry }
  | Extract<Admission, { kind: 'conflict' }>

function met(
  state: LedgerState,
  candidate: NewCandidate,
  { byIdentity, byKey }: Claims,
): Met | undefined {
  const copy = byIdentity.get(candidate.identity)
  if (copy) return { kind: 'copy', candidate: copy }
  const entry = state.entries.byIdentity(candidate.identity)
  if (entry) return { kind: 'known', entry }
  const [round, nonce] = keysOf(candidate)
  const inRound = state.byRound.get(round)?.id ?? byKey.get(round)
  if (inRound) return { kind: 'conflict', candidateId: inRound, reason: 'round' }
  const withNonce = state.byNonce.get(nonce)?.id ?? byKey.get(nonce)
  return withNonce ? { kind: 'conflict', candidateId: withNonce, reason: 'nonce' } : undefined
}

async function admit(open: Open, candidate: NewCandidate): Promise<Admission> {
  const { state, log } = open
  let found = met(state, candidate, noClaims(0))
  let admitted: Candidate | undefined
  if (found === undefined) {
    await write(
      open,
      (group) => {
        const claims = claimsOf(open, group)
        found = met(state, candidate, claims)
        if (found) return []
        const received = {
          ...candidate,
          id: open.random.uuid(),
          sequence: state.nextSequence + claims.byIdentity.size,
          receivedAtMs: open.clock.nowMs(),
        }
        admitted = { ...received, progress: { status: 'received' } }
        claims.byIdentity.set(candidate.identity, admitted)
        for (const key of keysOf(candidate)) claims.byKey.set(key, received.id)
        return [{ kind: 'candidate.received', candidate: received }]
      },
      bytesOf(candidate),
    )
  }
  switch (found?.kind) {
    case 'conflict':
      return found
    case 'copy':
      return { kind: 'replayed', candidate: found.candidate }
    case 'known':
      return { kind: 'replayed', candidate: await wholeOf(log, state, found.entry) }
  }
  if (admitted === undefined) throw new Error('an admission was left undecided')
  report(open, [{ kind: 'candidate.received', candidate: admitted }])
  return { kind: 'admitted', candidate: admitted }
}

async function replay(open: Open, id: string): Promise<Candidate> {
  const { log, state } = open
  const known = state.entries.get(id)
  if (!known) throw new RangeError(`no candidate ${id}`)
  if (!known.retryable) return wholeOf(log, state, known)
  return open.inOrder(async () => {
    const candidate = await wholeOf(log, state, state.entries.get(id) ?? known)
    // What is durable says no already: a disk that takes no writes is no reason to refuse the
    // answer.
    if (!mayRevive(state, candidate, noClaims(0))) return candidate
    const revived: Candidate = { ...candidate, progress: { status: 'received' } }
    let isRevived = false
    await write(
      open,
      (group) => {
        const claims = claimsOf(open, group)
        if (!mayRevive(state, candidate, claims)) return []
        isRevived = true
        for (const key of keysOf(candidate)) claims.byKey.set(key, id)
        return [{ kind: 'candidate.whole', candidate: revived }]
      },
      bytesOf(candidate),
    )
    if (!isRevived) return candidate
    report(open, [{ kind: 'candidate.progress', id, progress: revived.progress }])
    return revived
  })
}

function mayRevive(state: LedgerState, candidate: Candidate, { byKey }: Claims): boolean {
  const entry = state.entries.get(candidate.id)
  const [round, nonce] = keysOf(candidate)
  return (
    entry?.status === 'failed' &&
    entry.retryable &&
    !state.slotOf.has(candidate.id) &&
    !state.byRound.has(round) &&
    !state.byNonce.has(nonce) &&
    !byKey.has(round) &&
    !byKey.has(nonce)
  )
}

async function commit(
  open: Open,
  changes: readonly Change[],
  basis: readonly Candidate[] = [],
): Promise<boolean> {
  const { state } = open
  let stands = true
  const decide = () => {
    stands = basis.every(({ id, progress }) => state.entries.get(id)?.status === progress.status)
    if (!stands) return []
    const fault = changeFault(state, changes)
    if (fault) throw new RangeError(fault)
    return changes
  }
  if (changes.length === 0) decide()
  else await write(open, decide, JSON.stringify(changes).length)
  if (stands && changes.length > 0) report(open, changes)
  return stands
}

/**
 * The ledger of a store opened for looking only (R24); the configured allowlist stands in where the
 * store does not exist yet. Whatever would write rejects with StorageError `store_read_only`.
 */
export function ledgerReader(
  log: RecordLogReader,
  state: LedgerState,
  settings: LedgerSettings,
): Ledger {
  refuseOtherChain(state.info, settings)
  for (const address of settings.allowlist)
    if (!state.allowlist.has(address)) state.allowlist.set(address, true)
  const readOnly = () =>
    Promise.reject(
      new StorageError('store_read_only', 'this store is open for looking only', {
        httpStatus: 503,
        hint: 'use a command that runs the gateway, or send to the one that serves',
      }),
    )
  return ledgerOf(log, state, settings, {
    admit: readOnly,
    replay: (id) => {
      const entry = state.entries.get(id)
      return entry ? wholeOf(log, state, entry) : readOnly()
    },
    commit: readOnly,
    onChange: () => () => undefined,
    close: () => log.close(),
  })
}

type Verbs = Pick<Ledger, 'admit' | 'replay' | 'commit' | 'onChange' | 'close'>

function ledgerOf(
  log: RecordLog | RecordLogReader,
  state: LedgerState,
  settings: LedgerSettings,
  verbs: Verbs,
): Ledger {
  const own: Omit<Ledger, keyof Verbs | keyof LedgerFacts> = {
    get failed() {
      return 'failed' in log ? log.failed : undefined
    },
    get isFull() {
      // A log that failed is closed too, and no room on the disk opens it again.
      return 'closed' in log && log.closed && log.failed === undefined
    },
    get admissionEnabled() {
      return state.admissionEnabled && settings.admissionEnabled
    },
    get allowlist() {
      const allowed = [...state.allowlist].filter(([, isAllowed]) => isAllowed)
      return new Set(allowed.map(([address]) => address))
    },
    get: async (id) => {
      const entry = state.entries.get(id)
      return entry && wholeOf(log, state, entry)
    },
  }
  return withGetters(factsOf(state), own, verbs)
}

/** One object of several; getters stay getters. */
function withGetters<A extends object, B extends object, C extends object>(
  ...parts: readonly [A, B, C]
): A & B & C {
  return Object.defineProperties(
    {} as A & B & C,
    Object.assign({}, ...parts.map((part) => Object.getOwnPropertyDescriptors(part))),
  )
}

const factsOf = (state: LedgerState): LedgerFacts => ({
  get info() {
    return state.info
  },
  get admissionSwitch() {
    return state.admissionEnabled
  },
  get finalized() {
    return state.finalized
  },
  questions: state.questions,
  byIdentity: (identity) => state.entries.byIdentity(identity),
  byId: (id) => state.entries.get(id),
  activeInRound: (proposer, roundKey) => state.byRound.get(roundSlot(proposer, roundKey)),
  activeWithNonce: (proposer, nonce) => state.byNonce.get(nonceSlot(proposer, nonce)),
  eligible: (proposer) => state.allowlist.get(proposer) === true,
  byRound: (roundKey) => state.entries.inRound(roundKey),
  newest: (count) => state.entries.newest(count),
  counts: () => state.entries.counts(),
  active: () => activeOf(state),
  slots: () => [...state.slots.values()].sort((a, b) => a.nonce - b.nonce),
  slotOf: (candidateId) => state.slots.get(state.slotOf.get(candidateId) ?? ''),
  highestNonce: (executor) => state.highestNonce.get(executor) ?? -1,
})

function refuseOtherChain(
  info: StoreInfo | undefined,
  { chainId, genesisHash = info?.genesisHash }: LedgerSettings,
): void {
  if (!info || (info.chainId === chainId && info.genesisHash === genesisHash)) return
  throw new StorageError(
    'store_other_chain',
    `this store belongs to chain ${info.chainId} (genesis ${info.genesisHash}), the node is on chain ${chainId} (genesis ${genesisHash})`,
    { hint: 'point chain.rpc_urls at the chain of the store, or name another store' },
  )
}
