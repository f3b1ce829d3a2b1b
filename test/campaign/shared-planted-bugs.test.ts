/** Bugs of a shared store, planted: the test that names the rule has to fail for each. */
import { describeWith } from '#support/components'
import { testPlanted } from '#support/planted/run'
import { plantedSharedBugs } from '#support/planted/shared-bugs'

describeWith([18], 'a planted bug of the shared store is caught', () => {
  testPlanted('shared', plantedSharedBugs, 16, 900_000)
})
