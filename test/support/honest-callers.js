// Callers who do nothing wrong, in a process of their own, so that what they measure is the server
// and not the attack beside them. By IPC: {url, plainUrl, calls, perSecond} begins, `phase` ends
// one phase and is answered with what it saw: milliseconds and statuses of its calls, and
// milliseconds of as many calls of a plain server, made at the same moments.
import { Agent, request } from 'node:http'

const agent = new Agent({ keepAlive: true, maxSockets: 8 })
const nothing = () => ({ milliseconds: [], statuses: {}, lost: [] })
let seen = nothing()
let plain = nothing()

function call(url, { method, path, body }, { milliseconds, statuses, lost }) {
  const start = performance.now()
  const headers =
    body === undefined
      ? {}
      : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }
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
    setInterval(() => {
      call(message.url, message.calls[next++ % message.calls.length], seen)
      call(message.plainUrl, { method: 'GET', path: '/' }, plain)
    }, 1_000 / message.perSecond)
    return
  }
  process.send({ ...seen, plainMilliseconds: plain.milliseconds })
  ;[seen, plain] = [nothing(), nothing()]
})
process.on('disconnect', () => process.exit())
