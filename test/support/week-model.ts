/**
 * What contract §5 says of an authorization, worked out from the chain alone: facts are read as of
 * a block by the contracts' own ABIs, and judged by the words of the contract and of domain §3, §4,
 * §7. Nothing here knows how the product comes to its verdicts.
 */

import { yesOrNoQuery } from '#chain/contracts'
import { callData, placedAt } from '#devchain/dev-contracts'
import type { Hex } from '#ports'
import type { Address } from '#protocol/schema'
import {
  actors,
  contracts,
  noAddress,
  requestKey,
  type WeekChain,
  type WeekQuestion,
} from './week-chain.js'
import type { Authorized, WeekWallet } from './week-wallets.js'

export interface Signed extends Authorized {
  readonly name: string
  readonly wallet: WeekWallet
  readonly question: WeekQuestion
  readonly digest: Hex
  readonly signature: Hex
  candidateId: string | undefined
}

export const failureTable: Readonly<
  Record<string, { readonly retryable: boolean | undefined; readonly next: string }>
> = {
  insufficient_balance: { retryable: true, next: 'fund_wallet' },
  insufficient_allowance: { retryable: true, next: 'approve_permit2' },
  bond_above_permit: { retryable: false, next: 'sign_new_authorization' },
  permit_expired: { retryable: false, next: 'sign_new_authorization' },
  permit_nonce_used: { retryable: false, next: 'sign_new_authorization' },
  signature_not_authorized: { retryable: false, next: 'sign_new_authorization' },
  proposer_not_whitelisted: { retryable: true, next: 'contact_operator' },
  request_not_open: { retryable: false, next: 'wait_for_new_round' },
  superseded: { retryable: false, next: 'wait_for_new_round' },
  not_selected: { retryable: false, next: 'wait_for_new_round' },
  round_advanced: { retryable: false, next: 'wait_for_new_round' },
  simulation_reverted: { retryable: undefined, next: 'contact_operator' },
  execution_reverted: { retryable: undefined, next: 'contact_operator' },
  token_blocked: { retryable: undefined, next: 'contact_operator' },
  operator_rejected: { retryable: false, next: 'contact_operator' },
  submission_expired: { retryable: false, next: 'sign_new_authorization' },
}

/** What the chain says of an authorization as of a block. Amounts in raw token units. */
export interface Facts {
  readonly seconds: bigint
  readonly current: bigint
  readonly paused: boolean
  readonly resolved: boolean
  readonly state: number
  readonly holder: Address
  readonly bondRaw: bigint
  readonly nonceUsed: boolean
  readonly balanceRaw: bigint
  readonly allowanceRaw: bigint
  readonly hasCode: boolean
  /**
   * Whether the code at the proposer takes the signature; true where there is none, since all are
   * signed by their wallets.
   */
  readonly accepted: boolean
  readonly hasCustomList: boolean
  readonly spenderListed: boolean
  readonly proposerMay: boolean
  readonly tokenStopped: boolean
}

const requested = 1

export async function currentRound(
  chain: WeekChain,
  question: WeekQuestion,
  registry: ReadonlyMap<string, bigint>,
  block?: bigint,
): Promise<Pick<Facts, 'current' | 'paused' | 'resolved'>> {
  switch (question.kind) {
    case 'uma-ctf-adapter':
    case 'uma-ctf-adapter-negrisk': {
      const adapter = placedAt('CtfAdapter', question.requester)
      const args = [question.questionId]
      const [found, flagged] = await Promise.all([
        chain.read<{ requestTimestamp: bigint; paused: boolean; resolved: boolean }>(
          adapter,
          'getQuestion',
          args,
          block,
        ),
        chain.read<boolean>(adapter, 'isFlagged', args, block),
      ])
      return {
        current: found.requestTimestamp,
        paused: found.paused || flagged,
        resolved: found.resolved,
      }
    }
    case 'oo-reporter': {
      const args = [question.questionId]
      const found = await chain.read<{ requestTimestamp: bigint; resolved: boolean }>(
        contracts.reporter,
        'getRequest',
        args,
        block,
      )
      return { current: found.requestTimestamp, paused: false, resolved: found.resolved }
    }
    case 'direct': {
      const timestamp = registry.get(question.questionId) ?? 0n
      const state = await chain.read<number>(
        contracts.oracle,
        'getState',
        requestKey(question, timestamp),
        block,
      )
      return { current: state === 0 ? 0n : timestamp, paused: false, resolved: false }
    }
  }
}

interface HeldRequest {
  readonly proposer: Address
  readonly requestSettings: { readonly bond: bigint }
  readonly finalFee: bigint
}

export async function bondOf(
  chain: WeekChain,
  question: WeekQuestion,
  timestamp: bigint,
  block?: bigint,
): Promise<bigint> {
  const { oracle, token } = contracts
  const managed = [question.requester, yesOrNoQuery, question.ancillaryData]
  const id = await chain.read<Hex>(oracle, 'getManagedRequestId', managed, block)
  const [[custom], request] = await Promise.all([
    chain.read<readonly [bigint, boolean]>(oracle, 'customBonds', [id, token.address], block),
    chain.read<HeldRequest>(oracle, 'getRequest', requestKey(question, timestamp), block),
  ])
  return (custom === 0n ? request.requestSettings.bond : custom) + request.finalFee
}

/** Reads everything as of one block. */
export async function factsOf(
  chain: WeekChain,
  signed: Signed,
  registry: ReadonlyMap<string, bigint>,
  block: bigint,
): Promise<Facts> {
  const { question, wallet, proposal, permit } = signed
  const { oracle, token, permit2, signedProposer, proposers } = contracts
  const key = requestKey(question, proposal.timestamp)
  const tag = `0x${block.toString(16)}`
  const [
    header,
    round,
    state,
    request,
    bondRaw,
    bitmap,
    balanceRaw,
    allowanceRaw,
    code,
    custom,
    stopped,
    blocked,
  ] = await Promise.all([
    chain.request<{ timestamp: Hex }>('eth_getBlockByNumber', [tag, false]),
    currentRound(chain, question, registry, block),
    chain.read<number>(oracle, 'getState', key, block),
    chain.read<HeldRequest>(oracle, 'getRequest', key, block),
    bondOf(chain, question, proposal.timestamp, block),
    chain.read<bigint>(permit2, 'nonceBitmap', [wallet.address, permit.nonce >> 8n], block),
    chain.read<bigint>(token, 'balanceOf', [wallet.address], block),
    chain.read<bigint>(token, 'allowance', [wallet.address, permit2.address], block),
    chain.request<Hex>('eth_getCode', [wallet.address, tag]),
    chain.read<Address>(
      oracle,
      'getCustomProposerWhitelist',
      [question.requester, yesOrNoQuery, question.ancillaryData],
      block,
    ),
    chain.read<boolean>(token, 'paused', [], block),
    chain.read<boolean>(token, 'isBlacklisted', [wallet.address], block),
  ])
  const hasCustomList = custom !== noAddress
  const list = placedAt('AddressWhitelist', hasCustomList ? custom : proposers.address)
  const everybody = list.address.toLowerCase() === contracts.everybody.address
  const listed = async (who: Address) =>
    everybody || (await chain.read<boolean>(list, 'isOnWhitelist', [who], block))
  const [spenderListed, proposerListed, owner] = await Promise.all([
    listed(signedProposer.address),
    listed(wallet.address),
    chain.read<Address>(list, 'owner', [], block),
  ])
  return {
    ...round,
    seconds: BigInt(header.timestamp),
    state,
    holder: request.proposer.toLowerCase() as Address,
    bondRaw,
    nonceUsed: ((bitmap >> (permit.nonce & 0xffn)) & 1n) === 1n,
    balanceRaw,
    allowanceRaw,
    hasCode: code !== '0x',
    accepted: code === '0x' || (await walletAccepts(chain, signed, block)),
    hasCustomList,
    spenderListed,
    proposerMay: proposerListed || owner.toLowerCase() === signedProposer.address,
    tokenStopped: stopped || blocked,
  }
}

async function walletAccepts(
  chain: WeekChain,
  { wallet, digest, signature }: Signed,
  block: bigint,
): Promise<boolean> {
  const data = callData(placedAt('Wallet', wallet.address), 'isValidSignature', [digest, signature])
  return (
    (await chain.call(actors.rival, wallet.address, data, block))?.startsWith('0x1626ba7e') === true
  )
}

export function failuresIn(signed: Signed, facts: Facts, neededRaw: bigint): Set<string> {
  const found = new Set<string>()
  const add = (code: string, holds: boolean) => {
    if (holds) found.add(code)
  }
  add('round_advanced', facts.current !== 0n && facts.current !== signed.proposal.timestamp)
  add('superseded', facts.holder !== noAddress)
  add('request_not_open', facts.state !== requested || facts.resolved)
  add('bond_above_permit', facts.bondRaw > signed.permit.permitted.amount)
  add('permit_expired', facts.seconds > signed.permit.deadline)
  add('permit_nonce_used', facts.nonceUsed)
  add('signature_not_authorized', !facts.accepted)
  add(
    'proposer_not_whitelisted',
    facts.hasCustomList && (!facts.spenderListed || !facts.proposerMay),
  )
  add('insufficient_balance', facts.balanceRaw < neededRaw)
  add('insufficient_allowance', facts.allowanceRaw < neededRaw)
  add('token_blocked', facts.tokenStopped)
  return found
}

export function isOpen(facts: Facts, timestamp: bigint): boolean {
  return (
    facts.current === timestamp && facts.state === requested && !facts.paused && !facts.resolved
  )
}

export async function operatorFaults(chain: WeekChain, block?: bigint): Promise<readonly string[]> {
  const { signedProposer, proposers } = contracts
  const role = await chain.read<Hex>(signedProposer, 'DELEGATED_PROPOSER_ROLE', [], block)
  const [granted, listed, balance] = await Promise.all([
    chain.read<boolean>(signedProposer, 'hasRole', [role, actors.executor], block),
    chain.read<boolean>(proposers, 'isOnWhitelist', [signedProposer.address], block),
    chain.request<Hex>('eth_getBalance', [actors.executor, 'latest']),
  ])
  return [
    ...(granted ? [] : ['the executor has no role']),
    ...(listed ? [] : ['SignedProposer is not on the default whitelist']),
    ...(BigInt(balance) > 10n ** 17n ? [] : ['the executor has run dry']),
  ]
}
