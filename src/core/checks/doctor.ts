import { latestBlock } from '#chain/reading'
import { readSafe, requireKeys } from '#chain/safe'
import { onChain } from '#chain/unavailable'
import { type Funds, fundsOf } from '#client/funds/funds'
import { acceptedValue, answerError } from '#client/gateway/answer'
import type { GatewayClient } from '#client/gateway/gateway-client'
import { isOpen, stateOf } from '#client/journal/authorizations'
import type { JournalView } from '#client/journal/journal'
import type { Trust } from '#client/trust/trust'
import type { Chain } from '#ports'
import { amountText } from '#protocol/amount'
import type { ReceiptKey } from '#protocol/receipt'
import type { Address } from '#protocol/schema'
import { type Finding, fail, graded, guarded, note, pass, skip, warn } from './finding.js'

/** Further off it may cost a deadline, or surely does (§8: five minutes). */
const skewMs = [30_000, 240_000] as const

/** The resolution of a Date header is a second. */
export function clockCheck(dateHeader: string | null, sentMs: number, receivedMs: number) {
  const id = 'clock'
  const dateMs = dateHeader === null ? Number.NaN : Date.parse(dateHeader)
  if (Number.isNaN(dateMs)) return skip(id, 'the gateway reports no time', '')
  const offMs = Math.max(0, dateMs - receivedMs, sentMs - dateMs - 1_000)
  if (offMs === 0) return pass(id, "agrees with the gateway's")
  const detail = `is ${Math.ceil(offMs / 1_000)} s from the gateway's`
  const fix =
    'set the clock of this machine (NTP), or tell the operator; chain time decides deadlines'
  return graded(offMs, skewMs, id, detail, fix)
}

/** One item of the budget. */
export async function eligibilityCheck(
  gateway: GatewayClient,
  account: Address,
  signal: AbortSignal,
) {
  const id = 'eligibility'
  const answer = await gateway.eligibility(account, { signal })
  // Only to be waited for (contract §6: 75).
  if (answer.kind === 'deferred')
    return skip(id, `not known: ${answer.detail}`, answerError(answer, 'read').meta.hint ?? '')
  if (acceptedValue(answer).eligible) return pass(id, `${account} may propose`)
  const fix = 'ask the operator to allow this wallet, and to check that admission is open'
  return fail(id, `${account} may not propose at ${gateway.origin}`, fix)
}

export async function safeCheck(
  chain: Chain,
  trust: Trust,
  safe: Address,
  owner: Address | undefined,
) {
  const id = 'safe'
  const facts = await onChain(() => readSafe(chain, trust.chain_id, safe))
  requireKeys(facts)
  const { owners, threshold, version } = facts
  if (owner !== undefined && !owners.includes(owner))
    return fail(id, `${owner} is not an owner of ${safe}`, `owners are ${owners.join(', ')}`)
  const detail = `Safe ${version}: ${threshold} of ${owners.length} owners sign`
  return pass(id, owner === undefined ? detail : `${detail}, ${owner} is one of them`)
}

/** Then the node lags or the chain stands (R16). */
const headAgeSeconds = [30, 300] as const

export async function rpcCheck(chain: Chain, pinnedChainId: number | undefined, nowMs: number) {
  const id = 'rpc'
  const [chainId, head] = await onChain(() =>
    Promise.all([chain.chainId(), latestBlock(chain, 'chain')]),
  )
  if (pinnedChainId !== undefined && chainId !== pinnedChainId) {
    const detail = `the node is on chain ${chainId}, the trust file pins ${pinnedChainId}`
    return fail(id, detail, 'give the --rpc-url of the pinned chain')
  }
  const ageSeconds = Math.max(0, Math.round(nowMs / 1_000) - Number(head.timestamp))
  const detail = `chain ${chainId}, block ${head.number}, ${ageSeconds} s old`
  const fix =
    "the node lags or the chain has stalled: use another node, or wait; check this machine's clock too"
  return graded(ageSeconds, headAgeSeconds, id, detail, fix)
}

export async function fundsChecks(
  chain: Chain,
  trust: Trust,
  view: Pick<JournalView, 'authorizations' | 'offers'>,
  account: Address,
) {
  const findings: Finding[] = []
  for (const token of trust.tokens) {
    const check = async () => fundsFindings(await fundsOf(chain, trust, view, account, token))
    findings.push(...(await guarded('balance', check, '')))
  }
  return findings
}

function fundsFindings(funds: Funds) {
  const { symbol, owner, balanceRaw, reservedRaw, freeRaw, allowanceRaw, spendableRaw } = funds
  const amount = (raw: bigint) => amountText(raw, funds)
  const may = (raw: bigint) => `Permit2 may move ${amount(raw)}`
  const held = `${amount(balanceRaw)} held`
  const reserved = `${amount(reservedRaw)} reserved by open authorizations`
  const send = `send ${symbol} to ${owner}`
  const approve = '`proposer funds approve`'
  const [balance, allowance] = ['balance', 'allowance'] as const
  const noneMoves = `Permit2 may not move ${symbol}: no proposal of this wallet can execute`
  return [
    balanceRaw < reservedRaw
      ? fail(balance, `${held}, but ${reserved}`, `${send}, or revoke what should not execute`)
      : freeRaw === 0n
        ? warn(balance, `nothing is free: ${held}, ${reserved}`, send)
        : pass(balance, `${held}, ${amount(freeRaw)} free`),
    allowanceRaw < reservedRaw
      ? fail(allowance, `${may(allowanceRaw)}, but ${reserved}`, approve)
      : allowanceRaw === 0n
        ? fail(allowance, noneMoves, approve)
        : spendableRaw < freeRaw
          ? warn(
              allowance,
              `${may(spendableRaw)} more, less than the ${amount(freeRaw)} that are free`,
              approve,
            )
          : pass(allowance, `Permit2 may move all free ${symbol}`),
  ]
}

/** With code Permit2 asks the account (domain §3.3). */
export async function codeCheck(chain: Chain, account: Address) {
  const id = 'account_code'
  const code = await onChain(() => chain.code(account))
  if (code === '0x')
    return pass(id, 'a plain account: signatures of its key are valid without further checks')
  if (code.startsWith('0xef0100')) {
    return warn(
      id,
      `the account is delegated to 0x${code.slice(8, 48)} (EIP-7702): Permit2 asks that code, and a plain signature fails unless it agrees`,
      "drop the delegation, or make sure that the delegate's isValidSignature accepts plain signatures; give --rpc-url when signing, which checks it",
    )
  }
  return warn(
    id,
    'a contract wallet: Permit2 asks its isValidSignature',
    'sign as the wallet requires (--signer, or --typed-data and --signature) and give --rpc-url, so that the signature can be checked',
  )
}

export function openCheck(view: JournalView, nowMs: number) {
  const id = 'open'
  const count = { unknown: 0, deferred: 0, conflict: 0, accepted: 0, signed: 0, closed: 0 }
  for (const one of view.authorizations) count[stateOf(one, nowMs).kind]++
  const offered = view.offers.filter((one) => isOpen(one, nowMs)).length
  const { closed: _closed, ...open } = count
  const parts = Object.entries({ ...open, 'waiting for an external signature': offered })
    .filter(([, n]) => n > 0)
    .map(([kind, n]) => `${n} ${kind}`)
  if (parts.length === 0) return pass(id, 'nothing is open')
  const detail = parts.join(', ')
  const replay = '`proposer replay --all`'
  if (count.unknown > 0)
    return warn(id, detail, `${replay}: never sign again because of an unknown outcome`)
  if (count.deferred > 0) return warn(id, detail, `${replay} sends the same bytes again`)
  const first = view.authorizations.find((one) => stateOf(one, nowMs).kind === 'conflict')
  return first === undefined
    ? pass(id, detail)
    : warn(id, detail, `\`proposer reconcile ${first.signed.questionId}\``)
}

/** Receipts are an offer. `nowSeconds`: Unix. */
export function receiptKeysCheck(
  pinned: readonly ReceiptKey[],
  listed: readonly ReceiptKey[],
  nowSeconds: number,
) {
  const id = 'receipts'
  const fix =
    'compare the key ID with what the operator told you another way, then `proposer trust pin --receipts`'
  const signing = listed.filter(({ exp }) => exp === undefined || exp > nowSeconds)
  if (pinned.length === 0)
    return signing.length === 0
      ? undefined
      : note(
          id,
          'the gateway signs its answers, and no key of it is pinned: see `proposer trust pin --receipts`',
        )
  if (signing.length === 0)
    return warn(
      id,
      'a receipt key is pinned, and the gateway lists none: its answers will count as unproven',
      'ask the operator whether receipts were switched off, or whether this is another gateway',
    )
  const other = signing.find(({ kid, x }) => !pinned.some((one) => one.kid === kid && one.x === x))
  if (other !== undefined)
    return warn(id, `the gateway lists the key ${other.kid}, which is not pinned`, fix)
  return pass(id, `signed with ${signing.map(({ kid }) => kid).join(' or ')}, which is pinned`)
}
