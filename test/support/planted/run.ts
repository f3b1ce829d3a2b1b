import { spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { figures } from '../campaign.js'
import { type PlantedLine, soundProject } from './lines.js'
import { type PlantedBug, planted } from './plant.js'

const root = join(import.meta.dirname, '../../..')

async function runPlanted(list: string): Promise<{
  readonly lines: readonly PlantedLine[]
  readonly stderr: string
}> {
  const own = Object.entries(process.env).filter(
    ([name]) => !/^(VITEST|TEST|NODE_OPTIONS|NODE_ENV|DEV|PROD|MODE|SSR|BASE_URL)/.test(name),
  )
  const child = spawn(
    process.execPath,
    [
      join(root, 'node_modules/vitest/vitest.mjs'),
      'run',
      '--config',
      join(root, 'test/support/planted-vitest.js'),
    ],
    {
      cwd: root,
      env: { ...Object.fromEntries(own), PLANTED_LIST: list },
      stdio: ['ignore', 'pipe', 'pipe'],
    },
  )
  const [stdout, stderr] = await Promise.all(
    [child.stdout, child.stderr].map(async (stream) => {
      let text = ''
      for await (const chunk of stream.setEncoding('utf8')) text += chunk
      return text
    }),
  )
  const lines = (stdout ?? '').split('\n').filter((line) => line.startsWith('{'))
  return { lines: lines.map((line) => JSON.parse(line) as PlantedLine), stderr: stderr ?? '' }
}

const isAssertion = ({ name }: PlantedLine['errors'][number]) => name === 'AssertionError'

/** The tests of a list of `size` bugs; it is `own`, or that of a `shared` store. */
export function testPlanted(
  list: 'own' | 'shared',
  bugs: readonly PlantedBug[],
  size: number,
  timeoutMs: number,
): void {
  let lines: readonly PlantedLine[] = []
  let stderr = ''
  beforeAll(async () => {
    ;({ lines, stderr } = await runPlanted(list))
  }, timeoutMs)

  test('each fits the sources in exactly one place', () => {
    for (const bug of bugs) {
      const { file, text } = planted(bug)
      expect(text, bug.name).not.toBe(readFileSync(join(root, file), 'utf8'))
    }
    expect(new Set(bugs.map(({ name }) => name)).size).toBe(size)
  })

  test('without it every one of these tests passes', () => {
    const sound = lines.filter(({ project }) => project === soundProject)
    expect(
      sound.filter(({ passed }) => !passed),
      stderr,
    ).toEqual([])
    for (const { caughtBy } of bugs)
      expect(
        sound.some(({ title }) => title?.includes(caughtBy.title)),
        caughtBy.title,
      ).toBe(true)
  })

  test.each(bugs)('$name', ({ name, caughtBy }) => {
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
    const caught = bugs.filter(({ name }) =>
      lines.some(({ project, passed }) => project === name && !passed),
    )
    figures(`planted bugs (${list})`, { planted: bugs.length, caught: caught.length })
    expect(caught).toHaveLength(bugs.length)
  })
}
