/**
 * `reconcile`: journal, gateway and chain side by side, and what is safe to do next (contract §6;
 * spec §3 rule 3, §7 rules 2 and 3).
 */
import type { Chain, Hex } from '../../ports.js'
import { type ProposerError, ProposerError as ProposerFault } from '../../protocol/errors.js'
import { outcomeOf } from '../../protocol/proposal.js'
import { endOf, type PolledStatus, statusOnce } from '../follow/follow.js'
import type { GatewayClient } from '../gateway/gateway-client.js'
import {
  type Authorization,
  type AuthorizationState,
  type ClosedReason,
  isOfferOpen,
  type Offer,
  stateOf,
} from '../journal/authorizations.js'
import type { Journal, JournalPorts, JournalView } from '../journal/journal.js'
import type { Terminal } from '../journal/records.js'
import { outOfBandLine } from '../journal/saved.js'
import { howToPin, pinnedQuestionId, type Trust, untrusted } from '../trust/trust.js'
import { adviseExecuted, holdsProposal, type Position, positionOf } from './position.js'
import {
  judgedOf,
  type QuestionStanding,
  type RoundStanding,
  type Standing,
  standingOf,
} from './standing.js'

export interface ReconcileParts {
  readonly ports: JournalPorts
  readonly journal: Journal
  readonly trust: Trust
  readonly gateway?: GatewayClient
  readonly chain?: Chain
  /** Journals nothing; the answers are the same. */
  readonly dryRun?: boolean
  readonly signal?: AbortSignal
}

export type NextAction =
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

export interface Next {
  readonly action: NextAction
  /** One sentence. */
  readonly text: string
  /** The command that does it. */
  readonly command?: string
}

/** What the gateway said of a candidate. */
export type GatewayWord = { readonly status: PolledStatus } | { readonly error: ProposerError }

export interface ReconciledEntry {
  readonly authorization?: Authorization
  /** In place of an authorization: typed data that waits for its signature. */
  readonly offer?: Offer
  readonly id: string
  readonly state: AuthorizationState | { readonly kind: 'offered' }
  /** Absent where it was not asked for: no gateway, no id, or settled already. */
  readonly gateway?: GatewayWord
  readonly standing?: Standing
  /** What was journaled just now because finalized state proves it. */
  readonly settled?: ClosedReason
  /** Only of an executed one, where a node shows its proposal in its round. */
  readonly position?: Position
  readonly next: Next
}

export interface Reconciled {
  readonly questionId: Hex
  readonly entries: readonly ReconciledEntry[]
  readonly chain?: QuestionStanding
  /** One sentence for each side that could not be looked at. */
  readonly notLookedAt: readonly string[]
}

/**
 * More candidates of one question than this are not asked for one by one: each costs an item of the
 * budget (§8).
 */
const maxStatuses = 20

/**
 * Looks at one question from every side that is configured, journals what finalized chain state or
 * the gateway's terminal status settles, and advises on each authorization. UsageError
 * `untrusted_slug` for a slug that neither pins nor journal know, and `untrusted_chain_id`;
 * StorageError 74. A side that does not answer is told in `notLookedAt`.
 */
export async function reconcile(parts: ReconcileParts, identifier: string): Promise<Reconciled> {
  const { journal, trust, gateway, chain } = parts
  const before = await journal.load()
  const questionId = questionOf(trust, before, identifier)
  const notLookedAt: string[] = []
  const words =
    gateway === undefined
      ? new Map<string, GatewayWord>()
      : await askGateway(parts, gateway, ofQuestion(before, trust, questionId))
  if (gateway === undefined)
    notLookedAt.push(
      'no gateway is configured: what became of candidates was not asked (--gateway)',
    )
  const silent = [...words.values()].find(
    (word) => 'error' in word && word.error.meta.retryable === true,
  )
  if (silent !== undefined && 'error' in silent)
    notLookedAt.push(`the gateway does not tell: ${silent.error.detail}`)
  let standing: QuestionStanding | undefined
  if (chain === undefined)
    notLookedAt.push(
      'no node is configured: nonces, rounds and proposals were not looked at (--rpc-url)',
    )
  else {
    try {
      standing = await standingOf(
        chain,
        trust,
        questionId,
        judgedOf(ofQuestion(await journal.load(), trust, questionId)),
      )
      if (standing.round === undefined)
        notLookedAt.push(
          "the chain does not show the question's request: only its nonces were looked at",
        )
    } catch (error) {
      if (!(error instanceof ProposerFault) || error.meta.retryable !== true) throw error
      notLookedAt.push(`the chain was not looked at: ${error.detail}`)
    }
  }
  const settled = await settleByChain(parts, standing?.of ?? new Map())
  const view = ofQuestion(await journal.load(), trust, questionId)
  const nowMs = parts.ports.clock.nowMs()
  const entries = [
    ...view.authorizations.map((one) =>
      entryOf({ authorization: one, id: one.id, state: stateOf(one, nowMs) }),
    ),
    ...view.offers
      .filter((one) => isOfferOpen(one, nowMs))
      .map((one) => entryOf({ offer: one, id: one.id, state: { kind: 'offered' } })),
  ]
  return {
    questionId,
    entries,
    notLookedAt,
    ...(standing === undefined ? {} : { chain: standing }),
  }

  function entryOf(
    base: Pick<ReconciledEntry, 'authorization' | 'offer' | 'id' | 'state'>,
  ): ReconciledEntry {
    const [word, stands, proven] = [
      words.get(base.id),
      standing?.of.get(base.id),
      settled.get(base.id),
    ]
    const known = {
      ...base,
      ...(word === undefined ? {} : { gateway: word }),
      ...(stands === undefined ? {} : { standing: stands }),
      ...(proven === undefined ? {} : { settled: proven }),
    }
    // What is advised for it follows from the round at its own requester.
    const chain = standing && stands ? { ...standing, ...stands.now } : standing
    if (!isExecuted(known)) return { ...known, next: advise(known, chain, identifier) }
    const terms = base.authorization?.signed.terms
    if (stands?.round !== undefined && terms !== undefined && !holdsProposal(stands.round, terms))
      return { ...known, next: adviseUnproven(stands.round, terms.proposer, identifier) }
    const position =
      standing && positionOf(stands?.round, stands?.roundIsOver === true, standing.latest.timestamp)
    const next = adviseEnd(known, position, chain, identifier)
    return { ...known, ...(position === undefined ? {} : { position }), next }
  }
}

function questionOf(trust: Trust, view: JournalView, identifier: string): Hex {
  const known = view.authorizations.findLast(
    ({ signed }) => signed.identifier === identifier && signed.chainId === trust.chain_id,
  )
  const questionId =
    pinnedQuestionId(trust, identifier) ?? (known?.signed.questionId as Hex | undefined)
  if (questionId !== undefined) return questionId
  throw untrusted(
    'slug',
    `the slug ${identifier} is neither pinned in the trust file nor known to the journal`,
    howToPin(identifier),
  )
}

function ofQuestion(
  view: JournalView,
  trust: Trust,
  questionId: Hex,
): Pick<JournalView, 'authorizations' | 'offers'> {
  return {
    authorizations: view.authorizations.filter(
      ({ signed }) => signed.questionId === questionId && signed.chainId === trust.chain_id,
    ),
    offers: view.offers.filter(
      ({ offered }) => offered.questionId === questionId && offered.chainId === trust.chain_id,
    ),
  }
}

/**
 * Statuses by saved ids of what is not closed, newest first; a terminal one is journaled on the way
 * (unless it is a dry run).
 */
async function askGateway(
  parts: ReconcileParts,
  gateway: GatewayClient,
  { authorizations }: Pick<JournalView, 'authorizations'>,
): Promise<Map<string, GatewayWord>> {
  const nowMs = parts.ports.clock.nowMs()
  const words = new Map<string, GatewayWord>()
  const asked = authorizations
    .filter((one) => one.candidateId !== undefined && stateOf(one, nowMs).kind !== 'closed')
    .slice(-maxStatuses)
  for (const { id, candidateId = '', signed } of asked.reverse()) {
    const target = { candidateId, identifier: signed.questionId }
    const polling = {
      ports: parts.ports,
      gateway,
      ...(parts.dryRun === true ? {} : { journal: parts.journal }),
    }
    try {
      words.set(id, {
        status: await statusOnce(
          polling,
          target,
          parts.signal === undefined ? {} : { signal: parts.signal },
        ),
      })
    } catch (error) {
      if (!(error instanceof ProposerFault) || error.meta.exitCode === 74) throw error
      words.set(id, { error })
    }
  }
  return words
}

/**
 * Journals the end of every open authorization or offer that finalized state proves (contract §1).
 * `code` replaces the plain reason of those that it names. What was settled, by id. StorageError
 * 74.
 */
export async function settleByChain(
  parts: Pick<ReconcileParts, 'ports' | 'journal' | 'dryRun'>,
  standings: ReadonlyMap<string, Standing>,
  codes: ReadonlyMap<string, string> = new Map(),
): Promise<ReadonlyMap<string, ClosedReason>> {
  const view = await parts.journal.load()
  const nowMs = parts.ports.clock.nowMs()
  const isStillOpen = (id: string) => {
    const known = view.find(id)
    if (known !== undefined)
      return (
        !known.terminals.some(
          ({ outcome, retryable }) => outcome !== 'failed' || retryable === false,
        ) && !isRefused(known, nowMs)
      )
    return view.offers.some((offer) => offer.id === id && isOfferOpen(offer, nowMs))
  }
  const proven: Terminal[] = []
  for (const [id, { proof }] of standings) {
    if (proof === undefined || !isStillOpen(id)) continue
    const code = proof.outcome === 'nonce_used' ? codes.get(id) : undefined
    proven.push({ id, ...proof, ...(code === undefined ? {} : { code }) })
  }
  if (proven.length > 0 && parts.dryRun !== true)
    await parts.journal.append(proven.map((data) => ({ kind: 'terminal', data })))
  return new Map(proven.map(({ id, outcome }) => [id, outcome]))
}

const isRefused = (authorization: Authorization, nowMs: number) => {
  const state = stateOf(authorization, nowMs)
  return state.kind === 'closed' && state.reason === 'refused'
}

type Known = Omit<ReconciledEntry, 'next'>

/** By finalized state, or by the gateway's last word where the chain does not say otherwise. */
const isExecuted = ({ standing, state }: Known): boolean =>
  standing?.proof === undefined
    ? state.kind === 'closed' && state.reason === 'executed'
    : standing.proof.outcome === 'executed'

/**
 * The gateway told an execution that the round does not hold: its node is ahead of ours, or it is
 * wrong.
 */
function adviseUnproven(own: RoundStanding, owner: string, identifier: string): Next {
  const isOwn = own.proposal?.proposer === owner
  return {
    action: 'wait',
    text: `the gateway says that it was executed, and the chain does not show it: its round is ${roundText(own)}${isOwn ? ', and not by this authorization' : ''}. Reconcile again in a minute, then ask the operator`,
    command: `proposer reconcile ${identifier}`,
  }
}

/** `proposed (0x… proposed p2)`. */
function roundText({ state, proposal }: RoundStanding): string {
  if (proposal === undefined) return state
  return `${state} (${proposal.proposer} proposed ${outcomeOf(proposal.price) ?? `price ${proposal.price}`})`
}

/** What is left to do about an executed one. Only a node tells whether it was disputed. */
function adviseEnd(
  { standing, authorization }: Known,
  position: Position | undefined,
  chain: QuestionStanding | undefined,
  identifier: string,
): Next {
  const ended = authorization?.terminals.findLast(({ outcome }) => outcome === 'executed')
  const transactionHash = (standing?.proof ?? ended)?.transaction_hash ?? undefined
  if (position === undefined) {
    const why =
      chain === undefined
        ? 'is not known without a node: give --rpc-url <url>'
        : 'is not known: the chain does not show its round'
    return { action: 'none', text: `it was executed; whether it was disputed since ${why}` }
  }
  return adviseExecuted(position, {
    ...{ identifier, transactionHash, token: chain?.round?.token },
    ...{ current: chain?.current, isPaused: chain?.round?.paused === true },
  })
}

/** What is safe to do next, in one sentence. */
function advise(entry: Known, chain: QuestionStanding | undefined, identifier: string): Next {
  const { id, standing, state, gateway, authorization } = entry
  const anew = (why: string): Next => againFor(chain, identifier, why)
  if (standing?.proof?.outcome === 'nonce_used')
    return anew('its nonce is used or cancelled in finalized state')
  if (standing?.proof?.outcome === 'expired')
    return anew('its deadline has passed in finalized state')
  if (standing?.nonceSpent === true) {
    return {
      action: 'wait',
      text: 'its nonce is spent in a block that is not final yet: reconcile again in a few seconds',
      command: `proposer reconcile ${identifier}`,
    }
  }
  switch (state.kind) {
    case 'closed':
      return anew(closedBecause[state.reason])
    case 'offered':
      if (standing?.roundIsOver === true)
        return anew('its round has ended, so what the wallet signs can no longer execute')
      return {
        action: 'import_signature',
        text: 'a wallet outside has its typed data: bring back its signature, or revoke its nonce before you sign anything else',
        command: `proposer sign ${identifier} --signature <hex>`,
      }
    case 'accepted':
      return adviseAccepted(id, state.candidateId, gateway, standing, authorization)
    case 'unknown':
      if (standing?.roundIsOver === true && authorization !== undefined)
        return { action: 'out_of_band', text: outOfBandLine(authorization) }
      return replayNext(
        id,
        'an attempt brought no clear answer: send the same bytes again, never sign because of it',
        authorization,
      )
    case 'signed':
    case 'deferred':
    case 'conflict':
      return adviseUnsent(entry, state, identifier, anew)
  }
}

const closedBecause: Readonly<Record<ClosedReason, string>> = {
  executed: 'it was executed',
  refused: 'the gateway has refused it',
  failed: 'its candidate has failed for good',
  nonce_used: 'its nonce is used or cancelled',
  expired: 'its deadline has passed',
}

/**
 * Nothing of this authorization can execute any more: whether a new one makes sense depends on the
 * round.
 */
function againFor(chain: QuestionStanding | undefined, identifier: string, why: string): Next {
  const current = chain?.current
  if (current !== undefined && current.state !== 'requested') {
    return {
      action: 'wait_for_new_round',
      text: `${why}; the current round is ${current.state}: wait for a new one`,
    }
  }
  if (current !== undefined && chain?.round?.paused === true) {
    return { action: 'wait', text: `${why}; the question is paused: sign anew once it is unpaused` }
  }
  const meant =
    chain?.isOneOfSeveral === true && chain.round !== undefined
      ? ` --requester ${chain.round.requester}`
      : ''
  return {
    action: 'sign_anew',
    text: `${why}: it is safe to sign anew if an answer is still wanted`,
    command: `proposer submit ${identifier} --outcome <p1|p2|p3>${meant}`,
  }
}

function adviseAccepted(
  id: string,
  candidateId: string,
  gateway: GatewayWord | undefined,
  standing: Standing | undefined,
  authorization: Authorization | undefined,
): Next {
  const poll = `proposer poll ${candidateId}`
  if (
    authorization?.supersededBy !== undefined &&
    standing?.roundIsOver !== true &&
    isStillRequested(standing)
  ) {
    return revokeNext(
      id,
      `${authorization.supersededBy} has replaced it, but it may still execute until its deadline`,
    )
  }
  if (gateway !== undefined && 'error' in gateway && gateway.error.code === 'candidate_not_found') {
    const line = authorization === undefined ? '' : `: ${outOfBandLine(authorization)}`
    return {
      action: 'contact_operator',
      text: `the gateway no longer knows its candidate ${candidateId}${line}`,
    }
  }
  const told = gateway !== undefined && 'status' in gateway ? gateway.status : undefined
  if (told !== undefined && endOf(told) === 'executed') {
    return {
      action: 'wait',
      text: `what the gateway says of it (${told.status}) reads as executed: finalized state or its deadline settles it, sign nothing else before`,
      command: `proposer reconcile ${authorization?.signed.identifier} --rpc-url <url>`,
    }
  }
  const failure = told?.failure
  if (failure?.retryable === true && standing?.roundIsOver !== true) {
    return replayNext(
      id,
      `its candidate failed (${failure.code}) and may still execute: put right what is named, then send the same bytes again`,
      authorization,
    )
  }
  if (standing?.roundIsOver === true) {
    return {
      action: 'poll',
      text: 'its round has ended: poll its candidate, which settles it, before you sign for the new round',
      command: poll,
    }
  }
  return {
    action: 'poll',
    text: 'the gateway has it: follow its candidate, do not sign another',
    command: poll,
  }
}

/** What was never admitted, as far as the answers say. */
function adviseUnsent(
  { id, authorization, standing }: Known,
  state: Extract<AuthorizationState, { kind: 'signed' | 'deferred' | 'conflict' }>,
  identifier: string,
  anew: (why: string) => Next,
): Next {
  if (standing?.roundIsOver === true) return anew('its round has ended and nobody had it')
  if (standing?.round !== undefined && !isStillRequested(standing))
    return {
      action: 'wait_for_new_round',
      text: `its round is ${roundText(standing.round)}: it cannot execute, wait for a new round`,
    }
  if (authorization?.supersededBy !== undefined) {
    return revokeNext(
      id,
      `${authorization.supersededBy} has replaced it, but its signature stays good until its deadline`,
    )
  }
  if (state.kind === 'signed') {
    return {
      action: 'submit',
      text: 'it was signed and never sent: send it',
      command: `proposer replay ${id}`,
    }
  }
  if (state.kind === 'conflict') {
    return replayNext(
      id,
      `the gateway answered 409 (${state.code}) and did not take it: follow what is active there, then send it again or revoke it`,
      authorization,
    )
  }
  return replayNext(
    id,
    `it was not admitted so far: send the same bytes again; do not sign ${identifier} anew meanwhile`,
    authorization,
  )
}

const isStillRequested = (standing: Standing | undefined): boolean =>
  standing?.round === undefined || standing.round.state === 'requested'

function replayNext(id: string, text: string, authorization: Authorization | undefined): Next {
  const origin = authorization?.attempts.at(-1)?.start.origin
  return {
    action: 'replay',
    text: origin === undefined ? text : `${text} (it went to ${origin})`,
    command: `proposer replay ${id}`,
  }
}

const revokeNext = (id: string, text: string): Next => ({
  action: 'revoke',
  text: `${text}: revoke it if it must not win`,
  command: `proposer revoke ${id}`,
})
