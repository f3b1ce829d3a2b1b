/** What became of a question's round before the current one (domain §5.1): who answered, who disputed. */
import { oracleAbi, topics } from '#chain/contracts'
import { logRanges } from '#chain/log-ranges'
import { addressTopic, firstBlockFrom } from '#chain/propose'
import { loggedEvent, readContract } from '#chain/reading'
import type { Chain, ChainLog, Hex } from '#ports'
import type { Address } from '#protocol/schema'
import { lowercase } from '#protocol/words'
import type { QuestionContext } from '../trust/trust.js'

export interface EarlierRound {
  /** `reset`: neither a dispute nor the voters' "too early" is among the logs. */
  readonly end: 'disputed' | 'too early' | 'reset'
  readonly price?: string
  readonly proposer?: Address
  readonly disputer?: Address
  readonly transactionHash: Hex
}

/** Blocks after the first of its time that may hold the request: several share a second. */
const blocksOfOneTime = 8n
/**
 * Blocks before the reset that may hold the settlement: the oracle's settler settles, and somebody
 * else calls the adapter's `resolve` then (domain §10). First an hour of Polygon, then a day.
 */
const blocksOfSettlement = [2_000n, 43_200n] as const
const tooEarly = -(2n ** 255n)

/**
 * From the transaction that opened this round, whose timestamp is its block's; of a reset from
 * the settlement before it.
 */
export async function earlierRound(
  chain: Chain,
  { request }: QuestionContext,
): Promise<EarlierRound | undefined> {
  const { oracle, timestamp } = request
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
  const own = logs.flatMap((log) => ownEvent(request, log))
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
  return (
    (await calledTooEarly(chain, request, opened.block, head.number)) ?? {
      end: 'reset',
      transactionHash,
    }
  )
}

type Request = QuestionContext['request']

async function calledTooEarly(
  chain: Chain,
  request: Request,
  to: bigint,
  head: bigint,
): Promise<EarlierRound | undefined> {
  const { oracle, requester, ancillary_data: ancillaryData, identifier } = request
  const filter = { addresses: [oracle], topics: [[topics.settle], [addressTopic(requester)]] }
  let end = to
  for (const blocks of blocksOfSettlement) {
    const from = to > blocks ? to - blocks : 0n
    let found: Settled | undefined
    for await (const { logs } of logRanges(chain, filter, { from, to: end }))
      found = logs.flatMap((log) => settledTooEarly(request, log)).at(-1) ?? found
    if (found !== undefined) {
      const { args, transactionHash } = found
      const key = [requester, identifier.raw, args.timestamp, ancillaryData] as const
      const held = await readContract(chain, head, oracle, oracleAbi, 'getRequest', key)
      return {
        end: 'too early',
        ...peopleOf(args),
        price: String(held.proposedPrice),
        transactionHash,
      }
    }
    if (from === 0n) return undefined
    end = from - 1n
  }
  return undefined
}

type Settled = ReturnType<typeof settledTooEarly>[number]

const settledTooEarly = (request: Request, log: ChainLog) =>
  ownEvent(request, log).flatMap((event) =>
    event.eventName === 'Settle' && event.args.price === tooEarly ? [event] : [],
  )

function ownEvent({ oracle, requester, ancillary_data }: Request, log: ChainLog) {
  const event = log.address === oracle ? eventOf(log) : undefined
  const isOurs =
    event !== undefined &&
    lowercase(event.args.requester) === requester &&
    event.args.ancillaryData === ancillary_data
  return isOurs ? [{ ...event, block: log.blockNumber, transactionHash: log.transactionHash }] : []
}

const peopleOf = (args: { readonly proposer: Hex; readonly disputer: Hex }) => ({
  proposer: lowercase(args.proposer),
  disputer: lowercase(args.disputer),
})

function eventOf(log: ChainLog) {
  const event = loggedEvent(oracleAbi, undefined, log)
  return event?.eventName === 'RequestPrice' ||
    event?.eventName === 'DisputePrice' ||
    event?.eventName === 'Settle'
    ? event
    : undefined
}
