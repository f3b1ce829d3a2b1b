/** The rate limits of several gateways on one store, which are one (contract §9). */
import type { SharedWindows } from '../../storage/postgres/windows.js'
import { type Budget, type BudgetLimits, chargeOf } from './budget.js'

/** A budget whose windows lie in the store. */
export function sharedBudget(
  limits: BudgetLimits,
  windows: SharedWindows,
  nowMs: () => number,
): Budget {
  /** The window of all clients as the last charge left it. */
  let everyone = { spentItems: 0, endsAtMs: 0 }
  const clients = new Set<string>()
  const endsInMs = (atMs: number) => Math.max(0, everyone.endsAtMs - atMs)
  return {
    async charge(client, items) {
      const charged = await windows.charge(client, items)
      const endsAtMs = nowMs() + charged.everyone.endsInMs
      if (endsAtMs > everyone.endsAtMs + limits.windowMs / 2) clients.clear()
      clients.add(client)
      everyone = { spentItems: charged.everyone.spentItems, endsAtMs }
      return { ...chargeOf(limits, charged.own, charged.everyone), logEnd: charged.end }
    },
    // Nothing is known before the store was asked.
    spent: () => false,
    spentByAll: (atMs) => (endsInMs(atMs) > 0 ? everyone.spentItems : 0),
    endsInMs,
    get clients() {
      return clients.size
    },
  }
}
