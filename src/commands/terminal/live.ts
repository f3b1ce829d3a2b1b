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

/** Lines that are drawn over those drawn before; each change is one write: nothing flickers. */
export function drawnOver(write: (text: string) => void, columns: () => number) {
  let shown: readonly string[] = []
  const framed = (lines: readonly string[]) => lines.map((line) => `${line}\u001b[K\n`).join('')
  /** To the first of them. A terminal that became narrower has folded what stood on it. */
  const back = () => {
    const widths = shown.map((line) => withoutColour(line).length / Math.max(1, columns()))
    const rows = widths.reduce((sum, width) => sum + Math.max(1, Math.ceil(width)), 0)
    return rows === 0 ? '' : `\u001b[${rows}A\r`
  }
  return {
    draw(lines: readonly string[], above = '') {
      write(`${back()}${above}${framed(lines)}\u001b[J`)
      shown = lines
    },
    /** What is drawn next stands below it. */
    leave() {
      shown = []
    },
    shown: () => shown,
  }
}

/** `undefined` where stdout cannot be drawn on. */
export function openLive({ output, streams: { stdout }, env }: Context): Live | undefined {
  if (!output.isForPeople || !output.isTerminal || env.TERM === 'dumb') return undefined
  const size = () => terminalSize(stdout)
  const lines = drawnOver(output.text, () => size().columns)
  let drawn = ''
  const draw = (next: readonly string[]) => {
    const state = [size().columns, ...next].join('\n')
    if (state !== drawn) lines.draw(next)
    drawn = state
  }
  const clear = () => {
    if (lines.shown().length > 0) lines.draw([])
    drawn = ''
  }
  const above = (tell: (text: string) => void) => (text: string) => {
    const shown = lines.shown()
    if (output.notesAreTerminal) clear()
    tell(text)
    if (output.notesAreTerminal && shown.length > 0) draw(shown)
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
