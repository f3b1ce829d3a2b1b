/** Nothing is signed for a contract that runs other code than trust.json pins (contract §9; R9). */
import {
  changedImplementations,
  changedText,
  type Implementations,
  implementationsOf,
} from '../../chain/implementations.js'
import { onChain } from '../../chain/unavailable.js'
import type { Chain } from '../../ports.js'
import { UsageError } from '../../protocol/errors.js'
import type { Address } from '../../protocol/schema.js'
import type { Trust } from './trust-file.js'

export const nothingPinned =
  'the trust file does not pin the code of oracles and tokens, so an upgrade of theirs is not noticed: `proposer trust verify --repin` pins it'

export const howToRepin =
  'sign nothing before you know what the new code does; then `proposer trust verify --repin` shows old and new, and pins the new code'

export function implementationsNow(chain: Chain, trust: Trust): Promise<Implementations> {
  const pinned = Object.keys(trust.implementations ?? {}) as Address[]
  const addresses = [...trust.oracles, ...trust.tokens, ...pinned]
  return onChain(() => implementationsOf(chain, addresses, 'latest'))
}

/** Pins whose code was compared: later only slots are read. */
const compared = new WeakMap<Chain, Trust>()

/** Asked before each signature, or each hundred: one storage read a contract. */
export async function requireImplementations(chain: Chain, trust: Trust): Promise<void> {
  const { implementations } = trust
  if (implementations === undefined) return
  const slotsOnly = compared.get(chain) === trust
  const [changed, ...others] = await onChain(() =>
    changedImplementations(chain, implementations, 'latest', { slotsOnly }),
  )
  if (changed !== undefined)
    throw new UsageError(
      'implementation_changed',
      [changed, ...others].map(changedText).join('; '),
      howToRepin,
    )
  compared.set(chain, trust)
}
