/** §8: processes of one home spend one limit, whichever of them is killed (R23). */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { build } from 'esbuild'
import { budgetHeaders, createBudget } from '#gateway/front/budget'
import { slidingBudget } from '#support/budget-world'
import { figures } from '#support/campaign'
import { serveHttp } from '#support/http-server'
import { workshop } from '#support/processes'

const shop = workshop()

const windowMs = 1_000
const windows = 10
const limits = { windowMs, perClientItems: 60, globalItems: 1_000_000 }

async function spend(program: string, processes: number, isSliding: boolean) {
  const budget = isSliding ? slidingBudget(limits) : createBudget(limits)
  let [admitted, refused] = [0, 0]
  const server = await serveHttp(async (request, _body, response) => {
    await sleep(Math.random() * 40)
    const charge = budget.charge('us', Number(request.url?.slice(1)), performance.now())
    if (charge.admitted) admitted += Number(request.url?.slice(1))
    else refused++
    await sleep(Math.random() * 40)
    response.writeHead(charge.admitted ? 200 : 429, budgetHeaders(charge)).end()
  })
  const home = await shop.folder()
  const running = new Set<ChildProcess>()
  const start = () => {
    const child = spawn(process.execPath, [program, home, server.url], { stdio: 'inherit' })
    running.add(child)
    return child
  }
  const kill = async (child: ChildProcess) => {
    const ended = once(child, 'close')
    child.kill('SIGKILL')
    const [code, signal] = await ended
    running.delete(child)
    expect([code, signal]).toEqual([null, 'SIGKILL'])
  }
  try {
    for (let n = 0; n < processes; n++) start()
    await sleep((windows / 2) * windowMs)
    const [victim] = running
    if (victim === undefined) throw new RangeError('nobody runs')
    await kill(victim)
    start()
    await sleep((windows / 2) * windowMs)
  } finally {
    for (const child of running) await kill(child)
    await server.close()
  }
  return { admitted, refused }
}

test('§8: two and four processes of one home draw no 429 in ten windows, fixed or sliding, one of them killed', async () => {
  const program = join(await shop.folder(), 'child.mjs')
  await build({
    entryPoints: [new URL('../support/budget-child.ts', import.meta.url).pathname],
    bundle: true,
    platform: 'node',
    format: 'esm',
    outfile: program,
    logLevel: 'error',
  })
  for (const processes of [2, 4])
    for (const isSliding of [false, true]) {
      const sum = await spend(program, processes, isSliding)
      expect(sum.refused).toBe(0)
      expect(sum.admitted).toBeGreaterThan(limits.perClientItems * 2)
      figures('processes of one home', {
        processes,
        windows: isSliding ? 'sliding' : 'fixed',
        ...sum,
      })
    }
})
