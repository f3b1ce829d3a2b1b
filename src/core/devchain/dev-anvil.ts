/**
 * One anvil process that cannot outlive us: a watcher between us and it reads a pipe that only we
 * hold, and ends the chain and its folder when the pipe closes, however we died (contract §6 `serve
 * --dev`, §8).
 */
import { spawn } from 'node:child_process'
import { accessSync, constants } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { UsageError } from '../protocol/errors.js'

/**
 * How long anvil may take to listen. It needs some 50 ms; the rest is for machines that have other
 * things to do.
 */
const startLimitMs = 20_000

/**
 * What the watcher runs (`node -e`): its own session, so that Ctrl-C at a terminal reaches us alone
 * and a drain still has its chain. The first line it writes is the chain's pid.
 */
const watcherSource = `
const { spawn } = require('node:child_process')
const { rmSync, writeSync } = require('node:fs')
const [binary, folder, ...args] = process.argv.slice(1)
const chain = spawn(binary, args, { cwd: folder, stdio: ['ignore', 'inherit', 'inherit'] })
const end = () => chain.kill('SIGKILL')
const leave = (code) => {
  rmSync(folder, { recursive: true, force: true, maxRetries: 3 })
  process.exit(code)
}
chain.on('error', (error) => { writeSync(2, 'cannot run: ' + error.message + '\\n'); leave(1) })
chain.on('exit', (code) => leave(code === null ? 1 : code))
if (chain.pid !== undefined) writeSync(1, 'chain process ' + chain.pid + '\\n')
for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP']) process.on(signal, end)
process.stdin.on('end', end).on('close', end).on('error', end).resume()
`

/**
 * A running anvil. `stop` resolves once the process is gone and its folder removed; `ended` also
 * when it dies by itself.
 */
export interface Anvil {
  readonly rpcUrl: string
  /** Of anvil itself. */
  readonly pid: number
  /** Of the process between us and it. */
  readonly watcherPid: number
  readonly folder: string
  readonly ended: Promise<void>
  stop(): Promise<void>
}

/**
 * The anvil binary inside the npm package of this platform. Throws UsageError `anvil_missing` where
 * the package is not installed (it is an optional dependency) or its file cannot be run.
 */
export function anvilBinary(
  platform: string = process.platform,
  arch: string = process.arch,
): string {
  const name = `@foundry-rs/anvil-${platform}-${arch === 'x64' ? 'amd64' : arch}`
  const here = createRequire(import.meta.url)
  let folder: string
  try {
    // Through the wrapper package first: some package managers nest the platform's package below
    // it.
    folder = dirname(
      createRequire(here.resolve('@foundry-rs/anvil/package.json')).resolve(`${name}/package.json`),
    )
  } catch (cause) {
    throw missing(`The dev chain needs anvil, and the package ${name} is not installed.`, cause)
  }
  const binary = join(folder, 'bin', platform === 'win32' ? 'anvil.exe' : 'anvil')
  try {
    accessSync(binary, constants.X_OK)
  } catch (cause) {
    throw missing(`The dev chain needs anvil, and ${binary} cannot be run.`, cause)
  }
  return binary
}

function missing(detail: string, cause: unknown): UsageError {
  return new UsageError('anvil_missing', detail, {
    hint: 'npm install @foundry-rs/anvil@1.7.1',
    cause,
  })
}

/**
 * Starts anvil on a loopback port (0: a free one) with these further arguments and waits until it
 * listens. Throws UsageError `anvil_missing`, `port_in_use` or `dev_chain_failed`.
 */
export async function startAnvil(port: number, args: readonly string[]): Promise<Anvil> {
  const binary = anvilBinary()
  const folder = await mkdtemp(join(tmpdir(), 'proposer-devchain-'))
  const chainArgs = [
    '--host',
    '127.0.0.1',
    '--port',
    String(port),
    '--cache-path',
    join(folder, 'cache'),
    ...args,
  ]
  const watcher = spawn(
    process.execPath,
    ['-e', watcherSource, '--', binary, folder, ...chainArgs],
    {
      detached: true,
      windowsHide: true,
      stdio: ['pipe', 'pipe', 'pipe'],
      // Its own home: anvil looks for configuration and caches there. No NODE_OPTIONS: they are
      // meant for us.
      env: { PATH: process.env.PATH, HOME: folder, TMPDIR: tmpdir() },
    },
  )
  let output = ''
  const ended = new Promise<void>((resolve) => {
    watcher.once('error', () => resolve())
    watcher.once('close', () => resolve())
  })
  // The pipe breaks when the watcher goes first; `ended` says so already.
  watcher.stdin.on('error', () => undefined)
  const stop = async (): Promise<void> => {
    watcher.stdin.end()
    await ended
  }
  const listening = new Promise<{ rpcUrl: string; pid: number } | undefined>((resolve) => {
    const read = (chunk: Buffer): void => {
      // After the start we only keep the pipe empty; what is left of the output explains a failure.
      output = (output + chunk.toString()).slice(-8192)
      const url = /Listening on ([\d.]+:\d+)/.exec(output)
      const pid = /chain process (\d+)/.exec(output)
      if (url !== null && pid !== null) resolve({ rpcUrl: `http://${url[1]}`, pid: Number(pid[1]) })
    }
    watcher.stdout.on('data', read)
    watcher.stderr.on('data', read)
    void ended.then(() => resolve(undefined))
    setTimeout(() => resolve(undefined), startLimitMs).unref()
  })
  const found = await listening
  if (found === undefined || watcher.pid === undefined) {
    await stop()
    await rm(folder, { recursive: true, force: true })
    throw startFailure(port, output)
  }
  return { ...found, watcherPid: watcher.pid, folder, ended, stop }
}

function startFailure(port: number, output: string): UsageError {
  const last = output.trim().split('\n').at(-1) ?? ''
  if (/in use/i.test(output))
    return new UsageError(
      'port_in_use',
      `Port ${port} is taken, so the dev chain cannot listen there.`,
      {
        hint: 'use --port 0 for a free one',
      },
    )
  if (/cannot run|exec format|permission denied/i.test(output))
    return missing(`The dev chain's anvil does not run: ${last}`, undefined)
  return new UsageError(
    'dev_chain_failed',
    `The dev chain did not start${last === '' ? '' : `: ${last}`}.`,
  )
}
