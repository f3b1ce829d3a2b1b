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
const charging = (does: string, changes: Partial<Meter>): Fault => ({
  ...fault('§8 rule 2', does, through),
  meter: { ...meter, ...changes },
})
const charges: readonly Fault[] = [
  charging('charges nothing for what it refuses', {
    refusedCost: () => 0,
  }),
  charging('has a budget of its own for submissions', {
    account: (call) => (isSingle(call) || isBatch(call) ? 'submissions' : 'all'),
  }),
  charging('lets a batch through while an item is left', {
    lets: (_items, left) => left > 0,
  }),
  charging('never refuses for the budget', { lets: () => true }),
  charging('refuses no single call', {
    lets: (items, left) => items === 1 || items <= left,
  }),
]

const refused = (
  does: string,
  change: (json: Json, headers: Headers) => Response,
  section = '§7',
): Fault =>
  fault(section, does, () =>
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
  refused('does not say when to come back', (_json, headers) =>
    answer(429, said('too much'), without(headers, 'retry-after')),
  ),
  refused('says to come back soon', (_json, headers) =>
    answer(429, said('too much'), [...without(headers, 'retry-after'), ['retry-after', 'soon']]),
  ),
  refused('answers 503 for the budget', (_json, headers) =>
    answer(503, { error: { code: 'busy', detail: 'busy' } }, headers),
  ),
  refused('answers 403 for the budget', (_json, headers) =>
    answer(403, { error: { code: 'quota', detail: 'spent' } }, headers),
  ),
  refused(
    'answers 200 with no results for the budget',
    (_json, headers) => answer(200, { results: [] }, headers),
    '§8',
  ),
  refused(
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
  fault('§7', 'stays shut after the delay that it told', () => {
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
