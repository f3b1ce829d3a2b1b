/** Fuzzed calls against the gateway in process (robustness §4, T9). */
import fc from 'fast-check'
import { judgeAnswers } from '#support/answers-seen'
import { figures, runs } from '#support/campaign'
import type { TestFront } from '#support/front'
import { faultOf } from '#support/fuzz/answers'
import { callOf, type Draw, draws, type FuzzedCall } from '#support/fuzz/calls'
import { type Fronts, keyOf, openFronts } from '#support/fuzz/fronts'
import { heapBoundBytes, heapBytes, mebibytes } from '#support/fuzz/memory'
import { tokens } from '#support/fuzz/mutate'
import { settle } from '#support/sim-files'

/**
 * Answers that wait to be held against the OpenAPI document; more would be counted as growth of the
 * heap.
 */
const judgedAtOnce = 500
/** After so many the code is warm and every cache that is bounded is full. */
const warmCalls = 5_000

function frontOf({ open, poor, closed }: Fronts, { world }: Draw): TestFront {
  if (world > 250) return poor
  return world > 245 ? closed : open
}

function turnWorld({ view }: TestFront, { world }: Draw): void {
  view.offline = world > 230 && world <= 240
  view.faultList.splice(
    0,
    view.faultList.length,
    ...(world > 240 && world <= 245 ? ['the head is old'] : []),
  )
}

async function send(
  front: TestFront,
  call: FuzzedCall,
): Promise<{ status: number; headers: Headers; text: string }> {
  const request = new Request('http://gateway.test/', {
    // A Request takes no body with GET; the peer tells the method that was on the wire.
    method: call.body === undefined ? 'GET' : 'POST',
    headers: call.headers,
    ...(call.body === undefined ? {} : { body: call.body }),
  })
  const peer = { address: '192.0.2.1', target: call.target, method: call.method }
  const answer = await front.gateway.handle(request, peer)
  return { status: answer.status, headers: answer.headers, text: await answer.text() }
}

test('robustness §4, T9: fuzzed calls get an answer that is allowed for them, admit nothing that was not signed, and nothing comes back of them', async () => {
  const fronts = await openFronts()
  const seen = new Map<string, number>()
  let calls = 0
  let warmBytes = 0
  const count = (name: string) => seen.set(name, (seen.get(name) ?? 0) + 1)
  await fc.assert(
    fc.asyncProperty(draws, async (draw) => {
      const call = callOf(fronts, draw)
      const front = frontOf(fronts, draw)
      turnWorld(front, draw)
      const answer = await send(front, call)
      const fault = faultOf(call, answer, fronts)
      if (fault !== undefined)
        throw new Error(
          `${fault}: ${call.method} ${call.target} answered ${answer.text.slice(0, 300)}`,
        )
      const logged = JSON.stringify(front.records.splice(0))
      if (tokens.some((token) => logged.includes(token)))
        throw new Error(`robustness §5: a token in the request log: ${logged}`)
      count(
        `${answer.status} ${/^\{"error":\{"code":"(\w+)"/.exec(answer.text)?.[1] ?? /^\{"\w+/.exec(answer.text) ?? ''}`,
      )
      calls += 1
      // Without a turn of the loop node keeps every Request and its signal.
      if (calls % 50 === 0) await settle()
      if (calls % judgedAtOnce === 0) await judgeAnswers()
      if (calls === warmCalls) warmBytes = heapBytes()
    }),
    runs(100_000),
  )
  await judgeAnswers()
  const grownBytes = warmBytes === 0 ? 0 : heapBytes() - warmBytes
  expect(grownBytes).toBeLessThan(heapBoundBytes)
  for (const active of fronts.open.ledger.active()) {
    const candidate = await fronts.open.ledger.get(active.id)
    const { round, price, amount, nonce, deadline, proposer, signature } = candidate ?? {
      round: { questionId: '' },
      price: '',
    }
    const permit = { amount, nonce, deadline } as never
    expect(fronts.signedKeys).toContain(
      keyOf(round.questionId, { proposer, proposed_price: price, permit, signature } as never),
    )
  }
  const codes = new Set([...seen.keys()].map((name) => name.slice(4)))
  expect(codes.size).toBeGreaterThan(25)
  figures('fuzz-bodies', {
    calls,
    'kinds of answers': seen.size,
    'heap growth': mebibytes(grownBytes),
  })
})
