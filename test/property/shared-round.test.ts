import fc from 'fast-check'
import { expect, test } from 'vitest'
import { isOpen } from '#client/journal/authorizations'
import { authorize, offerTypedData } from '#client/propose/authorize'
import type { QuestionContext, Trust } from '#client/trust/trust'
import type { Hex } from '#ports'
import { ProposerError } from '#protocol/errors'
import { makeWorld } from '#support/client-world'
import { questionContext } from '#support/scripted-gateway'

const shared = questionContext('Shared?')
const alone = questionContext('Alone?')
const questions = [0, 1, 2, 3].map((n) => ({
  id: `0x${String(n + 1).repeat(64)}` as Hex,
  request: n < 3 ? shared : alone,
}))
const contextOf = (question: number, timestamp: string): QuestionContext => {
  const { id, request } = questions[question] as (typeof questions)[number]
  return {
    ...request,
    question_id: id,
    request: { ...request.request, question_id: id, timestamp },
    source: 'gateway',
  }
}

const act = fc.record({
  question: fc.nat(3),
  round: fc.nat(1),
  outcome: fc.constantFrom('p1' as const, 'p2' as const),
  key: fc.constantFrom(7, 8),
  how: fc.constantFrom('sign', 'sign', 'offer', 'supersede'),
})

test('R8: one open authorization of a wallet a round, whatever the question', async () => {
  const seen = { signed: 0, refused: 0, shared: 0 }
  await fc.assert(
    fc.asyncProperty(fc.array(act, { minLength: 2, maxLength: 8 }), async (acts) => {
      const world = makeWorld()
      const requesters = world.trust.requesters.map(({ address }) => ({
        address,
        kind: 'oo-reporter' as const,
      }))
      const trust: Trust = { ...world.trust, requesters, slugs: {} }
      for (const { question, round, outcome, key, how } of acts) {
        const { parts, journal, intent } = world.run({ key })
        const context = async () => contextOf(question, round === 0 ? '1760000000' : '1760000050')
        const open = (await journal.load()).authorizations.at(-1)?.id
        const wanted = {
          ...intent,
          outcome,
          identifier: questions[question]?.id ?? '',
          ...(how === 'supersede' && open !== undefined ? { supersede: open } : {}),
        }
        const asked = { ...parts, trust, context, gateway: undefined as never }
        const work: Promise<unknown> =
          how === 'offer' ? offerTypedData(asked, wanted) : authorize(asked, wanted)
        await world.drive(work).then(
          () => {
            seen.signed += 1
          },
          (error: unknown) => {
            if (!(error instanceof ProposerError)) throw error
            seen.refused += 1
            if (error.detail.includes('shares its round')) seen.shared += 1
          },
        )
        const view = await world.run().journal.load()
        const nowMs = world.clock.nowMs()
        const held = [
          ...view.authorizations
            .filter((one) => isOpen(one, nowMs))
            .map((one) => ({ ...one, record: one.signed })),
          ...view.offers.map((one) => ({ ...one, record: one.offered })),
        ].filter(({ supersededBy }) => supersededBy === undefined)
        const rounds = held.map(({ record }) => `${record.round} ${record.terms.proposer}`)
        expect(new Set(rounds).size).toBe(rounds.length)
      }
    }),
    { numRuns: 150 },
  )
  for (const count of Object.values(seen)) expect(count).toBeGreaterThan(20)
})
