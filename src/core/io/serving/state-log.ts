/**
 * The state log (robustness §5): one JSON line per change of state, beside the lines of the request
 * log.
 */
import { pino } from 'pino'
import type { StateLine } from '../../protocol/vitals.js'

export interface StateLog {
  write(line: StateLine): void
}

/** No id of ours is longer; what is longer is none, and a line stays far below 4 KiB. */
const longestText = 100

/**
 * Printable ASCII alone: ids, hashes and names of ours hold nothing else, and anything else could
 * act on a terminal (R20).
 */
const plain = (text: string) => text.replace(/[^ -~]/g, '?').slice(0, longestText)

/**
 * A log of what changed. It takes the fields that it knows, by ids only (R5); the sink is never
 * waited for. Throws nothing.
 */
export function createStateLog(sink: { write(line: string): unknown }): StateLog {
  const logger = pino(
    { base: null, timestamp: pino.stdTimeFunctions.isoTime, messageKey: 'event' },
    sink,
  )
  return {
    write({
      event,
      candidate_id,
      question_id,
      slot,
      nonce,
      hash,
      block,
      code,
      stage,
      kind,
      candidates,
      enabled,
      node,
      reasons,
    }) {
      const texts = { candidate_id, question_id, slot, hash, block, code, stage, kind }
      const shown = Object.entries(texts).flatMap(([key, text]) =>
        text === undefined ? [] : [[key, plain(text)] as const],
      )
      logger.info(
        { ...Object.fromEntries(shown), nonce, candidates, enabled, node, reasons },
        plain(event),
      )
    },
  }
}
