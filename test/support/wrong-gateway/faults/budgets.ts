/** §8 and §7 on 429: gateways that charge wrongly, or say wrongly when to come back. */
import {
  answer,
  answers,
  type Fault,
  fault,
  isBatch,
  isEligibility,
  isSingle,
  type Json,
} from '../between.js'
import { type Meter, meter } from '../meter.js'

const through = () => (request: Request, next: (request: Request) => Promise<Response>) =>
  next(request)
const charging = (rule: string, does: string, changes: Partial<Meter>): Fault => ({
  ...fault('§8 rule 2', rule, does, through),
  meter: { ...meter, ...changes },
})
const charges: readonly Fault[] = [
  charging('rate-limited attempts charge too (rule 4)', 'charges nothing for what it refuses', {
    refusedCost: () => 0,
  }),
  charging('one shared budget', 'has a budget of its own for submissions', {
    account: (call) => (isSingle(call) || isBatch(call) ? 'submissions' : 'all'),
  }),
  charging('a budget of items per window', 'lets a batch through while an item is left', {
    lets: (_items, left) => left > 0,
  }),
  charging('a budget of items per window', 'never refuses for the budget', { lets: () => true }),
  charging('a budget of items per window', 'refuses no single call', {
    lets: (items, left) => items === 1 || items <= left,
  }),
]

const refused = (
  rule: string,
  does: string,
  change: (json: Json, headers: Headers) => Response,
  section = '§7',
): Fault =>
  fault(section, rule, does, () =>
    answers(
      (_call, code) => code === 429,
      (json, _call, headers) => change(json, headers),
    ),
  )
const without = (headers: Headers, ...names: readonly string[]) => {
  const told = new Headers(headers)
  for (const name of names) told.delete(name)
  return told
}
const said = (detail: string) => ({ error: { code: 'rate_limited', detail } })

const refusals: readonly Fault[] = [
  refused('429 tells the delay', 'does not say when to come back', (_json, headers) =>
    answer(429, said('too much'), without(headers, 'retry-after')),
  ),
  refused('429 tells the delay', 'says to come back soon', (_json, headers) =>
    answer(429, said('too much'), [...without(headers, 'retry-after'), ['retry-after', 'soon']]),
  ),
  refused('429: rate limited', 'answers 503 for the budget', (_json, headers) =>
    answer(503, { error: { code: 'busy', detail: 'busy' } }, headers),
  ),
  refused('429: rate limited', 'answers 403 for the budget', (_json, headers) =>
    answer(403, { error: { code: 'quota', detail: 'spent' } }, headers),
  ),
  refused(
    '§4.2 rule 4: no per-item results',
    'answers 200 with no results for the budget',
    (_json, headers) => answer(200, { results: [] }, headers),
    '§8',
  ),
  refused(
    '429 before admission (rule 5)',
    'tells 429 as text',
    (_json, headers) =>
      new Response('slow down', {
        status: 429,
        headers: {
          ...Object.fromEntries(without(headers, 'content-type', 'retry-after')),
          'content-type': 'text/plain',
        },
      }),
    '§8',
  ),
  fault('§7', '429 tells the delay', 'stays shut after the delay that it told', () => {
    let shut = false
    return answers(
      (call, status) => {
        shut ||= status === 429
        return shut && isEligibility(call)
      },
      () => answer(429, said('too much'), { 'retry-after': '1' }),
    )
  }),
]

export const budgetFaults: readonly Fault[] = [...charges, ...refusals]
