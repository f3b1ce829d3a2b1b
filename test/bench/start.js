import { spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { figure, inTurn } from './measure.js'
import { serveQuestions } from './question-server.js'

function childrenCpu() {
  try {
    const fields = readFileSync('/proc/self/stat', 'utf8')
      .replace(/^.*\) /, '')
      .split(' ')
    return 10 * (Number(fields[13]) + Number(fields[14]))
  } catch (error) {
    if (error.code === 'ENOENT') return Number.NaN
    throw error
  }
}

function milliseconds(args, env, cpu) {
  const before = childrenCpu()
  const start = performance.now()
  const { status, stderr } = spawnSync(process.execPath, args, {
    encoding: 'utf8',
    env: { PATH: process.env.PATH, ...env },
  })
  const passed = performance.now() - start
  if (status !== 0)
    throw new Error(`node ${args.slice(0, 3).join(' ')} ended with ${status}: ${stderr}`)
  cpu?.push(childrenCpu() - before)
  return passed
}

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length

/**
 * Times commands beside `node -e 0`, in turn: for each its ratio of wall and of CPU time.
 * `envOf(round)` is its environment.
 */
async function besideNode(rounds, commands) {
  const all = [{ args: ['-e', '0'], envOf: () => ({}) }, ...commands]
  const cpu = all.map(() => [])
  const tasks = all.map(
    ({ args, envOf = () => ({}) }, index) =>
      (round) =>
        milliseconds(args, envOf(round), round < 0 ? undefined : cpu[index]),
  )
  for (const [index, task] of tasks.entries()) task(-1 - index)
  const walls = await inTurn(rounds, tasks)
  return walls.map((wall, index) => ({
    wall,
    ratio: wall / walls[0],
    cpuRatio: mean(cpu[index]) / mean(cpu[0]),
  }))
}

const told = ({ wall, ratio, cpuRatio }) =>
  `${figure(wall)} ms (${figure(ratio)}x wall, ${figure(cpuRatio)}x CPU)`

export async function signRow({ root, library }) {
  const folder = await mkdtemp(join(tmpdir(), 'proposer-bench-'))
  const bin = join(root, 'bin', 'proposer.js')
  const rounds = 15
  try {
    const server = await serveQuestions(1, await library())
    const [identifier] = server.questionIds
    const answer = await fetch(`${server.url}/propose/batch/signing-data`, {
      method: 'POST',
      body: JSON.stringify({ identifiers: [identifier] }),
    })
    const [{ signing_data }] = (await answer.json()).results
    server.close()
    await writeFile(join(folder, 'context.json'), JSON.stringify(signing_data))
    await writeFile(join(folder, 'trust.json'), JSON.stringify(server.trust))
    await writeFile(join(folder, 'key'), `0x${randomBytes(32).toString('hex')}\n`, { mode: 0o600 })
    const args = [
      bin,
      'sign',
      identifier,
      '--outcome',
      'p1',
      '--context',
      join(folder, 'context.json'),
      '--json',
    ]
    const envOf = (round) => ({
      PROPOSER_HOME: join(folder, `home-${round}`),
      PROPOSER_KEY_FILE: join(folder, 'key'),
      PROPOSER_TRUST: join(folder, 'trust.json'),
    })
    const [node, sign] = await besideNode(rounds, [{ args, envOf }])
    return {
      id: 7,
      name: 'sign offline beside node -e 0',
      value: sign.ratio,
      unit: 'x',
      detail: `node -e 0 ${figure(node.wall)} ms, sign --context ${told(sign)}; medians of ${rounds}, in turn, each in a home of its own`,
    }
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}
