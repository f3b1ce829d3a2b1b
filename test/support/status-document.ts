import type { StatusDocument } from '#protocol/status-document'

const stage = { count: 0, oldest_seconds: 0 }

/** Of a gateway that has nothing to do. */
export const quietStatus: StatusDocument = {
  version: '0.0.0',
  started_at: '2026-11-20T05:38:00.000Z',
  explorer: null,
  executor_address: null,
  paused: null,
  url: null,
  ready: true,
  reasons: [],
  admission_enabled: true,
  queue: { received: stage, validated: stage, selected: stage },
  budget: {
    window_seconds: 60,
    global_items: 1,
    per_ip_items: 1,
    spent_items: 0,
    window_ends_at: null,
    clients: 0,
  },
  last_minute: { fine: 0, refused: 0, limited: 0, failed: 0, admitted: 0 },
  chain: {
    id: 137,
    head: null,
    head_age_seconds: null,
    max_head_age_seconds: 30,
    questions_known: 3,
    questions_due: 1,
    changed_contracts: 0,
    oracles: [],
  },
  nodes: [],
  executor: null,
  store: { full: false, failed: false },
  ceilings: {},
  wallets: [],
  admin_url: null,
  changes: [],
}
