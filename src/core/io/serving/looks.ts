import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { Registry } from 'prom-client'
import { BodyError } from '#protocol/call'
import { readJson } from '#protocol/json'
import { withoutNodeWords } from '#protocol/node-words'
import { commonHeaders } from '#protocol/refusal'
import { readIncoming } from './incoming-body.js'
import { listenOn, sendAnswer, serverSettings, socketSettings } from './listener.js'

export interface Look {
  readonly status: number
  readonly body: string
  readonly headers?: Readonly<Record<string, string>>
}

export const jsonLook = (value: object, status = 200): Look => ({
  status,
  body: JSON.stringify(value),
})

export const refused = (status: number, code: string, detail: string, hint?: string): Look =>
  jsonLook({ error: { code, detail, hint } }, status)

export const onlyBy = (method: string): Look => ({
  ...refused(405, 'method_not_allowed', `this route accepts ${method} only`),
  headers: { allow: method },
})

export interface LookListener {
  readonly url: string
  readonly port: number
  close(): Promise<void>
}

export interface LookServer {
  readonly host: string
  readonly port: number
  readonly connections?: number | undefined
  readonly timeoutMs?: number
  readonly closes?: boolean
  readonly route: (
    incoming: IncomingMessage,
    response: ServerResponse,
  ) => Promise<Look | 'streaming'> | Look | 'streaming'
}

export async function listenForLooks(options: LookServer): Promise<LookListener> {
  const { connections = 64, timeoutMs = socketSettings.timeoutMs } = options
  const respond = async (incoming: IncomingMessage, response: ServerResponse) => {
    const look = await options.route(incoming, response)
    if (look === 'streaming') return
    const headers = { ...commonHeaders, ...look.headers }
    await sendAnswer(incoming, response, { ...look, headers }, options.closes === true)
  }
  const server = createServer({ ...serverSettings }, (incoming, response) => {
    response.on('error', () => undefined)
    respond(incoming, response).catch((error: unknown) => {
      response.destroy()
      throw error
    })
  })
  server.maxConnections = connections
  server.timeout = timeoutMs
  return {
    ...(await listenOn(server, options)),
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

export async function withJson(
  incoming: IncomingMessage,
  response: ServerResponse,
  limitBytes: number,
  tooLarge: string,
  use: (body: unknown) => Promise<Look>,
) {
  let bytes: Uint8Array
  try {
    bytes = await readIncoming(incoming, response, { limitBytes, reserve: () => true })
  } catch (error) {
    if (!(error instanceof BodyError)) throw error
    return error.kind === 'too_large'
      ? refused(413, 'payload_too_large', tooLarge)
      : refused(400, 'bad_request', 'the body is incomplete; send it again')
  }
  const read = readJson(bytes)
  return read.ok ? use(read.value) : refused(400, 'invalid_json', read.detail)
}

export const healthLooks = (
  reasons: () => readonly string[],
  metrics: Registry,
): readonly (readonly [path: string, look: () => Look | Promise<Look>])[] => [
  ['/healthz', () => jsonLook({ status: 'ok' })],
  [
    '/readyz',
    () => {
      const now = reasons()
      const ready = now.length === 0
      return jsonLook({ ready, reasons: now }, ready ? 200 : 503)
    },
  ],
  [
    '/metrics',
    async () => ({
      status: 200,
      body: await metrics.metrics(),
      headers: { 'content-type': metrics.contentType },
    }),
  ],
]

interface MetricsOptions extends Pick<LookServer, 'host' | 'port'> {
  readonly reasons: () => readonly string[]
  readonly metrics: Registry
}

/** For scrapers on other hosts (contract §9): `/readyz` leaves out what nodes said (R5). */
export function listenMetrics({ reasons, metrics, ...at }: MetricsOptions) {
  const looks = new Map(healthLooks(() => reasons().map(withoutNodeWords), metrics))
  const names = [...looks.keys()].join(', ')
  return listenForLooks({
    ...at,
    route({ url = '', method }) {
      const look = looks.get(url)
      if (look === undefined) return refused(404, 'route_not_found', `this listener has ${names}`)
      return method === 'GET' ? look() : onlyBy('GET')
    },
  })
}
