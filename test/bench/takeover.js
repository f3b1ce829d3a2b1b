import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { startDevChain } from './dev-chain.js'
import { figure, median } from './measure.js'
import { questionsOf, signAll } from './payloads.js'
import { withPostgres } from './shared.js'

const takeovers = 3
const pollMs = 20
const budget = { per_ip_items: 1_000_000, global_items: 1_000_000 }
const longestMs = 60_000

async function until(url, done) {
  const start = performance.now()
  while (performance.now() - start < longestMs) {
    const answer = await fetch(url)
    if (answer.status !== 200) throw new Error(`${url} answered ${answer.status}`)
    if (done(await answer.text())) return
    await sleep(pollMs)
  }
  throw new Error(`${url} did not come so far within ${longestMs} ms`)
}

async function execute({ url }, { path, body }) {
  const headers = { 'content-type': 'application/json' }
  const answer = await fetch(`${url}${path}`, { method: 'POST', headers, body })
  const { candidate_id: id, error } = await answer.json()
  if (answer.status !== 202)
    throw new Error(`the gateway answered ${answer.status}: ${error?.code}`)
  await until(`${url}${path}/status/${id}`, (text) => {
    const { status, failure } = JSON.parse(text)
    if (failure) throw new Error(`the proposal failed: ${failure.code}`)
    return status === 'executed'
  })
}

const leads = (metrics) => /^proposer_store_leader 1$/m.test(metrics)

/**
 * Row 24: seconds from SIGKILL of the gateway that executes until a proposal is executed that the
 * other gateway admits at once; the lease's term of ten seconds is in it.
 */
export const takeoverRow = (setting) =>
  withPostgres(setting, { id: 24, name: 'takeover after SIGKILL' }, async (postgres) => {
    const folder = await mkdtemp(join(tmpdir(), 'proposer-bench-'))
    const chain = await startDevChain(setting.root, folder, takeovers + 1)
    const store = await postgres.createDatabase()
    await chain.configure({ store, budget, admin: { port: 0 } })
    const running = [await chain.start()]
    try {
      const contexts = await questionsOf(running[0].url, chain.questionIds)
      const payloads = signAll(await setting.library(), contexts, chain.wallets.slice(0, 1))
      await execute(running[0], payloads[0])
      const seconds = []
      for (const payload of payloads.slice(1)) {
        running.push(await chain.start())
        const [leader, other] = running
        process.kill(leader.pid, 'SIGKILL')
        const killed = performance.now()
        await execute(other, payload)
        seconds.push((performance.now() - killed) / 1000)
        setting.note(`takeover ${seconds.length}: executed ${figure(seconds.at(-1))} s later`)
        running.shift()
      }
      running.push(await chain.start())
      const [leader, other] = running
      await until(`${leader.admin}/metrics`, leads)
      process.kill(leader.pid, 'SIGTERM')
      const ended = performance.now()
      await until(`${other.admin}/metrics`, leads)
      const handedOver = (performance.now() - ended) / 1000
      running.shift()
      return {
        value: median(seconds),
        unit: 's',
        detail: `${seconds.map(figure).join(', ')} s from the kill to executed, of which up to 10 s are the lease; after SIGTERM the other leads within ${figure(handedOver)} s (must 1)`,
      }
    } finally {
      for (const { stop } of running) await stop()
      await chain.stop()
      await rm(folder, { recursive: true, force: true })
    }
  })
