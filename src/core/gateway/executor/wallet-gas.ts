/**
 * What a wallet's code, approval or balance is when it is mined only its owner knows, and the
 * executor pays for a revert: failed gas is on record by wallet, and has a ceiling a day. Pure.
 */
import { defaultFailedGas, defaultProposalGas } from '#chain/profiles'
import { type Candidate, instant } from '#protocol/candidate'
import type { Address } from '#protocol/schema'
import type { LedgerFacts, WalletFailure } from '../ledger/ledger.js'
import type { Heads } from '../view/state.js'

export interface GasCeilings {
  readonly proposal: bigint
  readonly failedADay: bigint
}

export const gasCeilingsOf = ({
  executor,
}: {
  executor: {
    readonly max_proposal_gas?: number
    readonly failed_gas_per_wallet?: number
  }
}): GasCeilings => ({
  proposal: BigInt(executor.max_proposal_gas ?? defaultProposalGas),
  failedADay: BigInt(executor.failed_gas_per_wallet ?? defaultFailedGas),
})

const failureWindowSeconds = 86_400
/** So many of its own, and it is stopped for the window; from the second on it waits, doubling. */
const mostFailures = 6
const firstWaitSeconds = 60

export interface WalletStanding {
  readonly wallet: Address
  readonly failures: number
  readonly failedGas: bigint
  readonly isAlone: boolean
  readonly state: 'sends' | 'waits' | 'stopped'
  /** Unix seconds of chain time; 0 where it does not wait. */
  readonly untilSeconds: number
}

export function gasStandingOf(
  wallet: Address,
  recorded: readonly WalletFailure[],
  ceilings: GasCeilings,
  nowSeconds: number,
): WalletStanding | undefined {
  const failures = recorded.filter(({ atSeconds }) => isWithin(atSeconds, nowSeconds))
  if (failures.length === 0) return undefined
  const failedGas = sumOf(failures)
  const own = failures.filter(({ kind }) => kind === 'own')
  const standing = {
    wallet,
    failures: own.length,
    failedGas,
    isAlone: failures.some(({ kind }) => kind !== 'cancelled'),
  }
  const stoppedUntil = Math.max(
    freeAgain(failures, ({ gasUsed }) => BigInt(gasUsed), ceilings.failedADay - ceilings.proposal),
    freeAgain(own, () => 1n, BigInt(mostFailures - 1)),
  )
  if (stoppedUntil > nowSeconds)
    return { ...standing, state: 'stopped', untilSeconds: stoppedUntil }
  const last = Math.max(0, ...own.map(({ atSeconds }) => atSeconds))
  const waitsUntil = last + firstWaitSeconds * 2 ** (own.length - 2)
  return own.length > 1 && waitsUntil > nowSeconds
    ? { ...standing, state: 'waits', untilSeconds: waitsUntil }
    : { ...standing, state: 'sends', untilSeconds: 0 }
}

const isWithin = (atSeconds: number, nowSeconds: number) =>
  nowSeconds - atSeconds < failureWindowSeconds
const sumOf = (failures: readonly WalletFailure[]) =>
  failures.reduce((sum, { gasUsed }) => sum + BigInt(gasUsed), 0n)

export const failedGasOf = (recorded: readonly WalletFailure[], nowSeconds: number) =>
  sumOf(recorded.filter(({ atSeconds }) => isWithin(atSeconds, nowSeconds)))

/** 0 where they weigh no more now. */
function freeAgain(
  failures: readonly WalletFailure[],
  weigh: (failure: WalletFailure) => bigint,
  most: bigint,
) {
  let left = failures.reduce((sum, failure) => sum + weigh(failure), 0n)
  let until = 0
  for (const failure of failures.toSorted((one, other) => one.atSeconds - other.atSeconds)) {
    if (left <= most) return until
    left -= weigh(failure)
    until = failure.atSeconds + failureWindowSeconds
  }
  return until
}

export function heldBack(
  { proposer, progress }: Pick<Candidate, 'proposer' | 'progress'>,
  ledger: Pick<LedgerFacts, 'failures'>,
  ceilings: GasCeilings,
  { latest }: Heads,
) {
  const recorded = ledger.failures.get(proposer)
  if (recorded === undefined || progress.status === 'received') return undefined
  const standing = gasStandingOf(proposer, recorded, ceilings, Number(latest.timestamp))
  if (standing === undefined || standing.state === 'sends') return undefined
  const { failures, failedGas, state, untilSeconds } = standing
  const found = `${failures} of this wallet's proposals failed on chain in 24 hours, and ${failedGas} gas was used for nothing, of ${ceilings.failedADay} that executor.failed_gas_per_wallet allows`
  const until = instant(untilSeconds * 1000)
  return `${found}: it ${state === 'waits' ? 'waits' : 'is stopped'} until ${until}, or until \`proposer operator allow ${proposer}\`.`
}

export const standingsOf = (
  { failures }: Pick<LedgerFacts, 'failures'>,
  ceilings: GasCeilings,
  nowSeconds: number,
): readonly WalletStanding[] =>
  [...failures].flatMap(
    ([wallet, recorded]) => gasStandingOf(wallet, recorded, ceilings, nowSeconds) ?? [],
  )
