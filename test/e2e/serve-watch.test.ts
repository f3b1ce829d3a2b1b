/**
 * What an operator sees of `serve`: metrics, log lines and the live status, from outside the
 * process.
 */
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { argvOf } from '#support/argv'
import { workshop } from '#support/processes'
import { makeClient, questionOf, type ServeReady, untilExecuted } from '#support/proposing'
import { withoutFrames } from '#support/terminal'

const shop = workshop()

async function metricsOf({
  admin_url,
}: ServeReady): Promise<{ text: string; value(name: string): number }> {
  const text = await (await fetch(`${admin_url}/metrics`)).text()
  return {
    text,
    value: (name) => {
      const line = text.split('\n').find((one) => one.startsWith(`${name} `))
      if (line === undefined) throw new Error(`no metric ${name}`)
      return Number(line.slice(name.length))
    },
  }
}

async function practice() {
  const { chain, dev, folder } = await shop.devChain(2)
  const path = join(folder, 'gateway.json')
  const config = JSON.parse(await readFile(path, 'utf8')) as { chain: { rpc_urls: string[] } }
  const withKey = (url: string) => url.replace('http://', 'http://user:PLANTED-RPC-KEY@')
  config.chain.rpc_urls = [
    ...config.chain.rpc_urls.map(withKey),
    'http://127.0.0.1:1/PLANTED-RPC-PATH',
  ]
  await writeFile(path, JSON.stringify(config))
  return { folder, chain, dev, path }
}

describe('serve, watched', () => {
  test('contract §2, robustness §5: metrics follow a proposal to its execution, each change is a line, and no secret is in either', async () => {
    const { folder, chain, dev, path } = await practice()
    const server = shop.start(argvOf`serve --config ${path} --port 0 --json`)
    const ready = { ...(await server.line<ServeReady>()), dev }
    const client = await makeClient(shop, dev, {
      PROPOSER_GATEWAY: ready.url,
      PROPOSER_RPC_URL: dev.rpc_url,
    })
    const before = await metricsOf(ready)
    expect(before.value('proposer_candidates_ended_total{outcome="executed",code="none"}')).toBe(0)
    expect(before.value('proposer_stage_seconds_count{stage="executed"}')).toBe(0)
    expect(before.value('proposer_ready')).toBe(1)

    const { slug, question_id } = questionOf(dev, 0)
    const signed = await client.ask('sign', slug, '--outcome', 'p2')
    const submitted = await client.ask('submit', slug, '--outcome', 'p2')
    expect(submitted.code).toBe(0)
    const id = String(submitted.answer.candidate_id)
    const status = await untilExecuted(client, id)
    const ended = 'proposer_candidates_ended_total{outcome="executed",code="none"}'
    await expect
      .poll(async () => (await metricsOf(ready)).value(ended), { timeout: 30_000 })
      .toBe(1)
    await expect
      .poll(async () => (await metricsOf(ready)).value('proposer_rpc_node_healthy{node="2"}'), {
        timeout: 30_000,
      })
      .toBe(0)
    const after = await metricsOf(ready)
    for (const stage of ['validated', 'selected', 'submitted', 'confirmed', 'executed']) {
      expect([stage, after.value(`proposer_stage_seconds_count{stage="${stage}"}`)]).toEqual([
        stage,
        1,
      ])
    }
    expect(after.value('proposer_executor_signed_total{as="first"}')).toBe(1)
    expect(after.value('proposer_executor_transactions_total{end="executed"}')).toBe(1)
    expect(after.value('proposer_executor_nonce_gap{at="finalized"}')).toBe(0)
    expect(after.value('proposer_executor_balance_ether')).toBeGreaterThan(0)
    expect(after.value('proposer_executor_paid_proposals')).toBeGreaterThan(0)
    expect(after.value('proposer_store_sync_seconds_count')).toBeGreaterThan(
      before.value('proposer_store_sync_seconds_count'),
    )
    expect(after.value('proposer_store_bytes')).toBeGreaterThan(
      before.value('proposer_store_bytes'),
    )
    expect(after.value('proposer_chain_head_number')).toBeGreaterThan(
      before.value('proposer_chain_head_number'),
    )
    expect(after.value('proposer_rpc_node_healthy{node="1"}')).toBe(1)
    expect(after.value('proposer_process_resident_memory_bytes')).toBeGreaterThan(0)
    expect(after.value('proposer_ready')).toBe(1)

    const reason = 'PLANTED-OPERATOR-REASON'
    const paused = await shop.run(argvOf`operator pause --config ${path} --reason ${reason}
      --yes --json`)
    expect(paused.code).toBe(0)
    const { code, stderr } = await server.stop()
    expect(code).toBe(0)
    const lines = stderr
      .split('\n')
      .flatMap((line) =>
        line.startsWith('{') ? [JSON.parse(line) as Record<string, unknown>] : [],
      )
    const events = lines.filter(({ candidate_id }) => candidate_id === id).map(({ event }) => event)
    expect(events).toEqual([
      'candidate.received',
      'candidate.validated',
      'candidate.selected',
      'candidate.prepared',
      'candidate.submitted',
      'candidate.confirmed',
      'candidate.executed',
    ])
    const slots = lines.filter(({ event }) => String(event).startsWith('slot.'))
    expect(slots.map(({ event }) => event)).toEqual([
      'slot.opened',
      'slot.signed',
      'slot.sent',
      'slot.mined',
      'slot.closed',
    ])
    for (const line of slots) expect(line.nonce).toBe(0)
    expect(slots.at(-1)).toMatchObject({
      kind: 'executed',
      hash: status.submission?.transaction_hash,
    })
    expect(lines).toContainEqual(expect.objectContaining({ event: 'rpc.aside', node: 2 }))
    expect(lines).toContainEqual(expect.objectContaining({ event: 'ready' }))
    expect(lines).toContainEqual(
      expect.objectContaining({ event: 'admission.set', enabled: false }),
    )
    expect(lines).toContainEqual(
      expect.objectContaining({ event: 'candidate.received', question_id }),
    )
    expect(lines.some(({ event }) => event === 'request')).toBe(true)

    const payload = signed.answer.payload as Record<string, unknown>
    const signature = /"signature":"(0x[0-9a-f]+)"/.exec(JSON.stringify(payload))?.[1] ?? ''
    expect(signature.length).toBeGreaterThan(130)
    const token = (await readFile(join(folder, 'gateway-store', 'admin.token'), 'utf8')).trim()
    const secrets = [
      signature,
      token,
      client.proposer,
      '127.0.0.1',
      'PLANTED',
      folder,
      slug,
      ...dev.accounts.map((one) => one.private_key),
    ]
    const logged = stderr
      .split('\n')
      .filter((line) => line.startsWith('{'))
      .join('\n')
    for (const secret of secrets) {
      expect(logged.includes(secret) ? secret : undefined).toBeUndefined()
      expect(after.text.includes(secret) ? secret : undefined).toBeUndefined()
    }
    expect(after.text).not.toMatch(/0x[0-9a-f]{8}|[0-9a-f]{8}-[0-9a-f]{4}-/)
    for (const line of logged.split('\n')) expect(line.length).toBeLessThanOrEqual(4096)
    await chain.stop()
  })

  /** stderr says that it is a terminal; what is written there goes to our pipe all the same. */
  const terminal = (columns: number) => {
    const script = `Object.assign(process.stderr, { isTTY: true, columns: ${columns}, rows: 30 })`
    return { NODE_OPTIONS: `--import data:text/javascript,${encodeURIComponent(script)}` }
  }

  test.each([
    ['the status alone', 80, [], true, false],
    ['status and lines with --log, narrow', 40, ['--log'], true, true],
    ['neither with --quiet', 80, ['--quiet'], false, false],
    ['lines alone with --quiet --log', 80, ['--quiet', '--log'], false, true],
  ] as const)(
    'contract §6: on a terminal serve shows %s, and its last frame says that it drains',
    async (_name, columns, flags, status, log) => {
      const server = shop.start(argvOf`serve --dev --port 0 --questions 0 --json ${flags}`, {
        env: { TMPDIR: await shop.folder(), ...terminal(columns) },
      })
      const { url } = await server.line<ServeReady>()
      expect((await fetch(`${url}/v1/proposals/eligibility/0x${'ab'.repeat(20)}`)).status).toBe(200)
      if (status) await server.said(/2xx 1 /)
      if (log) await server.said(/"event":"request"/)
      const { code, stdout, stderr } = await server.stop('SIGINT')
      expect(code).toBe(0)
      expect(stdout.trim().split('\n')).toHaveLength(1)
      expect(stderr.includes('gateway   ')).toBe(status)
      expect(stderr.includes('"event":"request"')).toBe(log)
      if (!status) return
      expect(stderr).not.toMatch(/\u001b\[\d*m/)
      const shown = withoutFrames(stderr)
        .split('\n')
        .map((line) => line.replace(/\u001b\[\d*[AKJ]|\r/g, ''))
      expect(shown.join(' ').trim()).toMatch(
        /draining calls in flight for up to 10 s; press Ctrl-C again to stop now$/,
      )
      const drawn = shown.filter((line) => !line.startsWith('{') && !line.startsWith('waiting: '))
      expect(Math.max(...drawn.map((line) => line.length))).toBeLessThanOrEqual(columns)
    },
  )

  test('R23, robustness §5: a reader of the log who takes nothing loses lines, counted, and holds up neither calls nor the end', async () => {
    // Of free and refused calls an address has 60 lines a minute: these are charged, and fit.
    const roomy = ['per_ip_items', 'global_items'].flatMap((key) => [
      '--set',
      `budget.${key}=1000000`,
    ])
    const flags = argvOf`--port 0 --questions 0 --json ${roomy}`
    const server = shop.start(['serve', '--dev', ...flags], {
      env: { TMPDIR: await shop.folder() },
    })
    const ready = await server.line<ServeReady>()
    server.child.stderr?.pause()
    const dropped = async () => (await metricsOf(ready)).value('proposer_log_lines_dropped_total')
    const some = () =>
      Promise.all(
        Array.from({ length: 200 }, () =>
          fetch(`${ready.url}/v1/proposals/eligibility/0x${'ab'.repeat(20)}`).then((answer) =>
            answer.text(),
          ),
        ),
      )
    for (let turn = 0; turn < 200 && (await dropped()) === 0; turn += 1) await some()
    expect(await dropped()).toBeGreaterThan(0)
    expect((await fetch(`${ready.url}/readyz`)).status).toBe(200)
    const exited = new Promise((resolve) => server.child.once('exit', resolve))
    server.child.kill('SIGTERM')
    expect(await exited).toBe(0)
    server.child.stderr?.resume()
    await server.ended
  })

  test('contract §6: a dumb terminal gets notes and no drawing', async () => {
    const server = shop.start(argvOf`serve --dev --port 0 --questions 0 --json`, {
      env: { TMPDIR: await shop.folder(), ...terminal(80), TERM: 'dumb' },
    })
    await server.line()
    const { code, stderr } = await server.stop('SIGINT')
    expect(code).toBe(0)
    expect(stderr).not.toContain('\u001b')
    expect(stderr).not.toContain('gateway   ')
  })
})
