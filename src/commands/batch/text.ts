/**
 * What the verbs of `batch` print: many results, one at a time, so that none has to be held (R17).
 */
import { gravity } from '../../core/client/gateway/answer.js'
import { type ExitCode, exit, InterruptedError, ProposerError } from '../../core/protocol/errors.js'
import type { Output } from '../terminal/output.js'
import { counted, fold, foldAround, jsonText, visible } from '../terminal/render.js'

export interface ResultStream {
  item(data: object, cells: () => readonly string[]): void
  end(rest: object, human: () => string): void
}

/**
 * With --json written piece by piece; with --ndjson a line an item and the rest last; for people
 * a line an item.
 */
export function newResultStream(
  output: Output,
  kind: string,
  list: string,
  head: object = {},
): ResultStream {
  const schema = `proposer.${kind}/1`
  let begun = false
  const open = () => {
    const before = membersOf(head).map((member) => `  ${member},\n`)
    if (!begun) output.text(`{\n  "schema": "${schema}",\n${before.join('')}  "${list}": [`)
    begun = true
  }
  let items = 0
  return {
    item(data, cells) {
      items++
      if (output.mode === 'ndjson') return output.line(data)
      if (output.mode === 'human') return output.text(`${rowText(cells(), output.columns)}\n`)
      open()
      output.text(`${items === 1 ? '' : ','}\n    ${jsonText(data, 0)}`)
    },
    end(rest, human) {
      if (output.mode === 'ndjson') return output.line({ schema, ...head, ...rest })
      if (output.mode === 'human') return output.text(`${human()}\n`)
      open()
      const members = membersOf(rest).map((member) => `,\n  ${member}`)
      output.text(`${items === 0 ? ']' : '\n  ]'}${members.join('')}\n}\n`)
    },
  }
}

const membersOf = (data: object): readonly string[] =>
  Object.entries(data).map(
    ([name, value]) =>
      `${JSON.stringify(name)}: ${jsonText({ value }, 0).slice('{"value":'.length, -1)}`,
  )

/** Cells on as few lines as they fit; an id is never broken, so that it can be copied. */
function rowText(cells: readonly string[], columns: number): string {
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

/** Counts what went wrong and keeps the first of each kind, whatever the number of rows. */
export interface Tally {
  add(where: string, error: ProposerError): void
  error(of: {
    readonly total: number
    readonly goOn: string
    readonly stopped?: unknown
    /** The causes stand on the screen already: they are not told again. */
    readonly isShown?: boolean
  }): ProposerError | undefined
}

/** A row that is held back here (exit 2) is less than any that has gone out and went wrong. */
const rowGravity: readonly ExitCode[] = [
  ...gravity.filter((code) => code !== exit.usage && code !== exit.refused),
  exit.usage,
  exit.refused,
]

export function newTally(): Tally {
  const kinds = new Map<
    ExitCode,
    {
      count: number
      readonly where: string
      readonly error: ProposerError
      readonly ways: Map<string, OwnWay>
    }
  >()
  let all = 0
  return {
    add(where, error) {
      all++
      const known = kinds.get(error.meta.exitCode)
      const kind = known ?? { count: 0, where, error, ways: new Map<string, OwnWay>() }
      kind.count++
      const { hint } = error.meta
      if (ownWays.has(error.code) && hint !== undefined) {
        const way = kind.ways.get(error.code) ?? { count: 0, hint }
        way.count++
        kind.ways.set(error.code, way)
      }
      if (known === undefined) kinds.set(error.meta.exitCode, kind)
    },
    error({ total, goOn, stopped, isShown = false }) {
      const unknown = kinds.has(exit.unknown)
      // Contract §6: 130 where nothing is unknown, else 6.
      if (stopped instanceof ProposerError && !unknown) {
        return new InterruptedError(
          stopped.code,
          `${stopped.detail}; ${all} of ${total} rows are left`,
          { retryable: true, hint: goOn },
        )
      }
      const worst = rowGravity.flatMap((code) => kinds.get(code) ?? [])[0]
      if (worst === undefined) return undefined
      const { error, where, count, ways } = worst
      const { exitCode, hint, retryable } = error.meta
      const others = all > count ? `, ${all - count} more with other faults` : ''
      const detail = isShown
        ? `${all} of ${total} rows did not succeed; see the causes above`
        : all === 1
          ? `${where}: ${error.detail}`
          : `${count} of ${total} rows${others}; the first, ${where}: ${error.detail}`
      const isLater = exitCode === exit.unknown || exitCode === exit.deferred
      const ownHint = isShown ? 'follow the hints above' : hint
      const then = isLater ? laterHint(goOn, count, ways) : ownHint
      return new ProposerError(error.code, detail, {
        exitCode,
        ...(then === undefined ? {} : { hint: then }),
        ...(retryable === undefined ? {} : { retryable }),
      })
    },
  }
}

/**
 * Faults that the same input again does nothing about: what another gateway has is sent there, and
 * a round that is over stays so.
 */
const ownWays: ReadonlySet<string> = new Set(['other_origin', 'round_over'])

interface OwnWay {
  count: number
  readonly hint: string
}

function laterHint(goOn: string, count: number, ways: ReadonlyMap<string, OwnWay>): string {
  const hints = [...ways].map(([code, way]) =>
    code === 'other_origin' && way.count > 1
      ? way.hint.replace(/(proposer replay) \S+/, '$1 --all')
      : way.hint,
  )
  const own = [...ways.values()].reduce((sum, way) => sum + way.count, 0)
  if (own < count) return [goOn, ...hints].join('; if that does not settle it: ')
  return hints.join('; ')
}

export function progressText(
  done: number,
  total: number,
  counts: readonly (readonly [string, number])[],
): string {
  const width = 20
  const full = total === 0 ? width : Math.floor((done * width) / total)
  const parts = counts.filter(([, count]) => count > 0).map(([name, count]) => `${count} ${name}`)
  return `[${'='.repeat(full)}${' '.repeat(width - full)}] ${done} of ${total}${parts.length === 0 ? '' : `: ${parts.join(', ')}`}`
}

/** Rows that a cause names, and causes that are told apart: a gateway's codes have no end (R17). */
const [namedRows, tellableCauses] = [5, 20]

interface Cause {
  readonly word: string
  readonly error: ProposerError
  readonly names: string[]
  count: number
}

interface Causes {
  add(word: string, name: string, error: ProposerError): void
  text(columns: number): string
}

export function newCauses(): Causes {
  const causes = new Map<string, Cause>()
  return {
    add(word, name, error) {
      const own = `${word} ${error.code}`
      const key = causes.has(own) || causes.size < tellableCauses ? own : 'more'
      const cause = causes.get(key) ?? { word, error, names: [], count: 0 }
      cause.count++
      if (cause.names.length < namedRows) cause.names.push(name)
      causes.set(key, cause)
    },
    text: (columns) =>
      [...causes]
        .sort(([, one], [, other]) => other.count - one.count)
        .map(([key, cause]) => causeText(key === 'more' ? 'other causes' : '', cause, columns))
        .join('\n'),
  }
}

function causeText(other: string, { word, error, names, count }: Cause, columns: number): string {
  const more = count > names.length ? ` and ${count - names.length} more` : ''
  const { hint } = error.meta
  return [
    fold(
      `${counted(count, 'row')} ${word} (${other || error.code}): ${names.join(', ')}${more}`,
      columns,
      '  ',
    ),
    ...(other === '' ? [`  ${fold(error.detail, columns - 2, '  ')}`] : []),
    ...(other === '' && hint !== undefined
      ? [`  ${foldAround(`hint: ${hint}`, columns - 2, '  ')}`]
      : []),
  ].join('\n')
}
