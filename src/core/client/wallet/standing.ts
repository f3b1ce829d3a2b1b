/** Finalized state proves an end (contract §1); latest state only tells that one is near (R14). */

import {
  cameThroughSignedProposer,
  findProposed,
  locateProposal,
  notShownYet,
} from '#chain/propose'
import { createRoundReader } from '#chain/questions'
import { heldState } from '#chain/reading'
import { keccakHex, type Round, requestStates, roundRef } from '#chain/round'
import { type OracleRequest, readRequest, type StakeStanding, standingIn } from '#chain/stakes'
import { onChain } from '#chain/unavailable'
import type { BlockHeader, Chain, Hex } from '#ports'
import { amountText } from '#protocol/amount'
import { instant } from '#protocol/candidate'
import type { ProposerError } from '#protocol/errors'
import { outcomeOf } from '#protocol/proposal'
import { endOf, type PolledStatus } from '../follow/look.js'
import { type OpenClaim, pinnedHeads, spentNonces } from '../funds/funds.js'
import {
  type AuthorizationState,
  type ClosedReason,
  type JournaledAuthorization,
  nextOwner,
  outOfBandLine,
} from '../journal/authorizations.js'
import type { Offered, Signed, TerminalRecord } from '../journal/records.js'
import { contractsOf, roundPins, type Trust } from '../trust/trust.js'

export type AuthorizationStanding = NonNullable<ReturnType<QuestionStanding['of']['get']>>
export type QuestionStanding = Awaited<ReturnType<typeof readStanding>>
export type RoundStanding = NonNullable<Awaited<ReturnType<typeof roundStanding>>>

interface Reading {
  readonly chain: Chain
  readonly trust: Trust
  readonly latest: BlockHeader
  readonly finalized: BlockHeader
  readonly claims: readonly OpenClaim[]
  readonly spentFinal: ReadonlySet<string>
}

export async function readStanding(
  chain: Chain,
  trust: Trust,
  questionId: Hex,
  all: readonly OpenClaim[],
) {
  const { latest, finalized } = await pinnedHeads(chain, trust)
  return onChain(async () => {
    const claims = all.filter(
      (one) => one.questionId === questionId && one.chainId === trust.chain_id,
    )
    const [known, spent, spentFinal] = await Promise.all([
      createRoundReader(chain, contractsOf(trust)).readAll(questionId, undefined, latest.number),
      spentNonces(chain, trust.permit2, latest.number, claims),
      spentNonces(chain, trust.permit2, finalized.number, claims),
    ])
    const reading = { chain, trust, latest, finalized, claims, spentFinal }
    const standings = new Map<string, ReturnType<typeof roundStanding>>()
    const standingAt = (round: Round | undefined, timestamp = round?.timestamp) => {
      if (round === undefined || timestamp === undefined) return undefined
      const key = `${round.requester} ${timestamp}`
      const standing = standings.get(key) ?? roundStanding(reading, { ...round, timestamp })
      standings.set(key, standing)
      return standing
    }
    const nowAt = async (round: Round | undefined) => ({
      round,
      current: await standingAt(round),
      isOneOfSeveral: known.length > 1,
    })
    const standingOf = async (one: OpenClaim) => {
      // The one text may be asked by two requesters, in rounds of their own (R3).
      const pinned = roundPins(trust, one).requesters
      const now = known.find(({ requester }) => pinned.some(({ address }) => address === requester))
      const round = await standingAt(now, one.timestamp)
      const isOver =
        now && one.timestamp ? BigInt(now.timestamp) > BigInt(one.timestamp) : undefined
      const nonceSpentFinal = spentFinal.has(one.id)
      return {
        nonceSpent: spent.has(one.id) || nonceSpentFinal,
        nonceSpentFinal,
        now: await nowAt(now),
        round,
        roundIsOver: isOver,
        stake: round && stakeOf(one, round, isOver === true, latest.timestamp),
        proof: proofOf(reading, one, round?.proposal),
      }
    }
    const current = await nowAt(known[0])
    const of = await Promise.all(
      claims.map(async (one) => [one.id, await standingOf(one)] as const),
    )
    return { latest, finalized, ...current, of: new Map(of) }
  })
}

async function roundStanding(reading: Reading, round: Round) {
  const { chain, latest } = reading
  const state = requestStates[await heldState(chain, latest.number, round)] ?? 'invalid'
  if (state === 'invalid') return undefined
  const isRequested = state === 'requested'
  const [proposal, terms] = await Promise.all([
    isRequested ? undefined : proposalIn(reading, round),
    readRequest(chain, latest.number, round),
  ])
  return {
    ...{ state, proposal, terms: isRequested ? undefined : terms },
    rewardRaw: isRequested || state === 'proposed' ? terms.rewardRaw : undefined,
  }
}

async function proposalIn({ chain, trust, latest, finalized, claims }: Reading, round: Round) {
  const held = await locateProposal(chain, round, trust.signed_proposer, latest, undefined)
  if (held === undefined) return undefined
  const { proposer, price, transactionHash } = held
  const receipt = transactionHash === null ? null : await chain.receipt(transactionHash)
  const contracts = { chainId: trust.chain_id }
  const ref = roundRef(contracts, round.questionId, round, keccakHex(round.ancillaryData))
  const found = receipt && findProposed(receipt.logs, { round: ref, proposer, price })
  if (!found) {
    // "Not ours" must not be concluded from a node that shows the state and not yet the log.
    if (claims.some((one) => one.owner === proposer && one.price === price))
      throw notShownYet(proposer)
    return { proposer, price, isFinal: false, bySignature: false }
  }
  const { transactionHash: hash, blockNumber } = receipt
  return {
    proposer,
    price,
    isFinal: blockNumber <= finalized.number,
    bySignature: cameThroughSignedProposer(receipt.logs, trust.signed_proposer, found),
    mined: { transactionHash: hash, blockNumber, eventIndex: found.log.logIndex },
  }
}

function proofOf(
  { claims, spentFinal, finalized }: Reading,
  one: OpenClaim,
  proposal: RoundStanding['proposal'],
): Omit<TerminalRecord, 'id'> | undefined {
  if (!spentFinal.has(one.id))
    return finalized.timestamp > one.deadlineSeconds ? { outcome: 'expired' } : undefined
  const { owner, price, timestamp } = one
  // Of several that say the same, nothing tells whose the proposal is.
  const alike = claims.filter(
    (other) =>
      spentFinal.has(other.id) &&
      other.owner === owner &&
      other.price === price &&
      other.timestamp === timestamp,
  )
  const isOwn = proposal?.proposer === owner && proposal.price === price && alike.length === 1
  if (!isOwn || !proposal.isFinal || !proposal.bySignature || proposal.mined === undefined)
    return { outcome: 'nonce_used' }
  const { transactionHash, eventIndex } = proposal.mined
  return { outcome: 'executed', transaction_hash: transactionHash, event_index: eventIndex }
}

interface StakePosition extends StakeStanding {
  readonly terms: OracleRequest
  readonly hasNewRound: boolean
}

/** Where the round holds the claim's proposal, as far as the node shows. */
function stakeOf(
  { owner, price }: OpenClaim,
  { state, terms, proposal }: RoundStanding,
  hasNewRound: boolean,
  nowSeconds: bigint,
): StakePosition | undefined {
  const isOwn = proposal?.proposer === owner && proposal.price === price
  if (!isOwn || terms === undefined || (proposal.mined && !proposal.bySignature)) return undefined
  const round = { ...terms, state, isDisputed: terms.disputer !== undefined }
  return { ...standingIn(round, hasNewRound, nowSeconds), terms, hasNewRound }
}

export type GatewayWord = { readonly status: PolledStatus } | { readonly error: ProposerError }

export interface ReconciledEntry {
  readonly id: string
  readonly record: Signed | Offered
  readonly authorization?: JournaledAuthorization
  readonly ownersSigned: readonly Hex[]
  readonly supersededBy: string | undefined
  readonly state: AuthorizationState | { readonly kind: 'offered' }
  /** Absent where it was not asked for. */
  readonly gateway: GatewayWord | undefined
  readonly standing: AuthorizationStanding | undefined
  /** What was journaled just now because finalized state proves it. */
  readonly settled: ClosedReason | undefined
  /** Only of an executed one, where a node shows its proposal in its round. */
  readonly position: StakePosition | undefined
  /** Where the round pays less than when this was signed; raw token units. */
  readonly rewardFell: { readonly signedRaw: bigint; readonly nowRaw: bigint } | undefined
  readonly next: Next
}

interface Next {
  readonly action:
    | 'none'
    | 'wait'
    | 'poll'
    | 'replay'
    | 'submit'
    | 'import_signature'
    | 'revoke'
    | 'sign_anew'
    | 'wait_for_new_round'
    | 'out_of_band'
    | 'contact_operator'
  readonly text: string
  readonly command?: string | undefined
}

const next = (action: Next['action'], text: string, command?: string): Next => ({
  action,
  text,
  command,
})

type Entry = Omit<ReconciledEntry, 'next'>

interface Question {
  readonly identifier: string
  readonly chain: QuestionStanding | undefined
}

export const isExecuted = ({ standing, state }: Pick<Entry, 'standing' | 'state'>) =>
  standing?.proof === undefined
    ? state.kind === 'closed' && state.reason === 'executed'
    : standing.proof.outcome === 'executed'

export function adviseOn(entry: Entry, question: Question) {
  if (isExecuted(entry)) return adviseExecuted(entry, question)
  const { standing, state, authorization } = entry
  const { proof, nonceSpent, round, roundIsOver: isOver } = standing ?? {}
  const again = (why: string) => signAgain(why, question)
  if (proof !== undefined) return again(`${closedBecause[proof.outcome]} in finalized state`)
  if (nonceSpent)
    return next(
      'wait',
      'its nonce is spent in a block that is not final yet: reconcile again in a few seconds',
      `proposer reconcile ${question.identifier}`,
    )
  if (state.kind === 'closed') return again(closedBecause[state.reason])
  if (state.kind === 'accepted') return adviseAccepted(entry, state.candidateId)
  const isUnknown = state.kind === 'unknown'
  if (isOver)
    return authorization && isUnknown
      ? next('out_of_band', outOfBandLine(authorization))
      : again('its round has ended and no gateway had it')
  if (authorization === undefined) return importSignature(entry, question)
  if (isUnknown)
    return replay(
      entry,
      'an attempt got no clear response: send the same bytes again, never sign because of it',
    )
  if (round !== undefined && round.state !== 'requested')
    return next(
      'wait_for_new_round',
      `its round is ${roundText(round)}: it cannot execute, wait for a new round`,
    )
  if (authorization.supersededBy !== undefined) return revoke(entry)
  if (state.kind === 'signed')
    return next('submit', 'it was signed and never sent: send it', `proposer replay ${entry.id}`)
  return replay(
    entry,
    state.kind === 'conflict'
      ? `the gateway answered 409 (${state.code}) and did not take it: follow what is active there, then send it again or revoke it`
      : `it was not admitted so far: send the same bytes again; do not sign ${question.identifier} anew meanwhile`,
  )
}

const closedBecause: Readonly<Record<ClosedReason, string>> = {
  executed: 'it was executed',
  refused: 'the gateway has refused it',
  failed: 'its candidate has failed for good',
  nonce_used: 'its nonce is used or cancelled',
  expired: 'its deadline has passed',
}

function roundText({ state, proposal }: RoundStanding) {
  if (proposal === undefined) return state
  return `${state} (${proposal.proposer} proposed ${outcomeOf(proposal.price) ?? `price ${proposal.price}`})`
}

function adviseExecuted(entry: Entry, { chain, identifier }: Question) {
  const { standing, authorization, position, record } = entry
  const reconcile = `proposer reconcile ${identifier}`
  const round = standing?.round
  if (position === undefined && round !== undefined) {
    const isOwn = round.proposal?.proposer === record.terms.proposer
    return next(
      'wait',
      `the gateway says that it was executed, and the chain does not show it: its round is ${roundText(round)}${isOwn ? ', and not by this authorization' : ''}. Reconcile again in a minute, then ask the operator`,
      reconcile,
    )
  }
  if (position === undefined) {
    const isBlind = chain === undefined
    const why = isBlind ? ' without a node: give --rpc-url <url>' : ': no node shows its round'
    return next('none', `it was executed; whether it was disputed since is not known${why}`)
  }
  const ended = authorization?.terminals.findLast(({ outcome }) => outcome === 'executed')
  const hash = (standing?.proof ?? ended)?.transaction_hash
  const { disputer, bondRaw, finalFeeRaw } = position.terms
  const executed = `it was executed${hash == null ? '' : ` in transaction ${hash}`}${disputer === undefined ? '' : ` and disputed by ${disputer}`}`
  const staked = amountText(bondRaw + finalFeeRaw, chain?.round?.token)
  const quiet = quietText(position, staked)
  if (quiet !== undefined) return next('none', executed + quiet)
  const stake = `${executed}. Its bond and final fee, ${staked}, stay with the oracle until the dispute is decided`
  if (!position.hasNewRound)
    return next(
      'wait',
      `${stake}. No new round is open: UMA's voters decide, which takes two to four days`,
      reconcile,
    )
  const now = chain?.round?.paused ? 'paused' : (chain?.current?.state ?? 'not known')
  return now === 'requested'
    ? next(
        'sign_anew',
        `${stake}. A new round is open: find out why it was disputed before you sign for that one`,
        `proposer context ${identifier}`,
      )
    : next('wait_for_new_round', `${stake}. The new round is ${now}: nothing can be proposed in it`)
}

function quietText({ state, result, terms }: StakePosition, staked: string) {
  const iso = instant(Number(terms.disputableUntil) * 1000)
  const until = iso.replace('T', ' ').replace('.000Z', 'Z')
  const undisturbed = 'and nothing is left to do now'
  if (state === 'open') return `; it can be disputed until ${until}, ${undisturbed}`
  if (state === 'awaiting_settlement')
    return `; waiting for the oracle to settle it since ${until}, ${undisturbed}`
  if (state !== 'settled') return undefined
  const ends = {
    undisputed: 'settled undisputed: nothing is left to do',
    won: "found right: bond and final fee are paid back, with a part of the disputer's bond; nothing is left to do",
    lost: `found wrong: its bond and final fee, ${staked}, are lost`,
  }
  return `, and ${ends[result ?? 'undisputed']}`
}

function signAgain(why: string, { chain, identifier }: Question) {
  const { current, round, isOneOfSeveral } = chain ?? {}
  if (current !== undefined && current.state !== 'requested')
    return next(
      'wait_for_new_round',
      `${why}; the current round is ${current.state}: wait for a new one`,
    )
  if (current !== undefined && round?.paused)
    return next('wait', `${why}; the question is paused: sign again once it is unpaused`)
  const requester = isOneOfSeveral && round ? ` --requester ${round.requester}` : ''
  return next(
    'sign_anew',
    `${why}: it is safe to sign again if an answer is still wanted`,
    `proposer submit ${identifier} --outcome <answer>${requester}`,
  )
}

function importSignature({ ownersSigned: owners, record }: Entry, { identifier }: Question) {
  if (owners.length === 0)
    return next(
      'import_signature',
      'an external wallet has its typed data: attach its signature, or revoke its nonce before you sign anything else',
      `proposer sign ${identifier} --signature <hex>`,
    )
  const count = owners.length === 1 ? 'one owner' : `${owners.length} owners`
  return next(
    'import_signature',
    `${count} of the Safe signed it (${owners.join(', ')}): let the next one sign, on another machine with --parts <file>, or revoke its nonce before you sign anything else`,
    nextOwner(record as Offered),
  )
}

function adviseAccepted(entry: Entry, candidateId: string) {
  const { gateway, standing, authorization, record } = entry
  const isOver = standing?.roundIsOver === true
  const isOpen = !isOver && (standing?.round?.state ?? 'requested') === 'requested'
  if (authorization?.supersededBy !== undefined && isOpen) return revoke(entry)
  const { error, status } = { error: undefined, status: undefined, ...gateway }
  if (error?.code === 'candidate_mismatch')
    return next('contact_operator', `${error.detail}: sign nothing else meanwhile`)
  if (error?.meta.httpStatus === 404) {
    const lost = `the gateway no longer knows its candidate ${candidateId}: `
    // It may have lost its store: in the round the saved bytes are safe to send (§7 rule 2).
    return isOpen || authorization === undefined
      ? replay(entry, `${lost}send the same bytes again, do not sign another`)
      : next('contact_operator', lost + outOfBandLine(authorization))
  }
  if (status !== undefined && endOf(status) === 'executed')
    return next(
      'wait',
      `the gateway reports ${status.status}, which may mean executed: sign nothing else before finalized state or its deadline settles it`,
      `proposer reconcile ${record.identifier} --rpc-url <url>`,
    )
  if (status?.failure?.retryable && !isOver)
    return replay(
      entry,
      `its candidate failed (${status.failure.code}) and may still execute: fix the cause, then send the same bytes again`,
    )
  return next(
    'poll',
    isOver
      ? 'its round has ended: poll its candidate, which settles it, before you sign for the new round'
      : 'the gateway has it: follow its candidate, do not sign another',
    `proposer poll ${candidateId}`,
  )
}

function replay({ id, authorization }: Entry, text: string) {
  const origin = authorization?.attempts.at(-1)?.start.origin
  const whereTo = origin === undefined ? '' : ` (it went to ${origin})`
  return next('replay', text + whereTo, `proposer replay ${id}`)
}

const revoke = ({ id, supersededBy }: Entry) =>
  next(
    'revoke',
    `${supersededBy} has replaced it, but it may still execute until its deadline: revoke it if it must not win`,
    `proposer revoke ${id}`,
  )
