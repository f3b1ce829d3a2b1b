// Compiles fixtures/contracts/*.sol with solc from npm and writes fixtures/contracts/artifacts.json:
// ABI and runtime code of every contract that the dev chain or a test places. The same sources and
// the same solc give the same bytes. Cancun code runs on every chain that a test starts; viaIR,
// because the structs of propose() are too deep for the old code generator.
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import solc from 'solc'

process.chdir(join(import.meta.dirname, '../fixtures/contracts'))
const names = readdirSync('.').filter((name) => name.endsWith('.sol'))
const sources = names.sort().map((name) => [name, readFileSync(name, 'utf8')])
// Tells without a compiler whether the artifacts belong to the sources.
const hash = createHash('sha256').update(sources.map((one) => `${one.join('\0')}\0`).join(''))

const settings = JSON.parse(readFileSync('compiler.json', 'utf8'))
const contents = Object.fromEntries(sources.map(([name, content]) => [name, { content }]))
const input = JSON.stringify({ language: 'Solidity', sources: contents, settings })
const { errors = [], contracts } = JSON.parse(solc.compile(input))
if (errors.length > 0) throw new Error(errors.map((error) => error.formattedMessage).join('\n'))

const lines = Object.values(contracts)
  .flatMap((inFile) => Object.entries(inFile))
  .map(([name, { abi, evm }]) => [name, { abi, code: `0x${evm.deployedBytecode.object}` }])
  .filter(([, { code }]) => code !== '0x')
  .sort(([one], [other]) => (one < other ? -1 : 1))
  .map(([name, artifact]) => `${JSON.stringify(name)}: ${JSON.stringify(artifact)}`)
const head = `{"compiler": ${JSON.stringify(solc.version())},\n"sources_sha256": "${hash.digest('hex')}"`
writeFileSync('artifacts.json', `${head},\n"contracts": {\n${lines.join(',\n')}\n}}\n`)
