import { Chalk } from 'chalk'
import { createLiveStatus, statusLines } from '#commands/hosting/live-status'
import { terminalSize } from '#commands/terminal/output'
import { durationText } from '#commands/terminal/render'
import { createActivity } from '#host/activity'
import { untilReady } from '#host/server'
import { createStatus, inWholeSeconds } from '#host/status'
import { parseStatus, type StatusDocument } from '#protocol/status-document'
import { testConfig } from '#support/front'
import { screenOf } from '#support/screen'
import { quietStatus } from '#support/status-document'

const plain = new Chalk({ level: 0 })
const id = '77a05293-8d5a-4a52-9c3d-0a1b2c3d4e5f'
const hash = `0x${'79846260'.repeat(8)}` as const
const expired = { code: 'permit_expired', stage: 'submission' }
const shown: StatusDocument = {
  ...quietStatus,
  url: 'http://127.0.0.1:8787',
  admin_url: 'http://127.0.0.1:8788',
  queue: {
    received: { count: 3, oldest_seconds: 2.4 },
    validated: { count: 0, oldest_seconds: 0 },
    selected: { count: 2, oldest_seconds: 130 },
  },
  budget: {
    ...{ window_seconds: 60, global_items: 1000, per_ip_items: 120, spent_items: 133 },
    ...{ window_ends_at: '1970-01-01T00:00:35.000Z', clients: 4 },
  },
  last_minute: { fine: 120, refused: 3, limited: 1, failed: 2, admitted: 12 },
  chain: { ...quietStatus.chain, head: '123', head_age_seconds: 1.2 },
  nodes: [
    { node: 1, healthy: true, head: '123', head_age_seconds: 1, unanswered: 0 },
    { node: 2, healthy: false, head: '99', head_age_seconds: 60, unanswered: 0 },
  ],
  executor: {
    balance_wei: '1500000000000000000',
    balance_text: '1.5 POL',
    pays_for: 88,
    highest_nonce: 17,
    gap_latest: 1,
    gap_finalized: 1,
    open_slots: 1,
    newest_hash: hash,
  },
  changes: [
    { at: '1970-01-01T00:00:00.000Z', event: 'candidate.selected', candidate_id: id },
    { at: '1970-01-01T00:00:01.000Z', event: 'slot.sent', slot: id, nonce: 17, hash },
    { at: '1970-01-01T00:00:02.000Z', event: 'candidate.failed', candidate_id: id, ...expired },
    { at: '1970-01-01T00:00:03.000Z', event: 'rpc.aside', node: 2 },
  ],
}

function figuresOf(changed: Partial<StatusDocument> = {}): StatusDocument {
  const made = { ...shown, ...changed }
  const read = parseStatus(JSON.parse(JSON.stringify(made)))
  expect(read).toEqual(made)
  return made
}

/** What `serve` makes of them. */
function statusOf(ledger: object, nowMs: number): StatusDocument {
  const parts = {
    clock: { nowMs: () => nowMs, monotonicMs: () => 0, sleep: async () => undefined },
    config: testConfig(),
    ledger: {
      ...{ admissionSwitch: true, admissionEnabled: true, isFull: false, failures: new Map() },
      ...ledger,
    },
    following: { queue: () => shown.queue },
    view: {
      heads: () => undefined,
      counts: () => ({ known: 40, due: 0 }),
      code: () => ({ changed: [], versions: new Map() }),
    },
    readiness: () => [],
    budget: { spentByAll: () => 133, endsInMs: () => 35_400, clients: 4 },
    nodes: () => [],
  }
  const { version, started_at, url, last_minute, admin_url, changes } = shown
  const status = createStatus(parts as unknown as Parameters<typeof createStatus>[0])
  const made = status.now({ version, started_at, url, last_minute, admin_url, changes })
  expect(parseStatus(JSON.parse(JSON.stringify(inWholeSeconds(made))))).toEqual(
    inWholeSeconds(made),
  )
  return made
}

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['Date'], now: 0 })
})
afterEach(() => {
  vi.useRealTimers()
})

describe('the block', () => {
  test('of a store that several gateways share it says who leads, and how far this one has read', () => {
    const lineOf = (leader: string | null, leads: boolean) =>
      statusLines(
        figuresOf({ cluster: { leads, leader, epoch: 4, lag_records: 0, gateways: 2 } }),
        { columns: 80, rows: 24, paint: plain },
      ).find((line) => line.startsWith('store'))
    expect(lineOf(id, true)).toBe('store     leads · epoch 4 · 2 gateways · lag 0')
    expect(lineOf(id, false)).toBe('store     77a05293… leads · epoch 4 · 2 gateways · lag 0')
    expect(lineOf(null, false)).toMatch(/no leader/)
  })

  test('contract §6: status has the ceilings, and the wallets that cost gas for nothing, for programs and people', () => {
    const atSeconds = 1_700_000_000
    const wallet = `0x${'ab'.repeat(20)}` as const
    const failure = { wallet, kind: 'own', gasUsed: '1400000', atSeconds } as const
    const document = statusOf(
      { failures: new Map([[wallet, [failure, failure, failure]]]) },
      (atSeconds + 60) * 1000,
    )
    expect(document.ceilings).toMatchObject({
      max_proposal_gas: 1_500_000,
      failed_gas_per_wallet: 50_000_000,
    })
    expect(document.budget).toMatchObject({
      ...{ spent_items: 133, clients: 4, window_ends_at: '2023-11-14T22:14:55.000Z' },
    })
    const until = '2023-11-14T22:15:20.000Z'
    expect(document.wallets).toEqual([
      {
        ...{ address: wallet, failures: 3, failed_gas: '4200000', alone: true },
        ...{ state: 'waits', until },
      },
    ])
    const text = statusLines(document, { columns: 200, rows: 24, paint: plain })
    expect(text.join('\n')).toContain('failed gas per wallet 50000000')
    expect(text).toContain(`wallets   ${wallet} waits until ${until}, 4200000 gas failed`)
  })

  test('contract §6: at 80 columns it has everything an operator looks for', () => {
    expect(statusLines(figuresOf(), { columns: 80, rows: 24, paint: plain })).toEqual([
      'gateway   ready · http://127.0.0.1:8787 · admin http://127.0.0.1:8788',
      'chain     block 123, 1 s old · 1 of 2 nodes · set aside: 2',
      'queue     received 3 (2 s) · validated 0 · selected 2 (2 min)',
      'minute    2xx 120 · 4xx 3 · 429 1 · 5xx 2 · admitted 12',
      'limit     133 of 1000 items · window ends in 35 s · 120 a client · 4 clients',
      'executor  nonce 17 · 1 open · 1.5 POL (gas) · about 88 proposals',
      '          last 0x79846260…',
      '00:00:00Z candidate 77a05293… selected',
      '00:00:01Z nonce 17 sent 0x79846260…',
      '00:00:02Z candidate 77a05293… failed permit_expired',
      '00:00:03Z rpc 2 aside',
    ])
  })

  test.each([1, 8, 12, 20, 40, 80, 200])(
    'contract §6: no line is longer than %i columns, coloured or not',
    (columns) => {
      const reasons = [
        'the newest block is 31 s old, more than the 30 s allowed (RPC node 1 of 2: no response within 5000 ms)',
      ]
      const lines = statusLines(figuresOf({ reasons }), { columns, rows: 60, paint: plain })
      for (const line of lines) expect(line.length).toBeLessThanOrEqual(columns)
      const coloured = statusLines(figuresOf({ reasons }), {
        columns,
        rows: 60,
        paint: new Chalk({ level: 1 }),
      })
      expect(coloured.map((line) => line.replace(/\u001b\[[0-9;]*m/g, ''))).toEqual(lines)
    },
  )

  test('contract §6: at 40 columns nothing is lost but the ends of long lines', () => {
    const text = statusLines(figuresOf(), { columns: 40, rows: 60, paint: plain }).join('\n')
    for (const part of [
      'admin http://127.0.0.1:8788',
      'set aside: 2',
      'selected 2 (2 min)',
      'admitted 12',
      '4 clients',
      'about 88 proposals',
    ])
      expect(text).toContain(part)
  })

  test.each([2, 5, 9, 24])(
    'a terminal of %i rows is never overfilled, and the changes give way first',
    (rows) => {
      const lines = statusLines(figuresOf(), { columns: 80, rows, paint: plain })
      expect(lines.length).toBeLessThanOrEqual(rows - 1)
      expect(lines[0]).toContain('ready')
      if (rows === 9) expect(lines.slice(7)).toEqual(['00:00:03Z rpc 2 aside'])
    },
  )

  test('what the nodes are asked is counted from the start, by class', () => {
    const methods = { heads: 40, logs: 0, contracts: 6, state: 0, transactions: 0 }
    const screen = { columns: 80, rows: 60, paint: plain }
    const figures = figuresOf({ rpc: { total: { requests: 41, methods } } })
    expect(statusLines(figures, screen)[2]).toBe(
      'rpc       46 calls since the start (40 heads, 6 contracts) · 41 requests',
    )
  })

  test('R20: a reason with control characters acts on no terminal', () => {
    const reasons = ['node said \u001b[2J\u202eevil\r\n']
    const text = statusLines(figuresOf({ reasons }), { columns: 80, rows: 24, paint: plain }).join(
      '',
    )
    expect(text).toContain('not ready')
    expect(text).not.toMatch(/[\u0000-\u001f\u202e]/)
  })

  test('contract §6: admission that is paused stands beside the readiness it leaves untouched, and a switch is told with what it was set to', () => {
    const at = '1970-01-01T00:00:00.000Z'
    const changes = [
      { at, event: 'admission.set', enabled: false },
      { at, event: 'admission.set', enabled: true },
      { at, event: 'allowlist.set', enabled: true },
      { at, event: 'allowlist.set', enabled: false },
    ]
    const lines = statusLines(figuresOf({ admission_enabled: false, changes }), {
      columns: 80,
      rows: 24,
      paint: plain,
    })
    expect(lines[0]).toBe('gateway   ready · admission paused · http://127.0.0.1:8787')
    expect(lines.slice(-4).map((line) => line.slice(10))).toEqual([
      'admission paused',
      'admission resumed',
      'allowlist wallet allowed',
      'allowlist wallet disallowed',
    ])
  })

  test('without a head, an executor or nodes it says so', () => {
    const lines = statusLines(figuresOf({ chain: quietStatus.chain, nodes: [], executor: null }), {
      columns: 80,
      rows: 24,
      paint: plain,
    })
    expect(lines).toContain('chain     no block yet')
    expect(lines).toContain('executor  off')
  })

  test.each([
    [0, '0 s'],
    [99.9, '1 min 39 s'],
    [7_199, '1 h 59 min'],
    [7_200, '2 h'],
  ])('%d seconds are told as %s', (seconds, text) => {
    expect(durationText(seconds)).toBe(text)
  })
})

test('R13, R17: calls count by class for one minute of the monotonic clock, and six changes are kept', () => {
  let ms = 0
  const recent = createActivity({ nowMs: () => ms, monotonicMs: () => ms })
  const noteCall = (status: number, route = '/v1/proposals/{identifier}/submit') =>
    recent.noteCall({ route, status })
  for (const status of [200, 202, 400, 404, 429, 500, 503]) noteCall(status)
  for (const status of [200, 503]) noteCall(status, '/readyz')
  recent.noteChange({ event: 'candidate.received', candidate_id: id })
  recent.noteChange({ event: 'candidate.received', candidate_id: id, elsewhere: true })
  expect(recent.lastMinute()).toEqual({ fine: 2, refused: 2, limited: 1, failed: 2, admitted: 1 })
  ms = 59_999
  noteCall(200)
  expect(recent.lastMinute().fine).toBe(3)
  ms = 60_000
  expect(recent.lastMinute()).toEqual({ fine: 1, refused: 0, limited: 0, failed: 0, admitted: 0 })
  for (let nonce = 0; nonce < 100; nonce += 1) recent.noteChange({ event: 'slot.opened', nonce })
  expect(recent.changes().map(({ nonce }) => nonce)).toEqual([94, 95, 96, 97, 98, 99])
})

describe('drawing in place', () => {
  beforeEach(() => {
    vi.useFakeTimers({ now: 0 })
  })

  function terminal(size = { columns: 80, rows: 24 }) {
    const state = { written: '', idle: true, writes: 0 }
    const status = createLiveStatus({
      size: () => size,
      write(text) {
        state.written += text
        state.writes += 1
      },
      isIdle: () => state.idle,
      written: async () => undefined,
      paint: plain,
    })
    return { state, status }
  }
  const block = (changes: Partial<StatusDocument> = {}) =>
    statusLines(figuresOf(changes), { columns: 80, rows: 24, paint: plain })

  test('contract §6: the block is redrawn in place once a second, log lines stand above it, and its last frame stays', async () => {
    const { state, status } = terminal()
    status.start(() => figuresOf())
    expect(screenOf(state.written)).toEqual(block())
    vi.advanceTimersByTime(3_500)
    expect(state.writes).toBe(4)
    expect(screenOf(state.written)).toEqual(block())
    status.above('{"event":"request"}')
    expect(screenOf(state.written)).toEqual(['{"event":"request"}', ...block()])
    await status.around(() => {
      state.written += 'ready\n'
    })
    expect(screenOf(state.written)).toEqual(['{"event":"request"}', 'ready', ...block()])
    await status.end('stopping')
    const ended = ['{"event":"request"}', 'ready', ...block(), 'stopping']
    expect(screenOf(state.written)).toEqual(ended)
    vi.advanceTimersByTime(10_000)
    await status.end('again')
    expect(screenOf(state.written)).toEqual(ended)
  })

  test('robustness §5: a terminal that is held gets no frames, and the next one when it goes on', () => {
    const { state, status } = terminal()
    status.start(() => figuresOf())
    state.idle = false
    vi.advanceTimersByTime(60_000)
    expect(state.writes).toBe(1)
    state.idle = true
    vi.advanceTimersByTime(1_000)
    expect(state.writes).toBe(2)
  })

  test('contract §6: a terminal that says it has no columns and no rows is taken for a usual one, and no order to it is nonsense', () => {
    expect(terminalSize({ columns: 0, rows: 0 })).toEqual({ columns: 80, rows: 24 })
    expect(terminalSize({})).toEqual({ columns: 80, rows: 24 })
    expect(terminalSize({ columns: 132, rows: 50 })).toEqual({ columns: 132, rows: 50 })
    const { state, status } = terminal({ columns: 0, rows: 0 })
    status.start(() => figuresOf())
    vi.advanceTimersByTime(2_000)
    expect(state.writes).toBe(3)
    expect(state.written).not.toMatch(/NaN|Infinity/)
  })

  test('a block that became shorter leaves nothing behind', () => {
    const { state, status } = terminal()
    let now = figuresOf()
    status.start(() => now)
    now = figuresOf({ changes: [] })
    vi.advanceTimersByTime(1_000)
    expect(screenOf(state.written)).toEqual(block({ changes: [] }))
  })
})

test('contract §6: one note a reason, though the figures in it change with every look', async () => {
  let ageSeconds = 42
  const notes: string[] = []
  const clock = {
    nowMs: () => 0,
    monotonicMs: () => 0,
    sleep: async () => {
      ageSeconds += 1
    },
  }
  const readiness = () =>
    ageSeconds > 50
      ? []
      : [
          `the newest block is ${ageSeconds} s old`,
          ...(ageSeconds > 45 ? ['the node has no finalized block'] : []),
        ]
  await untilReady({ clock, signal: new AbortController().signal }, { readiness }, (note) =>
    notes.push(note),
  )
  expect(notes).toEqual([
    'waiting: the newest block is 42 s old',
    'waiting: the node has no finalized block',
  ])
})
