/** Dates that a question names in words: a hint that its event is still ahead, and never that it is over. */

const months = 'jan feb mar apr may jun jul aug sep oct nov dec'.split(' ')
const month =
  '(jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)'
const forms = [
  // 2026-11-30
  /\b(?<year>20\d\d)-(?<month>\d\d)-(?<day>\d\d)\b/g,
  // November 30, 2026; Nov 30th; March 5
  new RegExp(
    `\\b(?<name>${month})\\.? (?<day>\\d{1,2})(?:st|nd|rd|th)?\\b(?:,? (?<year>20\\d\\d)\\b)?`,
    'gi',
  ),
  // 30 November 2026
  new RegExp(
    `\\b(?<day>\\d{1,2})(?:st|nd|rd|th)? (?<name>${month})\\b,?(?: (?<year>20\\d\\d)\\b)?`,
    'gi',
  ),
]

const dayMs = 86_400_000
/** Text that is searched, in characters. */
const searched = 20_000

/**
 * Days that a text names, Unix milliseconds of their end in UTC. One without a year is the nearest
 * such day to `aboutMs`.
 */
export function datesIn(text: string, aboutMs: number): readonly number[] {
  return forms.flatMap((form) =>
    [...text.slice(0, searched).matchAll(form)].flatMap(({ groups = {} }) => {
      const { year, month: number, name, day } = groups
      const index =
        name === undefined ? Number(number) - 1 : months.indexOf(name.slice(0, 3).toLowerCase())
      const about = new Date(aboutMs).getUTCFullYear()
      const years = year === undefined ? [about - 1, about, about + 1] : [Number(year)]
      const ends = years.flatMap((one) => endOf(one, index, Number(day)) ?? [])
      return ends.length === 0 ? [] : [ends.reduce((best, one) => nearer(one, best, aboutMs))]
    }),
  )
}

const nearer = (one: number, other: number, to: number) =>
  Math.abs(one - to) < Math.abs(other - to) ? one : other

/** `undefined` for a day that no calendar has. */
function endOf(year: number, month: number, day: number): number | undefined {
  const start = new Date(Date.UTC(year, month, day))
  return start.getUTCMonth() === month && start.getUTCDate() === day
    ? start.getTime() + dayMs
    : undefined
}
