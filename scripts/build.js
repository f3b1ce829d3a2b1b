// Builds dist/: command line and library as one CommonJS bundle in parts, and a list of what is bundled
// (SBOM). The compiler adds the declaration files.
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'rolldown'

const root = join(import.meta.dirname, '..')
const manifestOf = (folder) => JSON.parse(readFileSync(join(root, folder, 'package.json'), 'utf8'))
const manifest = manifestOf('.')

/** Files that a page of ours is made of, as text, as vitest has them. */
export const rawText = {
  name: 'raw',
  resolveId: (path, from) =>
    // From the root, so that no folder of this machine is in the bundle.
    path.endsWith('?raw') ? `raw:${relative(root, join(dirname(from), path))}` : null,
  load: (id) =>
    id.startsWith('raw:')
      ? { code: readFileSync(join(root, id.slice(4, -4)), 'utf8'), moduleType: 'text' }
      : null,
}

/** A part of ASCII alone is read without being decoded. */
const ascii = {
  name: 'ascii',
  generateBundle(_, parts) {
    for (const part of Object.values(parts))
      part.code = part.code?.replace(
        /[^\0-\x7f]/g,
        (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`,
      )
  },
}

const accessor =
  /^Object\.defineProperty\(exports, "([\w$]+)", \{\s+enumerable: true,\s+get: function\(\) \{\s+return ([\w$]+);\s+\}\s+\}\);\n/gm
const writing = (name) =>
  new RegExp(
    `(?<![.\\w$])${name.replaceAll('$', '\\$')}\\s*([^\\s\\w(.=!<>]{0,3}=(?![=>])|\\+\\+|--)`,
    'g',
  )

/**
 * The bundler gives other parts an accessor for each name: of what is written once, where it is
 * declared, the value is the same, and 700 accessors are a twentieth of the time `sign` takes.
 */
const plainExports = {
  name: 'plain-exports',
  generateBundle(_, parts) {
    for (const part of Object.values(parts)) {
      if (part.type !== 'chunk' || part.isEntry) continue
      const { code } = part
      const plain = []
      part.code = code.replace(accessor, (all, name, local) => {
        if ((code.match(writing(local)) ?? []).length > 1) return all
        plain.push(`${name}: ${local}`)
        return ''
      })
      if (plain.length > 0) part.code += `Object.assign(exports, {\n${plain.join(',\n')}\n});\n`
    }
  },
}

/** What the keyboard waits for, each with all that it needs and no earlier one has. */
const together = {
  main: ['main', '../core/io/compiled'],
  front: ['terminal/context', 'front', 'program', 'dropped', '../core/protocol/guess'],
  journal: ['journal'],
  poll: [
    'poll',
    '../core/io/http',
    '../core/client/budget/planner',
    '../core/client/gateway/gateway-client',
  ],
  sign: ['sign', '../core/io/key-files'],
}

/** Modules, and all that they import before they run. */
function closureOf(ids, graph) {
  const found = new Set(ids)
  for (const id of found)
    for (const next of graph.getModuleInfo(id)?.importedIds ?? []) found.add(next)
  return found
}

/** All but optional packages is inside. Nothing is edited on the way, but how characters are written. */
export async function bundle() {
  const closures = {}
  const isOf = (group, id, graph) => {
    const files = together[group].map((file) => join(root, `src/commands/${file}.ts`))
    closures[group] ??= closureOf(files, graph)
    // Only the document of the API needs zod's own, which its index imports.
    return closures[group].has(id) && !id.includes('json-schema')
  }
  const verbs = ['journal', 'poll', 'sign']
  const isShared = (id, graph) => verbs.filter((verb) => isOf(verb, id, graph)).length > 1
  const groups = ['main', 'front', 'shared', ...verbs].map((group) => ({
    debugName: group,
    name: (id, graph) =>
      (group === 'main' && id.startsWith('\0rolldown')) ||
      (group === 'shared' ? isShared : isOf.bind(null, group))(id, graph)
        ? group
        : null,
  }))
  const { output } = await build({
    input: { main: 'src/commands/main.ts', library: 'src/library.ts' },
    cwd: root,
    platform: 'node',
    // ES modules of a package, where it has them: unused parts of them stay out.
    resolve: { mainFields: ['module', 'main'] },
    transform: {
      target: 'node20.18',
      define: { PROPOSER_VERSION: JSON.stringify(manifest.version) },
    },
    external: Object.keys({ ...manifest.optionalDependencies, ...manifest.peerDependencies }),
    plugins: [rawText, plainExports, ascii],
    checks: { ineffectiveDynamicImport: false },
    output: {
      dir: join(root, 'dist'),
      format: 'cjs',
      dynamicImportInCjs: false,
      chunkFileNames: 'parts/[name]-[hash].js',
      // Of a licence alone: the rest is read anew at each start.
      comments: { legal: true, annotation: false, jsdoc: false },
      codeSplitting: { groups },
    },
  })
  writeFileSync(join(root, 'dist/package.json'), '{ "type": "commonjs" }\n')
  const bundled = output.flatMap(({ moduleIds = [] }) => moduleIds)
  const folderOf = (path) => /.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path)?.[0] ?? []
  const folders = [...new Set(bundled.flatMap(folderOf))].sort()
  const components = folders.map((folder) => componentOf(manifestOf(relative(root, folder))))
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
