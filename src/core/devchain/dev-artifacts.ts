/** Files of `fixtures/contracts`, which the package carries along. */
import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Abi } from 'viem'
import type { Hex } from '#ports'
import { UsageError } from '#protocol/errors'

export interface Artifact {
  readonly abi: Abi
  readonly code: Hex
}

let contracts: Readonly<Record<string, Artifact>> | undefined

export function artifact(name: string): Artifact {
  contracts ??= packaged<{ contracts: Record<string, Artifact> }>('artifacts.json').contracts
  const found = contracts[name]
  if (found === undefined)
    throw new UsageError('dev_chain_failed', `The package has no compiled contract ${name}.`)
  return found
}

/** Sources lie three folders below the package's root, the built program one. */
export function packaged<Content>(name: string): Content {
  let folder = dirname(fileURLToPath(import.meta.url))
  for (let up = 0; up < 5; up += 1) {
    try {
      return JSON.parse(readFileSync(join(folder, 'fixtures', 'contracts', name), 'utf8'))
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
      folder = dirname(folder)
    }
  }
  throw new UsageError(
    'dev_chain_failed',
    `The package lacks fixtures/contracts/${name}.`,
    'reinstall the package',
  )
}
