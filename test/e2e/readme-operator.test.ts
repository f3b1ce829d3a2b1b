/** README, "Running a gateway": what it tells an operator to type is typed here, and what it shows as configuration is configuration. */
import { spawn } from 'node:child_process'
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { type AddressInfo, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { parseConfig } from '../../src/core/gateway/config.js'

const root = join(import.meta.dirname, '..', '..')
let section: string
let folder: string

beforeAll(async () => {
  const readme = await readFile(join(root, 'README.md'), 'utf8')
  section = readme.slice(readme.indexOf('## Running a gateway')).split(/\n## /)[0] ?? ''
  folder = await mkdtemp(join(tmpdir(), 'proposer-operator-'))
})
afterAll(() => rm(folder, { recursive: true, force: true }))

/** The blocks of one language, in their order. */
const blocks = (language: string) =>
  [...section.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\`$`, 'gms'))].map(([, text = '']) => text)

/** Ports that were free a moment ago. */
async function freePorts(count: number): Promise<number[]> {
  const servers = Array.from({ length: count }, () => createServer())
  for (const server of servers) {
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject)
      server.listen(0, '127.0.0.1', resolve)
    })
  }
  const ports = servers.map((server) => (server.address() as AddressInfo).port)
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))))
  return ports
}

const itself = `exec '${process.execPath}' '${join(root, 'bin', 'proposer.js')}' "$@"`
/** Runs a script in a shell whose `proposer` is this program, or another script; all it started is ended with it. */
async function shell(script: string, proposer = itself): Promise<{ code: number | null; stdout: string; stderr: string }> {
  await writeFile(join(folder, 'proposer'), `#!/bin/sh\n${proposer}\n`)
  await chmod(join(folder, 'proposer'), 0o755)
  const env = { PATH: [folder, process.env.PATH].join(delimiter), TMPDIR: folder, NO_COLOR: '1' }
  const child = spawn('sh', ['-eu', '-c', script], { cwd: folder, env, detached: true, stdio: ['ignore', 'pipe', 'pipe'] })
  let stdout = ''
  let stderr = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text
  })
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text
  })
  try {
    const code = await new Promise<number | null>((resolve, reject) => {
      child.once('error', reject)
      child.once('exit', resolve)
    })
    return { code, stdout, stderr }
  } finally {
    endGroup(child.pid)
  }
}

/** What a failed script has left running goes with its process group. */
function endGroup(pid: number | undefined): void {
  if (pid === undefined) return
  try {
    process.kill(-pid, 'SIGTERM')
  } catch (error) {
    // Nothing of it is left, which is how it should be.
    if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error
  }
}

describe('README: running a gateway', () => {
  test('its commands lead from an empty folder to an executed proposal, a backup and an orderly end', async () => {
    const ports = await freePorts(3)
    const moved = ['8545', '8787', '8788'].reduce(
      (text, port, index) => text.replaceAll(new RegExp(`\\b${port}\\b`, 'g'), String(ports[index])),
      blocks('sh').join('\n'),
    )
    const { code, stdout, stderr } = await shell(moved)
    expect({ code, stdout, stderr }).toMatchObject({ code: 0, stdout: expect.stringContaining('executed') })
    expect(stdout).toContain('{"ready":true,"reasons":[]}')
    expect(stdout).toContain('proposer_ready 1')
    for (const [metric] of section.matchAll(/\bproposer_[a-z_]+\b/g)) expect(stdout).toMatch(new RegExp(`^${metric}`, 'm'))
    expect(stdout).not.toContain('FAIL')
    // Of the copied store: the candidate is in it.
    expect(stdout.replaceAll(/\s+/g, ' ')).toMatch(/gateway-store\.backup is sound and can be written; it holds 1 candidates/)
    const [line = ''] = (await readFile(join(folder, 'gateway', 'ready.json'), 'utf8')).split('\n')
    expect(JSON.parse(line)).toMatchObject({ event: 'ready', url: `http://127.0.0.1:${ports[1]}` })
  })

  test('contract §6: where what is waited for has ended, the waiting ends too, with its log', async () => {
    const waits = [
      ...blocks('sh')
        .join('\n')
        .matchAll(/^proposer [^\n]*&\n(?:\w+=\$!\n)(until .*\n.*)$/gm),
    ]
    expect(waits).toHaveLength(2)
    for (const [script, loop] of waits) {
      const { code, stdout } = await shell(script, 'echo "no such chain" >&2; exit 75')
      expect([code, stdout], loop).toEqual([1, 'no such chain\n'])
    }
  })

  test('contract §7: the configuration that it explains has every key, and its defaults are the ones built in', () => {
    const [text = ''] = blocks('jsonc')
    const shown = JSON.parse(text.replace(/\s\/\/.*$/gm, ''))
    const config = parseConfig(shown, 'README.md')
    const { rpc_urls, signed_proposer, oracles, requesters, tokens } = shown.chain
    const least = parseConfig({ chain: { rpc_urls, signed_proposer, oracles, requesters, tokens } }, 'README.md')
    const { account, ...executor } = config.executor
    const { profile, ...chain } = config.chain
    expect({ ...config, executor, chain }).toEqual(least)
    expect({ account, profile }).toEqual({ account: 'executor', profile: 'polygon' })
    for (const [part, known] of [
      [shown, config],
      [shown.chain, config.chain],
    ]) {
      expect(Object.keys(part).sort()).toEqual(Object.keys(known).sort())
    }
  })

  test('contract §2: the reasons of /readyz that it explains are the ones that are given', async () => {
    const table = section.slice(section.indexOf('| `/readyz` says')).split('\n\n')[0] ?? ''
    const reasons = table
      .split('\n')
      .slice(2)
      .flatMap((row) => [...(row.split('|')[1] ?? '').matchAll(/`([^`]+)`/g)].map(([, reason = '']) => reason))
    expect(reasons.length).toBeGreaterThan(7)
    for (const cause of [/max_fee_gwei/, /refuses the transaction/, /as often as may be/, /looked at yet/, /as an ERC-20/])
      expect(table).toMatch(cause)
    const pipeline = ['pipeline/pipeline.ts', 'pipeline/preconditions.ts', 'pipeline/validation.ts']
    const executor = ['executor/executor.ts', 'executor/sender.ts', 'executor/slot.ts']
    const rooms = ['gateway.ts', 'view/view.ts', ...pipeline, ...executor]
    const sources = await Promise.all(rooms.map((room) => readFile(join(root, 'src/core/gateway', room), 'utf8')))
    const given = sources.join('\n')
    const parts = reasons.flatMap((reason) => reason.split('…').map((part) => part.trim()))
    expect(parts.filter((part) => !given.includes(part))).toEqual([])
  })

  test('domain §6: its chain section for Polygon is complete', () => {
    const [text = ''] = blocks('json')
    expect(parseConfig({ chain: JSON.parse(text) }, 'README.md').chain).toMatchObject({ profile: 'polygon', id: 137 })
  })

  test('robustness §5: its service writes no core files, and gives the drain its ten seconds', () => {
    const [unit = ''] = blocks('ini')
    expect(unit).toMatch(/^ExecStart=\S+ \S+\/bin\/proposer\.js serve --config \S+ --executor-password-file \S+$/m)
    expect(unit).toMatch(/^LimitCORE=0$/m)
    expect(Number(/^TimeoutStopSec=(\d+)$/m.exec(unit)?.[1])).toBeGreaterThan(10)
  })
})
