/**
 * The way here: the heads looked at, and what the logs up to each of them named. It tells where a
 * reorganisation begins (R14), what the undone blocks had changed, and whether a read that took a
 * while is still true. Bounded (R17).
 */
import type { BlockHeader, Hex } from '../../ports.js'

/** Heads whose hashes are kept; a reorganisation that goes deeper makes every question due. */
const rememberedHeads = 256
/** IDs that logs named, over all heads kept. */
const rememberedIds = 50_000

/** What logs named: questions by their ID, and requests by their managed id (domain §4). */
export interface Named {
  readonly named: ReadonlySet<Hex>
  readonly managed: ReadonlySet<Hex>
}

type Place = Pick<BlockHeader, 'number' | 'hash'>

export interface Trail {
  /** A new head, and what the blocks since the one before named. */
  add(head: Place, since: Named): void
  clear(): void
  /** The hash of a block that was a head; `undefined` for any other. */
  hashAt(number: bigint): Hex | undefined
  /**
   * The newest head that the node's chain still holds, asking for at most eight hashes; `undefined`
   * where it holds none of those kept. Rejects with what `hashOf` rejects with.
   */
  fork(hashOf: (number: bigint) => Promise<Hex | undefined>): Promise<Place | undefined>
  /** Forgets the heads above a block; what they named. */
  undo(number: bigint): Named
  /**
   * Whether what was read at a head may have changed since: true where that head is no longer on
   * the way here.
   */
  changedSince(head: Place, questionId: Hex, managedId: Hex | undefined): boolean
}

interface Step extends Named {
  readonly head: Place
}

/** An empty trail. */
export function createTrail(): Trail {
  const steps: Step[] = []
  let ids = 0
  const sizeOf = ({ named, managed }: Named) => named.size + managed.size
  const forgetFirst = () => {
    const [first] = steps.splice(0, 1)
    if (first) ids -= sizeOf(first)
  }
  return {
    add({ number, hash }, { named, managed }) {
      steps.push({ head: { number, hash }, named, managed })
      ids += named.size + managed.size
      // The last one stays: without it nothing is known of the head.
      while (steps.length > rememberedHeads || (ids > rememberedIds && steps.length > 1))
        forgetFirst()
    },
    clear() {
      steps.length = 0
      ids = 0
    },
    hashAt: (number) => steps.findLast(({ head }) => head.number === number)?.head.hash,
    async fork(hashOf) {
      // What lies below a block that the chain holds, it holds too: halving finds the newest.
      let below = -1
      let above = steps.length
      while (above - below > 1) {
        const middle = (below + above) >> 1
        const head = steps[middle]?.head
        if (head !== undefined && (await hashOf(head.number)) === head.hash) below = middle
        else above = middle
      }
      return steps[below]?.head
    },
    undo(number) {
      const named = new Set<Hex>()
      const managed = new Set<Hex>()
      for (
        let last = steps.at(-1);
        last !== undefined && last.head.number > number;
        last = steps.at(-1)
      ) {
        for (const id of last.named) named.add(id)
        for (const id of last.managed) managed.add(id)
        ids -= sizeOf(last)
        steps.pop()
      }
      return { named, managed }
    },
    changedSince({ hash }, questionId, managedId) {
      for (let index = steps.length - 1; index >= 0; index -= 1) {
        const step = steps[index]
        if (step === undefined || step.head.hash === hash) return false
        if (step.named.has(questionId) || (managedId !== undefined && step.managed.has(managedId)))
          return true
      }
      return true
    },
  }
}
