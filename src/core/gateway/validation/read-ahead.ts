/**
 * One after the other each answer would cost a round trip. The judgement asks again and finds
 * them made
 * (see `HeadReads`).
 */
import { readTerms } from '#chain/questions'
import type { Round } from '#chain/round'
import { type BlockHeader, type Chain, ChainError, type Hex } from '#ports'
import { type BoundedCache, boundedCache } from '#protocol/bounded-cache'
import type { Candidate } from '#protocol/candidate'
import type { Address } from '#protocol/schema'
import { isValidSignatureCall } from '../view/wallets.js'
import { readEffectiveList, readFunds, readListing, readUsedNonces } from './contract-reads.js'
import { isRoundOpen } from './round-end.js'
import { callOf, type JudgePorts } from './validation.js'

const rememberedLists = 64
const rememberedCandidates = 10_000

interface ReadAheadPorts extends JudgePorts {
  peekRound(candidate: Candidate): Round | undefined
  knownCode(account: Address): boolean | undefined
}

type ReadAhead = (candidate: Candidate, competing: readonly Candidate[], at: BlockHeader) => void

export function createReadAhead(ports: ReadAheadPorts): ReadAhead {
  const lists: BoundedCache<Address, Address> = boundedCache(rememberedLists)
  const askedAt: BoundedCache<string, Hex> = boundedCache(rememberedCandidates)
  return (candidate, competing, at) => {
    const { id, proposer, round } = candidate
    if (askedAt.get(id) === at.hash) return
    askedAt.set(id, at.hash)
    const asked: Promise<unknown>[] = []
    const asking = { ...ports, chain: onlyAsking(ports.chain, asked), noteNonces: () => undefined }
    asked.push(
      ports.readRound(round.questionId, at.number),
      ports.chain.code(proposer, at.number),
      readUsedNonces(asking, candidate, competing, at),
    )
    const guess = ports.peekRound(candidate)
    if (guess !== undefined && isRoundOpen(ports.contracts, guess, candidate)) {
      asked.push(readList(ports, lists, guess, at.number))
      askCall(asking, lists.get(guess.oracle), candidate, guess, at.number)
      // A wrong guess only packs otherwise: what is sent is packed by what is read.
      const hasCode = ports.knownCode(proposer) === true
      asked.push(ports.simulate(callOf(guess, candidate, hasCode), at.number))
      if (hasCode) asked.push(asksWallet(ports.chain, candidate, at.number))
    }
    for (const one of asked) one.catch(leftToJudging)
  }
}

/** Nobody hears the answer: decoding is left to the judgement. */
function onlyAsking(chain: Chain, asked: Promise<unknown>[]): Chain {
  const call: Chain['call'] = (one, at) => {
    asked.push(chain.call(one, at))
    return new Promise(() => undefined)
  }
  return Object.assign(Object.create(chain) as Chain, { call })
}

/** The guess for the next candidate of its oracle. */
async function readList(
  ports: ReadAheadPorts,
  lists: BoundedCache<Address, Address>,
  round: Round,
  at: bigint,
): Promise<void> {
  const { list, isCustom } = await readEffectiveList(ports, round, at)
  if (!isCustom) lists.set(round.oracle, list)
}

function askCall(
  asking: ReadAheadPorts,
  list: Address | undefined,
  { proposer }: Candidate,
  round: Round,
  at: bigint,
): void {
  const { chain, contracts } = asking
  void readTerms({ chain, contracts, at }, round)
  void readFunds(asking, round.token.address, proposer, at)
  if (list !== undefined) void readListing(asking, list, proposer, at)
}

const asksWallet = (chain: Chain, { proposer, digest, signature }: Candidate, at: bigint) =>
  chain.call(isValidSignatureCall(proposer, digest, signature), at)

/** The judgement meets the same failure. */
function leftToJudging(error: unknown): void {
  if (!(error instanceof ChainError)) throw error
}
