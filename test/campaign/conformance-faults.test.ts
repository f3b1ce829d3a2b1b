/**
 * `conformance` against gateways that behave wrongly in one rule each: every one is told. The table
 * is made from the spec, not from the checks; wrong answers as such are generated.
 */
import type { Rule } from '#conformance/bench'
import { rules, rulesNamed } from '#conformance/run'
import { sampleOf } from '#support/campaign'
import type { Fault } from '#support/wrong-gateway/between'
import { faults } from '#support/wrong-gateway/faults'
import { openWrongWorld } from '#support/wrong-gateway/world'

const ofSection = (section: string): readonly Rule[] =>
  rulesNamed(/[\d.]+/.exec(section)?.[0] ?? '')

async function failed({ make, meter }: Fault, chosen: readonly Rule[]): Promise<readonly string[]> {
  const world = await openWrongWorld(make, {}, meter === undefined ? {} : { meter })
  return (await world.run(chosen)).filter(({ result }) => result === 'fail').map(({ id }) => id)
}

async function toldBy(fault: Fault): Promise<readonly string[]> {
  const own = await failed(fault, ofSection(fault.section))
  return own.length > 0 ? own : failed(fault, rules)
}

describe('contract §6: conformance tells a gateway that breaks a rule', () => {
  test.each(sampleOf(faults, 4))('$section: a gateway that $does', async (fault) => {
    expect(await toldBy(fault)).not.toEqual([])
  })
})
