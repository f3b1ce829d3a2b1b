/** Reading a whole store to judge it. */
import { knownKind } from '../../core/gateway/ledger/state.js'
import { foldLedger, storeFormat } from '../../core/gateway/ledger/store.js'
import { createAudit } from '../../core/gateway/operator/audit.js'
import { inspectLog } from '../../core/storage/inspect.js'
import type { Context } from '../context.js'
import type { Site } from './access.js'

/** The whole store read and judged; looks only. */
export async function inspectStore({ files, hash }: Context, { store }: Site) {
  const fold = foldLedger()
  const audit = createAudit(fold.state)
  const inspection = await inspectLog({ files, hash }, store, { format: storeFormat, knownKinds: knownKind }, (record) => {
    fold.onRecord(record)
    audit.onRecord(record)
  })
  return { inspection, state: fold.state, counts: audit.counts }
}
