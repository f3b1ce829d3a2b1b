/** Adding to pins without losing any (contract §7, trust.json; R9). */
import type { Implementation } from '../../chain/implementations.js'
import type { TokenUnits } from '../../protocol/amount.js'
import { instant } from '../../protocol/candidate.js'
import type { Address } from '../../protocol/schema.js'
import type { Trust } from './trust-file.js'

/**
 * Pins with others added. `changed` and `added` name each field with its values, for people; what
 * was pinned before is never dropped.
 */
export interface MergedPins {
  readonly trust: Trust
  /** `signed_proposer: 0x1… becomes 0x2…`: a pin that now says something else. */
  readonly changed: readonly string[]
  readonly added: readonly string[]
}

/**
 * These pins and those of `more`: lists and slugs are joined, and where both pin one field the
 * later word holds. Pins of another chain have nothing to do with these: they take their place, and
 * every one of these is named as changed.
 */
export function mergePins(current: Trust, more: Trust): MergedPins {
  if (current.chain_id !== more.chain_id) {
    const gone = [...lines(current)].map((line) => `${line} is dropped`)
    return {
      trust: more,
      changed: [`chain_id: ${current.chain_id} becomes ${more.chain_id}`, ...gone],
      added: [...lines(more)],
    }
  }
  const changed: string[] = []
  for (const field of ['permit2', 'signed_proposer'] as const) {
    if (current[field] !== more[field])
      changed.push(`${field}: ${current[field]} becomes ${more[field]}`)
  }
  const kinds = new Map(more.requesters.map(({ address, kind }) => [address, kind]))
  for (const { address, kind } of current.requesters) {
    const now = kinds.get(address)
    if (now !== undefined && now !== kind)
      changed.push(`requester ${address}: ${kind} becomes ${now}`)
  }
  for (const [slug, id] of Object.entries(current.slugs)) {
    if (Object.hasOwn(more.slugs, slug) && more.slugs[slug] !== id)
      changed.push(`slug ${slug}: ${id} becomes ${more.slugs[slug]}`)
  }
  for (const [token, now] of Object.entries(more.token_info ?? {})) {
    const was = current.token_info?.[token as Address]
    if (was !== undefined && infoText(was) !== infoText(now))
      changed.push(`token_info ${token}: ${infoText(was)} becomes ${infoText(now)}`)
  }
  for (const [address, now] of Object.entries(more.implementations ?? {})) {
    const was = current.implementations?.[address as Address]
    if (was !== undefined && codeText(was) !== codeText(now))
      changed.push(`implementation of ${address}: ${codeText(was)} becomes ${codeText(now)}`)
  }
  for (const [kid, now] of Object.entries(more.receipt_keys ?? {})) {
    const was = current.receipt_keys?.[kid]
    // A key that ends is a narrower pin; one that ends no more, or is another, is a change.
    const isNarrowed = was?.x === now.x && was.exp === undefined
    if (was !== undefined && !isNarrowed && keyText(was) !== keyText(now))
      changed.push(`receipt_keys ${kid}: ${keyText(was)} becomes ${keyText(now)}`)
  }
  const before = new Set(lines(current))
  const trust: Trust = {
    ...current,
    ...more,
    oracles: [...new Set([...current.oracles, ...more.oracles])],
    tokens: [...new Set([...current.tokens, ...more.tokens])],
    requesters: [
      ...current.requesters.map((one) => ({ ...one, kind: kinds.get(one.address) ?? one.kind })),
      ...more.requesters.filter(
        ({ address }) => !current.requesters.some((one) => one.address === address),
      ),
    ],
    slugs: { ...current.slugs, ...more.slugs },
    ...((current.token_info ?? more.token_info) && {
      token_info: { ...current.token_info, ...more.token_info },
    }),
    ...((current.receipt_keys ?? more.receipt_keys) && {
      receipt_keys: { ...current.receipt_keys, ...more.receipt_keys },
    }),
    ...((current.implementations ?? more.implementations) && {
      implementations: { ...current.implementations, ...more.implementations },
    }),
  }
  return { trust, changed, added: [...lines(more)].filter((line) => !before.has(line)) }
}

/**
 * What may be added to pins, one a line; a kind or an id that differs is a change, not an addition.
 */
function* lines(trust: Trust): Generator<string> {
  const {
    oracles,
    requesters,
    tokens,
    slugs,
    token_info = {},
    implementations = {},
    receipt_keys = {},
  } = trust
  for (const address of oracles) yield `oracle ${address}`
  for (const { address } of requesters) yield `requester ${address}`
  for (const address of tokens) yield `token ${address}`
  for (const slug of Object.keys(slugs)) yield `slug ${slug}`
  for (const token of Object.keys(token_info)) yield `token_info ${token}`
  for (const address of Object.keys(implementations)) yield `implementation of ${address}`
  for (const [kid, { exp }] of Object.entries(receipt_keys)) {
    yield `receipt key ${kid}`
    if (exp !== undefined) yield `end of receipt key ${kid}: ${instant(exp * 1_000)}`
  }
}

const infoText = ({ symbol, decimals }: TokenUnits) => `${symbol} with ${decimals} decimals`

const codeText = ({ implementation, code_hash }: Implementation) =>
  `${implementation} with code hash ${code_hash}`

const keyText = ({ x, exp }: { readonly x: string; readonly exp?: number | undefined }) =>
  exp === undefined ? x : `${x} until ${instant(exp * 1_000)}`
