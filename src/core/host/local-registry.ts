/** The question registry of a configuration, for commands that list it (contract §6, --local). */
import type { RegistryEntry } from '#chain/questions'
import { configuredContracts } from '#gateway/config'
import { mergedRegistry, parseRegistry } from '#gateway/operator/registry'
import { readJsonFile } from '#io/json-file'
import type { Machine } from '#ports'
import { expectedChain, loadConfig, pastedCommand, registryOf, settingsOf } from './config-file.js'
import { readPlaced } from './held-store.js'

export async function readRegistry(machine: Machine, path: string) {
  const loaded = await loadConfig(machine, path)
  const { config } = loaded
  const configured = await registryOf(machine, loaded)
  const ledger = await readPlaced(machine, loaded, settingsOf(config, undefined))
  try {
    const entries = mergedRegistry(configured, ledger.questions, pastedCommand(loaded))
    const chain = await machine.edges.chain(config.chain.rpc_urls, expectedChain(config))
    return { entries, contracts: configuredContracts(config), chain }
  } finally {
    await ledger.close()
  }
}

export const readQuestionsFile = async (
  machine: Machine,
  path: string,
): Promise<readonly RegistryEntry[]> =>
  parseRegistry(await readJsonFile(machine, path, 'give the path of a questions.json'), path)
