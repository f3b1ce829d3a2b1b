/**
 * What we signed and sent (robustness §2, Journal): a log a run (R12), and a short lock around
 * look-up, reservation, signing and journaling (R8).
 */
import pLimit from 'p-limit'
import type { Files, Hex, Ports, Random } from '#ports'
import { StorageError } from '#protocol/errors'
import { once } from '#protocol/once'
import type { KeptReceipt } from '#protocol/receipt'
import { hexOf, joinPath, namesIn, sizeOf } from '#storage/durable'
import { storageErrorOf } from '#storage/failures'
import { waitForLock } from '#storage/lock'
import { openLog } from '#storage/log'
import { openLogReader } from '#storage/reader'
import type { RecordLog } from '#storage/record-log'
import {
  type Attempt,
  isJournalKind,
  isUnsettled,
  type JournalEntry,
  type JournaledAuthorization,
  type JournalRecord,
  type Offer,
  type Offered,
  readRecord,
  type Signed,
  signatureInBody,
  spelledId,
  type TerminalRecord,
  withoutReceiptBytes,
} from './authorizations.js'

const journalUse = JSON.stringify({ role: 'journal', layout: 3 })

export type JournalPorts = Pick<Ports, 'clock' | 'random' | 'hash' | 'files' | 'liveness'>

export interface Journal {
  readonly token: string
  /** What every run has written by now; read-only (R24). */
  load(): Promise<JournalView>
  /** `work` runs while no other process of this home does (R8). */
  exclusive<T>(work: (view: JournalView) => Promise<T>, waitMs?: number): Promise<T>
  append(entries: readonly JournalEntry[]): Promise<void>
  holderOf(candidateId: string): string | undefined
  hasSigned(id: string): boolean
  isUnsettled(): boolean
  nextId(): string
  nextAttempt(): string
  nextNonce(): bigint
  close(): Promise<void>
}

export function openJournal(ports: JournalPorts, home: string): Journal {
  const folder = joinPath(home, 'journal')
  const token = hexOf(ports.random.bytes(6))
  const readOthers = createRunReader(ports, folder, token)
  const oneAtATime = pLimit(1)
  // The disk may show lines of ours that are not durable yet.
  const own: JournalRecord[] = []
  const signed = new Set<string>()
  const sent = new Set<string>()
  let others: readonly Run[] = []
  let fold = newFold()
  let [folded, ids, attempts] = [0, 0, 0]
  let opening: Promise<RecordLog> | undefined

  const view = () => {
    for (const record of own.slice(folded)) fold.add(record)
    folded = own.length
    return fold.view()
  }
  const load = () =>
    onDisk(async () => {
      const runs = await readOthers()
      if (runs.length !== others.length || runs.some((run, at) => run !== others[at])) {
        others = runs
        fold = newFold()
        folded = 0
        for (const record of runs.flat()) fold.add(record)
      }
      return view()
    })

  return {
    token,
    load,
    exclusive: (work, waitMs = 30_000) =>
      oneAtATime(async () => {
        const path = joinPath(folder, 'lock')
        const patience = { brief: true, waitMs, pauseMs: [50, 255] } as const
        const lock = await waitForLock(ports, path, journalUse, patience)
        try {
          return await work(await load())
        } finally {
          await onDisk(() => lock.release())
        }
      }),
    append: (entries) =>
      onDisk(async () => {
        opening ??= openLog(ports, joinPath(folder, token), journalLog, () => undefined)
        await (await opening).append(entries, (stored) => {
          for (const [index, { timeMs }] of stored.entries()) {
            const entry = entries[index]
            // Nothing follows from an intent, and a batch has many.
            if (!entry || entry.kind === 'intent') continue
            // Spelt out: of copies V8 makes a shape each (R17).
            const { kind, data } = withoutReceiptBytes(entry)
            own.push({ kind, data, timeMs } as JournalRecord)
            if (entry.kind === 'signed') signed.add(entry.data.id)
            if (entry.kind === 'attempt.start') for (const id of entry.data.ids) sent.add(id)
          }
        })
      }),
    holderOf: (candidateId) => view().holderOf(candidateId),
    hasSigned: (id) => signed.has(id),
    isUnsettled: () => view().authorizations.some((one) => sent.has(one.id) && isUnsettled(one)),
    nextId: () => `${token}-${++ids}`,
    nextAttempt: () => `${token}.${++attempts}`,
    nextNonce: createNonces(ports.random),
    async close() {
      await (await opening)?.close()
    },
  }
}

async function onDisk<T>(work: () => Promise<T>) {
  try {
    return await work()
  } catch (error) {
    const hint = 'check permissions and free space of the home folder (--home)'
    throw storageErrorOf('the journal cannot be read or written', error, hint)
  }
}

/** No other machine or restored backup draws the same word (R6). */
export function createNonces(random: Random) {
  let [word, bit] = [0n, 256n]
  return () => {
    if (bit === 256n) [word, bit] = [BigInt(`0x${hexOf(random.bytes(31))}`), 0n]
    return (word << 8n) | bit++
  }
}

export const keptReceipts = (ports: ReadPorts, home: string, attempts: readonly string[]) =>
  onDisk(async () => {
    const found = new Map<string, KeptReceipt>()
    // The name of an attempt is `<run>.<number>`.
    const runs = attempts.flatMap((attempt) => /^[0-9a-f]{12}(?=\.)/.exec(attempt) ?? [])
    for (const token of new Set(runs))
      for (const { kind, data } of await readRun(ports, joinPath(joinPath(home, 'journal'), token)))
        if (kind === 'attempt.end' && data.receipt && attempts.includes(data.attempt))
          found.set(data.attempt, data.receipt)
    return found
  })

const journalLog = { format: { name: 'journal', version: 1 }, knownKinds: isJournalKind } as const

type ReadPorts = Pick<JournalPorts, 'files' | 'hash'>

type Run = readonly JournalRecord[]

export const listRuns = async (files: Files, folder: string) =>
  (await namesIn(files, folder)).filter((name) => /^[0-9a-f]{12}$/.test(name)).sort()

export async function readRun(
  ports: ReadPorts,
  folder: string,
  hold = (record: JournalRecord) => record,
) {
  const reader = await openLogReader(ports, folder, journalLog)
  try {
    const records: JournalRecord[] = []
    await reader.replay(({ kind, data, timeMs, sequence }) => {
      const record = readRecord(kind, data, timeMs, `${folder}, record ${sequence}`)
      if (record) records.push(hold(record))
    })
    return records
  } finally {
    await reader.close()
  }
}

function createRunReader(ports: ReadPorts, folder: string, own: string) {
  const known = new Map<string, { stamp: string; records: Run }>()
  const atOnce = pLimit(16)
  async function read(name: string) {
    const path = joinPath(folder, name)
    // Before reading: what is written meanwhile shows in the next stamp.
    const stamp = await stampOf(ports.files, path)
    const seen = known.get(name)
    if (seen?.stamp === stamp) return seen.records
    const records = await readRun(ports, path, withoutReceiptBytes)
    known.set(name, { stamp, records })
    return records
  }
  return async () => {
    const others = (await listRuns(ports.files, folder)).filter((name) => name !== own)
    return atOnce.map(others, read)
  }
}

/** Logs only grow, and a rewritten one has another name. */
async function stampOf(files: Files, path: string) {
  const sizes: string[] = []
  for (const name of (await files.list(path)).sort())
    if (/^(log|snap)-\d+\.jsonl$/.test(name))
      sizes.push(`${name}:${await sizeOf(files, joinPath(path, name))}`)
  return sizes.join(' ')
}

/** Checksums, chains, shapes, saved hashes, unique nonces and identities; read-only (R11, R24). */
export function verifyJournal(ports: ReadPorts, home: string) {
  return onDisk(async () => {
    const folder = joinPath(home, 'journal')
    const tokens = await listRuns(ports.files, folder)
    const [ids, nonces] = [new Set<string>(), new Set<string>()]
    const known = new Map<string, string>()
    let [records, hashes] = [0, 0]
    const requireSame = (about: string, says: string, fault: (other: string) => string) => {
      const other = held(known, about, () => says)
      if (other !== says) throw broken(fault(other))
    }
    const requireHash = (body: string, sha256: string, what: string) => {
      if (ports.hash.sha256(body) !== sha256)
        throw broken(`the bytes saved as ${what} do not have the hash that was recorded with them`)
      hashes++
    }
    const check = ({ kind, data }: JournalRecord) => {
      if (kind === 'nonce.reserved') {
        const { id, proposer, nonce } = data
        nonces.add(`${proposer} ${nonce}`)
        const twice = `nonce ${nonce} of ${proposer} is reserved twice`
        requireSame(`${proposer} ${nonce}`, id, (other) => `${twice}, for ${other} and ${id}`)
      } else if (kind === 'signed') {
        const { id, chainId, questionId, identity } = data
        const { proposer, price, amount, nonce, deadline } = data.terms
        ids.add(id)
        nonces.add(`${proposer} ${nonce}`)
        requireHash(data.body, data.sha256, id)
        // Another encoding of a signature, imported under its own id, says the same.
        const terms = `${questionId} ${price} ${amount} ${deadline}`
        const two = `nonce ${nonce} of ${proposer} serves two authorizations, one of them ${id}`
        requireSame(`${chainId} ${proposer} ${nonce}`, terms, () => two)
        requireSame(id, identity, () => `two different payloads are saved as ${id}`)
      } else if (kind === 'attempt.start' && data.body !== undefined)
        requireHash(data.body, data.sha256, `attempt ${data.attempt}`)
    }
    for (const token of tokens)
      for (const record of await readRun(ports, joinPath(folder, token))) {
        check(record)
        records++
      }
    const counts = { authorizations: ids.size, records, hashes, nonces: nonces.size }
    return { runs: tokens.length, ...counts }
  })
}

const broken = (detail: string) =>
  new StorageError(
    'journal_broken',
    `the journal is broken: ${detail}`,
    'sign nothing more from this home until it is explained; report it with what `proposer journal export` prints',
  )

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

/** Runs come in any order: neither clock nor merge order decides (R13). */
function add(state: FoldState, { kind, data, timeMs }: JournalRecord) {
  const draftOf = (id: string) =>
    held<Draft>(state.drafts, id, () => ({
      ...{ id, attempts: [], terminals: [], parts: new Map(), abandoned: false },
      signedAtMs: Infinity,
    }))
  const reserve = ({ proposer, nonce }: Pick<Signed['terms'], 'proposer' | 'nonce'>) =>
    held(state.nonces, proposer, () => new Set()).add(nonce)
  if (kind === 'signed' || kind === 'offered') {
    const { rules, requester, chainId, questionId } = data
    reserve(data.terms)
    if (rules && requester)
      held(state.rules, rulesKey({ chainId, requester, questionId }), () => new Set()).add(rules)
  }
  switch (kind) {
    case 'nonce.reserved':
      reserve(data)
      return
    case 'signed': {
      const draft = draftOf(data.id)
      // A run that sends another run's bytes copies the record.
      if (!draft.signed) {
        draft.signed = data
        held(state.questions, data.questionId, () => []).push(draft)
      }
      draft.signedAtMs = Math.min(draft.signedAtMs, data.signedAtMs)
      if (data.supersedes) draftOf(data.supersedes).supersededBy = data.id
      return
    }
    case 'offered': {
      const draft = draftOf(data.id)
      if (!draft.offered) state.offered.push(draft)
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
      // A gateway that lost its store gives another id (R2): the newest counts.
      if (timeMs < (draft.acknowledgedAtMs ?? 0)) return
      draft.acknowledgedAtMs = timeMs
      draft.candidateId = spelledId(data)
      if (data.received_at !== '') draft.receivedAt = data.received_at
      return
    }
    case 'terminal':
      draftOf(data.id).terminals.push(data)
      draftOf(data.id).terminalAtMs = timeMs
      return
    case 'abandoned':
      draftOf(data.id).abandoned = true
  }
}

/** As they were given: 2 before 10. */
const byNumber = (one: string, other: string) => one.length - other.length || (one < other ? -1 : 1)

const pendingOf = ({ offered }: FoldState) =>
  offered.filter(({ signed, abandoned }) => !signed && !abandoned)

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
    if (!signed) continue
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
