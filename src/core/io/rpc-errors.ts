/** What a node's JSON-RPC error means (robustness §3, the node-answer table), in the spellings of geth/bor, erigon, nethermind, besu and anvil. */
import { ChainError, type ChainErrorKind, type Hex } from '../ports.js'

export interface RpcErrorObject {
  readonly code?: number | undefined
  readonly message?: string | undefined
  readonly data?: unknown
}

/** In order: the first that matches decides. `replacement` comes before the plain `underpriced` that it contains. */
const spellings: readonly (readonly [ChainErrorKind, RegExp])[] = [
  [
    'already_known',
    /already known|alreadyknown|already imported|known transaction|already in (the )?(mem|tx)?pool|existing tx with same hash/i,
  ],
  [
    'replacement_underpriced',
    /replacement transaction underpriced|replacement.{0,20}underpriced|replacementnotallowed|could not replace existing/i,
  ],
  ['nonce_too_low', /nonce[ _]too[ _]low|oldnonce|nonce is too low|invalid nonce: .*lower/i],
  ['nonce_too_high', /nonce[ _]too[ _]high|noncegap|nonce gap|nonce.{0,20}too distant|in-flight transaction limit/i],
  [
    'insufficient_funds',
    /insufficient (funds|sender balance|balance)|insufficientfunds|upfront cost exceeds|sender doesn't have enough funds/i,
  ],
  [
    'underpriced',
    /underpriced|gas price below minimum|feetoolow|fee cap (is )?less than block base fee|max fee per gas less than block base fee|gas tip cap|tip.{0,20}too low|gas price too low|below configured minimum/i,
  ],
  [
    'unavailable',
    /header not found|missing trie node|unknown block|block not found|blockoutofrange|block is out of range|too many requests|rate limit|limit exceeded|request timed out|timeout|execution aborted|try again|resource not available|historical state/i,
  ],
  [
    'reverted',
    /revert|vm execution error|out ?of ?gas|invalid opcode|stack (under|over)flow|gas required exceeds allowance|bad instruction/i,
  ],
]

/** JSON-RPC codes that say all: 3 is geth's revert, -32015 nethermind's, -32005 and 429 a limit, -32603 an internal failure. */
const byCode: Record<number, ChainErrorKind> = { 3: 'reverted', [-32015]: 'reverted', [-32005]: 'unavailable', 429: 'unavailable' }

/** Methods that run code: only these can revert. */
const running = new Set(['eth_call', 'eth_estimateGas'])

/**
 * The error of a JSON-RPC answer. The message names method and cause and carries no URL (R5); the node's own words are cut and cleaned,
 * because they are outside text.
 */
export function chainErrorOf(method: string, error: RpcErrorObject): ChainError {
  const words = error.message ?? ''
  const kind = kindOf(method, error.code, words)
  const shown = words === '' ? `code ${error.code}` : safeText(words)
  return new ChainError(kind, `${method}: the node answered: ${shown}`, kind === 'reverted' ? revertDataOf(error) : '0x')
}

function kindOf(method: string, code: number | undefined, words: string): ChainErrorKind {
  const coded = code === undefined ? undefined : byCode[code]
  if (coded !== undefined && (coded !== 'reverted' || running.has(method))) return coded
  for (const [kind, pattern] of spellings) {
    if (!pattern.test(words)) continue
    if (kind === 'reverted' && !running.has(method)) continue
    return kind
  }
  return 'refused'
}

/** Whether the node only lacks the block or its state: it is behind or pruned, which is no fault of its own. */
export function isMissingState(error: ChainError): boolean {
  return error.kind === 'unavailable' && missingState.test(error.message)
}
const missingState =
  /header not found|missing trie node|unknown block|block not found|blockoutofrange|block is out of range|resource not available|historical state/i

/** Raw revert data wherever a client puts it: `data`, `data.data`, `data.result`, `"Reverted 0x…"`. */
export function revertDataOf(error: RpcErrorObject): Hex {
  const found = hexIn(error.data, 0)
  return found ?? '0x'
}

function hexIn(value: unknown, depth: number): Hex | undefined {
  if (typeof value === 'string') {
    const hex = /^(?:reverted\s+)?(0x(?:[0-9a-f]{2})*)$/i.exec(value)?.[1]
    return hex?.toLowerCase() as Hex | undefined
  }
  if (typeof value !== 'object' || value === null || depth > 3) return undefined
  for (const name of ['data', 'result', 'output', 'originalError']) {
    const found = hexIn((value as Record<string, unknown>)[name], depth + 1)
    if (found !== undefined) return found
  }
  return undefined
}

/** Without URLs, long hex (which may be a signed transaction), control and bidi characters; at most 160 characters. */
export function safeText(text: string): string {
  return text
    .slice(0, 4096)
    .replace(/\b[a-z][a-z0-9+.-]*:\/\/\S+/gi, '[url]')
    .replace(/0x[0-9a-f]{65,}/gi, '[data]')
    .replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029\u200b-\u200f\u202a-\u202e\u2066-\u2069]+/g, ' ')
    .slice(0, 160)
}
