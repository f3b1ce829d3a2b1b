/** Fuzzed calls and fuzzed bytes against a real listener (robustness §4, T9). */
import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Listener, listen } from '#io/serving/listener'
import { judgeAnswers } from '#support/answers-seen'
import { figures, runs } from '#support/campaign'
import { faultOf } from '#support/fuzz/answers'
import { callOf, draws } from '#support/fuzz/calls'
import { type Fronts, openFronts } from '#support/fuzz/fronts'
import { heapBoundBytes, heapBytes, mebibytes } from '#support/fuzz/memory'
import { editedBytes, editsUpTo, tokens } from '#support/fuzz/mutate'
import { openKeptAlive, sendRaw, wireBytes } from '#support/fuzz/socket'

let fronts: Fronts
let listener: Listener
beforeAll(async () => {
  fronts = await openFronts()
  listener = await listen({
    host: '127.0.0.1',
    port: 0,
    handler: (call) => fronts.open.gateway.answer(call),
  })
})
afterAll(() => listener.close(0))

const serves = async () => {
  const answer = await sendRaw(
    listener.port,
    wireBytes({ method: 'GET', target: '/healthz', headers: {}, body: undefined }),
  )
  expect(answer?.status).toBe(200)
}

test('robustness §4, T9: fuzzed calls on connections that stay open get an answer that is allowed for them, and nothing comes back of them', async () => {
  let client = openKeptAlive(listener.port)
  let [calls, unanswered, warmBytes, connections] = [0, 0, 0, 0]
  await fc.assert(
    fc.asyncProperty(draws, async (draw) => {
      const call = callOf(fronts, draw)
      const answer = await client.send(wireBytes(call), call.method)
      calls += 1
      if (answer === undefined) unanswered += 1
      else {
        const fault = faultOf(call, answer, fronts)
        if (fault !== undefined)
          throw new Error(
            `${fault}: ${call.method} ${call.target} answered ${answer.status} ${answer.text.slice(0, 300)}`,
          )
      }
      fronts.open.records.length = 0
      if (calls % 500 === 0) {
        // On a busy machine this takes longer than a connection may be idle.
        await judgeAnswers()
        connections += client.connections
        client.close()
        client = openKeptAlive(listener.port)
      }
      if (calls === 1_000) warmBytes = heapBytes()
    }),
    runs(4_000),
  )
  client.close()
  connections += client.connections
  await judgeAnswers()
  const grownBytes = warmBytes === 0 ? 0 : heapBytes() - warmBytes
  expect(grownBytes).toBeLessThan(heapBoundBytes)
  expect(unanswered).toBe(0)
  expect(connections).toBeLessThan(calls / 2)
  await serves()
  figures('fuzz-sockets', {
    calls,
    connections,
    'heap growth': mebibytes(grownBytes),
  })
})

test('robustness §4, T9: bytes that are nearly a call are refused with 400, 408 or 431, answered as a call, or cut off, and nothing comes back of them', async () => {
  let [connections, answered] = [0, 0]
  await fc.assert(
    fc.asyncProperty(draws, editsUpTo(4, 1), async (draw, edits) => {
      const answer = await sendRaw(
        listener.port,
        editedBytes(wireBytes(callOf(fronts, draw)), edits),
      )
      connections += 1
      if (answer === undefined) return
      answered += 1
      const { status, text, headers } = answer
      if (status >= 500 && status !== 503) throw new Error(`status ${status}`)
      const whole = `${[...headers].join('\n')}\n${text}`
      // What of a changed byte is still the planted text cannot be told any more, so the items' own
      // fields are left out.
      const bare = whole.replace(/"(client_ref|identifier|candidate_id)":"[^"]*"/g, '')
      if (tokens.some((token) => bare.includes(token)))
        throw new Error(`echo: ${whole.slice(0, 300)}`)
    }),
    runs(1_000),
  )
  fronts.open.records.length = 0
  expect(answered).toBeGreaterThan(connections / 2)
  await serves()
  figures('fuzz-sockets, raw bytes', { connections, answered })
})
