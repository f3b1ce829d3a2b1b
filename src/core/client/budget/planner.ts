/** The budget that all processes of this machine share at one gateway (§8; contract §7). */
import pLimit from 'p-limit'
import * as z from 'zod/mini'
import type { Files, Ports } from '#ports'
import { jsonOf } from '#protocol/capped'
import { StorageError, UnavailableError, UsageError } from '#protocol/errors'
import { objectOf } from '#protocol/json'
import { limits } from '#protocol/words'
import { ifThere, joinPath, namesIn, removeIfThere, withFile, writeAll } from '#storage/durable'
import { errorCode } from '#storage/failures'
import { holderText, type LockPorts, readHolder, waitForLock } from '#storage/lock'
import { type Answer, anySignal, classifyFailure, maxRetryAfterMs } from '../gateway/answer.js'
import type { CallOptions, GatewayClient } from '../gateway/gateway-client.js'
import type { Results } from '../gateway/reading.js'
import {
  afterCall,
  type CallResult,
  ChargeLog,
  compacted,
  decide,
  emptyLog,
  ofThisBoot,
  released,
  viewOf,
} from './window.js'

type BudgetPorts = LockPorts & Pick<Ports, 'clock' | 'hash'>

interface ReserveOptions extends CallOptions {
  readonly min?: number
  /** Where the wait would be longer: UnavailableError `budget_spent` (75) at once. */
  readonly timeoutMs?: number | undefined
}

export type Planner = ReturnType<typeof createPlanner>
type Reservation = Awaited<ReturnType<Planner['reserve']>>

export interface PlannerOptions {
  readonly onWait?: (ms: number, reason: string) => void
  readonly onNote?: (text: string) => void
}

/** A reservation may have been released. */
const longestSleepMs = 5_000
const [pollMs, notedMs] = [50, 1_000]

export function createPlanner(
  ports: BudgetPorts,
  home: string,
  origin: string,
  options: PlannerOptions = {},
) {
  const { clock, random } = ports
  const shared = openChargeLog(ports, home, origin, options.onNote)
  // It charges nothing (contract §6).
  const isFree = origin.startsWith('local:')
  /** Of a gateway that tells no limit nobody knows better. */
  let refusalText: string | undefined

  return {
    snapshot: async () =>
      isFree ? viewOf(emptyLog('', 0), 0) : viewOf(await shared.read(), clock.monotonicMs()),
    /** Until between `min` and `items` fit. `settle` without a result: the call never left. */
    async reserve(
      items: number,
      { min = items, signal, timeoutMs = Infinity }: ReserveOptions = {},
    ) {
      if (isFree) return { granted: items, settle: async (_result?: CallResult) => undefined }
      const id = random.uuid()
      const ask = { id, wantItems: items, minItems: Math.max(1, Math.min(min, items)) }
      const giveUpMs = clock.monotonicMs() + timeoutMs
      let notedUntilMs = 0
      for (;;) {
        // Who waits leaves the lock to those with an answer.
        const log = await shared.read()
        const decision = decide(log, ask, Math.floor(clock.monotonicMs()))
        if (decision.kind === 'granted') {
          const { charges } = await shared.update((now, nowMs) => {
            const again = decide(now, ask, nowMs)
            return again.kind === 'granted' ? again.log : now
          })
          const own = charges.find((charge) => charge.id === id)
          if (!own) continue
          return {
            granted: own.items,
            settle(result?: CallResult) {
              if (!result) return shared.update((now) => released(now, id))
              if (result.httpStatus === 429) refusalText = result.detail
              const jitter = (random.bytes(1)[0] ?? 0) / 256
              return shared.update((now, nowMs) => afterCall(now, id, result, nowMs, jitter))
            },
          }
        }
        // What need not wait is the call's own to stop.
        signal?.throwIfAborted()
        const nowMs = clock.monotonicMs()
        const { untilMs } = decision
        const waitMs = untilMs === null ? pollMs : untilMs - nowMs
        const reason = (log.source === 'assumed' && refusalText) || reasonOf(log, nowMs)
        if (nowMs + waitMs > giveUpMs) throw budgetSpent(untilMs, waitMs, reason)
        if (untilMs !== null && waitMs > notedMs && Math.abs(untilMs - notedUntilMs) > notedMs) {
          notedUntilMs = untilMs
          options.onWait?.(waitMs, reason)
        }
        await clock.sleep(Math.max(1, Math.min(waitMs, longestSleepMs)), signal)
      }
    },
  }
}

function reasonOf(log: ChargeLog, nowMs: number) {
  const { limitItems, windowMs, source, blockedUntilMs } = log
  const budget = `${limitItems} items per ${windowMs / 1_000} s`
  if (source === 'assumed') return `the gateway tells no limit; ${budget} are tried`
  const spent = nowMs < blockedUntilMs ? limitItems : viewOf(log, nowMs).spentItems
  return `${budget}, ${spent} spent`
}

function budgetSpent(untilMs: number | null, waitMs: number, reason: string) {
  const seconds = Math.max(1, Math.ceil(waitMs / 1_000))
  // Without an instant the wait is for a response, not for the window.
  const detail =
    untilMs === null
      ? `rate limit unknown until a request in flight is answered (${reason})`
      : `rate limit reached (${reason}); next request in ${seconds} seconds`
  const hint = 'retry then, or raise --timeout'
  return new UnavailableError('budget_spent', detail, { retryAfterMs: seconds * 1_000, hint })
}

/** Not synced: what is lost is learned again. No fault of the disk stops a submission. */
function openChargeLog(
  ports: BudgetPorts,
  home: string,
  origin: string,
  onNote?: (text: string) => void,
) {
  const { clock, files } = ports
  const { bootId } = ports.liveness
  const folder = `${home}/budget/${ports.hash.sha256(origin).slice(0, 16)}`
  const path = joinPath(folder, 'log.json')
  const oneAtATime = pLimit(1)
  let alone: ChargeLog | undefined
  /** Looked for once. */
  let earlier: readonly string[] | undefined

  const nowMs = () => Math.floor(clock.monotonicMs())
  const empty = () => emptyLog(bootId, nowMs())

  async function kept() {
    earlier ??= await earlierFiles(ports, home, folder)
    const { data } = ChargeLog.safeParse(await jsonIn(files, path))
    if (data) return data
    const counted = await jsonIn(files, joinPath(folder, earlier[0] ?? 's.0'))
    return ofEarlier(counted, empty(), clock.nowMs())
  }

  async function publish(log: ChargeLog) {
    const temporary = `${path}.tmp`
    await removeIfThere(files, temporary)
    const bytes = new TextEncoder().encode(JSON.stringify(log))
    await withFile(files, temporary, 'exclusive', (handle) => writeAll(handle, bytes))
    await files.rename(temporary, path)
    for (const name of earlier ?? []) await removeIfThere(files, joinPath(folder, name))
    earlier = []
  }

  function goAlone(error: unknown) {
    const code = errorCode(error instanceof StorageError ? error.cause : error)
    if (code === undefined || error instanceof UsageError) throw error
    if (!alone)
      onNote?.(
        `the shared rate-limit state cannot be written (${code}); other processes of this machine are not counted`,
      )
    alone ??= empty()
    return alone
  }

  /** What gives back the log that is kept writes nothing. */
  const update = (change: (log: ChargeLog, nowMs: number) => ChargeLog) =>
    oneAtATime(async () => {
      try {
        if (!alone) {
          const patience = { brief: true, waitMs: 10_000, pauseMs: [1, 8] } as const
          const lock = await waitForLock(ports, folder, 'budget', patience)
          try {
            const before = await kept()
            const atMs = nowMs()
            const log = change(ofThisBoot(before, bootId, atMs), atMs)
            if (log !== before) await publish(compacted(log, atMs))
            return log
          } finally {
            await lock.release()
          }
        }
      } catch (error) {
        goAlone(error)
      }
      alone = compacted(change(alone ?? empty(), nowMs()), nowMs())
      return alone
    })

  async function read() {
    if (alone) return alone
    try {
      const log = await kept()
      // Dated anew by each reader, what it counts would never end.
      return ofThisBoot(log, bootId, nowMs()) === log ? log : await update((dated) => dated)
    } catch (error) {
      return goAlone(error)
    }
  }

  return { read, update }
}

/** The first line: 0.2 wrote a sum behind it. */
async function jsonIn(files: Files, path: string) {
  const bytes = await ifThere(files.read(path))
  return bytes && jsonOf(new TextDecoder().decode(bytes).split('\n')[0] ?? '')
}

/** Of 0.2, newest first; no process of it may go on. */
async function earlierFiles(ports: BudgetPorts, home: string, folder: string) {
  const numberOf = (name: string) => Number(/^s\.([1-9]\d{0,14})$/.exec(name)?.[1] ?? 0)
  const names = (await namesIn(ports.files, folder)).filter((name) => numberOf(name) > 0)
  const journal = joinPath(home, 'journal')
  for (const run of names.length > 0 ? await namesIn(ports.files, journal) : []) {
    const holder = await readHolder(ports, joinPath(journal, run))
    if (holder?.state !== 'alive' || holder.layout !== undefined) continue
    throw new StorageError(
      'home_in_use',
      `${home} is in use by ${holderText(holder)}, of an older version of proposer`,
      'wait until that process is done, or stop it, then retry',
    )
  }
  return names.sort((a, b) => numberOf(b) - numberOf(a))
}

const { limitItems, windowMs } = ChargeLog.shape
/** `endsByMs`: by the wall clock. */
const View = z.object({
  limitItems,
  assumed: z.boolean(),
  upperItems: z.int(),
  endsByMs: z.nullable(z.number()),
})
const Earlier = z.object({
  state: z.object({ windowMs, views: z.array(View).check(z.minLength(1)) }),
})

function ofEarlier(json: unknown, empty: ChargeLog, wallMs: number): ChargeLog {
  const { data } = Earlier.safeParse(json)
  if (!data) return empty
  const { views, windowMs } = data.state
  const open = views.filter(({ endsByMs }) => (endsByMs ?? Infinity) > wallMs)
  const items = Math.max(0, ...open.map(({ upperItems }) => upperItems))
  const { writtenMs: sentMs } = empty
  return {
    ...empty,
    windowMs,
    changedMs: sentMs,
    limitItems: Math.min(...views.map((view) => view.limitItems)),
    source: views.some(({ assumed }) => assumed) ? 'assumed' : 'told',
    charges: [{ id: '', items, sentMs, endMs: sentMs }],
  }
}

/** Its signal ends a wait for the budget too. */
interface BudgetOptions extends CallOptions {
  readonly leftMs?: () => number | undefined
}

/** After a 429; a submission's repetition is journaled. */
const readTries = 3

type Options = CallOptions | undefined
type Call<T, Part = number> = (part: Part) => Promise<Answer<T>>

/** A later call, or one with fewer items, may be sent. */
function unsent(error: unknown, signal: AbortSignal) {
  const isSpent = error instanceof UnavailableError && error.code === 'budget_spent'
  if (isSpent || error instanceof UsageError) {
    const { code, detail, meta } = error
    return { kind: 'deferred', code, detail, retryAfterMs: meta.retryAfterMs } as const
  }
  if (signal.aborted) return classifyFailure(error, signal)
  throw error
}

export type BudgetedClient = ReturnType<typeof withBudget>

/** Lists that are only read are split, a body is not. */
export function withBudget(client: GatewayClient, planner: Planner, budget: BudgetOptions = {}) {
  let kept: Reservation | undefined
  async function giveBack() {
    const earlier = kept
    kept = undefined
    await earlier?.settle()
  }
  async function reserve(items: number, min: number, signal: AbortSignal) {
    await giveBack()
    return planner.reserve(items, { min, signal, timeoutMs: budget.leftMs?.() })
  }

  async function send<T>(items: number, options: Options, call: Call<T>, min = items) {
    const signal = anySignal(options?.signal, budget.signal)
    const reservation = await reserve(items, min, signal).catch((error) => unsent(error, signal))
    if ('kind' in reservation) return reservation
    try {
      const answer = await call(reservation.granted)
      const isUnsent = answer.kind === 'deferred' && answer.httpStatus === undefined
      await reservation.settle(isUnsent ? undefined : answer)
      return answer
    } catch (error) {
      await reservation.settle()
      throw error
    }
  }

  async function read<T>(items: number, options: Options, call: Call<T>) {
    let [tries, leastItems] = [readTries, items]
    const counting = (granted: number) => {
      // A smaller call than any before is not the same in vain.
      if (granted < leastItems) [leastItems, tries] = [granted, readTries]
      return call(granted)
    }
    for (;;) {
      const answer = await send(items, options, counting, 1)
      const isLater = 'retryAfterMs' in answer && (answer.retryAfterMs ?? 0) <= maxRetryAfterMs
      if (--tries <= 0 || answer.httpStatus !== 429 || !isLater) return answer
    }
  }

  async function readAll<Item>(
    list: readonly string[],
    options: Options,
    call: Call<Results<Item>, readonly string[]>,
  ) {
    if (list.length === 0 || list.length > limits.batchItems) return call(list)
    const results: Item[] = []
    for (;;) {
      const rest = list.slice(results.length)
      let asked = rest
      const answer = await read(rest.length, options, (granted) => {
        asked = rest.slice(0, granted)
        return call(asked)
      })
      if (answer.kind !== 'accepted') return answer
      results.push(...answer.value.results)
      // Behind a response that left items out nothing could be put in order.
      if (answer.value.results.length !== asked.length || results.length >= list.length)
        return { ...answer, value: { results } }
    }
  }

  const calls: GatewayClient = {
    origin: client.origin,
    eligibility: (address, options) => read(1, options, () => client.eligibility(address, options)),
    signingData: (identifier, body, options) =>
      read(1, options, () => client.signingData(identifier, body, options)),
    status: (identifier, candidateId, options) =>
      read(1, options, () => client.status(identifier, candidateId, options)),
    contexts: (identifiers, options) =>
      readAll(identifiers, options, (part) => client.contexts(part, options)),
    statuses: (candidateIds, options) =>
      readAll(candidateIds, options, (part) => client.statuses(part, options)),
    submit: (identifier, body, options) =>
      send(1, options, () => client.submit(identifier, body, options)),
    submitBatch: (body, options) =>
      send(itemsIn(body), options, () => client.submitBatch(body, options)),
  }
  return Object.assign(calls, {
    /** How many items the next call may hold; kept until then. */
    async chunkSize(wantItems: number, options?: CallOptions) {
      const signal = anySignal(options?.signal, budget.signal)
      kept = await reserve(Math.min(wantItems, limits.batchItems), 1, signal)
      return kept.granted
    },
    close: giveBack,
  })
}

/** Contract §2: charged by its entries, and 1 where they cannot be counted. */
function itemsIn(body: string) {
  const { proposals } = objectOf(jsonOf(body)) ?? {}
  return Array.isArray(proposals) ? Math.max(1, proposals.length) : 1
}
