import { spawn } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { temporaryHome } from '#support/cli'
import { serveHttp } from '#support/http-server'
import { hasTerminals } from '#support/terminal'

const bin = join(fileURLToPath(new URL('../..', import.meta.url)), 'bin', 'proposer.js')

let home: Awaited<ReturnType<typeof temporaryHome>>
let server: Awaited<ReturnType<typeof serveHttp>>
let called: Promise<void>
beforeEach(async () => {
  home = await temporaryHome()
  let tell = (): void => undefined
  called = new Promise((resolve) => {
    tell = resolve
  })
  server = await serveHttp(() => tell())
})
afterEach(async () => {
  await server.close()
  await home.remove()
})

async function saidAfter(words: string, signals: readonly NodeJS.Signals[]): Promise<string> {
  const command = `'${process.execPath}' '${bin}' eligibility 0x${'ab'.repeat(20)} --gateway ${server.url}`
  writeFileSync(join(home.path, 'start.sh'), `echo $$ >pid\nexec ${words} ${command} >log 2>&1\n`)
  const child = spawn('script', ['-qefc', 'sh start.sh; true', '/dev/null'], {
    cwd: home.path,
    env: {
      PATH: process.env.PATH ?? '',
      TMPDIR: tmpdir(),
      SHELL: '/bin/sh',
      TERM: 'xterm',
      PROPOSER_HOME: home.path,
    },
    stdio: ['pipe', 'ignore', 'inherit'],
  })
  const ended = new Promise((resolve) => child.once('close', resolve))
  await Promise.race([called, ended])
  const pid = Number(readFileSync(join(home.path, 'pid'), 'utf8'))
  for (const signal of signals) {
    process.kill(pid, signal)
    while (isPending(pid)) await new Promise(setImmediate)
  }
  await ended
  return readFileSync(join(home.path, 'log'), 'utf8')
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
