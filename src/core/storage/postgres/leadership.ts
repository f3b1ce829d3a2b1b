/**
 * Which of several gateways executes: a lease in the row `head`, with an epoch that fences off
 * earlier holders. Only the database's clock ends a lease; a leader trusts it a second less.
 */
import { type Clock, type Random, SqlError } from '#ports'
import { StorageError } from '#protocol/errors'
import { leaseIsFree } from './log-state.js'
import { type Queries, unlessUnreachable } from './session.js'
import type { SharedLog } from './shared-log.js'

const termMs = 10_000
const marginMs = 1_000
const renewMs = 3_000
const lookMs = 500
const restMs = 5_000

export interface LeadershipParts {
  readonly clock: Clock
  readonly random: Random
  readonly log: SharedLog
  readonly id: string
  /** Sends nothing itself: it leads only while no gateway with an executor is there. */
  readonly standsBack: boolean
  readonly obstacle: () => string | undefined
  readonly hasFailed: () => string | undefined
  readonly onGained: (epoch: number) => void
  readonly onLost: (reason: string) => Promise<void>
}

export type Leadership = ReturnType<typeof startLeadership>

interface State extends LeadershipParts {
  epoch: number | undefined
  trustedUntilMs: number
  notBeforeMs: number
  blocked: string | undefined
  readonly stopping: AbortController
}

export function startLeadership(parts: LeadershipParts) {
  const state: State = {
    ...parts,
    epoch: undefined,
    trustedUntilMs: 0,
    notBeforeMs: 0,
    blocked: undefined,
    stopping: new AbortController(),
  }
  const loop = run(state)
  return {
    get epoch() {
      return state.epoch
    },
    get obstacle() {
      return state.blocked
    },
    async fence() {
      if (!isTrusted(state))
        throw new StorageError('store_fenced', 'the lease of this gateway has ended', {
          httpStatus: 503,
          hint: 'nothing was sent; the leading gateway continues',
        })
    },
    async stop() {
      state.stopping.abort()
      await loop
      await resign(state, 'the gateway is shutting down')
    },
  }
}

const isTrusted = ({ epoch, trustedUntilMs, clock }: State) =>
  epoch !== undefined && clock.monotonicMs() < trustedUntilMs

async function run(state: State) {
  const { clock, stopping } = state
  while (!stopping.signal.aborted) {
    try {
      const failure = state.epoch === undefined ? undefined : await failureOf(state)
      if (failure !== undefined) await resign(state, failure)
      else await (state.epoch === undefined ? take(state) : renew(state, state.epoch))
    } catch (error) {
      if (!(error instanceof StorageError) && !(error instanceof SqlError)) throw error
      // The database is away: the lease stands for as long as it is trusted.
    }
    if (state.epoch !== undefined && !isTrusted(state))
      await lose(state, 'the lease could not be renewed')
    await clock
      .sleep(state.epoch === undefined ? lookMs : renewMs, stopping.signal)
      .catch(() => undefined)
  }
}

const failureOf = async (state: State) =>
  state.hasFailed() ??
  ((await mustStandBack(state)) ? 'a gateway with an executor is available' : undefined)

async function take(state: State) {
  const { log, clock, id } = state
  state.blocked = state.obstacle()
  if (state.blocked !== undefined || clock.monotonicMs() < state.notBeforeMs) return
  if (await mustStandBack(state)) return
  const [seen] = await log.ask(
    `SELECT ${leaseIsFree} OR holder = $1 AS is_free FROM proposer.head`,
    [id],
  )
  if (seen?.is_free !== true) return
  const startMs = clock.monotonicMs()
  let epoch: number | undefined
  await log.transact((head) => {
    epoch = head.isFree || head.holder === id ? head.epoch + 1 : undefined
    return epoch === undefined
      ? undefined
      : {
          records: [{ kind: 'leader.elected', data: { gateway: id, epoch } }],
          head: `epoch = ${epoch}, holder = '${id}', lease_until = ${leaseEnd}`,
        }
  })
  if (epoch === undefined) return
  await log.catchUp()
  // Others may have written slots meanwhile.
  state.blocked = state.obstacle()
  state.epoch = epoch
  state.trustedUntilMs = startMs + termMs - marginMs
  if (state.blocked === undefined && isTrusted(state)) state.onGained(epoch)
  else await resign(state, state.blocked ?? 'the lease was acquired too late')
}

/** Another gateway could send, and this one cannot. */
async function mustStandBack({ standsBack, log }: State) {
  if (!standsBack) return false
  const [other] = await log.ask(
    `SELECT EXISTS (SELECT 1 FROM proposer.gateway
       WHERE executor IS NOT NULL AND seen_at > clock_timestamp() - interval '${termMs} ms') AS found`,
  )
  return other?.found === true
}

const leaseEnd = `clock_timestamp() + interval '${termMs} ms'`

async function renew(state: State, epoch: number) {
  const { log, clock, id } = state
  const startMs = clock.monotonicMs()
  const rows = await log.ask(
    `UPDATE proposer.head SET lease_until = ${leaseEnd} WHERE epoch = $1 AND holder = $2 RETURNING n`,
    [epoch, id],
  )
  if (rows.length === 0) await lose(state, 'another gateway leads')
  else state.trustedUntilMs = startMs + termMs - marginMs
}

async function lose(state: State, reason: string) {
  state.trustedUntilMs = 0
  state.notBeforeMs = state.clock.monotonicMs() + restMs
  await state.onLost(reason)
  state.epoch = undefined
}

async function resign(state: State, reason: string) {
  const { epoch, log, id } = state
  if (epoch === undefined) return
  await lose(state, reason)
  const freed = `UPDATE proposer.head SET holder = NULL, lease_until = clock_timestamp()
    WHERE epoch = $1 AND holder = $2`
  // Without the database the lease ends by itself.
  await log.ask(freed, [epoch, id]).catch(unlessUnreachable)
}

export interface Lease {
  readonly n: number
  readonly epoch: number
  readonly leader: string | undefined
  readonly endsInMs: number
}

export async function leaseOf({ ask }: Pick<Queries, 'ask'>): Promise<Lease> {
  const [row] = await ask(
    `SELECT n, epoch, holder, ${leaseIsFree} AS is_free,
            extract(epoch FROM lease_until - clock_timestamp()) * 1000 AS ends_in_ms
       FROM proposer.head WHERE id = 1`,
  )
  const leader = typeof row?.holder === 'string' && row.is_free !== true ? row.holder : undefined
  return {
    n: Number(row?.n),
    epoch: Number(row?.epoch),
    leader,
    endsInMs: leader === undefined ? 0 : Math.trunc(Number(row?.ends_in_ms)),
  }
}

export interface LeaseEnd {
  readonly leader: string
  readonly reason: string
  readonly by: string | undefined
  readonly clock: Pick<Clock, 'nowMs'>
  readonly random: Pick<Random, 'uuid'>
}

/**
 * `leader` is fenced off, and another takes over. `false` where that gateway does not lead any
 * more.
 */
export async function endLease(
  { ask }: Pick<Queries, 'ask'>,
  { leader, reason, by, clock, random }: LeaseEnd,
) {
  // One statement: the row is locked and looked at again before it is written.
  const [row] = await ask(
    `WITH ended AS (
       UPDATE proposer.head
          SET n = n + 1, epoch = epoch + 1, holder = NULL, lease_until = clock_timestamp()
        WHERE id = 1 AND holder = $1 AND NOT ${leaseIsFree}
       RETURNING n, epoch)
     INSERT INTO proposer.record (n, grp, k, t, d)
     SELECT n, $2::uuid, 'leader.resigned', $3::bigint,
            json_strip_nulls(json_build_object(
              'gateway', $4::text, 'epoch', epoch - 1, 'reason', $5::text, 'by', $6::text))
       FROM ended RETURNING n`,
    [leader, random.uuid(), Math.trunc(clock.nowMs()), leader, reason, by ?? null],
  )
  return row !== undefined
}
