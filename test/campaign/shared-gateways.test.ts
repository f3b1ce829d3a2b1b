/** Gateways on one PostgreSQL, at length: the same moment, killed servers, stopped processes. */
import { join as path } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { postgresDatabase } from '#io/postgres'
import { argvOf } from '#support/argv'
import { figures, scaled } from '#support/campaign'
import { describeWith } from '#support/components'
import {
  expectOneEach,
  type Keeper,
  type Submitted,
  statusOf,
  submitTo,
} from '#support/faults/keeper'
import { joinLedger } from '#support/postgres/gateways'
import { sameMoment, underKills, until } from '#support/postgres/load'
import { startPostgres } from '#support/postgres/server'
import { type Running, workshop } from '#support/processes'
import { questionOf, type ServeReady } from '#support/proposing'

const shop = workshop()
const closing: (() => Promise<void>)[] = []
const later = <T extends { close(): Promise<void> }>(one: T): T => {
  closing.push(() => one.close())
  return one
}
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close()
})

describeWith([18], 'ledgers of several gateways', () => {
  test('R2: one payload through four gateways at the same moment, a thousand times', async () => {
    const server = later(await startPostgres())
    const url = await server.createDatabase()
    const join = async () => later(await joinLedger(url))
    const count = scaled(1_000)
    await sameMoment([await join(), await join(), await join(), await join()], count)
    figures('same moment', { rounds: count, calls: 4 * count })
  })

  test('R1: the server is killed under load twenty times', async () => {
    const server = later(await startPostgres())
    const url = await server.createDatabase()
    const join = async () => later(await joinLedger(url))
    const kills = scaled(20)
    const acknowledged = await underKills(server, [await join(), await join()], kills)
    figures('server kills', { kills, acknowledged, lost: 0 })
  })
})

interface Gateway {
  readonly running: Running
  readonly url: string
  readonly adminUrl: string
}

async function openFleet(questions: number) {
  const server = later(await startPostgres())
  const url = await server.createDatabase()
  closing.push(() => shop.clean())
  const { dev, folder } = await shop.devChain(questions)
  const fleet: Gateway[] = []
  let started = 0
  const add = async (): Promise<Gateway> => {
    const running = shop.start(argvOf`serve --config ${path(folder, 'gateway.json')} --port 0
      --json --set ${`store=${url}`} --set ${`admin.token_file=./admin-${++started}.token`}
      --set budget.per_ip_items=100000 --set budget.global_items=100000`)
    const { url: at, admin_url: adminUrl } = await running.line<ServeReady>()
    const gateway = { running, url: at, adminUrl }
    fleet.push(gateway)
    return gateway
  }
  const keeper: Keeper = {
    kills: 0,
    kill: () => undefined,
    async answered(ask) {
      for (let turn = 0; ; turn++) {
        const gateway = fleet[turn % fleet.length]
        const answer = gateway && (await ask(gateway.url).catch(ignoreCut))
        if (answer !== undefined) return answer
        await sleep(100)
      }
    },
    stop: async () => undefined,
  }
  const session = await postgresDatabase(url).connect()
  closing.push(async () => session.destroy())
  const leader = async () => {
    const [row] = await session.query(
      `SELECT g.admin_url FROM proposer.gateway g JOIN proposer.head h ON g.id = h.holder
        WHERE h.lease_until > clock_timestamp()`,
    )
    return fleet.find(({ adminUrl }) => adminUrl === row?.admin_url)
  }
  return {
    dev,
    fleet,
    keeper,
    add,
    leader,
    leave: (gateway: Gateway) => void fleet.splice(fleet.indexOf(gateway), 1),
  }
}

function ignoreCut(error: unknown): undefined {
  if (!(error instanceof TypeError)) throw error
}

const signals = ['SIGSTOP', 'SIGKILL', 'SIGTERM'] as const

describeWith([18], 'gateways as processes', () => {
  test('R1, R3: leaders are stopped past their term, killed, and replaced one by one, under load', async () => {
    const acts = 3 * scaled(3)
    const { dev, fleet, keeper, add, leader, leave } = await openFleet(100)
    await Promise.all([add(), add(), add()])
    const submitted: Submitted[] = []
    let isOver = false
    const load = (async () => {
      for (let n = 0; !isOver && n < 90; n++) {
        submitted.push(await submitTo(keeper, questionOf(dev, n).question_id, n % 3, n + 1))
        await sleep(500)
      }
    })()
    const takeovers: number[] = []
    for (let act = 0; act < acts; act++) {
      let led: Gateway | undefined
      await until(async () => {
        led = await leader()
        return led !== undefined
      })
      if (led === undefined) throw new Error('no leader')
      const { running } = led
      leave(led)
      if (act % 3 === 2) await add()
      const startMs = performance.now()
      running.child.kill(signals[act % 3])
      await until(async () => (await leader()) !== undefined)
      takeovers.push(performance.now() - startMs)
      if (act % 3 === 0) {
        await sleep(1_000)
        running.child.kill('SIGCONT')
        fleet.push(led)
      }
      if (act % 3 === 1) await add()
      await sleep(1_000)
    }
    isOver = true
    await load
    for (const candidate of submitted)
      await keeper.answered(async (url) => {
        const status = await statusOf(url, candidate)
        return status?.submission?.status === 'indexed' || status?.status === 'failed'
          ? status
          : undefined
      })
    const executor = dev.accounts.find(({ role }) => role === 'executor')?.address ?? ''
    await expectOneEach(dev, keeper, submitted, executor, [])
    for (const [act, ms] of takeovers.entries())
      expect(ms, `take-over ${act}`).toBeLessThan(act % 3 === 2 ? 5_000 : 15_000)
    figures('stopped and killed leaders', {
      acts,
      proposals: submitted.length,
      'slowest take-over ms': Math.round(Math.max(...takeovers)),
    })
  })
})
