import type { Clock } from '#ports'
import { UnavailableError } from '#protocol/errors'
import type { RecoverPublicKey } from '#protocol/recovered'

/**
 * Clients are served in turn, one piece of work each (robustness §5). As with CoDel, a line *stands*
 * once for a whole interval nothing left it that had waited less than the target: then what has
 * waited longer is refused. Who is refused comes back after a second at the earliest.
 */
export const lineLimits = { targetMs: 1_000, intervalMs: 1_000 } as const

const rememberedLines = 1_024

export function createLine<Work>() {
  const { targetMs, intervalMs } = lineLimits
  const lines = new Map<string, { readonly work: Work; readonly sinceMs: number }[]>()
  const slow = new Map<string, { readonly sinceMs: number; readonly lastMs: number }>()
  let length = 0

  function judge(client: string, waitedMs: number, nowMs: number) {
    const before = slow.get(client)
    slow.delete(client)
    if (waitedMs < targetMs) return false
    const isGoingOn = before !== undefined && nowMs - before.lastMs <= intervalMs
    const sinceMs = isGoingOn ? before.sinceMs : nowMs
    slow.set(client, { sinceMs, lastMs: nowMs })
    if (slow.size > rememberedLines) {
      const [oldest] = slow.keys()
      if (oldest !== undefined) slow.delete(oldest)
    }
    return nowMs - sinceMs >= intervalMs
  }

  return {
    add(client: string, work: Work, sinceMs: number) {
      length += 1
      const own = lines.get(client)
      if (own) own.push({ work, sinceMs })
      else lines.set(client, [{ work, sinceMs }])
    },
    next(nowMs: number) {
      const [first] = lines
      if (!first) return undefined
      const [client, own] = first
      const found = own.shift()
      if (!found) throw new RangeError('an empty line was kept')
      length -= 1
      lines.delete(client)
      if (own.length > 0) lines.set(client, own)
      const waitedMs = nowMs - found.sinceMs
      return { work: found.work, waitedMs, isLate: judge(client, waitedMs, nowMs) }
    },
    pass: (client: string, sinceMs: number, nowMs: number) =>
      !judge(client, nowMs - sinceMs, nowMs),
    get length() {
      return length
    },
  }
}

export const gateLimits = {
  roundMs: 100,
  callsPerRound: 64,
} as const

interface GateParts {
  readonly yieldToEvents: () => Promise<void>
  readonly clock: Pick<Clock, 'monotonicMs'>
}

export type Gate = ReturnType<typeof createGate>

/** A call that waits here costs memory that one in its socket does not: all pass in a short round. */
export function createGate({ yieldToEvents, clock }: GateParts) {
  const line = createLine<(goOn: boolean) => void>()
  let roundMs: number | undefined

  async function followRounds() {
    for (let went = 1; went > 0; ) {
      await yieldToEvents()
      const nowMs = clock.monotonicMs()
      roundMs = nowMs
      for (went = 0; went < gateLimits.callsPerRound; went += 1) {
        const turn = line.next(nowMs)
        if (turn === undefined) break
        turn.work(!turn.isLate)
      }
    }
    roundMs = undefined
  }

  return (client: string, sinceMs: number): boolean | Promise<boolean> => {
    const nowMs = clock.monotonicMs()
    if (roundMs === undefined) {
      roundMs = nowMs
      void followRounds()
    }
    if (line.length === 0 && nowMs - roundMs < gateLimits.roundMs)
      return line.pass(client, sinceMs, nowMs)
    return new Promise((resolve) => line.add(client, resolve, sinceMs))
  }
}

interface Recovery {
  readonly asked: Parameters<RecoverPublicKey>
  readonly resolve: (key: Uint8Array | undefined) => void
  readonly reject: (error: unknown) => void
}

const sliceMs = 0.5

export interface RecoveryParts extends GateParts {
  readonly recover: RecoverPublicKey
}

export const tooLong = 'the gateway is overloaded and this call has waited too long'

/** Recovering keys costs more than all other checks together: looks and replays go first. */
export function createRecoveries({ recover, yieldToEvents, clock }: RecoveryParts) {
  const line = createLine<Recovery>()
  let isDraining = false

  async function drain() {
    isDraining = true
    await undefined
    while (line.length > 0) {
      let nowMs = clock.monotonicMs()
      const endMs = nowMs + sliceMs
      do {
        const next = line.next(nowMs)
        if (next === undefined) break
        const { asked, resolve, reject } = next.work
        try {
          if (next.isLate) reject(new UnavailableError('server_busy', tooLong))
          else resolve(recover(...asked))
        } catch (error) {
          reject(error)
        }
        nowMs = clock.monotonicMs()
      } while (nowMs < endMs)
      if (line.length > 0) await yieldToEvents()
    }
    isDraining = false
  }

  return (
    { client, waitedMs }: { readonly client: string; readonly waitedMs: number },
    ...asked: Recovery['asked']
  ) =>
    new Promise<Uint8Array | undefined>((resolve, reject) => {
      line.add(client, { asked, resolve, reject }, clock.monotonicMs() - waitedMs)
      if (!isDraining) void drain()
    })
}
