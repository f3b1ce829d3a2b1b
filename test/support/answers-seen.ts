/**
 * Every answer that a gateway gives in a test file, until it has been held against the OpenAPI
 * document. The set-up file asks after each test; what does the judging is loaded with the first
 * answer, because most files have none.
 */
import { readFileSync } from 'node:fs'
import type { Socket } from 'node:net'
import type { Gateway } from '#gateway/gateway'
import type { Listener } from '#io/serving/listener'
import type { SeenAnswer } from './answers.js'

const pending: Promise<SeenAnswer>[] = []
const children = new Map<string, number>()
const faults: string[] = []
let judged = 0

export function observed(gateway: Gateway): Gateway {
  return {
    ...gateway,
    async answer(call) {
      const { status, headers, body } = await gateway.answer(call)
      sawAnswer(
        Promise.resolve({ method: call.method, target: call.target, status, headers, body }),
      )
      return { status, headers, body }
    },
    async handle(request, peer) {
      const answer = await gateway.handle(request, peer)
      const url = new URL(request.url)
      const copy = answer.clone()
      sawAnswer(
        copy.text().then((body) => ({
          method: peer?.method ?? request.method,
          target: peer?.target ?? url.pathname + url.search,
          status: copy.status,
          headers: Object.fromEntries(copy.headers),
          body,
        })),
      )
      return answer
    },
  }
}

export function observedListener(listener: Listener): Listener {
  listener.server.on('connection', (socket: Socket) => {
    const end = socket.end.bind(socket) as (...args: unknown[]) => Socket
    socket.end = ((...args: unknown[]) => {
      const [text] = args
      if (typeof text === 'string') sawAnswer(Promise.resolve(parseRaw(text)))
      return end(...args)
    }) as Socket['end']
  })
  return listener
}

function parseRaw(text: string): SeenAnswer {
  const headEnd = text.indexOf('\r\n\r\n')
  const [statusLine = '', ...lines] = text.slice(0, headEnd).split('\r\n')
  const headers = lines.map((line) => [
    line.slice(0, line.indexOf(':')).toLowerCase(),
    line.slice(line.indexOf(':') + 1).trim(),
  ])
  const status = Number(statusLine.split(' ')[1])
  return {
    method: 'unparsed',
    target: '',
    status,
    headers: Object.fromEntries(headers),
    body: text.slice(headEnd + 4),
  }
}

export function sawAnswer(answer: Promise<SeenAnswer>): void {
  pending.push(answer)
}

export function watchAnswers(file: string): void {
  children.set(file, 0)
}

export async function judgeAnswers(): Promise<void> {
  for (const [file, from] of children) {
    const text = readFileSync(file, 'utf8')
    const whole = text.lastIndexOf('\n') + 1
    children.set(file, whole)
    for (const line of text.slice(from, whole).split('\n'))
      if (line !== '') pending.push(Promise.resolve(JSON.parse(line)))
  }
  if (pending.length === 0) return
  const { answerFault } = await import('./answers.js')
  for (const answer of pending.splice(0)) {
    const fault = answerFault(await answer)
    judged += 1
    if (fault) faults.push(fault)
  }
}

export async function unwatchAnswers(file: string): Promise<void> {
  await judgeAnswers()
  children.delete(file)
}

export const judgedAnswers = (): number => judged

export async function takeAnswerFaults(): Promise<readonly string[]> {
  await judgeAnswers()
  return [...new Set(faults.splice(0))]
}
