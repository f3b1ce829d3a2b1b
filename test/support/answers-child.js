// Loaded before the program in a process that serves: what its gateway answers is written down, a
// line of JSON each, to be judged. With an empty ANSWERS_FILE the server stays as it is.
import { appendFileSync } from 'node:fs'
import { ServerResponse } from 'node:http'

const { ANSWERS_FILE: file } = process.env
delete process.env.ANSWERS_FILE
const { end } = ServerResponse.prototype

function writtenDown(chunk, ...rest) {
  const { method, url, socket } = this.req
  if (socket.server?.maxRequestsPerSocket > 0) {
    const headers = Object.fromEntries(
      [...String(this._header).matchAll(/^([\w-]+): (.*)\r$/gm)].map(([, name, value]) => [
        name.toLowerCase(),
        value,
      ]),
    )
    const body =
      chunk === undefined || typeof chunk === 'function' ? '' : Buffer.from(chunk).toString()
    appendFileSync(
      file,
      `${JSON.stringify({ method, target: url, status: this.statusCode, headers, body })}\n`,
    )
  }
  return end.call(this, chunk, ...rest)
}

if (file) ServerResponse.prototype.end = writtenDown
