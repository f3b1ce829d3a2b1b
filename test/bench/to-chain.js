import { setTimeout as sleep } from 'node:timers/promises'
import { startBot } from './bot.js'
import { batchSize, blockSeconds, roundTripMs, withDistantNode } from './distant.js'
import { figure, median, p99 } from './measure.js'

const singles = 15
const hundreds = 3
/** Before anything is measured: what a gateway that has run for a minute has learned. */
const warmUp = 25
/** A read and simulation of all together, what it leads to, and the sending. */
const floorTrips = 3

const where = `a node ${roundTripMs} ms away, blocks of ${blockSeconds} s`

async function warm({ take, submit, executed }) {
  await executed((await submit(take(warmUp))).ids)
  await executed((await submit(take(1))).ids)
}

/** Row 12: from the 202 of a single proposal until the node has its transaction, in round trips. */
export const singleRow = (setting) =>
  withDistantNode(setting, { questions: warmUp + 1 + singles }, async (world) => {
    await warm(world)
    const times = []
    let requests = 0
    for (let n = 0; n < singles; n += 1) {
      // At another moment of the block each time.
      await sleep((n * blockSeconds * 1000) / singles)
      const before = world.proxy.requests.all
      const one = world.take(1)
      const { answeredMs, ids } = await world.submit(one)
      const [reachedMs] = await world.handedOver(one)
      times.push(reachedMs - answeredMs)
      requests += world.proxy.requests.all - before
      setting.note(`proposal ${n + 1}: ${figure(times.at(-1))} ms`)
      await world.executed(ids)
    }
    const trips = median(times) / roundTripMs
    return {
      id: 12,
      name: '202 to the first node, single',
      value: trips,
      unit: 'round trips',
      must: '6',
      aim: '4',
      detail: `p50 ${figure(median(times))} ms, slowest ${figure(Math.max(...times))} ms of ${singles}, ${figure(requests / singles)} RPC requests each; ${where}`,
    }
  })

/** A hundred in one call, and the same of the bot, in turn. */
async function measureHundreds(setting) {
  const questions = warmUp + 1 + 2 * hundreds * batchSize + 5
  return withDistantNode(setting, { questions }, async (world) => {
    const { proxy } = world
    const bot = await startBot(setting, world)
    try {
      await warm(world)
      await bot.propose(world.take(5))
      const [ours, middle, requests, bots] = [[], [], [], []]
      for (let round = 0; round < hundreds; round += 1) {
        const some = world.take(batchSize)
        const before = proxy.requests.all
        const { answeredMs, ids } = await world.submit(some)
        const times = (await world.handedOver(some)).map((atMs) => atMs - answeredMs)
        requests.push((proxy.requests.all - before) / batchSize)
        ours.push(p99(times) / 1000)
        middle.push(median(times) / 1000)
        await world.executed(ids)

        const others = world.take(batchSize)
        const beganMs = await bot.propose(others)
        bots.push(p99((await world.handedOver(others)).map((atMs) => atMs - beganMs)) / 1000)
        // Until its transactions are mined.
        await sleep(3 * blockSeconds * 1000)
        setting.note(
          `round ${round + 1}: p99 ${figure(ours.at(-1))} s in ${figure(requests.at(-1))} requests each, the bot ${figure(bots.at(-1))} s`,
        )
      }
      return {
        p99: median(ours),
        p50: median(middle),
        requests: median(requests),
        bot: median(bots),
      }
    } finally {
      bot.stop()
    }
  })
}

let measured
/** Rows 13, 15 and 16 are of one run. */
const hundredsOf = (setting) => {
  measured ??= measureHundreds(setting)
  return measured
}

/** Row 13: of a hundred proposals in one call, from the answer until the node has the last. */
export async function hundredRow(setting) {
  const { p99: slowest, p50, bot } = await hundredsOf(setting)
  const floor = (floorTrips * roundTripMs) / 1000
  return {
    id: 13,
    name: '202 to the first node, 100 in a call',
    value: slowest,
    unit: 's',
    must: '1.5',
    aim: '0.8',
    detail: `p99; p50 ${figure(p50)} s; ${floorTrips} round trips take ${figure(floor)} s, the bot of row 16 ${figure(bot)} s; ${where}, median of ${hundreds}`,
  }
}

/** Row 15: what row 13 asks of the node. */
export async function requestsRow(setting) {
  const { requests } = await hundredsOf(setting)
  return {
    id: 15,
    name: 'RPC requests per candidate, row 13',
    value: requests,
    unit: '',
    must: '1',
    aim: '0.4',
    detail: `HTTP requests from the call until the node has the last, by ${batchSize}; median of ${hundreds}`,
  }
}

/** Row 16: how much longer a plain bot takes than row 13. */
export async function botRow(setting) {
  const { p99: slowest, bot } = await hundredsOf(setting)
  return {
    id: 16,
    name: 'row 13 beside a plain bot',
    value: bot / slowest,
    unit: 'x',
    must: '10',
    aim: '20',
    detail: `the bot ${figure(bot)} s, the gateway ${figure(slowest)} s; viem, one key, simulateContract and writeContract with a nonce manager in Promise.all; in turn behind one proxy, medians of ${hundreds}`,
  }
}
