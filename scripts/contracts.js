// Compiles fixtures/contracts/*.sol with solc from npm and writes
// fixtures/contracts/artifacts.json: ABI and runtime code of every contract the dev chain or a test
// places. The same sources and the same solc give the same bytes (no metadata in the code).
//   node scripts/contracts.js           writes the file
//   node scripts/contracts.js --check   exits 1 where the file differs
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import solc from 'solc'

const folder = new URL('../fixtures/contracts/', import.meta.url)
const artifactsFile = fileURLToPath(new URL('artifacts.json', folder))

/** The Solidity sources by file name, in a fixed order. */
function readSources() {
  const names = readdirSync(folder).filter((name) => name.endsWith('.sol'))
  return Object.fromEntries(
    names.sort().map((name) => [name, readFileSync(new URL(name, folder), 'utf8')]),
  )
}

/**
 * SHA-256 over names and texts: tells without a compiler whether the artifacts belong to these
 * sources.
 */
function hashSources(sources) {
  const hash = createHash('sha256')
  for (const [name, text] of Object.entries(sources)) hash.update(`${name}\0${text}\0`)
  return hash.digest('hex')
}

/**
 * The text of artifacts.json for these sources. Throws with solc's messages where it reports an
 * error or a warning.
 */
function compile(sources) {
  const input = {
    language: 'Solidity',
    sources: Object.fromEntries(
      Object.entries(sources).map(([name, content]) => [name, { content }]),
    ),
    settings: {
      // Cancun code runs on every chain a test starts; viaIR because the structs of propose() are
      // too deep for the old code generator.
      evmVersion: 'cancun',
      viaIR: true,
      optimizer: { enabled: true, runs: 200 },
      metadata: { appendCBOR: false, bytecodeHash: 'none' },
      outputSelection: { '*': { '*': ['abi', 'evm.deployedBytecode.object'] } },
    },
  }
  const output = JSON.parse(
    solc.compile(JSON.stringify(input), {
      import: (path) => (path in sources ? { contents: sources[path] } : { error: `no ${path}` }),
    }),
  )
  if (output.errors?.length > 0)
    throw new Error(output.errors.map((error) => error.formattedMessage).join('\n'))
  const contracts = {}
  for (const file of Object.keys(sources)) {
    for (const [name, contract] of Object.entries(output.contracts[file] ?? {})) {
      const code = contract.evm.deployedBytecode.object
      if (code !== '') contracts[name] = { abi: contract.abi, code: `0x${code}` }
    }
  }
  const lines = Object.keys(contracts)
    .sort()
    .map((name) => `${JSON.stringify(name)}: ${JSON.stringify(contracts[name])}`)
  return `{"compiler": ${JSON.stringify(solc.version())},\n"sources_sha256": "${hashSources(sources)}",\n"contracts": {\n${lines.join(',\n')}\n}}\n`
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const text = compile(readSources())
  if (!process.argv.includes('--check')) writeFileSync(artifactsFile, text)
  else if (readFileSync(artifactsFile, 'utf8') !== text) {
    process.stderr.write(
      'fixtures/contracts/artifacts.json differs from the sources: run `npm run contracts`.\n',
    )
    process.exitCode = 1
  }
}
