/** Acts by the admin listener of a serving gateway (contract §6). Loopback only, by the URL that the store's lock names. */
import { z } from 'zod'
import type { ActName, ActResult } from '../../core/gateway/operator/acts.js'
import { readAdminToken } from '../../core/io/serving/admin-token.js'
import { TransportError } from '../../core/ports.js'
import {
  type ProposerError,
  RejectedError,
  StorageError,
  UnauthorizedError,
  UnavailableError,
  UncertainError,
} from '../../core/protocol/errors.js'
import type { Context } from '../context.js'

const Names = z.array(z.string())
const Result = z.object({
  changed: Names,
  unchanged: Names,
  reason: z.string(),
  notes: Names,
  bytes: z.object({ before: z.number(), after: z.number() }).optional(),
})
const Refused = z.object({ error: z.object({ code: z.string(), detail: z.string(), hint: z.string().optional() }) })

export interface RemoteAct {
  readonly url: string
  readonly store: string
  readonly name: ActName
  readonly body: object
}

/**
 * Sends an act; `undefined` where nobody listens any more. Rejects with RejectedError (3) for a refusal, UnauthorizedError (4) for a wrong
 * token, UnavailableError (75) for 503, UncertainError (6) where no answer came: acts may be repeated, what is as wished stays.
 */
export async function postAct(context: Context, { url, store, name, body }: RemoteAct): Promise<ActResult | undefined> {
  const token = await readAdminToken(store)
  const answer = await exchange(context, `${url}/operator/${name}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
    body: JSON.stringify(body),
  })
  if (answer === undefined) return undefined
  if (answer.status !== 200) throw refusalOf(answer)
  const parsed = Result.safeParse(answer.body)
  if (!parsed.success) throw uncertain('the gateway gave an answer that no act has')
  const { bytes, ...result } = parsed.data
  return { act: name, ...result, ...(bytes && { bytes }) }
}

/** A GET of the admin listener; `undefined` where nobody listens. */
export async function getAdmin(context: Context, url: string): Promise<unknown> {
  const answer = await exchange(context, url, { method: 'GET' })
  if (answer === undefined) return undefined
  if (answer.status !== 200) throw refusalOf(answer)
  return answer.body
}

interface Answer {
  readonly status: number
  readonly body: unknown
}

async function exchange(context: Context, url: string, init: RequestInit): Promise<Answer | undefined> {
  const fetch = await context.edges.fetch()
  try {
    const response = await fetch(url, { ...init, signal: context.signal })
    return { status: response.status, body: await response.json() }
  } catch (error) {
    if (context.signal.aborted) throw context.signal.reason
    if (error instanceof TransportError) {
      if (error.phase === 'connect') return undefined
      throw uncertain(`no answer came from the gateway (${error.code})`, error)
    }
    if (error instanceof SyntaxError) throw uncertain('what answered is no gateway', error)
    throw error
  }
}

function refusalOf({ status, body }: Answer): ProposerError {
  const parsed = Refused.safeParse(body)
  if (!parsed.success) return uncertain(`the gateway answered ${status} without a reason`)
  const { code, detail, hint } = parsed.data.error
  if (status === 401) {
    return new UnauthorizedError(code, 'the gateway does not take the token of this store', {
      hint: 'admin.token was changed after the gateway had started: start it again',
    })
  }
  if (status === 503) return new UnavailableError(code, detail, { hint: hint ?? 'run the same command again in a moment' })
  if (status >= 500)
    return new StorageError(code, detail, { hint: 'look at the gateway; whether the act was done is told by running it again' })
  return new RejectedError(code, detail, { hint: hint ?? 'correct what it says and run the command again' })
}

function uncertain(detail: string, cause?: unknown): UncertainError {
  return new UncertainError('act_unknown', `${detail}: the act may have been done`, {
    cause,
    hint: 'run the same command again: what is done already is told as unchanged',
  })
}
