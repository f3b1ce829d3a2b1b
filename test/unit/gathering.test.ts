import { type ClaimSources, createClaims } from '#gateway/pipeline/pipeline'
import type { Candidate } from '#protocol/candidate'

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
  const ledger = { active: () => active, slotOf: () => undefined }
  const view = { known: () => undefined }
  const claimsBefore = createClaims({ ledger, view } as unknown as ClaimSources)
  expect(claimsBefore(third)).toEqual([first, second])
  expect(claimsBefore(second)).toEqual([first])
  active = [second, third]
  expect(claimsBefore(third)).toEqual([second])
})
