/** An input before anything is signed, and what it may authorize in all (spec §5). */
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
import { nowOf } from '../trust/context.js'
import { requireImplementations } from '../trust/trust.js'
import { checkTerms } from './intent.js'
import {
  orRejected,
  type Planned,
  type PlanOptions,
  type ProposeParts,
  planRows,
  saysQuestion,
  type ToSign,
} from './plan.js'

export interface SpendingLimits {
  /** Of all that this run signs, raw token units. */
  readonly maxSpendRaw?: bigint | undefined
  /** Sign the first rows that fit, instead of refusing all. */
  readonly fit: boolean
}

export type Totals = ReadonlyMap<Address, bigint>

export function addTotal(totals: Map<Address, bigint>, token: Address, raw: bigint) {
  totals.set(token, (totals.get(token) ?? 0n) + raw)
}

interface Spender extends Partial<Pick<ToSign, 'offer'>> {
  readonly intent: Pick<ToSign['intent'], 'proposer' | 'supersede'>
  readonly context: { readonly bond: { readonly token: Address } }
}

export type Spending = ReturnType<typeof newSpending>

/** Over all tokens. Without limits: what the wallet covers. */
export function newSpending(
  { chain, trust, journal, form }: ProposeParts,
  limits: SpendingLimits = { fit: false },
) {
  const { fit, maxSpendRaw } = limits
  const wallets = new Map<string, Funds>()
  let spentRaw = 0n
  let isOver = false

  function refused(code: string, detail: string, what: string) {
    // The first rows are signed, not the small ones: what is left out is easy to say.
    isOver = fit
    const ofMany = `give a shorter batch${fit ? '' : ', or add --fit to sign the first rows that fit'}`
    const way = form === 'single' ? 'settle what is open (`proposer journal list`)' : ofMany
    return new UsageError(code, detail, `${what}, or ${way}`)
  }

  function insufficient(wallet: Funds, neededRaw: bigint) {
    const { owner, balanceRaw, allowanceRaw, reservedRaw, spendableRaw } = wallet
    const text = (raw: bigint) => amountText(raw, wallet)
    const left = text(spendableRaw)
    const [code, has, what] =
      allowanceRaw < balanceRaw
        ? [
            'insufficient_allowance',
            `lets Permit2 move ${text(allowanceRaw)}, ${left} of it`,
            'let Permit2 move more (`proposer funds approve`)',
          ]
        : ['insufficient_balance', `has ${left} left`, 'fund the wallet (`proposer funds`)']
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
    // Of an offer they are reserved already.
    if (chain && !offer) {
      const { proposer, supersede } = intent
      const key = `${proposer} ${token}`
      // Signing without a chain does without viem.
      const { fundsOf } = await import('../funds/funds.js')
      const wallet =
        wallets.get(key) ??
        (await fundsOf(chain, trust, await journal.load(), proposer, token, supersede))
      const spendableRaw = wallet.spendableRaw - amountRaw
      if (spendableRaw < 0n) return insufficient(wallet, amountRaw)
      wallets.set(key, { ...wallet, spendableRaw })
    }
    spentRaw = wouldRaw
    return undefined
  }

  return {
    limits,
    refusal,
    async take(...given: Parameters<typeof refusal>) {
      const error = await refusal(...given)
      if (error) throw error
    },
  }
}

/** Others reject their row alone. */
const refusing = ['bad_outcome', 'ambiguous_outcome', 'other_question']

export type SpendingSums = Awaited<ReturnType<typeof sumsOf>>['sums']

/** `amountRaw`: where it can be signed. */
type Looked = Planned & { readonly amountRaw?: bigint }

/**
 * The rows that only their question can tell to be right; all where their sum is bounded. Where
 * some are wrong, also what would reject others, if contexts cost nothing or one call.
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
  const now = once(() => nowOf(parts))
  const planning = { ...options, look: true, rounds: new Map() }
  const look = async (some: readonly BatchRow[]) => {
    const looked: Looked[] = []
    const wanted = some.filter((row) => !faults.isAt(row))
    for (const group of inGroups(wanted, limits.batchItems))
      for (const plan of await planRows(parts, group, planning)) {
        const judged = await orRejected(plan.row, async (): Promise<Looked> => {
          if (plan.kind !== 'sign') return plan
          const { amountRaw } = checkTerms(plan.intent, plan.context, await now())
          return { ...plan, amountRaw }
        })
        const isRejected = judged.kind === 'rejected'
        looked.push(isRejected ? plan : judged)
        const error = isRejected ? judged.error : undefined
        if (error instanceof UsageError || error instanceof RejectedError)
          faults.add(error, plan.row, refusing.includes(error.code))
      }
    return looked
  }
  const intents = rows.filter((row) => row.kind === 'intent')
  // In its answer, or in whether the columns are its own.
  const isUnclear = ({ outcome, columns }: IntentRow) =>
    outcomeNamed(outcome) === undefined || saysQuestion(columns)
  let looked: readonly Looked[] = []
  try {
    if (!faults.refuses) looked = await look(isWhole ? rows : intents.filter(isUnclear))
    if (faults.refuses && (parts.contextsAreFree || intents.length <= limits.batchItems))
      await look(rows)
  } catch (error) {
    // It is less than what is wrong with the input.
    faults.throwAny()
    throw error
  }
  faults.throwAny()
  if (!isWhole) return { plans: [], sums: undefined, refusal: undefined }
  return { plans: looked, ...(await sumsOf(parts, looked, newSpending(parts, spending))) }
}

/** With `fit` of the rows that fit. What cannot be signed is told when its turn comes. */
async function sumsOf(
  { chain, trust, judging }: ProposeParts,
  looked: readonly Looked[],
  { limits: { fit }, refusal: refusalOf }: Spending,
) {
  const totals = new Map<Address, bigint>()
  const findings = { ok: 0, warn: 0, unknown: 0 }
  const sums = { rows: 0, totals, findings: judging && findings }
  let proposer: Address | undefined
  for (const plan of looked) {
    if (plan.kind !== 'sign') continue
    for (const { result } of plan.findings ?? []) findings[result]++
    const { amountRaw } = plan
    if (amountRaw === undefined || (fit && (await refusalOf(plan, amountRaw)))) continue
    addTotal(totals, plan.context.bond.token, amountRaw)
    sums.rows++
    // One wallet signs all rows of an input.
    proposer = plan.intent.proposer
  }
  if (proposer && chain) await requireImplementations(chain, trust)
  let refusal: UsageError | undefined
  if (proposer && !fit)
    for (const [token, raw] of totals)
      refusal ??= await refusalOf({ intent: { proposer }, context: { bond: { token } } }, raw)
  return { sums, refusal }
}
