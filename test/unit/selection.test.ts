import fc from 'fast-check'
import type { OnChainProposal } from '#chain/propose'
import type { Round } from '#chain/round'
import { deadFailure, select } from '#gateway/pipeline/pipeline'
import { endingOf } from '#gateway/validation/validation'
import type { Candidate, Progress } from '#protocol/candidate'

const progressOf: Record<'received' | 'validated' | 'selected', Progress> = {
  received: { status: 'received' },
  validated: { status: 'validated', validatedAtMs: 1 },
  selected: { status: 'selected', validatedAtMs: 1, selectedAtMs: 2, submission: null },
}
function candidate(
  sequence: number,
  round: string,
  status: keyof typeof progressOf,
  changes: Partial<Candidate> = {},
): Candidate {
  return {
    id: `id-${sequence}`,
    identity: `i-${sequence}`,
    sequence,
    round: {
      key: round,
      questionId: '0x1',
      oracle: '0xa',
      requester: '0xb',
      identifier: '0xc',
      timestamp: '100',
      ancillaryHash: '0xd',
    },
    proposer: '0xe1',
    price: '0',
    amount: '750',
    nonce: '1',
    deadline: '2000',
    signature: '0x',
    digest: '0x',
    receivedAtMs: 0,
    progress: progressOf[status],
    ...changes,
  }
}
const ids = (list: readonly Candidate[]) => list.map(({ id }) => id)

test('R3: whatever is waiting, no round is ever taken twice, and the order of the list does not matter', () => {
  const list = fc.uniqueArray(
    fc.tuple(
      fc.nat(1000),
      fc.constantFrom('a', 'b', 'c', 'd'),
      fc.constantFrom('received', 'validated', 'selected') as fc.Arbitrary<keyof typeof progressOf>,
    ),
    {
      selector: ([sequence]) => sequence,
      maxLength: 30,
    },
  )
  fc.assert(
    fc.property(list, fc.subarray(['a', 'b', 'c', 'd']), (rows, busy) => {
      const active = rows.map(([sequence, round, status]) => candidate(sequence, round, status))
      const chosen = select(active, new Set(busy))
      const rounds = [
        ...chosen,
        ...active.filter(({ progress }) => progress.status === 'selected'),
      ].map(({ round }) => round.key)
      expect(new Set(chosen.map(({ round }) => round.key)).size).toBe(chosen.length)
      for (const { round } of chosen) expect(busy).not.toContain(round.key)
      for (const { round } of chosen)
        expect(rounds.filter((key) => key === round.key)).toHaveLength(1)
      expect(new Set(ids(select(active.toReversed(), new Set(busy))))).toEqual(new Set(ids(chosen)))
    }),
  )
})

describe('how the candidates of a closed round end (contract §5, domain §9)', () => {
  const current = { timestamp: '100', state: 'proposed' } as Round
  const proposal: OnChainProposal = {
    proposer: '0xe1',
    price: '0',
    bySignature: true,
    transactionHash: '0x99',
    logIndex: 3,
  }
  const waiting = candidate(1, 'a', 'validated')

  test.each([
    [
      'its own wallet without its signature',
      { current, proposal: { ...proposal, bySignature: false as const } },
      'superseded',
    ],
    [
      'a new timestamp',
      { current: { ...current, timestamp: '200' }, proposal: undefined },
      'round_advanced',
    ],
    [
      'a settled request nobody proposed on',
      { current: { ...current, state: 'settled' as const }, proposal: undefined },
      'request_not_open',
    ],
    ['a question that is gone', { current: undefined, proposal: undefined }, 'request_not_open'],
  ])('%s', (_title, end, code) => {
    expect(endingOf(waiting, end)).toMatchObject({
      kind: 'failed',
      failure: { code, stage: 'selection', retryable: false },
    })
  })

  test('R13: deadlines end by finalized chain time, the last second still counts', () => {
    expect(deadFailure(waiting, { finalizedSeconds: 2000n, nonceUsed: false })).toBeUndefined()
    expect(deadFailure(waiting, { finalizedSeconds: 2001n, nonceUsed: false })).toMatchObject({
      code: 'permit_expired',
    })
    expect(deadFailure(waiting, { finalizedSeconds: 1n, nonceUsed: true })).toMatchObject({
      code: 'permit_nonce_used',
    })
  })
})
