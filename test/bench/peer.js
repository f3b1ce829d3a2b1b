import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { startServer } from './children.js'
import { peerContext } from './payloads.js'

const peerFolder = (root) => join(root, 'test', 'bench', 'peer')

/**
 * Installs the packages of the peer, once in a checkout; a driver of theirs may be compiled, which
 * takes minutes. Returns why it cannot be run, or `undefined` where it can.
 */
export function installPeer(root) {
  const cwd = peerFolder(root)
  if (existsSync(join(cwd, 'node_modules', '.package-lock.json'))) return undefined
  const { status, stderr } = spawnSync('npm', ['ci', '--no-audit', '--no-fund'], {
    cwd,
    encoding: 'utf8',
  })
  return status === 0 ? undefined : `npm ci of the peer failed: ${(stderr ?? '').slice(-400)}`
}

export async function startPeer(root, { folder, store, questions, wallets }) {
  const context = join(folder, 'context.json')
  await writeFile(context, JSON.stringify(peerContext(questions, wallets)))
  const env = { ...process.env, CONTEXT: context, STORE: store, PORT: '0' }
  const options = { cwd: peerFolder(root), env }
  const { ready, pid, stop } = await startServer(process.execPath, ['gateway.js'], options)
  return { name: 'the peer', url: ready.url, pids: () => [pid], used: 0, stop }
}
