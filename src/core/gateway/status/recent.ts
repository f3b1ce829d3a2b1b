import type { Clock, Hex } from '#ports'
import { amountText, type TokenUnits } from '#protocol/amount'
import { type Candidate, instant, isActive } from '#protocol/candidate'
import { labelIn } from '#protocol/outcome-words'
import { pick } from '#protocol/pick'
import type { Outcome } from '#protocol/schema'
import type { CandidateCheck, Ledger, Slot } from '../ledger/ledger.js'
import { candidateRow, narrated, progressEvents, signedEvent } from './timeline.js'

interface KnownQuestion {
  readonly slug?: string | undefined
  readonly outcomes?: readonly Pick<Outcome, 'outcome' | 'label'>[] | undefined
  readonly token?: TokenUnits | undefined
}

export const recentKept = 100
const failuresKept = 500
const failuresListed = 50
const lookedBack = 2_000
const dayMs = 86_400_000

type RecentRow = ReturnType<typeof recentRow>

function recentRow(
  candidate: Candidate,
  { slug, outcomes }: KnownQuestion,
  failedAtMs: number | undefined,
) {
  const row = candidateRow(candidate, slug)
  const outcome = row.outcome ?? row.price
  return {
    ...pick(row, 'candidate_id', 'received_at', 'status', 'submission', 'failure_code'),
    ...pick(row, 'question_id', 'slug', 'proposer'),
    outcome,
    label: labelIn(outcomes, outcome),
    failed_at: failedAtMs === undefined ? null : instant(failedAtMs),
  }
}

export type Recent = ReturnType<typeof followRecent>

export function followRecent(
  ledger: Pick<Ledger, 'get' | 'newest' | 'slotOf' | 'onChange' | 'progressedAtMs'>,
  clock: Pick<Clock, 'nowMs'>,
  questionOf: (questionId: Hex) => KnownQuestion,
) {
  const before = [...ledger.newest(lookedBack)]
  let newest = before.slice(0, recentKept).map(({ id }) => id)
  let listed: readonly RecentRow[] = []
  const rows = new Map<string, RecentRow>()
  const checks = new Map<string, CandidateCheck>()
  const failures = new Map<string, number | undefined>(
    before
      .filter(({ status }) => status === 'failed')
      .slice(0, failuresKept)
      .reverse()
      .map(({ id }) => [id, undefined]),
  )
  let isMore = false

  const stop = ledger.onChange((events) => {
    for (const event of events) {
      if (event.kind === 'candidate.received')
        newest = [event.candidate.id, ...newest].slice(0, recentKept)
      else if (event.kind === 'candidate.checked' && newest.includes(event.id))
        checks.set(event.id, event.check)
      else if (event.kind === 'candidate.progress') {
        rows.delete(event.id)
        failures.delete(event.id)
        if (event.progress.status === 'failed') failures.set(event.id, clock.nowMs())
      }
    }
    for (const id of failures.keys()) {
      if (failures.size <= failuresKept) break
      failures.delete(id)
      isMore = true
    }
  })

  const rowOf = async (id: string) => {
    const known = rows.get(id)
    if (known) return [known]
    const candidate = await ledger.get(id)
    if (!candidate) return []
    const row = await rowNow(candidate)
    rows.set(id, row)
    return [row]
  }
  const rowNow = async (candidate: Candidate) => {
    const { id, progress, receivedAtMs, round } = candidate
    const question = questionOf(round.questionId)
    if (progress.status !== 'failed') return recentRow(candidate, question, undefined)
    const failedAtMs = failures.get(id) ?? (await ledger.progressedAtMs(id))
    return recentRow(candidate, question, failedAtMs ?? receivedAtMs)
  }
  const forget = () => {
    const kept = new Set([...newest, ...failures.keys()])
    for (const one of [rows, checks]) for (const id of one.keys()) if (!kept.has(id)) one.delete(id)
  }

  return {
    /** The same array as before where nothing has changed. */
    async rows() {
      const now = (await Promise.all(newest.map(rowOf))).flat()
      forget()
      const isAsBefore = now.length === listed.length && now.every((row, at) => row === listed[at])
      if (!isAsBefore) listed = now
      return listed
    },
    async failures() {
      const since = instant(clock.nowMs() - dayMs)
      const found = (await Promise.all([...failures.keys()].reverse().map(rowOf))).flat()
      for (const row of found) if (failedAt(row) <= since) failures.delete(row.candidate_id)
      const lately = found.filter((row) => failedAt(row) > since)
      return { ...failuresOf(lately), is_more: isMore && failures.size === failuresKept }
    },
    async detail(id: string) {
      const candidate = await ledger.get(id)
      if (!candidate) return undefined
      const { token } = questionOf(candidate.round.questionId)
      const row = await rowNow(candidate)
      const more = candidateRow(candidate, undefined)
      return {
        ...row,
        ...pick(more, 'amount', 'permit_nonce', 'deadline', 'transaction_hash'),
        amount_text: amountText(candidate.amount, token),
        steps: stepsOf(candidate, ledger.slotOf(id), checks.get(id), row.failed_at),
      }
    },
    stop,
  }
}

const failedAt = ({ failed_at }: RecentRow) => failed_at ?? ''

function failuresOf(lately: readonly RecentRow[]) {
  const counts = new Map<string, number>()
  for (const { failure_code: code } of lately)
    if (code !== null) counts.set(code, (counts.get(code) ?? 0) + 1)
  return {
    count: lately.length,
    codes: [...counts].sort(([, one], [, other]) => other - one),
    rows: lately
      .toSorted((one, other) => failedAt(other).localeCompare(failedAt(one)))
      .slice(0, failuresListed),
  }
}

function stepsOf(
  { id, receivedAtMs, progress }: Candidate,
  slot: Slot | undefined,
  check: CandidateCheck | undefined,
  failed_at: string | null,
) {
  const signed = slot
    ? slot.attempts.map((one) => ({ atMs: one.preparedAtMs, ...signedEvent(slot, one, id) }))
    : []
  const endedAtMs = failed_at === null ? undefined : Date.parse(failed_at)
  const events = progressEvents(progress, endedAtMs)
  const early = events.filter(({ kind }) => kind === 'validated' || kind === 'selected').length
  // As written where a wall clock went back (R13).
  const steps = [
    { atMs: receivedAtMs, kind: 'received' } as const,
    ...events.slice(0, early),
    ...signed,
    ...events.slice(early),
  ]
    .sort((one, other) => timeOf(one) - timeOf(other))
    .map((event) => stepOf(event.atMs, narrated(event, undefined)))
  const isHeldUp = check?.verdict === 'wait' || check?.verdict === 'operator'
  if (isActive(progress.status) && isHeldUp)
    steps.push(stepOf(undefined, narrated({ atMs: undefined, kind: 'checked', check }, undefined)))
  return steps
}

const timeOf = ({ atMs = Number.MAX_VALUE }: { atMs: number | undefined }) => atMs

const stepOf = (atMs: number | undefined, [what = '', ...more]: readonly string[]) => ({
  at: atMs === undefined ? null : instant(atMs),
  what,
  detail: (more.find((line) => /^0x[0-9a-f]{64}$/.test(line)) ?? more.join('; ')) || null,
})
