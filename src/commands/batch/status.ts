/** `batch status`: many candidates at once (spec §4.2 rules 6 and 7). */

import { followBatch, type PolledCandidate } from '#client/follow/follow'
import { gravest } from '#client/gateway/answer'
import { type BatchSource, inputFault, type Place, readIds } from '#client/input/rows'
import { PendingError, UnavailableError, UsageError } from '#protocol/errors'
import { isCandidateId } from '#protocol/words'
import { executorFlags } from '../session/flags.js'
import { followMany } from '../session/follow.js'
import { sessionVerb } from '../session/session.js'
import { newResults } from '../terminal/results.js'
import { newFailures } from './failures.js'
import { pendingError, rowFailedError } from './row-text.js'
import { formatFlag, readSource } from './source.js'

export const batchStatusVerb = sessionVerb({
  name: 'status',
  about: 'show many candidates; exit 7 if one failed',
  args: { '<file>': 'candidate ids, one per line, or results of `batch submit`; - for stdin' },
  flags: {
    ...formatFlag,
    ...executorFlags,
    '--wait': 'wait until every candidate is executed or failed',
  },
  examples: ['proposer batch submit rows.csv --ndjson | proposer batch status - --wait'],
  async run(context, session, flags, { file: path }) {
    const source = await readSource(context, path)
    const { output } = context
    const ids = readIds(source, 'candidate_id', flags.format).map((one) => {
      if (!isCandidateId(one.id)) throw badId(source, one)
      return one.id
    })
    if (ids.length === 0) throw noIds(source.name)
    const gateway = await session.gateway(flags.wait === true ? 'run' : 'read')
    const parts = { ports: session.ports, gateway, journal: session.journal }
    const { candidates, stopped } = await followMany(context, ids.length, (shows) =>
      followBatch(
        parts,
        ids,
        flags.wait === true
          ? { ...shows, signal: context.signal, timeoutMs: session.settings.timeoutMs }
          : { ...shows, signal: session.signal, once: true },
      ),
    )
    const isOutOfTime = stopped instanceof PendingError
    const stream = newResults(output, 'batch-status', 'results')
    const failures = newFailures()
    const counts = new Map<string, number>()
    for (const one of candidates) {
      const state = one.candidate?.status ?? 'unknown'
      const kind = one.end ?? (isStage(state) ? state : 'pending')
      counts.set(kind, (counts.get(kind) ?? 0) + 1)
      const error = errorOf(one, isOutOfTime)
      if (error) failures.add(`candidate ${one.candidateId}`, error)
      stream.item(resultOf(one), () => [
        one.candidateId,
        state,
        one.candidate?.submission?.status ?? '',
        one.candidate?.failure?.detail ?? one.error?.detail ?? '',
      ])
    }
    stream.end({ summary: { candidates: candidates.length, ...Object.fromEntries(counts) } }, [
      [...counts].map(([state, count]) => `${count} ${state}`).join(', '),
    ])
    const error = failures.error({ total: candidates.length, goOn: 'retry later' })
    // Whoever is still on the way is in the error of all.
    const worst = gravest([isOutOfTime ? undefined : stopped, error]) ?? stopped
    if (worst) throw worst
  },
})

const isStage = (state: string) => ['received', 'validated', 'selected', 'unknown'].includes(state)

function errorOf(one: PolledCandidate, isOutOfTime: boolean) {
  const { candidate, end, error, statusCode } = one
  if (error !== undefined) return error
  if (end === 'failed') return rowFailedError(one)
  if (end === 'executed') return undefined
  if (isOutOfTime) return pendingError(one, 'retry')
  if (candidate !== undefined) return undefined
  return new UnavailableError(
    'no_status',
    `the gateway returned no status${statusCode === null ? '' : ` (${statusCode})`}`,
    'retry later',
  )
}

const resultOf = ({ candidateId, statusCode, candidate, error }: PolledCandidate) => ({
  candidate_id: candidateId,
  status_code: statusCode,
  candidate: candidate ?? null,
  error: error === undefined ? null : { code: error.code, detail: error.detail },
})

const badId = (source: BatchSource, place: Place) =>
  inputFault(
    source,
    place,
    'invalid_candidate_id',
    'it is not a candidate id',
    'give candidate ids, or what `batch submit` printed',
  )

const noIds = (name: string) =>
  new UsageError(
    'empty_input',
    `${name}: it holds no candidate ids`,
    'give candidate ids, or what `batch submit` printed',
  )
