/** Calls of a receiver outside (contract §9): how one is signed and made, and when it is tried again. */
import { createHmac } from 'node:crypto'
import { type Fetch, TransportError } from '../ports.js'

/** `t=<Unix seconds>,v1=<hex>`: HMAC-SHA-256 of `<t>.<body>` with the secret (contract §9). */
export const signatureOf = (secret: string, seconds: number, body: string): string =>
  `t=${seconds},v1=${createHmac('sha256', secret).update(`${seconds}.${body}`).digest('hex')}`

/** When an event is tried, after it happened; the last one has its time within ten minutes. */
export const triesAfterMs = [0, 10_000, 60_000, 210_000, 580_000]
/** An event that is older is given up. */
export const givenUpAfterMs = 600_000
/** Events that wait for one receiver; more are dropped (R17). */
export const mostWaiting = 100
/** One try. */
export const longestTryMs = 10_000

export interface WebhookTarget {
  readonly url: string
  /** Signs the calls; without one they are not signed. */
  readonly secret?: string | undefined
  /** Of this program. */
  readonly version: string
}

/**
 * Posts one event. What went wrong, or `undefined`; no word of the receiver's is in it. Rejects
 * with the reason of `signal` once that has fired.
 */
export async function callWebhook(
  fetch: Fetch,
  { url, secret, version }: WebhookTarget,
  body: string,
  how: { readonly nowMs: number; readonly signal: AbortSignal; readonly tryMs?: number },
): Promise<string | undefined> {
  const seconds = Math.floor(how.nowMs / 1_000)
  const { signal, tryMs = longestTryMs } = how
  try {
    const answer = await fetch(url, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        'user-agent': `proposer/${version}`,
        ...(secret !== undefined && { 'proposer-signature': signatureOf(secret, seconds, body) }),
      },
      body,
      signal: AbortSignal.any([signal, AbortSignal.timeout(tryMs)]),
    })
    await answer.body?.cancel()
    return answer.ok ? undefined : `HTTP ${answer.status}`
  } catch (error) {
    if (error instanceof TransportError) return error.code
    signal.throwIfAborted()
    // Its time was up before a connection stood.
    if (error instanceof DOMException) return 'no connection'
    throw error
  }
}
