/**
 * The operator's desk with its real edges: behind a serving gateway, or on a store whose lock a
 * command holds itself (contract §6).
 */
import { aggregating } from '../../core/chain/aggregate.js'
import {
  createRoundReader,
  type RegistryEntry,
  type RoundReader,
} from '../../core/chain/questions.js'
import { contractsOf } from '../../core/gateway/config.js'
import type { Ledger } from '../../core/gateway/ledger/ledger.js'
import type { LedgerState } from '../../core/gateway/ledger/state.js'
import { compactLedger } from '../../core/gateway/ledger/store.js'
import { createDesk, type Desk, type DeskParts } from '../../core/gateway/operator/desk.js'
import type { LiveView } from '../../core/gateway/view/view.js'
import { type Chain, ChainError, type Files } from '../../core/ports.js'
import { UnavailableError } from '../../core/protocol/errors.js'
import { joinPath } from '../../core/storage/durable.js'
import { named } from '../../core/storage/failures.js'
import type { RecordLog } from '../../core/storage/record-log.js'
import type { Context } from '../terminal/context.js'
import type { LoadedConfig } from './gateway-host.js'

interface OpenStore {
  readonly folder: string
  readonly log: RecordLog
  readonly state: LedgerState
  readonly ledger: Ledger
  readonly configured: readonly RegistryEntry[]
}

/**
 * What is known of a question by the head that the view has followed, which is how the gateway
 * would serve it.
 */
export function deskOfView(
  context: Context,
  open: OpenStore,
  view: LiveView,
  registered: Set<string>,
): Desk {
  return deskOn(context, open, {
    isKnown: (entry) =>
      asked(async () => {
        const heads = view.heads()
        const [fault] = view.faults()
        if (heads === undefined || fault !== undefined)
          throw new ChainError('unavailable', fault ?? 'the chain has not been read yet')
        return isKnownBy(view.rounds, entry, heads.latest.number)
      }),
    onRegistry(change) {
      const slug = view.entry('set' in change ? change.set.questionId : change.removed)?.slug
      if (slug !== undefined) registered.delete(slug)
      if ('removed' in change) view.removeEntry(change.removed)
      else {
        view.setEntry(change.set)
        if (change.set.slug !== undefined) registered.add(change.set.slug)
      }
    },
  })
}

/**
 * The same without a gateway: the chain is asked by the nodes that gateway.json names, and only
 * where a question needs it.
 */
export function deskOfChain(
  context: Context,
  open: OpenStore,
  { config }: LoadedConfig,
  chain: () => Promise<Chain>,
): Desk {
  let reading: Promise<{ readonly rounds: RoundReader; readonly head: bigint }> | undefined
  const begin = async () => {
    const found = await chain()
    const chainId = await found.chainId()
    if (chainId !== config.chain.id)
      throw new ChainError(
        'unavailable',
        `the node is on chain ${chainId}, not on ${config.chain.id}`,
      )
    const head = await found.block('latest')
    if (head === null) throw new ChainError('unavailable', 'the node knows no latest block')
    const { breathe } = await import('../../core/io/serving/load.js')
    return {
      rounds: createRoundReader(aggregating(found, breathe), contractsOf(config)),
      head: head.number,
    }
  }
  return deskOn(context, open, {
    isKnown: (entry) =>
      asked(async () => {
        reading ??= begin()
        const { rounds, head } = await reading
        return isKnownBy(rounds, entry, head)
      }),
  })
}

function deskOn(
  { clock, files }: Context,
  open: OpenStore,
  parts: Pick<DeskParts, 'isKnown' | 'onRegistry'>,
): Desk {
  const { folder, log, state, ledger, configured } = open
  return createDesk({
    clock,
    ledger,
    configured,
    ...parts,
    async compact(keepSinceMs) {
      const before = await storeBytes(files, folder)
      await compactLedger(log, state, keepSinceMs)
      return { before, after: await storeBytes(files, folder) }
    },
  })
}

const isKnownBy = async (rounds: RoundReader, entry: RegistryEntry, at: bigint) =>
  (await rounds.read(entry.questionId, entry, at)) !== undefined

async function asked<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (!(error instanceof ChainError)) throw error
    throw new UnavailableError(
      'state_unavailable',
      `the chain cannot be asked about the question now: ${error.message}`,
      {
        httpStatus: 503,
        cause: error,
        hint: 'nothing was changed; look at chain.rpc_urls, wait, and run the same command again',
      },
    )
  }
}

/**
 * What log and snapshot take on disk. Rejects with StorageError `store_unavailable`: that they
 * cannot be looked at must not end a gateway.
 */
async function storeBytes(files: Files, folder: string): Promise<number> {
  try {
    return await sizesIn(files, folder)
  } catch (error) {
    throw named(`${folder} cannot be measured`, error)
  }
}

async function sizesIn(files: Files, folder: string): Promise<number> {
  let bytes = 0
  for (const name of await files.list(folder)) {
    if (!/^(log|snap)-\d+\.jsonl$/.test(name)) continue
    const handle = await files.open(joinPath(folder, name), 'read')
    try {
      bytes += await handle.size()
    } finally {
      await handle.close()
    }
  }
  return bytes
}
