import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Question } from '#gateway/view/state'
import type { Clock, Fetch, Hex } from '#ports'
import type { Progress } from '#protocol/candidate'
import type { BatchItem } from '#protocol/schema'
import { type Argv, proposerHome, type Ran, type RunOptions, run } from './cli.js'
import { makeQuestion, testContracts, type Wallet } from './fake-view.js'
import { trustIn } from './fake-world.js'
import { type FrontOptions, openFront, type TestFront } from './front.js'

export interface BatchWorld {
  readonly home: string
  readonly front: TestFront
  readonly clock: Clock
  readonly wallet: Wallet
  readonly calls: {
    readonly path: string
    readonly items: readonly BatchItem[]
    readonly body: string
  }[]
  intercept: {
    before?: (path: string, body: string) => Promise<Response | undefined>
    after?: (path: string, answer: Response) => Promise<Response>
  }
  ask(name: string, changes?: Parameters<typeof makeQuestion>[1]): Question
  become(candidateId: string, progress: Progress): Promise<void>
  execute(candidateId?: string): Promise<void>
  file(name: string, content: string | Uint8Array): string
  ndjson(name: string, rows: readonly object[]): string
  /** Rows of questions that are asked for them. */
  intents(count: number): { identifier: Hex; outcome: string; client_ref: string }[]
  journal(): Promise<{ journal_id: string; state: string }[]>
  run(argv: Argv, options?: RunOptions): Promise<Ran>
  readonly fetch: Fetch
}

export async function openBatchWorld(options: FrontOptions = {}): Promise<BatchWorld> {
  const front = await openFront(options)
  const [wallet] = front.wallets
  const home = proposerHome(trustIn(testContracts), wallet.privateKey)
  const env = {
    PROPOSER_GATEWAY: 'http://127.0.0.1:8787',
    PROPOSER_KEY_FILE: join(home, 'key'),
  }
  let sleptMs = 0
  const clock: Clock = {
    nowMs: () => front.clock.nowMs() + sleptMs,
    monotonicMs: () => front.clock.monotonic,
    sleep: async (ms, signal) => {
      signal?.throwIfAborted()
      await new Promise((resolve) => setImmediate(resolve))
      signal?.throwIfAborted()
      sleptMs += ms
      front.clock.monotonic += ms
    },
  }
  const world: BatchWorld = {
    home: home,
    front,
    wallet,
    calls: [],
    intercept: {},
    ask(name, changes) {
      const question = makeQuestion(name, changes)
      front.view.put(question)
      return question
    },
    async become(id, progress) {
      await front.ledger.commit([{ kind: 'candidate.progress', id, progress }])
    },
    async execute(id = '') {
      for (const progress of [validated, selected, executed]) await world.become(id, progress)
    },
    file(name, content) {
      const path = join(home, name)
      writeFileSync(path, content)
      return path
    },
    ndjson: (name, rows) =>
      world.file(name, rows.map((row) => `${JSON.stringify(row)}\n`).join('')),
    intents: (count) =>
      Array.from({ length: count }, (_, n) => ({
        identifier: world.ask(`question ${n}`).questionId,
        outcome: 'p2',
        client_ref: `ref-${n}`,
      })),
    journal: async () =>
      JSON.parse((await world.run(['journal', 'list', '--json'])).stdout).authorizations,
    clock,
    fetch: (input, init) => fetch(input, init),
    run: (argv, more = {}) => run(home, argv, { env, fetch, clock, ...more }),
  }
  const fetch: Fetch = async (input, init) => {
    const request = new Request(input, init)
    const { pathname } = new URL(request.url)
    const body = request.method === 'POST' ? await request.text() : ''
    const instead = await world.intercept.before?.(pathname, body)
    if (instead !== undefined) return instead
    if (
      pathname === '/propose/batch' ||
      (request.method === 'POST' && /^\/v1\/proposals\/[^/]+$/.test(pathname))
    ) {
      const parsed = JSON.parse(body) as { proposals?: BatchItem[] }
      world.calls.push({ path: pathname, items: parsed.proposals ?? [], body })
    }
    const answer = await front.gateway.handle(
      new Request(input, { ...init, ...(body === '' ? {} : { body }) }),
      { address: '192.0.2.1' },
    )
    return (await world.intercept.after?.(pathname, answer)) ?? answer
  }
  return world
}

export const linesOf = (text: string): Record<string, unknown>[] =>
  text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Record<string, unknown>)

export { lastErrorOf as errorOf } from './cli.js'

export interface BatchDocument {
  readonly results: {
    readonly client_ref: string | null
    readonly identifier: string
    readonly outcome: string
    readonly status_code: number | null
    readonly candidate: { readonly candidate_id: string; readonly status: string } | null
    readonly error: { readonly code: string; readonly detail: string } | null
    readonly journal_id: string | null
  }[]
  readonly summary: Record<string, number>
}

export const documentOf = (ran: Ran): BatchDocument => JSON.parse(ran.stdout) as BatchDocument

export const validated: Progress = { status: 'validated', validatedAtMs: 1 }
export const selected: Progress = {
  status: 'selected',
  validatedAtMs: 1,
  selectedAtMs: 2,
  submission: null,
}
const submission = {
  status: 'indexed',
  transactionHash: `0x${'7'.repeat(64)}`,
  submittedAtMs: 1_800_000_000_000,
  confirmedAtMs: 1_800_000_000_000,
  indexedAtMs: 1_800_000_000_000,
  proposalEventIndex: 3,
} as const

export const executed: Progress = {
  status: 'executed',
  validatedAtMs: 1_800_000_000_000,
  selectedAtMs: 1_800_000_000_000,
  submission,
}

export { failed } from './candidates.js'
