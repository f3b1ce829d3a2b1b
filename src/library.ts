/**
 * What programs import from `proposer`: the wire schemas, the witness builder, the client, and the
 * gateway's handler. Everything asks the world through ports; the real ones are here too. What is
 * exported here is public: it may grow, it does not change.
 */

export type { ProposalRow, SubmitAllOptions } from './core/bot/open-proposer.js'
export {
  openProposer,
  type ProposalTerms,
  type Proposer,
  type ProposerOptions,
  type Submitted,
  signerFromViem,
  type ViemAccount,
} from './core/bot/open-proposer.js'
export type { Contracts, Round } from './core/chain/round.js'
export type { Rules, RulesUpdate } from './core/chain/rules.js'
export {
  type PollOptions,
  type PollResult,
  pollCandidates,
  statusOnce,
} from './core/client/follow/follow.js'
export type { PollTarget, Stage } from './core/client/follow/look.js'
export type { Funds, WalletFunds } from './core/client/funds/funds.js'
export type { Answer, RateLimit } from './core/client/gateway/answer.js'
export { createGatewayClient, type GatewayClient } from './core/client/gateway/gateway-client.js'
export type { PolledStatus } from './core/client/gateway/reading.js'
export type { IntentTerms } from './core/client/input/input.js'
export {
  type AuthorizationState,
  type JournaledAuthorization,
  stateOf as authorizationState,
} from './core/client/journal/authorizations.js'
export {
  type Journal,
  type JournalPorts,
  type JournalView,
  openJournal,
  verifyJournal,
} from './core/client/journal/journal.js'
export type { Position, Positions, PositionTotals } from './core/client/positions/positions.js'
export {
  type AskRules,
  type Intent,
  type IntentInWords,
  RulesChangedError,
  type RulesStanding,
} from './core/client/propose/intent.js'
export type { SpendingLimits } from './core/client/propose/limits.js'
export { payloadRow } from './core/client/propose/payload.js'
export type { Preview, ProposeParts } from './core/client/propose/plan.js'
export type {
  CallLimits,
  RowOutcome,
  SentOutcome,
  SettledEarlier,
  SubmitParts,
} from './core/client/propose/send.js'
export {
  authorize,
  intentRow,
  preview,
  type RowAuthorized,
} from './core/client/propose/sign-rows.js'
export {
  type ReplayResult,
  type RowResult,
  replay,
  type SubmitRowsOptions,
  submitOne,
  submitRows,
} from './core/client/propose/submit.js'
export {
  type ContextResult,
  type ContextSource,
  chainContexts,
  gatewayContexts,
  givenContexts,
} from './core/client/trust/context.js'
export { parseTrust, type QuestionContext, Trust } from './core/client/trust/trust.js'
export type { Reconciled, ReconciledEntry } from './core/client/wallet/reconcile.js'
export { applySet, type GatewayConfig, parseConfig } from './core/gateway/config.js'
export { createGateway, type Gateway, type GatewayParts } from './core/gateway/gateway.js'
export type { Ledger } from './core/gateway/ledger/ledger.js'
export type { ChainView, Question } from './core/gateway/view/state.js'
export {
  type EmbeddedGateway,
  type EmbeddedOptions,
  openGateway,
} from './core/host/embedded.js'
export { systemClock, systemHash, systemRandom } from './core/io/clock.js'
export { systemFiles } from './core/io/files.js'
export { createHttp } from './core/io/http.js'
export { type KeySigner, parseKey, readKeyFile, signerFromKey } from './core/io/keys.js'
export { systemLiveness } from './core/io/liveness.js'
export { createChain } from './core/io/rpc/rpc.js'
export { systemPorts } from './core/io/system.js'
export type {
  Chain,
  Clock,
  Fetch,
  FileHandle,
  Files,
  Hash,
  Hex,
  HttpAnswer,
  HttpCall,
  Liveness,
  Random,
  Signer,
} from './core/ports.js'
export { ChainError, TransportError } from './core/ports.js'
export type { Peer } from './core/protocol/call.js'
export {
  ConflictError,
  exit,
  FailedError,
  InterruptedError,
  PendingError,
  ProposerError,
  RejectedError,
  StorageError,
  UnauthorizedError,
  UnavailableError,
  UncertainError,
  UsageError,
} from './core/protocol/errors.js'
export {
  Address,
  type Address as ChainAddress,
  BatchSigningData,
  Bytes,
  Bytes32,
  NonzeroAddress,
  TypedData,
  Uint256,
} from './core/protocol/fields.js'
export { openApiDocument } from './core/protocol/openapi.js'
export {
  type Authorization,
  fromBatchItem,
  fromSingle,
  outcomeOf,
  priceOf,
  toBatchItem,
  toSingle,
} from './core/protocol/proposal.js'
export * from './core/protocol/schema.js'
export { recoverSigner } from './core/protocol/signature.js'
export {
  domainSeparator,
  proposalTypeHash,
  typedData,
  type WitnessDomain,
  type WitnessRequest,
  type WitnessRound,
  type WitnessTerms,
  witnessRound,
  witnessTypeString,
  witnessTypes,
} from './core/protocol/witness.js'
export { isIdentifier, isQuestionId, limits, version } from './core/protocol/words.js'
