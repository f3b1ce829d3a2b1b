/** What `positions` and `pnl` read with: whose proposals, and from where. */
import { aggregating } from '../../core/chain/aggregate.js'
import { isContestedState } from '../../core/client/positions/last-known.js'
import type { PositionParts, Positions } from '../../core/client/positions/positions.js'
import type { Position } from '../../core/client/positions/rows.js'
import { yieldToEvents } from '../../core/io/serving/load.js'
import type { Chain } from '../../core/ports.js'
import { givenAddress } from '../../core/protocol/address.js'
import { FailedError } from '../../core/protocol/errors.js'
import type { Address } from '../../core/protocol/schema.js'
import type { Context } from '../terminal/context.js'
import type { PinnedUnits } from './amounts.js'
import type { Session } from './session.js'

/**
 * The named wallets; else all that signed in this home for the pinned chain, else the account.
 * UsageError `invalid_address`, `no_account`.
 */
export async function stakeWallets(
  session: Session,
  named: readonly string[] | undefined,
): Promise<readonly Address[]> {
  if (named !== undefined) return [...new Set(named.map((one) => givenAddress(one, '--wallet')))]
  const { chain_id } = await session.trust()
  const { authorizations } = await session.journal.load()
  const signed = authorizations.flatMap(({ signed: { chainId, terms } }) =>
    chainId === chain_id ? terms.proposer : [],
  )
  return signed.length === 0 ? [await session.account.address()] : [...new Set(signed)]
}

/** Reads with progress on stderr. */
export async function onStakes<T>(
  context: Context,
  session: Session,
  chain: Chain,
  read: (parts: PositionParts) => Promise<T>,
): Promise<T> {
  const progress = context.output.progress('reading the logs of the oracle')
  try {
    return await read({
      chain: aggregating(chain, yieldToEvents),
      trust: await session.trust(),
      view: await session.journal.load(),
      ...{ files: context.files, hash: context.hash, home: session.settings.home.value },
      signal: session.signal,
      onProgress: (block, head) => progress.update(`reading logs: block ${block} of ${head}`),
    })
  } finally {
    progress.stop()
  }
}

/** Reads the positions, again and again where they are watched. */
export interface Looker {
  readonly units: readonly PinnedUnits[]
  read(): Promise<Positions>
}

/** FailedError `proposal_disputed` where one is. */
export function failOnDispute(positions: readonly Position[]): void {
  const contested = positions.filter(({ state }) => isContestedState(state))
  const [first] = contested
  if (first === undefined) return
  const id = first.slug ?? first.question_id
  throw new FailedError(
    'proposal_disputed',
    contested.length === 1
      ? `the proposal for ${id ?? 'a question'} is disputed`
      : `${contested.length} proposals are disputed`,
    id === null ? {} : { hint: `\`proposer reconcile ${id}\` says what to do` },
  )
}
