// Builds dist/: the command line as parts that bin/load.js loads, the library as a split ESM bundle, and declaration files for it.
//
// Some parts per verb instead of some hundred files per package, without node's loader of ESM, and V8's code cache beside them are what
// makes the command start quickly: `npm run bench -- --rows 6,7`. So the command line brings all it needs but what is optional; the
// library imports its dependencies, because its schemas are to be composed with the caller's own.
import { spawnSync } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

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

/** zod carries its messages in fifty languages, most of its weight; ours are in English. */
const englishOnly = {
  name: 'english-only',
  setup(build) {
    build.onLoad({ filter: /[\\/]zod[\\/]v4[\\/]locales[\\/]index\.js$/ }, ({ path }) => ({
      contents: "export { default as en } from './en.js'",
      resolveDir: dirname(path),
    }))
  },
}

/** An ESM part as a function for bin/load.js. Names stay, for what a stack trace tells; ASCII where it can be is read the quickest. */
async function partOf({ path, contents }) {
  if (!path.endsWith('.js')) return { path, contents }
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
  return { path, contents: Buffer.from(code) }
}

/** The command line for programs that import it, as tests do. */
const importable = `import { createRequire } from 'node:module'
export const { main, start } = createRequire(import.meta.url)('../bin/load.js').load('main.js')
`

/** How many colours a terminal has is asked of node's tty and os modules, which take a while to load; ours need only know that it is one. */
const fewColours = {
  name: 'few-colours',
  setup(build) {
    build.onLoad({ filter: /[\\/]supports-color[\\/]index\.js$/ }, () => ({
      contents:
        'const of = ({ isTTY }) => isTTY === true && { level: 1 }; export default { stdout: of(process.stdout), stderr: of(process.stderr) }',
    }))
  },
}

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
    plugins: [englishOnly, fewColours],
    logLevel: 'warning',
  }
  const everyPath = (packages) => Object.keys(packages).flatMap((name) => [name, `${name}/*`])
  const [parts, library] = await Promise.all([
    build({
      ...common,
      entryPoints: { 'program/main': 'src/commands/main.ts' },
      chunkNames: 'program/[name]-[hash]',
      external: everyPath(optionalDependencies),
    }),
    build({
      ...common,
      entryPoints: { library: 'src/library.ts' },
      banner: { js: requireShim },
      chunkNames: 'parts/library-[name]-[hash]',
      external: everyPath({ ...dependencies, ...optionalDependencies }),
    }),
  ])
  const files = [
    ...(await Promise.all(parts.outputFiles.map(partOf))),
    ...library.outputFiles,
    { path: join(dist, 'main.js'), contents: Buffer.from(importable) },
  ]
  const kept = new Set()
  for (const file of files) {
    kept.add(relative(dist, file.path))
    writeChanged(file.path, file.contents)
  }
  if (clean) {
    for (const name of readdirSync(dist, { recursive: true, withFileTypes: true })) {
      const path = join(name.parentPath, name.name)
      if (name.isFile() && !kept.has(relative(dist, path)) && !path.startsWith(join(dist, 'types'))) rmSync(path)
    }
  }
  return [...kept].sort()
}

/** Declaration files of src/library.ts and all it exports. Returns the compiler's exit code; its messages go to stderr. */
function declarations() {
  const compiler = join(dirname(createRequire(import.meta.url).resolve('typescript/package.json')), 'bin', 'tsc')
  rmSync(join(dist, 'types'), { recursive: true, force: true })
  const { status, stdout } = spawnSync(process.execPath, [compiler, '-p', join(root, 'tsconfig.build.json')], {
    cwd: root,
    encoding: 'utf8',
  })
  if (status !== 0) process.stderr.write(stdout)
  return status ?? 1
}

/** V8's code cache of the parts, for the node that builds. Where it cannot be made, commands only start more slowly. */
function codeCache() {
  // The builder's own gateway, node or account have no part in it.
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('PROPOSER_')))
  const { status } = spawnSync(process.execPath, [join(root, 'scripts', 'code-cache.js')], { stdio: ['ignore', 'ignore', 'inherit'], env })
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
