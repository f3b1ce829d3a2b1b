/** Fees, bytes and signatures of transactions, and whose gas is lost with them. */
import {
  decodeFunctionData,
  encodeFunctionData,
  keccak256,
  parseSignature,
  parseTransaction,
  serializeTransaction,
  type TransactionSerialized,
  type TransactionSerializedEIP1559,
} from 'viem'
import { signedProposerAbi } from '#chain/contracts'
import { defaultFailedGas, defaultProposalGas } from '#chain/profiles'
import { lowercase } from '#chain/reading'
import type { BlockHeader, Hex, Signer, UnsignedTransaction } from '#ports'
import { boundedCache } from '#protocol/bounded-cache'
import { type Candidate, instant } from '#protocol/candidate'
import { UsageError } from '#protocol/errors'
import type { Address } from '#protocol/schema'
import { recoverSigner } from '#protocol/signature'
import { fromHex } from '#protocol/witness'
import type { LedgerFacts, Slot, SlotAttempt, WalletFailure } from '../ledger/ledger.js'
import type { Heads } from '../view/state.js'

/** Polygon's nodes refuse a lower tip, and many suggest less (domain §8). */
const minimumTipWei: Readonly<Record<number, bigint>> = { 137: 25_000_000_000n }

/** Where the chain has EIP-7825, and below what a block may have (domain §8). */
export const mostGas = 2n ** 24n

export interface Fees {
  readonly maxFeePerGas: bigint
  readonly maxPriorityFeePerGas: bigint
}

type FeeKind = 'propose' | 'cancel'

/**
 * In wei: tip = max(node, chain's minimum), cap = twice the base fee + tip, at most `ceilingWei`;
 * `undefined` where that does not cover the next block. `replacing`: both at least 12.5 % above
 * (robustness §3). A cancellation is wanted in the pool even where the next block is too expensive.
 */
export function feesFor(
  chainId: number,
  { baseFeePerGas }: Pick<BlockHeader, 'baseFeePerGas'>,
  nodeTipWei: bigint,
  ceilingWei: bigint,
  {
    kind,
    replacing,
  }: { kind: FeeKind; replacing?: Record<keyof Fees, bigint | string> | undefined },
): Fees | undefined {
  const mostWei = mostFor(kind, ceilingWei)
  const least = minimumTipWei[chainId] ?? 0n
  const leastCap = raised(replacing?.maxFeePerGas)
  const tip = largest(smallest(nodeTipWei, mostWei), least, raised(replacing?.maxPriorityFeePerGas))
  const cap = smallest(largest(2n * baseFeePerGas + tip, leastCap), mostWei)
  if (cap < leastCap || cap < tip || (kind === 'propose' && cap < baseFeePerGas + tip))
    return undefined
  return { maxFeePerGas: cap, maxPriorityFeePerGas: tip }
}

/** Of a proposal (domain §8: measured and computed). */
export const usualGas = 425_000n

/** Of a unit of gas now; without fees, for it is above the ceiling: as if it were sent. */
export function gasPrice(
  chainId: number,
  head: Pick<BlockHeader, 'baseFeePerGas'>,
  tipWei: bigint,
  maxFeeGwei: number,
) {
  const fees = feesFor(chainId, head, tipWei, weiOf(maxFeeGwei), { kind: 'propose' })
  return { fees, priceWei: head.baseFeePerGas + (fees?.maxPriorityFeePerGas ?? tipWei) }
}

export const weiOf = (gwei: number) => BigInt(Math.floor(gwei * 1e9))

export const canRaise = (maxFeePerGas: string, kind: FeeKind, ceilingWei: bigint) =>
  raised(maxFeePerGas) <= mostFor(kind, ceilingWei)

/** A proposal stays an eighth below the ceiling: its cancellation can always replace it. */
const mostFor = (kind: FeeKind, ceilingWei: bigint) =>
  kind === 'propose' ? (ceilingWei * 8n) / 9n : ceilingWei
const raised = (wei: bigint | string = 0n) => (BigInt(wei) * 9n + 7n) / 8n

export const smallest = (...values: readonly bigint[]) =>
  values.reduce((one: bigint, other: bigint) => (one < other ? one : other))
export const largest = (...values: readonly bigint[]) =>
  values.reduce((one: bigint, other: bigint) => (one > other ? one : other))

/** Refunds make the needed limit larger than what is used in the end (domain §8). */
export const gasLimit = (estimate: bigint) => (estimate * 120n + 99n) / 100n

/** The raw bytes are for the store and the nodes alone (R5). */
export async function signTransaction(
  signer: Signer,
  unsigned: UnsignedTransaction,
): Promise<{ readonly raw: Hex; readonly hash: Hex }> {
  const transaction = wholeOf(unsigned)
  const signature =
    signer.signTransaction === undefined
      ? await signer.signDigest(keccak256(serializeTransaction(transaction)))
      : signatureIn(await signer.signTransaction(unsigned), transaction, signer.address)
  const raw = serializeTransaction(transaction, parseSignature(signature))
  return { raw, hash: keccak256(raw) }
}

const keptTransactions = 128
const keptCalls = 4_096

function decodedOnce<K extends string, V extends {}>(
  most: number,
  decode: (text: K) => V,
): (text: K) => V {
  const known = boundedCache<K, V>(most)
  return (text) => {
    const found = known.get(text) ?? decode(text)
    known.set(text, found)
    return found
  }
}

export const readTransaction = decodedOnce(keptTransactions, (raw: Hex) => {
  const { to, data, gas } = parseTransaction(raw as TransactionSerializedEIP1559)
  if (!to || gas === undefined)
    throw new RangeError('a stored transaction has no recipient or gas limit')
  return { to: lowercase(to), data: data ?? '0x', gas }
})

export function carrying(proposals: readonly Hex[]) {
  const [only] = proposals
  if (only !== undefined && proposals.length === 1) return only
  return encodeFunctionData({
    abi: signedProposerAbi,
    functionName: 'multicall',
    args: [proposals],
  })
}

export const carriedBy = decodedOnce(keptTransactions, (data: Hex) => {
  const { functionName, args } = decodeFunctionData({ abi: signedProposerAbi, data })
  return functionName === 'multicall' ? args[0] : [data]
})

export function callIn({ raw, candidateIds }: SlotAttempt, candidateId: string): Hex | undefined {
  const index = candidateIds.indexOf(candidateId)
  return index < 0 ? undefined : carriedBy(readTransaction(raw).data)[index]
}

export const readProposeCalldata = decodedOnce(keptCalls, (data: Hex) => {
  const { functionName, args } = decodeFunctionData({ abi: signedProposerAbi, data })
  if (functionName !== 'propose') throw new RangeError(`stored calldata calls ${functionName}`)
  const [proposal, , permit] = args
  return {
    request: {
      oracle: lowercase(proposal.oracle),
      requester: lowercase(proposal.requester),
      identifier: proposal.identifier,
      timestamp: String(proposal.timestamp),
      ancillaryData: proposal.ancillaryData,
    },
    token: lowercase(permit.permitted.token),
  }
})

export function callOf({ attempts }: Slot, { id }: Candidate) {
  const [own] = attempts.flatMap((attempt) => callIn(attempt, id) ?? [])
  return own && readProposeCalldata(own)
}

const wholeOf = (unsigned: UnsignedTransaction) =>
  ({ type: 'eip1559', value: 0n, accessList: [], ...unsigned }) as const

/** Nodes take no higher s (EIP-2). */
const highestS = 0x7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0n

/** It has to be the very transaction that was asked for, signed by the executor. */
function signatureIn(answer: string, asked: ReturnType<typeof wholeOf>, address: Hex) {
  const signed = parsed(answer)
  const found: Readonly<Record<string, unknown>> = signed
  const isChanged = ([field, value]: [string, unknown]) => textOf(found[field]) !== textOf(value)
  const [changed] = Object.entries(asked).find(isChanged) ?? []
  if (changed !== undefined) throw invalid(`it changed ${changed} of the transaction`)
  const { r, s, yParity } = signed
  if (r === undefined || s === undefined || yParity === undefined)
    throw invalid('the transaction is not signed')
  if (BigInt(s) > highestS) throw invalid('its signature has a high s, which no node takes')
  const signature = `0x${word(r)}${word(s)}${yParity === 1 ? '1c' : '1b'}` as const
  const digest = fromHex(keccak256(serializeTransaction(asked)))
  const account = recoverSigner(digest, signature)
  if (account !== address)
    throw invalid(`it signed as ${account ?? 'nobody'}, not as the executor ${address}`)
  return signature
}

const word = (number: Hex) => number.slice(2).padStart(64, '0')

function parsed(answer: string) {
  try {
    return parseTransaction(answer as TransactionSerialized)
  } catch {
    // The parser's own words repeat the bytes, which are for nobody to read (R5).
    throw invalid('it gave back something that is not a transaction')
  }
}

function textOf(value: unknown) {
  if (value === undefined || value === '0x') return '0'
  if (Array.isArray(value)) return value.length === 0 ? '0' : `${value.length} entries`
  return String(value).toLowerCase()
}

const invalid = (why: string) =>
  new UsageError(
    'signer_answer',
    `the remote signer's answer cannot be used: ${why}`,
    'check executor.signer in gateway.json: its url and its address',
  )

export interface GasCeilings {
  readonly proposal: bigint
  readonly failedADay: bigint
}

export const gasCeilingsOf = ({
  executor: { max_proposal_gas, failed_gas_per_wallet },
}: {
  executor: { readonly max_proposal_gas?: number; readonly failed_gas_per_wallet?: number }
}): GasCeilings => ({
  proposal: BigInt(max_proposal_gas ?? defaultProposalGas),
  failedADay: BigInt(failed_gas_per_wallet ?? defaultFailedGas),
})

const failureWindowSeconds = 86_400
/** So many of its own, and it is stopped for the window; from the second on it waits, doubling. */
const mostFailures = 6
const firstWaitSeconds = 60

type Recorded = Pick<LedgerFacts, 'failures'>

/** Until which Unix second of chain time; 0 where it sends. */
export function gasStandingOf(
  { failures: recorded }: Recorded,
  wallet: Address,
  ceilings: GasCeilings,
  nowSeconds: number,
) {
  const failures = (recorded.get(wallet) ?? []).filter(
    ({ atSeconds }) => nowSeconds - atSeconds < failureWindowSeconds,
  )
  if (failures.length === 0) return undefined
  const own = failures.filter(({ kind }) => kind === 'own')
  const standing = {
    wallet,
    failures: own.length,
    failedGas: failures.reduce((sum, { gasUsed }) => sum + BigInt(gasUsed), 0n),
    isAlone: failures.some(({ kind }) => kind !== 'cancelled'),
  }
  const stoppedUntil = Math.max(
    freeAgain(failures, ({ gasUsed }) => BigInt(gasUsed), ceilings.failedADay - ceilings.proposal),
    freeAgain(own, () => 1n, BigInt(mostFailures - 1)),
  )
  const last = Math.max(0, ...own.map(({ atSeconds }) => atSeconds))
  const waitsUntil = own.length > 1 ? last + firstWaitSeconds * 2 ** (own.length - 2) : 0
  if (stoppedUntil > nowSeconds)
    return { ...standing, state: 'stopped', untilSeconds: stoppedUntil } as const
  if (waitsUntil > nowSeconds)
    return { ...standing, state: 'waits', untilSeconds: waitsUntil } as const
  return { ...standing, state: 'sends', untilSeconds: 0 } as const
}

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
  recorded: Recorded,
  ceilings: GasCeilings,
  { latest }: Heads,
) {
  const standing = gasStandingOf(recorded, proposer, ceilings, Number(latest.timestamp))
  if (progress.status === 'received' || !standing || standing.state === 'sends') return undefined
  const { failures, failedGas, state, untilSeconds } = standing
  const found = `${failures} of this wallet's proposals failed on chain in 24 hours, and ${failedGas} gas was used for nothing, of ${ceilings.failedADay} that executor.failed_gas_per_wallet allows`
  const until = instant(untilSeconds * 1000)
  return `${found}: it ${state === 'waits' ? 'waits' : 'is stopped'} until ${until}, or until \`proposer operator allow ${proposer}\`.`
}

export const standingsOf = (recorded: Recorded, ceilings: GasCeilings, nowSeconds: number) =>
  [...recorded.failures.keys()].flatMap(
    (wallet) => gasStandingOf(recorded, wallet, ceilings, nowSeconds) ?? [],
  )
