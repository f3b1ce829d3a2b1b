/**
 * The whole gateway on a dev chain whose node is 80 ms away, loses requests before and after it has
 * dealt with them, and answers some 3 s late; and the gateway is killed in the middle (R3, R13–R16,
 * R23; robustness §7.3).
 */
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Hex, parseTransaction, type TransactionSerializedEIP1559 } from 'viem'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { DevDescription } from '#devchain/dev-chain'
import { argvOf } from '#support/argv'
import { figures, firstSeed } from '#support/campaign'
import {
  expectOneEach,
  keepAlive,
  type Submitted,
  statusOf,
  submitTo,
  transactionsOf,
} from '#support/faults/keeper'
import { workshop } from '#support/processes'
import { questionOf, type ServeReady } from '#support/proposing'
import { openRpcProxy, type RpcProxy } from '#support/rpc-proxy'
import { seeded } from '#support/sim-files'

const kills = 2
const proposals = 60
const proposersAtOnce = 10
/** Harsher than any node that one would keep: so that a run of a minute meets every loss. */
const weather = { delayMs: 80, jitterMs: 40, lostShare: 0.05, lateShare: 0.05, seed: firstSeed }

const shop = workshop()
let dev: DevDescription
let folder: string
let proxy: RpcProxy
beforeAll(async () => {
  folder = join(await shop.folder(), 'dev')
  const chain = shop.start([
    ...argvOf`devchain --port 0 --questions ${String(proposals)}`,
    ...['--write', folder, '--json'],
  ])
  dev = (await chain.line<ServeReady>()).dev
  proxy = await openRpcProxy(dev.rpc_url, weather)
})
afterAll(async () => {
  await proxy?.close()
  await shop.clean()
})

function handedByNonce(): ReadonlyMap<
  number,
  readonly { readonly to: string; readonly data: Hex }[]
> {
  const found = new Map<number, { to: string; data: Hex }[]>()
  for (const raw of new Set(proxy.handed)) {
    const { nonce = 0, to, data = '0x' } = parseTransaction(raw as TransactionSerializedEIP1559)
    found.set(nonce, [...(found.get(nonce) ?? []), { to: String(to), data }])
  }
  return found
}

test(`seed ${firstSeed}: ${proposals} proposals over a slow and lossy node, ${kills} kills in the middle; each executed once, one load a nonce, no nonce left out`, async () => {
  const random = seeded(firstSeed)
  const executor = dev.accounts.find(({ role }) => role === 'executor')?.address ?? ''
  const before = await transactionsOf(dev, executor)
  const keeper = keepAlive(() =>
    shop.start(argvOf`serve --config ${join(folder, 'gateway.json')} --port 0 --json --set
      store=./slow --set ${`chain.rpc_urls=${JSON.stringify([proxy.url])}`} --set
      budget.per_ip_items=100000 --set budget.global_items=100000`),
  )
  const submitSome = async (first: number, last: number): Promise<Submitted[]> => {
    const submitted: Submitted[] = []
    let next = first
    const lane = async () => {
      for (let n = next++; n < last; n = next++)
        submitted.push(await submitTo(keeper, questionOf(dev, n).question_id, n % 4, 5_000 + n))
    }
    await Promise.all(Array.from({ length: proposersAtOnce }, lane))
    return submitted
  }
  const submitted: Submitted[] = []
  const share = Math.ceil(proposals / (kills + 1))
  for (let part = 0; part <= kills; part += 1) {
    const handed = proxy.handed.length
    const submitting = submitSome(part * share, Math.min((part + 1) * share, proposals))
    submitting.catch(() => undefined)
    if (part < kills) {
      await expect
        .poll(() => proxy.handed.length, { timeout: 60_000, interval: 5 })
        .toBeGreaterThan(handed)
      await sleep(random() * 500)
      keeper.kill()
      await expect.poll(() => keeper.kills, { timeout: 60_000, interval: 5 }).toBe(part + 1)
    }
    submitted.push(...(await submitting))
  }
  for (const candidate of submitted)
    await keeper.answered(async (url) =>
      (await statusOf(url, candidate))?.submission?.status === 'indexed' ? true : undefined,
    )
  await expectOneEach(dev, keeper, submitted, executor, before)
  await keeper.stop()

  const byNonce = handedByNonce()
  const mined = (await transactionsOf(dev, executor)).length
  expect([...byNonce.keys()].toSorted((a, b) => a - b)).toEqual(
    Array.from({ length: mined }, (_, nonce) => nonce),
  )
  for (const [nonce, transactions] of byNonce) {
    const loads = new Set(transactions.map(({ to, data }) => `${to} ${data}`))
    expect(loads.size, `loads of nonce ${nonce}`).toBe(1)
  }
  const { requests } = proxy
  expect(requests.lost).toBeGreaterThan(0)
  expect(requests.late).toBeGreaterThan(0)
  figures('a slow and lossy node', {
    ...{ seed: firstSeed, proposals, kills, transactions: mined },
    ...{ requests: requests.all, lost: requests.lost, late: requests.late },
  })
})
