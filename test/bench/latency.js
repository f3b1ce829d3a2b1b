import { performance } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import { Agent, request } from 'undici'
import { burst } from './admission.js'
import { withGateways } from './gateways.js'
import { figure, median, p99 } from './measure.js'

const rounds = 5
const perRound = 3_000
const warmUp = 1_000
const pauseMs = 2
const shedPauseMs = 100
const idleMs = 1_500

/**
 * Asks for a status and an eligibility in turn until `over` resolves; the slowest hundredth in
 * milliseconds. A look that was shed (503) takes until it is answered.
 */
export async function look(dispatcher, paths, over) {
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

/**
 * Row 10: the slowest hundredth of looks at a status and an eligibility while row 1's load runs,
 * beside the idle gateway, in turn.
 */
export async function latencyRow(setting) {
  return withGateways(setting, { withPeer: false }, async (world) => {
    const { mine, wallets, take } = world
    const [{ path, body }] = take(mine, 1)
    const headers = { 'content-type': 'application/json' }
    const dispatcher = new Agent({ connections: 1 })
    const admitted = await (
      await request(`${mine.url}${path}`, { method: 'POST', headers, body, dispatcher })
    ).body.json()
    const paths = [
      `${mine.url}${admitted.status_url}`,
      `${mine.url}/v1/proposals/eligibility/${wallets[0].address}`,
    ]
    await burst(world, mine, warmUp)
    const [idle, busy] = [[], []]
    for (let round = 0; round < rounds; round += 1) {
      idle.push(await look(dispatcher, paths, sleep(idleMs)))
      busy.push(await look(dispatcher, paths, burst(world, mine, perRound)))
      setting.note(
        `round ${round + 1}: idle ${figure(idle.at(-1))} ms, under load ${figure(busy.at(-1))} ms`,
      )
    }
    await dispatcher.close()
    return {
      id: 10,
      name: 'status and eligibility p99, load to idle',
      value: median(busy) / median(idle),
      unit: 'x',
      detail: `idle ${figure(median(idle))} ms, under row 1's load ${figure(median(busy))} ms; medians of ${rounds} rounds in turn`,
    }
  })
}
