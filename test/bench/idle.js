import { setTimeout as sleep } from 'node:timers/promises'
import { ask, blockSeconds, roundTripMs, withDistantNode } from './distant.js'
import { figure } from './measure.js'

const questions = 100
const blocks = 100
/** What a start reads once is over by then. */
const settleBlocks = 10
const blocksADay = (24 * 3600) / blockSeconds

/** Row 17: JSON-RPC methods per block where nothing happens, with a hundred open questions. */
export const idleRow = (setting) =>
  withDistantNode(setting, { questions }, async ({ dev, proxy }) => {
    const head = async () => Number(await ask(dev.rpc_url, 'eth_blockNumber'))
    const reach = async (number) => {
      while ((await head()) < number) await sleep(50)
      return { head: await head(), methods: new Map(proxy.methods), requests: proxy.requests.all }
    }
    const before = await reach((await head()) + settleBlocks)
    const after = await reach(before.head + blocks)
    const passed = after.head - before.head
    const each = [...after.methods]
      .map(([method, count]) => [method, (count - (before.methods.get(method) ?? 0)) / passed])
      .filter(([, count]) => count > 0)
      .sort(([, one], [, other]) => other - one)
    const value = each.reduce((sum, [, count]) => sum + count, 0)
    const told = each.map(([method, count]) => `${method.slice(4)} ${figure(count)}`).join(', ')
    return {
      id: 17,
      name: 'RPC methods per block, idle',
      value,
      unit: '',
      must: '2.5',
      aim: '2',
      detail: `${told}; ${figure((after.requests - before.requests) / passed)} HTTP requests a block, ${Math.round(value * blocksADay).toLocaleString('en-US')} methods a day; ${questions} open questions, ${passed} blocks of ${blockSeconds} s, a node ${roundTripMs} ms away`,
    }
  })
