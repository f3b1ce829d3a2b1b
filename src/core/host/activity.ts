import type { Clock } from '#ports'
import type { RequestRecord } from '#protocol/call'
import { instant } from '#protocol/candidate'
import type { StatusDocument } from '#protocol/status-document'
import type { StateLine } from '#protocol/vitals'

const noCounts = { fine: 0, refused: 0, limited: 0, failed: 0, admitted: 0 }

const secondsCounted = 60
export const changesKept = 6

/** Sixty cells, by whole seconds of the monotonic clock (R13, R17). */
export function createActivity(clock: Pick<Clock, 'nowMs' | 'monotonicMs'>) {
  const cells = new Map<number, typeof noCounts>()
  let changes: StatusDocument['changes'] = []
  const second = () => Math.floor(clock.monotonicMs() / 1000)
  const forget = () => {
    for (const at of cells.keys()) if (at <= second() - secondsCounted) cells.delete(at)
  }
  const add = (key: keyof typeof noCounts) => {
    const cell = cells.get(second()) ?? { ...noCounts }
    cell[key] += 1
    cells.set(second(), cell)
    forget()
  }
  return {
    /** Looks at readiness do not count: that they hear 503 is no call that failed. */
    noteCall({ route, status }: Pick<RequestRecord, 'route' | 'status'>) {
      if (route === '/readyz') return
      if (status === 429) add('limited')
      else add(status >= 500 ? 'failed' : status >= 400 ? 'refused' : 'fine')
    },
    noteChange(line: StateLine) {
      if (line.event === 'candidate.received' && line.elsewhere !== true) add('admitted')
      changes = [...changes.slice(1 - changesKept), { at: instant(clock.nowMs()), ...line }]
    },
    lastMinute() {
      forget()
      const sum = { ...noCounts }
      for (const cell of cells.values())
        for (const key of Object.keys(sum) as (keyof typeof noCounts)[]) sum[key] += cell[key]
      return sum
    },
    changes: () => changes,
  }
}
