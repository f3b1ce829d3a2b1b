/**
 * `conformance` against gateways of other builders: what the spec leaves open is no fault, and each
 * run ends.
 */
import { sampleOf } from '#support/campaign'
import { rights } from '#support/wrong-gateway/rights'
import { openWrongWorld } from '#support/wrong-gateway/world'

describe('contract §9: conformance accuses no gateway that is right', () => {
  test.each(sampleOf(rights, 6))('one that $does', async ({ make, world }) => {
    const checks = await (await openWrongWorld(make, {}, world)).run()
    expect(checks.filter(({ result }) => result === 'fail')).toEqual([])
  })
})
