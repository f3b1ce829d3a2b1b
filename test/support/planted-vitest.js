/**
 * One vitest run with a project for each planted bug, which runs only the test that is to catch it,
 * and one with no bug, which runs all of these (`PLANTED_BUG=<name>`: one bug; `PLANTED_LIST=shared`:
 * those of the shared store). Each test's end is a line of JSON on stdout.
 */
import { join } from 'node:path'
import { defineConfig } from 'vitest/config'
import { plantedBugs } from './planted/bugs.js'
import { soundProject } from './planted/lines.js'
import { planted } from './planted/plant.js'
import { plantedSharedBugs } from './planted/shared-bugs.js'

const root = join(import.meta.dirname, '../..')
const patternOf = (bugs) =>
  bugs.map(({ caughtBy }) => caughtBy.title.replace(/[.*+?^${}()|[\]\\/]/g, '\\$&')).join('|')
const wanted = process.env.PLANTED_BUG
const list = process.env.PLANTED_LIST === 'shared' ? plantedSharedBugs : plantedBugs
const bugs = list.filter(({ name }) => wanted === undefined || name === wanted)
const shared = {
  globals: true,
  setupFiles: ['test/support/folders-setup.ts'],
  testTimeout: 60_000,
  hookTimeout: 60_000,
}

const tell = (line) => process.stdout.write(`${JSON.stringify(line)}\n`)
const messagesOf = (errors) =>
  (errors ?? []).map(({ name, message }) => ({ name: name ?? 'Error', message }))

const reporter = {
  onTestCaseResult(test) {
    const { state, errors } = test.result()
    if (state === 'skipped') return
    tell({
      project: test.project.name,
      title: test.fullName,
      passed: state === 'passed',
      errors: messagesOf(errors),
    })
  },
  onTestModuleEnd(module) {
    const errors = messagesOf(module.errors())
    if (errors.length > 0)
      tell({ project: module.project.name, title: undefined, passed: false, errors })
  },
}

const pluginOf = ({ file, text }) => ({
  name: 'planted-bug',
  enforce: 'pre',
  transform: (_code, id) => (id.split('?')[0] === join(root, file) ? text : undefined),
})

export default defineConfig({
  root,
  test: {
    root,
    maxWorkers: 2,
    reporters: [reporter],
    dangerouslyIgnoreUnhandledErrors: true,
    projects: [
      ...bugs.map((bug) => ({
        root,
        plugins: [pluginOf(planted(bug))],
        test: {
          name: bug.name,
          include: [bug.caughtBy.file],
          testNamePattern: patternOf([bug]),
          ...shared,
        },
      })),
      {
        root,
        test: {
          name: soundProject,
          include: [...new Set(bugs.map(({ caughtBy }) => caughtBy.file))],
          testNamePattern: patternOf(bugs),
          ...shared,
        },
      },
    ],
  },
})
