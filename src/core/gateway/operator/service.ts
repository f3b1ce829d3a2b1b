import pLimit from 'p-limit'
import type { Implementation, Implementations } from '#chain/implementations'
import type { RegistryEntry } from '#chain/questions'
import type { Clock } from '#ports'
import { type Candidate, instant, isActive } from '#protocol/candidate'
import { ConflictError, RejectedError } from '#protocol/errors'
import { pick } from '#protocol/pick'
import type { Address } from '#protocol/schema'
import { counted } from '#protocol/text'
import type { Ledger, Slot } from '../ledger/ledger.js'
import {
  failed,
  failureOf,
  progressChange,
  stageOf,
  submissionOf,
} from '../validation/validation.js'
import { type ActBody, type ActName, type ActResult, actBodies } from './acts.js'
import { mergedRegistry, parseRegistry, sameEntry, slugTwice } from './registry.js'

const keptDays = 90

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
        const { changed = [], unchanged = [], notes = [], ...more } = done
        return { act: name, changed, unchanged, ...pick(asked, 'reason', 'by'), notes, ...more }
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
  ) => Promise<Partial<Pick<ActResult, 'changed' | 'unchanged' | 'notes' | 'bytes'>>>
} = {
  allow: setAllowlist,
  disallow: setAllowlist,
  pause: setAdmission,
  resume: setAdmission,
  async 'questions/add'({ ledger, configured, isKnown }, { entries, ...body }) {
    const registry = mergedRegistry(configured, ledger.questions)
    const known = new Map(registry.map((entry) => [entry.questionId, entry]))
    const asked = parseEntries(entries).map((entry) =>
      completed(entry, known.get(entry.questionId)),
    )
    const changed = asked.filter((entry) => {
      const before = known.get(entry.questionId)
      return before === undefined || !sameEntry(before, entry)
    })
    for (const entry of changed) known.set(entry.questionId, entry)
    const [slug, one, other] = slugTwice([...known.values()]) ?? []
    if (slug !== undefined)
      throw new ConflictError(
        'slug_taken',
        `the slug ${slug} would refer to both question ${one} and question ${other}; nothing was changed`,
        answer(
          409,
          `give another slug, or remove the first: \`proposer operator questions remove ${one}\``,
        ),
      )
    await refuseUnknown(isKnown, changed)
    await ledger.commit(changed.map((entry) => ({ kind: 'question.set', entry, ...body })))
    const idsOf = (some: readonly RegistryEntry[]) => some.map(({ questionId }) => questionId)
    const unchanged = asked.filter((entry) => !changed.includes(entry))
    return { changed: idsOf(changed), unchanged: idsOf(unchanged) }
  },
  async 'questions/remove'({ ledger, configured }, { question_id: questionId, ...body }) {
    const added = ledger.questions.get(questionId)
    const entry =
      added === undefined ? configured.find((one) => one.questionId === questionId) : added
    if (!entry) {
      const note =
        'it is not in the registry; questions of trusted adapters are served by id anyway'
      return { unchanged: [questionId], notes: [note] }
    }
    const { slug, request } = entry
    const active = activeOf(ledger, ({ round }) => round.questionId === questionId)
    if (request !== undefined && active.length > 0)
      throw new ConflictError(
        'question_in_use',
        `question ${questionId} has ${counted(active.length, 'active candidate')} that need its entry`,
        answer(
          409,
          `wait until they end, or reject them first: \`proposer operator candidates list --question ${questionId}\``,
        ),
      )
    await ledger.commit([{ kind: 'question.removed', questionId, ...body }])
    const freed = slug === undefined ? '' : `the slug ${slug} no longer refers to it; `
    const note =
      request === undefined
        ? `${freed}it is still served by id as long as a trusted adapter knows it`
        : 'it is no longer served'
    return { changed: [questionId], notes: [note] }
  },
  async 'candidates/reject'({ ledger }, { candidate_id: id, reason, by }) {
    for (;;) {
      const candidate = await ledger.get(id)
      if (!candidate)
        throw new RejectedError(
          'candidate_not_found',
          `candidate ${id} not found in the store`,
          answer(404, 'list them with `proposer operator candidates list`'),
        )
      refuseEnded(candidate)
      const { progress } = candidate
      const status = submissionOf(progress)?.status
      const isSent = status === 'submitted' || status === 'reverted'
      const stage = isSent ? 'confirmation' : stageOf(progress)
      // The proposer reads why, and never who.
      const detail = `Rejected by the operator: ${reason}`
      const end = failed(progress, failureOf(stage, 'operator_rejected', detail))
      const slot = ledger.slotOf(id)
      const change = { ...progressChange(candidate, end), by }
      if (await ledger.commit([change], [candidate]))
        return { changed: [id], notes: slot ? [slotNote(slot)] : [] }
    }
  },
  async 'store/compact'({ clock, compact }) {
    return { changed: ['store'], bytes: await compact(clock.nowMs() - keptDays * 86_400_000) }
  },
  async 'trust/repin'({ ledger, code }, body) {
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
      const was = pinned ? `pinned was ${pinned.implementation}` : 'nothing was pinned'
      return `${address} runs ${implementation}; ${was}`
    })
    return { changed: addressesOf(news), unchanged: addressesOf(all.filter(isPinned)), notes }
  },
  async 'receipts/rotate'({ ledger, clock }, { kid, x, overlap_seconds, ...body }) {
    if (ledger.receiptKeys.has(kid)) return { unchanged: [kid] }
    const nowSeconds = Math.floor(clock.nowMs() / 1_000)
    const exp = nowSeconds + overlap_seconds
    const ending = [...ledger.receiptKeys.values()].filter((key) => key.exp === undefined)
    const keys = [...ending.map((key) => ({ ...key, exp })), { kid, x, nbf: nowSeconds }]
    await ledger.commit(keys.map((key) => ({ kind: 'receipt.key', key, ...body })))
    const notes = ending.map((key) => `${key.kid} ends at ${instant(exp * 1_000)}`)
    return { changed: [kid], notes }
  },
}

function bodyOf<Name extends ActName>(name: Name, body: unknown) {
  const parsed = actBodies[name].safeParse(body)
  if (parsed.success) return parsed.data as ActBody<Name>
  const where = parsed.error.issues[0]?.path.join('.') ?? ''
  const isAddress = where.startsWith('addresses.')
  const what = isAddress ? `${where}, which must be a lowercase address, not zero,` : where
  throw new RejectedError(
    'act_invalid',
    `${what || 'the body'} is not valid for ${name}`,
    answer(
      422,
      'run `proposer operator --help`; use the same version of the command and the gateway',
    ),
  )
}

const answer = (httpStatus: number, hint: string, cause?: unknown) => ({ httpStatus, hint, cause })

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
  const notes = (allowed ? [] : wallets).flatMap((address) => {
    const { length, 0: example } = activeOf(ledger, ({ proposer }) => proposer === address)
    if (example === undefined) return []
    return `${address} has ${counted(length, 'active candidate')}, which ${length === 1 ? 'stays' : 'stay'} and may execute; to end one: proposer operator candidates reject ${example.id} --reason <text>`
  })
  return { changed, unchanged, notes }
}

const activeOf = (ledger: Ledger, isMeant: (candidate: Candidate) => boolean) =>
  ledger.active().filter((one) => isActive(one.progress.status) && isMeant(one))

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

function parseEntries(entries: readonly unknown[]) {
  try {
    return parseRegistry(entries, 'the import')
  } catch (error) {
    if (!(error instanceof Error && 'detail' in error)) throw error
    throw new RejectedError(
      'questions_invalid',
      String(error.detail),
      answer(
        422,
        'each entry is {"question_id": "0x…", "slug"?, "requester"?, "request"?}; nothing was imported: correct it',
        error,
      ),
    )
  }
}

const completed = (entry: RegistryEntry, before: RegistryEntry | undefined) => ({
  questionId: entry.questionId,
  slug: entry.slug ?? before?.slug,
  requester: entry.requester ?? before?.requester,
  request: entry.request ?? before?.request,
})

async function refuseUnknown(isKnown: OperatorParts['isKnown'], entries: readonly RegistryEntry[]) {
  const known = await pLimit(askedAtOnce).map(entries, (entry) => isKnown(entry))
  const [first, ...others] = entries.filter((_, index) => known[index] === false)
  if (first === undefined) return
  const more = others.length === 0 ? '' : ` and ${others.length} more of the ${entries.length}`
  throw new RejectedError(
    'question_unknown',
    `no trusted requester knows question ${first.questionId}${more}; nothing was changed`,
    answer(
      404,
      'check the id, and that its requester is listed in chain.requesters; a question asked just now needs one more block; kind "direct" also requires its request',
    ),
  )
}

function refuseEnded({ id, progress }: Candidate) {
  if (progress.status === 'failed')
    throw new ConflictError(
      'candidate_final',
      `candidate ${id} has already failed: ${progress.failure.code}`,
      answer(409, `see \`proposer operator candidates explain ${id}\``),
    )
  const submission = submissionOf(progress)
  if (progress.status === 'executed' || submission?.status === 'confirmed')
    throw new ConflictError(
      'candidate_final',
      `candidate ${id} is already on the chain, in transaction ${submission?.transactionHash ?? 'unknown'}`,
      answer(409, 'a proposal on the chain can only be disputed there'),
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
