/** Where stderr is kept as a log, every line of it is JSON, whoever writes it (robustness §5). */
import type { Clock } from '#ports'
import { UsageError } from '#protocol/errors'
import { type LogLevel, logFrame, logLevels } from '#protocol/log-level'
import type { Output } from '../terminal/output.js'
import { jsonText } from '../terminal/render.js'

/**
 * Turns notes, warnings and errors of this output into lines of the log, from the first one on.
 * What is less grave than `least` is left out, but never an error.
 */
export function notesAsLog(output: Output, clock: Pick<Clock, 'nowMs'>, least: LogLevel): void {
  const { note, warn, mode } = output
  const line = (severity: LogLevel, event: string, message: string, more: object) =>
    jsonText({ ...logFrame(severity, clock.nowMs(), event, message), ...more }, 0)
  const isKept = (severity: LogLevel) => logLevels[severity] >= logLevels[least]
  output.note = (detail) => {
    if (isKept('info')) note(line('info', 'note', detail, { detail }))
  }
  output.warning = (code, detail) => {
    // Programs find it where they find it in every other command's errors, too.
    const document = mode === 'human' ? {} : { warning: { code, detail } }
    if (isKept('warn')) warn(line('warn', 'warning', detail, { detail, code, ...document }))
  }
  output.warn = (text) => {
    const [first = ''] = text.split('\n')
    const message = first.replace(/^error: /, '')
    warn(
      text.startsWith('{') ? documentLine(text) : line('error', 'error', message, { detail: text }),
    )
  }
  /** An error as a document, or a crash, which is told in JSON already. */
  const documentLine = (text: string) => {
    const document = JSON.parse(text) as { event?: string; error?: { detail: string } }
    const { event = 'error', error } = document
    return line('error', event, error?.detail ?? 'this is a bug: the process ends', document)
  }
}

export function logLevelOf(text: string): LogLevel {
  if (Object.hasOwn(logLevels, text)) return text as LogLevel
  const names = Object.keys(logLevels).join(', ')
  throw new UsageError('bad_log_level', `"${text.slice(0, 40)}" is not a log level`, {
    hint: `give --log-level, or PROPOSER_LOG_LEVEL, one of ${names}`,
  })
}
