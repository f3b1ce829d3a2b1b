/**
 * Rows with saved bytes that must not be sent: replaced (R8), sent to another gateway before
 * (contract §6), or of a round that is over (§7 rule 3). The rules are those of `replay` and
 * `submit`; here they are asked for many rows at once.
 */
import { ProposerError, UncertainError } from '../../protocol/errors.js'
import { isAborted } from '../gateway/retry.js'
import type { BatchRow } from '../input/input.js'
import { type Authorization, isUnsettled } from '../journal/authorizations.js'
import { atRequester, mayBeAt } from '../trust/trust.js'
import type { SubmitParts } from './attempt.js'
import type { BatchParts, Planned } from './plan.js'
import { sentElsewhere, supersededError } from './replay.js'
import { type CurrentRound, foundOver, knownOver, type RoundOver } from './round-over.js'
import type { Settled } from './settle.js'
import { candidateInJournal } from './told.js'

type Parts = BatchParts & SubmitParts

/** A row that is told of instead of sent. */
export interface Held {
  readonly kind: 'held'
  readonly row: BatchRow
  readonly result: Settled
}

/**
 * The same plans, with what must not be sent held. `signal` ends the look at the rounds; what is
 * not learned holds nothing.
 */
export async function holdBack<Plan extends Planned>(
  parts: Parts,
  plans: readonly Plan[],
  signal: AbortSignal | undefined,
): Promise<readonly (Plan | Held)[]> {
  const saved = plans.flatMap((plan) => (plan.kind === 'send' ? [plan.authorization] : []))
  // Only the word of a node outrules what a gateway once said: nobody else is asked before the
  // sending.
  const round =
    parts.chain === undefined ? undefined : roundsOf(parts, saved.filter(isUnsettled), signal)
  const held: (Plan | Held)[] = []
  for (const plan of plans) {
    const result =
      plan.kind === 'send' ? await heldResult(parts, plan.authorization, round) : undefined
    held.push(result === undefined ? plan : { kind: 'held', row: plan.row, result })
  }
  return held
}

/** What is told in place of sending an authorization; `undefined` where it may be sent. */
export async function heldResult(
  { ports, gateway }: Pick<Parts, 'ports' | 'gateway'>,
  authorization: Authorization,
  round?: CurrentRound,
): Promise<Settled | undefined> {
  const superseded = supersededError(authorization)
  if (superseded !== undefined)
    return { outcome: 'rejected', statusCode: null, authorization, error: superseded }
  const away = sentElsewhere(authorization, gateway.origin, ports.clock.nowMs())
  if (away !== undefined) {
    const { error, origin, flag } = away
    const known = candidateInJournal(authorization) ?? {
      outcome: error instanceof UncertainError ? ('unknown' as const) : ('deferred' as const),
      statusCode: null,
    }
    return { ...known, authorization, error, elsewhere: { origin, flag } }
  }
  const over = await knownOver(authorization, round)
  return over === undefined ? undefined : overResult(over)
}

function overResult({ outcome, statusCode, authorization, error, outOfBand }: RoundOver): Settled {
  const told = outOfBand === undefined ? {} : { outOfBand }
  return {
    outcome: outcome === 'conflict' ? 'rejected' : 'unknown',
    statusCode,
    authorization,
    error,
    ...told,
  }
}

/**
 * The results after a sending, where what was refused is of a round that is over: with what the
 * out-of-band channel needs.
 */
export async function withRoundsOver<Result extends Settled & { readonly row: BatchRow }>(
  parts: Parts,
  results: readonly Result[],
  signal: AbortSignal | undefined,
): Promise<readonly Result[]> {
  const mayBe = ({ error, statusCode }: Settled) =>
    error !== undefined && (error.code === 'round_advanced' || statusCode === 403)
  if (!results.some(mayBe)) return results
  const view = await parts.journal.load()
  const sentOf = ({ authorization }: Settled) =>
    authorization === undefined ? undefined : view.find(authorization.id)
  // An intent's round is looked at where it is planned anew, which signs for the new one.
  const asked = results.filter(({ row, statusCode }) => row.kind === 'item' && statusCode === 403)
  const round = roundsOf(
    parts,
    asked.flatMap((one) => sentOf(one) ?? []),
    signal,
  )
  const told: Result[] = []
  for (const one of results) {
    const { row, error, statusCode } = one
    const sent = mayBe(one) ? sentOf(one) : undefined
    const over =
      sent === undefined || error === undefined
        ? undefined
        : await foundOver(
            parts,
            sent,
            { statusCode, code: error.code },
            row.kind === 'item' ? round : undefined,
          )
    told.push(over === undefined ? one : { ...one, ...overResult(over) })
  }
  return told
}

type Request = { readonly timestamp: string; readonly requester: string }

/**
 * The rounds that the questions of these authorizations are in, asked for in one go when the first
 * is wanted.
 */
function roundsOf(
  { contexts, chain, trust }: Pick<Parts, 'contexts' | 'chain' | 'trust'>,
  authorizations: readonly Authorization[],
  signal: AbortSignal | undefined,
): CurrentRound {
  const questionIds = [...new Set(authorizations.map(({ signed }) => signed.questionId))]
  let asked: Promise<ReadonlyMap<string, Request>> | undefined
  const ask = async () => {
    try {
      const results = await contexts.contexts(questionIds, signal === undefined ? {} : { signal })
      return new Map(
        results.flatMap(({ identifier, context }) =>
          context === undefined ? [] : [[identifier, context.request]],
        ),
      )
    } catch (error) {
      // Nobody tells: what is known without it stands.
      if (error instanceof ProposerError || isAborted(signal)) return new Map<string, Request>()
      throw error
    }
  }
  return {
    isFree: chain !== undefined,
    async timestamp({ signed }) {
      asked ??= ask()
      const request = (await asked).get(signed.questionId)
      // Of another requester's round nothing follows for this one.
      return request !== undefined && mayBeAt(atRequester(trust, request.requester), signed)
        ? request.timestamp
        : undefined
    },
  }
}
