import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { performance } from 'node:perf_hooks'
import { figure, inTurn } from './measure.js'

function milliseconds(args) {
  const start = performance.now()
  const { status, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' })
  const passed = performance.now() - start
  if (status !== 0) throw new Error(`node ${args.join(' ')} ended with ${status}: ${stderr}`)
  return passed
}

/** Row 6: how long a person waits for `--version` and `--help`, beside what node itself takes to do nothing. */
export async function startRow({ root }) {
  const bin = join(root, 'bin', 'proposer.js')
  const tasks = [
    ['-e', '0'],
    [bin, '--version'],
    [bin, '--help'],
  ].map((args) => () => milliseconds(args))
  for (const task of tasks) task()
  const [node, version, help] = await inTurn(15, tasks)
  return {
    id: 6,
    name: '--version beside node -e 0',
    value: version / node,
    unit: 'x',
    detail: `node -e 0 ${figure(node)} ms, --version ${figure(version)} ms, --help ${figure(help)} ms (${figure(help / node)}x); medians of 15, in turn`,
  }
}
