import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { build } from 'esbuild'

/**
 * Modules that are no part of the library, built from the sources: `contents` is TypeScript that
 * exports them, with paths from the root; those that look for files beside themselves find them
 * beside `at`. `remove` deletes the build.
 */
export async function fromSources(root, contents, at) {
  // Some look upwards for the compiled contracts.
  const folder = await mkdtemp(join(root, 'dist', 'bench-'))
  const remove = () => rm(folder, { recursive: true, force: true })
  try {
    const outfile = join(folder, 'sources.mjs')
    await build({
      stdin: { contents, resolveDir: root, loader: 'ts' },
      outfile,
      bundle: true,
      packages: 'external',
      format: 'esm',
      platform: 'node',
      define: at && {
        'import.meta.url': JSON.stringify(pathToFileURL(at).href),
        'import.meta.dirname': JSON.stringify(dirname(at)),
      },
      plugins: [{ name: 'raw', setup: (on) => on.onLoad({ filter: /page/ }, raw) }],
    })
    return { module: await import(pathToFileURL(outfile).href), path: outfile, remove }
  } catch (error) {
    await remove()
    throw error
  }
}

const raw = async ({ path, suffix }) =>
  suffix === '' ? null : { contents: await readFile(path), loader: 'text' }
