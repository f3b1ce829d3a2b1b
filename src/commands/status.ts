/** `status`: one candidate, once (spec §2.6, §4.1 rule 4). */
import { Command } from 'commander'
import { failedError } from '../core/client/follow/errors.js'
import { statusOnce } from '../core/client/follow/look.js'
import { endOf } from '../core/client/follow/status.js'
import { ownOf, targetOf } from './poll.js'
import { type SessionFlags, withSession } from './session/session.js'
import { candidateText } from './terminal/candidate-text.js'
import type { Context } from './terminal/context.js'

export const statusCommand = (context: Context): Command =>
  new Command('status')
    .description('show one candidate; exit 7 if it failed')
    .argument('<candidate-id>', 'id from the acknowledgement')
    .option('--question <id>', 'its question, if the candidate is not in the journal')
    .addHelpText('after', '\nExample:\n  proposer status 3f2b8c1e-8d5a-4a52-9c3d-0a1b2c3d4e5f')
    .action(async (candidateId: string, _own: unknown, command: Command) => {
      const flags = command.optsWithGlobals<SessionFlags & { question?: string }>()
      await withSession(context, flags, async (session) => {
        const view = await session.journal.load()
        const own = ownOf(view, candidateId)
        const target = targetOf(view, candidateId, flags.question)
        const gateway = await session.gateway('read')
        const status = await statusOnce(
          { ports: session.ports, gateway, journal: session.journal },
          target,
          { signal: session.signal },
        )
        const labelled = { ...status, label: own?.label ?? null }
        context.output.result('status', { candidates: [labelled] }, () =>
          candidateText(status, context.output, own),
        )
        if (endOf(status) === 'failed') throw failedError(status, own?.journalId)
      })
    })
