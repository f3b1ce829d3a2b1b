/** Reading a whole store to judge it. */
import { storeLog } from '../../core/gateway/ledger/open-store.js'
import { foldLedger } from '../../core/gateway/ledger/store.js'
import { createAudit } from '../../core/gateway/operator/audit.js'
import { UsageError } from '../../core/protocol/errors.js'
import { inspectLog } from '../../core/storage/inspect.js'
import type { StoredRecord } from '../../core/storage/record-log.js'
import type { Context } from '../terminal/context.js'
import type { Site } from './access.js'

/**
 * UsageError `no_store` where the folder that gateway.json names does not exist. Of a database the
 * opening itself says what is missing.
 */
export async function requireStore({ files }: Context, { store, loaded }: Site): Promise<void> {
  if (loaded.place.kind === 'database' || (await files.exists(store))) return
  throw new UsageError('no_store', `no store found at ${store}`, {
    hint: `check \`store\` in ${loaded.path}; \`proposer serve\` makes a store where there is none`,
  })
}

/** What records come to, and whether they are unique: to be fed with each in order. */
export function storeJudge() {
  const { onRecord, facts } = foldLedger()
  const audit = createAudit()
  return {
    facts,
    counts: audit.counts,
    onRecord(record: StoredRecord) {
      onRecord(record)
      audit.onRecord(record)
    },
  }
}

/** The whole store read and judged; looks only. */
export async function inspectStore({ files, hash }: Context, { store }: Pick<Site, 'store'>) {
  const judge = storeJudge()
  const inspection = await inspectLog({ files, hash }, store, storeLog, judge.onRecord)
  return { inspection, ...judge }
}
