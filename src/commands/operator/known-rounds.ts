/**
 * What only the chain knows of the questions in a store: how their tokens write amounts, and the
 * labels of their outcomes.
 */
import { createRoundReader, type RegistryEntry } from '../../core/chain/questions.js'
import type { Round } from '../../core/chain/round.js'
import { configuredContracts } from '../../core/gateway/config.js'
import { expectedChain } from '../../core/host/config-file.js'
import { ChainError, type Hex } from '../../core/ports.js'
import type { Context } from '../terminal/context.js'
import type { Site } from './access.js'

/** The records tell everything else; a chain that is slow is not waited for. */
const patienceMs = 3_000

/** Of the verbs that ask a node for them. */
export const offlineOption = ['--offline', 'do not ask a node for token units and labels'] as const

/**
 * The rounds of these questions as a node tells them now. Those that it does not tell within three
 * seconds are left out, and a note says so; it rejects for nothing that a node does.
 */
export async function knownRounds(
  context: Context,
  { loaded: { config } }: Site,
  registry: readonly RegistryEntry[],
  questionIds: readonly Hex[],
): Promise<ReadonlyMap<Hex, Round>> {
  const rounds = new Map<Hex, Round>()
  if (questionIds.length === 0) return rounds
  const ids = new Set(questionIds)
  const over = new AbortController()
  const late = context.clock.sleep(patienceMs, over.signal).catch(() => undefined)
  const read = async () => {
    const chain = await context.edges.chain(config.chain.rpc_urls, expectedChain(config))
    const reader = createRoundReader(chain, configuredContracts(config))
    await Promise.all(
      [...ids].map(async (id) => {
        const entry = registry.find(({ questionId }) => questionId === id)
        const round = await reader.read(id, entry)
        if (round !== undefined) rounds.set(id, round)
      }),
    )
  }
  const unread = (error: unknown) => {
    // The node is not what was asked about.
    if (error instanceof ChainError) return undefined
    throw error
  }
  try {
    await Promise.race([read().catch(unread), late])
    if (rounds.size < ids.size)
      context.output.note(
        'note: no node gave token units and labels: amounts are raw, answers without label',
      )
    return new Map(rounds)
  } finally {
    over.abort()
  }
}
