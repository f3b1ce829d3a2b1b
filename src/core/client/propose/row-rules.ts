import { onChain } from '../../chain/unavailable.js'
import { pinnedHeads } from '../funds/funds.js'
import type { BatchParts, ToImport, ToSign } from './plan.js'
import {
  acknowledgedOf,
  RulesChangedError,
  type RulesStanding,
  requireRules,
  rulesStanding,
  toldBy,
} from './rules.js'

export type RowRules = ReadonlyMap<ToSign | ToImport, RulesStanding | RulesChangedError>

/**
 * All at one block, for one may have come since the contexts were read. Without the journal's
 * lock: a
 * person may take a minute.
 */
export async function rulesOfRows(
  { chain, trust, journal, askRules }: BatchParts,
  group: readonly (ToSign | ToImport)[],
): Promise<RowRules> {
  const rows = group.flatMap((one) =>
    one.kind === 'sign' && one.rules !== undefined ? [{ one, read: one.rules }] : [],
  )
  const found = new Map<ToSign, RulesStanding | RulesChangedError>()
  if (chain === undefined || rows.length === 0) return found
  const [{ readRules }, { latest }] = await Promise.all([
    import('../../chain/rules.js'),
    pinnedHeads(chain, trust),
  ])
  const view = await journal.load()
  const rules = await onChain(() =>
    Promise.all(rows.map(({ read }) => readRules(chain, read.question, latest.number))),
  )
  for (const [at, { one, read }] of rows.entries()) {
    const now = rules[at]
    if (now === undefined) continue
    const { intent, context } = one
    const seen = acknowledgedOf(view, context)
    const standing = rulesStanding(now, intent, seen, toldBy(read))
    found.set(one, await orChanged(intent.identifier, standing, askRules))
  }
  return found
}

async function orChanged(
  identifier: string,
  standing: RulesStanding,
  ask: BatchParts['askRules'],
): Promise<RulesStanding | RulesChangedError> {
  try {
    await requireRules(identifier, standing, ask)
    return standing
  } catch (error) {
    if (error instanceof RulesChangedError) return error
    throw error
  }
}
