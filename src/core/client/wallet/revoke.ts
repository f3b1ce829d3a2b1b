/**
 * `revoke`: cancels the Permit2 nonces of authorizations that have not executed (contract §6;
 * domain §3.2).
 */
import { encodeFunctionData } from 'viem'
import { permit2Abi } from '../../chain/contracts.js'
import { onChain } from '../../chain/unavailable.js'
import { type Address, type Chain, ChainError, type Hex } from '../../ports.js'
import { PendingError, UsageError } from '../../protocol/errors.js'
import { nonceBit } from '../../protocol/permit.js'
import { pinnedHeads, spentNonces } from '../funds/funds.js'
import { isAborted } from '../gateway/retry.js'
import type { ClosedReason } from '../journal/authorizations.js'
import type { Journal, JournalPorts } from '../journal/journal.js'
import { unknownId } from '../journal/saved.js'
import type { Trust } from '../trust/trust.js'
import { settleByChain } from './reconcile.js'
import { type Judged, judgedOf, type Standing, standingOf } from './standing.js'
import type { OwnTransaction, SentTransaction } from './transactions.js'

export interface RevokeParts {
  readonly ports: JournalPorts
  readonly journal: Journal
  readonly trust: Trust
}

/** One call of `invalidateUnorderedNonces`: all nonces of one word. */
export interface Revocation {
  readonly word: bigint
  readonly mask: bigint
  readonly ids: readonly string[]
  readonly transaction: OwnTransaction
}

export interface RevocationPlan {
  readonly owner: Address
  /** What the named ones were signed for, each once. */
  readonly questionIds: readonly Hex[]
  readonly revocations: readonly Revocation[]
  /** Named, and spent at the latest block already: no transaction is needed or helps. */
  readonly spent: readonly string[]
  /** The block that this was seen at; 0 without a chain. */
  readonly seenAt: bigint
}

/**
 * What cancels the named authorizations (or typed data given out): one transaction a word of 256
 * nonces. With a chain, nonces that are spent already are left out. UsageError
 * `unknown_journal_id`, `authorization_closed`, `several_owners`, `untrusted_chain_id`.
 */
export async function planRevocations(
  parts: RevokeParts,
  ids: readonly string[],
  chain: Chain | undefined,
): Promise<RevocationPlan> {
  const { trust, journal } = parts
  const named = await judgedByIds(journal, ids)
  const [first] = named
  if (first === undefined)
    throw new UsageError('nothing_named', 'no journal id is named', {
      hint: 'see `proposer journal list --open`',
    })
  const foreign = named.find(({ chainId }) => chainId !== trust.chain_id)
  if (foreign !== undefined) {
    throw new UsageError(
      'other_chain',
      `${foreign.id} is for chain ${foreign.chainId}, the trust file pins ${trust.chain_id}`,
      {
        hint: 'choose the profile or the --trust file of that chain',
      },
    )
  }
  const { owner } = first
  const other = named.find((one) => one.owner !== owner)
  if (other !== undefined) {
    throw new UsageError(
      'several_owners',
      `${first.id} was signed by ${owner}, ${other.id} by ${other.owner}`,
      {
        hint: 'revoke the authorizations of one account at a time: only it can cancel its nonces',
      },
    )
  }
  const spent = new Set<string>()
  let seenAt = 0n
  if (chain !== undefined) {
    const { latest } = await pinnedHeads(chain, trust)
    seenAt = latest.number
    for (const id of await onChain(() =>
      spentNonces(chain, trust.permit2 as Address, latest.number, named),
    ))
      spent.add(id)
  }
  const words = new Map<bigint, { mask: bigint; ids: string[] }>()
  for (const { id, nonce } of named) {
    if (spent.has(id)) continue
    const { word, mask } = nonceBit(nonce)
    const known = words.get(word) ?? { mask: 0n, ids: [] }
    words.set(word, { mask: known.mask | mask, ids: [...known.ids, id] })
  }
  return {
    owner,
    questionIds: [...new Set(named.map(({ questionId }) => questionId))],
    spent: [...spent],
    seenAt,
    revocations: [...words].map(([word, { mask, ids: covered }]) => ({
      word,
      mask,
      ids: covered,
      transaction: {
        to: trust.permit2 as Hex,
        data: encodeFunctionData({
          abi: permit2Abi,
          functionName: 'invalidateUnorderedNonces',
          args: [word, mask],
        }),
        what: `cancel the Permit2 nonces of ${covered.join(', ')}`,
      },
    })),
  }
}

async function judgedByIds(journal: Journal, ids: readonly string[]): Promise<readonly Judged[]> {
  const view = await journal.load()
  const all = judgedOf(view)
  return [...new Set(ids)].map((id) => {
    const found = all.find((one) => one.id === id)
    if (found === undefined) throw unknownId(id)
    // A refused or failed one may still be executed by whoever holds its signature; only a spent
    // nonce leaves nothing to cancel.
    const end = view
      .find(id)
      ?.terminals.find(({ outcome }) => outcome === 'executed' || outcome === 'nonce_used')
    if (end === undefined) return found
    throw new UsageError(
      'authorization_closed',
      `${id} is closed (${end.outcome}): its nonce is spent, there is nothing to revoke`,
      {
        hint: 'see `proposer journal show`',
      },
    )
  })
}

export interface RevocationResult {
  readonly id: string
  /**
   * `revoked`: cancelled before it could execute. `executed`: it was faster. `undefined`: not
   * final, or nothing is proven yet.
   */
  readonly outcome: 'revoked' | 'executed' | 'nonce_used' | 'expired' | undefined
}

export interface FinishedRevocation {
  readonly results: readonly RevocationResult[]
  /** PendingError 8 where the blocks were not final in time: `reconcile` journals it later. */
  readonly error?: PendingError
}

/** How long finality is waited for by default, and how often it is asked for. */
const finalityWaitMs = 120_000
const finalityPauseMs = 1_000

/**
 * Waits until what was sent is final, reads the nonces again there, and journals what that proves
 * (contract §1, R14). UnavailableError where the chain stops answering; InterruptedError.
 */
export async function finishRevocation(
  parts: RevokeParts & {
    readonly chain: Chain
    readonly signal?: AbortSignal
    readonly timeoutMs?: number
  },
  plan: RevocationPlan,
  sent: readonly SentTransaction[],
): Promise<FinishedRevocation> {
  const ids = [...plan.spent, ...plan.revocations.flatMap((one) => one.ids)]
  // They were mined one after the other, and after what was seen before.
  const mined = sent.at(-1)?.receipt.blockNumber ?? plan.seenAt
  const isFinal = await waitForFinality(parts, mined)
  const judged = judgedOf(await parts.journal.load())
  const standings = await standingsOf(parts, judged, ids)
  const cancelled = await cancelledBy(parts, judged, plan, sent)
  const settled = await settleByChain(
    parts,
    standings,
    new Map([...cancelled].map((id) => [id, 'nonce_invalidated'])),
  )
  const view = await parts.journal.load()
  const results = ids.map((id) => {
    const ended =
      settled.get(id) ??
      view.find(id)?.terminals.at(-1)?.outcome ??
      standings.get(id)?.proof?.outcome
    return { id, outcome: outcomeOf(ended, cancelled.has(id)) }
  })
  if (isFinal) return { results }
  return {
    results,
    error: new PendingError(
      'not_final',
      `block ${mined} was not final in the time given: nothing is proven yet`,
      {
        hint: `run ${reconcileText(plan.questionIds)} later: it journals the end`,
        retryable: true,
      },
    ),
  }
}

/** The commands that look at these questions again. */
export const reconcileText = (questionIds: readonly string[]): string =>
  questionIds.map((id) => `\`proposer reconcile ${id}\``).join(' and ')

function outcomeOf(
  ended: ClosedReason | undefined,
  wasCancelled: boolean,
): RevocationResult['outcome'] {
  if (ended === 'nonce_used') return wasCancelled ? 'revoked' : 'nonce_used'
  return ended === 'executed' || ended === 'expired' ? ended : undefined
}

async function waitForFinality(
  {
    chain,
    trust,
    ports,
    signal,
    timeoutMs = finalityWaitMs,
  }: Parameters<typeof finishRevocation>[0],
  blockNumber: bigint,
): Promise<boolean> {
  const endMs = ports.clock.monotonicMs() + timeoutMs
  for (;;) {
    const { finalized } = await pinnedHeads(chain, trust)
    if (finalized.number >= blockNumber) return true
    if (isAborted(signal) || ports.clock.monotonicMs() >= endMs) return false
    try {
      await ports.clock.sleep(finalityPauseMs, signal)
    } catch (error) {
      if (!isAborted(signal)) throw error
      return false
    }
  }
}

async function standingsOf(
  { chain, trust }: Parameters<typeof finishRevocation>[0],
  judged: readonly Judged[],
  ids: readonly string[],
): Promise<ReadonlyMap<string, Standing>> {
  const standings = new Map<string, Standing>()
  const questions = new Set(
    judged.filter(({ id }) => ids.includes(id)).map(({ questionId }) => questionId),
  )
  for (const questionId of questions) {
    const { of } = await standingOf(chain, trust, questionId, judged)
    for (const id of ids) {
      const standing = of.get(id)
      if (standing !== undefined) standings.set(id, standing)
    }
  }
  return standings
}

/**
 * Ids whose nonce was still free in the block before our transaction, so that it was ours that took
 * it.
 */
async function cancelledBy(
  { chain, trust }: Parameters<typeof finishRevocation>[0],
  judged: readonly Judged[],
  plan: RevocationPlan,
  sent: readonly SentTransaction[],
): Promise<ReadonlySet<string>> {
  const cancelled = new Set<string>()
  for (const [index, { ids }] of plan.revocations.entries()) {
    const receipt = sent[index]?.receipt
    if (receipt === undefined) continue
    const covered = judged.filter(({ id }) => ids.includes(id))
    const before = await spentNonces(
      chain,
      trust.permit2 as Address,
      receipt.blockNumber - 1n,
      covered,
    ).catch((error: unknown) => {
      // A node that has forgotten that block: when we planned, the nonces were free.
      if (error instanceof ChainError) return new Set<string>()
      throw error
    })
    for (const { id } of covered) if (!before.has(id)) cancelled.add(id)
  }
  return cancelled
}
