/**
 * When the chain is looked at next. Measured, because chains differ and Polygon's will change
 * (domain §8). While somebody waits: half a block time after the last look, so that a new block is
 * seen soon. While nobody does: once a block, just after it comes, because hosted nodes bill by call.
 * Somebody outside may tell of blocks. That is never believed; it only moves the next look.
 */
import type { BlockHeader } from '../../ports.js'

const leastMs = 250
const usualMs = 500
const mostMs = 2_000
/** Blocks that came on time before the next one is counted on. */
const steadyBlocks = 3
/** Gaps between blocks that were seen, of which the block time is the mean. */
const measuredGaps = 64
const leastGaps = 4
/**
 * The measure may be off by a second over all its gaps, for block times are told in whole seconds:
 * the look has to move forward by more than its share of that, or it would fall behind.
 */
const errorMs = 1_250
/** A block that is late is looked for this often before it is taken for missing. */
const lateLooks = 4
/** Who is told of blocks waits this much longer than a block time for the next one, at most. */
const mostSilenceMs = 10_000
/**
 * News that were wrong are not listened to for a block time, and for no less than this; twice as
 * long each further time in a row, up to 64 times.
 */
const leastDeafMs = 1_000
const mostDoublings = 6

/** Times are of the monotonic clock, in milliseconds. */
export interface Pace {
  /** A look has ended with this newest block, or with none. */
  looked(latest: BlockHeader | undefined, startedMs: number, endedMs: number): void
  /** When the next one is due. `isBehind`: more logs a look than reads would leave ever more. */
  dueAtMs(waits: boolean, isBehind: boolean): number
  /**
   * Somebody tells of this block. True where the next look may be due at another time because of it.
   * What turns out to be wrong costs one look in a block time at most, and ever less.
   */
  told(number: bigint, nowMs: number): boolean
}

/** So many blocks came in so long. */
interface Gap {
  readonly blocks: number
  readonly tookMs: number
}

const gapBetween = (before: BlockHeader, after: BlockHeader): Gap => ({
  blocks: Number(after.number - before.number),
  tookMs: Number(after.timestamp - before.timestamp) * 1000,
})

/**
 * The block time. Gaps in which the chain stood still, a quarter of them at most, are left out: one
 * would move every look behind the next block. Of a chain without a pace all count.
 */
function meanOf(gaps: readonly Gap[]): number {
  const each = gaps.map(({ blocks, tookMs }) => tookMs / blocks).sort((a, b) => a - b)
  const longestMs = 2 * (each[each.length >> 1] ?? 0) + 1_000
  const usual = gaps.filter(({ blocks, tookMs }) => tookMs / blocks <= longestMs)
  const counted = 4 * usual.length >= 3 * gaps.length ? usual : gaps
  const sum = (of: (gap: Gap) => number) => counted.reduce((so, gap) => so + of(gap), 0)
  return sum(({ tookMs }) => tookMs) / sum(({ blocks }) => blocks)
}

/** Nothing measured yet. */
export function createPace(): Pace {
  /** The latest gaps between blocks that were seen. */
  let gaps: Gap[] = []
  let blockMs: number | undefined
  let last: { readonly header: BlockHeader; readonly startedMs: number } | undefined
  let endedMs = 0
  let misses = 0
  let onTime = 0
  /** The next look comes so much before the last one's place in the block: until it is too early. */
  let earlierMs = 0
  /** It is known when in the block time a block comes. */
  let isInStep = false
  /** The newest block was told of: the next one will be. */
  let isTold = false
  /** A block that somebody told of, and that no look has found yet. */
  let news: { readonly number: bigint; readonly atMs: number } | undefined
  let deafUntilMs = Number.NEGATIVE_INFINITY
  /** Wrong news since the last right ones. */
  let wrongNews = 0
  let startedMs = 0

  const measure = (latest: BlockHeader) => {
    if (last === undefined) return
    const gap = gapBetween(last.header, latest)
    gaps = gap.blocks > 0 ? [...gaps, gap].slice(-measuredGaps) : []
    blockMs = gaps.length < leastGaps ? blockMs : meanOf(gaps)
  }

  /** What a look with this newest block says of the news; whether it came only for them. */
  const judge = (latest: BlockHeader): boolean => {
    const isNew = latest.hash !== last?.header.hash
    if (news === undefined) {
      if (isNew) isTold = false
      return false
    }
    const isTrue = latest.number >= news.number
    // It began before the news came: another one has to look for them.
    if (!isTrue && startedMs < news.atMs) return false
    if (!isTrue) deafUntilMs = startedMs + Math.max(leastDeafMs, blockMs ?? mostMs) * 2 ** wrongNews
    wrongNews = isTrue ? 0 : Math.min(mostDoublings, wrongNews + 1)
    isTold = isTrue
    news = undefined
    return true
  }

  return {
    looked(latest, lookStartedMs, lookEndedMs) {
      startedMs = lookStartedMs
      endedMs = lookEndedMs
      if (latest === undefined) return
      const cameForNews = judge(latest)
      if (latest.hash === last?.header.hash) {
        if (!cameForNews) misses += 1
        return
      }
      measure(latest)
      if (last !== undefined && blockMs !== undefined) {
        const { blocks, tookMs } = gapBetween(last.header, latest)
        // Block times are told in whole seconds.
        const isOnTime = blocks > 0 && Math.abs(tookMs - blocks * blockMs) <= blockMs / 4 + 1_000
        onTime = isOnTime ? onTime + 1 : 0
        const wasSeenComing = blocks === 1 && misses > 0 && misses <= lateLooks
        isInStep = blocks === 1 && (isInStep || wasSeenComing)
        earlierMs = wasSeenComing
          ? 0
          : isInStep
            ? Math.max(errorMs / gaps.length, blockMs / 64)
            : blockMs / 8
      }
      last = { header: latest, startedMs }
      misses = 0
    },
    dueAtMs(waits, isBehind) {
      if (news !== undefined) return startedMs + leastMs
      if (last === undefined || blockMs === undefined)
        return endedMs + (isBehind ? leastMs : usualMs)
      if (isBehind) return endedMs + leastMs
      const usual = endedMs + Math.min(mostMs, Math.max(leastMs, blockMs / 2))
      if (waits || onTime < steadyBlocks) return usual
      const nextMs = last.startedMs + blockMs
      // Where the block is not told of in time, it is looked for as by anybody else.
      if (isTold && misses === 0)
        return Math.max(nextMs + Math.min(mostSilenceMs, blockMs / 2), endedMs + leastMs)
      if (misses === 0) return Math.max(nextMs - earlierMs, endedMs + leastMs)
      if (misses > lateLooks) return usual
      return endedMs + Math.min(mostMs, Math.max(leastMs, blockMs / 8))
    },
    told(number, nowMs) {
      if (last === undefined || number < last.header.number) return false
      if (number === last.header.number) {
        const wasTold = isTold
        isTold = true
        return !wasTold
      }
      if (news !== undefined || nowMs < deafUntilMs) return false
      news = { number, atMs: nowMs }
      return true
    },
  }
}
