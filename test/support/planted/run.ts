import { spawn } from 'node:child_process'
import { join } from 'node:path'
import type { PlantedLine } from './lines.js'

const root = join(import.meta.dirname, '../../..')

export async function runPlanted(list: 'own' | 'shared' = 'own'): Promise<{
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

export const isAssertion = ({ name }: PlantedLine['errors'][number]) => name === 'AssertionError'
