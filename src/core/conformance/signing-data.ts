/** Outcomes, and what the v1 preparation takes. */
import { outcomeKeys, priceOf } from '../protocol/proposal.js'
import type { Body } from './bench.js'
import { outcomesIn } from './context.js'
import { halfIsAllowed } from './contexts.js'
import {
  expectProposal,
  expectTypedData,
  prepareChanged,
  prepared,
  withPermit,
} from './preparation.js'
import { routes } from './probe.js'
import {
  at,
  expectStatus,
  expectThat,
  given,
  malformed,
  NotSeen,
  type Run,
  rule,
  rulesOf,
} from './rule.js'
import { integer, isWord } from './shapes.js'

const refusesBody =
  (wrong: string, change: (body: Body) => unknown): Run =>
  async (bench) => {
    await prepared(bench)
    return expectStatus(await prepareChanged(bench, change, wrong), ...malformed)
  }

export const signingDataRules = rulesOf('read', {
  '2.2-outcome-prices': rule('p1 is 0, p2 is 1e18, p3 is 0.5e18', async (bench) => {
    const seen = await prepared(bench)
    for (const { key, price } of outcomesIn(seen.json))
      expectThat(integer(price) === priceOf[key], seen, `outcomes give ${key} another price`)
    return 'as mapped'
  }),
  '2.2-outcome-labels': rule('outcomes give labels and availability', async (bench) => {
    const seen = await prepared(bench)
    const actual = outcomesIn(seen.json)
    expectThat(actual.length > 0, seen, 'outcomes has none of p1, p2 and p3')
    const areNamed = actual.every(({ label }) => isWord(label))
    expectThat(areNamed, seen, 'an outcome has no label')
    const isPartial = actual.length < outcomeKeys.length
    const isTold = isPartial || actual.every((one) => one.isAllowed !== undefined)
    expectThat(isTold, seen, 'outcomes do not give availability')
    const { price } = await bench.context()
    for (const { key, isAllowed: allowed = true } of actual) {
      const isSame = allowed === price.allowed_values.includes(priceOf[key])
      expectThat(isSame, seen, `outcomes and price.allowed_values differ about ${key}`)
    }
    return actual.map(({ key }) => key).join(', ')
  }),
  '2.2-allowed-outcomes': rule(
    'each outcome listed as allowed can be prepared, with its own price; no other can',
    3,
    async (bench) => {
      const { price } = await bench.context()
      const keys = outcomeKeys.filter((key) => price.allowed_values.includes(priceOf[key]))
      await prepared(bench)
      for (const outcome of outcomeKeys) {
        const body = { ...(await bench.proposal()), outcome }
        const seen = await prepareChanged(bench, () => body, `outcome ${outcome}`)
        const isAllowed = keys.includes(outcome)
        expectStatus(seen, ...(isAllowed ? [200] : malformed))
        if (!isAllowed) continue
        expectProposal(seen, outcome)
        await expectTypedData(bench, seen, body)
      }
      return keys.join(', ')
    },
  ),
  '2.2-p3-permission': rule(
    "p3 needs permission in the request's rules and support in the settlement contract",
    async (bench) => {
      const context = (await bench.open()).find((one) => !halfIsAllowed(bench.trust, one))
      if (context === undefined) throw new NotSeen('every question permits p3')
      const outcome = context.price.allowed_values.includes(priceOf.p2) ? 'p2' : 'p1'
      const body = { ...(await bench.proposal()), outcome }
      const seen = given(await bench.probe.send(routes.prepare(context.question_id, body)), 200)
      const half = outcomesIn(seen.json).find(({ key }) => key === 'p3')
      const fault = "p3 is listed as allowed, but the request's text does not permit it"
      expectThat(half?.isAllowed !== true, seen, fault)
      return 'not allowed, as the text says'
    },
  ),
  '2.1-prepare-outcome': rule(
    'signing-data takes the body of a proposal: outcome is p1, p2 or p3',
    refusesBody('outcome p4', (body) => ({ ...body, outcome: 'p4' })),
  ),
  '2.1-prepare-version': rule(
    'signing-data takes the body of a proposal: version is required',
    refusesBody('no version', ({ version: _version, ...body }) => body),
  ),
  '2.1-prepare-max-payment': rule(
    'signing-data takes the body of a proposal: max_payment must be "0"',
    refusesBody('max_payment 1', (body) => ({
      ...body,
      max_payment: '1',
    })),
  ),
  '2.1-deadline-enough': rule(
    'a permit.deadline of five minutes beyond admission is enough',
    async (bench) => {
      await prepared(bench)
      // A minute for the way there and for clocks that differ.
      const deadline = String(bench.nowSeconds() + 360n)
      const wrong = 'a deadline six minutes ahead'
      return expectStatus(await prepareChanged(bench, withPermit({ deadline }), wrong), 200)
    },
  ),
  '4.1.2-stateless': rule('signing-data is stateless: it reserves no nonce', 2, async (bench) => {
    await prepared(bench)
    const body = await bench.proposal()
    given(await prepareChanged(bench, () => body), 200)
    const again = await prepareChanged(bench, () => body, 'a nonce that was prepared before')
    expectStatus(again, 200)
    return 'the same twice'
  }),
  '4.1.3-no-idempotency-key': rule('there is no idempotency-key header', 2, async (bench) => {
    const headers = { 'idempotency-key': bench.ports.random.uuid() }
    given(await prepareChanged(bench, (body) => body, undefined, headers), 200)
    const body = await bench.proposal()
    const seen = await prepareChanged(
      bench,
      () => body,
      'the Idempotency-Key of another body',
      headers,
    )
    const isOwn = at(seen.json, 'permit', 'nonce') === body.permit.nonce
    expectThat(isOwn, seen, 'the answer is that to another body')
    return 'without meaning'
  }),
})
