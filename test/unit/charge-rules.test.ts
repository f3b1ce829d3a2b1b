/**
 * What `conformance` says of a budget by the figures of its answers (§8 rule 2); the form of the
 * window is left open.
 */
import { describe, expect, test } from 'vitest'
import type { Bench } from '../../src/core/conformance/bench.js'
import { budgetRuns } from '../../src/core/conformance/budgets.js'
import type { ProbeCall } from '../../src/core/conformance/probe.js'
import { Fault, NotSeen } from '../../src/core/conformance/rule.js'

const polling = budgetRuns['8-charged-by-item']

/** A gateway by its figures: what each call costs, and what comes back before the next, in turn. */
function look(
  costs: (items: number) => number,
  back: readonly number[],
): Promise<string> | undefined {
  let [left, calls] = [1_000, 0]
  const send = async ({ path, items = 1 }: ProbeCall) => {
    left += (back[calls++ % back.length] ?? 0) - costs(items)
    const headers = new Headers({
      'ratelimit-limit': '1000',
      'ratelimit-remaining': String(left),
      'ratelimit-reset': '10',
    })
    return { sent: path, status: 200, headers, text: '{}', json: {} }
  }
  const random = { uuid: () => '00000000-0000-4000-8000-000000000001' }
  return polling?.({
    stranger: `0x${'1'.repeat(40)}`,
    ports: { random },
    probe: { send },
  } as unknown as Bench)
}

const honest = (items: number) => items

describe('§8 rule 2: a polling pass is charged by its item count', () => {
  test('a window that slides, and gives back between two answers, is no fault', async () => {
    await expect(look(honest, [0, 1, 0, 0, 0, 3, 0, 2, 0])).rejects.toBeInstanceOf(NotSeen)
    await expect(look(honest, [0, 4, 0, 0, 0, 0])).resolves.toBe('5 for 5')
  })

  test('one item for all is a fault where three measurements say so', async () => {
    await expect(look(() => 1, [0])).rejects.toBeInstanceOf(Fault)
    await expect(look((items) => 2 * items, [0])).rejects.toBeInstanceOf(Fault)
  })
})
