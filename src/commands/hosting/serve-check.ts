/** `serve --check`: configuration, keys and chain, without taking the store or listening anywhere. */
import { resolve } from 'node:path'
import { roles, signedProposerAbi } from '../../core/chain/contracts.js'
import { readContract } from '../../core/chain/reading.js'
import { Trust } from '../../core/client/signing/trust.js'
import { type Address, type Chain, ChainError } from '../../core/ports.js'
import { UsageError } from '../../core/protocol/errors.js'
import type { Context } from '../context.js'
import { fromCwd } from '../session/paths.js'
import { verifyTrust } from '../trust-verify.js'
import { type LoadedConfig, registryOf } from './gateway-host.js'
import { configure, type ServerOptions } from './server.js'

export interface Fault {
  readonly detail: string
  readonly hint: string
}

/** Every fault that would keep `serve` from executing. Throws UsageError only where gateway.json itself cannot be read. */
export async function checkGateway(context: Context, path: string, options: ServerOptions): Promise<readonly Fault[]> {
  const loaded = await configure(context, path, options)
  const faults: Fault[] = []
  await gathered(faults, () => registryOf(context, loaded))
  const executor = await gathered(faults, () => executorAddress(context, loaded, options))
  const { rpc_urls } = loaded.config.chain
  const chain = await context.edges.chain(rpc_urls)
  try {
    faults.push(...(await chainFaults(chain, loaded, executor)))
  } catch (error) {
    if (!(error instanceof ChainError)) throw error
    faults.push({ detail: `the chain cannot be read: ${error.message}`, hint: 'look at chain.rpc_urls' })
  }
  return faults
}

/** Takes a UsageError for a fault among others. */
async function gathered<T>(faults: Fault[], work: () => Promise<T>): Promise<T | undefined> {
  try {
    return await work()
  } catch (error) {
    if (!(error instanceof UsageError)) throw error
    faults.push({ detail: error.detail, hint: error.meta.hint ?? 'correct gateway.json' })
    return undefined
  }
}

/** Whose key would sign; a keystore is not unlocked for it. */
async function executorAddress(context: Context, { config, folder }: LoadedConfig, options: ServerOptions): Promise<Address | undefined> {
  if (!config.pipeline.enabled || !config.executor.enabled) return undefined
  const variable = context.env.PROPOSER_EXECUTOR_KEY_FILE
  const file = variable !== undefined && variable !== '' ? fromCwd(context.cwd, variable) : config.executor.key_file
  if (options.executorAccount === undefined && file !== undefined) {
    const { readKeyFile, signerFromKey } = await import('../../core/io/keys.js')
    const signer = signerFromKey(await readKeyFile(resolve(folder, file)))
    signer.dispose()
    return signer.address
  }
  const name = options.executorAccount ?? config.executor.account
  if (name === undefined) {
    throw new UsageError('no_executor_key', 'the executor is enabled and has no key', {
      hint: 'set executor.key_file or executor.account in gateway.json, or PROPOSER_EXECUTOR_KEY_FILE, or executor.enabled=false',
    })
  }
  const { readKeystore } = await import('../../core/io/keystore.js')
  return (await readKeystore(context.files, options.home, name)).address
}

async function chainFaults(chain: Chain, { config }: LoadedConfig, executor: Address | undefined): Promise<Fault[]> {
  const { id, permit2, signed_proposer, oracles, requesters, tokens } = config.chain
  const checks = await verifyTrust(chain, Trust.parse({ chain_id: id, permit2, signed_proposer, oracles, requesters, tokens }))
  const faults = checks
    .filter(({ ok }) => !ok)
    .map(({ name, detail }) => ({ detail: `${name}: ${detail}`, hint: 'correct the chain section of gateway.json' }))
  // Without sound contracts an answer about the executor would mean nothing.
  if (executor === undefined || faults.length > 0) return faults
  const head = await chain.block('latest')
  if (!head) throw new ChainError('unavailable', 'the node knows no latest block')
  const asked = [roles.delegatedProposer, executor] as const
  const mayPropose = await readContract(chain, head.number, signed_proposer as Address, signedProposerAbi, 'hasRole', asked)
  if (!mayPropose) {
    faults.push({
      detail: `the executor ${executor} may not propose`,
      hint: 'have DELEGATED_PROPOSER_ROLE granted to it on the SignedProposer',
    })
  }
  if ((await chain.balance(executor)) === 0n) {
    faults.push({ detail: `the executor ${executor} cannot pay for gas`, hint: 'send it the coin of the chain' })
  }
  return faults
}
