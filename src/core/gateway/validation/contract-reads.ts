import {
  erc20Abi,
  oracleAbi,
  permit2Abi,
  roles,
  signedProposerAbi,
  whitelistAbi,
} from '#chain/contracts'
import { lowercase, readContract, unlessRefused, zeroAddress } from '#chain/reading'
import type { Contracts, Round } from '#chain/round'
import type { BlockHeader, Chain, Hex } from '#ports'
import type { Candidate } from '#protocol/candidate'
import { nonceBit, nonceUsed } from '#protocol/permit'
import type { Address } from '#protocol/schema'
import type { WitnessRequest } from '#protocol/witness'

export interface PinnedChain {
  readonly chain: Chain
  readonly contracts: Contracts
}

export interface QuestionChain extends PinnedChain {
  readRound(questionId: Hex, blockNumber: bigint): Promise<Round | undefined>
}

export function readBitmap(
  { chain, contracts }: PinnedChain,
  owner: Address,
  word: bigint,
  at: bigint,
) {
  return readContract(chain, at, contracts.permit2, permit2Abi, 'nonceBitmap', [owner, word])
}

export async function isSpentAt(pinned: PinnedChain, { proposer, nonce }: Candidate, at: bigint) {
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

export async function readListing(
  { chain, contracts }: PinnedChain,
  list: Address,
  proposer: Address,
  at: bigint,
) {
  // What does not answer as a list lists nobody and has no owner.
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

export async function readWhitelist(
  pinned: PinnedChain,
  request: WitnessRequest,
  proposer: Address,
  at: bigint,
) {
  const { list, isCustom } = await readEffectiveList(pinned, request, at)
  return { custom: isCustom, ...(await readListing(pinned, list, proposer, at)) }
}

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

export function readRole({ chain, contracts }: PinnedChain, executor: Address, at: bigint) {
  return readContract(chain, at, contracts.signedProposer, signedProposerAbi, 'hasRole', [
    roles.delegatedProposer,
    executor,
  ])
}

interface NonceBitmap {
  readonly known: ReadonlyMap<bigint, bigint>
  read(word: bigint): Promise<void>
}

/** Word by word, each once. */
export function readBitmapOf(pinned: PinnedChain, owner: Address, at: BlockHeader): NonceBitmap {
  const known = new Map<bigint, bigint>()
  const reading = new Map<bigint, Promise<void>>()
  return {
    known,
    read(word) {
      const work =
        reading.get(word) ??
        readBitmap(pinned, owner, word, at.number)
          .then((bits) => void known.set(word, bits))
          .finally(() => reading.delete(word))
      reading.set(word, work)
      return work
    },
  }
}

export interface NoncePorts {
  bitmapOf(owner: Address, at: BlockHeader): NonceBitmap
  noteNonces(owner: Address, word: bigint, bitmap: bigint, at: Hex): void
}

export async function readUsedNonces(
  ports: NoncePorts,
  candidate: Candidate,
  competing: readonly Candidate[],
  at: BlockHeader,
): Promise<(candidate: Candidate) => boolean> {
  const { proposer } = candidate
  const { known, read } = ports.bitmapOf(proposer, at)
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

/** A wallet may have many. */
const bits = new WeakMap<Candidate, ReturnType<typeof nonceBit>>()

function bitOf(candidate: Candidate) {
  const bit = bits.get(candidate) ?? nonceBit(BigInt(candidate.nonce))
  bits.set(candidate, bit)
  return bit
}
