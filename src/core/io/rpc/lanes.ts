/**
 * The connections to one node, each with a name of its own: behind one URL there may be many
 * machines, and what one connection has shown says nothing of the next (R16).
 */
import { Client } from 'undici'

/** One connection to a node, opened again where it was lost. */
export interface Link {
  /** How often it was opened so far. */
  readonly opened: number
  /** Which of these openings carried its latest response; 0 before the first. */
  readonly answered: number
}

/** A connection that carries one request at a time. */
export interface Lane extends Link {
  readonly client: Client
  opened: number
  answered: number
  /** Requests on it, the one under way and those that wait for it. */
  inUse: number
}

/** Connections to one node at once; more requests wait for one of them. */
const mostLanes = 16
const keepAliveMs = 10_000

/** The first that is free, else a new one, else the one that is used least. Opens nothing yet. */
export function freeLane(lanes: Lane[], url: string, connectMs: number): Lane {
  const free = lanes.find(({ inUse }) => inUse === 0)
  if (free) return free
  if (lanes.length >= mostLanes)
    return lanes.reduce((best, one) => (one.inUse < best.inUse ? one : best))
  const client = new Client(new URL(url).origin, {
    connect: { timeout: connectMs },
    keepAliveTimeout: keepAliveMs,
    pipelining: 1,
  })
  const lane: Lane = { client, opened: 0, answered: 0, inUse: 0 }
  client.on('connect', () => {
    lane.opened += 1
  })
  lanes.push(lane)
  return lane
}
