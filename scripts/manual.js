// Writes what is made from the sources: man/proposer.1 and docs/reference/commands.md from the
// commands' own help, docs/reference/library.md from the declarations, gateway.schema.json from what reads
// gateway.json, the tables of codes in docs/reference/error-codes.md from those in the code.
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { build } from 'esbuild'
import { rawText } from './build.js'
import { declarations } from './declarations.js'
import { referencePage } from './reference.js'

process.chdir(join(import.meta.dirname, '..'))
const { version } = JSON.parse(readFileSync('package.json', 'utf8'))
const contents = `
  import { createContext } from './src/commands/terminal/context.js'
  import { wholeProgram } from './src/commands/program.js'
  import { commandsPage, manualPage } from './scripts/manual-pages.js'
  import * as z from 'zod'
  import { configSchemaText } from './scripts/config-schema.js'
  import { ConfigFile } from './src/core/gateway/config.js'
  import { withCodes } from './scripts/error-codes.js'
  import { failures, wireFailures } from './src/core/protocol/codes.js'
  const program = await wholeProgram(createContext(process))
  export const pages = {
    'man/proposer.1': manualPage(program, '${version}'),
    'docs/reference/commands.md': commandsPage(program),
    'docs/reference/gateway.schema.json': configSchemaText(z, ConfigFile),
    'docs/reference/error-codes.md': (page) => withCodes(page, wireFailures, failures),
  }`
// Beside node_modules, because the bundle finds its packages from where it lies.
const outdir = join(process.cwd(), 'node_modules', '.manual')
const form = {
  bundle: true,
  format: 'esm',
  platform: 'node',
  packages: 'external',
  plugins: [rawText],
}
// In parts: modules that wait for each other while they load are kept apart.
const parts = { splitting: true, outdir, outExtension: { '.js': '.mjs' } }
await build({ stdin: { contents, resolveDir: '.' }, ...form, ...parts })
const { pages } = await import(join(outdir, 'stdin.mjs'))
declarations(join(outdir, 'types'))
pages['docs/reference/library.md'] = referencePage(join(outdir, 'types'))
for (const [file, text] of Object.entries(pages))
  writeFileSync(file, typeof text === 'string' ? text : text(readFileSync(file, 'utf8')))
rmSync(outdir, { recursive: true })
