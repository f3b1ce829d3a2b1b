/**
 * What a batch may authorize in all: a limit that the user gave, and what the wallet holds where a
 * chain can be asked (spec §5).
 */
import type { Address } from '../../ports.js'
import { UsageError } from '../../protocol/errors.js'
import { type Funds, fundsOf } from '../funds/funds.js'
import type { BatchRow } from '../input/input.js'
import { type ContextResult, type ContextSource, chainNow } from '../trust/context.js'
import { type BatchParts, planRows } from './plan.js'
import { checkTerms } from './terms.js'

export interface SpendingLimits {
  /** Sum of all amounts signed by this run, raw token units. */
  readonly maxSpendRaw?: bigint
  /** Sign the first rows that fit and leave the rest, instead of refusing all. */
  readonly fit: boolean
}

/** Raw units by token. */
export type Totals = ReadonlyMap<string, bigint>

/** Keeps the account of one run. */
export interface Spending {
  readonly limits: SpendingLimits
  /**
   * Counts an amount that is about to be signed; UsageError as `checkSpending` where it does not
   * fit.
   */
  take(token: Address, owner: Address, amountRaw: bigint): Promise<void>
}

/**
 * `maxSpendRaw` counts over all tokens: it is meant for batches of one. Without a chain nothing
 * else limits.
 */
export function newSpending(parts: BatchParts, limits: SpendingLimits): Spending {
  const left = new Map<string, { readonly raw: bigint; readonly funds: Funds }>()
  let spentRaw = 0n
  let isOver = false
  const leftOf = async (
    chain: NonNullable<BatchParts['chain']>,
    token: Address,
    owner: Address,
  ) => {
    const known = left.get(`${owner} ${token}`)
    if (known !== undefined) return known
    const funds = await fundsOf(chain, parts.trust, await parts.journal.load(), owner, token)
    return { raw: funds.spendableRaw, funds }
  }
  return {
    limits,
    async take(token, owner, amountRaw) {
      // With `fit` the first rows are signed, not the small ones: what was left out is then easy to
      // say.
      if (
        isOver ||
        (limits.maxSpendRaw !== undefined && spentRaw + amountRaw > limits.maxSpendRaw)
      ) {
        isOver = limits.fit
        throw overSpend(limits, spentRaw + amountRaw)
      }
      if (parts.chain !== undefined) {
        const { raw, funds } = await leftOf(parts.chain, token, owner)
        if (amountRaw > raw) {
          isOver = limits.fit
          throw insufficient(limits, funds, amountRaw, raw)
        }
        left.set(`${owner} ${token}`, { raw: raw - amountRaw, funds })
      }
      spentRaw += amountRaw
    },
  }
}

const orShorter = ({ fit }: Pick<SpendingLimits, 'fit'>) =>
  fit
    ? ' or give a shorter batch'
    : ', give a shorter batch, or add --fit to sign the first rows that fit'

const overSpend = ({ maxSpendRaw, ...limits }: SpendingLimits, wouldRaw: bigint) =>
  new UsageError(
    'over_max_spend',
    `the batch would authorize ${wouldRaw}, ${maxSpendRaw === undefined ? 'which the wallet does not cover' : `--max-spend is ${maxSpendRaw}`}`,
    { hint: `raise --max-spend${orShorter(limits)}` },
  )

/** Names which of the two is the smaller: balance or allowance (spec §5). */
function insufficient(
  limits: SpendingLimits,
  { owner, token, balanceRaw, allowanceRaw }: Funds,
  neededRaw: bigint,
  leftRaw: bigint,
): UsageError {
  if (allowanceRaw < balanceRaw) {
    const detail = `${owner} lets Permit2 move ${allowanceRaw} of token ${token}, ${leftRaw} of it beside its open authorizations; ${neededRaw} is needed`
    const hint = `let Permit2 move more (\`proposer funds approve\`)${orShorter(limits)}`
    return new UsageError('insufficient_allowance', detail, { hint })
  }
  return new UsageError(
    'insufficient_funds',
    `${owner} has ${leftRaw} of token ${token} left beside its open authorizations; ${neededRaw} is needed`,
    { hint: `fund the wallet (\`proposer funds\`)${orShorter(limits)}` },
  )
}

/**
 * Before anything is signed: whether the sum of what has to be signed fits the limit and the
 * wallet; UsageError `over_max_spend`, `insufficient_funds`, `insufficient_allowance` (exit 2).
 * Looks at every row, so it is asked only where there is a limit, or a chain, which costs no
 * budget; and not with `fit`, where each row is judged as it comes. The sums, where it looked.
 */
export async function checkSpending(
  parts: BatchParts,
  rows: AsyncIterable<readonly BatchRow[]>,
  limits: SpendingLimits,
  signal?: AbortSignal,
): Promise<Totals> {
  if (limits.fit || (limits.maxSpendRaw === undefined && parts.chain === undefined))
    return new Map()
  const nowSeconds =
    parts.chain === undefined
      ? parts.ports.clock.nowMs() / 1_000
      : await chainNow(parts.chain, parts.trust, parts.ports.clock)
  const neededRaw = new Map<string, { owner: Address; token: Address; raw: bigint }>()
  const totals = new Map<string, bigint>()
  let totalRaw = 0n
  for await (const some of inGroups(rows, groupRows)) {
    for (const plan of await planRows(parts, some, {
      look: true,
      ...(signal === undefined ? {} : { signal }),
    })) {
      if (plan.kind !== 'sign') continue
      const raw = amountOf(plan, nowSeconds)
      const [owner, token] = [plan.intent.proposer, plan.context.bond.token]
      const before = neededRaw.get(`${owner} ${token}`)?.raw ?? 0n
      neededRaw.set(`${owner} ${token}`, { owner, token, raw: before + raw })
      if (raw > 0n) totals.set(token, (totals.get(token) ?? 0n) + raw)
      totalRaw += raw
    }
  }
  if (limits.maxSpendRaw !== undefined && totalRaw > limits.maxSpendRaw)
    throw overSpend(limits, totalRaw)
  if (parts.chain === undefined) return totals
  for (const { owner, token, raw } of neededRaw.values()) {
    const funds = await fundsOf(parts.chain, parts.trust, await parts.journal.load(), owner, token)
    if (raw > funds.spendableRaw) throw insufficient(limits, funds, raw, funds.spendableRaw)
  }
  return totals
}

/**
 * What a row will be signed for; what cannot be signed counts nothing and is told when its turn
 * comes.
 */
function amountOf(
  { intent, context }: Parameters<typeof checkedTerms>[0],
  nowSeconds: number,
): bigint {
  return checkedTerms({ intent, context }, nowSeconds)?.amountRaw ?? 0n
}

function checkedTerms(
  {
    intent,
    context,
  }: {
    readonly intent: Parameters<typeof checkTerms>[0]
    readonly context: Parameters<typeof checkTerms>[1]
  },
  nowSeconds: number,
) {
  try {
    return checkTerms(intent, context, nowSeconds)
  } catch (error) {
    if (error instanceof UsageError) return undefined
    throw error
  }
}

/** Rows looked at in one go: as many as a batch call has. */
const groupRows = 100

/** The same rows in groups of `size`, the last one smaller. */
export async function* inGroups<T>(
  rows: AsyncIterable<readonly T[]>,
  size: number,
): AsyncGenerator<readonly T[]> {
  let group: T[] = []
  for await (const some of rows) {
    for (const row of some) {
      group.push(row)
      if (group.length < size) continue
      yield group
      group = []
    }
  }
  if (group.length > 0) yield group
}

/**
 * So many contexts are kept between the look at the funds and the signing; more are asked for
 * again.
 */
const keptContexts = 2_000

/**
 * A source that hands each context out twice: once to count, once to sign, for the budget of one.
 * Errors are asked for again.
 */
export function rememberingContexts(source: ContextSource): ContextSource {
  const kept = new Map<string, ContextResult>()
  return {
    async contexts(identifiers, options) {
      const asked = identifiers.filter((one) => !kept.has(one))
      const answers = new Map(
        (asked.length === 0 ? [] : await source.contexts(asked, options)).map((one) => [
          one.identifier,
          one,
        ]),
      )
      return identifiers.flatMap((identifier) => {
        const before = kept.get(identifier)
        kept.delete(identifier)
        if (before !== undefined) return before
        const answer = answers.get(identifier)
        if (answer?.context !== undefined && kept.size < keptContexts) kept.set(identifier, answer)
        return answer ?? []
      })
    },
  }
}
