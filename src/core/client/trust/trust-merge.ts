/** Adding to pins without losing any (contract §7, trust.json; R9). */
import { instant } from '../../protocol/candidate.js'
import type { Trust } from './trust-file.js'

/** `changed` and `added` name each pin, for people. */
export interface MergedPins {
  readonly trust: Trust
  /** `signed_proposer: 0x1… becomes 0x2…`: a pin that now says something else. */
  readonly changed: readonly string[]
  readonly added: readonly string[]
}

/**
 * These pins and those of `more`: lists and records are joined, and where both pin one thing the
 * later word holds. Pins of another chain have nothing to do with these: they take their place, and
 * every one of these is named as changed.
 */
export function mergePins(current: Trust, more: Trust): MergedPins {
  const [before, after] = [pinsOf(current), pinsOf(more)]
  const added = linesOf(after)
  if (current.chain_id !== more.chain_id) {
    const chain = `chain_id: ${current.chain_id} becomes ${more.chain_id}`
    return {
      trust: more,
      changed: [chain, ...linesOf(before).map((line) => `${line} is dropped`)],
      added,
    }
  }
  const changed = [...after].flatMap(([name, says]) => {
    const was = before.get(name)
    // A key that ends is a narrower pin; one that ends no more, or is another, is a change.
    if (was === undefined || was === says || says.startsWith(`${was} until `)) return []
    return [`${name}: ${was} becomes ${says}`]
  })
  const both = <T>(ones: readonly T[], others: readonly T[]) => [...new Set([...ones, ...others])]
  const records = (['slugs', 'token_info', 'receipt_keys', 'implementations'] as const).filter(
    (field) => (current[field] ?? more[field]) !== undefined,
  )
  const kinds = new Map(
    [...current.requesters, ...more.requesters].map(({ address, kind }) => [address, kind]),
  )
  const trust: Trust = {
    ...current,
    ...more,
    oracles: both(current.oracles, more.oracles),
    tokens: both(current.tokens, more.tokens),
    requesters: [...kinds].map(([address, kind]) => ({ address, kind })),
    ...Object.fromEntries(
      records.map((field) => [field, { ...current[field], ...more[field] }] as const),
    ),
  }
  const known = new Set(linesOf(before))
  return { trust, changed, added: added.filter((line) => !known.has(line)) }
}

/** Every pin by its name, with what it says beyond that. */
function pinsOf(trust: Trust): ReadonlyMap<string, string> {
  const { token_info = {}, implementations = {}, receipt_keys = {} } = trust
  const until = (exp: number | undefined) => exp && instant(exp * 1_000)
  return new Map<string, string>([
    ...(['permit2', 'signed_proposer'] as const).map((field) => [field, trust[field]] as const),
    ...trust.oracles.map((address) => [`oracle ${address}`, ''] as const),
    ...trust.requesters.map(({ address, kind }) => [`requester ${address}`, kind] as const),
    ...trust.tokens.map((address) => [`token ${address}`, ''] as const),
    ...Object.entries(trust.slugs).map(([slug, id]) => [`slug ${slug}`, id] as const),
    ...Object.entries(token_info).map(
      ([token, { symbol, decimals }]) =>
        [`token_info ${token}`, `${symbol} with ${decimals} decimals`] as const,
    ),
    ...Object.entries(implementations).map(
      ([address, { implementation, code_hash }]) =>
        [`implementation of ${address}`, `${implementation} with code hash ${code_hash}`] as const,
    ),
    ...Object.entries(receipt_keys).flatMap(([kid, { x, exp }]) => [
      [`receipt_keys ${kid}`, exp === undefined ? x : `${x} until ${until(exp)}`] as const,
      ...(exp === undefined ? [] : [[`end of receipt key ${kid}: ${until(exp)}`, ''] as const]),
    ]),
  ])
}

/** What may be added to pins, one a line. */
const linesOf = (pins: ReadonlyMap<string, string>): readonly string[] =>
  [...pins.keys()]
    .filter((name) => name !== 'permit2' && name !== 'signed_proposer')
    .map((name) => name.replace(/^receipt_keys /, 'receipt key '))
