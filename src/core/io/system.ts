import type { Ports } from '#ports'
import { systemClock, systemHash, systemRandom } from './clock.js'
import { systemFiles } from './files.js'
import { systemLiveness } from './liveness.js'

export const systemPorts = (): Omit<Ports, 'signal' | 'edges'> => ({
  clock: systemClock,
  random: systemRandom,
  hash: systemHash,
  files: systemFiles,
  liveness: systemLiveness(),
})

export function systemEdges(): Pick<Ports, 'edges'> & { close(): Promise<void> } {
  const opened: { close(): Promise<void> }[] = []
  const kept = <T extends { close(): Promise<void> }>(edge: T) => {
    opened.push(edge)
    return edge
  }
  return {
    edges: {
      fetch: async () => kept((await import('./http.js')).createHttp()).fetch,
      chain: async (rpcUrls, expected) =>
        kept((await import('./rpc/rpc.js')).createChain(rpcUrls, expected)),
      database: async (url) => kept((await import('./postgres.js')).postgresDatabase(url)),
    },
    async close() {
      for (const edge of opened.splice(0)) await edge.close()
    },
  }
}
