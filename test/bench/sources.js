import { mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { build } from 'esbuild'

/**
 * Modules that are no part of the library, built from the sources: `contents` is TypeScript that
 * exports them, with paths from the root; those that look for files beside themselves find them
 * beside `at`. Resolves with the module, its `path`, and a `remove` that deletes the build.
 */
export async function fromSources(root, contents, at) {
  // Below the root, because some of them look upwards for the compiled contracts.
  const folder = await mkdtemp(join(root, 'dist', 'bench-'))
  const remove = () => rm(folder, { recursive: true, force: true })
  try {
    const outfile = join(folder, 'sources.js')
    await build({
      stdin: { contents, resolveDir: root, loader: 'ts' },
      outfile,
      bundle: true,
      packages: 'external',
      format: 'esm',
      platform: 'node',
      define: at === undefined ? {} : { 'import.meta.url': JSON.stringify(pathToFileURL(at).href) },
      logLevel: 'warning',
    })
    return { module: await import(pathToFileURL(outfile).href), path: outfile, remove }
  } catch (error) {
    await remove()
    throw error
  }
}
