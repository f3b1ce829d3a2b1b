// Writes what is made from the commands' own help: man/proposer.1 and docs/reference/commands.md.
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { build } from 'esbuild'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))

// Beside node_modules, because the bundle finds its packages from where it lies.
const folder = mkdtempSync(join(root, 'node_modules', '.manual-'))
try {
  const outfile = join(folder, 'manual.mjs')
  await build({
    absWorkingDir: root,
    stdin: {
      contents: `
        export { createContext } from './src/commands/context.js'
        export { wholeProgram } from './src/commands/program.js'
        export { commandsPage, manualPage } from './src/commands/completion/manual.js'`,
      resolveDir: root,
    },
    outfile,
    bundle: true,
    format: 'esm',
    platform: 'node',
    packages: 'external',
    define: { PROPOSER_VERSION: JSON.stringify('') },
    logLevel: 'warning',
  })
  const { createContext, wholeProgram, commandsPage, manualPage } = await import(
    pathToFileURL(outfile).href
  )
  const program = await wholeProgram(createContext(process))
  mkdirSync(join(root, 'man'), { recursive: true })
  writeFileSync(join(root, 'man', 'proposer.1'), manualPage(program, version))
  writeFileSync(join(root, 'docs', 'reference', 'commands.md'), commandsPage(program))
} finally {
  rmSync(folder, { recursive: true, force: true })
}
