import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { AttemptClass, JournalEntry } from '#client/journal/authorizations'
import { openJournal } from '#client/journal/journal'
import { systemHash } from '#io/clock'
import { systemPorts } from '#io/system'

export const word = (n: number) => `0x${n.toString(16).padStart(64, '0')}` as const
const wallet = `0x${'1'.repeat(40)}` as const
export const signatureMark = 'ab'.repeat(32)
export const urlSecret = 'node-secret'

export const candidates = {
  sunny: '3f2b8c1e-8d5a-4a52-9c3d-0a1b2c3d4e5f',
  done: '77777777-8d5a-4a52-9c3d-0a1b2c3d4e5f',
} as const

export interface Lived {
  readonly accepted: string
  readonly executed: string
  readonly unknown: string
  readonly deferred: string
  readonly conflict: string
  readonly signed: string
}

export const identifiers = {
  accepted: 'sunny-day',
  executed: 'long-gone',
  unknown: 'will it rain',
  deferred: 'market:42',
  conflict: 'odd "$HOME" `it\'s`',
  signed: 'never-sent',
} as const satisfies Record<keyof Lived, string>

export async function liveIn(home: string): Promise<Lived> {
  const ports = systemPorts()
  mkdirSync(join(home, 'keystores'), { recursive: true })
  mkdirSync(join(home, 'trust'), { recursive: true })
  for (const name of ['hot', 'cold'])
    writeFileSync(join(home, 'keystores', `${name}.json`), `{"crypto":"${signatureMark}"}`)
  writeFileSync(
    join(home, 'trust', 'default.json'),
    JSON.stringify({ slugs: { 'pinned-slug': word(9) } }),
  )
  const profile = {
    'rpc-url': `https://node.example/${urlSecret}`,
    gateway: `https://user:${urlSecret}@gateway.example`,
  }
  writeFileSync(
    join(home, 'config.json'),
    JSON.stringify({ profiles: { default: profile, staging: profile } }),
  )

  const journal = openJournal(ports, home)
  const sign = async (number: number, identifier: string): Promise<string> => {
    const id = journal.nextId()
    const body = JSON.stringify({ number, signature: `0x${signatureMark}` })
    const data = {
      id,
      identifier,
      questionId: word(number),
      chainId: 31337,
      terms: {
        proposer: wallet,
        price: '0',
        amount: '5',
        nonce: String(number),
        deadline: '99999999999',
      },
      identity: `identity ${number}`,
      form: 'single' as const,
      body,
      sha256: systemHash.sha256(body),
      signedAtMs: number,
    }
    await journal.append([
      { kind: 'nonce.reserved', data: { id, proposer: wallet, nonce: String(number) } },
      { kind: 'signed', data },
    ])
    return id
  }
  const send = async (id: string, became: AttemptClass, candidate?: string): Promise<string> => {
    const attempt = journal.nextAttempt()
    const entries: JournalEntry[] = [
      {
        kind: 'attempt.start',
        data: {
          attempt,
          ids: [id],
          origin: 'https://gateway.example',
          form: 'single',
          sha256: 'x',
        },
      },
      { kind: 'attempt.end', data: { attempt, results: [{ id, class: became }] } },
    ]
    if (candidate !== undefined) {
      const received_at = '2026-11-20T05:38:00.000Z'
      entries.push({
        kind: 'ack',
        data: { id, candidate_id: candidate, status: 'received', received_at, replayed: false },
      })
    }
    await journal.append(entries)
    return id
  }
  try {
    const lived: Lived = {
      accepted: await send(await sign(1, identifiers.accepted), 'accepted', candidates.sunny),
      executed: await send(await sign(2, identifiers.executed), 'accepted', candidates.done),
      unknown: await send(await sign(3, identifiers.unknown), 'uncertain'),
      deferred: await send(await sign(4, identifiers.deferred), 'deferred'),
      conflict: await send(await sign(5, identifiers.conflict), 'reconcile'),
      signed: await sign(6, identifiers.signed),
    }
    await journal.append([{ kind: 'terminal', data: { id: lived.executed, outcome: 'executed' } }])
    return lived
  } finally {
    await journal.close()
  }
}
