/** Records of one run come in order, runs in any: neither clock nor merge order decides (R13). */
import type { Hex } from '#ports'
import {
  type JournaledAuthorization,
  type Offer,
  type ReceiptState,
  signatureInBody,
} from './authorizations.js'
import {
  type AttemptEnd,
  type AttemptStart,
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
  /** Of the owners of a Safe. */
  readonly parts: Map<string, Offer['parts'][number]>
  readonly attempts: { readonly start: AttemptStart; readonly startedAtMs: number }[]
  readonly terminals: TerminalRecord[]
  terminalAtMs?: number
  candidateId?: string
  acknowledgedAtMs?: number
  receivedAt?: string
  supersededBy?: string
}

export interface JournalView {
  readonly authorizations: readonly JournaledAuthorization[]
  readonly offers: readonly Offer[]
  find(id: string): JournaledAuthorization | undefined
  byCandidate(candidateId: string): JournaledAuthorization | undefined
  byIdentity(identity: string): JournaledAuthorization | undefined
  bySignature(signature: string): readonly JournaledAuthorization[]
  /** Journal id of the first that was acknowledged with this candidate id, in any spelling. */
  holderOf(candidateId: string): string | undefined
  /** Without making all the others: a batch asks for each row. */
  byQuestion(questionId: string): readonly JournaledAuthorization[]
  byRound(round: string): readonly JournaledAuthorization[]
  byIdentifier(identifier: string): readonly JournaledAuthorization[]
  /** Whether some run has reserved or signed the nonce (decimal) for this owner (R6). */
  isReserved(proposer: string, nonce: string): boolean
  /** Hashes of the clarifications that this home has acknowledged by signing, in no order. */
  acknowledgedRules(question: RulesKey): readonly Hex[]
}

export type Holdings = Pick<JournalView, 'authorizations' | 'offers'>

/** Two requesters may have a question of the same id, each with its own clarifications. */
interface RulesKey {
  readonly chainId: number
  readonly requester: string
  readonly questionId: string
}

const newState = () => ({
  drafts: new Map<string, Draft>(),
  questions: new Map<string, Draft[]>(),
  /** By proposer: a key of both would have to be made, and kept, for every row of a batch. */
  nonces: new Map<string, Set<string>>(),
  ends: new Map<string, AttemptEnd>(),
  receipts: new Map<string, ReceiptState>(),
  offered: [] as Draft[],
  rules: new Map<string, Set<Hex>>(),
  holders: new Map<string, string>(),
})
type FoldState = ReturnType<typeof newState>

export type Fold = ReturnType<typeof newFold>

export function newFold() {
  const state = newState()
  return { add: (record: JournalRecord) => add(state, record), view: () => viewOf(state) }
}

function add(state: FoldState, { kind, data, timeMs }: JournalRecord) {
  switch (kind) {
    case 'nonce.reserved':
      reserve(state, data)
      return
    case 'signed':
      addSigned(state, data)
      return
    case 'offered': {
      const draft = draftOf(state, data.id)
      reserve(state, data.terms)
      acknowledge(state, data)
      if (draft.offered === undefined) state.offered.push(draft)
      draft.offered = data
      return
    }
    case 'safe.part': {
      const { parts } = draftOf(state, data.id)
      if (!parts.has(data.owner)) parts.set(data.owner, data)
      return
    }
    case 'attempt.start':
      for (const id of data.ids)
        draftOf(state, id).attempts.push({ start: data, startedAtMs: timeMs })
      return
    case 'attempt.end':
      for (const end of data.results) state.ends.set(`${data.attempt} ${end.id}`, end)
      if (data.receipt) state.receipts.set(data.attempt, data.receipt)
      return
    case 'ack': {
      const draft = draftOf(state, data.id)
      const key = data.candidate_id.toLowerCase()
      if (!state.holders.has(key)) state.holders.set(key, data.id)
      // A gateway that lost its store gives the same bytes another id: the newest one is followed,
      // whichever run it came to.
      if (draft.acknowledgedAtMs !== undefined && timeMs < draft.acknowledgedAtMs) return
      draft.acknowledgedAtMs = timeMs
      draft.candidateId = spelledId(data)
      if (data.received_at !== '') draft.receivedAt = data.received_at
      return
    }
    case 'terminal': {
      const draft = draftOf(state, data.id)
      draft.terminals.push(data)
      draft.terminalAtMs = timeMs
      return
    }
    case 'abandoned':
      draftOf(state, data.id).abandoned = true
      return
    case 'intent':
      // Nothing was signed or given out under it, so nothing can execute.
      return
  }
}

function draftOf({ drafts }: FoldState, id: string): Draft {
  const draft = drafts.get(id) ?? {
    ...{ id, attempts: [], terminals: [], parts: new Map(), abandoned: false },
    signedAtMs: Infinity,
  }
  drafts.set(id, draft)
  return draft
}

const reserve = (
  { nonces }: FoldState,
  { proposer, nonce }: { readonly proposer: string; readonly nonce: string },
) => addTo(nonces, proposer, nonce)

const addTo = <Value>(sets: Map<string, Set<Value>>, key: string, value: Value) =>
  sets.set(key, (sets.get(key) ?? new Set()).add(value))

const rulesKey = ({ chainId, requester, questionId }: RulesKey) =>
  `${chainId} ${requester} ${questionId}`

function acknowledge(
  { rules: acknowledged }: FoldState,
  { rules, requester, chainId, questionId }: Signed | Offered,
) {
  if (rules !== undefined && requester !== undefined)
    addTo(acknowledged, rulesKey({ chainId, requester, questionId }), rules)
}

function addSigned(state: FoldState, data: Signed) {
  const draft = draftOf(state, data.id)
  reserve(state, data.terms)
  acknowledge(state, data)
  // A run that sends another run's bytes copies the record: the first copy is as good as any.
  if (draft.signed === undefined) {
    draft.signed = data
    push(state.questions, data.questionId, draft)
  }
  draft.signedAtMs = Math.min(draft.signedAtMs, data.signedAtMs)
  if (data.supersedes !== undefined) draftOf(state, data.supersedes).supersededBy = data.id
}

const push = <Value>(lists: Map<string, Value[]>, key: string, value: Value) => {
  const list = lists.get(key)
  if (list === undefined) lists.set(key, [value])
  else list.push(value)
}

/** Ids of one run by their numbers, as they were given: 2 comes before 10. */
const byNumber = ({ id: one }: { readonly id: string }, { id: other }: { readonly id: string }) =>
  one.length - other.length || (one < other ? -1 : 1)

const pendingOf = ({ offered }: Pick<FoldState, 'offered'>) =>
  offered.filter(({ signed, abandoned }) => signed === undefined && !abandoned)

/** An offer replaces another only while it stands: abandoned, it leaves what was there before. */
const replacedByOffers = (state: Pick<FoldState, 'offered'>) =>
  new Map(pendingOf(state).map(({ id, offered }) => [offered?.supersedes, id]))

function authorizationsOf(
  { ends, receipts, ...state }: FoldState,
  drafts: Iterable<Draft>,
): readonly JournaledAuthorization[] {
  const found: JournaledAuthorization[] = []
  const replacing = replacedByOffers(state)
  for (const draft of drafts) {
    const { id, signed, signedAtMs, terminals, terminalAtMs, candidateId, receivedAt } = draft
    if (signed === undefined) continue
    const attempts = draft.attempts
      .toSorted((one, other) => one.startedAtMs - other.startedAtMs)
      .map(({ start, startedAtMs }) => {
        const { attempt } = start
        const [end, receipt] = [ends.get(`${attempt} ${id}`), receipts.get(attempt)]
        return { start, startedAtMs, end, receipt }
      })
    found.push({
      ...{ id, signed, signedAtMs, attempts, terminals, terminalAtMs, candidateId, receivedAt },
      terminal: terminals.at(-1),
      supersededBy: draft.supersededBy ?? replacing.get(id),
    })
  }
  return found.sort((a, b) => a.signedAtMs - b.signedAtMs || byNumber(a, b))
}

function offersOf(state: FoldState): readonly Offer[] {
  const replacing = replacedByOffers(state)
  return pendingOf(state)
    .flatMap(({ id, offered, parts, terminals, supersededBy = replacing.get(id) }) =>
      offered === undefined
        ? []
        : [{ id, offered, parts: [...parts.values()], terminals, supersededBy }],
    )
    .sort((a, b) => a.offered.offeredAtMs - b.offered.offeredAtMs || byNumber(a, b))
}

function viewOf(state: FoldState): JournalView {
  let authorizations: readonly JournaledAuthorization[] | undefined
  let offers: readonly Offer[] | undefined
  const all = () => {
    authorizations ??= authorizationsOf(state, state.drafts.values())
    return authorizations
  }
  const by = (keyOf: (one: JournaledAuthorization) => string | undefined) => {
    let index: Map<string, JournaledAuthorization[]> | undefined
    return (key: string): readonly JournaledAuthorization[] => {
      if (index === undefined) {
        index = new Map()
        for (const one of all()) push(index, keyOf(one) ?? '', one)
      }
      return index.get(key) ?? []
    }
  }
  const byId = by(({ id }) => id)
  const byCandidate = by(({ candidateId }) => candidateId?.toLowerCase())
  const byIdentity = by(({ signed }) => signed.identity)
  return {
    get authorizations() {
      return all()
    },
    get offers() {
      offers ??= offersOf(state)
      return offers
    },
    find: (id) => byId(id)[0],
    byCandidate: (candidateId) => byCandidate(candidateId.toLowerCase())[0],
    byIdentity: (identity) => byIdentity(identity)[0],
    holderOf: (candidateId) => state.holders.get(candidateId.toLowerCase()),
    byQuestion(questionId) {
      const drafts = state.questions.get(questionId)
      return drafts === undefined ? [] : authorizationsOf(state, drafts)
    },
    bySignature: by(({ signed }) => signatureInBody(signed.body)),
    byRound: by(({ signed }) => signed.round),
    byIdentifier: by(({ signed }) => signed.identifier),
    isReserved: (proposer, nonce) => state.nonces.get(proposer)?.has(nonce) === true,
    acknowledgedRules: (question) => [...(state.rules.get(rulesKey(question)) ?? [])],
  }
}
