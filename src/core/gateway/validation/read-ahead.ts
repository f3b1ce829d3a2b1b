/**
 * Reads what judging a candidate will ask, all at the same moment: one after the other each answer
 * would cost a round trip. What they say is left to the judgement, which asks again and finds them
 * made (see `HeadReads`).
 */
import { readTerms } from '../../chain/questions.js'
import type { Round } from '../../chain/round.js'
import { type BlockHeader, ChainError } from '../../ports.js'
import type { Candidate } from '../../protocol/candidate.js'
import type { Address } from '../../protocol/schema.js'
import { type BoundedCache, boundedCache } from '../view/bounded-cache.js'
import { isValidSignatureCall } from '../view/wallets.js'
import { readEffectiveList, readFunds, readListing } from './contract-reads.js'
import { isRoundOpen } from './round-end.js'
import { callOf, type JudgePorts, readUsedNonces } from './validation.js'

/** Oracles whose whitelist is remembered. */
const rememberedLists = 64

export interface ReadAheadPorts extends JudgePorts {
  /** The question's round as it was last read, from memory. */
  peekRound(candidate: Candidate): Round | undefined
  /** Whether there is code at an account, from memory. */
  knownCode(account: Address): boolean | undefined
}

/** Asks ahead; `competing` as for `validate`. Never rejects: a failed read is made again. */
export type ReadAhead = (
  candidate: Candidate,
  competing: readonly Candidate[],
  at: BlockHeader,
) => void

/** With nothing known of whitelists. */
export function createReadAhead(ports: ReadAheadPorts): ReadAhead {
  const lists: BoundedCache<Address, Address> = boundedCache(rememberedLists)
  const silent: JudgePorts = { ...ports, noteNonces: () => undefined }
  return (candidate, competing, at) => {
    const { proposer, round } = candidate
    const asked: Promise<unknown>[] = [
      ports.readRound(round.questionId, at.number),
      ports.chain.code(proposer, at.number),
      readUsedNonces(silent, candidate, competing, at),
    ]
    const guess = ports.peekRound(candidate)
    if (guess !== undefined && isRoundOpen(ports.contracts, guess, candidate))
      asked.push(...readCall(ports, lists, { candidate, round: guess, at: at.number }))
    for (const one of asked) one.catch(leftToJudging)
  }
}

/** What `judge` reads once it knows the round. */
function readCall(
  ports: ReadAheadPorts,
  lists: BoundedCache<Address, Address>,
  {
    candidate,
    round,
    at,
  }: { readonly candidate: Candidate; readonly round: Round; readonly at: bigint },
): Promise<unknown>[] {
  const { chain, contracts } = ports
  const { proposer, digest, signature } = candidate
  // A wrong guess only packs otherwise: what is sent is packed by what is read.
  const hasCode = ports.knownCode(proposer) === true
  const list = lists.get(round.oracle)
  const effective = readEffectiveList(ports, round, at).then((found) => {
    if (!found.isCustom) lists.set(round.oracle, found.list)
  })
  return [
    readTerms({ chain, contracts, at }, round),
    effective,
    readFunds(ports, round.token.address, proposer, at),
    ports.simulate(callOf(round, candidate, hasCode), at),
    ...(list === undefined ? [] : [readListing(ports, list, proposer, at)]),
    ...(hasCode ? [chain.call(isValidSignatureCall(proposer, digest, signature), at)] : []),
  ]
}

/** The judgement meets the same failure, and says what follows from it. */
function leftToJudging(error: unknown): void {
  if (!(error instanceof ChainError)) throw error
}
