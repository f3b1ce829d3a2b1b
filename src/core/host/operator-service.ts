/**
 * The operator service with its real edges: behind a serving gateway, or on a store whose lock a
 * command holds itself (contract §6).
 */
import { aggregating } from '#chain/aggregate'
import { implementationsOf } from '#chain/implementations'
import { createRoundReader, type RegistryEntry, type RoundReader } from '#chain/questions'
import { latestBlock } from '#chain/reading'
import { configuredContracts } from '#gateway/config'
import type { OpenStore } from '#gateway/ledger/open-store'
import {
  createOperatorService,
  type OperatorParts,
  type OperatorService,
} from '#gateway/operator/service'
import { pinsOf, watchedOf } from '#gateway/view/heads'
import type { LiveView } from '#gateway/view/view'
import { yieldToEvents } from '#io/serving/load'
import { type Chain, ChainError, type Machine } from '#ports'
import { UnavailableError } from '#protocol/errors'
import type { LoadedConfig } from './config-file.js'

export interface ServedStore extends OpenStore {
  bytes(): Promise<number>
}

interface Served extends ServedStore {
  readonly configured: readonly RegistryEntry[]
}

export const operatorServiceOfView = (
  machine: Machine,
  store: Served,
  view: LiveView,
): OperatorService =>
  operatorServiceOn(machine, store, {
    async roundsAt() {
      const head = view.heads()?.latest.number
      const [fault] = view.faults()
      if (head === undefined || fault !== undefined)
        throw new ChainError('unavailable', fault ?? 'the chain has not been read yet')
      return { rounds: view.rounds, head }
    },
    code: async () => ({ pins: view.pins(), now: await view.codeNow() }),
  })

/** The configured nodes are asked, and only where a question needs it. */
export function operatorServiceOfChain(
  machine: Machine,
  store: Served,
  { config }: LoadedConfig,
  open: () => Promise<Chain>,
): OperatorService {
  const { ledger } = store
  const begin = async () => {
    const chain = await open()
    const id = await chain.chainId()
    if (id !== config.chain.id)
      throw new ChainError('unavailable', `the node is on chain ${id}, not on ${config.chain.id}`)
    const head = await latestBlock(chain)
    const rounds = createRoundReader(aggregating(chain, yieldToEvents), configuredContracts(config))
    return { chain, rounds, head: head.number }
  }
  let begun: ReturnType<typeof begin> | undefined
  return operatorServiceOn(machine, store, {
    roundsAt() {
      begun ??= begin()
      return begun
    },
    async code() {
      begun ??= begin()
      const { chain, head } = await begun
      const pins = pinsOf({ implementations: config.chain.implementations ?? {}, ledger })
      const watched = watchedOf(configuredContracts(config), pins)
      return { pins, now: await implementationsOf(chain, watched, head) }
    },
  })
}

function operatorServiceOn(
  { clock }: Machine,
  { ledger, compact, configured, bytes }: Served,
  asked: Pick<OperatorParts, 'code'> & {
    roundsAt(): Promise<{ readonly rounds: RoundReader; readonly head: bigint }>
  },
) {
  const from = async <T>(what: string, ask: () => Promise<T>): Promise<T> => {
    try {
      return await ask()
    } catch (error) {
      if (error instanceof ChainError) throw chainSilent(what, error)
      throw error
    }
  }
  return createOperatorService({
    clock,
    ledger,
    configured,
    isKnown: (entry) =>
      from('the question', async () => {
        const { rounds, head } = await asked.roundsAt()
        return (await rounds.read(entry.questionId, entry, head)) !== undefined
      }),
    code: () => from('the contracts', asked.code),
    async compact(keepSinceMs) {
      const before = await bytes()
      await compact(keepSinceMs)
      return { before, after: await bytes() }
    },
  })
}

const chainSilent = (what: string, cause: ChainError) =>
  new UnavailableError(
    'state_unavailable',
    `${what} cannot be read from the chain now: ${cause.message}`,
    {
      httpStatus: 503,
      cause,
      hint: 'nothing was changed; check chain.rpc_urls, then retry',
    },
  )
