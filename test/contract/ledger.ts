import { roundRef } from '#chain/round'
import type { CandidateRef, Ledger, NewCandidate, Slot, SlotAttempt } from '#gateway/ledger/ledger'
import type { LedgerState } from '#gateway/ledger/state'
import { foldLedger, openLedger } from '#gateway/ledger/writer'
import { systemClock, systemRandom } from '#io/clock'
import type { Hex } from '#ports'
import type { CandidateFailure, Progress } from '#protocol/candidate'
import type { RecordLog, StoredRecord } from '#storage/record-log'

/** One store, whose log may be opened anew. */
interface LedgerStore<Log extends RecordLog> {
  openLog(onRecord: (record: StoredRecord) => void, state: LedgerState): Promise<Log> | Log
  compact(log: Log, state: LedgerState): Promise<void>
}

const ports = { clock: systemClock, random: systemRandom }

function ledgerOn<Log extends RecordLog>({ openLog, compact }: LedgerStore<Log>) {
  let opened: { readonly log: Log; readonly state: LedgerState } | undefined
  return {
    async open() {
      const { state, onRecord } = foldLedger()
      opened = { log: await openLog(onRecord, state), state }
      return openLedger(ports, opened.log, state, settings)
    },
    async compact() {
      if (opened) await compact(opened.log, opened.state)
    },
  }
}

const contracts = {
  chainId: 31337,
  permit2: '0x000000000022d473030f116ddee9f6b43ac78ba3',
  signedProposer: '0x1111111111111111111111111111111111111111',
  oracles: [],
  requesters: [],
  tokens: [],
} as const
const word = (n: number): Hex => `0x${n.toString(16).padStart(64, '0')}`
const account = (n: number): Hex => `0x${n.toString(16).padStart(40, '0')}`

export const settings = {
  chainId: 31337,
  genesisHash: word(99),
  allowlist: [account(1), account(2)],
  admissionEnabled: true,
}

export function candidate(
  part: {
    proposer?: number
    question?: number
    text?: number
    round?: number
    nonce?: number
    price?: string
    identity?: string
  } = {},
): NewCandidate {
  const { proposer = 1, question = 1, round = 1, nonce = 1, price = '0' } = part
  const { text = question } = part
  const request = {
    oracle: account(50),
    requester: account(51),
    identifier: word(7),
    timestamp: String(1_760_000_000 + round),
    ancillaryData: '0x' as const,
  }
  return {
    identity:
      part.identity ??
      [proposer, question, nonce, price].map((n) => String(n).padStart(8, '0')).join(''),
    round: roundRef(contracts, word(question), request, word(text)),
    proposer: account(proposer),
    price,
    amount: '750000000',
    nonce: String(nonce),
    deadline: '1800000000',
    signature: `0x${'ab'.repeat(65)}`,
    digest: word(1000 + nonce),
  }
}

const failed = (retryable: boolean): Progress => {
  const failure: CandidateFailure = {
    stage: 'validation',
    code: retryable ? 'insufficient_balance' : 'permit_expired',
    detail: 'the wallet holds 1, the permit needs 2',
    retryable,
  }
  return { status: 'failed', validatedAtMs: null, selectedAtMs: null, submission: null, failure }
}
const validated: Progress = { status: 'validated', validatedAtMs: 5 }
const selected: Progress = {
  status: 'selected',
  validatedAtMs: 5,
  selectedAtMs: 6,
  submission: null,
}
const submission = {
  status: 'indexed',
  transactionHash: word(4),
  submittedAtMs: 7,
  confirmedAtMs: 8,
  indexedAtMs: 9,
  proposalEventIndex: 3,
} as const
const executed: Progress = { status: 'executed', validatedAtMs: 5, selectedAtMs: 6, submission }

const slot = (nonce: number, ...candidateIds: string[]): Slot => ({
  id: `slot-${nonce}`,
  executor: account(80),
  nonce,
  candidateIds,
  openedAtMs: 1,
  attempts: [],
})
const attempt = (hash: Hex, ...candidateIds: string[]): SlotAttempt => ({
  hash,
  raw: '0x02ff',
  kind: 'propose',
  candidateIds,
  maxFeePerGas: '1',
  maxPriorityFeePerGas: '1',
  preparedAtMs: 2,
  sentAtMs: null,
})

async function admitted(
  ledger: Ledger,
  part: Parameters<typeof candidate>[0] = {},
): Promise<string> {
  const admission = await ledger.admit(candidate(part))
  if (admission.kind !== 'admitted') throw new Error(`expected an admission, got ${admission.kind}`)
  return admission.candidate.id
}

export function ledgerSuite<Log extends RecordLog>(
  name: string,
  make: () => Promise<LedgerStore<Log>>,
): void {
  describe(`the ledger on ${name}`, () => {
    const withStore = (
      title: string,
      body: (store: ReturnType<typeof ledgerOn>, ledger: Ledger) => Promise<void>,
    ) =>
      test(title, async () => {
        const store = ledgerOn(await make())
        const ledger = await store.open()
        try {
          await body(store, ledger)
        } finally {
          await ledger.close()
        }
      })

    withStore(
      'R2: of eight copies at once one is admitted, the others get the same id',
      async (_, ledger) => {
        const answers = await Promise.all(
          Array.from({ length: 8 }, () => ledger.admit(candidate())),
        )
        expect(answers.map((answer) => answer.kind).sort()).toEqual([
          'admitted',
          ...Array(7).fill('replayed'),
        ])
        expect(
          new Set(answers.map((answer) => (answer.kind === 'conflict' ? '' : answer.candidate.id)))
            .size,
        ).toBe(1)
      },
    )

    withStore(
      'of two different payloads at once for one round one is admitted, the other conflicts with it',
      async (_, ledger) => {
        const [first, second] = await Promise.all([
          ledger.admit(candidate({ nonce: 1 })),
          ledger.admit(candidate({ nonce: 2 })),
        ])
        expect(first.kind).toBe('admitted')
        if (first.kind !== 'admitted') return
        expect(second).toEqual({
          kind: 'conflict',
          candidateId: first.candidate.id,
          reason: 'round',
        })
      },
    )

    withStore(
      'a round that two questions share takes one active candidate of a proposer',
      async (_, ledger) => {
        const [first, second] = await Promise.all([
          ledger.admit(candidate({ question: 1, text: 9, nonce: 1 })),
          ledger.admit(candidate({ question: 2, text: 9, nonce: 2 })),
        ])
        expect([first.kind, second.kind]).toEqual(['admitted', 'conflict'])
        const other = await ledger.admit(candidate({ question: 2, text: 9, proposer: 2 }))
        expect(other.kind).toBe('admitted')
        const keys = ledger.active().map(({ round }) => round.key)
        expect(new Set(keys).size).toBe(1)
        expect(ledger.byRound(keys[0] ?? '')).toHaveLength(2)
      },
    )

    withStore(
      'of a hundred candidates at once with ten nonces in ten rounds ten are admitted, numbered without a gap',
      async (_, ledger) => {
        const parts = Array.from({ length: 100 }, (_, n) => ({
          question: 1 + (n % 10),
          nonce: 1 + ((n * 7) % 10),
          proposer: 1,
        }))
        const answers = await Promise.all(parts.map((part) => ledger.admit(candidate(part))))
        const won = answers.flatMap((answer) =>
          answer.kind === 'admitted' ? [answer.candidate] : [],
        )
        expect(won.map(({ sequence }) => sequence)).toEqual(
          Array.from({ length: 10 }, (_, n) => n + 1),
        )
        expect(new Set(won.map(({ nonce }) => nonce)).size).toBe(10)
        expect(
          answers.every(
            (answer) =>
              answer.kind !== 'conflict' || won.some(({ id }) => id === answer.candidateId),
          ),
        ).toBe(true)
        expect(ledger.active().map(({ id }) => id)).toEqual(won.map(({ id }) => id))
      },
    )

    withStore(
      'a commit writes nothing where a candidate that it rests on has moved on',
      async (_, ledger) => {
        const id = await admitted(ledger)
        const [basis] = ledger.active()
        if (basis === undefined) throw new Error('nothing is active')
        const rejected = ledger.commit([
          { kind: 'candidate.progress', id, progress: failed(false) },
        ])
        expect(
          await ledger.commit([{ kind: 'candidate.progress', id, progress: validated }], [basis]),
        ).toBe(false)
        expect(await rejected).toBe(true)
        expect(await ledger.get(id)).toMatchObject({ progress: failed(false) })
        await expect(
          ledger.commit([{ kind: 'candidate.progress', id, progress: validated }]),
        ).rejects.toThrow(RangeError)
      },
    )

    withStore(
      'one Permit2 nonce of a proposer is active once, whatever the round',
      async (_, ledger) => {
        const id = await admitted(ledger, { question: 1, nonce: 5 })
        expect(await ledger.admit(candidate({ question: 2, nonce: 5 }))).toEqual({
          kind: 'conflict',
          candidateId: id,
          reason: 'nonce',
        })
        expect(await ledger.admit(candidate({ question: 2, nonce: 5, proposer: 2 }))).toMatchObject(
          { kind: 'admitted' },
        )
      },
    )

    withStore(
      'candidates, allowlist and switches are there again after a restart, in order',
      async (store, ledger) => {
        const first = await admitted(ledger, { question: 1, nonce: 1 })
        const second = await admitted(ledger, { question: 2, nonce: 2 })
        await ledger.commit([{ kind: 'candidate.progress', id: first, progress: validated }])
        await ledger.commit([
          { kind: 'allowlist.set', address: account(2), allowed: false, reason: 'test' },
          { kind: 'admission.set', enabled: false, reason: 'test' },
          { kind: 'chain.finalized', number: '12', hash: word(12) },
        ])
        const storeId = ledger.info?.storeId
        const decision = ledger.admissionDecision
        expect(decision).toMatchObject({ reason: 'test', atMs: expect.any(Number) })
        expect([
          ledger.finalized?.number,
          ledger.admissionEnabled,
          ledger.eligible(account(2)),
        ]).toEqual([12n, false, false])
        await ledger.close()
        const again = await store.open()
        expect(again.info?.storeId).toBe(storeId)
        expect(again.active().map((one) => [one.id, one.sequence, one.progress.status])).toEqual([
          [first, 1, 'validated'],
          [second, 2, 'received'],
        ])
        // the seed names the second wallet again, the operator's word stays
        expect([...again.allowlist]).toEqual([account(1)])
        expect(again.admissionEnabled).toBe(false)
        expect(again.admissionDecision).toEqual(decision)
        expect(again.finalized).toEqual({ number: 12n, hash: word(12) })
        expect(await again.admit(candidate({ question: 1, nonce: 1 }))).toMatchObject({
          kind: 'replayed',
          candidate: { id: first },
        })
        await again.close()
      },
    )

    withStore(
      'a candidate at its end leaves the round free and is read from the log',
      async (store, ledger) => {
        const id = await admitted(ledger)
        expect(await ledger.progressedAtMs(id)).toBeUndefined()
        await ledger.commit([{ kind: 'candidate.progress', id, progress: failed(false) }])
        const atMs = await ledger.progressedAtMs(id)
        expect(atMs).toEqual(expect.any(Number))
        expect(ledger.active()).toEqual([])
        expect(ledger.activeInRound(account(1), candidate().round.key)).toBeUndefined()
        expect(await ledger.get(id)).toMatchObject({
          id,
          signature: candidate().signature,
          progress: failed(false),
        })
        expect(await ledger.admit(candidate({ nonce: 2 }))).toMatchObject({ kind: 'admitted' })
        await ledger.close()
        const again = await store.open()
        expect(await again.progressedAtMs(id)).toBe(atMs)
        expect(await again.get(id)).toMatchObject({
          id,
          signature: candidate().signature,
          progress: failed(false),
        })
        await again.close()
      },
    )

    withStore(
      'an exact replay puts a retryable failure back to received, under the same id and also after a restart',
      async (store, ledger) => {
        const id = await admitted(ledger)
        await ledger.commit([{ kind: 'candidate.progress', id, progress: failed(true) }])
        expect(await ledger.replay(id)).toMatchObject({ id, progress: { status: 'received' } })
        expect(ledger.active().map((one) => one.id)).toEqual([id])
        await ledger.commit([{ kind: 'candidate.progress', id, progress: validated }])
        await ledger.close()
        const again = await store.open()
        expect(again.active()).toMatchObject([{ id, sequence: 1, progress: validated }])
        await again.close()
      },
    )

    withStore(
      'a replay of a failure that is not retryable, or whose round is taken again, changes nothing',
      async (_, ledger) => {
        const dead = await admitted(ledger, { nonce: 1 })
        await ledger.commit([{ kind: 'candidate.progress', id: dead, progress: failed(false) }])
        expect(await ledger.replay(dead)).toMatchObject({ id: dead, progress: failed(false) })
        const retryable = await admitted(ledger, { nonce: 2 })
        await ledger.commit([{ kind: 'candidate.progress', id: retryable, progress: failed(true) }])
        await admitted(ledger, { nonce: 3 })
        expect(await ledger.replay(retryable)).toMatchObject({
          id: retryable,
          progress: failed(true),
        })
      },
    )

    withStore(
      'R2, R17: a replay and a rival at the same moment both end, and one of them has the round',
      async (_, ledger) => {
        for (let turns = 0; turns < 12; turns += 1) {
          const question = turns + 1
          const id = await admitted(ledger, { question, nonce: 2 * question })
          await ledger.commit([{ kind: 'candidate.progress', id, progress: failed(true) }])
          const revival = ledger.replay(id)
          for (let turn = 0; turn < turns; turn += 1) await Promise.resolve()
          const [revived, rival] = await Promise.all([
            revival,
            ledger.admit(candidate({ question, nonce: 2 * question + 1 })),
          ])
          expect([
            ['received', 'conflict'],
            ['failed', 'admitted'],
          ]).toContainEqual([revived.progress.status, rival.kind])
          expect(
            ledger.active().filter(({ round }) => round.questionId === word(question)),
          ).toHaveLength(1)
        }
      },
    )

    withStore(
      'R3: a slot keeps its nonce, its bytes and its candidate through a restart, and no nonce is bound twice',
      async (store, ledger) => {
        const id = await admitted(ledger)
        await ledger.commit([{ kind: 'candidate.progress', id, progress: validated }])
        await ledger.commit([
          { kind: 'slot.opened', slot: slot(4, id) },
          { kind: 'candidate.progress', id, progress: selected },
        ])
        await ledger.commit([
          { kind: 'slot.attempt', slotId: 'slot-4', attempt: attempt(word(4), id) },
        ])
        await ledger.commit([{ kind: 'slot.sent', slotId: 'slot-4', hash: word(4), sentAtMs: 77 }])
        await ledger.close()
        const again = await store.open()
        expect(again.slots()).toEqual([
          { ...slot(4, id), attempts: [{ ...attempt(word(4), id), sentAtMs: 77 }] },
        ])
        expect(again.highestNonce(account(80))).toBe(4)
        await expect(again.commit([{ kind: 'slot.opened', slot: slot(4) }])).rejects.toThrow(
          RangeError,
        )
        await expect(
          again.commit([{ kind: 'slot.opened', slot: { ...slot(3, id), id: 'other' } }]),
        ).rejects.toThrow('bound before')
        await expect(
          again.commit([{ kind: 'slot.opened', slot: { ...slot(4), id: 'other' } }]),
        ).rejects.toThrow('bound before')
        // Robustness §3: a gap below may be filled by what carries no proposal.
        await again.commit([{ kind: 'slot.opened', slot: slot(3) }])
        await again.commit([
          { kind: 'slot.closed', slotId: 'slot-3', outcome: { kind: 'cancelled', hash: null } },
        ])
        expect(again.highestNonce(account(80))).toBe(4)
        await expect(again.commit([{ kind: 'slot.opened', slot: slot(5, id) }])).rejects.toThrow(
          'has an open slot',
        )
        await again.commit([{ kind: 'candidate.progress', id, progress: executed }])
        expect(again.active().map((one) => one.progress.status)).toEqual(['executed'])
        await again.commit([
          { kind: 'slot.closed', slotId: 'slot-4', outcome: { kind: 'executed', hash: word(4) } },
        ])
        expect(again.active()).toEqual([])
        expect(again.slots()).toEqual([])
        expect(again.highestNonce(account(80))).toBe(4)
        await again.close()
      },
    )

    withStore(
      'a transition that contract §5 does not know is refused and writes nothing',
      async (_, ledger) => {
        const id = await admitted(ledger)
        await expect(
          ledger.commit([{ kind: 'candidate.progress', id, progress: selected }]),
        ).rejects.toThrow('received to selected')
        await expect(
          ledger.commit([{ kind: 'slot.sent', slotId: 'none', hash: word(1), sentAtMs: 1 }]),
        ).rejects.toThrow(RangeError)
        expect(ledger.active()).toMatchObject([{ id, progress: { status: 'received' } }])
        await ledger.commit([{ kind: 'candidate.progress', id, progress: validated }])
      },
    )

    withStore(
      'every admission and every commit is told once, after it is durable',
      async (_, ledger) => {
        const told: string[] = []
        const stop = ledger.onChange((events) => {
          for (const event of events) told.push(event.kind)
        })
        const id = await admitted(ledger)
        await ledger.admit(candidate())
        await ledger.commit([{ kind: 'candidate.progress', id, progress: validated }])
        stop()
        await ledger.commit([{ kind: 'candidate.progress', id, progress: failed(true) }])
        expect(told).toEqual(['candidate.received', 'candidate.progress'])
      },
    )

    withStore(
      'a compaction changes no answer: not while it serves, not after a restart',
      async (store, ledger) => {
        const ids: string[] = []
        for (let n = 1; n <= 20; n += 1) ids.push(await admitted(ledger, { question: n, nonce: n }))
        const at = (n: number) => ids[n] ?? ''
        for (let n = 0; n < 10; n += 1) {
          await ledger.commit([
            { kind: 'candidate.progress', id: at(n), progress: failed(n % 2 === 0) },
          ])
        }
        await ledger.commit([{ kind: 'admission.set', enabled: false, reason: 'test', by: 'me' }])
        const runs = { implementation: account(7), code_hash: word(7) }
        await ledger.commit([
          { kind: 'implementation.set', address: account(6), runs, reason: 'looked at' },
        ])
        for (const key of [
          { kid: 'one', x: 'x', nbf: 1 },
          { kid: 'one', x: 'x', nbf: 1, exp: 3 },
          { kid: 'two', x: 'y', nbf: 2 },
        ])
          await ledger.commit([{ kind: 'receipt.key', key, reason: 'rotated' }])
        await ledger.commit([{ kind: 'candidate.progress', id: at(10), progress: validated }])
        await ledger.commit([
          { kind: 'slot.opened', slot: slot(1, at(10)) },
          { kind: 'candidate.progress', id: at(10), progress: selected },
        ])
        const picture = async (from: Ledger) => ({
          candidates: await Promise.all(ids.map((id) => from.get(id))),
          active: from.active().map((one) => one.id),
          slots: from.slots(),
          allowlist: [...from.allowlist],
          info: from.info,
          nonce: from.highestNonce(account(80)),
          decision: from.admissionDecision,
          code: [...from.implementations],
          receipts: [...from.receiptKeys],
        })
        const before = await picture(ledger)
        await store.compact()
        expect(await picture(ledger)).toEqual(before)
        await ledger.replay(at(0))
        await ledger.commit([{ kind: 'candidate.progress', id: at(0), progress: failed(true) }])
        expect(await ledger.admit(candidate({ question: 4, nonce: 4 }))).toMatchObject({
          kind: 'replayed',
          candidate: { id: at(3) },
        })
        await ledger.close()
        const again = await store.open()
        expect(await picture(again)).toEqual(before)
        expect(await admitted(again, { question: 30, nonce: 30 })).not.toBe('')
        expect(again.active().at(-1)?.sequence).toBe(21)
        await again.close()
      },
    )

    withStore(
      'contract §5: what wallets have cost the executor outlives compaction and restart, until one is allowed again',
      async (store, ledger) => {
        const wallets = [account(1), account(2)] as const
        for (const address of wallets)
          await ledger.commit([{ kind: 'allowlist.set', address, allowed: true, reason: 'test' }])
        const failed = wallets.map((wallet) => ({
          ...({ wallet, kind: 'own' } as const),
          ...{ gasUsed: '1400000', atSeconds: 1_700_000_000 },
        }))
        await ledger.commit([{ kind: 'slot.opened', slot: slot(1) }])
        await ledger.commit([
          {
            ...{ kind: 'slot.closed', slotId: 'slot-1', failures: failed },
            outcome: { kind: 'reverted', hash: word(1) },
          },
        ])
        const before = new Map(failed.map((one) => [one.wallet, [one]]))
        expect(ledger.failures).toEqual(before)
        await store.compact()
        expect(ledger.failures).toEqual(before)
        await ledger.close()
        const again = await store.open()
        expect(again.failures).toEqual(before)
        await again.commit([
          { kind: 'allowlist.set', address: wallets[0], allowed: false, reason: 'test' },
        ])
        expect(again.failures).toEqual(before)
        await again.commit([
          { kind: 'allowlist.set', address: wallets[0], allowed: true, reason: 'test' },
        ])
        expect([...again.failures.keys()]).toEqual([wallets[1]])
        await again.close()
      },
    )

    withStore(
      'T13: after a compaction and a restart an ended candidate is known by id and payload, and may come back to its place',
      async (store, ledger) => {
        const parts = [1, 2, 3, 4].map((n) => ({ question: n, nonce: n }))
        const ids: string[] = []
        for (const part of parts) ids.push(await admitted(ledger, part))
        const [first = '', , third = '', fourth = ''] = ids
        await ledger.commit([{ kind: 'candidate.progress', id: first, progress: failed(true) }])
        await ledger.commit([{ kind: 'candidate.progress', id: third, progress: failed(false) }])
        const refs = (from: Ledger) =>
          parts.map((part, n) => [
            from.byId(ids[n] ?? ''),
            from.byIdentity(candidate(part).identity),
          ])
        const told = ({ id, identity, roundKey, status, retryable }: CandidateRef) => ({
          id,
          identity,
          roundKey,
          status,
          retryable,
        })
        const shown = (from: Ledger) =>
          refs(from).map((both) => both.map((ref) => ref && told(ref)))
        const before = shown(ledger)
        expect(before.map(([byId, byIdentity]) => [byId?.status, byIdentity?.retryable])).toEqual([
          ['failed', true],
          ['received', false],
          ['failed', false],
          ['received', false],
        ])
        await store.compact()
        await ledger.close()

        const again = await store.open()
        expect(shown(again)).toEqual(before)
        expect(again.active().map(({ id }) => id)).toEqual([ids[1], fourth])
        expect((await again.replay(third)).progress.status).toBe('failed')
        expect((await again.replay(first)).progress.status).toBe('received')
        expect(again.byId(first)).toMatchObject({ status: 'received', retryable: false })
        expect(again.active().map(({ id }) => id)).toEqual([first, ids[1], fourth])
        expect(again.activeInRound(account(1), candidate(parts[0]).round.key)?.id).toBe(first)
        await again.commit([{ kind: 'candidate.progress', id: first, progress: failed(false) }])
        await store.compact()
        await again.close()

        const last = await store.open()
        expect(last.byId(first)).toMatchObject({ status: 'failed', retryable: false })
        expect((await last.get(first))?.progress).toEqual(failed(false))
        expect(await last.admit(candidate(parts[0]))).toMatchObject({
          kind: 'replayed',
          candidate: { id: first },
        })
        await last.close()
      },
    )
  })
}
