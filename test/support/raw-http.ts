import { connect } from 'node:net'

export interface RawAnswer {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
  readonly code: string | undefined
  readonly closed: boolean
  readonly text: string
}

export interface RawOptions {
  readonly followUp?: string | Uint8Array
  readonly untilClosed?: boolean
  /** Nothing more will be sent. */
  readonly ends?: boolean
}

export function exchangeRaw(
  port: number,
  bytes: string | Uint8Array,
  options: RawOptions = {},
): Promise<RawAnswer> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: '127.0.0.1', port })
    const parts: Buffer[] = []
    let sentRest = false
    const settle = (closed: boolean) => {
      socket.destroy()
      const text = Buffer.concat(parts).toString('latin1')
      const answer = parseAnswer(text)
      if (answer) resolve({ ...answer, closed, text })
      else reject(new Error(`no answer, but ${JSON.stringify(text)}`))
    }
    socket.on('connect', () => (options.ends ? socket.end(bytes) : socket.write(bytes)))
    socket.on('data', (part) => {
      parts.push(part)
      if (options.followUp !== undefined && !sentRest) {
        sentRest = true
        socket.write(options.followUp)
        return
      }
      const answer = parseAnswer(Buffer.concat(parts).toString('latin1'))
      if (answer?.whole && !options.untilClosed && answer.headers.connection !== 'close')
        settle(false)
    })
    socket.on('close', () => settle(true))
    socket.on('error', () => undefined)
  })
}

function parseAnswer(
  text: string,
): (Omit<RawAnswer, 'closed' | 'text'> & { whole: boolean }) | undefined {
  const interim = /^HTTP\/1\.1 100 [^\r]*\r\n\r\n/.exec(text)
  const final = interim ? text.slice(interim[0].length) : text
  const headEnd = final.indexOf('\r\n\r\n')
  if (headEnd < 0) return undefined
  const [statusLine = '', ...lines] = final.slice(0, headEnd).split('\r\n')
  const headers = Object.fromEntries(
    lines.map((line) => [
      line.slice(0, line.indexOf(':')).toLowerCase(),
      line.slice(line.indexOf(':') + 1).trim(),
    ]),
  )
  const length = Number(headers['content-length'] ?? 0)
  const body = final.slice(headEnd + 4, headEnd + 4 + length)
  const code = /^\{"error":\{"code":"(\w+)"/.exec(body)?.[1]
  return {
    status: Number(statusLine.split(' ')[1]),
    headers,
    body,
    code,
    whole: body.length >= length,
  }
}
