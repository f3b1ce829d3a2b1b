/**
 * The request log (robustness §5): one JSON line per call on stderr, of a few fixed fields; a sink
 * that blocks loses lines, never calls.
 */
import { pino } from 'pino'
import type { Hash, Random } from '../../ports.js'
import type { RequestRecord } from '../../protocol/call.js'

export interface RequestLogOptions {
  readonly hash: Hash
  readonly random: Random
  /** Where lines go; never waited for. */
  readonly sink: { write(line: string): unknown }
}

export interface RequestLog {
  write(record: RequestRecord): void
}

/** Where log lines go. */
export interface LogSink {
  write(line: string): unknown
  /** Lines lost because nobody took them. */
  dropped(): number
}

/**
 * A log of calls. The client is a salted hash, so that lines of one client can be told together and
 * no address is written; the salt lives as long as the process. No field holds what a caller sent,
 * but the method.
 */
export function createRequestLog({ hash, random, sink }: RequestLogOptions): RequestLog {
  const salt = random.bytes(16).join('.')
  const logger = pino(
    { base: null, timestamp: pino.stdTimeFunctions.isoTime, messageKey: 'event' },
    sink,
  )
  return {
    write(record) {
      const line = {
        request_id: record.requestId,
        method: /^[A-Z]{1,16}$/.test(record.method) ? record.method : 'OTHER',
        route: record.route,
        status: record.status,
        code: record.code,
        ms: Math.round(record.durationMs * 100) / 100,
        items: record.items,
        client: hash.sha256(`${salt}|${record.client}`).slice(0, 16),
        ...(record.bug && {
          bug: {
            name: record.bug.name.slice(0, 64),
            frames: record.bug.frames.map((frame) => frame.slice(0, 200)),
          },
        }),
      }
      if (record.bug) logger.error(line, 'request')
      else logger.info(line, 'request')
    },
  }
}
