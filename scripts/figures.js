// Counts how large and how plain the sources are, beside the bound of each figure. `--list` names
// what is counted.
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseSync, Visitor } from 'oxc-parser'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const read = (path) => readFileSync(join(root, path), 'utf8')
const under = (folder, ending) =>
  readdirSync(join(root, folder), { recursive: true })
    .filter((name) => name.endsWith(ending))
    .map((name) => join(folder, name))
const linesOf = (text) => text.split('\n').length - 1

const sources = under('src', '.ts').map((path) => ({
  path,
  text: read(path),
  ...parseSync(path, read(path)),
}))

/** Functions longer than 100 lines, with their place. */
const longFunctions = sources.flatMap(({ path, text, program }) => {
  const long = []
  const measure = ({ start, end }) => {
    const lines = linesOf(text.slice(start, end)) + 1
    if (lines > 100) long.push(`${path}:${linesOf(text.slice(0, start)) + 1} ${lines} lines`)
  }
  new Visitor({
    FunctionDeclaration: measure,
    FunctionExpression: measure,
    ArrowFunctionExpression: measure,
  }).visit(program)
  return long
})

/** Folders, and those that each imports from. */
const imports = new Map()
for (const { path, text, module } of sources) {
  const folder = dirname(path)
  const from = imports.get(folder) ?? imports.set(folder, new Set()).get(folder)
  const named = [
    ...module.staticImports,
    ...module.staticExports.flatMap(({ entries }) => entries),
    ...module.dynamicImports,
  ]
  for (const { moduleRequest } of named) {
    const specifier = moduleRequest && text.slice(moduleRequest.start + 1, moduleRequest.end - 1)
    if (specifier?.startsWith('.')) from.add(dirname(join(folder, specifier)))
  }
}

/** All folders that can be reached from one. */
function reachedFrom(folder, seen = new Set()) {
  for (const next of imports.get(folder) ?? [])
    if (!seen.has(next)) reachedFrom(next, seen.add(next))
  return seen
}
const reach = new Map([...imports.keys()].map((folder) => [folder, reachedFrom(folder)]))
const circleOf = (folder) =>
  [...reach.keys()]
    .filter((other) => reach.get(folder).has(other) && reach.get(other)?.has(folder))
    .sort()
const circles = [...new Set([...reach.keys()].map((folder) => circleOf(folder).join(' ')))].filter(
  (circle) => circle.includes(' '),
)

/** Names that two files or more declare and export. */
const declared = new Map()
for (const { path, module } of sources) {
  const own = module.staticExports.flatMap(({ entries }) =>
    entries.filter(({ moduleRequest }) => !moduleRequest),
  )
  for (const name of new Set(own.map(({ exportName }) => exportName.name)))
    declared.set(name, [...(declared.get(name) ?? []), path])
}
const shared = [...declared]
  .filter(([name, paths]) => name && paths.length > 1)
  .map(([name, paths]) => `${name}: ${paths.join(' ')}`)

const bytes = sources.reduce((sum, { text }) => sum + Buffer.byteLength(text), 0)
const commentBytes = sources.reduce((sum, { text, comments }) => {
  return (
    sum +
    comments.reduce((all, { start, end }) => all + Buffer.byteLength(text.slice(start, end)), 0)
  )
}, 0)
const tools = [...under('bin', '.js'), ...under('scripts', '.js')].reduce(
  (sum, path) => sum + linesOf(read(path)),
  0,
)

const figures = [
  ['bytes of src', bytes, 1_700_000],
  ['functions over 100 lines', longFunctions.length, 3, longFunctions],
  ['circles between folders of src', circles.length, 0, circles],
  ['exported names with two meanings', shared.length, 0, shared],
  ['lines of bin and scripts', tools, 180],
  ['bytes of README', Buffer.byteLength(read('README.md')), 8_192],
]
for (const [name, value, most, list = []] of figures) {
  process.stdout.write(
    `${name.padEnd(34)} ${String(value).padStart(9)}   at most ${String(most).padStart(9)}${value > most ? '   over' : ''}\n`,
  )
  if (process.argv.includes('--list')) for (const each of list) process.stdout.write(`  ${each}\n`)
}
process.stdout.write(`comments are ${((100 * commentBytes) / bytes).toFixed(1)} % of src\n`)
