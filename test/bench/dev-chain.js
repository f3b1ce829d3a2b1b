import { readFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { profiling, startServer } from './children.js'

/**
 * A dev chain with open questions in `folder`: what its ready line describes (`dev`), its proposers
 * as wallets that sign, and gateways before it. `configure(changes)` overrides sections of their
 * gateway.json, `start()` starts one, `stop()` ends the chain alone.
 */
export async function startDevChain(root, folder, questions) {
  const bin = join(root, 'bin', 'proposer.js')
  const flags = ['--write', 'dev', '--port', '0', '--questions', String(questions), '--json']
  const chain = await startServer(process.execPath, [bin, 'devchain', 'start', ...flags], {
    cwd: folder,
  })
  const file = join(folder, 'dev', 'gateway.json')
  const config = JSON.parse(readFileSync(file, 'utf8'))
  const { dev } = chain.ready
  return {
    dev,
    config,
    questionIds: dev.questions.map(({ question_id }) => question_id),
    wallets: dev.accounts
      .filter(({ role }) => role === 'proposer')
      .map(({ address, private_key }) => ({ address, key: private_key.slice(2) })),
    configure: (changes) => writeFile(file, JSON.stringify({ ...config, ...changes })),
    async start() {
      const serve = [
        ...profiling(),
        bin,
        'serve',
        '--config',
        file,
        '--json',
        '--no-log',
        '--port',
        '0',
      ]
      const { ready, pid, stop } = await startServer(process.execPath, serve, {
        cwd: folder,
      })
      return { url: ready.url, admin: ready.admin_url, pid, stop }
    },
    stop: chain.stop,
  }
}
