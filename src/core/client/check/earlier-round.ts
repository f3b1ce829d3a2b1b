/** What became of a question's round before the current one (domain §5.1): who answered, who disputed. */
import { decodeEventLog } from 'viem'
import { oracleAbi, topics } from '../../chain/contracts.js'
import { firstBlockFrom } from '../../chain/propose.js'
import type { Chain, ChainLog, Hex } from '../../ports.js'
import type { Address } from '../../protocol/schema.js'
import { lowercase } from '../../protocol/words.js'
import type { QuestionContext } from '../trust/context.js'

/** What is not known is absent. `price`: the answer, a decimal string. */
export interface EarlierRound {
  /** `reset`: neither a dispute nor the voters' "too early" stands in the transaction. */
  readonly end: 'disputed' | 'too early' | 'reset'
  readonly price?: string
  readonly proposer?: Address
  readonly disputer?: Address
  readonly transactionHash: Hex
}

/** Blocks after the first of its time that may hold the request: several share a second. */
const blocksOfOneTime = 8n
const tooEarly = -(2n ** 255n)

/**
 * The end of the round before this one, from the transaction that opened this one. A round's
 * timestamp is the time of its block, so a few blocks are read, however long ago it was.
 * `undefined` where the node does not show that transaction. ChainError.
 */
export async function earlierRound(
  chain: Chain,
  { request }: QuestionContext,
): Promise<EarlierRound | undefined> {
  const { oracle, timestamp, requester, ancillary_data } = request
  const head = await chain.block('latest')
  if (head === null) return undefined
  const first = await firstBlockFrom(chain, BigInt(timestamp), head)
  if (first === undefined) return undefined
  const last = first + blocksOfOneTime
  const logs = await chain.logs({
    fromBlock: first,
    toBlock: last < head.number ? last : head.number,
    addresses: [oracle],
    topics: [[topics.requestPrice, topics.disputePrice, topics.settle]],
  })
  const own = logs.flatMap((log) => {
    const event = log.address === oracle ? eventOf(log) : undefined
    const isOurs =
      event !== undefined &&
      lowercase(event.args.requester) === requester &&
      event.args.ancillaryData === ancillary_data
    return isOurs ? [{ ...event, transactionHash: log.transactionHash }] : []
  })
  const opened = own.find(
    ({ eventName, args }) => eventName === 'RequestPrice' && String(args.timestamp) === timestamp,
  )
  if (opened === undefined) return undefined
  const { transactionHash } = opened
  const before = own.filter(
    (one) => one.transactionHash === transactionHash && String(one.args.timestamp) !== timestamp,
  )
  const disputed = before.find(({ eventName }) => eventName === 'DisputePrice')?.args
  if (disputed !== undefined && 'proposedPrice' in disputed)
    return {
      end: 'disputed',
      ...peopleOf(disputed),
      price: String(disputed.proposedPrice),
      transactionHash,
    }
  const settled = before.find(({ eventName }) => eventName === 'Settle')?.args
  if (settled !== undefined && 'price' in settled && settled.price === tooEarly)
    return { end: 'too early', ...peopleOf(settled), transactionHash }
  return { end: 'reset', transactionHash }
}

const peopleOf = (args: { readonly proposer: Hex; readonly disputer: Hex }) => ({
  proposer: lowercase(args.proposer),
  disputer: lowercase(args.disputer),
})

function eventOf({ data, topics: found }: ChainLog) {
  try {
    const event = decodeEventLog({ abi: oracleAbi, data, topics: found as [Hex, ...Hex[]] })
    const { eventName } = event
    return eventName === 'RequestPrice' || eventName === 'DisputePrice' || eventName === 'Settle'
      ? event
      : undefined
  } catch {
    // Any contract may log a topic with other data.
    return undefined
  }
}
