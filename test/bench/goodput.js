import { join } from 'node:path'
import { startLoad } from './children.js'
import { withGateways } from './gateways.js'
import { figure, median } from './measure.js'

const few = 64
const many = 4_000
const rounds = 3
const warmUpMs = 3_000
const measureMs = 5_000

/** Row 18: of answers 2xx; each connection asks again as soon as it is answered, whatever came. */
export async function goodputRow(setting) {
  return withGateways(setting, { withPeer: false }, async ({ mine, wallets }) => {
    const load = startLoad(join(setting.root, 'test', 'bench', 'goodput-load.js'))
    const path = `/v1/proposals/eligibility/${wallets[0].address}`
    const ask = (connections, patient) =>
      load.send({ url: mine.url, path, connections, patient, warmUpMs, measureMs })
    const [quiet, hasty, patient] = [[], [], []]
    try {
      for (let round = 0; round < rounds; round += 1) {
        quiet.push(await ask(few, true))
        hasty.push(await ask(many, false))
        patient.push(await ask(many, true))
        setting.note(
          `round ${round + 1}: ${few} connections ${figure(quiet.at(-1).perSecond)}/s, ${many} hasty ${figure(hasty.at(-1).perSecond)}/s, patient ${figure(patient.at(-1).perSecond)}/s`,
        )
      }
    } finally {
      load.stop()
    }
    const rate = (runs) => median(runs.map(({ perSecond }) => perSecond))
    const told = (runs) => {
      const sum = (key) => runs.reduce((all, one) => all + one[key], 0)
      const share = (sum('refused') * 100) / Math.max(1, sum('refused') + sum('answered'))
      return `${figure(rate(runs))}/s, waiting p99 ${figure(median(runs.map(({ p99 }) => p99)))} ms, ${figure(share)} % answered 503, ${sum('cut')} cut`
    }
    return {
      id: 18,
      name: 'eligibility, 4,000 connections to 64',
      value: rate(hasty) / rate(quiet),
      unit: 'x',
      detail: `${few}: ${told(quiet)}; ${many}: ${told(hasty)}; ${many} that wait as Retry-After says: ${told(patient)}; medians of ${rounds} rounds in turn`,
    }
  })
}
