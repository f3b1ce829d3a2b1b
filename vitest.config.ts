import { defineConfig } from 'vitest/config'
import { BaseSequencer, type TestSpecification } from 'vitest/node'

/** Two cores are what the smallest runner has. */
const maxWorkers = 2
/** Tests with processes of their own wait for them a third of the time. */
const processWorkers = 3

/** What takes minutes begins first, so that no core is idle at the end. */
const slowest =
  /campaign\/(slow-week|conformance-|terminal|simulation|kills|long-runs|(shared-)?planted-bugs|shared-store|executor-kills|hostile-gateway|secrets)|e2e\/(week|shared-failures-servers|shared-operator)\./
class SlowestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]) {
    const sorted = await super.sort(files)
    const isSlow = ({ moduleId }: TestSpecification) => slowest.test(moduleId)
    return [...sorted.filter(isSlow), ...sorted.filter((file) => !isSlow(file))]
  }
}

export default defineConfig({
  test: {
    globals: true,
    maxWorkers,
    // The files of a worker share its modules: to load viem and zod for each takes long.
    isolate: false,
    sequence: { sequencer: SlowestFirst },
    // Else a file of ours that is imported as text would be empty.
    css: true,
    // Every answer of a gateway is held against its OpenAPI document.
    setupFiles: ['test/support/folders-setup.ts', 'test/support/answers-setup.ts'],
    projects: [
      {
        extends: true,
        test: {
          name: 'core',
          // Everything in one process, and the main path on anvil: 3 minutes of two cores.
          include: ['test/{unit,contract,property,crash,commands,anvil}/**/*.test.ts'],
          // Limits for a machine that is busy with other things, here and below; tests wait for events.
          testTimeout: 90_000,
          hookTimeout: 90_000,
          sequence: { groupOrder: 0 },
        },
      },
      {
        extends: true,
        test: {
          name: 'e2e',
          maxWorkers: processWorkers,
          include: ['test/e2e/**/*.test.ts'],
          // Every process a test starts comes from dist/.
          globalSetup: ['test/support/build-dist.ts'],
          testTimeout: 180_000,
          hookTimeout: 180_000,
          sequence: { groupOrder: 1 },
        },
      },
      {
        extends: true,
        test: {
          name: 'campaign',
          maxWorkers: processWorkers,
          include: ['test/campaign/**/*.test.ts'],
          globalSetup: ['test/support/build-dist.ts'],
          // A campaign counts to tens of thousands; `CAMPAIGN_SCALE` makes it longer still.
          testTimeout: 600_000 * Math.max(1, Number(process.env.CAMPAIGN_SCALE ?? 1)),
          hookTimeout: 180_000,
          sequence: { groupOrder: 2 },
        },
      },
    ],
  },
})
