/** The live view on the terminal of stderr. */
import type { LogSink } from '#io/serving/logs'
import type { Context } from '../terminal/context.js'
import { terminalSize } from '../terminal/output.js'
import type { LiveStatus } from './live-status.js'

/**
 * What is to be read before the ready line or at the end is waited for, but not for a terminal that
 * is held (Ctrl-S).
 */
const terminalMs = 500

/**
 * The live view, where stderr is a terminal that can be drawn on; log lines then appear above it.
 * Everything goes through a writer that waits for nobody: a terminal that is held must not hold the
 * gateway (robustness §5).
 */
export async function openStatus({
  env,
  output,
  streams: { stderr },
}: Pick<Context, 'env' | 'output' | 'streams'>): Promise<
  { status: LiveStatus; logSink: LogSink } | undefined
> {
  if (!output.notesAreTerminal || env.TERM === 'dumb') return undefined
  const [{ createLiveStatus }, { createBufferedWriter, terminalOfStderr }] = await Promise.all([
    import('./live-status.js'),
    import('#io/serving/buffered-writer'),
  ])
  const writer = createBufferedWriter(terminalOfStderr())
  const status = createLiveStatus({
    ...writer,
    size: () => terminalSize(stderr),
    written: () => writer.written(terminalMs),
    paint: output.notePaint,
  })
  const write = (line: string) => status.above(line.trimEnd())
  return { status, logSink: { write, dropped: writer.dropped } }
}
