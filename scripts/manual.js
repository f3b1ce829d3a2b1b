// Writes what is made from the commands' own help: man/proposer.1, docs/reference/commands.md and the grammar that completion reads.
import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { build } from 'esbuild'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const grammar = join(root, 'src', 'commands', 'completion', 'grammar.json')
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
        export { describe } from './src/commands/completion/describe.js'
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
  const { createContext, wholeProgram, describe, commandsPage, manualPage } = await import(pathToFileURL(outfile).href)
  const program = await wholeProgram(createContext(process))
  mkdirSync(join(root, 'man'), { recursive: true })
  writeFileSync(join(root, 'man', 'proposer.1'), manualPage(program, version))
  writeFileSync(join(root, 'docs', 'reference', 'commands.md'), commandsPage(program))
  writeFileSync(grammar, JSON.stringify(describe(program)))
  const { status } = spawnSync(
    process.execPath,
    [join(root, 'node_modules', '@biomejs', 'biome', 'bin', 'biome'), 'format', '--write', grammar],
    {
      cwd: root,
      stdio: ['ignore', 'ignore', 'inherit'],
    },
  )
  process.exitCode = status ?? 1
} finally {
  rmSync(folder, { recursive: true, force: true })
}
