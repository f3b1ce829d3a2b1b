import { spawn } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { temporaryFolder } from '#support/folders'
import { serveHttp } from '#support/http-server'
import { hasTerminals } from '#support/terminal'

const bin = join(import.meta.dirname, '../../bin/proposer.js')

let home: string
let server: Awaited<ReturnType<typeof serveHttp>>
let called: Promise<void>
beforeEach(async () => {
  home = temporaryFolder()
  let tell = (): void => undefined
  called = new Promise((resolve) => {
    tell = resolve
  })
  server = await serveHttp(() => tell())
})
afterEach(async () => {
  await server.close()
})

async function saidAfter(words: string, signals: readonly NodeJS.Signals[]): Promise<string> {
  const command = `'${process.execPath}' '${bin}' eligibility 0x${'ab'.repeat(20)} --gateway ${server.url}`
  writeFileSync(join(home, 'start.sh'), `echo $$ >pid\nexec ${words} ${command} >log 2>&1\n`)
  const child = spawn('script', ['-qefc', 'sh start.sh; true', '/dev/null'], {
    cwd: home,
    env: {
      PATH: process.env.PATH ?? '',
      TMPDIR: tmpdir(),
      SHELL: '/bin/sh',
      TERM: 'xterm',
      PROPOSER_HOME: home,
    },
    stdio: ['pipe', 'ignore', 'inherit'],
  })
  const ended = new Promise((resolve) => child.once('close', resolve))
  await Promise.race([called, ended])
  const pid = Number(readFileSync(join(home, 'pid'), 'utf8'))
  for (const signal of signals) {
    process.kill(pid, signal)
    while (isPending(pid)) await new Promise(setImmediate)
  }
  await ended
  return readFileSync(join(home, 'log'), 'utf8')
}

/** Whether a signal is still on its way: two that are sent at once may come in any order. */
function isPending(pid: number): boolean {
  try {
    return !/^ShdPnd:\t0+$/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'))
  } catch {
    return false
  }
}

describe.skipIf(!hasTerminals)('R26: SIGHUP that nohup has set aside', () => {
  test.each(['nohup', 'nice nohup', 'env X=1 nohup'])('%s', async (words) => {
    expect(await saidAfter(words, ['SIGHUP', 'SIGTERM'])).toContain('stopped by SIGTERM')
  })

  test('without nohup it ends the run', async () => {
    expect(await saidAfter('env X=1', ['SIGHUP'])).toContain('stopped by SIGHUP')
  })
})
