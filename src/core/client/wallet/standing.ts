/** Finalized state proves an end (contract §1); latest state only tells that one is near (R14). */

import {
  cameThroughSignedProposer,
  isOfRound,
  locateProposal,
  proposedPriceOf,
} from '#chain/propose'
import { createRoundReader } from '#chain/questions'
import { heldState } from '#chain/reading'
import { keccakHex, type Round, requestStates } from '#chain/round'
import { readRequest, standingIn } from '#chain/stakes'
import { onChain } from '#chain/unavailable'
import { type BlockHeader, type Chain, ChainError, type Hex } from '#ports'
import { amountText } from '#protocol/amount'
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
    // The one text may be asked by two requesters, in rounds of their own (R3).
    const roundOf = (one: OpenClaim) => {
      const pinned = roundPins(trust, one).requesters
      return known.find(({ requester }) => pinned.some(({ address }) => address === requester))
    }
    const standings = new Map<string, RoundStanding>()
    const keyOf = (round: Round | undefined, timestamp = round?.timestamp) =>
      `${round?.requester} ${timestamp}`
    for (const round of known) {
      const own = claims.filter((one) => roundOf(one) === round)
      const timestamps = [round.timestamp, ...own.flatMap((one) => one.timestamp ?? [])]
      for (const timestamp of new Set(timestamps)) {
        const standing = await roundStanding(reading, { ...round, timestamp }, own)
        if (standing !== undefined) standings.set(keyOf(round, timestamp), standing)
      }
    }
    const nowAt = (round: Round | undefined) => ({
      round,
      current: standings.get(keyOf(round)),
      isOneOfSeveral: known.length > 1,
    })
    const standingOf = (one: OpenClaim) => {
      const round = roundOf(one)
      const own = standings.get(keyOf(round, one.timestamp))
      const nonceSpentFinal = spentFinal.has(one.id)
      const isRoundKnown = round !== undefined && one.timestamp !== undefined
      return {
        nonceSpent: spent.has(one.id) || nonceSpentFinal,
        nonceSpentFinal,
        now: nowAt(round),
        round: own,
        roundIsOver: isRoundKnown
          ? BigInt(round.timestamp) > BigInt(one.timestamp ?? 0)
          : undefined,
        proof: proofOf(reading, one, own?.proposal),
      }
    }
    const of = new Map(claims.map((one) => [one.id, standingOf(one)]))
    return { latest, finalized, ...nowAt(known[0]), of }
  })
}

async function roundStanding(reading: Reading, round: Round, ours: readonly OpenClaim[]) {
  const { chain, latest } = reading
  const at = latest.number
  const index = await heldState(chain, at, round)
  const state = requestStates[index] ?? 'invalid'
  if (state === 'invalid') return undefined
  const [proposal, terms] = await Promise.all([
    state === 'requested' ? undefined : proposalIn(reading, round, ours),
    readRequest(chain, at, round),
  ])
  const isRequested = state === 'requested'
  return {
    state,
    proposal,
    terms: isRequested ? undefined : terms,
    rewardRaw: isRequested || state === 'proposed' ? terms.rewardRaw : undefined,
  }
}

async function proposalIn(
  { chain, trust, latest, finalized }: Reading,
  round: Round,
  ours: readonly OpenClaim[],
) {
  const { signed_proposer: signedProposer } = trust
  const held = await locateProposal(chain, round, signedProposer, latest, undefined)
  if (held === undefined) return undefined
  const { proposer, price, transactionHash } = held
  const receipt = transactionHash === null ? null : await chain.receipt(transactionHash)
  const wanted = { ...round, ancillaryHash: keccakHex(round.ancillaryData) }
  const found = receipt?.logs
    .map(proposedPriceOf)
    .find((one) => one !== undefined && isOfRound(one, wanted))
  if (receipt === null || found === undefined) {
    // "Not ours" must not be concluded from a node that shows the state and not yet the log.
    if (ours.some((one) => one.owner === proposer && one.price === price))
      throw new ChainError(
        'unavailable',
        `the node shows a proposal by ${proposer}, and not its transaction yet`,
      )
    return { proposer, price, isFinal: false, bySignature: false }
  }
  const { transactionHash: hash, blockNumber } = receipt
  return {
    proposer,
    price,
    isFinal: blockNumber <= finalized.number,
    bySignature: cameThroughSignedProposer(receipt.logs, signedProposer, found),
    mined: { transactionHash: hash, blockNumber, eventIndex: found.log.logIndex },
  }
}

function proofOf(
  reading: Reading,
  one: OpenClaim,
  proposal: RoundStanding['proposal'],
): Omit<TerminalRecord, 'id'> | undefined {
  if (!reading.spentFinal.has(one.id))
    return reading.finalized.timestamp > one.deadlineSeconds ? { outcome: 'expired' } : undefined
  const fits =
    proposal?.isFinal === true &&
    proposal.bySignature &&
    proposal.proposer === one.owner &&
    proposal.price === one.price
  // Of several that say the same, nothing tells whose the proposal is.
  const alike = reading.claims.filter(
    ({ id, owner, price, timestamp }) =>
      reading.spentFinal.has(id) &&
      owner === one.owner &&
      price === one.price &&
      timestamp === one.timestamp,
  )
  const mined = fits && alike.length === 1 ? proposal.mined : undefined
  if (mined === undefined) return { outcome: 'nonce_used' }
  const { transactionHash, eventIndex } = mined
  return { outcome: 'executed', transaction_hash: transactionHash, event_index: eventIndex }
}

export type RoundStanding = NonNullable<Awaited<ReturnType<typeof roundStanding>>>

type StakePosition = NonNullable<ReturnType<typeof stakeIn>>

export function holdsProposal(
  { proposal }: RoundStanding,
  { proposer, price }: { readonly proposer: string; readonly price: string },
) {
  if (proposal?.proposer !== proposer || proposal.price !== price) return false
  return proposal.bySignature || proposal.mined === undefined
}

export function stakeIn(own: RoundStanding | undefined, hasNewRound: boolean, nowSeconds: bigint) {
  if (own?.terms === undefined) return undefined
  const { terms, state, proposal } = own
  const { resolvedPrice, disputableUntil } = terms
  const isDisputed = terms.disputer !== undefined
  const round = { state, price: proposal?.price, resolvedPrice, isDisputed, disputableUntil }
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

const next = (action: Next['action'], text: string, command?: string) => ({
  action,
  text,
  command,
})

type Entry = Omit<ReconciledEntry, 'next'>

interface Question {
  readonly identifier: string
  readonly chain: QuestionStanding | undefined
}

export function adviseOn(entry: Entry, question: Question): Next {
  if (!isExecuted(entry)) return adviseUnexecuted(entry, question)
  const own = entry.standing?.round
  return own !== undefined && !holdsProposal(own, entry.record.terms)
    ? adviseUnproven(own, entry, question)
    : adviseExecuted(entry, question)
}

export const isExecuted = ({ standing, state }: Pick<Entry, 'standing' | 'state'>) =>
  standing?.proof === undefined
    ? state.kind === 'closed' && state.reason === 'executed'
    : standing.proof.outcome === 'executed'

/** The gateway says it was executed: its node is ahead of ours, or it is wrong. */
function adviseUnproven(own: RoundStanding, { record }: Entry, { identifier }: Question): Next {
  const isOwn = own.proposal?.proposer === record.terms.proposer
  const round = `${roundText(own)}${isOwn ? ', and not by this authorization' : ''}`
  return next(
    'wait',
    `the gateway says that it was executed, and the chain does not show it: its round is ${round}. Reconcile again in a minute, then ask the operator`,
    `proposer reconcile ${identifier}`,
  )
}

function roundText({ state, proposal }: RoundStanding) {
  if (proposal === undefined) return state
  return `${state} (${proposal.proposer} proposed ${outcomeOf(proposal.price) ?? `price ${proposal.price}`})`
}

function adviseExecuted(
  { standing, authorization, position }: Entry,
  { chain, identifier }: Question,
): Next {
  if (position === undefined) {
    const why =
      chain === undefined
        ? 'is not known without a node: give --rpc-url <url>'
        : 'is not known: the chain does not show its round'
    return next('none', `it was executed; whether it was disputed since ${why}`)
  }
  const ended = authorization?.terminals.findLast(({ outcome }) => outcome === 'executed')
  const hash = (standing?.proof ?? ended)?.transaction_hash
  const { disputer, bondRaw, finalFeeRaw } = position.terms
  const executed = `it was executed${hash == null ? '' : ` in transaction ${hash}`}${disputer === undefined ? '' : ` and disputed by ${disputer}`}`
  const staked = amountText(String(bondRaw + finalFeeRaw), chain?.round?.token)
  const quiet = quietText(position, staked)
  if (quiet !== undefined) return next('none', executed + quiet)
  const stake = `${executed}. Its bond and final fee, ${staked}, stay with the oracle until the dispute is decided`
  if (!position.hasNewRound)
    return next(
      'wait',
      `${stake}. No new round is open: UMA's voters decide, which takes two to four days`,
      `proposer reconcile ${identifier}`,
    )
  const isPaused = chain?.round?.paused === true
  if (chain?.current?.state === 'requested' && !isPaused)
    return next(
      'sign_anew',
      `${stake}. A new round is open: find out why it was disputed before you sign for that one`,
      `proposer context ${identifier}`,
    )
  const now = isPaused ? 'paused' : (chain?.current?.state ?? 'not known')
  return next(
    'wait_for_new_round',
    `${stake}. The new round is ${now}: nothing can be proposed in it`,
  )
}

function quietText({ state, result, terms }: StakePosition, staked: string) {
  const iso = new Date(Number(terms.disputableUntil) * 1000).toISOString()
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

const closedBecause: Readonly<Record<ClosedReason, string>> = {
  executed: 'it was executed',
  refused: 'the gateway has refused it',
  failed: 'its candidate has failed for good',
  nonce_used: 'its nonce is used or cancelled',
  expired: 'its deadline has passed',
}

function adviseUnexecuted(entry: Entry, question: Question): Next {
  const { id, record, standing, state, authorization, ownersSigned } = entry
  const { identifier } = question
  const again = (why: string) => signAgain(why, question)
  const isOver = standing?.roundIsOver === true
  if (standing?.proof?.outcome === 'nonce_used')
    return again('its nonce is used or cancelled in finalized state')
  if (standing?.proof?.outcome === 'expired')
    return again('its deadline has passed in finalized state')
  if (standing?.nonceSpent === true)
    return next(
      'wait',
      'its nonce is spent in a block that is not final yet: reconcile again in a few seconds',
      `proposer reconcile ${identifier}`,
    )
  switch (state.kind) {
    case 'closed':
      return again(closedBecause[state.reason])
    case 'offered':
      if (isOver)
        return again('its round has ended, so what the wallet signs can no longer execute')
      if (ownersSigned.length > 0)
        return next(
          'import_signature',
          `${ownersSigned.length === 1 ? 'one owner' : `${ownersSigned.length} owners`} of the Safe signed it (${ownersSigned.join(', ')}): let the next one sign, on another machine with --parts <file>, or revoke its nonce before you sign anything else`,
          nextOwner(record as Offered),
        )
      return next(
        'import_signature',
        'an external wallet has its typed data: attach its signature, or revoke its nonce before you sign anything else',
        `proposer sign ${identifier} --signature <hex>`,
      )
    case 'accepted':
      return adviseAccepted(entry, state.candidateId)
    case 'unknown':
      if (isOver && authorization !== undefined)
        return next('out_of_band', outOfBandLine(authorization))
      return replay(
        entry,
        'an attempt got no clear response: send the same bytes again, never sign because of it',
      )
  }
  // Signed, deferred or conflict: never admitted, as far as the responses say.
  if (isOver) return again('its round has ended and no gateway had it')
  if (standing?.round !== undefined && !isStillRequested(entry))
    return next(
      'wait_for_new_round',
      `its round is ${roundText(standing.round)}: it cannot execute, wait for a new round`,
    )
  if (authorization?.supersededBy !== undefined)
    return revoke(entry, 'but its signature stays good until its deadline')
  if (state.kind === 'signed')
    return next('submit', 'it was signed and never sent: send it', `proposer replay ${id}`)
  return replay(
    entry,
    state.kind === 'conflict'
      ? `the gateway answered 409 (${state.code}) and did not take it: follow what is active there, then send it again or revoke it`
      : `it was not admitted so far: send the same bytes again; do not sign ${identifier} anew meanwhile`,
  )
}

function signAgain(why: string, { chain, identifier }: Question): Next {
  const current = chain?.current
  if (current !== undefined && current.state !== 'requested')
    return next(
      'wait_for_new_round',
      `${why}; the current round is ${current.state}: wait for a new one`,
    )
  if (current !== undefined && chain?.round?.paused === true)
    return next('wait', `${why}; the question is paused: sign again once it is unpaused`)
  const requester = chain?.isOneOfSeveral === true ? chain.round?.requester : undefined
  return next(
    'sign_anew',
    `${why}: it is safe to sign again if an answer is still wanted`,
    `proposer submit ${identifier} --outcome <answer>${requester === undefined ? '' : ` --requester ${requester}`}`,
  )
}

function adviseAccepted(entry: Entry, candidateId: string): Next {
  const { gateway, standing, authorization } = entry
  const isOver = standing?.roundIsOver === true
  if (authorization?.supersededBy !== undefined && !isOver && isStillRequested(entry))
    return revoke(entry, 'but it may still execute until its deadline')
  const error = gateway !== undefined && 'error' in gateway ? gateway.error : undefined
  if (error?.code === 'candidate_mismatch')
    return next('contact_operator', `${error.detail}: sign nothing else meanwhile`)
  if (error?.meta.httpStatus === 404) {
    // It may have lost its store: in the round the saved bytes are safe to send (§7 rule 2).
    if (!isOver && isStillRequested(entry))
      return replay(
        entry,
        `the gateway no longer knows its candidate ${candidateId}: send the same bytes again, do not sign another`,
      )
    const line = authorization === undefined ? '' : `: ${outOfBandLine(authorization)}`
    return next(
      'contact_operator',
      `the gateway no longer knows its candidate ${candidateId}${line}`,
    )
  }
  const status = gateway !== undefined && 'status' in gateway ? gateway.status : undefined
  if (status !== undefined && endOf(status) === 'executed')
    return next(
      'wait',
      `the gateway reports ${status.status}, which may mean executed: sign nothing else before finalized state or its deadline settles it`,
      `proposer reconcile ${authorization?.signed.identifier} --rpc-url <url>`,
    )
  if (status?.failure?.retryable === true && !isOver)
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

const isStillRequested = ({ standing }: Entry) =>
  standing?.round === undefined || standing.round.state === 'requested'

function replay({ id, authorization }: Entry, text: string): Next {
  const origin = authorization?.attempts.at(-1)?.start.origin
  return next(
    'replay',
    origin === undefined ? text : `${text} (it went to ${origin})`,
    `proposer replay ${id}`,
  )
}

const revoke = ({ id, authorization }: Entry, text: string): Next =>
  next(
    'revoke',
    `${authorization?.supersededBy} has replaced it, ${text}: revoke it if it must not win`,
    `proposer revoke ${id}`,
  )
