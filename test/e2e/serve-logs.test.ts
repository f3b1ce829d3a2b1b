/** `serve` as its operator's other programs meet it: the log, and the listener for scrapers. */
import { join } from 'node:path'
import { argvOf } from '#support/argv'
import { workshop } from '#support/processes'
import type { ServeReady } from '#support/proposing'

const shop = workshop()

interface Line {
  readonly level: number
  readonly severity: string
  readonly time: string
  readonly event: string
  readonly message: string
}

function linesOf(stderr: string): readonly Line[] {
  const lines = stderr.trimEnd().split('\n')
  return lines.map((line) => {
    const parsed = JSON.parse(line) as Line
    expect(parsed, line).toMatchObject({
      level: { debug: 20, info: 30, warn: 40, error: 50 }[parsed.severity],
      time: expect.stringMatching(/^\d{4}-.*Z$/),
      event: expect.stringMatching(/./),
      message: expect.stringMatching(/./),
    })
    return parsed
  })
}

const dev = argvOf`serve --dev --port 0 --questions 0 --host 0.0.0.0`

describe('contract §9: the log', () => {
  test('is JSON from the first line on, with a message and a severity; debug has every call to a node', async () => {
    const everybody = ['--set', 'proxy.trusted_cidrs=["10.0.0.0/8","0.0.0.0/0"]']
    const server = shop.start(argvOf`${dev} ${everybody} --json --log-level debug`, {
      env: { TMPDIR: await shop.folder() },
    })
    const { url } = await server.line<ServeReady>()
    await fetch(`${url}/nowhere`)
    await server.said(/"event":"request"/)
    const { code, stderr } = await server.stop()
    expect(code).toBe(0)
    const lines = linesOf(stderr)
    expect(lines[0]).toMatchObject({ severity: 'warn', event: 'warning', code: 'plain_http' })
    expect(
      lines.filter((line) => 'code' in line && line.code === 'proxy_trusts_all'),
    ).toMatchObject([{ severity: 'warn', message: expect.stringContaining('0.0.0.0/0') }])
    expect(lines).toContainEqual(
      expect.objectContaining({ severity: 'info', message: expect.stringMatching(/^GET .* 404/) }),
    )
    expect(lines).toContainEqual(
      expect.objectContaining({ severity: 'debug', event: 'rpc', outcome: 'ok' }),
    )
  })

  test('leaves out what is less grave than PROPOSER_LOG_LEVEL, and never the reason why it does not start', async () => {
    const env = { TMPDIR: await shop.folder(), PROPOSER_LOG_LEVEL: 'warn' }
    const server = shop.start([...dev, '--json'], { env })
    const { url } = await server.line<ServeReady>()
    await fetch(`${url}/nowhere`)
    const lines = linesOf((await server.stop()).stderr)
    expect(lines.map(({ event }) => event)).toEqual(['warning'])

    const missing = join(await shop.folder(), 'gateway.json')
    for (const flags of [[], ['--json']]) {
      const { code, stderr } = await shop.run(['serve', '--config', missing, ...flags], { env })
      expect(code).toBe(2)
      expect(linesOf(stderr)).toMatchObject([
        { severity: 'error', message: expect.stringContaining('cannot be read (ENOENT)') },
      ])
    }
  })

  test('takes four levels: another is exit 2', async () => {
    const { code, stderr } = await shop.run(argvOf`serve --dev --log-level verbose`)
    expect(code).toBe(2)
    expect(stderr).toMatch(/"verbose" is not a log level[\s\S]*debug, info, warn, error/)
  })
})

describe('contract §9: the listener for metrics', () => {
  test('is off by default; with `metrics` it has a port of its own, and the admin listener stays', async () => {
    const metrics = 'metrics={"host":"127.0.0.1","port":0}'
    const server = shop.start(argvOf`${dev} --json --no-log --set ${metrics}`, {
      env: { TMPDIR: await shop.folder() },
    })
    const ready = await server.line<ServeReady & { metrics_url: string }>()
    const shown = await fetch(`${ready.metrics_url}/metrics`)
    expect([shown.status, await shown.text()]).toEqual([
      200,
      expect.stringContaining('proposer_ready 1'),
    ])
    expect((await fetch(`${ready.metrics_url}/operator/status`)).status).toBe(404)
    expect((await fetch(`${ready.admin_url}/metrics`)).status).toBe(200)
    const taken = `metrics={"host":"127.0.0.1","port":${new URL(ready.metrics_url).port}}`
    // --port 0 would free this one too.
    const ports = argvOf`--set listen.port=0 --set admin.port=0 --set ${taken}`
    const second = await shop.run(argvOf`serve --dev --questions 0 --json ${ports}`, {
      env: { TMPDIR: await shop.folder() },
    })
    expect(second.code).toBe(2)
    expect(second.stderr).toContain('metrics.port')
    expect((await server.stop()).code).toBe(0)
    await expect(fetch(`${ready.metrics_url}/healthz`)).rejects.toThrow()

    const plain = shop.start([...dev, '--json', '--no-log'], {
      env: { TMPDIR: await shop.folder() },
    })
    expect(await plain.line()).not.toHaveProperty('metrics_url')
    await plain.stop()
  })
})
