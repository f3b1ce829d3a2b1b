/**
 * Example questions of a dev chain. Texts as long and as shaped as real ones (domain §5.3), the
 * same on every chain, so that slugs and question ids are stable.
 */

export type DevOutcome = 'p1' | 'p2' | 'p3'

/** A question before it is asked. `text` is what the adapter gets; it adds its own suffix. */
export interface DevQuestionText {
  readonly slug: string
  readonly text: string
  readonly outcomes: readonly DevOutcome[]
}

const cities = [
  ['Porto', 'Atlético do Porto'],
  ['Bergen', 'Bergen Rovers'],
  ['Leeds', 'Leeds Albion'],
  ['Osaka', 'Osaka Harbour'],
  ['Quito', 'Deportivo Quito Norte'],
  ['Tampa', 'Tampa Lightkeepers'],
  ['Utrecht', 'Utrecht Domstad'],
  ['Zagreb', 'Zagreb Medvedgrad'],
] as const

const days = ['Friday', 'Saturday', 'Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday'] as const

type Labels = readonly [p1: string, p2: string, p3?: string]

interface Draft {
  readonly title: string
  readonly slug: string
  readonly rules: string
  readonly labels: Labels
}

const commonRules =
  'The primary resolution source for this market will be the official record named above as it stands 24 hours after the end of the ' +
  'period; a consensus of credible reporting may be used where the record is late or incomplete. Corrections published after that time ' +
  'will not be considered. If the event is postponed, the market stays open until it has taken place, but not longer than seven days ' +
  'after the original date. All times are local to the place named in the title. Rounding follows the source; where the source gives ' +
  'several values, the first one published in the final record applies.'

/**
 * One of six kinds of question about a place, in turn; the kinds differ in labels and in whether
 * 50-50 is an answer.
 */
function draft(
  kind: number,
  [city, team]: readonly [string, string],
  [, rival]: readonly [string, string],
  day: string,
): Draft {
  const place = city.toLowerCase()
  const on = day.toLowerCase()
  switch (kind) {
    case 0:
      return {
        title: `Will it rain in ${city} on ${day}?`,
        slug: `will-it-rain-in-${place}-on-${on}`,
        rules: `This market will resolve to "Yes" if the national weather service records at least 0.2 millimetres of precipitation at its main station in ${city} between 00:00 and 23:59 on ${day}. Otherwise, this market will resolve to "No".`,
        labels: ['No', 'Yes', 'unknown/50-50'],
      }
    case 1:
      return {
        title: `${team} vs. ${rival}: who wins on ${day}?`,
        slug: `${slugOf(team)}-vs-${slugOf(rival)}-${on}`,
        rules: `In the upcoming cup match scheduled for ${day}: if ${team} advance, this market will resolve to "${team}". If ${rival} advance, this market will resolve to "${rival}". If the match is cancelled with no new date, this market will resolve 50-50. Extra time and penalties count.`,
        labels: [rival, team, 'unknown/50-50'],
      }
    case 2:
      return {
        title: `Will the ${city} tram network run on ${day}?`,
        slug: `will-the-${place}-tram-run-on-${on}`,
        rules: `This market will resolve to "Yes" if the operator's timetable shows at least one scheduled tram in regular service in ${city} on ${day} and the operator's public log confirms its departure. Otherwise, this market will resolve to "No".`,
        labels: ['No', 'Yes', 'unknown'],
      }
    case 3:
      // Binary payouts only, as in a group of mutually exclusive questions (domain §5.1): 50-50 is
      // not offered.
      return {
        title: `Will the ${city} council pass the budget by ${day}?`,
        slug: `will-the-${place}-council-pass-the-budget-by-${on}`,
        rules: `This market will resolve to "Yes" if the city council of ${city} adopts next year's budget in a final vote before the end of ${day}, as recorded in its published minutes. Otherwise, this market will resolve to "No".`,
        labels: ['No', 'Yes'],
      }
    case 4:
      return {
        title: `Highest temperature in ${city} above 15°C on ${day}?`,
        slug: `highest-temperature-in-${place}-above-15c-on-${on}`,
        rules: `This market will resolve to "Yes" if the highest temperature recorded at the airport station of ${city} on ${day} is above 15.0 degrees Celsius. Otherwise, this market will resolve to "No".`,
        labels: ['No', 'Yes', 'unknown/50-50'],
      }
    default:
      return {
        title: `Will ${team} sell out their stadium on ${day}?`,
        slug: `will-${slugOf(team)}-sell-out-on-${on}`,
        rules: `This market will resolve to "Yes" if the attendance announced by ${team} for their home match on ${day} equals or exceeds the stadium's published capacity. Otherwise, this market will resolve to "No".`,
        labels: ['No', 'Yes', 'unknown/50-50'],
      }
  }
}

function slugOf(name: string): string {
  return name
    .normalize('NFD')
    .replace(/\p{M}/gu, '')
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
}

/**
 * The text of a question as market makers write it. A missing third label means that 50-50 is not
 * an answer.
 */
export function exampleText(title: string, rules: string, [p1, p2, p3]: Labels): string {
  const answers =
    p3 === undefined
      ? `p1: 0, p2: 1. Where p1 corresponds to ${p1}, p2 to ${p2}.`
      : `p1: 0, p2: 1, p3: 0.5. Where p1 corresponds to ${p1}, p2 to ${p2}, p3 to ${p3}.`
  return (
    `q: title: ${title}, description: ${rules} ${commonRules} res_data: ${answers} ` +
    'Updates made by the question creator via the bulletin board should be considered.'
  )
}

const kinds = 6

/** The n-th example question, from 0. Slugs and texts never repeat. */
export function exampleQuestion(n: number): DevQuestionText {
  const place = Math.floor(n / kinds) % cities.length
  const series = Math.floor(n / (kinds * cities.length))
  // Kind and day move together, so that neighbours differ in all of kind, day and (after six)
  // place.
  const day = days[(n + series) % days.length] ?? 'Friday'
  const home = cities[place] ?? cities[0]
  const away = cities[(place + 1) % cities.length] ?? cities[1]
  const { title, slug, rules, labels } = draft(n % kinds, home, away, day)
  const edition = series === 0 ? '' : ` (edition ${series + 1})`
  return {
    slug: series === 0 ? slug : `${slug}-${series + 1}`,
    text: exampleText(`${title}${edition}`, rules, labels),
    outcomes: labels.length === 3 ? ['p1', 'p2', 'p3'] : ['p1', 'p2'],
  }
}

/**
 * Which outcomes a text allows: p3 only where the last `res_data:` lists `p3: 0.5` (domain §5.3).
 */
export function listedOutcomes(text: string): readonly DevOutcome[] {
  const answers = text.slice(Math.max(text.lastIndexOf('res_data:'), 0))
  return /p3: 0\.5\b/.test(answers) ? ['p1', 'p2', 'p3'] : ['p1', 'p2']
}
