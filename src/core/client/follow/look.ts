/** What a status says of stage and end, whichever gateway tells it (§2.6, §2.7, contract §5, §9). */
import { FailedError } from '#protocol/errors'
import { isBytes32 } from '#protocol/words'
import type { GatewayClient } from '../gateway/gateway-client.js'
import type { PolledStatus } from '../gateway/reading.js'
import type { Named } from '../journal/authorizations.js'
import type { Journal, JournalPorts } from '../journal/journal.js'

export interface PollParts {
  readonly ports: Pick<JournalPorts, 'clock' | 'random'>
  readonly gateway: GatewayClient
  /** Ends of its candidates are journaled; it tells the question of those given by id. */
  readonly journal?: Journal | undefined
}

/** As commands (contract §5); a word of another gateway as it is. */
export function remedyOf(action: string, { question_id, proposer }: PolledStatus, id?: string) {
  const replay = id ? `proposer replay ${id}` : 'proposer submit <identifier> <payload.json>'
  const again = `send the same payload again with \`${replay}\``
  const question = question_id ?? '<identifier>'
  const remedies = {
    none: 'nothing is left to do',
    wait: 'wait, then check the status again',
    replay_same_payload: again,
    fund_wallet: `fund the wallet${proposer == null ? '' : ` ${proposer}`}, then ${again}`,
    approve_permit2: `let Permit2 move the token with \`proposer funds approve\`, then ${again}`,
    sign_new_authorization: `sign again with \`proposer submit ${question} --outcome <answer>\``,
    wait_for_new_round: `wait for a new round; \`proposer reconcile ${question}\` shows the state`,
    contact_operator: 'contact the operator with the candidate id',
  }
  return new Map(Object.entries(remedies)).get(action) ?? `next: ${action}`
}

export function failedError(status: PolledStatus, journalId?: string) {
  const { failure, candidate_id: id } = status
  if (!failure)
    return new FailedError('failed', `candidate ${id} failed`, 'ask the operator for the reason')
  const { code, detail, stage, next_action: next, retryable } = failure
  const where = stage == null ? '' : ` at ${stage}`
  // The route that tells the rest asks for the question (§4.2 rule 7).
  const flag = status.question_id == null ? ' --question <id>' : ''
  const hint =
    next == null
      ? `see \`proposer status ${id}${flag}\` for what to do next`
      : remedyOf(next, status, journalId)
  const what = `candidate ${id} failed${where}: ${detail || 'no reason was given'}`
  return new FailedError(code, what, { hint, retryable })
}

export const stages = ['validated', 'selected', 'submitted', 'confirmed', 'indexed'] as const
export type Stage = (typeof stages)[number]

export interface PollTarget {
  readonly candidateId: string
  readonly identifier?: string | undefined
  /** Unix time; default: the journal's, as for `signed`. */
  readonly sentAtMs?: number | undefined
  readonly signed?: Named | undefined
}

export type { PolledStatus }

const activeStages = ['selected', 'validated', 'received'] as const
const isActive = (status: string) => activeStages.some((stage) => stage === status)

const saysFailed = /^(failed|rejected|expired|cancell?ed)$/i

/**
 * `undefined` on its way (contract §5, §9). In an active stage a failure is an end only where the
 * payload can never execute. Of another word the failure decides before the submission.
 */
export function endOf({
  status,
  submission,
  failure,
}: PolledStatus): 'executed' | 'failed' | undefined {
  if (status === 'executed' || status === 'failed') return status
  if (isActive(status)) {
    if (submission?.status === 'indexed') return 'executed'
    return failure?.retryable === false ? 'failed' : undefined
  }
  if (saysFailed.test(status)) return 'failed'
  if (failure)
    return failure.retryable === true || failure.next_action === 'wait' ? undefined : 'failed'
  return stageOfSubmission({ submission }) === 'indexed' ? 'executed' : undefined
}

export function hasReached(status: PolledStatus, until: Stage | undefined) {
  const isEnded = endOf(status) !== undefined
  if (isEnded || until === undefined) return isEnded
  const stage =
    stageOfSubmission(status) ??
    activeStages.find((one) =>
      isActive(status.status) ? one === status.status : stageTimeOf(status, one),
    )
  return stages.slice(stages.indexOf(until)).some((one) => one === stage)
}

const submissionStages = ['indexed', 'confirmed', 'submitted'] as const
const submissionWords = [...submissionStages, 'prepared', 'reverted', 'dropped']

/** By its word, else its times. Some gateways name an event before its block is final. */
function stageOfSubmission({ submission }: Pick<PolledStatus, 'submission'>) {
  if (!submission) return undefined
  const { status, proposal_event_index: index, transaction_hash: hash } = submission
  if (submissionWords.includes(status)) return submissionStages.find((stage) => stage === status)
  const isWhole = index != null && hash != null && isBytes32(hash.toLowerCase())
  return submissionStages.find(
    (stage) => stageTimeOf({ submission }, stage) && (stage !== 'indexed' || isWhole),
  )
}

const year2000Ms = Date.UTC(2000)

/** The zero times of some gateways are none. */
function isTime(text: string) {
  if (/^\d+(\.\d+)?$/.test(text)) return Number(text) * 1_000 > year2000Ms
  return /^\d{4}-\d\d-\d\d/.test(text) && Date.parse(text) > year2000Ms
}

/**
 * The spec names stages and no fields (§2.6): `indexed_at` as well as `indexing_timestamp`, but not
 * `indexing_expected_at`.
 */
export function stageTimeOf(
  status: Partial<Pick<PolledStatus, 'submission'>>,
  stage: Stage | 'received',
) {
  const holder = submissionStages.some((one) => one === stage) ? status.submission : status
  const timeName = new RegExp(`^${stage.slice(0, 5)}[a-z]*_?(at|on|time|timestamp)$`, 'i')
  return Object.entries(holder ?? {}).flatMap(([name, value]) =>
    timeName.test(name) && isTime(String(value)) ? String(value) : [],
  )[0]
}

export function changedAt(status: PolledStatus) {
  if (endOf(status) === 'failed') return undefined
  const active = activeStages.filter((stage) => stage === status.status)
  return [...submissionStages, ...active].flatMap((stage) => stageTimeOf(status, stage) ?? [])[0]
}
