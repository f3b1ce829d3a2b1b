/**
 * `journal verify` and `operator store verify` over files that are whole and say what must not be
 * (T14): exit 74, rule and ids named.
 */
import { existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { openJournal } from '../../src/core/client/journal/journal.js'
import type { JournalEntry, Signed } from '../../src/core/client/journal/records.js'
import { knownKind } from '../../src/core/gateway/ledger/state.js'
import { storeFormat } from '../../src/core/gateway/ledger/store.js'
import { systemClock, systemHash, systemRandom } from '../../src/core/io/clock.js'
import { systemFiles } from '../../src/core/io/files.js'
import { systemLiveness } from '../../src/core/io/liveness.js'
import { openLog } from '../../src/core/storage/log.js'
import { type Ran, run, temporaryHome } from '../support/cli.js'

let home: Awaited<ReturnType<typeof temporaryHome>>
beforeEach(async () => {
  home = await temporaryHome()
})
afterEach(() => home.remove())

const word = (n: number) => `0x${n.toString(16).padStart(64, '0')}` as const
const account = (n: number) => `0x${n.toString(16).padStart(40, '0')}` as const
const ports = {
  files: systemFiles,
  clock: systemClock,
  hash: systemHash,
  random: systemRandom,
  liveness: systemLiveness(),
}
const errorOf = (ran: Ran) =>
  JSON.parse(ran.stderr.trim().split('\n').at(-1) ?? '').error as Record<string, unknown>
const answerOf = (ran: Ran) => JSON.parse(ran.stdout) as Record<string, unknown>
const plain = (text: string) => text.replaceAll(/\s+/g, ' ')

describe('journal verify', () => {
  type Told = (
    make: Record<
      'reserved' | 'signed' | 'attempt',
      (id: string, nonce: number, more?: object) => JournalEntry
    >,
    ids: readonly string[],
  ) => JournalEntry[]
  const secret = 'ab'.repeat(65)
  const make = {
    reserved: (id: string, nonce: number): JournalEntry => ({
      kind: 'nonce.reserved',
      data: { id, proposer: account(1), nonce: String(nonce) },
    }),
    signed(id: string, nonce: number, more: object = {}): JournalEntry {
      const body = JSON.stringify({ nonce, signature: `0x${secret}` })
      const data: Signed = {
        id,
        identifier: word(7),
        questionId: word(7),
        chainId: 31337,
        timestamp: '1760000000',
        round: 'r',
        digest: word(nonce),
        terms: {
          proposer: account(1),
          price: '0',
          amount: '5',
          nonce: String(nonce),
          deadline: '99999999999',
        },
        identity: `identity ${nonce}`,
        form: 'single',
        body,
        sha256: systemHash.sha256(body),
        signedAtMs: nonce,
        ...more,
      }
      return { kind: 'signed', data }
    },
    attempt: (id: string, nonce: number, more: object = {}): JournalEntry => {
      const body = JSON.stringify({ nonce, signature: `0x${secret}` })
      const start = {
        attempt: `${id}.${nonce}`,
        ids: [id],
        origin: 'https://gateway.test',
        form: 'single' as const,
        sha256: systemHash.sha256(body),
        ...more,
      }
      return { kind: 'attempt.start', data: start }
    },
  }
  /** Writes what `told` makes of two ids of one run, and verifies it. */
  async function verified(
    told: Told,
    ...flags: string[]
  ): Promise<{ ran: Ran; ids: readonly string[] }> {
    const journal = openJournal(ports, home.path)
    const ids = [journal.nextId(), journal.nextId()]
    for (const entry of told(make, ids)) await journal.append([entry])
    await journal.close()
    return { ran: await run(home.path, ['journal', 'verify', ...flags]), ids }
  }

  test('R4, R6, R7, R8: what holds is told, each rule with what it was held against', async () => {
    const { ran } = await verified(({ reserved, signed, attempt }, [a = '', b = '']) => [
      reserved(a, 1),
      signed(a, 1),
      attempt(a, 1),
      attempt(a, 1),
      reserved(b, 2),
      signed(b, 2, { supersedes: a }),
    ])
    expect(ran.code, ran.stderr).toBe(0)
    const text = plain(ran.stdout)
    expect(text).toMatch(
      /^sound: 2 authorizations, 6 records, 1 run R4 holds: bytes were saved before they were sent \(2 checked\) R6 holds/,
    )
    expect(answerOf(await run(home.path, ['journal', 'verify', '--json']))).toMatchObject({
      rules: { R4: 2, R6: 4, R7: 4, R8: 2 },
    })
  })

  const broken: readonly (readonly [string, string, Told])[] = [
    ['an attempt without its bytes', 'R4', ({ attempt }, [a = '']) => [attempt(a, 1)]],
    [
      'a nonce that serves two',
      'R6',
      ({ reserved, signed }, [a = '', b = '']) => [
        reserved(a, 1),
        signed(a, 1),
        reserved(b, 1),
        signed(b, 1, { questionId: word(8) }),
      ],
    ],
    ['a signature whose nonce nobody reserved', 'R6', ({ signed }, [a = '']) => [signed(a, 1)]],
    [
      'bytes that are not those recorded',
      'R7',
      ({ reserved, signed }, [a = '']) => [reserved(a, 1), signed(a, 1, { body: '{}' })],
    ],
    [
      'bytes that authorize something else than their record',
      'R7',
      ({ reserved, signed }, [a = '']) => {
        const body = JSON.stringify({
          permit: { nonce: '1', amount: '999' },
          signature: `0x${secret}`,
        })
        return [reserved(a, 1), signed(a, 1, { body, sha256: systemHash.sha256(body) })]
      },
    ],
    [
      'one nonce for two rounds',
      'R6',
      ({ reserved, signed }, [a = '', b = '']) => [
        reserved(a, 1),
        signed(a, 1),
        signed(b, 1, { digest: undefined, timestamp: '1760009999', identity: 'other' }),
      ],
    ],
    [
      'other bytes sent than those saved',
      'R7',
      ({ reserved, signed, attempt }, [a = '']) => [
        reserved(a, 1),
        signed(a, 1),
        attempt(a, 1, { sha256: word(1).slice(2) }),
      ],
    ],
    [
      'a second signature over an unknown outcome',
      'R7',
      ({ reserved, signed, attempt }, [a = '', b = '']) => [
        reserved(a, 1),
        signed(a, 1),
        attempt(a, 1),
        reserved(b, 2),
        signed(b, 2),
      ],
    ],
    [
      'two open authorizations',
      'R8',
      ({ reserved, signed }, [a = '', b = '']) => [
        reserved(a, 1),
        signed(a, 1),
        reserved(b, 2),
        signed(b, 2),
      ],
    ],
    [
      'two open authorizations for ids of one round',
      'R8',
      ({ reserved, signed }, [a = '', b = '']) => [
        reserved(a, 1),
        signed(a, 1),
        reserved(b, 2),
        signed(b, 2, { questionId: word(8), identifier: word(8) }),
      ],
    ],
  ]
  test.each(broken)(
    '%s: exit 74 names %s, an id and what to do, and no signature',
    async (_what, rule, told) => {
      const { ran, ids } = await verified(told, '--json')
      expect(ran.code).toBe(74)
      const error = errorOf(ran)
      expect(error).toMatchObject({
        code: 'journal_broken',
        exit_code: 74,
        hint: expect.stringContaining('sign nothing more') as string,
      })
      expect(error.detail).toContain(`the journal breaks ${rule}, `)
      expect(ids.some((id) => String(error.detail).includes(id))).toBe(true)
      expect(ran.stdout + ran.stderr).not.toContain(secret.slice(0, 40))
      // Looking still works: that is how it is explained.
      expect((await run(home.path, ['journal', 'list', '--json'])).code).toBe(0)
    },
  )

  test('R7, R8: two runs of which no record says whose authorization came first are no fault, and not told to hold', async () => {
    for (const [nonce, ends] of [
      [1, true],
      [2, false],
    ] as const) {
      const journal = openJournal(ports, home.path)
      const id = journal.nextId()
      const end = { attempt: `${id}.${nonce}`, results: [{ id, class: 'refused' as const }] }
      const rest: JournalEntry[] = ends
        ? [make.attempt(id, nonce), { kind: 'attempt.end', data: end }]
        : []
      for (const entry of [make.reserved(id, nonce), make.signed(id, nonce), ...rest])
        await journal.append([entry])
      await journal.close()
    }
    const ran = await run(home.path, ['journal', 'verify'])
    expect(ran.code, ran.stderr).toBe(0)
    expect(plain(ran.stdout)).toContain(
      'R8: 1 pair of different runs cannot be ordered; of all else it holds: one open',
    )
    expect(answerOf(await run(home.path, ['journal', 'verify', '--json']))).toMatchObject({
      unordered: { R7: 1, R8: 1 },
    })
  })
})

describe('operator store verify', () => {
  const identity = {
    kind: 'store.opened',
    data: { info: { storeId: 'store', chainId: 31337, genesisHash: word(9) } },
  }
  const received = (n: number, more: object = {}) => ({
    kind: 'candidate.received',
    data: {
      candidate: {
        id: `c${n}`,
        identity: `i${n}`,
        sequence: n,
        round: { key: `r${n}` },
        proposer: account(n),
        nonce: String(n),
        ...more,
      },
    },
  })
  const opened = (id: string, nonce: number, ...candidateIds: string[]) => ({
    kind: 'slot.opened',
    data: { slot: { id, executor: account(9), nonce, candidateIds, openedAtMs: 1, attempts: [] } },
  })
  const signed = (slotId: string, hash: string, candidateIds: readonly string[]) => ({
    kind: 'slot.attempt',
    data: {
      slotId,
      attempt: {
        hash,
        raw: '0x',
        kind: 'propose',
        candidateIds,
        maxFeePerGas: '1',
        maxPriorityFeePerGas: '1',
        preparedAtMs: 1,
        sentAtMs: null,
      },
    },
  })
  const mined = (slotId: string, hash: string) => ({
    kind: 'slot.mined',
    data: { slotId, hash, blockNumber: '1', blockHash: word(1), status: 'success', gasUsed: '1' },
  })
  const closed = (slotId: string, hash: string | null, kind = 'executed') => ({
    kind: 'slot.closed',
    data: { slotId, outcome: { kind, hash } },
  })
  const folded = (n: number, progress: object) => ({
    kind: 'candidate.whole',
    data: { candidate: { ...received(n).data.candidate, progress }, folded: true },
  })
  const executed = {
    status: 'executed',
    validatedAtMs: 1,
    selectedAtMs: 1,
    submission: { transactionHash: word(5) },
  }
  const failed = {
    status: 'failed',
    submission: null,
    failure: { stage: 'indexing', code: 'execution_reverted', retryable: false },
  }
  const progress = (id: string, progress: object) => ({
    kind: 'candidate.progress',
    data: { id, progress },
  })
  const kept = (id: string, nonce: number, ...ids: string[]) => {
    const { data, kind } = opened(id, nonce, ...ids)
    return {
      kind,
      data: {
        slot: { ...data.slot, attempts: [signed(id, word(5), ids).data.attempt] },
        folded: true,
      },
    }
  }

  async function verified(
    records: readonly { kind: string; data: object }[],
    ...flags: string[]
  ): Promise<Ran> {
    return written([identity, ...records], ...flags)
  }
  async function written(
    records: readonly { kind: string; data: object }[],
    ...flags: string[]
  ): Promise<Ran> {
    const log = await openLog(
      ports,
      join(home.path, 'store'),
      { format: storeFormat, knownKinds: knownKind },
      () => undefined,
    )
    for (const record of records) await log.append([record])
    await log.close()
    return verify(...flags)
  }
  function verify(...flags: string[]): Promise<Ran> {
    const [one] = [account(1)]
    const chain = {
      rpc_urls: ['http://127.0.0.1:1'],
      signed_proposer: one,
      oracles: [one],
      requesters: [{ address: one, kind: 'uma-ctf-adapter' }],
      tokens: [one],
    }
    writeFileSync(join(home.path, 'gateway.json'), JSON.stringify({ chain, store: 'store' }))
    return run(home.path, ['operator', 'store', 'verify', ...flags])
  }
  const life = [
    received(1),
    received(2),
    opened('s', 1, 'c1'),
    signed('s', word(5), ['c1']),
    mined('s', word(5)),
    closed('s', word(5)),
  ]

  test('R1-R3: what holds is told, each rule with what it was held against', async () => {
    const answer = answerOf(await verified(life, '--json'))
    expect(answer).toMatchObject({
      schema: 'proposer.operator-store-proof/1',
      rules: { R1: 1, R2: 2, R3: 2 },
    })
  })

  test.each([
    [
      'a payload admitted twice',
      /R2: candidates c1 and c2 are one payload/,
      [received(1), received(2, { identity: 'i1' })],
    ],
    [
      'a nonce bound twice',
      /R3: nonce 1 of 0x0+9 is bound a second time, by slot t/,
      [...life, opened('t', 1, 'c2')],
    ],
    [
      'a second slot for an open round',
      /R3: slots s and t are open for one round/,
      [...life.slice(0, 3), opened('t', 2, 'c1')],
    ],
    [
      'a slot for an executed round',
      /R3: slot t is opened for a round that slot s has executed/,
      [...life, opened('t', 2, 'c1')],
    ],
    [
      'a transaction that carries others',
      /R3: transaction 0x0+6 carries candidate c2, which is none of slot s/,
      [...life.slice(0, 4), signed('s', word(6), ['c2'])],
    ],
    [
      'a receipt of a transaction that is not on record',
      /R1: transaction 0x0+7 was mined for slot s, which has no record of it/,
      [...life.slice(0, 4), mined('s', word(7))],
    ],
    [
      'a slot for a round that was executed before a compaction',
      /R3: slot t is opened for a round that candidate c1 has executed/,
      [
        { kind: 'executor.nonce', data: { executor: account(9), nonce: 1 } },
        folded(1, executed),
        opened('t', 2, 'c1'),
      ],
    ],
    [
      'an end by a transaction that is not on record',
      /R1: the end \(executed\) of slot s is that of transaction 0x0+8, of which the slot has no record/,
      [...life.slice(0, 3), closed('s', word(8))],
    ],
    [
      'an execution by no transaction',
      /R1: the end \(executed\) of slot s names no transaction/,
      [...life.slice(0, 4), closed('s', null)],
    ],
    [
      'an end as reverted where the receipt says success',
      /R3: slot s ends as reverted, and the receipt on record of its transaction 0x0+5 is a success/,
      [...life.slice(0, 5), closed('s', word(5), 'reverted')],
    ],
    [
      'bytes of another transaction than the one on record',
      /transaction 0x0+6 is recorded with the bytes of 0x[0-9a-f]{64}/,
      [
        ...life.slice(0, 3),
        {
          kind: 'slot.attempt',
          data: {
            slotId: 's',
            attempt: { ...signed('s', word(6), ['c1']).data.attempt, raw: '0x02c0' },
          },
        },
      ],
    ],
  ])('%s: exit 74 names the rule, the ids, file and byte', async (_what, detail, records) => {
    const ran = await verified(records, '--json')
    expect(ran.code).toBe(74)
    expect(errorOf(ran)).toMatchObject({
      code: 'store_damaged',
      detail: expect.stringMatching(detail) as string,
      hint: expect.stringContaining('backup') as string,
    })
    expect(String(errorOf(ran).detail)).toMatch(/log-000000000001\.jsonl is damaged at byte \d+/)
  })

  const sound: readonly (readonly [string, readonly { kind: string; data: object }[]])[] = [
    [
      'a success without a proposal, which ends as reverted, and a stand-in for the round',
      [
        ...life.slice(0, 5),
        progress('c1', failed),
        closed('s', word(5), 'reverted'),
        opened('t', 2, 'c2'),
      ],
    ],
    [
      'an execution at a numeric depth that a reorganisation undid after a compaction',
      [
        kept('s', 1, 'c1'),
        folded(1, executed),
        progress('c1', { ...executed, status: 'selected' }),
        closed('s', null, 'foreign'),
        opened('t', 2, 'c1'),
      ],
    ],
    [
      'a nonce that something foreign took',
      [...life.slice(0, 4), closed('s', null, 'foreign'), opened('t', 2, 'c1')],
    ],
    [
      'a receipt from before a compaction',
      [kept('s', 1, 'c1'), folded(1, { ...executed, status: 'selected' }), closed('s', word(5))],
    ],
  ]
  test.each(sound)('%s: it is sound', async (_what, records) => {
    const ran = await verified(records)
    expect(ran.stderr).toBe('')
    expect(ran.code).toBe(0)
  })

  test('records without the one that names the chain are no empty store: exit 74', async () => {
    const ran = await written(life, '--json')
    expect(ran.code).toBe(74)
    expect(errorOf(ran)).toMatchObject({
      code: 'store_damaged',
      detail: expect.stringMatching(/holds 6 records, but none that names/) as string,
    })
  })

  test('a store that does not exist is neither sound nor folded: exit 2 names it and the key of gateway.json', async () => {
    const ran = await verify('--json')
    expect(ran.code).toBe(2)
    expect(errorOf(ran)).toMatchObject({
      code: 'no_store',
      detail: `no store found at ${join(home.path, 'store')}`,
      hint: expect.stringContaining('`store` in') as string,
    })
    expect(existsSync(join(home.path, 'store'))).toBe(false)
  })
})
