/** Rows of a program as the input of a batch: checked, counted and sent as a file of them is. */
import type { BudgetedClient } from '../client/budget/budgeted-client.js'
import { checkBatch, nonceHolder } from '../client/input/check.js'
import type { BatchSource } from '../client/input/rows.js'
import type { Journal } from '../client/journal/journal.js'
import { type BatchOptions, type RowResult, submitBatch } from '../client/propose/batch.js'
import { knownQuestionId } from '../client/propose/intent.js'
import { lookAt, newSpending, type SpendingLimits } from '../client/propose/look.js'
import type { BatchParts } from '../client/propose/plan.js'
import type { ContextSource } from '../client/trust/context.js'
import type { Trust } from '../client/trust/trust.js'
import { systemCurve } from '../io/keys.js'
import type { systemPorts } from '../io/system.js'
import type { Chain, Hex, Signer } from '../ports.js'

export interface BotParts {
  readonly ports: ReturnType<typeof systemPorts>
  /** Folder of journal, rate limit and kept logs. */
  readonly home: string
  readonly journal: Journal
  readonly trust: Trust
  readonly gateway: BudgetedClient
  readonly chain: Chain | undefined
  readonly wallet: Signer
  readonly contexts: ContextSource
  readonly note: (text: string) => void
  /** Aborted where the whole proposer stops. */
  readonly signal: AbortSignal
}

/** One row of a batch. Terms that are not given follow from the question's context. */
export interface ProposalRow {
  /** Question id or slug. */
  readonly identifier: string
  /** p1, p2, p3, yes, no or a label of the question. */
  readonly outcome: string
  /** Your own reference, kept in the journal. */
  readonly clientRef?: string | undefined
  /** Raw token units; default: the required bond and the headroom on it. */
  readonly amountRaw?: bigint | undefined
  /** Permit2 nonce; default: a fresh one. */
  readonly nonce?: bigint | undefined
  /** Unix seconds; default: an hour from now. */
  readonly deadlineSeconds?: bigint | undefined
  /** Hash of the clarifications that the answer takes into account; default: what was acknowledged. */
  readonly rulesSeen?: Hex | undefined
}

export interface SubmitAllOptions extends Partial<SpendingLimits> {
  /** Refuses to sign more than this for one row; raw token units. */
  readonly maxAmountRaw?: bigint | undefined
  /** Slack for a bond that is raised later, in hundredths of a percent; default 0. */
  readonly headroomBasisPoints?: bigint | undefined
  /** Finishes the same rows of an earlier run: what is accepted or closed already is left alone. */
  readonly resume?: boolean | undefined
  /** Milliseconds for the whole run. */
  readonly timeoutMs?: number | undefined
  readonly signal?: AbortSignal | undefined
}

/**
 * Checks all rows before one is signed, then submits them; yields results in order, some at a time.
 * UsageError as `checkBatch` and `lookAt`, and its refusal; otherwise as `submitBatch`.
 */
export async function* submitRows(
  bot: BotParts,
  rows: Iterable<ProposalRow>,
  options: SubmitAllOptions & { readonly signal: AbortSignal },
  onRetry: NonNullable<BatchOptions['onRetry']>,
): AsyncGenerator<readonly RowResult[], void, undefined> {
  const { ports, journal, trust, gateway, chain, wallet } = bot
  const { resume = false, fit = false, maxSpendRaw, signal, timeoutMs } = options
  const source = sourceOf(rows)
  const limits = { fit, maxSpendRaw }
  const view = await journal.load()
  const now = { chainId: trust.chain_id, nowMs: ports.clock.nowMs(), resume }
  const proposer = async () => wallet.address
  const count = await checkBatch(source, 'ndjson', {
    hash: ports.hash,
    proposer,
    questionOf: (identifier) => knownQuestionId(trust, identifier, view),
    nonceHolder: (row, questionId, owner) => nonceHolder(view, now, row, questionId, owner),
  })
  const parts: BatchParts & typeof bot = {
    ...bot,
    kept: new Map(),
    contextsAreFree: chain !== undefined,
    keepContexts: wallet.signTypedData !== undefined,
    signer: async () => wallet,
    recover: systemCurve().recover,
    proposer,
    maxAmountRaw: options.maxAmountRaw,
    headroomBasisPoints: options.headroomBasisPoints,
  }
  const { refusal } = await lookAt(parts, count.input, source, { limits, signal })
  if (refusal) throw refusal
  yield* submitBatch(parts, count.input, {
    fingerprint: count.fingerprint,
    resume,
    spending: newSpending(parts, limits),
    timeoutMs,
    signal,
    chunkSize: (wantItems, call) => gateway.chunkSize(wantItems, call),
    onRetry,
  })
}

function sourceOf(rows: Iterable<ProposalRow>): BatchSource {
  const text = Array.from(rows, lineOf).join('')
  return { name: 'rows', bytes: new TextEncoder().encode(text) }
}

const lineOf = ({
  identifier,
  outcome,
  clientRef,
  amountRaw,
  nonce,
  deadlineSeconds,
  rulesSeen,
}: ProposalRow) =>
  `${JSON.stringify({
    identifier,
    outcome,
    client_ref: clientRef,
    amount: amountRaw?.toString(),
    nonce: nonce?.toString(),
    deadline: deadlineSeconds?.toString(),
    rules_seen: rulesSeen,
  })}\n`
