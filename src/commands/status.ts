/** `status`: one candidate, once (spec §2.6, §4.1 rule 4). */
import { Command } from 'commander'
import { failedError } from '../core/client/follow/errors.js'
import { statusOnce } from '../core/client/follow/look.js'
import { endOf } from '../core/client/follow/status.js'
import { isContestedState } from '../core/client/positions/last-known.js'
import type { ReconciledEntry } from '../core/client/wallet/advice.js'
import { reconcile } from '../core/client/wallet/reconcile.js'
import { ownOf, targetOf } from './poll.js'
import { type Session, type SessionFlags, withSession } from './session/session.js'
import { candidateText } from './terminal/candidate-text.js'
import type { Context } from './terminal/context.js'
import { nextLines, positionData } from './terminal/position-text.js'

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
        const entry =
          own !== undefined && endOf(status) === 'executed'
            ? await onChain(session, status.question_id ?? target.identifier, own.journalId)
            : undefined
        const position = entry === undefined ? {} : { position: positionData(entry) }
        const labelled = { ...status, label: own?.label ?? null, ...position }
        const { output } = context
        output.result('status', { candidates: [labelled] }, () => {
          const text = candidateText(status, output, own)
          if (entry?.position === undefined) return text
          const next = nextLines(entry, output.columns).join('\n')
          return isContestedState(entry.position.state) ? `${next}\n\n${text}` : `${text}\n${next}`
        })
        if (endOf(status) === 'failed') throw failedError(status, own?.journalId)
      })
    })

/** What the chain says of an executed one of ours; `undefined` where no node is configured. */
async function onChain(
  session: Session,
  question: string | undefined,
  journalId: string,
): Promise<ReconciledEntry | undefined> {
  const chain = await session.chain()
  if (chain === undefined || question === undefined) return undefined
  const { ports, journal, signal } = session
  const parts = { ports, journal, trust: await session.trust(), chain, signal, dryRun: true }
  return (await reconcile(parts, question)).entries.find(({ id }) => id === journalId)
}
