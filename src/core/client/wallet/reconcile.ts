/** Journal, gateway and chain side by side (contract §6; spec §3 rule 3, §7 rules 2 and 3). */
import { keccakHex, roundRef } from '#chain/round'
import type { Chain, Hex } from '#ports'
import { InterruptedError, ProposerError } from '#protocol/errors'
import { statusOnce } from '../follow/follow.js'
import { claimsIn } from '../funds/funds.js'
import type { GatewayClient } from '../gateway/gateway-client.js'
import {
  closes,
  isOpen,
  type JournaledAuthorization,
  journalRecordOf,
  type Offer,
  stateOf,
} from '../journal/authorizations.js'
import type { Holdings, JournalView } from '../journal/fold.js'
import type { Journal, JournalPorts } from '../journal/journal.js'
import {
  contractsOf,
  isNamedByText,
  pinnedQuestionId,
  type Trust,
  unpinnedSlug,
} from '../trust/trust.js'
import {
  type AuthorizationStanding,
  adviseOn,
  type GatewayWord,
  isExecuted,
  type QuestionStanding,
  type ReconciledEntry,
  readStanding,
} from './standing.js'

interface ReconcileParts {
  readonly ports: JournalPorts
  readonly journal: Journal
  readonly trust: Trust
  readonly gateway?: GatewayClient | undefined
  readonly chain?: Chain | undefined
  readonly dryRun?: boolean
  readonly signal?: AbortSignal
}

export interface Reconciled {
  readonly questionId: Hex
  readonly entries: readonly ReconciledEntry[]
  readonly sharing: readonly JournaledAuthorization[]
  readonly chain: QuestionStanding | undefined
  readonly notLookedAt: readonly string[]
}

/** More candidates are not asked for one by one: each costs an item of the budget (§8). */
const maxStatuses = 20

export async function reconcile(parts: ReconcileParts, identifier: string): Promise<Reconciled> {
  const { journal, trust, ports } = parts
  const before = await journal.load()
  const questionId = questionOf(trust, before, identifier)
  const isOfQuestion = (one: JournaledAuthorization | Offer) => {
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
    const { id, supersededBy } = one
    const own = standing?.of.get(id)
    const record = journalRecordOf(one)
    const state = 'signed' in one ? stateOf(one, nowMs) : ({ kind: 'offered' } as const)
    const position = isExecuted({ standing: own, state }) ? own?.stake : undefined
    const isMeant = state.kind !== 'closed' || position !== undefined
    // Version 3 of the oracle lets the reward fall (domain §10).
    const signedRaw = BigInt(record.reward ?? 0)
    const nowRaw = own?.round?.rewardRaw ?? signedRaw
    const entry = {
      ...{ id, record, state, supersededBy, standing: own, position },
      ownersSigned: 'parts' in one ? one.parts.map(({ owner }) => owner) : [],
      ...('signed' in one && { authorization: one }),
      gateway: words.get(id),
      settled: settled.get(id),
      rewardFell: isMeant && nowRaw < signedRaw ? { signedRaw, nowRaw } : undefined,
    }
    // By the round at its own requester.
    const chain = standing && own ? { ...standing, ...own.now } : standing
    return { ...entry, next: adviseOn(entry, { identifier, chain }) }
  })
  const round = standing?.round
  const shared =
    round && !isNamedByText(round.kind)
      ? view.byRound(
          roundRef(contractsOf(trust), questionId, round, keccakHex(round.ancillaryData)).key,
        )
      : []
  const sharing = shared.filter(
    (one) => one.signed.questionId !== questionId && !one.supersededBy && isOpen(one, nowMs),
  )
  return { questionId, entries, sharing, notLookedAt, chain: standing }
}

function questionOf(trust: Trust, view: JournalView, identifier: string) {
  const known = view.authorizations.findLast(
    ({ signed }) => signed.identifier === identifier && signed.chainId === trust.chain_id,
  )
  const questionId = pinnedQuestionId(trust, identifier) ?? known?.signed.questionId
  if (questionId === undefined) throw unpinnedSlug(identifier)
  return questionId
}

async function askGateway(
  { ports, journal, gateway, dryRun, signal }: ReconcileParts,
  authorizations: readonly JournaledAuthorization[],
  notLookedAt: string[],
) {
  const words = new Map<string, GatewayWord>()
  if (gateway === undefined) {
    notLookedAt.push('no gateway is configured: candidates were not checked (--gateway)')
    return words
  }
  const polling = { ports, gateway, journal: dryRun ? undefined : journal }
  const nowMs = ports.clock.nowMs()
  const asked = authorizations
    .filter((one) => one.candidateId !== undefined && stateOf(one, nowMs).kind !== 'closed')
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
  if (silent !== undefined) notLookedAt.push(`the gateway does not report it: ${silent.detail}`)
  return words
}

async function askChain(
  { chain, trust }: ReconcileParts,
  questionId: Hex,
  view: Holdings,
  notLookedAt: string[],
) {
  if (chain === undefined) {
    notLookedAt.push(
      'no node is configured: nonces, rounds and proposals were not checked (--rpc-url)',
    )
    return undefined
  }
  try {
    const standing = await readStanding(chain, trust, questionId, claimsIn(view))
    if (standing.round === undefined)
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
  // An expired one is still proven: that it can no longer execute is not what became of it.
  const isSettled = (id: string) => {
    const known = view.find(id)
    if (known === undefined)
      return !view.offers.some((offer) => offer.id === id && isOpen(offer, nowMs))
    const state = stateOf(known, nowMs)
    return known.terminals.some(closes) || (state.kind === 'closed' && state.reason === 'refused')
  }
  const proven = [...standings].flatMap(([id, { proof }]) => {
    if (proof === undefined || isSettled(id)) return []
    return [{ id, ...proof, code: proof.outcome === 'nonce_used' ? codes.get(id) : undefined }]
  })
  if (proven.length > 0 && !dryRun)
    await journal.append(proven.map((data) => ({ kind: 'terminal', data })))
  return new Map(proven.map(({ id, outcome }) => [id, outcome]))
}
