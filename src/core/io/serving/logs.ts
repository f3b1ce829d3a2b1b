/**
 * The logs of a gateway (robustness §5): one JSON line per call and per change of state, of a few
 * fixed fields. A sink that blocks loses lines, never calls.
 */
import { pino } from 'pino'
import type { Hash, Random } from '../../ports.js'
import type { RequestRecord } from '../../protocol/call.js'
import { pick } from '../../protocol/pick.js'
import type { StateLine } from '../../protocol/vitals.js'

/** Where log lines go; never waited for. */
export interface LogSink {
  write(line: string): unknown
  /** Lines lost because nobody took them. */
  dropped(): number
}

const loggerOn = (sink: Pick<LogSink, 'write'>) =>
  pino({ base: null, timestamp: pino.stdTimeFunctions.isoTime, messageKey: 'event' }, sink)

/**
 * A log of calls. The client is a salted hash, so that lines of one client can be told together and
 * no address is written. The salt lives as long as the process. No field holds what a caller sent,
 * but the method.
 */
export function createRequestLog({
  hash,
  random,
  sink,
}: {
  readonly hash: Hash
  readonly random: Random
  readonly sink: Pick<LogSink, 'write'>
}): { write(record: RequestRecord): void } {
  const salt = random.bytes(16).join('.')
  const logger = loggerOn(sink)
  return {
    write({ requestId, method, route, status, code, durationMs, items, client, bug }) {
      const line = {
        request_id: requestId,
        method: /^[A-Z]{1,16}$/.test(method) ? method : 'OTHER',
        route,
        status,
        code,
        ms: Math.round(durationMs * 100) / 100,
        items,
        client: hash.sha256(`${salt}|${client}`).slice(0, 16),
      }
      if (bug === undefined) return logger.info(line, 'request')
      const frames = bug.frames.map((frame) => frame.slice(0, 200))
      logger.error({ ...line, bug: { name: bug.name.slice(0, 64), frames } }, 'request')
    },
  }
}

/** No id of ours is longer; what is longer is none, and a line stays far below 4 KiB. */
const longestText = 100

/** Printable ASCII alone: ids hold nothing else, and anything else could act on a terminal (R20). */
const plain = (text: string) => text.replace(/[^ -~]/g, '?').slice(0, longestText)

/** A log of changes. It takes the fields that it knows, by ids only (R5). Throws nothing. */
export function createStateLog(sink: Pick<LogSink, 'write'>): { write(line: StateLine): void } {
  const logger = loggerOn(sink)
  return {
    write(line) {
      const { candidate_id, question_id, slot, hash, block, code, stage, kind } = line
      const texts = { candidate_id, question_id, slot, hash, block, code, stage, kind }
      const shown = Object.entries(texts).flatMap(([key, text]) =>
        text === undefined ? [] : [[key, plain(text)] as const],
      )
      const figures = pick(line, 'nonce', 'candidates', 'enabled', 'node', 'reasons')
      logger.info({ ...Object.fromEntries(shown), ...figures }, plain(line.event))
    },
  }
}
