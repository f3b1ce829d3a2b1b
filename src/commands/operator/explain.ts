/** `operator candidates explain`: one answer to "what happened to my proposal?" (contract §6). */
import { Command } from 'commander'
import * as z from 'zod/mini'
import { coinOf } from '../../core/chain/profiles.js'
import { explain, type ServiceState } from '../../core/gateway/status/explanation.js'
import { candidateRow, createReceipts } from '../../core/gateway/status/listing.js'
import { createTimeline } from '../../core/gateway/status/timeline.js'
import { UnavailableError } from '../../core/protocol/errors.js'
import { holderText, type LockHolder } from '../../core/storage/lock.js'
import type { Context } from '../terminal/context.js'
import { adminUrlOf, candidateIdOf, look, siteOf, unknownCandidate } from './access.js'
import { explanationText } from './explain-text.js'
import { knownRounds, offlineOption } from './known-rounds.js'
import { getAdmin } from './remote.js'

export const explainCommand = (context: Context) =>
  explaining(context, 'explain').description(
    'explain the history of a candidate, and what comes next',
  )

/** What `explain` was called once; its JSON has the fields of a row too. */
export const showCommand = (context: Context) =>
  explaining(context, 'show').description('another name of `operator candidates explain --json`')

const explaining = (context: Context, name: 'explain' | 'show') =>
  new Command(name)
    .argument('<candidate-id>')
    .option(...offlineOption)
    .addHelpText(
      'after',
      `\nExample:\n  proposer operator candidates ${name} 3f2b8c1e-8d5a-4a52-9c3d-0a1b2c3d4e5f`,
    )
    .action(async (given: string, own: { offline?: boolean }, command: Command) => {
      const id = candidateIdOf(given)
      const site = await siteOf(context, command)
      const history = createTimeline(id)
      const receipts = createReceipts()
      const { output } = context
      await look(context, site, [history, receipts], async ({ ledger, registry, holder }) => {
        const { candidate } = history
        if (!candidate) throw unknownCandidate(site, id)
        const { questionId } = candidate.round
        const slug = registry.find((entry) => entry.questionId === questionId)?.slug
        const { config } = site.loaded
        const asked = own.offline === true ? [] : [questionId]
        const round = (await knownRounds(context, site, registry, asked)).get(questionId)
        const told = explain(history, candidate, ledger, {
          nowMs: context.clock.nowMs(),
          slug,
          service: await serviceOf(context, holder),
          pipelineEnabled: config.pipeline.enabled,
          executorEnabled: config.executor.enabled,
          token: round?.token,
          outcomes: round?.outcomes,
        })
        const text = () => explanationText(told, output, coinOf(config.chain.id))
        if (name === 'explain') output.result('candidate-explanation', told, text)
        else {
          const row = candidateRow(candidate, slug, receipts)
          output.result('operator-candidate', { ...told, ...row }, text)
        }
      })
    })

/** Who works on the store, and what its readiness says; a gateway that hangs is not waited for. */
async function serviceOf(context: Context, holder: LockHolder | undefined): Promise<ServiceState> {
  if (holder === undefined || holder.state === 'free' || holder.state === 'dead')
    return { kind: 'none' }
  const url = adminUrlOf(holder)
  if (url === undefined) return { kind: 'held', by: holderText(holder) }
  try {
    const read = Readiness.safeParse(
      await getAdmin(context, `${url}/readyz`, { timeoutMs: readyMs, statuses: [200, 503] }),
    )
    return { kind: 'serves', reasons: read.data?.reasons }
  } catch (error) {
    // The records are reported all the same, and that nobody answered is part of the answer.
    if (error instanceof UnavailableError) return { kind: 'serves', reasons: undefined }
    throw error
  }
}
const readyMs = 3_000
const Readiness = z.object({ reasons: z.array(z.string()) })
