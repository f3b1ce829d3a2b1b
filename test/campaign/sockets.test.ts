/**
 * T10: sockets. A thousand slow clients, endless bodies, header floods, half-open peers and
 * nonsense on a real `serve`, while honest callers go on: everything hostile is gone within its
 * time, memory stays bounded, and nothing is left of it (robustness §4, §5, R17).
 */
import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { argvOf } from '#support/argv'
import { figures } from '#support/campaign'
import { type Running, workshop } from '#support/processes'
import { makeClient, questionOf, type ServeReady } from '#support/proposing'
import { exchangeRaw } from '#support/raw-http'
import {
  type HonestCallers,
  type Phase,
  residentMiB,
  socketsOf,
  startHonestCallers,
} from '#support/sockets/honest'
import { endlessAttacks, framingRows, hangUps, manyCalls } from '#support/sockets/hostile'
import { openSlowClients, type SlowKind } from '#support/sockets/slow-clients'

/** Robustness §5, and a second for looking and one for the machine. */
const lifetimesMs: Readonly<Partial<Record<SlowKind, number>>> = {
  'slow headers': 12_000,
  'slow body': 32_000,
}
const slowMs = 20_000
const growthMiB = 80

const shop = workshop()
let server: Running
let ready: ServeReady
let port: number
let pid: number
let honest: HonestCallers
let quiet: Phase
let rssBefore: number
let socketsBefore: number

beforeAll(async () => {
  server = shop.start(
    [
      ...argvOf`serve --dev --port 0 --questions 1 --json --no-log`,
      ...argvOf`--set budget.per_ip_items=10000000 --set budget.global_items=10000000`,
    ],
    // Writing every answer down would be a part of what is measured.
    { env: { TMPDIR: await shop.folder(), ANSWERS_FILE: '' } },
  )
  ready = await server.line<ServeReady>()
  ;[port, pid] = [Number(new URL(ready.url).port), ready.pid]
  const client = await makeClient(shop, ready.dev, {
    PROPOSER_GATEWAY: ready.url,
    PROPOSER_RPC_URL: ready.dev.rpc_url,
  })
  const { question_id } = questionOf(ready.dev, 0)
  const { answer } = await client.ask('sign', question_id, '--outcome', 'p2')
  const submission = {
    method: 'POST',
    path: `/v1/proposals/${question_id}`,
    body: JSON.stringify(answer.payload),
  } as const
  honest = await startHonestCallers(
    ready.url,
    [
      submission,
      { method: 'GET', path: `/v1/proposals/eligibility/${client.proposer}` },
      {
        method: 'POST',
        path: '/propose/batch/signing-data',
        body: JSON.stringify({ identifiers: [question_id] }),
      },
      { method: 'GET', path: '/healthz' },
    ],
    50,
  )
  await sleep(2_000)
  await honest.phase()
  const seen: number[] = []
  for (let look = 0; look < 8; look += 1) {
    await sleep(500)
    seen.push(await socketsOf(pid))
  }
  quiet = await honest.phase()
  rssBefore = await residentMiB(pid)
  socketsBefore = Math.max(...seen)
})
afterAll(async () => {
  await honest?.stop()
})

const settled = () =>
  expect
    .poll(() => socketsOf(pid), { timeout: 40_000, interval: 250 })
    .toBeLessThanOrEqual(socketsBefore)
/** A busy machine may shed a call that has waited (robustness §5): then it is sent again. */
async function unshed<Answer extends { readonly code: string | undefined }>(
  call: () => Promise<Answer>,
): Promise<Answer> {
  for (let tries = 1; ; tries += 1) {
    const answer = await call()
    if (answer.code !== 'server_busy' || tries === 30) return answer
    await sleep(1_000)
  }
}
const unexpected = ({ statuses }: Phase) =>
  Object.keys(statuses).filter((status) => !['200', '202', '503'].includes(status))

describe('T10: sockets', () => {
  test('R17: a thousand slow clients and every attack beside them neither keep honest callers from being served nor stay', async () => {
    let most = 0
    const watching = setInterval(() => {
      residentMiB(pid).then(
        (now) => {
          most = Math.max(most, now)
        },
        () => undefined,
      )
    }, 250)
    const startedMs = performance.now()
    const slow = await openSlowClients(port, {
      'slow headers': 300,
      'slow body': 350,
      'slow reader': 50,
      'silent from the start': 200,
      'silent after a call': 100,
    })
    try {
      for (const { name, bytes, status, code } of framingRows) {
        const answer = await unshed(() => exchangeRaw(port, bytes))
        expect(`${name}: ${answer.status} ${answer.code} ${answer.closed}`).toBe(
          `${name}: ${status} ${code} true`,
        )
      }
      for (const { name, run, status, code, mayBeCut } of endlessAttacks) {
        const answer = await unshed(() => run(port))
        if (mayBeCut && answer.status === 0) continue
        expect(`${name}: ${answer.status} ${answer.code} ${answer.closed}`).toBe(
          `${name}: ${status} ${code} true`,
        )
      }
      for (const { name, run, told } of hangUps) {
        const { status } = await unshed(async () => {
          const status = await run(port)
          return { status, code: status === 503 ? 'server_busy' : undefined }
        })
        expect([name, status]).toEqual([name, told])
      }
      expect(await manyCalls(port, 1_001)).toEqual({ answered: 1_000, closed: true })
      await sleep(Math.max(0, slowMs - (performance.now() - startedMs)))
      const attacked = await honest.phase()
      expect(slow.most).toBe(1_000)
      slow.letGo()
      await settled()
      const goneMs = performance.now() - startedMs
      clearInterval(watching)

      for (const [kind, limitMs] of Object.entries(lifetimesMs)) {
        const lived = slow.lived[kind as SlowKind]
        // On a machine so busy that calls wait, timers do too.
        const late = lived.filter((ms) => ms > limitMs + attacked.p99Ms)
        expect([kind, lived.length > 0, late.length, Math.max(0, ...late)]).toEqual([
          kind,
          true,
          0,
          0,
        ])
      }
      expect(most - rssBefore).toBeLessThan(growthMiB)
      expect([...unexpected(attacked), ...unexpected(quiet)]).toEqual([])
      expect(attacked.calls).toBeGreaterThan(quiet.calls)
      // With a thousand slow ones the last of the 1,024 places are few: a new connection of an
      // honest caller may find none for a moment.
      expect(attacked.lost.length).toBeLessThan(attacked.calls / 100)
      const longest = (kind: SlowKind) => Math.round(Math.max(...slow.lived[kind]) / 100) / 10
      const ms = (value: number) => Math.round(value * 10) / 10
      figures('sockets', {
        'slow clients at once': slow.most,
        'cut off by the server': Object.values(slow.lived).flat().length,
        'longest slow headers (s)': longest('slow headers'),
        'longest slow body (s)': longest('slow body'),
        'longest silent (s)': longest('silent from the start'),
        'all gone after (s)': Math.round(goneMs / 100) / 10,
        'memory growth (MiB)': Math.round(most - rssBefore),
        'honest calls': attacked.calls,
        'honest calls lost': attacked.lost.length,
        'honest p50 quiet (ms)': ms(quiet.p50Ms),
        'honest p99 quiet (ms)': ms(quiet.p99Ms),
        'honest p50 attacked (ms)': ms(attacked.p50Ms),
        'honest p99 attacked (ms)': ms(attacked.p99Ms),
        'plain p99 attacked (ms)': ms(attacked.plainP99Ms),
        'shed (503)': attacked.statuses['503'] ?? 0,
        'malformed or endless requests': framingRows.length + endlessAttacks.length,
      })
    } finally {
      clearInterval(watching)
      slow.close()
    }
  })

  test('R17: connections above the most allowed are told 503 and closed, and their places are free again afterwards', async () => {
    const turnedAway: string[] = []
    const sockets = Array.from({ length: 1_100 }, () => {
      const socket = connect({ host: '127.0.0.1', port })
      let told = ''
      socket.setEncoding('latin1').on('data', (part) => {
        told += part
      })
      socket.on('error', () => undefined)
      socket.on('close', () => turnedAway.push(told))
      return socket
    })
    try {
      await expect
        .poll(() => turnedAway.length, { timeout: 20_000 })
        .toBeGreaterThanOrEqual(1_100 - 1_024)
      for (const told of turnedAway) expect(told).toMatch(/^HTTP\/1\.1 503 .*"server_busy"/s)
      await expect
        .poll(() => socketsOf(pid), { timeout: 20_000 })
        .toBeLessThanOrEqual(socketsBefore + 1_024)
    } finally {
      for (const socket of sockets) socket.destroy()
    }
    await settled()
    expect((await exchangeRaw(port, 'GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n')).status).toBe(200)
    await honest.phase()
    await sleep(1_000)
    expect((await honest.phase()).lost).toEqual([])
  })

  test('R2: what honest callers sent all the while is one candidate, however often it came; the server ends well', async () => {
    await honest.stop()
    const metrics = await (await fetch(`${ready.admin_url}/metrics`)).text()
    const submitted = [
      ...metrics.matchAll(
        /^proposer_http_requests_total\{route="\/v1\/proposals\/\{identifier\}",method="POST",status="(20\d)"\} (\d+)$/gm,
      ),
    ]
    const count = (status: string) => Number(submitted.find(([, one]) => one === status)?.[2] ?? 0)
    expect([count('202'), count('200') > 100]).toEqual([1, true])
    expect((await server.stop()).code).toBe(0)
  })
})
