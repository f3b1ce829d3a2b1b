import type { Clock } from '#ports'
import { schemaVersion } from './schema.js'
import { unlessUnreachable } from './session.js'
import type { SharedLog } from './shared-log.js'

const beatMs = 3_000

export interface Member {
  readonly id: string
  readonly version: string
  readonly host: string
  readonly adminUrl: string | undefined
  readonly executor: string | undefined
  readonly budget?: MemberBudget | undefined
}

export interface MemberBudget {
  readonly windowMs: number
  readonly perClientItems: number
  readonly globalItems: number
}

/** Kept with the version, as build metadata: the tables need no other form for a warning. */
const budgetMark = '+budget.'
const budgetText = (budget: MemberBudget | undefined) =>
  budget === undefined
    ? ''
    : `${budgetMark}${budget.windowMs}.${budget.perClientItems}.${budget.globalItems}`
function budgetOf(text: string | undefined) {
  const [windowMs, perClientItems, globalItems] = (text ?? '').split('.').map(Number)
  if (windowMs === undefined || perClientItems === undefined || globalItems === undefined)
    return undefined
  return { windowMs, perClientItems, globalItems }
}

/** Of those that share the windows now, one whose limits are others. */
export const otherBudget = (
  members: readonly SeenMember[],
  own: MemberBudget,
): MemberBudget | undefined =>
  members.find((one) => one.budget && !isGone(one) && budgetText(one.budget) !== budgetText(own))
    ?.budget

export interface SeenMember extends Member {
  readonly format: number
  readonly startedAtMs: number
  readonly seenMsAgo: number
  readonly lag: number
  readonly isLeader: boolean
}

export const isGone = ({ seenMsAgo }: SeenMember) => seenMsAgo > 30_000

export async function joinStore({ clock, log }: { clock: Clock; log: SharedLog }, member: Member) {
  let adminUrl = member.adminUrl
  const stopping = new AbortController()
  const beat = () =>
    log.ask(
      `INSERT INTO proposer.gateway AS g
         (id, version, format, host, admin_url, executor, started_at, seen_at, applied_n)
       VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp(), clock_timestamp(), $7)
       ON CONFLICT (id) DO UPDATE SET
         admin_url = EXCLUDED.admin_url, seen_at = EXCLUDED.seen_at, applied_n = EXCLUDED.applied_n`,
      [
        member.id,
        `${member.version}${budgetText(member.budget)}`,
        schemaVersion,
        member.host,
        adminUrl ?? null,
        member.executor ?? null,
        log.applied,
      ],
    )
  await log.ask(
    "DELETE FROM proposer.gateway WHERE seen_at < clock_timestamp() - interval '1 hour'",
  )
  await beat()
  const loop = (async () => {
    while (!stopping.signal.aborted) {
      await clock.sleep(beatMs, stopping.signal).catch(() => undefined)
      if (!stopping.signal.aborted) await beat().catch(unlessUnreachable)
    }
  })()
  return {
    async setAdminUrl(url: string | undefined) {
      adminUrl = url
      await beat()
    },
    async stop() {
      stopping.abort()
      await loop
      await log
        .ask('DELETE FROM proposer.gateway WHERE id = $1', [member.id])
        .catch(unlessUnreachable)
    },
  }
}

export async function membersOf(log: Pick<SharedLog, 'ask'>): Promise<readonly SeenMember[]> {
  const rows = await log.ask(
    `SELECT g.*, extract(epoch FROM g.started_at) * 1000 AS started_ms,
            extract(epoch FROM clock_timestamp() - g.seen_at) * 1000 AS seen_ms_ago,
            greatest(h.n - g.applied_n, 0) AS lag,
            coalesce(h.holder = g.id AND h.lease_until > clock_timestamp(), false) AS is_leader
       FROM proposer.gateway g, proposer.head h ORDER BY is_leader DESC, g.started_at`,
  )
  const textOf = (value: unknown) => (typeof value === 'string' ? value : undefined)
  return rows.map((row) => {
    const [version = '', budget] = String(row.version).split(budgetMark)
    return {
      id: String(row.id),
      version,
      budget: budgetOf(budget),
      format: Number(row.format),
      host: String(row.host),
      adminUrl: textOf(row.admin_url),
      executor: textOf(row.executor),
      startedAtMs: Math.trunc(Number(row.started_ms)),
      seenMsAgo: Math.max(0, Math.trunc(Number(row.seen_ms_ago))),
      lag: Number(row.lag),
      isLeader: row.is_leader === true,
    }
  })
}
