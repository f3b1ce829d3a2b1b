import type { BatchRow } from '#client/input/input'
import { newSpending } from '#client/propose/limits'
import type { ProposeParts } from '#client/propose/plan'
import { type RowResult, submitRows, unsentOutcome } from '#client/propose/submit'
import type { ContextSource } from '#client/trust/context'
import type { Hex } from '#ports'
import { RejectedError } from '#protocol/errors'
import { fromSingle, toBatchItem } from '#protocol/proposal'
import { SignedProposal } from '#protocol/schema'
import { makeWorld, nextRound, submitIntent } from '#support/client-world'
import { createFakeChain } from '#support/fake-chain'

async function lostWorld(kind: BatchRow['kind']) {
  const world = makeWorld()
  const { parts, intent } = world.run()
  world.gateway.faults.push('lost-answer')
  const lost = await world.drive(submitIntent(parts, intent, { timeoutMs: 1 }))
  const { signed } = lost.authorization
  const questionId = signed.questionId as Hex
  const item = toBatchItem(
    questionId,
    fromSingle(questionId, SignedProposal.parse(JSON.parse(signed.body))),
  )
  const place = { line: 1, identifier: questionId }
  const row: BatchRow =
    kind === 'item'
      ? { kind, ...place, item, body: JSON.stringify(item) }
      : { kind, ...place, outcome: 'p2' }
  const asked: (readonly string[])[] = []
  const submit = async (timestamp: string | undefined): Promise<readonly RowResult[]> => {
    const run = world.run()
    const contexts: ContextSource = {
      async contexts(identifiers) {
        asked.push(identifiers)
        return identifiers.map((identifier) => {
          if (timestamp === undefined)
            return { identifier, error: new RejectedError('question_not_found', 'not here') }
          const { question } = world.gateway
          const context = {
            ...question,
            request: { ...question.request, timestamp },
            source: 'chain' as const,
          }
          return { identifier, context, notes: [] }
        })
      },
    }
    const batch: ProposeParts = {
      ...run.parts,
      contexts,
      contextsAreFree: true,
      chain: createFakeChain(),
      proposer: async () => intent.proposer,
    }
    const results: RowResult[] = []
    const work = async () => {
      const options = { fingerprint: 'input', spending: newSpending(batch, { fit: false }) }
      for await (const some of submitRows({ ...batch, gateway: run.client }, [row], options))
        results.push(...some)
    }
    await world.drive(work())
    return results
  }
  return { world, submit, asked, ofRound: signed.timestamp ?? '', id: lost.journalId }
}

test('contract §6: a row that may have been admitted tells of no other row', async () => {
  const { id, world } = await lostWorld('intent')
  const { error } = unsentOutcome(
    (await world.journal()).find(id),
    new RejectedError('no', 'another'),
    world.clock.nowMs(),
  )
  expect(error).toMatchObject({
    detail: expect.not.stringContaining('another'),
    meta: {
      exitCode: 6,
      hint: expect.stringContaining(`--resume, or with \`proposer replay ${id}`),
    },
  })
})

describe.each(['item', 'intent'] as const)('a saved %s with a node', (kind) => {
  test('R14: a 409 that a reorg has undone does not keep it from being sent', async () => {
    const { world, submit, ofRound } = await lostWorld(kind)
    world.gateway.faults.push({ status: 409, code: 'round_advanced' })
    expect(await submit(kind === 'item' ? undefined : ofRound)).toMatchObject([
      { outcome: 'rejected', error: { code: 'round_over' } },
    ])
    const sent = world.gateway.received.length
    expect(await submit(undefined), 'a node that does not tell undoes nothing').toMatchObject([
      { error: { code: 'round_over' } },
    ])
    expect(world.gateway.received).toHaveLength(sent)
    expect(await submit(ofRound)).toMatchObject([{ outcome: 'replayed' }])
  })
})

test("§7 rule 3: the node's word that the round is over is enough: a signed item is not sent, exit 6 with the out-of-band line", async () => {
  const { world, submit, asked, id } = await lostWorld('item')
  nextRound(world.gateway)
  const sent = world.gateway.received.length
  const results = await submit(world.gateway.question.request.timestamp)
  expect(results).toMatchObject([
    {
      outcome: 'unknown',
      statusCode: null,
      error: { code: 'round_over', meta: { exitCode: 6 } },
      authorization: { id },
    },
  ])
  expect(results[0]?.outOfBand?.questionId).toBe(world.gateway.question.question_id)
  expect(world.gateway.received).toHaveLength(sent)
  expect(asked).toHaveLength(1)
})
