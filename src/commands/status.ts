/** `status`: one candidate, once (spec §2.6, §4.1 rule 4). */
import { Command } from 'commander'
import { statusOnce } from '../core/client/polling.js'
import { FailedError } from '../core/protocol/errors.js'
import type { CandidateStatus } from '../core/protocol/schema.js'
import { candidateText } from './candidate-text.js'
import type { Context } from './context.js'
import { targetOf } from './poll.js'
import { type SessionFlags, withSession } from './session.js'

export const statusCommand = (context: Context): Command =>
  new Command('status')
    .description('show one candidate; exit 7 where it failed')
    .argument('<candidate-id>', 'as the acknowledgement gave it')
    .option('--question <id>', 'its question, where the journal does not know the candidate')
    .addHelpText('after', '\nExample:\n  proposer status 3f2b8c1e-8d5a-4a52-9c3d-0a1b2c3d4e5f')
    .action(async (candidateId: string, _own: unknown, command: Command) => {
      const flags = command.optsWithGlobals<SessionFlags & { question?: string }>()
      await withSession(context, flags, async (session) => {
        const target = targetOf(await session.journal.load(), candidateId, flags.question)
        const gateway = await session.gateway('read')
        const status = await statusOnce({ ports: session.ports, gateway, journal: session.journal }, target, { signal: session.signal })
        context.output.result('status', { candidates: [status] }, () => candidateText(status, context.output))
        if (status.failure && status.status === 'failed') throw failedError(status, status.failure)
      })
    })

function failedError(status: CandidateStatus, failure: NonNullable<CandidateStatus['failure']>): FailedError {
  return new FailedError(failure.code, `${status.candidate_id} failed in ${failure.stage}: ${failure.detail}`, {
    retryable: failure.retryable,
    hint: `next: ${failure.next_action}`,
  })
}
