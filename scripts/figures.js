// Counts how large and how plain the sources are, beside the bound of each figure. `--list` names
// what is counted. Exits 1 where a figure is over its bound.
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { parseSync, Visitor } from 'oxc-parser'

process.chdir(join(import.meta.dirname, '..'))
const under = (folder, ending) =>
  readdirSync(folder, { recursive: true })
    .filter((name) => name.endsWith(ending))
    .map((name) => ({ path: join(folder, name), text: readFileSync(join(folder, name), 'utf8') }))
const linesOf = (text) => text.split('\n').length - 1
const sum = (list, size) => list.reduce((all, each) => all + size(each), 0)
const sources = under('src', '.ts').map((file) => ({ ...file, ...parseSync(file.path, file.text) }))

const longFunctions = sources.flatMap(({ path, text, program }) => {
  const found = []
  const measure = ({ start, end }) => {
    const lines = linesOf(text.slice(start, end)) + 1
    if (lines > 100) found.push(`${path}:${linesOf(text.slice(0, start)) + 1} ${lines} lines`)
  }
  const visited = ['FunctionDeclaration', 'FunctionExpression', 'ArrowFunctionExpression']
  new Visitor(Object.fromEntries(visited.map((type) => [type, measure]))).visit(program)
  return found
})

/** Folders, and those that each imports from. */
const imports = new Map()
/** Exported names, and the files that declare them. */
const declared = new Map()
const listed = (map, key) => map.get(key) ?? map.set(key, new Set()).get(key)
for (const { path, text, module } of sources) {
  const exported = module.staticExports.flatMap(({ entries }) => entries)
  for (const { moduleRequest: at } of [
    ...module.staticImports,
    ...module.dynamicImports,
    ...exported,
  ]) {
    const from = at && text.slice(at.start + 1, at.end - 1)
    if (from?.startsWith('.'))
      listed(imports, dirname(path)).add(dirname(join(dirname(path), from)))
  }
  for (const { moduleRequest, exportName } of exported)
    if (!moduleRequest && exportName.name) listed(declared, exportName.name).add(path)
}
const reachedFrom = (folder, seen = new Set()) => {
  for (const next of imports.get(folder) ?? [])
    if (!seen.has(next)) reachedFrom(next, seen.add(next))
  return seen
}
const reach = new Map([...imports.keys()].map((folder) => [folder, reachedFrom(folder)]))
const circleOf = (folder) =>
  [...reach.keys()].filter((to) => reach.get(folder).has(to) && reach.get(to).has(folder)).sort()
const circles = new Set([...reach.keys()].map((folder) => circleOf(folder).join(' ')))
const doubled = [...declared].filter(([, paths]) => paths.size > 1)

const bytes = sum(sources, ({ text }) => Buffer.byteLength(text))
const comments = sum(sources, ({ text, comments: list }) =>
  sum(list, ({ start, end }) => Buffer.byteLength(text.slice(start, end))),
)
const tools = [...under('bin', '.js'), ...under('scripts', '.js')]
const figures = [
  ['bytes of src', bytes, 1_700_000],
  ['functions over 100 lines', longFunctions, 3],
  ['circles between folders of src', [...circles].filter((circle) => circle.includes(' ')), 0],
  ['names with two meanings', doubled.map(([name, paths]) => [name, ...paths].join(' ')), 0],
  ['lines of bin and scripts', sum(tools, ({ text }) => linesOf(text)), 180],
  ['bytes of README', Buffer.byteLength(readFileSync('README.md', 'utf8')), 8_192],
]
const report = figures.flatMap(([name, counted, most]) => {
  const value = counted.length ?? counted
  const line = `${name.padEnd(32)}${String(value).padStart(10)}   at most ${most}`
  const list = process.argv.includes('--list') ? counted : []
  return [value > most ? `${line}   over` : line, ...(list.length ? list : [])]
})
report.push(`comments are ${((100 * comments) / bytes).toFixed(1)} % of src`)
process.stdout.write(`${report.join('\n')}\n`)
