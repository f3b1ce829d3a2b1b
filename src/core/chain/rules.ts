/** Not signed, and it may change the answer (domain §10). */
import { type Chain, ChainError, type Hex } from '#ports'
import type { Address } from '#protocol/schema'
import { fromHex } from '#protocol/witness'
import { ctfAdapterAbi, noRulesHash, oracleV3Abi } from './contracts.js'
import { readContract, unlessRefused } from './reading.js'
import { keccakHex, type Round } from './round.js'

export interface RulesUpdate {
  /** RFC 3339; where a calendar holds no such date, its Unix seconds. */
  readonly at: string
  /** Outside text (R20), whole. */
  readonly text: string
  readonly hash: Hex
}

export interface Rules {
  readonly hash: Hex
  /** Null where the requester keeps no clarifications. */
  readonly owner: Address | null
  readonly updates: readonly RulesUpdate[]
}

type RulesOf = Pick<
  Round,
  'questionId' | 'requester' | 'oracle' | 'identifier' | 'ancillaryData' | 'creator'
>

interface Posted {
  readonly timestamp: bigint
  readonly update: Hex
}

/** From requester and oracle. `undefined`: one answers in another shape. */
export const readRules = (chain: Chain, question: RulesOf, at: bigint) =>
  unlessRefused(
    Promise.all([postedBy(chain, question, at), heldByOracle(chain, question, at)]).then(
      (posted): Rules => rulesFrom(question.creator ?? null, posted.flat()),
    ),
  )

async function postedBy(chain: Chain, { requester, questionId, creator }: RulesOf, at: bigint) {
  if (creator === undefined) return []
  return readContract(chain, at, requester, ctfAdapterAbi, 'getUpdates', [questionId, creator])
}

async function heldByOracle(
  chain: Chain,
  { oracle, requester, identifier, ancillaryData }: RulesOf,
  at: bigint,
) {
  const key = [requester, identifier, ancillaryData] as const
  try {
    return await readContract(chain, at, oracle, oracleV3Abi, 'getRequestRulesUpdates', key)
  } catch (error) {
    // Before version 3 there is no such function.
    if (error instanceof ChainError && error.kind === 'reverted' && error.data === '0x') return []
    throw error
  }
}

/** keccak256 over each timestamp and byte length (u64, big endian) and bytes, in order. */
export function rulesFrom(owner: Address | null, posted: readonly Posted[]) {
  const ordered = posted.toSorted((a, b) =>
    a.timestamp < b.timestamp ? -1 : Number(a.timestamp > b.timestamp),
  )
  let hashed: Hex = '0x'
  const updates = ordered.map(({ timestamp, update }) => {
    if (timestamp >= 2n ** 64n)
      throw new ChainError('refused', `a clarification of the time ${timestamp}`)
    const length = BigInt(update.length / 2 - 1)
    hashed = `${hashed}${u64(timestamp)}${u64(length)}${update.slice(2)}`
    const text = new TextDecoder().decode(fromHex(update))
    return { at: instant(timestamp), text, hash: keccakHex(hashed) }
  })
  return { hash: updates.at(-1)?.hash ?? noRulesHash, owner, updates }
}

const u64 = (value: bigint) => value.toString(16).padStart(16, '0')

const latestDate = 8_640_000_000_000n
const instant = (seconds: bigint) =>
  seconds > latestDate
    ? String(seconds)
    : new Date(Number(seconds) * 1_000).toISOString().replace('.000Z', 'Z')
