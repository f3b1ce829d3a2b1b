// Builds dist/: command line and library as one ESM bundle in parts, and a list of what is bundled
// (SBOM). The compiler adds the declaration files.
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'

const root = join(import.meta.dirname, '..')
const manifestOf = (folder) => JSON.parse(readFileSync(join(root, folder, 'package.json'), 'utf8'))
const manifest = manifestOf('.')

/** Bundled CommonJS packages call require for node's own modules, and ESM has none. */
const shim = "import * as m from 'node:module';const require = m.createRequire(import.meta.url);"

/** Files that a page of ours is made of, as text, as vitest has them. */
export const rawText = {
  name: 'raw',
  setup(build) {
    build.onResolve({ filter: /\?raw$/ }, ({ path, resolveDir }) => ({
      // From the root, so that no folder of this machine is in the bundle.
      path: relative(root, join(resolveDir, path.replace(/\?raw$/, ''))),
      namespace: 'raw',
    }))
    build.onLoad({ filter: /./, namespace: 'raw' }, ({ path }) => ({
      contents: readFileSync(join(root, path), 'utf8'),
      loader: 'text',
    }))
  },
}

/** All but optional packages is inside: a command reads a few files. Nothing is edited on the way. */
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
    banner: { js: shim },
    define: { PROPOSER_VERSION: JSON.stringify(manifest.version) },
    external: Object.keys({ ...manifest.optionalDependencies, ...manifest.peerDependencies }),
    plugins: [rawText],
    metafile: true,
  })
  const bundled = Object.values(metafile.outputs).flatMap(({ inputs }) => Object.keys(inputs))
  const folderOf = (path) => /.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path)?.[0] ?? []
  const folders = [...new Set(bundled.flatMap(folderOf))].sort()
  const components = folders.map((folder) => componentOf(manifestOf(folder)))
  const metadata = { component: { ...componentOf(manifest), type: 'application' } }
  const sbom = { bomFormat: 'CycloneDX', specVersion: '1.5', version: 1, metadata, components }
  writeFileSync(join(root, 'dist/sbom.cdx.json'), `${JSON.stringify(sbom, null, 2)}\n`)
}

/** A package as CycloneDX names it; `purl` is how scanners look it up. */
function componentOf({ name, version, license }) {
  const purl = `pkg:npm/${name.replace('@', '%40')}@${version}`
  const licenses = [{ expression: license }]
  return { type: 'library', 'bom-ref': purl, name, version, licenses, purl }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  rmSync(join(root, 'dist'), { recursive: true, force: true })
  await bundle()
}
