/**
 * Whether a history of concurrent calls is linearizable: each call took effect at one moment
 * between its begin and its end, in an order that the model allows. The search is that of Wing and
 * Gong, with Lowe's memo of what has been placed and the state it led to, as in Porcupine.
 */

export interface Operation<Input, Output> {
  readonly client: string
  readonly input: Input
  readonly begunAt: number
  readonly endedAt: number
  readonly output: Output | undefined
}

export interface Model<State, Input, Output> {
  readonly initial: State
  step(state: State, input: Input, output: Output | undefined): State | undefined
  key(state: State): string
}

export type Linearized<Input, Output> =
  | { readonly isLinearizable: true; readonly order: readonly Operation<Input, Output>[] }
  | {
      readonly isLinearizable: false
      readonly placed: readonly Operation<Input, Output>[]
      readonly stuck: Operation<Input, Output>
    }

interface Entry<Input, Output> {
  readonly operation: Operation<Input, Output>
  readonly at: number
  readonly bit: bigint
  end: Entry<Input, Output> | undefined
  readonly isBegin: boolean
  before: Entry<Input, Output> | undefined
  after: Entry<Input, Output> | undefined
}

export function linearize<State, Input, Output>(
  model: Model<State, Input, Output>,
  operations: readonly Operation<Input, Output>[],
): Linearized<Input, Output> {
  const head = listOf(operations)
  const seen = new Set<string>()
  const placed: { readonly entry: Entry<Input, Output>; readonly before: State }[] = []
  const order = () => placed.map(({ entry }) => entry.operation)
  let longest: readonly Operation<Input, Output>[] = []
  let stuck: Operation<Input, Output> | undefined
  let state = model.initial
  let bits = 0n
  let open = operations.filter(({ endedAt }) => endedAt !== Infinity).length
  let entry = head.after
  while (open > 0) {
    if (entry === undefined) throw new Error('the list ended before its last end')
    if (entry.isBegin) {
      const next = effect(model, state, entry.operation)
      const memo = next === undefined ? '' : `${(bits | entry.bit).toString(32)} ${model.key(next)}`
      if (next === undefined || seen.has(memo)) {
        entry = entry.after
        continue
      }
      seen.add(memo)
      placed.push({ entry, before: state })
      state = next
      bits |= entry.bit
      if (entry.end) open -= 1
      lift(entry)
      entry = head.after
      continue
    }
    if (stuck === undefined || placed.length > longest.length) {
      longest = order()
      stuck = entry.operation
    }
    const last = placed.pop()
    if (last === undefined) return { isLinearizable: false, placed: longest, stuck }
    state = last.before
    bits ^= last.entry.bit
    if (last.entry.end) open += 1
    putBack(last.entry)
    entry = last.entry.after
  }
  return { isLinearizable: true, order: order() }
}

/** A call of unknown outcome that changes nothing need not be placed: it may as well never happen. */
function effect<State, Input, Output>(
  model: Model<State, Input, Output>,
  state: State,
  { input, output }: Operation<Input, Output>,
): State | undefined {
  const next = model.step(state, input, output)
  if (next === undefined || output !== undefined) return next
  return model.key(next) === model.key(state) ? undefined : next
}

function listOf<Input, Output>(operations: readonly Operation<Input, Output>[]) {
  const entries = operations.flatMap((operation, index) => {
    const { begunAt, endedAt } = operation
    if (endedAt < begunAt) throw new RangeError('a call ends before it begins')
    const shared = { operation, bit: 1n << BigInt(index), before: undefined, after: undefined }
    const begin: Entry<Input, Output> = { ...shared, at: begunAt, isBegin: true, end: undefined }
    if (endedAt === Infinity) return [begin]
    begin.end = { ...shared, at: endedAt, isBegin: false, end: undefined }
    return [begin, begin.end]
  })
  entries.sort((one, other) => one.at - other.at || Number(other.isBegin) - Number(one.isBegin))
  const head: Pick<Entry<Input, Output>, 'after'> = { after: entries[0] }
  for (const [index, entry] of entries.entries()) {
    entry.before = index === 0 ? (head as Entry<Input, Output>) : entries[index - 1]
    entry.after = entries[index + 1]
  }
  return head
}

function lift<Input, Output>(begin: Entry<Input, Output>): void {
  for (const entry of [begin, begin.end]) {
    if (entry?.before) entry.before.after = entry.after
    if (entry?.after) entry.after.before = entry.before
  }
}

function putBack<Input, Output>(begin: Entry<Input, Output>): void {
  for (const entry of [begin.end, begin]) {
    if (entry?.before) entry.before.after = entry
    if (entry?.after) entry.after.before = entry
  }
}
