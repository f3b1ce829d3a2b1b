/**
 * `doctor`: every precondition of proposing, each with its fix (contract §6). Asks at most one item
 * of the gateway's budget.
 */

import { onChain } from '../../chain/unavailable.js'
import { type Address, type BlockHeader, type Chain, ChainError } from '../../ports.js'
import { amountText } from '../../protocol/amount.js'
import { ProposerError } from '../../protocol/errors.js'
import { type Funds, fundsOf } from '../funds/funds.js'
import { acceptedValue, answerError } from '../gateway/answer.js'
import type { GatewayClient } from '../gateway/gateway-client.js'
import { isOfferOpen, stateOf } from '../journal/authorizations.js'
import type { JournalView } from '../journal/journal.js'
import type { Trust } from '../trust/trust.js'

export interface Check {
  readonly id: string
  readonly result: 'pass' | 'warn' | 'fail' | 'skip'
  /** One sentence; outside text in it is the caller's to escape. */
  readonly detail: string
  /** What to do; empty where nothing is to be done. */
  readonly fix: string
}

/** A check that holds. */
export const pass = (id: string, detail: string): Check => ({ id, result: 'pass', detail, fix: '' })
/** A check that could not be made, and what makes it possible. */
export const skip = (id: string, detail: string, fix: string): Check => ({
  id,
  result: 'skip',
  detail,
  fix,
})
/** A check that does not hold. */
export const wrong = (id: string, result: 'warn' | 'fail', detail: string, fix: string): Check => ({
  id,
  result,
  detail,
  fix,
})

/**
 * Makes a check, or a failed one of the error that stopped it. Other errors than ours are thrown
 * on.
 */
export async function guarded(id: string, make: () => Promise<Check>): Promise<Check> {
  try {
    return await make()
  } catch (error) {
    if (!(error instanceof ProposerError)) throw error
    return wrong(id, 'fail', error.detail, error.meta.hint ?? 'correct what the detail names')
  }
}

/**
 * A clock further off than this much may cost a deadline, further than that it surely does (§8:
 * five minutes).
 */
const skewWarnMs = 30_000
const skewFailMs = 240_000

/**
 * The gateway's clock by the Date header of an answer, whose resolution is a second. Milliseconds.
 */
export function clockCheck(dateHeader: string | null, sentMs: number, receivedMs: number): Check {
  const id = 'clock'
  const told = dateHeader === null ? Number.NaN : Date.parse(dateHeader)
  if (Number.isNaN(told)) return skip(id, 'the gateway tells no time', '')
  const offMs =
    told > receivedMs ? told - receivedMs : told + 1_000 < sentMs ? sentMs - told - 1_000 : 0
  const detail =
    offMs === 0
      ? "agrees with the gateway's"
      : `is ${Math.ceil(offMs / 1_000)} s from the gateway's`
  const fix =
    'set the clock of this machine (NTP), or tell the operator; chain time decides deadlines'
  if (offMs <= skewWarnMs) return pass(id, detail)
  return wrong(id, offMs > skewFailMs ? 'fail' : 'warn', detail, fix)
}

/**
 * Whether the gateway lets this account propose; skipped where it is too busy to tell. One item of
 * the budget.
 */
export async function eligibilityCheck(
  gateway: GatewayClient,
  account: Address,
  signal?: AbortSignal,
): Promise<Check> {
  const id = 'eligibility'
  return guarded(id, async () => {
    const answer = await gateway.eligibility(account, signal === undefined ? {} : { signal })
    // 429, 503, or a budget that others have spent: nothing to mend, only to wait for (contract §6:
    // 75).
    if (answer.kind === 'deferred')
      return skip(id, `not known: ${answer.detail}`, answerError(answer, 'read').meta.hint ?? '')
    const { eligible } = acceptedValue(answer)
    if (eligible) return pass(id, `${account} may propose`)
    return wrong(
      id,
      'fail',
      `${account} may not propose at ${gateway.origin}`,
      'ask the operator to allow this wallet, and whether admission is open',
    )
  })
}

/** A head older than this says that the node lags or the chain stands (R16). Seconds. */
const headAgeWarnSeconds = 30
const headAgeFailSeconds = 300

/** Chain id and age of the head. */
export async function rpcCheck(
  chain: Chain,
  pinnedChainId: number | undefined,
  nowMs: number,
): Promise<Check> {
  const id = 'rpc'
  return guarded(id, async () => {
    const [chainId, head] = await onChain(async () => {
      const read = await Promise.all([chain.chainId(), chain.block('latest')])
      if (read[1] === null) throw new ChainError('unavailable', 'the chain has no head')
      return read as [number, BlockHeader]
    })
    if (pinnedChainId !== undefined && chainId !== pinnedChainId) {
      return wrong(
        id,
        'fail',
        `the node is on chain ${chainId}, the trust file pins ${pinnedChainId}`,
        'give the --rpc-url of the pinned chain',
      )
    }
    const ageSeconds = Math.max(0, Math.round(nowMs / 1_000) - Number(head.timestamp))
    const detail = `chain ${chainId}, block ${head.number}, ${ageSeconds} s old`
    if (ageSeconds <= headAgeWarnSeconds) return pass(id, detail)
    const result = ageSeconds > headAgeFailSeconds ? 'fail' : 'warn'
    return wrong(
      id,
      result,
      detail,
      "the node lags or the chain stands still: use another node, or wait; check this machine's clock too",
    )
  })
}

/** Balance and allowance of the account, for each pinned token. */
export async function fundsChecks(
  chain: Chain,
  trust: Trust,
  view: Pick<JournalView, 'authorizations' | 'offers'>,
  account: Address,
): Promise<readonly Check[]> {
  const checks: Check[] = []
  for (const token of trust.tokens) {
    try {
      checks.push(...tokenChecks(await fundsOf(chain, trust, view, account, token as Address)))
    } catch (error) {
      if (!(error instanceof ProposerError)) throw error
      checks.push(wrong('balance', 'fail', error.detail, error.meta.hint ?? ''))
    }
  }
  return checks
}

function tokenChecks(funds: Funds): readonly Check[] {
  const { symbol, balanceRaw, allowanceRaw, reservedRaw, spendableRaw, freeRaw } = funds
  const amount = (raw: bigint) => amountText(String(raw), funds)
  const reserved = `${amount(reservedRaw)} reserved by open authorizations`
  const fund = `send ${symbol} to ${funds.owner}`
  const approve = '`proposer funds approve`'
  const balance =
    balanceRaw < reservedRaw
      ? wrong(
          'balance',
          'fail',
          `${amount(balanceRaw)} held, but ${reserved}`,
          `${fund}, or revoke what should not execute`,
        )
      : freeRaw === 0n
        ? wrong('balance', 'warn', `nothing is free: ${amount(balanceRaw)} held, ${reserved}`, fund)
        : pass('balance', `${amount(balanceRaw)} held, ${amount(freeRaw)} free`)
  const allowance =
    allowanceRaw < reservedRaw
      ? wrong(
          'allowance',
          'fail',
          `Permit2 may move ${amount(allowanceRaw)}, but ${reserved}`,
          approve,
        )
      : allowanceRaw === 0n
        ? wrong(
            'allowance',
            'fail',
            `Permit2 may not move ${symbol}: no proposal of this wallet can execute`,
            approve,
          )
        : spendableRaw < freeRaw
          ? wrong(
              'allowance',
              'warn',
              `Permit2 may move ${amount(spendableRaw)} more, less than the ${amount(freeRaw)} that are free`,
              approve,
            )
          : pass('allowance', `Permit2 may move all that is free of ${symbol}`)
  return [balance, allowance]
}

/**
 * What code at the proposer's address means: Permit2 then asks the account instead of recovering a
 * key (domain §3.3).
 */
export async function codeCheck(chain: Chain, account: Address): Promise<Check> {
  const id = 'account_code'
  return guarded(id, async () => {
    const code = await onChain(() => chain.code(account))
    if (code === '0x')
      return pass(id, "a plain account: its key's signatures are taken as they are")
    if (code.startsWith('0xef0100')) {
      return wrong(
        id,
        'warn',
        `the account is delegated to 0x${code.slice(8, 48)} (EIP-7702): Permit2 asks that code, and a plain signature fails unless it agrees`,
        "drop the delegation, or make sure that the delegate's isValidSignature takes plain signatures; give --rpc-url when signing, which checks it",
      )
    }
    return wrong(
      id,
      'warn',
      'a contract wallet: Permit2 asks its isValidSignature',
      'sign as the wallet requires (--signer, or --typed-data and --signature) and give --rpc-url, so that the signature can be checked',
    )
  })
}

/** What the journal still waits for. */
export function openCheck(view: JournalView, nowMs: number): Check {
  const id = 'open'
  const count = { unknown: 0, deferred: 0, conflict: 0, accepted: 0, signed: 0, closed: 0 }
  for (const one of view.authorizations) count[stateOf(one, nowMs).kind]++
  const offered = view.offers.filter((one) => isOfferOpen(one, nowMs)).length
  const parts = [
    ...Object.entries(count).filter(([kind, n]) => kind !== 'closed' && n > 0),
    ...(offered > 0 ? [['waiting for an outside signature', offered] as const] : []),
  ].map(([kind, n]) => `${n} ${kind}`)
  if (count.unknown > 0)
    return wrong(
      id,
      'warn',
      parts.join(', '),
      '`proposer replay --all`: never sign again because of an unknown outcome',
    )
  if (count.deferred > 0)
    return wrong(id, 'warn', parts.join(', '), '`proposer replay --all` sends the same bytes again')
  if (count.conflict > 0) {
    const first = view.authorizations.find((one) => stateOf(one, nowMs).kind === 'conflict')
    return wrong(id, 'warn', parts.join(', '), `\`proposer reconcile ${first?.signed.questionId}\``)
  }
  return pass(id, parts.length === 0 ? 'nothing is open' : parts.join(', '))
}
