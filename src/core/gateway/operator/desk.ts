/**
 * Carries out an operator's acts on an open ledger: each is judged on what the earlier ones of its
 * kind left, changes what is not as wished, and is one durable commit with its reason, or nothing
 * (contract §6). The same desk stands behind the admin listener and behind a command that holds the
 * store's lock itself.
 */
import type { RegistryEntry } from '../../chain/questions.js'
import type { Address, Clock, Hex } from '../../ports.js'
import { type Candidate, isActive } from '../../protocol/candidate.js'
import { ConflictError, RejectedError } from '../../protocol/errors.js'
import type { Change, Ledger } from '../ledger/ledger.js'
import { parseRegistry } from '../registry.js'
import { failed, failureOf, progressChange, stageOf, submissionOf } from '../validation/progress.js'
import { type ActBody, type ActName, type ActResult, actBodies } from './acts.js'
import { mergedRegistry, sameEntry, slugTwice } from './registry.js'

/** What was written before is kept told for this long by a compaction (robustness §2). */
export const keptDays = 90

export interface DeskParts {
  readonly clock: Clock
  readonly ledger: Ledger
  /** questions.json as it was read. */
  readonly configured: readonly RegistryEntry[]
  /**
   * Whether a trusted requester knows the question, by the chain now. Rejects with what says that
   * it could not be found out.
   */
  isKnown(entry: RegistryEntry): Promise<boolean>
  /**
   * Told of durable changes of the registry: the entry as it is now, or the id of one that is gone.
   */
  onRegistry?(change: { readonly set: RegistryEntry } | { readonly removed: Hex }): void
  /** Folds the store; what its files take before and after. */
  compact(keepSinceMs: number): Promise<{ readonly before: number; readonly after: number }>
}

export interface Desk {
  /**
   * Rejects with RejectedError where the act is refused, ConflictError where it is with 409:
   * `act_invalid`, `question_unknown`, `slug_taken`, `question_in_use`, `candidate_not_found`,
   * `candidate_final`; with what the store or the chain rejects with; then nothing was changed, but
   * after `store_failed`, where that is not known (R10).
   */
  run(name: ActName, body: unknown): Promise<ActResult>
}

/**
 * Questions asked of the chain at once; where the chain has Multicall3 that is a handful of calls.
 */
const askedAtOnce = 64

/** Source: contract §5 (`operator_rejected`), §6, §7; robustness R3. */
export function createDesk(parts: DeskParts): Desk {
  const { ledger } = parts
  /**
   * Acts on the registry wait for the chain, and a fold for the disk: neither keeps anybody from
   * pausing.
   */
  const last = {
    registry: Promise.resolve() as Promise<unknown>,
    rest: Promise.resolve() as Promise<unknown>,
  }

  const allowlist = async (
    act: 'allow' | 'disallow',
    { addresses, reason }: ActBody<'allow'>,
  ): Promise<ActResult> => {
    const wished = [...new Set(addresses)] as Address[]
    const allowed = act === 'allow'
    const changed = wished.filter((address) => ledger.eligible(address) !== allowed)
    await ledger.commit(
      changed.map((address): Change => ({ kind: 'allowlist.set', address, allowed, reason })),
    )
    const unchanged = wished.filter((address) => !changed.includes(address))
    return { act, changed, unchanged, reason, notes: allowed ? [] : stayingNotes(ledger, wished) }
  }

  const admission = async (
    act: 'pause' | 'resume',
    { reason }: ActBody<'pause'>,
  ): Promise<ActResult> => {
    const enabled = act === 'resume'
    const { admissionSwitch } = ledger
    if (admissionSwitch !== enabled)
      await ledger.commit([{ kind: 'admission.set', enabled, reason }])
    const notes =
      enabled && !ledger.admissionEnabled
        ? ['admission.enabled is false in the configuration, so nothing is admitted yet']
        : []
    return {
      act,
      ...(admissionSwitch === enabled ? asItWas('admission') : nowIs('admission')),
      reason,
      notes,
    }
  }

  const registry = () => mergedRegistry(parts.configured, ledger.questions)

  const addQuestions = async ({
    entries,
    reason,
  }: ActBody<'questions/add'>): Promise<ActResult> => {
    const known = new Map(registry().map((entry) => [entry.questionId, entry]))
    const wished = parseEntries(entries).map((entry) =>
      completed(entry, known.get(entry.questionId)),
    )
    const changed = wished.filter((entry) => {
      const before = known.get(entry.questionId)
      return before === undefined || !sameEntry(before, entry)
    })
    const unchanged = wished
      .filter((entry) => !changed.includes(entry))
      .map(({ questionId }) => questionId)
    for (const entry of changed) known.set(entry.questionId, entry)
    const twice = slugTwice([...known.values()])
    if (twice) throw slugTaken(...twice)
    await refuseUnknown(parts, changed)
    await ledger.commit(changed.map((entry): Change => ({ kind: 'question.set', entry, reason })))
    for (const entry of changed) parts.onRegistry?.({ set: entry })
    return {
      act: 'questions/add',
      changed: changed.map(({ questionId }) => questionId),
      unchanged,
      reason,
      notes: [],
    }
  }

  const removeQuestion = async ({
    question_id,
    reason,
  }: ActBody<'questions/remove'>): Promise<ActResult> => {
    const questionId = question_id as Hex
    // Not by way of the merged registry: taking one of two away is what puts a slug right that both
    // have.
    const added = ledger.questions.get(questionId)
    const entry =
      added === undefined ? parts.configured.find((one) => one.questionId === questionId) : added
    const act = 'questions/remove' as const
    if (!entry) {
      const notes = [
        'the registry does not have it; a question of a trusted adapter is served by its id all the same',
      ]
      return { act, ...asItWas(questionId), reason, notes }
    }
    const active = ledger
      .active()
      .filter(({ round, progress }) => round.questionId === questionId && isActive(progress.status))
    // Nothing but the entry says what the request of such a question is: its candidates would end
    // for want of it.
    if (entry.request !== undefined && active.length > 0) {
      throw new ConflictError(
        'question_in_use',
        `question ${questionId} has ${counted(active.length)} that need its entry`,
        {
          httpStatus: 409,
          hint: `wait for their end, or reject them first: \`proposer operator candidates list --question ${questionId}\``,
        },
      )
    }
    await ledger.commit([{ kind: 'question.removed', questionId, reason }])
    parts.onRegistry?.({ removed: questionId })
    const stays =
      entry.request === undefined
        ? `${entry.slug === undefined ? '' : `the slug ${entry.slug} names it no more; `}by its id it is served as long as a trusted adapter knows it`
        : 'it is not served any more'
    return { act, ...nowIs(questionId), reason, notes: [stays] }
  }

  const reject = async ({
    candidate_id: id,
    reason,
  }: ActBody<'candidates/reject'>): Promise<ActResult> => {
    for (;;) {
      const candidate = await ledger.get(id)
      if (!candidate) throw unknownCandidate(id)
      refuseEnded(candidate)
      const failure = failureOf(
        rejectedStage(candidate),
        'operator_rejected',
        `Rejected by the operator: ${reason}`,
      )
      const slot = ledger.slots().find(({ candidateIds }) => candidateIds.includes(id))
      // It may have moved on while this was judged: then it is judged anew.
      if (
        !(await ledger.commit(
          [progressChange(candidate, failed(candidate.progress, failure))],
          [candidate],
        ))
      )
        continue
      return { act: 'candidates/reject', ...nowIs(id), reason, notes: slot ? [slotNote(slot)] : [] }
    }
  }

  const compact = async ({ reason }: ActBody<'store/compact'>): Promise<ActResult> => {
    const bytes = await parts.compact(parts.clock.nowMs() - keptDays * 86_400_000)
    return { act: 'store/compact', ...nowIs('store'), reason, notes: [], bytes }
  }

  const carryOut = (name: ActName, body: unknown): Promise<ActResult> => {
    switch (name) {
      case 'allow':
      case 'disallow':
        return allowlist(name, bodyOf(name, body))
      case 'pause':
      case 'resume':
        return admission(name, bodyOf(name, body))
      case 'questions/add':
        return addQuestions(bodyOf(name, body))
      case 'questions/remove':
        return removeQuestion(bodyOf(name, body))
      case 'candidates/reject':
        return reject(bodyOf(name, body))
      case 'store/compact':
        return compact(bodyOf(name, body))
    }
  }

  return {
    run(name, body) {
      const queue = name === 'questions/add' || name === 'questions/remove' ? 'registry' : 'rest'
      // A log folds one at a time and refuses the second.
      const result = (name === 'store/compact' ? Promise.resolve() : last[queue]).then(() =>
        carryOut(name, body),
      )
      // The next one goes on after a refusal, which its own caller hears of.
      if (name !== 'store/compact') last[queue] = result.catch(() => undefined)
      return result
    },
  }
}

/**
 * A body of the act's form. Throws RejectedError `act_invalid` (422) naming the part that is not;
 * values are never repeated.
 */
function bodyOf<Name extends ActName>(name: Name, body: unknown): ActBody<Name> {
  const parsed = actBodies[name].safeParse(body)
  if (parsed.success) return parsed.data as ActBody<Name>
  const where = parsed.error.issues[0]?.path.join('.') ?? ''
  const what =
    where === ''
      ? 'the body'
      : where.startsWith('addresses.')
        ? `${where}, which must be a lowercase address, not zero,`
        : where
  throw new RejectedError('act_invalid', `${what} is not what ${name} takes`, {
    httpStatus: 422,
    hint: 'run `proposer operator --help`; use the same version for the command and the gateway',
  })
}

function parseEntries(entries: readonly unknown[]): readonly RegistryEntry[] {
  try {
    return parseRegistry(entries, 'the import')
  } catch (error) {
    if (!(error instanceof Error && 'detail' in error)) throw error
    throw new RejectedError('questions_invalid', String(error.detail), {
      httpStatus: 422,
      cause: error,
      hint: 'each entry is {"question_id": "0x…", "slug"?, "requester"?, "request"?}; nothing was imported: correct it',
    })
  }
}

/** What an addition does not say stays as it was. */
const completed = (entry: RegistryEntry, before: RegistryEntry | undefined): RegistryEntry => ({
  questionId: entry.questionId,
  slug: entry.slug ?? before?.slug,
  requester: entry.requester ?? before?.requester,
  request: entry.request ?? before?.request,
})

/** An import is taken whole or not at all, so all are asked for before anything is written. */
async function refuseUnknown(parts: DeskParts, entries: readonly RegistryEntry[]): Promise<void> {
  const unknown: Hex[] = []
  for (let at = 0; at < entries.length; at += askedAtOnce) {
    const some = entries.slice(at, at + askedAtOnce)
    const known = await Promise.all(some.map((entry) => parts.isKnown(entry)))
    unknown.push(
      ...some.filter((_, index) => known[index] === false).map(({ questionId }) => questionId),
    )
  }
  const [first, ...others] = unknown
  if (first === undefined) return
  const more = others.length === 0 ? '' : ` and ${others.length} more of the ${entries.length}`
  throw new RejectedError(
    'question_unknown',
    `no trusted requester knows question ${first}${more}; nothing was changed`,
    {
      httpStatus: 404,
      hint: 'check the id, and that its requester stands in chain.requesters; one that was asked just now needs a block; kind "direct" needs its request too',
    },
  )
}

function slugTaken(slug: string, one: Hex, other: Hex): ConflictError {
  return new ConflictError(
    'slug_taken',
    `the slug ${slug} would name question ${one} and question ${other}; nothing was changed`,
    {
      httpStatus: 409,
      hint: `give another slug, or take the first away: \`proposer operator questions remove ${one}\``,
    },
  )
}

function unknownCandidate(id: string): RejectedError {
  return new RejectedError('candidate_not_found', `the store holds no candidate ${id}`, {
    httpStatus: 404,
    hint: 'list them with `proposer operator candidates list`',
  })
}

function refuseEnded(candidate: Candidate): void {
  const { id, progress } = candidate
  const refuse = (detail: string, hint: string) =>
    new ConflictError('candidate_final', detail, { httpStatus: 409, hint })
  if (progress.status === 'failed') {
    throw refuse(
      `candidate ${id} has failed already: ${progress.failure.code}`,
      `look with \`proposer operator candidates explain ${id}\``,
    )
  }
  const submission = submissionOf(progress)
  if (progress.status === 'executed' || submission?.status === 'confirmed') {
    throw refuse(
      `candidate ${id} is on the chain already, in transaction ${submission?.transactionHash ?? 'unknown'}`,
      'a proposal on the chain can only be disputed there',
    )
  }
}

/** Where a candidate stood, as its failure names it. */
function rejectedStage({ progress }: Candidate) {
  const status = submissionOf(progress)?.status
  return status === 'submitted' || status === 'reverted' ? 'confirmation' : stageOf(progress)
}

function slotNote({
  nonce,
  candidateIds,
  attempts,
}: {
  readonly nonce: number
  readonly candidateIds: readonly string[]
  readonly attempts: readonly { readonly hash: Hex }[]
}): string {
  const newest = attempts.at(-1)
  if (newest === undefined)
    return `nonce ${nonce} was reserved for it and nothing was signed: the executor gives it back`
  const others = candidateIds.length - 1
  const how =
    others === 0
      ? 'cancels it'
      : `replaces it by one without this proposal (it carries ${others} more)`
  return `its transaction ${newest.hash} is out under nonce ${nonce}: the executor ${how}; until that is mined the proposal may still be mined`
}

const counted = (count: number) => `${count} active ${count === 1 ? 'candidate' : 'candidates'}`

function stayingNotes(ledger: Ledger, addresses: readonly Address[]): readonly string[] {
  return addresses.flatMap((address) => {
    const staying = ledger
      .active()
      .filter(({ proposer, progress }) => proposer === address && isActive(progress.status))
    if (staying.length === 0) return []
    const example = staying[0]?.id ?? ''
    return [
      `${address} has ${counted(staying.length)}, which ${staying.length === 1 ? 'stays' : 'stay'} and may execute; to end one: proposer operator candidates reject ${example} --reason <text>`,
    ]
  })
}

const nowIs = (name: string) => ({ changed: [name], unchanged: [] })
const asItWas = (name: string) => ({ changed: [], unchanged: [name] })
