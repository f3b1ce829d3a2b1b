/** What validation, endings and reverts read of the contracts. All reject with `ChainError`. */

import {
  erc20Abi,
  oracleAbi,
  permit2Abi,
  roles,
  signedProposerAbi,
  whitelistAbi,
} from '../../chain/contracts.js'
import { lowercase, readContract, unlessRefused, zeroAddress } from '../../chain/reading.js'
import type { Contracts, Round } from '../../chain/round.js'
import type { BlockHeader, Chain, Hex } from '../../ports.js'
import type { Candidate } from '../../protocol/candidate.js'
import { nonceBit, nonceUsed } from '../../protocol/permit.js'
import type { Address } from '../../protocol/schema.js'
import type { WitnessRequest } from '../../protocol/witness.js'

/** A chain with the contracts that configuration pins. */
export interface PinnedChain {
  readonly chain: Chain
  readonly contracts: Contracts
}

/** Beside it, the questions that trusted requesters know. */
export interface QuestionChain extends PinnedChain {
  /** The question's current round as of a block; `undefined` where no requester knows it. */
  readRound(questionId: Hex, blockNumber: bigint): Promise<Round | undefined>
}

/** A word of the owner's nonce bitmap at Permit2. */
export function readBitmap(
  { chain, contracts }: PinnedChain,
  owner: Address,
  word: bigint,
  at: bigint,
): Promise<bigint> {
  return readContract(chain, at, contracts.permit2, permit2Abi, 'nonceBitmap', [owner, word])
}

/** Whether the permit nonce is spent or invalidated at a block. */
export async function isSpentAt(
  pinned: PinnedChain,
  { proposer, nonce }: Candidate,
  at: bigint,
): Promise<boolean> {
  const { word } = nonceBit(BigInt(nonce))
  return nonceUsed(BigInt(nonce), await readBitmap(pinned, proposer, word, at))
}

/** Which whitelist counts: `effective = custom || default` (domain §4, Whitelists). */
export async function readEffectiveList(
  { chain }: PinnedChain,
  { oracle, requester, identifier, ancillaryData }: WitnessRequest,
  at: bigint,
): Promise<{ readonly list: Address; readonly isCustom: boolean }> {
  const request = [requester, identifier, ancillaryData] as const
  const [custom, standard] = await Promise.all([
    readContract(chain, at, oracle, oracleAbi, 'getCustomProposerWhitelist', request),
    readContract(chain, at, oracle, oracleAbi, 'defaultProposerWhitelist', []),
  ])
  const isCustom = lowercase(custom) !== zeroAddress
  return { list: lowercase(isCustom ? custom : standard), isCustom }
}

/** What a whitelist says of SignedProposer and of a proposer. */
export async function readListing(
  { chain, contracts }: PinnedChain,
  list: Address,
  proposer: Address,
  at: bigint,
) {
  // Anything may be set as a list: what does not answer as one lists nobody and has no owner.
  const isListed = (who: Address) =>
    unlessRefused(readContract(chain, at, list, whitelistAbi, 'isOnWhitelist', [who]))
  const [spenderListed, proposerListed, owner] = await Promise.all([
    isListed(contracts.signedProposer),
    isListed(proposer),
    unlessRefused(readContract(chain, at, list, whitelistAbi, 'owner', [])),
  ])
  return {
    spenderListed: spenderListed ?? false,
    proposerListed: proposerListed ?? false,
    owned: owner !== undefined && lowercase(owner) === contracts.signedProposer,
  }
}

/** Who may propose through whom. */
export async function readWhitelist(
  pinned: PinnedChain,
  request: WitnessRequest,
  proposer: Address,
  at: bigint,
) {
  const { list, isCustom } = await readEffectiveList(pinned, request, at)
  return { custom: isCustom, ...(await readListing(pinned, list, proposer, at)) }
}

/** The wallet's balance and its allowance to Permit2, raw token units. */
export async function readFunds(
  { chain, contracts }: PinnedChain,
  token: Address,
  wallet: Address,
  at: bigint,
) {
  const [balanceRaw, allowanceRaw] = await Promise.all([
    readContract(chain, at, token, erc20Abi, 'balanceOf', [wallet]),
    readContract(chain, at, token, erc20Abi, 'allowance', [wallet, contracts.permit2]),
  ])
  return { balanceRaw, allowanceRaw }
}

/** Whether an executor may call `propose`. */
export function readRole(
  { chain, contracts }: PinnedChain,
  executor: Address,
  at: bigint,
): Promise<boolean> {
  return readContract(chain, at, contracts.signedProposer, signedProposerAbi, 'hasRole', [
    roles.delegatedProposer,
    executor,
  ])
}

/** The words of a wallet's nonce bitmap that were read, and how to read another. */
interface NonceBitmap {
  readonly known: ReadonlyMap<bigint, bigint>
  /** Into `known`. Rejects with `ChainError`. */
  read(word: bigint): Promise<void>
}

/** A bitmap of which no word was read yet; each is read once, unless that fails. */
export function nonceBitmap(readWord: (word: bigint) => Promise<bigint>): NonceBitmap {
  const known = new Map<bigint, bigint>()
  const reading = new Map<bigint, Promise<void>>()
  return {
    known,
    read(word) {
      const work =
        reading.get(word) ??
        readWord(word)
          .then((bits) => void known.set(word, bits))
          .finally(() => reading.delete(word))
      reading.set(word, work)
      return work
    },
  }
}

export interface NoncePorts {
  /** A wallet's nonce bitmap as of a block. */
  bitmapOf(owner: Address, at: bigint): Promise<NonceBitmap>
  /** Takes what the bitmap showed at a block, by its hash. */
  noteNonces(owner: Address, word: bigint, bitmap: bigint, at: Hex): void
}

/** Which of a wallet's candidates have their permit nonce spent; one read a word of the bitmap. */
export async function readUsedNonces(
  ports: NoncePorts,
  candidate: Candidate,
  competing: readonly Candidate[],
  at: BlockHeader,
): Promise<(candidate: Candidate) => boolean> {
  const { proposer } = candidate
  const { known, read } = await ports.bitmapOf(proposer, at.number)
  const words = new Set([candidate, ...competing].map((one) => bitOf(one).word))
  const missing = [...words].filter((word) => !known.has(word))
  if (missing.length > 0) await Promise.all(missing.map(read))
  const own = bitOf(candidate).word
  ports.noteNonces(proposer, own, known.get(own) ?? 0n, at.hash)
  return (one) => {
    const { word, mask } = bitOf(one)
    return ((known.get(word) ?? 0n) & mask) !== 0n
  }
}

/** Places of permit nonces, for as long as their candidates are held: a wallet may have many. */
const bits = new WeakMap<Candidate, ReturnType<typeof nonceBit>>()

function bitOf(candidate: Candidate): ReturnType<typeof nonceBit> {
  const bit = bits.get(candidate) ?? nonceBit(BigInt(candidate.nonce))
  bits.set(candidate, bit)
  return bit
}
