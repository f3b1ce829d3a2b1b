// Callers who do nothing wrong, in a process of their own, so that what they measure is the server and not the attack beside them. By IPC:
// {url, calls, perSecond} begins, `phase` ends one phase and is answered with what it saw: milliseconds and statuses of its calls.
import { Agent, request } from 'node:http'
import { performance } from 'node:perf_hooks'

const agent = new Agent({ keepAlive: true, maxSockets: 8 })
let seen = { milliseconds: [], statuses: {}, lost: [] }

function call(url, { method, path, body }) {
  const start = performance.now()
  const { milliseconds, statuses, lost } = seen
  const headers = body === undefined ? {} : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }
  const sent = request(`${url}${path}`, { agent, method, headers }, (answer) => {
    answer.resume()
    answer.on('end', () => {
      milliseconds.push(performance.now() - start)
      statuses[answer.statusCode] = (statuses[answer.statusCode] ?? 0) + 1
    })
    answer.on('error', (error) => lost.push(error.code ?? error.name))
  })
  sent.on('error', (error) => lost.push(error.code ?? error.name))
  sent.end(body)
}

process.on('message', (message) => {
  if (message !== 'phase') {
    let next = 0
    setInterval(() => call(message.url, message.calls[next++ % message.calls.length]), 1_000 / message.perSecond)
    return
  }
  const told = seen
  seen = { milliseconds: [], statuses: {}, lost: [] }
  process.send(told)
})
// The parent is gone: nobody wants to know.
process.on('disconnect', () => process.exit())
