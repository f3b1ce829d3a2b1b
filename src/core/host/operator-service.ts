/**
 * The operator service with its real edges: behind a serving gateway, or on a store that a command
 * opens itself (contract §6).
 */
import type { RegistryEntry } from '#chain/questions'
import type { OpenStore } from '#gateway/ledger/open-store'
import { createOperatorService, type OperatorService } from '#gateway/operator/service'
import type { LiveView } from '#gateway/view/view'
import { ChainError, type Machine } from '#ports'
import { UnavailableError } from '#protocol/errors'

export interface ServedStore extends OpenStore {
  bytes(): Promise<number>
}

/** The chain is looked at only where an act needs it. */
export function operatorServiceOn(
  { clock }: Machine,
  { ledger, compact, bytes }: ServedStore,
  configured: readonly RegistryEntry[],
  viewed: () => LiveView | Promise<LiveView>,
): OperatorService {
  const from = async <T>(what: string, ask: (view: LiveView) => Promise<T>): Promise<T> => {
    try {
      return await ask(await viewed())
    } catch (error) {
      return chainSilent(what, error)
    }
  }
  return createOperatorService({
    clock,
    ledger,
    configured,
    isKnown: (entry) =>
      from('the question', async ({ heads, faults, rounds }) => {
        const head = heads()?.latest.number
        const [fault] = faults()
        if (head === undefined || fault !== undefined)
          throw new ChainError('unavailable', fault ?? 'the chain has not been read yet')
        return (await rounds.read(entry.questionId, entry, head)) !== undefined
      }),
    code: () =>
      from('the contracts', async ({ pins, codeNow }) => ({ pins: pins(), now: await codeNow() })),
    async compact(keepSinceMs) {
      const before = await bytes()
      await compact(keepSinceMs)
      return { before, after: await bytes() }
    },
  })
}

export function chainSilent(what: string, cause: unknown): never {
  if (!(cause instanceof ChainError)) throw cause
  const detail = `${what} cannot be read from the chain now: ${cause.message}`
  const hint = 'nothing was changed; check chain.rpc_urls, then retry'
  throw new UnavailableError('state_unavailable', detail, { httpStatus: 503, cause, hint })
}
