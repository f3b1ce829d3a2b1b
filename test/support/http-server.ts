import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

export type Serve = (
  request: IncomingMessage,
  body: string,
  response: ServerResponse,
) => Promise<unknown> | unknown

/** On loopback; it is handed each request with its whole body. Where that fails the connection is cut. */
export async function serveHttp(serve: Serve) {
  const server = createServer(async (request, response) => {
    try {
      const chunks: Buffer[] = []
      for await (const chunk of request) chunks.push(chunk)
      await serve(request, Buffer.concat(chunks).toString(), response)
    } catch {
      response.destroy()
    }
  })
  server.keepAliveTimeout = 60_000
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async close() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}
