/** Amounts of flags, variables and profiles in raw units (contract §9). */
import { coinOf, knownToken } from '#chain/profiles'
import { tokenIn } from '#client/trust/context'
import type { Trust } from '#client/trust/trust'
import type { Chain } from '#ports'
import { parseAmount, type TokenUnits, toRaw } from '#protocol/amount'
import type { Address } from '#protocol/schema'
import type { Context } from '../terminal/context.js'
import { parseJson, readInput } from './inputs.js'
import type { Session } from './session.js'
import type { Setting } from './settings.js'

export interface PinnedUnits extends TokenUnits {
  readonly address: Address
}

/** An amount in raw units, and the tokens that it may be of: all where it was given raw. */
interface GivenAmount {
  readonly raw: bigint
  readonly tokens: readonly Address[] | undefined
}

type AmountSetting = Pick<Setting, 'value' | 'from'> & Partial<Pick<Setting, 'origin'>>

export const flagged = (from: string, value: string | undefined) =>
  value === undefined ? undefined : { value, from }

/**
 * A bare number is raw units but in a flag. Without `units` only the form is judged. UsageError.
 */
export async function givenAmount(
  setting: AmountSetting | undefined,
  units?: () => Promise<readonly PinnedUnits[]>,
) {
  if (setting === undefined) return undefined
  const { value, from, origin = 'flag' } = setting
  const written = parseAmount(value, from, origin !== 'flag')
  if (written.unit === 'raw') return { raw: toRaw(written, []).raw, tokens: undefined }
  if (units === undefined) return undefined
  const { raw, tokens } = toRaw(written, await units())
  return { raw, tokens: tokens.map(({ address }) => address) }
}

/** In wei: raw units, or the chain's coin where a profile knows it. UsageError. */
export function maxFeeWei(setting: AmountSetting | undefined, chainId: number) {
  if (setting === undefined) return undefined
  const { value, from, origin = 'flag' } = setting
  const symbol = coinOf(chainId)
  const coins = symbol === undefined ? [] : [{ symbol, decimals: 18 }]
  return toRaw(parseAmount(value, from, origin !== 'flag', symbol?.toLowerCase()), coins).raw
}

export function commonTokens(amounts: readonly (GivenAmount | undefined)[]) {
  const lists = amounts.flatMap((one) => (one?.tokens === undefined ? [] : [one.tokens]))
  return lists.length === 0
    ? undefined
    : lists.reduce((left, right) => left.filter((address) => right.includes(address)))
}

/** Where no node is asked: by a built-in profile or the trust file. */
export const pinnedToken = (
  { chain_id: chainId, token_info: info }: Pick<Trust, 'chain_id' | 'token_info'>,
  token: Address,
) => knownToken(chainId, token) ?? info?.[token]

/**
 * Of the pinned tokens those that are known: by `pinnedToken`, --context, or the node. `pins`
 * stand in
 * for the session's.
 */
export async function pinnedUnits(
  context: Context,
  session: Session,
  contextFile?: string,
  pins?: Trust,
) {
  const trust = pins ?? (await session.trust())
  const known = trust.tokens.map((address) => ({ address, units: pinnedToken(trust, address) }))
  if (known.every(({ units }) => units !== undefined)) return known.flatMap(withAddress)
  const chain = await session.chain()
  const others = chain === undefined ? fileTokens : await chainTokens(chain, trust)
  return Promise.all(
    known.map(async (one) => ({ ...one, units: one.units ?? (await others(one.address)) })),
  ).then((all) => all.flatMap(withAddress))

  async function fileTokens(address: Address) {
    // stdin is read once, for the signature.
    if (contextFile === undefined || contextFile === '-') return undefined
    const json = parseJson(await readInput(context, contextFile), contextFile)
    return tokenIn(json, address)
  }
}

const withAddress = ({ address, units }: { address: Address; units: TokenUnits | undefined }) =>
  units === undefined ? [] : [{ address, symbol: units.symbol, decimals: units.decimals }]

async function chainTokens(
  chain: Chain,
  trust: Trust,
): Promise<(address: Address) => Promise<TokenUnits>> {
  const [{ pinnedHeads }, { readToken }, { onChain }] = await Promise.all([
    import('#client/funds/funds'),
    import('#chain/questions'),
    import('#chain/unavailable'),
  ])
  const { latest } = await pinnedHeads(chain, trust)
  return (address) => onChain(() => readToken(chain, address, latest.number))
}
