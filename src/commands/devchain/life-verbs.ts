/**
 * Verbs of `devchain` for what comes after a proposal, and for what a signature does not cover
 * (contract §9).
 */
import type { DevRole } from '../../core/devchain/dev-contracts.js'
import type { DevSettlement, VotedOutcome } from '../../core/devchain/dev-life.js'
import { durationMs } from '../../core/protocol/duration.js'
import { UsageError } from '../../core/protocol/errors.js'
import { amountText, dateText } from '../terminal/render.js'
import {
  formParser,
  identifier,
  printRound,
  requireDevIdentifier,
  roundStateText,
  tokenUnits,
  type Verb,
} from './verb.js'

/** Deadlines and liveness are counted in hours; ten years leave all of them behind. */
const longestWarpSeconds = 3_650 * 86_400

function requireSeconds(text: string): number {
  const seconds = Math.round((durationMs(text) ?? 0) / 1_000)
  if (seconds >= 1 && seconds <= longestWarpSeconds) return seconds
  throw new UsageError('bad_duration', `${text} is not a duration from 1 s to 3650d`, {
    hint: 'give seconds or units, such as 7200, 90m or 2h30m',
  })
}

const requireVote = formParser<VotedOutcome>(
  /^p[1-4]$/,
  new UsageError('bad_outcome', '--outcome must be p1, p2, p3 or p4', {
    hint: 'give p1, p2, p3, or p4 for too early',
  }),
)

const requireRole = formParser<DevRole>(
  /^(admin|executor|proposer|disputer|rival|outsider)$/,
  new UsageError('bad_role', '--as is no role of the dev chain', {
    hint: 'give proposer, disputer, rival, outsider, executor or admin, or leave it out',
  }),
)

function settlementText(settled: DevSettlement): string {
  const { question_id, timestamp, outcome, payout, paid_to, deferred, resolved } = settled
  const answer = outcome ?? 'a price of no outcome'
  const paid = `${amountText(payout, tokenUnits)} ${deferred ? 'deferred for' : 'paid to'} ${paid_to}`
  const then =
    settled.new_round === null
      ? resolved && ', question resolved'
      : `, new round ${dateText(settled.new_round)}`
  return `${question_id}  round ${dateText(timestamp)}  settled as ${answer}, ${paid}${then || ''}`
}

/** What may happen to a proposal once it is executed, and to its question around it. */
export const lifeVerbs: readonly Verb[] = [
  {
    name: 'warp',
    description: 'move the clock of the chain forward',
    arguments: [['<duration>', 'such as 7200, 90m or 2h30m']],
    example: '2h30m',
    run([duration = ''], _flags, { output }) {
      const seconds = requireSeconds(duration)
      return async ({ warp }, url) =>
        output.result(
          'devchain',
          await warp(url, seconds),
          ({ timestamp, block }) => `${dateText(timestamp)}, block ${block}`,
        )
    },
  },
  {
    name: 'settle',
    description: 'settle the newest round that can be settled, and resolve its question',
    arguments: [identifier],
    example: 'will-it-rain-in-porto-on-friday',
    run([question = ''], _flags, { output }) {
      requireDevIdentifier(question)
      return async ({ settleRound }, url) => {
        const settled = await settleRound(url, question)
        output.result('devchain', { ...settled, state: roundStateText(settled) }, () =>
          settlementText(settled),
        )
      }
    },
  },
  {
    name: 'vote',
    description: 'give the answer of the voters to the newest disputed round',
    arguments: [identifier],
    required: ['--outcome <key>', 'p1, p2, p3, or p4 for too early'],
    example: 'will-it-rain-in-porto-on-friday --outcome p4',
    more: ({ outcome }) => [outcome],
    run([question = ''], { outcome }, context) {
      const answer = requireVote(outcome)
      requireDevIdentifier(question)
      return async ({ vote }, url) => printRound(context, await vote(url, question, answer))
    },
  },
  {
    name: 'clarify',
    description: 'post a clarification of a question, as its creator',
    arguments: [identifier, ['<text>', 'the clarification']],
    options: [
      ['--as <role>', 'post as another account, such as outsider, whose posts do not count'],
      ['--rules', "post an update of the request's rules; requires version 3 of the oracle"],
    ],
    example: "will-it-rain-in-porto-on-friday 'Drizzle counts as rain.'",
    more: ({ as, rules }) => [...(as ? [`as ${as}`] : []), ...(rules ? ['to the rules'] : [])],
    run([question = '', text = ''], { as, rules = false }, { output }) {
      requireDevIdentifier(question)
      const how = { rules, ...(as !== undefined && { as: requireRole(as) }) }
      return async ({ clarify }, url) =>
        output.result(
          'devchain',
          await clarify(url, question, new TextEncoder().encode(text), how),
          ({ question_id, owner, timestamp }) =>
            `${question_id}  clarified ${dateText(timestamp)} by ${owner}`,
        )
    },
  },
]
