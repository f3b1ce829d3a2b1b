/** The whole table: gateways that are wrong in one rule each. */
import type { Fault } from '../between.js'
import { admissionFaults } from './admission.js'
import { batchFaults } from './batches.js'
import { bodyFaults } from './bodies.js'
import { budgetFaults } from './budgets.js'
import { conventionFaults } from './conventions.js'
import { preparationFaults } from './preparation.js'
import { statusFaults } from './status.js'

export const faults: readonly Fault[] = [
  ...conventionFaults,
  ...preparationFaults,
  ...bodyFaults,
  ...admissionFaults,
  ...statusFaults,
  ...batchFaults,
  ...budgetFaults,
]

/** The row of this name. */
export function faultThat(does: string): Fault {
  const found = faults.find((one) => one.does === does)
  if (found === undefined) throw new Error(`no gateway ${does}`)
  return found
}
