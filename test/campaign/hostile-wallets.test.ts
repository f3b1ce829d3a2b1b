/**
 * Wallets that cost the executor what they can, on a real chain, beside honest ones: code that
 * burns or reverts late, that answers by price or block, delegations put on and off, approvals and
 * balances taken back in front of a load (contract §5, R3).
 */

import { carriedBy, readProposeCalldata, readTransaction } from '#chain/transaction'
import { type DevRpc, devRpc } from '#devchain/dev-contracts'
import { systemClock } from '#io/clock'
import type { Hex } from '#ports'
import type { Candidate } from '#protocol/candidate'
import type { Address } from '#protocol/schema'
import { figures, scaled } from '#support/campaign'
import { current } from '#support/candidates'
import { type HostileKind, hostileKinds } from '#support/hostile/wallets'
import { type LivePipeline, startLivePipeline } from '#support/live-pipeline'

const honestWallets = 4
const blocks = scaled(60)
const lastBlocks = 12
const hourSeconds = 3_600
const daySeconds = 86_400
const failedADay = 50_000_000n

interface Stage extends LivePipeline {
  readonly rpc: DevRpc
  readonly failed: Map<Address, { readonly gas: bigint; readonly atSeconds: number }[]>
  readonly faults: string[]
  ask(n: number, role: number): Promise<Candidate>
  block(seconds: number, before?: Act, after?: Act): Promise<void>
}
type Act = () => Promise<unknown>

async function stageOf(questions: number, proposers: number): Promise<Stage> {
  let skewMs = 0
  const clock = { ...systemClock, nowMs: () => systemClock.nowMs() + skewMs }
  const live = await startLivePipeline({
    chain: { questions, proposers },
    ...{ clock, isDriven: true, maxHeadAgeSeconds: 3_600, executor: { batch: 25 } },
  })
  const { chain, ledger, executor, dev } = live
  const rpc = devRpc(dev.rpcUrl)
  const sent = new Map<Hex, { readonly nonce: number; readonly rounds: readonly string[] }>()
  const waiting = new Map<Hex, readonly Address[]>()
  const stage = { failed: new Map(), faults: [] as string[] } as Pick<Stage, 'failed' | 'faults'>
  const { send } = chain
  const isSpent = async (hash: Hex, nonce: number) =>
    (await chain.transactionCount(executor.address, 'finalized')) > nonce &&
    (await chain.receipt(hash))?.status !== 'success'
  Object.assign(chain, {
    async send(raw: Hex) {
      await handed(raw)
      return send(raw)
    },
  })
  const handed = async (raw: Hex): Promise<void> => {
    const slot = ledger.slots().find(({ attempts }) => attempts.some((one) => one.raw === raw))
    const attempt = slot?.attempts.find((one) => one.raw === raw)
    if (slot === undefined || attempt === undefined) {
      stage.faults.push('a transaction was sent that is not on record')
      return
    }
    if (attempt.kind === 'cancel' || sent.has(attempt.hash)) return
    const calls = carriedBy(readTransaction(raw).data)
    const rounds = calls.map((call) => readProposeCalldata(call).request.ancillaryData)
    for (const [hash, { nonce, rounds: earlier }] of sent) {
      if (nonce === slot.nonce || !rounds.some((round) => earlier.includes(round))) continue
      if (!(await isSpent(hash, nonce)))
        stage.faults.push(`nonce ${slot.nonce} beside ${nonce} for one round`)
    }
    sent.set(attempt.hash, { nonce: slot.nonce, rounds })
    const found = await Promise.all(attempt.candidateIds.map((id) => current(ledger, id)))
    waiting.set(attempt.hash, [...new Set(found.map(({ proposer }) => proposer))])
  }
  const noteFailures = async () => {
    for (const [hash, wallets] of waiting) {
      const receipt = await chain.receipt(hash)
      if (!receipt) continue
      waiting.delete(hash)
      if (receipt.status === 'success') continue
      const block = await chain.block(receipt.blockNumber)
      for (const wallet of wallets) {
        const before = stage.failed.get(wallet) ?? []
        const failure = { gas: receipt.gasUsed, atSeconds: Number(block?.timestamp) }
        stage.failed.set(wallet, [...before, failure])
      }
    }
  }
  let nonces = 0
  return {
    ...live,
    ...stage,
    rpc,
    ask(n, role) {
      nonces += 1
      const deadline = live.view.nowSeconds() + 10_000_000n
      return live.submit(n, live.signerOf('proposer', role), String(nonces), { deadline })
    },
    async block(seconds, before, after) {
      await before?.()
      skewMs += seconds * 1000
      await rpc.request('evm_increaseTime', [seconds])
      await rpc.request('evm_mine', [])
      await after?.()
      await noteFailures()
      await live.view.poll()
      for (let step = 0; step < 3; step += 1) await live.pipeline.step()
      stage.faults.push(...live.view.faults(), ...live.pipeline.faults())
    },
  }
}

async function honestRun(stage: Stage, first: number, around: Around): Promise<readonly number[]> {
  const begun: { readonly id: string; readonly at: bigint }[] = []
  const { ledger, view, chain } = stage
  for (let block = 0; block < blocks + lastBlocks; block += 1) {
    const at = view.heads()?.latest.number ?? 0n
    if (block < blocks)
      for (const n of [2 * block, 2 * block + 1])
        begun.push({ id: (await stage.ask(first + n, n % honestWallets)).id, at })
    await around.begin()
    for (let step = 0; step < 3; step += 1) await stage.pipeline.step()
    await stage.block(2, around.before, around.after)
  }
  const waits: number[] = []
  for (const { id, at } of begun) {
    const { progress } = await current(ledger, id)
    expect(progress.status, JSON.stringify(progress)).toBe('executed')
    const hash = 'submission' in progress ? progress.submission?.transactionHash : undefined
    waits.push(Number(((await chain.receipt(hash ?? '0x'))?.blockNumber ?? 0n) - at))
  }
  return waits
}

interface Around {
  readonly begin: Act
  readonly before?: Act
  readonly after?: Act
}

function hostileOf(stage: Stage, kind: HostileKind, role: number, first: number) {
  const { address } = stage.signerOf('proposer', role)
  const own: (Candidate | undefined)[] = Array.from({ length: kind.questions })
  const { rpc, ledger } = stage
  let asked = 0
  return {
    address,
    kind,
    asked: () => asked,
    prepare: async () => kind.prepare?.(rpc, address, 0),
    async begin() {
      for (const [n, candidate] of own.entries()) {
        const now = candidate && (await current(ledger, candidate.id))
        if (now !== undefined && now.progress.status !== 'failed') continue
        asked += 1
        own[n] =
          now?.progress.status === 'failed' && now.progress.failure.retryable
            ? await ledger.replay(now.id)
            : await stage.ask(first + n, role)
      }
    },
    async before() {
      const inFlight = own.filter((one) => one && ledger.slotOf(one.id) !== undefined).length
      await kind.attack?.(rpc, address, inFlight)
    },
    after: async () => kind.retreat?.(rpc, address, 0),
  }
}

const mean = (all: readonly number[]) => all.reduce((sum, one) => sum + one, 0) / all.length

function worstDay(failures: readonly { readonly gas: bigint; readonly atSeconds: number }[]) {
  const days = failures.map(({ atSeconds: since }) =>
    failures
      .filter(({ atSeconds }) => atSeconds >= since && atSeconds < since + daySeconds)
      .reduce((sum, { gas }) => sum + gas, 0n),
  )
  return days.toSorted((one, other) => Number(other - one))[0] ?? 0n
}

test('contract §5, R3: ten hostile wallets cost the executor what the ceiling allows, and honest ones wait at most twice as long', async () => {
  const honest = 2 * blocks
  const hostileQuestions = hostileKinds.reduce((sum, { questions }) => sum + questions, 0)
  const stage = await stageOf(
    2 * honest + hostileQuestions + 24,
    honestWallets + hostileKinds.length,
  )
  try {
    const nobody: Around = { begin: async () => undefined }
    const plain = await honestRun(stage, 0, nobody)
    let next = 2 * honest
    const hostiles = hostileKinds.map((kind, n) => {
      const hostile = hostileOf(stage, kind, honestWallets + n, next)
      next += kind.questions
      return hostile
    })
    const all = async (act: 'prepare' | 'begin' | 'before' | 'after') => {
      for (const hostile of hostiles) await hostile[act]()
    }
    await all('prepare')
    const around: Around = {
      begin: () => all('begin'),
      before: () => all('before'),
      after: () => all('after'),
    }
    const beside = await honestRun(stage, honest, around)
    for (let hour = 0; hour < 24; hour += 1) {
      await around.begin()
      const { id } = await stage.ask(next + hour, hour % honestWallets)
      for (let step = 0; step < 3; step += 1) await stage.pipeline.step()
      await stage.block(hourSeconds - 10, around.before, around.after)
      for (let more = 0; more < 4; more += 1) {
        await around.begin()
        await stage.pipeline.step()
        await stage.block(2, around.before, around.after)
      }
      expect((await current(stage.ledger, id)).progress.status).toBe('executed')
    }
    const cost = hostiles.map(({ address, kind, asked }) => {
      const failures = stage.failed.get(address) ?? []
      return { name: kind.name, failures: failures.length, asked: asked(), gas: worstDay(failures) }
    })
    const worst = cost.reduce((one, other) => (one.gas > other.gas ? one : other))
    figures('hostile-wallets', {
      ...{ wallets: hostiles.length, honest: beside.length },
      ...{ 'mean wait in blocks': mean(plain), 'beside hostile ones': mean(beside) },
      ...{ 'longest wait': Math.max(...plain), 'longest beside them': Math.max(...beside) },
      ...Object.fromEntries(
        cost.map((one) => [
          one.name,
          `${one.gas.toLocaleString('en-US')} gas in ${one.failures} of ${one.asked}`,
        ]),
      ),
      worst: `${worst.name}, ${Number(worst.gas) / 1e7} POL a day at 100 gwei`,
    })
    expect([...new Set(stage.faults)]).toEqual([])
    expect(cost.filter(({ gas }) => gas > failedADay)).toEqual([])
    expect(cost.filter(({ failures }) => failures > 0).length).toBeGreaterThan(5)
    expect(mean(beside)).toBeLessThanOrEqual(2 * mean(plain))
  } finally {
    await stage.stop()
  }
})
