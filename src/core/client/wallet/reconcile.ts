/** Journal, gateway and chain side by side (contract §6; spec §3 rule 3, §7 rules 2 and 3). */

import {
  cameThroughSignedProposer,
  findProposed,
  locateProposal,
  notShownYet,
} from '#chain/propose'
import { createRoundReader } from '#chain/questions'
import { heldState } from '#chain/reading'
import { keccakHex, type Round, requestStates, roundRef } from '#chain/round'
import { readRequest, standingIn } from '#chain/stakes'
import { onChain } from '#chain/unavailable'
import type { BlockHeader, Chain, Hex } from '#ports'
import { amountText } from '#protocol/amount'
import { instant } from '#protocol/candidate'
import { InterruptedError, ProposerError } from '#protocol/errors'
import { pick } from '#protocol/pick'
import { outcomeOf } from '#protocol/proposal'
import { statusOnce } from '../follow/follow.js'
import { endOf, type PolledStatus } from '../follow/look.js'
import { claimsIn, type OpenClaim, pinnedHeads, spentNonces } from '../funds/funds.js'
import type { GatewayClient } from '../gateway/gateway-client.js'
import {
  type ClosedReason,
  closes,
  executionOf,
  isOpen,
  type JournaledAuthorization,
  journalRecordOf,
  nextOwner,
  type Offered,
  outOfBandLine,
  type Recorded,
  stateOf,
  type TerminalRecord,
} from '../journal/authorizations.js'
import type { Holdings, Journal, JournalPorts } from '../journal/journal.js'
import { knownQuestionId } from '../propose/intent.js'
import { contractsOf, isNamedByText, roundPins, type Trust, unpinnedSlug } from '../trust/trust.js'

interface ReconcileParts {
  readonly ports: JournalPorts
  readonly journal: Journal
  readonly trust: Trust
  readonly gateway?: GatewayClient | undefined
  readonly chain?: Chain | undefined
  readonly dryRun?: boolean
  readonly signal?: AbortSignal
}

export type Reconciled = Awaited<ReturnType<typeof reconcile>>
export type ReconciledEntry = Reconciled['entries'][number]
export type GatewayWord = { readonly status: PolledStatus } | { readonly error: ProposerError }

/** Each candidate asked for costs an item of the budget (§8). */
const maxStatuses = 20

export async function reconcile(parts: ReconcileParts, identifier: string) {
  const { journal, trust, ports } = parts
  const before = await journal.load()
  const questionId = knownQuestionId(trust, identifier, before)
  if (!questionId) throw unpinnedSlug(identifier)
  const isOfQuestion = (one: Recorded) => {
    const record = journalRecordOf(one)
    return record.questionId === questionId && record.chainId === trust.chain_id
  }
  const notLookedAt: string[] = []
  const words = await askGateway(parts, before.authorizations.filter(isOfQuestion), notLookedAt)
  const standing = await askChain(parts, questionId, await journal.load(), notLookedAt)
  const settled = await settleByChain(parts, standing?.of ?? new Map())
  const view = await journal.load()
  const nowMs = ports.clock.nowMs()
  const offers = view.offers.filter((one) => isOpen(one, nowMs))

  const entries = [...view.authorizations, ...offers].filter(isOfQuestion).map((one) => {
    const { id } = one
    const own = standing?.of.get(id)
    const word = { gateway: words.get(id), standing: own, settled: settled.get(id) }
    const entry = entryOf(one, word, nowMs)
    // By the round at its own requester.
    return { ...entry, next: nextOf({ ...entry, identifier, now: own?.now ?? standing }) }
  })
  const round = standing?.round
  const shared = round && !isNamedByText(round.kind) ? view.byRound(refOf(trust, round).key) : []
  const sharing = shared.filter(
    (one) => one.signed.questionId !== questionId && !one.supersededBy && isOpen(one, nowMs),
  )
  return { questionId, entries, sharing, notLookedAt, chain: standing }
}

async function askGateway(
  { ports, journal, gateway, dryRun, signal }: ReconcileParts,
  authorizations: readonly JournaledAuthorization[],
  notLookedAt: string[],
) {
  const words = new Map<string, GatewayWord>()
  if (!gateway) {
    notLookedAt.push('no gateway is configured: candidates were not checked (--gateway)')
    return words
  }
  const polling = { ports, gateway, journal: dryRun ? undefined : journal }
  const nowMs = ports.clock.nowMs()
  const asked = authorizations
    .filter((one) => one.candidateId && isOpen(one, nowMs))
    .slice(-maxStatuses)
  let silent: ProposerError | undefined
  for (const { id, candidateId = '', signed } of asked.reverse()) {
    const target = { candidateId, identifier: signed.questionId, signed }
    try {
      words.set(id, { status: await statusOnce(polling, target, signal ? { signal } : {}) })
    } catch (error) {
      if (signal?.reason instanceof InterruptedError) throw signal.reason
      if (!(error instanceof ProposerError) || error.meta.exitCode === 74) throw error
      words.set(id, { error })
      if (error.meta.retryable) silent ??= error
    }
  }
  if (silent) notLookedAt.push(`the gateway does not report it: ${silent.detail}`)
  return words
}

async function askChain(
  { chain, trust }: ReconcileParts,
  questionId: Hex,
  view: Holdings,
  notLookedAt: string[],
) {
  if (!chain) {
    notLookedAt.push(
      'no node is configured: nonces, rounds and proposals were not checked (--rpc-url)',
    )
    return undefined
  }
  try {
    const standing = await readStanding(chain, trust, questionId, claimsIn(view))
    if (!standing.round)
      notLookedAt.push(
        "the chain does not show the question's request: only its nonces were checked",
      )
    return standing
  } catch (error) {
    if (!(error instanceof ProposerError) || !error.meta.retryable) throw error
    notLookedAt.push(`the chain was not checked: ${error.detail}`)
    return undefined
  }
}

/** What finalized state proves (contract §1). `codes` replace the plain reason. */
export async function settleByChain(
  { ports, journal, dryRun }: Pick<ReconcileParts, 'ports' | 'journal' | 'dryRun'>,
  standings: ReadonlyMap<string, AuthorizationStanding>,
  codes: ReadonlyMap<string, string> = new Map(),
) {
  const view = await journal.load()
  const nowMs = ports.clock.nowMs()
  // An expired one is still proven: it may have executed before.
  const isSettled = (id: string) => {
    const known = view.find(id)
    if (!known) return !view.offers.some((offer) => offer.id === id && isOpen(offer, nowMs))
    const state = stateOf(known, nowMs)
    return known.terminals.some(closes) || (state.kind === 'closed' && state.reason === 'refused')
  }
  const proven = [...standings].flatMap(([id, { proof }]) => {
    if (!proof || isSettled(id)) return []
    return [{ id, ...proof, code: proof.outcome === 'nonce_used' ? codes.get(id) : undefined }]
  })
  if (proven.length > 0 && !dryRun)
    await journal.append(proven.map((data) => ({ kind: 'terminal', data })))
  return new Map(proven.map(({ id, outcome }) => [id, outcome]))
}

interface Asked extends ReturnType<typeof entryOf> {
  readonly identifier: string
  readonly now: AuthorizationStanding['now'] | undefined
}

function entryOf(
  one: Recorded,
  found: {
    readonly gateway: GatewayWord | undefined
    readonly standing: AuthorizationStanding | undefined
    /** Proven by finalized state and journaled just now. */
    readonly settled: ClosedReason | undefined
  },
  nowMs: number,
) {
  const { id, supersededBy } = one
  const { stake, proof, round } = found.standing ?? {}
  const record = journalRecordOf(one)
  const authorization = 'signed' in one ? one : undefined
  const state = authorization ? stateOf(authorization, nowMs) : ({ kind: 'offered' } as const)
  const isExecuted = (proof?.outcome ?? ('reason' in state && state.reason)) === 'executed'
  const position = isExecuted ? stake : undefined
  // Version 3 of the oracle lets the reward fall (domain §10).
  const signedRaw = BigInt(record.reward ?? 0)
  const nowRaw = round?.rewardRaw ?? signedRaw
  const isMeant = state.kind !== 'closed' || position
  return {
    ...{ ...found, id, record, authorization, state, supersededBy, isExecuted, position },
    ownersSigned: 'parts' in one ? one.parts.map(({ owner }) => owner) : [],
    /** Raw token units. */
    rewardFell: isMeant && nowRaw < signedRaw ? { signedRaw, nowRaw } : undefined,
  }
}

type Action =
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

type Advice = readonly [action: Action, text: string, command?: string]

function nextOf(asked: Asked) {
  const [action, text, command] = adviceOn(asked)
  const { id, authorization, identifier } = asked
  const commands: Partial<Record<Action, string>> = {
    wait: `proposer reconcile ${identifier}`,
    poll: `proposer poll ${authorization?.candidateId}`,
    replay: `proposer replay ${id}`,
    submit: `proposer replay ${id}`,
    revoke: `proposer revoke ${id}`,
  }
  return { action, text, command: command ?? commands[action] }
}

function adviceOn(asked: Asked): Advice {
  if (asked.isExecuted) return executedAdvice(asked)
  const { standing, state, authorization } = asked
  const { proof, nonceSpent, round, roundIsOver: isOver } = standing ?? {}
  const again = (why: string) => signAgain(why, asked)
  if (proof) return again(`${closedBecause[proof.outcome]} in finalized state`)
  if (nonceSpent)
    return ['wait', 'its nonce is spent in a block not final yet: reconcile again in seconds']
  if (state.kind === 'closed') return again(closedBecause[state.reason])
  if (isOver && state.kind !== 'unknown' && state.kind !== 'accepted')
    return again('its round has ended and no gateway had it')
  if (!authorization) return importSignature(asked)
  if (state.kind === 'accepted') return acceptedAdvice(asked, authorization)
  if (isOver) return ['out_of_band', outOfBandLine(authorization)]
  if (state.kind === 'unknown')
    return replay(asked, 'an attempt got no clear answer: send the same bytes again, sign no other')
  if (round && round.state !== 'requested')
    return [
      'wait_for_new_round',
      `its round is ${roundText(round)}: it cannot execute, wait for a new round`,
    ]
  if (authorization.supersededBy) return revoke(asked)
  if (state.kind === 'signed') return ['submit', 'it was signed and never sent: send it']
  return replay(
    asked,
    state.kind === 'conflict'
      ? `the gateway answered 409 (${state.code}) and did not take it: follow what is active there, then send it again or revoke it`
      : 'it was not admitted so far: send the same bytes again, sign no other meanwhile',
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
  if (!proposal) return state
  return `${state} (${proposal.proposer} proposed ${outcomeOf(proposal.price) ?? `price ${proposal.price}`})`
}

function executedAdvice(asked: Asked): Advice {
  const { standing, authorization, position, record, now } = asked
  const round = standing?.round
  if (!position) {
    const isOwn = round?.proposal?.proposer === record.terms.proposer
    if (round)
      return [
        'wait',
        `the gateway says that it was executed, and the chain does not show it: its round is ${roundText(round)}${isOwn ? ', and not by this authorization' : ''}. Reconcile again in a minute, then ask the operator`,
      ]
    const why = now ? ': no node shows its round' : ' without a node: give --rpc-url <url>'
    return ['none', `it was executed; whether it was disputed since is not known${why}`]
  }
  const ended = standing?.proof ?? (authorization && executionOf(authorization))
  const hash = ended?.transaction_hash
  const { disputer, bondRaw, finalFeeRaw } = position.terms
  const executed = `it was executed${hash ? ` in transaction ${hash}` : ''}${disputer ? ` and disputed by ${disputer}` : ''}`
  const staked = amountText(bondRaw + finalFeeRaw, now?.round?.token)
  const quiet = quietText(position, staked)
  if (quiet) return ['none', executed + quiet]
  const stake = `${executed}. Its bond and final fee, ${staked}, stay with the oracle until the dispute is decided`
  if (!position.hasNewRound)
    return ['wait', `${stake}. No new round is open: UMA's voters decide in two to four days`]
  const state = now?.round?.paused ? 'paused' : (now?.current?.state ?? 'not known')
  return state === 'requested'
    ? [
        'sign_anew',
        `${stake}. A new round is open: find out why it was disputed before you sign for that one`,
        `proposer context ${asked.identifier}`,
      ]
    : ['wait_for_new_round', `${stake}. The new round is ${state}: nothing can be proposed in it`]
}

function quietText({ state, result, terms }: NonNullable<Asked['position']>, staked: string) {
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

function signAgain(why: string, { identifier, now }: Asked): Advice {
  const { current, round, isOneOfSeveral } = now ?? {}
  if (current && current.state !== 'requested')
    return ['wait_for_new_round', `${why}; the round is ${current.state}: wait for a new one`]
  if (current && round?.paused)
    return ['wait', `${why}; the question is paused: sign again once it is unpaused`]
  const requester = isOneOfSeveral && round ? ` --requester ${round.requester}` : ''
  return [
    'sign_anew',
    `${why}: it is safe to sign again if an answer is still wanted`,
    `proposer submit ${identifier} --outcome <answer>${requester}`,
  ]
}

function importSignature({ ownersSigned: owners, record, identifier }: Asked): Advice {
  if (owners.length === 0)
    return [
      'import_signature',
      'an external wallet has its typed data: attach its signature, or revoke its nonce before you sign anything else',
      `proposer sign ${identifier} --signature <hex>`,
    ]
  const count = owners.length === 1 ? 'one owner' : `${owners.length} owners`
  return [
    'import_signature',
    `${count} of the Safe signed it (${owners.join(', ')}): let the next one sign, on another machine with --parts <file>, or revoke its nonce before you sign anything else`,
    nextOwner(record as Offered),
  ]
}

function acceptedAdvice(asked: Asked, authorization: JournaledAuthorization): Advice {
  const { gateway, standing, record } = asked
  const isOver = standing?.roundIsOver === true
  const isOpen = !isOver && (standing?.round?.state ?? 'requested') === 'requested'
  if (authorization.supersededBy && isOpen) return revoke(asked)
  const { error, status } = { error: undefined, status: undefined, ...gateway }
  if (error?.code === 'candidate_mismatch')
    return ['contact_operator', `${error.detail}: sign nothing else meanwhile`]
  if (error?.meta.httpStatus === 404) {
    const lost = `the gateway no longer knows its candidate ${authorization.candidateId}: `
    // It may have lost its store: in the round the saved bytes are safe to send (§7 rule 2).
    return isOpen
      ? replay(asked, `${lost}send the same bytes again, do not sign another`)
      : ['contact_operator', lost + outOfBandLine(authorization)]
  }
  if (status && endOf(status) === 'executed')
    return [
      'wait',
      `the gateway reports ${status.status}, which may mean executed: sign nothing else before finalized state or its deadline settles it`,
      `proposer reconcile ${record.identifier} --rpc-url <url>`,
    ]
  if (status?.failure?.retryable && !isOver)
    return replay(
      asked,
      `its candidate failed (${status.failure.code}) and may still execute: fix the cause, then send the same bytes again`,
    )
  return [
    'poll',
    isOver
      ? 'its round has ended: poll its candidate before you sign for the new round'
      : 'the gateway has it: follow its candidate, do not sign another',
  ]
}

function replay({ authorization }: Asked, text: string): Advice {
  const origin = authorization?.attempts.at(-1)?.start.origin
  return ['replay', origin ? `${text} (it went to ${origin})` : text]
}

const revoke = ({ supersededBy }: Asked): Advice => [
  'revoke',
  `${supersededBy} replaced it, but it may execute until its deadline: revoke it if it must not win`,
]

export type AuthorizationStanding = NonNullable<
  ReturnType<Awaited<ReturnType<typeof readStanding>>['of']['get']>
>
export type RoundStanding = NonNullable<Awaited<ReturnType<typeof roundStanding>>>

interface Reading {
  readonly chain: Chain
  readonly trust: Trust
  readonly latest: BlockHeader
  readonly finalized: BlockHeader
  readonly claims: readonly OpenClaim[]
  readonly spentFinal: ReadonlySet<string>
}

/** Finalized state proves an end (contract §1), latest only that one is near (R14). */
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
      if (!round || !timestamp) return undefined
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
      // Two requesters may ask one text, in rounds of their own (R3).
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

const refOf = ({ chain_id: chainId }: Trust, round: Round) =>
  roundRef({ chainId }, round.questionId, round, keccakHex(round.ancillaryData))

async function proposalIn({ chain, trust, latest, finalized, claims }: Reading, round: Round) {
  const held = await locateProposal(chain, round, trust.signed_proposer, latest, undefined)
  if (!held) return undefined
  const { proposer, price, transactionHash } = held
  const receipt = transactionHash === null ? null : await chain.receipt(transactionHash)
  const wanted = { round: refOf(trust, round), proposer, price }
  const found = receipt && findProposed(receipt.logs, wanted)
  if (!found) {
    // A node may show the state before the log: "not ours" must not be concluded.
    if (claims.some((one) => one.owner === proposer && one.price === price))
      throw notShownYet(proposer)
    return { proposer, price, isFinal: false, bySignature: false }
  }
  return {
    proposer,
    price,
    isFinal: receipt.blockNumber <= finalized.number,
    bySignature: cameThroughSignedProposer(receipt.logs, trust.signed_proposer, found),
    mined: { ...pick(receipt, 'transactionHash', 'blockNumber'), eventIndex: found.log.logIndex },
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
  // Of several alike, nothing tells whose the proposal is.
  const alike = claims.filter(
    (other) =>
      spentFinal.has(other.id) &&
      other.owner === owner &&
      other.price === price &&
      other.timestamp === timestamp,
  )
  const isOwn = proposal?.proposer === owner && proposal.price === price && alike.length === 1
  if (!isOwn || !proposal.isFinal || !proposal.bySignature || !proposal.mined)
    return { outcome: 'nonce_used' }
  const { transactionHash, eventIndex } = proposal.mined
  return { outcome: 'executed', transaction_hash: transactionHash, event_index: eventIndex }
}

/** Where the node shows the claim's proposal in the round. */
function stakeOf(
  { owner, price }: OpenClaim,
  { state, terms, proposal }: RoundStanding,
  hasNewRound: boolean,
  nowSeconds: bigint,
) {
  const isOwn = proposal?.proposer === owner && proposal.price === price
  if (!isOwn || !terms || (proposal.mined && !proposal.bySignature)) return undefined
  const round = { ...terms, state, isDisputed: terms.disputer !== undefined }
  return { ...standingIn(round, hasNewRound, nowSeconds), terms, hasNewRound }
}
