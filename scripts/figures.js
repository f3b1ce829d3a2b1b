// Counts how large and how plain the sources are, beside the bound of each figure. `--list` names
// what is counted.
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { parseSync, Visitor } from 'oxc-parser'

process.chdir(join(import.meta.dirname, '..'))
const under = (folder, ending) =>
  readdirSync(folder, { recursive: true })
    .filter((name) => name.endsWith(ending))
    .map((name) => ({ path: join(folder, name), text: readFileSync(join(folder, name), 'utf8') }))
const linesOf = (text) => text.split('\n').length - 1
const bytesOf = (texts) => texts.reduce((all, text) => all + Buffer.byteLength(text), 0)
const listed = (map, key) => map.get(key) ?? map.set(key, new Set()).get(key)

const [comments, longFunctions] = [[], []]
/** Folders with those that each imports from; exported names with the files that declare them. */
const [imports, declared] = [new Map(), new Map()]
const sources = under('src', '.ts')
for (const { path, text } of sources) {
  const parsed = parseSync(path, text)
  for (const { start, end } of parsed.comments) comments.push(text.slice(start, end))
  const measure = ({ start, end }) => {
    const lines = linesOf(text.slice(start, end)) + 1
    if (lines > 100)
      longFunctions.push(`${path}:${linesOf(text.slice(0, start)) + 1} ${lines} lines`)
  }
  const forms = { FunctionDeclaration: measure, FunctionExpression: measure }
  new Visitor({ ...forms, ArrowFunctionExpression: measure }).visit(parsed.program)
  const { staticImports, dynamicImports, staticExports } = parsed.module
  const exported = staticExports.flatMap(({ entries }) => entries)
  for (const { moduleRequest: at } of [...staticImports, ...dynamicImports, ...exported]) {
    const from = at ? text.slice(at.start + 1, at.end - 1) : ''
    if (from.startsWith('.')) listed(imports, dirname(path)).add(dirname(join(dirname(path), from)))
  }
  for (const { moduleRequest, exportName } of exported)
    if (!moduleRequest && exportName.name) listed(declared, exportName.name).add(path)
}

function reachedFrom(folder, seen = new Set()) {
  for (const next of listed(imports, folder)) if (!seen.has(next)) reachedFrom(next, seen.add(next))
  return seen
}
const reach = new Map([...imports.keys()].map((folder) => [folder, reachedFrom(folder)]))
const meets = ([folder, reached]) => [...reached].filter((to) => reach.get(to)?.has(folder)).sort()
const circles = new Set([...reach].map((each) => meets(each).join(' ')))
const doubled = [...declared].filter(([, paths]) => paths.size > 1)

const bytes = bytesOf(sources.map(({ text }) => text))
const tools = [...under('bin', '.js'), ...under('scripts', '.js')].map(({ text }) => text).join('')
const figures = [
  ['bytes of src', bytes, 1_700_000],
  ['functions over 100 lines', longFunctions, 0],
  ['circles between folders of src', [...circles].filter((circle) => circle.includes(' ')), 0],
  ['names with two meanings', doubled.map(([name, paths]) => [name, ...paths].join(' ')), 0],
  ['lines of bin and scripts', linesOf(tools), 180],
  ['bytes of README', bytesOf([readFileSync('README.md', 'utf8')]), 8_192],
]
for (const [name, counted, most] of figures) {
  const value = counted.length ?? counted
  const over = value > most ? '   over' : ''
  process.stdout.write(`${name.padEnd(32)}${String(value).padStart(10)}   at most ${most}${over}\n`)
  if (process.argv.includes('--list') && value > 0 && value === counted.length)
    process.stdout.write(`  ${counted.join('\n  ')}\n`)
}
process.stdout.write(`comments are ${((100 * bytesOf(comments)) / bytes).toFixed(1)} % of src\n`)
