import { closeSync, openSync } from 'node:fs'
import { readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { foldLedger, openLedger, storeLog } from '#gateway/ledger/writer'
import { followLedger, instrumentedChain } from '#gateway/status/health'
import { folderBytes } from '#host/held-store'
import { createStatus, nodesOf } from '#host/status'
import { systemHash } from '#io/clock'
import { systemFiles } from '#io/files'
import type { NodeHealth } from '#io/rpc/rpc'
import { createMeters, createMetrics } from '#io/serving/admin-metrics'
import { createBufferedWriter } from '#io/serving/buffered-writer'
import { createStateLog } from '#io/serving/logs'
import type { StatusDocument } from '#protocol/status-document'
import type { Observation, StateLine } from '#protocol/vitals'
import { openLog } from '#storage/log'
import { temporaryFolder } from '#support/folders'
import { openFront, statusParts, testConfig } from '#support/front'
import { createPipelineWorld, oneCandidate, type PipelineWorld } from '#support/pipeline-world'
import { SimClock, SimFiles, seededRandom } from '#support/sim-files'
import { quietStatus } from '#support/status-document'

const around = (status: () => StatusDocument = () => quietStatus, isShared = false) => ({
  ...statusParts({ requestCounts: () => [], readiness: () => [] }),
  meters: createMeters({ isShared }),
  status,
})

async function read(registry: {
  metrics(): Promise<string>
}): Promise<ReadonlyMap<string, number>> {
  const lines = (await registry.metrics())
    .split('\n')
    .filter((line) => line.startsWith('proposer_'))
  return new Map(
    lines.map(
      (line) =>
        [
          line.slice(0, line.lastIndexOf(' ')),
          Number(line.slice(line.lastIndexOf(' ') + 1)),
        ] as const,
    ),
  )
}

function signsOf(
  world: PipelineWorld,
  nodes: () => readonly NodeHealth[] = () => [],
  ledEpoch?: () => number | undefined,
) {
  const observations: Observation[] = []
  const lines: StateLine[] = []
  const watched = instrumentedChain(world.chain, world.executor.address, (one) =>
    observations.push(one),
  )
  const { clock, ledger, view } = world
  const status = createStatus({
    ...{ clock, ledger, view, nodes },
    config: testConfig(),
    following: followLedger({ clock, ledger }),
    readiness: () => [],
    budget: { spentByAll: () => 0, endsInMs: () => 0, clients: 0 },
    readings: watched.readings,
    executor: world.executor.address,
    cluster: { standing: () => undefined, epoch: () => ledEpoch?.() },
    onState: (line) => lines.push(line),
  })
  const { version, started_at, url, last_minute, admin_url, changes } = quietStatus
  const around = { version, started_at, url, last_minute, admin_url, changes }
  const signs = { look: status.look, now: () => status.now(around) }
  return { signs, observations, lines, ...watched }
}

test('contract §2: what happens is counted by stage, end, code and outcome', async () => {
  const parts = around()
  const happened: Observation[] = [
    { kind: 'stage', stage: 'confirmed', seconds: 3 },
    { kind: 'ended', outcome: 'executed', code: 'none', seconds: 4 },
    { kind: 'ended', outcome: 'failed', code: 'permit_expired', seconds: 9 },
    { kind: 'signed', as: 'fee_bump' },
    { kind: 'settled', end: 'reverted' },
    { kind: 'synced', seconds: 0.002 },
    { kind: 'written', bytes: 100 },
    { kind: 'rpc', method: 'send', outcome: 'unavailable' },
  ]
  happened.forEach(parts.meters.observe)
  const told = await read(createMetrics(parts))
  expect(Object.fromEntries(told)).toMatchObject({
    'proposer_stage_seconds_count{stage="confirmed"}': 1,
    'proposer_stage_seconds_bucket{le="2.5",stage="confirmed"}': 0,
    'proposer_stage_seconds_bucket{le="5",stage="confirmed"}': 1,
    'proposer_stage_seconds_count{stage="executed"}': 0,
    proposer_execution_seconds_sum: 4,
    'proposer_candidates_ended_total{outcome="executed",code="none"}': 1,
    'proposer_candidates_ended_total{outcome="failed",code="permit_expired"}': 1,
    'proposer_candidates_ended_total{outcome="failed",code="superseded"}': 0,
    'proposer_executor_signed_total{as="fee_bump"}': 1,
    'proposer_executor_transactions_total{end="reverted"}': 1,
    proposer_store_sync_seconds_count: 1,
    proposer_store_written_bytes_total: 100,
    'proposer_rpc_calls_total{method="send",outcome="unavailable"}': 1,
    proposer_store_bytes: 7,
    proposer_log_lines_dropped_total: 3,
  })
  for (const name of [
    'proposer_process_resident_memory_bytes',
    'proposer_nodejs_eventloop_lag_p99_seconds',
  ])
    expect(told.get(name)).toBeGreaterThanOrEqual(0)
})

test('contract §2: what is not known is left out, and comes and goes with the knowledge', async () => {
  let status = quietStatus
  let nodes: readonly NodeHealth[] = []
  const methods = { heads: 120, logs: 3, contracts: 12, state: 6, transactions: 0 }
  const counts = { requests: 130, methods }
  const metrics = createMetrics({ ...around(() => status), nodes: () => nodes })
  const names = async () =>
    [...(await read(metrics)).keys()].filter((name) =>
      /head|rpc_node|executor_(balance|paid|nonce)/.test(name),
    )
  expect(await names()).toEqual([])
  const requests = { answered: 7, unanswered: 2 }
  nodes = [{ index: 1, state: 'aside', requests }]
  const unanswered = 2
  status = {
    ...quietStatus,
    chain: { ...quietStatus.chain, head: '12', head_age_seconds: 1.5 },
    nodes: [{ node: 2, healthy: false, head: null, head_age_seconds: null, unanswered }],
    rpc: { total: counts },
    executor: {
      balance_wei: String(15n * 10n ** 17n),
      balance_text: '1.5 POL',
      pays_for: 12,
      highest_nonce: 5,
      gap_latest: null,
      gap_finalized: 2,
      open_slots: 2,
      newest_hash: null,
    },
  }
  expect(Object.fromEntries(await read(metrics))).toMatchObject({
    proposer_chain_head_number: 12,
    proposer_chain_head_age_seconds: 1.5,
    'proposer_rpc_node_healthy{node="2"}': 0,
    'proposer_rpc_node_requests_total{node="2",outcome="answered"}': 7,
    'proposer_rpc_node_requests_total{node="2",outcome="unanswered"}': 2,
    'proposer_rpc_methods_total{class="heads"}': 120,
    'proposer_rpc_methods_total{class="transactions"}': 0,
    'proposer_view_questions{state="known"}': 3,
    'proposer_view_questions{state="due"}': 1,
    'proposer_executor_nonce_gap{at="finalized"}': 2,
    proposer_executor_balance_ether: 1.5,
    proposer_executor_paid_proposals: 12,
  })
  expect(await names()).not.toContain('proposer_executor_nonce_gap{at="latest"}')
  status = quietStatus
  nodes = []
  expect(await names()).toEqual([])
})

test('a name that ends in _total is that of a counter, as Prometheus has it', async () => {
  const text = await createMetrics(around(undefined, true)).metrics()
  const types = [...text.matchAll(/^# TYPE (\w+) (\w+)$/gm)]
  expect(types.length).toBeGreaterThan(30)
  for (const [, name = '', type] of types)
    expect([name, type === 'counter'], name).toEqual([name, name.endsWith('_total')])
})

test('docs: the table names every metric of ours, and queries nothing that is none', async () => {
  const page = await readFile(
    join(import.meta.dirname, '../..', 'docs', 'reference', 'metrics.md'),
    'utf8',
  )
  const text = await createMetrics(around(undefined, true)).metrics()
  const names = [...text.matchAll(/^# TYPE proposer_(\w+)/gm)].map(([, name = '']) => name)
  const table = page.slice(page.indexOf('| Metric (`proposer_…`)')).split('\n\n')[0] ?? ''
  const named = table
    .split('\n')
    .flatMap((row) =>
      [...(row.split('|')[1] ?? '').matchAll(/`(\w+)`/g)].map(([, name = '']) => name),
    )
  expect(named.filter((name) => !names.includes(name))).toEqual([])
  expect(names.filter((name) => !/^(process|nodejs)_/.test(name) && !named.includes(name))).toEqual(
    [],
  )
  const queried = [...page.matchAll(/proposer_([a-z]\w+)/g)].map(([, name = '']) =>
    name.replace(/_bucket$/, ''),
  )
  expect(queried.filter((name) => !names.includes(name))).toEqual([])
})

describe('what the figures rest on', () => {
  test('contract §2: a look asks no node; balance and nonces are what the pipeline read last', async () => {
    const world = await createPipelineWorld()
    const { signs, chain, readings } = signsOf(world)
    expect(signs.now().executor).toMatchObject({
      balance_wei: null,
      pays_for: null,
      highest_nonce: -1,
      gap_latest: 0,
    })
    await chain.balance(world.executor.address)
    await chain.balance(`0x${'01'.repeat(20)}`)
    await chain.transactionCount(world.executor.address, 'latest')
    await chain.transactionCount(world.executor.address, 'finalized')
    expect(
      signs.now().executor?.pays_for,
      'what a proposal costs is not known without a tip',
    ).toBeNull()
    await chain.tip()
    expect(readings).toMatchObject({
      balanceWei: await world.chain.balance(world.executor.address),
      nonceLatest: 0,
      nonceFinalized: 0,
    })
    const before = new Map(world.chain.calls)
    const { executor, chain: shown } = signs.now()
    expect(executor?.pays_for).toBeGreaterThan(0)
    expect(shown.head).toBe(String(world.view.heads()?.latest.number))
    expect(new Map(world.chain.calls)).toEqual(before)
  })

  test('robustness §3: the nonce gap is what is bound and not used yet, and 0 once all is final', async () => {
    const { world } = await oneCandidate()
    const { signs, chain } = signsOf(world)
    await world.turn()
    await Promise.all(
      (['latest', 'finalized'] as const).map((at) =>
        chain.transactionCount(world.executor.address, at),
      ),
    )
    expect(signs.now().executor).toMatchObject({
      open_slots: 1,
      highest_nonce: 0,
      gap_latest: 1,
      gap_finalized: 1,
    })
    await world.pass(1)
    await chain.transactionCount(world.executor.address, 'latest')
    expect(signs.now().executor).toMatchObject({ gap_latest: 0, gap_finalized: 1 })
    await world.pass(3)
    expect(signs.now().executor).toMatchObject({
      open_slots: 0,
      gap_latest: 0,
      gap_finalized: 0,
    })
  })

  test('R16: calls to the chain are counted with how they ended, and end as they did', async () => {
    const world = await createPipelineWorld()
    const { chain, observations } = signsOf(world)
    world.chain.fault('send', 'already_known')
    world.chain.fault('tip', 'unavailable')
    world.chain.fault('estimateGas', 'insufficient_funds')
    await expect(chain.send('0x')).rejects.toMatchObject({ kind: 'already_known' })
    await expect(chain.tip()).rejects.toMatchObject({ kind: 'unavailable' })
    await expect(chain.estimateGas({ to: '0x', data: '0x' })).rejects.toMatchObject({
      kind: 'insufficient_funds',
    })
    expect(await chain.chainId()).toBe(await world.chain.chainId())
    expect(observations).toEqual([
      { kind: 'rpc', method: 'send', outcome: 'ok' },
      { kind: 'rpc', method: 'tip', outcome: 'unavailable' },
      { kind: 'rpc', method: 'estimateGas', outcome: 'refused' },
      { kind: 'rpc', method: 'chainId', outcome: 'ok' },
    ])
  })

  test('R16: a node set aside and back is a line each, told once; the age of its head starts with the head', async () => {
    const world = await createPipelineWorld()
    const requests = { answered: 1, unanswered: 0 }
    let nodes: readonly NodeHealth[] = [
      { index: 0, state: 'healthy', headNumber: 5n, requests },
      { index: 1, state: 'healthy', requests, why: 'https://key@node.example/secret' },
    ]
    const { signs, lines } = signsOf(world, () => nodes)
    signs.look([])
    world.clock.monotonic += 4_000
    nodes = nodes.map((node) => ({ ...node, state: node.index === 1 ? 'aside' : 'healthy' }))
    signs.look([])
    signs.look(['the newest block is old'])
    expect(signs.now().nodes).toEqual([
      { node: 1, healthy: true, head: '5', head_age_seconds: 4, unanswered: 0 },
      { node: 2, healthy: false, head: null, head_age_seconds: null, unanswered: 0 },
    ])
    nodes = [
      { index: 0, state: 'healthy', headNumber: 6n, requests },
      { index: 1, state: 'healthy', requests },
    ]
    signs.look([])
    expect(signs.now().nodes[0]?.head_age_seconds).toBe(0)
    expect(lines).toEqual([
      { event: 'ready', reasons: 0 },
      { event: 'rpc.aside', node: 2 },
      { event: 'not_ready', reasons: 1 },
      { event: 'rpc.back', node: 2 },
      { event: 'ready', reasons: 0 },
    ])
    expect(nodesOf(world.chain)()).toEqual([])
  })

  test('contract §9: a lease that this gateway took, and its end, are a line each', async () => {
    const world = await createPipelineWorld()
    let epoch: number | undefined
    const { signs, lines } = signsOf(world, undefined, () => epoch)
    for (epoch of [undefined, 3, 3, undefined, 5, 7]) signs.look([])
    expect(lines.filter(({ event }) => event.startsWith('lease.'))).toEqual([
      { event: 'lease.taken', epoch: 3 },
      { event: 'lease.ended', epoch: 3 },
      { event: 'lease.taken', epoch: 5 },
      { event: 'lease.taken', epoch: 7 },
    ])
  })

  test('R16: one node aside leaves the gateway ready, all of them do not', async () => {
    let states: readonly ('healthy' | 'aside')[] = ['healthy', 'aside']
    const { gateway } = await openFront({
      parts: { nodes: () => states.map((state) => ({ state })) },
    })
    expect(gateway.readiness()).toEqual([])
    states = ['aside', 'aside']
    expect(gateway.readiness()).toEqual(['all 2 RPC nodes are set aside'])
    states = ['aside']
    expect(gateway.readiness()).toEqual(['the RPC node is set aside'])
    states = []
    expect(gateway.readiness()).toEqual([])
  })

  test.each([
    [
      'R10: a store that failed is not told as full',
      { verb: 'datasync', does: 'EIO' },
      { isFull: false, isFailed: true },
    ],
    [
      'robustness §2: a store whose disk is full has not failed',
      { verb: 'write', does: 'ENOSPC' },
      { isFull: true, isFailed: false },
    ],
  ] as const)('%s', async (_, fault, expected) => {
    const sim = new SimFiles()
    const clock = new SimClock()
    const fold = foldLedger()
    const options = { ...storeLog, fence: async () => undefined }
    const log = await openLog(
      { files: sim.process(), clock, hash: systemHash },
      '/data/store',
      options,
      fold.onRecord,
    )
    const settings = {
      chainId: 31337,
      genesisHash: '0x01',
      allowlist: [],
      admissionEnabled: true,
    } as const
    const ledger = await openLedger({ clock, random: seededRandom(1) }, log, fold.state, settings)
    sim.faults = [{ ...fault, nth: 1, always: true }]
    await expect(
      ledger.commit([{ kind: 'admission.set', enabled: false, reason: 'test' }]),
    ).rejects.toThrow()
    expect({ isFull: ledger.isFull, isFailed: ledger.failed !== undefined }).toEqual(expected)
    // A log that failed has nothing left to close.
    await ledger.close().catch(() => undefined)
  })

  test('the size of a store is that of its records and snapshots, and no fault of a look', async () => {
    const folder = temporaryFolder()
    try {
      await Promise.all([
        writeFile(join(folder, 'log-1.jsonl'), 'x'.repeat(100)),
        writeFile(join(folder, 'snap-1.jsonl'), 'x'.repeat(10)),
        writeFile(join(folder, 'LOCK.1'), 'x'),
      ])
      expect(await folderBytes(systemFiles, folder)).toBe(110)
    } finally {
      await rm(folder, { recursive: true })
    }
    await expect(folderBytes(systemFiles, folder)).rejects.toMatchObject({
      code: 'store_unavailable',
    })
    const storeBytes = () => folderBytes(systemFiles, folder)
    const shown = await read(createMetrics({ ...around(), storeBytes }))
    expect(shown.has('proposer_store_bytes')).toBe(false)
    expect(shown.get('proposer_store_full')).toBe(0)
  })
})

test('robustness §5, R20: a state line is one short line of the fields it knows, and outside text cannot act', () => {
  const lines: string[] = []
  const log = createStateLog({ write: (line) => lines.push(line) })
  const planted = {
    event: 'candidate.failed',
    candidate_id: 'an-id',
    code: 'x\u202e\n\u001b[2J',
    signature: '0xPLANTED',
  }
  log.write(planted)
  log.write({ event: 'slot.sent', slot: 'y'.repeat(10_000), nonce: 7, hash: '0xab' })
  log.write({ event: 'slot.sent', nonce: 8, elsewhere: true })
  expect(JSON.parse(lines.at(-1) ?? '')).toMatchObject({
    message: 'slot sent (by another gateway)',
    elsewhere: true,
  })
  log.write({ event: 'lease.taken', epoch: 4 })
  expect(JSON.parse(lines.at(-1) ?? '')).toMatchObject({ event: 'lease.taken', epoch: 4 })
  for (const line of lines)
    expect([line.endsWith('\n'), line.split('\n').length, line.length <= 4096]).toEqual([
      true,
      2,
      true,
    ])
  const [first, second] = lines.map((line) => JSON.parse(line) as Record<string, unknown>)
  expect(first).toEqual({
    level: 30,
    severity: 'info',
    time: expect.stringMatching(/Z$/),
    message: 'candidate failed x???[2J',
    candidate_id: 'an-id',
    code: 'x???[2J',
    event: 'candidate.failed',
  })
  expect(second).toMatchObject({
    message: 'slot sent',
    nonce: 7,
    hash: '0xab',
    event: 'slot.sent',
    slot: 'y'.repeat(100),
  })
  expect(lines.join('')).not.toContain('PLANTED')
})

test('robustness §5: a terminal that has gone loses text, counted, and whoever waits for it goes on', async () => {
  const fd = openSync('/dev/null', 'r')
  const writer = createBufferedWriter(fd)
  expect(writer.isIdle()).toBe(true)
  expect(writer.write('lost')).toBe(true)
  expect(writer.isIdle()).toBe(false)
  await writer.written(10_000)
  expect(writer.dropped()).toBe(1)
  expect(writer.write('more')).toBe(false)
  expect(writer.dropped()).toBe(2)
  closeSync(fd)
})

test('R17: more than a mebibyte is not kept for a terminal that takes none', async () => {
  const fd = openSync('/dev/null', 'w')
  const writer = createBufferedWriter(fd)
  expect(writer.write('x'.repeat(1024 * 1024))).toBe(true)
  expect(writer.write('x')).toBe(false)
  expect(writer.dropped()).toBe(1)
  await writer.written(10_000)
  expect(writer.write('x')).toBe(true)
  await writer.written(10_000)
  closeSync(fd)
})
