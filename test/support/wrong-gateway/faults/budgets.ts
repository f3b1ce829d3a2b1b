/** §8 and §7 on 429: gateways that charge wrongly, or say wrongly when to come back. */
import {
  answer,
  answers,
  type Call,
  type Fault,
  fault,
  isBatch,
  isContexts,
  isEligibility,
  isSigningData,
  isSingle,
  isStatus,
  isStatuses,
  type Json,
} from '../between.js'
import { type Meter, meter } from '../meter.js'

const through = () => (request: Request, next: (request: Request) => Promise<Response>) =>
  next(request)
const charging = (rule: string, does: string, changes: Partial<Meter>): Fault => ({
  ...fault('§8 rule 2', rule, does, through),
  meter: { ...meter, ...changes },
})
const free = (which: (call: Call, status: number) => boolean) => ({
  cost: (call: Call, status: number, items: number) => (which(call, status) ? 0 : items),
})
const costs = (which: (call: Call) => boolean, cost: (items: number) => number) => ({
  cost: (call: Call, _status: number, items: number) => (which(call) ? cost(items) : items),
})
const one = () => 1

const charges: readonly Fault[] = [
  charging('eligibility shares the budget', 'charges nothing for eligibility', free(isEligibility)),
  charging(
    'single calls share the budget',
    'charges nothing for signing data',
    free(isSigningData),
  ),
  charging('single calls share the budget', 'charges nothing for a submission', free(isSingle)),
  charging('single calls share the budget', 'charges nothing for a status', free(isStatus)),
  charging(
    'batch preparation is charged by item count',
    'charges nothing for contexts',
    free(isContexts),
  ),
  charging(
    'batch preparation is charged by item count',
    'charges one item for all contexts of a call',
    costs(isContexts, one),
  ),
  charging(
    'batch submission is charged by item count',
    'charges nothing for a batch',
    free(isBatch),
  ),
  charging(
    'batch submission is charged by item count',
    'charges one item for a batch',
    costs(isBatch, one),
  ),
  charging(
    'batch submission is charged by item count',
    'charges half of a batch',
    costs(isBatch, (items) => Math.ceil(items / 2)),
  ),
  charging(
    'a polling pass is charged by item count',
    'charges nothing for a batch of statuses',
    free(isStatuses),
  ),
  charging(
    'a polling pass is charged by item count',
    'charges one item for a batch of statuses',
    costs(isStatuses, one),
  ),
  charging(
    'charged by item count',
    'charges two items for each of a batch',
    costs(
      (call) => isBatch(call) || isContexts(call) || isStatuses(call),
      (items) => 2 * items,
    ),
  ),
  charging(
    'rejected attempts charge too (rule 4)',
    'charges nothing for what is malformed',
    free((_call, status) => status === 422),
  ),
  charging(
    'rejected attempts charge too (rule 4)',
    'charges nothing for a submission without a version',
    free((call) => isSingle(call) && call.body.version === undefined),
  ),
  charging(
    'rejected attempts charge too (rule 4)',
    'charges nothing for a signature that does not authorize',
    free((_call, status) => status === 403),
  ),
  charging('rate-limited attempts charge too (rule 4)', 'charges nothing for what it refuses', {
    refusedCost: () => 0,
  }),
  charging('one shared budget', 'has a budget of its own for preparation', {
    account: (call) => (isContexts(call) || isSigningData(call) ? 'preparation' : 'all'),
  }),
  charging('one shared budget', 'has a budget of its own for statuses', {
    account: (call) => (isStatus(call) || isStatuses(call) ? 'statuses' : 'all'),
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
