/**
 * The heads examined, and what the logs up to each of them named. It shows where a reorganisation
 * begins (R14), what the undone blocks had changed, and whether a read that took a while is still
 * true. Bounded (R17).
 */
import type { BlockHeader, Hex } from '../../ports.js'
import type { Address } from '../../protocol/schema.js'
import type { NamedQuestions } from './logs.js'

/** Heads whose hashes are kept; a reorganisation that goes deeper makes every question due. */
const rememberedHeads = 256
/** IDs that logs named, over all heads kept. */
const rememberedIds = 50_000

type Head = Pick<BlockHeader, 'number' | 'hash'>

/** Heads in the order in which they came, and how many IDs their logs named. */
export interface HeadHistory {
  readonly steps: { readonly head: Head; readonly since: NamedQuestions }[]
  ids: number
}

/** Without heads. */
export const newHeadHistory = (): HeadHistory => ({ steps: [], ids: 0 })

const sizeOf = ({ named, managed, requesters }: NamedQuestions) =>
  named.size + managed.size + (requesters?.size ?? 0)

/** Adds a new head, and what the blocks since the one before named. */
export function addHead(
  history: HeadHistory,
  { number, hash }: Head,
  { named, managed, requesters }: NamedQuestions,
): void {
  const { steps } = history
  const since = { named, managed, requesters }
  steps.push({ head: { number, hash }, since })
  history.ids += sizeOf(since)
  // The last one stays: without it nothing is known of the head.
  while (steps.length > rememberedHeads || (history.ids > rememberedIds && steps.length > 1)) {
    const [first] = steps.splice(0, 1)
    if (first) history.ids -= sizeOf(first.since)
  }
}

/** Forgets all heads. */
export function clearHeads(history: HeadHistory): void {
  history.steps.length = 0
  history.ids = 0
}

/** The hash of a block that was a head; `undefined` for any other. */
export function headHashAt({ steps }: HeadHistory, number: bigint): Hex | undefined {
  return steps.findLast(({ head }) => head.number === number)?.head.hash
}

/**
 * The newest head that the node's chain still holds, reading at most nine hashes; `undefined` where
 * it holds none of those kept. Rejects with what `hashOf` rejects with.
 */
export async function findFork(
  { steps }: HeadHistory,
  hashOf: (number: bigint) => Promise<Hex | undefined>,
): Promise<Head | undefined> {
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
}

/** Forgets the heads above a block; what they named. */
export function undoHeads(history: HeadHistory, number: bigint): NamedQuestions {
  const kept = history.steps.findLastIndex(({ head }) => head.number <= number) + 1
  const undone = history.steps.splice(kept).map(({ since }) => since)
  for (const since of undone) history.ids -= sizeOf(since)
  return {
    named: new Set(undone.flatMap(({ named }) => [...named])),
    managed: new Set(undone.flatMap(({ managed }) => [...managed])),
    requesters: new Set(undone.flatMap(({ requesters = [] }) => [...requesters])),
  }
}

/**
 * Whether what was read at a head may have changed since: true where that head is no longer in the
 * history.
 */
export function changedSince(
  { steps }: HeadHistory,
  { hash }: Head,
  questionId: Hex,
  managedId: Hex | undefined,
  requester?: Address,
): boolean {
  const read = steps.findLastIndex(({ head }) => head.hash === hash)
  return (
    read < 0 ||
    steps
      .slice(read + 1)
      .some(
        ({ since: { named, managed, requesters } }) =>
          named.has(questionId) ||
          (managedId !== undefined && managed.has(managedId)) ||
          (requester !== undefined && requesters?.has(requester) === true),
      )
  )
}
