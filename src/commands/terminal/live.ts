/** A few lines at the end of a terminal that are redrawn in place. */
import type { Context } from './context.js'
import { type Output, terminalSize } from './output.js'

export interface Live {
  readonly output: Output
  size(): { readonly columns: number; readonly rows: number }
  /** Each at most `columns` characters, fewer than `rows` of them. */
  draw(lines: readonly string[]): void
  /** Takes the lines away; the cursor is where the first one was. */
  clear(): void
}

export const withoutColour = (text: string) => text.replace(/\u001b\[[0-9;]*m/g, '')

/** To the first of the lines. A terminal that became narrower has folded what stood on it. */
export function backOver(lines: readonly string[], columns: number): string {
  const widths = lines.map((line) => withoutColour(line).length / Math.max(1, columns))
  const rows = widths.reduce((sum, width) => sum + Math.max(1, Math.ceil(width)), 0)
  return rows === 0 ? '' : `\u001b[${rows}A\r`
}

export const framed = (lines: readonly string[]) =>
  lines.map((line) => `${line}\u001b[K\n`).join('')

/** `undefined` where stdout cannot be drawn on. One write a change: nothing flickers. */
export function openLive({ output, streams: { stdout }, env }: Context): Live | undefined {
  if (output.mode !== 'human' || !output.isTerminal || env.TERM === 'dumb') return undefined
  const size = () => terminalSize(stdout)
  let shown: readonly string[] = []
  let drawn = ''

  const back = () => backOver(shown, size().columns)
  const draw = (lines: readonly string[]) => {
    const text = framed(lines)
    const state = `${size().columns} ${text}`
    if (state === drawn) return
    output.text(`${back()}${text}\u001b[J`)
    ;[shown, drawn] = [lines, state]
  }
  const clear = () => {
    if (shown.length > 0) output.text(`${back()}\u001b[J`)
    ;[shown, drawn] = [[], '']
  }
  const above = (tell: (text: string) => void) => (text: string) => {
    const lines = shown
    if (output.notesAreTerminal) clear()
    tell(text)
    if (output.notesAreTerminal && lines.length > 0) draw(lines)
  }
  return {
    // A spinner would fight with the lines for the cursor.
    output: {
      ...output,
      note: above(output.note),
      warn: above(output.warn),
      // Whoever draws the lines counts down in them.
      countdown: (what, wait) => {
        if (!output.notesAreTerminal) output.countdown(what, wait)
      },
      progress: () => ({ update: () => undefined, stop: () => undefined }),
    },
    size,
    draw,
    clear,
  }
}
