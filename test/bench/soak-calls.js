import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { Agent, request } from 'undici'

/** So often a call that the gateway shed is made again, as its answer asks. */
const shedTries = 8

/**
 * One POST or GET over kept connections: the status and the parsed answer. A call that is shed
 * because the machine is busy waits as long as the answer says and is made again; `call.shed`
 * counts those. `call.close` ends the connections.
 */
export function makeCaller(url) {
  const agent = new Agent({
    connections: 24,
    pipelining: 1,
    keepAliveTimeout: 4_000,
    bodyTimeout: 30_000,
    headersTimeout: 30_000,
  })
  const statuses = {}
  const once = async (
    path,
    body,
    { base = url, method = body === undefined ? 'GET' : 'POST', headers = {} } = {},
  ) => {
    const type = body === undefined ? {} : { 'content-type': 'application/json' }
    const sent = body === undefined || typeof body === 'string' ? body : JSON.stringify(body)
    const answer = await request(`${base}${path}`, {
      method,
      dispatcher: agent,
      headers: { ...type, ...headers },
      body: sent,
    })
    const text = await answer.body.text()
    if (base === url) statuses[answer.statusCode] = (statuses[answer.statusCode] ?? 0) + 1
    const isJson = String(answer.headers['content-type']).startsWith('application/json')
    return {
      status: answer.statusCode,
      body: isJson ? JSON.parse(text) : text,
      retryAfter: Number(answer.headers['retry-after']),
    }
  }
  const call = async (...wanted) => {
    for (let tried = 1; ; tried += 1) {
      const answer = await once(...wanted)
      if (answer.body?.error?.code !== 'server_busy' || tried === shedTries) return answer
      call.shed += 1
      await sleep(1_000 * (answer.retryAfter + Math.random()))
    }
  }
  return Object.assign(call, { statuses, shed: 0, close: () => agent.close() })
}

/**
 * Sends raw bytes in parts with a pause before each and then waits at most `waitMs` for an answer,
 * or leaves at once (0). Resolves with the status, or with `undefined` where none came. Whatever
 * the peer does to the connection is an outcome, not an error.
 */
export async function sendRaw(url, parts, pauseMs, waitMs) {
  const { hostname, port } = new URL(url)
  const socket = connect(Number(port), hostname)
  let answered = ''
  const over = new Promise((resolve) => {
    socket.on('data', (chunk) => {
      answered += chunk.toString('latin1')
      resolve()
    })
    // A gateway that has had enough resets the connection, which is what it should do.
    socket.on('error', resolve)
    socket.on('close', resolve)
  })
  for (const part of parts) {
    if (socket.destroyed) break
    socket.write(part)
    await sleep(pauseMs)
  }
  if (waitMs > 0) await Promise.race([over, sleep(waitMs, undefined, { ref: false })])
  socket.destroy()
  const status = /^HTTP\/1\.1 (\d{3})/.exec(answered)
  return status === null ? undefined : Number(status[1])
}

/** The bytes of a POST of JSON. */
export function rawPost(path, body, length = Buffer.byteLength(body)) {
  return `POST ${path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: ${length}\r\n\r\n${body}`
}
