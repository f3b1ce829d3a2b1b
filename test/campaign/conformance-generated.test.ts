/**
 * `conformance` against gateways made from the response schemas, wrong in one place each: every one
 * is told, but for what the spec leaves open, and that is no fault.
 */
import type { Rule } from '#conformance/bench'
import { rules } from '#conformance/run'
import { ProposerError } from '#protocol/errors'
import { sampleOf } from '#support/campaign'
import { beginnings, type Generated, generated, permission } from '#support/wrong-gateway/generated'
import { openWrongWorld } from '#support/wrong-gateway/world'

class Told extends Error {}

async function endOf({ make }: Generated, chosen: readonly Rule[]): Promise<string | undefined> {
  const { wrong, hasChanged } = make()
  const world = await openWrongWorld(() => wrong)
  try {
    await world.run(chosen, ({ id, result }) => {
      if (result === 'fail') throw new Told(id)
    })
    expect(hasChanged()).toBe(true)
    return undefined
  } catch (error) {
    if (error instanceof Told) return error.message
    if (error instanceof ProposerError) return error.code
    throw error
  }
}

const toldBy = async (one: Generated): Promise<string | undefined> =>
  (await endOf(
    one,
    rules.filter(({ id, tier }) => tier !== 'overrun' && one.first.test(id)),
  )) ?? endOf(one, rules)

const named = generated.map((one) => ({ ...one, why: permission(one.name) }))

describe('contract §6: conformance tells whatever is wrong in an answer', () => {
  test('each place of each answer is made wrong, and few of these the spec allows', () => {
    expect(named.length).toBeGreaterThan(900)
    expect(new Set(named.map(({ name }) => name)).size).toBe(named.length)
    expect(named.filter(({ why }) => why !== undefined).length / named.length).toBeLessThan(0.13)
    const names = named.map(({ name }) => name)
    expect(beginnings.filter((one) => !names.some((name) => name.startsWith(one)))).toEqual([])
  })

  const wrong = named.filter(({ why }) => why === undefined)
  test.each(sampleOf(wrong, 3))('$name', async (one) => {
    expect(await toldBy(one)).toBeDefined()
  })

  const right = named.filter(({ why }) => why !== undefined)
  test.each(sampleOf(right, 3))('$name is no fault ($why)', async (one) => {
    expect(await endOf(one, rules)).toBeUndefined()
  })
})
