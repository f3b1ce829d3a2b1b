/** Apart from the ABIs, so that a command that asks no chain does without viem (domain §2–§5). */

import type { Hex } from '#ports'
import type { Address } from '#protocol/schema'

export { typeHashes, witnessTypeString } from '#protocol/witness'

export const canonicalPermit2: Address = '0x000000000022d473030f116ddee9f6b43ac78ba3'

export const yesOrNoQuery: Hex =
  '0x5945535f4f525f4e4f5f51554552590000000000000000000000000000000000'

/** keccak256 of its name (domain §2). */
export const roles = {
  delegatedProposer: '0x4dfd380f31119a6f09f48f04875c62bdc7cef3776ab27f51eb17174906cda4cc',
} as const satisfies Record<string, Hex>

export const eip1271MagicValue: Hex = '0x1626ba7e'

/** Refused by event-based requests (domain §5.3). */
export const tooEarlyPrice = -(2n ** 255n)

export const implementationSlot: Hex =
  '0x360894a13ba1a3210667c828492db98dca3e2076cc3735a920a3ca505d382bbc'

/** As `getState` numbers them (domain §4). */
export const roundStates = {
  invalid: 0,
  requested: 1,
  proposed: 2,
  expired: 3,
  disputed: 4,
  resolved: 5,
  settled: 6,
} as const

/** (domain §2, §3.2, §4, §5) */
export const topics = {
  proposalExecuted: '0xfff3c4c0db5030bc60f9023cb6141584a100f896e9279e104fead989e0342b48',
  unorderedNonceInvalidation: '0x3704902f963766a4e561bbaab6e6cdc1b1dd12f6e9e99648da8843b3f46b918d',
  requestPrice: '0xf1679315ff325c257a944e0ca1bfe7b26616039e9511f9610d4ba3eca851027b',
  proposePrice: '0x6e51dd00371aabffa82cd401592f76ed51e98a9ea4b58751c70463a2c78b5ca1',
  disputePrice: '0x5165909c3d1c01c5d1e121ac6f6d01dda1ba24bc9e1f975b5a375339c15be7f3',
  settle: '0x3f384afb4bd9f0aef0298c80399950011420eb33b0e1a750b20966270247b9a0',
  payoutDeferred: '0x1182782c307f5070cb912ad1a2b6b545dd40e5e5873d5b0eac7927f69a323c29',
  claimedDeferredPayout: '0xcc3d45545de1c1a8f0838d40d010e05ec9b3e852342d99d1441e684a15e13c10',
  rewardUpdated: '0x1a42d10327a7b99c78fd000309897aa86122b84386c57b0df2d9ffb811744df1',
  bondUpdated: '0xd9f517ac7837141e7e824ee4e4ae7f354ecbda4eaa0d6e2c5b0597b5c3fb3f5d',
  customLivenessUpdated: '0x59561b8cfdf0fe993941939760f4f2521e79ca00ab2557611bd873208edb92c3',
  requestRulesUpdated: '0x55cc8cd88b85687e346a751ebc0d1af95709ed560912cbb356933250f7e37d66',
  upgraded: '0xbc7cd75a20ee27fd9adebab32041f755214dbc6bffa90cc0225b39da2e5c2d3b',
  customBondSet: '0x4544c320b43beb5421d5149ff92fa72b40f00ac65294c4b8ca3906f08fb5a8c2',
  customLivenessSet: '0xc5314bcb93c25473b858a5086195e309861a64b4c3ddae4d0a5cb9c5fb6f30f4',
  customProposerWhitelistSet: '0x6176bed8b34e20579b664c32ad00534f173e1f7c4410232beef89bed4464ddc0',
  questionInitialized: '0xeee0897acd6893adcaf2ba5158191b3601098ab6bece35c5d57874340b64c5b7',
  questionReset: '0x7981b5832932948db4e32a4a16a0f44b2ce7ff088574afb9364b313f70f82e8f',
  questionPaused: '0x6ded7250a9d5f79aef5add44600fc20a74a0af6f4730baa4fc4ab87bf484b812',
  questionUnpaused: '0x92d28918c5574e7fc0f4f948c39502682c81cfb4089b07b83f95b3264e5e5e06',
  questionFlagged: '0x2435a0347185933b12027c6f394a5fd9c03646dba233e956f50658719dfc0b35',
  questionUnflagged: '0x052435bc04fc49113a7bfd9198a92c0852ca622a621800f6da66d4b29b786c05',
  questionResolved: '0x566c3fbdd12dd86bb341787f6d531f79fd7ad4ce7e3ae2d15ac0ca1b601af9df',
  requestRegistered: '0x459464e3d93204e986f0b20e33596daba585b1f37d5afe1eb1821551f7cb6f49',
  requestInitialized: '0x839c055b0950750a6f75094f72e116ca77f7ce872f4bb4c0ffa3b2c815c1af68',
  requestRerequested: '0x1697ba06de6a0e2a38dc4c609ab93189957850e912bf756d09d120dd72bf3a71',
  requestResolved: '0xf90cfb6e6e4a1d80aaf0d4c187351de7da1873909a712c23b7858bf65f22288f',
} as const satisfies Record<string, Hex>

/** Hash of rules without a clarification: keccak256 of nothing (contract §9, Rules). */
export const noRulesHash: Hex = '0xc5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470'
