/**
 * What became of a proposal after it was executed: money on the oracle, at risk until it is settled
 * (contract §9 `positions`; domain §4, §10).
 */
import { oracleAbi } from '../../chain/contracts.js'
import { lowercase, readContract, zeroAddress } from '../../chain/reading.js'
import type { Round } from '../../chain/round.js'
import type { Address, Chain } from '../../ports.js'
import { amountText, type TokenUnits } from '../../protocol/amount.js'
import type { Next } from './reconcile.js'
import type { RoundStanding } from './standing.js'

/**
 * What the oracle holds for a round that was proposed on. Amounts in raw token units, times in Unix
 * seconds, prices in decimals.
 */
export interface RoundTerms {
  readonly disputer: Address | undefined
  readonly bondRaw: bigint
  readonly finalFeeRaw: bigint
  readonly disputableUntil: bigint
  /** Once it is settled. */
  readonly resolvedPrice: string | undefined
}

/** The terms of a round as of a block (domain §4, `getRequest`). Rejects with ChainError. */
export async function readTerms(chain: Chain, at: bigint, round: Round): Promise<RoundTerms> {
  const key = [
    round.requester,
    round.identifier,
    BigInt(round.timestamp),
    round.ancillaryData,
  ] as const
  const held = await readContract(chain, at, round.oracle, oracleAbi, 'getRequest', key)
  const disputer = lowercase(held.disputer)
  return {
    disputer: disputer === zeroAddress ? undefined : disputer,
    bondRaw: held.requestSettings.bond,
    finalFeeRaw: held.finalFee,
    disputableUntil: held.expirationTime,
    resolvedPrice: held.settled ? String(held.resolvedPrice) : undefined,
  }
}

export interface Position {
  readonly state: 'open' | 'awaiting_settlement' | 'disputed' | 'voting' | 'settled'
  readonly result: 'undisputed' | 'won' | 'lost' | null
  readonly terms: RoundTerms
  /** A later round of the question has begun. */
  readonly hasNewRound: boolean
}

/**
 * Whether a round holds the proposal of an authorization: by its owner, of its price, through its
 * signature where the node shows that.
 */
export function holdsProposal(
  { proposal }: RoundStanding,
  { proposer, price }: { readonly proposer: string; readonly price: string },
): boolean {
  if (proposal?.proposer !== proposer || proposal.price !== price) return false
  return proposal.bySignature || proposal.mined === undefined
}

/**
 * The position of an executed proposal: where its own round stands, and whether a later one has
 * begun by `nowSeconds` of the chain. `undefined` where its round could not be read.
 */
export function positionOf(
  own: RoundStanding | undefined,
  hasNewRound: boolean,
  nowSeconds: bigint,
): Position | undefined {
  const terms = own?.terms
  if (terms === undefined) return undefined
  const facts = { terms, hasNewRound }
  if (own?.state === 'settled' && terms.resolvedPrice !== undefined) {
    const isRight = terms.resolvedPrice === own.proposal?.price
    return {
      ...facts,
      state: 'settled',
      result: !isRight ? 'lost' : terms.disputer === undefined ? 'undisputed' : 'won',
    }
  }
  // The first dispute opens a new round, a later one waits for the voters alone (domain §5.1).
  if (own?.state === 'disputed')
    return { ...facts, state: hasNewRound ? 'disputed' : 'voting', result: null }
  const isDisputable = own?.state === 'proposed' && nowSeconds < terms.disputableUntil
  return { ...facts, state: isDisputable ? 'open' : 'awaiting_settlement', result: null }
}

interface Shown {
  readonly identifier: string
  readonly transactionHash: string | undefined
  readonly token: TokenUnits | undefined
  /** The question's current round, and whether it is paused at its adapter. */
  readonly current: RoundStanding | undefined
  readonly isPaused: boolean
}

/** What to do about an executed proposal whose position is known, in one or two sentences. */
export function adviseExecuted(
  { state, result, terms, hasNewRound }: Position,
  shown: Shown,
): Next {
  const { identifier } = shown
  const executed = `it was executed${shown.transactionHash === undefined ? '' : ` in transaction ${shown.transactionHash}`}`
  const staked = amountText(String(terms.bondRaw + terms.finalFeeRaw), shown.token)
  const disputed =
    terms.disputer === undefined ? executed : `${executed} and disputed by ${terms.disputer}`
  if (state === 'open' || state === 'awaiting_settlement') {
    const until = new Date(Number(terms.disputableUntil) * 1000).toISOString()
    const rest =
      state === 'open'
        ? `can be disputed until ${until}`
        : `waits for the oracle to settle it since ${until}`
    return { action: 'none', text: `${disputed}; it ${rest}, and nothing is left to do now` }
  }
  if (state === 'settled') {
    const end = {
      undisputed: 'settled undisputed: nothing is left to do',
      won: "found right: bond and final fee are paid back, with a part of the disputer's bond; nothing is left to do",
      lost: `found wrong: its bond and final fee, ${staked}, are lost`,
    }[result ?? 'undisputed']
    return { action: 'none', text: `${disputed}, and ${end}` }
  }
  const stake = `${disputed}. Its bond and final fee, ${staked}, stay with the oracle until the dispute is decided`
  if (!hasNewRound) {
    const text = `${stake}. No new round is open: UMA's voters decide, which takes two to four days`
    return { action: 'wait', text, command: `proposer reconcile ${identifier}` }
  }
  if (shown.current?.state === 'requested' && !shown.isPaused) {
    const text = `${stake}. A new round is open: find out why it was disputed before you sign for that one`
    return { action: 'sign_anew', text, command: `proposer context ${identifier}` }
  }
  const now = shown.isPaused ? 'paused' : (shown.current?.state ?? 'not known')
  return {
    action: 'wait_for_new_round',
    text: `${stake}. The new round is ${now}: nothing can be proposed in it`,
  }
}
