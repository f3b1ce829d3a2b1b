/** Robustness §5. A sink that blocks loses lines, never calls. */
import { pino } from 'pino'
import type { Hash, Random } from '#ports'
import type { RequestRecord } from '#protocol/call'
import type { LogLevel } from '#protocol/log-level'
import { pick } from '#protocol/pick'
import type { Observation, StateLine } from '#protocol/vitals'

export interface LogSink {
  write(line: string): unknown
  dropped(): number
}

const loggerOn = (sink: Pick<LogSink, 'write'>, level: LogLevel = 'info') =>
  pino(
    {
      base: null,
      level,
      timestamp: pino.stdTimeFunctions.isoTime,
      messageKey: 'event',
      formatters: { level: (severity, number) => ({ level: number, severity }) },
    },
    sink,
  )

const freeLines = { ofClient: 60, ofAll: 1_200, windowMs: 60_000 }

/**
 * The client is a salted hash. The budget bounds the lines of charged calls; of all others so many
 * a minute have a line, or they would fill a disk.
 */
export function createRequestLog({
  hash,
  random,
  sink,
  level,
}: {
  hash: Hash
  random: Random
  sink: Pick<LogSink, 'write'>
  level?: LogLevel
}): {
  write(record: RequestRecord): void
  end(): void
} {
  const salt = random.bytes(16).join('.')
  const logger = loggerOn(sink, level)
  const hashed = (client: string) => hash.sha256(`${salt}|${client}`).slice(0, 16)
  const counted = countFreeLines((client, calls) => {
    const message = `${calls} more free or refused calls in this minute`
    logger.info({ message, calls, ...(client && { client: hashed(client) }) }, 'more_requests')
  })
  return {
    end: counted.end,
    write({ requestId, method, route, status, code, durationMs, items, client, bug }) {
      const isBounded = bug !== undefined || (items > 0 && status < 400)
      if (!isBounded && !counted.hasLine(client)) return
      const verb = /^[A-Z]{1,16}$/.test(method) ? method : 'OTHER'
      const line = {
        message: [verb, route, status, code].filter((part) => part).join(' '),
        request_id: requestId,
        method: verb,
        route,
        status,
        code,
        ms: Math.round(durationMs * 100) / 100,
        items,
        client: hashed(client),
      }
      if (bug === undefined) return logger.info(line, 'request')
      const frames = bug.frames.map((frame) => frame.slice(0, 200))
      logger.error({ ...line, bug: { name: bug.name.slice(0, 64), frames } }, 'request')
    },
  }
}

function countFreeLines(tell: (client: string | undefined, calls: number) => void) {
  let ofAll = 0
  let others = 0
  const clients = new Map<string, { lines: number; more: number }>()
  let timer: NodeJS.Timeout | undefined
  const end = () => {
    clearTimeout(timer)
    timer = undefined
    for (const [client, { more }] of clients) if (more > 0) tell(client, more)
    if (others > 0) tell(undefined, others)
    clients.clear()
    ofAll = 0
    others = 0
  }
  return {
    end,
    hasLine(client: string) {
      timer ??= setTimeout(end, freeLines.windowMs).unref()
      const isFull = ofAll >= freeLines.ofAll
      const known = clients.get(client)
      if (isFull && !known) {
        others += 1
        return false
      }
      const own = known ?? { lines: 0, more: 0 }
      if (!known) clients.set(client, own)
      if (isFull || own.lines >= freeLines.ofClient) {
        own.more += 1
        return false
      }
      own.lines += 1
      ofAll += 1
      return true
    },
  }
}

const figureText = ([name, figure]: readonly [string, string | number]) =>
  name === 'seconds'
    ? `${Number(Number(figure).toPrecision(3))} s`
    : name === 'bytes'
      ? `${figure} bytes`
      : String(figure)

const longestText = 100

/** Others could act on a terminal (R20). */
const plain = (text: string) => text.replace(/[^ -~]/g, '?').slice(0, longestText)

export function createStateLog(
  sink: Pick<LogSink, 'write'>,
  level?: LogLevel,
): { write(line: StateLine): void; observe(observation: Observation): void } {
  const logger = loggerOn(sink, level)
  return {
    observe({ kind, ...figures }) {
      if (!logger.isLevelEnabled('debug')) return
      const message = [kind, ...Object.entries(figures).map(figureText)].join(' ')
      logger.debug({ message, ...figures }, kind)
    },
    write(line) {
      const { stage, kind, code } = line
      const shown = textKeys.flatMap((key) => {
        const text = line[key]
        return text === undefined ? [] : [[key, plain(text)] as const]
      })
      const figures = pick(line, ...figureKeys)
      const by = line.elsewhere ? '(by another gateway)' : undefined
      const said = [line.event.replace(/[._]/g, ' '), stage, kind, code, enabledText(line), by]
      const message = plain(said.filter((part) => part !== undefined).join(' '))
      logger.info({ message, ...Object.fromEntries(shown), ...figures }, plain(line.event))
    },
  }
}

const textKeys = [
  ...(['candidate_id', 'question_id', 'slot', 'hash', 'block', 'code', 'stage', 'kind'] as const),
  ...(['contract', 'pinned', 'runs'] as const),
]
const figureKeys = [
  ...(['nonce', 'candidates', 'enabled', 'node', 'epoch', 'reasons', 'elsewhere'] as const),
]

const enabledText = ({ enabled }: StateLine) =>
  enabled === undefined ? undefined : enabled ? 'on' : 'off'
