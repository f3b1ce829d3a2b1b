/** The compiled contracts of `fixtures/contracts`, which the package carries along. */
import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Abi } from 'viem'
import type { Hex } from '../ports.js'
import { UsageError } from '../protocol/errors.js'

export interface Artifact {
  readonly abi: Abi
  /** Runtime code. */
  readonly code: Hex
}

let loaded: Readonly<Record<string, Artifact>> | undefined

/**
 * A compiled contract of `fixtures/contracts`, by name. Throws UsageError `dev_chain_failed` where
 * the package lacks it.
 */
export function artifact(name: string): Artifact {
  loaded ??= readArtifacts()
  const found = loaded[name]
  if (found === undefined)
    throw new UsageError('dev_chain_failed', `The package has no compiled contract ${name}.`)
  return found
}

/** Sources lie three folders below the package's root, the built program one: look upwards. */
function readArtifacts(): Readonly<Record<string, Artifact>> {
  let folder = dirname(fileURLToPath(import.meta.url))
  for (let up = 0; up < 5; up += 1) {
    try {
      const text = readFileSync(join(folder, 'fixtures', 'contracts', 'artifacts.json'), 'utf8')
      return (JSON.parse(text) as { contracts: Record<string, Artifact> }).contracts
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
      folder = dirname(folder)
    }
  }
  throw new UsageError('dev_chain_failed', 'The package lacks fixtures/contracts/artifacts.json.', {
    hint: 'reinstall the package',
  })
}
