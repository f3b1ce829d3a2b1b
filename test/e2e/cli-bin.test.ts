import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, constants, openSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { argvOf } from '#support/argv'
import { serveHttp } from '#support/http-server'
import { workshop } from '#support/processes'

const shop = workshop()
const bin = join(import.meta.dirname, '../../bin/proposer.js')
const wallet = `0x${'ab'.repeat(20)}`

async function silentServer() {
  let tell = (): void => undefined
  const called = new Promise<void>((resolve) => {
    tell = resolve
  })
  return { ...(await serveHttp(() => tell())), called }
}

describe('the built command', () => {
  test('contract §6: a usage error exits 2 with nothing on stdout and JSON alone on stderr', async () => {
    const ran = await shop.run(['eligibility', wallet, '--json'], {
      env: { PROPOSER_HOME: await shop.folder() },
    })
    expect(ran).toMatchObject({ code: 2, stdout: '' })
    expect(JSON.parse(ran.stderr)).toEqual({
      error: {
        code: 'no_gateway',
        detail: expect.any(String),
        hint: expect.stringContaining('--gateway'),
        retryable: false,
        exit_code: 2,
      },
    })
  })

  test('contract §6: nobody listening exits 75, whatever proxy the environment names', async () => {
    const env = {
      PROPOSER_HOME: await shop.folder(),
      HTTP_PROXY: 'http://127.0.0.1:1',
      http_proxy: 'http://127.0.0.1:1',
    }
    const ran = await shop.run(argvOf`eligibility ${wallet} --gateway http://127.0.0.1:9 --json`, {
      env,
    })
    expect(ran.code).toBe(75)
    expect(JSON.parse(ran.stderr).error).toMatchObject({ code: 'no_connection', retryable: true })
  })

  test('contract §6: SIGINT during a call that admits nothing exits 130', async () => {
    const server = await silentServer()
    const running = shop.start(['eligibility', wallet, '--gateway', server.url, '--json'], {
      env: { PROPOSER_HOME: await shop.folder() },
    })
    await server.called
    const ended = await running.stop('SIGINT')
    await server.close()
    expect(ended).toMatchObject({ code: 130, stdout: '' })
    expect(JSON.parse(ended.stderr).error).toMatchObject({ code: 'interrupted', exit_code: 130 })
  })

  test.runIf(process.platform === 'linux')(
    'contract §6: a result that found no room exits 74',
    async () => {
      const full = openSync('/dev/full', 'w')
      const home = await shop.folder()
      const ran = spawnSync(process.execPath, argvOf`${bin} config list --json --home ${home}`, {
        stdio: ['ignore', full, 'pipe'],
        encoding: 'utf8',
      })
      closeSync(full)
      expect(ran.status).toBe(74)
      expect(JSON.parse(ran.stderr).error).toMatchObject({ code: 'output_not_written' })
    },
  )

  test.runIf(process.platform === 'linux')(
    'R23: a reader of stdout who comes late gets the whole result, once',
    async () => {
      const folder = await shop.folder()
      const path = join(folder, 'pipe')
      execFileSync('mkfifo', [path])
      // Both ends in one, so that neither waits for the other to be opened; full before anything is
      // written.
      const pipe = openSync(path, constants.O_RDWR | constants.O_NONBLOCK)
      expect(() => {
        for (;;) writeSync(pipe, '.'.repeat(4096))
      }).toThrow('EAGAIN')
      const running = spawn(process.execPath, [bin, 'config', 'list', '--json', '--home', folder], {
        stdio: ['ignore', pipe, 'inherit'],
      })
      const ended = once(running, 'exit')
      const reader = spawn('cat', [path], { stdio: ['ignore', 'pipe', 'inherit'] })
      let text = ''
      reader.stdout.setEncoding('utf8').on('data', (chunk: string) => {
        text += chunk
      })
      expect(await ended).toEqual([0, null])
      closeSync(pipe)
      await once(reader, 'close')
      expect(JSON.parse(text.replace(/^\.+/, ''))).toMatchObject({ schema: 'proposer.config/1' })
    },
  )
})
