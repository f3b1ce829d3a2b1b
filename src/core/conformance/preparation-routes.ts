/** Rules of §2.1, §2.2 and §4.1: outcomes, and what the v1 preparation takes. */
import { outcomeKeys, priceOf } from '../protocol/proposal.js'
import type { Body } from './bench.js'
import { halfIsAllowed } from './contexts.js'
import { outcomesIn, prepare, prepared, withPermit } from './preparation.js'
import { at, expectStatus, expectThat, given, malformed, NotSeen, type Rule, rule } from './rule.js'
import { integer, isWord } from './shapes.js'

/** The body of a preparation is that of a proposal without signature (§2.1). */
const bodyCases: readonly (readonly [
  id: string,
  says: string,
  wrong: string,
  change: (body: Body) => unknown,
])[] = [
  [
    '2.1-prepare-outcome',
    'outcome is p1, p2 or p3',
    'outcome p4',
    (body) => ({ ...body, outcome: 'p4' }),
  ],
  [
    '2.1-prepare-version',
    'version is required',
    'no version',
    ({ version: _version, ...body }) => body,
  ],
  [
    '2.1-prepare-max-payment',
    'max_payment must be "0"',
    'max_payment 1',
    (body) => ({ ...body, max_payment: '1' }),
  ],
]

const outcomeRules: readonly Rule[] = [
  rule('2.2-outcome-prices', '§2.2', 'read', 'p1 is 0, p2 is 1e18, p3 is 0.5e18', async (bench) => {
    const seen = await prepared(bench)
    for (const { key, price } of outcomesIn(seen.json))
      expectThat(integer(price) === priceOf[key], seen, `outcomes give ${key} another price`)
    return 'as mapped'
  }),
  rule(
    '2.2-outcome-labels',
    '§2.2',
    'read',
    'outcomes give labels and availability',
    async (bench) => {
      const seen = await prepared(bench)
      const told = outcomesIn(seen.json)
      expectThat(told.length > 0, seen, 'outcomes has none of p1, p2 and p3')
      expectThat(
        told.every(({ label }) => isWord(label)),
        seen,
        'an outcome has no label',
      )
      const isListed = told.length < outcomeKeys.length
      expectThat(
        isListed || told.every((one) => one.isAllowed !== undefined),
        seen,
        'outcomes say nothing of availability',
      )
      const { price } = await bench.context()
      for (const { key, isAllowed = true } of told) {
        expectThat(
          isAllowed === price.allowed_values.includes(priceOf[key]),
          seen,
          `outcomes and price.allowed_values differ about ${key}`,
        )
      }
      return told.map(({ key }) => key).join(', ')
    },
  ),
  rule(
    '2.2-allowed-outcomes',
    '§2.2',
    'read',
    'each outcome that is said to be allowed is prepared',
    async (bench) => {
      const { price } = await bench.context()
      const keys = outcomeKeys.filter((key) => price.allowed_values.includes(priceOf[key]))
      await prepared(bench)
      for (const outcome of keys)
        expectStatus(
          await prepare(bench, (body) => ({ ...body, outcome }), `outcome ${outcome}`),
          200,
        )
      return keys.join(', ')
    },
    2,
  ),
  rule(
    '2.2-p3-permission',
    '§2.2',
    'read',
    "p3 needs permission in the request's rules and support in the settlement contract",
    async (bench) => {
      const context = (await bench.open()).find((one) => !halfIsAllowed(bench.trust, one))
      if (context === undefined) throw new NotSeen('every question permits p3')
      const body = {
        ...(await bench.proposal()),
        outcome: context.price.allowed_values.includes(priceOf.p2) ? 'p2' : 'p1',
      }
      const seen = given(
        await bench.probe.send({
          method: 'POST',
          path: `/v1/proposals/${context.question_id}/signing-data`,
          body,
        }),
        200,
      )
      const half = outcomesIn(seen.json).find(({ key }) => key === 'p3')
      expectThat(
        half?.isAllowed !== true,
        seen,
        "p3 is said to be allowed, which the request's text does not permit",
      )
      return 'not allowed, as the text says'
    },
  ),
]

const routeRules: readonly Rule[] = [
  ...bodyCases.map(([id, says, wrong, change]) =>
    rule(
      id,
      '§2.1',
      'read',
      `signing-data takes the body of a proposal: ${says}`,
      async (bench) => {
        await prepared(bench)
        return expectStatus(await prepare(bench, change, wrong), ...malformed)
      },
    ),
  ),
  rule(
    '2.1-deadline-enough',
    '§2.1',
    'read',
    'a permit.deadline of five minutes beyond admission is enough',
    async (bench) => {
      await prepared(bench)
      // A minute for the way there and for clocks that differ.
      const deadline = String(bench.nowSeconds() + 360n)
      return expectStatus(
        await prepare(bench, withPermit({ deadline }), 'a deadline six minutes ahead'),
        200,
      )
    },
  ),
  rule(
    '4.1.2-stateless',
    '§4.1 rule 2',
    'read',
    'signing-data is stateless: it reserves no nonce',
    async (bench) => {
      await prepared(bench)
      const body = await bench.proposal()
      given(await prepare(bench, () => body), 200)
      const again = await prepare(bench, () => body)
      expectStatus({ ...again, sent: `${again.sent} with a nonce that was prepared before` }, 200)
      return 'the same twice'
    },
    2,
  ),
  rule(
    '4.1.3-no-idempotency-key',
    '§4.1 rule 3',
    'read',
    'there is no idempotency-key header',
    async (bench) => {
      const headers = { 'idempotency-key': bench.ports.random.uuid() }
      given(await prepare(bench, (body) => body, undefined, headers), 200)
      const body = await bench.proposal()
      const seen = await prepare(bench, () => body, 'the Idempotency-Key of another body', headers)
      expectThat(
        at(seen.json, 'permit', 'nonce') === body.permit.nonce,
        seen,
        'the answer is that to another body',
      )
      return 'without meaning'
    },
    2,
  ),
]

/** Of the v1 preparation too. */
export const preparationRules: readonly Rule[] = [...outcomeRules, ...routeRules]
