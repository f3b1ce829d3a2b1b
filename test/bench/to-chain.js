import { setTimeout as sleep } from 'node:timers/promises'
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
      detail: `p50 ${figure(median(times))} ms, slowest ${figure(Math.max(...times))} ms of ${singles}, ${figure(requests / singles)} RPC requests each; ${where}`,
    }
  })

async function measureHundreds(setting) {
  const questions = warmUp + 1 + hundreds * batchSize
  return withDistantNode(setting, { questions }, async (world) => {
    const { proxy } = world
    await warm(world)
    const [slowest, middle, requests] = [[], [], []]
    for (let round = 0; round < hundreds; round += 1) {
      const some = world.take(batchSize)
      const before = proxy.requests.all
      const { answeredMs, ids } = await world.submit(some)
      const times = (await world.handedOver(some)).map((atMs) => atMs - answeredMs)
      requests.push((proxy.requests.all - before) / batchSize)
      slowest.push(p99(times) / 1000)
      middle.push(median(times) / 1000)
      await world.executed(ids)
      setting.note(
        `round ${round + 1}: p99 ${figure(slowest.at(-1))} s in ${figure(requests.at(-1))} requests each`,
      )
    }
    return { p99: median(slowest), p50: median(middle), requests: median(requests) }
  })
}

let measured
const hundredsOf = (setting) => {
  measured ??= measureHundreds(setting)
  return measured
}

export async function hundredRow(setting) {
  const { p99: slowest, p50 } = await hundredsOf(setting)
  const floor = (floorTrips * roundTripMs) / 1000
  return {
    id: 13,
    name: '202 to the first node, 100 in a call',
    value: slowest,
    unit: 's',
    detail: `p99; p50 ${figure(p50)} s; ${floorTrips} round trips take ${figure(floor)} s; ${where}, median of ${hundreds}`,
  }
}

export async function requestsRow(setting) {
  const { requests } = await hundredsOf(setting)
  return {
    id: 15,
    name: 'RPC requests per candidate, row 13',
    value: requests,
    unit: '',
    detail: `HTTP requests from the call until the node has the last, by ${batchSize}; median of ${hundreds}`,
  }
}
