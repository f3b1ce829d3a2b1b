/** What the listeners for looks share: the admin's on loopback, and the one for metrics. */
import type { Server } from 'node:http'
import type { Registry } from 'prom-client'
import { socketSettings } from './listener.js'

/** What a look is answered with. */
export interface Look {
  readonly status: number
  readonly body: string
  readonly headers?: Readonly<Record<string, string>>
}

/** A look with a body of JSON. */
export const jsonLook = (value: object, status = 200): Look => ({
  status,
  body: JSON.stringify(value),
})

/** `/healthz`, `/readyz` and `/metrics` by path; `reasons` say why the gateway is not ready. */
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

export interface LookListener {
  readonly url: string
  close(): Promise<void>
}

/** A refusal that names its code and why. */
export const refused = (status: number, code: string, detail: string, hint?: string): Look =>
  jsonLook({ error: { code, detail, hint } }, status)

/** Slow readers are cut off. Rejects with node's error where the port cannot be had. */
export async function bindServer(server: Server, host: string, port: number): Promise<void> {
  server.timeout = socketSettings.timeoutMs
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen({ host, port }, () => {
      server.off('error', reject)
      resolve()
    })
  })
}

/** Ends it with every connection of it. */
export const closeServer = (server: Server): Promise<void> =>
  new Promise((resolve) => {
    server.close(() => resolve())
    server.closeAllConnections()
  })
