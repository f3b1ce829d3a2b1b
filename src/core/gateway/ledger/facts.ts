import { ProposerError, StorageError } from '#protocol/errors'
import type { RecordLog, RecordLogReader } from '#storage/record-log'
import type { Ledger, LedgerFacts, LedgerSettings, StoreInfo } from './ledger.js'
import { activeOf, dayOf, type LedgerState, nonceKeyOf, roundKeyOf, wholeOf } from './state.js'

/**
 * For looking only (R24); the configured allowlist stands in where the store does not exist yet.
 */
export function ledgerReader(
  log: Pick<RecordLogReader, 'read' | 'close'>,
  state: LedgerState,
  settings: LedgerSettings,
): Ledger {
  refuseOtherChain(state.info, settings)
  for (const address of settings.allowlist)
    if (!state.allowlist.has(address)) state.allowlist.set(address, true)
  const readOnly = () =>
    Promise.reject(
      new StorageError('store_read_only', 'this store is open read-only', {
        httpStatus: 503,
        hint: 'use a command that starts the gateway, or send the request to the running one',
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

type Verbs = Pick<Ledger, 'catchUp' | 'admit' | 'replay' | 'commit' | 'onChange' | 'close'>

export function ledgerOf(
  log: RecordLog | Pick<RecordLogReader, 'read'>,
  state: LedgerState,
  settings: LedgerSettings,
  verbs: Verbs,
): Ledger {
  const own: Omit<Ledger, keyof Verbs | keyof LedgerFacts> = {
    get failed() {
      return 'failed' in log ? log.failed : undefined
    },
    get down() {
      return 'down' in log ? log.down : undefined
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
    async progressedAtMs(id) {
      const at = state.entries.get(id)?.progressAt ?? -1
      if (at < 0) return undefined
      try {
        return (await log.read(at)).timeMs
      } catch (error) {
        if (error instanceof ProposerError && error.code === 'position_retired') return undefined
        throw error
      }
    },
  }
  const facts = ledgerFacts(state) as LedgerFacts & typeof own
  // Getters stay getters.
  Object.defineProperties(facts, Object.getOwnPropertyDescriptors(own))
  return Object.assign(facts, verbs)
}

export const ledgerFacts = (state: LedgerState): LedgerFacts => ({
  get info() {
    return state.info
  },
  get admissionSwitch() {
    return state.admissionEnabled
  },
  get admissionDecision() {
    return state.admissionDecision
  },
  get finalized() {
    return state.finalized
  },
  questions: state.questions,
  implementations: state.implementations,
  failures: state.failures,
  receiptKeys: state.receiptKeys,
  byIdentity: (identity) => state.entries.byIdentity(identity),
  byId: (id) => state.entries.get(id),
  activeInRound: (proposer, roundKey) => state.byRound.get(roundKeyOf(proposer, roundKey)),
  activeWithNonce: (proposer, nonce) => state.byNonce.get(nonceKeyOf(proposer, nonce)),
  eligible: (proposer) => state.allowlist.get(proposer) === true,
  failedBytes(proposer, nowMs) {
    const known = state.failedBytes.get(proposer)
    return known?.day === dayOf(nowMs) ? known.bytes : 0
  },
  byRound: (roundKey) => state.entries.inRound(roundKey),
  newest: (count) => state.entries.newest(count),
  counts: () => state.entries.counts(),
  active: () => activeOf(state),
  slots: () => [...state.slots.values()].sort((a, b) => a.nonce - b.nonce),
  slotOf: (candidateId) => state.slots.get(state.slotOf.get(candidateId) ?? ''),
  highestNonce: (executor) => state.highestNonce.get(executor) ?? -1,
})

export function refuseOtherChain(
  info: StoreInfo | undefined,
  { chainId, genesisHash = info?.genesisHash }: LedgerSettings,
) {
  if (!info || (info.chainId === chainId && info.genesisHash === genesisHash)) return
  throw new StorageError(
    'store_other_chain',
    `this store belongs to chain ${info.chainId} (genesis ${info.genesisHash}); the node is on chain ${chainId} (genesis ${genesisHash})`,
    'point chain.rpc_urls at the chain of the store, or use another store',
  )
}
