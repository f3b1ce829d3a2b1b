/**
 * Acts by the admin listener of a serving gateway (contract §6). Loopback only, by the URL that the
 * store's lock names.
 */
import * as z from 'zod/mini'
import { type ActName, type ActResult, leaderResignName } from '#gateway/operator/acts'
import { proofPath, readAdminToken, tokenProof } from '#io/serving/admin-token'
import { TransportError } from '#ports'
import {
  ConflictError,
  type ProposerError,
  RejectedError,
  StorageError,
  UnauthorizedError,
  UnavailableError,
  UncertainError,
} from '#protocol/errors'
import { networkFault } from '#protocol/network-words'
import { hexOf } from '#storage/durable'
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

interface RemoteAct<Answer> {
  readonly url: string
  readonly tokenFile: string
  readonly name: ActName | typeof leaderResignName
  readonly body: object
  /** Default: as long as the connection lives. */
  readonly timeoutMs: number | undefined
  readonly shape: z.ZodMiniType<Answer>
}

/** Acts may be repeated: what is as requested stays. Rejects as `post`. */
export async function postAct(
  context: Context,
  call: Omit<RemoteAct<unknown>, 'shape'> & { readonly name: ActName },
): Promise<ActResult | undefined> {
  const answer = await post(context, { ...call, shape: Result })
  if (answer === undefined) return undefined
  const { bytes, ...result } = answer
  return { act: call.name, ...result, ...(bytes && { bytes }) }
}

export const postResign = async (
  context: Context,
  call: Omit<RemoteAct<unknown>, 'shape' | 'name'>,
): Promise<boolean> => {
  const answer = await post(context, { ...call, name: leaderResignName, shape: Resigned })
  return answer?.resigned === true
}

/**
 * The body of an answer with 200; `undefined` where nobody listens any more. Rejects with
 * RejectedError (3) for a refusal, UnauthorizedError (4) for a wrong token, UnavailableError (75)
 * for 503, UncertainError (6) where no answer came.
 */
async function post<Answer>(
  context: Context,
  { url, tokenFile, name, body, timeoutMs, shape }: RemoteAct<Answer>,
): Promise<Answer | undefined> {
  const token = await readAdminToken(tokenFile)
  if (!(await isProven(context, url, token, timeoutMs))) return undefined
  const init = {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
    body: JSON.stringify(body),
  }
  const answer = await exchange(context, `${url}/operator/${name}`, init, timeoutMs, uncertain)
  if (answer === undefined) return undefined
  if (answer.status !== 200) throw refusalOf(answer)
  const parsed = shape.safeParse(answer.body)
  if (parsed.success) return parsed.data
  throw uncertain('the gateway returned an unexpected response')
}

/**
 * Whoever has taken the port of a gateway that is down is shown no token, and believed nothing.
 * `false` where nobody listens.
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
  const answer = await exchange(context, url, { method: 'GET' }, timeoutMs, unanswered)
  if (answer === undefined) return undefined
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

/** `lost`: of what was sent, and may have come to its end all the same. */
async function exchange(
  { clock, edges, signal }: Context,
  url: string,
  init: RequestInit,
  timeoutMs: number | undefined,
  lost: (detail: string, cause: unknown) => ProposerError,
): Promise<Answer | undefined> {
  const fetch = await edges.fetch()
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
    const because = (what: string) => lost(`gateway ${new URL(url).host}: ${what}`, cause)
    if (late.signal.aborted)
      throw because(`no response within ${Math.ceil((timeoutMs ?? 0) / 100) / 10} s`)
    if (cause instanceof SyntaxError) throw because('the response is not from a gateway')
    if (!(cause instanceof TransportError)) throw cause
    if (cause.phase === 'connect') return undefined
    throw because(networkFault(cause))
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
    return new UnavailableError(code, detail, { hint: hint ?? 'retry in a moment' })
  if (status >= 500)
    return new StorageError(code, detail, {
      hint: 'check the gateway, then rerun the command: what is already done stays unchanged',
    })
  if (status === 409)
    return new ConflictError(code, detail, { hint: hint ?? 'resolve the conflict, then retry' })
  return new RejectedError(code, detail, { hint: hint ?? 'correct it, then retry' })
}

const uncertain = (detail: string, cause?: unknown) =>
  new UncertainError('act_unknown', `${detail}: the change may have been made`, {
    cause,
    hint: 'rerun the command: what is already done stays unchanged',
  })
