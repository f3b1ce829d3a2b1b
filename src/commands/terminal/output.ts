/**
 * stdout is the result and nothing else; progress, prompts and notes go to stderr (contract §6).
 */

import { Chalk } from 'chalk'
import type { Ora } from 'ora'
import { UsageError } from '#protocol/errors'
import {
  type Column,
  cut,
  durationText,
  fields,
  fold,
  foldAround,
  jsonText,
  type Screen,
  tableText,
  visible,
} from './render.js'

export type { Screen } from './render.js'

export interface TextSink {
  write(text: string): unknown
  readonly isTTY?: boolean
  readonly columns?: number
  readonly rows?: number
  readonly writableLength?: number
  on?(event: 'error', listener: (error: Error) => void): unknown
}

interface Wait {
  readonly nowMs: number
  readonly waitMs: number
}

interface Bar {
  readonly verb: string
  readonly done: number
  readonly total: number
}
export type Shown = string | Bar

interface ProgressLine {
  update(next: Shown): void
  stop(): void
}
export const noLine: ProgressLine = { update: () => undefined, stop: () => undefined }

export type Output = ReturnType<typeof createOutput>

/** Prose, which is escaped and folded, rows, or what makes its text and escapes it itself. */
export type Block = string | Rows | ((screen: Screen) => string) | undefined | false
export type Rows = Parameters<typeof fields>[0]
interface ShownMore {
  readonly items?: readonly object[]
  readonly summary?: object
}

export const table =
  <Row>(columns: readonly Column<Row>[], list: readonly Row[]) =>
  (screen: Screen) =>
    tableText(columns, list, screen)

function blockText(block: Exclude<Block, undefined | false>, screen: Screen) {
  if (typeof block === 'function') return block(screen)
  return typeof block === 'string'
    ? foldAround(block, screen.columns, '  ')
    : fields(block, screen.columns)
}

const joined = (between: string) => (blocks: readonly Block[]) => (screen: Screen) =>
  blocks
    .filter((one) => one !== undefined && one !== false)
    .map((one) => blockText(one, screen))
    .filter((text) => text !== '')
    .join(between)

export const together = joined('\n')
export const apart = joined('\n\n')

export interface OutputOptions {
  readonly stdout: TextSink
  readonly stderr: TextSink
  readonly env: Readonly<Record<string, string | undefined>>
  readonly mode: 'human' | 'json' | 'ndjson'
  readonly quiet: boolean
  readonly color?: Color
  readonly field?: string | undefined
  readonly verbose?: boolean
}

export const colorChoices = ['auto', 'always', 'never'] as const
type Color = (typeof colorChoices)[number]

/** Outside text is the caller's to escape in `human`; JSON escapes it itself (R20). */
export function createOutput(options: OutputOptions) {
  const { stdout, stderr, mode, quiet } = options
  const [stdoutGuard, stderrGuard] = [guard(stdout), guard(stderr)]
  const tellAsIs = (text: string) => {
    if (!stderrGuard.closed) stderr.write(text)
  }
  let spinning: ReturnType<typeof spinner> | undefined
  const write = (text: string) => {
    spinning?.clear()
    if (!stdoutGuard.closed) stdout.write(text)
  }
  const tell = (text: string) => {
    spinning?.clear()
    tellAsIs(`${text}\n`)
  }
  const [isTerminal, notesAreTerminal] = [stdout.isTTY === true, stderr.isTTY === true]
  const { columns } = terminalSize(stdout)
  const paint = new Chalk({ level: isColored(isTerminal, options) ? 1 : 0 })
  const screen = { columns, paint, isTerminal }
  const notePaint = new Chalk({ level: isColored(notesAreTerminal, options) ? 1 : 0 })
  return {
    /** Text; else one document, or `isByLine` a line for each item as it settles. */
    isForPeople: mode === 'human',
    isByLine: mode === 'ndjson',
    isVerbose: options.verbose === true,
    jsonErrors: mode !== 'human' && options.field === undefined,
    isTerminal,
    notesAreTerminal,
    columns,
    paint,
    notePaint,
    /** The document, `"schema":"proposer.<kind>/1"` first, or `human(data)` for people. */
    result<T extends object>(kind: string, data: T, human: (data: T) => string) {
      const document = { schema: `proposer.${kind}/1`, ...data }
      if (mode === 'human') write(`${human(data)}\n`)
      else if (options.field !== undefined)
        write(`${fieldText(document, options.field, isTerminal)}\n`)
      else write(`${jsonText(document, mode === 'json' ? 2 : 0)}\n`)
    },
    item(data: object) {
      if (mode === 'ndjson') write(`${jsonText(data, 0)}\n`)
    },
    show(
      kind: string,
      document: object,
      blocks: readonly Block[],
      { items = [], summary }: ShownMore = {},
    ) {
      // By `this`: whoever takes the results elsewhere replaces `result` alone.
      for (const one of items) this.item(one)
      this.result(kind, this.isByLine && summary ? { summary } : document, () =>
        together(blocks)(screen),
      )
    },
    line: (data: object) => write(`${jsonText(data, 0)}\n`),
    /** What people alone look at, on stderr, with --quiet too. */
    aside: (blocks: readonly Block[]) => {
      if (mode === 'human') tell(together(blocks)(screen))
    },
    text: write,
    note: (text: string) => {
      if (!quiet) tell(notesAreTerminal ? noteText(text, columns) : text)
    },
    remark(text: string) {
      this.note(`note: ${visible(text)}`)
    },
    warn: tell,
    /** What programs must know too: with --json or --ndjson `{"warning":{code,detail}}` on stderr. */
    warning: (code: string, detail: string) => {
      const text = forNotes(`warning: ${detail}`, { notesAreTerminal, columns })
      tell(mode === 'human' ? text : jsonText({ warning: { code, detail } }, 0))
    },
    progress: (first: Shown): ProgressLine => {
      if (quiet || !notesAreTerminal || options.env.TERM === 'dumb') return noLine
      spinning?.stop()
      spinning = spinner(tellAsIs, () => terminalSize(stderr).columns, first)
      return spinning
    },
    mark: (isWell: boolean, text: string, ms: number) => {
      const sign = isWell ? notePaint.green('✔') : notePaint.red('✖')
      const end = fold(`${text} ${durationText(ms / 1_000)}`, columns - 2, '  ')
      if (!quiet && notesAreTerminal) tell(`${sign} ${end}`)
    },
    during<T>(text: string, work: (line: ProgressLine) => Promise<T>) {
      const line = this.progress(text)
      return work(line).finally(() => line.stop())
    },
    /** `what` comes after the wait. Below progress it counts down, else it notes its end. */
    countdown: (what: string, wait: Wait) => {
      if (quiet) return
      if (spinning?.isShown() === true) spinning.countdown(what, wait)
      else tell(waitText(what, wait))
    },
    /** Once stdout has taken all: its first failure, but for a reader who left (EPIPE). */
    written: () => whenWritten(stdout, stdoutGuard),
  }
}

export const forNotes = (
  text: string,
  { notesAreTerminal, columns }: { readonly notesAreTerminal: boolean; readonly columns: number },
) => (notesAreTerminal ? foldAround(text, columns, '  ') : visible(text))

async function whenWritten(sink: TextSink, state: Guard) {
  // A stream tells its failure after the call that failed; a slow reader's rest is in memory.
  while ((sink.writableLength ?? 0) > 0 && !state.closed)
    await new Promise((resolve) => setTimeout(resolve, 5))
  await new Promise((resolve) => setImmediate(resolve))
  return state.failure
}

/** A command that stands alone is pasted; what has lines or colours of its own is laid out. */
const noteText = (text: string, columns: number) =>
  /^(?! |export |next:)\P{Cc}+$/u.test(text) ? foldAround(text, columns, '  ') : text

function fieldText(document: object, path: string, isTerminal: boolean) {
  let value: unknown = document
  let holder = document
  for (const key of path.split('.')) {
    const isThere =
      typeof value === 'object' &&
      value !== null &&
      Object.hasOwn(value, key) &&
      !(Array.isArray(value) && key === 'length')
    const next: unknown = isThere ? Reflect.get(value as object, key) : undefined
    if (next === undefined)
      throw new UsageError(
        'unknown_field',
        `the result has no field "${path}"; the command itself is done`,
        heldText(holder),
      )
    if (typeof next === 'object' && next !== null) holder = next
    value = next
  }
  if (typeof value === 'object' && value !== null) return jsonText(value, 0)
  return isTerminal ? visible(String(value)) : String(value)
}

function heldText(holder: object) {
  const keys = Object.entries(holder).flatMap(([key, value]) => (value === undefined ? [] : [key]))
  return keys.length === 0
    ? 'it has no fields'
    : `it has the fields ${keys.slice(0, 20).join(', ')}`
}

/** The flag decides, then FORCE_COLOR, then NO_COLOR, as Node.js has it; then what the stream is. */
function isColored(isTerminal: boolean, { color = 'auto', env }: OutputOptions) {
  if (color !== 'auto') return color === 'always'
  if ((env.FORCE_COLOR ?? '') !== '') return !/^(0|false)$/.test(env.FORCE_COLOR ?? '')
  return isTerminal && (env.NO_COLOR ?? '') === '' && env.TERM !== 'dumb'
}

export function terminalSize({ columns, rows }: Pick<TextSink, 'columns' | 'rows'>) {
  return { columns: columns || 80, rows: rows || 24 }
}

/** One a stream, however many outputs. EPIPE, and EIO of a terminal: the reader has left. */
const guards = new WeakMap<TextSink, Guard>()
interface Guard {
  closed: boolean
  failure: Error | undefined
}

function guard(sink: TextSink) {
  const known = guards.get(sink)
  if (known) return known
  const state: Guard = { closed: false, failure: undefined }
  guards.set(sink, state)
  sink.on?.('error', (error) => {
    const code = 'code' in error ? error.code : undefined
    const hasLeft = code === 'EPIPE' || (code === 'EIO' && sink.isTTY === true)
    state.closed = true
    if (!hasLeft) state.failure ??= error
  })
  return state
}

export function waitText(what: string, { nowMs, waitMs }: Wait, passedMs = 0) {
  const seconds = Math.max(0, Math.ceil((waitMs - passedMs) / 1_000))
  const left = seconds < 120 ? `${seconds} s` : `${Math.floor(seconds / 60)} min ${seconds % 60} s`
  const end = new Date(nowMs + waitMs).toISOString().slice(11, 19)
  return `${visible(what)} in ${left}, at ${end}Z`
}

function spinner(write: (text: string) => void, columns: () => number, first: Shown) {
  let shown: Ora | undefined
  let isOver = false
  let now = first
  const begunMs = performance.now()
  let below: (() => string) | undefined
  const fitted = (text: string) =>
    fold(text, columns() - 4, '  ')
      .split('\n')
      .map((line) => cut(line, columns() - 4))
      .join('\n')
  const draw = () => {
    if (shown) shown.text = fitted(shownText(now, (performance.now() - begunMs) / 1_000, !below))
  }
  const ticks = setInterval(draw, 1_000).unref()
  const stream = {
    isTTY: true,
    get columns() {
      return columns()
    },
    write,
    cursorTo: () => write('\r'),
    moveCursor: () => write('\u001b[1A'),
    clearLine: () => write('\u001b[K'),
  } as unknown as NodeJS.WritableStream
  const calm = { hideCursor: false, discardStdin: false, color: false } as const
  void import('ora').then(({ default: ora }) => {
    if (isOver) return
    shown = ora({ ...calm, stream, isEnabled: true, suffixText: () => below?.() ?? '' })
    draw()
    shown.start()
  })
  return {
    update(next: Shown) {
      now = next
      below = undefined
      draw()
    },
    isShown: () => !isOver,
    countdown(what: string, wait: Wait) {
      const begunMs = performance.now()
      below = () => `\n  ${fitted(waitText(what, wait, performance.now() - begunMs))}`
    },
    clear: () => shown?.clear(),
    stop() {
      isOver = true
      clearInterval(ticks)
      shown?.stop()
    },
  }
}

/** `sending (1 of 2): 12 of 30 [====------] 40 %, 4 s, about 6 s left`; the last not while it is held up. */
export function shownText(shown: Shown, seconds: number, goesOn = true) {
  const passed = seconds < 1 ? '' : `, ${durationText(seconds)}`
  if (typeof shown === 'string') return `${shown}${passed}`
  const { verb, done, total } = shown
  const share = total === 0 ? 1 : done / total
  const bar = '='.repeat(Math.floor(share * 10)).padEnd(10, '-')
  const left =
    goesOn && share > 0 && share < 1 && durationText(Math.ceil(seconds / share - seconds))
  return `${verb}: ${done} of ${total} [${bar}] ${Math.floor(share * 100)} %${passed}${left ? `, about ${left} left` : ''}`
}

/**
 * Many results. With --ndjson a line each as it settles, the rest last; for people a line each;
 * else one document at the end, which --field finds its value in.
 */
export function newResults(output: Output, kind: string, list: string, head: object = {}) {
  const { isForPeople, isByLine } = output
  const items: object[] = []
  const block = (one: Block) => {
    const text = isForPeople ? together([one])(output) : ''
    if (text !== '') output.text(`${text}\n`)
  }
  return {
    item(data: object, cells?: () => readonly string[]) {
      if (isByLine) output.line(data)
      else if (!isForPeople) items.push(data)
      else if (cells) block(() => rowText(cells(), output.columns))
    },
    block,
    gap() {
      if (isForPeople) output.text('\n')
    },
    end(rest: object, blocks: readonly Block[]) {
      if (isForPeople) block(together(blocks))
      else output.result(kind, { ...head, ...(!isByLine && { [list]: items }), ...rest }, String)
    },
  }
}

/** Cells on as few lines as they fit; an id stays whole, to be copied. */
function rowText(cells: readonly string[], columns: number) {
  const lines: string[] = []
  for (const cell of cells.map(visible)) {
    if (cell === '') continue
    const last = lines.pop()
    if (last === undefined) lines.push(cell)
    else if (last.length + 2 + cell.length <= columns) lines.push(`${last}  ${cell}`)
    else lines.push(last, `  ${cell}`)
  }
  return lines.join('\n')
}

type CsvValue = string | number | boolean | object | null | undefined

export const csvText = (
  names: readonly string[],
  rows: readonly Readonly<Record<string, CsvValue>>[],
) => csvLine(names) + rows.map((row) => csvLine(names.map((name) => row[name]))).join('')

export const csvLine = (values: readonly CsvValue[]) => `${values.map(cell).join(',')}\r\n`

function cell(value: CsvValue) {
  if (value === null || value === undefined) return ''
  const isObject = typeof value === 'object' && !Array.isArray(value)
  const text = visible(
    Array.isArray(value) ? value.join(' ') : isObject ? JSON.stringify(value) : String(value),
  )
  // A spreadsheet would run what begins like a formula (robustness §6, CSV out).
  const isFormula = /^\s*[=+\-@＝＋－＠]/.test(text) && !/^-\d+$/.test(text)
  const guarded = isFormula ? `'${text}` : text
  return /[",;\r\n]/.test(guarded) ? `"${guarded.replaceAll('"', '""')}"` : guarded
}

export type Live = NonNullable<ReturnType<typeof openLive>>

const withoutColour = (text: string) => text.replace(/\u001b\[[0-9;]*m/g, '')

/** Lines drawn over those before; each change is one write: nothing flickers. */
export function drawnOver(write: (text: string) => void, columns: () => number) {
  let shown: readonly string[] = []
  const framed = (lines: readonly string[]) => lines.map((line) => `${line}\u001b[K\n`).join('')
  /** To the first of them. A terminal that became narrower has folded them. */
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
    leave() {
      shown = []
    },
    shown: () => shown,
  }
}

export function openLive({
  output,
  streams: { stdout },
  env,
}: {
  readonly output: Output
  readonly streams: { readonly stdout: TextSink }
  readonly env: OutputOptions['env']
}) {
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
  // A spinner would fight with the lines for the cursor.
  const calm: Output = {
    ...output,
    note: above(output.note),
    warn: above(output.warn),
    // Whoever draws the lines counts down in them.
    countdown: (what, wait) => {
      if (!output.notesAreTerminal) output.countdown(what, wait)
    },
    progress: () => noLine,
  }
  return { output: calm, size, draw, clear }
}
