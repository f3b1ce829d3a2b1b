/** The ABIs whole: what only tests encode, or read of events that the sources know by topic alone. */
import { parseAbi } from 'viem'
import * as used from '#chain/contracts'

export const oracleAbi = [
  ...used.oracleAbi,
  ...parseAbi([
    'event CustomBondSet(bytes32 indexed managedRequestId, address requester, bytes32 indexed identifier, bytes ancillaryData, address indexed currency, uint256 bond)',
    'event CustomLivenessSet(bytes32 indexed managedRequestId, address indexed requester, bytes32 indexed identifier, bytes ancillaryData, uint256 customLiveness)',
    'event CustomProposerWhitelistSet(bytes32 indexed managedRequestId, address requester, bytes32 indexed identifier, bytes ancillaryData, address indexed newWhitelist)',
    'event PayoutDeferred(address indexed currency, address indexed deferredRecipient, uint256 amount)',
    'event ClaimedDeferredPayout(address indexed currency, address indexed deferredRecipient, address to, uint256 amount)',
  ]),
] as const

export const oracleV3Abi = [
  ...used.oracleV3Abi,
  ...parseAbi([
    'function getRequestReward(address requester, bytes32 identifier, uint256 timestamp, bytes ancillaryData) view returns (uint256)',
  ]),
] as const

export const ctfAdapterAbi = [
  ...used.ctfAdapterAbi,
  ...parseAbi([
    'event QuestionInitialized(bytes32 indexed questionID, uint256 indexed requestTimestamp, address indexed creator, bytes ancillaryData, address rewardToken, uint256 reward, uint256 proposalBond)',
    'event QuestionReset(bytes32 indexed questionID)',
    'event QuestionPaused(bytes32 indexed questionID)',
    'event QuestionUnpaused(bytes32 indexed questionID)',
    'event QuestionFlagged(bytes32 indexed questionID)',
    'event QuestionUnflagged(bytes32 indexed questionID)',
    'event QuestionResolved(bytes32 indexed questionID, int256 indexed settledPrice, uint256[] payouts)',
  ]),
] as const

export const proxyAbi = parseAbi(['event Upgraded(address indexed implementation)'])
