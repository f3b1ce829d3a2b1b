/** All that is wrong with one input, told at once, in the order of its lines. */

import { UsageError } from '../../protocol/errors.js'
import type { BatchSource } from './rows.js'

export interface InputFaults {
  add(fault: UsageError): void
  /** What rejects one row of an input alone: told where something else refuses the input. */
  addBeside(fault: UsageError): void
  /** Whether something refuses the input. */
  readonly refuses: boolean
  /** Whether one is told of the line, or of the element of an array. */
  isAt(at: number): boolean
  /** UsageError (exit 2): the only fault as it is, or all with their places and hints. */
  throwAny(): void
}

/** So many are told one by one, the first of the input; the rest is counted. */
const mostTold = 20

export function newFaults({ name }: Pick<BatchSource, 'name'>): InputFaults {
  let told: UsageError[] = []
  let count = 0
  let refusal: UsageError | undefined
  const places = new Set<number>()
  const addBeside = (fault: UsageError) => {
    count++
    if (fault.meta.at !== undefined) places.add(fault.meta.at)
    told = [...told, fault].sort((one, other) => placeOf(one) - placeOf(other)).slice(0, mostTold)
  }
  return {
    add(fault) {
      if (refusal === undefined || placeOf(fault) < placeOf(refusal)) refusal = fault
      addBeside(fault)
    },
    addBeside,
    get refuses() {
      return refusal !== undefined
    },
    isAt: (at) => places.has(at),
    throwAny() {
      if (refusal === undefined) return
      if (count === 1) throw refusal
      const lines = told.flatMap(({ detail, meta: { hint } }, at) => {
        const own = detail.startsWith(name)
          ? detail.slice(name.length).replace(/^[,:] /, '')
          : detail
        // Several lines of one fault have one hint, below the last of them.
        return hint === undefined || hint === told[at + 1]?.meta.hint
          ? own
          : [own, `  hint: ${hint}`]
      })
      if (count > told.length) lines.push(`and ${count - told.length} more`)
      throw new UsageError(
        refusal.code,
        `${name}: ${count} faults, and nothing was signed or sent`,
        {
          lines,
          hint: 'correct these lines, then run the same command',
        },
      )
    },
  }
}

/** What is said of the whole input stands first. */
const placeOf = (fault: UsageError) => fault.meta.at ?? 0
