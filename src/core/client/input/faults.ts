/** All that is wrong with one input, told at once. */

import { UsageError } from '../../protocol/errors.js'
import type { BatchSource } from './rows.js'

export interface InputFaults {
  add(fault: UsageError): void
  /** UsageError (exit 2): the only fault as it is, or all with their places. */
  throwAny(): void
}

/** So many are told one by one; the rest is counted. */
const mostTold = 20

/** No faults yet. The details of those that are added begin with the name of the source. */
export function newFaults({ name }: Pick<BatchSource, 'name'>): InputFaults {
  const told: UsageError[] = []
  let count = 0
  return {
    add(fault) {
      if (count++ < mostTold) told.push(fault)
    },
    throwAny() {
      const [first] = told
      if (first === undefined) return
      if (count === 1) throw first
      const lines = told.map(({ detail }) =>
        detail.startsWith(name) ? detail.slice(name.length).replace(/^[,:] /, '') : detail,
      )
      if (count > told.length) lines.push(`and ${count - told.length} more`)
      throw new UsageError(first.code, `${name}: ${count} faults, and nothing was signed or sent`, {
        ...first.meta,
        lines,
      })
    },
  }
}
