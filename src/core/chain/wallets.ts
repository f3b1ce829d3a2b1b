/** What contracts say of a wallet: its money, its spent nonces, its rights. */
import type { Chain } from '#ports'
import type { Address } from '#protocol/schema'
import type { WitnessRequest } from '#protocol/witness'
import {
  erc20Abi,
  oracleAbi,
  permit2Abi,
  roles,
  signedProposerAbi,
  whitelistAbi,
} from './contracts.js'
import { lowercase, readContract, unlessRefused, zeroAddress } from './reading.js'
import type { Contracts } from './round.js'

export interface PinnedChain {
  readonly chain: Chain
  readonly contracts: Contracts
}

export const readBitmap = (
  chain: Chain,
  at: bigint,
  permit2: Address,
  owner: Address,
  word: bigint,
) => readContract(chain, at, permit2, permit2Abi, 'nonceBitmap', [owner, word])

/** `allowanceRaw`: what Permit2 may take. */
export async function readFunds(
  chain: Chain,
  at: bigint,
  permit2: Address,
  token: Address,
  wallet: Address,
) {
  const [balanceRaw, allowanceRaw] = await Promise.all([
    readContract(chain, at, token, erc20Abi, 'balanceOf', [wallet]),
    readContract(chain, at, token, erc20Abi, 'allowance', [wallet, permit2]),
  ])
  return { balanceRaw, allowanceRaw }
}

export const readRole = (chain: Chain, at: bigint, signedProposer: Address, executor: Address) =>
  readContract(chain, at, signedProposer, signedProposerAbi, 'hasRole', [
    roles.delegatedProposer,
    executor,
  ])

export const defaultWhitelist = async (chain: Chain, at: bigint, oracle: Address) =>
  lowercase(await readContract(chain, at, oracle, oracleAbi, 'defaultProposerWhitelist', []))

export const isOnWhitelist = (chain: Chain, at: bigint, list: Address, who: Address) =>
  readContract(chain, at, list, whitelistAbi, 'isOnWhitelist', [who])

export async function whitelistOwner(chain: Chain, at: bigint, list: Address) {
  const owner = await unlessRefused(readContract(chain, at, list, whitelistAbi, 'owner', []))
  return owner && lowercase(owner)
}

/** `effective = custom || default` (domain §4, Whitelists). */
export async function readWhitelist(
  { chain, contracts: { signedProposer } }: PinnedChain,
  { oracle, requester, identifier, ancillaryData }: WitnessRequest,
  proposer: Address,
  at: bigint,
) {
  const request = [requester, identifier, ancillaryData] as const
  const [custom, standard] = await Promise.all([
    readContract(chain, at, oracle, oracleAbi, 'getCustomProposerWhitelist', request),
    defaultWhitelist(chain, at, oracle),
  ])
  const isCustom = lowercase(custom) !== zeroAddress
  const list = isCustom ? lowercase(custom) : standard
  const isListed = (who: Address) => unlessRefused(isOnWhitelist(chain, at, list, who))
  const [spenderListed, proposerListed, owner] = await Promise.all([
    isListed(signedProposer),
    isListed(proposer),
    whitelistOwner(chain, at, list),
  ])
  return {
    custom: isCustom,
    spenderListed: spenderListed ?? false,
    proposerListed: proposerListed ?? false,
    owned: owner === signedProposer,
  }
}
