/** Reading a whole store to judge it. */
import { knownKind } from '../../core/gateway/ledger/state.js'
import { foldLedger, storeFormat } from '../../core/gateway/ledger/store.js'
import { createAudit } from '../../core/gateway/operator/audit.js'
import { UsageError } from '../../core/protocol/errors.js'
import { inspectLog } from '../../core/storage/inspect.js'
import type { Context } from '../terminal/context.js'
import type { Site } from './access.js'

/**
 * UsageError `no_store` where the folder that gateway.json names does not exist: there is nothing
 * to judge, mend or fold.
 */
export async function requireStore({ files }: Context, { store, loaded }: Site): Promise<void> {
  if (await files.exists(store)) return
  throw new UsageError('no_store', `there is no store at ${store}`, {
    hint: `check \`store\` in ${loaded.path}; \`proposer serve\` makes a store where there is none`,
  })
}

/** The whole store read and judged; looks only. */
export async function inspectStore({ files, hash }: Context, { store }: Site) {
  const fold = foldLedger()
  const audit = createAudit()
  const inspection = await inspectLog(
    { files, hash },
    store,
    { format: storeFormat, knownKinds: knownKind },
    (record) => {
      fold.onRecord(record)
      audit.onRecord(record)
    },
  )
  return { inspection, facts: fold.facts, counts: audit.counts, proven: audit.proven }
}
