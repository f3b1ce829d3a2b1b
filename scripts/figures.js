// Counts how large and how plain the sources are: by room, then each figure beside its bound.
// `--list` names what is counted.
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { parseSync, Visitor } from 'oxc-parser'

process.chdir(join(import.meta.dirname, '..'))
const under = (folder, ending) =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && ending.test(entry.name))
    .map(({ parentPath, name }) => join(parentPath, name))
    .filter((path) => !path.includes('node_modules'))
    .map((path) => ({ path, text: readFileSync(path, 'utf8') }))
const print = (line) => process.stdout.write(`${line}\n`)
const bytesOf = (files) => files.reduce((all, { text }) => all + Buffer.byteLength(text), 0)
const linesOf = (text) => text.split('\n').length - 1
const listed = (map, key) => map.get(key) ?? map.set(key, new Set()).get(key)
/** The file that `path` imports as `from`, where it is one of ours (`imports` of package.json). */
const sourceOf = (path, from) =>
  from.startsWith('.')
    ? join(dirname(path), from).replace(/\.js$/, '.ts')
    : from.startsWith('#')
      ? `src/${from.replace('#', from.startsWith('#commands/') ? '' : 'core/')}.ts`
      : undefined
/** The folder below `src` or `src/core` that a file belongs to. */
const roomOf = (path) => path.split('/')[path.startsWith('src/core/') ? 2 : 1]

const [rooms, longFunctions, comments] = [new Map(), [], []]
/** Files with those that each imports, types too; exported names with the files that declare them. */
const [imports, declared] = [new Map(), new Map()]
const all = under('src', /./)
for (const { path, text } of all) {
  const room = rooms.get(roomOf(path)) ?? { files: 0, bytes: 0, comments: 0 }
  rooms.set(roomOf(path), room)
  room.files += 1
  room.bytes += Buffer.byteLength(text)
  if (!path.endsWith('.ts')) continue
  const parsed = parseSync(path, text)
  for (const { start, end } of parsed.comments) {
    comments.push({ text: text.slice(start, end) })
    room.comments += Buffer.byteLength(text.slice(start, end))
  }
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
    const file = sourceOf(path, from)
    if (file) listed(imports, path).add(file)
  }
  for (const { moduleRequest, exportName } of exported)
    if (!moduleRequest && exportName.name) listed(declared, exportName.name).add(path)
}

/** What each meets on a way back to itself, once for each circle. */
function circlesIn(edges) {
  const reachedFrom = (one, seen = new Set()) => {
    for (const next of edges.get(one) ?? []) if (!seen.has(next)) reachedFrom(next, seen.add(next))
    return seen
  }
  const reach = new Map([...edges.keys()].map((one) => [one, reachedFrom(one)]))
  const meets = ([one, reached]) => [...reached].filter((to) => reach.get(to)?.has(one)).sort()
  return [...new Set([...reach].map((each) => meets(each).join(' ')))].filter((c) =>
    c.includes(' '),
  )
}
const folders = new Map()
for (const [path, to] of imports)
  for (const other of to) listed(folders, dirname(path)).add(dirname(other))

for (const [room, { files, bytes, comments }] of [...rooms].sort(
  (a, b) => b[1].bytes - a[1].bytes,
)) {
  const [kB, commented] = [bytes, comments].map((count) => (count / 1000).toFixed(0).padStart(5))
  print(`${room.padEnd(14)}${kB} kB  comments ${commented} kB  files ${String(files).padStart(4)}`)
}
const doubled = [...declared].filter(([, paths]) => paths.size > 1)
const tools = [...under('bin', /\.js$/), ...under('scripts', /\.js$/)]
const figures = [
  ['bytes of src', bytesOf(all), 2_355_000],
  ['files of src', all.length, 285],
  ['bytes of comments in src', bytesOf(comments), 159_000],
  ['bytes of test (.ts, .js)', bytesOf(under('test', /\.[tj]s$/)), 3_600_000],
  ['circles of files in src', circlesIn(imports), 0],
  ['circles between folders of src', circlesIn(folders), 0],
  ['functions over 100 lines', longFunctions, 0],
  ['names with two meanings', doubled.map(([name, paths]) => [name, ...paths].join(' ')), 0],
  ['lines of bin and scripts', linesOf(tools.map(({ text }) => text).join('')), 180],
  ['bytes of README', bytesOf([{ text: readFileSync('README.md', 'utf8') }]), 8_192],
]
print('')
for (const [name, counted, most] of figures) {
  const value = counted.length ?? counted
  const over = value > most ? '   over' : ''
  print(`${name.padEnd(32)}${String(value).padStart(10)}   at most ${most}${over}`)
  if (process.argv.includes('--list') && value > 0 && value === counted.length)
    print(`  ${counted.join('\n  ')}`)
}
