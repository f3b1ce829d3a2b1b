import { createHash, randomBytes, randomUUID } from 'node:crypto'
import { type GatewayConfig, parseConfig } from '#gateway/config'
import { createGateway, type Gateway, type GatewayParts } from '#gateway/gateway'
import { knownKind } from '#gateway/ledger/state'
import { foldLedger, openLedger } from '#gateway/ledger/writer'
import { createMeters } from '#io/serving/admin-metrics'
import type { Clock, Hash, Random } from '#ports'
import type { Call, RequestRecord } from '#protocol/call'
import type { RecordLog } from '#storage/record-log'
import {
  chainSectionOf,
  createFakeView,
  makeQuestion,
  makeWallet,
  testContracts,
  type Wallet,
} from './fake-view.js'
import { newMemoryStore, openMemoryLog } from './memory-log.js'
import { quietStatus } from './status-document.js'

export interface TestClock extends Clock {
  monotonic: number
}

export function createTestClock(): TestClock {
  const clock: TestClock = {
    monotonic: 0,
    nowMs: () => 1_800_000_000_000,
    monotonicMs: () => clock.monotonic,
    sleep: async () => undefined,
  }
  return clock
}

export const testRandom: Random = {
  bytes: (length) => new Uint8Array(randomBytes(length)),
  uuid: () => randomUUID(),
}
export const testHash: Hash = { sha256: (data) => createHash('sha256').update(data).digest('hex') }

export const statusParts = ({
  requestCounts,
  readiness,
}: Pick<Gateway, 'requestCounts' | 'readiness'>) => ({
  requestCounts,
  status() {
    const reasons = [...readiness()]
    return { ...quietStatus, reasons, ready: reasons.length === 0 }
  },
  meters: createMeters(),
  storeBytes: async () => 7,
  droppedLines: () => 3,
  openSlots: () => 0,
  nodes: () => [],
})

export interface FrontOptions {
  readonly wallets?: number
  readonly config?: object
  readonly parts?: Partial<GatewayParts>
  readonly log?: (log: RecordLog) => RecordLog
}

export type TestFront = Awaited<ReturnType<typeof openFront>>

export const testConfig = (more: object = {}): GatewayConfig =>
  parseConfig(
    {
      chain: chainSectionOf(testContracts),
      budget: { per_ip_items: 1_000_000, global_items: 1_000_000 },
      ...more,
    },
    'test',
  )

export async function openFront(options: FrontOptions = {}) {
  const clock = createTestClock()
  const wallets: readonly [Wallet, ...Wallet[]] = [
    makeWallet(),
    ...Array.from({ length: (options.wallets ?? 1) - 1 }, makeWallet),
  ]
  const config = testConfig(options.config)
  const fold = foldLedger()
  const log = openMemoryLog(newMemoryStore(), knownKind, fold.onRecord, clock.nowMs)
  const ledger = await openLedger(
    { clock, random: testRandom },
    options.log?.(log) ?? log,
    fold.state,
    {
      chainId: testContracts.chainId,
      genesisHash: `0x${'00'.repeat(32)}`,
      allowlist: wallets.map(({ address }) => address),
      admissionEnabled: config.admission.enabled,
    },
  )
  const view = createFakeView([
    makeQuestion('first', { slug: 'first-question' }),
    makeQuestion('second'),
  ])
  const records: RequestRecord[] = []
  const gateway = createGateway({
    ports: { clock, random: testRandom, hash: testHash },
    config,
    ledger,
    view,
    onRequest: (record) => records.push(record),
    ...options.parts,
  })
  const peer = { address: '192.0.2.1' }
  return {
    gateway,
    ledger,
    view,
    clock,
    config,
    wallets,
    records,
    eligibility: `/v1/proposals/eligibility/${wallets[0].address}`,
    get: (path: string, headers: Record<string, string> = {}) =>
      gateway.handle(new Request('http://gateway.test/', { headers }), {
        ...peer,
        target: path,
        method: 'GET',
      }),
    post: (path: string, body: unknown, headers: Record<string, string> = {}) =>
      gateway.handle(
        new Request('http://gateway.test/', {
          method: 'POST',
          headers: { 'content-type': 'application/json', ...headers },
          body:
            typeof body === 'string' || body instanceof Uint8Array ? body : JSON.stringify(body),
        }),
        { ...peer, target: path },
      ),
  }
}

export function slowStore() {
  let held: Promise<void> = Promise.resolve()
  let release = () => {}
  let reached = () => {}
  return {
    log: (log: RecordLog): RecordLog =>
      Object.assign(Object.create(log), {
        append(...records: Parameters<RecordLog['append']>) {
          reached()
          return held.then(() => log.append(...records))
        },
      }),
    hold(): Promise<void> {
      held = new Promise((resolve) => {
        release = resolve
      })
      return new Promise((resolve) => {
        reached = resolve
      })
    },
    release: () => release(),
  }
}

export function rawCall(
  given: Partial<Call> & Pick<Call, 'target'>,
  headers: Readonly<Record<string, string>> = {},
): Call {
  return {
    method: 'POST',
    header: (name) => headers[name],
    readBody: async () => new Uint8Array(),
    address: '192.0.2.1',
    ...given,
  }
}

export async function codeOf(response: Response): Promise<string> {
  const body = (await response.json()) as { error?: { code?: unknown } }
  if (typeof body.error?.code !== 'string')
    throw new Error(`no error body: ${JSON.stringify(body)}`)
  return body.error.code
}
