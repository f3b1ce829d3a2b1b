/** `operator candidates explain`: one answer to "what happened to my proposal?" (contract §6). */
import { Command } from 'commander'
import { createRoundReader, type RegistryEntry } from '../../core/chain/questions.js'
import type { Round } from '../../core/chain/round.js'
import { contractsOf } from '../../core/gateway/config.js'
import { explain } from '../../core/gateway/operator/explanation.js'
import { createHistory } from '../../core/gateway/operator/history.js'
import { ChainError } from '../../core/ports.js'
import type { Candidate } from '../../core/protocol/candidate.js'
import type { Context } from '../context.js'
import { expectedChain } from '../hosting/gateway-host.js'
import { look, type Site, siteOf, unknownCandidate } from './access.js'
import { explanationText } from './explain-text.js'

/** The records tell everything but how the token writes its amounts; a chain that is slow is not waited for. */
const tokenMs = 3_000

export const explainCommand = (context: Context) =>
  new Command('explain')
    .description('the whole way of one candidate, and what comes next')
    .argument('<candidate-id>')
    .option('--offline', 'ask no node how the token writes its amounts; they are told in raw units then')
    .action(async (id: string, own: { offline?: boolean }, command: Command) => {
      const site = await siteOf(context, command)
      const history = createHistory(id)
      const { output } = context
      await look(context, site, [history], async ({ state, registry, holder }) => {
        const { candidate } = history
        if (!candidate) throw unknownCandidate(site, id)
        const entry = registry.find(({ questionId }) => questionId === candidate.round.questionId)
        const { config } = site.loaded
        const document = explain(history, candidate, state, {
          nowMs: context.clock.nowMs(),
          slug: entry?.slug,
          isServed: holder?.state === 'alive' && holder.note.startsWith('serve'),
          pipelineEnabled: config.pipeline.enabled,
          executorEnabled: config.executor.enabled,
          token: own.offline === true ? undefined : await tokenOf(context, site, candidate, entry),
        })
        output.result('candidate-explanation', document, (shown) => explanationText(shown, output))
      })
    })

async function tokenOf(
  context: Context,
  { loaded: { config } }: Site,
  { round }: Candidate,
  entry: RegistryEntry | undefined,
): Promise<Round['token'] | undefined> {
  const over = new AbortController()
  const late = context.clock.sleep(tokenMs, over.signal).then(
    () => undefined,
    () => undefined,
  )
  const read = async () => {
    try {
      const chain = await context.edges.chain(config.chain.rpc_urls, expectedChain(config))
      return (await createRoundReader(chain, contractsOf(config)).read(round.questionId, entry))?.token
    } catch (error) {
      // Raw units say the same; the node is not what was asked about.
      if (error instanceof ChainError) return undefined
      throw error
    }
  }
  try {
    const token = await Promise.race([read(), late])
    if (token === undefined) context.output.note('no node told how the token writes its amounts: they are shown in raw units')
    return token
  } finally {
    over.abort()
  }
}
