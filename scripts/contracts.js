// Compiles fixtures/contracts/*.sol with solc from npm and writes fixtures/contracts/artifacts.json:
// ABI and runtime code of every contract that the dev chain or a test places. The same sources and
// the same solc give the same bytes. `--check` exits 1 where the file differs.
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import solc from 'solc'

const folder = new URL('../fixtures/contracts/', import.meta.url)
const file = new URL('artifacts.json', folder)
const names = readdirSync(folder).filter((name) => name.endsWith('.sol'))
const sources = names.sort().map((name) => [name, readFileSync(new URL(name, folder), 'utf8')])

/** Over names and texts: tells without a compiler whether the artifacts belong to the sources. */
const hash = createHash('sha256')
for (const [name, text] of sources) hash.update(`${name}\0${text}\0`)

const settings = {
  // Cancun code runs on every chain that a test starts. viaIR, because the structs of propose()
  // are too deep for the old code generator.
  evmVersion: 'cancun',
  viaIR: true,
  optimizer: { enabled: true, runs: 200 },
  metadata: { appendCBOR: false, bytecodeHash: 'none' },
  outputSelection: { '*': { '*': ['abi', 'evm.deployedBytecode.object'] } },
}
const contents = Object.fromEntries(sources.map(([name, content]) => [name, { content }]))
const input = JSON.stringify({ language: 'Solidity', sources: contents, settings })
const { errors = [], contracts } = JSON.parse(solc.compile(input))
if (errors.length > 0) throw new Error(errors.map((error) => error.formattedMessage).join('\n'))

const lines = Object.values(contracts)
  .flatMap((inFile) => Object.entries(inFile))
  .filter(([, { evm }]) => evm.deployedBytecode.object !== '')
  .map(([name, { abi, evm }]) => [name, { abi, code: `0x${evm.deployedBytecode.object}` }])
  .sort(([one], [other]) => (one < other ? -1 : 1))
  .map(([name, artifact]) => `${JSON.stringify(name)}: ${JSON.stringify(artifact)}`)
const head = `{"compiler": ${JSON.stringify(solc.version())},\n"sources_sha256": "${hash.digest('hex')}"`
const text = `${head},\n"contracts": {\n${lines.join(',\n')}\n}}\n`

if (!process.argv.includes('--check')) writeFileSync(file, text)
else if (readFileSync(file, 'utf8') !== text) {
  process.stderr.write(`${file.pathname} differs from the sources: run \`npm run contracts\`.\n`)
  process.exitCode = 1
}
