import type { Admission, NewCandidate } from '#gateway/ledger/ledger'
import { openSharedStore } from '#gateway/ledger/store'
import { systemClock, systemRandom } from '#io/clock'
import { postgresDatabase } from '#io/postgres'
import type { Clock, Hex } from '#ports'
import { ProposerError } from '#protocol/errors'
import { openStoreTables } from '#storage/postgres/schema'
import type { SharedLog } from '#storage/postgres/shared-log'

export type JoinedLedger = Awaited<ReturnType<typeof joinLedger>>

const word = (n: number): Hex => `0x${n.toString(16).padStart(64, '0')}`
const account = (n: number): Hex => `0x${n.toString(16).padStart(40, '0')}`

export async function joinLedger(url: string, clock: Clock = systemClock) {
  const database = postgresDatabase(url)
  await openStoreTables(database)
  const ports = { clock, random: systemRandom }
  const settings = async () => ({
    chainId: 31337,
    genesisHash: word(99),
    allowlist: [],
    admissionEnabled: true,
  })
  const { ledger, log } = await openSharedStore(ports, database, { settings })
  return {
    ledger,
    log,
    cut: () => database.close(),
    async close() {
      await ledger.close()
      await database.close()
    },
  }
}

const hex = (n: number) => n.toString(16).padStart(32, '0')

export function numbered(n: number, proposer = 1): NewCandidate {
  return {
    identity: hex(n * 1_000 + proposer),
    round: {
      key: hex(n),
      questionId: word(n),
      oracle: account(50),
      requester: account(51),
      identifier: word(7),
      timestamp: String(1_760_000_000 + n),
      ancillaryHash: word(n),
    },
    proposer: account(proposer),
    price: '0',
    amount: '750000000',
    nonce: String(n),
    deadline: '1800000000',
    signature: `0x${'ab'.repeat(65)}`,
    digest: word(1_000_000 + n),
  }
}

export const identitiesIn = async (log: SharedLog): Promise<readonly string[]> =>
  (
    await log.ask(
      `SELECT d->'candidate'->>'identity' AS identity FROM proposer.record
        WHERE k = 'candidate.received' ORDER BY n`,
    )
  ).map(({ identity }) => String(identity))

export const outcome = (call: Promise<Admission>): Promise<number> =>
  call.then(({ kind }) => (kind === 'admitted' ? 202 : kind === 'replayed' ? 200 : 409), statusOf)

export function statusOf(error: unknown): number {
  const status = error instanceof ProposerError ? error.meta.httpStatus : undefined
  if (status === undefined) throw error
  return status
}
