import { parseAbi } from 'viem'

export * from './constants.js'

/** SignedProposer, the audited build (domain §2). */
export const signedProposerAbi = parseAbi([
  'struct Proposal { address oracle; address requester; bytes32 identifier; uint256 timestamp; bytes ancillaryData; int256 proposedPrice; uint256 maxPayment; }',
  'struct TokenPermissions { address token; uint256 amount; }',
  'struct PermitTransferFrom { TokenPermissions permitted; uint256 nonce; uint256 deadline; }',
  'function propose(Proposal proposal, address proposer, PermitTransferFrom permit, bytes signature, uint256 payment) returns (uint256 totalBond)',
  'function multicall(bytes[] data) returns (bytes[] results)',
  'function permit2() view returns (address)',
  'function PROPOSAL_TYPEHASH() view returns (bytes32)',
  'function WITNESS_TYPE_STRING() view returns (string)',
  'function DELEGATED_PROPOSER_ROLE() view returns (bytes32)',
  'function hasRole(bytes32 role, address account) view returns (bool)',
  'event ProposalExecuted(address indexed proposer, address indexed oracle, address indexed requester, bytes32 identifier, uint256 timestamp, int256 proposedPrice, uint256 totalBond, uint256 payment)',
])

export const permit2Abi = parseAbi([
  'function DOMAIN_SEPARATOR() view returns (bytes32)',
  'function nonceBitmap(address owner, uint256 wordPos) view returns (uint256)',
  'function invalidateUnorderedNonces(uint256 wordPos, uint256 mask)',
  'event UnorderedNonceInvalidation(address indexed owner, uint256 word, uint256 mask)',
])

/** Managed Optimistic Oracle V2 (domain §4). `isSet` of `customBonds` is always false. */
export const oracleAbi = parseAbi([
  'struct RequestSettings { bool eventBased; bool refundOnDispute; bool callbackOnPriceProposed; bool callbackOnPriceDisputed; bool callbackOnPriceSettled; uint256 bond; uint256 customLiveness; }',
  'struct Request { address proposer; address disputer; address currency; bool settled; RequestSettings requestSettings; int256 proposedPrice; int256 resolvedPrice; uint256 expirationTime; uint256 reward; uint256 finalFee; uint256 proposalTime; }',
  'function getRequest(address requester, bytes32 identifier, uint256 timestamp, bytes ancillaryData) view returns (Request)',
  'function getState(address requester, bytes32 identifier, uint256 timestamp, bytes ancillaryData) view returns (uint8)',
  'function customBonds(bytes32 managedRequestId, address currency) view returns (uint256 amount, bool isSet)',
  'function customLivenessValues(bytes32 managedRequestId) view returns (uint256 liveness, bool isSet)',
  'function defaultLiveness() view returns (uint256)',
  'function getCustomProposerWhitelist(address requester, bytes32 identifier, bytes ancillaryData) view returns (address)',
  'function defaultProposerWhitelist() view returns (address)',
  'function requesterWhitelist() view returns (address)',
  'function deferredPayouts(address currency, address recipient) view returns (uint256)',
  'function claimDeferredPayout(address currency, address to)',
  'event RequestPrice(address indexed requester, bytes32 identifier, uint256 timestamp, bytes ancillaryData, address currency, uint256 reward, uint256 finalFee)',
  'event ProposePrice(address indexed requester, address indexed proposer, bytes32 identifier, uint256 timestamp, bytes ancillaryData, int256 proposedPrice, uint256 expirationTimestamp, address currency)',
  'event DisputePrice(address indexed requester, address indexed proposer, address indexed disputer, bytes32 identifier, uint256 timestamp, bytes ancillaryData, int256 proposedPrice)',
  'event Settle(address indexed requester, address indexed proposer, address indexed disputer, bytes32 identifier, uint256 timestamp, bytes ancillaryData, int256 price, uint256 payout)',
])

/** Added by version 3 (domain §10). Only the requester is known to be indexed. */
export const oracleV3Abi = parseAbi([
  'struct RulesUpdate { uint256 timestamp; bytes update; }',
  'function getRequestRulesUpdates(address requester, bytes32 identifier, bytes ancillaryData) view returns (RulesUpdate[])',
  'event RewardUpdated(address indexed requester, bytes32 identifier, uint256 timestamp, bytes ancillaryData, address currency, uint256 oldReward, uint256 newReward)',
  'event BondUpdated(address indexed requester, bytes32 identifier, uint256 timestamp, bytes ancillaryData, uint256 oldBond, uint256 newBond)',
  'event CustomLivenessUpdated(address indexed requester, bytes32 identifier, uint256 timestamp, bytes ancillaryData, uint256 oldLiveness, uint256 newLiveness)',
])

export const whitelistAbi = parseAbi([
  'function isOnWhitelist(address account) view returns (bool)',
  'function owner() view returns (address)',
])

/** UmaCtfAdapter v4 (domain §5.1). */
export const ctfAdapterAbi = parseAbi([
  'struct QuestionData { uint256 requestTimestamp; uint256 reward; uint256 proposalBond; uint256 liveness; uint256 manualResolutionTimestamp; bool resolved; bool paused; bool reset; bool refund; address rewardToken; address creator; bytes ancillaryData; }',
  'function getQuestion(bytes32 questionID) view returns (QuestionData)',
  'function isFlagged(bytes32 questionID) view returns (bool)',
  'function optimisticOracle() view returns (address)',
  'struct AncillaryDataUpdate { uint256 timestamp; bytes update; }',
  'function getUpdates(bytes32 questionID, address owner) view returns (AncillaryDataUpdate[])',
])

/** OOReporter (domain §5.2). */
export const ooReporterAbi = parseAbi([
  'struct RequestData { uint256 requestTimestamp; uint256 reward; uint256 proposalBond; uint64 liveness; bool registered; bool initialized; bool resolved; bool rerequestAllowed; bool automaticDisputeRerequestUsed; address requester; address oracleInitializer; bytes32 priceIdentifier; bytes requestRules; int256 outcome; uint256 manualRerequestsRemaining; uint64 minimumLiveness; uint64 maximumLiveness; }',
  'function getRequest(bytes32 requestId) view returns (RequestData)',
  'function optimisticOracle() view returns (address)',
])

export const erc20Abi = parseAbi([
  'function balanceOf(address account) view returns (uint256)',
  'function allowance(address owner, address spender) view returns (uint256)',
  'function approve(address spender, uint256 amount) returns (bool)',
  'function symbol() view returns (string)',
  'function decimals() view returns (uint8)',
])

export const erc1271Abi = parseAbi([
  'function isValidSignature(bytes32 hash, bytes signature) view returns (bytes4)',
])
