/**
 * `revoke`: cancels the Permit2 nonces of authorizations that have not executed (contract §6;
 * domain §3.2).
 */

import { encodeFunctionData } from 'viem'
import { permit2Abi } from '#chain/contracts'
import { onChain } from '#chain/unavailable'
import { type Chain, ChainError } from '#ports'
import { PendingError, UsageError } from '#protocol/errors'
import { nonceBit } from '#protocol/permit'
import { pinnedHeads, spentNonces } from '../funds/funds.js'
import { isAborted } from '../gateway/answer.js'
import { type ClosedReason, unknownId } from '../journal/authorizations.js'
import type { Journal, JournalPorts } from '../journal/journal.js'
import type { Trust } from '../trust/trust.js'
import { settleByChain } from './reconcile.js'
import { type AuthorizationStanding, claimsIn, type RoundClaim, readStanding } from './standing.js'
import type { SentTransaction } from './transactions.js'

export async function planRevocations(
  { trust, journal }: Pick<FinishParts, 'trust' | 'journal'>,
  ids: readonly string[],
  chain: Chain | undefined,
) {
  const named = await claimsByIds(journal, ids)
  const owner = ownerOf(named, trust)
  const { permit2 } = trust
  const seenAt = chain === undefined ? 0n : (await pinnedHeads(chain, trust)).latest.number
  const spent =
    chain === undefined
      ? new Set<string>()
      : await onChain(() => spentNonces(chain, permit2, seenAt, named))
  const words = new Map<bigint, { mask: bigint; ids: string[] }>()
  for (const { id, nonce } of named.filter((one) => !spent.has(one.id))) {
    const { word, mask } = nonceBit(nonce)
    const known = words.get(word) ?? { mask: 0n, ids: [] }
    words.set(word, { mask: known.mask | mask, ids: [...known.ids, id] })
  }
  const functionName = 'invalidateUnorderedNonces'
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
        to: permit2,
        data: encodeFunctionData({ abi: permit2Abi, functionName, args: [word, mask] }),
        what: `cancel the Permit2 nonces of ${covered.join(', ')}`,
      },
    })),
  }
}

type RevocationPlan = Awaited<ReturnType<typeof planRevocations>>

function ownerOf(named: readonly RoundClaim[], trust: Trust) {
  const [first] = named
  if (first === undefined)
    throw new UsageError(
      'nothing_named',
      'journal id required',
      'see `proposer journal list --open`',
    )
  const foreign = named.find(({ chainId }) => chainId !== trust.chain_id)
  if (foreign !== undefined)
    throw new UsageError(
      'other_chain',
      `${foreign.id} is for chain ${foreign.chainId}, the trust file pins ${trust.chain_id}`,
      'choose the profile or the --trust file of that chain',
    )
  const other = named.find((one) => one.owner !== first.owner)
  if (other !== undefined)
    throw new UsageError(
      'several_owners',
      `${first.id} was signed by ${first.owner}, ${other.id} by ${other.owner}`,
      'revoke the authorizations of one account at a time: only it can cancel its nonces',
    )
  return first.owner
}

async function claimsByIds(journal: Journal, ids: readonly string[]) {
  const view = await journal.load()
  const all = claimsIn(view)
  return [...new Set(ids)].map((id) => {
    const found = all.find((one) => one.id === id)
    if (found === undefined) throw unknownId(id)
    // Whoever holds a refused or failed one may still execute it.
    const end = view
      .find(id)
      ?.terminals.find(({ outcome }) => outcome === 'executed' || outcome === 'nonce_used')
    if (end === undefined) return found
    throw new UsageError(
      'authorization_closed',
      `${id} is closed (${end.outcome}): its nonce is spent, there is nothing to revoke`,
      'see `proposer journal show`',
    )
  })
}

interface FinishParts {
  readonly ports: JournalPorts
  readonly journal: Journal
  readonly trust: Trust
  readonly chain: Chain
  readonly signal?: AbortSignal
  readonly timeoutMs?: number | undefined
}

const finalityWaitMs = 120_000
const finalityPauseMs = 1_000

/** Reads the nonces again in final state (contract §1, R14). `error`: `reconcile` journals it later. */
export async function finishRevocation(
  parts: FinishParts,
  plan: RevocationPlan,
  sent: readonly SentTransaction[],
) {
  const { chain, trust, journal } = parts
  const ids = [...plan.spent, ...plan.revocations.flatMap((one) => one.ids)]
  const mined = sent.at(-1)?.receipt.blockNumber ?? plan.seenAt
  const isFinal = await waitForFinality(parts, mined)
  const claims = claimsIn(await journal.load())
  const standings = new Map<string, AuthorizationStanding>()
  const named = claims.filter(({ id }) => ids.includes(id))
  for (const questionId of new Set(named.map((one) => one.questionId))) {
    const { of } = await readStanding(chain, trust, questionId, claims)
    for (const [id, standing] of of) if (ids.includes(id)) standings.set(id, standing)
  }
  const cancelled = await cancelledBy(parts, claims, plan, sent)
  const codes = new Map([...cancelled].map((id) => [id, 'nonce_invalidated']))
  const settled = await settleByChain(parts, standings, codes)
  const view = await journal.load()
  const results = ids.map((id) => {
    const ended =
      settled.get(id) ??
      view.find(id)?.terminals.at(-1)?.outcome ??
      standings.get(id)?.proof?.outcome
    return { id, outcome: resultOf(ended, cancelled.has(id)) }
  })
  if (isFinal) return { results, error: undefined }
  return {
    results,
    error: new PendingError(
      'not_final',
      `block ${mined} was not final within the time limit: nothing is proven yet`,
      {
        hint: `run ${reconcileText(plan.questionIds)} later: it journals the outcome`,
        retryable: true,
      },
    ),
  }
}

export const reconcileText = (questionIds: readonly string[]) =>
  questionIds.map((id) => `\`proposer reconcile ${id}\``).join(' and ')

function resultOf(
  ended: ClosedReason | undefined,
  wasCancelled: boolean,
): 'revoked' | 'executed' | 'nonce_used' | 'expired' | undefined {
  if (ended === 'nonce_used') return wasCancelled ? 'revoked' : 'nonce_used'
  return ended === 'executed' || ended === 'expired' ? ended : undefined
}

async function waitForFinality(
  { chain, trust, ports, signal, timeoutMs = finalityWaitMs }: FinishParts,
  blockNumber: bigint,
) {
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

/** Ids whose nonce was still free in the block before our transaction: it was ours that took it. */
async function cancelledBy(
  { chain, trust }: FinishParts,
  claims: readonly RoundClaim[],
  plan: RevocationPlan,
  sent: readonly SentTransaction[],
) {
  const cancelled = new Set<string>()
  for (const [index, { ids }] of plan.revocations.entries()) {
    const block = sent[index]?.receipt.blockNumber
    if (block === undefined) continue
    const covered = claims.filter(({ id }) => ids.includes(id))
    const before = await spentNonces(chain, trust.permit2, block - 1n, covered).catch(
      (error: unknown) => {
        // A node that has forgotten that block: when we planned, the nonces were free.
        if (error instanceof ChainError) return new Set<string>()
        throw error
      },
    )
    for (const { id } of covered) if (!before.has(id)) cancelled.add(id)
  }
  return cancelled
}
