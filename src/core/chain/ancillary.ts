/** What a request's text says of its outcomes (domain §5.3, contract §3). */
import type { Hex } from '#ports'
import { conventionalLabel, outcomeKeys, priceOf } from '#protocol/proposal'
import type { Outcome, OutcomeKey } from '#protocol/schema'
import { fromHex } from '#protocol/witness'

const longestLabel = 80
const longestPhrase = 200

const expectedValue: Record<OutcomeKey, RegExp> = {
  p1: /^0+(\.0+)?$/,
  p2: /^0*1(\.0+)?$/,
  p3: /^0*\.50*$/,
}

/**
 * The *last* `res_data:` counts (§2.2). p3 needs `p3: 0.5` there and a requester that can settle
 * it.
 */
export function outcomesOf(
  ancillaryData: Hex,
  rules: { readonly settlesHalf: boolean; readonly binary: boolean },
): readonly Outcome[] {
  const text = new TextDecoder().decode(fromHex(ancillaryData))
  const at = text.lastIndexOf('res_data:')
  const section = at < 0 ? '' : text.slice(at + 'res_data:'.length)
  const values = valuesIn(section)
  const labels = labelsIn(section)
  return outcomeKeys.map((key) => {
    const value = values.get(key)
    const agrees = value !== undefined && expectedValue[key].test(value)
    const allowed = key === 'p3' ? agrees && rules.settlesHalf : agrees || value === undefined
    return {
      outcome: key,
      label: labels.get(key) || conventionalLabel[key],
      price: priceOf[key],
      allowed: rules.binary && allowed,
    }
  })
}

const longestTitle = 200
/** In bytes. */
const readForTitle = 2_048

/** Outside text (R20). */
export function titleOf(ancillaryData: Hex) {
  const beginning = ancillaryData.slice(0, 2 + 2 * readForTitle) as Hex
  const text = new TextDecoder().decode(fromHex(beginning))
  const [, raw = ''] =
    /^\s*(?:q:\s*)?title:([\s\S]*?)(?:,\s*(?:description|res_data):|$)/.exec(text) ?? []
  const title = plainText(raw)
  if (title.length <= longestTitle) return title === '' ? undefined : title
  return `${cutText(title, longestTitle - 1).trimEnd()}…`
}

function valuesIn(section: string) {
  const sentence = section.search(/\bwhere\b/i)
  const list = sentence < 0 ? section : section.slice(0, sentence)
  return firstOf(
    [...list.matchAll(/\b(p[1-4])\s*:\s*(-?\d*(?:\.\d+)?)/g)].map(([, key, value]) => [key, value]),
  )
}

const firstOf = <T>(pairs: readonly (readonly [string | undefined, T])[]) =>
  new Map(pairs.toReversed())

function labelsIn(section: string) {
  const markers = [...section.matchAll(/\b(p[1-4])\s+(?:corresponds\s+)?to\s+/g)]
  const found = markers.map((marker, index) => {
    const [whole, key] = marker
    const from = marker.index + whole.length
    const rest = section.slice(from, markers[index + 1]?.index)
    return [key, cleanLabel(firstPhrase(rest))] as const
  })
  return firstOf(found.filter(([, label]) => label !== ''))
}

/** "St. Louis Blues" stays whole. */
function firstPhrase(rest: string) {
  const end = rest.search(
    /,initializer:|[\r\n]|\.\s*$|\.,initializer:|\.\s*[\r\n]|\.\s+\p{Lu}\p{Ll}*\s+\p{Ll}/u,
  )
  return end < 0 ? rest : rest.slice(0, end)
}

/** Cut first: a longer text must not cost more (R17). */
function cleanLabel(raw: string) {
  const text = withoutTail(plainText(cutText(raw, longestPhrase))).replace(/^an?\s+/i, '')
  return text.length > longestLabel ? `${cutText(text, longestLabel - 1).trimEnd()}…` : text
}

function withoutTail(text: string) {
  const bare = withoutSeparators(text)
  const conjunction = /[\s,;](?:and|or)$/i.exec(bare)
  return conjunction ? withoutSeparators(bare.slice(0, conjunction.index)) : bare
}

function withoutSeparators(text: string) {
  let end = text.length
  while (end > 0 && /[\s,;]/.test(text.charAt(end - 1))) end -= 1
  return text.slice(0, end)
}

function cutText(text: string, length: number) {
  return text.slice(0, length).replace(/[\ud800-\udbff]$/, '')
}

/** Outside text made fit for one line (R20). Bytes that are signed never pass here. */
export function plainText(raw: string) {
  return raw
    .replace(/[\s\u2028\u2029]+/g, ' ')
    .replace(
      /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]/g,
      '',
    )
    .trim()
}
