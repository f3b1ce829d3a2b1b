/**
 * A day of work in simulated seconds: processes of the whole command line on one simulated disk and
 * machine, a modelled chain that tells them their contexts, and the gateway's front with its real
 * budget, whose candidates are executed some seconds after their admission.
 */

import { generatePrivateKey, privateKeyToAddress } from 'viem/accounts'
import { createRoundReader } from '#chain/questions'
import { domainOf, roundRef } from '#chain/round'
import { main } from '#commands/main'
import type { Context } from '#commands/terminal/context'
import { createGateway } from '#gateway/gateway'
import { knownKind } from '#gateway/ledger/state'
import { foldLedger, openLedger } from '#gateway/ledger/writer'
import type { Question } from '#gateway/view/state'
import { type Clock, type Fetch, type Hex, TransportError } from '#ports'
import type { Progress } from '#protocol/candidate'
import type { Address } from '#protocol/schema'
import { witnessRound } from '#protocol/witness'
import { type Argv, fakeContext, type Ran, type RunOptions, wordsOf } from './cli.js'
import { eventClock } from './client-world.js'
import { deferred } from './deferred.js'
import { ask, createFakeChain, endow, type FakeChain, questionText } from './fake-chain.js'
import { chainSectionOf, createFakeView } from './fake-view.js'
import { fakeContracts, fakeTrust } from './fake-world.js'
import { testConfig, testHash } from './front.js'
import { recordHistory } from './history/recorder.js'
import { newMemoryStore, openMemoryLog } from './memory-log.js'
import { SimFiles, SimHost, seeded, seededRandom } from './sim-files.js'

export interface DayOptions {
  readonly questions: number
  readonly seed?: number
  readonly itemsPerWindow?: number
  readonly windowSeconds?: number
  readonly lifeMs?: readonly [least: number, most: number] | 'never'
  readonly hasNode?: boolean
  readonly latencyMs?: readonly [least: number, most: number]
}

export interface Call {
  readonly path: string
  readonly items: number
  readonly status: number
  readonly atMs: number
  readonly isForeign: boolean
}

export type DayWorld = Awaited<ReturnType<typeof openDay>>

const home = '/home'
const peer = { address: '192.0.2.1' }
const impatienceMs = 100
/**
 * Whom the others ask about. Our processes ask for no wallet's eligibility, so that their calls can
 * be told apart.
 */
const foreigner = `0x${'f'.repeat(40)}`

/**
 * Everything but waiting takes no time here: what a run lasts is what the budget makes it wait, and
 * the way to the gateway.
 */
export async function openDay(options: DayOptions) {
  const {
    seed = 1,
    itemsPerWindow = 120,
    windowSeconds = 60,
    lifeMs = [2_000, 6_000],
    latencyMs = [5, 120],
  } = options
  const random = seeded(seed)
  const between = ([least, most]: readonly [number, number]) => least + random() * (most - least)
  const { chain, questionIds, key } = await chainOf(options.questions)
  const startMs = Number(chain.head.timestamp) * 1_000
  const clock = eventClock(startMs)
  const serverClock: Clock = {
    nowMs: clock.nowMs,
    monotonicMs: () => 12_345 + clock.monotonicMs(),
    sleep: clock.sleep,
  }
  const { chainId, signedProposer } = fakeContracts
  const config = testConfig({
    chain: chainSectionOf(fakeContracts),
    budget: {
      window_seconds: windowSeconds,
      per_ip_items: itemsPerWindow,
      global_items: 1_000_000,
    },
  })
  const fold = foldLedger()
  const recorder = recordHistory({ chainId, spender: signedProposer })
  const ledger = await openLedger(
    { clock: serverClock, random: seededRandom(seed) },
    recorder.store(openMemoryLog(newMemoryStore(), knownKind, fold.onRecord, serverClock.nowMs)),
    fold.state,
    {
      chainId,
      genesisHash: `0x${'00'.repeat(32)}`,
      allowlist: [addressOf(key)],
      admissionEnabled: true,
    },
  )
  const view = createFakeView(await questionsOf(chain, questionIds))
  const calls: Call[] = []
  const gateway = createGateway({
    ports: { clock: serverClock, random: seededRandom(seed + 1), hash: testHash },
    config,
    ledger,
    view: { ...view, nowSeconds: () => BigInt(Math.floor(clock.nowMs() / 1_000)) },
    yieldToEvents: async () => undefined,
    onRequest: ({ route, items, status }) => {
      calls.push({
        path: route,
        items,
        status,
        atMs: clock.nowMs() - startMs,
        isForeign: route.includes('eligibility'),
      })
    },
  })
  let lastAnswerMs = 0
  const { promise: begun, resolve: begin } = deferred()
  const submitted: string[] = []
  const handle = recorder.gateway((request) => gateway.handle(request, peer))

  const execute = async (id: string) => {
    if (lifeMs === 'never') return
    const receivedMs = clock.nowMs()
    await clock.sleep(between(lifeMs))
    const atMs = clock.nowMs()
    const submission = {
      status: 'indexed',
      transactionHash: `0x${'7'.repeat(64)}`,
      submittedAtMs: receivedMs + 1_000,
      confirmedAtMs: atMs,
      indexedAtMs: atMs,
      proposalEventIndex: 3,
    } as const
    const times = { validatedAtMs: receivedMs + 500, selectedAtMs: receivedMs + 600 }
    const steps: readonly Progress[] = [
      { status: 'validated', validatedAtMs: times.validatedAtMs },
      { status: 'selected', ...times, submission: null },
      { status: 'executed', ...times, submission },
    ]
    await ledger.commit(steps.map((progress) => ({ kind: 'candidate.progress', id, progress })))
  }

  const fetch: Fetch = async (input, init) => {
    begin()
    const call = new Request(input, init)
    const { pathname } = new URL(call.url)
    const body = call.method === 'POST' ? await call.text() : undefined
    await clock.sleep(between(latencyMs), init?.signal ?? undefined)
    if (pathname === '/propose/batch' && body !== undefined) submitted.push(body)
    const answer = await handle(
      new Request(input, { ...init, signal: null, ...(body === undefined ? {} : { body }) }),
    )
    for (const id of await admittedIn(answer.clone())) void execute(id)
    await clock.sleep(between(latencyMs))
    lastAnswerMs = clock.nowMs() - startMs
    return answer
  }

  const sim = new SimFiles()
  const host = new SimHost()
  const write = (name: string, text: string) => {
    sim.put(`${home}/${name}`, new TextEncoder().encode(text))
    return `${home}/${name}`
  }
  write('trust/default.json', JSON.stringify(fakeTrust))
  let processes = 0
  return {
    sim,
    host,
    clock,
    chain,
    gateway,
    ledger,
    questionIds,
    calls,
    submitted,
    history: recorder.history,
    lastAnswerMs: () => lastAnswerMs,
    file: write,
    rows: (name: string, rows: readonly object[]) =>
      write(name, rows.map((row) => `${JSON.stringify(row)}\n`).join('')),
    async run(
      argv: Argv,
      wrap: (fetch: Fetch) => Fetch = (each) => each,
      terminal: Pick<RunOptions, 'columns'> = {},
    ) {
      processes++
      const own = recorder.client(wrap(fetch))
      const env = {
        PROPOSER_GATEWAY: 'http://127.0.0.1:8787',
        ...(options.hasNode === false ? {} : { PROPOSER_RPC_URL: 'http://127.0.0.1:8545' }),
      }
      const { context, stdout, stderr } = fakeContext(home, {
        env,
        environmentKey: key,
        chain,
        fetch: own,
        clock,
        ...terminal,
      })
      const process: Context = {
        ...context,
        random: seededRandom(seed * 1_000 + processes),
        files: recorder.files(sim.process()),
        liveness: host.liveness(processes),
      }
      const code = await main(wordsOf(argv), process)
      return { code, stdout: stdout.written.join(''), stderr: stderr.written.join('') }
    },
    async foreigner(items: number, everyMs: number, until: AbortSignal) {
      const ask = () =>
        gateway.handle(
          new Request(`http://gateway.test/v1/proposals/eligibility/${foreigner}`),
          peer,
        )
      // Modules are loaded in real time, which is none here; by the first call everything is
      // loaded.
      await begun
      for (;;) {
        await clock.sleep(everyMs, until)
        for (let left = items; left > 0; ) {
          const answer = await ask()
          if (answer.status === 200) left--
          else await clock.sleep(impatienceMs, until)
        }
      }
    },
  }
}

export const journalFiles = /\/home\/journal\/[0-9a-f]{12}\/log-/

/** What a process of the day told; undefined where a fault of its disk has ended it. */
export async function untilKilled(
  day: DayWorld,
  argv: Argv,
  wrap?: (fetch: Fetch) => Fetch,
): Promise<Ran | undefined> {
  const death = day.sim.death().then(() => undefined)
  const ran = await Promise.race([day.clock.drive(day.run(argv, wrap), death), death])
  day.sim.faults = []
  for (let pid = 1; pid < 10; pid++) day.host.kill(pid)
  return ran
}

/** Loses the answers to these submissions of a batch. */
export const losing =
  (isLost: (nth: number) => boolean) =>
  (fetch: Fetch): Fetch => {
    let submissions = 0
    return async (input, init) => {
      const answer = await fetch(input, init)
      if (String(input).endsWith('/propose/batch') && isLost(submissions++))
        throw new TransportError('exchange', 'ECONNRESET', 'cut')
      return answer
    }
  }

export const itemsIn = (bodies: readonly string[]) =>
  bodies.flatMap(
    (body) =>
      (JSON.parse(body) as { proposals: { identifier: string; signature: string }[] }).proposals,
  )

const addressOf = (key: Hex) => privateKeyToAddress(key).toLowerCase() as Address

async function chainOf(
  count: number,
): Promise<{ chain: FakeChain; questionIds: readonly Hex[]; key: Hex }> {
  const chain = createFakeChain()
  const key = generatePrivateKey()
  const questionIds = Array.from({ length: count }, (_, index) =>
    ask(chain, questionText(`Question ${index}`)),
  )
  endow(chain, addressOf(key), 10n ** 15n)
  chain.mine(3)
  return { chain, questionIds, key }
}

async function questionsOf(
  chain: FakeChain,
  questionIds: readonly Hex[],
): Promise<readonly Question[]> {
  const reader = createRoundReader(chain, fakeContracts)
  return Promise.all(
    questionIds.map(async (questionId) => {
      const round = await reader.read(questionId)
      if (round === undefined) throw new Error(`the chain has no ${questionId}`)
      const witness = witnessRound(domainOf(fakeContracts), round, round.token.address)
      return {
        questionId,
        slug: undefined,
        round,
        ref: roundRef(fakeContracts, questionId, round, witness.ancillaryHash),
        witness,
      }
    }),
  )
}

async function admittedIn(answer: Response): Promise<readonly string[]> {
  const body = (await answer.json()) as {
    candidate_id?: string
    results?: { status_code: number; candidate?: { candidate_id: string } }[]
  }
  if (answer.status === 202 && body.candidate_id !== undefined) return [body.candidate_id]
  return (body.results ?? []).flatMap(({ status_code, candidate }) =>
    status_code === 202 && candidate ? [candidate.candidate_id] : [],
  )
}
