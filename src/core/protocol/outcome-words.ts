import { outcomeKeys } from './proposal.js'
import type { Outcome, OutcomeKey } from './schema.js'

export type Labels = Readonly<Record<OutcomeKey, string>>

type Labelled = readonly Pick<Outcome, 'outcome' | 'label'>[]

export function labelsOf(outcomes: Labelled): Labels {
  const of = (key: OutcomeKey) => {
    const label = labelIn(outcomes, key)
    if (label === null) throw new RangeError(`${key} has no label`)
    return label
  }
  return { p1: of('p1'), p2: of('p2'), p3: of('p3') }
}

export const answerText = (outcome: string, label: string | null | undefined) =>
  label == null ? outcome : `${label} (${outcome})`

export const labelIn = (outcomes: Labelled | undefined, outcome: string | null) =>
  outcomes?.find((one) => one.outcome === outcome)?.label ?? null

export const answersText = (outcomes: Labelled) =>
  outcomes.map(({ outcome, label }) => answerText(outcome, label)).join(', ')

export const folded = (text: string): string =>
  text.normalize('NFC').replace(/\s+/g, ' ').trim().toLowerCase()

/** Also both as a screen shows them (contract §9). Without labels only a key means anything. */
export function outcomesNamed(word: string, labels?: Labels): readonly OutcomeKey[] {
  const said = folded(word)
  if (labels === undefined) return outcomeKeys.filter((key) => key === said)
  const isBinary = [folded(labels.p1), folded(labels.p2)].sort().join() === 'no,yes'
  const isLabel = isBinary || (said !== 'yes' && said !== 'no')
  return outcomeKeys.filter((key) => {
    const label = folded(labels[key])
    return said === key || said === `${label} (${key})` || (isLabel && said === label)
  })
}

export function outcomeNamed(word: string, labels?: Labels): OutcomeKey | undefined {
  const [found, ...others] = outcomesNamed(word, labels)
  return others.length === 0 ? found : undefined
}

/** `undefined`: a question may have it as its answer. */
export function wordFault(word: string) {
  const said = folded(word)
  if (said === '') return 'is empty'
  // p4 is the oracle's "too early", which nobody can propose (§2.2).
  return /^p\d+$/.test(said) && outcomeNamed(said) === undefined
    ? 'is none of p1, p2, p3'
    : undefined
}
