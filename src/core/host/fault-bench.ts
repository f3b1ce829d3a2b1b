/** A dev gateway whose chain, clock and view can be made to fail (`serve --dev --faults`). */
import { wrapChain } from '#chain/wrap'
import type { DevDescription } from '#devchain/dev-chain'
import { changeQuestion, type DevRound } from '#devchain/dev-verbs'
import { pause } from '#gateway/view/view'
import { aborted } from '#io/interruption'
import { type FaultScript, requireKnownSlugs, withFaults } from '#io/serving/fault-script'
import { type Chain, ChainError, type Machine } from '#ports'
import { ProposerError, UnavailableError } from '#protocol/errors'
import type { HostedGateway } from './gateway-host.js'

export type FaultBench = ReturnType<typeof createFaultBench>

const roundMs = 15_000
const lookMs = 50

export function createFaultBench(machine: Machine, script: FaultScript, dev: DevDescription) {
  requireKnownSlugs(
    script,
    dev.questions.map(({ slug }) => slug),
  )
  const { clock, signal, edges } = machine
  let skewMs = 0
  let lostUntilMs = Number.NEGATIVE_INFINITY
  const isLost = () => clock.monotonicMs() < lostUntilMs
  const stopping = aborted(signal).then(() => undefined)
  const sleep = (ms: number) => pause(clock, ms, signal)
  const idOf = (name: string) =>
    dev.questions.find(({ slug }) => slug === name)?.question_id ?? name

  return {
    machine: {
      ...machine,
      clock: { ...clock, nowMs: () => clock.nowMs() + skewMs },
      edges: {
        ...edges,
        chain: async (urls, expected) => cuttable(await edges.chain(urls, expected), isLost),
      },
    } satisfies Machine,
    before: (
      { gateway, view }: Pick<HostedGateway, 'gateway' | 'view'>,
      note: (line: string) => void,
    ) =>
      withFaults(gateway.answer, script, {
        async advanceRound(question) {
          try {
            const round = await changeQuestion(dev.rpc_url, question, 'reset')
            return await seenBy(view, round, machine, sleep)
          } catch (error) {
            if (error instanceof ProposerError) return error.detail
            throw error
          }
        },
        async loseChain(seconds) {
          lostUntilMs = clock.monotonicMs() + seconds * 1_000
          // The call is to meet a gateway that has noticed; one that needs longer than the loss
          // never does.
          while (isLost() && view.faults().length === 0 && !signal.aborted) await sleep(lookMs)
          if (isLost() || signal.aborted) return
          // Else a test that waits for 503 would fail without a word.
          note(
            `fault: the node is back before the gateway notices: ${seconds} s is not more than chain.max_head_age_seconds`,
          )
        },
        skewClock(seconds) {
          skewMs = seconds * 1_000
        },
        sameQuestion: (one, other) => idOf(one) === idOf(other),
        sleep,
        stopping,
        note,
      }),
  }
}

async function seenBy(
  view: HostedGateway['view'],
  { question_id, timestamp }: DevRound,
  { clock, signal }: Machine,
  sleep: (ms: number) => Promise<void>,
) {
  const endMs = clock.monotonicMs() + roundMs
  while (!signal.aborted) {
    const known = await view.question(question_id).catch((error: unknown) => {
      if (error instanceof UnavailableError) return undefined
      throw error
    })
    if (String(known?.round.timestamp) === timestamp) return undefined
    if (clock.monotonicMs() > endMs) return 'the gateway has not seen it'
    await sleep(lookMs)
  }
  return 'the server stops'
}

function cuttable(chain: Chain, isLost: () => boolean) {
  const refuseWhileLost = () => {
    if (isLost()) throw new ChainError('unavailable', 'no response from the node (fault script)')
  }
  return wrapChain(chain, async (_asked, ask) => {
    refuseWhileLost()
    const response = await ask()
    refuseWhileLost()
    return response
  })
}
