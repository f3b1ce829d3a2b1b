// Builds dist/: the command line as parts that bin/load.js loads, the library as a split ESM bundle, and declaration files for it.
//
// Some parts per verb instead of some hundred files per package, without node's loader of ESM, and V8's code cache beside them are what
// makes the command start quickly: `npm run bench -- --rows 6,7`. So the command line brings all it needs but what is optional; the
// library imports its dependencies, because its schemas are to be composed with the caller's own.
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { basename, dirname, join, relative } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { slimBinding, slimPackages } from './slim.js'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const dist = join(root, 'dist')

/** Bundled CommonJS packages call require for node's own modules, and ESM has none. */
const requireShim = "import { createRequire as makeRequire } from 'node:module';const require = makeRequire(import.meta.url);"

function readPackage() {
  return JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
}

const target = 'node20.18'

const isMissing = (error) => error instanceof Error && 'code' in error && error.code === 'ENOENT'

/** Writes only what changed, each file by rename: processes that run from dist/ meanwhile never read half a file. */
function writeChanged(path, contents) {
  try {
    if (readFileSync(path).equals(contents)) return
  } catch (error) {
    if (!isMissing(error)) throw error
  }
  // V8 tells the code of a cache by its length alone.
  rmSync(`${path}.cache`, { force: true })
  mkdirSync(dirname(path), { recursive: true })
  const temporary = `${path}.${process.pid}.tmp`
  writeFileSync(temporary, contents)
  renameSync(temporary, path)
}

/**
 * Parts that one command needs together, by the modules it begins with, lie in one file with one code cache: to find, read and compile a file
 * takes longer than to run most of them. Each pack holds what those before it do not.
 */
const packs = [
  ['src/commands/main.ts'],
  ['src/commands/context.ts', 'src/commands/front.ts', 'src/commands/program.ts'],
  ['src/commands/sign.ts', 'src/core/io/key-files.ts', 'src/core/io/native-curve.ts'],
]

/** An ESM part as a function for bin/load.js. Names stay, for what a stack trace tells; ASCII where it can be is read the quickest. */
async function partOf({ path, contents }) {
  const { transform } = await import('esbuild')
  const { code } = await transform(new TextDecoder().decode(contents), {
    format: 'cjs',
    platform: 'node',
    target,
    charset: 'ascii',
    minifySyntax: true,
    minifyWhitespace: true,
    supported: { 'dynamic-import': false },
    define: { 'import.meta': 'importMeta' },
    banner: '(function (require, module, importMeta) { "use strict"; let { exports } = module;',
    footer: '})',
    logLevel: 'warning',
  })
  return [basename(path), code.trim().replace(/;$/, '')]
}

/** The files of the command line: packs, single parts, and main.js, which names the pack of each part and has a name of its own. */
async function programFiles({ outputFiles, metafile: { outputs } }) {
  const path = (name) => join(dist, 'program', name)
  const texts = new Map(await Promise.all(outputFiles.filter((file) => file.path.endsWith('.js')).map(partOf)))
  const imports = new Map(
    Object.entries(outputs).map(([output, { imports }]) => [
      basename(output),
      imports.filter(({ kind, external }) => kind === 'import-statement' && external !== true).map((one) => basename(one.path)),
    ]),
  )
  const partOfModule = new Map(Object.entries(outputs).map(([output, { entryPoint }]) => [entryPoint, basename(output)]))
  const packed = new Set()
  const closure = (name) => {
    if (packed.has(name)) return []
    packed.add(name)
    return [...imports.get(name).flatMap(closure), name]
  }
  const text = (names, more = '') => `({parts:{${names.map((name) => `${JSON.stringify(name)}:${texts.get(name)}`).join(',\n')}}${more}})`
  const [first, ...others] = packs.map((modules) => modules.map((module) => partOfModule.get(module)).flatMap(closure))
  const files = others.map((names) => {
    const contents = text(names)
    return { name: `pack-${createHash('sha256').update(contents).digest('hex').slice(0, 8).toUpperCase()}.js`, names, contents }
  })
  const packOf = Object.fromEntries(files.flatMap(({ name, names }) => names.map((part) => [part, name])))
  const single = [...texts.keys()].filter((name) => !packed.has(name)).map((name) => ({ name, contents: text([name]) }))
  return [
    ...[{ name: 'main.js', contents: text(first, `,packOf:${JSON.stringify(packOf)}`) }, ...files, ...single].map(({ name, contents }) => ({
      path: path(name),
      contents: Buffer.from(contents),
    })),
    ...outputFiles.filter((file) => !file.path.endsWith('.js')),
  ]
}

/** The command line for programs that import it, as tests do. */
const importable = `import { createRequire } from 'node:module'
export const { main, start } = createRequire(import.meta.url)('../bin/load.js').load('main.js')
`

/** The pages of `--help` by width, printed by what has just been built. */
function helpPages() {
  const { status, stdout } = spawnSync(process.execPath, [join(root, 'scripts', 'help-pages.js')], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: ownEnvironment(),
  })
  if (status !== 0) throw new Error('the program that was built prints no help')
  return Object.entries(JSON.parse(stdout)).map(([width, page]) => [width, Buffer.from(page)])
}

/** The builder's own gateway, node or account have no part in the build. */
const ownEnvironment = () => Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('PROPOSER_')))

/**
 * Bundles into dist/. `clean` removes what earlier builds left; tests leave it off, so that a process still running from an older
 * build finds its parts. Returns the paths written, relative to dist/.
 */
export async function bundle({ clean = false } = {}) {
  const { build } = await import('esbuild')
  const { version, dependencies = {}, optionalDependencies = {} } = readPackage()
  const common = {
    absWorkingDir: root,
    outdir: 'dist',
    write: false,
    bundle: true,
    splitting: true,
    format: 'esm',
    platform: 'node',
    target,
    charset: 'utf8',
    legalComments: 'linked',
    minifySyntax: true,
    define: { PROPOSER_VERSION: JSON.stringify(version) },
    // Its ESM build sheds the hashes that are not used.
    alias: { 'hash-wasm': 'hash-wasm/dist/index.esm.js' },
    plugins: slimPackages,
    logLevel: 'warning',
  }
  const everyPath = (packages) => Object.keys(packages).flatMap((name) => [name, `${name}/*`])
  const [parts, library] = await Promise.all([
    build({
      ...common,
      entryPoints: { 'program/main': 'src/commands/main.ts' },
      chunkNames: 'program/[name]-[hash]',
      external: everyPath(optionalDependencies),
      plugins: [slimBinding, ...slimPackages],
      metafile: true,
    }),
    build({
      ...common,
      entryPoints: { library: 'src/library.ts' },
      banner: { js: requireShim },
      chunkNames: 'parts/library-[name]-[hash]',
      external: everyPath({ ...dependencies, ...optionalDependencies }),
    }),
  ])
  const files = [...(await programFiles(parts)), ...library.outputFiles, { path: join(dist, 'main.js'), contents: Buffer.from(importable) }]
  const kept = new Set()
  for (const file of files) {
    kept.add(relative(dist, file.path))
    writeChanged(file.path, file.contents)
  }
  for (const [width, page] of helpPages()) {
    const name = join('program', `help-${width}.txt`)
    kept.add(name)
    writeChanged(join(dist, name), page)
  }
  if (clean) {
    for (const name of readdirSync(dist, { recursive: true, withFileTypes: true })) {
      const path = join(name.parentPath, name.name)
      if (name.isFile() && !kept.has(relative(dist, path)) && !path.startsWith(join(dist, 'types'))) rmSync(path)
    }
  }
  return [...kept].sort()
}

/** Declaration files of what src/library.ts exports. Returns the compiler's exit code; its messages go to stderr. */
function declarations() {
  const compiler = join(dirname(createRequire(import.meta.url).resolve('typescript/package.json')), 'bin', 'tsc')
  rmSync(join(dist, 'types'), { recursive: true, force: true })
  const { status, stdout } = spawnSync(process.execPath, [compiler, '-p', join(root, 'tsconfig.build.json')], {
    cwd: root,
    encoding: 'utf8',
  })
  if (status !== 0) process.stderr.write(stdout)
  else removeUnreached(join(dist, 'types'), 'library.d.ts')
  return status ?? 1
}

/** The compiler declares every module it reads; a caller's compiler reads those alone that the entry names, directly or not. */
function removeUnreached(folder, entry) {
  const reached = new Set()
  const reach = (path) => {
    if (reached.has(path)) return
    reached.add(path)
    const text = readFileSync(path, 'utf8')
    for (const [, name] of text.matchAll(/(?:from |import\(|import )['"](\.[^'"]+)\.js['"]/g)) reach(join(dirname(path), `${name}.d.ts`))
  }
  reach(join(folder, entry))
  for (const file of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    const path = join(file.parentPath, file.name)
    if (file.isFile() && !reached.has(path)) rmSync(path)
  }
}

/** V8's code cache of the parts, for the node that builds. Where it cannot be made, commands only start more slowly. */
function codeCache() {
  const { status } = spawnSync(process.execPath, [join(root, 'scripts', 'code-cache.js')], {
    stdio: ['ignore', 'ignore', 'inherit'],
    env: ownEnvironment(),
  })
  if (status !== 0) process.stderr.write('There is no code cache: commands will start more slowly.\n')
}

if (process.argv[1] !== undefined && import.meta.url === pathToFileURL(process.argv[1]).href) {
  try {
    await bundle({ clean: true })
    codeCache()
    process.exitCode = declarations()
  } catch (error) {
    if (!(error instanceof Error) || !('code' in error) || error.code !== 'ERR_MODULE_NOT_FOUND') throw error
    process.stderr.write(`${error.message}\nThe build needs the development packages: run npm ci without --omit=dev.\n`)
    process.exitCode = 1
  }
}
