/** Fuzzed calls against the gateway (robustness T9): never 5xx, never an echo, always the documented error body. */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { ErrorBody } from '../../src/core/protocol/schema.js'
import { makeQuestion, signedBody, signedItem } from '../support/fake-view.js'
import { openFront } from '../support/front.js'

const first = makeQuestion('first', { slug: 'first-question' })
const canary = 'canary-7f3a'

const odd = fc.oneof(
  fc.constant(canary),
  fc.constantFrom('', '0', '-1', '01', '0x', '0xAB', 'p3', null, true, 0, 5, 2 ** 53, [], {}, [[]], '9'.repeat(78), `0x${'0'.repeat(40)}`),
  fc.jsonValue({ maxDepth: 3 }),
)

/** A body with one place anywhere replaced, removed or added to. */
function damaged(body: unknown): fc.Arbitrary<unknown> {
  const places: string[][] = []
  const visit = (value: unknown, path: string[]) => {
    places.push(path)
    if (typeof value === 'object' && value !== null) for (const [key, inner] of Object.entries(value)) visit(inner, [...path, key])
  }
  visit(body, [])
  return fc.tuple(fc.constantFrom(...places), fc.constantFrom('replace', 'remove', 'add'), odd).map(([path, how, value]) => {
    const copy: unknown = structuredClone(body)
    const key = how === 'add' ? canary : path.at(-1)
    const parent = (how === 'add' ? path : path.slice(0, -1)).reduce<unknown>(
      (at, part) => (typeof at === 'object' && at !== null ? (at as Record<string, unknown>)[part] : undefined),
      copy,
    )
    if (key === undefined || typeof parent !== 'object' || parent === null) return how === 'replace' ? value : copy
    if (how === 'remove') delete (parent as Record<string, unknown>)[key]
    else (parent as Record<string, unknown>)[key] = value
    return copy
  })
}

test('robustness §4: a damaged body is answered 2xx or with a documented 4xx, and nothing of it comes back', async () => {
  const front = await openFront()
  const [wallet] = front.wallets
  const single = await signedBody(wallet, first)
  const { signature: _, ...unsigned } = single
  const targets = [
    [`/v1/proposals/${first.questionId}`, single],
    ['/v1/proposals/first-question/signing-data', unsigned],
    ['/propose/batch', { proposals: [await signedItem(wallet, first)] }],
    ['/propose/batch/signing-data', { identifiers: ['first-question'] }],
    ['/propose/batch/status', { candidate_ids: ['00000000-0000-4000-8000-000000000000'] }],
  ] as const
  const call = fc.constantFrom(...targets).chain(([path, body]) => damaged(body).map((value) => ({ path, value })))
  await fc.assert(
    fc.asyncProperty(call, async ({ path, value }) => {
      const response = await front.post(path, JSON.stringify(value) ?? '')
      const text = await response.text()
      expect(response.status).toBeLessThan(500)
      // client_ref is echoed by design (§2.7), and identifiers and ids stand in their results.
      if (response.status >= 400) {
        expect(text).not.toContain(canary)
        ErrorBody.strict().parse(JSON.parse(text))
      }
    }),
    { numRuns: 1_500 },
  )
})

test('robustness §4: arbitrary bytes are answered 4xx', async () => {
  const front = await openFront()
  await fc.assert(
    fc.asyncProperty(
      fc.uint8Array({ maxLength: 200 }),
      fc.constantFrom('/propose/batch', '/v1/proposals/first-question'),
      async (bytes, path) => {
        const response = await front.post(path, bytes)
        expect([400, 413, 422]).toContain(response.status)
        ErrorBody.strict().parse(await response.json())
      },
    ),
    { numRuns: 300 },
  )
})
