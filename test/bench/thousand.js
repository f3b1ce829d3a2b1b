import { setTimeout as sleep } from 'node:timers/promises'
import { Agent, request } from 'undici'
import { ask, batchSize, blockSeconds, roundTripMs, withDistantNode } from './distant.js'
import { figure, p99 } from './measure.js'

const calls = 10
const warmUp = 25
const idleMs = 10_000
/** What the gateway does unless it is told otherwise: `executor.in_flight` and `executor.batch`. */
const inFlight = 16
const batch = 25

const pauseMs = 2
const shedPauseMs = 100

const where = `a node ${roundTripMs} ms away, blocks of ${blockSeconds} s`

async function look(dispatcher, paths, over) {
  const times = []
  let isOver = false
  const ended = over.finally(() => {
    isOver = true
  })
  // Told below, once the look that is on its way has ended.
  ended.catch(() => undefined)
  for (let n = 0; !isOver; n += 1) {
    const start = performance.now()
    const path = paths[n % paths.length]
    for (;;) {
      const { statusCode, body } = await request(path, { dispatcher })
      await body.text()
      if (statusCode === 200) break
      if (statusCode !== 503) throw new Error(`${path} answered ${statusCode}`)
      await sleep(shedPauseMs)
    }
    times.push(performance.now() - start)
    await sleep(pauseMs)
  }
  await ended
  return p99(times)
}

async function gasUsed({ dev }, sinceBlock) {
  const executor = dev.accounts.find(({ role }) => role === 'executor').address
  const head = Number(await ask(dev.rpc_url, 'eth_blockNumber'))
  const hashes = []
  for (let number = sinceBlock + 1; number <= head; number += 1) {
    const block = await ask(dev.rpc_url, 'eth_getBlockByNumber', [`0x${number.toString(16)}`, true])
    for (const { from, hash } of block.transactions) if (from === executor) hashes.push(hash)
  }
  let gas = 0
  for (const hash of hashes)
    gas += Number((await ask(dev.rpc_url, 'eth_getTransactionReceipt', [hash])).gasUsed)
  return { each: gas / (calls * batchSize), transactions: hashes.length }
}

async function sendThousand({ take, submit, handedOver }) {
  const proposals = take(calls * batchSize)
  const ids = []
  const beganMs = performance.now()
  for (let n = 0; n < calls; n += 1)
    ids.push(...(await submit(proposals.slice(n * batchSize, (n + 1) * batchSize))).ids)
  const admitted = (performance.now() - beganMs) / 1000
  const last = Math.max(...(await handedOver(proposals)))
  return { seconds: (last - beganMs) / 1000, admitted, ids }
}

const questions = warmUp + calls * batchSize

export const thousandRow = (setting) =>
  withDistantNode(setting, { questions }, async (world) => {
    const { dev, proxy, take, submit, executed } = world
    await executed((await submit(take(warmUp))).ids)
    const sinceBlock = Number(await ask(dev.rpc_url, 'eth_blockNumber'))
    const before = proxy.requests.all
    const { seconds, admitted, ids } = await sendThousand(world)
    const requests = proxy.requests.all - before
    setting.note(`handed over after ${figure(seconds)} s`)
    await executed(ids)
    const { each, transactions } = await gasUsed(world, sinceBlock)
    const latest = await ask(dev.rpc_url, 'eth_getBlockByNumber', ['latest', false])
    const blockGas = Number(latest.gasLimit)
    const perBlock = Math.floor(blockGas / each)
    const waiting = Math.max(0, calls * batchSize - inFlight * batch)
    const floor = Math.ceil(waiting / perBlock) * blockSeconds
    return {
      id: 14,
      name: '1,000 in ten calls, last handed over',
      value: seconds,
      unit: 's',
      detail: `admitted within ${figure(admitted)} s; ${transactions} transactions, ${figure(requests / ids.length)} RPC requests a candidate; ${Math.round(each)} gas a proposal, so blocks of ${blockGas / 1e6} M make room for the last within ${figure(floor)} s where ${inFlight} transactions of ${batch} may wait; ${where}`,
    }
  })

export const looksRow = (setting) =>
  withDistantNode(setting, { questions }, async (world) => {
    const { url, take, submit, executed } = world
    const first = take(warmUp)
    const { ids } = await submit(first)
    await executed(ids)
    const [{ path, item }] = first
    const paths = [
      `${url}${path}/status/${ids[0]}`,
      `${url}/v1/proposals/eligibility/${item.proposer}`,
    ]
    const dispatcher = new Agent({ connections: 1 })
    await look(dispatcher, paths, sleep(idleMs / 4))
    const idle = await look(dispatcher, paths, sleep(idleMs))
    let seconds
    const load = sendThousand(world).then((sent) => {
      seconds = sent.seconds
    })
    const busy = await look(dispatcher, paths, load)
    await dispatcher.close()
    setting.note(`idle ${figure(idle)} ms, busy ${figure(busy)} ms`)
    return {
      id: 19,
      name: 'status and eligibility p99, row 14 to idle',
      value: busy / idle,
      unit: 'x',
      detail: `idle ${figure(idle)} ms over ${idleMs / 1000} s, ${figure(busy)} ms in the ${figure(seconds)} s of row 14; ${where}`,
    }
  })
