/**
 * The ledger on a record log (robustness §2). Another log, PostgreSQL's say, takes the place of the
 * one on disk unchanged (R25).
 */
import type { Address, Clock, Hex, Random } from '../../ports.js'
import type { Candidate, Progress } from '../../protocol/candidate.js'
import { ProposerError, StorageError } from '../../protocol/errors.js'
import type {
  NewRecord,
  Position,
  RecordLog,
  RecordLogReader,
  StoredRecord,
} from '../../storage/record-log.js'
import type { Entry } from './entries.js'
import type { Admission, Change, Ledger, LedgerEvent, NewCandidate, StoreInfo } from './ledger.js'
import { pastOf } from './past.js'
import {
  activeOf,
  apply,
  changeFault,
  emptyState,
  headOf,
  type LedgerRecord,
  type LedgerState,
  nonceSlot,
  type ReceivedData,
  roundSlot,
} from './state.js'

export interface LedgerPorts {
  readonly clock: Clock
  readonly random: Random
}

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
 * Places that a group of appends takes, before it is durable; void once the next group is decided.
 */
interface Claims {
  readonly group: number
  readonly byIdentity: Map<string, Candidate>
  /** Ids of candidates, by round and by nonce of their proposers. */
  readonly places: Map<string, string>
}

const noClaims = (group: number): Claims => ({ group, byIdentity: new Map(), places: new Map() })

/** What a new candidate meets: a copy, a rival, or nothing. */
type Met =
  | { readonly kind: 'copy'; readonly candidate: Candidate }
  | { readonly kind: 'known'; readonly entry: Entry }
  | Extract<Admission, { kind: 'conflict' }>

/** About what a candidate's record takes, in bytes: signatures of contract wallets are long. */
const bytesOf = ({ signature }: NewCandidate): number => signature.length + 1_536

const toRecord = ({ kind, ...data }: LedgerRecord): NewRecord => ({ kind, data })

/**
 * Folds a log while it is being opened: hand `onRecord` to the opening, then `ledger` or `reader`
 * to what it opened. Kept apart from the opening, so that the ledger never sees a file.
 */
export function foldLedger(): { onRecord(record: StoredRecord): void; state: LedgerState } {
  const state = emptyState()
  return {
    state,
    onRecord(record) {
      try {
        apply(state, record)
      } catch (error) {
        throw new StorageError(
          'store_damaged',
          `record ${record.sequence} (${record.kind}) contradicts the records before it: ${String(error)}`,
          {
            hint: 'restore the store from a backup, and report this',
            cause: error,
          },
        )
      }
    },
  }
}

/**
 * The ledger for writing; a new store gets its identity first. Throws StorageError
 * `store_other_chain` where the store belongs to another chain, RangeError for a new store without
 * a genesis hash.
 */
export async function openLedger(
  ports: LedgerPorts,
  log: RecordLog,
  state: LedgerState,
  settings: LedgerSettings,
): Promise<Ledger> {
  const listeners = new Set<(changes: readonly LedgerEvent[]) => void>()
  let claims = noClaims(0)
  let commits: Promise<unknown> = Promise.resolve()

  const write = (decide: (group: number) => readonly LedgerRecord[], aboutBytes?: number) =>
    log.append(
      (group) => decide(group).map(toRecord),
      (stored) => {
        for (const record of stored) apply(state, record)
      },
      aboutBytes,
    )
  const tell = (events: readonly LedgerEvent[]) => {
    for (const listener of listeners) listener(events)
  }
  const claimsOf = (group: number) => {
    // Those of an earlier group are applied by now, or have failed with it.
    if (claims.group !== group) claims = noClaims(group)
    return claims
  }
  /** One after the other: a change is judged on the state that all earlier ones have left. */
  const inTurn = <T>(step: () => Promise<T>): Promise<T> => {
    const next = commits.then(step)
    // The chain goes on after a failure, which its own caller hears of.
    commits = next.catch(() => undefined)
    return next
  }

  const { chainId, genesisHash } = settings
  if (state.info === undefined) {
    if (genesisHash === undefined) throw new RangeError('a new store needs the genesis hash')
    const info = { storeId: ports.random.uuid(), chainId, genesisHash }
    await write(() => [{ kind: 'store.opened', info }])
  }
  refuseOtherChain(state.info, settings)
  const unheard = [...new Set(settings.allowlist)].filter(
    (address) => !state.allowlist.has(address),
  )
  if (unheard.length > 0) {
    await write(() =>
      unheard.map(
        (address) =>
          ({
            kind: 'allowlist.set',
            address,
            allowed: true,
            reason: 'listed in the configuration',
          }) as const,
      ),
    )
  }

  function met(candidate: NewCandidate, { byIdentity, places }: Claims): Met | undefined {
    const copy = byIdentity.get(candidate.identity)
    if (copy) return { kind: 'copy', candidate: copy }
    const known = state.entries.byIdentity(candidate.identity)
    if (known) return { kind: 'known', entry: known }
    const round = roundSlot(candidate.proposer, candidate.round.key)
    const inRound = state.byRound.get(round)?.id ?? places.get(round)
    if (inRound) return { kind: 'conflict', candidateId: inRound, reason: 'round' }
    const nonce = nonceSlot(candidate.proposer, candidate.nonce)
    const withNonce = state.byNonce.get(nonce)?.id ?? places.get(nonce)
    return withNonce ? { kind: 'conflict', candidateId: withNonce, reason: 'nonce' } : undefined
  }

  function claim(candidate: Candidate, { byIdentity, places }: Claims): void {
    byIdentity.set(candidate.identity, candidate)
    places.set(roundSlot(candidate.proposer, candidate.round.key), candidate.id)
    places.set(nonceSlot(candidate.proposer, candidate.nonce), candidate.id)
  }

  async function admit(candidate: NewCandidate): Promise<Admission> {
    let found = met(candidate, noClaims(0))
    let admitted: Candidate | undefined
    if (found === undefined) {
      await write((group) => {
        const taken = claimsOf(group)
        found = met(candidate, taken)
        if (found) return []
        const sequence = state.nextSequence + taken.byIdentity.size
        const received: ReceivedData = {
          ...candidate,
          id: ports.random.uuid(),
          sequence,
          receivedAtMs: ports.clock.nowMs(),
        }
        admitted = { ...received, progress: { status: 'received' } }
        claim(admitted, taken)
        return [{ kind: 'candidate.received', candidate: received }]
      }, bytesOf(candidate))
    }
    if (found?.kind === 'conflict') return found
    if (found)
      return {
        kind: 'replayed',
        candidate: found.kind === 'copy' ? found.candidate : await wholeOf(log, state, found.entry),
      }
    if (admitted === undefined) throw new Error('an admission was left undecided')
    tell([{ kind: 'candidate.received', candidate: admitted }])
    return { kind: 'admitted', candidate: admitted }
  }

  async function replay(id: string): Promise<Candidate> {
    const known = state.entries.get(id)
    if (!known) throw new RangeError(`no candidate ${id}`)
    if (!known.retryable) return wholeOf(log, state, known)
    return inTurn(async () => {
      const candidate = await wholeOf(log, state, state.entries.get(id) ?? known)
      const revived: Candidate = { ...candidate, progress: { status: 'received' } }
      const places = [
        roundSlot(candidate.proposer, candidate.round.key),
        nonceSlot(candidate.proposer, candidate.nonce),
      ]
      const mayRevive = (taken: Claims) => {
        const entry = state.entries.get(id)
        const isTaken = places.some(
          (key) => state.byRound.has(key) || state.byNonce.has(key) || taken.places.has(key),
        )
        return entry?.status === 'failed' && entry.retryable && !isTaken && !state.slotOf.has(id)
      }
      // What is durable says no already: a disk that takes no writes is no reason to refuse the
      // answer.
      if (!mayRevive(noClaims(0))) return candidate
      let isRevived = false
      await write((group) => {
        const taken = claimsOf(group)
        if (!mayRevive(taken)) return []
        isRevived = true
        for (const key of places) taken.places.set(key, id)
        return [{ kind: 'candidate.whole', candidate: revived }]
      }, bytesOf(candidate))
      if (!isRevived) return candidate
      tell([{ kind: 'candidate.progress', id, progress: revived.progress }])
      return revived
    })
  }

  function commit(changes: readonly Change[], basis: readonly Candidate[] = []): Promise<boolean> {
    return inTurn(async () => {
      let stands = true
      const decide = () => {
        stands = basis.every(
          ({ id, progress }) => state.entries.get(id)?.status === progress.status,
        )
        if (!stands) return []
        const fault = changeFault(state, changes)
        if (fault) throw new RangeError(fault)
        return changes
      }
      if (changes.length === 0) decide()
      else await write(decide, JSON.stringify(changes).length)
      if (stands && changes.length > 0) tell(changes)
      return stands
    })
  }

  // Assigned onto the look-ups, because a spread would freeze their getters.
  return Object.assign(lookUps(state, log, settings), {
    admit,
    replay,
    commit,
    onChange(listener: (changes: readonly LedgerEvent[]) => void) {
      listeners.add(listener)
      return () => {
        listeners.delete(listener)
      }
    },
    async close() {
      await commits
      await log.close()
    },
  })
}

/**
 * The ledger of a store opened for looking only (R24); the configured allowlist stands in where the
 * store does not exist yet. Every verb that would write throws StorageError `store_read_only`.
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
  return Object.assign(lookUps(state, log, settings), {
    admit: readOnly,
    replay: async (id: string) => {
      const entry = state.entries.get(id)
      return entry ? wholeOf(log, state, entry) : readOnly()
    },
    commit: readOnly,
    onChange: () => () => undefined,
    close: () => log.close(),
  })
}

type LookUps = Omit<Ledger, 'admit' | 'replay' | 'commit' | 'onChange' | 'close'>

function lookUps(
  state: LedgerState,
  log: RecordLogReader | RecordLog,
  settings: LedgerSettings,
): LookUps {
  return {
    get failed() {
      return 'failed' in log ? log.failed : undefined
    },
    get isFull() {
      // A log that failed is closed too, and no room on the disk opens it again.
      return 'closed' in log && log.closed && log.failed === undefined
    },
    get info() {
      return state.info
    },
    get admissionEnabled() {
      return state.admissionEnabled && settings.admissionEnabled
    },
    get admissionSwitch() {
      return state.admissionEnabled
    },
    get allowlist() {
      return new Set(
        [...state.allowlist].filter(([, allowed]) => allowed).map(([address]) => address),
      )
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
    get: async (id) => {
      const entry = state.entries.get(id)
      return entry && wholeOf(log, state, entry)
    },
    active: () => activeOf(state),
    slots: () => [...state.slots.values()].sort((a, b) => a.nonce - b.nonce),
    highestNonce: (executor) => state.highestNonce.get(executor) ?? -1,
  }
}

/** A candidate from memory, or from its two records. */
async function wholeOf(
  log: Pick<RecordLog, 'read'>,
  state: LedgerState,
  known: Entry,
): Promise<Candidate> {
  for (let entry = known; ; ) {
    try {
      return entry.live ?? (await readWhole(log, entry))
    } catch (error) {
      // A compaction moved the records between the look-up and the read: the state knows the new
      // place.
      const now =
        error instanceof ProposerError && error.code === 'position_retired'
          ? state.entries.get(entry.id)
          : undefined
      if (now === undefined || now.receivedAt === entry.receivedAt) throw error
      entry = now
    }
  }
}

async function readWhole(log: Pick<RecordLog, 'read'>, entry: Entry): Promise<Candidate> {
  const { receivedAt, progressAt } = entry
  const received = asEvent(await log.read(receivedAt))
  const newest = progressAt < 0 ? undefined : asEvent(await log.read(progressAt))
  if (received.kind !== 'candidate.received' && received.kind !== 'candidate.whole')
    throw misplaced(entry, receivedAt)
  if (newest === undefined) {
    const progress: Progress =
      received.kind === 'candidate.whole' ? received.candidate.progress : { status: 'received' }
    return { ...received.candidate, progress }
  }
  if (newest.kind !== 'candidate.progress' || newest.id !== entry.id)
    throw misplaced(entry, progressAt)
  return { ...received.candidate, progress: newest.progress }
}

const asEvent = (record: StoredRecord) =>
  ({ kind: record.kind, ...(record.data as object) }) as LedgerRecord

function misplaced(entry: Entry, position: Position): StorageError {
  return new StorageError(
    'store_damaged',
    `no record of candidate ${entry.id} lies at position ${position}`,
    {
      httpStatus: 500,
      hint: 'stop the gateway and restore the store from a backup',
    },
  )
}

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

/**
 * Folds the store: closed slots and superseded progress go, everything that may ever be asked for
 * stays. What was written at `keepSinceMs` (Unix milliseconds; default: from the beginning) or
 * later stays told as `past`, but for the raw bytes of transactions. Appends go on meanwhile; a
 * crash leaves the old or the new files whole.
 */
export async function compactLedger(
  log: RecordLog,
  state: LedgerState,
  keepSinceMs = 0,
): Promise<void> {
  let kept: ReturnType<LedgerState['entries']['cut']> | undefined
  let ahead = 0
  await log.compact(
    () => {
      const head: LedgerRecord[] = [
        ...(state.info ? [{ kind: 'store.opened', info: state.info } as const] : []),
        {
          kind: 'admission.set',
          enabled: state.admissionEnabled,
          reason: 'compaction',
          folded: true,
        },
        ...(state.finalized
          ? [
              {
                kind: 'chain.finalized',
                number: String(state.finalized.number),
                hash: state.finalized.hash,
              } as const,
            ]
          : []),
        ...[...state.allowlist].map(
          ([address, allowed]) =>
            ({
              kind: 'allowlist.set',
              address,
              allowed,
              reason: 'compaction',
              folded: true,
            }) as const,
        ),
        ...[...state.questions].map(([questionId, entry]) =>
          entry === null
            ? ({
                kind: 'question.removed',
                questionId,
                reason: 'compaction',
                folded: true,
              } as const)
            : ({ kind: 'question.set', entry, reason: 'compaction', folded: true } as const),
        ),
        ...[...state.highestNonce].map(
          ([executor, nonce]) => ({ kind: 'executor.nonce', executor, nonce }) as const,
        ),
        ...[...state.slots.values()].map(
          (slot) => ({ kind: 'slot.opened', slot, folded: true }) as const,
        ),
      ]
      ahead = head.length
      const atCut = state.entries.cut()
      kept = atCut
      const past = pastOf(
        log.scan(),
        { ...state, live: new Set(state.live), slots: new Map(state.slots) },
        keepSinceMs,
      )
      return (async function* () {
        for (const record of head) yield toRecord(record)
        for (const entry of atCut.entries()) {
          const candidate = entry.live ?? (await readWhole(log, entry))
          const record = toRecord({ kind: 'candidate.whole', candidate, folded: true })
          yield entry.live === undefined ? { ...record, head: headOf(candidate) } : record
        }
        for await (const record of past) yield toRecord(record)
      })()
    },
    (ordinal, position) => kept?.moved(ordinal - ahead, position),
  )
}
