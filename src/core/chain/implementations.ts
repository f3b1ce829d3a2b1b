/** An ERC-1967 proxy may be given other code, whose rules nobody has looked at (domain §10). */
import { type Chain, ChainError, type Hex } from '#ports'
import type { Address } from '#protocol/schema'
import { zeroAddress } from '#protocol/words'
import { implementationSlot } from './constants.js'
import { keccakHex } from './round.js'

/** Of a proxy, or the address itself where its ERC-1967 slot is empty. */
export interface Implementation {
  readonly implementation: Address
  readonly code_hash: Hex
}

export type Implementations = Readonly<Record<Address, Implementation>>

export interface ChangedImplementation {
  readonly address: Address
  readonly pinned: Implementation
  readonly now: Implementation
}

type CodeReader = Pick<Chain, 'storage' | 'code'>

export async function implementationOf(chain: CodeReader, address: Address, at: bigint | 'latest') {
  const implementation = await inSlot(chain, address, at)
  return { implementation, code_hash: keccakHex(await chain.code(implementation, at)) }
}

export async function implementationsOf(
  chain: CodeReader,
  addresses: readonly Address[],
  at: bigint | 'latest',
) {
  const read = async (address: Address) =>
    [address, await implementationOf(chain, address, at)] as const
  return Object.fromEntries(await Promise.all([...new Set(addresses)].map(read)))
}

/** `slotsOnly`: enough where the code behind it was compared before. */
export async function changedImplementations(
  chain: CodeReader,
  pins: Implementations,
  at: bigint | 'latest',
  { slotsOnly = false }: { slotsOnly?: boolean } = {},
) {
  const found = await Promise.all(
    Object.entries(pins).map(async ([key, pinned]) => {
      const address = key as Address
      if (slotsOnly && (await inSlot(chain, address, at)) === pinned.implementation) return []
      const now = await implementationOf(chain, address, at)
      return isSameCode(now, pinned) ? [] : [{ address, pinned, now }]
    }),
  )
  return found.flat()
}

export const isSameCode = (one: Implementation, other: Implementation) =>
  one.implementation === other.implementation && one.code_hash === other.code_hash

export const changedText = ({ address, pinned, now }: ChangedImplementation) =>
  now.implementation === pinned.implementation
    ? `the code of ${ofText(address, now)} has changed: its hash is ${now.code_hash}, pinned is ${pinned.code_hash}`
    : `the contract ${address} runs ${now.implementation} now, pinned is ${pinned.implementation}`

const ofText = (address: Address, { implementation }: Implementation) =>
  implementation === address ? address : `${implementation}, which ${address} runs,`

export const proxiesOf = (pins: Implementations) =>
  Object.entries(pins).flatMap(([address, { implementation }]) =>
    implementation === address ? [] : (address as Address),
  )

async function inSlot(chain: CodeReader, address: Address, at: bigint | 'latest') {
  const word = await chain.storage(address, implementationSlot, at)
  const implementation: Address = `0x${word.slice(26)}`
  return implementation === zeroAddress ? address : implementation
}

export async function oracleVersion(
  chain: Chain,
  oracle: Address,
  at: bigint | 'latest',
): Promise<2 | 3> {
  try {
    const data = await chain.call({ to: oracle, data: unusedReward }, at)
    // A contract with a fallback answers anything.
    return /^0x0{64}$/.test(data) ? 3 : 2
  } catch (error) {
    if (error instanceof ChainError && error.kind === 'reverted') return 2
    throw error
  }
}

const unusedReward: Hex = `0xf9a8f368${'0'.repeat(64 * 3)}${'80'.padStart(64, '0')}${'0'.repeat(64)}`
