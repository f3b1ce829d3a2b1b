/** An input before anything of it is signed, and what it may authorize in all (spec §5). */
import { knownAmount } from '#chain/profiles'
import { amountText } from '#protocol/amount'
import { inGroups } from '#protocol/capped'
import { RejectedError, UsageError } from '#protocol/errors'
import { once } from '#protocol/once'
import { outcomeNamed } from '#protocol/outcome-words'
import type { Address } from '#protocol/schema'
import { limits } from '#protocol/words'
import type { Funds } from '../funds/funds.js'
import type { BatchRow, IntentRow } from '../input/input.js'
import type { InputFaults } from '../input/rows.js'
import type { Offer } from '../journal/authorizations.js'
import { nowOf } from '../trust/context.js'
import { requireImplementations } from '../trust/trust.js'
import type { Intent } from './intent.js'
import {
  orRejected,
  type Planned,
  type PlanOptions,
  type ProposeParts,
  planRows,
  saysQuestion,
} from './plan.js'
import { checkTerms } from './terms.js'

export interface SpendingLimits {
  /** Sum of all amounts signed by this run, raw token units. */
  readonly maxSpendRaw?: bigint | undefined
  /** Sign the first rows that fit and leave the rest, instead of refusing all. */
  readonly fit: boolean
}

export type Totals = ReadonlyMap<Address, bigint>

export function addTotal(totals: Map<Address, bigint>, token: Address, raw: bigint) {
  totals.set(token, (totals.get(token) ?? 0n) + raw)
}

interface Spender {
  readonly intent: Pick<Intent, 'proposer' | 'supersede'>
  readonly context: { readonly bond: { readonly token: Address } }
  readonly offer?: Offer | undefined
}

export type Spending = ReturnType<typeof newSpending>

/** Over all tokens. Without limits it is one alone, which the wallet has to cover. */
export function newSpending(
  { chain, trust, journal, form }: ProposeParts,
  limits: SpendingLimits = { fit: false },
) {
  const { fit, maxSpendRaw } = limits
  const wallets = new Map<string, Funds & { readonly leftRaw: bigint }>()
  let spentRaw = 0n
  let isOver = false

  function refused(code: string, detail: string, what: string) {
    // With `fit` the first rows are signed, not the small ones: what was left out is easy to say.
    isOver = fit
    const ways = fit
      ? ' or give a shorter batch'
      : ', give a shorter batch, or add --fit to sign the first rows that fit'
    const own = ', or settle what is open (`proposer journal list`)'
    return new UsageError(code, detail, `${what}${form === 'single' ? own : ways}`)
  }

  async function walletOf({ proposer, supersede }: Spender['intent'], token: Address) {
    if (chain === undefined) return undefined
    // Signing without a chain does without viem.
    const { fundsOf } = await import('../funds/funds.js')
    const funds = await fundsOf(chain, trust, await journal.load(), proposer, token, supersede)
    return { ...funds, leftRaw: funds.spendableRaw }
  }

  function insufficient(wallet: Funds & { readonly leftRaw: bigint }, neededRaw: bigint) {
    const { owner, balanceRaw, allowanceRaw, reservedRaw, leftRaw } = wallet
    const text = (raw: bigint) => amountText(raw, wallet)
    const [code, has, what] =
      allowanceRaw < balanceRaw
        ? [
            'insufficient_allowance',
            `lets Permit2 move ${text(allowanceRaw)}, ${text(leftRaw)} of it`,
            'let Permit2 move more (`proposer funds approve`)',
          ]
        : [
            'insufficient_balance',
            `has ${text(leftRaw)} left`,
            'fund the wallet (`proposer funds`)',
          ]
    const beside = `beside ${text(reservedRaw)} reserved by its open authorizations`
    return refused(code, `${owner} ${has} ${beside}; ${text(neededRaw)} is needed`, what)
  }

  /** Takes it where nothing is in the way. */
  async function refusal({ intent, context, offer }: Spender, amountRaw: bigint) {
    const { token } = context.bond
    const wouldRaw = spentRaw + amountRaw
    if (isOver || (maxSpendRaw !== undefined && wouldRaw > maxSpendRaw)) {
      const text = (raw: bigint) => knownAmount(raw, trust.chain_id, token)
      const why =
        maxSpendRaw === undefined
          ? 'which the wallet does not cover'
          : `--max-spend is ${text(maxSpendRaw)}`
      const detail = `the batch would authorize ${text(wouldRaw)}, ${why}`
      return refused('over_max_spend', detail, 'raise --max-spend')
    }
    const key = `${intent.proposer} ${token}`
    // Of an offer they are reserved already.
    const wallet = offer ? undefined : (wallets.get(key) ?? (await walletOf(intent, token)))
    if (wallet !== undefined) {
      if (amountRaw > wallet.leftRaw) return insufficient(wallet, amountRaw)
      wallets.set(key, { ...wallet, leftRaw: wallet.leftRaw - amountRaw })
    }
    spentRaw = wouldRaw
    return undefined
  }

  return {
    limits,
    refusal,
    async take(...given: Parameters<typeof refusal>) {
      const error = await refusal(...given)
      if (error !== undefined) throw error
    },
  }
}

/** Anything else rejects its row alone. */
const refusing = ['bad_outcome', 'ambiguous_outcome', 'other_question']

export type SpendingSums = Awaited<ReturnType<typeof sumsOf>>['sums']

/**
 * The rows that only their question can tell to be right; all where a limit or a wallet bounds
 * their sum. Where some are wrong, also what would reject others, as far as contexts cost nothing
 * or one call.
 */
export async function lookAt(
  parts: ProposeParts,
  rows: readonly BatchRow[],
  faults: InputFaults,
  spending: SpendingLimits,
  { all = false, ...options }: Pick<PlanOptions, 'signal' | 'resume'> & { readonly all?: boolean },
) {
  const isBounded = spending.maxSpendRaw !== undefined || parts.chain !== undefined
  const isWhole = all || (!spending.fit && isBounded)
  const planned = new Map<BatchRow, Planned>()
  const amounts = new Map<Planned, bigint>()
  const now = once(() => nowOf(parts))
  const planning = { ...options, look: true, rounds: new Map() }
  const look = async (some: readonly BatchRow[]) => {
    const wanted = some.filter((row) => !planned.has(row) && !faults.isAt(row))
    for (const group of inGroups(wanted, limits.batchItems))
      for (const plan of await planRows(parts, group, planning)) {
        planned.set(plan.row, plan)
        const judged = await orRejected(plan.row, async () => {
          if (plan.kind === 'sign')
            amounts.set(plan, checkTerms(plan.intent, plan.context, await now()).amountRaw)
          return plan
        })
        const error = judged.kind === 'rejected' ? judged.error : undefined
        if (error instanceof UsageError || error instanceof RejectedError)
          faults.add(error, plan.row, refusing.includes(error.code))
      }
  }
  const intents = rows.filter((row) => row.kind === 'intent')
  // Only its question tells what the answer means, or whether the columns are its own.
  const isUnclear = ({ outcome, columns }: IntentRow) =>
    outcomeNamed(outcome) === undefined || saysQuestion(columns)
  try {
    if (!faults.refuses) await look(isWhole ? rows : intents.filter(isUnclear))
    if (faults.refuses && (parts.contextsAreFree || intents.length <= limits.batchItems))
      await look(rows)
  } catch (error) {
    // What keeps from looking further is less than what is wrong with the input.
    faults.throwAny()
    throw error
  }
  faults.throwAny()
  if (!isWhole) return { plans: [], sums: undefined, refusal: undefined }
  const plans = rows.flatMap((row) => planned.get(row) ?? [])
  return { plans, ...(await sumsOf(parts, plans, amounts, newSpending(parts, spending))) }
}

/** With `fit` a row counts only where it fits; what cannot be signed is told when its turn comes. */
async function sumsOf(
  { chain, trust, judging }: ProposeParts,
  plans: readonly Planned[],
  amounts: ReadonlyMap<Planned, bigint>,
  { limits: { fit }, refusal: refusalOf }: Spending,
) {
  const totals = new Map<Address, bigint>()
  const findings = { ok: 0, warn: 0, unknown: 0 }
  const sums = { rows: 0, totals, findings: judging && findings }
  let proposer: Address | undefined
  for (const plan of plans) {
    if (plan.kind !== 'sign') continue
    for (const { result } of plan.findings ?? []) findings[result]++
    const amountRaw = amounts.get(plan)
    if (amountRaw === undefined || (fit && (await refusalOf(plan, amountRaw)))) continue
    addTotal(totals, plan.context.bond.token, amountRaw)
    sums.rows++
    // One wallet signs all rows of an input.
    proposer = plan.intent.proposer
  }
  if (proposer !== undefined && chain !== undefined) await requireImplementations(chain, trust)
  if (proposer === undefined || fit) return { sums, refusal: undefined }
  for (const [token, raw] of totals) {
    const refusal = await refusalOf({ intent: { proposer }, context: { bond: { token } } }, raw)
    if (refusal !== undefined) return { sums, refusal }
  }
  return { sums, refusal: undefined }
}
