// The load: a process of its own, so that what it costs is not taken from the servers' event loops.
// Takes one job by IPC, sends every request once over keep-alive connections, which take the urls in
// turn, each connection one request at a time, and answers with the seconds and the statuses. A call that was shed (503
// server_busy) is made again, as a client does, and counted.
import { setTimeout as sleep } from 'node:timers/promises'
import { Pool } from 'undici'

const percentile = (sorted, share) =>
  sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0

const mostTries = 50

async function run({ url, connections, requests }) {
  const pools = [url]
    .flat()
    .map((each) => new Pool(each, { connections, pipelining: 1, keepAliveTimeout: 60_000 }))
  const statuses = {}
  const milliseconds = []
  let refused = null
  let accepted = 0
  let shed = 0
  let next = 0
  const worker = async (_, index) => {
    const pool = pools[index % pools.length]
    while (next < requests.length) {
      const { path, body, headers } = requests[next]
      next += 1
      const start = performance.now()
      const ask = async (tries) => {
        const answer = await pool.request({
          path,
          method: 'POST',
          headers: { 'content-type': 'application/json', ...headers },
          body,
        })
        const text = await answer.body.text()
        if (answer.statusCode !== 503 || tries === mostTries || !text.includes('server_busy'))
          return { answer, text }
        shed += 1
        await sleep(100)
        return ask(tries + 1)
      }
      const { answer, text } = await ask(1)
      milliseconds.push(performance.now() - start)
      statuses[answer.statusCode] = (statuses[answer.statusCode] ?? 0) + 1
      if (answer.statusCode >= 400) refused ??= text
      const batch =
        path === '/propose/batch' && answer.statusCode === 200 ? JSON.parse(text) : undefined
      if (batch !== undefined) {
        accepted += batch.summary.accepted
        if (batch.summary.rejected > 0)
          refused ??= JSON.stringify(batch.results.find(({ error }) => error !== undefined))
      }
    }
  }
  const start = performance.now()
  await Promise.all(Array.from({ length: connections }, worker))
  const seconds = (performance.now() - start) / 1000
  await Promise.all(pools.map((pool) => pool.close()))
  milliseconds.sort((a, b) => a - b)
  return {
    seconds,
    statuses,
    refused,
    accepted,
    shed,
    p50: percentile(milliseconds, 0.5),
    p99: percentile(milliseconds, 0.99),
  }
}

process.on('message', (job) => {
  run(job).then(
    (answer) => process.send({ answer }),
    (error) => process.send({ error: error.message }),
  )
})
process.on('disconnect', () => process.exit())
