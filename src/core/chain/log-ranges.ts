/** From a node that answers only so many blocks at once (domain §10). */
import { type Chain, ChainError, type ChainLog } from '#ports'

const firstSpan = 2_000n
const largestSpan = 100_000n
const answersBeforeGrowth = 8
const silencesAllowed = 3

export type LogFilter = Omit<Parameters<Chain['logs']>[0], 'fromBlock' | 'toBlock'>

interface LogRange {
  readonly from: bigint
  readonly to: bigint
  readonly logs: readonly ChainLog[]
}

/** No block left out, none twice. A refused range is halved, an answered one doubled. */
export async function* logRanges(
  chain: Pick<Chain, 'logs'>,
  filter: LogFilter,
  { from, to }: { from: bigint; to: bigint },
  signal?: AbortSignal,
): AsyncGenerator<LogRange> {
  let [at, span, most] = [from, firstSpan, largestSpan]
  let [answers, silences] = [0, 0]
  while (at <= to) {
    signal?.throwIfAborted()
    const end = at + span - 1n < to ? at + span - 1n : to
    let logs: readonly ChainLog[]
    try {
      logs = await chain.logs({ ...filter, fromBlock: at, toBlock: end })
    } catch (error) {
      if (!(error instanceof ChainError) || end === at) throw error
      // Too much to answer in time looks like silence.
      if (error.kind === 'unavailable' ? ++silences > silencesAllowed : error.kind !== 'refused')
        throw error
      span = (end - at + 1n) / 2n
      most = span
      answers = 0
      continue
    }
    yield { from: at, to: end, logs }
    at = end + 1n
    silences = 0
    if (++answers % answersBeforeGrowth === 0) most = largestSpan
    span = span * 2n < most ? span * 2n : most
  }
}
