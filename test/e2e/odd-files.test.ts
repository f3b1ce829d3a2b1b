/**
 * Files of ours that are none: a pipe that nobody writes to, a device without an end, a folder, a
 * socket (R11, R17).
 */

import { execFileSync } from 'node:child_process'
import { cp, mkdir, readdir, rm, symlink, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { foldLedger, openLedger, storeLog } from '#gateway/ledger/writer'
import { acquireLock } from '#storage/lock'
import { openLog } from '#storage/log'
import { argvOf } from '#support/argv'
import { fakeContext } from '#support/cli'
import { gatewayFile } from '#support/desk'
import { liveIn } from '#support/lived-home'
import { workshop } from '#support/processes'

const shop = workshop()

const config = gatewayFile({ store: './store', executor: { enabled: false } })

const puts = {
  'a pipe': async (path: string) => void execFileSync('sh', ['-c', 'exec mkfifo "$0"', path]),
  'a device without an end': (path: string) => symlink('/dev/zero', path),
  'a folder': async (path: string) => void (await mkdir(path)),
  'a socket': (path: string) =>
    new Promise<void>((resolve) => {
      const server = createServer().listen(path, resolve)
      afterAll(() => server.close())
    }),
} as const
type Odd = keyof typeof puts

async function ask(...[args, options]: Parameters<typeof shop.start>) {
  const running = shop.start(args, options)
  const overdue = setTimeout(() => running.child.kill('SIGKILL'), 30_000)
  const { code, stderr } = await running.ended
  clearTimeout(overdue)
  return { code, stderr }
}

let base: string
let home: string
beforeAll(async () => {
  base = await shop.folder()
  home = await shop.folder()
  await liveIn(home)
  await writeFile(join(base, 'gateway.json'), JSON.stringify(config))
  const { context } = fakeContext(base)
  const store = join(base, 'store')
  const lock = await acquireLock(context, store, 'a test')
  const fold = foldLedger()
  const log = await openLog(
    context,
    store,
    { ...storeLog, fence: () => lock.fence() },
    fold.onRecord,
  )
  const settings = {
    chainId: 31337,
    genesisHash: `0x${'9'.repeat(64)}`,
    allowlist: [],
    admissionEnabled: true,
  } as const
  await (await openLedger(context, log, fold.state, settings)).close()
  await lock.release()
})

async function copied(from: string, file: string, odd: Odd): Promise<string> {
  const folder = await shop.folder()
  await cp(from, folder, { recursive: true })
  await rm(join(folder, file), { recursive: true, force: true })
  await puts[odd](join(folder, file))
  return folder
}

const log = 'log-000000000001.jsonl'
const verify = argvOf`operator store verify --config gateway.json`
const serve = argvOf`serve --config gateway.json --port 0`

describe.skipIf(process.platform === 'win32')(
  'contract §6: exit 74 at once, and the file named',
  () => {
    test.each<[readonly string[], string, Odd]>([
      [serve, 'MANIFEST', 'a pipe'],
      [serve, 'MANIFEST', 'a device without an end'],
      [serve, 'MANIFEST', 'a folder'],
      [serve, 'MANIFEST', 'a socket'],
      [serve, log, 'a pipe'],
      [serve, 'LOCK.1', 'a pipe'],
      [serve, 'admin.token', 'a pipe'],
      [verify, log, 'a pipe'],
    ])('%s with %s: %s', async (args, file, odd) => {
      const folder = await copied(base, join('store', file), odd)
      const { code, stderr } = await ask(args, { cwd: folder })
      expect([code, stderr]).toEqual([74, expect.stringContaining(join('store', file))])
    })

    test('a journal', async () => {
      const [run = ''] = (await readdir(join(home, 'journal'))).filter((name) =>
        /^[0-9a-f]{12}$/.test(name),
      )
      const folder = await copied(home, join('journal', run, log), 'a pipe')
      const { code, stderr } = await ask(argvOf`journal list --json`, {
        env: { PROPOSER_HOME: folder },
      })
      expect([code, stderr]).toEqual([74, expect.stringContaining(join(run, log))])
    })
  },
)

describe.skipIf(process.platform === 'win32')('robustness §6: what the user named', () => {
  test('has its size bounded, and may be a pipe that a shell made', async () => {
    const zero = await ask(argvOf`operator store verify --config /dev/zero`, { cwd: base })
    expect([zero.code, zero.stderr]).toEqual([2, expect.stringContaining('more than')])
    const piped = await ask([], {
      cwd: base,
      under: ['bash', '-c', '"$0" "$1" operator store verify --config <(cat gateway.json) --json'],
    })
    expect(piped.stderr).toContain('/store')
  })

  test('preferences that are a pipe are exit 2', async () => {
    const folder = await copied(home, 'config.json', 'a pipe')
    const { code, stderr } = await ask(['config', 'list'], { env: { PROPOSER_HOME: folder } })
    expect([code, stderr]).toEqual([2, expect.stringContaining('config.json')])
  })
})
