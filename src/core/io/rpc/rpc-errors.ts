/** In the spellings of geth/bor, erigon, nethermind, besu and anvil (robustness §3). */
import { ChainError, type ChainErrorKind, type Hex } from '#ports'
import { quoteWords, safeText } from '#protocol/node-words'
import type { Conceal } from '#protocol/url-secrets'
import { lowercase } from '#protocol/words'

export interface RpcErrorObject {
  readonly code?: number | undefined
  readonly message?: string | undefined
  readonly data?: unknown
}

const missingBlock =
  /header not found|unknown block|block not found|blockoutofrange|block is out of range|beyond current head/i
const missingState = new RegExp(
  `${missingBlock.source}|missing trie node|cannot be found|resource not available|historical state`,
  'i',
)

/** The first that matches decides. */
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
  [
    'nonce_too_high',
    /nonce[ _]too[ _]high|noncegap|nonce gap|nonce.{0,20}too distant|in-flight transaction limit/i,
  ],
  [
    'insufficient_funds',
    /insufficient (funds|sender balance|balance)|insufficientfunds|upfront cost exceeds|sender doesn't have enough funds/i,
  ],
  [
    'underpriced',
    /underpriced|gas price below minimum|feetoolow|fee cap (is )?less than block base fee|max fee per gas less than block base fee|gas tip cap|tip.{0,20}too low|gas price too low|below configured minimum/i,
  ],
  // It may contain the "limit exceeded" of `unavailable`.
  [
    'too_much_gas',
    /gas.?limit.{0,40}(too high|exceed|greater than|more than)|(exceeds?|greater than|>).{0,20}block.{0,4}gas.?limit/i,
  ],
  [
    'unavailable',
    new RegExp(
      `${missingState.source}|too many requests|rate limit|limit exceeded|request timed out|timeout|execution aborted|try again|fatalexternalerror`,
      'i',
    ),
  ],
  [
    'reverted',
    /revert|vm execution error|out ?of ?gas|invalid opcode|stack (under|over)flow|gas required exceeds allowance|bad instruction/i,
  ],
]

/** 3 is geth's revert, -32015 nethermind's, -32005 and 429 a limit. */
const byCode: Record<number, ChainErrorKind> = {
  3: 'reverted',
  [-32015]: 'reverted',
  [-32005]: 'unavailable',
  429: 'unavailable',
}

const running = new Set(['eth_call', 'eth_estimateGas'])

/** The contract's own words must not be taken for the node's (R16). */
const quotesContract =
  /^(?:err(?:or)?: )?(?:(?:vm )?execution reverted|vm exception while processing|vm execution error|transaction reverted|reverted\b)/i

/**
 * Without data. An error that nobody knows stays the node's: a false revert would fail a candidate
 * for good.
 */
const haltedRun =
  /^(?:err: )?evm error:? (?!fatal|database|custom)|(?:invalid|bad)[ _]?jump[ _]?dest|stack limit reached|stack[ _]?(?:under|over)flow|(?:gas|nonce) uint64 overflow|return data out of bounds|write protection|max (?:code|initcode) size exceeded|max call depth exceeded|contract address collision|contract creation code|invalid opcode|invalid code: must not begin|insufficient balance for transfer|static ?call ?violation/i

const tooManyLogs =
  /more than [\d,.k]+ (?:results|logs|blocks)|too many (?:results|logs|blocks)|(?:response|result|reply)(?: size| set)?.{0,30}(?:exceed|too (?:large|big|many))|(?:block|reduce the|smaller|maximum) range|range.{0,20}(?:too (?:large|wide|big)|exceed)|limited to .{0,30}(?:range|blocks|results|logs)/i

const askedTooOften =
  /too many requests|rate.?limit|request (?:count|rate|limit)|(?:requests?|calls?) per|per second|compute units|throughput|capacity|quota|credits/i

const longestWords = 2_000

/** `conceal` takes out what the node's words may repeat of its URL (R5). */
export function chainErrorOf(method: string, error: RpcErrorObject, conceal?: Conceal) {
  const words = (error.message ?? '').slice(0, longestWords)
  const kind = kindOf(method, error.code, words)
  const told = error.code === undefined ? 'an error' : `code ${error.code}`
  const shown =
    words === '' ? told : `${told}: ${quoteWords(safeText(error.message ?? '', conceal))}`
  return new ChainError(
    kind,
    `${method}: the node answered ${shown}`,
    kind === 'reverted' ? revertDataOf(error) : '0x',
  )
}

function kindOf(method: string, code: number | undefined, words: string): ChainErrorKind {
  if (running.has(method) && (quotesContract.test(words) || haltedRun.test(words)))
    return 'reverted'
  if (method === 'eth_getLogs' && !missingState.test(words)) {
    if (askedTooOften.test(words)) return 'unavailable'
    // EIP-1474's "request exceeds defined limit".
    if (tooManyLogs.test(words) || code === -32005) return 'refused'
  }
  const mayBe = (kind: ChainErrorKind) => kind !== 'reverted' || running.has(method)
  const coded = code === undefined ? undefined : byCode[code]
  if (coded !== undefined && mayBe(coded)) return coded
  const [spelled] = spellings.find(([kind, pattern]) => mayBe(kind) && pattern.test(words)) ?? []
  return spelled ?? 'refused'
}

export const isMissingState = ({ kind, message }: ChainError) =>
  kind === 'unavailable' && missingState.test(message)

export const isBehind = ({ kind, message }: ChainError) =>
  kind === 'unavailable' && missingBlock.test(message)

/** Wherever a client puts it. */
export const revertDataOf = ({ data }: RpcErrorObject) => hexIn(data, 0) ?? '0x'

function hexIn(value: unknown, depth: number): Hex | undefined {
  if (typeof value === 'string') {
    const hex = /^(?:reverted\s+)?(0x(?:[0-9a-f]{2})*)$/i.exec(value)?.[1]
    return hex === undefined ? undefined : lowercase(hex)
  }
  if (typeof value !== 'object' || value === null || depth > 3) return undefined
  for (const name of ['data', 'result', 'output', 'originalError']) {
    const found = hexIn((value as Record<string, unknown>)[name], depth + 1)
    if (found !== undefined) return found
  }
  return undefined
}
