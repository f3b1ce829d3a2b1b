/** Each act is one durable commit, or nothing (contract §6). */
import pLimit from 'p-limit'
import type { Implementation, Implementations } from '#chain/implementations'
import type { RegistryEntry } from '#chain/questions'
import type { Clock, Hex } from '#ports'
import { type Candidate, instant, isActive } from '#protocol/candidate'
import { ConflictError, RejectedError } from '#protocol/errors'
import { pick } from '#protocol/pick'
import type { Address } from '#protocol/schema'
import type { Ledger, Slot } from '../ledger/ledger.js'
import { failed, failureOf, progressChange, stageOf, submissionOf } from '../validation/progress.js'
import { type ActBody, type ActName, type ActResult, actBodies } from './acts.js'
import { mergedRegistry, parseRegistry, sameEntry, slugTwice } from './registry.js'

export const keptDays = 90

export interface OperatorParts {
  readonly clock: Clock
  readonly ledger: Ledger
  readonly configured: readonly RegistryEntry[]
  isKnown(entry: RegistryEntry): Promise<boolean>
  code(): Promise<{ readonly pins: Implementations; readonly now: Implementations }>
  compact(keepSinceMs: number): Promise<{ readonly before: number; readonly after: number }>
}

export type OperatorService = ReturnType<typeof createOperatorService>

const askedAtOnce = 64

export function createOperatorService(parts: OperatorParts) {
  // Acts on the registry wait for the chain: that keeps nobody from pausing.
  const registryActs = pLimit(1)
  const otherActs = pLimit(1)
  return {
    run(name: ActName, body: unknown): Promise<ActResult> {
      const carryOut = async () => {
        const asked = bodyOf(name, body)
        const done = await acts[name](parts, asked as never, name as never)
        const { changed, unchanged, ...more } = done
        return { act: name, changed, unchanged, ...pick(asked, 'reason', 'by'), ...more }
      }
      if (name === 'store/compact') return carryOut()
      return (name.startsWith('questions/') ? registryActs : otherActs)(carryOut)
    },
  }
}

const acts: {
  readonly [Name in ActName]: (
    parts: OperatorParts,
    body: ActBody<Name>,
    name: Name,
  ) => Promise<Omit<ActResult, 'act' | 'reason' | 'by'>>
} = {
  allow: setAllowlist,
  disallow: setAllowlist,
  pause: setAdmission,
  resume: setAdmission,
  'questions/add': addQuestions,
  'questions/remove': removeQuestion,
  'candidates/reject': reject,
  async 'store/compact'({ clock, compact }) {
    const bytes = await compact(clock.nowMs() - keptDays * 86_400_000)
    return { changed: ['store'], unchanged: [], notes: [], bytes }
  },
  'trust/repin': repin,
  'receipts/rotate': rotateReceiptKey,
}

function bodyOf<Name extends ActName>(name: Name, body: unknown) {
  const parsed = actBodies[name].safeParse(body)
  if (parsed.success) return parsed.data as ActBody<Name>
  const where = parsed.error.issues[0]?.path.join('.') ?? ''
  const isAddress = where.startsWith('addresses.')
  const what = isAddress ? `${where}, which must be a lowercase address, not zero,` : where
  throw new RejectedError('act_invalid', `${what || 'the body'} is not valid for ${name}`, {
    httpStatus: 422,
    hint: 'run `proposer operator --help`; use the same version of the command and the gateway',
  })
}

async function setAllowlist(
  { ledger }: OperatorParts,
  { addresses, ...body }: ActBody<'allow'>,
  act: 'allow' | 'disallow',
) {
  const wallets = [...new Set(addresses)]
  const allowed = act === 'allow'
  const isAsAsked = (address: Address) =>
    ledger.eligible(address) === allowed && !(allowed && ledger.failures.has(address))
  const unchanged = wallets.filter(isAsAsked)
  const changed = wallets.filter((address) => !unchanged.includes(address))
  await ledger.commit(
    changed.map((address) => ({ kind: 'allowlist.set', address, allowed, ...body })),
  )
  const staying = (address: Address) => activeOf(ledger, ({ proposer }) => proposer === address)
  const notes = (allowed ? [] : wallets).flatMap((address) => {
    const { length, 0: example } = staying(address)
    if (example === undefined) return []
    return `${address} has ${counted(length)}, which ${length === 1 ? 'stays' : 'stay'} and may execute; to end one: proposer operator candidates reject ${example.id} --reason <text>`
  })
  return { changed, unchanged, notes }
}

const activeOf = (ledger: Ledger, isMeant: (candidate: Candidate) => boolean) =>
  ledger.active().filter((one) => isActive(one.progress.status) && isMeant(one))

const counted = (count: number) => `${count} active ${count === 1 ? 'candidate' : 'candidates'}`

async function setAdmission(
  { ledger }: OperatorParts,
  body: ActBody<'pause'>,
  act: 'pause' | 'resume',
) {
  const enabled = act === 'resume'
  const off = 'admission.enabled is false in the configuration, so nothing is admitted yet'
  const [changed, unchanged] =
    ledger.admissionSwitch === enabled ? [[], ['admission']] : [['admission'], []]
  if (changed.length > 0) await ledger.commit([{ kind: 'admission.set', enabled, ...body }])
  return { changed, unchanged, notes: enabled && !ledger.admissionEnabled ? [off] : [] }
}

async function addQuestions(parts: OperatorParts, { entries, ...body }: ActBody<'questions/add'>) {
  const { ledger } = parts
  const registry = mergedRegistry(parts.configured, ledger.questions)
  const known = new Map(registry.map((entry) => [entry.questionId, entry]))
  const asked = parseEntries(entries).map((entry) => completed(entry, known.get(entry.questionId)))
  const changed = asked.filter((entry) => {
    const before = known.get(entry.questionId)
    return before === undefined || !sameEntry(before, entry)
  })
  for (const entry of changed) known.set(entry.questionId, entry)
  const twice = slugTwice([...known.values()])
  if (twice) throw slugTaken(...twice)
  await refuseUnknown(parts, changed)
  await ledger.commit(changed.map((entry) => ({ kind: 'question.set', entry, ...body })))
  const idsOf = (some: readonly RegistryEntry[]) => some.map(({ questionId }) => questionId)
  const unchanged = idsOf(asked.filter((entry) => !changed.includes(entry)))
  return { changed: idsOf(changed), unchanged, notes: [] }
}

function parseEntries(entries: readonly unknown[]) {
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

const completed = (entry: RegistryEntry, before: RegistryEntry | undefined) => ({
  questionId: entry.questionId,
  slug: entry.slug ?? before?.slug,
  requester: entry.requester ?? before?.requester,
  request: entry.request ?? before?.request,
})

async function refuseUnknown(parts: OperatorParts, entries: readonly RegistryEntry[]) {
  const known = await pLimit(askedAtOnce).map(entries, (entry) => parts.isKnown(entry))
  const [first, ...others] = entries.filter((_, index) => known[index] === false)
  if (first === undefined) return
  const more = others.length === 0 ? '' : ` and ${others.length} more of the ${entries.length}`
  throw new RejectedError(
    'question_unknown',
    `no trusted requester knows question ${first.questionId}${more}; nothing was changed`,
    {
      httpStatus: 404,
      hint: 'check the id, and that its requester is listed in chain.requesters; a question asked just now needs one more block; kind "direct" also requires its request',
    },
  )
}

function slugTaken(slug: string, one: Hex, other: Hex) {
  return new ConflictError(
    'slug_taken',
    `the slug ${slug} would refer to both question ${one} and question ${other}; nothing was changed`,
    {
      httpStatus: 409,
      hint: `give another slug, or remove the first: \`proposer operator questions remove ${one}\``,
    },
  )
}

async function removeQuestion(
  { ledger, configured }: OperatorParts,
  { question_id: questionId, ...body }: ActBody<'questions/remove'>,
) {
  const added = ledger.questions.get(questionId)
  const entry =
    added === undefined ? configured.find((one) => one.questionId === questionId) : added
  if (!entry) {
    const note = 'it is not in the registry; questions of trusted adapters are served by id anyway'
    return { changed: [], unchanged: [questionId], notes: [note] }
  }
  const active = activeOf(ledger, ({ round }) => round.questionId === questionId)
  if (entry.request !== undefined && active.length > 0)
    throw new ConflictError(
      'question_in_use',
      `question ${questionId} has ${counted(active.length)} that need its entry`,
      {
        httpStatus: 409,
        hint: `wait until they end, or reject them first: \`proposer operator candidates list --question ${questionId}\``,
      },
    )
  await ledger.commit([{ kind: 'question.removed', questionId, ...body }])
  const slug = entry.slug === undefined ? '' : `the slug ${entry.slug} no longer refers to it; `
  const note =
    entry.request === undefined
      ? `${slug}it is still served by id as long as a trusted adapter knows it`
      : 'it is no longer served'
  return { changed: [questionId], unchanged: [], notes: [note] }
}

async function reject(
  { ledger }: OperatorParts,
  { candidate_id: id, ...body }: ActBody<'candidates/reject'>,
) {
  for (;;) {
    const candidate = await ledger.get(id)
    if (!candidate)
      throw new RejectedError('candidate_not_found', `candidate ${id} not found in the store`, {
        httpStatus: 404,
        hint: 'list them with `proposer operator candidates list`',
      })
    refuseEnded(candidate)
    const { progress } = candidate
    const status = submissionOf(progress)?.status
    const stage =
      status === 'submitted' || status === 'reverted' ? 'confirmation' : stageOf(progress)
    // The proposer reads why, and never who.
    const detail = `Rejected by the operator: ${body.reason}`
    const end = failed(progress, failureOf(stage, 'operator_rejected', detail))
    const slot = ledger.slotOf(id)
    const change = { ...progressChange(candidate, end), by: body.by }
    if (!(await ledger.commit([change], [candidate]))) continue
    const notes = slot ? [slotNote(slot)] : []
    return { changed: [id], unchanged: [], notes }
  }
}

function refuseEnded({ id, progress }: Candidate) {
  if (progress.status === 'failed')
    throw new ConflictError(
      'candidate_final',
      `candidate ${id} has already failed: ${progress.failure.code}`,
      { httpStatus: 409, hint: `see \`proposer operator candidates explain ${id}\`` },
    )
  const submission = submissionOf(progress)
  if (progress.status === 'executed' || submission?.status === 'confirmed')
    throw new ConflictError(
      'candidate_final',
      `candidate ${id} is already on the chain, in transaction ${submission?.transactionHash ?? 'unknown'}`,
      { httpStatus: 409, hint: 'a proposal on the chain can only be disputed there' },
    )
}

function slotNote({ nonce, candidateIds, attempts }: Slot) {
  const newest = attempts.at(-1)
  if (newest === undefined)
    return `nonce ${nonce} was reserved for it, but nothing was signed: the executor releases it`
  const others = candidateIds.length - 1
  const how =
    others === 0
      ? 'cancels it'
      : `replaces it with one without this proposal (it carries ${others} more)`
  return `its transaction ${newest.hash} is pending with nonce ${nonce}: the executor ${how}; until that is mined the proposal may still be mined`
}

async function repin({ ledger, code }: OperatorParts, body: ActBody<'trust/repin'>) {
  const { pins, now } = await code()
  const all = Object.entries(now) as [Address, Implementation][]
  const isPinned = ([address, { implementation, code_hash }]: (typeof all)[number]) =>
    pins[address]?.implementation === implementation && pins[address].code_hash === code_hash
  const news = all.filter((one) => !isPinned(one))
  await ledger.commit(
    news.map(([address, runs]) => ({ kind: 'implementation.set', address, runs, ...body })),
  )
  const addressesOf = (some: typeof all) => some.map(([address]) => address)
  const notes = news.map(([address, { implementation }]) => {
    const pinned = pins[address]
    const was = pinned === undefined ? 'nothing was pinned' : `pinned was ${pinned.implementation}`
    return `${address} runs ${implementation}; ${was}`
  })
  return { changed: addressesOf(news), unchanged: addressesOf(all.filter(isPinned)), notes }
}

async function rotateReceiptKey(
  { ledger, clock }: OperatorParts,
  { kid, x, overlap_seconds, ...body }: ActBody<'receipts/rotate'>,
) {
  if (ledger.receiptKeys.has(kid)) return { changed: [], unchanged: [kid], notes: [] }
  const nowSeconds = Math.floor(clock.nowMs() / 1_000)
  const exp = nowSeconds + overlap_seconds
  const ending = [...ledger.receiptKeys.values()].filter((key) => key.exp === undefined)
  const keys = [...ending.map((key) => ({ ...key, exp })), { kid, x, nbf: nowSeconds }]
  await ledger.commit(keys.map((key) => ({ kind: 'receipt.key', key, ...body })))
  const notes = ending.map((key) => `${key.kid} ends at ${instant(exp * 1_000)}`)
  return { changed: [kid], unchanged: [], notes }
}
