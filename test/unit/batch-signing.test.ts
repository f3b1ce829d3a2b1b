import { domainOf } from '#chain/round'
import type { BatchRow } from '#client/input/input'
import { newSpending } from '#client/propose/limits'
import type { ProposeParts } from '#client/propose/plan'
import { type RowSigned, signRows } from '#client/propose/submit'
import { checkContext, contractsOf, requestOf, type Trust } from '#client/trust/trust'
import { systemCurve } from '#io/keys'
import type { Hex } from '#ports'
import type { RecoverPublicKey } from '#protocol/recovered'
import { recoverSigner } from '#protocol/signature'
import { fromHex, toHex, witnessRound } from '#protocol/witness'
import { keyBytes, makeWorld } from '#support/client-world'
import { questionContext } from '#support/scripted-gateway'

const asked = (count: number) =>
  Array.from({ length: count }, (_, n) => questionContext(`Question ${n}?`))
const adapterQuestions = asked(3)

interface Hooks {
  readonly recover: RecoverPublicKey
  readonly beforeSigning?: () => Promise<void>
}

async function signAll(
  hooksOf: (world: ReturnType<typeof makeWorld>) => Hooks,
  {
    questions = adapterQuestions,
    kind = 'uma-ctf-adapter' as Trust['requesters'][number]['kind'],
    more = {} as { readonly nonce?: bigint },
  } = {},
) {
  const world = makeWorld()
  const { parts, journal, intent } = world.run()
  const { recover, beforeSigning } = hooksOf(world)
  const trust: Trust = {
    ...world.trust,
    requesters: world.trust.requesters.map(({ address }) => ({ address, kind })),
  }
  const rows = questions.map(
    ({ question_id }, at): BatchRow => ({
      kind: 'intent',
      line: at + 1,
      identifier: question_id,
      outcome: 'p2',
      ...more,
    }),
  )
  const batch: ProposeParts = {
    ...parts,
    trust,
    contexts: {
      async contexts(identifiers) {
        return identifiers.map((identifier) => {
          const found = questions.find(({ question_id }) => question_id === identifier)
          if (found === undefined) throw new Error('a question that nobody asked')
          const context = { ...found, source: 'gateway' as const }
          return {
            identifier,
            context,
            notes: checkContext(trust, context, world.clock.nowMs() / 1_000),
          }
        })
      },
    },
    contextsAreFree: false,
    proposer: async () => intent.proposer,
    recovery: async () => recover,
    signer: async () => {
      const own = await parts.signer()
      return {
        address: own.address,
        async signDigest(digest) {
          await beforeSigning?.()
          return own.signDigest(digest)
        },
      }
    },
  }
  const results: RowSigned[] = []
  const work = async () => {
    for await (const some of signRows(batch, rows, {
      spending: newSpending(batch, { fit: false }),
    }))
      results.push(...some)
  }
  const failure = await world.drive(work()).then(
    () => undefined,
    (error: unknown) => error,
  )
  return { results, failure, view: await journal.load(), proposer: intent.proposer, trust }
}

test('R6: rows that come by another way than the checked input are not signed with one nonce twice either', async () => {
  const recover = () => ({ recover: systemCurve().recover })
  const { results, view } = await signAll(recover, { more: { nonce: 7n } })
  expect(results.map(({ error }) => error?.code)).toEqual([
    undefined,
    'nonce_reserved',
    'nonce_reserved',
  ])
  expect(view.authorizations).toHaveLength(1)
})

test("R9: a signature is journaled once it has been found to be the proposer's, however long that takes; another's never", async () => {
  const durable: number[] = []
  const curve = systemCurve()
  const { results, failure, view, proposer } = await signAll((world) => {
    let checked = 0
    return {
      recover: (...asked) =>
        ++checked === 2 ? curve.publicKey(keyBytes(9)) : curve.recover(...asked),
      async beforeSigning() {
        durable.push((await world.run().journal.load()).authorizations.length)
      },
    }
  })
  expect(failure).toBeUndefined()
  expect(durable, 'nothing is durable as signed before all are checked').toEqual([0, 0, 0])
  expect(results.map(({ error }) => error?.code)).toEqual([undefined, 'bad_signature', undefined])
  expect(view.authorizations.map(({ signed }) => signed.questionId)).toEqual([
    adapterQuestions[0]?.question_id,
    adapterQuestions[2]?.question_id,
  ])
  for (const { signed } of view.authorizations) {
    const { signature } = JSON.parse(signed.body) as { signature: `0x${string}` }
    expect(recoverSigner(fromHex(signed.digest ?? ''), signature)).toBe(proposer)
  }
})

test('R9: a recovery that fails for another reason than the signature ends the batch, and nothing is journaled as signed', async () => {
  let checked = 0
  const { results, failure, view } = await signAll(() => ({
    recover(...asked) {
      if (++checked === 2) throw new Error('out of order')
      return systemCurve().recover(...asked)
    },
  }))
  expect(failure).toMatchObject({ message: 'out of order' })
  expect(results).toEqual([])
  expect(view.authorizations).toEqual([])
})

test('R6: what fails for another reason than its item stops the signing of those that come later, and of these nothing is journaled', async () => {
  const questions = asked(450)
  let checked = 0
  const { results, failure, view } = await signAll(
    () => ({
      recover(...asked) {
        if (++checked === 1) throw new Error('out of order')
        return systemCurve().recover(...asked)
      },
    }),
    { questions },
  )
  expect(failure).toMatchObject({ message: 'out of order' })
  expect(results).toEqual([])
  expect(checked).toBeLessThan(questions.length)
  const signed = new Set(view.authorizations.map((one) => one.signed.questionId))
  expect(questions.slice(0, 100).some(({ question_id }) => signed.has(question_id))).toBe(false)
})

test.each([
  ['an adapter, whose question id it is', 'uma-ctf-adapter', adapterQuestions],
  [
    'a reporter, whose question id is something else',
    'oo-reporter',
    adapterQuestions.map((each, n) => renamed(each, n)),
  ],
  [
    'a direct request, whose question id is something else',
    'direct',
    adapterQuestions.map((each, n) => renamed(each, n)),
  ],
] as const)(
  "R9: what is signed holds the hash of the request's text: of %s",
  async (_, kind, questions) => {
    const { view, trust } = await signAll(() => ({ recover: systemCurve().recover }), {
      kind,
      questions: [...questions],
    })
    expect(view.authorizations).toHaveLength(3)
    for (const { signed } of view.authorizations) {
      const question = questions.find(({ question_id }) => question_id === signed.questionId)
      if (question === undefined) throw new Error('signed for a question that nobody asked')
      const request = requestOf(question)
      const round = witnessRound(domainOf(contractsOf(trust)), request, question.bond.token as Hex)
      expect(signed.digest).toBe(toHex(round.digest(signed.terms)))
    }
  },
)

function renamed(
  question: (typeof adapterQuestions)[number],
  n: number,
): (typeof adapterQuestions)[number] {
  const question_id = toHex(keyBytes(n + 1))
  return { ...question, question_id, request: { ...question.request, question_id } }
}
