/**
 * `conformance` against gateways of other builders: what the spec leaves open is no fault, and each
 * run ends.
 */
import { describe, expect, test } from 'vitest'
import { rights } from '../support/wrong-gateway/rights.js'
import { openWrongWorld } from '../support/wrong-gateway/world.js'

/** Every third by default; all of them where a campaign asks for more. */
const step = process.env.CAMPAIGN_SCALE === undefined ? 3 : 1
const [part = 1, parts = 1] = (process.env.CONFORMANCE_PART ?? '')
  .split('/')
  .map(Number)
  .filter((count) => count > 0)

describe('contract §9: conformance accuses no gateway that is right', () => {
  test('the table is long', () => expect(rights.length).toBeGreaterThan(60))

  test.each(
    rights
      .filter((_right, index) => index % step === 0)
      .filter((_right, index) => index % parts === part - 1),
  )('one that $does', async ({ make, world }) => {
    const checks = await (await openWrongWorld(make, {}, world)).run()
    expect(checks.filter(({ result }) => result === 'fail')).toEqual([])
  })
})
