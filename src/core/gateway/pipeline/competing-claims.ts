/**
 * What of a wallet's money its other candidates may take (contract §5). Reads nothing of the chain:
 * it must not cost another wallet's candidates time.
 */

import type { Contracts } from '#chain/round'
import type { Candidate } from '#protocol/candidate'
import type { Address } from '#protocol/schema'
import { carriedBy, readProposeCalldata, readTransaction } from '../executor/transaction.js'
import type { Ledger } from '../ledger/ledger.js'
import { isRoundOpen } from '../validation/round-end.js'
import type { LiveView } from '../view/view.js'

export interface ClaimSources {
  readonly ledger: Pick<Ledger, 'active' | 'slots' | 'slotOf'>
  readonly view: Pick<LiveView, 'known'>
  readonly contracts: Contracts
}

export function maybeOpen({ view, contracts }: ClaimSources, candidate: Candidate) {
  const question = view.known(candidate.round.questionId)
  return question === undefined || isRoundOpen(contracts, question.round, candidate)
}

/** Earlier ones, and those on their way. What cannot execute any more takes nothing. */
export type Claims = (candidate: Candidate) => readonly Candidate[]

interface Claim {
  readonly candidate: Candidate
  readonly isCarried: boolean
}

/** For this moment: many candidates of a wallet are judged at once. */
export function createClaims(sources: ClaimSources): Claims {
  const { ledger } = sources
  const claims = new Map<Address, readonly Claim[]>()
  let of = ledger.active()
  const find = (wallet: Address): readonly Claim[] =>
    ledger
      .active()
      .filter(({ proposer, progress }) => proposer === wallet && progress.status !== 'executed')
      .map((candidate) => ({ candidate, isCarried: ledger.slotOf(candidate.id) !== undefined }))
      .filter(({ candidate, isCarried }) => isCarried || maybeOpen(sources, candidate))
  return ({ id, proposer, sequence }) => {
    if (of !== ledger.active()) claims.clear()
    of = ledger.active()
    const found = claims.get(proposer) ?? find(proposer)
    if (claims.size === 0) queueMicrotask(() => claims.clear())
    claims.set(proposer, found)
    return found
      .filter(({ candidate, isCarried }) => isCarried || candidate.sequence < sequence)
      .map(({ candidate }) => candidate)
      .filter((candidate) => candidate.id !== id)
  }
}

export function tokenOf(sources: ClaimSources, { id, round }: Candidate): Address | undefined {
  const [only, second] = sources.contracts.tokens
  if (second === undefined) return only
  const known = sources.view.known(round.questionId)?.round
  // Another round of the question may be in another token.
  if (known?.timestamp === round.timestamp) return known.token.address
  const attempt = sources.ledger
    .slots()
    .flatMap(({ attempts }) => attempts)
    .find(({ candidateIds }) => candidateIds.includes(id))
  const call = attempt && carriedBy(readTransaction(attempt.raw).data)
  const own = call?.[attempt?.candidateIds.indexOf(id) ?? -1]
  return own && readProposeCalldata(own).token
}
