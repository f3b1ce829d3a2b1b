import { createChainView, type LiveView } from '#gateway/view/view'
import type { Clock } from '#ports'
import { createFakeClock, type FakeChain } from './fake-chain.js'
import { fakeContracts } from './fake-world.js'

type Parts = Parameters<typeof createChainView>

/** A view of a fake chain; of a ledger that knows nothing but what is given. */
export const chainView = (
  chain: FakeChain,
  {
    clock = createFakeClock(chain),
    ledger = {},
    contracts = fakeContracts,
    ...options
  }: {
    readonly clock?: Clock
    readonly ledger?: Partial<Parts[2]>
    readonly contracts?: Parts[1]
  } & Partial<Parts[3]> = {},
): LiveView =>
  createChainView(
    { clock, chain },
    contracts,
    {
      info: undefined,
      allowlist: new Set(),
      finalized: undefined,
      active: () => [],
      implementations: new Map(),
      ...ledger,
    },
    { maxHeadAgeSeconds: 30, entries: [], ...options },
  )
