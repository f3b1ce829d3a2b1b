/** The question registry of a configuration, for commands that list it (contract §6, --local). */
import type { RegistryEntry } from '#chain/questions'
import { configuredContracts } from '#gateway/config'
import { mergedRegistry, parseRegistry } from '#gateway/operator/registry'
import { opening } from '#io/closers'
import { readJsonFile } from '#io/json-file'
import type { Machine } from '#ports'
import {
  expectedChain,
  type LoadedConfig,
  loadConfig,
  pastedCommand,
  registryOf,
  settingsOf,
} from './config-file.js'
import { readPlaced } from './held-store.js'

export type ToLook = Awaited<ReturnType<typeof openToLook>>

/** What a gateway of this configuration knows, for looking only. */
export const openToLook = (machine: Machine, loaded: LoadedConfig) =>
  opening(async (closers) => {
    const { config } = loaded
    const configured = await registryOf(machine, loaded)
    const ledger = await readPlaced(machine, loaded, settingsOf(config, undefined))
    closers.add(ledger.close)
    const entries = mergedRegistry(configured, ledger.questions, pastedCommand(loaded))
    const chain = await machine.edges.chain(config.chain.rpc_urls, expectedChain(config))
    return { ledger, entries, chain, contracts: configuredContracts(config), close: closers.close }
  })

export async function readRegistry(machine: Machine, path: string) {
  const { close, ...known } = await openToLook(machine, await loadConfig(machine, path))
  await close()
  return known
}

export const readQuestionsFile = async (
  machine: Machine,
  path: string,
): Promise<readonly RegistryEntry[]> =>
  parseRegistry(await readJsonFile(machine, path, 'give the path of a questions.json'), path)
