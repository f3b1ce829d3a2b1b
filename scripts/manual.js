// Writes what is made from the sources: man/proposer.1 and docs/reference/commands.md from the
// commands' own help, docs/reference/library.md from the declarations, gateway.schema.json from what reads
// gateway.json, the tables of codes in docs/reference/error-codes.md from those in the code.
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { build } from 'rolldown'
import { rawText } from './build.js'
import { declarations } from './declarations.js'
import { referencePage } from './reference.js'

process.chdir(join(import.meta.dirname, '..'))
const { version } = JSON.parse(readFileSync('package.json', 'utf8'))
const contents = `
  import { createContext } from './src/commands/terminal/context.js'
  import { wholeProgram } from './src/commands/program.js'
  import { commandsPage, configSchemaText, manualPage, withCodes } from './scripts/manual-pages.js'
  import { ConfigFile } from './src/core/gateway/config.js'
  import { failures, wireFailures } from './src/core/protocol/codes.js'
  const program = await wholeProgram(createContext(process))
  export const pages = {
    'man/proposer.1': manualPage(program, '${version}'),
    'docs/reference/commands.md': commandsPage(program),
    'docs/reference/gateway.schema.json': configSchemaText(ConfigFile),
    'docs/reference/error-codes.md': (page) => withCodes(page, wireFailures, failures),
  }`
// Beside node_modules, because the bundle finds its packages from where it lies.
const outdir = join(process.cwd(), 'node_modules', '.manual')
const entry = {
  name: 'entry',
  resolveId: (id) => (id === 'manual' ? join(process.cwd(), 'manual.ts') : null),
  load: (id) => (id === join(process.cwd(), 'manual.ts') ? contents : null),
}
await build({
  input: 'manual',
  platform: 'node',
  external: (id) => /^(?!manual$)[^.#/]/.test(id) && !id.startsWith('raw:'),
  plugins: [entry, rawText],
  output: { dir: outdir, format: 'esm', entryFileNames: '[name].mjs' },
})
const { pages } = await import(join(outdir, 'manual.mjs'))
declarations(join(outdir, 'types'))
pages['docs/reference/library.md'] = referencePage(join(outdir, 'types'))
for (const [file, text] of Object.entries(pages))
  writeFileSync(file, typeof text === 'string' ? text : text(readFileSync(file, 'utf8')))
rmSync(outdir, { recursive: true })
