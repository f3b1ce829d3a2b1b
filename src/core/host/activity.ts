import type { Clock } from '#ports'
import type { RequestRecord } from '#protocol/call'
import type { StateLine } from '#protocol/vitals'

interface StatusChange {
  readonly atMs: number
  readonly line: StateLine
}

const noCounts = { fine: 0, refused: 0, limited: 0, failed: 0, admitted: 0 }
type MinuteCounts = Readonly<typeof noCounts>

const secondsCounted = 60
export const changesKept = 6

/** Bounded, whatever the load (R17). */
export interface Activity {
  /** Looks at readiness do not count: that they hear 503 is no call that failed. */
  noteCall(call: Pick<RequestRecord, 'route' | 'status'>): void
  noteChange(line: StateLine): void
  lastMinute(): MinuteCounts
  /** The newest last. */
  changes(): readonly StatusChange[]
}

/** By whole seconds of the monotonic clock (R13): sixty cells a minute. */
export function createActivity(clock: Pick<Clock, 'nowMs' | 'monotonicMs'>): Activity {
  const cells = new Map<number, { -readonly [Key in keyof MinuteCounts]: number }>()
  let changes: readonly StatusChange[] = []
  const second = () => Math.floor(clock.monotonicMs() / 1000)
  const forget = () => {
    for (const at of cells.keys()) if (at <= second() - secondsCounted) cells.delete(at)
  }
  const add = (key: keyof MinuteCounts) => {
    const cell = cells.get(second()) ?? { ...noCounts }
    cell[key] += 1
    cells.set(second(), cell)
    forget()
  }
  return {
    noteCall({ route, status }) {
      if (route === '/readyz') return
      if (status === 429) add('limited')
      else add(status >= 500 ? 'failed' : status >= 400 ? 'refused' : 'fine')
    },
    noteChange(line) {
      if (line.event === 'candidate.received' && line.elsewhere !== true) add('admitted')
      changes = [...changes.slice(1 - changesKept), { atMs: clock.nowMs(), line }]
    },
    lastMinute() {
      forget()
      const sum = { ...noCounts }
      for (const cell of cells.values())
        for (const key of Object.keys(sum) as (keyof MinuteCounts)[]) sum[key] += cell[key]
      return sum
    },
    changes: () => changes,
  }
}
