/**
 * A whole gateway with chain, pipeline and executor in memory, and the conformance checks against
 * it; between them stands what is wrong.
 */

import { keccak256 } from 'viem'
import { createPlanner, withBudget } from '#client/budget/planner'
import { createGatewayClient } from '#client/gateway/gateway-client'
import { openJournal } from '#client/journal/journal'
import type { BenchParts, Rule } from '#conformance/bench'
import { createProbe } from '#conformance/probe'
import { type CheckResult, rules, runRules } from '#conformance/run'
import { parseConfig } from '#gateway/config'
import { createGateway } from '#gateway/gateway'
import { systemEd25519 } from '#io/ed25519'
import { newReceiptKey } from '#io/receipt-keys'
import type { Clock, Fetch, Hex, Signer } from '#ports'
import { sha256 } from '../client-world.js'
import { questionText } from '../fake-events.js'
import { chainSectionOf } from '../fake-view.js'
import { fakeContracts, fakeTrust } from '../fake-world.js'
import { createPipelineWorld } from '../pipeline-world.js'
import { rememberedKey } from '../sim/keys.js'
import { SimFiles, SimHost, seededRandom } from '../sim-files.js'
import type { Make } from './between.js'
import { type Meter, metering } from './meter.js'

/** Stands between client and gateway. */
export type Wrong = (
  request: Request,
  next: (request: Request) => Promise<Response>,
) => Promise<Response>

export type WrongWorld = Awaited<ReturnType<typeof openWrongWorld>>

const names = ['one', 'two', 'three', 'four', 'five']
const withoutHalf = 'res_data: p1: 0, p2: 1. Where p1 corresponds to No, p2 to Yes.'
const base = 'http://localhost:8787'
/** A few windows for a whole run, and one that is soon overrun. */
/** Two hours: far more than any run waits. */
const blocksAtMost = 3_600
const unlimited = 1_000_000_000
const budget = { window_seconds: 10, per_ip_items: 350, global_items: 100_000 }

/**
 * Worlds are the same but for what is wrong, and so are most of their signatures: they are made and
 * looked at once a process.
 */
const signatures = new Map<string, Promise<Hex>>()
const remembered = (signer: Signer): Signer => ({
  address: signer.address,
  signDigest(digest) {
    const name = `${signer.address} ${digest}`
    const known = signatures.get(name) ?? signer.signDigest(digest)
    signatures.set(name, known)
    return known
  },
})

export interface WrongWorldOptions {
  /** Answers are signed; what is altered on the way is then no receipt any more. */
  readonly receipts?: boolean
  /** The questions permit p3. */
  readonly half?: boolean
  /** `false`: candidates stay received. */
  readonly pipeline?: boolean
  /** Blocks come, but the pipeline moves only every tenth time. */
  readonly slow?: boolean
  /** Another budget than the gateway's own, which is then not charged. */
  readonly meter?: Meter
}

/** Of questions without half, by question id. */
export const slugs: ReadonlyMap<string, string> = new Map(
  names.map((name) => [keccak256(questionText(name, withoutHalf)), `question-${name}`]),
)

/** A world with open questions and two wallets, of which every check can have what it needs. */
export async function openWrongWorld(
  make: Make = () => (request, next) => next(request),
  may: Partial<BenchParts['may']> = {},
  { half = false, pipeline = true, slow = false, receipts = false, meter }: WrongWorldOptions = {},
) {
  const resData = half ? undefined : withoutHalf
  const texts = names.map((name) => questionText(name, resData))
  const entries = texts.map((text, index) => ({
    questionId: keccak256(text),
    slug: `question-${names[index]}`,
  }))
  const world = await createPipelineWorld({ entries, config: { pipeline: { enabled: pipeline } } })
  for (const name of names) await world.question(name, resData)
  const { sleep } = world.clock
  // What a gateway waits for without an end of its own, as before it reads a wallet's code again,
  // takes its time at once.
  Object.assign(world.clock, {
    sleep: async (ms: number, signal?: AbortSignal) => {
      if (signal !== undefined) return sleep(ms, signal)
      world.clock.monotonic += ms
    },
  })
  const wallets = [world.proposer(0), world.proposer(1)].map(remembered)
  await world.ledger.commit(
    wallets.map(
      ({ address }) => ({ kind: 'allowlist.set', address, allowed: true, reason: 'test' }) as const,
    ),
  )
  const config = parseConfig(
    {
      chain: chainSectionOf(fakeContracts),
      budget:
        meter === undefined
          ? budget
          : { ...budget, per_ip_items: unlimited, global_items: unlimited },
    },
    'test',
  )
  const ports = { clock: world.clock, random: world.random, hash: sha256 }
  const key = newReceiptKey({ hash: sha256, random: world.random })
  const listed = { kid: key.kid, x: key.x, nbf: 0 }
  if (receipts) await world.ledger.commit([{ kind: 'receipt.key', key: listed, reason: 'test' }])
  const gateway = createGateway({
    ports,
    receipts: receipts ? { current: () => key, fault: () => undefined } : undefined,
    config,
    ledger: world.ledger,
    view: world.view,
    recover: rememberedKey,
    yieldToEvents: async () => undefined,
  })
  const peer = { address: '192.0.2.1' }
  const wrong = make(() => Math.floor(world.clock.nowMs() / 1_000))
  const metered = meter === undefined ? undefined : metering(meter, world.clock)
  const handle = (request: Request) => gateway.handle(request, peer)
  const fetch: Fetch = async (input, init) =>
    wrong(new Request(input, init), (request) =>
      metered === undefined ? handle(request) : metered(request, handle),
    )

  let slept = 0
  const clock: Clock = {
    nowMs: world.clock.nowMs,
    monotonicMs: world.clock.monotonicMs,
    // What the client waits for happens meanwhile; a block is two seconds.
    async sleep(ms) {
      // A whole window is waited for in few steps: blocks are dear.
      const blocks = Math.max(1, Math.ceil(ms / 2_000))
      slept += blocks
      if (slept > blocksAtMost) throw new Error('the run does not end')
      if (slow && slept % 10 !== 0) {
        world.chain.mine(blocks)
        world.clock.monotonic += 2_000 * blocks
        await world.view.poll()
      } else await world.pass(blocks)
    },
  }
  const clientPorts = {
    clock,
    random: seededRandom(7),
    hash: sha256,
    files: new SimFiles().process(),
    liveness: new SimHost().liveness(1),
  }
  const journal = openJournal(clientPorts, '/home')
  const planner = createPlanner(clientPorts, '/home', base)
  const probe = createProbe({ fetch, base, clock, planner })
  const parts: BenchParts = {
    ports: clientPorts,
    ed25519: systemEd25519,
    journal,
    probe,
    gateway: withBudget(createGatewayClient({ fetch: probe.fetch, baseUrl: base, clock }), planner),
    trust: {
      ...fakeTrust,
      slugs: Object.fromEntries(entries.map(({ questionId, slug }) => [slug, questionId])),
    },
    wallets,
    questions: entries,
    may: { admit: true, execute: true, overrun: true, ...may },
    strangerWallet: remembered(world.proposer(2)),
    chain: world.chain,
  }
  const { ledger, chain } = world
  return {
    parts,
    fetch,
    ledger,
    chain,
    key: `0x${'02'.repeat(32)}`,
    run: async (
      chosen: readonly Rule[] = rules,
      onCheck: (check: CheckResult) => void = () => undefined,
    ) => (await runRules(parts, chosen, onCheck)).checks,
  }
}
