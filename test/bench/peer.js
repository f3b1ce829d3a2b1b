import { spawnSync } from 'node:child_process'
import { chmodSync, cpSync, existsSync } from 'node:fs'
import { isAbsolute, join, resolve } from 'node:path'

/**
 * Where the gateway is that we are measured beside: PROPOSER_BENCH_PEER, or a folder beside the
 * project's.
 */
export function peerFolder(root) {
  const named = process.env.PROPOSER_BENCH_PEER
  if (named !== undefined && named !== '') return isAbsolute(named) ? named : resolve(named)
  return join(root, '..', 'shared', 'bench', 'peer')
}

/**
 * Copies the peer into `folder` and installs its packages there, unless they came along. Returns
 * why it cannot be run, or `undefined` where it can.
 */
export function installPeer(from, folder) {
  if (!existsSync(join(from, 'gateway.mjs')))
    return `no peer at ${from} (PROPOSER_BENCH_PEER names another place)`
  cpSync(from, folder, { recursive: true })
  // The original may be read-only, and modes are copied along.
  chmodSync(folder, 0o755)
  if (existsSync(join(folder, 'node_modules'))) return undefined
  const { status, stderr } = spawnSync('npm', ['install', '--no-audit', '--no-fund', '--no-save'], {
    cwd: folder,
    encoding: 'utf8',
  })
  return status === 0 ? undefined : `npm install of the peer failed: ${(stderr ?? '').slice(-400)}`
}
