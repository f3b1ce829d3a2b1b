import { type Action, next, type SlotFacts } from '#gateway/executor/slot'
import type { Slot, SlotAttempt } from '#gateway/ledger/ledger'
import type { ChainReceipt, Hex } from '#ports'

const hashOf = (n: number): Hex => `0x${String(n).padStart(64, '0')}`
const attempt = (n: number, changes: Partial<SlotAttempt> = {}): SlotAttempt => ({
  hash: hashOf(n),
  raw: '0x02',
  kind: 'propose',
  candidateIds: ['c'],
  maxFeePerGas: '100',
  maxPriorityFeePerGas: '10',
  preparedAtMs: 0,
  sentAtMs: 1,
  ...changes,
})
const slotOf = (...attempts: SlotAttempt[]): Slot => ({
  id: 's',
  executor: '0x1',
  nonce: 7,
  candidateIds: ['c'],
  openedAtMs: 0,
  attempts,
})
const receiptOf = (
  n: number,
  blockNumber: bigint,
  status: ChainReceipt['status'] = 'success',
): [Hex, ChainReceipt] => [
  hashOf(n),
  {
    transactionHash: hashOf(n),
    blockNumber,
    blockHash: hashOf(900),
    status,
    gasUsed: 1n,
    logs: [],
  },
]
const calm: SlotFacts = {
  finalizedNumber: 98n,
  nonceLatest: 7,
  nonceFinalized: 7,
  receipts: new Map(),
  held: new Set(),
  hopes: 'all',
  deadlineUnsettled: false,
  sendDue: true,
  bumpDue: false,
  refitDue: false,
  renewDue: false,
  expired: false,
  maySend: true,
  maySign: true,
}
const kindOf = (slot: Slot, facts: Partial<SlotFacts>) => next(slot, { ...calm, ...facts }).kind

describe('the next action for a slot (robustness §3)', () => {
  test.each<[string, Slot, Partial<SlotFacts>, Action['kind']]>([
    [
      'nonce used at the head: only finalized state decides',
      slotOf(attempt(1)),
      { nonceLatest: 8 },
      'wait',
    ],
    [
      'nonce used in finalized state without a receipt of ours',
      slotOf(attempt(1)),
      { nonceLatest: 8, nonceFinalized: 8 },
      'close-taken',
    ],
    [
      'prepared as often as may be: the nonce is given back',
      slotOf(...Array.from({ length: 6 }, (_, n) => attempt(n, { sentAtMs: null }))),
      { renewDue: true },
      'cancel',
    ],
    [
      'refused after it was once taken: the same bytes',
      slotOf(attempt(1)),
      { renewDue: true },
      'send',
    ],
    [
      'a cancellation that stays pending gets a higher fee, whatever the proposals had',
      slotOf(...Array.from({ length: 6 }, (_, n) => attempt(n)), attempt(9, { kind: 'cancel' })),
      { hopes: 'none', held: new Set([hashOf(9)]), bumpDue: true },
      'cancel',
    ],
    [
      'mined by an earlier version, not final: the slot stays',
      { ...slotOf(attempt(1)), minedIn: hashOf(900) },
      { receipts: new Map([receiptOf(1, 99n)]) },
      'wait',
    ],
    [
      'mined by an earlier version, and the receipt is gone: the same bytes',
      { ...slotOf(attempt(1)), minedIn: hashOf(901) },
      {},
      'send',
    ],
    [
      'the self-transfer final, and a deadline that is not',
      slotOf(attempt(1), attempt(2, { kind: 'cancel' })),
      { receipts: new Map([receiptOf(2, 98n)]), deadlineUnsettled: true },
      'wait',
    ],
    [
      'the proposals final, and the deadline of one that was left out is not',
      slotOf(attempt(1)),
      { receipts: new Map([receiptOf(1, 98n)]), deadlineUnsettled: true },
      'record-executed',
    ],
    [
      'and on record',
      { ...slotOf(attempt(1)), minedIn: hashOf(900) },
      { receipts: new Map([receiptOf(1, 98n)]), deadlineUnsettled: true },
      'wait',
    ],
  ])('%s', (_title, slot, facts, expected) => {
    expect(kindOf(slot, facts)).toBe(expected)
  })
})
