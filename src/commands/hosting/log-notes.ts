/** Where stderr is kept as a log, every line of it is JSON, whoever writes it (robustness §5). */
import type { Clock } from '../../core/ports.js'
import type { Output } from '../terminal/output.js'
import { jsonText } from '../terminal/render.js'

/**
 * Turns notes and warnings of this output into lines of the log. What it returns does the same to
 * errors: until the gateway runs, the reason why it does not start is for whoever started it.
 */
export function notesAsLog(output: Output, clock: Pick<Clock, 'nowMs'>): () => void {
  const { note, warn } = output
  const line = (event: string, detail: string) =>
    jsonText({ time: new Date(clock.nowMs()).toISOString(), event, detail }, 0)
  output.note = (text) => note(line('note', text))
  if (output.mode !== 'human') return () => undefined
  output.warning = (_code, detail) => warn(line('warning', detail))
  return () => {
    // A crash is told in JSON already.
    output.warn = (text) => warn(text.startsWith('{') ? text : line('error', text))
  }
}
