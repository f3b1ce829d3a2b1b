/** Bugs of a shared store, planted: the test that names the rule has to fail for each. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, expect, test } from 'vitest'
import { figures } from '#support/campaign'
import { describeWith } from '#support/components'
import { type PlantedLine, soundProject } from '#support/planted/lines'
import { planted } from '#support/planted/plant'
import { isAssertion, runPlanted } from '#support/planted/run'
import { plantedSharedBugs } from '#support/planted/shared-bugs'

const root = join(import.meta.dirname, '../..')

describeWith([18], 'a planted bug of the shared store is caught', () => {
  let lines: readonly PlantedLine[] = []
  let stderr = ''
  beforeAll(async () => {
    ;({ lines, stderr } = await runPlanted('shared'))
  }, 900_000)

  test('each fits the sources in exactly one place', () => {
    for (const bug of plantedSharedBugs) {
      const { file, text } = planted(bug)
      expect(text, bug.name).not.toBe(readFileSync(join(root, file), 'utf8'))
    }
    expect(new Set(plantedSharedBugs.map(({ name }) => name)).size).toBe(16)
  })

  test('without it every one of these tests passes', () => {
    const sound = lines.filter(({ project }) => project === soundProject)
    expect(
      sound.filter(({ passed }) => !passed),
      stderr,
    ).toEqual([])
    for (const { caughtBy } of plantedSharedBugs)
      expect(
        sound.some(({ title }) => title?.includes(caughtBy.title)),
        caughtBy.title,
      ).toBe(true)
  })

  test.each(plantedSharedBugs)('$name', ({ name, caughtBy }) => {
    const caught = lines.filter(
      ({ project, title }) => project === name && title?.includes(caughtBy.title) === true,
    )
    expect(caught, `${caughtBy.title} did not run: ${stderr}`).not.toEqual([])
    const failed = caught.filter(({ passed }) => !passed)
    expect(failed, `${caughtBy.title} passes with the bug`).not.toEqual([])
    expect(
      failed.flatMap(({ errors }) => errors).filter(isAssertion),
      JSON.stringify(failed),
    ).not.toEqual([])
  })

  test('all of them, in figures', () => {
    const caught = plantedSharedBugs.filter(({ name }) =>
      lines.some(({ project, passed }) => project === name && !passed),
    )
    figures('planted bugs of the shared store', {
      planted: plantedSharedBugs.length,
      caught: caught.length,
    })
    expect(caught).toHaveLength(plantedSharedBugs.length)
  })
})
