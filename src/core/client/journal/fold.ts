/** Records of one run come in order, runs in any: neither clock nor merge order decides (R13). */
import type { Hex } from '#ports'
import { once } from '#protocol/once'
import {
  type Attempt,
  type JournaledAuthorization,
  type Offer,
  signatureInBody,
} from './authorizations.js'
import {
  type JournalRecord,
  type Offered,
  type Signed,
  spelledId,
  type TerminalRecord,
} from './records.js'

interface Draft {
  readonly id: string
  signed?: Signed
  signedAtMs: number
  offered?: Offered
  abandoned: boolean
  readonly parts: Map<string, Offer['parts'][number]>
  readonly attempts: Attempt[]
  readonly terminals: TerminalRecord[]
  terminalAtMs?: number
  candidateId?: string
  acknowledgedAtMs?: number
  receivedAt?: string
  supersededBy?: string
}

export type JournalView = ReturnType<typeof viewOf>
export type Holdings = Pick<JournalView, 'authorizations' | 'offers'>

interface RulesKey {
  readonly chainId: number
  readonly requester: string
  readonly questionId: string
}

const rulesKey = ({ chainId, requester, questionId }: RulesKey) =>
  `${chainId} ${requester} ${questionId}`

const newState = () => ({
  drafts: new Map<string, Draft>(),
  questions: new Map<string, Draft[]>(),
  /** By proposer: a key of both would be kept for every row of a batch (R17). */
  nonces: new Map<string, Set<string>>(),
  offered: [] as Draft[],
  rules: new Map<string, Set<Hex>>(),
  holders: new Map<string, string>(),
})
type FoldState = ReturnType<typeof newState>

export function newFold() {
  const state = newState()
  return { add: (record: JournalRecord) => add(state, record), view: () => viewOf(state) }
}

function held<Value>(map: Map<string, Value>, key: string, make: () => Value): Value {
  const value = map.get(key) ?? make()
  map.set(key, value)
  return value
}

function add(state: FoldState, { kind, data, timeMs }: JournalRecord) {
  const draftOf = (id: string) =>
    held<Draft>(state.drafts, id, () => ({
      ...{ id, attempts: [], terminals: [], parts: new Map(), abandoned: false },
      signedAtMs: Infinity,
    }))
  const reserve = ({ proposer, nonce }: { readonly proposer: string; readonly nonce: string }) =>
    held(state.nonces, proposer, () => new Set()).add(nonce)
  if (kind === 'signed' || kind === 'offered') {
    const { rules, requester, chainId, questionId } = data
    reserve(data.terms)
    if (rules !== undefined && requester !== undefined) {
      const key = rulesKey({ chainId, requester, questionId })
      held(state.rules, key, () => new Set()).add(rules)
    }
  }
  switch (kind) {
    case 'nonce.reserved':
      reserve(data)
      return
    case 'signed': {
      const draft = draftOf(data.id)
      // A run that sends another run's bytes copies the record.
      if (draft.signed === undefined) {
        draft.signed = data
        held(state.questions, data.questionId, () => []).push(draft)
      }
      draft.signedAtMs = Math.min(draft.signedAtMs, data.signedAtMs)
      if (data.supersedes !== undefined) draftOf(data.supersedes).supersededBy = data.id
      return
    }
    case 'offered': {
      const draft = draftOf(data.id)
      if (draft.offered === undefined) state.offered.push(draft)
      draft.offered = data
      return
    }
    case 'safe.part':
      held(draftOf(data.id).parts, data.owner, () => data)
      return
    case 'attempt.start':
      for (const id of data.ids) draftOf(id).attempts.push({ start: data, startedAtMs: timeMs })
      return
    case 'attempt.end':
      for (const end of data.results) {
        const { attempts } = draftOf(end.id)
        const at = attempts.findIndex(({ start }) => start.attempt === data.attempt)
        const sent = attempts[at]
        // Told once more where its round is over. A view may hold what was there.
        if (sent) attempts[at] = { ...sent, end, receipt: data.receipt ?? sent.receipt }
      }
      return
    case 'ack': {
      const draft = draftOf(data.id)
      held(state.holders, data.candidate_id.toLowerCase(), () => data.id)
      // A gateway that lost its store gives the same bytes another id (R2): the newest is followed.
      if (draft.acknowledgedAtMs !== undefined && timeMs < draft.acknowledgedAtMs) return
      draft.acknowledgedAtMs = timeMs
      draft.candidateId = spelledId(data)
      if (data.received_at !== '') draft.receivedAt = data.received_at
      return
    }
    case 'terminal': {
      const draft = draftOf(data.id)
      draft.terminals.push(data)
      draft.terminalAtMs = timeMs
      return
    }
    case 'abandoned':
      draftOf(data.id).abandoned = true
  }
}

/** As they were given: 2 before 10. */
const byNumber = (one: string, other: string) => one.length - other.length || (one < other ? -1 : 1)

const pendingOf = ({ offered }: FoldState) =>
  offered.filter(({ signed, abandoned }) => signed === undefined && !abandoned)

/** An offer replaces another only while it stands. */
const replacedByOffers = (state: FoldState) =>
  new Map(pendingOf(state).map(({ id, offered }) => [offered?.supersedes, id]))

function authorizationsOf(
  state: FoldState,
  drafts: Iterable<Draft>,
): readonly JournaledAuthorization[] {
  const replacing = replacedByOffers(state)
  const found: JournaledAuthorization[] = []
  for (const draft of drafts) {
    const { id, signed, signedAtMs, terminals, terminalAtMs, candidateId, receivedAt } = draft
    if (signed === undefined) continue
    found.push({
      ...{ id, signed, signedAtMs, terminals, terminalAtMs, candidateId, receivedAt },
      attempts: draft.attempts.toSorted((one, other) => one.startedAtMs - other.startedAtMs),
      terminal: terminals.at(-1),
      supersededBy: draft.supersededBy ?? replacing.get(id),
    })
  }
  return found.sort((a, b) => a.signedAtMs - b.signedAtMs || byNumber(a.id, b.id))
}

function offersOf(state: FoldState): readonly Offer[] {
  const replacing = replacedByOffers(state)
  return pendingOf(state)
    .flatMap(({ id, offered, parts, terminals, supersededBy = replacing.get(id) }) =>
      offered ? [{ id, offered, parts: [...parts.values()], terminals, supersededBy }] : [],
    )
    .sort((a, b) => a.offered.offeredAtMs - b.offered.offeredAtMs || byNumber(a.id, b.id))
}

function viewOf(state: FoldState) {
  const all = once(() => authorizationsOf(state, state.drafts.values()))
  const offers = once(() => offersOf(state))
  const by = (keyOf: (one: JournaledAuthorization) => string | undefined) => {
    const index = once(() => {
      const lists = new Map<string, JournaledAuthorization[]>()
      for (const one of all()) held(lists, keyOf(one) ?? '', () => []).push(one)
      return lists
    })
    return (key: string): readonly JournaledAuthorization[] => index().get(key) ?? []
  }
  const firstBy = (keyOf: (one: JournaledAuthorization) => string | undefined) => {
    const found = by((one) => keyOf(one)?.toLowerCase())
    return (key: string) => found(key.toLowerCase())[0]
  }
  return {
    get authorizations() {
      return all()
    },
    get offers() {
      return offers()
    },
    find: firstBy(({ id }) => id),
    byCandidate: firstBy(({ candidateId }) => candidateId),
    byIdentity: firstBy(({ signed }) => signed.identity),
    /** Journal id of the first that was acknowledged with it. */
    holderOf: (candidateId: string) => state.holders.get(candidateId.toLowerCase()),
    /** Without making all the others: a batch asks for each row. */
    byQuestion: (questionId: string) =>
      authorizationsOf(state, state.questions.get(questionId) ?? []),
    bySignature: by(({ signed }) => signatureInBody(signed.body)),
    byRound: by(({ signed }) => signed.round),
    byIdentifier: by(({ signed }) => signed.identifier),
    /** By some run (R6). */
    isReserved: (proposer: string, nonce: string) =>
      state.nonces.get(proposer)?.has(nonce) === true,
    acknowledgedRules: (question: RulesKey) => [...(state.rules.get(rulesKey(question)) ?? [])],
  }
}
