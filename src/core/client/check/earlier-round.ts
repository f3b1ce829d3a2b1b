/** What became of a question's round before the current one (domain §5.1): who answered, who disputed. */
import { oracleAbi, topics } from '#chain/contracts'
import { logRanges } from '#chain/log-ranges'
import { addressTopic, firstBlockFrom } from '#chain/propose'
import { loggedEvent } from '#chain/reading'
import { oracleKey, readRequest, stakeEventOf } from '#chain/stakes'
import type { Chain, ChainLog, Hex } from '#ports'
import type { Address } from '#protocol/schema'
import { lowercase } from '#protocol/words'
import { type QuestionContext, requestOf } from '../trust/trust.js'

export interface EarlierRound {
  /** `reset`: neither a dispute nor the voters' "too early" is among the logs. */
  readonly end: 'disputed' | 'too early' | 'reset'
  readonly price?: string
  readonly proposer?: Address
  readonly disputer?: Address | undefined
  readonly transactionHash: Hex
}

/** Blocks after the first of its time that may hold the request: several share a second. */
const blocksOfOneTime = 8n
/**
 * Blocks before the reset that may hold the settlement: the oracle's settler settles, and somebody
 * else calls the adapter's `resolve` then (domain §10). First an hour of Polygon, then a day.
 */
const blocksOfSettlement = [2_000n, 43_200n] as const
const tooEarly = String(-(2n ** 255n))

/**
 * From the transaction that opened this round, whose timestamp is its block's; of a reset from
 * the settlement before it.
 */
export async function earlierRound(
  chain: Chain,
  { request }: QuestionContext,
): Promise<EarlierRound | undefined> {
  const { oracle, requester, timestamp, ancillary_data } = request
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
  const opened = logs.find((log) => {
    const args = loggedEvent(oracleAbi, 'RequestPrice', log)?.args
    return (
      log.address === oracle &&
      args?.ancillaryData === ancillary_data &&
      lowercase(args.requester) === requester &&
      String(args.timestamp) === timestamp
    )
  })
  if (opened === undefined) return undefined
  const { transactionHash } = opened
  const disputed = logs
    .flatMap((log) => ownEvent(request, log))
    .find(
      (one) =>
        one.kind === 'disputed' &&
        one.transaction === transactionHash &&
        one.timestamp !== timestamp,
    )
  if (disputed !== undefined)
    return { end: 'disputed', ...answerIn(disputed), price: disputed.price }
  return (
    (await calledTooEarly(chain, request, opened.blockNumber, head.number)) ?? {
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
  const { oracle, requester } = request
  const filter = { addresses: [oracle], topics: [[topics.settle], [addressTopic(requester)]] }
  let end = to
  for (const blocks of blocksOfSettlement) {
    const from = to > blocks ? to - blocks : 0n
    let found: OwnEvent | undefined
    for await (const { logs } of logRanges(chain, filter, { from, to: end }))
      found =
        logs
          .flatMap((log) => ownEvent(request, log))
          .findLast(({ kind, price }) => kind === 'settled' && price === tooEarly) ?? found
    if (found !== undefined) {
      const key = oracleKey({ ...requestOf({ request }), timestamp: found.timestamp })
      const { price } = await readRequest(chain, head, oracle, key)
      return { end: 'too early', ...answerIn(found), price }
    }
    if (from === 0n) return undefined
    end = from - 1n
  }
  return undefined
}

type OwnEvent = ReturnType<typeof ownEvent>[number]

function ownEvent({ oracle, requester, ancillary_data }: Request, log: ChainLog) {
  const event = stakeEventOf(log)
  const isOurs =
    event !== undefined &&
    'text' in event &&
    event.oracle === oracle &&
    event.requester === requester &&
    event.ancillaryData === ancillary_data
  return isOurs ? [event] : []
}

const answerIn = (event: OwnEvent) => ({
  proposer: event.wallet,
  disputer: 'disputer' in event ? event.disputer : undefined,
  transactionHash: event.transaction,
})
