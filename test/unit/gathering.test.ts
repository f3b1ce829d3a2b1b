import { expect, test } from 'vitest'
import { gathered } from '../../src/core/chain/aggregate.js'
import {
  type ClaimSources,
  createClaims,
} from '../../src/core/gateway/pipeline/competing-claims.js'
import { createTurns } from '../../src/core/io/serving/load.js'
import type { Candidate } from '../../src/core/protocol/candidate.js'

test('work that gives way between its parts has asked for all of them when what it asks goes out', async () => {
  const turn = createTurns()
  let asked = 1
  const work = async () => {
    for (let part = 0; part < 5; part += 1) {
      await turn()
      asked += 1
    }
  }
  // What goes out has waited for its turn before the work waits for its next one.
  const gathering = gathered(turn, () => asked)
  const working = work()
  await gathering
  expect(asked).toBe(6)
  await working
})

test('who never stops asking is not waited for', async () => {
  let asked = 0
  await gathered(
    async () => undefined,
    () => ++asked,
  )
  expect(asked).toBeLessThan(100)
})

test("contract §5: a wallet's claims are of the ledger as it is, also where it changes in the same moment", () => {
  const candidate = (id: string, sequence: number) =>
    ({
      id,
      sequence,
      proposer: '0x1',
      round: {},
      progress: { status: 'received' },
    }) as unknown as Candidate
  const [first, second, third] = [candidate('a', 1), candidate('b', 2), candidate('c', 3)]
  let active = [first, second, third]
  const ledger = { active: () => active, slots: () => [], slotOf: () => undefined }
  const view = { known: () => undefined }
  const claimsBefore = createClaims({ ledger, view } as unknown as ClaimSources)
  expect(claimsBefore(third)).toEqual([first, second])
  expect(claimsBefore(second)).toEqual([first])
  active = [second, third]
  expect(claimsBefore(third)).toEqual([second])
})
