import { yesOrNoQuery } from '#chain/contracts'
import { roundRef } from '#chain/round'
import { roundPins, type Trust } from '#client/trust/trust'
import { pins } from '#support/scripted-gateway'

const [first, second, reporter] = [
  `0x${'b'.repeat(40)}`,
  `0x${'d'.repeat(40)}`,
  `0x${'e'.repeat(40)}`,
] as const
const questionId = `0x${'7'.repeat(64)}` as const
const adapters: Trust = {
  ...pins,
  requesters: [first, second].map((address) => ({ address, kind: 'uma-ctf-adapter' as const })),
}
const mixed: Trust = {
  ...adapters,
  requesters: [...adapters.requesters, { address: reporter, kind: 'oo-reporter' }],
}
const record = { questionId, timestamp: '1760000000' }
const keyAt = (requester: `0x${string}`) =>
  roundRef(
    { chainId: pins.chain_id },
    questionId,
    {
      oracle: pins.oracles[0] as `0x${string}`,
      requester,
      identifier: yesOrNoQuery,
      timestamp: record.timestamp,
    },
    questionId,
  ).key

test.each([
  ['it is journaled', adapters, { ...record, requester: second, round: 'any' }, [second]],
  ['it is journaled and pinned no more', adapters, { ...record, requester: reporter }, []],
  [
    'a record of 0.1: the key of its round tells',
    adapters,
    { ...record, round: keyAt(second) },
    [second],
  ],
  ['a record of 0.1 at neither', adapters, { ...record, round: 'other' }, []],
  [
    'a record of 0.1 where a reporter is pinned too',
    mixed,
    { ...record, round: keyAt(first) },
    [first, reporter],
  ],
  ['a payload signed elsewhere tells nothing', adapters, { questionId }, [first, second]],
] as const)(
  'R3: whose round a journaled authorization is of: %s',
  (_name, trust, one, expected) => {
    expect(roundPins(trust, one).requesters.map(({ address }) => address)).toEqual(expected)
  },
)
