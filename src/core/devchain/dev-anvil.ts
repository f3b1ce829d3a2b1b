/** It cannot outlive us, however we died (contract §8). */
import { accessSync, constants } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { type OwnedProcess, pidLine, startOwned } from '#io/owned-process'
import { UsageError } from '#protocol/errors'

const startLimitMs = 20_000

export interface Anvil {
  readonly rpcUrl: string
  readonly pid: number
  readonly watcherPid: number
  readonly folder: string
  readonly ended: Promise<void>
  stop(): Promise<void>
}

export function anvilBinary(platform: string = process.platform, arch: string = process.arch) {
  const name = `@foundry-rs/anvil-${platform}-${arch === 'x64' ? 'amd64' : arch}`
  const here = createRequire(import.meta.url)
  let folder: string
  try {
    // Some package managers nest the platform's package below the wrapper.
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

function missing(detail: string, cause: unknown) {
  return new UsageError('anvil_missing', detail, {
    hint: 'install it: `npm install @foundry-rs/anvil@1.7.1`, with --global if proposer was installed that way',
    cause,
  })
}

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
    // No page of a browser talks to it.
    '--no-cors',
    ...args,
  ]
  const chain = startOwned(binary, chainArgs, {
    cwd: folder,
    folder,
    end: 'SIGKILL',
    // anvil looks for configuration and caches in its home.
    env: { PATH: process.env.PATH, HOME: folder, TMPDIR: tmpdir() },
  })
  const { watcherPid, ended, stop } = chain
  const found = await listening(chain)
  if (found === undefined || watcherPid === undefined) {
    await stop()
    await rm(folder, { recursive: true, force: true })
    throw startFailure(port, chain.output())
  }
  return { ...found, watcherPid, folder, ended, stop }
}

async function listening(chain: OwnedProcess) {
  const pid = await chain.said(pidLine, startLimitMs)
  const url = await chain.said(/Listening on ([\d.]+:\d+)/, startLimitMs)
  return pid && url && { rpcUrl: `http://${url[1]}`, pid: Number(pid[1]) }
}

function startFailure(port: number, output: string) {
  const last = output.trim().split('\n').at(-1) ?? ''
  if (/in use/i.test(output))
    return new UsageError(
      'port_in_use',
      `Port ${port} is taken, so the dev chain cannot listen there.`,
      'use --port 0 for a free one',
    )
  if (/cannot run|exec format|permission denied/i.test(output))
    return missing(`anvil of the dev chain does not run: ${last}`, undefined)
  return new UsageError(
    'dev_chain_failed',
    `The dev chain did not start${last === '' ? '' : `: ${last}`}.`,
  )
}
