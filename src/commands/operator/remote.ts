/**
 * Acts by the admin listener of a serving gateway (contract §6). Loopback only, by the URL that the
 * store's lock names.
 */
import * as z from 'zod/mini'
import { type ActName, type ActResult, leaderResignName } from '../../core/gateway/operator/acts.js'
import { proofPath, readAdminToken, tokenProof } from '../../core/io/serving/admin-token.js'
import { TransportError } from '../../core/ports.js'
import {
  ConflictError,
  type ProposerError,
  RejectedError,
  StorageError,
  UnauthorizedError,
  UnavailableError,
  UncertainError,
} from '../../core/protocol/errors.js'
import { networkFault } from '../../core/protocol/network-words.js'
import { hexOf } from '../../core/storage/durable.js'
import type { Context } from '../terminal/context.js'

const Names = z.array(z.string())
const Result = z.object({
  changed: Names,
  unchanged: Names,
  reason: z.string(),
  by: z.optional(z.string()),
  notes: Names,
  bytes: z.optional(z.object({ before: z.number(), after: z.number() })),
})
const Resigned = z.object({ resigned: z.boolean() })
const Refused = z.object({
  error: z.object({ code: z.string(), detail: z.string(), hint: z.optional(z.string()) }),
})

export interface RemoteAct {
  readonly url: string
  /** The file with the admin token. */
  readonly tokenFile: string
  readonly name: ActName
  readonly body: object
  /**
   * No answer by then: it is not known whether the act was done. `undefined` waits as long as the
   * connection lives.
   */
  readonly timeoutMs: number | undefined
}

/**
 * Sends an act; `undefined` where nobody listens any more. Rejects with RejectedError (3) for a
 * refusal, UnauthorizedError (4) for a wrong token, UnavailableError (75) for 503, UncertainError
 * (6) where no answer came. Acts may be repeated: what is as requested stays.
 */
export async function postAct(
  context: Context,
  { name, ...call }: RemoteAct,
): Promise<ActResult | undefined> {
  const answer = await postOperator(context, { ...call, name })
  if (answer === undefined) return undefined
  const parsed = Result.safeParse(answer)
  if (!parsed.success) throw uncertain('the gateway returned an unexpected response')
  const { bytes, ...result } = parsed.data
  return { act: name, ...result, ...(bytes && { bytes }) }
}

/** Asks the leader on this machine to give up its lease; otherwise as `postAct`. */
export async function postResign(
  context: Context,
  call: Omit<RemoteAct, 'name'>,
): Promise<boolean | undefined> {
  const answer = await postOperator(context, { ...call, name: leaderResignName })
  if (answer === undefined) return undefined
  const parsed = Resigned.safeParse(answer)
  if (!parsed.success) throw uncertain('the gateway returned an unexpected response')
  return parsed.data.resigned
}

/** The body of an answer with 200; `undefined` where nobody listens any more. */
async function postOperator(
  context: Context,
  { url, tokenFile, name, body, timeoutMs }: Omit<RemoteAct, 'name'> & { readonly name: string },
): Promise<unknown> {
  const token = await readAdminToken(tokenFile)
  if (!(await isProven(context, url, token, timeoutMs))) return undefined
  const init = {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
    body: JSON.stringify(body),
  }
  const answer = await exchange(context, `${url}/operator/${name}`, init, timeoutMs)
  if (answer === undefined) return undefined
  if ('missing' in answer) throw uncertain(answer.missing, answer.cause)
  if (answer.status !== 200) throw refusalOf(answer)
  return answer.body
}

/**
 * Whoever has taken the port of a gateway that is down is shown no token, and believed nothing.
 * `false` where nobody listens. Rejects with UnauthorizedError (4) where the token is not known
 * there, and as `getAdmin`.
 */
async function isProven(
  context: Context,
  url: string,
  token: string,
  timeoutMs: number | undefined,
): Promise<boolean> {
  const nonce = hexOf(context.random.bytes(32))
  const statuses = [200, 404]
  const answer = await getAdmin(context, `${url}${proofPath}${nonce}`, { timeoutMs, statuses })
  if (answer === undefined) return false
  const { host, port } = new URL(url)
  const parsed = z.object({ proof: z.string() }).safeParse(answer)
  if (parsed.success && parsed.data.proof === tokenProof(token, Number(port), nonce)) return true
  throw new UnauthorizedError(
    'unauthorized',
    `what listens on ${host} does not know the token of this store: nothing was sent to it`,
    {
      hint: 'where admin.token was changed after the gateway had started, or the gateway is of an earlier version, restart it; else another program has taken its port',
    },
  )
}

/**
 * A GET of the admin listener: the body of an answer with one of `statuses`; `undefined` where
 * nobody listens. Rejects with UnavailableError (75) where no such answer came: nothing is changed
 * by looking.
 */
export async function getAdmin(
  context: Context,
  url: string,
  {
    timeoutMs = lookMs,
    statuses = [200],
  }: { readonly timeoutMs?: number | undefined; readonly statuses?: readonly number[] },
): Promise<unknown> {
  const answer = await exchange(context, url, { method: 'GET' }, timeoutMs)
  if (answer === undefined) return undefined
  if ('missing' in answer) throw unanswered(answer.missing, answer.cause)
  if (!statuses.includes(answer.status))
    throw unanswered(`the gateway answered ${answer.status} to ${new URL(url).pathname}`)
  return answer.body
}

/** Looks are answered from memory. */
const lookMs = 10_000

function unanswered(detail: string, cause?: unknown): UnavailableError {
  return new UnavailableError('gateway_unanswered', detail, {
    cause,
    retryable: true,
    hint: "check the gateway's process and log, then retry, or raise --timeout",
  })
}

interface Answer {
  readonly status: number
  readonly body: unknown
}

/** What was sent may have come to its end all the same. */
interface NoAnswer {
  readonly missing: string
  readonly cause: unknown
}

async function exchange(
  { clock, edges, signal }: Context,
  url: string,
  init: RequestInit,
  timeoutMs: number | undefined,
): Promise<Answer | NoAnswer | undefined> {
  const fetch = await edges.fetch()
  const place = `gateway ${new URL(url).host}`
  const over = new AbortController()
  const late = new AbortController()
  if (timeoutMs !== undefined)
    clock.sleep(timeoutMs, over.signal).then(
      () => late.abort(),
      // The response came first.
      () => undefined,
    )
  try {
    const both = AbortSignal.any([signal, late.signal])
    const response = await fetch(url, { ...init, signal: both })
    return { status: response.status, body: await response.json() }
  } catch (cause) {
    if (signal.aborted) throw signal.reason
    if (late.signal.aborted) {
      const seconds = Math.ceil((timeoutMs ?? 0) / 100) / 10
      return { missing: `${place}: no response within ${seconds} s`, cause }
    }
    if (cause instanceof SyntaxError)
      return { missing: `${place}: the response is not from a gateway`, cause }
    if (!(cause instanceof TransportError)) throw cause
    return cause.phase === 'connect'
      ? undefined
      : { missing: `${place}: ${networkFault(cause)}`, cause }
  } finally {
    over.abort()
  }
}

function refusalOf({ status, body }: Answer): ProposerError {
  const parsed = Refused.safeParse(body)
  if (!parsed.success) return uncertain(`the gateway answered ${status} without a reason`)
  const { code, detail, hint } = parsed.data.error
  if (status === 401)
    return new UnauthorizedError(code, 'the gateway rejects the token of this store', {
      hint: 'admin.token was changed after the gateway had started: restart it',
    })
  if (status === 503)
    return new UnavailableError(code, detail, {
      hint: hint ?? 'retry in a moment',
    })
  if (status >= 500)
    return new StorageError(code, detail, {
      hint: 'check the gateway, then rerun the command: what is already done stays unchanged',
    })
  if (status === 409)
    return new ConflictError(code, detail, {
      hint: hint ?? 'resolve the conflict, then retry',
    })
  return new RejectedError(code, detail, {
    hint: hint ?? 'correct it, then retry',
  })
}

const uncertain = (detail: string, cause?: unknown) =>
  new UncertainError('act_unknown', `${detail}: the change may have been made`, {
    cause,
    hint: 'rerun the command: what is already done stays unchanged',
  })
