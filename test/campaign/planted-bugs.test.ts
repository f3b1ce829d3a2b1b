/**
 * T15: a suite that has never failed proves little. Each bug of the list is planted, and the test
 * that names its rule has to fail.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, test } from 'vitest'
import { figures } from '#support/campaign'
import { plantedBugs } from '#support/planted/bugs'
import { type PlantedLine, soundProject } from '#support/planted/lines'
import { planted } from '#support/planted/plant'
import { isAssertion, runPlanted } from '#support/planted/run'

const root = join(import.meta.dirname, '../..')

describe('T15: a planted bug is caught', () => {
  let lines: readonly PlantedLine[] = []
  let stderr = ''
  beforeAll(async () => {
    ;({ lines, stderr } = await runPlanted())
  }, 280_000)

  test('each fits the sources in exactly one place', () => {
    for (const bug of plantedBugs) {
      const { file, text } = planted(bug)
      expect(text, bug.name).not.toBe(readFileSync(join(root, file), 'utf8'))
    }
    expect(new Set(plantedBugs.map(({ name }) => name)).size).toBe(21)
  })

  const edited = (find: string, replace: string, text: string) => {
    const bug = {
      name: 'b',
      room: 'x',
      edits: [{ find, replace }],
      caughtBy: { file: '', title: '' },
    }
    return planted(bug, new Map([['x/a.ts', text]])).text
  }

  test('a pattern survives formatting, types and other names', () => {
    expect(edited('$a.sync()', 'skip($a)', 'const x = (handle as Handle)\n  .sync()')).toBe(
      'const x = skip((handle as Handle))',
    )
    expect(
      edited(
        'try { a($$all) } catch ($e) { throw $e }',
        'a($$all)',
        'try { a(1, b) } catch (x) { throw x }',
      ),
    ).toBe('a(1, b)')
    expect(() => edited('a()', 'b()', 'a(); a()')).toThrow('no longer fits x: a() is there 2 times')
    expect(() => edited('$x + $x', '0', 'a + b')).toThrow('is there 0 times')
  })

  test('without it every one of these tests passes', () => {
    const sound = lines.filter(({ project }) => project === soundProject)
    expect(
      sound.filter(({ passed }) => !passed),
      stderr,
    ).toEqual([])
    for (const { caughtBy } of plantedBugs)
      expect(
        sound.some(({ title }) => title?.includes(caughtBy.title)),
        caughtBy.title,
      ).toBe(true)
  })

  test.each(plantedBugs)('$name', ({ name, caughtBy }) => {
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
    const caught = plantedBugs.filter(({ name }) =>
      lines.some(({ project, passed }) => project === name && !passed),
    )
    figures('planted bugs', { planted: plantedBugs.length, caught: caught.length })
    expect(caught).toHaveLength(plantedBugs.length)
  })
})
