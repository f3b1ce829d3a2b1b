/**
 * The way of `submit` from argv to the wire: our functions on the stack.
 * CAMPAIGN_REPORT=1 prints them.
 */
import { openBatchWorld } from '#support/batch-world'

test('a proposal passes at most 18 functions in 11 files', async () => {
  const world = await openBatchWorld()
  const { questionId } = world.ask('one')
  let stack = ''
  const { stackTraceLimit } = Error
  Error.stackTraceLimit = 100
  const ran = await world.run(`submit ${questionId} --outcome p2`, {
    fetch(input, init) {
      if (`${input}`.includes('/v1/proposals/')) stack ||= `${new Error('way').stack}`
      return world.fetch(input, init)
    },
  })
  Error.stackTraceLimit = stackTraceLimit
  expect(ran.code, ran.stderr).toBe(0)
  const way = [...stack.matchAll(/at (.*?) ?\(?[^ ]*\/(src\/[\w/.-]+):\d+/g)]
  expect(way.at(-1)?.[1]).toBe('runFront')
  expect(way.length).toBeLessThanOrEqual(18)
  expect(new Set(way.map(([, , file]) => file)).size).toBeLessThanOrEqual(11)
  if (process.env.CAMPAIGN_REPORT)
    process.stderr.write(way.map(([, name, file]) => `${name} ${file}\n`).join(''))
})
