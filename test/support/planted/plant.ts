/**
 * Plants a bug by the shape of the code: a pattern is compared with the syntax tree, so that it
 * survives formatting, moved files and renamed locals.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { parseSync } from 'oxc-parser'

export interface PlantedBug {
  readonly name: string
  readonly room: string
  readonly edits: Readonly<Record<string, string>>
  readonly caughtBy: { readonly file: string; readonly title: string }
}

/**
 * Each by its name: the folder it is in, the test that has to fail for it, and what is edited. What
 * is replaced is one expression, or statements that follow each other. `$name` stands for any
 * expression, the same one wherever the name comes again; `$$name` for any run of statements,
 * arguments or properties. What comes instead may use them too.
 */
export const bugsOf = (
  rows: Readonly<
    Record<string, readonly [room: string, test: string, title: string, edits: PlantedBug['edits']]>
  >,
): readonly PlantedBug[] =>
  Object.entries(rows).map(([name, [room, test, title, edits]]) => ({
    ...{ name, room, edits },
    caughtBy: { file: `test/${test}.test.ts`, title },
  }))

interface Node {
  readonly type: string
  readonly start: number
  readonly end: number
  readonly [key: string]: unknown
}
interface Place {
  readonly start: number
  readonly end: number
  readonly bound: ReadonlyMap<string, string>
}

const isNode = (value: unknown): value is Node =>
  typeof value === 'object' && value !== null && 'type' in value && 'start' in value

/** What is about types or about places is not compared: a run strips the one and moves the other. */
const notCompared = new Set(
  'start end range loc parent typeAnnotation typeArguments returnType raw optional'.split(' '),
)
const childrenOf = (node: Node) =>
  Object.entries(node).filter(([key]) => key !== 'parent' && !notCompared.has(key))

const plain = (node: Node): Node =>
  (node.type === 'TSAsExpression' || node.type === 'TSNonNullExpression') && isNode(node.expression)
    ? plain(node.expression)
    : node

function wildcardOf(node: unknown): string | undefined {
  if (!isNode(node)) return undefined
  if (node.type === 'Identifier')
    return /^\$/.test(String(node.name)) ? String(node.name) : undefined
  if (node.type === 'ExpressionStatement') return wildcardOf(node.expression)
  return node.type === 'Property' && node.shorthand === true ? wildcardOf(node.key) : undefined
}

function statementsOf(pattern: string): readonly Node[] {
  const { program, errors } = parseSync('find.ts', `async function* find() {${pattern}\n}`)
  const [error] = errors
  if (error !== undefined) throw new SyntaxError(`${error.message} in ${pattern}`)
  const [declared] = program.body
  if (declared?.type !== 'FunctionDeclaration') throw new SyntaxError(`not code: ${pattern}`)
  return (declared.body?.body ?? []) as unknown as readonly Node[]
}

type Bound = Map<string, string>

function fits(pattern: unknown, value: unknown, source: string, bound: Bound): boolean {
  const wildcard = wildcardOf(pattern)
  if (wildcard !== undefined && isNode(value)) {
    const text = source.slice(value.start, value.end)
    const before = bound.get(wildcard)
    if (before !== undefined) return before === text
    bound.set(wildcard, text)
    return true
  }
  if (Array.isArray(pattern))
    return Array.isArray(value) && fitsAll(pattern, value, source, bound) === value.length
  if (!isNode(pattern)) return isDeepStrictEqual(pattern ?? null, value ?? null)
  if (!isNode(value)) return false
  const [wanted, found] = [plain(pattern), plain(value)]
  return (
    wanted.type === found.type &&
    childrenOf(wanted).every(([key, part]) => fits(part, found[key], source, bound))
  )
}

function fitsAll(
  patterns: readonly unknown[],
  values: readonly unknown[],
  source: string,
  bound: Bound,
  from = 0,
): number {
  const [pattern, ...rest] = patterns
  if (pattern === undefined) return from
  const wildcard = wildcardOf(pattern)
  if (wildcard?.startsWith('$$')) {
    for (let to = rest.length === 0 ? values.length : from; to <= values.length; to += 1) {
      const tried = new Map(bound)
      const [first, last] = [values[from], values[to - 1]]
      const text =
        to > from && isNode(first) && isNode(last) ? source.slice(first.start, last.end) : ''
      tried.set(wildcard, text)
      const end = fitsAll(rest, values, source, tried, to)
      if (end < 0) continue
      for (const [name, found] of tried) bound.set(name, found)
      return end
    }
    return -1
  }
  if (from >= values.length || !fits(pattern, values[from], source, bound)) return -1
  return fitsAll(rest, values, source, bound, from + 1)
}

function* nodesOf(value: unknown): Generator<Node | readonly unknown[]> {
  if (Array.isArray(value)) {
    yield value
    for (const each of value) yield* nodesOf(each)
  } else if (isNode(value)) {
    yield value
    for (const [, child] of childrenOf(value)) yield* nodesOf(child)
  }
}

function placesOf(find: string, source: string): readonly Place[] {
  const patterns = statementsOf(find)
  const [only] = patterns
  const expression =
    patterns.length === 1 && only?.type === 'ExpressionStatement' ? only.expression : undefined
  const places: Place[] = []
  for (const node of nodesOf(parseSync('source.ts', source).program as unknown)) {
    const bound: Bound = new Map()
    if (isNode(node)) {
      if (expression !== undefined && fits(expression, node, source, bound))
        places.push({ start: node.start, end: node.end, bound })
      continue
    }
    if (expression !== undefined) continue
    const list = node as readonly unknown[]
    for (const [index, first] of list.entries()) {
      const found: Bound = new Map()
      const end = fitsAll(patterns, list, source, found, index)
      const last = list[end - 1]
      if (end > index && isNode(first) && isNode(last))
        places.push({ start: first.start, end: last.end, bound: found })
    }
  }
  return places.filter(
    ({ start }, index) => places.findIndex((other) => other.start === start) === index,
  )
}

const root = join(import.meta.dirname, '../../..')

export function planted(
  { name, room, edits }: PlantedBug,
  sources: ReadonlyMap<string, string> = sourcesUnder(room),
): { readonly file: string; readonly text: string } {
  let chosen: { file: string; text: string } | undefined
  for (const [find, replace] of Object.entries(edits)) {
    const among: ReadonlyMap<string, string> =
      chosen === undefined ? sources : new Map([[chosen.file, chosen.text]])
    const found = [...among].flatMap(([file, text]) =>
      placesOf(find, text).map((place) => ({ file, text, ...place })),
    )
    const [place] = found
    if (place === undefined || found.length > 1)
      throw new RangeError(
        `the planted bug "${name}" no longer fits ${room}: ${find} is there ${found.length} times`,
      )
    const { file, text, start, end, bound } = place
    const written = replace.replace(/\$\$?\w+/g, (wildcard) => bound.get(wildcard) ?? wildcard)
    chosen = { file, text: text.slice(0, start) + written + text.slice(end) }
  }
  if (chosen === undefined) throw new RangeError(`the planted bug "${name}" has no edit`)
  return chosen
}

function sourcesUnder(folder: string): ReadonlyMap<string, string> {
  const names = readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
  const files = names.filter((file) => file.endsWith('.ts')).map((file) => join(folder, file))
  return new Map(files.map((file) => [file, readFileSync(join(root, file), 'utf8')]))
}
