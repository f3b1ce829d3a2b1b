/**
 * What every campaign under test/campaign shares. `CAMPAIGN_SCALE` multiplies its counts: 0.3 by
 * default, 1 for all of them. `CAMPAIGN_SEED` moves its first seed, and `CAMPAIGN_REPORT=1` prints
 * the figures of each: `npm run campaign`, one of them with `npm run campaign -- <name>`.
 */
import type fc from 'fast-check'

const number = (name: string, fallback: number, isFine: (value: number) => boolean): number => {
  const text = process.env[name]
  const value = text === undefined ? fallback : Number(text)
  if (!isFine(value))
    throw new RangeError(`${name} is ${text}: it must be a number such as ${fallback}`)
  return value
}

const scale = number('CAMPAIGN_SCALE', 0.3, (value) => value > 0)

export const firstSeed = number('CAMPAIGN_SEED', 1, Number.isSafeInteger)

export const scaled = (count: number): number => Math.max(1, Math.round(count * scale))

export const sampleOf = <Row>(rows: readonly Row[], oneIn: number): readonly Row[] =>
  scale >= 1 ? rows : rows.filter((_row, index) => index % oneIn === firstSeed % oneIn)

export const runs = (count: number): fc.Parameters<unknown> => ({
  numRuns: scaled(count),
  seed: firstSeed,
})

export function figures(campaign: string, found: Readonly<Record<string, number | string>>): void {
  if (process.env.CAMPAIGN_REPORT === undefined) return
  const told = Object.entries(found).map(
    ([name, value]) =>
      `${name} ${typeof value === 'number' ? value.toLocaleString('en-US') : value}`,
  )
  process.stderr.write(`campaign ${campaign}: ${told.join(', ')}\n`)
}
