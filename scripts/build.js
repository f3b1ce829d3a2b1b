// Builds dist/: command line and library as one ESM bundle split into parts, declaration files, and
// a list of what is bundled (SBOM).
import { spawnSync } from 'node:child_process'
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const readJson = (...path) => JSON.parse(readFileSync(join(root, ...path), 'utf8'))
const manifest = readJson('package.json')

/** Bundled CommonJS packages call require for node's own modules, and ESM has none. */
const requireShim =
  "import { createRequire as makeRequire } from 'node:module';const require = makeRequire(import.meta.url);"

/**
 * Bundles src into dist/ and writes the SBOM beside it. Everything but optional packages is inside:
 * a command reads a few files instead of some hundred. Nothing is edited on the way.
 */
export async function bundle() {
  const { metafile } = await build({
    absWorkingDir: root,
    entryPoints: { main: 'src/commands/main.ts', library: 'src/library.ts' },
    outdir: 'dist',
    bundle: true,
    splitting: true,
    chunkNames: 'parts/[name]-[hash]',
    format: 'esm',
    platform: 'node',
    // ES modules of a package, where it has them: unused parts of them stay out.
    mainFields: ['module', 'main'],
    target: 'node20.18',
    charset: 'utf8',
    legalComments: 'linked',
    minifySyntax: true,
    banner: { js: requireShim },
    define: { PROPOSER_VERSION: JSON.stringify(manifest.version) },
    external: Object.keys(manifest.optionalDependencies),
    metafile: true,
    logLevel: 'warning',
  })
  const bundled = Object.values(metafile.outputs).flatMap(({ inputs }) => Object.keys(inputs))
  const folders = bundled.flatMap(
    (path) => /^.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path)?.[0] ?? [],
  )
  const components = [...new Set(folders)]
    .sort()
    .map((folder) => componentOf(readJson(folder, 'package.json')))
  const metadata = { component: { ...componentOf(manifest), type: 'application' } }
  const sbom = { bomFormat: 'CycloneDX', specVersion: '1.5', version: 1, metadata, components }
  mkdirSync(join(root, 'dist'), { recursive: true })
  writeFileSync(join(root, 'dist', 'sbom.cdx.json'), `${JSON.stringify(sbom, null, 2)}\n`)
}

/** A package as CycloneDX names it; `purl` is how scanners look it up. */
function componentOf({ name, version, license }) {
  const purl = `pkg:npm/${name.replace('@', '%40')}@${version}`
  return {
    type: 'library',
    'bom-ref': purl,
    name,
    version,
    licenses: [{ expression: license }],
    purl,
  }
}

/**
 * Declaration files for src/library.ts. Returns the compiler's exit code; its messages go to
 * stderr.
 */
function declarations() {
  const compiler = join(
    dirname(createRequire(import.meta.url).resolve('typescript/package.json')),
    'bin',
    'tsc',
  )
  return (
    spawnSync(process.execPath, [compiler, '-p', 'tsconfig.build.json'], {
      cwd: root,
      stdio: ['ignore', 2, 2],
    }).status ?? 1
  )
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  rmSync(join(root, 'dist'), { recursive: true, force: true })
  await bundle()
  process.exitCode = declarations()
}
