/**
 * Puts selected candidates on chain, one nonce a transaction and one transaction a round (R3).
 * Every step is durable before the next (robustness §3). Whatever is interrupted goes on from the
 * store after a restart (R15, R23).
 */
import { LRUCache } from 'lru-cache'
import type { Heads } from '../view/state.js'
import { bindNonce, driveSlot } from './driving.js'
import { createFaults } from './faults.js'
import { findGap } from './gaps.js'
import { readDoomed } from './proposal-evidence.js'
import { gather } from './slot-facts.js'
import { aliveOf, type Executor, type ExecutorPorts } from './state.js'

/** Isolated candidates and wallets; forgetting one costs one more reverted transaction. */
const rememberedIsolated = 10_000
/** Nonces that no slot holds, as a subject of faults. */
const missing = 'missing'

/** An executor that knows nothing but its ports. Source: robustness §3, contract §5. */
export function createExecutor(ports: ExecutorPorts): Executor {
  return {
    ports,
    faults: createFaults(),
    resends: new Map(),
    loads: new Map(),
    isolated: {
      candidates: new LRUCache({ max: rememberedIsolated }),
      wallets: new LRUCache({ max: rememberedIsolated }),
    },
    doomed: new Set(),
    takenSince: new Map(),
    gap: undefined,
    unknownNoncesSince: undefined,
  }
}

/**
 * Looks at every open slot and takes each as far as it goes, the lowest nonce first: it has to be
 * mined first. `maySend` false: nothing is signed or sent, receipts are followed.
 */
export async function followSlots(
  executor: Executor,
  heads: Heads,
  maySend: boolean,
): Promise<void> {
  const { faults, ports } = executor
  const slots = ports.ledger.slots()
  if (slots.length === 0) return faults.drop(missing)
  const gathered = await gather(ports.chain, slots, heads, maySend)
  const carried = slots.flatMap((slot) =>
    aliveOf(executor, slot).map((candidate) => ({ slot, candidate })),
  )
  executor.doomed = await readDoomed(executor, carried, heads)
  for (const { id } of slots) {
    const shown = gathered.get(id)
    if (shown) await driveSlot(executor, id, shown)
  }
  await faults.look(missing, async () => {
    const gap = findGap(executor, slots, gathered, heads)
    if (gap === undefined) return
    faults.note(missing, gap.fault)
    // The lowest first: nodes keep few transactions that wait for others.
    if (maySend)
      for (const nonce of gap.due) await bindNonce(executor, nonce, undefined, heads, nonce)
  })
}

/** What the operator has to see to; one sentence each. */
export function executorFaults({ ports, faults }: Executor): readonly string[] {
  const former = ports.ledger.slots().filter(({ executor }) => executor !== ports.signer.address)
  return [
    ...faults.all(),
    ...former.map(
      ({ executor, nonce }) =>
        `nonce ${nonce} of the former executor ${executor} is not settled yet`,
    ),
  ]
}
