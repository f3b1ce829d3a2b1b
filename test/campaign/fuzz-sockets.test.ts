/** Fuzzed calls and fuzzed bytes against a real listener (robustness §4, T9). */
import fc from 'fast-check'
import { type Listener, listen } from '#io/serving/listener'
import { judgeAnswers } from '#support/answers-seen'
import { figures, runs } from '#support/campaign'
import { faultOf } from '#support/fuzz/answers'
import { callOf, draws, type FuzzedCall } from '#support/fuzz/calls'
import { type Fronts, openFronts } from '#support/fuzz/fronts'
import { heapBoundBytes, heapBytes, mebibytes } from '#support/fuzz/memory'
import { editedBytes, editsUpTo, tokens } from '#support/fuzz/mutate'
import { exchangeRaw } from '#support/raw-http'

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

function wireBytes({ method, target, headers, body }: FuzzedCall): Uint8Array<ArrayBuffer> {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`)
  const length = body === undefined ? '' : `Content-Length: ${body.length}\r\n`
  const head = Buffer.from(
    `${method} ${target} HTTP/1.1\r\nHost: gateway.test\r\n${lines.join('')}${length}\r\n`,
    'latin1',
  )
  return Uint8Array.from(Buffer.concat([head, body ?? new Uint8Array(0)]))
}
async function send(bytes: Uint8Array, ends: boolean) {
  const { status, headers, body } = await exchangeRaw(listener.port, bytes, { ends })
  const text = Buffer.from(body, 'latin1').toString()
  return { status, headers: new Headers({ ...headers }), text }
}

test('robustness §4, T9: fuzzed calls get an answer that is allowed for them; bytes that are nearly a call are refused with 400, 408 or 431, answered as a call, or cut off; and nothing comes back of either', async () => {
  let [connections, answered, warmBytes] = [0, 0, 0]
  const damage = fc.oneof(fc.constant([]), editsUpTo(4, 1))
  await fc.assert(
    fc.asyncProperty(draws, damage, async (draw, edits) => {
      const call = callOf(fronts, draw)
      const isWhole = edits.length === 0
      // What is damaged may want more than will come; to HEAD there is no body to wait for.
      const ends = !isWhole || call.method === 'HEAD'
      const bytes = editedBytes(wireBytes(call), edits)
      const answer = await send(bytes, ends).catch((error: Error) => {
        if (isWhole) throw error
      })
      connections += 1
      if (answer === undefined) return
      answered += 1
      const { status, text, headers } = answer
      const all = `${[...headers].join('\n')}\n${text}`
      // What of a changed byte is still the planted text cannot be told any more, so the items' own
      // fields are left out.
      const bare = all.replace(/"(client_ref|identifier|candidate_id)":"[^"]*"/g, '')
      const fault = isWhole
        ? faultOf(call, answer, fronts)
        : status >= 500 && status !== 503
          ? `status ${status}`
          : tokens.some((token) => bare.includes(token)) && 'echo of the input'
      if (fault) throw new Error(`${fault}: ${call.method} ${call.target}: ${all.slice(0, 400)}`)
      fronts.open.records.length = 0
      if (connections % 500 === 0) await judgeAnswers()
      if (connections === 1_000) warmBytes = heapBytes()
    }),
    runs(5_000),
  )
  await judgeAnswers()
  const grownBytes = warmBytes === 0 ? 0 : heapBytes() - warmBytes
  expect(grownBytes).toBeLessThan(heapBoundBytes)
  expect(answered).toBeGreaterThan(connections / 2)
  const health = Buffer.from('GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n')
  expect((await send(health, true)).status).toBe(200)
  figures('fuzz-sockets', { connections, answered, 'heap growth': mebibytes(grownBytes) })
})
