import { existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { JournalEntry, Signed } from '#client/journal/authorizations'
import { openJournal } from '#client/journal/journal'
import { storeLog } from '#gateway/ledger/writer'
import { systemHash } from '#io/clock'
import { systemPorts } from '#io/system'
import { openLog } from '#storage/log'
import { eachHome, lastErrorOf, type Ran, run } from '#support/cli'
import { gatewayFile } from '#support/desk'

const home = eachHome()

const word = (n: number) => `0x${n.toString(16).padStart(64, '0')}` as const
const account = (n: number) => `0x${n.toString(16).padStart(40, '0')}` as const
const ports = systemPorts()
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

  test('what holds is told, with what was looked at', async () => {
    const { ran } = await verified(({ reserved, signed, attempt }, [a = '', b = '']) => [
      reserved(a, 1),
      signed(a, 1),
      attempt(a, 1),
      reserved(b, 2),
      signed(b, 2, { supersedes: a }),
    ])
    expect(ran.code, ran.stderr).toBe(0)
    expect(plain(ran.stdout)).toMatch(
      /^sound: 2 authorizations, 5 records, 1 run 2 payloads as recorded; 2 nonces, each of one authorization/,
    )
    expect(answerOf(await run(home.path, 'journal verify --json'))).toMatchObject({
      hashes: 2,
      nonces: 2,
    })
  })

  const broken: readonly (readonly [string, RegExp, Told])[] = [
    [
      'a nonce that is reserved twice',
      /nonce 1 of 0x0+1 is reserved twice/,
      ({ reserved }, [a = '', b = '']) => [reserved(a, 1), reserved(b, 1)],
    ],
    [
      'a nonce that serves two',
      /nonce 1 of 0x0+1 serves two authorizations/,
      ({ reserved, signed }, [a = '', b = '']) => [
        reserved(a, 1),
        signed(a, 1),
        signed(b, 1, { questionId: word(8) }),
      ],
    ],
    [
      'bytes that are not those recorded',
      /do not have the hash/,
      ({ reserved, signed }, [a = '']) => [reserved(a, 1), signed(a, 1, { body: '{}' })],
    ],
    [
      'an attempt whose bytes are not those recorded',
      /the bytes saved as attempt .* do not have the hash/,
      ({ attempt }, [a = '']) => [attempt(a, 1, { body: '{}' })],
    ],
    [
      'two payloads under one id',
      /two different payloads/,
      ({ reserved, signed }, [a = '']) => [
        reserved(a, 1),
        signed(a, 1),
        signed(a, 1, { identity: 'other' }),
      ],
    ],
  ]
  test.each(broken)(
    '%s: exit 74 names an id and what to do, and no signature',
    async (_what, detail, told) => {
      const { ran, ids } = await verified(told, '--json')
      expect(ran.code).toBe(74)
      const error = lastErrorOf(ran)
      expect(error).toMatchObject({
        code: 'journal_broken',
        exit_code: 74,
        hint: expect.stringContaining('sign nothing more') as string,
      })
      expect(error.detail).toMatch(detail)
      expect(ids.some((id) => String(error.detail).includes(id))).toBe(true)
      expect(ran.stdout + ran.stderr).not.toContain(secret.slice(0, 40))
      expect((await run(home.path, 'journal list --json')).code).toBe(0)
    },
  )
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
    const log = await openLog(ports, join(home.path, 'store'), storeLog, () => undefined)
    for (const record of records) await log.append([record])
    await log.close()
    return verify(...flags)
  }
  function verify(...flags: string[]): Promise<Ran> {
    writeFileSync(join(home.path, 'gateway.json'), JSON.stringify(gatewayFile({ store: 'store' })))
    return run(home.path, ['operator', 'store', 'verify', ...flags])
  }
  const life = [
    received(1),
    received(2),
    opened('s', 1, 'c1'),
    signed('s', word(5), ['c1']),
    { kind: 'slot.closed', data: { slotId: 's', outcome: { kind: 'executed', hash: word(5) } } },
  ]

  test('what holds is told, with what was looked at', async () => {
    expect(answerOf(await verified(life, '--json'))).toMatchObject({
      schema: 'proposer.operator-store-proof/1',
      records: 6,
      kinds: { 'candidate.received': 2, 'slot.attempt': 1, 'slot.opened': 1 },
    })
  })

  test.each([
    [
      'R2: a payload admitted twice',
      /candidate c2 is a known payload, that of c1/,
      [received(1), received(2, { identity: 'i1' })],
    ],
    [
      'R13: a sequence number given twice',
      /candidate c2 has sequence number 1, that of c1/,
      [received(1), received(2, { sequence: 1 })],
    ],
    [
      'R3: a nonce bound twice',
      /slot t binds nonce 1 of 0x0+9, that of s/,
      [...life, opened('t', 1, 'c2')],
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
  ])('%s: exit 74 names the ids, file and byte', async (_what, detail, records) => {
    const ran = await verified(records, '--json')
    expect(ran.code).toBe(74)
    expect(lastErrorOf(ran)).toMatchObject({
      code: 'store_damaged',
      detail: expect.stringMatching(detail) as string,
      hint: expect.stringContaining('backup') as string,
    })
    expect(String(lastErrorOf(ran).detail)).toMatch(
      /log-000000000001\.jsonl is damaged at byte \d+/,
    )
  })

  test('R3: what carries no proposal may fill a gap under a nonce again', async () => {
    expect(await verified([...life, opened('t', 1)])).toMatchObject({ code: 0, stderr: '' })
  })

  test('records without the one that names the chain are no empty store: exit 74', async () => {
    const ran = await written(life, '--json')
    expect(ran.code).toBe(74)
    expect(lastErrorOf(ran)).toMatchObject({
      code: 'store_damaged',
      detail: expect.stringMatching(/holds 5 records, but none that names/) as string,
    })
  })

  test('a store that does not exist is neither sound nor folded: exit 2 names it and the key of gateway.json', async () => {
    const ran = await verify('--json')
    expect(ran.code).toBe(2)
    expect(lastErrorOf(ran)).toMatchObject({
      code: 'no_store',
      detail: `no store found at ${join(home.path, 'store')}`,
      hint: expect.stringContaining('`store` in') as string,
    })
    expect(existsSync(join(home.path, 'store'))).toBe(false)
  })
})
