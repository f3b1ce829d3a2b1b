/** The keys that a gateway lists (contract §9): a hint, until somebody has compared and pinned them. */
import * as z from 'zod/mini'
import type { Fetch } from '../../ports.js'
import { jsonOf, readCapped } from '../../protocol/capped.js'
import { UnavailableError } from '../../protocol/errors.js'
import { keyBytes, type ReceiptKey, receiptDirectory } from '../../protocol/receipt.js'
import { answerError, classifyFailure } from './answer.js'
import { parseBaseUrl } from './gateway-client.js'

const Directory = z.object({ keys: z.array(z.unknown()).check(z.maxLength(100)) })
const Key = z.object({
  kty: z.literal('OKP'),
  crv: z.literal('Ed25519'),
  kid: z.string().check(z.regex(/^[\x21-\x7e]{1,200}$/)),
  x: z.string(),
  nbf: z.optional(z.int()),
  exp: z.optional(z.int()),
})
const capBytes = 64 * 1024

/** The Ed25519 keys of a JWK set; `undefined` for what is none. Keys of another kind are left out. */
export function readKeySet(json: unknown): readonly ReceiptKey[] | undefined {
  const set = Directory.safeParse(json)
  if (!set.success) return undefined
  return set.data.keys.flatMap((each) => {
    const { data } = Key.safeParse(each)
    return data === undefined || keyBytes(data.x) === undefined ? [] : [data]
  })
}

/**
 * The keys that a gateway lists; empty where it signs no receipts. UnavailableError (75) where it
 * gave no answer, UnavailableError `gateway_body` where the answer is no JWK set.
 */
export async function listedReceiptKeys(
  fetch: Fetch,
  baseUrl: string,
  { signal, allowHttp }: { signal?: AbortSignal; allowHttp?: readonly string[] | undefined } = {},
): Promise<readonly ReceiptKey[]> {
  const url = parseBaseUrl(baseUrl, allowHttp).href + receiptDirectory
  let response: Response
  let text: string | undefined
  try {
    response = await fetch(url, { redirect: 'manual', ...(signal === undefined ? {} : { signal }) })
    text = await readCapped(response.body, capBytes, new TextDecoder('utf-8', { fatal: true }))
  } catch (error) {
    throw answerError(classifyFailure(error, signal), 'read')
  }
  if (response.status === 404) return []
  const keys = response.status === 200 ? readKeySet(jsonOf(text ?? '')) : undefined
  if (keys !== undefined) return keys
  throw new UnavailableError(
    'gateway_body',
    `the gateway answered ${response.status} to ${receiptDirectory}, without a JWK set`,
    'ask its operator for the receipt key',
  )
}
