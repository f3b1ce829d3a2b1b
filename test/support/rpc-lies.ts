export type RpcLie =
  | 'another chain id'
  | 'a head that stands still'
  | 'no receipts and no transactions'
  | 'no logs'
  | 'transaction counts that are too high'
  | 'another final block'
  | 'HTTP 429'
  | 'results of another shape'
  | 'an HTML page'
  | 'JSON that is cut off'
  | 'silence'

export interface RpcCall {
  readonly id: number
  readonly method: string
  readonly params: readonly unknown[]
}
export interface RpcAnswer {
  readonly id: number
  readonly result?: unknown
  readonly error?: { readonly code: number; readonly message: string }
}
export interface RpcHeader {
  readonly number: string
  readonly hash: string
}

export interface Frozen {
  readonly latest: RpcHeader
  readonly finalized: RpcHeader
}

function standingStill(call: RpcCall, { latest, finalized }: Frozen): RpcCall | RpcAnswer {
  const { id, method, params } = call
  const at = (tag: unknown) =>
    tag === 'latest' || tag === 'pending'
      ? latest.number
      : tag === 'finalized'
        ? finalized.number
        : tag
  const isLater = (tag: unknown) =>
    typeof tag === 'string' && tag.startsWith('0x') && BigInt(tag) > BigInt(latest.number)
  if (method === 'eth_sendRawTransaction') return { id, result: `0x${'11'.repeat(32)}` }
  if (method === 'eth_getBlockByNumber')
    return isLater(params[0])
      ? { id, result: null }
      : { ...call, params: [at(params[0]), params[1]] }
  if (method === 'eth_getLogs')
    return isLater((params[0] as { toBlock: string }).toBlock) ? { id, result: [] } : call
  if (
    [
      'eth_call',
      'eth_getCode',
      'eth_getBalance',
      'eth_getTransactionCount',
      'eth_estimateGas',
    ].includes(method)
  ) {
    if (isLater(params[1])) return { id, error: { code: -32000, message: 'header not found' } }
    return method === 'eth_estimateGas' ? call : { ...call, params: [params[0], at(params[1])] }
  }
  return call
}

export const askedFor = (
  calls: readonly RpcCall[],
  stale: Frozen | undefined,
): readonly (RpcCall | RpcAnswer)[] =>
  stale === undefined ? calls : calls.map((call) => standingStill(call, stale))

export function lyingAnswer(
  lie: RpcLie | undefined,
  { method }: RpcCall,
  answer: RpcAnswer,
  { stale, final }: { readonly stale: Frozen | undefined; readonly final: bigint },
): RpcAnswer {
  const { result } = answer
  switch (lie) {
    case 'another chain id':
      return method === 'eth_chainId' ? { ...answer, result: '0x1' } : answer
    case 'a head that stands still': {
      const mined = result as { blockNumber?: string } | null
      const isUnseen =
        stale && mined?.blockNumber && BigInt(mined.blockNumber) > BigInt(stale.latest.number)
      return isUnseen && /ByHash|Receipt/.test(method) ? { ...answer, result: null } : answer
    }
    case 'no receipts and no transactions':
      return /eth_getTransaction(Receipt|ByHash)/.test(method)
        ? { ...answer, result: null }
        : answer
    case 'no logs':
      return method === 'eth_getLogs' ? { ...answer, result: [] } : answer
    case 'transaction counts that are too high':
      return method === 'eth_getTransactionCount'
        ? { ...answer, result: `0x${(BigInt(String(result)) + 5n).toString(16)}` }
        : answer
    case 'another final block': {
      const block = result as RpcHeader | null
      const isForged =
        method === 'eth_getBlockByNumber' && block !== null && BigInt(block.number) <= final
      return isForged ? { ...answer, result: { ...block, hash: `0x${'99'.repeat(32)}` } } : answer
    }
    case 'results of another shape':
      return { ...answer, result: { nonsense: true } }
    default:
      return answer
  }
}
