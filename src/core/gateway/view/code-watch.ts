/**
 * An upgrade is seen in the logs that are followed anyway; the slots are read once a minute beside
 * (contract §9, domain §10).
 */
import {
  changedImplementations,
  changedText,
  type Implementations,
  implementationsOf,
  oracleVersion,
} from '#chain/implementations'
import { unlessRefused } from '#chain/reading'
import type { Contracts } from '#chain/round'
import { ChainError } from '#ports'
import type { Address } from '#protocol/schema'
import { type ViewState, viewFaults } from './state.js'

/** A proxy that logs no upgrade is found out after this. */
const everyMs = 60_000

type Watching = Pick<
  ViewState,
  'code' | 'chain' | 'clock' | 'contracts' | 'ledger' | 'heads' | 'implementations'
>

export const pinsOf = ({
  implementations,
  ledger,
}: Pick<Watching, 'implementations' | 'ledger'>): Implementations => ({
  ...implementations,
  ...Object.fromEntries(ledger.implementations),
})

export async function watchCode(state: Watching) {
  const { code, chain, clock } = state
  const at = state.heads?.latest
  if (at === undefined) return
  const isOld = clock.monotonicMs() - code.lookedAtMs >= everyMs
  const mayBeBack = code.changed.length > 0 && code.lookedAt !== at.hash
  if (!code.isDue && !isOld && !mayBeBack) return
  const isWhole = code.isDue
  code.isDue = false
  try {
    const pins = pinsOf(state)
    const slotsOnly = !isWhole && code.changed.length === 0
    const changed = await changedImplementations(chain, pins, at.number, { slotsOnly })
    if (isWhole) code.versions = await versionsOf(state, at.number)
    Object.assign(code, { changed, isKnown: true, lookedAt: at.hash })
    code.lookedAtMs = clock.monotonicMs()
    if (!code.isDue) code.isSuspect = false
  } catch (error) {
    code.isDue ||= isWhole
    throw error
  }
}

async function versionsOf({ chain, contracts }: Watching, at: bigint) {
  const found = await Promise.all(
    contracts.oracles.map(async (oracle) => {
      const version = await unlessRefused(oracleVersion(chain, oracle, at))
      return version === undefined ? [] : ([[oracle, version]] as const)
    }),
  )
  return new Map(found.flat())
}

export function codeFaults(state: Watching) {
  const { changed, isKnown, isSuspect } = state.code
  if (Object.keys(pinsOf(state)).length === 0) return []
  if (!isKnown) return ['the code of the pinned contracts has not been read yet']
  if (changed.length > 0)
    return changed.map((one) => `${changedText(one)}: the operator must pin it again`)
  return isSuspect ? ['a pinned contract was upgraded: its new code is being read'] : []
}

export const watchedOf = (
  { oracles, tokens }: Pick<Contracts, 'oracles' | 'tokens'>,
  pins: Implementations,
): readonly Address[] => [...oracles, ...tokens, ...(Object.keys(pins) as Address[])]

export async function codeNow(state: ViewState): Promise<Implementations> {
  const [fault] = viewFaults(state)
  if (fault !== undefined || state.heads === undefined)
    throw new ChainError('unavailable', fault ?? 'the chain has not been read yet')
  const { number } = state.heads.latest
  return implementationsOf(state.chain, watchedOf(state.contracts, pinsOf(state)), number)
}
